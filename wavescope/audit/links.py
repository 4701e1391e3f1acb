"""Which framework operator launched each kernel, by ids or by time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.launches import NULL, IntColumn

_SLICE = 1 << 16  # rows that are Python objects at a time

AnyIntColumn = NDArray[np.integer]


def column(values: array[int]) -> IntColumn:
    """The 64-bit numbers of `values`, in its own memory."""
    return np.frombuffer(values, np.int64) if values else np.empty(0, np.int64)


def small_column(values: array[int]) -> AnyIntColumn:
    """The numbers of a narrower array, in its own memory."""
    return np.frombuffer(values, np.dtype(values.typecode)) if values else np.empty(0, np.int32)


def rows_of(keys: AnyIntColumn, table: AnyIntColumn) -> IntColumn:
    """For each key the row of `table` that has it, NULL for none; NULL keys have none."""
    if not len(table):
        return np.full(len(keys), NULL, np.int64)
    order = np.argsort(table, kind="stable")
    at = np.minimum(np.searchsorted(table, keys, sorter=order), len(table) - 1)
    rows: IntColumn = order[at]
    return np.where((table[rows] == keys) & (keys != NULL), rows, NULL)


def values_at(values: AnyIntColumn, rows: IntColumn) -> AnyIntColumn:
    """values[rows], NULL where the row is NULL."""
    found = np.full(len(rows), NULL, values.dtype)
    some = rows != NULL
    found[some] = values[rows[some]]
    return found


def ids_are_links(external: AnyIntColumn, correlation: AnyIntColumn) -> bool:
    """Whether kernels' external ids name operators.

    Traces of 2022 and 2023 have the correlation id of the launch there, which says
    nothing of operators and may be some operator's id by chance.
    """
    both = (external != NULL) & (correlation != NULL)
    return bool((external == correlation)[both].mean() < 0.5) if both.any() else True


@dataclass(frozen=True)
class Spans:
    """When things ran, and on which thread: a row each."""

    thread: AnyIntColumn
    begin_ns: AnyIntColumn
    end_ns: AnyIntColumn


def enclosing(asked: Spans, operators: Spans) -> IntColumn:
    """For each moment asked.begin_ns on a thread the row of the innermost operator running there, NULL for none."""
    found = np.full(len(asked.thread), NULL, np.int64)
    for thread in np.unique(asked.thread):  # one after the other, so that little is sorted at once
        moments = np.flatnonzero(asked.thread == thread)
        rows = np.flatnonzero(operators.thread == thread)
        rows = rows[np.argsort(operators.begin_ns[rows], kind="stable")]
        moments = moments[np.argsort(asked.begin_ns[moments], kind="stable")]
        found[moments] = _innermost(asked.begin_ns[moments], rows, operators)
    return found


def _innermost(moments: AnyIntColumn, rows: IntColumn, operators: Spans) -> IntColumn:
    """The same for one thread, where moments and the operators of `rows` are in order of time."""
    coming = _intervals(rows, operators)
    stack: list[tuple[int, int, int]] = []  # (row, begin, end) of operators that have begun
    after = next(coming, None)
    found = np.full(len(moments), NULL, np.int64)
    for index, moment in enumerate(moments.tolist()):
        while after is not None and after[1] <= moment:
            while stack and stack[-1][2] < after[1]:
                stack.pop()
            _put(stack, after)
            after = next(coming, None)
        while stack and stack[-1][2] < moment:
            stack.pop()
        if stack:
            found[index] = stack[-1][0]
    return found


def _put(stack: list[tuple[int, int, int]], interval: tuple[int, int, int]) -> None:
    """Put an interval on the stack, below those that begin with it and end earlier."""
    at = len(stack)
    while at and stack[at - 1][1] == interval[1] and stack[at - 1][2] < interval[2]:
        at -= 1
    stack.insert(at, interval)


def _intervals(rows: IntColumn, spans: Spans) -> Iterator[tuple[int, int, int]]:
    """(row, begin, end) as Python numbers, a slice at a time."""
    for begin in range(0, len(rows), _SLICE):
        part = rows[begin : begin + _SLICE]
        yield from zip(part.tolist(), spans.begin_ns[part].tolist(), spans.end_ns[part].tolist(), strict=True)
