"""Who computes what: a problem and a tile become units, handed to CTAs.

Twin: kernels/include/schedule.cuh; tests/test_schedule_twin.py compares every unit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from wavescope import cuts
from wavescope.errors import ShapeError, UsageError
from wavescope.grid_model import MAX_TAIL_PARTS, SLOTS_AT_ONCE, UNCALIBRATED, GridModel, in_step
from wavescope.problem import MAX_UNITS, Problem, Tile
from wavescope.raster import DEFAULT_RASTER, IntArray, Raster, in_raster, tile_at
from wavescope.trace import Order
from wavescope.work import Work

ScheduleName = Literal["fixed", "persistent", "dynamic", "splitk", "streamk", "hybrid", "tailsplit"]
Dispatch = Literal["hardware", "static", "queue"]

SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)
# Schedules that cut tiles along k, and what their number means.
SPLIT_SCHEDULES: dict[str, str] = {
    "splitk": "splits of each tile",
    "streamk": "CTAs that share all k_iters",
    "hybrid": "tiles of Stream-K a CTA at most (1 or 2)",
    "tailsplit": "parts of each tile of the last wave",
}
# Those that fix before the launch which CTA runs which unit.  All others (and kernels whose schedule is unknown)
# hand a unit to the first free place, in index order.
STATIC_SCHEDULES = frozenset(SCHEDULES) - {"fixed", "dynamic", "splitk"}
# Unit arrays take 20 bytes a unit: above this, say so instead of filling the memory.
MAX_LISTED_UNITS = 20_000_000


@dataclass(frozen=True)
class Schedule:
    """Units in the order of their ids, and who runs them.

    Arrays have one element a unit: `unit` (its id, ascending; under streamk and hybrid not
    all numbers are used), `cta` (-1 where a counter decides at run time), `tile_m`,
    `tile_n`, and the half-open range [`k_begin`, `k_end`) in k_iters.  A CTA runs its
    units in the order of their ids.  `dispatch` says who hands units out: the hardware's
    block scheduler (one CTA a unit), the schedule itself, or a queue.

    Where a tile is split, `peers` units share it: their partial sums have the slots
    `first_slot` to `first_slot + peers - 1` of the workspace, and `rank` says which is the
    unit's own; the unit of rank 0 begins at k 0, or ends with the last k_iter under streamk
    and hybrid.  `parts` is the number behind the schedule's name (SPLIT_SCHEDULES),
    `split_tiles` how many tiles may be cut.  Under tailsplit the last `reducers` CTAs, which
    have no part, add all partial sums when they have done their whole tiles; 0: those who have
    the parts add a share each.

    With irregular `work` the kernel reads what unit i is from row i of `table`,
    [num_units, 2]: its tile's number in raster order, and its k_end.
    """

    name: str
    problem: Problem
    tile: Tile
    raster: Raster
    num_ctas: int
    dispatch: Dispatch
    parts: int
    split_tiles: int
    reducers: int
    num_slots: int
    unit: IntArray = field(repr=False)
    cta: IntArray = field(repr=False)
    tile_m: IntArray = field(repr=False)
    tile_n: IntArray = field(repr=False)
    k_begin: IntArray = field(repr=False)
    k_end: IntArray = field(repr=False)
    first_slot: IntArray = field(repr=False)
    rank: IntArray = field(repr=False)
    peers: IntArray = field(repr=False)
    work: Work | None = None
    order: Order = "raster"
    table: IntArray | None = field(default=None, repr=False)

    @property
    def num_units(self) -> int:
        """Units handed out."""
        return len(self.unit)

    @property
    def unit_ids(self) -> int:
        """One more than the largest id a unit may have."""
        if self.name in ("streamk", "hybrid") and self.split_tiles:
            return self.tile.num_tiles(self.problem) + self.num_ctas
        return self.num_units

    @property
    def k_iters(self) -> IntArray:
        """k_iters of each unit."""
        return self.k_end - self.k_begin

    @property
    def is_cooperative(self) -> bool:
        """True where all units of a split tile add and store a share of it each."""
        return self.name == "tailsplit"

    @property
    def adds_by(self) -> str:
        """Which cost of a Calibration adding the partial sums is."""
        if not self.is_cooperative:
            return "add_cycles"
        return "spare_cycles" if self.reducers else "share_cycles"

    @property
    def spare_reads(self) -> int:
        """Rounds of reading in which reducers add all partial sums, about SLOTS_AT_ONCE slots of a tile each."""
        return self.split_tiles * -(-self.parts // SLOTS_AT_ONCE)

    @property
    def stores_tile(self) -> NDArray[np.bool_]:
        """True where the unit stores a whole tile: the one of rank 0, unless all store a share."""
        owners: NDArray[np.bool_] = (self.rank == 0) & ((self.peers == 1) | (not self.is_cooperative))
        return owners

    @property
    def writes_partial(self) -> NDArray[np.bool_]:
        """True where the unit leaves its partial sum in the workspace."""
        writers: NDArray[np.bool_] = (self.peers > 1) & ((self.rank > 0) | self.is_cooperative)
        return writers

    @property
    def is_staggered(self) -> NDArray[np.bool_]:
        """True where CTAs that run side by side are at different k, so that they share fewer reads.

        The shares of Stream-K, unless all of them are whole tiles or equal parts of one.
        H200, 2026-11: in step two CTAs share each read; where each begins with the k at which
        its share begins none does, and k_iters take up to 1.5 times as long (128x256 and 128x128
        tiles at 2304 x 2304 x 4096).  Walked from the last k_iter back, as here, tiles leave
        Stream-K's CTAs in a few groups: up to 1.17 times (64x128 tiles of gemm_sm90), less than
        1.01 with tiles of 128x256 and more, 1.04 to 1.09 with gemm_mma's smaller ones (stream_slowdown).
        """
        shared = self.unit < self.split_tiles + self.num_ctas
        if self.name not in ("streamk", "hybrid") or not self.split_tiles:
            return shared & False
        k_iters = self.tile.k_iters(self.problem)
        staggered: NDArray[np.bool_] = shared & (not in_step(self.split_tiles * k_iters, k_iters, self.num_ctas))
        return staggered

    def reads_past(self, l2_bytes: int) -> bool:
        """Whether CTAs at different k read from memory what they would find in a larger L2.

        H200, 2026-12, gemm_sm90 and gemm_mma at 92 to 243 MB: 1.0 to 2.0 times the time that a
        simulation gives, since calibrations come from launches that fit the L2.
        """
        return self.problem.read_bytes > l2_bytes and bool(self.is_staggered.any())

    @property
    def is_edge(self) -> NDArray[np.bool_]:
        """True where the unit's tile reaches over m or n: kernels copy such a tile by checked, slower loads."""
        beyond: NDArray[np.bool_] = ((self.tile_m + 1) * self.tile.m > self.problem.m) | (
            (self.tile_n + 1) * self.tile.n > self.problem.n
        )
        return beyond

    @property
    def comes_to(self) -> str:
        """The schedule that does the same work here: its own name, or a plainer one.

        fixed where every CTA has one whole tile, persistent where a schedule that splits has
        nothing to split, streamk where hybrid shares all tiles.
        """
        shared = self.name in ("streamk", "hybrid") and self.split_tiles > 0
        all_shared = shared and self.split_tiles == self.tile.num_tiles(self.problem)
        if not (self.peers > 1).any():
            if self.num_ctas == self.num_units:
                return "fixed"
            if not shared:  # else each CTA has neighbouring tiles, and not every P-th one
                return "persistent" if self.name in SPLIT_SCHEDULES else self.name
        return "streamk" if all_shared else self.name

    @property
    def in_words(self) -> str:
        """What really runs, where the name alone would mislead."""
        if self.name not in SPLIT_SCHEDULES:
            return f"{self.name}, longest tiles first" if self.order == "lpt" else self.name
        if not (self.peers > 1).any():
            if self.comes_to == "streamk":
                least, more = divmod(self.num_units, self.num_ctas)
                each = f"{least} or {least + 1}" if more else least
                return f"{self.name}: no tile is split here; {self.num_ctas} CTAs of {each} neighbouring tiles"
            if self.comes_to == "hybrid":
                return f"hybrid: no tile is split here; {self.num_ctas} CTAs"
            on = f" on {self.num_ctas} CTAs" if self.comes_to == "persistent" else ""
            return f"{self.name}: no tile is split here, so it runs as {self.comes_to}{on}"
        if self.name == "splitk":
            return f"splitk: each tile cut into {self.parts}"
        if self.name == "streamk":
            return f"streamk: {self.num_ctas} CTAs of {int(self.k_iters.sum()) / self.num_ctas:.1f} k_iters"
        whole = self.tile.num_tiles(self.problem) - self.split_tiles
        if self.name == "hybrid":
            shared = f"{self.split_tiles} tiles shared by {self.num_ctas} CTAs"
            return f"hybrid: {shared}, then {whole} whole tiles" if whole else f"hybrid: all {shared}, as by streamk"
        who = f", {self.reducers} spare CTAs add the parts" if self.reducers else ""
        return f"tailsplit: {self.split_tiles} tiles cut into {self.parts}, then {whole} whole tiles{who}"


