"""Partial sums added by other warps of a CTA while it multiplies: spans of one CTA that overlap in time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.random_launches import visited
from tests.synthetic import Span, changed, deferred, spans_from, trace_from
from wavescope.accounts import account
from wavescope.analyze import analyze
from wavescope.budget import budget
from wavescope.errors import IntegrityError
from wavescope.integrity import check
from wavescope.states import sm_states
from wavescope.stats import Estimate
from wavescope.trace import Kind, Spans, Trace
from wavescope.units import units_of
from wavescope.wave_report import STATES, WaveReport

ROWS, PROBLEM, TILE = deferred()


def trace_of(rows: list[Span] | Spans, **launch: object) -> Trace:
    described = {"schedule": "tailsplit", "parts": 2, **launch}
    return trace_from(rows, sms=2, problem=PROBLEM, tile=TILE, **described)


def report(rows: list[Span]) -> WaveReport:
    trace = trace_of(rows)
    check(trace)
    return analyze(trace)


def at(kind: Kind, unit: int, nth: int = 0) -> int:
    return [row for row, span in enumerate(ROWS) if (span.kind, span.unit) == (kind, unit)][nth]


def test_hand_worked_budget() -> None:
    # SM 0: all of the share lies under unit 2's products.  SM 1: the wait lies under products to 672 and under the
    # epilogue to 700; then 200 of fixup, 30 of them over the epilogue.  Columns as in STATES.
    found = report(ROWS).budget
    assert found.per_sm.tolist() == [
        [600, 40, 50, 0, 10 + 5 + 95, 0, 0, 120, 0],
        [600, 50 + 200, 28, 0, 20 + 2 + 20, 0, 0, 0, 0],
    ]
    assert (found.duration_ns, found.residual_ns) == (920, 0)
    assert sum(term.value for term in found.terms.values()) == found.total_ns == 2 * 920


def test_a_share_added_meanwhile_holds_no_place_but_where_it_outlasts_all() -> None:
    # CTA 0: 0..250 the part, 250..800 the tile.  CTA 1: 0..270 the part, 270..730 the tile, then to 920 the share.
    units = units_of(spans_from(ROWS))
    assert units.unit.tolist() == [0, 1, 2, 3]
    assert units.held_ns.tolist() == [250, 270 + 190, 550, 460]
    assert units.lanes == 1
    # a wait that outlasts all is nobody's work
    longer = deferred(waits=((260, 300), (275, 800)), adds=(120, 100))[0]
    assert units_of(spans_from(longer)).held_ns.tolist() == [250, 270 + 120, 550, 460]


@pytest.mark.parametrize("kinds", [{Kind.CTA, Kind.WAIT, Kind.FIXUP}, {Kind.CTA, Kind.MAC, Kind.EPILOGUE}])
def test_spans_of_some_kinds_alone_share_out_whole_lives(kinds: set[Kind]) -> None:
    held = units_of(spans_from([row for row in ROWS if row.kind in kinds])).held_ns
    waited = 40 + 425 if Kind.WAIT in kinds else 0
    assert held.sum() == 800 + 920 - waited


def test_the_lane_of_those_who_add_is_no_team() -> None:
    share = {at(kind, unit, nth) for unit in (0, 1) for kind, nth in ((Kind.WAIT, 0), (Kind.FIXUP, 1))}
    rows = [replace(span, lane=1) if row in share else span for row, span in enumerate(ROWS)]
    units, plain = units_of(spans_from(rows)), units_of(spans_from(ROWS))
    assert (units.lanes, units.held_ns.tolist()) == (1, plain.held_ns.tolist())
    assert report(rows).waves == report(ROWS).waves
    with pytest.raises(IntegrityError, match="1 of 14 spans of a unit overlap"):
        check(trace_of(changed(spans_from(rows), at(Kind.WAIT, 0), begin_ns=240)))


def test_the_ctas_life_includes_it_and_units_of_unequal_size_have_no_waves() -> None:
    found = report(ROWS)
    assert (found.waves.num_units, found.waves.waves, found.waves.tail_onset_ns) == (4, (), 800)
    assert found.waves.reason is not None
    assert "units differ in size under schedule tailsplit (2 to 4 k_iters)" in found.waves.reason
    assert sum(found.waves.busy_shares) / len(found.waves.busy_shares) == pytest.approx((920 + 800) / 1840)
    assert found.active_cycles_ratio == pytest.approx((920 + 800) / 1840)


def test_the_waterfall_counts_each_moment_once() -> None:
    found = report(ROWS)
    assert found.waterfall is not None
    factors = {factor.name: factor.value for factor in found.waterfall.factors}
    assert found.mac_cycles == 1200
    assert factors["fixup"] == pytest.approx(1200 / 1490)
    assert factors["epilogue"] == pytest.approx(1490 / 1568)
    assert factors["wait"] == 1
    product = found.waterfall.peak_tflops * math.prod(factors.values())
    assert product == pytest.approx(found.waterfall.achieved_tflops, rel=1e-12)


def test_waits_inside_units_are_split_as_ever() -> None:
    # 16^3 takes 2 cycles of pipe; the room of a part stands on the sums it leaves
    waits = {at(Kind.MAC, 0): 50, at(Kind.MAC, 1): 60, at(Kind.MAC, 2): 8, at(Kind.MAC, 3): 8}
    room = {at(Kind.FIXUP, 0): 3, at(Kind.FIXUP, 1): 4, at(Kind.EPILOGUE, 2): 5, at(Kind.EPILOGUE, 3): 6}
    rows = [replace(span, stall=(waits | room).get(row, -1)) for row, span in enumerate(ROWS)]
    inside = report(rows).inside
    assert inside is not None
    assert (inside.mac_cycles, inside.parts["room"].total) == (1200, 18)
    assert inside.parts["fill"].total == 50 + 60 - 2 * 2 * 2  # later units wait 2 a k_iter
    assert inside.parts["operands"].total == 2 * 2 * 2 + 16
    assert inside.parts["epilogue"].total == 50 + 58
    assert inside.parts["drain"].total == 95 + 20  # from the CTA's last span on, whoever recorded it


def test_an_account_adds_up() -> None:
    before, after = report(deferred(adds=(120, 400))[0]), report(ROWS)
    found = account(before, after, Estimate(1200, 1190, 1210, 9), Estimate(1000, 990, 1010, 9))
    assert sum(part.amount.value for part in found.parts) == pytest.approx(found.total_ns) == pytest.approx(-200)
    assert found.part("fixup").amount.value == pytest.approx(-100)  # 200 of one SM of two
    assert found.part("tail").amount.value == pytest.approx(-100)


@pytest.mark.parametrize(
    ("row", "values", "message"),
    [
        (at(Kind.WAIT, 0), {"begin_ns": 240}, "1 of 14 spans of a unit overlap with the one before them in their unit"),
        (at(Kind.FIXUP, 0, 1), {"begin_ns": 290}, "1 of 14 spans of a unit overlap with the one before them"),
        (at(Kind.EPILOGUE, 2), {"begin_ns": 640}, "of kind mac and epilogue overlap with the one before them in their"),
        (at(Kind.FIXUP, 1, 1), {"end_ns": 921}, "1 of 14 spans reach outside their CTA's lifetime"),
        (at(Kind.FIXUP, 1, 1), {"tile_m": 1}, "unit 1 has spans with tile_m 0 and 1"),
        (at(Kind.MAC, 1), {"k_begin": 3}, "unit 1 has spans with k_begin 3 and 2"),
    ],
)
def test_what_other_warps_cannot_do_meanwhile(row: int, values: dict[str, int], message: str) -> None:
    spans = spans_from(ROWS)
    check(trace_of(spans))
    with pytest.raises(IntegrityError, match=message):
        check(trace_of(changed(spans, row, **values)))


def test_a_tile_is_not_stored_beside_the_next_units_products() -> None:
    # an epilogue of another unit is no other warp's work, unlike a share of partial sums
    rows = [*ROWS]
    rows[at(Kind.FIXUP, 0, 1)] = replace(ROWS[at(Kind.FIXUP, 0, 1)], kind=Kind.EPILOGUE)
    with pytest.raises(IntegrityError, match="1 of 14 spans of kind mac and epilogue overlap with the one before them"):
        check(trace_of(rows))


@given(
    st.integers(255, 900),
    st.integers(0, 500),
    st.integers(275, 900),
    st.integers(0, 500),
    st.tuples(*2 * [st.integers(0, 300)]),
)
def test_every_nanosecond_counts_once_wherever_the_share_is_added(
    begin: int, wait: int, other: int, other_wait: int, adds: tuple[int, int]
) -> None:
    rows, _, _ = deferred(((begin, begin + wait), (other, other + other_wait)), adds)
    trace = trace_of(rows)
    check(trace)
    states, expected = sm_states(trace.spans), visited(rows)
    found = budget(states, 2, 1, 1.0)
    assert found.residual_ns == 0
    names = [name for name in STATES if name != "unfilled"]
    assert [[row[STATES.index(name)] for name in names] for row in found.per_sm.tolist()] == [
        [expected[sm][name] for name in names] for sm in (0, 1)
    ]
    assert found.terms["mac"].value == 1200  # whatever lies beside
    # A CTA's life is shared out whole, but for waits: those the states show, and those at the gaps of other spans.
    held, lives = units_of(trace.spans).held_ns, [span.end for span in rows if span.kind == Kind.CTA]
    for sm, life in enumerate(lives):
        mine = held[[sm, 2 + sm]]
        assert (mine >= 0).all()
        assert mine.sum() == life - expected[sm]["wait"]
