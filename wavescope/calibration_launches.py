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
from wavescope.kernel_table import KERNELS
from wavescope.kernels import copies_ahead, facts, fitting_tiles, kernel_for, takes_turns
from wavescope.occupancy import Resources, require_fit
from wavescope.problem import Dtype, Problem, Tile
from wavescope.schedule import SPLIT_SCHEDULES
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
# For kernels that copy operands ahead, one CTA an SM.  A persistent launch beside fixed ones tells
# what filling costs a CTA; 1.5 tiles a place, the tail in halves, leaves no CTA without a part, so
# that each adds its share while it multiplies a whole tile.  FULL tells what the power cap leaves.
FULL = 0.0  # as many tiles a place as take 150 to 250 us on an H200, the last wave all but full
LAUNCHES_AHEAD = (
    (1.23, 64, "fixed", 0),
    (2.4, 16, "persistent", 0),
    (1.5, 64, "tailsplit:2", 0),
    (1.23, 64, "streamk", 0),
    (0.6, 64, "splitk:3", 0),
    (0.45, 64, "tailsplit:2", 0),
    (FULL, 64, "persistent", 0),
    (1.2, 64, "tailsplit:4", 0),
    (2.4, 64, "persistent", 0),
    (1.9, 16, "fixed", 0),
    (2.4, 32, "dynamic", 0),
    (1.6, 32, "hybrid", 0),
    (1.9, 32, "fixed", 24),
)
_FULL_ELEMENTS = 8 * 128 * 128  # of C that each place has there; with 64 k_iters of 64 about 170 us
_OFF_SQUARE = 1.6  # how much longer one side may be, so that the number of tiles comes out

# Where costs are not known yet, Stream-K takes as many CTAs as fit.
ALL_PLACES = GridModel(a=0.0, b=0.0, c=1.0, d=0.0)


@dataclass(frozen=True)
class Planned:
    """A launch that is to be recorded, with the grid-size model ALL_PLACES."""

    problem: Problem
    tile: Tile
    variant: Variant
    kernel: str

    @property
    def has_edges(self) -> bool:
        """True where the last tiles reach over m or n."""
        return self.problem.m % self.tile.m > 0 or self.problem.n % self.tile.n > 0

    def __str__(self) -> str:
        return f"{self.kernel} {self.variant}, {self.problem}, tile {self.tile}"


def plans(
    device: Device, tiles: Sequence[Tile] = (), dtypes: Sequence[Dtype] = (), kernel: str | None = None
) -> list[tuple[Planned, ...]]:
    """The launches for each tile and dtype; by default for all tiles that fit, each in its kernel's first dtype.

    `kernel`: its name; None: for each dtype the first that runs here, and has the tile.

    Raises: UsageError for a tile that no kernel of the dtypes has; DeviceError for a dtype,
    a kernel or a named tile that the device has no room for.
    """
    found = []
    known: set[Tile] = set()
    for dtype in dtypes or _first_dtypes(device, kernel):
        smallest = Problem(1, 1, 1, dtype)
        best = kernel_for(smallest, device, kernel)
        of_dtype = [best] if kernel else [one for one in KERNELS if dtype in one.dtypes and one.runs_on(device)]
        has = {code.tile: one.name for one in reversed(of_dtype) for code in one.codes}
        known |= has.keys()
        for tile in [tile for tile in tiles if tile in has] if tiles else fitting_tiles(best, smallest, device):
            need = facts(smallest, tile, device, kernel_name=has[tile])
            resources = Resources(need.threads, need.registers, need.shared_bytes)
            places = device.sms * require_fit(f"tile {tile}", resources, device).count
            found.append(planned(need.kernel, tile, dtype, places))
    for tile in tiles:
        if tile not in known:
            raise UsageError(f"tile {tile} is none of the kernels'; use one of {', '.join(sorted(map(str, known)))}")
    return found


def _first_dtypes(device: Device, kernel: str | None) -> list[Dtype]:
    """The first dtype of each kernel that runs here, or of the one of that name."""
    able = [one for one in KERNELS if (one.runs_on(device) if kernel is None else one.name == kernel)]
    return list(dict.fromkeys(one.dtypes[0] for one in able))


def planned(kernel: str, tile: Tile, dtype: Dtype, places: int) -> tuple[Planned, ...]:
    """The launches for one tile on a device with that many places, the most telling first."""
    launches = LAUNCHES_AHEAD if copies_ahead(kernel) else LAUNCHES

    def one(tiles: float, k_iters: int, text: str, cut: int) -> Planned:
        number = max(1, round((tiles or _full(tile)) * places))
        return Planned(_problem(tile, dtype, number, k_iters, cut), tile, Variant.parse(text), kernel)

    every = [one(*launch) for launch in launches]
    # where teams take turns, launches of cut tiles are not described (launch_costs.recorded_launch)
    return tuple(one for one in every if not (takes_turns(kernel) and one.variant.schedule in SPLIT_SCHEDULES))


def _full(tile: Tile) -> float:
    """Tiles a place, a little less than a whole number."""
    return max(1, round(_FULL_ELEMENTS / (tile.m * tile.n))) - 0.05


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
