"""Lines of a terminal report: headings, labelled facts and columns that fit a width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.text import Text

from wavescope.report.glyphs import Glyphs

MIN_WIDTH = 60
MAX_WIDTH = 140
INDENT = 2
GAP = 2

SOURCE_STYLES = {"measured": "green", "simulated": "bold yellow", "estimated": "cyan"}


@dataclass(frozen=True)
class Page:
    """What lines are laid out for: a width in cells and the characters to draw with."""

    width: int
    glyphs: Glyphs

    @property
    def room(self) -> int:
        """Cells of a line after the indent."""
        return self.width - INDENT

    @property
    def is_wide(self) -> bool:
        """True where a line has room for a remark beside the numbers."""
        return self.width >= 110


def page_width(console_width: int) -> int:
    """The width reports are laid out for, given the terminal's."""
    return max(MIN_WIDTH, min(MAX_WIDTH, console_width))


def heading(page: Page, title: str, source: str = "") -> Text:
    """A section's title with a rule to the right edge, which ends with the numbers' source."""
    tail = f" {source} " + page.glyphs.rule if source else ""
    line = Text(page.glyphs.rule * 2 + " ", "dim")
    line.append(textwrap.shorten(title, page.width - len(tail) - 5, placeholder=page.glyphs.ellipsis), "not dim bold")
    line.append(" " + page.glyphs.rule * max(1, page.width - len(line) - 1 - len(tail)))
    if source:
        line.append(f" {source} ", f"not dim {SOURCE_STYLES[source]}")
        line.append(page.glyphs.rule)
    return line


def labelled(page: Page, label: str, text: str, label_width: int = 12, style: str = "") -> list[Text]:
    """A label and its text, wrapped under itself."""
    indent = INDENT + label_width
    parts = textwrap.wrap(text, page.width - indent, break_on_hyphens=False) or [""]
    first = Text(f"{'':{INDENT}}{label:<{label_width}}", "dim").append(parts[0], style or "not dim")
    return [first, *(Text(" " * indent + part, style) for part in parts[1:])]


def paragraph(page: Page, text: str, style: str = "", indent: int = INDENT) -> list[Text]:
    """Text wrapped to the page."""
    parts = textwrap.wrap(text, page.width - indent, break_on_hyphens=False)
    return [Text(" " * indent + part, style) for part in parts]


@dataclass(frozen=True)
class Column:
    """One column of a table; columns with the highest `drop` go first where room is short."""

    title: str
    cells: Sequence[str]
    drop: int = 0
    align: Literal["<", ">"] = ">"

    @property
    def width(self) -> int:
        """Cells of its widest entry."""
        return max(len(self.title), *(len(cell) for cell in self.cells))


def fitting(page: Page, columns: Sequence[Column]) -> list[Column]:
    """The columns that fit the page side by side."""
    kept = list(columns)
    while _table_width(kept) > page.room and any(column.drop for column in kept):
        kept.remove(max(kept, key=lambda column: column.drop))
    return kept


def table(page: Page, columns: Sequence[Column]) -> list[Text]:
    """Columns, right-aligned unless they say otherwise, under their titles, as many as fit."""
    kept = fitting(page, columns)
    rows = [[column.title for column in kept], *zip(*(column.cells for column in kept), strict=True)]
    widths = [column.width for column in kept]
    lines = []
    for number, row in enumerate(rows):
        aligned = zip(row, kept, widths, strict=True)
        cells = (" " * GAP).join(f"{cell:{column.align}{width}}" for cell, column, width in aligned)
        lines.append(Text((" " * INDENT + cells).rstrip(), "dim" if number == 0 else ""))
    return lines


def _table_width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)
