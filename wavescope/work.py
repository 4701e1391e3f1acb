"""Irregular work: tiles that take unequal numbers of k_iters, drawn from a seed.

Written as `ragged:SEED` or `skip:P`, with the seed that P's draws came from behind it
(`skip:0.5:7`) wherever it is kept.
"""

from __future__ import annotations

import math
import re
import reprlib
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from wavescope.errors import UsageError
from wavescope.problem import Problem, Tile
from wavescope.trace import Launch

WorkKind = Literal["ragged", "skip"]
WORK_KINDS: tuple[WorkKind, ...] = get_args(WorkKind)
MAX_SEED = 2**31 - 1
HOW = "write it as in ragged:7 (ragged:SEED) or skip:0.5 (skip:P)"
# Kept k_iters further from their mean than so many standard deviations come once in 10^30 tiles.
_FARTHEST_SIGMA = 12


@dataclass(frozen=True)
class Work:
    """How many k_iters each tile takes; a result element is the sum over the k of its tile's first ones.

    `ragged`: every tile has its own number, uniform in 1 to all, as in a grouped GEMM
    (mixture of experts, sequences of unequal length).  `skip`: every k_iter of a tile is
    dropped with probability `dropped`, and at least one stays; those kept stand at the
    front, as in a kernel over gathered (compressed) operands.

    Raises: UsageError for a seed or a share that cannot be.
    """

    kind: WorkKind
    seed: int
    dropped: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"work {self}: seed {self.seed} is outside 0 to {MAX_SEED}; use one inside")
        if not 0 <= self.dropped < 1:
            raise UsageError(
                f"work {self}: {self.dropped:g} is no share of the k_iters to drop; give one from 0 to below 1, "
                "as in skip:0.5"
            )

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> Work:
        """Read `ragged:SEED` or `skip:P[:SEED]`; `seed` is that of skip where the text has none.

        Raises: UsageError naming the text.
        """
        kind, *values = text.strip().split(":")
        if kind not in WORK_KINDS:
            close = get_close_matches(kind.lower(), WORK_KINDS, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"work {reprlib.repr(text)} is unknown; {hint}{HOW}")
        if kind == "ragged" and len(values) == 1:
            return cls("ragged", _seed(values[0], text))
        if kind == "skip" and len(values) in (1, 2):
            return cls("skip", _seed(values[1], text) if len(values) == 2 else seed, _share(values[0], text))
        raise UsageError(f"work {reprlib.repr(text)} lacks its number, or has one too many; {HOW}")

    def k_iters_of(self, problem: Problem, tile: Tile) -> NDArray[np.int32]:
        """k_iters of each tile, [tiles_m, tiles_n]: the same for the same seed, problem sizes and tile, everywhere."""
        shape, most = (tile.tiles_m(problem), tile.tiles_n(problem)), tile.k_iters(problem)
        # NumPy promises the bits of a bit generator for good, but not what Generator makes of them.
        bits = np.random.PCG64([WORK_KINDS.index(self.kind), self.seed]).random_raw(shape[0] * shape[1])
        uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53  # [0, 1)
        if self.kind == "ragged":
            drawn = 1 + np.floor(uniform * most).astype(np.int32)
        elif self.dropped == 0:
            drawn = np.full(len(uniform), most, np.int32)
        else:
            drawn = np.maximum(1, _binomial(uniform, most, self.dropped))
        return drawn.reshape(shape)

    def __str__(self) -> str:
        return f"ragged:{self.seed}" if self.kind == "ragged" else f"skip:{self.dropped!r}:{self.seed}"


def work_of(launch: Launch) -> Work | None:
    """The irregular work of a recorded launch, None where every tile summed over all of k."""
    return None if launch.work is None else Work.parse(launch.work)


def _seed(text: str, whole: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
        raise UsageError(
            f"work {reprlib.repr(whole)}: {reprlib.repr(text)} is no seed; give a whole number from 0 to {MAX_SEED}"
        )
    return int(text)


def _share(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"work {reprlib.repr(whole)}: {reprlib.repr(text)} is no number; give the share of the k_iters to drop, "
            "as in skip:0.5"
        ) from None


def _binomial(uniform: NDArray[np.float64], count: int, dropped: float) -> NDArray[np.int32]:
    """How many of `count` stay, each dropped with that probability (not 0): the inverse distribution function."""
    mean, deviation = count * (1 - dropped), math.sqrt(count * dropped * (1 - dropped))
    room = _FARTHEST_SIGMA * (1 + deviation)
    kept = np.arange(max(0, math.floor(mean - room)), min(count, math.ceil(mean + room)) + 1, dtype=np.int32)
    odds = math.log1p(-dropped) - math.log(dropped)
    logs = np.append(0.0, np.cumsum(np.log((count + 1 - kept[1:]) / kept[1:]) + odds))  # but for a constant
    below = np.cumsum(np.exp(logs - logs.max()))
    return kept[np.searchsorted(below / below[-1], uniform, "right")]
