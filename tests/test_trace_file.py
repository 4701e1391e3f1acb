"""The trace file: what is saved is loaded again, and nothing that cannot be true is loaded."""

import json
import os
import random
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.synthetic import DEVICE, LAUNCH, Span, spans_from, trace_from
from wavescope.device import virtual_device
from wavescope.errors import InputError, IntegrityError, NoKernels, OutputError, WavescopeError
from wavescope.problem import Problem, Tile
from wavescope.stats import Estimate
from wavescope.trace import NULL, Kind, Spans, Timing, Trace
from wavescope.trace_file import load, save
from wavescope.trace_metadata import decode, encode

TIMING = Timing(
    "cool", Estimate(1000.5, 990.0, 1010.0, 41), Estimate(1001.0, 991.0, 1011.0, 41), Estimate(1.0, 0.9, 1.1, 41)
)


def small() -> Trace:
    """Two CTAs, one unit each, everything said that can be said."""
    rows = [
        Span(Kind.CTA, 0, 0, 0, 640),
        Span(Kind.MAC, 0, 0, 32, 512, unit=0, tile_m=0, tile_n=0, k_begin=0, k_end=8),
        Span(Kind.EPILOGUE, 0, 0, 512, 608, unit=0, tile_m=0, tile_n=0, k_begin=0, k_end=8),
        Span(Kind.CTA, 1, 3, 32, 704),
        Span(Kind.MAC, 1, 3, 64, 544, unit=1, tile_m=0, tile_n=1, k_begin=0, k_end=8, lane=1),
        Span(Kind.FIXUP, 1, 3, 544, 576, unit=1, tile_m=0, tile_n=1, k_begin=0, k_end=8),
        Span(Kind.WAIT, 1, 3, 576, 608, unit=1, tile_m=0, tile_n=1, k_begin=0, k_end=8),
        Span(Kind.EPILOGUE, 1, 3, 608, 672, unit=1, tile_m=0, tile_n=1, k_begin=0, k_end=8),
    ]
    return trace_from(
        rows,
        timer_step_ns=32,
        kernel="gemm_mma",
        schedule="fixed",
        raster="grouped8",
        problem=Problem(16, 32, 128),
        tile=Tile(16, 16, 16),
        t0_globaltimer_ns=1_795_960_170_590_331_264,
        timing=TIMING,
        verified={"integers": {"wrong": 0, "exact": True}, "normal": {"max_error": 1.5e-3}, "note": None},
        notes=("first\nsecond", "Ünïcode"),
    )


