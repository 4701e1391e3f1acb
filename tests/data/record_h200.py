"""Record the traces that calibrate the virtual device: every tile, few shapes, all schedules.

Run on the device that is to be recorded: python tests/data/record_h200.py FOLDER.  The
files go to tests/data/h200; rebuild_calibration.py makes wavescope/data/calibration.csv
from them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from wavescope.calibration_launches import ALL_PLACES, planned
from wavescope.cuda_device import query
from wavescope.kernel_table import GEMM_MMA, GEMM_SIMT
from wavescope.measure import measure
from wavescope.problem import Problem, Tile
from wavescope.trace import Trace, join
from wavescope.trace_file import save
from wavescope.variant import Variant

# (m, n, k, schedule), a file each: a tail, two lengths of k to tell fixed costs from costs a
# k_iter, and a persistent launch.
SHAPES = ((2304, 2304, 4096, "fixed"), (2304, 2304, 1024, "fixed"), (2304, 1792, 2048, "persistent"))
ROUNDS = 7


def one(problem: Problem, tile: Tile, variant: Variant, kernel: str) -> Trace:
    """The median of a few launches, regime cool."""
    return measure(
        problem,
        tile,
        variant,
        0,
        repeat=ROUNDS,
        seed=1,
        progress=lambda text: None,
        model=ALL_PLACES,
        kernel=kernel,
    )


def together(traces: list[Trace]) -> Trace:
    """All launches in one trace, numbered from 0."""
    launches = [replace(trace.launches[0], launch_id=number) for number, trace in enumerate(traces)]
    spans = [
        replace(trace.spans, launch_id=np.full_like(trace.spans.launch_id, number))
        for number, trace in enumerate(traces)
    ]
    return replace(traces[0], launches=tuple(launches), spans=join(spans))


def main() -> None:
    """Measure and save."""
    folder = Path(sys.argv[1])
    query(0)
    for kernel in (GEMM_MMA, GEMM_SIMT):
        for code in kernel.codes:
            for m, n, k, schedule in SHAPES:
                trace = one(Problem(m, n, k, kernel.dtypes[0]), code.tile, Variant(schedule), kernel.name)
                save(trace, folder / f"{kernel.name}-{code.tile}-{schedule}-{m}x{n}x{k}.parquet")
            places = trace.launches[0].places
            plans = planned(kernel.name, code.tile, kernel.dtypes[0], places)
            others = [plan for plan in plans if plan.variant.schedule != "fixed"]
            for name, chosen in (("schedules", others), ("edges", [plan for plan in plans if plan.has_edges])):
                found = [one(plan.problem, plan.tile, plan.variant, plan.kernel) for plan in chosen]
                save(together(found), folder / f"{kernel.name}-{code.tile}-{name}.parquet")


if __name__ == "__main__":
    main()
