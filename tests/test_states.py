from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.random_launches import launches, visited
from tests.synthetic import Span, changed, spans_from, trace_from
from wavescope.errors import InputError, IntegrityError, NoKernels
from wavescope.states import IDLE, Segments, dense_index, launch_of, order_within, sm_states, spans_of, sweep
from wavescope.trace import NULL, Kind

COLUMNS = {
    "turnaround": IDLE,
    "resident": Kind.CTA,
    "wait": Kind.WAIT,
    "epilogue": Kind.EPILOGUE,
    "fixup": Kind.FIXUP,
    "mac": Kind.MAC,
}


def swept(*rows: Span) -> list[tuple[int, int, int, int]]:
    spans = spans_from(rows)
    found = sweep(dense_index(spans.sm)[1], spans.kind, spans.begin_ns, spans.end_ns)
    return [
        tuple(int(value) for value in row) for row in zip(found.sm, found.state, found.begin, found.end, strict=True)
    ]


def test_where_spans_overlap_the_larger_kind_wins() -> None:
    # CTA 0..20, wait 2..8, epilogue 6..12, fixup 10..13, mac 11..16: each starts before the last one ends.
    assert swept(
        Span(Kind.CTA, 0, 7, 0, 20),
        Span(Kind.WAIT, 0, 7, 2, 8),
        Span(Kind.EPILOGUE, 0, 7, 6, 12),
        Span(Kind.FIXUP, 0, 7, 10, 13),
        Span(Kind.MAC, 0, 7, 11, 16),
    ) == [
        (0, Kind.CTA, 0, 2),
        (0, Kind.WAIT, 2, 6),
        (0, Kind.EPILOGUE, 6, 10),
        (0, Kind.FIXUP, 10, 11),
        (0, Kind.MAC, 11, 16),
        (0, Kind.CTA, 16, 20),
    ]


def test_equal_states_join_and_gaps_are_idle() -> None:
    # Two CTAs of SM 3 overlap, a third comes 5 later; SM 9 has its own row of time.
    assert swept(
        Span(Kind.CTA, 0, 3, 0, 10),
        Span(Kind.CTA, 1, 3, 4, 12),
        Span(Kind.CTA, 2, 3, 17, 20),
        Span(Kind.CTA, 3, 9, 2, 6),
    ) == [
        (0, Kind.CTA, 0, 12),
        (0, IDLE, 12, 17),
        (0, Kind.CTA, 17, 20),
        (1, Kind.CTA, 2, 6),
    ]


def test_a_span_without_length_bounds_the_idle_time_beside_it() -> None:
    assert swept(Span(Kind.CTA, 0, 0, 3, 3), Span(Kind.CTA, 1, 0, 5, 6), Span(Kind.CTA, 2, 0, 9, 9)) == [
        (0, IDLE, 3, 5),
        (0, Kind.CTA, 5, 6),
        (0, IDLE, 6, 9),
    ]


def test_a_thousand_ctas_at_once_are_one_state() -> None:
    rows = [Span(Kind.CTA, cta, 0, cta, 2000) for cta in range(1000)]
    assert swept(*rows, Span(Kind.WAIT, 0, 0, 1500, 1600)) == [
        (0, Kind.CTA, 0, 1500),
        (0, Kind.WAIT, 1500, 1600),
        (0, Kind.CTA, 1600, 2000),
    ]


@given(launches())
def test_states_are_what_a_visit_to_every_nanosecond_finds(launch: tuple[list[Span], int]) -> None:
    rows, sms = launch
    trace = trace_from(rows, sms=sms)
    states = sm_states(spans_of(trace, trace.launches[0]))
    expected = visited(rows)
    assert states.sm_ids.tolist() == list(expected)
    for name, column in COLUMNS.items():
        assert states.state_ns[:, column].tolist() == [spent[name] for spent in expected.values()], name
    assert states.first_begin_ns.tolist() == [spent["ramp"] for spent in expected.values()]
    assert (states.duration_ns - states.last_end_ns).tolist() == [spent["tail"] for spent in expected.values()]
    # One cycle a nanosecond, but another clock origin on each SM.
    assert states.state_cycles is not None
    assert np.array_equal(states.state_cycles, states.state_ns)


def test_clocks_of_sms_may_lie_any_distance_apart() -> None:
    spans = spans_from([Span(Kind.CTA, 0, 0, 0, 5), Span(Kind.CTA, 1, 1, 0, 7)])
    spans = changed(spans, 1, begin_clock=2**62, end_clock=2**62 + 9)
    cycles = sm_states(spans).state_cycles
    assert cycles is not None
    assert cycles[:, Kind.CTA].tolist() == [5, 9]


