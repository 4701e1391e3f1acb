"""SM activity: how much of a kernel's time its SMs are busy, estimated from how the work is shared out.

The model, in two factors:

    activity = fill * (1 - SPREAD * (1 - math_share) / sqrt(rounds))

`fill` is arithmetic: work shared out over SMs in rounds of equal length leaves SMs without
any in the last one.  The second factor is the pace: SMs with equal work do not end together.
What they wait for (memory, the L2 cache, each other's loads) varies from SM to SM, what the
tensor cores compute does not; so only the part of the time that is not arithmetic spreads,
and over several rounds the variations average out with the square root of their number.
Among 132 SMs the largest of as many normal deviates lies 2.6 standard deviations above the
mean, so SPREAD = 0.09 says that one round of pure waiting varies by 3.5 % (one sigma) from
SM to SM.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# H200, 2026-11: least mean error over 510 cuBLAS GEMMs of random shapes, average / maximum of
# sm__cycles_active by ncu (tests/data/h200/gemm_activity.csv, tests/benchmarks/audit_spread.py).
SPREAD = 0.09
# Where the rate of the tensor cores or the size of the problem is unknown.
UNKNOWN_MATH_SHARE = 0.5


def math_share(math_ns: ArrayLike, duration_ns: ArrayLike, fill: ArrayLike) -> NDArray[np.float64]:
    """Share of the busy SMs' time that their tensor cores need at the datasheet's rate, 0 to 1.

    `math_ns` is the time that all SMs together would need for the issued FLOP; NaN where
    unknown gives UNKNOWN_MATH_SHARE.
    """
    busy = np.maximum(np.asarray(duration_ns, np.float64) * np.asarray(fill, np.float64), 1.0)
    share = np.minimum(np.asarray(math_ns, np.float64) / busy, 1.0)
    return np.where(np.isnan(share), UNKNOWN_MATH_SHARE, share)


def activity(fill: ArrayLike, rounds: ArrayLike, share: ArrayLike, spread: float = SPREAD) -> NDArray[np.float64]:
    """Average over the SMs of active time / that of the SM active longest, as sm__cycles_active has it."""
    pace = 1 - spread * (1 - np.asarray(share, np.float64)) / np.sqrt(np.maximum(np.asarray(rounds, np.float64), 1.0))
    return np.asarray(fill, np.float64) * pace
