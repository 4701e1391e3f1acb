from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from tests.random_launches import launches, visited
from tests.synthetic import Span, changed, spans_from, trace_from
from wavescope.budget import budget
from wavescope.errors import IntegrityError
from wavescope.states import sm_states, spans_of
from wavescope.trace import Kind, Spans
from wavescope.wave_report import STATES, Budget, Quantity

# SM 5 runs two CTAs, SM 2 one that starts later; SM 9 does not exist for this launch.
#   SM 2:            |4 cta                              30|
#                       |6 mac          20|20 epi 26|
#   SM 5: |0 cta           12|    |17 cta                              50|
#          |1 mac  8|8 epi 11|     |19 wait 22|22 mac 40|40 fix 44|44 epi 48|
ROWS = [
    Span(Kind.CTA, 0, 5, 0, 12),
    Span(Kind.MAC, 0, 5, 1, 8, unit=0),
    Span(Kind.EPILOGUE, 0, 5, 8, 11, unit=0),
    Span(Kind.CTA, 1, 2, 4, 30),
    Span(Kind.MAC, 1, 2, 6, 20, unit=1),
    Span(Kind.EPILOGUE, 1, 2, 20, 26, unit=1),
    Span(Kind.CTA, 2, 5, 17, 50),
    Span(Kind.WAIT, 2, 5, 19, 22, unit=2),
    Span(Kind.MAC, 2, 5, 22, 40, unit=2),
    Span(Kind.FIXUP, 2, 5, 40, 44, unit=2),
    Span(Kind.EPILOGUE, 2, 5, 44, 48, unit=2),
]


def budget_of(rows: list[Span] | Spans, sms: int = 3, step: int = 1, useful: float | None = 1.0) -> Budget:
    trace = trace_from(rows, sms=sms)
    return budget(sm_states(spans_of(trace, trace.launches[0])), sms, step, useful)


def values(found: Budget) -> dict[str, float]:
    return {name: quantity.value for name, quantity in found.terms.items()}


def test_hand_worked_budget() -> None:
    found = budget_of(ROWS, step=2, useful=0.75)
    # T = 50, S = 3.  Columns: mac fixup epilogue wait resident turnaround ramp tail unfilled.
    per_sm = [
        [14, 0, 6, 0, 6, 0, 4, 20, 0],  # SM 2: resident 4..6 and 26..30
        [25, 4, 7, 3, 6, 5, 0, 0, 0],  # SM 5: resident 0..1, 11..12, 17..19, 48..50
        [0, 0, 0, 0, 0, 0, 0, 0, 50],
    ]
    assert found.per_sm.tolist() == per_sm
    assert found.sm_ids.tolist() == [2, 5, -1]
    assert (found.sms, found.used_sms, found.duration_ns, found.total_ns, found.residual_ns) == (3, 2, 50, 150, 0)
    # Endpoints: 3 stretches of mac have 6; ramp has one for each of 2 SMs, and T0 twice (2 squared).
    endpoints = [6, 2, 6, 2, 12, 2, 2 + 4, 2 + 4, 2]
    sums = [39, 4, 13, 3, 12, 5, 4, 20, 50]
    assert found.terms == {
        name: Quantity(total, 2 * math.sqrt(count)) for name, total, count in zip(STATES, sums, endpoints, strict=True)
    }
    assert found.padding == Quantity(39 * 0.25, 2 * math.sqrt(6) * 0.25)


def test_padding_of_an_unknown_problem_is_nothing() -> None:
    assert budget_of(ROWS, useful=None).padding == Quantity(0.0, 0.0)


@pytest.mark.parametrize(
    ("span", "moved", "terms"),
    [
        ("epilogue end over the exit", (2, {"end_ns": 12}), {"epilogue": +1, "resident": -1}),
        ("mac begin", (1, {"begin_ns": 3}), {"mac": -2, "resident": +2}),
        ("mac end, leaving a gap before the epilogue", (1, {"end_ns": 6}), {"mac": -2, "resident": +2}),
        ("mac end over an epilogue", (1, {"end_ns": 10}), {"mac": +2, "epilogue": -2}),
        ("wait begin", (7, {"begin_ns": 17}), {"wait": +2, "resident": -2}),
        ("fixup end over an epilogue", (9, {"end_ns": 47}), {"fixup": +3, "epilogue": -3}),
        ("end of the first CTA of an SM", (0, {"end_ns": 15}), {"resident": +3, "turnaround": -3}),
        ("begin of the second CTA of an SM", (6, {"begin_ns": 13}), {"resident": +4, "turnaround": -4}),
        ("begin of an SM's first CTA", (3, {"begin_ns": 1}), {"resident": +3, "ramp": -3}),
        ("end of an SM's last CTA", (3, {"end_ns": 33}), {"resident": +3, "tail": -3}),
        # T1 itself: the CTA that ends last stretches S x T, and so the other SMs' tails.
        ("end of the launch", (6, {"end_ns": 60}), {"resident": +10, "tail": +10, "unfilled": +10}),
    ],
)
def test_one_moved_end_moves_only_the_terms_it_should(
    span: str, moved: tuple[int, dict[str, int]], terms: dict[str, int]
) -> None:
    index, edges = moved
    before, after = budget_of(ROWS), budget_of(changed(spans_from(ROWS), index, **edges))
    differences = {name: values(after)[name] - values(before)[name] for name in STATES}
    assert {name: difference for name, difference in differences.items() if difference} == terms
    assert after.residual_ns == 0


def test_a_span_outside_its_cta_leaves_a_residual() -> None:
    # No term is found by subtraction: a mac that runs 6 past its CTA (the SM's last) is in mac and in tail.
    after = budget_of(changed(spans_from(ROWS), 5, end_ns=36))
    assert after.residual_ns == -6


@given(launches())
def test_terms_sum_to_s_times_t_and_match_a_visit_to_every_nanosecond(launch: tuple[list[Span], int]) -> None:
    rows, sms = launch
    found = budget_of(rows, sms=sms)
    expected = visited(rows)
    for name in STATES[:-1]:
        assert found.terms[name].value == sum(spent[name] for spent in expected.values()), name
    assert found.terms["unfilled"].value == (sms - len(expected)) * found.duration_ns
    assert found.residual_ns == 0
    assert sum(values(found).values()) == found.total_ns == sms * found.duration_ns
    assert np.all(found.per_sm.sum(axis=1) == found.duration_ns)
    assert found.not_idle.value == sum(values(found)[name] for name in STATES[:5])


def test_more_sms_than_the_device_has_are_refused() -> None:
    with pytest.raises(IntegrityError, match="spans name 2 SMs, but the device has 1"):
        budget_of(ROWS, sms=1)
