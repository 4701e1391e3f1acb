"""Who computes what: a problem and a tile become units, handed to CTAs.

Twin: kernels/include/schedule.cuh; tests/test_schedule_twin.py compares every unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from wavescope.errors import ShapeError, UsageError
from wavescope.problem import MAX_UNITS, Problem, Tile

ScheduleName = Literal["fixed", "persistent", "dynamic"]
Dispatch = Literal["hardware", "static", "queue"]
IntArray = NDArray[np.int32]

SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
# Unit arrays take 20 bytes a unit: above this, say so instead of filling the memory.
MAX_LISTED_UNITS = 20_000_000


@dataclass(frozen=True)
class Raster:
    """The order in which unit indices walk the tiles of C.

    `row` walks along n, `column` along m, `groupedG` walks G tile rows together, column
    by column, so that CTAs running at the same time share operands in L2.
    """

    name: str = "grouped8"

    def __post_init__(self) -> None:
        if self.name not in ("row", "column") and not re.fullmatch(r"grouped[1-9]\d{0,5}", self.name, re.ASCII):
            raise UsageError(f"raster '{self.name}' is unknown; use row, column or groupedG (for example grouped8)")

    def group(self, tiles_m: int) -> int:
        """Tile rows walked together, the kernels' raster_group."""
        if self.name == "row":
            return 1
        if self.name == "column":
            return tiles_m
        return min(int(self.name.removeprefix("grouped")), tiles_m)


@dataclass(frozen=True)
class Schedule:
    """Units in index order, and who runs them.

    Arrays have one element a unit: `cta` (-1 where a counter decides at run time),
    `tile_m`, `tile_n`, and the half-open range [`k_begin`, `k_end`) in k_iters.  A CTA
    runs its units in index order.  `dispatch` says who hands units out: the hardware's
    block scheduler (one CTA a unit), the schedule itself, or a queue.
    """

    name: str
    problem: Problem
    tile: Tile
    raster: Raster
    num_ctas: int
    dispatch: Dispatch
    cta: IntArray = field(repr=False)
    tile_m: IntArray = field(repr=False)
    tile_n: IntArray = field(repr=False)
    k_begin: IntArray = field(repr=False)
    k_end: IntArray = field(repr=False)

    @property
    def num_units(self) -> int:
        """Units handed out."""
        return len(self.cta)

    @property
    def k_iters(self) -> IntArray:
        """k_iters of each unit."""
        return self.k_end - self.k_begin

    @property
    def stores_tile(self) -> NDArray[np.bool_]:
        """True where the unit stores the tile: the one that did its first k_iter."""
        owners: NDArray[np.bool_] = self.k_begin == 0
        return owners


def decompose(name: str, problem: Problem, tile: Tile, places: int, raster: Raster = Raster()) -> Schedule:
    """Cut `problem` into units of `tile` and hand them to CTAs.

    `places` is the room for resident CTAs: persistent and dynamic launch that many CTAs,
    or one a tile where there are fewer tiles.

    Raises: UsageError for an unknown schedule; ShapeError for more tiles than a grid
    can hold, or than this process should list.
    """
    if name not in SCHEDULES:
        raise UsageError(f"schedule '{name}' is unknown; use one of {', '.join(SCHEDULES)}")
    if places < 1:
        raise ShapeError(f"places={places} leaves no room for a CTA; use a smaller tile")
    num_units = tile.num_tiles(problem)
    if num_units > MAX_UNITS or num_units > MAX_LISTED_UNITS:
        limit = min(MAX_UNITS, MAX_LISTED_UNITS)
        raise ShapeError(f"{problem} cut into {tile} gives {num_units} tiles, more than {limit}; use a larger tile")
    index = np.arange(num_units, dtype=np.int32)
    num_ctas = num_units if name == "fixed" else min(places, num_units)
    tile_m, tile_n = tile_at(index, tile.tiles_m(problem), tile.tiles_n(problem), raster)
    return Schedule(
        name=name,
        problem=problem,
        tile=tile,
        raster=raster,
        num_ctas=num_ctas,
        dispatch={"fixed": "hardware", "persistent": "static", "dynamic": "queue"}[name],  # type: ignore[arg-type]
        cta=np.full(num_units, -1, np.int32) if name == "dynamic" else index % np.int32(num_ctas),
        tile_m=tile_m,
        tile_n=tile_n,
        k_begin=np.zeros(num_units, np.int32),
        k_end=np.full(num_units, tile.k_iters(problem), np.int32),
    )


def tile_at(index: IntArray, tiles_m: int, tiles_n: int, raster: Raster) -> tuple[IntArray, IntArray]:
    """Tile coordinates (tile_m, tile_n) of unit indices under a raster order."""
    group = raster.group(tiles_m)
    band = group * tiles_n
    first_m = index // band * group
    rows = np.minimum(tiles_m - first_m, group)
    within = index % band
    return (first_m + within % rows).astype(np.int32), (within // rows).astype(np.int32)


def nominal_waves(num_units: int, places: int) -> float:
    """Units per place: arithmetic, an estimate, blind to unequal units and backfill."""
    return num_units / places


def wave_efficiency(num_units: int, places: int) -> float:
    """Nominal waves over their ceiling: the share of places busy if all units are equal."""
    return num_units / (places * -(-num_units // places))
