"""The README's tables, written between their markers from what tables.py, schedules.py and predictions.py measured."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

LEAST_NS = 20e3  # shorter problems are told apart
_LOST = 0.97  # a factor of a waterfall below which it is told


def rewrite(readme: Path, found: dict[str, Any]) -> None:
    """Replace what stands between <!-- benchmarks --> and the next <!-- end -->.

    Raises: ValueError where the markers are missing.
    """
    _replace(readme, "benchmarks", _sections(found))


def rewrite_hopper(found: dict[str, Any]) -> None:
    """The README's tables of the Hopper kernels, between <!-- hopper --> and <!-- end -->; raises as rewrite."""
    _replace(Path(__file__).parents[2] / "README.md", "hopper", _hopper(found))


def _replace(readme: Path, name: str, sections: Sequence[str]) -> None:
    text = readme.read_text()
    block = f"<!-- {name} -->\n" + "\n\n".join(sections) + "\n<!-- end -->"
    new, count = re.subn(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _: block, text, count=1, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{readme} has no <!-- {name} --> ... <!-- end -->")
    readme.write_text(new)


def _hopper(found: dict[str, Any]) -> list[str]:
    parts = [
        f"{found['device']}, driver for CUDA {found['driver']}, cuBLAS {found['cublas']}, NVRTC {found['nvrtc']}, "
        f"wavescope {found['wavescope']}, {found['date']}; `python tests/benchmarks/hopper.py`. Times in us, median and "
        "95 % interval, kernel time against kernel time in one sequence; ratio: cuBLAS's time over ours, against its "
        "own default and the best of its first eight proposals."
    ]
    titles = ("problem (bf16, tn)", "auto", "time, cool", "MHz", "default", "best of 8", "cuBLAS's default kernel",
              "sustained: default", "best of 8")  # fmt: skip
    for part, what in (("large", "Large problems."), ("tail", "Problems with a tail.")):
        rows = [
            (
                row["problem"].removesuffix(" bf16"),
                row["auto"].replace("gemm_sm90_pingpong", "ping-pong").replace("gemm_sm90 ", ""),
                "{median:.1f} ({low:.1f} to {high:.1f})".format(
                    **{key: row["cool"]["auto"]["time_ns"][key] / 1e3 for key in ("median", "low", "high")}
                ),
                f"{row['cool']['auto']['mhz']:.0f}",
                f"{row['cool']['to_default']:.3f}",
                f"{row['cool']['to_best']:.3f}",
                re.sub(r"void |<[^+]*", "", row["cool"].get("kernels", [""])[0]),
                f"{row['sustained']['to_default']:.3f}" if "sustained" in row else "",
                f"{row['sustained']['to_best']:.3f}" if "sustained" in row else "",
            )
            for row in found.get(part, [])
        ]
        if rows:
            parts.append(f"**{what}** {_means(found[part])}\n\n" + _table(titles, rows))
    if found.get("random"):
        parts.append(
            f"**{len(found['random'])} random problems** (m, n, k log-uniform in 128 to 8192). {_random(found['random'])}"
        )
    rows = [
        (
            row["problem"].removesuffix(" bf16"),
            row["ran"],
            f"{row['cycles']['median'] / 1e3:.1f}",
            f"{row['time_ns']['median'] / 1e3:.1f}",
            f"{row['s_cycles']:.3f}" if "s_cycles" in row else "",
            f"{row['g_cycles']:.2f}" if "g_cycles" in row else "",
        )
        for row in found.get("schedules", [])
    ]
    if rows:
        parts.append(
            "**Tiles of 128x256 that are cut**: kcycles of the busiest SM, us, speed-up s over the better of fixed and "
            "persistent, and g = (s - 1) / (i - 1), i = 1 / wave efficiency.\n\n"
            + _table(("problem", "ran", "kcycles", "us", "s", "g"), rows)
        )
    rows = [
        (
            row["problem"].removesuffix(" bf16"),
            f"{row['kernel']} {row['tile']}",
            "{median:.4f} ({low:.4f} to {high:.4f})".format(**row["perturbation"]),
        )
        for row in found.get("probe", [])
    ]
    if found.get("worst"):
        parts.append(_worst(found["worst"]))
    if found.get("reads"):
        parts.append(_reads(found["reads"]))
    if rows:
        parts.append("**The probe**: probed over plain time.\n\n" + _table(("problem", "kernel", "ratio"), rows))
    return parts


def _means(rows: Sequence[dict[str, Any]]) -> str:
    said = []
    for regime in ("cool", "sustained"):
        for key, what in (("to_default", "default"), ("to_best", "best of 8")):
            ratios = [row[regime][key] for row in rows if regime in row]
            if ratios:
                said.append(f"{regime}, {what}: {geometric_mean(ratios):.3f} ({min(ratios):.3f} at least)")
    return f"Geometric means: {'; '.join(said)}."


def _random(rows: Sequence[dict[str, Any]]) -> str:
    long = [row["cool"] for row in rows if row["cool"]["default"]["median"] >= LEAST_NS]
    short = [row["cool"] for row in rows if row["cool"]["default"]["median"] < LEAST_NS]
    said = [
        f"{len(one)} of {what}: geometric mean {geometric_mean([row['to_default'] for row in one]):.3f} of cuBLAS's default "
        f"(at least {min(row['to_default'] for row in one):.3f}), "
        f"{geometric_mean([row['to_best'] for row in one]):.3f} of the best of eight "
        f"(at least {min(row['to_best'] for row in one):.3f})"
        for one, what in ((long, "20 us and more"), (short, "less"))
        if one
    ]
    tried = [1 / row["to_best_own"] for row in (row["cool"] for row in rows) if "to_best_own" in row]
    if tried:
        said.append(
            f"auto's choice takes {100 * (median(tried) - 1):.1f} % longer than the best tile and schedule tried "
            f"(median of the first {len(tried)}), at worst {100 * (max(tried) - 1):.1f} %"
        )
    return "; ".join(said) + "."


def _worst(rows: Sequence[dict[str, Any]]) -> str:
    told = [
        (
            row["problem"].removesuffix(" bf16"),
            row["auto"].replace("gemm_sm90_pingpong", "ping-pong").replace("gemm_sm90 ", ""),
            f"{row['to_best']:.3f}",
            re.sub(r"void |<[^+]*", "", row["kernel"]),
            ", ".join(f"{name} {value:.3f}" for name, value in row["factors"].items() if value < _LOST),
        )
        for row in rows
    ]
    return (
        f"**The {len(rows)} random problems of 20 us and more that cuBLAS wins most clearly**, and the factors below {_LOST} of auto's "
        "choice: what its tiles lose.\n\n"
        + _table(("problem", "auto", "best of 8", "cuBLAS's kernel", "waterfall"), told)
    )


def _reads(rows: Sequence[dict[str, Any]]) -> str:
    told = [
        (
            row["schedule"],
            f"{row['delivered'] / 1e6:.1f}",
            f"{row['read'] / 1e6:.1f}",
            f"{row['delivered'] / row['read']:.2f}",
            f"{row['dram_bytes'] / 1e6:.0f}",
        )
        for row in rows
    ]
    return (
        f"**What SMs read** at {rows[0]['problem'].removesuffix(' bf16')}, 128x256 tiles, one launch each under ncu: "
        "CTAs that go through k together share their reads; under streamk and tailsplit they do so in groups.\n\n"
        + _table(("schedule", "M sectors to SMs", "M sectors from the L2", "ratio", "MB from DRAM"), told)
    )


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
        "schedules": _schedules,
        "irregular": _irregular,
        "predictions": predictions,
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


def _schedules(found: dict[str, Any]) -> str:
    """The fastest schedule that splits against the faster that does not, for each shape."""
    rows = found["rows"]
    table = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        mine = {(row["schedule"], row["regime"]): row for row in rows if row["problem"] == problem}
        names = [name for name, regime in mine if regime == "cool" and name != "cublas"]
        by_time = sorted(names, key=lambda name: mine[name, "cool"]["time_ns"]["median"])
        split = next(name for name in by_time if name not in ("fixed", "persistent"))
        whole = next(name for name in by_time if name in ("fixed", "persistent"))
        gain = {one["regime"]: one for one in found["gains"] if (one["problem"], one["schedule"]) == (problem, split)}
        one, other = mine[split, "cool"], mine[whole, "cool"]
        library = mine["cublas", "cool"]["time_ns"]["median"] / mine[by_time[0], "cool"]["time_ns"]["median"]
        cool = gain["cool"]
        of_each = {
            one["schedule"]: one["g_cycles"]
            for one in found["gains"]
            if (one["problem"], one["regime"]) == (problem, "cool")
        }
        tiles = [row for row in found["other_tiles"] if row["problem"] == problem and row["regime"] == "cool"]
        tile = min(tiles, key=lambda row: row["time_ns"]["median"])
        table.append(
            (
                problem.removesuffix(" bf16"),
                f"{cool['i']:.2f}",
                whole,
                f"{other['time_ns']['median'] / 1e3:.1f}",
                f"{split} (splits none)" if "no tile is split" in one["ran"] else split,
                f"{one['time_ns']['median'] / 1e3:.1f}",
                f"{cool['s_cycles']:.3f}",
                f"{cool['g_cycles']:.2f}",
                ", ".join(f"{of_each[name]:.2f}" for name in ("streamk", "hybrid", "tailsplit")),
                f"{other['mhz']:.0f}, {one['mhz']:.0f}",
                f"{cool['s_time']:.3f}",
                f"{gain['sustained']['s_time']:.3f}",
                f"{library:.3f}",
                f"{tile['tile']} {tile['time_ns']['median'] / 1e3:.1f}",
            )
        )
    titles = ("problem", "i", "best whole", "us", "best split", "us", "s, SM cycles", "g", "g of streamk, hybrid, tailsplit",
              "MHz of both", "s, time", "s, time at the cap", "cuBLAS / best", "best other tile, fixed, us")  # fmt: skip
    return (
        f"**Which schedule wins**, {found['kernel']}, bf16, 128x256x64, {found['date']} (`schedules.py`). i = 1 / wave efficiency; s = best "
        "whole / best split; g = (s - 1) / (i - 1) of the SM cycles. Cool, but for the column at the power cap.\n\n"
        + _table(titles, table)
    )


def _irregular(found: dict[str, Any]) -> str:
    """Each way to hand out unequal tiles against the first, by measurement and by prediction."""
    rows = found["rows"]
    static = rows[0]["schedule"]
    table = [
        (
            row["problem"].removesuffix(" bf16") if row["schedule"] == static else "",
            row["work"].removesuffix(":0") if row["schedule"] == static else "",
            row["schedule"],
            f"{row['time_ns']['median'] / 1e3:.1f}",
            f"{row['gain']['median']:.3f}",
            f"{row['predicted_gain']:.3f}",
            _percent(row["tail"]),
            _percent(row["imbalance"]),
        )
        for row in rows
    ]
    titles = ("problem", "work", "schedule", "us", f"{static} / own", "predicted", "tail", "of which imbalance")
    return (
        f"**Tiles of unequal k**, {found['kernel']}, bf16, 128x256x64, {found['date']} (`irregular.py`). Shares are of all SM time; "
        "predicted: simulated, seed 1; imbalance: the tail beyond that of as many equal tiles, less than none where unequal ones fit together better.\n\n"
        + _table(titles, table)
    )


def predictions(found: dict[str, Any]) -> str:
    """Errors of the virtual device and of what-if, on launches that nothing was fitted on."""

    def line(name: str, rows: list[dict[str, Any]]) -> tuple[str, ...]:
        errors = sorted(row["predicted_ns"] / row["duration_ns"] - 1 for row in rows)
        size = sorted(map(abs, errors))
        return (
            name,
            str(len(rows)),
            *(_percent(value) for value in (median(size), size[int(0.9 * (len(size) - 1))], median(errors))),
        )

    shapes = found["shapes"]
    kinds = [("all", shapes)]
    for key in ("schedule", "tile"):
        values = dict.fromkeys(row[key] for row in shapes)
        kinds += [(value, [row for row in shapes if row[key] == value]) for value in values]
    fewer = found["fewer_sms"]
    kinds += [
        (f"what if {sms} SMs", [row for row in fewer if row["sms"] == sms]) for sms in sorted({r["sms"] for r in fewer})
    ]
    return (
        f"**Predicted against measured**, {found['kernel']}, 60 random shapes, {found['date']} (`predictions.py`). Nothing was fitted on "
        "these launches; what-if predicts grids of fewer CTAs from the launch on all SMs.\n\n"
        + _table(("launches", "number", "median error", "90 % below", "bias"), [line(*kind) for kind in kinds])
    )
