"""Which tile and schedule a problem should run with: all of them, ranked by the calibrated virtual device.

Sums of what the units cost put each schedule's tiles in an order; the first of them are
simulated, as `wavescope compare` predicts its contenders.  All of it is an estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wavescope.calibration import installed, lookup
from wavescope.calibration_row import Calibration
from wavescope.device import Device
from wavescope.errors import ShapeError, UsageError
from wavescope.grid_model import MAX_SPLITS, in_step
from wavescope.kernel_table import KERNELS
from wavescope.kernels import facts, fitting_tiles, kernel_for, named, reads_whole_lines, takes_turns
from wavescope.occupancy import Resources, require_fit
from wavescope.power_cap import stretch
from wavescope.problem import Problem, Tile
from wavescope.raster import DEFAULT_RASTER, Raster
from wavescope.schedule import SPLIT_SCHEDULES, check_parts, hybrid_shares, wave_efficiency
from wavescope.variant import Variant
from wavescope.virtual import MAX_SIMULATED_UNITS, run
from wavescope.virtual_comparison import span_ns
from wavescope.work import Work

OF_EACH = 5  # tiles of a schedule that are simulated
MOST_UNITS = 80_000  # of all that are simulated together: under a second
_HOPELESS = 1.5  # a sum so many times the least is not simulated
_QUICK = 4  # so many times faster units that neither share an SM nor wait for one another are simulated
_SPLITS = 2  # numbers of splits to consider for each tile
_NAMED = 3  # runners-up that are named
# Cut tiles must be faster by both.  H200, 2026-11, tests/benchmarks/h200_hopper.json:
# simulations of tail splits came out 1.3 % short of the time (median of five, 128x256), those of the whole tiles that
# auto took 1.3 % long (of 55).  And in launches of less than 40 us, gemm_mma (tests/data/predictions): splitk and
# tailsplit 0.2 to 0.7 us short, fixed and persistent 0.8 to 1.2 us long.
CUT_MARGIN = 1.03
CUT_NS = 1000.0
# Simulations of whole tiles that differ by less do not tell: of these those that fill their waves best.
# 8192^3 on an H200: 128x192 (99 % full) and 256x192 (95 %) come out 0.2 % apart, and how much of the power cap idle
# SMs leave to the others is a guess.
TIE = 1.003
# Of schedules that are equally fast the first is taken.
_SIMPLEST_FIRST = ("persistent", "fixed", "dynamic", "tailsplit", "splitk", "hybrid", "streamk")


@dataclass(frozen=True)
class Choice:
    """A kernel, tile and schedule, and the time predicted for it (T of its simulation, an estimate).

    `summed_ns` is the sum of costs that put it among those to simulate, which takes
    `effort`; `exact` is False where the costs are scaled from another tile, dtype, kernel
    or device; `full` is the wave efficiency of its tiles.
    """

    kernel: str
    tile: Tile
    variant: Variant
    summed_ns: float
    predicted_ns: float
    exact: bool
    effort: float = 0.0
    full: float = 1.0

    @property
    def is_cut(self) -> bool:
        """Whether its schedule cuts tiles along k."""
        return self.variant.schedule in SPLIT_SCHEDULES

    def __str__(self) -> str:
        return f"{self.kernel} {self.tile} {self.variant}"


@dataclass(frozen=True)
class Ranking:
    """Those that were simulated, the fastest first, but for CUT_MARGIN, CUT_NS and TIE; `considered` counts all."""

    problem: Problem
    choices: tuple[Choice, ...]
    considered: int

    @property
    def best(self) -> Choice:
        """The one to take."""
        return self.choices[0]

    def __str__(self) -> str:
        """The choice and its runners-up in one line."""
        shown = self.choices[: 1 + _NAMED]
        then = ", then ".join(f"{one} {_time(one.predicted_ns)}" for one in shown[1:])
        scaled = "" if all(one.exact for one in shown) else "; unit costs are scaled"
        passed = [
            one
            for place, one in enumerate(shown)
            if any(one.predicted_ns < other.predicted_ns for other in shown[:place])
        ]
        margin = (
            f"; cut tiles must win by {100 * (CUT_MARGIN - 1):.0f} % and by {CUT_NS / 1e3:g} us"
            if any(one.is_cut for one in passed)
            else ""
        )
        tie = "; of equal times those that fill their waves" if any(not one.is_cut for one in passed) else ""
        return (
            f"auto takes {shown[0]}, {_time(shown[0].predicted_ns)}{then and f', then {then}'} "
            f"(estimated, of {self.considered} tiles and schedules{scaled}{margin}{tie})"
        )


def _time(ns: float) -> str:
    return f"{ns / 1e3:.4g} us" if ns < 1e6 else f"{ns / 1e6:.4g} ms"


def rank(
    problem: Problem,
    device: Device,
    *,
    kernel: str | None = None,
    tiles: Sequence[Tile] = (),
    variants: Sequence[Variant] = (),
    raster: Raster = DEFAULT_RASTER,
    most_ctas: int | None = None,
    seed: int = 0,
    work: Work | None = None,
) -> Ranking:
    """Every tile with every schedule by predicted time, the same for the same arguments.

    `kernel`: its name; None: all that run on the device and have the dtype, where several
    have a tile the best of them, and those whose own costs are known.  `tiles` and
    `variants`: the only ones to choose from; by default all tiles that fit (and read B in
    whole lines), and all schedules with the numbers that the grid-size model finds best.  `work`: tiles of
    unequal k, which only schedules that keep tiles whole can do.  Equal times go by the
    simpler schedule, then by name.

    Raises: as kernels.kernel_for and virtual.run, where nothing can run.
    """
    for variant in variants:
        variant.check_work(work)
    if work is not None and len(tiles) != 1:
        raise UsageError(f"work {work} is another one for each tile, so no tile is the best for it; name a tile")
    candidates: list[Choice] = []
    refused: list[ShapeError] = []
    for name, tile in _kernels_and_tiles(problem, device, kernel, tiles):
        of_tile = list(_candidates(problem, device, name, tile, variants, raster, most_ctas, work, refused))
        if all(one.exact for one in of_tile) or not any(one.tile == tile for one in candidates):
            candidates += of_tile
    found: list[Choice] = []
    units = 0.0
    for one in _promising(candidates):
        units += one.effort
        if found and units > MOST_UNITS:
            break
        try:
            trace = run(
                problem,
                one.tile,
                one.variant,
                device,
                reason="it predicts",
                most_ctas=most_ctas,
                seed=seed,
                work=work,
                kernel=one.kernel,
            )
        except ShapeError as error:  # too many units, say
            refused.append(error)
            continue
        found.append(replace(one, predicted_ns=span_ns(trace)))
    if not found:
        if refused:
            raise refused[-1]
        raise UsageError(f"no schedule is left to choose from for {problem}; name one with --schedule")
    found.sort(key=lambda one: (_with_margin(one), *_order(one)))
    if not found[0].is_cut:
        tied = [one for one in found if not one.is_cut and one.predicted_ns <= TIE * found[0].predicted_ns]
        best = max(tied, key=lambda one: one.full)  # of equals the first
        found.remove(best)
        found.insert(0, best)
    return Ranking(problem, tuple(found), len(candidates))


def _with_margin(one: Choice) -> float:
    """The time to compare."""
    return max(CUT_MARGIN * one.predicted_ns, one.predicted_ns + CUT_NS) if one.is_cut else one.predicted_ns


def _promising(candidates: Sequence[Choice]) -> list[Choice]:
    """Those worth a simulation: of each schedule the tile with the least sum, then of each the next one."""
    least = min((one.summed_ns for one in candidates), default=0.0)
    nth: dict[str, int] = defaultdict(int)
    chosen = []
    for one in sorted(candidates, key=lambda one: (one.summed_ns, *_order(one))):
        schedule = one.variant.schedule
        if one.summed_ns <= _HOPELESS * least and nth[schedule] < OF_EACH:
            chosen.append((nth[schedule], one))
            nth[schedule] += 1
    return [one for _, one in sorted(chosen, key=lambda ranked: ranked[0])]


def _order(one: Choice) -> tuple[int, str]:
    return _SIMPLEST_FIRST.index(one.variant.schedule), str(one)


def _kernels_and_tiles(
    problem: Problem, device: Device, kernel: str | None, tiles: Sequence[Tile]
) -> list[tuple[str, Tile]]:
    """A tile may be several kernels'; one that was asked for is the best kernel's that has it.

    What no calibration shows, since it runs in layout tn, is left out: tiles that read B in parts of lines.
    """
    if tiles:
        return [(kernel_for(problem, device, kernel, tile).name, tile) for tile in tiles]
    best = kernel_for(problem, device, kernel)
    every = [one for one in KERNELS if problem.dtype in one.dtypes and one.runs_on(device)]
    able = every if kernel is None else [best]
    fitting = [(one, tile) for one in able for tile in fitting_tiles(one, problem, device)]
    return [(one.name, tile) for one, tile in fitting if reads_whole_lines(one, tile, problem)]


def _candidates(
    problem: Problem,
    device: Device,
    kernel: str,
    tile: Tile,
    variants: Sequence[Variant],
    raster: Raster,
    most_ctas: int | None,
    work: Work | None,
    refused: list[ShapeError],
) -> Iterator[Choice]:
    """The schedules of one tile, each with the sum of its costs; `refused` gets why a number does not go with it."""
    need = facts(problem, tile, device, most_ctas, kernel)
    resources = Resources(need.threads, need.registers, need.shared_bytes)
    ctas = require_fit(f"tile {tile}", resources, device).count
    costs = lookup(kernel, tile, problem.dtype, device, ctas, rows=installed())
    tiles, k_iters = tile.num_tiles(problem), tile.k_iters(problem)
    if tiles > MAX_SIMULATED_UNITS and problem.operand_bytes <= device.memory_bytes:
        refused.append(ShapeError(f"{problem} cut into {tile} gives {tiles} tiles, too many to simulate; name a tile"))
        return
    mean_k = k_iters if work is None else max(1, round(float(work.k_iters_of(problem, tile).mean())))
    sums = _Sums(costs, device.sms, ctas, tiles, mean_k)
    whole, in_l2 = takes_turns(kernel), problem.read_bytes <= device.l2_bytes
    some = _schedules(costs, tiles, k_iters, device.sms * ctas, raster, work, whole, in_l2)
    for variant in variants or [one for one in some if one.schedule in named(kernel).schedules]:
        try:
            if variant.parts is not None:
                check_parts(variant.schedule, variant.parts, tiles, k_iters, device.sms * ctas)
        except ShapeError as error:
            refused.append(ShapeError(f"with tile {tile} {error}"))
            continue
        summed_ns = sums.cycles(variant) / costs.clock_mhz * 1e3
        summed_ns *= stretch(costs, tiles * mean_k, summed_ns, device.sms)
        quick = ctas == 1 and variant.schedule not in SPLIT_SCHEDULES
        units = tiles * (variant.parts or 1) if variant.schedule == "splitk" else tiles
        effort, full = units / _QUICK if quick else units, wave_efficiency(tiles, device.sms * ctas)
        yield Choice(kernel, tile, variant, summed_ns, summed_ns, costs.exact, effort, full)


def _schedules(
    costs: Calibration,
    tiles: int,
    k_iters: int,
    places: int,
    raster: Raster,
    work: Work | None,
    whole: bool,
    in_l2: bool,
) -> Iterator[Variant]:
    """Schedules that differ from one another here, with the numbers that the grid-size model likes best.

    `whole`: only those that keep tiles whole.  `in_l2`: A and B fit the L2 together; where
    they do not, Stream-K is left out.  Its CTAs are at several k at once, and what they read is
    then read from memory, which no calibration shows: its launches fit the L2 (H200, 2026-11,
    gemm_sm90: 2816 x 2816 x 8192 took 211 us in place of 168, 4352 x 4352 x 8192 in 128x128 tiles
    851 in place of 416).  Also where its shares are equal parts of tiles: splitk has the same
    units, those that run side by side at the same k (512 x 512 x 8192: 13.1 us, streamk 14.6).
    """
    yield Variant("persistent", raster=raster)
    if tiles > places:  # else it is the same
        yield Variant("fixed", raster=raster)
    if work is not None:
        yield Variant("dynamic", raster=raster)
        yield Variant("persistent", raster=raster, order="lpt")
        yield Variant("dynamic", raster=raster, order="lpt")
        return
    if whole:
        return
    model, left = costs.grid_model, tiles % places
    numbers = range(2, min(k_iters, MAX_SPLITS) + 1)
    by_time = sorted(numbers, key=lambda number: (model.splits_time(tiles, k_iters, number, places), number))
    for number in by_time[:_SPLITS]:
        yield Variant("splitk", number, raster)
    grid = model.best_grid(tiles, k_iters, places)
    if in_l2 and not in_step(tiles * k_iters, k_iters, grid):
        yield Variant("streamk", grid, raster)
    if left == 0:
        return
    if in_l2 and tiles > places:  # else it is streamk
        yield Variant("hybrid", None, raster)
    parts = model.best_tail_parts(left, k_iters, places, tiles - left)
    if parts > 1:
        yield Variant("tailsplit", parts, raster)


@dataclass(frozen=True)
class _Sums:
    """How long schedules take by the sums of their units' costs, in cycles; no CTA waits for another."""

    costs: Calibration
    sms: int
    ctas: int
    tiles: int
    k_iters: int

    def cycles(self, variant: Variant) -> float:
        """From the first CTA's begin to the last one's end, about."""
        places, costs, model = self.sms * self.ctas, self.costs, self.costs.grid_model
        left = self.tiles % places
        around = costs.prologue_cycles + costs.exit_cycles + costs.fill_cycles
        if variant.schedule not in SPLIT_SCHEDULES:
            between = {"fixed": around + costs.turnaround_cycles, "persistent": costs.gap_cycles}
            return around + self._waves(self.tiles, self.k_iters, between.get(variant.schedule, costs.queue_gap_cycles))
        if variant.schedule == "splitk":
            splits = variant.parts or model.best_splits(self.tiles, self.k_iters, places)
            whole = self._waves(self.tiles * splits, -(-self.k_iters // splits), around + costs.turnaround_cycles)
            return around + whole + costs.partial_cycles + costs.add_cycles * (splits - 1)
        if variant.schedule == "streamk":
            grid = variant.parts or model.best_grid(self.tiles, self.k_iters, places)
            return around + self._shared(self.tiles, grid)
        if variant.schedule == "hybrid":
            shared, grid = hybrid_shares(self.tiles, self.k_iters, places, variant.parts or 2, model)
            rest = self._waves(self.tiles - shared, self.k_iters, costs.gap_cycles)
            return around + rest + (self._shared(shared, grid) if shared else 0.0)
        rest = self._waves(self.tiles - left, self.k_iters, costs.gap_cycles)
        if left == 0:
            return around + rest
        parts = variant.parts or model.best_tail_parts(left, self.k_iters, places, self.tiles - left)
        return around + rest + model.tail_time(left, self.k_iters, parts, places, self.tiles - left)

    def _shared(self, tiles: int, grid: int) -> float:
        """Tiles whose k_iters so many CTAs share; each CTA pays for every tile it comes to, not for one alone."""
        model = self.costs.grid_model
        come_to = max(1, -(-tiles // grid))
        return model.grid_time(tiles, self.k_iters, grid) + (come_to - 1) * (model.a + self.costs.gap_cycles)

    def _waves(self, units: int, k_iters: int, between: float) -> float:
        """Units of equal length in waves, the last of which may leave SMs less full."""
        waves, rest = divmod(units, self.sms * self.ctas)
        last = self._unit(-(-rest // self.sms), k_iters) if rest else 0.0
        return waves * self._unit(self.ctas, k_iters) + last + between * max(0, waves + (rest > 0) - 1)

    def _unit(self, resident: int, k_iters: int) -> float:
        """A unit among so many on its SM (sharing.py)."""
        full = self.costs.ctas_per_sm
        loop = k_iters * self.costs.cycles_per_k_iter + self.costs.fixed_cycles
        return loop * (1 - self.costs.sharing * (1 - resident / full)) + self.costs.epilogue_cycles * resident / full
