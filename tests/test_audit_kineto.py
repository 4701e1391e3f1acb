"""PyTorch traces: what is read of them, old and odd ones, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_profiles import COPY, GEMM, H200, as_kineto_writes, call_event, kernel_event, kineto_trace, operator_event
from hypothesis import given
from hypothesis import strategies as st

from wavescope.audit import json_stream, kineto, source
from wavescope.audit.kineto_values import nanoseconds, shapes, text
from wavescope.audit.launches import NULL, Launches, ProfiledDevice
from wavescope.errors import InputError, NoKernels

DATA = Path(__file__).parent / "data" / "h200"


def read_text(tmp_path: Path, content: str | bytes) -> Launches:
    path = tmp_path / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return kineto.read(path)


def read_trace(tmp_path: Path, *events: dict[str, Any], **members: object) -> Launches:
    return read_text(tmp_path, json.dumps(kineto_trace(events, **members)))


def test_every_column_of_one_kernel(tmp_path: Path) -> None:
    launches = read_trace(tmp_path, operator_event(), call_event(), kernel_event())
    row = {name: values[0] for name, values in vars(launches).items() if isinstance(values, np.ndarray)}
    nan = ("sm_active_avg_over_max", "sm_active_share")
    assert all(np.isnan(row.pop(name)) for name in nan)
    assert {
        name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value for name, value in row.items()
    } == {
        "name": GEMM,
        "device": 0,
        "stream": 7,
        "start_ns": 1_000_500,
        "duration_ns": 58_240,
        "grid": [2, 66, 1],
        "block": [384, 1, 1],
        "cluster": [NULL] * 3,
        "registers": 168,
        "shared_static": NULL,
        "shared_dynamic": 206044,
        "max_active_clusters": NULL,
        "context_sms": NULL,
        "graph": NULL,
        "operator": "aten::mm",
        "shapes": ((2304, 4096), (4096, 2304)),
        "profile_occupancy": 0.0,
        "activity": None,
    }
    assert launches.kind == "kineto"
    assert launches.notes == ()
    # the clock is the product's, from the device table
    assert launches.devices == (
        ProfiledDevice(0, "NVIDIA H200", (9, 0), 132, 65536, 233472, 232448, 2048, 1980.0, "profile"),
    )


def test_columns_are_in_order_of_start_and_read_only(tmp_path: Path) -> None:
    launches = read_trace(tmp_path, *(kernel_event(ts=ts, dur=1, stream=ts) for ts in (30, 10, 20)))
    assert launches.start_ns.tolist() == [10_000, 20_000, 30_000]
    assert launches.stream.tolist() == [10, 20, 30]
    with pytest.raises(ValueError, match="read-only"):
        launches.duration_ns[0] = 1


@pytest.mark.parametrize(
    "layout", [as_kineto_writes, json.dumps, lambda trace: json.dumps(trace, separators=(",", ":"))]
)
@pytest.mark.parametrize("piece", [64, 1 << 20])
def test_layout_and_piece_size_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, piece: int
) -> None:
    monkeypatch.setattr(source, "PIECE", piece)
    nested = {"ph": "i", "cat": "x", "args": {"list": [{"a": 1}, {"b": "}, {"}, {"c": []}] * 9}}
    events = [event for ts in range(40) for event in (kernel_event(ts=ts * 100), nested, operator_event(COPY))]
    launches = read_text(tmp_path, layout(kineto_trace(events, last={"a": [{"b": 1}, {"c": 2}]})))
    assert launches.start_ns.tolist() == [ts * 100_000 for ts in range(40)]


def test_a_bare_list_and_members_behind_the_events(tmp_path: Path) -> None:
    assert len(read_text(tmp_path, json.dumps([kernel_event(), kernel_event(ts=2000)]))) == 2
    behind = {"traceEvents": [kernel_event()], "deviceProperties": [H200]}
    assert read_text(tmp_path, json.dumps(behind)).devices[0].name == "NVIDIA H200"


def test_gzip_of_several_members(tmp_path: Path) -> None:
    whole = json.dumps(kineto_trace([kernel_event()])).encode()
    packed = gzip.compress(whole[:500]) + gzip.compress(whole[500:]) + bytes(20)
    assert len(read_text(tmp_path, packed)) == 1


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        ('"name": "C:\\Users\\x"', "C:/Users/x"),
        ('"name": "C:\\dir\\"', "C:/dir/"),
        ('"name": "a\tb\x01c"', "a b c"),
        ('"name": "ok", "bandwidth": inf, "x": [NaN, -Infinity, nan(ind)]', "ok"),
        ('"name": "half \\ud83d pair"', "half /ud83d pair"),
        ('"name": "\\ud83d\\ude00 \\u00e9"', "\U0001f600 \u00e9"),
    ],
)
def test_damage_of_writers_is_repaired(tmp_path: Path, broken: str, name: str) -> None:
    content = json.dumps(kineto_trace([kernel_event("NAME", ts=1), kernel_event(ts=2000)]))
    launches = read_text(tmp_path, content.replace('"name": "NAME"', broken))
    assert launches.name.tolist() == [name, GEMM]


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    content = json.dumps(kineto_trace([kernel_event("NAME")])).encode()
    assert read_text(tmp_path, content.replace(b"NAME", b"a\xff\xfeb")).name[0] == "a\ufffd\ufffdb"


def test_times_without_belief_are_counted_and_left_out(tmp_path: Path) -> None:
    odd = json.dumps(kineto_trace([kernel_event(ts=10 * i, dur=dur) for i, dur in enumerate((1, 0, -4, 1e12, "x"))]))
    launches = read_text(tmp_path, odd.replace('"dur": "x"', '"dur": NaN'))
    assert launches.duration_ns.tolist() == [1000, 0, NULL, NULL, NULL]
    assert launches.notes == (
        "3 kernels have no believable time (missing, negative or above a day); not in any sum of time",
        "1 kernel has a duration of 0; they add nothing to the sums",
    )


def test_overlap_on_a_stream(tmp_path: Path) -> None:
    """3 us past the next one's start is a dependent launch, 400 us a wrong end; a graph's branches are exempt."""
    launches = read_trace(
        tmp_path,
        kernel_event(ts=100, dur=13),
        kernel_event(ts=110, dur=500),
        kernel_event(ts=210, dur=1, stream=8),
        kernel_event(ts=210.5, dur=10),
        call_event("cudaGraphLaunch", ts=1, correlation=9),
        kernel_event(ts=1000, dur=100, correlation=9, stream=9),
        kernel_event(ts=1010, dur=10, correlation=9, stream=9),
    )
    assert launches.duration_ns.tolist() == [13_000, 100_500, 1_000, 10_000, 100_000, 10_000]
    assert launches.graph.tolist() == [NULL, NULL, NULL, NULL, 9, 9]
    assert launches.notes == (
        "1 kernel overlaps the next one on the same stream, by up to 3.000 us: dependent launches",
        "1 kernel ends more than 10 us after the next one on the same stream began, which cannot be; cut there, "
        "0.400 ms taken off",
    )


@pytest.mark.parametrize(("over_us", "duration_us"), [(9.999, 109.999), (10.0, 110.0), (10.001, 100.0)])
def test_up_to_ten_microseconds_of_overlap_are_legal(tmp_path: Path, over_us: float, duration_us: float) -> None:
    launches = read_trace(tmp_path, kernel_event(ts=100, dur=100 + over_us), kernel_event(ts=200, dur=500))
    assert launches.duration_ns[0] == duration_us * 1000


def test_kernels_outside_the_window_or_before_their_launch(tmp_path: Path) -> None:
    window = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 500, "dur": 1000}
    launches = read_trace(
        tmp_path, window, call_event(ts=910), kernel_event(ts=905.5), kernel_event(ts=1501, correlation=71)
    )
    assert launches.notes == (
        "1 kernel begins outside the profiling window",
        "1 kernel begins before the call that launched it: host and GPU clocks disagree, compare no times across them",
    )


def test_whole_microseconds_are_said(tmp_path: Path) -> None:
    launches = read_trace(tmp_path, *(kernel_event(ts=100 * i, dur=i + 1) for i in range(10)))
    assert launches.notes == ("times are whole microseconds, so each duration is off by up to 1 us",)


def test_old_traces(tmp_path: Path) -> None:
    """2021: other category names, text as thread id, no device properties, warps instead of blocks per SM."""
    kernel = kernel_event(ts=1610366728298146, dur=90, grid=[25088, 1, 1], block=[64, 1, 1])
    kernel |= {"cat": "Kernel", "tid": "stream 7"}
    kernel["args"] |= {"warps per SM": 627.2, "external id": 2}
    del kernel["args"]["blocks per SM"], kernel["args"]["External id"]
    operator = operator_event() | {"cat": "Operator", "tid": "3004819264"}
    operator["args"] = {"External id": 2, "Input dims": [[8, 4], []]}
    launches = read_trace(tmp_path, operator, kernel, deviceProperties=None)
    # 25088 blocks of 2 warps: 50176 warps / 627.2 = 80 SMs
    assert (launches.devices[0].sms, launches.devices[0].sms_source) == (80, "blocks per SM")
    assert launches.start_ns.tolist() == [1610366728298146000]
    assert (launches.operator[0], launches.shapes[0]) == ("aten::mm", ((8, 4), ()))


def test_sm_count_that_launches_contradict_is_unknown(tmp_path: Path) -> None:
    ratios = {"blocks per SM": 1.0}, {"blocks per SM": 1.2}
    launches = read_trace(
        tmp_path, *(kernel_event(ts=1000 * i, **r) for i, r in enumerate(ratios)), deviceProperties=[]
    )
    assert launches.devices[0].sms is None


@pytest.mark.parametrize("sms", [1, 36, 80, 108, 132, 148, 208])
def test_sm_count_from_printed_ratios(tmp_path: Path, sms: int) -> None:
    events = [
        kernel_event(ts=1000 * blocks, grid=[blocks, 1, 1], **{"blocks per SM": float(f"{blocks / sms:.6g}")})
        for blocks in (1, 3, 96, 6216)
    ]
    launches = read_trace(tmp_path, *events, deviceProperties=None)
    assert launches.devices[0].sms == sms


@pytest.mark.parametrize("facts", [{"name": "AMD Radeon Graphics"}, {"name": "gfx", "warpSize": 64}])
def test_amd_has_no_grid_and_no_capability(tmp_path: Path, facts: dict[str, object]) -> None:
    launches = read_trace(
        tmp_path,
        kernel_event(grid=None, block=None, device=2, **{"blocks per SM": None}),
        deviceProperties=[H200 | facts],
    )
    assert launches.grid.tolist() == [[NULL] * 3]
    assert launches.devices[0].compute_capability is None
    assert launches.devices[0].index == 2
    assert launches.notes == ("an AMD GPU: its kernels are listed, their waves are not assessed",)


def test_several_gpus_keep_their_own_properties(tmp_path: Path) -> None:
    gpus = [H200, H200 | {"id": 1, "name": "other", "numSms": 20}]
    launches = read_trace(tmp_path, kernel_event(), kernel_event(ts=2000, device=1), deviceProperties=gpus)
    assert [(device.index, device.sms) for device in launches.devices] == [(0, 132), (1, 20)]


def test_operator_by_time_where_ids_are_correlation_ids(tmp_path: Path) -> None:
    """2022: the kernel's external id is its correlation id, which is some other operator's id by chance."""
    outer = operator_event("aten::linear", ts=100, dur=100, **{"External id": 1})
    inner = operator_event("aten::addmm", ts=120, dur=50, **{"External id": 2})
    other = operator_event("aten::relu", ts=300, dur=50, **{"External id": 70})
    launches = read_trace(
        tmp_path,
        *(outer, inner, other),
        *(call_event(ts=ts, correlation=70 + i) for i, ts in enumerate((130, 180, 250))),
        *(kernel_event(ts=1000 * (i + 1), correlation=70 + i, **{"External id": 70 + i}) for i in range(3)),
    )
    assert launches.operator.tolist() == ["aten::addmm", "aten::linear", None]


def test_kernels_of_a_graph_have_no_operator(tmp_path: Path) -> None:
    launches = read_trace(tmp_path, operator_event(), call_event("cudaGraphLaunch"), kernel_event())
    assert launches.operator.tolist() == [None]
    assert launches.graph.tolist() == [70]


@pytest.mark.parametrize(
    ("args", "column", "value"),
    [
        ({"grid": [2, 66]}, "grid", [NULL] * 3),
        ({"grid": [2, 0, 1]}, "grid", [NULL] * 3),
        ({"grid": [2, 10**9, 1]}, "grid", [NULL] * 3),
        ({"grid": "2, 66, 1"}, "grid", [NULL] * 3),
        ({"block": [1024, 2, 1]}, "block", [NULL] * 3),
        ({"registers per thread": None}, "registers", NULL),
        ({"registers per thread": -3}, "registers", NULL),
        ({"registers per thread": 10**30}, "registers", NULL),
        ({"registers per thread": "40"}, "registers", 40),
        ({"stream": None}, "stream", NULL),
        ({"device": None}, "device", NULL),
        ({"graph id": 5}, "graph", 5),
    ],
)
def test_values_that_cannot_be_are_null(tmp_path: Path, args: dict[str, object], column: str, value: object) -> None:
    launches = read_trace(tmp_path, kernel_event(**args))
    assert getattr(launches, column)[0].tolist() == value
    assert launches.name[0] == GEMM


def test_events_that_are_no_objects_are_passed_over(tmp_path: Path) -> None:
    assert len(read_text(tmp_path, json.dumps(kineto_trace([None, 5, [], kernel_event(), {"args": 3}])))) == 1  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{}", "JSON, but not a trace: no list 'traceEvents' (members: none)"),
        ('{"a": 1, "b\nc": {"c": [1]}}', "(members: a, b c)"),
        ('{"traceEvents": 3}', "no list 'traceEvents'"),
        ('{"traceEvents": [{"cat": "kernel"}', "truncated: the JSON text ends at byte 34"),
        ('{"traceEvents": [{"cat": "kernel"}]', "truncated: the JSON text ends at byte 35"),
        ('{"a": "x', "truncated: the JSON text ends at byte 8"),
        ('{"traceEvents": [{"cat" "kernel"}]}', "not JSON at byte 24"),
        ('{"a" 1}', "not JSON at byte 5: a colon is missing"),
        ('{"a": 1 "b"}', "not JSON at byte 8: a comma or the closing brace is missing"),
        ("{a: 1}", "not JSON at byte 1: a member's name is missing"),
        ('{"a": }', "not JSON at byte 6: a value is missing"),
        ('{"traceEvents": [{"cat": 1}]]}', "not JSON at byte 28: a comma or the closing brace is missing"),
        ('{"traceEvents": []} {}', "more text after the JSON document's end, at byte 20"),
        ('{"traceEvents": [{"a": ' + "[" * 100_000, "values nested too deeply"),
        ('{"a": ' + "[" * 100_000, "truncated"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_refusals_name_the_byte(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read_text(tmp_path, content)
    assert problem in str(caught.value)
    assert caught.value.exit_code == 5
    assert "\n" not in str(caught.value)


def test_truncated_and_damaged_gzip(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps(kineto_trace([kernel_event()] * 200)).encode())
    with pytest.raises(InputError, match=r"truncated: the gzip data ends after \d+ unpacked bytes"):
        read_text(tmp_path, packed[:-20])
    with pytest.raises(InputError, match=r"the gzip data is damaged after \d+ unpacked bytes"):
        read_text(tmp_path, packed[:100] + b"\0\0\0\0" + packed[104:])
    with pytest.raises(InputError, match="holds 0 bytes"):
        read_text(tmp_path, gzip.compress(b""))


def test_one_value_of_unbelievable_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MAX_VALUE", 10_000)
    monkeypatch.setattr(source, "PIECE", 1000)
    for content in ('{"a": "' + "x" * 50_000, '{"traceEvents": [{"a": "' + "x" * 50_000):
        with pytest.raises(InputError, match="one value of more than 0 MiB at byte"):
            read_text(tmp_path, content)


def test_no_kernels_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(NoKernels) as caught:
        read_trace(tmp_path, operator_event(), operator_event(), call_event())
    assert "no kernels among its events (cpu_op 2, cuda_runtime 1); profile with activities=" in str(caught.value)
    with pytest.raises(NoKernels, match="CUPTI range profiling was on"):
        read_trace(tmp_path, {"cat": "cuda_profiler_range"})
    with pytest.raises(NoKernels, match="a trace without events"):
        read_trace(tmp_path)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(kineto_trace([kernel_event()] * 100)))
    seen: list[tuple[int, int]] = []
    kineto.read(path, progress=lambda done, size: seen.append((done, size)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_recorded_corpus() -> None:
    """41 kernels of 34 matrix products and a batched one; every one has its operator's shapes."""
    launches = kineto.read(DATA / "corpus.pt.trace.json.gz")
    assert len(launches) == 41
    first = launches.name.tolist().index("nvjet_sm90_tst_48x64_64x15_2x4_h_bz_splitK_TNN")
    assert launches.operator[first] == "aten::mm"
    assert launches.grid[first].tolist() == [8, 12, 1]
    assert launches.duration_ns[first] == 6944
    assert all(shape is not None for shape in launches.shapes)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"5103427449328.773", 5103427449328773),
        (b"1695835542515301", 1695835542515301000),
        (b"281.34299999999996", 281343),  # 281.343 in a writer's float arithmetic
        (b"0.9996", 1000),
        (b"0.0004", 0),
        (b"1e3", 1_000_000),
        (b"-2.5", -2500),
        (b'"12.5"', 12500),
        (b"NaN", None),
        (b"", None),
        (b"null", None),
        (b"1e400", None),
        (b"9" * 30, None),
        (b"1.", 1000),
    ],
)
def test_nanoseconds(raw: bytes, expected: int | None) -> None:
    assert nanoseconds(raw) == expected


@given(st.integers(0, 2**61))
def test_nanoseconds_of_exact_decimals(number: int) -> None:
    assert nanoseconds(f"{number // 1000}.{number % 1000:03d}".encode()) == number


@given(st.text())
def test_text_of_any_string(string: str) -> None:
    assert text(json.dumps(string).encode()) == string


def test_shapes_of_tensor_lists() -> None:
    assert shapes(b'[[1, 2], [], [[3], [4, 5]], "x"]') == ((1, 2), (), ((3,), (4, 5)), ())
    assert shapes(b"[[4294967296], [-1, 2], [1000000, 10000000], [0, 5]]") == ((), (), (), (0, 5))
    assert shapes(b"") is None
    assert shapes(b"3") is None
    assert shapes(b"[[") is None
