"""Fits SPREAD of wavescope/audit/activity.py on the recorded activity of 510 cuBLAS kernels.

python tests/benchmarks/audit_spread.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from audit_fixture import recorded_activity  # noqa: E402

from wavescope.audit.activity import SPREAD, activity, math_share  # noqa: E402
from wavescope.audit.assessed import assess_launches  # noqa: E402


def errors(spreads: list[float]) -> list[float]:
    """Mean absolute error in points with each spread."""
    assessed = assess_launches(recorded_activity())
    fill, rounds, math_ns = (
        assessed.of_launches(lambda entry, name=name: getattr(entry, name)) for name in ("fill", "rounds", "math_ns")
    )
    share = math_share(math_ns, assessed.duration_ns, fill)
    measured = assessed.launches.sm_active_avg_over_max
    return [float(100 * np.abs(activity(fill, rounds, share, spread) - measured).mean()) for spread in spreads]


if __name__ == "__main__":
    steps = [round(0.01 * step, 2) for step in range(16)]
    for spread, error in zip(steps, errors(steps), strict=True):
        print(f"{spread:.2f}  mean error {error:.2f} points{'  <- in use' if spread == SPREAD else ''}")
