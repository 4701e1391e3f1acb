"""gemm_sm90 and `auto` against cuBLAS on a Hopper GPU: large problems, problems with a tail, random ones.

    python tests/benchmarks/hopper.py OUT.json [large] [tail] [random] [schedules] [probe] [reads]
    python tests/benchmarks/hopper.py --show OUT.json      the tables, from what was measured
    python tests/benchmarks/hopper.py --readme OUT.json    the README's tables

cuBLAS stands for cublasLt's first eight proposals with 32 MiB of workspace, for the same
layout and output type: its own default, the first of them, and the best.  A ratio is its
time over ours: above 1 is faster than cuBLAS.  Every kernel of a problem is timed in one
sequence, without its probe, and those that are shown are verified.  Of the WORST random
problems the waterfall tells why.  `reads` asks ncu, where it is installed, what the SMs read.
Written after each problem; about three minutes.
"""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from readme_tables import LEAST_NS, rewrite_hopper

from wavescope import __version__
from wavescope.analyze import analyze
from wavescope.auto import rank
from wavescope.calibration import model_of
from wavescope.cuda_device import driver_version, query
from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.kernel_table import GEMM_SM90, GEMM_SM90_PINGPONG
from wavescope.kernels import facts
from wavescope.launch import Stream, open_stream, wait
from wavescope.library import cublas, heuristics, library_version
from wavescope.measure import measure, verify_one
from wavescope.nvrtc import nvrtc_version
from wavescope.operands import fill_set
from wavescope.prepare import Prepared, compile_ahead, prepare, run
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES as SCHEDULE_NAMES
from wavescope.schedule import wave_efficiency
from wavescope.timing import Library, Regime, measure_regime
from wavescope.trace import Kind
from wavescope.variant import Variant

LARGE = ((8192, 8192, 8192), (4096, 4096, 4096), (4096, 4096, 1024), (1408, 3072, 8192), (2816, 3072, 8192))
TAIL = (
    (2304, 2304, 4096), (1408, 1408, 4096), (1920, 1920, 8192), (3072, 3072, 3072), (896, 4864, 8192),
    (512, 512, 8192), (256, 256, 16384), (128, 128, 32768), (640, 5120, 5120), (1024, 1024, 1024),
    (2048, 4352, 4096), (1152, 4352, 4096), (2816, 2816, 8192), (4096, 14336, 4096), (777, 11008, 4096),
)  # fmt: skip
SEED, SHAPES, SHORT_SHAPES = 20261130, 40, 8
LONG_FLOP = 1.6e10  # 20 us at 800 TFLOP/s
TRIED = 30  # random shapes on which every combination runs
PROPOSALS = 8
# What runs on the first TRIED random problems: whole tiles of every size, cut ones of some.
CUT = {
    "tailsplit": ((64, 128), (128, 128), (128, 192), (128, 256), (256, 128)),
    "splitk": ((64, 128), (128, 128), (128, 192), (128, 256), (256, 128)),
    "hybrid": ((128, 256),),
}
KERNELS = (GEMM_SM90, GEMM_SM90_PINGPONG)
ROUNDS, QUICK_ROUNDS, FINALISTS = 6, 1, 4
SUSTAINED_S = 0.08
SCHEDULES = (
    (2304, 2304, 4096), (1408, 1408, 4096), (896, 4864, 8192), (2048, 4352, 4096), (3072, 3072, 3072),
    (1152, 2560, 8192), (640, 5120, 5120),
)  # fmt: skip
PROBED = ((4096, 4096, 4096), (2304, 2304, 4096), (4096, 4096, 1024))
PROBE_ROUNDS = 60  # each gives a pair of graphs, forwards and backwards
WORST = 5
# Delivered to SMs; read from the L2, before reads of several SMs were merged (lrc: L2 request coalescer); DRAM.
READS = ("lrc__xbar2gpc_sectors_op_read.sum", "lrc__lrc2xbar_sectors_op_read.sum", "dram__bytes_read.sum")


