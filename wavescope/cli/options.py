"""Options that several commands share, and words that are one of a few."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from wavescope.errors import UsageError

Name = TypeVar("Name", bound=str)

AUTO = "auto"  # in place of a tile or schedule: the one with the least predicted time

Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON (and nothing else) on stdout.")]
Csv = Annotated[
    Path | None,
    typer.Option(
        "--csv", metavar="X.csv", readable=False, help="Write the spans to X.csv and one row per SM to X.sm.csv."
    ),
]
FailUnder = Annotated[
    str | None,
    typer.Option(
        "--fail-under",
        metavar="SHARE",
        help="Exit with 1 where the share of SM time that is not idle is below SHARE (0 to 1).",
    ),
]
TraceFile = Annotated[
    Path, typer.Argument(metavar="TRACE", readable=False, help="A trace written by 'wavescope profile -o'.")
]
WorkWords = Annotated[
    str | None,
    typer.Option(
        "--work",
        metavar="WORK",
        help="Irregular work. ragged:SEED: each tile sums over its own number of k_iters, drawn from 1 to all. "
        "skip:P: each k_iter is dropped with probability P (drawn from --seed), one stays at least; those kept "
        "are read from the front, as if gathered. For fixed, persistent and dynamic.",
    ),
]


Dtype = Annotated[str, typer.Option(metavar="TYPE", help="bf16, fp16 or fp32.")]
KernelWord = Annotated[
    str,
    typer.Option(
        "--kernel",
        metavar="NAME",
        help="gemm_sm90 (Hopper's tensor cores), gemm_sm90_pingpong (the same, two tiles at once), gemm_mma (sm_80 and "
        "later) or gemm_simt (fp32), short sm90, mma, simt; auto: the first that runs here, and has type and tile.  "
        "More are taken where named (compare --ladder).",
    ),
]
Layout = Annotated[
    str, typer.Option(metavar="LAYOUT", help="How B is stored: tn as [N, K], nn as [K, N]; A is [M, K].")
]
DeviceName = Annotated[
    str | None,
    typer.Option(metavar="DEVICE", help="cuda:N or virtual:NAME.  [default: cuda:0, without a GPU virtual:h200]"),
]
RegimeName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Timing on a GPU. cool: idle before each graph; sustained: at the power cap; or both.",
    ),
]
CtasPerSm = Annotated[
    str | None, typer.Option(metavar="COUNT", help="At most so many CTAs on an SM, by padding shared memory.")
]


def schedules_of(word: str) -> tuple[str, ...]:
    """The schedules that the kernel which --kernel names can run; all for auto.

    Raises: as kernel_name.
    """
    from wavescope.kernels import named
    from wavescope.schedule import SCHEDULES

    name = kernel_name(word)
    return tuple(SCHEDULES) if name is None else tuple(named(name).schedules)


def kernel_name(word: str) -> str | None:
    """The kernel that --kernel names, by its whole or short name; None for auto.

    Raises: UsageError naming the kernels there are.
    """
    from wavescope.kernel_table import ALL_KERNELS

    names = tuple(kernel.name for kernel in ALL_KERNELS)
    short = {name.removeprefix("gemm_"): name for name in names}
    name = one_of("--kernel", short.get(word, word), (AUTO, *names))
    return None if name == AUTO else name


def is_auto(word: str, chosen: str = "the schedule and its number") -> bool:
    """Whether `chosen`, a tile or schedule, is to be chosen.

    Raises: UsageError where auto comes with options.
    """
    name = word.strip()
    if name.startswith((f"{AUTO}:", f"{AUTO}@")):
        raise UsageError(f'"{word}": {AUTO} takes no options; it chooses {chosen}')
    return name == AUTO


def one_of(option: str, value: str, known: tuple[Name, ...]) -> Name:
    """The value, where it is one of the known ones.

    Raises: UsageError naming the option, the value and what there is.
    """
    from difflib import get_close_matches

    for name in known:
        if value == name:
            return name
    close = get_close_matches(value.lower(), known, 1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise UsageError(f'{option}: "{value}" is unknown; use one of {", ".join(known)}{hint}')
