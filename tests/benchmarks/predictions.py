"""Predicted against measured: 60 random shapes under five schedules, and recorded launches on fewer SMs.

    python tests/benchmarks/predictions.py measure OUT.json      on the device, some 90 s
    python tests/benchmarks/predictions.py compare OUT.json      anywhere; prints the errors

tests/data/predictions holds what an H200 measured, and tests/test_predictions.py compares.
Shapes, tiles and schedules come from a seed, and none of them is among the launches that
the shipped calibration was fitted on.  Fewer SMs: the grid is limited to so many CTAs, one
an SM, and what-if predicts that from the launch on all of them.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from wavescope.problem import Problem, Tile
from wavescope.variant import Variant

SEED = 20261130
KERNEL = "gemm_mma"
SHAPES = 60
TILES = (Tile(128, 256, 64), Tile(128, 128, 64), Tile(64, 64, 64))
SCHEDULES = ("fixed", "persistent", "splitk:2", "hybrid", "tailsplit")
FEWER = (108, 66)
STORED = Path(__file__).parents[1] / "data/predictions/predictions.json"
ON_FEWER = ((2304, 2304, 4096), (3072, 3072, 3072), (2816, 4096, 2048))
ROUNDS = 3


def cases() -> list[tuple[Problem, Tile]]:
    """Shapes of 2 to 200 GFLOP, m, n, k log-uniform in 256 to 6144, and a tile for each."""
    draw, found = random.Random(SEED), list[tuple[Problem, Tile]]()
    while len(found) < SHAPES:
        m, n, k = (round(256 * 24 ** draw.random() / 8) * 8 for _ in range(3))
        problem, tile = Problem(m, n, k), draw.choice(TILES)
        if 2e9 <= problem.flop <= 2e11:
            found.append((problem, tile))
    return found


def measure_shapes(keep: Callable[[list[dict[str, Any]]], None]) -> None:
    """T of each schedule on each shape, in ns; `keep` is given all rows so far."""
    from wavescope.comparison import Comparison, entries
    from wavescope.duel import duel

    rows: list[dict[str, Any]] = []
    for problem, tile in cases():
        found: Comparison = duel(
            problem, entries([Variant.parse(text) for text in SCHEDULES], tile, KERNEL), 0, regimes=("cool",),
            repeat=ROUNDS, seed=1, progress=lambda text: None,
        )  # fmt: skip
        for text, one in zip(SCHEDULES, found.contenders, strict=True):
            assert one.trace is not None
            launched, spans = one.trace.launches[0], one.trace.spans
            assert launched.timing is not None
            rows.append(
                {
                    "problem": [problem.m, problem.n, problem.k],
                    "tile": str(tile),
                    "schedule": text,
                    "parts": launched.parts,
                    "reducers": launched.reducers,
                    "duration_ns": int(spans.end_ns.max() - spans.begin_ns.min()),
                    "time_ns": launched.timing.plain_ns.median,
                }
            )
        print(problem, tile, flush=True)
        keep(rows)


def measure_fewer(folder: Path) -> list[dict[str, Any]]:
    """T of persistent launches with fewer CTAs, and the trace on all SMs in `folder`."""
    from wavescope.cuda_device import query
    from wavescope.kernels import facts
    from wavescope.launch import open_stream
    from wavescope.measure import measure, timing_and_records
    from wavescope.operands import fill_set
    from wavescope.prepare import prepare
    from wavescope.timing import duration_ns, measure_regime
    from wavescope.trace_file import save

    device, tile, rows = query(0), TILES[0], []
    for shape in ON_FEWER:
        problem = Problem(*shape)
        for text in ("persistent", "hybrid"):
            name = f"{text}-{'x'.join(map(str, shape))}.parquet"
            whole = measure(
                problem, tile, Variant.parse(text), 0, repeat=5, seed=1, progress=lambda text: None, kernel=KERNEL
            )
            save(whole, folder / name)
            for sms in FEWER:
                smaller = replace(device, sms=sms)
                fact = facts(problem, tile, smaller, kernel_name=KERNEL)
                prepared = prepare(problem, tile, Variant.parse(text), smaller, 0, fact)
                stream = open_stream(0, f"{text} on {sms} SMs")
                for index, operands in enumerate(prepared.sets):
                    fill_set(prepared.functions.operands, operands, "normal", index, stream)
                (found,) = measure_regime([prepared], "cool", 5, 0.3, stream, lambda text: None)
                _, records = timing_and_records(found)
                used = len(np.unique(records["sm"][records["kind"] == 1]))
                rows.append({"trace": name, "sms": sms, "used_sms": used, "duration_ns": duration_ns(records)})
                print(rows[-1], flush=True)
    return rows


def compare_shapes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows with what the virtual H200 says."""
    from wavescope.device import virtual_device
    from wavescope.virtual import run

    device, found = virtual_device("h200"), []
    for row in rows:
        variant = Variant.parse(row["schedule"])
        problem, tile = Problem(*row["problem"]), Tile.parse(row["tile"])
        trace = run(problem, tile, variant, device, reason="it predicts", kernel=KERNEL)
        found.append(row | {"predicted_ns": int(trace.spans.end_ns.max())})
    return found


