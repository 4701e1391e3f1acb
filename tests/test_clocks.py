"""MHz by kind of span, SM, clock domain and over time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.recorded import spin, triton_matmul
from tests.synthetic import Span, spans_from, trace_from
from tests.test_clock_domains import with_clocks
from wavescope.clocks import Clocks, clocks
from wavescope.problem import Problem
from wavescope.trace import Kind
from wavescope.wave_report import Quantity

# SMs 0 and 2 on one clock of 1000 MHz, 1 and 3 on one of 900; each has a CTA of 1000 ns, SM 0 another to 2000 ns.
ORIGIN = {0: 5000, 1: 905_000, 2: 5000, 3: 905_000}
MHZ = {1: 900.0, 3: 900.0}
ROWS = [
    *(Span(Kind.CTA, sm, sm, 0, 1000) for sm in range(4)),
    *(Span(Kind.MAC, sm, sm, 100, 800, sm, 0, sm, 0, 8) for sm in range(4)),
    Span(Kind.CTA, 4, 0, 1000, 2000),
    Span(Kind.MAC, 4, 0, 1100, 1900, 4, 0, 4, 0, 8),
]


def test_hand_worked_clocks() -> None:
    # CTAs: 5000 ns of 3000 * 1 + 2000 * 0.9 = 4800 cycles: 960 MHz, error 960 * sqrt(10) / 5000.
    # mac: 3600 ns, 2200 + 1260 = 3460 cycles: 961.1 MHz.
    # Tenths of 200 ns: all SMs in [0, 800), then SM 0 and 2's last 200 without mac, SM 0 from 1100 to 1900.
    found = clocks(trace_from(with_clocks(ROWS, ORIGIN, MHZ)))
    assert found is not None
    step = math.sqrt(10) / 5000
    assert found.mean == Quantity(960.0, pytest.approx(960 * step))
    assert {name: round(mhz.value, 1) for name, mhz in found.by_kind.items()} == {"cta": 960.0, "mac": 961.1}
    assert [mhz.value for mhz in found.by_sm] == [1000.0, 900.0, 1000.0, 900.0]
    assert [mhz.value for mhz in found.by_domain] == [1000.0, 900.0]
    assert found.by_domain[0].error == pytest.approx(1000 * math.sqrt(6) / 3000)
    difference = found.domain_difference
    assert difference is not None
    assert difference.value == pytest.approx(1 / 9)
    assert not difference.refused
    nan = math.nan
    assert found.parts == pytest.approx(
        np.array([[1000, 1000, 1000, 1000, nan, 1000, 1000, 1000, 1000, 1000], [900] * 4 + [nan] * 6]), nan_ok=True
    )
    # spans: mac of 700 (twice), 800 ns at 1000 and 700 (twice) at 900 MHz
    assert found.span == (pytest.approx(900), 1000.0, 1000.0)
    assert found.span_error == pytest.approx(1000 * math.sqrt(2) / 700)


def test_a_part_of_a_span_counts_with_its_share() -> None:
    # One SM, 2000 ns: 600 ns at 2000 MHz, then 1400 at 1000; the fourth tenth has none of the first, all of the
    # second; the tenths at 600 begin with it: [400, 600) is 2000 MHz, [600, 800) 1000.
    rows = [Span(Kind.CTA, 0, 0, 0, 2000), Span(Kind.MAC, 0, 0, 0, 500, 0, 0, 0, 0, 8)]
    rows.append(Span(Kind.MAC, 0, 0, 500, 2000, 1, 0, 1, 0, 8))
    spans = spans_from(rows)
    begin, end = spans.begin_clock.copy(), spans.end_clock.copy()
    end[1] = begin[2] = begin[1] + 1000
    end[0] = end[2] = begin[1] + 2500
    found = clocks(trace_from(replace(spans, begin_clock=begin, end_clock=end), sms=1))
    assert found is not None
    # [400, 600): 100 ns at 2000 MHz and 100 at 1000
    assert found.parts[0].tolist() == pytest.approx([2000, 2000, 1500, *[1000] * 7])
    assert found.domains.reason is None  # one SM, one clock
    assert found.domain_difference is None


def test_launches_without_clocks_or_time_have_none() -> None:
    trace = trace_from(ROWS)
    nothing = np.full(len(ROWS), -1)
    assert clocks(replace(trace, spans=replace(trace.spans, begin_clock=nothing, end_clock=nothing))) is None
    assert clocks(trace_from([Span(Kind.CTA, 0, 0, 5, 5)])) is None


def recorded_8192() -> Clocks:
    found = clocks(triton_matmul("triton_matmul_8192", Problem(8192, 8192, 8192)))
    assert found is not None
    return found


def test_recorded_clock_moves_and_differs_between_domains() -> None:
    # 8192^3 in 1.5 ms: domains differ by 2.7 %; 1.65 to 1.68 GHz at first, then 1.63, and up again in the last tenth.
    found = recorded_8192()
    assert found.domain_difference is not None
    assert round(found.domain_difference.value, 3) == 0.027
    assert found.domain_difference.error < 1e-4
    assert (round(found.mean.value), found.max_mhz) == (1653, 1980.0)
    median = np.nanmedian(found.parts, axis=0)
    assert median.round().tolist() == [1654, 1680, 1652, 1635, 1625, 1637, 1631, 1640, 1633, 1673]


def test_recorded_idle_clock_is_the_maximum() -> None:
    found = clocks(spin())
    assert found is not None
    assert found.mean.value == pytest.approx(1979.85, abs=0.01)
    difference = found.domain_difference
    assert difference is not None
    assert difference.refused  # 0.03 % with an error of 0.01
