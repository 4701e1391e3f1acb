"""`wavescope profile`: run one GEMM, measured or simulated, and report where its SM time went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar, get_args

import typer

from wavescope.cli.numbers import whole_number
from wavescope.cli.options import Csv, FailUnder, Json

if TYPE_CHECKING:
    from wavescope.cli.target import Target
    from wavescope.problem import Problem, Tile
    from wavescope.schedule import Raster
    from wavescope.timing import Regime
    from wavescope.trace import Trace

Name = TypeVar("Name", bound=str)

DEFAULT_REPEAT = 41  # H200, 2026-11: 41 alternating rounds resolve 0.1 % of a kernel's time
MAX_REPEAT = 100_000
MAX_SEED = 2**31 - 1


def profile(
    m: Annotated[str, typer.Option("--m", "-m", metavar="M", help="Rows of C.")],
    n: Annotated[str, typer.Option("--n", "-n", metavar="N", help="Columns of C.")],
    k: Annotated[str, typer.Option("--k", "-k", metavar="K", help="Length of the sums.")],
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="bf16, fp16 or fp32.")] = "bf16",
    layout: Annotated[
        str, typer.Option(metavar="LAYOUT", help="How B is stored: tn as [N, K], nn as [K, N]; A is [M, K].")
    ] = "tn",
    schedule: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="fixed: a CTA per tile; persistent: resident CTAs, tiles in turn; dynamic: tiles from a counter.",
        ),
    ] = "fixed",
    tile: Annotated[
        str | None,
        typer.Option(metavar="MxNxK", help="Tile, such as 128x256x64.  [default: the largest that gives every SM one]"),
    ] = None,
    raster: Annotated[
        str, typer.Option(metavar="ORDER", help="Order of the tiles: row, column, or groupedG (G rows together).")
    ] = "grouped8",
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="cuda:N or virtual:NAME.  [default: cuda:0, without a GPU virtual:h200]"),
    ] = None,
    regime: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Timing on a GPU. cool: idle before each graph; sustained: at the power cap."
        ),
    ] = "cool",
    repeat: Annotated[str, typer.Option(metavar="COUNT", help="Rounds of timing on a GPU.")] = str(DEFAULT_REPEAT),
    seed: Annotated[str, typer.Option(metavar="NUMBER", help="Of the random operands, or of the simulation.")] = "0",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="X.parquet", help="Keep the trace in X.parquet.")
    ] = None,
    json: Json = False,
    csv: Csv = None,
    fail_under: FailUnder = None,
) -> int:
    """Run one GEMM and show where every SM-nanosecond of it goes.

    C[M, N] = A[M, K] x B[K, N], measured with an instrumented kernel on an NVIDIA GPU, or
    simulated and marked SIMULATED where there is none.
    """
    from wavescope.cli.outputs import deliver, note, outputs
    from wavescope.problem import DTYPES, LAYOUTS, MAX_DIMENSION, Problem, Tile

    rows, columns, depth = (
        whole_number(option, text, most=MAX_DIMENSION, example=example)
        for option, text, example in (("--m", m, 2304), ("--n", n, 2304), ("--k", k, 4096))
    )
    rounds = whole_number("--repeat", repeat, most=MAX_REPEAT, example=DEFAULT_REPEAT)
    number = whole_number("--seed", seed, least=0, most=MAX_SEED, example=0)
    problem = Problem(rows, columns, depth, _one_of("--dtype", dtype, DTYPES), _one_of("--layout", layout, LAYOUTS))
    asked = None if tile is None else Tile.parse(tile)
    wanted = outputs(json=json, csv=csv, fail_under=fail_under, trace=output)

    from wavescope.cli.target import choose
    from wavescope.schedule import SCHEDULES, Raster
    from wavescope.timing import Regime

    name = _one_of("--schedule", schedule, SCHEDULES)
    order = Raster(raster)
    how = _one_of("--regime", regime, get_args(Regime))
    target = choose(device)
    if target.cuda_index is None and json:
        note(f"simulated because {target.reason}")
    trace = record(problem, asked, name, order, target, how, rounds, number)
    if wanted.trace:
        from wavescope.trace_file import save

        save(trace, wanted.trace)
        note(f"wrote {wanted.trace}")
    return deliver(trace, None, wanted)


def record(
    problem: Problem,
    tile: Tile | None,
    schedule: str,
    raster: Raster,
    target: Target,
    regime: Regime,
    repeat: int,
    seed: int,
) -> Trace:
    """The trace of the problem on the target, measured or simulated."""
    from wavescope.cli.outputs import note
    from wavescope.kernels import default_tile

    chosen = tile or default_tile(problem, target.device)
    if target.cuda_index is None:
        from wavescope.virtual import run

        return run(problem, chosen, schedule, raster, target.device, reason=target.reason, seed=seed)
    from wavescope.measure import measure

    return measure(
        problem,
        chosen,
        schedule,
        raster,
        target.cuda_index,
        regimes=(regime,),
        repeat=repeat,
        seed=seed,
        progress=note,
    )


def _one_of(option: str, value: str, known: tuple[Name, ...]) -> Name:
    """The value, where it is one of the known ones.

    Raises: UsageError naming the option, the value and what there is.
    """
    from difflib import get_close_matches

    from wavescope.errors import UsageError

    for name in known:
        if value == name:
            return name
    close = get_close_matches(value.lower(), known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UsageError(f'{option}: "{value}" is unknown; use one of {", ".join(known)}{hint}')
