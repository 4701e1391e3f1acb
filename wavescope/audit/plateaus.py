"""Plateaus: stretches of a sampled series in which the number of busy SMs stays the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Half an SM of 132 is 0.4 %; samples of a plateau scatter by less (H200, 2026-11: 0.1 %).
_TOLERANCE = 0.006
# A plateau has at least so many samples, and lasts at least this share of the kernel.
_FEWEST_SAMPLES = 3
_SHORTEST = 0.08
# A sample at either end is cut by the kernel's own begin or end.
_ACTIVE = 0.02


@dataclass(frozen=True)
class Plateau:
    """Between `begin_ns` and `end_ns`, `share` of the SMs was busy: `busy` of `sms`."""

    begin_ns: float
    end_ns: float
    share: float
    busy: int
    sms: int

    def __str__(self) -> str:
        return f"{self.busy} of {self.sms} SMs for {(self.end_ns - self.begin_ns) / 1000:.1f} us"


def plateaus(time_ns: ArrayLike, share: ArrayLike, sms: int) -> tuple[Plateau, ...]:
    """The plateaus of a series of shares of busy SMs, in order of time.

    `time_ns` are the ends of equal sampling intervals.  Neighbouring stretches on the same
    number of SMs (a dip between two rounds of tiles parts them) stay apart.
    """
    times = np.asarray(time_ns, np.float64)
    values = np.asarray(share, np.float64)
    busy = np.flatnonzero(values > _ACTIVE)
    if len(busy) < _FEWEST_SAMPLES + 2 or sms < 1:
        return ()
    times, values = times[busy[0] : busy[-1] + 1], values[busy[0] : busy[-1] + 1]
    step = float(np.median(np.diff(times)))
    fewest = max(_FEWEST_SAMPLES, int(_SHORTEST * len(values)))
    found = []
    begin = 0
    while begin < len(values):
        end = _stretch(values, begin)
        if end - begin >= fewest:
            level = float(np.median(values[begin:end]))
            found.append(Plateau(float(times[begin]) - step, float(times[end - 1]), level, round(level * sms), sms))
        begin = max(end, begin + 1)
    return tuple(found)


def _stretch(values: NDArray[np.float64], begin: int) -> int:
    """End of the longest run from `begin` whose samples all lie within two tolerances of each other."""
    low = high = float(values[begin])
    end = begin + 1
    while end < len(values):
        low, high = min(low, float(values[end])), max(high, float(values[end]))
        if high - low > 2 * _TOLERANCE:
            break
        end += 1
    return end
