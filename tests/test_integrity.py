from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.synthetic import Span, changed, clock_origin, spans_from, tiled, trace_from
from wavescope.errors import IntegrityError
from wavescope.integrity import check
from wavescope.problem import Problem, Tile
from wavescope.schedule import Raster, Schedule, decompose
from wavescope.trace import NULL, Kind, Order, Spans, Trace
from wavescope.work import Work

PROBLEM, TILE = Problem(32, 48, 64), Tile(16, 16, 16)  # 2 x 3 tiles of 4 k_iters
SMS = 2


def run(schedule: Schedule, order: Callable[[int], int] | None = None) -> list[Span]:
    """The spans of a schedule on SMS SMs, one CTA on each, 100 ns a unit; `order` says who runs a queue's unit."""
    rows: list[Span] = []
    free = [0] * SMS
    for unit in range(schedule.num_units):
        owner = order(unit) if order else int(schedule.cta[unit])
        sm = owner % SMS
        begin = free[sm]
        free[sm] += 100
        work = (unit, *(int(getattr(schedule, name)[unit]) for name in ("tile_m", "tile_n", "k_begin", "k_end")))
        rows.append(Span(Kind.MAC, owner, sm, begin + 10, begin + 80, *work))
        rows.append(Span(Kind.EPILOGUE, owner, sm, begin + 80, begin + 90, *work))
    for cta in sorted({row.cta for row in rows}):
        mine = [row for row in rows if row.cta == cta]
        first, last = min(row.begin for row in mine), max(row.end for row in mine)
        rows.append(Span(Kind.CTA, cta, mine[0].sm, first - 10, last + 10))
    return rows


def plan(name: str) -> Schedule:
    return decompose(name, PROBLEM, TILE, SMS, Raster("row"))


def trace_of(rows: list[Span] | Spans, **launch: Any) -> Trace:
    return trace_from(rows, sms=SMS, **{"problem": PROBLEM, "tile": TILE, "schedule": "fixed", **launch})


# Spans of the fixed schedule: two for each unit in order, then the CTAs' lives.
FIXED = spans_from(run(plan("fixed")))
CTA_0 = 12


@pytest.mark.parametrize("name", ["fixed", "persistent"])
def test_a_launch_that_ran_its_schedule_passes(name: str) -> None:
    check(trace_of(run(plan(name)), schedule=name), plan(name))


def spare_ctas() -> tuple[Schedule, list[Span]]:
    """Four tiles on three SMs: one in two parts on CTAs 0 and 1, then a whole one each; CTA 2 adds the parts."""
    schedule = decompose("tailsplit", Problem(32, 32, 64), TILE, 3, Raster("row"), parts=2)
    rows = [Span(Kind.CTA, cta, cta, 0, 200) for cta in range(3)]
    for at in range(schedule.num_units):
        cta, is_part = int(schedule.cta[at]), bool(schedule.peers[at] > 1)
        work = (at, *(int(getattr(schedule, name)[at]) for name in ("tile_m", "tile_n", "k_begin", "k_end")))
        begin = 0 if is_part or cta == 2 else 70
        rows.append(Span(Kind.MAC, cta, cta, begin, begin + 50, *work))
        rows.append(Span(Kind.FIXUP if is_part else Kind.EPILOGUE, cta, cta, begin + 50, begin + 60, *work))
    return schedule, [*rows, Span(Kind.WAIT, 2, 2, 60, 65), Span(Kind.FIXUP, 2, 2, 65, 105)]


def test_ctas_that_add_what_is_no_units_pass() -> None:
    schedule, rows = spare_ctas()
    assert schedule.reducers == 1
    launch = {"schedule": "tailsplit", "problem": schedule.problem, "tile": TILE, "parts": 2, "reducers": 1}
    check(trace_from(rows, sms=3, **launch), schedule)
    late = replace(rows[-1], end=201)
    with pytest.raises(IntegrityError, match="1 of 15 spans reach outside their CTA's lifetime"):
        check(trace_from([*rows[:-1], late], sms=3, **launch), schedule)
    with pytest.raises(IntegrityError, match="lie on another SM than their CTA"):
        check(trace_from([*rows[:-1], replace(rows[-1], sm=1)], sms=3, **launch), schedule)
    # of a unit, they would make it one of two CTAs
    owned = replace(rows[-1], unit=0, tile_m=0, tile_n=0, k_begin=0, k_end=2)
    with pytest.raises(IntegrityError, match="unit 0 has spans with cta 0 and 2"):
        check(trace_from([*rows[:-1], owned], sms=3, **launch), schedule)


