"""Numbers as readers want them: times, shares and sizes with their units."""

from __future__ import annotations

import math
from dataclasses import dataclass

_TIME_UNITS = ((1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s"))


@dataclass(frozen=True)
class TimeUnit:
    """The unit a column of times is printed in: `ns` nanoseconds make one `name`."""

    ns: float
    name: str

    def number(self, value_ns: float, decimals: int = 1) -> str:
        """The time without its unit."""
        return f"{value_ns / self.ns:.{decimals}f}"

    @property
    def decimals(self) -> int:
        """Those that suit times of ten units and more: two, but none of nanoseconds."""
        return 0 if self.ns == 1 else 2


def unit_for(value_ns: float, at_least: float = 1.0) -> TimeUnit:
    """The largest unit in which `value_ns` reads as `at_least` or more."""
    fitting = [(ns, name) for ns, name in _TIME_UNITS if abs(value_ns) >= at_least * ns]
    return TimeUnit(*(fitting[-1] if fitting else _TIME_UNITS[0]))


def time(value_ns: float, digits: int = 4) -> str:
    """A time with `digits` significant digits and its unit, such as '85.73 us'."""
    unit = unit_for(value_ns)
    return f"{significant(value_ns / unit.ns, digits)} {unit.name}"


def significant(value: float, digits: int = 4) -> str:
    """A number rounded to `digits` significant digits, trailing zeros kept; whole above 10**digits."""
    if value == 0:
        return "0"
    before_point = math.floor(math.log10(abs(value))) + 1
    return f"{value:.{max(0, digits - before_point)}f}"


def percent(share: float) -> str:
    """A share with one decimal; what would round to 0.0 but is not 0 is said to be below 0.1."""
    if 0 < abs(share) < 0.0005:
        return "<0.1%" if share > 0 else ">-0.1%"
    return f"{100 * share:.1f}%"


def signed_percent(share: float) -> str:
    """A relative change with its sign and two decimals."""
    return f"{100 * share:+.2f}%"


def size(num_bytes: int) -> str:
    """Bytes in KiB where they are whole KiB, such as '144 KiB'."""
    return f"{num_bytes // 1024} KiB" if num_bytes % 1024 == 0 and num_bytes else f"{num_bytes} bytes"


def counted(count: int, noun: str) -> str:
    """A count and its noun, such as '1 unit' or '17 000 units'."""
    return f"{grouped(count)} {noun}{'' if count == 1 else 's'}"


def grouped(count: int) -> str:
    """A count with thousands apart, such as '17 000'."""
    return f"{count:,}".replace(",", " ") if abs(count) >= 10_000 else str(count)


def below(value: float, bar: float) -> str:
    """A value below a bar, with the digits that show it: three at least."""
    return next(text for text in (f"{value:.{n}f}" for n in range(3, 30)) if float(text) < bar)