def random_shapes() -> list[Problem]:
    """m, n, k log-uniform in 128 to 8192, multiples of 8: the first SHAPES of 20 us and more, then SHORT_SHAPES others."""
    draw = random.Random(SEED)
    long: list[Problem] = []
    short: list[Problem] = []
    while len(long) < SHAPES:
        problem = Problem(*(round(128 * 64 ** draw.random() / 8) * 8 for _ in range(3)))
        (long if problem.flop >= LONG_FLOP else short).append(problem)
    return long + short[:SHORT_SHAPES]


class Race:
    """The contenders of one problem: own kernels and cuBLAS's, on the same operands."""

    def __init__(self, problem: Problem, device: Device) -> None:
        self.problem, self.device = problem, device
        self.own: dict[tuple[str, Tile, str], Prepared] = {}
        self.stream: Stream = open_stream(0, str(problem))

    def ready(self, kernel: str, tile: Tile, variant: Variant) -> Prepared:
        """The contender, prepared once."""
        key = (kernel, tile, str(variant))
        if key not in self.own:
            sets = next(iter(self.own.values())).sets if self.own else ()
            fact = facts(self.problem, tile, self.device, kernel_name=kernel)
            model = model_of(self.problem, tile, self.device, None, kernel)
            one = prepare(self.problem, tile, variant, self.device, 0, fact, model, sets)
            if not sets:
                for index, operands in enumerate(one.sets):
                    fill_set(one.functions.operands, operands, "normal", index, self.stream)
            self.own[key] = one
        return self.own[key]

    def verified(self, one: Prepared) -> Prepared:
        """The contender, whose result is right."""
        verify_one(one, one.functions.plain, "normal", self.stream)
        return one

    def plain(self, one: Prepared) -> Library:
        """Its launches without the probe."""
        return Library(one.facts.kernel, partial(_launch_plain, one), one.deadline_s)

    def proposals(self) -> list[Library]:
        """cublasLt's, its default first."""
        sets = next(iter(self.own.values())).sets
        return [
            cublas(self.problem, sets, 20.0, index)
            for index in range(len(heuristics(self.problem, sets[0], PROPOSALS)))
        ]

    def times(self, first: Prepared, others: Sequence[Library], regime: Regime, rounds: int) -> list[dict[str, Any]]:
        """Of the first, with its cycles and MHz, and of the others."""
        found = measure_regime([first, *others], regime, rounds, SUSTAINED_S, self.stream, lambda text: None)
        rows: list[dict[str, Any]] = [{"time_ns": asdict(one.time_ns)} for one in found]
        timing = found[0].timing
        assert timing is not None
        assert timing.cycles is not None
        assert found[0].records is not None
        rows[0] |= {
            "cycles": asdict(timing.cycles), "perturbation": asdict(timing.perturbation), "mhz": mhz(found[0].records),
        }  # fmt: skip
        return rows


def mhz(records: Any) -> float:
    """Mean clock of the SMs while their CTAs lived."""
    ctas = records[records["kind"] == Kind.CTA]
    cycles = (ctas["end_clock"] - ctas["begin_clock"]).sum()
    return float(cycles / (ctas["end_ns"] - ctas["begin_ns"]).sum() * 1e3)


def kernel_names(launches: Sequence[Library], stream: Stream) -> list[str]:
    """The kernels that each of them launches, as PyTorch's profiler sees them; "" without PyTorch."""
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return [""] * len(launches)
    names = []
    for one in launches:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            one.launch(0, stream)
            wait(stream, one.deadline_s)
        kernels = (event.name for event in seen.events() if event.device_type.name == "CUDA")
        names.append(" + ".join(name for name in kernels if not name.startswith(("Mem", "Activity"))))
    return names


def _launch_plain(one: Prepared, index: int, stream: Stream) -> None:
    run(one, one.functions.plain, index, stream)


