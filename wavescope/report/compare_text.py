"""A comparison for a terminal: a table a regime, budgets and pictures side by side, and the verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rich.text import Text

from wavescope.comparison import LIBRARY, SIMULATED, Comparison, Contender
from wavescope.report import compare_charts, figures
from wavescope.report.layout import INDENT, Column, Page, fitting, heading, labelled, paragraph, table
from wavescope.report.text import verified_line
from wavescope.standings import Standing
from wavescope.stats import Estimate
from wavescope.verdicts import Verdict
from wavescope.wave_report import Picture, WaveReport

_LABEL = 12
_TO_LIBRARY = f"x {LIBRARY}"
_OUTCOME_STYLES = {"faster": "bold green", "slower": "bold red", "even": "bold", "same work": "bold"}


def lines(
    page: Page,
    found: Comparison,
    placed: Sequence[Standing],
    said: Sequence[Verdict],
    pictures: Sequence[tuple[Standing, Picture]],
) -> list[Text]:
    """The whole comparison, one Text a line, none wider than the page."""
    sections = [_header(page, found)]
    for regime in found.regimes:
        here = [standing for standing in placed if standing.regime == regime]
        sections.append(_standings(page, found, regime, here))
    for regime in found.regimes:
        here = [standing for standing in placed if standing.regime == regime and standing.report]
        sections.append(compare_charts.budgets(page, here, found.source))
    sections += [compare_charts.pictures(page, pictures, found.source), _verdicts(page, said)]
    body = [line for section in sections if section for line in (*section, Text())]
    return body[:-1]


def _header(page: Page, found: Comparison) -> list[Text]:
    result = [heading(page, f"wavescope compare: {found.problem}, tile {found.tile}", found.source)]
    device = found.device
    if found.source == "simulated":
        text = f"SIMULATED because {found.reason}: a virtual {device.name} made these numbers, nothing was measured."
        result += paragraph(page, text, "bold yellow")
    major, minor = device.compute_capability
    tiles = found.tile.num_tiles(found.problem)
    k_iters = found.tile.k_iters(found.problem)
    rows = [
        ("device", f"{device.name}, {device.sms} SMs, sm_{major}{minor}, up to {device.max_clock_mhz:g} MHz"),
        ("tiles", f"{figures.grouped(tiles)} of {figures.grouped(k_iters)} k_iters each, for every schedule"),
    ]
    rows += [(one.name, ran) for one in found.contenders if (ran := _what_ran(one))]
    rows += _verified(found)
    shared, own = _notes(found)
    rows += [("note", note) for note in shared]
    rows += [("note", f"{name}: {note}") for name, note in own]
    for label, text in rows:
        result += _labelled(page, label, text)
    return result


def _labelled(page: Page, label: str, text: str) -> list[Text]:
    """A label and its text; a label that leaves no gap is followed by two spaces."""
    width = _LABEL if len(label) < _LABEL else len(label) + 2
    return labelled(page, label, text, label_width=width)


def _what_ran(one: Contender) -> str:
    """What ran, without the schedule's name in front; nothing where that name says all."""
    schedule, _, rest = one.ran.partition(": ")
    return rest if re.split("[:@]", one.name)[0] == schedule else one.ran


def _verified(found: Comparison) -> list[tuple[str, str]]:
    """Checks of the results, contenders that came to the same together."""
    by_words: dict[str, list[str]] = {}
    for one in found.contenders:
        words = verified_line(one.verified) or "not verified"
        if one.unavailable is None and found.source == "measured":
            by_words.setdefault(words, []).append(one.name)
    everybody = len(by_words) == 1
    return [("verified", words if everybody else f"{', '.join(names)}: {words}") for words, names in by_words.items()]


def _notes(found: Comparison) -> tuple[list[str], list[tuple[str, str]]]:
    """Notes of all contenders' launches, and those of some, by contender."""
    of_each: list[tuple[str, list[str]]] = []
    for one in found.contenders:
        launches = one.trace.launches if one.trace else ()
        skipped = (f"compared as {one.name}", f"simulated because {found.reason}")
        notes = [note for launch in launches for note in launch.notes if note not in skipped]
        of_each.append((one.name, list(dict.fromkeys([*notes, *one.notes]))))
    traced = [set(notes) for name, notes in of_each if any(one.name == name and one.trace for one in found.contenders)]
    common = set.intersection(*traced) if traced else set()
    shared = [note for note in dict.fromkeys(note for _, notes in of_each for note in notes) if note in common]
    return shared, [(name, note) for name, notes in of_each for note in notes if note not in common]


