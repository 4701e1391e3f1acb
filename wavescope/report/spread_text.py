"""The spread of unit lengths for a terminal: each factor's share, and what chance gives."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from wavescope.report import figures
from wavescope.report.layout import Column, Page, heading, labelled, paragraph, table
from wavescope.spread import Factor, Measured, Spread

_TITLES = {"cycles": "cycles", "ns": "time"}


def section(page: Page, found: Spread, sentences: Sequence[str], source: str) -> list[Text]:
    """How far units differ, in cycles and in time, and which factors that goes with."""
    lines = [heading(page, "Spread: where slow units come from", source)]
    for measured in found.measured:
        lines += labelled(page, _TITLES[measured.measure], _lengths(found, measured))
    if found.measured:
        lines += _factors(page, found)
        note = (
            "Shares of the variance; but for wave, of what is left within waves and among units with the same "
            f"neighbours on their SM. (chance): mean of {found.permutations} shuffles. p: after Holm over all of them."
        )
        lines += paragraph(page, note, "dim")
    for name, why in found.left_out.items():
        lines += paragraph(page, f"Not asked for {_TITLES.get(name, name)}: {why}.", "dim")
    for sentence in sentences:
        lines += paragraph(page, sentence)
    return lines


def _lengths(found: Spread, measured: Measured) -> str:
    if measured.measure == "cycles":
        low, median, high = (f"{value / 1e3:.2f}" for value in (measured.low, measured.median, measured.high))
        text = f"{median} kcycles ({low} to {high})"
    else:
        low, median, high = (figures.time(value) for value in (measured.low, measured.median, measured.high))
        text = f"{median} ({low} to {high})"
    each = "a k_iter" if found.per_k_iter else "a unit"
    chosen = f", {found.tested} of {found.units} units chosen at random" if found.tested < found.units else ""
    return f"{text} {each}, median and 10 to 90%; standard deviation {measured.variation:.2%} of the mean{chosen}"


def _factors(page: Page, found: Spread) -> list[Text]:
    names = list(dict.fromkeys(factor.name for measured in found.measured for factor in measured.factors))
    if not names:
        return []
    by_name = [{factor.name: factor for factor in measured.factors} for measured in found.measured]
    any_of = {name: next(factors[name] for factors in by_name if name in factors) for name in names}
    columns = [
        Column("factor", names),
        Column("fixed", [any_of[name].within for name in names], drop=5),
        Column("levels", [str(any_of[name].levels) for name in names], drop=4),
    ]
    for measured, factors in zip(found.measured, by_name, strict=True):
        title = _TITLES[measured.measure]
        drop = 0 if measured is found.measured[0] else 3  # a narrow page has room for one measure
        columns.append(Column(f"of {title} (chance)", [_share(factors.get(name)) for name in names], drop))
        p_values = [f"{factors[name].adjusted_p:.3f}" if name in factors else "-" for name in names]
        columns.append(Column("p", p_values, drop))
    return table(page, columns)


def _share(factor: Factor | None) -> str:
    if factor is None:
        return "-"
    return f"{figures.percent(factor.effect.eta_squared)} ({figures.percent(factor.effect.by_chance)})"