def against_library(
    problem: Problem, device: Device, regimes: Sequence[Regime], every: bool, named: bool = False
) -> tuple[dict[str, Any], list[tuple[str, float]]]:
    """auto's choice against cuBLAS's eight; with `every`, the quick times of all combinations, and the best of them.

    `named`: with the names of cuBLAS's kernels.
    """
    race = Race(problem, device)
    ranking = rank(problem, device)
    best = ranking.best
    chosen = race.verified(race.ready(best.kernel, best.tile, best.variant))
    combinations: list[tuple[str, float]] = []
    finalists: list[Prepared] = []
    if every:
        tried = _combinations(race)
        quick = race.times(chosen, [race.plain(one) for one in tried], "cool", QUICK_ROUNDS)[1:]
        order = sorted(range(len(tried)), key=lambda index: quick[index]["time_ns"]["median"])
        combinations = [(_name(tried[index]), quick[index]["time_ns"]["median"]) for index in order]
        finalists = [race.verified(tried[index]) for index in order[:FINALISTS]]
    proposals = race.proposals()
    row: dict[str, Any] = {
        "problem": str(problem), "auto": str(best), "ran": chosen.schedule.in_words,
        "predicted_ns": best.predicted_ns, "runners_up": [str(one) for one in ranking.choices[1:4]],
        "proposals": [one.name for one in proposals],
    }  # fmt: skip
    for regime in regimes:
        known = row.get("cool")  # of the sustained regime only cuBLAS's default and its best are timed
        numbers = range(len(proposals)) if known is None else sorted({0, known["best_is"]})
        libraries = [proposals[number] for number in numbers]
        mine, *others = race.times(chosen, [*libraries, *map(race.plain, finalists)], regime, ROUNDS)
        theirs = {number: one["time_ns"] for number, one in zip(numbers, others, strict=False)}
        fastest = min(theirs, key=lambda number: theirs[number]["median"])
        ours = mine["time_ns"]["median"]
        found = {
            "auto": mine, "default": theirs[0], "best": theirs[fastest], "best_is": fastest,
            "to_default": theirs[0]["median"] / ours, "to_best": theirs[fastest]["median"] / ours,
        }  # fmt: skip
        if named and known is None:
            found["kernels"] = kernel_names([proposals[0], proposals[fastest]], race.stream)
        if finalists:
            tops = [one["time_ns"]["median"] for one in others[len(libraries) :]]
            found |= {"best_own": min(tops), "best_own_is": _name(finalists[tops.index(min(tops))])}
            found["to_best_own"] = min(ours, *tops) / ours
        row[regime] = found
    return row, combinations


def _name(one: Prepared) -> str:
    return f"{one.facts.kernel} {one.schedule.tile} {one.schedule.in_words}"


def _combinations(race: Race) -> list[Prepared]:
    """Every tile of the Hopper kernels with whole tiles, and those of CUT that are cut here."""
    found = [race.ready(kernel.name, code.tile, Variant("persistent")) for kernel in KERNELS for code in kernel.codes]
    for word, tiles in CUT.items():
        for m, n in tiles:
            try:
                one = race.ready(GEMM_SM90.name, Tile(m, n, 64), Variant.parse(word))
            except UsageError:  # nothing to cut
                continue
            if one.schedule.num_slots > 0:
                found.append(one)
    return found


def compile_all(device: Device) -> None:
    """Every kernel that may run, on all cores, before anything is timed."""
    problem = Problem(8192, 8192, 8192)
    compile_ahead(
        [
            (problem, facts(problem, code.tile, device, kernel_name=kernel.name), Variant(schedule))
            for kernel in KERNELS
            for code in kernel.codes
            for schedule in SCHEDULE_NAMES
        ],
        device,
        print,
    )


def schedules(problem: Problem, device: Device) -> list[dict[str, Any]]:
    """s and g of the schedules that split, 128x256 tiles, in SM cycles and in time, cool."""
    race, tile = Race(problem, device), Tile(128, 256, 64)
    names = ("fixed", "persistent", "streamk", "hybrid", "tailsplit")
    entrants = [race.verified(race.ready(GEMM_SM90.name, tile, Variant.parse(name))) for name in names]
    found = measure_regime(entrants, "cool", ROUNDS, 0.3, race.stream, lambda text: None)
    ideal = 1 / wave_efficiency(tile.num_tiles(problem), device.sms)
    rows = []
    for name, one, measured in zip(names, entrants, found, strict=True):
        assert measured.timing is not None
        assert measured.timing.cycles is not None
        rows.append(
            {
                "problem": str(problem), "schedule": name, "ran": one.schedule.in_words, "i": ideal,
                "time_ns": asdict(measured.time_ns), "cycles": asdict(measured.timing.cycles),
                "perturbation": asdict(measured.timing.perturbation),
            }
        )  # fmt: skip
    for row in rows[2:]:
        for key, value in (("cycles", "cycles"), ("time", "time_ns")):
            speed_up = min(one[value]["median"] for one in rows[:2]) / row[value]["median"]
            row |= {f"s_{key}": speed_up, f"g_{key}": (speed_up - 1) / (ideal - 1)}
    return rows


