"""Which SMs share a clock: recorded on an H200, and made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.recorded import DATA, spin, triton_matmul
from tests.synthetic import Span, spans_from, trace_from
from wavescope.clock_domains import ClockDomains, domains_of_pairs, domains_of_spans
from wavescope.problem import Problem
from wavescope.states import spans_of
from wavescope.trace import NULL, Kind, Spans, Trace

H200_MHZ = 1980.0
# H200: the domain of SM 0, which is no cluster domain: it also has SMs 124 to 131.
DOMAIN_0 = [0, 1, 16, 17, 32, 33, 48, 49, *range(124, 132)]
SIZES = [16, 16, 16, 16, 16, 16, 18, 18]


def sizes(found: ClockDomains) -> list[int]:
    return sorted(len(found.members(index)) for index in range(len(found)))


def test_recorded_pairs_fall_into_eight_domains() -> None:
    # 132 SMs, 20 pairs each: offsets agree within 40 cycles inside a domain (14 with 1000 pairs), and lie apart by
    # 294,669 cycles or more, 8.85 million in all.
    with np.load(DATA / "clock_pairs.npz") as pairs:
        sm, time, clock = (pairs[name].astype(np.int64) for name in ("smid", "globaltimer_ns", "clock64"))
    found = domains_of_pairs(sm, time, clock, 32)
    assert (sizes(found), found.reason) == (SIZES, None)
    assert found.members(0).tolist() == DOMAIN_0
    assert max(found.spread_cycles) < 41
    assert found.gap_cycles == pytest.approx(294_669, abs=1)


def recorded() -> dict[str, Trace]:
    return {
        "2304": triton_matmul("triton_matmul_2304", Problem(2304, 2304, 4096)),
        "4096": triton_matmul("triton_matmul_4096", Problem(4096, 4096, 4096)),
        "8192": triton_matmul("triton_matmul_8192", Problem(8192, 8192, 8192)),
        "spin": spin(),
    }


def coarse(spans: Spans, step: int) -> Spans:
    """What a timer that moves in such steps would have read."""
    return replace(spans, begin_ns=spans.begin_ns // step * step, end_ns=spans.end_ns // step * step)


@pytest.mark.parametrize("step", [32, 1024])
@pytest.mark.parametrize("name", ["2304", "4096", "8192", "spin"])
def test_recorded_launches_show_the_same_domains(name: str, step: int) -> None:
    trace = recorded()[name]
    found = domains_of_spans(coarse(spans_of(trace, trace.launches[0]), step), step, H200_MHZ)
    assert (sizes(found), found.reason) == (SIZES, None)
    assert found.members(0).tolist() == DOMAIN_0
    assert found.gap_cycles is not None
    assert found.gap_cycles > 80_000 > 20 * found.tolerance_cycles


def with_clocks(rows: list[Span], origin: dict[int, int], mhz: dict[int, float] | None = None) -> Spans:
    """Spans whose SMs count from their own origin, at their own clock."""
    spans = spans_from(rows)
    at = np.array([origin[sm] for sm in spans.sm.tolist()])
    rate = np.array([(mhz or {}).get(sm, 1000.0) / 1e3 for sm in spans.sm.tolist()])

    def clock(time: NDArray[np.int64]) -> NDArray[np.int64]:
        return at + np.rint(time * rate).astype(np.int64)

    return replace(spans, begin_clock=clock(spans.begin_ns), end_clock=clock(spans.end_ns))


ROWS = [Span(Kind.CTA, cta, cta % 4, 10 * cta, 40_000 + 10 * cta) for cta in range(4)]


def test_two_planted_domains() -> None:
    # SMs 0 and 2 count from 5000, SMs 1 and 3 from 905,000; begins at 0, 10, 20, 30: half had begun at 15.
    # An offset is known to 16 + 1 cycle/ns * (1 ns + 0.25 * 15 ns) = 20.75 cycles.
    found = domains_of_spans(with_clocks(ROWS, {0: 5000, 1: 905_000, 2: 5000, 3: 905_000}), 1, 1000.0)
    assert (found.domain.tolist(), found.reason) == ([0, 1, 0, 1], None)
    assert (found.spread_cycles, found.gap_cycles, found.tolerance_cycles) == ((0.0, 0.0), 900_000.0, 20.75)
    assert found.of_sm(np.array([3, 0, 9])).tolist() == [1, 0, NULL]


def test_all_sms_on_one_clock() -> None:
    found = domains_of_spans(with_clocks(ROWS, dict.fromkeys(range(4), 5000)), 1, 1000.0)
    assert (len(found), found.members(0).tolist(), found.gap_cycles) == (1, [0, 1, 2, 3], None)


def test_sms_without_a_partner_are_no_domains() -> None:
    found = domains_of_spans(spans_from(ROWS), 1, 1000.0)
    assert (len(found), found.domain.tolist()) == (0, [NULL] * 4)
    assert found.reason == "no two of 4 SMs share an offset"


def test_offsets_without_a_gap_are_refused() -> None:
    # 20 cycles from one to the next is less than an offset is known to, 60 in all is more.
    found = domains_of_spans(with_clocks(ROWS, {0: 5000, 1: 5020, 2: 5040, 3: 5060}), 1, 1000.0)
    assert found.reason == (
        "offsets of SMs 0, 1, 2, 3 spread over 60 cycles without a gap, and an offset is known to 21"
    )


def test_clocks_that_begin_alike_and_come_apart_are_no_domain() -> None:
    # One origin, but SM 3 runs at 980 MHz: 800 cycles less after 40 us.
    found = domains_of_spans(with_clocks(ROWS, dict.fromkeys(range(4), 5000), {3: 980.0}), 1, 1000.0)
    assert found.reason == "SMs 0, 1, 2, 3 began with one offset, but their clocks came apart"
    assert len(found) == 0


def test_without_clocks_there_is_nothing_to_tell() -> None:
    spans = spans_from(ROWS)
    nothing = np.full(len(spans), NULL)
    found = domains_of_spans(replace(spans, begin_clock=nothing, end_clock=nothing), 1, 1000.0)
    assert found.reason == "the spans carry no clock readings"
    short = trace_from([Span(Kind.CTA, 0, 0, 0, 0), Span(Kind.CTA, 1, 1, 5, 5)]).spans
    assert domains_of_spans(short, 1, 1000.0).reason == "no SM was seen for longer than a step of the timer"
