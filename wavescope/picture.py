"""The SM-by-time picture: which state holds most of each cell, from exact integrals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wavescope.coarse_timer import launch_spans
from wavescope.errors import UsageError
from wavescope.states import Segments, SmStates, launch_of, sm_states
from wavescope.trace import NULL, IntColumn, Kind, Trace
from wavescope.wave_report import STATES, Picture

_FIRST_STATE = int(max(Kind))  # STATES runs from the largest Kind down to turnaround (idle between)
_RAMP, _TAIL, _UNFILLED = (STATES.index(name) for name in ("ramp", "tail", "unfilled"))


def picture(trace: Trace, launch_id: int | None, rows: int, columns: int) -> Picture:
    """Draw a launch with at most `rows` rows of SMs and `columns` columns of equal time.

    Rows follow the SM ids, SMs that ran nothing (id -1) last.  Where there are more SMs
    than rows, each row merges the same number of them (the last may have fewer), ordered
    by the end of their last CTA, latest first: a row then holds SMs that did alike, and
    the few that ran one unit more are not outvoted.  Among states with equal shares of a
    cell the first in STATES is shown.

    Raises: UsageError for a picture without rows or columns; as `analyze` for the launch.
    """
    if rows < 1 or columns < 1:
        raise UsageError(f"a picture of {rows} rows x {columns} columns cannot be drawn; use 1 or more of each")
    states = sm_states(launch_spans(trace, launch_of(trace, launch_id))[0])
    sms = max(trace.device.sms, len(states.sm_ids))
    sms_per_row = -(-sms // rows)
    num_rows = -(-sms // sms_per_row)
    sm, state, begin, end = _whole_time(states, sms)
    ids = np.append(states.sm_ids, np.full(sms - len(states.sm_ids), NULL))
    if sms_per_row > 1:
        by_end = np.argsort(-states.last_end_ns, kind="stable")
        ids[: len(by_end)] = states.sm_ids[by_end]
        place = np.arange(sms)
        place[by_end] = np.arange(len(by_end))
        sm = place[sm]
    cell = ((sm // sms_per_row) * len(STATES) + state) * columns
    shape = (num_rows, len(STATES), columns)
    totals = _spread(cell, end, states.duration_ns, shape) - _spread(cell, begin, states.duration_ns, shape)
    return Picture(
        cells=np.argmax(totals, axis=1).astype(np.int8),
        rows_sms=tuple(tuple(ids[at : at + sms_per_row].tolist()) for at in range(0, sms, sms_per_row)),
        column_ns=states.duration_ns / columns,
        sms_per_row=sms_per_row,
    )


def _whole_time(states: SmStates, sms: int) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn]:
    """Every SM's time from T0 to T1 as stretches (sm, index into STATES, begin, end)."""
    segments: Segments = states.segments
    used = np.arange(len(states.sm_ids))
    unused = np.arange(len(used), sms)
    zero, duration = np.zeros(sms, np.int64), np.full(sms, states.duration_ns)
    parts = [
        (segments.sm, _FIRST_STATE - segments.state, segments.begin, segments.end),
        (used, np.full(len(used), _RAMP), zero[used], states.first_begin_ns),
        (used, np.full(len(used), _TAIL), states.last_end_ns, duration[used]),
        (unused, np.full(len(unused), _UNFILLED), zero[unused], duration[unused]),
    ]
    sm, state, begin, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    return sm, state, begin, end


def _spread(cell: IntColumn, at: IntColumn, duration: int, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """For each row, state and column: the sum over times of what lies of [0, time) in the column.

    Differences of this between ends and begins are the time per cell, in units of
    1 / columns ns, in which the columns' edges are whole numbers and the sums exact.
    `cell` is the flat index of a stretch's row and state in the first column.
    """
    columns = shape[2]
    column = np.minimum(at * columns // duration, columns - 1)
    inside = at * columns - column * duration  # in the column that the time falls into
    size = shape[0] * shape[1] * columns
    partial = np.bincount(cell + column, weights=inside, minlength=size).reshape(shape)
    reaching = np.bincount(cell + column, minlength=size).reshape(shape)
    past = reaching[:, :, ::-1].cumsum(axis=2)[:, :, ::-1] - reaching  # times that lie beyond the column
    return np.asarray(partial + past * duration, np.float64)