def probe(problem: Problem, device: Device) -> list[dict[str, Any]]:
    """What the probe costs: paired ratios of probed to plain, with their 95 % interval."""
    race, rows = Race(problem, device), []
    for kernel, tile in ((GEMM_SM90, Tile(128, 256, 64)), (GEMM_SM90_PINGPONG, Tile(128, 128, 64))):
        one = race.verified(race.ready(kernel.name, tile, Variant("persistent")))
        (found,) = race.times(one, [], "cool", PROBE_ROUNDS)
        rows.append({"problem": str(problem), "kernel": kernel.name, "tile": str(tile), **found})
    return rows


def worst(rows: Sequence[dict[str, Any]], device: Device) -> list[dict[str, Any]]:
    """Of the random problems that cuBLAS wins most clearly: its kernel, and the waterfall of auto's choice."""
    long = {row["problem"]: row["cool"] for row in rows if row["cool"]["default"]["median"] >= LEAST_NS}
    found = []
    for problem in sorted(random_shapes(), key=lambda one: long.get(str(one), {"to_best": 9.0})["to_best"])[:WORST]:
        cool, best = long[str(problem)], rank(problem, device).best
        race = Race(problem, device)
        race.ready(best.kernel, best.tile, best.variant)
        (library,) = kernel_names([race.proposals()[cool["best_is"]]], race.stream)
        trace = measure(
            problem, best.tile, best.variant, 0, repeat=ROUNDS, seed=1, progress=lambda text: None,
            model=model_of(problem, best.tile, device, None, best.kernel), kernel=best.kernel,
        )  # fmt: skip
        report = analyze(trace)
        assert report.waterfall is not None
        factors = {factor.name: factor.value for factor in report.waterfall.factors}
        found.append(
            {
                "problem": str(problem),
                "auto": str(best),
                "to_best": cool["to_best"],
                "kernel": library,
                "factors": factors,
            }
        )
    return found


def reads(problem: Problem) -> list[dict[str, Any]]:
    """Under ncu, one launch each: what SMs are given, what of it the L2 is asked for, what comes from DRAM."""
    if shutil.which("ncu") is None:
        print("reads: ncu is not installed")
        return []
    rows = []
    sizes = [text for name in "mnk" for text in (f"--{name}", str(getattr(problem, name)))]
    for name in ("fixed", "streamk", "tailsplit"):
        command = [
            *("ncu", "--clock-control", "none", "--metrics", ",".join(READS), "--csv", "--print-units", "base"),
            *("-k", "regex:gemm_", "--launch-skip", "2", "--launch-count", "1"),
            *(sys.executable, "-m", "wavescope", "profile", *sizes, "--kernel", "gemm_sm90", "--tile", "128x256x64"),
            *("--schedule", name, "--repeat", "1"),
        ]
        output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        lines = "\n".join(line for line in output.splitlines() if line.startswith('"'))
        values = {row["Metric Name"]: row["Metric Value"] for row in csv.DictReader(io.StringIO(lines))}
        delivered, read, dram = (float(values[metric].replace(",", "")) for metric in READS)
        rows.append(
            {"problem": str(problem), "schedule": name, "delivered": delivered, "read": read, "dram_bytes": dram}
        )
    return rows


