"""PyTorch operators of an nsys export: the NVTX ranges of torch.autograd.profiler.emit_nvtx."""

from __future__ import annotations

import re

import numpy as np

from wavescope.audit.database import Database, integers, rows
from wavescope.audit.kineto_values import Shapes, shapes
from wavescope.audit.launches import NULL, IntColumn, ObjectColumn
from wavescope.audit.links import Spans, enclosing, rows_of, values_at
from wavescope.audit.table import chosen

# "aten::mm, seq = 5, op_id = 12, sizes = [[64, 32], [32, 8]]", in every version a part of it
_OPERATOR = "text LIKE 'aten::%' OR text LIKE '%, seq = %' OR text LIKE '%, op_id = %' OR text LIKE '%, sizes = %'"
_SUFFIX = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
_SIZES = re.compile(r", sizes = (\[[\[\], \d]*\])")
_CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")


def operators(database: Database, correlation: IntColumn, process: IntColumn) -> tuple[ObjectColumn, ObjectColumn]:
    """The name and the input shapes of each kernel's operator, None where the export does not say."""
    ranges = database.table("NVTX_EVENTS")
    calls = next((name for table in _CALL_TABLES if (name := database.table(table))), None)
    nothing = chosen([], np.full(len(correlation), NULL))
    if ranges is None or calls is None or not database.has(ranges, "text"):
        return nothing, nothing
    found: dict[tuple[str, str], int] = {}
    spans: list[tuple[int, int, int, int]] = []
    for begin, end, thread, text in rows(database, ranges, ["start", "end", "globalTid", "text"], _OPERATOR):
        if isinstance(begin, int) and isinstance(end, int) and isinstance(thread, int) and isinstance(text, str):
            sizes = _SIZES.search(text)
            signature = _SUFFIX.sub("", text), sizes[1] if sizes else ""
            spans.append((thread, begin, end, found.setdefault(signature, len(found))))
    if not spans:
        return nothing, nothing
    row = _operator_rows(database, calls, correlation, process, np.array(spans, np.int64))
    signature_of: list[Shapes | None] = [shapes(sizes.encode()) for _, sizes in found]
    return chosen([name for name, _ in found], row), chosen(signature_of, row)


def _operator_rows(
    database: Database, calls: str, correlation: IntColumn, process: IntColumn, spans: IntColumn
) -> IntColumn:
    """For each kernel the signature of the innermost operator around its call, NULL for none."""
    facts = integers(database, calls, ("correlationId", "globalTid", "start"))
    caller = np.where(facts["globalTid"] == NULL, NULL, facts["globalTid"] >> 24 & 0xFFFFFF)
    call = rows_of(_keys(correlation, process), _keys(facts["correlationId"], caller))
    row = np.full(len(correlation), NULL, np.int64)
    called = call[call != NULL]
    moment = facts["start"][called]
    row[call != NULL] = enclosing(
        Spans(facts["globalTid"][called], moment, moment), Spans(spans[:, 0], spans[:, 1], spans[:, 2])
    )
    return values_at(spans[:, 3], row).astype(np.int64)


def _keys(correlation: IntColumn, process: IntColumn) -> IntColumn:
    """One number for a process and its correlation id, NULL where either is not known."""
    known = (correlation > 0) & (correlation < 2**38) & (process >= 0)
    return np.where(known, process << 38 | correlation, NULL)
