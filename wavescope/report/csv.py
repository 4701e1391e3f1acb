"""Tables for other tools: the spans of a trace, and one row per SM, as CSV.

Spans have the trace file's columns; a null is an empty field.  `stall_clock` is a wait for
operands in a mac row, and in the row of the unit's span after it the copying warp's wait for
room (trace.Spans); empty where the kernel does not measure it.  SM rows hold the time in
each state in ns, which sums to `duration_ns`, the cycles in which it was active (ncu's
sm__cycles_active), and the cycles of its units by what they went into (inside_tile), empty
where the launch did not measure how long they waited.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from wavescope.trace import NULL, Kind, Spans
from wavescope.trace_file import NULLABLE
from wavescope.wave_report import INSIDE_PARTS, STATES, InsideTile, WaveReport

_INSIDE_COLUMNS = {
    "pipe": "pipe_cycles",
    "operands": "operand_wait_cycles",
    "fill": "fill_cycles",
    "rest": "mac_rest_cycles",
    "epilogue": "epilogue_cycles",
    "drain": "drain_cycles",
    "room": "copier_wait_cycles",
}


def spans_table(spans: Spans) -> pa.Table:
    """One row a span, kinds by name."""
    columns = {}
    for column in fields(Spans):
        values = getattr(spans, column.name)
        if column.name == "kind":
            names = np.array(["", *(kind.name.lower() for kind in Kind)])
            columns["kind"] = pa.array(names[values])
        else:
            columns[column.name] = pa.array(values, mask=values == NULL if column.name in NULLABLE else None)
    return pa.table(columns)


def sms_table(reports: Iterable[WaveReport]) -> pa.Table:
    """One row a launch and SM: launch_id, sm (empty where it ran nothing), ns by state, duration_ns, cycles."""
    parts = []
    for report in reports:
        budget = report.budget
        ids = budget.sm_ids
        columns = {
            "launch_id": pa.array(np.full(len(ids), report.launch.launch_id, np.int64)),
            "sm": pa.array(ids, mask=ids == NULL),
            **{f"{name}_ns": pa.array(budget.per_sm[:, index]) for index, name in enumerate(STATES)},
            "duration_ns": pa.array(budget.per_sm.sum(axis=1)),
            "active_cycles": _active_column(report, len(ids)),
            **_inside_columns(report.inside, len(ids)),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def _active_column(report: WaveReport, rows: int) -> pa.Array:
    cycles = np.zeros(rows, np.int64)
    active = report.sm_active_cycles
    if active is not None:  # 0 for an SM that ran nothing
        cycles[: len(active)] = active
    return pa.array(cycles, mask=np.full(rows, active is None))


def _inside_columns(inside: InsideTile | None, rows: int) -> dict[str, pa.Array]:
    """Whole cycles by part; a wait's column says whose it is."""
    cycles = np.zeros((rows, len(INSIDE_PARTS)), np.int64)
    if inside is not None:  # an SM that ran nothing has 0 of everything
        cycles[: len(inside.per_sm)] = np.rint(inside.per_sm)
    nothing = np.full(rows, inside is None)
    return {_INSIDE_COLUMNS[name]: pa.array(cycles[:, at], mask=nothing) for at, name in enumerate(INSIDE_PARTS)}


def encode(table: pa.Table) -> bytes:
    """A table of integers and plain words as CSV with a header line."""
    stream = io.BytesIO()
    stream.write((",".join(table.column_names) + "\n").encode())
    pa_csv.write_csv(table, stream, pa_csv.WriteOptions(include_header=False, quoting_style="none"))
    return stream.getvalue()
