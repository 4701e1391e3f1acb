from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.recorded import spin, triton_matmul
from tests.synthetic import Span, changed, spans_from, tiled, trace_from
from wavescope.analyze import analyze
from wavescope.errors import InputError
from wavescope.integrity import check
from wavescope.problem import Problem
from wavescope.states import IDLE, sm_states, spans_of
from wavescope.trace import Kind
from wavescope.wave_report import Clock, Quantity


def test_recorded_matmul_of_162_blocks() -> None:
    # H200: 61.8 % of SM time busy and 38.1 % tail, nearly all of it quantization.
    trace = triton_matmul("triton_matmul_2304", Problem(2304, 2304, 4096))
    check(trace)
    report = analyze(trace)
    shares = report.budget
    assert (report.waves.num_units, round(report.waves.nominal_waves, 3)) == (162, 1.227)
    assert round(report.waves.efficiency, 3) == 0.614
    assert round(shares.not_idle.value / shares.total_ns, 3) == 0.618
    assert round(shares.share("tail"), 3) == 0.381
    assert shares.residual_ns == 0
    assert [wave.units for wave in report.waves.waves] == [132, 30]
    assert [round(wave.utilization, 2) for wave in report.waves.waves] == [1.0, 0.23]
    assert report.waves.duration_ratio == 45760 / 46912
    assert report.tail is not None
    assert round(report.tail.quantization.value / shares.terms["tail"].value, 2) == 1.02
    assert report.tail.imbalance.value < 0  # the second round's blocks are faster than the mean
    assert report.place_busy == pytest.approx(shares.not_idle.value / shares.total_ns)  # one block an SM
    assert report.bound.value == pytest.approx(1 / 0.61803, abs=1e-4)


def test_recorded_matmul_of_512_blocks() -> None:
    # 4096^3: 512 blocks are 3.88 waves; the SM clock is 1.69 to 1.73 GHz by SM, and rises in the last tenth.
    trace = triton_matmul("triton_matmul_4096", Problem(4096, 4096, 4096))
    check(trace)
    report = analyze(trace)
    assert [wave.units for wave in report.waves.waves] == [132, 132, 132, 116]
    assert round(report.budget.not_idle.value / report.budget.total_ns, 3) == 0.961
    clock = report.clock
    assert clock is not None
    assert 1690 < clock.low_mhz < clock.mean_mhz < clock.high_mhz < 1740
    assert clock.last_tenth_mhz > clock.first_tenth_mhz
    assert report.active_cycles_ratio == pytest.approx(0.967, abs=0.001)


def test_recorded_equal_blocks() -> None:
    # 284 equal blocks of 200,000 cycles: the next one starts on an SM 256 ns after the last one ended (median; 8 steps
    # of 32 ns), 515 cycles by the SM's own clock (379 to 612).
    trace = spin()
    check(trace)
    report = analyze(trace)
    assert [wave.units for wave in report.waves.waves] == [132, 132, 20]
    segments = sm_states(spans_of(trace, trace.launches[0])).segments
    gaps = (segments.end - segments.begin)[segments.state == IDLE]
    assert len(gaps) == 284 - 132
    assert (np.median(gaps), gaps.min(), gaps.max()) == (256, 160, 320)
    order = np.lexsort((trace.spans.begin_ns, trace.spans.sm))
    sm, begin, end = (getattr(trace.spans, name)[order] for name in ("sm", "begin_clock", "end_clock"))
    cycles = (begin[1:] - end[:-1])[sm[1:] == sm[:-1]]
    assert (np.median(cycles), cycles.min(), cycles.max()) == (514.5, 379, 612)
    states = sm_states(spans_of(trace, trace.launches[0]))
    assert states.state_cycles is not None
    assert states.state_cycles[:, IDLE].sum() == cycles.sum()
    assert report.budget.terms["turnaround"].value == gaps.sum()
    assert report.longest_sm_cycles == pytest.approx(3 * 200_057, abs=100)
    assert report.clock is not None
    assert round(report.clock.mean_mhz) == 1980


TWO_PER_SM = [
    # SM 0: two CTAs side by side, then one; SM 1: one CTA with a unit of its own.
    Span(Kind.CTA, 0, 0, 0, 60),
    Span(Kind.CTA, 1, 0, 0, 80),
    Span(Kind.CTA, 2, 0, 70, 100),
    Span(Kind.CTA, 3, 1, 0, 40),
]


def test_places_and_sms_are_busy_for_different_shares() -> None:
    # Lives 60 + 80 + 30 + 40 of 4 places * 100; SM 0 is never idle, SM 1 for 60: 140 of 200.
    report = analyze(trace_from(TWO_PER_SM, sms=2, ctas_per_sm=2))
    assert report.place_busy == 210 / 400
    assert report.bound == Quantity(200 / 140, pytest.approx(200 / 140 * 2 / 140))  # two busy stretches, four ends
    assert (report.active_cycles_ratio, report.longest_sm_cycles) == (140 / (2 * 100), 100)
    # A third SM that runs nothing has no active cycles, but counts.
    assert analyze(trace_from(TWO_PER_SM, sms=3, ctas_per_sm=2)).active_cycles_ratio == 140 / (3 * 100)


