"""The trace as one file: Parquet with a column for each field of Spans, and the launches' facts beside it.

The facts are JSON in the schema's metadata, under the key `wavescope` (trace_metadata).
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from wavescope.device import Device, known_device
from wavescope.errors import InputError, IntegrityError, NoKernels
from wavescope.output_file import write_atomically
from wavescope.trace import NULL, IntColumn, Kind, Spans, Trace
from wavescope.trace_metadata import MAX_COUNT, MAX_SMS, Metadata, decode, encode

METADATA_KEY = b"wavescope"
NULLABLE = ("cluster_id", "unit", "tile_m", "tile_n", "k_begin", "k_end", "stall_clock")
_MAGIC = b"PAR1"
# A kernel that runs for a day is a wrong number; the bound keeps sums of SM time within int64.
MAX_NS = 86_400 * 10**9
MAX_SPANS = 10**8  # 16 columns of 8 bytes: 13 GB
_TYPES: dict[str, Any] = {
    "launch_id": pa.int32(),
    "cta": pa.int32(),
    "cluster_id": pa.int32(),
    "lane": pa.int16(),
    "sm": pa.int32(),
    "unit": pa.int32(),
    "tile_m": pa.int32(),
    "tile_n": pa.int32(),
    "k_begin": pa.int32(),
    "k_end": pa.int32(),
    "kind": pa.string(),
    "begin_ns": pa.int64(),
    "end_ns": pa.int64(),
    "begin_clock": pa.int64(),
    "end_clock": pa.int64(),
    "stall_clock": pa.int64(),
}
_KIND_NAMES = {kind.name.lower(): int(kind) for kind in Kind}


def save(trace: Trace, path: str | Path) -> None:
    """Write `trace` to `path`, complete or not at all.

    Raises: OutputError where the file cannot be written; IntegrityError for values that
    the format does not hold (a negative SM id, say), which `load` would refuse.
    """
    try:
        text = encode(trace)
    except (TypeError, ValueError) as error:
        raise IntegrityError(f"the launches' facts cannot be written as JSON: {error}") from error
    schema = pa.schema([pa.field(name, kind, name in NULLABLE) for name, kind in _TYPES.items()])
    table = pa.table([_written(name, getattr(trace.spans, name)) for name in _TYPES], schema=schema)
    sink = pa.BufferOutputStream()
    # store_schema would hold everything a second time, in Arrow's own form
    with pq.ParquetWriter(
        sink, schema, compression="zstd", use_dictionary=["kind"], write_page_checksum=True, store_schema=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({METADATA_KEY: text})
    write_atomically(path, memoryview(sink.getvalue()))


def _written(name: str, values: IntColumn) -> pa.Array:
    """A column of Spans as the file has it."""
    if name == "kind":
        _hold(name, values, int(min(Kind)), int(max(Kind)))
        names = {number: word for word, number in _KIND_NAMES.items()}
        words = _strings([names.get(number, "") for number in range(max(Kind) + 1)])
        index = pa.Array.from_buffers(pa.int8(), len(values), [None, pa.py_buffer(values.astype(np.int8).tobytes())])
        return pa.DictionaryArray.from_arrays(index, words).cast(pa.string())
    kind = _TYPES[name]
    _hold(name, values, NULL if name in NULLABLE else 0, 2 ** (kind.bit_width - 1) - 1)
    # from buffers, as in _integers
    data = pa.py_buffer(values.astype(f"i{kind.bit_width // 8}").tobytes())
    valid = values != NULL
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, len(values), [bits, data])


def _hold(name: str, values: IntColumn, low: int, high: int) -> None:
    bad = (values < low) | (values > high)
    if bad.any():
        row = int(bad.argmax())
        raise IntegrityError(f"{name} is {values[row]} in span {row}, outside {low} to {high}; the record is broken")


def load(path: str | Path) -> Trace:
    """The Trace that `save` wrote, checked value by value.

    Raises: InputError for anything that is not such a file, with the file's name and
    the value; NoKernels for a trace without spans.
    """
    where = str(path)
    _check_magic(Path(path), where)
    try:
        with open(path, "rb") as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            num_rows = file.metadata.num_rows
            table = file.read() if num_rows <= MAX_SPANS else None
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        _refuse(where, f"the Parquet data is damaged ({_first_line(error)})", "copy or record it again")
    if table is None:
        _refuse(where, f"{num_rows} spans, more than {MAX_SPANS}", "record fewer launches")
    text = (table.schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        _refuse(
            where,
            "a Parquet file without the 'wavescope' metadata: not a trace, or re-saved by pandas, which drops it",
            "use the file that wavescope wrote",
        )
    metadata = decode(text, where)
    _check_names(table, where)
    if table.num_rows == 0:
        raise NoKernels(f"{where}: no spans in it, so no kernel ran while it was recorded; record it again")
    spans = Spans(**{name: _read(table.column(name), name, where) for name in _TYPES})
    _check_spans(spans, metadata, where)
    return Trace(metadata.tool_version, metadata.device, metadata.timer_step_ns, metadata.launches, spans)


def _refuse(where: str, what: str, advice: str = "record it again") -> NoReturn:
    raise InputError(f"{where}: {what}; {advice}")


def _first_line(error: BaseException) -> str:
    """The first line of a library's message, shortened."""
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _check_magic(path: Path, where: str) -> None:
    """Tell apart the ways of not being a Parquet file, before its library sees it."""
    try:
        if path.is_dir():
            _refuse(where, "a directory, not a trace file", "give a file in it")
        if path.exists() and not path.is_file():
            _refuse(where, "not a regular file", "give a trace file that wavescope wrote")
        with open(path, "rb") as source:
            head = source.read(4)
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - 4))
            tail = source.read(4)
    except FileNotFoundError:
        _refuse(where, "no such file", "give a trace file that wavescope wrote")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _refuse(where, f"cannot be read: {reason}", "give a trace file that wavescope wrote")
    if size == 0:
        _refuse(where, "the file is empty", "record it again")
    if head != _MAGIC:
        _refuse(where, f"not a Parquet file (it begins with {head!r})", "give a trace file that wavescope wrote")
    if tail != _MAGIC or size < 12:
        _refuse(where, f"truncated: its end is missing ({size} bytes are there)", "copy or record it again")


