"""Every mistake on the command line: one clear line on stderr, the right exit status, no traceback."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wavescope import cuda_device, nvrtc, virtual
from wavescope.cli.main import main
from wavescope.errors import DeviceError, LaunchError
from wavescope.trace_file import load, save

SMALL = ("profile", "--m", "256", "--n", "256", "--k", "256")
KEY = b"wavescope"


def failed(capsys: pytest.CaptureFixture[str], argv: list[str], status: int, *words: str) -> str:
    """Run a command that must fail; return its message."""
    assert main(argv) == status
    out, err = capsys.readouterr()
    assert out == ""
    message = err.removesuffix("\n")
    assert message.startswith("wavescope: ")
    assert "\n" not in message
    assert "Traceback" not in message
    for word in words:
        assert word in message
    return message


def sized(option: str, value: str) -> list[str]:
    """The small problem with one size replaced."""
    argv = list(SMALL)
    argv[argv.index(option) + 1] = value
    return argv


SIZES = [
    ("0", "too small"),
    ("-5", "negative"),
    ("abc", "not a whole number"),
    ("", "not a whole number"),
    ("4096.0", "not a whole number"),
    ("1e3", "not a whole number"),
    ("nan", "not a whole number"),
    ("0x10", "not a whole number"),
    ("4 096", "not a whole number"),
    ("1_", "not a whole number"),
    ("٣", "not a whole number"),
    ("1073741825", "too large"),
    ("9" * 5000, "too large"),
]


@pytest.mark.parametrize("option", ["--m", "--n", "--k"])
@pytest.mark.parametrize(("value", "what"), SIZES, ids=[value[:12] or "empty" for value, _ in SIZES])
def test_sizes(capsys: pytest.CaptureFixture[str], option: str, value: str, what: str) -> None:
    message = failed(capsys, sized(option, value), 2, f"{option}: ", value[:40], what, "such as")
    assert len(message) < 200


USAGE: list[tuple[list[str], int, tuple[str, ...]]] = [
    ([*SMALL, "--dtype", "fp8"], 2, ("--dtype", '"fp8"', "bf16, fp16, fp32")),
    ([*SMALL, "--dtype", "BF16"], 2, ('"BF16"', "did you mean bf16?")),
    ([*SMALL, "--schedule", "streemk"], 2, ('"streemk"', "fixed, persistent, dynamic", "did you mean streamk?")),
    ([*SMALL, "--schedule", "persistant"], 2, ("did you mean persistent?",)),
    ([*SMALL, "--schedule", "best"], 2, ("--schedule", '"best"', "tailsplit, auto")),
    ([*SMALL, "--work", "raged:1"], 2, ("'raged:1'", "did you mean ragged?", "ragged:7", "skip:0.5")),
    ([*SMALL, "--work", "ragged"], 2, ("lacks its number", "ragged:SEED")),
    ([*SMALL, "--work", "ragged:x"], 2, ("'x' is no seed", "0 to 2147483647")),
    ([*SMALL, "--work", "skip:1"], 2, ("1 is no share", "below 1", "skip:0.5")),
    ([*SMALL, "--work", "skip:1e"], 2, ("'1e' is no number", "skip:0.5")),
    ([*SMALL, "--work", "skip:0.5", "--schedule", "streamk"], 2, ("streamk cuts", "fixed, persistent or dynamic")),
    ([*SMALL, "--schedule", "dynamic@lpt"], 2, ("dynamic@lpt", "use dynamic", "--work ragged:7")),
    ([*SMALL, "--schedule", "splitk:2@lpt", "--work", "ragged:1"], 2, ("splitk@lpt", "keep tiles whole")),
    ([*SMALL, "--raster", "zigzag"], 2, ("'zigzag'", "row, column or groupedG")),
    ([*SMALL, "--raster", "grouped0"], 2, ("'grouped0'",)),
    ([*SMALL, "--tile", "100"], 2, ("'100'", "128x256x64")),
    ([*SMALL, "--tile", "0x64x64"], 2, ("0x64x64", "below 1")),
    ([*SMALL, "--tile", "512x512x64"], 2, ("512x512x64", "gemm_mma", "128x256x64")),
    ([*SMALL, "--device", "gpu"], 2, ("'gpu'", "cuda:N or virtual:NAME")),
    ([*SMALL, "--device", "virtual:h20"], 2, ("'virtual:h20'", "did you mean virtual:h200")),
    ([*SMALL, "--device", "cuda:x"], 2, ("cuda:x", "cuda:0")),
    ([*SMALL, "--device", "virtual:t4"], 3, ("bf16", "8.0", "T4", "--dtype fp32")),
    ([*SMALL, "--regime", "warm"], 2, ("--regime", '"warm"', "cool, sustained")),
    ([*SMALL, "--repeat", "0"], 2, ("--repeat", "0")),
    ([*SMALL, "--seed", "-1"], 2, ("--seed", "-1", "negative")),
    ([*SMALL, "--fail-under", "90"], 2, ("--fail-under", '"90"', "0.9")),
    ([*SMALL, "--fail-under", "nan"], 2, ("--fail-under", '"nan"')),
    ([*SMALL, "--fail-under", "most"], 2, ("--fail-under", '"most"')),
    ([*SMALL, "--csv", "-"], 2, ("--csv", "not a file name")),
    ([*SMALL, "-o", "-"], 2, ("-o", "not a file name")),
    ([*SMALL, "-o", "x", "--csv", "x"], 2, ("--csv", "x", "already -o")),
    ([*SMALL, "-o", "x.sm.csv", "--csv", "x.csv"], 2, ("x.sm.csv", "already -o")),
    ([*SMALL, "-o", "no/such/place.parquet"], 8, ("no/such/place.parquet", "create it first")),
    ([*SMALL, "-o", "."], 8, ("'.'", "directory")),
    ([*SMALL, "--csv", "no/such.csv"], 8, ("no/such.csv", "create it first")),
    ([*SMALL, "extra"], 2, ("extra", "wavescope profile --help")),
    ([*SMALL, "--jsn"], 2, ("--jsn", "--json")),
    (["profile", "--m", "256", "--n", "256"], 2, ("missing option '--k'", "wavescope profile --help")),
    (["profile", "--m"], 2, ("--m", "requires an argument")),
    (["profil"], 2, ("'profil'", "profile")),
    (["--verbose"], 2, ("--verbose", "wavescope --help")),
    (["report"], 2, ("missing argument 'TRACE'", "wavescope report --help")),
    (["report", "x", "--launch", "one"], 2, ("--launch", '"one"')),
    (["export", "x"], 2, ("--csv X.csv",)),
    (["explain", "wave", "eficiency"], 2, ('"wave eficiency"', "did you mean wave efficiency?")),
    (
        ["profile", "-m", "1_000_000_000", "-n", "1_000_000_000", "-k", "1"],
        3,
        ("GB of device memory", "H200", "smaller"),
    ),
    (
        ["profile", "-m", "100_000", "-n", "100_000", "-k", "1", "--tile", "64x64x64"],
        2,
        ("2442969 tiles", "2000000", "larger tile"),  # 1563 * 1563
    ),
]


@pytest.mark.parametrize(("argv", "status", "words"), USAGE, ids=[" ".join(argv[-2:]) for argv, _, _ in USAGE])
def test_usage(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: list[str],
    status: int,
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    failed(capsys, argv, status, *words)
    assert list(tmp_path.iterdir()) == []


# --- devices


def test_a_cuda_device_that_is_asked_for_is_never_replaced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver(index: int) -> None:
        raise DeviceError(f"device cuda:{index} does not exist; this machine has none")

    monkeypatch.setattr(cuda_device, "query", no_driver)
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    failed(capsys, [*SMALL, "--device", "cuda:7"], 3, "--device cuda:7", "does not exist")


def test_a_gpu_without_cupy_is_an_error_with_the_install_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise DeviceError(f"CuPy is not installed; {cuda_device.INSTALL}, or {cuda_device.VIRTUAL}")

    monkeypatch.setattr(cuda_device, "gpu_present", lambda: True)
    monkeypatch.setattr(cuda_device, "load_cupy", missing)
    failed(capsys, list(SMALL), 3, "CuPy is not installed", "pip install 'wavescope[cuda13]'", "virtual:h200")
    assert main([*SMALL, "--device", "virtual:h200"]) == 0
    assert "SIMULATED because --device virtual:h200 asks for it" in " ".join(capsys.readouterr().out.split())


def test_two_cupys_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: True)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(cuda_device, "cupy_distributions", lambda: ["cupy-cuda12x", "cupy-cuda13x"])
    failed(capsys, list(SMALL), 3, "cupy-cuda12x", "cupy-cuda13x", "pip uninstall")
    main(["doctor"])
    assert "pip uninstall -y cupy-cuda12x cupy-cuda13x" in capsys.readouterr().out


def test_doctor_names_what_is_missing_and_the_way_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("WAVESCOPE_CACHE_DIR", str(blocked / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    monkeypatch.setattr(cuda_device, "cupy_distributions", lambda: [])
    nvrtc.cache_directory.cache_clear()
    try:
        assert main(["doctor", "--json"]) == 0
    finally:
        nvrtc.cache_directory.cache_clear()
    findings = {entry["what"]: entry for entry in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["profile and report"]["state"] == "ok"
    assert findings["calibration"]["detail"] == "the shipped one"
    assert (findings["cupy"]["state"], findings["cupy"]["way_out"]) == ("missing", cuda_device.INSTALL)
    assert findings["cubin cache"]["state"] == "problem"
    assert "is not writable" in findings["cubin cache"]["detail"]
    assert "WAVESCOPE_CACHE_DIR" in findings["cubin cache"]["way_out"]
    assert findings["GPU"]["state"] == findings["ncu"]["state"] == "missing"


def test_doctor_fails_where_not_even_a_simulation_works(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise DeviceError("no calibration; reinstall")

    monkeypatch.setattr(virtual, "run", broken)
    assert main(["doctor"]) == 1
    assert "no calibration" in capsys.readouterr().out


# --- what ends a run from outside


def raising(error: BaseException) -> Callable[..., None]:
    def run(*_: object, **__: object) -> None:
        raise error

    return run


def test_an_interrupt_leaves_a_message_and_no_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    monkeypatch.setattr(virtual, "run", raising(KeyboardInterrupt()))
    output = tmp_path / "run.parquet"
    assert failed(capsys, [*SMALL, "-o", str(output)], 130) == "wavescope: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_writing_leaves_what_was_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    output = tmp_path / "run.parquet"
    output.write_text("old")
    monkeypatch.setattr(os, "replace", raising(KeyboardInterrupt()))
    failed(capsys, [*SMALL, "-o", str(output)], 130)
    assert [path.name for path in tmp_path.iterdir()] == ["run.parquet"]
    assert output.read_text() == "old"


def test_a_hung_kernel_ends_the_process_after_its_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    monkeypatch.setattr(virtual, "run", raising(LaunchError("no end after 20.0 s, given up: gemm_mma fixed")))
    main(list(SMALL))
    assert ended == [3]
    assert capsys.readouterr().err == "wavescope: no end after 20.0 s, given up: gemm_mma fixed\n"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (MemoryError(), 3, ("not enough memory",)),
        (OSError(errno.ENOSPC, "No space left on device"), 8, ("No space left on device",)),
    ],
)
def test_what_the_system_refuses(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    monkeypatch.setattr(virtual, "run", raising(error))
    failed(capsys, list(SMALL), status, *words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    failed(capsys, [*SMALL, "-o", "/dev/full"], 8, "/dev/full", "No space left on device")


def test_control_characters_of_a_value_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    message = failed(capsys, ["report", "a\x1b[31mb"], 5, "\\x1b[31m")
    assert "\x1b" not in message


# --- traces


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that is fine."""
    path = tmp_path_factory.mktemp("trace") / "run.parquet"
    assert main([*SMALL, "--device", "virtual:h200", "-o", str(path), "--json"]) == 0
    return path