def equal(left: Trace, right: Trace) -> bool:
    """Whole objects: everything but the spans as dataclasses, the spans column by column."""
    facts = [(t.tool_version, t.device, t.timer_step_ns, t.launches) for t in (left, right)]
    columns = [f.name for f in fields(Spans)]
    return facts[0] == facts[1] and all(
        np.array_equal(getattr(left.spans, name), getattr(right.spans, name))
        and getattr(right.spans, name).dtype == np.int64
        for name in columns
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A saved trace."""
    path = tmp_path / "run.parquet"
    save(small(), path)
    return path


def test_round_trip(path: Path) -> None:
    assert equal(small(), load(path))
    assert equal(small(), load(str(path)))


def test_round_trip_of_several_launches(tmp_path: Path) -> None:
    trace = small()
    spans = Spans(*(np.concatenate([getattr(trace.spans, f.name)] * 2) for f in fields(Spans)))
    spans = replace(spans, launch_id=np.repeat([7, 3], len(trace.spans)))
    launches = tuple(replace(trace.launches[0], launch_id=number) for number in (3, 7))
    trace = replace(trace, launches=launches, spans=spans, device=virtual_device("h200"))
    save(trace, tmp_path / "two.parquet")
    assert equal(trace, load(tmp_path / "two.parquet"))


@given(
    columns=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([NULL, 0, 2**31 - 1]),
            st.integers(0, 10**12),
            st.integers(0, 10**12),
            st.integers(0, 2**61),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_round_trip_of_any_values(tmp_path_factory: pytest.TempPathFactory, columns: list[tuple[int, ...]]) -> None:
    spans = spans_from(
        [Span(Kind.CTA, 0, sm, begin, begin + length, unit=unit) for sm, unit, begin, length, _ in columns]
    )
    clock = np.array([row[4] for row in columns])
    spans = replace(spans, begin_clock=clock, end_clock=clock + 1, stall_clock=np.full(len(clock), NULL))
    trace = trace_from(spans)
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    save(trace, path)
    assert equal(trace, load(path))


def test_what_stands_in_the_file(path: Path) -> None:
    file = pq.ParquetFile(path)
    assert [f"{field.name} {field.type}{'?' if field.nullable else ''}" for field in file.schema_arrow] == [
        "launch_id int32",
        "cta int32",
        "cluster_id int32?",
        "lane int16",
        "sm int32",
        "unit int32?",
        "tile_m int32?",
        "tile_n int32?",
        "k_begin int32?",
        "k_end int32?",
        "kind string",
        "begin_ns int64",
        "end_ns int64",
        "begin_clock int64",
        "end_clock int64",
        "stall_clock int64?",
    ]
    assert file.metadata.row_group(0).column(11).compression == "ZSTD"
    table = file.read()
    assert table["kind"].to_pylist() == ["cta", "mac", "epilogue", "cta", "mac", "fixup", "wait", "epilogue"]
    assert table["unit"].to_pylist() == [None, 0, 0, None, 1, 1, 1, 1]
    document = json.loads(file.metadata.metadata[b"wavescope"])
    assert list(document) == ["schema_version", "tool_version", "device", "timer_step_ns", "launches"]
    assert document["schema_version"] == 1
    assert document["device"]["compute_capability"] == [9, 0]
    launch = document["launches"][0]
    assert launch["t0_globaltimer_ns"] == "1795960170590331264"
    assert launch["problem"] == {"m": 16, "n": 32, "k": 128, "dtype": "bf16", "layout": "tn"}
    assert launch["timing"]["perturbation"] == {"median": 1.0, "low": 0.9, "high": 1.1, "count": 41}


# Files that are no trace ------------------------------------------------------------


def write_table(path: Path, table: pa.Table, metadata: bytes | None = b"keep") -> None:
    """A Parquet file of `table` with the metadata of a good trace, other metadata, or none."""
    text = encode(small()).encode() if metadata == b"keep" else metadata
    pq.write_table(table.replace_schema_metadata({b"wavescope": text} if text is not None else None), path)


def refused(path: Path, match: str, error: type[WavescopeError] = InputError) -> None:
    with pytest.raises(error, match=match) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert type(caught.value) is error


def test_missing_directory_or_special(tmp_path: Path) -> None:
    refused(tmp_path / "none.parquet", "no such file")
    refused(tmp_path, "a directory, not a trace file")
    refused(Path("/dev/null"), "not a regular file")
    refused(tmp_path / ("x" * 300), "cannot be read: File name too long")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "the file is empty"),
        (b'{"traceEvents": []}', "not a Parquet file .it begins with b'{"),
        (b"PAR1", "truncated: its end is missing .4 bytes"),
        (b"PAR1\0\0\0\0PAR1", "the Parquet data is damaged"),
    ],
)
def test_not_parquet(tmp_path: Path, content: bytes, match: str) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    refused(path, match)


def test_truncated_anywhere(path: Path) -> None:
    content = path.read_bytes()
    for size in range(0, len(content), 97):
        path.write_bytes(content[:size])
        refused(path, "the file is empty" if size == 0 else "truncated: its end is missing")


def test_resaved_by_pandas(path: Path) -> None:
    pd.read_parquet(path).to_parquet(path)
    refused(
        path, "without the 'wavescope' metadata: not a trace, or re-saved by pandas, which drops it; use the file that"
    )


def test_no_spans(path: Path) -> None:
    write_table(path, pq.read_table(path).slice(0, 0))
    refused(path, "no spans in it", NoKernels)
    assert NoKernels.exit_code == 6


def test_a_flipped_bit_is_found_by_the_checksums(path: Path) -> None:
    """One clock off by a cycle: without checksums it would be believed."""
    table, clock = pq.read_table(path), (1_000_000 + 512).to_bytes(8, "little")
    for checksums in (False, True):
        pq.write_table(table, path, compression="none", use_dictionary=["kind"], write_page_checksum=checksums)
        content = bytearray(path.read_bytes())
        content[content.index(clock)] ^= 1
        path.write_bytes(content)
        if checksums:
            refused(path, "the Parquet data is damaged")
        else:
            assert not equal(small(), load(path))


# Columns that cannot be true --------------------------------------------------------


def with_column(name: str, values: list[Any], kind: Any = None) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, pa.array(values, kind or table[name].type))

    return change


def with_value(name: str, row: int, value: Any, kind: Any = None) -> Callable[[pa.Table], pa.Table]:
    """One value replaced; the column may have another type."""

    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        values[row] = value
        return with_column(name, values, kind)(table)

    return change


BAD_TABLES: list[tuple[Callable[[pa.Table], pa.Table], str]] = [
    (lambda table: table.drop_columns("sm"), "column 'sm' is missing"),
    (lambda table: table.append_column("extra", table["sm"]), "column 'extra' is none of a trace's"),
    (lambda table: table.append_column("sm", table["sm"]), "column 'sm' is there twice"),
    (with_value("begin_ns", 3, float("nan"), pa.float64()), "begin_ns holds double values, for example nan in span 3"),
    (with_value("end_ns", 0, 640.5, pa.float64()), "end_ns holds double values, for example 640.5 in span 0"),
    (with_value("end_ns", 0, 640.0, pa.float32()), "end_ns holds float values, not integers"),
    (with_column("begin_ns", ["0"] * 8, pa.string()), "begin_ns holds string values, not integers"),
    (with_column("kind", [1] * 8, pa.int8()), "kind holds int8 values, not names"),
    (with_value("begin_ns", 2, None), "begin_ns is null in span 2, and every span has one"),
    (with_value("cta", 5, None), "cta is null in span 5"),
    (with_value("kind", 1, None), "kind is null in span 1"),
    (with_value("kind", 1, "macs"), "kind is 'macs' in span 1, not one of cta, wait, epilogue, fixup, mac"),
    (with_value("begin_ns", 1, -32), "begin_ns is -32 in span 1, outside 0 to"),
    (with_value("unit", 1, -1), "unit is -1 in span 1, outside 0 to 2147483647"),
    (with_value("end_ns", 1, 2**60), "end_ns is 1152921504606846976 in span 1, outside 0 to 86400000000000"),
    (with_value("end_clock", 1, 2**64 - 1, pa.uint64()), "end_clock does not fit 63 bits"),
    (with_value("end_ns", 1, 0), "end_ns - begin_ns is -32 in span 1, and no span ends before it begins"),
    (with_value("end_clock", 4, 0), "end_clock - begin_clock is -3333395 in span 4"),
    (with_value("k_begin", 1, 9), "k_end is 8 in span 1, below its k_begin"),
    (with_value("launch_id", 7, 5), "launch_id is 5 in span 7, which is no launch of its metadata"),
    (with_value("cta", 7, 2), "cta is 2 in span 7, outside its launch's grid"),
    (with_value("sm", 7, -1), "sm is -1 in span 7, outside 0 to"),
    (with_value("sm", 7, 65536), "sm is 65536 in span 7, outside 0 to 65535, the SMs of Test GPU"),
    (with_column("sm", [0, 1, 2, 3, 4, 5, 6, 9]), "its spans name 8 SMs .the highest is sm 9., and Test GPU has 4"),
    (with_column("kind", ["mac"] * 8), "launch 0 has no span of kind 'cta', so its begin is not known"),
]


@pytest.mark.parametrize(("change", "match"), BAD_TABLES, ids=[match[:40] for _, match in BAD_TABLES])
def test_bad_columns(path: Path, change: Callable[[pa.Table], pa.Table], match: str) -> None:
    write_table(path, change(pq.read_table(path)))
    refused(path, match)


def test_wider_integers_and_dictionaries_are_read(path: Path) -> None:
    table = pq.read_table(path)
    for name in table.column_names:
        values = table[name].dictionary_encode() if name == "kind" else table[name].cast(pa.int64())
        table = table.set_column(table.column_names.index(name), name, values)
    write_table(path, table)
    assert equal(small(), load(path))


def test_sm_ids_of_a_known_product(path: Path) -> None:
    """The H200 has SMs 0 to 131; a share of it keeps these ids, and is told by their number."""
    whole = virtual_device("h200")
    trace = small()
    sm = np.where(trace.spans.cta == 0, 130, 131)
    for device in (whole, replace(whole, name="NVIDIA H200 MIG 1g.18gb", sms=16)):
        changed = replace(trace, device=device, spans=replace(trace.spans, sm=sm))
        save(changed, path)
        assert equal(changed, load(path))
        save(replace(changed, spans=replace(trace.spans, sm=sm + 1)), path)
        refused(path, "sm is 132 in span 3, outside 0 to 131, the SMs of NVIDIA H200")


# Metadata that cannot be true -------------------------------------------------------


def edited(*keys: Any, value: Any) -> bytes:
    """The good metadata with one field replaced, or removed where `value` is ..."""
    document = json.loads(encode(small()))
    inner = document
    for key in keys[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    return json.dumps(document).encode()


BAD_METADATA: list[tuple[bytes, str]] = [
    (b"", "is not JSON"),
    (b"{", "is not JSON"),
    (b"\xff\xfe{}", "is not JSON"),
    (b"[" * 100_000, "is not JSON"),
    (b"[]", "is \\[\\], not an object"),
    (b'{"schema_version": 1}', "field 'launches' is missing"),
    (
        edited("schema_version", value=2),
        "schema_version is 2, and this wavescope reads 1: use the version that wrote it",
    ),
    (edited("launches", 0, "schedule", value="foo"), "schedule is 'foo', none of fixed, persistent"),
    (edited("launches", 0, "raster", value="zig"), "raster: raster 'zig' is unknown"),
    (edited("launches", 0, "ctas_per_sm", value=999), "ctas_per_sm is 999, more than any GPU holds"),
    (edited("schema_version", value="1"), "schema_version is '1', and this wavescope reads 1"),
    (edited("schema_version", value=True), "schema_version is True, and this wavescope reads 1"),
    (edited("schema_version", value=...), "schema_version is None, and this wavescope reads 1"),
    (edited("tool_version", value=...), "field 'tool_version' is missing"),
    (edited("device", value=...), "field 'device' is missing"),
    (edited("device", value="H200"), "device is 'H200', not an object"),
    (edited("device", "sms", value=...), "field 'device.sms' is missing"),
    (edited("device", "sms", value=0), "device.sms is 0, outside 1 to 65536"),
    (edited("device", "sms", value=-5), "device.sms is -5"),
    (edited("device", "sms", value=10**12), "device.sms is 1000000000000"),
    (edited("device", "sms", value=4.0), "device.sms is 4.0, not int"),
    (edited("device", "sms", value=True), "device.sms is True, not int"),
    (edited("device", "sms", value=None), "device.sms is None, not int"),
    (edited("device", "max_clock_mhz", value=0), "device.max_clock_mhz is 0.0, outside 1 to 100000"),
    (edited("device", "max_clock_mhz", value=float("nan")), "is not JSON"),
    (edited("device", "registers_per_sm", value=0), "device.registers_per_sm is 0, outside 1 to"),
    (edited("device", "compute_capability", value=[9]), "device.compute_capability is \\[9\\], not tuple"),
    (edited("device", "peak_tflops", value={"bf16": "fast"}), "device.peak_tflops\\['bf16'\\] is 'fast', not float"),
    (edited("device", "name", value="\x1b[2J"), "device.name holds the character '\\\\x1b'"),
    (edited("device", "name", value="\ud800"), "device.name holds the character '\\\\ud800'"),
    (edited("device", "colour", value=1), "field 'colour' of device is unknown"),
    (edited("timer_step_ns", value=0), "timer_step_ns is 0, outside 1"),
    (edited("launches", value={}), "launches is {}, not tuple"),
    (edited("launches", value=[1]), "launches\\[0\\] is 1, not an object"),
    (edited("launches", 0, "source", value="guessed"), "source is 'guessed', not 'measured' or 'simulated'"),
    (edited("launches", 0, "grid", value=...), "field 'launches\\[0\\].grid' is missing"),
    (edited("launches", 0, "grid", value=0), "launches\\[0\\].grid is 0, outside 1 to"),
    (edited("launches", 0, "places", value=5), "places is 5, more than 1 CTAs on each of 4 SMs"),
    (edited("launches", 0, "order", value="longest"), "order is 'longest', not 'raster' or 'lpt'"),
    (edited("launches", 0, "work", value="ragged"), "launches\\[0\\].work: work 'ragged' lacks its number"),
    (edited("launches", 0, "work", value="ragged:07"), "launches\\[0\\].work is 'ragged:07', and should be ragged:7"),
    (edited("launches", 0, "work", value="skip:0.5"), "work is 'skip:0.5', and should be skip:0.5:0"),
    (edited("launches", 0, "work", value="skip:1.0:0"), "work skip:1.0:0: 1 is no share of the k_iters"),
    (edited("launches", 0, "work", value=7), "launches\\[0\\].work is 7, not str"),
    (edited("launches", 0, "t0_globaltimer_ns", value=5), "t0_globaltimer_ns is 5, not a string of digits"),
    (edited("launches", 0, "t0_globaltimer_ns", value="-5"), "t0_globaltimer_ns is '-5', not a string of digits"),
    (edited("launches", 0, "problem", "m", value=0), "launches\\[0\\].problem: m=0 is outside"),
    (edited("launches", 0, "problem", "dtype", value="int4"), "problem.dtype is 'int4', not 'bf16' or"),
    (edited("launches", 0, "tile", "k", value=-1), "launches\\[0\\].tile: tile 16x16x-1 has a size below 1"),
    (edited("launches", 0, "timing", "plain_ns", "median", value=0), "timing.plain_ns is 0.0 over 41 samples"),
    (
        edited("launches", 0, "timing", "probed_ns", "low", value=0.5),
        "timing.probed_ns is 1001.0 .* from 0.5 to 1011.0",
    ),
    (edited("launches", 0, "timing", "plain_ns", "high", value=-5), "timing.plain_ns is 1000.5 .* from 990.0 to -5.0"),
    (edited("launches", 0, "timing", "plain_ns", "high", value=2e15), "within its interval and 1 to 1e\\+15"),
    (edited("launches", 0, "timing", "perturbation", "high", value=101), "from 0.9 to 101.0, .* 0.01 to 100"),
    (edited("launches", 0, "timing", "plain_ns", "count", value=0), "timing.plain_ns is 1000.5 over 0 samples"),
    (edited("launches", 0, "verified", value={"a": "\x1b[2J"}), "verified\\['a'\\] holds the character '\\\\x1b'"),
    (edited("launches", 0, "verified", value={"a": {"b\x07": 1}}), "holds the character '\\\\x07'"),
    (edited("launches", 0, "verified", value={"a": {"b": {"c": {}}}}), "\\['c'\\] lies deeper than 3 levels"),
    (edited("launches", 0, "verified", value={"a": {"b": ["c"]}}), "is \\['c'\\], not text, a number"),
    (edited("launches", 0, "verified", value={"a": {"b": 10**301}}), "not text, a number, true"),
    (
        edited("launches", 0, "verified", value={"a": {"worst_error": None}}),
        "\\['worst_error'\\] is None, not a number",
    ),
]


@pytest.mark.parametrize(("text", "match"), BAD_METADATA, ids=[match[:40] for _, match in BAD_METADATA])
def test_bad_metadata(path: Path, text: bytes, match: str) -> None:
    write_table(path, pq.read_table(path), text)
    refused(path, match)


def test_work_of_no_known_tiles(path: Path) -> None:
    document = json.loads(encode(small()))
    document["launches"][0] |= {"work": "ragged:7", "tile": None}
    write_table(path, pq.read_table(path), json.dumps(document).encode())
    refused(path, "launches\\[0\\].work is ragged:7, of no known problem or tile")


def test_work_and_order_come_back(path: Path) -> None:
    trace = small()
    launch = replace(trace.launches[0], work="skip:0.25:3", order="lpt")
    save(replace(trace, launches=(launch,)), path)
    assert load(path).launches == (launch,)


def test_repeated_launch_ids(path: Path) -> None:
    document = json.loads(encode(small()))
    document["launches"] *= 2
    write_table(path, pq.read_table(path), json.dumps(document).encode())
    refused(path, "launch ids \\[0, 0\\] repeat")


def test_fields_with_a_default_may_be_missing() -> None:
    document = json.loads(encode(trace_from([Span(Kind.CTA, 0, 0, 0, 32)])))
    for name in ("stream", "timing", "verified", "notes", "parts", "reduction", "work", "order"):
        del document["launches"][0][name]
    assert decode(json.dumps(document).encode(), "x").launches == (LAUNCH,)
    assert decode(json.dumps(document).encode(), "x").device == DEVICE


# Damage at random -------------------------------------------------------------------


@pytest.mark.parametrize("checksums", [True, False])
def test_damaged_files_never_crash(path: Path, checksums: bool) -> None:
    """Any change of bytes leads to a trace or to one of our errors; seeded, so it repeats."""
    if not checksums:  # so that damaged values get as far as the decoders
        pq.write_table(pq.read_table(path), path, compression="none", use_dictionary=["kind", "sm"])
    content, rng = path.read_bytes(), random.Random(20261129)
    loaded, messages = 0, []
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(len(damaged))
            if rng.random() < 0.8:
                damaged[at] = rng.randrange(256)
            elif rng.random() < 0.5:
                del damaged[at : at + rng.randrange(20)]
            else:
                damaged[at:at] = rng.randbytes(rng.randrange(20))
        path.write_bytes(damaged)
        try:
            load(path)
            loaded += 1
        except WavescopeError as error:
            messages.append(str(error))
    assert loaded > 0
    assert len(messages) > 100
    assert not [message for message in messages if "\n" in message or not message.startswith(str(path))]


# Saving -----------------------------------------------------------------------------


def test_values_the_format_does_not_hold(tmp_path: Path) -> None:
    trace = small()
    for name, value, match in [
        ("sm", -1, "sm is -1 in span 0, outside 0 to 2147483647"),
        ("cta", 2**31, "cta is 2147483648 in span 0"),
        ("unit", -2, "unit is -2 in span 0, outside -1 to"),
        ("kind", 0, "kind is 0 in span 0, outside 1 to 5"),
        ("kind", 6, "kind is 6 in span 0, outside 1 to 5"),
    ]:
        column = getattr(trace.spans, name).copy()
        column[0] = value
        with pytest.raises(IntegrityError, match=match):
            save(replace(trace, spans=replace(trace.spans, **{name: column})), tmp_path / "x.parquet")
    launch = replace(trace.launches[0], verified={"error": float("inf")})
    with pytest.raises(IntegrityError, match="cannot be written as JSON"):
        save(replace(trace, launches=(launch,)), tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_numpy_numbers_among_the_facts(tmp_path: Path) -> None:
    trace = small()
    launch = replace(trace.launches[0], grid=np.int64(2), verified={"max": np.float32(0.5)})  # type: ignore[arg-type]
    save(replace(trace, launches=(launch,)), tmp_path / "x.parquet")
    assert load(tmp_path / "x.parquet").launches == (launch,)


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("none/x.parquet", "none/x.parquet': No such file or directory; create the directory first"),
        ("", "Is a directory; give the name of a file in it"),
        ("file/x.parquet", "Not a directory; give a path whose parent is a directory"),
        ("x" * 300, "File name too long; give a shorter name"),
        ("x\0y", "embedded null"),
    ],
)
def test_unwritable(tmp_path: Path, name: str, match: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=match) as caught:
        save(small(), f"{tmp_path}/{name}")
    assert str(caught.value).startswith("cannot write ")
    assert caught.value.exit_code == 8
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk() -> None:
    with pytest.raises(OutputError, match="'/dev/full': No space left on device; free some space"):
        save(small(), "/dev/full")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("step", ["open", "write", "replace"])
@pytest.mark.parametrize(
    "raised", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["ctrl-c", "full"]
)
def test_nothing_half_written(path: Path, monkeypatch: pytest.MonkeyPatch, step: str, raised: BaseException) -> None:
    """What stood at the path stays, and no temporary file is left, wherever writing ends."""

    class Interrupted:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> "Interrupted":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[:10])
            raise raised

    def fail(*_: object) -> None:
        raise raised

    before = path.read_bytes()
    if step == "replace":
        monkeypatch.setattr(os, "replace", fail)
    else:
        opener = fail if step == "open" else lambda name, mode: Interrupted(open(name, mode))  # noqa: SIM115
        monkeypatch.setattr("wavescope.output_file.open", opener, raising=False)
    with pytest.raises(KeyboardInterrupt if isinstance(raised, KeyboardInterrupt) else OutputError):
        save(replace(small(), timer_step_ns=1), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_an_old_file_is_replaced_through_a_link_and_keeps_its_mode(path: Path) -> None:
    link = path.with_name("link.parquet")
    link.symlink_to(path)
    path.chmod(0o640)
    newer = replace(small(), timer_step_ns=1)
    save(newer, link)
    assert link.is_symlink()
    assert equal(newer, load(path))
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_read_only(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(OutputError, match="Permission denied; write to a place you may write to"):
        save(small(), path)
