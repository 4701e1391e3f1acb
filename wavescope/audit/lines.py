"""Lines of a text file of any size and of the encodings that consoles write."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from wavescope.audit.source import Progress, head, pieces, refuse

MAX_LINE = 16 << 20  # characters; a raw page with every metric has lines of some 100 kB
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def encoding(start: bytes) -> str:
    """The encoding that a byte order mark at the start tells, UTF-8 without one."""
    return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")


def lines(path: str | Path, progress: Progress | None = None) -> Iterator[str]:
    """The lines, without their ends; bytes that are no text are replaced.

    Raises: InputError for a line of more than MAX_LINE characters.
    """
    decoder = codecs.getincrementaldecoder(encoding(head(path)))(errors="replace")
    held: list[str] = []  # of a line whose end has not come yet
    size = 0
    for piece in pieces(path, progress):
        *ended, rest = decoder.decode(piece).split("\n")
        for line in ended:
            yield "".join((*held, line)).rstrip("\r")
            held, size = [], 0
        held.append(rest)
        size += len(rest)
        if size > MAX_LINE:
            refuse(path, f"a line of more than {MAX_LINE >> 20} million characters", "give a profile")
    held.append(decoder.decode(b"", True))
    if last := "".join(held).rstrip("\r"):
        yield last