def with_metadata(table: pa.Table, text: bytes) -> pa.Table:
    return table.replace_schema_metadata({KEY: text})


def with_cell(table: pa.Table, name: str, row: int, value: object) -> pa.Table:
    values = table[name].to_pylist()
    values[row] = value
    index = table.schema.get_field_index(name)
    kind = pa.float64() if isinstance(value, float) else table.schema.field(name).type
    return table.set_column(index, name, pa.array(values, kind, from_pandas=False))


def changed_version(table: pa.Table) -> pa.Table:
    facts = json.loads(table.schema.metadata[KEY])
    return with_metadata(table, json.dumps(facts | {"schema_version": 99}).encode())


BROKEN: list[tuple[str, Callable[[pa.Table], pa.Table], int, tuple[str, ...]]] = [
    ("other version", changed_version, 5, ("99",)),
    ("without metadata", lambda table: table.replace_schema_metadata(None), 5, ("metadata", "pandas")),
    ("metadata no JSON", lambda table: with_metadata(table, b"{"), 5, ("JSON",)),
    ("a column gone", lambda table: table.drop_columns(["end_ns"]), 5, ("end_ns",)),
    ("no spans", lambda table: table.slice(0, 0), 6, ("no spans",)),
    ("NaN time", lambda table: with_cell(table, "begin_ns", 0, float("nan")), 5, ("begin_ns", "nan")),
    ("null time", lambda table: with_cell(table, "begin_ns", 0, None), 5, ("begin_ns",)),
    ("negative duration", lambda table: with_cell(table, "begin_ns", 0, 10**6), 5, ("span 0", "before it begins")),
    ("absurd SM", lambda table: with_cell(table, "sm", 0, 70_000), 5, ("sm", "70000")),
    ("unknown kind", lambda table: with_cell(table, "kind", 0, "nap"), 5, ("nap",)),
]


