"""What-if questions for a terminal: the launch as recorded, and what is predicted."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from wavescope.report import figures
from wavescope.report.layout import Column, Page, heading, labelled, paragraph, table
from wavescope.what_if import Outcome, WhatIf

_LABEL = 34  # cells of a question that stands in the table; all are below it too


def section(page: Page, found: WhatIf, sentences: Sequence[str]) -> list[Text]:
    """A row for the launch as recorded, one for it simulated, one for each question."""
    outcomes = found.outcomes
    unit = figures.unit_for(outcomes[0].duration_ns, at_least=10)
    labels = [_label(one, index) for index, one in enumerate(outcomes)]
    wide = max(map(len, labels))
    columns = [
        Column("", [f"{label:<{wide}}" for label in labels]),
        Column(f"T {unit.name}", [unit.number(one.duration_ns, 2) for one in outcomes]),
        Column("to recorded", [f"{one.to_recorded:.3f}" for one in outcomes], drop=2),
        Column("not idle", [figures.percent(one.not_idle_share) for one in outcomes]),
        Column("tail", [figures.percent(one.tail_share) for one in outcomes]),
        Column("fixup+wait", [figures.percent(one.met_share) for one in outcomes], drop=1),
        Column("bound", [f"{one.bound:.3f}" for one in outcomes]),
    ]
    lines = [heading(page, "What if", "estimated"), *table(page, columns)]
    for index, one in enumerate(outcomes[2:], 1):
        what = f"{one.what}: {one.sms} SMs, tile {one.tile}, {one.runs}"
        lines += labelled(page, f"question {index}", what)
    for sentence in sentences:
        lines += paragraph(page, sentence)
    return lines


def _label(one: Outcome, index: int) -> str:
    text = f"{one.what}, {one.source}"
    return text if len(text) <= _LABEL else f"question {index - 1}, {one.source}"