def decompose(
    name: str,
    problem: Problem,
    tile: Tile,
    places: int,
    raster: Raster = DEFAULT_RASTER,
    parts: int | None = None,
    model: GridModel = UNCALIBRATED,
    work: Work | None = None,
    order: Order = "raster",
    cluster: int = 1,
    ctas: int | None = None,
) -> Schedule:
    """Cut `problem` into units of `tile` and hand them to CTAs.

    `places` is the room for resident CTAs: all schedules but fixed and splitk launch at
    most that many CTAs.  `parts` is the number that SPLIT_SCHEDULES describes; without
    it `model` chooses.  `work` gives each tile its own number of k_iters, and `order` lpt
    the longest tiles the lowest unit numbers (those of equal length in raster order).  CTAs
    come in clusters of `cluster`, the last of which may have some without a unit.  `ctas` is
    how many a launch of fewer tiles than places had under hybrid; without it `model` chooses.

    Raises: UsageError for an unknown schedule, a number where none belongs, or as
    check_work; ShapeError for more tiles than a grid can hold or this process should list,
    and for a number of parts that does not go.
    """
    if name not in SCHEDULES:
        raise UsageError(f"schedule '{name}' is unknown; use one of {', '.join(SCHEDULES)}")
    check_work(name, work, order)
    if places < 1:
        raise ShapeError(f"places={places} leaves no room for a CTA; use a smaller tile")
    tiles, k_iters, reducers = tile.num_tiles(problem), tile.k_iters(problem), 0
    _require_listed(problem, tile, tiles)
    if parts is not None:
        check_parts(name, parts, tiles, k_iters, places)
    if name == "splitk":
        parts = parts or model.best_splits(tiles, k_iters, places)
        _require_listed(problem, tile, tiles * parts)
        cut = cuts.splitk(tiles, k_iters, parts)
    elif name == "streamk":
        parts = min(parts or model.best_grid(tiles, k_iters, places), tiles * k_iters)
        cut = cuts.stream(tiles, k_iters, tiles, parts)
    elif name == "hybrid":
        parts = parts or 2
        split, grid = hybrid_shares(tiles, k_iters, places, parts, model, ctas)
        cut = cuts.stream(tiles, k_iters, split, grid)
    elif name == "tailsplit":
        left = tiles % places
        parts = min(parts or (model.best_tail_parts(left, k_iters, places, tiles - left) if left else 1), k_iters)
        cut = cuts.tailsplit(tiles, k_iters, left if parts > 1 else 0, parts, places)
        reducers = model.tail_reducers(left, k_iters, parts, places, tiles - left) if left else 0
    else:
        sizes = np.full(tiles, k_iters) if work is None else in_raster(work.k_iters_of(problem, tile), raster)
        num_ctas = -(-tiles // cluster) * cluster  # whole clusters
        if name != "fixed":
            num_ctas = min(max(1, places // cluster) * cluster, num_ctas)
        parts, cut = 1, cuts.whole(sizes, num_ctas, name == "dynamic", order == "lpt")
    if int(cut.split_tiles) * k_iters >= 2**31:
        raise ShapeError(f"{problem} cut into {tile} has too many k_iters to share; use a larger tile")
    tile_m, tile_n = tile_at(cut.tile, tile.tiles_m(problem), tile.tiles_n(problem), raster)
    return Schedule(
        name=name,
        problem=problem,
        tile=tile,
        raster=raster,
        num_ctas=cut.num_ctas,
        dispatch="static" if name in STATIC_SCHEDULES else "queue" if name == "dynamic" else "hardware",
        parts=parts,
        split_tiles=cut.split_tiles,
        reducers=reducers,
        num_slots=cut.num_slots if (cut.peers > 1).any() else 0,
        unit=cut.unit.astype(np.int32),
        cta=cut.cta.astype(np.int32),
        tile_m=tile_m,
        tile_n=tile_n,
        k_begin=cut.k_begin.astype(np.int32),
        k_end=cut.k_end.astype(np.int32),
        first_slot=np.where(cut.peers > 1, cut.first_slot, 0).astype(np.int32),
        rank=cut.rank.astype(np.int32),
        peers=cut.peers.astype(np.int32),
        work=work,
        order=order,
        table=np.stack([cut.tile, cut.k_end], axis=1).astype(np.int32) if work else None,
    )


def hybrid_shares(
    tiles: int, k_iters: int, places: int, parts: int, model: GridModel, ctas: int | None = None
) -> tuple[int, int]:
    """How many tiles hybrid shares, and the CTAs of the launch; `ctas` as in decompose.

    Fewer tiles than places are all shared, as by streamk.  hybrid:1 shares those left over, but
    where they have not a k_iter for each place, since all of these compute whole tiles too.
    """
    left = tiles % places
    if tiles < places:
        return tiles, min(ctas or model.best_grid(tiles, k_iters, places), places, tiles * k_iters)
    if left == 0:
        return 0, places
    return left if parts == 1 and left * k_iters >= places else left + places, places


def check_work(name: str, work: Work | None, order: Order) -> None:
    """Pass a schedule that can do this work in this order.

    Raises: UsageError for a schedule that splits tiles, and for an order where there is nothing to order.
    """
    if work is not None and name in SPLIT_SCHEDULES:
        *takers, last = (taker for taker in SCHEDULES if taker not in SPLIT_SCHEDULES)
        raise UsageError(
            f"{name} cuts tiles of equal k, and with work {work} each has its own; use {', '.join(takers)} or {last}"
        )
    if work is None and order == "lpt":
        raise UsageError(
            f"{name}@lpt puts the longest tiles first, and without irregular work all are equal; "
            f"use {name}, or give the work (--work ragged:7)"
        )


def _require_listed(problem: Problem, tile: Tile, units: int) -> None:
    limit = min(MAX_UNITS, MAX_LISTED_UNITS)
    if units > limit:
        raise ShapeError(f"{problem} cut into {tile} gives {units} units, more than {limit}; use a larger tile")


def check_parts(name: str, parts: int, tiles: int, k_iters: int, places: int) -> None:
    """Pass a schedule's number that goes with so many tiles of so many k_iters.

    Raises: UsageError for a schedule without a number; ShapeError naming the numbers that go.
    """
    if name not in SPLIT_SCHEDULES:
        raise UsageError(f"schedule {name} takes no number; {name}:{parts} should be {name}")
    left = tiles % places
    parts_at_once = min(MAX_TAIL_PARTS, k_iters, places // left) if left else MAX_TAIL_PARTS
    most = {"splitk": k_iters, "streamk": places, "hybrid": 2, "tailsplit": parts_at_once}[name]
    if not 1 <= parts <= most:
        crowd = f"{left} tiles are left over, and all their parts must find one of {places} places"
        few = f"at most {MAX_TAIL_PARTS} CTAs wait for one another"
        why = {
            "splitk": f"k has {k_iters} k_iters",
            "streamk": f"the device has places for {places} CTAs",
            "tailsplit": f"k has {k_iters} k_iters" if most == k_iters else few if most == MAX_TAIL_PARTS else crowd,
        }.get(name)
        raise ShapeError(
            f"{name}:{parts} is not possible ({SPLIT_SCHEDULES[name]}: 1 to {most}{f', {why}' if why else ''}); "
            f"use {name}:{min(max(parts, 1), most)}"
        )


def nominal_waves(num_units: int, places: int) -> float:
    """Units per place: arithmetic, an estimate, blind to unequal units and backfill."""
    return num_units / places


def wave_efficiency(num_units: int, places: int) -> float:
    """Nominal waves over their ceiling: the share of places busy if all units are equal."""
    return num_units / (places * -(-num_units // places))
