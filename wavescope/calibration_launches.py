"""Which launches tell all costs of a tile apart, and recording as many of them as there is time for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from wavescope.device import Device
from wavescope.errors import ShapeError, UsageError
from wavescope.grid_model import GridModel
from wavescope.kernels import KERNELS, facts, kernel_for, stages_that_fit
from wavescope.occupancy import Resources, require_fit
from wavescope.problem import Dtype, Problem, Tile
from wavescope.trace import Trace
from wavescope.variant import Variant

# (tiles a place, k_iters, schedule, elements that m and n lack), the most telling first.  Two
# lengths of k tell costs once from costs a k_iter, partly filled waves what is shared, CTAs of
# several units the gaps; each way to split tiles comes twice, so that each launch can be
# predicted from the others.  The last tells what tiles at the edge of C cost, and nothing else.
LAUNCHES = (
    (1.23, 64, "fixed", 0),
    (1.23, 16, "fixed", 0),
    (2.4, 32, "persistent", 0),
    (1.23, 64, "streamk", 0),
    (1.2, 64, "tailsplit:4", 0),
    (0.6, 64, "splitk:3", 0),
    (1.6, 32, "hybrid", 0),
    (2.4, 32, "dynamic", 0),
    (0.35, 128, "streamk", 0),
    (1.35, 32, "tailsplit:2", 0),
    (0.45, 64, "tailsplit:2", 0),
    (0.4, 64, "splitk:2", 0),
    (1.23, 64, "hybrid", 0),
    (1.9, 32, "fixed", 0),
    (1.45, 64, "persistent", 0),
    (1.45, 16, "dynamic", 0),
    (0.3, 96, "tailsplit:2", 0),
    (1.9, 32, "fixed", 24),
)
_OFF_SQUARE = 1.6  # how much longer one side may be, so that the number of tiles comes out

# Where costs are not known yet, Stream-K takes as many CTAs as fit.
ALL_PLACES = GridModel(a=0.0, b=0.0, c=1.0, d=0.0)


@dataclass(frozen=True)
class Planned:
    """A launch that is to be recorded, with the grid-size model ALL_PLACES."""

    problem: Problem
    tile: Tile
    variant: Variant

    @property
    def has_edges(self) -> bool:
        """True where the last tiles reach over m or n."""
        return self.problem.m % self.tile.m > 0 or self.problem.n % self.tile.n > 0

    def __str__(self) -> str:
        return f"{self.problem}, tile {self.tile}, {self.variant}"


def plans(device: Device, tiles: Sequence[Tile] = (), dtypes: Sequence[Dtype] = ()) -> list[tuple[Planned, ...]]:
    """The launches for each tile and dtype; by default for all tiles that fit, each in its kernel's first dtype.

    Raises: UsageError for a tile that no kernel of the dtypes has; DeviceError for a dtype
    or a named tile that the device has no room for.
    """
    able = [kernel for kernel in KERNELS if device.compute_capability >= kernel.least_compute_capability]
    found = []
    known: set[Tile] = set()
    for dtype in dtypes or [kernel.dtypes[0] for kernel in able]:
        smallest = Problem(1, 1, 1, dtype)
        kernel = kernel_for(smallest, device)
        known |= {code.tile for code in kernel.codes}
        for code in kernel.codes:
            fits = stages_that_fit(kernel, code, smallest, device) is not None
            if code.tile in tiles if tiles else fits:
                need = facts(smallest, code.tile, device)
                resources = Resources(need.threads, need.registers, need.shared_bytes)
                places = device.sms * require_fit(f"tile {code.tile}", resources, device).count
                found.append(planned(code.tile, dtype, places))
    for tile in tiles:
        if tile not in known:
            raise UsageError(f"tile {tile} is none of the kernels'; use one of {', '.join(sorted(map(str, known)))}")
    return found


def planned(tile: Tile, dtype: Dtype, places: int) -> tuple[Planned, ...]:
    """The launches for one tile on a device with that many places, the most telling first."""
    return tuple(
        Planned(_problem(tile, dtype, max(1, round(tiles * places)), k_iters, cut), tile, Variant.parse(text))
        for tiles, k_iters, text, cut in LAUNCHES
    )


def _problem(tile: Tile, dtype: Dtype, tiles: int, k_iters: int, cut: int) -> Problem:
    """As many tiles, or a few less, in about a square; the last row and column lack `cut` elements."""
    square = math.sqrt(tiles * tile.n / tile.m)
    rows = max(
        range(max(1, math.floor(square / _OFF_SQUARE)), min(tiles, math.ceil(square * _OFF_SQUARE)) + 1),
        key=lambda rows: (rows * (tiles // rows), -abs(rows - square)),
    )
    return Problem(rows * tile.m - cut, tiles // rows * tile.n - cut, k_iters * tile.k, dtype)


def record(
    plans: Sequence[Sequence[Planned]],
    measure: Callable[[Planned], Trace],
    seconds: float,
    progress: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[Trace], int]:
    """Traces of the planned launches, and how many there was no time for.

    Each plan's first launch, then each plan's second, and so on; none is begun after
    `seconds`, but for the very first.  A launch that the device has too few places for is
    left out.
    """
    ordered = [one for layer in zip_longest(*plans) for one in layer if one is not None]
    begin, traces = clock(), list[Trace]()
    for number, one in enumerate(ordered):
        passed = clock() - begin
        if traces and passed >= seconds:
            return traces, len(ordered) - number
        progress(f"launch {number + 1} of {len(ordered)}, {passed:.0f} s of {seconds:g}: {one}")
        try:
            traces.append(measure(one))
        except ShapeError as error:  # on a device of few places: another launch does not go
            progress(f"left out: {error}")
    return traces, 0