def compare_fewer(rows: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The same rows with what-if's answer from the launch on all SMs."""
    from wavescope.trace_file import load
    from wavescope.what_if import Change, what_if

    found = []
    for row in rows:
        answer = what_if(load(folder / row["trace"]), None, [Change.parse(f"sms={row['sms']}")])
        found.append(row | {"predicted_ns": answer.outcomes[-1].duration_ns})
    return found


def compared(path: Path) -> dict[str, Any]:
    """What was measured, each row with its prediction."""
    document: dict[str, Any] = json.loads(path.read_text())
    shapes, fewer = compare_shapes(document["shapes"]), compare_fewer(document["fewer_sms"], path.parent)
    return document | {"shapes": shapes, "fewer_sms": fewer}


def errors(rows: list[dict[str, Any]]) -> np.ndarray:
    """Relative error of each prediction, signed."""
    return np.array([row["predicted_ns"] / row["duration_ns"] - 1 for row in rows])


def write(path: Path, document: dict[str, Any]) -> None:
    """The document as JSON."""
    path.write_text(json.dumps(document, indent=1))


def main() -> None:
    """Measure, or compare."""
    what, path = sys.argv[1], Path(sys.argv[2])
    if what == "measure":
        from wavescope.cuda_device import query

        found = {
            "date": date.today().isoformat(),
            "device": query(0).name,
            "kernel": KERNEL,
            "fewer_sms": measure_fewer(path.parent),
        }
        # written after each shape: what a run that is cut short has measured stays
        measure_shapes(lambda rows: write(path, found | {"shapes": rows}))
        return
    document = compared(path)
    shapes, fewer = document["shapes"], document["fewer_sms"]
    off = np.abs(errors(shapes))
    print(f"{len(off)} launches: median error {np.median(off):.1%}, 90 % below {np.quantile(off, 0.9):.1%}")
    for name in SCHEDULES:
        of_one = errors([row for row in shapes if row["schedule"] == name])
        print(f"  {name:11} median {np.median(np.abs(of_one)):.1%}, bias {np.median(of_one):+.1%}")
    for tile in TILES:
        of_one = errors([row for row in shapes if row["tile"] == str(tile)])
        print(f"  {tile!s:11} median {np.median(np.abs(of_one)):.1%}, bias {np.median(of_one):+.1%}")
    for row in sorted(shapes, key=lambda row: -abs(row["predicted_ns"] / row["duration_ns"] - 1))[:12]:
        print("  worst", row)
    for row, error in zip(fewer, errors(fewer), strict=True):
        print(f"  what if {row['sms']} SMs, {row['trace']}: {error:+.1%} (ran on {row['used_sms']})")


if __name__ == "__main__":
    main()
