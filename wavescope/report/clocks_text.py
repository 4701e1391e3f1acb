"""The clocks of a launch for a terminal: by kind of span, by clock domain and over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from wavescope.clocks import PARTS, Clocks
from wavescope.report.layout import Column, Page, heading, labelled, paragraph, table
from wavescope.wave_report import Quantity

_LABEL = 12


def section(page: Page, clocks: Clocks | None, sentences: Sequence[str], source: str) -> list[Text]:
    """Mean, range and error, a table with a row a clock domain, and what it means."""
    lines = [heading(page, "Clocks: SM cycles over time, MHz", source)]
    if clocks is None:
        return lines + paragraph(page, "The spans carry no clock readings.")
    low, median, high = clocks.span
    known = [mhz.value for mhz in clocks.by_sm if not math.isnan(mhz.value)]
    rows = [
        ("mean", f"{_with_error(page, clocks.mean)} of {clocks.max_mhz:g}; by SM {min(known):.0f} to {max(known):.0f}"),
        (
            "spans",
            f"{low:.0f}, {median:.0f}, {high:.0f} (5, 50, 95%); "
            f"error of one {page.glyphs.plus_minus}{clocks.span_error:.0f}",
        ),
        ("by kind", ", ".join(f"{name} {_with_error(page, mhz)}" for name, mhz in clocks.by_kind.items())),
    ]
    for label, text in rows:
        lines += labelled(page, label, text, _LABEL)
    lines += table(page, _columns(page, clocks))
    lines += paragraph(page, f"Columns from 0%: equal parts of the time, {PARTS} in all.", "dim")
    for sentence in sentences:
        lines += paragraph(page, sentence)
    return lines


def _with_error(page: Page, mhz: Quantity) -> str:
    return f"{mhz.value:.1f} {page.glyphs.plus_minus}{mhz.error:.1f}"


def _columns(page: Page, clocks: Clocks) -> list[Column]:
    domains = clocks.domains
    if len(domains):
        members = [domains.members(index) for index in range(len(domains))]
        columns = [
            Column("domain", [str(index) for index in range(len(domains))]),
            Column("SMs", [str(len(sms)) for sms in members]),
            Column("first SM", [str(sms.min()) for sms in members], drop=2),
            Column("mean", [f"{mhz.value:.0f}" for mhz in clocks.by_domain]),
        ]
    else:
        columns = [Column("SMs", [str(len(domains.sm_ids))]), Column("mean", [f"{clocks.mean.value:.0f}"])]
    for part in range(PARTS):
        cells = ["-" if math.isnan(mhz) else f"{mhz:.0f}" for mhz in clocks.parts[:, part].tolist()]
        columns.append(Column(f"{100 * part // PARTS}%", cells, drop=1 if part % 2 else 0))
    return columns