def show(found: dict[str, Any]) -> None:
    """The tables, and what they come to."""
    for part in ("large", "tail", "random"):
        rows = found.get(part, [])
        if not rows:
            continue
        print(f"\n{part}: auto against cuBLAS's default and the best of its {PROPOSALS} proposals")
        for row in rows:
            for regime in ("cool", "sustained"):
                if regime not in row:
                    continue
                one = row[regime]
                own = f"  own best {one['to_best_own']:.3f} {one['best_own_is']}" if "to_best_own" in one else ""
                print(
                    f"  {row['problem']:26} {regime:9} {one['auto']['time_ns']['median'] / 1e3:8.1f} us "
                    f"default {one['to_default']:.3f} best {one['to_best']:.3f}  {row['auto']} "
                    f"(predicted {row['predicted_ns'] / 1e3:.1f}){own}"
                )
        for regime in ("cool", "sustained"):
            long = [row for row in rows if regime in row and row[regime]["default"]["median"] >= LEAST_NS]
            long = long if part == "random" else [row for row in rows if regime in row]
            if not long:
                continue
            for key in ("to_default", "to_best", "to_best_own"):
                values = [row[regime][key] for row in long if key in row[regime]]
                if values:
                    print(
                        f"  {regime} {key}: {len(values)} problems, geometric mean {geometric_mean(values):.3f}, "
                        f"median {median(values):.3f}, least {min(values):.3f}"
                    )
    for row in found.get("schedules", []):
        gain = f"s {row['s_cycles']:.3f} g {row['g_cycles']:.2f} (time {row['g_time']:.2f})" if "g_time" in row else ""
        print(
            f"  {row['problem']:24} {row['schedule']:10} {row['time_ns']['median'] / 1e3:8.1f} us "
            f"{row['cycles']['median']:9.0f} cycles i {row['i']:.3f} {gain}  {row['ran']}"
        )
    for row in found.get("worst", []):
        factors = " ".join(f"{name} {value:.3f}" for name, value in row["factors"].items())
        print(f"  worst {row['problem']:24} {row['to_best']:.3f} {row['auto']} against {row['kernel']}: {factors}")
    for row in found.get("reads", []):
        print(f"  reads {row}")
    for row in found.get("probe", []):
        ratio = row["perturbation"]
        print(
            f"  probe {row['problem']:24} {row['kernel']} {row['tile']}: {ratio['median']:.4f} "
            f"({ratio['low']:.4f} to {ratio['high']:.4f})"
        )


def main() -> None:
    """Measure what is asked for, print and write it."""
    if sys.argv[1] in ("--show", "--readme"):
        measured = json.loads(Path(sys.argv[2]).read_text())
        (show if sys.argv[1] == "--show" else rewrite_hopper)(measured)
        return
    out, parts = Path(sys.argv[1]), sys.argv[2:] or ["large", "tail", "schedules", "probe", "random"]
    device = query(0)
    found: dict[str, Any] = {
        "device": device.name, "date": time.strftime("%Y-%m-%d"), "driver": driver_version(), "nvrtc": nvrtc_version(),
        "cublas": library_version(), "wavescope": __version__,
    }  # fmt: skip

    def keep(part: str, rows: Sequence[dict[str, Any]]) -> None:
        found.setdefault(part, []).extend(rows)
        out.write_text(json.dumps(found, indent=1))

    compile_all(device)
    both: tuple[Regime, ...] = ("cool", "sustained")
    for part in parts:
        begin = time.monotonic()
        if part in ("large", "tail"):
            for shape in LARGE if part == "large" else TAIL:
                keep(part, [against_library(Problem(*shape), device, both, every=False, named=True)[0]])
        elif part == "random":
            for index, problem in enumerate(random_shapes()):
                row, combinations = against_library(problem, device, ("cool",), every=index < TRIED)
                keep(part, [row | {"combinations": combinations}])
            keep("worst", worst(found["random"], device))
        elif part == "reads":
            keep(part, reads(Problem(*SCHEDULES[0])))
        else:
            for shape in SCHEDULES if part == "schedules" else PROBED:
                keep(part, (schedules if part == "schedules" else probe)(Problem(*shape), device))
        print(f"{part}: {time.monotonic() - begin:.0f} s", flush=True)
    show(found)


if __name__ == "__main__":
    main()
