"""Inside the tile: cycles split by hand, factors that multiply to the whole, and the sentence about the limit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.synthetic import Span, trace_from
from wavescope.analyze import analyze
from wavescope.integrity import check
from wavescope.problem import Problem, Tile
from wavescope.trace import NULL, Kind, Trace
from wavescope.units import units_of
from wavescope.wave_report import INSIDE_MAC, INSIDE_PARTS, InsideTile, Waterfall, WaveReport

# 4096 FLOP a clock (sm_90, bf16): a k_iter of 64 x 64 x 64 takes 2 * 64^3 / 4096 = 128 cycles.
TILE = Tile(64, 64, 64)
K = 4 * 64  # 4 k_iters: 512 cycles of pipe a tile
INSIDE = ("issue rate", "operands", "pipe fill", "rest of mac")


def mac(cta: int, begin: int, end: int, unit: int, stall: int = NULL, lane: int = 0) -> Span:
    return Span(Kind.MAC, cta, cta, begin, end, unit, unit, 0, 0, 4, lane, stall)


def epilogue(cta: int, begin: int, end: int, unit: int, room: int = NULL, lane: int = 0) -> Span:
    return Span(Kind.EPILOGUE, cta, cta, begin, end, unit, unit, 0, 0, 4, lane, room)


# Two CTAs of two tiles each, on SMs 0 and 1.  Later units wait 40 and 80 cycles for operands, 60 at the median:
# 15 a k_iter.
ROWS = [
    Span(Kind.CTA, 0, 0, 0, 1500),
    mac(0, 10, 722, 0, 160),  # c 712, idle 200; fill 160 - 60 = 100, operands 60, rest 40
    epilogue(0, 722, 800, 0, 300),
    mac(0, 800, 1352, 2, 40),  # c 552, idle 40; operands 40, rest 0
    epilogue(0, 1352, 1450, 2, 500),
    Span(Kind.CTA, 1, 1, 0, 1600),
    mac(1, 20, 732, 1, 400),  # c 712, idle 200: fill 340 but for 200, nothing left for operands, rest 0
    epilogue(1, 732, 802, 1, 100),
    mac(1, 802, 1334, 3, 80),  # c 532, idle 20; operands 20 of the 80 (60 were hidden), rest 0
    epilogue(1, 1334, 1400, 3, 0),
]


def trace_of(rows: list[Span], sms: int = 2, **launch: object) -> Trace:
    tiles = len({row.unit for row in rows} - {NULL})
    described = {"block": 256, "kernel": "gemm_sm90", "schedule": None, **launch}
    return trace_from(rows, sms=sms, problem=Problem(64 * tiles, 64, K), tile=TILE, **described)


def report(rows: list[Span], **launch: object) -> WaveReport:
    trace = trace_of(rows, **launch)
    check(trace)
    return analyze(trace)


def inside(rows: list[Span], **launch: object) -> InsideTile:
    found = report(rows, **launch).inside
    assert found is not None
    return found


def fall(rows: list[Span], **launch: object) -> Waterfall:
    found = report(rows, **launch).waterfall
    assert found is not None
    return found


def totals(found: InsideTile) -> dict[str, float]:
    return {name: part.total for name, part in found.parts.items()}


def test_hand_worked_split() -> None:
    found = inside(ROWS)
    assert (found.units, found.pipe_per_k_iter, found.fill_known) == (4, 128, True)
    assert totals(found) == {
        "pipe": 4 * 512,
        "operands": 60 + 40 + 0 + 20,
        "fill": 100 + 200,
        "rest": 40,
        "epilogue": 78 + 98 + 70 + 66,
        "drain": 50 + 200,
        "room": 900,
    }
    assert found.mac_cycles == 712 + 552 + 712 + 532
    assert (found.parts["fill"].median, found.parts["drain"].median) == (150, 125)  # a CTA's
    assert (found.parts["operands"].median, found.parts["room"].median) == (30, 200)
    assert found.parts["room"].p95 == pytest.approx(300 + 0.85 * 200)  # of 0, 100, 300, 500
    assert found.per_sm.tolist() == [
        [1024, 100, 100, 40, 176, 50, 800],
        [1024, 20, 200, 0, 136, 200, 100],
    ]


def test_hand_worked_factors() -> None:
    factors = {factor.name: factor.value for factor in fall(ROWS).factors}
    assert tuple(factors)[:6] == ("clock", *INSIDE, "padding")
    assert factors["issue rate"] == 1
    assert factors["operands"] == pytest.approx(2048 / 2168)
    assert factors["pipe fill"] == pytest.approx(2168 / 2468)
    assert factors["rest of mac"] == pytest.approx(2468 / 2508)
    # the epilogue, with no unit beside it, stays the state's
    assert factors["epilogue"] == pytest.approx(2508 / (2508 + 312))


def test_errors_know_the_warpgroups_that_do_not_record_and_how_sure_the_fill_is() -> None:
    errors = {name: part.error for name, part in inside(ROWS, block=3 * 128).parts.items()}
    # Two warpgroups multiply: half a k_iter, 64 cycles, a unit.  Waits beyond the idle cycles: units 1 and 3.
    # Later units' rates 10 and 20 a k_iter, quartiles 12.5 and 17.5: 2.5 on 4 k_iters of two first units.
    sure = 2.5 * math.sqrt(2 * 4**2)
    assert errors["fill"] == pytest.approx(sure)
    assert errors["operands"] == pytest.approx(math.hypot(sure, 2 * 64))
    assert errors["rest"] == 2 * 64
    assert {errors[name] for name in ("pipe", "epilogue", "drain", "room")} == {0}
    assert inside(ROWS, block=2 * 128).parts["rest"].error == 0  # one warpgroup, which records
    assert inside(ROWS, block=NULL).parts["rest"].error == 2 * 128


def test_a_factor_over_one_within_the_warpgroups_error_is_no_bug() -> None:
    # the recording warpgroup is done 80 cycles before the pipe
    rows = [Span(Kind.CTA, 0, 0, 0, 600), mac(0, 0, 432, 0, 0), epilogue(0, 432, 600, 0, 300)]
    alike = {"sms": 1, "block": 3 * 128}
    assert inside(rows, **alike).parts["rest"].total == -80
    assert not [line for line in report(rows, **alike).refusals if "over 1" in line]
    alone = report(rows, sms=1, block=2 * 128)
    assert [line for line in alone.refusals if "The factor 'rest of mac' is 1.1852" in line]


def test_where_each_cta_has_one_unit_the_fill_stands_in_operands() -> None:
    rows = [Span(Kind.CTA, 0, 0, 0, 900), mac(0, 10, 822, 0, 250), epilogue(0, 822, 900, 0, 500)]
    found = inside(rows, sms=1)
    assert (found.fill_known, found.parts["fill"].total, found.parts["operands"].total) == (False, 0, 250)
    assert found.limit == "fill or latency"
    assert "the pipeline's fill among them (each CTA has one unit)" in found.sentence


def test_an_epilogue_under_another_lanes_products_costs_nothing() -> None:
    # Lane 1 multiplies from 650 to 1200 and from 1250 to 1850, lane 0 stores from 600 to 700 and from 1190 to 1260.
    rows = [
        Span(Kind.CTA, 0, 0, 0, 2000),
        mac(0, 0, 600, 0, 10),
        epilogue(0, 600, 700, 0, 10),
        mac(0, 650, 1200, 1, 10, lane=1),
        epilogue(0, 1190, 1260, 0, 10),
        mac(0, 1250, 1850, 2, 10, lane=1),
    ]
    found = inside([*rows, Span(Kind.CTA, 1, 1, 0, 2000), mac(1, 0, 2000, 3, 10)], sms=2)
    assert found.parts["epilogue"].total == 50 + 50


# Two teams take turns on one SM: the next one's operands come while one multiplies.
TURNS = [
    Span(Kind.CTA, 0, 0, 0, 2000),
    mac(0, 100, 700, 0, 50),  # c 600, idle 88; operands 50, rest 38
    mac(0, 600, 1300, 1, 120, lane=1),  # c 600, idle 88: no more of the 120 waited
    epilogue(0, 700, 800, 0, 300),
    mac(0, 1210, 1812, 2, 0),  # c 512
    epilogue(0, 1300, 1400, 1, 400, lane=1),
    epilogue(0, 1812, 1900, 2, 500),
]


def test_teams_that_take_turns() -> None:
    found = report(TURNS, sms=1, block=3 * 128)
    assert found.inside is not None
    assert totals(found.inside) == {
        "pipe": 3 * 512,
        "operands": 50 + 88,
        "fill": 0,  # the first unit waits less than the later ones' 15 a k_iter
        "rest": 38,
        "epilogue": 88,
        "drain": 100,
        "room": 1200,
    }
    assert found.inside.mac_cycles == found.mac_cycles == 1712
    assert found.inside.parts["rest"].error == 0  # a team is one warpgroup, which records
    # one unit at a time, whose place is the SM
    assert found.waves.nominal_waves == 3
    units = units_of(trace_of(TURNS, sms=1).spans)
    assert (units.lanes, units.held_ns.tolist()) == (1, [800, 600, 600])


def test_a_launch_that_stores_in_other_spans_has_no_epilogue() -> None:
    fixup = Span(Kind.FIXUP, 0, 0, 600, 700, 0, 0, 0, 0, 4, stall=70)
    parts = inside([Span(Kind.CTA, 0, 0, 0, 700), mac(0, 0, 600, 0, 10), fixup], sms=1).parts
    assert [parts[name].total for name in ("epilogue", "room", "drain")] == [0, 70, 0]


def test_products_beside_each_other_are_not_split() -> None:
    rows = [Span(Kind.CTA, 0, 0, 0, 900), mac(0, 0, 600, 0, 10), mac(0, 50, 650, 1, 10, lane=1)]
    found = report(rows, sms=1)
    assert found.inside is None
    assert found.waterfall is not None
    assert found.waterfall.factors[1].name == "inside tile"
    assert [line for line in found.refusals if line.startswith("The factor 'inside tile' is not split: units of one")]


def test_without_stalls_the_waterfall_is_as_it_was() -> None:
    silent = [replace(row, stall=NULL) for row in ROWS]
    found, split = report(silent), report(ROWS)
    assert found.inside is None
    assert found.waterfall is not None
    assert split.waterfall is not None
    assert [factor.name for factor in found.waterfall.factors[:3]] == ["clock", "inside tile", "padding"]
    assert found.waterfall.factors[1].value == pytest.approx(math.prod(f.value for f in split.waterfall.factors[1:5]))
    assert found.waterfall.factors[2:] == split.waterfall.factors[5:]
    assert found.refusals == split.refusals


def unit_rows(pipe_share: float, waits: float, room: float, units: int = 3) -> list[Span]:
    """One CTA whose units have that share of pipe in mac, and waits as shares of mac."""
    c = round(512 / pipe_share)
    rows = [Span(Kind.CTA, 0, 0, 0, units * (c + 10))]
    for unit in range(units):
        at = unit * (c + 10)
        rows += [mac(0, at, at + c, unit, round(waits * c)), epilogue(0, at + c, at + c + 10, unit, round(room * c))]
    return rows


@pytest.mark.parametrize(
    ("shares", "limit", "words"),
    [
        ((0.98, 0.01, 0.95), "tensor", "Tensor-bound: the copying warp waits for room in 95% of the mac cycles"),
        ((0.70, 0.30, 0.00), "memory", "Memory-bound: the pipe idles for want of operands in 30.0% of the mac cycles"),
        ((0.70, 0.30, 0.90), "latency", "though the ring is full (the copying warp waits for room in 90%)"),
        ((0.70, 0.01, 0.90), "issue", "Bound by the warps that multiply"),
        ((0.70, 0.01, 0.10), "none", "the largest loss is rest, "),
        ((0.98, 0.90, 0.95), "tensor", "waits for room in 95%"),  # long waits, hidden behind products
    ],
)
def test_the_sentence_says_what_the_limit_is(shares: tuple[float, float, float], limit: str, words: str) -> None:
    found = inside(unit_rows(*shares), sms=1)
    assert found.limit == limit
    assert words in found.sentence
    assert found.sentence.endswith(".")


def test_a_rest_that_the_other_warpgroups_may_explain_is_no_limit() -> None:
    # of 731 mac cycles a unit 212 are rest, give or take 64: more than a tenth
    found = inside(unit_rows(0.70, 0.01, 0.90), sms=1, block=3 * 128)
    assert found.parts["rest"].refused
    assert found.limit == "none"
    assert "the largest loss is epilogue" in found.sentence


@st.composite
def launches(draw: st.DrawFn) -> list[Span]:
    """CTAs on SMs of their own, any number of units each, any waits that can be."""
    rows: list[Span] = []
    unit = 0
    for cta in range(draw(st.integers(1, 3))):
        at = begin = draw(st.integers(0, 50))
        for _ in range(draw(st.integers(1, 4))):
            c, store = draw(st.integers(512, 2000)), draw(st.integers(0, 200))
            at += draw(st.integers(0, 30))
            rows += [mac(cta, at, at + c, unit, draw(st.integers(0, c)))]
            rows += [epilogue(cta, at + c, at + c + store, unit, draw(st.integers(0, 512)))]
            at, unit = at + c + store, unit + 1
        rows.append(Span(Kind.CTA, cta, cta, 0 if cta == 0 else begin, at + draw(st.integers(0, 40))))
    return rows


@given(launches())
def test_factors_multiply_to_the_whole_and_none_exceeds_one(rows: list[Span]) -> None:
    found = report(rows, sms=3)
    split, steps = found.inside, found.waterfall
    assert split is not None
    assert steps is not None
    values = {factor.name: factor for factor in steps.factors}
    product = math.prod(factor.value for factor in steps.factors)
    assert product == pytest.approx(steps.achieved_tflops / steps.peak_tflops, rel=1e-9)
    for name in INSIDE:
        assert values[name].value <= 1 + values[name].error + 1e-9
    assert found.mac_cycles == split.mac_cycles == sum(split.parts[name].total for name in INSIDE_MAC)
    assert min(part.total for part in split.parts.values()) >= 0
    assert np.allclose(split.per_sm.sum(axis=0), [split.parts[name].total for name in INSIDE_PARTS])
