"""When a counter's readings can have been taken, given a timer that moves in steps.

A stamp is a pair of readings, one of an SM's clock64 and one of globaltimer, which has
been rounded down to its last step.  Stamps of one counter bound each other: between two
of them at least cycles / fastest clock and at most cycles / slowest clock have passed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.trace import IntColumn, Spans

FloatArray = NDArray[np.float64]

# H200, 2026-11: counters of one clock domain agree within 14 cycles (tests/data/h200/clock_pairs.npz), and
# the two readings of a stamp are some 10 cycles apart; between the warps of a busy SM up to 205
# (gemm_simt-128x128x8-persistent), for one stamp in thousands.
SLACK_CYCLES = 16
_SLACKS = (SLACK_CYCLES, 64, 256)
# H200, 2026-11: over 0.8 us and more the clock stayed above 0.82 of its mean over the launch (matmul of 8192^3);
# upwards it reaches the maximum for a microsecond at each change of tiles, whatever the mean is.
SLOWEST_OF_MEAN = 0.75
FASTEST_OF_MAXIMUM = 1.01


@dataclass(frozen=True)
class Stamps:
    """Begins, then ends, of the spans they were taken from; one counter where all are of one SM or domain."""

    sm: IntColumn
    clock: IntColumn
    time_ns: IntColumn

    def select(self, mask: NDArray[np.bool_]) -> Stamps:
        """The stamps a mask picks."""
        return Stamps(self.sm[mask], self.clock[mask], self.time_ns[mask])


def stamps_of(spans: Spans) -> Stamps:
    """Both stamps of each span: [begins, ends]."""
    return Stamps(
        sm=np.concatenate([spans.sm, spans.sm]),
        clock=np.concatenate([spans.begin_clock, spans.end_clock]),
        time_ns=np.concatenate([spans.begin_ns, spans.end_ns]),
    )


@dataclass(frozen=True)
class Band:
    """Earliest and latest time of each stamp, in ns; where earliest > latest no common counter can have read them.

    `slack_cycles` is how far the two readings of a stamp were allowed to be apart.
    """

    earliest_ns: FloatArray
    latest_ns: FloatArray
    slack_cycles: int

    @property
    def is_possible(self) -> bool:
        """True where every stamp has a time."""
        return bool((self.earliest_ns <= self.latest_ns).all())


def band_of(stamps: Stamps, step_ns: float, max_clock_mhz: float) -> Band:
    """The times at which stamps of one counter can have been taken.

    A stamp that reads t was taken in [t, t + step).  The clock stays between
    SLOWEST_OF_MEAN of its mean over the stamps and FASTEST_OF_MAXIMUM of `max_clock_mhz`
    (of the mean, where that is higher).  Each bound is the tightest that any other stamp
    gives, with the smallest slack between a stamp's readings that leaves every stamp a
    time (the largest, where none does).
    """
    order = np.argsort(stamps.clock, kind="stable")
    clock = (stamps.clock[order] - stamps.clock[order[0]]).astype(np.float64)
    time = stamps.time_ns[order].astype(np.float64)
    passed = float(time.max() - time.min())
    slowest = SLOWEST_OF_MEAN * clock[-1] / (passed + step_ns)  # cycles a ns
    fastest = FASTEST_OF_MAXIMUM * max(max_clock_mhz / 1e3, clock[-1] / max(passed, step_ns))
    quick, slow = clock / fastest, clock / max(slowest, 1e-6)
    earliest = np.maximum(
        quick + np.maximum.accumulate(time - quick),  # from stamps before
        slow + np.maximum.accumulate((time - slow)[::-1])[::-1],  # from stamps after
    )
    latest = step_ns + np.minimum(
        slow + np.minimum.accumulate(time - slow),
        quick + np.minimum.accumulate((time - quick)[::-1])[::-1],
    )
    missing = float((earliest - latest).max()) * fastest / 2  # cycles
    slack = next((cycles for cycles in _SLACKS if cycles >= missing), _SLACKS[-1])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return Band(earliest[back] - slack / fastest, latest[back] + slack / fastest, slack)
