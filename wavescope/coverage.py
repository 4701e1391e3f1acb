"""Was every k_iter of every tile computed once, and by whom the schedule says?"""

from __future__ import annotations

import numpy as np

from wavescope.errors import IntegrityError
from wavescope.problem import Problem, Tile
from wavescope.schedule import Schedule
from wavescope.states import dense_index
from wavescope.trace import NULL, Kind, Launch, Spans
from wavescope.units import Units, in_unit, units_of
from wavescope.work import Work, work_of

_SAME_IN_UNIT = ("cta", "tile_m", "tile_n", "k_begin", "k_end")
_SPARE_TILES = 2**16  # up to so many, and four times the units, missing tiles are named one by one


def check_units(spans: Spans, launch: Launch, schedule: Schedule | None) -> None:
    """Pass the units of one launch if they agree in themselves, cover the problem, and follow the schedule.

    A launch of CTAs alone is passed where its kernel is not wavescope's own (no schedule
    name), for then nothing says what a CTA computed.

    Raises: IntegrityError naming the first unit or tile that is wrong.
    """
    units = units_of(spans)
    if units.of_ctas:
        if schedule is not None or launch.schedule is not None:
            raise IntegrityError(f"launch {launch.launch_id} recorded no units of work; run it with the probe on")
        return
    _check_agreement(spans, units)
    if launch.schedule is not None:
        _check_products(spans, units)
    if launch.problem is not None and launch.tile is not None:
        _check_coverage(units, launch.problem, launch.tile, work_of(launch))
    if schedule is not None:
        _check_schedule(units, schedule)


def _check_agreement(spans: Spans, units: Units) -> None:
    """The spans of a unit name the same CTA, tile and k-range, or none."""
    mine = np.flatnonzero(in_unit(spans))
    unit = spans.unit[mine]
    index = dense_index(unit)[1]
    for name in _SAME_IN_UNIT:
        value, expected = getattr(spans, name)[mine], getattr(units, name)[index]
        wrong = (value != NULL) & (value != expected)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise IntegrityError(
                f"unit {int(unit[at])} has spans with {name} {int(expected[at])} and {int(value[at])} "
                f"({np.count_nonzero(wrong)} spans in all); a unit is one piece of work, record the trace again"
            )


def _check_products(spans: Spans, units: Units) -> None:
    """Each unit of wavescope's own kernels has the span in which it was multiplied."""
    lacks = ~np.isin(units.unit, spans.unit[spans.kind == Kind.MAC])
    if lacks.any():
        raise IntegrityError(
            f"unit {int(units.unit[int(np.argmax(lacks))])} has no span of kind mac ({np.count_nonzero(lacks)} such "
            "units), so nothing was multiplied; records were lost, record the trace again"
        )


def _check_coverage(units: Units, problem: Problem, shape: Tile, work: Work | None) -> None:
    """Each tile's k-ranges, put in order, run from 0 to its k_iters without gap or overlap."""
    tiles_m, tiles_n, most = shape.tiles_m(problem), shape.tiles_n(problem), shape.k_iters(problem)
    num_tiles = tiles_m * tiles_n  # Python integers: no problem is too large to count
    if num_tiles > _SPARE_TILES + 4 * len(units):
        raise IntegrityError(
            f"{len(units)} units were recorded of a problem of {tiles_m} x {tiles_n} = {num_tiles} tiles; "
            "the problem or the tile is not the one that ran, or records were lost"
        )
    outside = (units.tile_m < 0) | (units.tile_m >= tiles_m) | (units.tile_n < 0) | (units.tile_n >= tiles_n)
    tile = units.tile_m * tiles_n + units.tile_n
    k_iters = np.full(num_tiles, most) if work is None else work.k_iters_of(problem, shape).ravel()
    of_unit = k_iters[np.where(outside, 0, tile)]
    outside |= (units.k_begin < 0) | (units.k_end > of_unit) | (units.k_begin >= units.k_end)
    if outside.any():
        at = int(np.argmax(outside))
        raise IntegrityError(
            f"unit {int(units.unit[at])} computes tile ({int(units.tile_m[at])}, {int(units.tile_n[at])}), k_iters "
            f"[{int(units.k_begin[at])}, {int(units.k_end[at])}), outside {tiles_m} x {tiles_n} tiles of "
            f"{int(of_unit[at])} k_iters{f' (this one, by work {work})' if work else ''} "
            f"({np.count_nonzero(outside)} such units); the kernel or its arguments are wrong"
        )
    order = np.argsort(tile * (most + 1) + units.k_begin)
    tile, begin, end = tile[order], units.k_begin[order], units.k_end[order]
    covered = np.bincount(tile, minlength=num_tiles)
    if not covered.all():
        at = int(np.argmin(covered))
        _fail(at, tiles_n, 0, int(k_iters[at]), "missing", int(np.count_nonzero(covered == 0)))
    starts = np.append(True, tile[1:] != tile[:-1])
    ends = np.append(starts[1:], True)
    reached = np.where(starts, 0, np.append(0, end[:-1]))  # the tile is complete up to here
    twice = begin < reached
    if twice.any():
        at = int(np.argmax(twice))
        _fail(
            int(tile[at]),
            tiles_n,
            int(begin[at]),
            min(int(reached[at]), int(end[at])),
            "computed twice",
            int(twice.sum()),
        )
    gap = begin > reached
    if gap.any():
        at = int(np.argmax(gap))
        _fail(int(tile[at]), tiles_n, int(reached[at]), int(begin[at]), "missing", int(gap.sum()))
    short = ends & (end < k_iters[tile])
    if short.any():
        at = int(np.argmax(short))
        _fail(int(tile[at]), tiles_n, int(end[at]), int(k_iters[tile[at]]), "missing", int(short.sum()))


def _fail(tile: int, tiles_n: int, k_begin: int, k_end: int, what: str, count: int) -> None:
    raise IntegrityError(
        f"tile ({tile // tiles_n}, {tile % tiles_n}): k_iters [{k_begin}, {k_end}) {what} "
        f"({count} such places in all); the kernel's schedule is wrong, or records were lost"
    )


def _check_schedule(units: Units, schedule: Schedule) -> None:
    """Each unit is the schedule's; who runs which a queue decides at run time."""
    if len(units) != schedule.num_units:
        raise IntegrityError(
            f"{len(units)} units ran, schedule {schedule.name} has {schedule.num_units}; "
            "the kernel's schedule is wrong, or records were lost"
        )
    for name in ("unit", *_SAME_IN_UNIT):
        if name == "cta" and schedule.dispatch == "queue":
            continue
        expected = getattr(schedule, name)
        wrong = getattr(units, name) != expected
        if wrong.any():
            at = int(np.argmax(wrong))
            raise IntegrityError(
                f"unit {int(units.unit[at])} ran with {name} {int(getattr(units, name)[at])}, schedule "
                f"{schedule.name} says {int(expected[at])} ({np.count_nonzero(wrong)} units differ); "
                "schedule.py and schedule.cuh disagree, or records are wrong"
            )