def test_without_clocks_there_are_no_cycles() -> None:
    spans = changed(spans_from([Span(Kind.CTA, 0, 0, 0, 5)]), 0, end_clock=NULL)
    assert sm_states(spans).state_cycles is None


def test_times_too_far_apart_for_one_launch_are_refused() -> None:
    with pytest.raises(IntegrityError, match="reach over 4611686018427387904 ticks"):
        swept(Span(Kind.CTA, 0, 0, 0, 2**62))


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(IntegrityError, match="1 spans end before they begin"):
        swept(Span(Kind.CTA, 0, 0, 0, 9), Span(Kind.MAC, 0, 0, 5, 4))


def test_spans_without_a_cta_or_a_duration_are_refused() -> None:
    mac = Span(Kind.MAC, 0, 4, 0, 5)
    trace = trace_from([mac])
    with pytest.raises(IntegrityError, match="1 spans but none of kind cta"):
        spans_of(trace, trace.launches[0])
    with pytest.raises(IntegrityError, match=r"1 SMs have spans but no CTA \(first: SM 4\)"):
        sm_states(spans_from([mac, Span(Kind.CTA, 1, 0, 0, 5)]))
    with pytest.raises(IntegrityError, match="within 0 ns"):
        sm_states(spans_from([Span(Kind.CTA, 1, 0, 0, 0)]))


def test_times_count_from_the_first_cta() -> None:
    trace = trace_from([Span(Kind.CTA, 0, 0, 100, 150), Span(Kind.MAC, 0, 0, 110, 140)])
    spans = spans_of(trace, trace.launches[0])
    assert (spans.begin_ns.tolist(), spans.end_ns.tolist()) == ([0, 10], [50, 40])


def test_the_launch_asked_for_is_found_or_named_as_missing() -> None:
    trace = trace_from([Span(Kind.CTA, 0, 0, 0, 5)])
    assert launch_of(trace) is launch_of(trace, 0) is trace.launches[0]
    with pytest.raises(InputError, match="launch 7 is not in the trace; it holds 0$"):
        launch_of(trace, 7)


@pytest.mark.parametrize(
    ("ids", "known"),
    [
        (range(13), "0 to 12"),
        ([0, 3], "0, 3"),
        ([*range(10), 20, 30], "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"),
    ],
)
def test_a_missing_launch_is_told_which_there_are(ids: Sequence[int], known: str) -> None:
    trace = trace_from([Span(Kind.CTA, 0, 0, 0, 5)])
    several = replace(trace, launches=tuple(replace(trace.launches[0], launch_id=i) for i in ids))
    with pytest.raises(InputError, match=f"launch 99 is not in the trace; it holds {known}$"):
        launch_of(several, 99)


def test_several_launches_need_an_id_and_an_empty_trace_has_none() -> None:
    trace = trace_from([Span(Kind.CTA, 0, 0, 0, 5)])
    two = replace(trace, launches=(*trace.launches, replace(trace.launches[0], launch_id=3)))
    with pytest.raises(InputError, match="the trace holds 2 launches; name one of 0, 3"):
        launch_of(two)
    with pytest.raises(NoKernels, match="launch 3 .* has no spans"):
        spans_of(two, launch_of(two, 3))
    with pytest.raises(NoKernels, match="holds no launch"):
        launch_of(replace(trace, launches=()))


def test_dense_index_of_small_large_and_negative_values() -> None:
    for values in ([5, 2, 5, 9], [2**40, 3, 2**40], [-1, 4, -1]):
        ids, index = dense_index(np.array(values))
        assert ids.tolist() == sorted(set(values))
        assert ids[index].tolist() == values


def test_order_within_sorts_by_owner_then_time_and_keeps_ties() -> None:
    owner, time = np.array([1, 0, 1, 0, 1]), np.array([3, 9, 3, 1, 2])
    assert order_within(owner, time).tolist() == [3, 1, 4, 0, 2]
    assert order_within(owner + 2**60, time).tolist() == [3, 1, 4, 0, 2]


def test_no_segments_for_spans_without_length_alone() -> None:
    spans = spans_from([Span(Kind.CTA, 0, 0, 3, 3)])
    found = sweep(spans.sm, spans.kind, spans.begin_ns, spans.end_ns)
    assert [len(column) for column in (found.sm, found.state, found.begin, found.end)] == [0, 0, 0, 0]
    assert isinstance(found, Segments)
