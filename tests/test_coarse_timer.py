"""Begins and ends where the timer steps by a microsecond: recorded with 32 ns, then rounded down to 1,024."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.recorded import spin, triton_matmul
from tests.synthetic import Span, spans_from, trace_from
from tests.test_clock_domains import ROWS, with_clocks
from wavescope.analyze import analyze
from wavescope.coarse_timer import REFUSED_NS, launch_spans, place, placement_sentences
from wavescope.integrity import check
from wavescope.picture import picture
from wavescope.problem import Problem
from wavescope.trace import Kind, Spans, Trace

STEP = 1024
H200_MHZ = 1980.0
FINE = 32  # the recorded truth lies in [reading, reading + 32)
PHASES = range(0, STEP, 128)

Recovered = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]


def matmul(size: int) -> Trace:
    problem = Problem(size, size, 4096 if size == 2304 else size)
    return triton_matmul(f"triton_matmul_{size}", problem)


def rounded(trace: Trace, phase: int = 0) -> tuple[Spans, int]:
    """The spans as a timer of STEP would have given them, and T0's reading less the true T0.

    `phase` moves the moments at which the timer steps; 0 leaves them where multiples of
    STEP of the recorded globaltimer are.
    """
    t0 = trace.launches[0].t0_globaltimer_ns + phase
    begin, end = ((at + t0) // STEP * STEP for at in (trace.spans.begin_ns, trace.spans.end_ns))
    origin = int(begin.min())
    return replace(trace.spans, begin_ns=begin - origin, end_ns=end - origin), origin - t0


def recovered(trace: Trace, phase: int = 0) -> Recovered:
    """Errors of the CTAs' begins, their error bars, and which of them are of later waves."""
    spans, shift = rounded(trace, phase)
    placed = place(spans, STEP, H200_MHZ)
    found = placed.spans.begin_ns + placed.summary.t0_shift_ns + shift
    error = np.abs(found - (trace.spans.begin_ns + FINE / 2))
    return error, placed.begin_error_ns + FINE / 2, trace.spans.begin_ns > 2 * STEP


@pytest.mark.parametrize(("size", "median", "high"), [(2304, 87, 157), (4096, 59, 254), (8192, 50, 238)])
def test_begins_of_recorded_launches_are_recovered(size: int, median: int, high: int) -> None:
    # Asked for: 100 ns in the median and 300 ns at 95 % for 2304 and 4096.
    error, bar, _ = recovered(matmul(size))
    assert (round(float(np.median(error))), round(float(np.quantile(error, 0.95)))) == (median, high)
    assert median <= 100
    assert high <= 300
    assert (error <= bar).all()


@pytest.mark.parametrize("size", [2304, 4096, 8192])
def test_error_bars_cover_the_truth_wherever_the_timer_steps(size: int) -> None:
    # Begins of later waves are as good in every phase.  Those of the first wave all lie in one step with nothing
    # near them to narrow it: the bar says so.
    parts = [recovered(matmul(size), phase) for phase in PHASES]
    error, bar, later = (np.concatenate([part[index] for part in parts]) for index in range(3))
    assert (error <= bar).all()
    assert float(np.median(error[later])) < 75
    assert float(np.quantile(error[later], 0.95)) < 185
    trusted = bar <= REFUSED_NS
    assert float(np.quantile(error[trusted], 0.95)) < 170


def test_what_is_refused_is_told() -> None:
    # 2304: 132 of 162 begins are the first wave's, and only SMs that straddle a step are known better.
    spans, _ = rounded(matmul(2304))
    summary = place(spans, STEP, H200_MHZ).summary
    assert (summary.counters, summary.by_domain, summary.misfit_sms) == (8, True, ())
    assert round(summary.refused_share, 3) == 0.815
    assert placement_sentences(summary) == (
        "The timer steps by 1024 ns. Placed by clock64, begins of CTAs have error bars of 490 ns (median; 95%: 490); "
        "81% of them are wider than 300 ns: conclude nothing from where those began.",
    )


def test_equal_blocks_are_where_rounding_tells_least() -> None:
    # spin: all blocks of a wave end within 100 ns, so a wave gives a few ns of a step; the bars cover it all the same.
    error, bar, _ = recovered(spin())
    assert (error <= bar).all()
    assert float(np.median(bar)) > REFUSED_NS


