"""Time of check and analyze on about a million spans, as JSON.

    python tests/benchmarks/analysis_speed.py [number of units, default 333334]

One fixed schedule of that many tiles on 132 SMs with durations that vary: three spans a
unit (cta, mac, epilogue).  The best of five runs; the project asks for 1.5 s or less on
two cores.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.synthetic import tiled, trace_from
from wavescope.analyze import analyze
from wavescope.integrity import check
from wavescope.picture import picture
from wavescope.trace import Trace

SMS = 132  # an H200's: only the size of the example
RUNS = 5


def million(units: int) -> Trace:
    """A trace of `units` tiles with three spans each, in an order that is not sorted by SM or time."""
    spans, problem, tile = tiled(units, SMS, mac_ns=40_000, jitter_ns=4_000)
    shuffled = spans.select(np.random.default_rng(1).permutation(len(spans)))
    return trace_from(shuffled, sms=SMS, timer_step_ns=32, schedule="fixed", problem=problem, tile=tile)


def best(run: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    units = int(sys.argv[1]) if len(sys.argv) > 1 else 333_334
    trace = million(units)
    seconds = {
        "check": best(lambda: check(trace)),
        "analyze": best(lambda: analyze(trace)),
        "picture": best(lambda: picture(trace, None, 44, 100)),
    }
    result = {
        "spans": len(trace.spans),
        "units": units,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "check_and_analyze_s": round(seconds["check"] + seconds["analyze"], 3),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