def test_clock_of_sms_and_of_tenths() -> None:
    # One CTA of 1000 ns and 1500 cycles; its units: 20 ns at 2000 MHz, 880 at 1400, 100 at 2100.
    # The first tenth has 20 ns of the first and 80 of the second: (20 * 2000 + 80 * 1400) / 100 = 1520 MHz.
    # Another SM runs at 1000 MHz for 500 ns.
    rows = [
        Span(Kind.CTA, 0, 0, 0, 1000),
        Span(Kind.MAC, 0, 0, 0, 20, 0, 0, 0, 0, 4),
        Span(Kind.MAC, 0, 0, 20, 900, 1, 0, 1, 0, 4),
        Span(Kind.MAC, 0, 0, 900, 1000, 2, 0, 2, 0, 4),
        Span(Kind.CTA, 1, 1, 200, 700),
    ]
    spans = spans_from(rows)
    origin = int(spans.begin_clock[0])
    for index, (begin, end) in enumerate([(0, 1500), (0, 40), (40, 1272), (1272, 1482)]):
        spans = changed(spans, index, begin_clock=origin + begin, end_clock=origin + end)
    assert analyze(trace_from(spans, sms=2)).clock == Clock(
        mean_mhz=pytest.approx(2000 / 1500 * 1000),
        low_mhz=1000.0,
        high_mhz=1500.0,
        first_tenth_mhz=pytest.approx(1520),
        last_tenth_mhz=pytest.approx(2100),
    )


def test_a_report_without_clocks_leaves_out_what_needs_them() -> None:
    spans = spans_from(TWO_PER_SM)
    nothing = spans.begin_clock * 0 - 1
    report = analyze(trace_from(replace(spans, begin_clock=nothing, end_clock=nothing), sms=2, ctas_per_sm=2))
    assert (report.clock, report.active_cycles_ratio, report.longest_sm_cycles) == (None, None, None)


def test_refusals_name_what_the_timer_cannot_tell() -> None:
    # Units of 40 ns and a step of 8: five steps.  The tail of 3 * 40 has an error of 8 * sqrt(4 + 4 * 4).
    rows = [Span(Kind.CTA, cta, cta % 4, cta // 4 * 40, cta // 4 * 40 + 40) for cta in range(5)]
    report = analyze(replace(trace_from(rows, sms=4), timer_step_ns=8))
    assert report.refusals == (
        "Units take 40 ns, fewer than 10 steps of the 8 ns timer: their durations, and ratios of them, say little.",
        "Too small for a timer of 8 ns steps, conclude nothing from: resident (62.50% of SM time, error 7.07%), "
        "tail (37.50% of SM time, error 11.18%), quantization (37.50% of SM time, error 4.74%).",
        "Padding is unknown: the trace does not say which problem and tile were computed.",
        "No waterfall: the trace does not say which problem and tile were computed.",
    )


def test_a_clean_launch_has_no_refusals_but_for_what_is_too_small() -> None:
    spans, problem, tile = tiled(7, places=3, mac_ns=40_000)
    report = analyze(trace_from(spans, sms=3, problem=problem, tile=tile, schedule="fixed"))
    assert report.refusals == ()
    assert report.budget.padding == Quantity(0.0, 0.0)
    assert report.waterfall is not None


def test_spans_outside_their_cta_are_told() -> None:
    rows = [Span(Kind.CTA, 0, 0, 0, 100), Span(Kind.MAC, 0, 0, 0, 110, 0, 0, 0, 0, 4), Span(Kind.CTA, 1, 1, 0, 200)]
    report = analyze(trace_from(rows, sms=2))
    assert "The budget leaves -10 SM-ns (-2.50%) over: spans reach outside their CTAs." in report.refusals


def test_one_launch_of_several() -> None:
    first, second = spans_from(TWO_PER_SM), spans_from([Span(Kind.CTA, 0, 0, 1000, 1100)])
    both = replace(
        first,
        **{
            name: np.concatenate([getattr(first, name), getattr(second, name)])
            for name in first.__dataclass_fields__
            if name != "launch_id"
        },
        launch_id=np.repeat([0, 5], [len(first), len(second)]),
    )
    trace = trace_from(both, sms=2, ctas_per_sm=2)
    trace = replace(trace, launches=(*trace.launches, replace(trace.launches[0], launch_id=5)))
    check(trace)
    assert analyze(trace, 0).budget.duration_ns == 100
    report = analyze(trace, 5)
    assert (report.launch.launch_id, report.budget.duration_ns, report.budget.terms["ramp"].value) == (5, 100, 0)
    with pytest.raises(InputError, match="name one of 0, 5"):
        analyze(trace)