def test_analysis_places_what_the_timer_cannot() -> None:
    trace = matmul(4096)
    spans, _ = rounded(trace)
    coarse = replace(trace, spans=spans, timer_step_ns=STEP)
    check(coarse)
    truth, report = analyze(trace), analyze(coarse)
    assert report.placement is not None
    assert (report.timer_step_ns, report.placement.by_domain) == (STEP, True)
    assert report.placement.step_ns < STEP / 2
    assert any(sentence.startswith("The timer steps by 1024 ns.") for sentence in report.refusals)
    # The median gap between CTAs is 192 ns by the fine timer, less than a fifth of a step.
    gaps = truth.budget.terms["turnaround"].value
    assert report.budget.terms["turnaround"].value == pytest.approx(gaps, rel=0.12)
    assert report.budget.residual_ns == 0
    assert report.budget.share("tail") == pytest.approx(truth.budget.share("tail"), abs=0.001)
    assert picture(coarse, None, 8, 40).column_ns == report.budget.duration_ns / 40


def test_a_fine_timer_is_left_alone() -> None:
    trace = matmul(2304)
    spans, step, placement = launch_spans(trace, trace.launches[0])
    assert (step, placement) == (32, None)
    assert spans is trace.spans
    assert analyze(trace).placement is None


def test_hand_worked_places() -> None:
    # One SM at 1 cycle a ns, a step of 1000 ns, the first begin at 900: cycles 0, 500, 600, 1900 are read at
    # 900, 1400, 1500, 2800, that is as 0, 1000, 1000, 2000.  The fastest clock is 1.01 cycles a ns, the slowest
    # 0.75 * 1900 / 3000 = 0.475: 500 cycles take 495.05 to 1052.6 ns, 1300 take 1287.13 ns or more.
    # The third stamp is before 3000 - 1287.13 = 1712.87, the second before that - 99.01 = 1613.86, the first before
    # 1000; the second from 1000 on, the third from 1099.01, the last from 2386.14 on and before 3000.
    # Slack: 16 / 1.01 on both sides, so it leaves the middles alone.
    rows = [Span(Kind.CTA, 0, 0, 900, 1400), Span(Kind.CTA, 1, 0, 1500, 2800)]
    spans = spans_from(rows)
    origin = int(spans.begin_clock[0])
    read = replace(spans, begin_ns=np.array([0, 1000]), end_ns=np.array([1000, 2000]))
    placed = place(read, 1000, 1000.0)
    middles = [(0 + 1000) / 2, (1000 + 1613.86) / 2, (1099.01 + 1712.87) / 2, (2386.14 + 3000) / 2]
    assert placed.summary.t0_shift_ns == pytest.approx(middles[0], abs=0.01)
    assert placed.spans.begin_ns.tolist() == [0, round(middles[2] - middles[0])]
    assert placed.spans.end_ns.tolist() == [round(middles[1] - middles[0]), round(middles[3] - middles[0])]
    slack = 16 / 1.01
    assert placed.begin_error_ns == pytest.approx([500 + slack, 306.93 + slack], abs=0.01)
    assert (placed.summary.counters, placed.summary.by_domain) == (1, True)
    assert placed.spans.begin_clock[0] == origin  # clocks stay as they are


def test_sms_that_share_no_clock_are_placed_one_by_one() -> None:
    spans = spans_from(ROWS)
    read = replace(spans, begin_ns=spans.begin_ns // 1000 * 1000, end_ns=spans.end_ns // 1000 * 1000)
    summary = place(read, 1000, 1000.0).summary
    assert (summary.counters, summary.by_domain, summary.misfit_sms) == (4, False, ())


def test_an_sm_whose_readings_fit_no_clock_keeps_them() -> None:
    # SM 3's second CTA counts 100 cycles from 8 to 40 us.
    rows = [*ROWS, Span(Kind.CTA, 4, 3, 40_100, 80_000)]
    spans = with_clocks(rows, {0: 5000, 1: 905_000, 2: 5000, 3: 1_905_000})
    end = spans.end_clock.copy()
    end[4] = spans.begin_clock[4] + 100
    read = replace(spans, begin_ns=spans.begin_ns // 1000 * 1000, end_ns=spans.end_ns // 1000 * 1000, end_clock=end)
    placed = place(read, 1000, 1000.0)
    assert placed.summary.misfit_sms == (3,)
    assert placed.begin_error_ns[3] == 1000
    assert placed.spans.end_ns[4] - placed.spans.begin_ns[4] == 40_000
    told = placement_sentences(placed.summary)
    assert (
        told[-1]
        == "The clock64 readings of 1 SMs do not fit their timer's (3): their begins and ends are the timer's own."
    )


def test_without_clocks_the_timer_is_all_there_is() -> None:
    trace = trace_from(ROWS, timer_step_ns=1000)
    nothing = np.full(len(trace.spans), -1)
    trace = replace(trace, spans=replace(trace.spans, begin_clock=nothing, end_clock=nothing))
    assert launch_spans(trace, trace.launches[0])[1:] == (1000, None)
