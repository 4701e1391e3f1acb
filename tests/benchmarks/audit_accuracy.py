"""How far the audit's estimate of SM activity is from the counters, kernel by kernel.

    python tests/benchmarks/audit_accuracy.py [TRACE NCU.csv]

TRACE is a PyTorch trace with shapes and NCU.csv Nsight Compute's raw page of the same
launches; without them, the recorded corpus of an H200.  The baseline is grid / SMs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from audit_fixture import CORPUS, CORPUS_COUNTERS  # noqa: E402

from wavescope.audit.assessed import Assessed, assess_launches, estimated_activity  # noqa: E402
from wavescope.audit.counters import with_counters  # noqa: E402
from wavescope.audit.launches import Launches  # noqa: E402
from wavescope.audit.read import read  # noqa: E402


def main(arguments: list[str]) -> None:
    trace, counters = arguments or (str(CORPUS), str(CORPUS_COUNTERS))
    report(with_counters(read(trace), read(counters)))


def report(launches: Launches) -> None:
    """Print one line a cuBLAS kernel with counters, then the mean errors."""
    assessed = assess_launches(launches)
    estimate, measured, baseline = activities(assessed)
    fill = assessed.of_launches(lambda entry: entry.fill)
    rows = np.flatnonzero(is_nvjet(launches) & ~np.isnan(measured))
    print(f"{'kernel':46} {'problem':>18} {'us':>7} {'tiles':>6} {'rounds':>6}  fill  estimate measured error grid/SMs")
    for row in rows[np.argsort(fill[rows], kind="stable")].tolist():
        entry = assessed.assessments[assessed.key_of[row]]
        tiles = entry.tiling.tiles if entry.tiling else 0
        print(
            f"{launches.name[row].removeprefix('nvjet_sm90_'):46.46} {entry.gemm!s:>18} "
            f"{launches.duration_ns[row] / 1000:7.1f} {tiles:6d} {entry.sm_rounds:6.2f} {fill[row]:6.1%} "
            f"{estimate[row]:8.1%} {measured[row]:8.1%} {100 * (estimate[row] - measured[row]):+5.1f} {baseline[row]:7.1%}"
        )
    print(f"\n{'mean absolute error in points':46} kernels  estimate  grid / SMs")
    for name, chosen in selections(assessed).items():
        ours, theirs = mean_error(estimate, measured, chosen), mean_error(baseline, measured, chosen)
        print(f"{name:46} {int((chosen & ~np.isnan(measured)).sum()):7d} {ours:9.2f} {theirs:11.2f}")


def activities(assessed: Assessed) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Estimated, measured and baseline activity of every launch."""
    launches = assessed.launches
    sms = assessed.of_launches(lambda entry: entry.capacity.sms if entry.capacity else np.nan)
    baseline = np.minimum(launches.grid.prod(axis=1) / sms, 1)
    return estimated_activity(assessed), np.asarray(launches.sm_active_avg_over_max), baseline


def is_nvjet(launches: Launches) -> NDArray[np.bool_]:
    return np.array([name.startswith("nvjet") for name in launches.name])


def selections(assessed: Assessed) -> dict[str, NDArray[np.bool_]]:
    """Which launches the mean errors are taken over."""
    nvjet = is_nvjet(assessed.launches)
    fill = assessed.of_launches(lambda entry: entry.fill)
    hidden = assessed.of_launches(lambda entry: float(entry.verdict == "persistent, hidden tiles")) > 0
    return {
        "more tiles than blocks": nvjet & hidden,
        "10 us and more, split-K included": nvjet & (assessed.launches.duration_ns >= 10_000),
        "all": nvjet,
        "fill under 90 %": nvjet & (fill < 0.9),
        "fill under 90 %, more tiles than blocks": nvjet & hidden & (fill < 0.9),
    }


def mean_error(estimate: NDArray[np.float64], measured: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    """Mean absolute error in points over the chosen launches that were measured; NaN where there is none."""
    errors = 100 * np.abs(estimate - measured)[chosen & ~np.isnan(measured)]
    return float(errors.mean()) if len(errors) else float("nan")


if __name__ == "__main__":
    main(sys.argv[1:])
