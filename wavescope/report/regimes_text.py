"""Regimes side by side, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from wavescope.regimes import RegimeRow, regime_sentences
from wavescope.report import figures
from wavescope.report.layout import Column, Page, heading, paragraph, table


def lines(page: Page, rows: Sequence[RegimeRow]) -> list[Text]:
    """The table and its sentences; nothing where there is only one regime."""
    if len(rows) < 2:
        return []
    columns = [
        Column("regime", [row.regime for row in rows]),
        Column("time", [figures.time(row.time_ns.median) for row in rows]),
        Column("95%", [f"{figures.time(row.time_ns.low)} to {figures.time(row.time_ns.high)}" for row in rows], drop=2),
        Column("TFLOP/s", ["" if row.tflops is None else f"{row.tflops:.1f}" for row in rows]),
        Column("kcycles", [f"{row.longest_sm_cycles / 1000:.1f}" for row in rows]),
        Column("MHz", [f"{row.clock_mhz:.0f}" for row in rows]),
        Column("tail", [figures.percent(row.tail_share) for row in rows]),
        Column("time x", [f"{row.time_ratio:.3f}" for row in rows]),
        Column("cycles x", [f"{row.cycle_ratio:.3f}" for row in rows], drop=1),
    ]
    result = [heading(page, "Regimes", "measured"), *table(page, columns)]
    for sentence in regime_sentences(rows):
        result += paragraph(page, sentence)
    return result
