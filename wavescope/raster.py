"""The order in which unit indices walk the tiles of C.

Twin: whole_tile in kernels/include/schedule.cuh; tests/test_schedule_twin.py compares every unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.errors import UsageError

IntArray = NDArray[np.int32]


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


DEFAULT_RASTER = Raster()


def tile_at(index: NDArray[Any], tiles_m: int, tiles_n: int, raster: Raster) -> tuple[IntArray, IntArray]:
    """Tile coordinates (tile_m, tile_n) of unit indices under a raster order."""
    group = raster.group(tiles_m)
    band = group * tiles_n
    first_m = index // band * group
    rows = np.minimum(tiles_m - first_m, group)
    within = index % band
    return (first_m + within % rows).astype(np.int32), (within // rows).astype(np.int32)


def in_raster(of_tile: IntArray, raster: Raster) -> NDArray[np.int64]:
    """Values of the tiles, [tiles_m, tiles_n], in raster order."""
    tiles_m, tiles_n = of_tile.shape
    values: NDArray[np.int64] = of_tile[tile_at(np.arange(of_tile.size), tiles_m, tiles_n, raster)].astype(np.int64)
    return values