@pytest.mark.parametrize(("change", "status", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_broken_traces(
    capsys: pytest.CaptureFixture[str],
    trace_file: Path,
    tmp_path: Path,
    change: Callable[[pa.Table], pa.Table],
    status: int,
    words: tuple[str, ...],
) -> None:
    broken = tmp_path / "broken.parquet"
    pq.write_table(change(pq.read_table(trace_file)), broken)
    failed(capsys, ["report", str(broken)], status, *words)


def test_files_that_are_no_trace(capsys: pytest.CaptureFixture[str], trace_file: Path, tmp_path: Path) -> None:
    missing, empty, short, text = (tmp_path / name for name in ("missing", "empty", "short", "text"))
    empty.write_bytes(b"")
    short.write_bytes(trace_file.read_bytes()[:-100])
    text.write_text("begin_ns,end_ns\n")
    failed(capsys, ["report", str(missing)], 5, str(missing), "no such file")
    failed(capsys, ["report", str(empty)], 5, str(empty), "empty")
    failed(capsys, ["report", str(short)], 5, str(short))
    failed(capsys, ["report", str(text)], 5, str(text), "not a Parquet file")
    failed(capsys, ["report", str(tmp_path)], 5, str(tmp_path), "directory")
    failed(capsys, ["export", str(text), "--csv", str(tmp_path / "x.csv")], 5, "not a Parquet file")
    assert not (tmp_path / "x.csv").exists()


def test_spans_that_overlap_where_they_must_not(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "run.parquet"
    two_tiles = ["profile", "-m", "2304", "-n", "2304", "-k", "256", "--tile", "128x256x64", "--schedule", "persistent"]
    assert main([*two_tiles, "--device", "virtual:h200", "-o", str(broken), "--json"]) == 0
    capsys.readouterr()
    table = pq.read_table(broken)
    rows = [
        row for row in range(table.num_rows) if (table["cta"][row].as_py(), table["kind"][row].as_py()) == (0, "mac")
    ]
    assert len(rows) == 2
    first, second = sorted(rows, key=lambda row: table["begin_ns"][row].as_py())
    pq.write_table(with_cell(table, "begin_ns", second, table["begin_ns"][first].as_py()), broken)
    failed(capsys, ["report", str(broken)], 7, "cta 0")


def test_an_unknown_launch_names_the_known_ones(capsys: pytest.CaptureFixture[str], trace_file: Path) -> None:
    failed(capsys, ["report", str(trace_file), "--launch", "3"], 5, "launch 3", "holds 0")


def test_of_very_many_launches_the_first_are_named(
    capsys: pytest.CaptureFixture[str], trace_file: Path, tmp_path: Path
) -> None:
    one = load(trace_file)
    spans = [replace(one.spans, launch_id=one.spans.launch_id + i) for i in range(23)]
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in spans]) for f in fields(one.spans)}
    launches = tuple(replace(one.launches[0], launch_id=i) for i in range(23))
    many = tmp_path / "many.parquet"
    save(replace(one, launches=launches, spans=replace(one.spans, **columns)), many)
    said = failed(capsys, ["report", str(many)], 2, "holds 23 launches")
    assert said.endswith("19 (fixed 256x256x256) and 3 more")