def test_a_queue_passes_by_coverage_whoever_ran_a_unit() -> None:
    check(trace_of(run(plan("dynamic"), order=lambda unit: unit % 3 % 2), schedule="dynamic"), plan("dynamic"))


def test_a_queue_has_to_do_the_schedules_units() -> None:
    rows = run(plan("dynamic"), order=lambda unit: unit % 2)
    with pytest.raises(IntegrityError, match="unit 1 ran with tile_m 0, schedule dynamic says 1"):
        check(trace_of(rows, schedule="dynamic"), decompose("dynamic", PROBLEM, TILE, SMS, Raster("column")))


WORK, K_ITERS = Work("ragged", 348), [[2, 1, 1], [3, 4, 1]]


def irregular(name: str, order: Order = "raster") -> Schedule:
    return decompose(name, PROBLEM, TILE, SMS, Raster("row"), work=WORK, order=order)


@pytest.mark.parametrize("order", ["raster", "lpt"])
@pytest.mark.parametrize("name", ["fixed", "persistent", "dynamic"])
def test_irregular_work_passes_where_each_tile_took_its_own_k_iters(name: str, order: Order) -> None:
    assert WORK.k_iters_of(PROBLEM, TILE).tolist() == K_ITERS
    schedule = irregular(name, order)
    rows = run(schedule, order=(lambda unit: unit % 3 % 2) if name == "dynamic" else None)
    check(trace_of(rows, schedule=name, work=str(WORK), order=order), schedule)
    with pytest.raises(IntegrityError, match=r"k_iters \[[0-9], 4\) missing"):
        check(trace_of(rows, schedule=name))  # all of k was to be summed


@pytest.mark.parametrize(
    ("k_end", "message"),
    [
        (3, "tile (1, 1): k_iters [3, 4) missing (1 such places in all)"),
        (5, "k_iters [0, 5), outside 2 x 3 tiles of 4 k_iters (this one, by work ragged:348) (1 such units)"),
    ],
)
def test_a_tile_of_a_wrong_k_is_caught(k_end: int, message: str) -> None:
    spans = spans_from(run(irregular("fixed")))
    for at in np.flatnonzero(spans.unit == 4):
        spans = changed(spans, int(at), k_end=k_end)
    with pytest.raises(IntegrityError) as raised:
        check(trace_of(spans, work=str(WORK)))
    assert message in str(raised.value)


def test_two_tiles_that_changed_their_k_are_caught() -> None:
    # tiles (0, 0) and (1, 0) take each other's 2 and 3 k_iters: the sum is right
    spans = spans_from(run(irregular("fixed")))
    for at in np.flatnonzero(np.isin(spans.unit, [0, 3])):
        spans = changed(spans, int(at), k_end=5 - int(spans.k_end[at]))
    with pytest.raises(IntegrityError, match=r"unit 0 computes tile \(0, 0\), k_iters \[0, 3\), outside"):
        check(trace_of(spans, work=str(WORK)))


def test_longest_first_has_to_be_done() -> None:
    rows = run(irregular("dynamic"), order=lambda unit: unit % 2)
    with pytest.raises(IntegrityError, match="unit 0 ran with tile_m 0, schedule dynamic says 1"):
        check(trace_of(rows, schedule="dynamic", work=str(WORK)), irregular("dynamic", "lpt"))


def test_a_large_launch_passes() -> None:
    spans, problem, tile = tiled(5000, places=7, jitter_ns=90)
    check(trace_from(spans, sms=7, problem=problem, tile=tile, schedule="fixed"))


def test_foreign_blocks_alone_pass_and_ids_may_exceed_the_sm_count() -> None:
    rows = [Span(Kind.CTA, 0, 65535, 0, 10), Span(Kind.CTA, 1, 131, 0, 10)]
    check(trace_of(rows, schedule=None, problem=None, tile=None))


