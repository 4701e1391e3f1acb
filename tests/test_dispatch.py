"""What launches show of the block scheduler: made up, and recorded on an H200."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.recorded import DATA, spin, triton_matmul
from tests.synthetic import Span, spans_from, trace_from
from wavescope.dispatch import Dispatch, Turnaround, dispatch
from wavescope.observations import NOT_GUARANTEED, of_dispatch
from wavescope.problem import Problem
from wavescope.trace import NULL, Kind
from wavescope.trace_file import load
from wavescope.wave_report import Quantity

ROOT2 = 2**0.5


def cta(index: int, sm: int, begin: int, end: int) -> Span:
    return Span(Kind.CTA, index, sm, begin, end)


def test_hand_worked_dispatch() -> None:
    # Three SMs, one place each.  CTAs 0, 1, 2 go to SMs 2, 3, 0; CTA 3 follows 0 on SM 2 after 5 ns, 4 follows 2 on
    # SM 0 after 9.  CTA 2 begins 2 ns before CTA 1.  Both later ones begin before SM 3's ends at 130.
    rows = [cta(0, 2, 0, 100), cta(1, 3, 6, 130), cta(2, 0, 4, 110), cta(3, 2, 105, 200), cta(4, 0, 119, 210)]
    found = dispatch(trace_from(rows, sms=4, places=3))
    turn = Turnaround(wave=1, count=2, ns=(5.0, 7.0, 9.0), cycles=(5.0, 7.0, 9.0))
    assert found == Dispatch(
        ctas=5,
        sms=3,
        places=3,
        order=(2, 3, 0),
        pair_share=1.0,  # SMs 2 and 3; SM 1 ran nothing
        domains=0,
        domain_runs=None,
        ahead_ns=Quantity(2.0, ROOT2),
        distinct_first=3,
        ramp_ns=Quantity(6.0, ROOT2),
        peak_ctas={1: 3},
        peak_places=3,
        turnarounds=(turn,),
        all_turnarounds=replace(turn, wave=NULL),
        early_share=1.0,
    )


def test_places_of_an_sm_are_taken_again_in_the_order_they_were_left() -> None:
    # Two places on one SM: CTAs 0 and 1 begin together and leave at 50 and 80; CTA 2 takes the first place at 53,
    # CTA 3 the second at 84.
    rows = [cta(0, 0, 0, 80), cta(1, 0, 0, 50), cta(2, 0, 53, 90), cta(3, 0, 84, 120)]
    found = dispatch(trace_from(rows, sms=1, ctas_per_sm=2))
    assert (found.peak_ctas, found.peak_places, found.distinct_first) == ({2: 1}, 2, 1)
    assert found.all_turnarounds == Turnaround(NULL, 2, (3.0, 3.5, 4.0), (3.0, 3.5, 4.0))
    assert found.pair_share is None


def test_depth_first_filling_shows() -> None:
    # Four SMs, two places each: SM 0 and 1 are filled before the others get one.
    sms = [0, 0, 1, 1, 2, 2, 3, 3]
    rows = [cta(index, sm, index, 100) for index, sm in enumerate(sms)]
    found = dispatch(trace_from(rows, sms=4, ctas_per_sm=2))
    assert (found.distinct_first, found.order) == (2, (0, 1, 2, 3))
    assert "The first 4 CTAs go to 2 SMs: some get several at once." in of_dispatch(found)


def test_pairs_that_are_parted_count_against_the_share() -> None:
    # SMs 0 and 1 get theirs side by side, 2 and 3 have 4 between them; 4 has no partner.
    rows = [cta(index, sm, index, 100) for index, sm in enumerate([0, 1, 2, 4, 3])]
    assert dispatch(trace_from(rows, sms=5)).pair_share == 0.5


def test_without_clocks_turnaround_is_in_ns_alone() -> None:
    spans = spans_from([cta(0, 0, 0, 10), cta(1, 0, 12, 20)])
    nothing = np.full(2, NULL)
    found = dispatch(trace_from(replace(spans, begin_clock=nothing, end_clock=nothing), sms=1))
    assert found.all_turnarounds == Turnaround(NULL, 1, (2.0, 2.0, 2.0), None)


def test_recorded_equal_blocks() -> None:
    # spin: the next block starts 256 ns after the last one ended (160 to 320), 514.5 cycles (379 to 612); the 20 of
    # the third wave, with few others starting beside them, after 192 ns.
    found = dispatch(spin())
    assert found.order[:12] == (*range(124, 132), 14, 15, 30, 31)
    assert (found.pair_share, found.domains, found.domain_runs) == (1.0, 8, 9)
    assert (found.distinct_first, found.ramp_ns.value) == (132, 32.0)
    assert found.all_turnarounds == Turnaround(NULL, 152, (160.0, 256.0, 320.0), (379.0, 514.5, 612.0))
    assert [(turn.wave, turn.count, turn.ns[1]) for turn in found.turnarounds] == [(1, 132, 256.0), (2, 20, 192.0)]
    assert found.early_share == 0.0
    assert of_dispatch(found)[-1] == NOT_GUARANTEED


@pytest.mark.parametrize(("size", "early", "ahead"), [(2304, 1.0, 160.0), (4096, 0.95, 128.0)])
def test_recorded_launches_have_no_barrier_between_waves(size: int, early: float, ahead: float) -> None:
    trace = triton_matmul(f"triton_matmul_{size}", Problem(size, size, 4096))
    found = dispatch(trace)
    assert (found.pair_share, found.early_share, found.ahead_ns.value) == (1.0, early, ahead)
    assert set(found.order[:8]) == set(range(124, 132))
    assert found.all_turnarounds is not None
    assert found.all_turnarounds.ns[1] == 192.0


def test_recorded_launch_of_four_ctas_an_sm() -> None:
    # gemm_mma 64x64x64: 8 SMs get a second CTA before 8 others get their first; all 528 places are taken.
    found = dispatch(load(DATA / "gemm_mma-64x64x64-fixed-2304x2304x4096.parquet"))
    assert (found.ctas, found.peak_ctas, found.peak_places, found.distinct_first) == (1296, {4: 132}, 528, 124)
    assert found.all_turnarounds is not None
    assert found.all_turnarounds.count == 1296 - 528
