"""Launches made by hand, and the recorded activity of cuBLAS kernels, for the tests of the audit."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wavescope.audit.launches import NULL, Launches, ProfiledDevice
from wavescope.audit.table import table

DATA = Path(__file__).parent / "data" / "h200"
CORPUS = DATA / "corpus.pt.trace.json.gz"
CORPUS_COUNTERS = DATA / "corpus_ncu_raw.csv"

H200 = ProfiledDevice(0, "NVIDIA H200", (9, 0), 132, 65536, 233472, 232448, 2048, 1980.0)
A100 = ProfiledDevice(0, "NVIDIA A100 80GB PCIe", (8, 0), 108, 65536, 167936, 166912, 2048, 1410.0)
GEMM = "nvjet_sm90_hsh_168x128_64x5_1x2_h_bz_TNN"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PLAIN = "void my_kernel(float*)"

# One launch of GEMM for 2304 x 2304 x 4096.
ROW: dict[str, Any] = {
    "name": GEMM,
    "device": 0,
    "stream": 7,
    "start_ns": 1000,
    "duration_ns": 60_000,
    "grid": (2, 66, 1),
    "block": (384, 1, 1),
    "cluster": (NULL, NULL, NULL),
    "registers": 168,
    "shared_static": NULL,
    "shared_dynamic": 206_044,
    "max_active_clusters": NULL,
    "context_sms": NULL,
    "operator": "aten::mm",
    "shapes": ((2304, 4096), (4096, 2304)),
    "sm_active_avg_over_max": np.nan,
    "sm_active_share": np.nan,
    "activity": None,
}


def launches(
    *rows: Mapping[str, Any], device: ProfiledDevice = H200, path: str = "made.json", notes: Sequence[str] = ()
) -> Launches:
    """Launches that differ from ROW in what is given."""
    full = [{**ROW, **row} for row in rows]
    columns: dict[str, np.ndarray] = {}
    for name, example in ROW.items():
        values = [row[name] for row in full]
        if name in ("name", "operator", "shapes", "activity"):
            columns[name] = np.empty(len(values), object)
            columns[name][:] = values
        else:
            columns[name] = np.array(values, np.float64 if isinstance(example, float) else np.int64)
    return table(path, "kineto", (device,), columns, notes)


def recorded_activity() -> Launches:
    """510 cuBLAS kernels of random GEMMs on an H200, with measured activity; see data/README.md."""
    rows = []
    with open(DATA / "gemm_activity.csv", newline="") as file:
        for number, cells in enumerate(csv.DictReader(file)):
            batch, m, n, k = (int(cells[name]) for name in ("batch", "m", "n", "k"))
            leading = (batch,) if batch > 1 else ()
            rows.append(
                {
                    "name": cells["name"],
                    "start_ns": 10**9 * number,
                    "duration_ns": int(cells["duration_ns"]),
                    "grid": tuple(int(cells[f"grid_{axis}"]) for axis in "xyz"),
                    "max_active_clusters": int(cells["max_active_clusters"] or NULL),
                    "operator": "aten::bmm" if batch > 1 else "aten::mm",
                    "shapes": ((*leading, m, k), (*leading, k, n)),
                    "sm_active_avg_over_max": float(cells["sm_active_avg_over_max"]),
                }
            )
    return launches(*rows)
