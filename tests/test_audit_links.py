"""Kernels, calls and operators put together: by ids, and by time against a search of every pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavescope.audit import links
from wavescope.audit.launches import NULL
from wavescope.audit.links import Spans, enclosing, ids_are_links, rows_of, values_at


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_rows_of() -> None:
    assert rows_of(array(5, NULL, 7, 9), array(9, NULL, 5)).tolist() == [2, NULL, NULL, 0]
    assert rows_of(array(5), array()).tolist() == [NULL]
    assert values_at(array(10, 20), array(1, NULL, 0)).tolist() == [20, NULL, 10]


@pytest.mark.parametrize(
    ("external", "correlation", "expected"),
    [
        ((1, 2, 3), (7, 8, 9), True),
        ((7, 8, 3), (7, 8, 9), False),
        ((NULL, NULL), (7, 8), True),
    ],
)
def test_ids_are_links(external: tuple[int, ...], correlation: tuple[int, ...], expected: bool) -> None:
    assert ids_are_links(array(*external), array(*correlation)) is expected


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_operators_that_begin_together(order: list[int]) -> None:
    """Of three that begin at 5, the one that ends at 8 is the innermost at 7, the one that ends at 20 at 9."""
    ends = array(8, 20, 30)[order]
    operators = Spans(array(1, 1, 1), array(5, 5, 5), ends)
    asked = Spans(array(1, 1, 1, 1), array(7, 9, 25, 31), array(7, 9, 25, 31))
    rows = enclosing(asked, operators)
    assert [ends[row] if row != NULL else NULL for row in rows.tolist()] == [8, 20, 30, NULL]


def nested(draw: st.DrawFn, begin: int, end: int, depth: int) -> list[tuple[int, int]]:
    """Intervals in [begin, end], each inside another or apart from it, as operators of one thread are."""
    found = []
    at = begin
    while at < end and draw(st.booleans()):
        first = draw(st.integers(at, end))
        last = draw(st.integers(first, end))
        found.append((first, last))
        if depth:
            found += nested(draw, first, last, depth - 1)
        at = last + 1
    return found


@st.composite
def threads(draw: st.DrawFn) -> tuple[Spans, Spans]:
    """Operators of up to three threads, and moments to ask for."""
    rows = [(thread, *interval) for thread in range(draw(st.integers(1, 3))) for interval in nested(draw, 0, 60, 3)]
    rows = draw(st.permutations(rows))
    asked = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 62)), max_size=12))
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    moments = np.array(asked, np.int64).reshape(-1, 2).T
    return Spans(*columns), Spans(moments[0], moments[1], moments[1])


@settings(deadline=None)
@given(threads(), st.sampled_from([1, 3, 1 << 16]))
def test_enclosing_finds_a_shortest_interval(found: tuple[Spans, Spans], size: int) -> None:
    """Of equally long ones any will do."""
    operators, asked = found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "_SLICE", size)
        rows = enclosing(asked, operators)
    length = operators.end_ns - operators.begin_ns
    for row, thread, moment in zip(rows.tolist(), asked.thread, asked.begin_ns, strict=True):
        around = (operators.thread == thread) & (operators.begin_ns <= moment) & (operators.end_ns >= moment)
        if not around.any():
            assert row == NULL
        else:
            assert around[row]
            assert length[row] == length[around].min()