@pytest.mark.parametrize(
    ("index", "values", "message"),
    [
        (0, {"kind": 9}, "1 of 18 spans are of no known kind (first: cta 0, sm 0, kind 9); record the trace again"),
        (3, {"begin_ns": NULL}, "have a begin or end before T0, or none (first: cta 1, sm 1, begin_ns -1, end_ns 90)"),
        (3, {"end_ns": NULL}, "have a begin or end before T0, or none (first: cta 1, sm 1, begin_ns 80, end_ns -1)"),
        (2, {"end_ns": 5}, "end before they begin (first: cta 1, sm 1, begin_ns 10, end_ns 5)"),
        (2, {"end_clock": clock_origin(1)}, "end before they begin by their clock (first: cta 1, sm 1, begin_clock"),
        (0, {"cta": NULL}, "belong to no CTA"),
        (0, {"sm": 65536}, "have an SM id outside 0..65535 (first: cta 0, sm 65536)"),
        (0, {"sm": NULL}, "have an SM id outside 0..65535"),
        (0, {"sm": 1}, "lie on another SM than their CTA (first: cta 0, sm 1, kind 5)"),
        (0, {"cta": 77}, "belong to a CTA whose lifetime was not recorded (first: cta 77, sm 0, kind 5)"),
        (CTA_0 + 1, {"cta": 0, "sm": 0}, "2 of 18 spans are lifetimes of a CTA that has more than one (first: cta 0"),
        (
            0,
            {"end_ns": 101},
            "reach outside their CTA's lifetime (first: cta 0, sm 0, kind 5, begin_ns 10, end_ns 101)",
        ),
        (
            4,
            {"begin_ns": 99},
            "reach outside their CTA's lifetime (first: cta 2, sm 0, kind 5, begin_ns 99, end_ns 180)",
        ),
        (CTA_0, {"end_ns": 102}, "2 CTAs at once on SM 0, but at most 1 of this kernel fit"),
        (
            CTA_0,
            {"launch_id": 4},
            "belong to a launch that the trace does not describe (first: cta 0, sm 0, launch_id 4)",
        ),
        (1, {"unit": 3}, "unit 3 has spans with cta 3 and 0 (1 spans in all)"),
        (1, {"k_end": 2}, "unit 0 has spans with k_end 4 and 2"),
    ],
)
def test_spans_that_cannot_be_are_named(index: int, values: dict[str, int], message: str) -> None:
    with pytest.raises(IntegrityError) as raised:
        check(trace_of(changed(FIXED, index, **values)))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_more_sms_than_the_device_has() -> None:
    rows = [Span(Kind.CTA, cta, 10 * cta, 0, 10) for cta in range(3)]
    with pytest.raises(IntegrityError, match="spans name 3 SMs, but the device has 2"):
        check(trace_of(rows, schedule=None))


def test_ctas_side_by_side_up_to_the_limit_and_the_timers_step() -> None:
    # Three CTAs, each beginning 5 before the last one ends: two at once, or one if the timer's step is 5.
    rows = [Span(Kind.CTA, cta, 0, 95 * cta, 95 * cta + 100) for cta in range(3)]
    check(trace_of(rows, schedule=None, ctas_per_sm=2))
    check(replace(trace_of(rows, schedule=None), timer_step_ns=5))
    with pytest.raises(IntegrityError, match="2 CTAs at once on SM 0, but at most 1"):
        check(replace(trace_of(rows, schedule=None), timer_step_ns=4))


def test_one_lane_computes_one_thing_at_a_time_and_two_lanes_two() -> None:
    rows = [Span(Kind.CTA, 0, 0, 0, 100)]
    works = [(unit, unit // 3, unit % 3, 0, 4) for unit in range(6)]
    rows += [Span(Kind.MAC, 0, 0, 10 * unit, 10 * unit + 15, *works[unit]) for unit in range(6)]
    with pytest.raises(IntegrityError, match="5 of 7 spans of kind mac begin before the one before them in their lane"):
        check(trace_of(rows))
    check(trace_of([replace(row, lane=row.unit % 2) for row in rows]))


def units_changed(index: int, **values: int) -> Spans:
    """FIXED with all spans of one unit changed alike."""
    spans = FIXED
    for at in np.flatnonzero(spans.unit == index):
        spans = changed(spans, int(at), **values)
    return spans


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (FIXED.select(FIXED.cta != 4), "tile (1, 1): k_iters [0, 4) missing (1 such places in all)"),
        (units_changed(4, k_end=3), "tile (1, 1): k_iters [3, 4) missing (1 such places in all)"),
        (units_changed(4, k_begin=1), "tile (1, 1): k_iters [0, 1) missing"),
        (units_changed(5, tile_n=1, k_begin=2), "tile (1, 2): k_iters [0, 4) missing"),
        (units_changed(4, tile_m=2), "unit 4 computes tile (2, 1), k_iters [0, 4), outside 2 x 3 tiles of 4 k_iters"),
        (units_changed(4, k_end=5), "unit 4 computes tile (1, 1), k_iters [0, 5), outside"),
        (units_changed(4, k_end=0), "unit 4 computes tile (1, 1), k_iters [0, 0), outside"),
        (FIXED.select(FIXED.kind == Kind.CTA), "launch 0 recorded no units of work"),
        (FIXED.select((FIXED.unit != 4) | (FIXED.kind != Kind.MAC)), "unit 4 has no span of kind mac (1 such units)"),
    ],
)
def test_each_k_iter_is_computed_exactly_once(spans: Spans, message: str) -> None:
    with pytest.raises(IntegrityError) as raised:
        check(trace_of(spans))
    assert message in str(raised.value)


