"""Stream-K where A and B are larger than the L2, against whole tiles and a tail split; measured beside predicted.

    python tests/benchmarks/past_l2.py OUT.json     on the device, some 30 s; written after each problem

Why auto leaves Stream-K out there, and why a simulation of it carries a remark
(Schedule.reads_past).  Cool, 128x256 and 128x128 tiles, 92 to 243 MB of A and B.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

from wavescope.comparison import entries
from wavescope.cuda_device import query
from wavescope.duel import duel
from wavescope.problem import Problem, Tile
from wavescope.variant import Variant

KERNELS = (("gemm_sm90", Tile(128, 256, 64)), ("gemm_sm90", Tile(128, 128, 64)), ("gemm_mma", Tile(128, 256, 64)))
SHAPES = ((2816, 2816, 8192), (2304, 2304, 16384), (3072, 3072, 16384), (4352, 4352, 8192), (1152, 2560, 32768))
SCHEDULES = ("persistent", "tailsplit", "hybrid", "streamk")
ROUNDS = 5


def measured(kernel: str, tile: Tile, problem: Problem) -> list[dict[str, Any]]:
    """A row for each schedule, times in us."""
    variants = [Variant.parse(name) for name in SCHEDULES]
    found = duel(
        problem, entries(variants, tile, kernel), 0, regimes=("cool",), repeat=ROUNDS, seed=1, progress=lambda text: None,
    )  # fmt: skip
    rows = []
    for name, one in zip(SCHEDULES, found.contenders, strict=True):
        assert one.predicted_ns is not None
        rows.append(
            {
                "kernel": kernel,
                "tile": str(tile),
                "problem": str(problem),
                "schedule": name,
                "us": round(one.times["cool"].median / 1e3, 1),
                "predicted_us": round(one.predicted_ns / 1e3, 1),
            }
        )
    return rows


def main() -> None:
    """Measure, print a short table, write JSON."""
    device = query(0)
    rows: list[dict[str, Any]] = []
    for kernel, tile in KERNELS:
        for shape in SHAPES:
            rows += measured(kernel, tile, Problem(*shape))
            found = {"date": date.today().isoformat(), "device": device.name, "l2_bytes": device.l2_bytes, "rows": rows}
            Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
            for row in rows[-len(SCHEDULES) :]:
                print(" ".join(str(value) for value in row.values()), flush=True)


if __name__ == "__main__":
    main()