def _check_names(table: pa.Table, where: str) -> None:
    names = table.column_names
    for name in _TYPES:
        if names.count(name) != 1:
            _refuse(where, f"column '{name}' is {'there twice' if name in names else 'missing'}")
    for name in names:
        if name not in _TYPES:
            _refuse(where, f"column {reprlib.repr(name)} is none of a trace's", "use the file that wavescope wrote")


def _read(column: pa.ChunkedArray, name: str, where: str) -> IntColumn:
    """A column of the file as int64, NULL for null.

    No value but the clocks' meaning allows a negative number, and no clock is negative
    either, so that NULL cannot be mistaken and differences cannot overflow.
    """
    if name not in NULLABLE and column.null_count:
        row = pc.index(column.is_null(), pa.scalar(True)).as_py()
        _refuse(where, f"{name} is null in span {row}, and every span has one")
    if name == "kind":
        return _read_kind(column, where)
    if not pa.types.is_integer(column.type):
        _refuse(where, f"{name} holds {column.type} values{_odd_value(column)}, not integers")
    try:
        values, nulls = _integers(column.cast(pa.int64()))
    except pa.ArrowInvalid as error:  # uint64 above int64
        _refuse(where, f"{name} does not fit 63 bits ({_first_line(error)})")
    high = {"begin_ns": MAX_NS, "end_ns": MAX_NS}.get(name, 2**62 if "clock" in name else MAX_COUNT)
    bad = ((values < 0) | (values > high)) & ~nulls
    if bad.any():
        row = int(bad.argmax())
        _refuse(where, f"{name} is {values[row]} in span {row}, outside 0 to {high}")
    return values


def _integers(column: pa.ChunkedArray) -> tuple[IntColumn, NDArray[np.bool_]]:
    """An int64 column in memory, NULL where it is null, and where that is.

    From the buffers: pyarrow's own conversion of nulls imports pandas, half a second.
    """
    whole = column.combine_chunks()
    bits, data = whole.buffers()
    values = np.frombuffer(data, np.int64, len(whole), 8 * whole.offset).copy()
    nulls = np.zeros(len(whole), np.bool_)
    if whole.null_count:
        valid = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
        nulls = valid[whole.offset : whole.offset + len(whole)] == 0
        values[nulls] = NULL
    return values, nulls


