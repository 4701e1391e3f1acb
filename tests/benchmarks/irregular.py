"""Tiles of unequal k: a queue and longest-first order against the static deal, measured beside predicted.

    python tests/benchmarks/irregular.py OUT.json     on the device, some 40 s; written after each problem

gemm_mma, one tile for all, cool: fixed, persistent, dynamic, and both orders of the last
two.  Tiles are unequal here, so what the last wave costs is imbalance and hardly
quantization: its share stands beside each time, and beside each gain over persistent the
one that the calibrated virtual device predicts.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from wavescope.analyze import analyze
from wavescope.comparison import entries
from wavescope.cuda_device import query
from wavescope.duel import duel
from wavescope.kernel_table import GEMM_MMA
from wavescope.problem import Problem, Tile
from wavescope.variant import Variant
from wavescope.work import Work

TILE = Tile(128, 256, 64)
CASES = (
    ((2304, 2304, 4096), "ragged:7"),
    ((2304, 2304, 4096), "skip:0.5"),
    ((4096, 4096, 4096), "ragged:7"),
    ((4096, 4096, 4096), "ragged:8"),
    ((4096, 4096, 4096), "skip:0.5"),
    ((4096, 4096, 4096), "skip:0.9"),
    ((3072, 3072, 8192), "ragged:7"),
)
STATIC = "persistent"
SCHEDULES = (STATIC, "fixed", "dynamic", "persistent@lpt", "dynamic@lpt")
ROUNDS = 7


def measured(problem: Problem, work: Work) -> list[dict[str, Any]]:
    """A row for each schedule; ratios are the static deal's time over its own."""
    variants = [Variant.parse(name) for name in SCHEDULES]
    found = duel(
        problem, entries(variants, TILE, GEMM_MMA.name), 0, regimes=("cool",), repeat=ROUNDS, seed=1, work=work,
        progress=lambda text: None,
    )  # fmt: skip
    rows = []
    static_ns = found.contenders[0].predicted_ns
    for name, one in zip(SCHEDULES, found.contenders, strict=True):
        assert one.trace is not None
        assert one.predicted_ns is not None
        assert static_ns is not None
        report = analyze(one.trace, one.trace.launches[0].launch_id)
        assert report.tail is not None
        rows.append(
            {
                "problem": str(problem),
                "work": str(work),
                "schedule": name,
                "time_ns": asdict(one.times["cool"]),
                "gain": asdict(one.ratios["cool"]),
                "predicted_ns": one.predicted_ns,
                "predicted_gain": static_ns / one.predicted_ns,
                "tail": report.budget.share("tail"),
                "imbalance": report.tail.imbalance.value / report.budget.total_ns,
                "quantization": report.tail.quantization.value / report.budget.total_ns,
            }
        )
    return rows


def main() -> None:
    """Measure, print a short table, write JSON."""
    device = query(0)
    rows: list[dict[str, Any]] = []
    for shape, text in CASES:
        rows += measured(Problem(*shape), Work.parse(text))
        found = {"date": date.today().isoformat(), "device": device.name, "kernel": GEMM_MMA.name, "rows": rows}
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
        for row in rows[-len(SCHEDULES) :]:
            print(
                f"{row['problem']:24} {row['work']:9} {row['schedule']:15} {row['time_ns']['median'] / 1e3:8.2f} us  "
                f"x{row['gain']['median']:.3f} (predicted {row['predicted_gain']:.3f})  "
                f"tail {row['tail']:.1%} imbalance {row['imbalance']:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
