"""Operations of a launch: those its problem needs, and those its tiles issue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wavescope.trace import Launch
from wavescope.units import Units


@dataclass(frozen=True)
class Flop:
    """Floating-point operations, a multiply and an add for each product.

    `useful` lie inside the problem, and, where its tiles' work is irregular, in the
    k_iters that were done; `issued` are those of whole tiles and whole k_iters.
    """

    useful: int
    issued: int


def flop_of(launch: Launch, units: Units) -> Flop | None:
    """The operations of a launch, by its problem, or, with irregular work, by the units that ran.

    None where the problem or the tile is unknown, or the units do not say what they did.
    """
    problem, tile = launch.problem, launch.tile
    if problem is None or tile is None:
        return None
    if launch.work is None:
        return Flop(problem.flop, tile.issued_flop(problem))
    if units.of_ctas:
        return None
    # Python's integers: 2^30 rows x columns x k pass 64 bits
    rows = np.minimum(tile.m, problem.m - units.tile_m * tile.m)
    columns = np.minimum(tile.n, problem.n - units.tile_n * tile.n)
    depth = np.minimum(problem.k, units.k_end * tile.k) - units.k_begin * tile.k
    useful = sum((rows * columns * depth).tolist())
    return Flop(2 * useful, 2 * tile.m * tile.n * tile.k * int(units.k_iters.sum()))
