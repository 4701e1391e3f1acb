"""The terminal: its width whatever the environment says, and text that cannot steer it."""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(soft_wrap: bool = False) -> Console:
    """A rich console for stdout that prints what it is given; a nonsensical COLUMNS or LINES does not count."""
    from rich.console import Console

    size = shutil.get_terminal_size()
    return Console(
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=soft_wrap,
        width=max(1, size.columns),
        height=max(1, size.lines),
    )


def note(text: str, keep: str = "") -> None:
    """A remark on stderr, control characters escaped but for those in `keep`; a stderr that fails does not matter."""
    with contextlib.suppress(OSError):
        print(f"wavescope: {_printable(text, keep)}", file=sys.stderr, flush=True)


def _printable(text: str, keep: str) -> str:
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
