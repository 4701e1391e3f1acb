"""How many CTAs, splits or parts pay: the grid-size model of Stream-K.

Osama et al., "Stream-K", PPoPP 2023 (arXiv 2301.03598), appendix: a CTA's time is
a + b [peers > 1] + c iters + d (peers - 1).  The other schedules that split tiles are put
together from the same four constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_SPLITS = 64
SLOTS_AT_ONCE = 4  # partial sums of a tile that a reducing warp reads together, most of the time (fixup.cuh: add_slots)
# CTAs of one tile that wait for one another: few, so that they are resident together.  More would not be faster either:
# H200, 2026-11, gemm_sm90 64x128x64, 128 x 128 x 32768: 32 parts 10.8 us, 48 12.2 us, 64 12.7 us.
MAX_TAIL_PARTS = 32


def in_step(total: int, k_iters: int, grid: int) -> bool:
    """True where `grid` equal shares of all k_iters are whole tiles, or equal parts of one: all at the same k."""
    share, rest = divmod(total, grid)
    return rest == 0 and (share % k_iters == 0 or k_iters % share == 0)


@dataclass(frozen=True)
class GridModel:
    """Costs of one CTA, in any one unit of time.

    `a` once for each unit (pipeline fill, storing the tile), `b` once where a tile is
    split (a partial sum written), `c` for each k_iter, `d` for each partial sum read and
    added.  Beyond the paper: `share` once for each CTA that adds a share of a tile's
    partial sums, `spare` for each SLOTS_AT_ONCE of a tile where one CTA adds all of them,
    and `staggered`, how much more a k_iter costs, relatively, where CTAs that run side by
    side are at different k and share no reads.  `fill` once for each CTA, where units after
    its first one find their pipeline filled; `beside` in place of `share` where other warps
    of the CTA add it during a whole tile (None: they do not).
    """

    a: float
    b: float
    c: float
    d: float
    staggered: float = 0.0
    share: float = 0.0
    spare: float = 0.0
    fill: float = 0.0
    beside: float | None = None

    def grid_time(self, tiles: int, k_iters: int, grid: int) -> float:
        """Basic Stream-K: all k_iters shared evenly over `grid` CTAs."""
        iters = -(-tiles * k_iters // grid)
        peers = -(-k_iters // iters)
        slower = 0.0 if in_step(tiles * k_iters, k_iters, grid) else self.staggered
        return self.a + self.b * (peers > 1) + self.c * (1 + slower) * iters + self.d * (peers - 1)

    def splits_time(self, tiles: int, k_iters: int, splits: int, places: int) -> float:
        """Split-K: every tile cut into `splits`, whose owner adds the partial sums one after the other."""
        waves = -(-tiles * splits // places)
        time = waves * (self.a + self.fill + self.c * -(-k_iters // splits))
        return time + (self.b + self.d * (splits - 1)) * (splits > 1)

    def tail_time(self, tail_tiles: int, k_iters: int, parts: int, grid: int, whole: int = 0) -> float:
        """The tail's tiles cut into `parts`; partial sums added by spare CTAs, or by shares (tail_reducers)."""
        split = self.a + self.c * -(-k_iters // parts) + self.b * (parts > 1)
        if self.tail_reducers(tail_tiles, k_iters, parts, grid, whole):
            return max(split, self._spare_time(tail_tiles, parts, grid))
        share = self.share if whole == 0 or self.beside is None else self.beside
        return split + share * (parts > 1)

    def _spare_time(self, tail_tiles: int, parts: int, grid: int) -> float:
        """How long the CTAs without a part take to add all partial sums."""
        return self.spare * tail_tiles * -(-parts // SLOTS_AT_ONCE) / (grid - tail_tiles * parts)

    def tail_reducers(self, tail_tiles: int, k_iters: int, parts: int, grid: int, whole: int) -> int:
        """CTAs without a part that add all partial sums after their whole tiles; 0 where shares are faster.

        They are free for as long as the others take for their parts.  None where other warps add
        shares beside whole tiles: H200, 2026-11, gemm_sm90 128x256x64, six shapes: with spare CTAs
        launches took 0.3 to 24 % longer.
        """
        spare = grid - tail_tiles * parts
        if parts == 1 or spare < 1 or whole == 0 or self.beside is not None:
            return 0
        split = self.a + self.c * -(-k_iters // parts) + self.b
        return spare if self._spare_time(tail_tiles, parts, grid) - split < self.share else 0

    def best_grid(self, tiles: int, k_iters: int, places: int) -> int:
        """CTAs of basic Stream-K; the fewest of those that take the same time."""
        return _least(range(1, min(places, tiles * k_iters) + 1), lambda g: self.grid_time(tiles, k_iters, g))

    def best_splits(self, tiles: int, k_iters: int, places: int) -> int:
        """Splits of split-K, not only powers of two."""
        most = min(k_iters, MAX_SPLITS)
        return _least(range(1, most + 1), lambda s: self.splits_time(tiles, k_iters, s, places))

    def best_tail_parts(self, tail_tiles: int, k_iters: int, grid: int, whole: int = 0) -> int:
        """Parts that each tile of the tail is cut into, `whole` whole tiles following; 1 without a tail."""
        if tail_tiles == 0:
            return 1
        most = min(k_iters, MAX_TAIL_PARTS, grid // tail_tiles)
        return _least(range(1, most + 1), lambda p: self.tail_time(tail_tiles, k_iters, p, grid, whole))


# For kernels without a calibration: gemm_mma's 128x256x64 tile on an H200, in its k_iters
# (wavescope/data/calibration.csv, 2026-11), whose partial sum has 128 KB.
UNCALIBRATED = GridModel(a=2.6, b=2.9, c=1.0, d=2.4, share=2.95, spare=9.2)


def _least(candidates: Iterable[int], time: Callable[[int], float]) -> int:
    return min(candidates, key=lambda number: (time(number), number))
