"""Rebuild what the virtual device is calibrated with from the recordings beside this script.

    python tests/data/rebuild_calibration.py

wavescope/data/calibration.csv: every launch of every h200/*.parquet counts (`wavescope
profile -o` wrote them), and the recorded Triton matmuls; a row for each kernel, tile,
dtype, device and number of CTAs per SM.  wavescope/data/dispatch.csv: the SMs of the
first CTAs of one launch with as many CTAs an SM as were recorded.
"""

import csv
import io
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.recorded import DATA, triton_matmul  # noqa: E402
from wavescope.calibrate import fit_all  # noqa: E402
from wavescope.calibration_row import Calibration, render  # noqa: E402
from wavescope.problem import Problem  # noqa: E402
from wavescope.trace import Kind, Trace  # noqa: E402
from wavescope.trace_file import load  # noqa: E402

TABLES = ROOT / "wavescope/data"
TRITON = (Problem(2304, 2304, 4096), Problem(4096, 4096, 4096), Problem(8192, 8192, 8192))


def recorded_traces() -> dict[str, Trace]:
    """The recordings by file name."""
    return {path.name: load(path) for path in sorted(DATA.glob("*.parquet"))}


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


def calibrations(traces: Mapping[str, Trace]) -> tuple[Calibration, ...]:
    """The rows of calibration.csv that the recordings give."""
    rows = fit_all([*traces.values(), *(recorded_triton(problem) for problem in TRITON)])
    return tuple(replace(row, source=f"tests/data/h200, 2026-11: {row.source}") for row in rows)


def dispatch_table(traces: Mapping[str, Trace]) -> str:
    """dispatch.csv: of the launches that fill all places, a persistent one with the most CTAs an SM."""
    alone = {name: trace for name, trace in traces.items() if len(trace.launches) == 1}
    full = {name: trace for name, trace in alone.items() if trace.launches[0].grid >= trace.launches[0].places}
    name = max(full, key=lambda name: (full[name].launches[0].ctas_per_sm, "persistent" in name, name))
    launch, spans = full[name].launches[0], full[name].spans
    ctas = spans.select(spans.kind == Kind.CTA)
    sms = ctas.sm[np.argsort(ctas.cta)][: launch.places]
    assert (np.unique(sms, return_counts=True)[1] == launch.ctas_per_sm).all()
    source = f"first {launch.places} CTAs of a launch with {launch.ctas_per_sm} an SM: tests/data/h200/{name} (2026-11)"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("device", "sms", "source"), (full[name].device.name, " ".join(map(str, sms)), source)])
    return text.getvalue()


if __name__ == "__main__":
    recordings = recorded_traces()
    (TABLES / "calibration.csv").write_text(render(calibrations(recordings)), encoding="utf-8")
    (TABLES / "dispatch.csv").write_text(dispatch_table(recordings), encoding="utf-8")
