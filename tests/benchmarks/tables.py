"""The numbers of the README, measured on the device at hand.

    python tests/benchmarks/tables.py OUT.json [SECTION...]     measure (all sections by default)
    python tests/benchmarks/tables.py OUT.json --readme         rewrite the README's tables from it, from
                                                                OUT_schedules.json and OUT_irregular.json
                                                                beside it, and from tests/data/predictions

Sections: examples, waterfall, library, probe, repeat, raster, residency.  The library is
cuBLAS as PyTorch calls it, timed in turn with the own kernel in one process; without
PyTorch that section says so.  L2 hit rates come from ncu where it is installed.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from wavescope import __version__, nvrtc
from wavescope.analyze import analyze
from wavescope.co_residency import compare
from wavescope.cuda_device import driver_version, query
from wavescope.kernels import facts
from wavescope.launch import launch, open_stream, timed_ns
from wavescope.measure import measure, verify_one
from wavescope.operands import fill_set
from wavescope.prepare import clear, graph_of, prepare, with_records
from wavescope.problem import Problem, Tile
from wavescope.schedule import Raster
from wavescope.stats import median_interval
from wavescope.trace import Estimate, Trace
from wavescope.variant import Variant
from wavescope.wave_report import WaveReport

README = Path(__file__).parents[2] / "README.md"
BIG = Tile(128, 256, 64)
GRAPH = 8  # launches a graph, for the library and for the own kernel


def quiet(_: str) -> None:
    """No progress."""


def profiled(problem: Problem, tile: Tile, schedule: str = "fixed", *, rounds: int = 15, **more: Any) -> Trace:
    """A cool measurement with the default raster, unless `more` says otherwise."""
    raster = Raster(more.pop("raster", "grouped8"))
    return measure(problem, tile, Variant(schedule, raster=raster), 0, repeat=rounds, seed=1, progress=quiet, **more)


def interval(estimate: Estimate) -> list[float]:
    """Median, low, high."""
    return [estimate.median, estimate.low, estimate.high]


def row(report: WaveReport) -> dict[str, Any]:
    """What the tables say of one launch."""
    launched, waves, budget = report.launch, report.waves, report.budget
    timing = launched.timing
    assert timing is not None
    assert report.tail is not None
    assert report.clock is not None
    return {
        "problem": str(launched.problem),
        "tile": str(launched.tile),
        "schedule": launched.schedule,
        "raster": launched.raster,
        "units": waves.num_units,
        "grid": launched.grid,
        "ctas_per_sm": launched.ctas_per_sm,
        "time_us": [value / 1e3 for value in interval(timing.plain_ns)],
        "duration_us": budget.duration_ns / 1e3,
        "cycles": report.longest_sm_cycles,
        "mhz": report.clock.mean_mhz,
        "tflops": report.waterfall.achieved_tflops if report.waterfall else None,
        "efficiency": waves.efficiency,
        "not_idle": budget.not_idle.value / budget.total_ns,
        "tail": budget.share("tail"),
        "quantization": report.tail.quantization.value / budget.total_ns,
        "active_ratio": report.active_cycles_ratio,
        "rank_waves": len(waves.waves),
        "last_to_first": [waves.duration_ratio, waves.cycle_ratio],
        "perturbation": interval(timing.perturbation),
        "bound": report.bound.value,
    }


def examples() -> list[dict[str, Any]]:
    """One partial wave, three schedules; and the cliff from 131 to 133 tiles."""
    problem = Problem(2304, 2304, 4096)
    rows = [row(analyze(profiled(problem, BIG, schedule))) for schedule in ("fixed", "persistent", "dynamic")]
    rows += [row(analyze(profiled(Problem(128 * tiles, 256, 4096), BIG))) for tiles in (131, 132, 133)]
    return rows


def waterfall() -> list[dict[str, Any]]:
    """Factors from peak to achieved, and how far their product is off."""
    found = []
    for m, n, k in ((2304, 2304, 4096), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 1024)):
        report = analyze(profiled(Problem(m, n, k), BIG))
        fall = report.waterfall
        assert fall is not None
        product = fall.peak_tflops * float(np.prod([factor.value for factor in fall.factors]))
        found.append(
            row(report)
            | {
                "factors": {factor.name: [factor.value, factor.error] for factor in fall.factors},
                "product_over_achieved": product / fall.achieved_tflops,
                "over_one": [f.name for f in fall.factors if f.value > 1 + f.error and f.name not in ("probe",)],
                "refusals": list(report.refusals),
            }
        )
    return found


def library() -> list[dict[str, Any]] | str:
    """Own kernel against cuBLAS: graphs of eight launches in turn, a few idle ms before each."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed, so cuBLAS was not timed"
    torch.backends.cuda.matmul.allow_tf32 = False
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    found = []
    device = query(0)
    cases = [
        (Problem(4096, 4096, 4096, dtype), tile)
        for dtype, tile in (("bf16", BIG), ("fp16", BIG), ("bf16", Tile(128, 128, 64)), ("fp32", Tile(128, 128, 8)))
    ]
    cases += [(Problem(8192, 8192, 8192), BIG), (Problem(4096, 4096, 4096, "bf16", "nn"), BIG)]
    for problem, tile in cases:
        stream = open_stream(0, str(problem))
        fact = facts(problem, tile, device)
        prepared = with_records(prepare(problem, tile, Variant("fixed"), device, 0, fact), GRAPH)
        for operands in prepared.sets:
            fill_set(prepared.functions.operands, operands, "normal", 1, stream)
        verify_one(prepared, prepared.functions.plain, "normal", stream)
        clear(prepared, stream)
        own = graph_of(prepared, prepared.functions.plain, stream)
        side = torch.cuda.Stream()
        rows, columns = problem.b_shape
        sets = [
            (
                torch.randn(problem.m, problem.k, device="cuda").to(types[problem.dtype]),
                torch.randn(rows, columns, device="cuda").to(types[problem.dtype]),
                torch.empty(problem.m, problem.n, device="cuda", dtype=types[problem.dtype]),
            )
            for _ in prepared.sets
        ]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):
            for a, b, c in sets:
                torch.mm(a, b.T if problem.layout == "tn" else b, out=c)
            with torch.cuda.graph(graph, stream=side):
                for index in range(GRAPH):
                    a, b, c = sets[index % len(sets)]
                    torch.mm(a, b.T if problem.layout == "tn" else b, out=c)
        ours, theirs = [], []
        for _ in range(11):
            time.sleep(0.003)
            spin = prepared.functions.spin
            ours.append(timed_ns(own, lambda on, spin=spin: launch(spin, (1,), (np.uint64(150_000),), on), 20, stream))
            time.sleep(0.003)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with torch.cuda.stream(side):
                torch.cuda._sleep(300_000)
                begin.record(side)
                graph.replay()
                end.record(side)
            side.synchronize()
            theirs.append(begin.elapsed_time(end) * 1e6)
        ratio = median_interval(np.array(theirs[1:]) / np.array(ours[1:]))
        found.append(
            {
                "problem": f"{problem} {problem.layout}",
                "tile": str(tile),
                "own_us": float(np.median(ours[1:])) / GRAPH / 1e3,
                "cublas_us": float(np.median(theirs[1:])) / GRAPH / 1e3,
                "ratio": interval(ratio),
            }
        )
    return found


