"""`wavescope profile`: run one GEMM, measured or simulated, and report where its SM time went."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from wavescope.cli.numbers import positive_number, whole_number
from wavescope.cli.options import (
    AUTO,
    Csv,
    CtasPerSm,
    DeviceName,
    Dtype,
    FailUnder,
    Json,
    KernelWord,
    Layout,
    RegimeName,
    WorkWords,
    is_auto,
    kernel_name,
    one_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wavescope.cli.target import Target
    from wavescope.problem import Problem, Tile
    from wavescope.raster import Raster
    from wavescope.timing import Regime
    from wavescope.trace import Trace
    from wavescope.variant import Variant
    from wavescope.work import Work

DEFAULT_REPEAT = 41  # H200, 2026-11: 41 alternating rounds resolve 0.1 % of a kernel's time
MAX_REPEAT = 100_000
DEFAULT_SECONDS = 0.3  # H200, 2026-11: after 0.3 s at the cap the clock has settled
MAX_SECONDS = 60.0
MAX_CTAS_PER_SM = 32
REGIMES = ("cool", "sustained", "both")
MAX_SEED = 2**31 - 1


def profile(
    m: Annotated[str, typer.Option("--m", "-m", metavar="M", help="Rows of C.")],
    n: Annotated[str, typer.Option("--n", "-n", metavar="N", help="Columns of C.")],
    k: Annotated[str, typer.Option("--k", "-k", metavar="K", help="Length of the sums.")],
    dtype: Dtype = "bf16",
    layout: Layout = "tn",
    schedule: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="fixed, persistent, dynamic, splitk[:splits], streamk[:CTAs], hybrid, tailsplit[:parts], or auto; "
            "@atomic after those that split adds partial sums in any order, @lpt after the others begins with the "
            "longest tiles of irregular work.",
        ),
    ] = "fixed",
    work: WorkWords = None,
    tile: Annotated[
        str | None,
        typer.Option(
            metavar="MxNxK",
            help="Tile, such as 128x256x64, or auto: that of the least predicted time.  "
            "[default: the largest that gives every SM one]",
        ),
    ] = None,
    kernel: KernelWord = "auto",
    raster: Annotated[
        str, typer.Option(metavar="ORDER", help="Order of the tiles: row, column, or groupedG (G rows together).")
    ] = "grouped8",
    device: DeviceName = None,
    regime: RegimeName = "cool",
    repeat: Annotated[str, typer.Option(metavar="COUNT", help="Rounds of timing on a GPU.")] = str(DEFAULT_REPEAT),
    seconds: Annotated[
        str, typer.Option(metavar="SECONDS", help="Length of a block of sustained timing; there are eight.")
    ] = str(DEFAULT_SECONDS),
    ctas_per_sm: CtasPerSm = None,
    seed: Annotated[
        str, typer.Option(metavar="NUMBER", help="Of the random operands, of the simulation, and of skip.")
    ] = "0",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="X.parquet", readable=False, help="Keep the trace.")
    ] = None,
    json: Json = False,
    csv: Csv = None,
    fail_under: FailUnder = None,
) -> int:
    """Run one GEMM and show where every SM-nanosecond of it goes.

    C[M, N] = A[M, K] x B[K, N], measured with an instrumented kernel on an NVIDIA GPU, or
    simulated and marked SIMULATED where there is none.
    """
    from wavescope.cli.console import note
    from wavescope.cli.outputs import deliver, outputs
    from wavescope.problem import DTYPES, LAYOUTS, MAX_DIMENSION, Problem, Tile

    rows, columns, depth = (
        whole_number(option, text, most=MAX_DIMENSION, example=example)
        for option, text, example in (("--m", m, 2304), ("--n", n, 2304), ("--k", k, 4096))
    )
    rounds = whole_number("--repeat", repeat, most=MAX_REPEAT, example=DEFAULT_REPEAT)
    block_s = positive_number("--seconds", seconds, most=MAX_SECONDS, example=DEFAULT_SECONDS)
    most_ctas = (
        None if ctas_per_sm is None else whole_number("--ctas-per-sm", ctas_per_sm, most=MAX_CTAS_PER_SM, example=1)
    )
    number = whole_number("--seed", seed, least=0, most=MAX_SEED, example=0)
    problem = Problem(rows, columns, depth, one_of("--dtype", dtype, DTYPES), one_of("--layout", layout, LAYOUTS))
    any_tile = tile is not None and is_auto(tile, "the tile")
    asked, named = None if tile is None or any_tile else Tile.parse(tile), kernel_name(kernel)
    wanted = outputs(json=json, csv=csv, fail_under=fail_under, trace=output)

    from wavescope.cli.target import choose
    from wavescope.raster import Raster
    from wavescope.schedule import SCHEDULES
    from wavescope.variant import Variant
    from wavescope.work import Work

    order = Raster(raster)
    variant = None
    if not is_auto(schedule):
        one_of("--schedule", re.split("[:@]", schedule.strip())[0], (*SCHEDULES, AUTO))
        variant = Variant.parse(schedule, order)
    irregular = None if work is None else Work.parse(work, number)
    if variant is not None:
        variant.check_work(irregular)
    how = one_of("--regime", regime, REGIMES)
    target = choose(device)
    if target.cuda_index is None and json:
        note(f"simulated because {target.reason}")
    job = Job(problem, asked, variant, most_ctas, number, irregular, named, order, any_tile)
    trace = record(job, target, REGIMES[:2] if how == "both" else (how,), rounds, block_s)
    if wanted.trace:
        from wavescope.trace_file import save

        save(trace, wanted.trace)
        note(f"wrote {wanted.trace}")
    return deliver(trace, trace.launches[0].launch_id, wanted)


class Job(NamedTuple):
    """What is to be run; `tile` None: the kernel's default, `most_ctas` None: as many as fit, `work` None: all of k.

    `kernel`: its name, None for the best that can.  `variant` None: the schedule with the
    least predicted time, in order `raster`; with `any_tile` the tile is that with the least.
    """

    problem: Problem
    tile: Tile | None
    variant: Variant | None
    most_ctas: int | None
    seed: int
    work: Work | None
    kernel: str | None
    raster: Raster
    any_tile: bool = False


def record(job: Job, target: Target, regimes: Sequence[str], repeat: int, seconds: float) -> Trace:
    """The trace of the job on the target, measured (a launch a regime) or simulated."""
    from wavescope.kernels import default_tile

    tile = job.tile or default_tile(job.problem, target.device, job.kernel)
    if job.variant is not None and not job.any_tile:
        return _record(job, tile, job.variant, target, regimes, repeat, seconds)
    from dataclasses import replace

    from wavescope.auto import rank
    from wavescope.cli.console import note

    ranking = rank(
        job.problem,
        target.device,
        kernel=job.kernel,
        tiles=() if job.any_tile else (tile,),
        variants=() if job.variant is None else (job.variant,),
        raster=job.raster,
        most_ctas=job.most_ctas,
        seed=job.seed,
        work=job.work,
    )
    best = ranking.best
    if target.cuda_index is not None:
        note(str(ranking))
    trace = _record(job._replace(kernel=best.kernel), best.tile, best.variant, target, regimes, repeat, seconds)
    launches = tuple(replace(launch, notes=(*launch.notes, str(ranking))) for launch in trace.launches)
    return replace(trace, launches=launches)


def _record(
    job: Job, tile: Tile, variant: Variant, target: Target, regimes: Sequence[str], repeat: int, seconds: float
) -> Trace:
    """As `record`, of a tile and schedule that are known."""
    from wavescope.cli.console import note

    what = (job.problem, tile, variant)
    if target.cuda_index is None:
        from wavescope.virtual import run

        return run(
            *what,
            target.device,
            reason=target.reason,
            most_ctas=job.most_ctas,
            seed=job.seed,
            work=job.work,
            kernel=job.kernel,
        )
    from wavescope.calibration import model_of
    from wavescope.grid_model import UNCALIBRATED
    from wavescope.measure import measure
    from wavescope.schedule import SPLIT_SCHEDULES

    splits = variant.schedule in SPLIT_SCHEDULES
    return measure(
        *what,
        target.cuda_index,
        regimes=cast("Sequence[Regime]", regimes),
        repeat=repeat,
        seconds=seconds,
        most_ctas=job.most_ctas,
        seed=job.seed,
        progress=note,
        model=model_of(*what[:2], target.device, job.most_ctas, job.kernel) if splits else UNCALIBRATED,
        work=job.work,
        kernel=job.kernel,
    )