def _strings(words: Sequence[str]) -> pa.Array:
    """Strings as Arrow has them; as in _integers, from buffers."""
    data = [word.encode() for word in words]
    offsets = np.cumsum([0, *map(len, data)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(words), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"".join(data))]
    )


def _odd_value(column: pa.ChunkedArray) -> str:
    """', for example nan in span 3' for the first value of a float column that is no integer."""
    if not pa.types.is_floating(column.type):
        return ""
    values = np.asarray(column.cast(pa.float64()).fill_null(0).to_numpy())
    odd = ~(np.isfinite(values) & (values == np.floor(values)))
    return f", for example {values[odd.argmax()]} in span {odd.argmax()}" if odd.any() else ""


def _read_kind(column: pa.ChunkedArray, where: str) -> IntColumn:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        _refuse(where, f"kind holds {column.type} values, not names")
    index = pc.index_in(column, _strings(list(_KIND_NAMES)).cast(column.type))
    if index.null_count:
        row = pc.index(index.is_null(), pa.scalar(True)).as_py()
        name = bytes(column.cast(pa.large_binary())[row].as_py()).decode(errors="backslashreplace")
        _refuse(where, f"kind is {reprlib.repr(name)} in span {row}, not one of {', '.join(_KIND_NAMES)}")
    values: IntColumn = np.array(list(_KIND_NAMES.values()), np.int64)[_integers(index.cast(pa.int64()))[0]]
    return values


def _check_spans(spans: Spans, metadata: Metadata, where: str) -> None:
    """Refuse what cannot be true of any recording: order of times, SM ids, launches, CTAs."""
    _check_sms(spans.sm, metadata.device, where)
    for begin, end in (("begin_ns", "end_ns"), ("begin_clock", "end_clock")):
        length = getattr(spans, end) - getattr(spans, begin)
        _refuse_first(length < 0, length, where, f"{end} - {begin}", "and no span ends before it begins")
    ranged = (spans.k_begin != NULL) & (spans.k_end != NULL)
    _refuse_first(ranged & (spans.k_end < spans.k_begin), spans.k_end, where, "k_end", "below its k_begin")
    _check_launches(spans, metadata, where)


def _check_sms(sm: IntColumn, device: Device, where: str) -> None:
    """SM ids that the product has, and not more of them than the context at hand.

    A MIG, MPS or green-context share keeps the whole product's ids, so its own SM count
    limits their number only.
    """
    product = known_device(device.name.partition(" MIG ")[0])
    highest = max(device.sms, product.sms) - 1 if product else MAX_SMS - 1
    _refuse_first(sm > highest, sm, where, "sm", f"outside 0 to {highest}, the SMs of {device.name}")
    used = len(np.unique(sm))
    if used > device.sms:
        _refuse(where, f"its spans name {used} SMs (the highest is sm {sm.max()}), and {device.name} has {device.sms}")


def _check_launches(spans: Spans, metadata: Metadata, where: str) -> None:
    """Each span belongs to a launch of the metadata and to a CTA of its grid; each launch has a first CTA."""
    launches = sorted(metadata.launches, key=lambda launch: launch.launch_id)
    ids = np.array([launch.launch_id for launch in launches], np.int64)
    grids = np.array([launch.grid for launch in launches], np.int64)
    unknown = ~np.isin(spans.launch_id, ids)
    _refuse_first(unknown, spans.launch_id, where, "launch_id", "which is no launch of its metadata")
    index = np.searchsorted(ids, spans.launch_id)
    _refuse_first(spans.cta >= grids[index], spans.cta, where, "cta", "outside its launch's grid")
    num_ctas = np.bincount(index[spans.kind == Kind.CTA], minlength=len(ids))
    if not num_ctas.all():
        _refuse(where, f"launch {ids[num_ctas.argmin()]} has no span of kind 'cta', so its begin is not known")


def _refuse_first(bad: NDArray[np.bool_], values: IntColumn, where: str, name: str, why: str) -> None:
    if bad.any():
        row = int(bad.argmax())
        _refuse(where, f"{name} is {values[row]} in span {row}, {why}")