def probe() -> list[dict[str, Any]]:
    """What the probe costs, 200 rounds of A B B A."""
    cases = [
        (Problem(2304, 2304, 4096), BIG, "fixed"),
        (Problem(4096, 4096, 4096), BIG, "fixed"),
        (Problem(4096, 4096, 4096), BIG, "persistent"),
        (Problem(1024, 1024, 1024), Tile(64, 64, 64), "fixed"),
        (Problem(1024, 1024, 1024), Tile(128, 256, 64), "fixed"),
    ]
    return [row(analyze(profiled(problem, tile, schedule, rounds=200))) for problem, tile, schedule in cases]


def repeat() -> list[dict[str, Any]]:
    """The same command in three fresh processes."""
    found = []
    for _ in range(3):
        command = [sys.executable, "-m", "wavescope", "profile", "--m", "4096", "--n", "4096", "--k", "4096", "--json"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        found.append(
            {
                "time_us": report["launch"]["timing"]["plain_ns"]["median"] / 1e3,
                "cycles": report["longest_sm_cycles"],
                "tail": next(term["share"] for term in report["budget"]["terms"] if term["state"] == "tail"),
                "mhz": report["clock"]["mean_mhz"],
            }
        )
    return found


def raster() -> list[dict[str, Any]]:
    """Raster orders at 8192 x 8192 x 1024, with ncu's L2 hit rate where ncu is installed."""
    problem, tile = Problem(8192, 8192, 1024), Tile(128, 128, 64)
    found = []
    for name in ("row", "column", "grouped4", "grouped8", "grouped16", "grouped32"):
        measured = row(analyze(profiled(problem, tile, raster=name, rounds=7)))
        found.append(measured | {"l2_hit": l2_hit_rate(problem, tile, name)})
    return found


def l2_hit_rate(problem: Problem, tile: Tile, raster_name: str) -> float | None:
    """Percent of L2 sector look-ups that hit, of one launch under ncu."""
    if shutil.which("ncu") is None:
        return None
    sizes = [text for name in "mnk" for text in (f"--{name}", str(getattr(problem, name)))]
    command = [
        *("ncu", "--clock-control", "none", "--metrics", "lts__t_sector_hit_rate.pct", "--csv"),
        *("-k", "regex:gemm_", "--launch-skip", "2", "--launch-count", "1"),
        *(sys.executable, "-m", "wavescope", "profile", *sizes, "--tile", str(tile), "--raster", raster_name),
        *("--repeat", "1"),
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = [line for line in output.splitlines() if line.startswith('"')]
    values = [entry["Metric Value"] for entry in csv.DictReader(io.StringIO("\n".join(lines)))]
    return float(values[0]) if values else None


def residency() -> list[dict[str, Any]]:
    """One to four CTAs an SM, forced by padding shared memory: what sharing an SM costs a unit."""
    problem, tile = Problem(4096, 4096, 1024), Tile(64, 64, 64)
    traces = [profiled(problem, tile, rounds=5, most_ctas=count) for count in (1, 2, 3, 4)]
    rows = [row(analyze(trace)) for trace in traces]
    return [one | {"shared": asdict(other)} for one, other in zip(rows, compare(traces), strict=True)]


SECTIONS = {
    function.__name__: function for function in (examples, waterfall, library, probe, repeat, raster, residency)
}


def main() -> None:
    """Measure, or rewrite the README."""
    path, *rest = sys.argv[1:]
    if rest == ["--readme"]:
        import predictions
        from readme_tables import rewrite

        found = json.loads(Path(path).read_text())
        for name in ("schedules", "irregular"):
            beside = Path(path).with_name(f"{Path(path).stem}_{name}.json")
            if beside.exists():
                found[name] = json.loads(beside.read_text())
        rewrite(README, found | {"predictions": predictions.compared(predictions.STORED)})
        return
    device = query(0)
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "device": device.name,
        "driver": driver_version(),
        "nvrtc": nvrtc.nvrtc_version(),
        "wavescope": __version__,
    }
    for name in rest or SECTIONS:
        begin = time.monotonic()
        found[name] = SECTIONS[name]()
        print(f"{name}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        Path(path).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