def test_a_k_iter_computed_twice_and_a_hole_between_parts() -> None:
    tile = {"tile_m": 0, "tile_n": 0}
    one = Problem(16, 16, 64)

    def parts(*ranges: tuple[int, int]) -> Trace:
        rows = []
        for unit, (begin, end) in enumerate(ranges):
            at = 100 * unit
            rows.append(Span(Kind.CTA, unit, 0, at, at + 100))
            rows.append(Span(Kind.MAC, unit, 0, at, at + 90, unit, k_begin=begin, k_end=end, **tile))
        return trace_of(rows, problem=one)

    check(parts((2, 4), (0, 2)))
    with pytest.raises(IntegrityError, match=r"tile \(0, 0\): k_iters \[1, 2\) computed twice"):
        check(parts((0, 2), (1, 4)))
    with pytest.raises(IntegrityError, match=r"tile \(0, 0\): k_iters \[1, 3\) missing"):
        check(parts((0, 1), (3, 4)))


def test_a_launch_that_ran_something_else_than_its_schedule() -> None:
    with pytest.raises(IntegrityError, match="unit 1 ran with tile_m 0, schedule fixed says 1"):
        check(trace_of(FIXED), decompose("fixed", PROBLEM, TILE, SMS, Raster("column")))
    with pytest.raises(IntegrityError, match="unit 2 ran with cta 2, schedule persistent says 0"):
        check(trace_of(FIXED), plan("persistent"))
    with pytest.raises(IntegrityError, match="6 units ran, schedule fixed has 3"):
        check(trace_of(FIXED), decompose("fixed", PROBLEM, Tile(32, 16, 16), SMS))
    foreign = trace_of([Span(Kind.CTA, 0, 0, 0, 10)], schedule=None)
    with pytest.raises(IntegrityError, match="recorded no units of work"):
        check(foreign, plan("fixed"))


def test_more_tiles_than_units_could_cover_are_counted_not_listed() -> None:
    with pytest.raises(IntegrityError) as raised:
        check(trace_of(FIXED, problem=Problem(2**30, 2**30, 64), tile=Tile(1, 1, 16)))
    assert "6 units were recorded of a problem of 1073741824 x 1073741824 = 1152921504606846976 tiles" in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("index", "values", "message"),
    [
        # CTA 0 lives from 0 to 100 ns at 1 cycle a ns; 256 cycles of slack, and at most 125 cycles in 100 ns.
        (0, {"end_clock": clock_origin(0) + 357}, "1 of 18 spans reach outside their CTA's lifetime by their clock"),
        (CTA_0, {"end_clock": clock_origin(0) + 126}, "of kind cta count more cycles than 1.25 x 1000 MHz makes"),
        (1, {"begin_ns": 78}, "1 of 18 spans of kind mac and epilogue overlap with the one before them"),
    ],
)
def test_clocks_and_epilogues_that_cannot_be(index: int, values: dict[str, int], message: str) -> None:
    name, value = next(iter(values.items()))
    check(trace_of(changed(FIXED, index, **{name: value + (1 if name == "begin_ns" else -1)})))
    with pytest.raises(IntegrityError) as raised:
        check(trace_of(changed(FIXED, index, **values)))
    assert message in str(raised.value)


def test_no_more_ctas_at_once_than_places_and_all_of_the_grid() -> None:
    with pytest.raises(IntegrityError, match="2 CTAs at once on the device, but it has places for 1"):
        check(trace_of(FIXED, places=1))
    with pytest.raises(IntegrityError, match="6 CTAs were recorded of a grid of 7"):
        check(trace_of(FIXED, grid=7))
    check(trace_of([Span(Kind.CTA, 0, 0, 0, 10)], schedule=None, grid=7))


def test_a_launch_without_spans() -> None:
    trace = trace_of(FIXED)
    two = replace(trace, launches=(*trace.launches, replace(trace.launches[0], launch_id=1)))
    with pytest.raises(IntegrityError, match=r"launch 1 \(made_up\) has no spans"):
        check(two)
