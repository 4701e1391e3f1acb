"""Repairs of the damage that trace writers do to JSON; each keeps the text's length, so that offsets stay true."""

from __future__ import annotations

import re

_CONTROLS = bytes(range(32))
_NO_CONTROLS = bytes.maketrans(_CONTROLS, b" " * 32)
# A backslash and, in group 1, what makes it an escape: half a surrogate pair does not.
_ESCAPE = re.compile(
    rb'\\(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})?'
)
_QUOTE_AFTER_BACKSLASH = re.compile(rb'\\(?="\s*[,}\]]\s*["{}\]])')
_NOT_A_NUMBER = re.compile(rb"([:,\[]\s*+)([-+]?(?:nan|inf(?:inity)?)(?:\(\w*\))?)(?=\s*[,}\]])", re.IGNORECASE)


def unchanged(part: bytes) -> bytes:
    """The text as it is."""
    return part


def repaired(part: bytes) -> bytes:
    """The text with control characters, lone backslashes and bare NaN or Infinity made valid, as long as before.

    No time, size or count is negative, so NaN becomes a negative number, which readers drop.
    """
    part = part.translate(_NO_CONTROLS)
    part = _ESCAPE.sub(lambda match: match[0] if match[1] else b"/", part)
    return _NOT_A_NUMBER.sub(lambda match: match[1] + b"-" + b"9" * (len(match[2]) - 1), part)


def repaired_more(part: bytes) -> bytes:
    r"""The text with the backslash of "C:\dir\" before its closing quote replaced, too."""
    return _QUOTE_AFTER_BACKSLASH.sub(b"/", part)
