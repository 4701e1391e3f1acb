"""Numbers as Nsight Compute prints them: the separators of the whole file are found out, or it is refused."""

from __future__ import annotations

import math
import re

_GROUPING = re.compile("[ '\u2019\u00a0\u202f]")  # these only ever separate thousands
_DIGITS = re.compile(r"[+-]?[\d.,]*\d[\d.,]*(?:[eE][+-]?\d+)?")

NANOSECONDS = {
    unit: scale
    for units, scale in (
        ("ns nsecond", 1.0),
        ("us usecond \u00b5s", 1e3),
        ("ms msecond", 1e6),
        ("s second sec", 1e9),
    )
    for unit in units.split()
}
_PREFIXES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9}
_BASES = ("byte", "cycle", "block", "register", "SM", "cluster", "thread", "warp")


class Separators:
    """What the cells seen so far say of the decimal mark: proofs of '.' and of ',', and cells that could be both."""

    def __init__(self) -> None:
        self.proofs: dict[str, str] = {}  # decimal mark: the first cell that proves it
        self.ambiguous: str | None = None

    def see(self, cell: str) -> None:
        """Take `cell` into account if it is a number."""
        bare = _GROUPING.sub("", cell.strip())
        if not _DIGITS.fullmatch(bare):
            return
        mark = _decimal_mark(bare, grouped=bare != cell.strip())
        if mark == "?":
            self.ambiguous = self.ambiguous or cell
        elif mark:
            self.proofs.setdefault(mark, cell)

    def see_whole(self, cell: str, value: int) -> None:
        """Take `cell` into account, which is known to be `value`."""
        for mark, thousands in ((".", ","), (",", ".")):
            if thousands in cell and cell.replace(thousands, "") == str(value):
                self.proofs.setdefault(mark, cell)

    def problem(self) -> str | None:
        """Why no number of this file can be trusted; None where all can."""
        if len(self.proofs) > 1:
            return f"its numbers have two kinds of separators ('{self.proofs['.']}' and '{self.proofs[',']}')"
        if not self.proofs and self.ambiguous is not None:
            return f"its numbers are ambiguous: '{self.ambiguous}' may have thousands or decimals after its separator"
        return None

    def number(self, cell: str | None) -> float:
        """The cell's number, NaN for none (n/a, empty, no data)."""
        bare = _GROUPING.sub("", cell.strip()) if cell else ""
        if not _DIGITS.fullmatch(bare) or len(bare) > 60:
            return math.nan
        bare = bare.replace(".", "").replace(",", ".") if "," in self.proofs else bare.replace(",", "")
        try:
            return float(bare)
        except ValueError:
            return math.nan


def _decimal_mark(bare: str, grouped: bool) -> str | None:
    """The decimal mark that `bare` proves, '?' for a number that could be either, None for one that says nothing."""
    digits = re.split("[eE]", bare.lstrip("+-"))[0]
    dots, commas = digits.count("."), digits.count(",")
    if dots and commas:
        last = max(".,", key=digits.rfind)
        return last if digits.count(last) == 1 else None
    if dots + commas == 0:
        return None
    mark, other = (".", ",") if dots else (",", ".")
    if dots + commas > 1:
        return other if all(len(group) == 3 for group in digits.split(mark)[1:]) else None  # else a version, a list
    before, after = digits.split(mark)
    if grouped or len(after) != 3 or not 1 <= len(before) <= 3 or before.startswith("0"):
        return mark
    return "?"


def scale(metric: str, unit: str) -> float:
    """By what to multiply a value in `unit` for ns, bytes or a plain count; NaN for an unknown unit of time."""
    if "time_duration" in metric:
        return NANOSECONDS.get(unit.strip(), math.nan)
    plain = unit.strip().partition("/")[0]
    for base in _BASES:
        if plain.endswith(base) and plain[: -len(base)] in _PREFIXES:
            return _PREFIXES[plain[: -len(base)]]
    return 1.0


def is_rounded(unit: str) -> bool:
    """Whether `unit` is a scaled one, in which Nsight Compute prints few digits."""
    return scale("", unit) != 1
