"""Every schedule on shapes with a tail, one tile for all, both regimes; and the best other fixed tile.

    python tests/benchmarks/schedules.py OUT.json [KERNEL] [--quick]     on the device, some 4 min; written after each shape

KERNEL is gemm_mma by default.  For each shape, with i = 1 / wave efficiency and s the speed-up over the better of fixed
and persistent, g = (s - 1) / (i - 1) says how much of what the last wave costs a schedule
wins back; in SM cycles (the busiest SM's) and in time.  cool: 11 rounds, medians with
their intervals.  sustained: blocks of 0.15 s, half of `wavescope compare`'s; one follows
the other without a pause, so the card stays at its cap between them.  Shapes of more than
one wave come first, and the other tiles (cool only) when all shapes are done.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from wavescope.analyze import analyze
from wavescope.comparison import entries
from wavescope.cuda_device import query
from wavescope.duel import duel
from wavescope.kernel_table import GEMM_MMA, KERNELS, Kernel
from wavescope.problem import Problem, Tile
from wavescope.schedule import wave_efficiency
from wavescope.variant import Variant

TILE = Tile(128, 256, 64)
SHAPES = (
    (2304, 2304, 4096),
    (896, 4864, 8192),
    (3072, 3072, 3072),
    (1408, 1408, 4096),
    (640, 5120, 5120),
    (1152, 2560, 8192),
    (1920, 1920, 8192),
    (1024, 1024, 1024),
    (512, 512, 8192),
    (256, 256, 16384),
    (128, 128, 32768),
)
SCHEDULES = ("fixed", "persistent", "splitk", "streamk", "hybrid", "tailsplit")
WHOLE = ("fixed", "persistent")
ROUNDS = 11
BLOCK_S = 0.15


def measured(
    problem: Problem, tile: Tile, kernel: Kernel, names: tuple[str, ...], quick: bool, library: bool
) -> list[dict[str, Any]]:
    """A row for each schedule and regime."""
    variants = [Variant.parse(name) for name in names]
    found = duel(
        problem, entries(variants, tile, kernel.name), 0, library=library, regimes=("cool",) if quick else ("cool", "sustained"),
        repeat=5 if quick else ROUNDS, seconds=BLOCK_S, seed=1, progress=lambda text: None,
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for name, one in zip((*names, "cublas"), found.contenders, strict=False):
        trace = one.trace
        if trace is None:
            rows += [
                {"problem": str(problem), "schedule": name, "ran": one.ran, "regime": regime,
                 "time_ns": asdict(time_ns), "ratio_to_first": asdict(one.ratios[regime])}
                for regime, time_ns in one.times.items()
            ]  # fmt: skip
            continue
        for launched in trace.launches:
            report = analyze(trace, launched.launch_id)
            timing, budget = launched.timing, report.budget
            assert timing is not None
            assert timing.cycles is not None
            assert report.clock is not None
            rows.append(
                {
                    "problem": str(problem),
                    "tile": str(tile),
                    "schedule": name,
                    "parts": launched.parts,
                    "grid": launched.grid,
                    "regime": timing.regime,
                    "time_ns": asdict(timing.plain_ns),
                    "ratio_to_first": asdict(one.ratios[timing.regime]),
                    "ran": one.ran,
                    "predicted_ns": one.predicted_ns,
                    "cycles": asdict(timing.cycles),
                    "mhz": report.clock.mean_mhz,
                    "perturbation": asdict(timing.perturbation),
                    "units": report.waves.num_units,
                    "shares": {key: budget.share(key) for key in budget.terms},
                    "duration_ns": budget.duration_ns,
                    "mac_cycles_per_k_iter": mac_cycles(trace, launched.launch_id),
                }
            )
    return rows


def mac_cycles(trace: Any, launch_id: int) -> float:
    """Median over units of their main loop's cycles a k_iter."""
    spans = trace.spans.select((trace.spans.launch_id == launch_id) & (trace.spans.kind == 5))
    return float(np.median((spans.end_clock - spans.begin_clock) / (spans.k_end - spans.k_begin)))


def gains(rows: list[dict[str, Any]], problem: Problem, tile: Tile, places: int) -> list[dict[str, Any]]:
    """s and g of each schedule that splits, against the better of those that do not, by regime."""
    ideal = 1 / wave_efficiency(tile.num_tiles(problem), places)
    found = []
    for regime in {row["regime"] for row in rows}:
        mine = [row for row in rows if row["regime"] == regime and row["schedule"] != "cublas"]
        whole = [row for row in mine if row["schedule"] in WHOLE]
        for row in mine:
            if row["schedule"] in WHOLE:
                continue
            line = {"problem": str(problem), "schedule": row["schedule"], "regime": regime, "i": ideal}
            for key, value in (("cycles", "cycles"), ("time", "time_ns")):
                speed_up = min(one[value]["median"] for one in whole) / row[value]["median"]
                line |= {f"s_{key}": speed_up, f"g_{key}": (speed_up - 1) / (ideal - 1) if ideal > 1 else None}
            found.append(line)
    return found


def main() -> None:
    """Measure, print a short table, write JSON."""
    quick = "--quick" in sys.argv
    path, *named = (argument for argument in sys.argv[1:] if argument != "--quick")
    kernel = next(one for one in KERNELS if one.name == (named or [GEMM_MMA.name])[0])
    device = query(0)
    rows: list[dict[str, Any]] = []
    won: list[dict[str, Any]] = []
    tiles: list[dict[str, Any]] = []

    def keep() -> None:
        when = date.today().isoformat()
        found = {
            "date": when,
            "device": device.name,
            "kernel": kernel.name,
            "rows": rows,
            "gains": won,
            "other_tiles": tiles,
        }
        Path(path).write_text(json.dumps(found, indent=1))

    for m, n, k in SHAPES:
        problem = Problem(m, n, k)
        of_shape = measured(problem, TILE, kernel, SCHEDULES, quick, library=True)
        rows += of_shape
        won += gains(of_shape, problem, TILE, device.sms)
        keep()
        for row in of_shape:
            g = next(
                (
                    w
                    for w in won
                    if (w["problem"], w["schedule"], w["regime"]) == (row["problem"], row["schedule"], row["regime"])
                ),
                {},
            )
            print(
                f"{row['problem']:24} {row['regime']:9} {row['schedule']:10} {row.get('parts', ''):>4} "
                f"{row['time_ns']['median'] / 1e3:8.2f} us  x{row['ratio_to_first']['median']:.3f} "
                f"{row.get('cycles', {}).get('median', 0):9.0f} cyc {row.get('mhz', 0):6.0f} MHz  "
                f"k_iter {row.get('mac_cycles_per_k_iter', 0):6.0f} "
                + (f" s {g['s_cycles']:.3f} g {g['g_cycles']:.2f} (time {g['g_time']:.2f})" if g.get("g_cycles") is not None else "")
                + (f" mac {row['shares']['mac']:.3f} fix {row['shares']['fixup']:.3f} wait {row['shares']['wait']:.3f} epi {row['shares']['epilogue']:.3f} res {row['shares']['resident']:.3f} tail {row['shares']['tail']:.3f}" if "shares" in row else ""),
                flush=True,
            )  # fmt: skip
    if quick:
        return
    for shape in SHAPES:
        for code in kernel.codes:
            if code.tile != TILE:
                tiles += measured(Problem(*shape), code.tile, kernel, ("fixed",), True, library=False)
        keep()


if __name__ == "__main__":
    main()
