"""The hardware's dispatch for a terminal: order, places and turnaround; and co-residency of CTAs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from wavescope.co_residency import CoResidency, Forced
from wavescope.dispatch import Dispatch, Turnaround
from wavescope.report import figures
from wavescope.report.layout import Column, Page, heading, labelled, paragraph, table

_SHOWN_WAVES = 12


def section(page: Page, found: Dispatch, sentences: Sequence[str], source: str) -> list[Text]:
    """Places used, the ramp, turnaround by rank wave, and what the scheduler was seen to do."""
    lines = [heading(page, "Dispatch: what the block scheduler did", source)]
    peaks = ", ".join(f"{count} on {sms} SMs" for count, sms in found.peak_ctas.items())
    ramp = f"{found.ramp_ns.value:.0f} {page.glyphs.plus_minus}{found.ramp_ns.error:.0f} ns"
    rows = [
        (
            "CTAs",
            f"{found.ctas} on {found.sms} SMs; at most at once: {peaks}; {found.peak_places} of {found.places} places",
        ),
        ("ramp", f"{ramp} from the first CTA's begin to the first begin on the last SM"),
    ]
    for label, text in rows:
        lines += labelled(page, label, text)
    if found.turnarounds:
        lines += _turnarounds(page, found.turnarounds)
    for sentence in sentences:
        lines += paragraph(page, sentence)
    return lines


def _turnarounds(page: Page, turns: Sequence[Turnaround]) -> list[Text]:
    shown = turns if len(turns) <= _SHOWN_WAVES else [*turns[: _SHOWN_WAVES - 1], turns[-1]]
    columns = [
        Column("turnaround into wave", [str(turn.wave + 1) for turn in shown]),
        Column("CTAs", [str(turn.count) for turn in shown]),
        Column("least ns", [f"{turn.ns[0]:.0f}" for turn in shown], drop=2),
        Column("median", [f"{turn.ns[1]:.0f}" for turn in shown]),
        Column("most", [f"{turn.ns[2]:.0f}" for turn in shown], drop=2),
    ]
    if all(turn.cycles for turn in shown):
        cycles = [turn.cycles or (0.0, 0.0, 0.0) for turn in shown]
        columns += [
            Column("least cycles", [f"{least:.0f}" for least, _, _ in cycles], drop=1),
            Column("median", [f"{median:.0f}" for _, median, _ in cycles]),
            Column("most", [f"{most:.0f}" for _, _, most in cycles], drop=1),
        ]
    lines = table(page, columns)
    if len(shown) < len(turns):
        lines[-1:-1] = paragraph(page, f"{page.glyphs.ellipsis} {len(turns) - len(shown)} waves left out", "dim")
    return lines


def co_residency(page: Page, found: CoResidency, sentences: Sequence[str], source: str) -> list[Text]:
    """CTAs per SM over time, and what units cost beside others."""
    lines = [heading(page, "Co-residency: CTAs side by side on an SM", source)]
    crowds = found.crowds
    lines += table(
        page,
        [
            Column("CTAs on the SM", [str(crowd.resident) for crowd in crowds]),
            Column("of SM time", [figures.percent(crowd.sm_share) for crowd in crowds]),
            Column("units", [str(crowd.units) for crowd in crowds]),
            Column("kcycles", [f"{crowd.cycles / 1e3:.2f}" if crowd.cycles else "-" for crowd in crowds]),
            Column("unit", [figures.time(crowd.ns) if crowd.ns else "-" for crowd in crowds], drop=1),
            Column("SM does", [f"{crowd.throughput:.3f}" if crowd.throughput else "-" for crowd in crowds]),
        ],
    )
    if len(found.ranks) > 1:
        lines += table(
            page,
            [
                Column("older CTAs there", [str(rank.older) for rank in found.ranks]),
                Column("units", [str(rank.units) for rank in found.ranks]),
                Column("kcycles", [f"{rank.cycles / 1e3:.2f}" if rank.cycles else "-" for rank in found.ranks]),
                Column("unit", [figures.time(rank.ns) for rank in found.ranks]),
            ],
        )
    bars = "".join(page.glyphs.level(part / max(1, found.ctas_per_sm)) for part in found.parts)
    lines += labelled(page, "over time", f"{bars}  CTAs per SM, of {found.ctas_per_sm}, in {len(bars)} equal parts")
    lines += paragraph(
        page,
        "SM does: units per cycle against an SM with one CTA; units that had as many nine tenths of their time.",
        "dim",
    )
    for sentence in sentences:
        lines += paragraph(page, sentence)
    return lines


def comparison(page: Page, rows: Sequence[Forced], source: str) -> list[Text]:
    """Launches with 1, 2, .. CTAs per SM side by side."""
    lines = [heading(page, "Contention: the same work with more CTAs per SM", source)]
    return lines + table(
        page,
        [
            Column("CTAs per SM", [str(row.ctas_per_sm) for row in rows]),
            Column("units", [str(row.units) for row in rows], drop=2),
            Column("unit kcycles", [f"{row.unit_cycles / 1e3:.2f}" for row in rows]),
            Column("unit", [figures.time(row.unit_ns) for row in rows], drop=1),
            Column("MHz", [f"{row.mhz:.0f}" for row in rows], drop=1),
            Column("SM does, by cycle", [f"{row.per_sm_cycle:.3f}" for row in rows]),
            Column("by time", [f"{row.per_sm_ns:.3f}" for row in rows]),
        ],
    )
