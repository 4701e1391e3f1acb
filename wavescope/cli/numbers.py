"""Numbers from the command line, so that the message names the option and the value."""

from __future__ import annotations

import math
import re

from wavescope.errors import UsageError

_WHOLE = re.compile(r"[0-9]+(_[0-9]+)*", re.ASCII)
_SHOWN = 40  # of a value in a message


def whole_number(option: str, text: str, *, least: int = 1, most: int, example: int) -> int:
    """The whole number `text` of `option`: digits, with underscores between them if wanted.

    Raises: UsageError naming the option and the value, for anything else and for numbers
    outside `least`..`most`.
    """
    value = text.strip()
    digits = value.removeprefix("-")
    advice = f"give a whole number from {least} to {most}, such as {example}"
    if not _WHOLE.fullmatch(digits):
        raise UsageError(f'{option}: "{_shown(text)}" is not a whole number; {advice}')
    if value != digits and digits.strip("0_"):
        raise UsageError(f"{option}: {_shown(value)} is negative; {advice}")
    significant = digits.replace("_", "").lstrip("0")
    if len(significant) > len(str(most)) or int(significant or "0") > most:
        raise UsageError(f"{option}: {_shown(value)} is too large; {advice}")
    number = int(significant or "0")
    if number < least:
        raise UsageError(f"{option}: {_shown(value)} is too small; {advice}")
    return number


def share(option: str, text: str) -> float:
    """The share `text` of `option`, between 0 and 1.

    Raises: UsageError naming the option and the value.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UsageError(f'{option}: "{_shown(text)}" is not a share from 0 to 1; give one such as 0.9')
    return value


def positive_number(option: str, text: str, *, most: float, example: float) -> float:
    """The number `text` of `option`, above 0 and up to `most`.

    Raises: UsageError naming the option and the value.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= most:
        raise UsageError(
            f'{option}: "{_shown(text)}" is not a number above 0 and up to {most:g}; give one such as {example:g}'
        )
    return value


def percentage(option: str, text: str) -> float:
    """The percentage `text` of `option`, between 0 and 100, with or without a percent sign.

    Raises: UsageError naming the option and the value.
    """
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise UsageError(f'{option}: "{_shown(text)}" is not a percentage from 0 to 100; give one such as 5')
    return value


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}.. ({len(text)} characters)"