def test_one_of_several_launches_has_to_be_chosen(
    capsys: pytest.CaptureFixture[str], trace_file: Path, tmp_path: Path
) -> None:
    one = load(trace_file)
    second = replace(one.spans, launch_id=one.spans.launch_id + 1)
    columns = {f.name: np.concatenate([getattr(one.spans, f.name), getattr(second, f.name)]) for f in fields(second)}
    launches = (*one.launches, replace(one.launches[0], launch_id=1))
    two = tmp_path / "two.parquet"
    save(replace(one, launches=launches, spans=replace(second, **columns)), two)
    said = failed(capsys, ["report", str(two)], 2, "holds 2 launches")
    assert said.endswith("--launch: 0 (fixed 256x256x256), 1 (fixed 256x256x256)")
    assert main(["report", str(two), "--launch", "1"]) == 0
    assert main(["export", str(two), "--csv", str(tmp_path / "x.csv")]) == 0
    assert len((tmp_path / "x.sm.csv").read_text().splitlines()) == 1 + 2 * 132
    assert main(["report", str(two), "--launch", "1", "--csv", str(tmp_path / "y.csv")]) == 0
    assert len((tmp_path / "y.csv").read_text().splitlines()) == 1 + len(one.spans)


def test_the_input_is_never_overwritten(capsys: pytest.CaptureFixture[str], trace_file: Path) -> None:
    before = trace_file.read_bytes()
    failed(capsys, ["export", str(trace_file), "--csv", str(trace_file)], 2, "already the input")
    assert trace_file.read_bytes() == before
