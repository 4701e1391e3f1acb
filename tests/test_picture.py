from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.random_launches import PRIORITY, launches
from tests.synthetic import Span, trace_from
from wavescope.errors import UsageError
from wavescope.picture import picture
from wavescope.trace import Kind
from wavescope.wave_report import STATES, Picture


def drawn(rows: list[Span], sms: int, num_rows: int, columns: int) -> list[list[str]]:
    found = picture(trace_from(rows, sms=sms), None, num_rows, columns)
    return [[STATES[cell] for cell in row] for row in found.cells]


def test_each_cell_shows_what_fills_most_of_it() -> None:
    # T = 40 in four columns of 10.  SM 8: mac 2..14, so 8 of the first column (resident 2) and 4 of the second, where
    # the exit takes 14..16 and the tail 4.  SM 3: ramp 6, resident 4; then resident up to 40.
    rows = [
        Span(Kind.CTA, 0, 8, 0, 15),
        Span(Kind.MAC, 0, 8, 2, 14),
        Span(Kind.CTA, 1, 3, 6, 40),
    ]
    assert drawn(rows, 3, num_rows=10, columns=4) == [
        ["ramp", "resident", "resident", "resident"],
        ["mac", "tail", "tail", "tail"],
        ["unfilled"] * 4,
    ]


def test_ties_go_to_the_first_state() -> None:
    rows = [Span(Kind.CTA, 0, 0, 0, 10), Span(Kind.MAC, 0, 0, 0, 5)]
    assert drawn(rows, 1, num_rows=1, columns=1) == [["mac"]]


def test_sms_are_merged_evenly_with_unused_ones_last() -> None:
    rows = [Span(Kind.CTA, cta, sm, 0, 10) for cta, sm in enumerate((30, 4, 9, 2))]
    found = picture(trace_from(rows, sms=7), None, 3, 2)
    assert found.rows_sms == ((2, 4, 9), (30, -1, -1), (-1,))
    assert (found.sms_per_row, found.column_ns) == (3, 5.0)
    assert [[STATES[cell] for cell in row] for row in found.cells] == [
        ["resident"] * 2,
        ["unfilled"] * 2,
        ["unfilled"] * 2,
    ]


def test_merged_rows_hold_sms_that_end_alike_the_latest_first() -> None:
    # SMs 1 and 6 run to 20, SMs 0 and 3 to 10: merged by id, both rows would be a tie.
    rows = [Span(Kind.CTA, cta, sm, 0, end) for cta, (sm, end) in enumerate(((0, 10), (1, 20), (3, 10), (6, 20)))]
    found = picture(trace_from(rows, sms=4), None, 2, 2)
    assert found.rows_sms == ((1, 6), (0, 3))
    assert [[STATES[cell] for cell in row] for row in found.cells] == [["resident"] * 2, ["resident", "tail"]]
    assert picture(trace_from(rows, sms=4), None, 4, 2).rows_sms == ((0,), (1,), (3,), (6,))


@given(launches(), st.integers(1, 6), st.integers(1, 9))
def test_cells_are_what_a_visit_to_every_part_of_a_nanosecond_finds(
    launch: tuple[list[Span], int], num_rows: int, columns: int
) -> None:
    rows, sms = launch
    assert drawn(rows, sms, num_rows, columns) == visited(rows, sms, num_rows, columns)


def visited(rows: list[Span], sms: int, num_rows: int, columns: int) -> list[list[str]]:
    """The dominant state of each cell, one (1 / columns) ns at a time."""
    ctas = [row for row in rows if row.kind == Kind.CTA]
    t0, t1 = min(row.begin for row in ctas), max(row.end for row in ctas)
    ids: list[int | None] = sorted({row.sm for row in rows})
    ids += [None] * (sms - len(ids))
    merged = -(-sms // num_rows)
    if merged > 1:
        last_end = {sm: max(row.end for row in ctas if row.sm == sm) for sm in ids if sm is not None}
        ids.sort(key=lambda sm: (sm is None, -last_end.get(sm, 0), sm or 0))
    table = np.zeros((-(-sms // merged), columns, len(STATES)), int)
    for place, sm in enumerate(ids):
        mine = [row for row in rows if row.sm == sm]
        for now in range(t0, t1):
            state = STATES.index(state_at(mine, now))
            for part in range(columns):
                table[place // merged, ((now - t0) * columns + part) // (t1 - t0), state] += 1
    return [[STATES[cell] for cell in row] for row in table.argmax(axis=2)]


def state_at(rows: list[Span], now: int) -> str:
    if not rows:
        return "unfilled"
    for kind, name in PRIORITY:
        if any(row.kind == kind and row.begin <= now < row.end for row in rows):
            return name
    if now < min(row.begin for row in rows):
        return "ramp"
    return "tail" if now >= max(row.end for row in rows) else "turnaround"


def test_a_picture_without_rows_or_columns_is_refused() -> None:
    trace = trace_from([Span(Kind.CTA, 0, 0, 0, 10)])
    with pytest.raises(UsageError, match="0 rows x 5 columns"):
        picture(trace, None, 0, 5)
    assert isinstance(picture(trace, 0, 1, 1), Picture)
