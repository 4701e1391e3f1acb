"""The README's tables, written between their markers from what tables.py measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def rewrite(readme: Path, found: dict[str, Any]) -> None:
    """Replace what stands between <!-- benchmarks --> and the next <!-- end -->.

    Raises: ValueError where the markers are missing.
    """
    text = readme.read_text()
    block = "<!-- benchmarks -->\n" + "\n\n".join(_sections(found)) + "\n<!-- end -->"
    new, count = re.subn(r"<!-- benchmarks -->\n.*?<!-- end -->", lambda _: block, text, count=1, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{readme} has no <!-- benchmarks --> ... <!-- end -->")
    readme.write_text(new)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _percent(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f} %"  # + 0.0: no minus before a zero


def _time(row: dict[str, Any]) -> str:
    median, low, high = row["time_us"]
    return f"{median:.1f} ({low:.1f} to {high:.1f})"


def _sections(found: dict[str, Any]) -> list[str]:
    parts = [
        f"{found['device']}, driver for CUDA {found['driver']}, NVRTC {found['nvrtc']}, wavescope "
        f"{found['wavescope']}, {found['date']}; `python tests/benchmarks/tables.py`. Times are event times a launch "
        "in the cool regime, median and 95 % interval, in us; kcycles are the longest active time of an SM."
    ]
    makers = {
        "examples": _examples,
        "waterfall": _waterfall,
        "library": _library,
        "probe": _probe,
        "repeat": _repeat,
        "raster": _raster,
        "residency": _residency,
    }
    return parts + [make(found[name]) for name, make in makers.items() if name in found]


def _examples(rows: list[dict[str, Any]]) -> str:
    titles = ("problem (bf16, 128x256x64)", "schedule", "tiles", "efficiency, estimated", "not idle", "tail",
              "quantization", "last wave's unit / first's", "time", "kcycles")  # fmt: skip
    return "**One partial wave, and the cliff at 133 tiles.**\n\n" + _table(
        titles,
        [
            (
                row["problem"].removesuffix(" bf16"),
                row["schedule"],
                str(row["units"]),
                _percent(row["efficiency"]),
                _percent(row["not_idle"]),
                _percent(row["tail"]),
                _percent(row["quantization"]),
                "" if row["rank_waves"] < 2 else f"{row['last_to_first'][0]:.3f}",
                _time(row),
                f"{row['cycles'] / 1e3:.1f}",
            )
            for row in rows
        ],
    )


def _waterfall(rows: list[dict[str, Any]]) -> str:
    names = [name for name in rows[0]["factors"] if any(abs(row["factors"][name][0] - 1) > 5e-4 for row in rows)]
    return "**From peak to achieved** (factors; the product is exact, the order a convention).\n\n" + _table(
        ("problem", *names, "TFLOP/s"),
        [
            (
                row["problem"].removesuffix(" bf16"),
                *(f"{row['factors'][name][0]:.3f}" for name in names),
                f"{row['tflops']:.0f}",
            )
            for row in rows
        ],
    )


def _library(rows: list[dict[str, Any]] | str) -> str:
    if isinstance(rows, str):
        return rows
    return "**Own kernels against cuBLAS**, in turn in one process; ratio = cuBLAS / own.\n\n" + _table(
        ("problem", "tile", "own us", "cuBLAS us", "ratio"),
        [
            (
                row["problem"],
                row["tile"],
                f"{row['own_us']:.1f}",
                f"{row['cublas_us']:.1f}",
                f"{row['ratio'][0]:.3f} ({row['ratio'][1]:.3f} to {row['ratio'][2]:.3f})",
            )
            for row in rows
        ],
    )


def _probe(rows: list[dict[str, Any]]) -> str:
    return "**What the probe costs**, 200 rounds of A B B A.\n\n" + _table(
        ("problem", "tile", "schedule", "probed / plain, 95 %"),
        [
            (
                row["problem"],
                row["tile"],
                row["schedule"],
                f"{row['perturbation'][0]:.4f} ({row['perturbation'][1]:.4f} to {row['perturbation'][2]:.4f})",
            )
            for row in rows
        ],
    )


def _repeat(rows: list[dict[str, Any]]) -> str:
    return "**The same command in three fresh processes**, 4096 x 4096 x 4096 bf16.\n\n" + _table(
        ("time us", "kcycles", "tail", "MHz"),
        [
            (f"{row['time_us']:.1f}", f"{row['cycles'] / 1e3:.1f}", _percent(row["tail"]), f"{row['mhz']:.0f}")
            for row in rows
        ],
    )


def _raster(rows: list[dict[str, Any]]) -> str:
    return "**Raster orders**, 8192 x 8192 x 1024 bf16, 128x128x64 (L2 hit rate by ncu).\n\n" + _table(
        ("raster", "time", "kcycles", "L2 hits"),
        [
            (
                row["raster"],
                _time(row),
                f"{row['cycles'] / 1e3:.1f}",
                "" if row["l2_hit"] is None else f"{row['l2_hit']:.1f} %",
            )
            for row in rows
        ],
    )


def _residency(rows: list[dict[str, Any]]) -> str:
    return "**Several CTAs an SM**, forced by padding shared memory: 4096 x 4096 x 1024 bf16, 64x64x64.\n\n" + _table(
        ("CTAs per SM", "time", "a unit, kcycles", "SM throughput against one CTA", "TFLOP/s"),
        [
            (
                str(row["ctas_per_sm"]),
                _time(row),
                f"{row['shared']['unit_cycles'] / 1e3:.1f}",
                f"{row['shared']['per_sm_cycle']:.2f}",
                f"{row['tflops']:.0f}",
            )
            for row in rows
        ],
    )
