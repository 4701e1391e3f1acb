"""The sections that a terminal report gets only when asked."""

from __future__ import annotations

from rich.text import Text

from wavescope.details import Details
from wavescope.report import clocks_text, dispatch_text, spread_text, what_if_text
from wavescope.report.layout import Page


def lines(page: Page, found: Details, source: str) -> list[Text]:
    """One section for each detail asked for, an empty line before each."""
    said, sections = found.sentences, []
    if "clocks" in found.asked:
        sections.append(clocks_text.section(page, found.clocks, said.get("clocks", ()), source))
    if found.dispatch:
        sections.append(dispatch_text.section(page, found.dispatch, said["dispatch"], source))
    if found.co_residency:
        sections.append(dispatch_text.co_residency(page, found.co_residency, said["co_residency"], source))
    if found.spread:
        sections.append(spread_text.section(page, found.spread, said["spread"], source))
    if found.what_if:
        sections.append(what_if_text.section(page, found.what_if, said["what_if"]))
    return [line for section in sections for line in (Text(), *section)]
