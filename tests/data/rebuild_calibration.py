"""Rebuild wavescope/data/calibration.csv from the recordings beside this script.

    python tests/data/rebuild_calibration.py

Every launch of every h200/*.parquet counts (`wavescope profile -o` wrote them), and the
recorded Triton matmuls; a row for each kernel, tile, dtype and device.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.recorded import DATA, triton_matmul  # noqa: E402
from wavescope.calibrate import fit_all  # noqa: E402
from wavescope.calibration import Calibration, render  # noqa: E402
from wavescope.problem import Problem  # noqa: E402
from wavescope.trace import Trace  # noqa: E402
from wavescope.trace_file import load  # noqa: E402

TABLE = ROOT / "wavescope/data/calibration.csv"
TRITON = (Problem(2304, 2304, 4096), Problem(4096, 4096, 4096), Problem(8192, 8192, 8192))


def recorded_triton(problem: Problem) -> Trace:
    """A recorded Triton matmul whose blocks say what they computed: one tile each, all of k."""
    trace = triton_matmul(f"triton_matmul_{problem.m}", problem)
    launch, spans = trace.launches[0], trace.spans
    assert launch.tile is not None
    assert launch.grid == launch.tile.num_tiles(problem)
    k_end = np.full(len(spans), launch.tile.k_iters(problem), np.int64)
    return replace(
        trace,
        launches=(replace(launch, kernel="triton_matmul"),),
        spans=replace(spans, k_begin=np.zeros_like(k_end), k_end=k_end),
    )


def rebuild() -> tuple[Calibration, ...]:
    """The rows that the recordings give."""
    traces = [load(path) for path in sorted(DATA.glob("*.parquet"))]
    traces += [recorded_triton(problem) for problem in TRITON]
    return tuple(replace(row, source=f"tests/data/h200, 2026-11: {row.source}") for row in fit_all(traces))


if __name__ == "__main__":
    TABLE.write_text(render(rebuild()), encoding="utf-8")
