"""A difference of two times as a sum of parts: it adds up, and each part is what it is called."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import compare_fixture as fixture
from tests.random_launches import launches
from tests.synthetic import Span, trace_from
from wavescope.accounts import PARTS, Account, account
from wavescope.analyze import analyze
from wavescope.errors import InputError
from wavescope.stats import Estimate
from wavescope.trace import Kind, Spans
from wavescope.wave_report import STATES, WaveReport

MAC = fixture.MAC_NS


def exactly(value: float) -> Estimate:
    return Estimate(value, value, value, 1)


def report_of(spans: Spans) -> WaveReport:
    return analyze(trace_from(spans, sms=fixture.SMS))


def between(before: Spans, after: Spans) -> Account:
    first, second = report_of(before), report_of(after)
    return account(first, second, exactly(first.budget.duration_ns), exactly(second.budget.duration_ns))


def changed_parts(found: Account) -> dict[str, float]:
    return {part.name: part.amount.value for part in found.parts if abs(part.amount.value) > 1e-6}


def with_end(kind: Kind, length: int) -> Spans:
    """Four tiles, and on every SM a span of another kind behind the main loop."""
    rows = [fixture.cta(sm, sm, 0, fixture.tile(sm), (kind, length, sm, (0, 8))) for sm in range(4)]
    return fixture.spans_from(row for each in rows for row in each)


def with_gap(length: int) -> Spans:
    """Four tiles and four more, each SM `length` without a CTA between them."""
    rows = [fixture.cta(i, i % 4, i // 4 * (MAC + length), fixture.tile(i)) for i in range(8)]
    return fixture.spans_from(row for each in rows for row in each)


# What differs, and the one part that may: ns an SM.
ONE_THING: dict[str, tuple[Spans, Spans, dict[str, float]]] = {
    # six tiles on four SMs: two SMs idle for a tile's length; cut in halves, none does
    "tail": (fixture.fixed_spans(6), fixture.split_spans(), {"tail": -MAC / 2}),
    "fixup": (fixture.fixed_spans(4), with_end(Kind.FIXUP, 7_000), {"fixup": 7_000}),
    "wait": (fixture.fixed_spans(4), with_end(Kind.WAIT, 3_000), {"wait": 3_000}),
    "epilogue": (fixture.fixed_spans(4), with_end(Kind.EPILOGUE, 2_000), {"epilogue": 2_000}),
    "units": (fixture.fixed_spans(4), fixture.fixed_spans(4, 120_000), {"units": 20_000}),
    "clock": (fixture.fixed_spans(4), fixture.slowed_clock(fixture.fixed_spans(4), 1.25), {"clock": 25_000}),
    "turnaround": (with_gap(0), with_gap(500), {"turnaround": 500}),
    # three SMs of four compute; with twice the tiles' length they all do
    "unfilled": (fixture.fixed_spans(3), fixture.fixed_spans(4), {"unfilled": -MAC / 4, "units": MAC / 4}),
}


@pytest.mark.parametrize("name", ONE_THING)
def test_a_part_holds_what_it_is_called_and_nothing_else(name: str) -> None:
    before, after, expected = ONE_THING[name]
    assert changed_parts(between(before, after)) == pytest.approx(expected)
    assert changed_parts(between(after, before)) == pytest.approx({part: -ns for part, ns in expected.items()})


def test_slower_units_and_a_lower_clock_are_told_apart() -> None:
    """1.2 times the cycles at 0.8 of the clock: 50,000 ns more, 22,500 by cycles and 27,500 by clock."""
    found = between(fixture.fixed_spans(4), fixture.slowed_clock(fixture.fixed_spans(4, 120_000), 1.25))
    # dC * mean(1/f) = 20,000 * (1 + 1.25) / 2; mean(C) * d(1/f) = 110,000 * 0.25
    assert changed_parts(found) == pytest.approx({"units": 22_500, "clock": 27_500})
    assert (found.part("units").before, found.part("units").after) == (100_000, 120_000)
    assert (found.part("clock").before, found.part("clock").after) == pytest.approx((1000, 800))


def test_time_beyond_the_spans_is_the_launchs() -> None:
    report = report_of(fixture.fixed_spans(4))
    found = account(report, report, exactly(101_000), Estimate(104_000, 103_000, 105_500, 41))
    assert changed_parts(found) == {"launch": 3_000}
    assert found.total_ns == 3_000
    assert found.part("launch").amount.error == pytest.approx((1_250**2 + 2 + 2) ** 0.5)  # half the interval, and steps


def test_without_clocks_all_of_mac_is_units() -> None:
    def without(spans: Spans) -> WaveReport:
        nothing = spans.begin_clock * 0 - 1
        return report_of(fixture.replace(spans, begin_clock=nothing, end_clock=nothing))

    first, second = without(fixture.fixed_spans(4)), without(fixture.fixed_spans(4, 120_000))
    found = account(first, second, exactly(100_000), exactly(120_000))
    assert changed_parts(found) == {"units": 20_000}


def test_launches_on_different_devices_have_no_account() -> None:
    spans = fixture.fixed_spans(4)
    first, second = report_of(spans), analyze(trace_from(spans, sms=5))
    with pytest.raises(InputError, match="4 and 5 SMs"):
        account(first, second, exactly(1.0), exactly(1.0))


@given(launches(), launches(), st.floats(0, 1e3), st.floats(0, 1e3))
def test_parts_add_up_whatever_the_launches(
    before: tuple[list[Span], int], after: tuple[list[Span], int], gap: float, other_gap: float
) -> None:
    sms = max(before[1], after[1])
    reports = [analyze(trace_from(rows, sms=sms, ctas_per_sm=4)) for rows, _ in (before, after)]
    times = [report.budget.duration_ns + extra for report, extra in zip(reports, (gap, other_gap), strict=True)]
    found = account(*reports, *(exactly(time) for time in times))
    assert tuple(part.name for part in found.parts) == PARTS
    assert found.total_ns == pytest.approx(times[1] - times[0], abs=1e-6)
    assert sum(part.amount.value for part in found.parts) == pytest.approx(found.total_ns, abs=1e-6)
    for state in STATES[1:]:
        values = [report.budget.terms[state].value / sms for report in reports]
        assert found.part(state).amount.value == pytest.approx(values[1] - values[0], abs=1e-9)
    mac = [report.budget.terms["mac"].value / sms for report in reports]
    assert found.part("units").amount.value + found.part("clock").amount.value == pytest.approx(
        mac[1] - mac[0], abs=1e-6
    )


@pytest.mark.parametrize("make", [fixture.fixed_spans], ids=["fixed"])
def test_a_launch_against_itself_differs_in_nothing(make: Callable[[int], Spans]) -> None:
    assert changed_parts(between(make(6), make(6))) == {}
