"""Tables for other tools: the spans of a trace, and one row per SM, as CSV.

Spans have the trace file's columns; a null is an empty field.  `stall_clock` is a wait for
operands in a mac row, and in the row of the unit's span after it the copying warp's wait for
room (trace.Spans); empty where the kernel does not measure it.  SM rows hold the time in
each state in ns, which sums to `duration_ns`.
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
from wavescope.wave_report import STATES, WaveReport


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
    """One row a launch and SM: launch_id, sm (empty where it ran nothing), ns by state, duration_ns."""
    parts = []
    for report in reports:
        budget = report.budget
        ids = budget.sm_ids
        columns = {
            "launch_id": pa.array(np.full(len(ids), report.launch.launch_id, np.int64)),
            "sm": pa.array(ids, mask=ids == NULL),
            **{f"{name}_ns": pa.array(budget.per_sm[:, index]) for index, name in enumerate(STATES)},
            "duration_ns": pa.array(budget.per_sm.sum(axis=1)),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def encode(table: pa.Table) -> bytes:
    """A table of integers and plain words as CSV with a header line."""
    stream = io.BytesIO()
    stream.write((",".join(table.column_names) + "\n").encode())
    pa_csv.write_csv(table, stream, pa_csv.WriteOptions(include_header=False, quoting_style="none"))
    return stream.getvalue()
