"""The audit for other tools: one row a group, and one row a launch, as CSV; a null is an empty field."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from wavescope.audit.examine import Audit
from wavescope.audit.frames import group_row, launch_columns
from wavescope.audit.launches import NULL


def groups_table(audit: Audit) -> pa.Table:
    """One row a group, ranked; the columns of --json, lists as JSON text."""
    rows = [{name: _plain(value) for name, value in group_row(group).items()} for group in audit.groups]
    return pa.Table.from_pylist(rows)


def launches_table(audit: Audit) -> pa.Table:
    """One row a launch, in the order of the profiles."""
    return pa.concat_tables([_launches(launch_columns(profile)) for profile in audit.profiles])


def _launches(columns: dict[str, Any]) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        if values.dtype == object:
            arrays[name] = pa.array([_plain(value) for value in values.tolist()], pa.string())
        elif np.issubdtype(values.dtype, np.integer):
            arrays[name] = pa.array(values, mask=np.asarray(values == NULL))
        else:
            arrays[name] = pa.array(np.asarray(values, np.float64), mask=np.isnan(values))
    return pa.table(arrays)


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple) else value


def encode(table: pa.Table) -> bytes:
    """A table as CSV with a header line; text is quoted where it needs to be."""
    stream = io.BytesIO()
    pa_csv.write_csv(table, stream, pa_csv.WriteOptions(quoting_style="needed"))
    return stream.getvalue()