# --- the table of a regime


def _standings(page: Page, found: Comparison, regime: str, here: Sequence[Standing]) -> list[Text]:
    title = "Result" if regime == SIMULATED else f"Result, regime {regime}"
    columns = fitting(page, _columns(page, here))
    lines = [heading(page, title, found.source), *table(page, columns)]
    for one in found.contenders:
        if one.unavailable:
            lines += paragraph(page, f"{one.name} did not run: {one.unavailable}.", "yellow")
    return lines + paragraph(page, _legend(found, here, {column.title for column in columns}), "dim")


def _columns(page: Page, here: Sequence[Standing]) -> list[Column]:
    """Every column that has something in it; what says most goes last where room is short."""
    unit = figures.unit_for(max(one.time_ns.median for one in here), at_least=10)
    wide = max(len("schedule"), *(len(one.name) for one in here))

    def of_report(title: str, cell: Callable[[WaveReport], str], drop: int = 0) -> Column:
        return Column(title, [cell(one.report) if one.report else "" for one in here], drop)

    def estimate(value: Estimate | None, scale: float, decimals: int) -> str:
        return "" if value is None else _spread(page, value, scale, decimals)

    columns = [
        Column("schedule".ljust(wide), [one.name.ljust(wide) for one in here]),
        Column(f"time {unit.name}", [estimate(one.time_ns, unit.ns, 2) for one in here]),
        Column("TFLOP/s", [f"{one.tflops:.1f}" for one in here], drop=4),
        Column("speed", [estimate(one.ratio, 1.0, 3) for one in here]),
        Column(_TO_LIBRARY, [estimate(one.library_ratio, 1.0, 3) for one in here], drop=3),
        of_report("units", lambda report: figures.grouped(report.waves.num_units), drop=8),
        of_report("busy", lambda report: figures.percent(report.budget.not_idle.value / report.budget.total_ns)),
        of_report("fixup+wait", _fixup_and_wait, drop=1),
        of_report("tail", lambda report: figures.percent(report.budget.share("tail"))),
        of_report("bound", lambda report: f"{report.bound.value:.3f}", drop=6),
        Column("kcycles", [estimate(one.cycles, 1e3, 1) for one in here], drop=2),
        of_report("MHz", lambda report: f"{report.clock.mean_mhz:.0f}" if report.clock else "", drop=5),
        Column(f"predicted {unit.name}", [_predicted(one, unit) for one in here], drop=7),
    ]
    return [column for column in columns if any(cell.strip() for cell in column.cells)]


def _spread(page: Page, value: Estimate, scale: float, decimals: int) -> str:
    """A median and the wider side of its interval, in units of `scale`; an exact value alone."""
    wider = max(value.high - value.median, value.median - value.low) / scale
    shown = f"{value.median / scale:.{decimals}f}"
    return f"{shown} {page.glyphs.plus_minus}{wider:.{decimals}f}" if value.high > value.low else shown


def _fixup_and_wait(report: WaveReport) -> str:
    return figures.percent(report.budget.share("fixup") + report.budget.share("wait"))


def _predicted(one: Standing, unit: figures.TimeUnit) -> str:
    predicted = one.contender.predicted_ns
    return "" if predicted is None else unit.number(predicted, 2)


def _legend(found: Comparison, here: Sequence[Standing], titles: set[str]) -> str:
    """What the columns are, of those that are there."""
    said = [f"speed: time of {found.first.name} / own"]
    if _TO_LIBRARY in titles:
        said.append(f"{_TO_LIBRARY}: time of {LIBRARY} / own")
    said.append("busy: SM time not idle")
    if "bound" in titles:
        said.append("bound: what perfect balance could bring at most (estimated)")
    if "kcycles" in titles:
        said.append("kcycles: of the SM that was at work the longest")
    if any(title.startswith("predicted") for title in titles):
        said.append("predicted: T on the calibrated virtual device (estimated)")
    if any(one.time_ns.high > one.time_ns.low for one in here):
        said.append("medians with the wider side of their 95% interval")
    return "; ".join(said) + "."


# --- the verdicts


def _verdicts(page: Page, said: Sequence[Verdict]) -> list[Text]:
    """A paragraph a verdict, its outcome first."""
    if not said:
        return []
    result = [heading(page, "Verdict" if len(said) == 1 else "Verdicts")]
    for verdict in said:
        first, *others = verdict.sentences
        result += paragraph(page, first, _OUTCOME_STYLES[verdict.outcome])
        for sentence in others:
            result += paragraph(page, sentence, indent=2 * INDENT)
    return result
