"""`wavescope calibrate`: the plan, the user's file and the command, on recorded and made-up launches."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recorded import DATA
from tests.test_calibration import ROW
from tests.test_cli_errors import failed
from tests.told_costs import told
from wavescope import cuda_device, measure, prepare
from wavescope.calibrate import fit
from wavescope.calibration import installed, lookup, table
from wavescope.calibration_file import VARIABLE, merge, read, user_path
from wavescope.calibration_launches import ALL_PLACES, LAUNCHES, Planned, plans, record
from wavescope.calibration_row import COLUMNS, Calibration, render
from wavescope.cli.main import main
from wavescope.device import Device, virtual_device
from wavescope.errors import DeviceError, InputError, ShapeError, UsageError
from wavescope.kernel_table import GEMM_MMA, GEMM_SIMT, GEMM_SM90
from wavescope.leave_one_out import leave_one_out
from wavescope.problem import Problem, Tile
from wavescope.simulate import simulate
from wavescope.trace import Trace

H200 = virtual_device("h200")
TILE = Tile(128, 256, 64)
RECORDED = sorted(str(path) for path in DATA.glob("gemm_mma-128x256x64-*.parquet"))
OWN = replace(ROW, tile=TILE, source="wavescope calibrate, 2026-11-29: made up")


def measured(launch: Planned, row: Calibration, seed: int = 0) -> Trace:
    """A planned launch as a device would run it whose costs are `row`'s."""
    places = H200.sms * row.ctas_per_sm
    schedule = launch.variant.decompose(launch.problem, launch.tile, places, ALL_PLACES)
    trace = simulate(
        schedule,
        H200,
        kernel=row.kernel,
        block=256,
        registers=255,
        shared_bytes=0,
        ctas_per_sm=row.ctas_per_sm,
        seed=seed,
        calibration=row,
    )
    return replace(trace, launches=(replace(trace.launches[0], source="measured"),))


def text_of(out: str) -> str:
    return " ".join(out.split())


def test_the_plan_tells_all_costs_apart() -> None:
    (plan,) = plans(H200, [TILE], ["bf16"], "gemm_mma")
    traces = [measured(launch, OWN, seed) for seed, launch in enumerate(plan)]
    found = fit(traces)
    assert (found.unseen, found.estimated) == ((), ())
    told(found, OWN)
    errors = [one.error for one in leave_one_out(traces, found) if not one.missing]
    assert len(errors) == len(LAUNCHES) - 1  # but for the only one with edges
    assert np.abs(errors).max() < 0.03


def test_plans_for_devices() -> None:
    every = plans(H200)
    assert {(plan[0].kernel, plan[0].tile) for plan in every} == {
        (kernel.name, code.tile) for kernel in (GEMM_SM90, GEMM_SIMT) for code in kernel.codes
    }
    assert [plan[0].tile for plan in plans(H200, kernel="gemm_mma")] == [code.tile for code in GEMM_MMA.codes]
    # a tile that the best kernel lacks is another's
    assert [(plan[0].kernel, plan[0].tile) for plan in plans(H200, [Tile(64, 64, 64), TILE])] == [
        ("gemm_mma", Tile(64, 64, 64)),
        ("gemm_sm90", TILE),
    ]
    assert {plan[0].problem.dtype for plan in every} == {"bf16", "fp32"}
    for plan in every:
        assert {launch.variant.schedule for launch in plan} == {
            "fixed",
            "persistent",
            "dynamic",
            "splitk",
            "streamk",
            "hybrid",
            "tailsplit",
        }
    # 1.23 tiles a place of 132: a square of 9 by 18 tiles of 256 and 128
    assert plans(H200, [TILE], ["fp16"])[0][0].problem == Problem(2304, 2304, 4096, "fp16")
    assert {plan[0].tile for plan in plans(virtual_device("t4"))} == {Tile(128, 128, 8)}
    with pytest.raises(DeviceError, match="bf16 needs compute capability 8.0"):
        plans(virtual_device("t4"), [], ["bf16"])
    with pytest.raises(DeviceError, match="gemm_sm90 needs compute capability 9.0"):
        plans(virtual_device("a100-40gb"), kernel="gemm_sm90")
    with pytest.raises(UsageError, match="gemm_simt computes fp32, not bf16"):
        plans(H200, [], ["bf16"], "gemm_simt")
    with pytest.raises(UsageError, match="tile 64x64x64 is none of the kernels'"):
        plans(H200, [Tile(64, 64, 64)], kernel="gemm_sm90")
    with pytest.raises(UsageError, match="tile 1x2x3 is none of the kernels'"):
        plans(H200, [Tile(1, 2, 3)])


def test_the_most_telling_launches_of_all_tiles_come_first() -> None:
    one, two = plans(H200, [TILE, Tile(128, 128, 64)], ["bf16"], "gemm_mma")
    now = iter(range(0, 1000, 10))  # begin, then before each launch
    seen: list[Planned] = []

    def measure_one(launch: Planned) -> Trace:
        seen.append(launch)
        return measured(launch, OWN)

    said: list[str] = []
    traces, left_out = record([one[:3], two[:2]], measure_one, 40.0, said.append, lambda: float(next(now)))
    # launches begin at 10, 20 and 30 s; at 40 s the time is over
    assert seen == [one[0], two[0], one[1]]
    assert (len(traces), left_out) == (3, 2)
    assert said[2] == "launch 3 of 5, 30 s of 40: gemm_mma fixed, 2304 x 2304 x 1024 bf16, tile 128x256x64"
    seen.clear()
    assert record([one[:1]], measure_one, 1e-9, said.append)[1] == 0  # the very first is always measured


def test_a_launch_that_does_not_go_is_left_out() -> None:
    (plan,) = plans(H200, [TILE], ["bf16"], "gemm_mma")

    def measure_one(launch: Planned) -> Trace:
        if launch.variant.schedule == "tailsplit":
            raise ShapeError("tailsplit:4 is not possible")
        return measured(launch, OWN)

    said: list[str] = []
    traces, left_out = record([plan[3:6]], measure_one, 1e9, said.append)
    assert ([trace.launches[0].schedule for trace in traces], left_out) == (["streamk", "splitk"], 0)
    assert said[2] == "left out: tailsplit:4 is not possible"


def test_recorded_traces_are_fitted_and_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    assert main(["calibrate", "--from", *RECORDED, "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    (row,) = read(path)
    shipped = next(one for one in table() if one.key == row.key)
    assert row.source.startswith(f"wavescope calibrate, {date.today().isoformat()}: ")
    assert replace(row, source=shipped.source) == shipped
    text = text_of(out)
    assert "Unit costs on NVIDIA H200" in text
    assert "a k_iter 1789.8" in text
    assert "others idle 0.36%" in text
    assert "leave a sum 5168.5" in text
    # all from the others, but for the only one with edge tiles
    assert "128x256x64 bf16 18 17 1.5% +4.3% streamk 1152x1280x8192" in text
    assert f"wavescope: wrote {path}: 1 of its 1 rows are new" in err
    assert max(len(line) for line in out.splitlines()) <= 80


def test_rows_of_other_tiles_stay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    other = replace(OWN, tile=Tile(64, 64, 64))
    merge(path, [OWN, other])
    files = [*RECORDED, *map(str, DATA.glob("gemm_mma-256x128x64-*.parquet"))]
    assert main(["calibrate", "--from", files[0], "--from", *files[1:], "-o", str(path), "--tile", "128x256x64"]) == 0
    kept, new = sorted(read(path), key=lambda row: str(row.tile) == "128x256x64")
    assert kept == other
    assert new.cycles_per_k_iter == pytest.approx(1789.8)
    assert "1 of its 2 rows are new" in capsys.readouterr().err


def test_the_users_rows_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert installed() == table()
    path = tmp_path / "mine.csv"
    mine = replace(next(row for row in table() if row.tile == TILE), cycles_per_k_iter=1000.0, source="mine")
    merge(path, [mine])
    monkeypatch.setenv(VARIABLE, str(path))
    assert lookup("gemm_mma", TILE, "bf16", H200) == mine
    assert len(installed()) == len(table())
    assert lookup("gemm_mma", Tile(256, 128, 64), "bf16", H200) in table()
    # the nearest row of a dtype that nobody calibrated is the user's too
    assert lookup("gemm_mma", TILE, "fp16", H200).cycles_per_k_iter == 1000.0


def test_where_the_users_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_path() == tmp_path / "wavescope/calibration.csv"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path() == tmp_path / ".local/share/wavescope/calibration.csv"
    monkeypatch.setenv(VARIABLE, "other.csv")
    assert user_path() == Path("other.csv")


def test_calibrating_writes_where_it_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert main(["calibrate", "--from", *RECORDED]) == 0
    assert (tmp_path / "wavescope/calibration.csv").is_file()
    capsys.readouterr()
    job = ["profile", "-m", "2304", "-n", "2304", "-k", "4096", "--tile", "128x256x64", "--device", "virtual:h200"]
    assert main([*job, "--kernel", "gemm_mma"]) == 0
    assert "NVIDIA H200, wavescope calibrate, 2" in text_of(capsys.readouterr().out)


def test_what_was_fitted_is_kept_before_it_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def closed(_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("wavescope.cli.calibrate._print", closed)
    path = tmp_path / "mine.csv"
    main(["calibrate", "--from", RECORDED[0], "-o", str(path)])
    assert len(read(path)) == 1


def test_an_output_that_is_no_calibration_stays_and_another_name_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "run.parquet"
    trace.write_bytes(Path(RECORDED[0]).read_bytes())
    assert main(["calibrate", "--from", str(trace), "-o", str(trace)]) == 5
    assert "; give another name with -o" in capsys.readouterr().err
    assert trace.read_bytes() == Path(RECORDED[0]).read_bytes()


def test_a_row_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    with pytest.raises(InputError, match=r"what was fitted: line 2: kernel is 'xxx.*; leave out the trace"):
        merge(path, [replace(OWN, kernel="x" * 2000)])
    assert not path.exists()


def test_long_kernel_names_keep_the_table_within_the_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hopper = sorted(str(one) for one in (DATA.parent / "h200_hopper").glob("gemm_sm90_pingpong-*.parquet"))
    assert main(["calibrate", "--from", *hopper, *RECORDED[:1], "-o", str(tmp_path / "mine.csv")]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    # each launch of a tile is predicted from its others, though none of them tells what a unit costs once
    counts = [line.split()[2:4] for line in out.splitlines() if line.split()[:2] == ["168x128x64", "bf16"]]
    assert counts == [["7", "6"]]  # but for the only one with tiles at the edge


GOOD = render([OWN])
BAD = [
    ("", "lacks the column kernel"),
    ("kernel,tile\n", "lacks the column dtype"),
    (GOOD.replace("noise", "nose"), "lacks the column noise"),
    (GOOD.replace("source\n", "source,more\n"), "has other columns"),
    (GOOD.replace(",400,", ",fast,"), "line 2: cycles_per_k_iter is 'fast', not a number from 1e-06 to 1e+09"),
    (GOOD.replace(",400,", ",nan,"), "cycles_per_k_iter is 'nan'"),
    (GOOD.replace(",400,", ",0,"), "cycles_per_k_iter is '0'"),
    (GOOD.replace(",400,", ",4_00,"), "cycles_per_k_iter is '4_00'"),
    (GOOD.replace(",400,", ",\u0664,"), "cycles_per_k_iter is '\u0664'"),
    (render([replace(OWN, capped_tflops=1e-308)]), "capped_tflops is '1e-308', less than 0.01 and not 0"),
    (render([replace(OWN, capped_tflops=-1.0)]), "capped_tflops is '-1', not a number from 0 to 100000"),
    (GOOD.replace(",400,", ",1e400,"), "cycles_per_k_iter is '1e400'"),
    (render([replace(OWN, clock_spread=0.5)]), "clock_spread is '0.5', not a number from 0 to 0.2"),
    (GOOD.replace("128x256x64", "big"), "tile is 'big', not MxNxK"),
    (GOOD.replace("128x256x64", "0x1x1"), "tile is '0x1x1'"),
    (GOOD.replace(",bf16,", ",fp8,"), "dtype is 'fp8', not one of bf16, fp16, fp32"),
    (GOOD.replace("NVIDIA H200,1,", "NVIDIA H200,0,"), "ctas_per_sm is '0'"),
    (GOOD.replace("NVIDIA H200", "\x1b[31m"), "device is '\\x1b[31m', not a line of text"),
    (GOOD + GOOD.splitlines()[1] + "\n", "line 3: gemm_mma 128x256x64 bf16 on NVIDIA H200 is there twice"),
    (GOOD.splitlines()[0] + "\ngemm_mma,128x256x64\n", f"line 2: not {len(COLUMNS)} cells"),
    (GOOD.rstrip() + ",x\n", f"line 2: not {len(COLUMNS)} cells"),
    (GOOD.replace('made up"', "made up"), "no CSV"),
    ("x" * (1 << 20) + "y", "longer than 1048576 bytes"),
]


@pytest.mark.parametrize(("text", "what"), BAD, ids=[what[:40] for _, what in BAD])
def test_a_bad_file_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, what: str
) -> None:
    assert text != GOOD
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv(VARIABLE, str(path))
    job = ["profile", "-m", "256", "-n", "256", "-k", "256", "--device", "virtual:h200"]
    message = failed(capsys, job, 5, str(path), what, "run 'wavescope calibrate' again")
    assert len(message) < 400
    # nor is it overwritten
    failed(capsys, ["calibrate", "--from", RECORDED[0]], 5, str(path))
    assert path.read_text(encoding="utf-8") == text


def test_doctor_says_whose_calibration_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "mine.csv"
    merge(path, [OWN])
    monkeypatch.setenv(VARIABLE, str(path))
    main(["doctor"])
    assert f"{path}: 1 rows for NVIDIA H200, else the shipped one" in capsys.readouterr().out
    path.write_text("")
    assert main(["doctor"]) == 1
    assert "lacks the column kernel" in capsys.readouterr().out


def test_files_that_are_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = ["profile", "-m", "256", "-n", "256", "-k", "256", "--device", "virtual:h200"]
    for path, what in ((tmp_path, "not a regular file"), (tmp_path / "no.csv", "no such file"), ("a\0b", "null")):
        if "\0" not in str(path):
            monkeypatch.setenv(VARIABLE, str(path))
            failed(capsys, job, 5, str(path), what)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"kernel\xff")
    with pytest.raises(InputError, match="no text at byte 6"):
        read(binary)


def test_the_file_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    assert merge(path, table()) == len(table())
    assert set(read(path)) == set(table())
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert {row["device"] for row in rows} == {"NVIDIA H200"}


USAGE = [
    (["calibrate", RECORDED[0]], 2, ("are read with --from",)),
    (["calibrate", "--from", RECORDED[0], "--tile", "64x64x64"], 2, ("no launch of the kernel, tiles and types",)),
    (["calibrate", "--from", RECORDED[0], "--kernel", "sm90"], 2, ("no launch of the kernel, tiles and types",)),
    (["calibrate", "--from", RECORDED[0], "--kernel", "sm80"], 2, ("--kernel", '"sm80"', "gemm_sm90")),
    (["calibrate", "--from", RECORDED[0], "--dtype", "fp32"], 2, ("no launch of the kernel, tiles and types",)),
    (["calibrate", "--from", RECORDED[0], "--dtype", "fp8"], 2, ("--dtype", '"fp8"', "bf16")),
    (["calibrate", "--from", RECORDED[0], "--tile", "big"], 2, ("'big'", "MxNxK")),
    (["calibrate", "--from", "no.parquet"], 5, ("no.parquet", "no such file")),
    (["calibrate", "--from", RECORDED[0], "-o", "no/such/place.csv"], 8, ("no/such/place.csv", "create it first")),
    (["calibrate", "--from", RECORDED[0], "--device", "cuda:0"], 2, ("--from and --device do not go together",)),
    (["calibrate", "--from", RECORDED[0], "--seconds", "9"], 2, ("--from and --seconds do not go together",)),
    (["calibrate", "--seconds", "-1"], 2, ("--seconds", '"-1"')),
    (["calibrate", "--device", "virtual:h200"], 2, ("virtual:h200", "cuda:0")),
]


@pytest.mark.parametrize(("argv", "status", "words"), USAGE, ids=[" ".join(argv)[-40:] for argv, _, _ in USAGE])
def test_usage(capsys: pytest.CaptureFixture[str], argv: list[str], status: int, words: tuple[str, ...]) -> None:
    failed(capsys, argv, status, *words)


def test_simulated_traces_are_no_measurement(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    argv = ["profile", "-m", "256", "-n", "256", "-k", "256", "--device", "virtual:h200", "-o", str(path), "--json"]
    assert main(argv) == 0
    capsys.readouterr()
    failed(capsys, ["calibrate", "--from", str(path)], 2, "launch 0 is simulated", "calibrate on measured ones")


def test_without_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_device(index: int) -> None:
        raise DeviceError("there is no NVIDIA driver on this machine; install one, or use --device virtual:h200")

    monkeypatch.setattr(cuda_device, "query", no_device)
    message = failed(capsys, ["calibrate"], 3, "there is no NVIDIA driver on this machine", "--from")
    assert "virtual" not in message


def test_without_scipy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    failed(capsys, ["calibrate", "--from", *RECORDED], 2, "SciPy", "pip install 'wavescope[calibrate]'")


def test_a_gpu_is_measured_launch_by_launch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command's own steps, with a device that answers as the virtual one does."""
    asked = []

    def fake(problem: Problem, tile: Tile, variant: object, index: int, **options: object) -> Trace:
        asked.append((index, options["repeat"], options["model"]))
        return measured(Planned(problem, tile, variant, "gemm_mma"), OWN, len(asked))  # type: ignore[arg-type]

    monkeypatch.setattr(cuda_device, "query", lambda index: H200)
    monkeypatch.setattr(measure, "measure", fake)
    compiled: list[tuple[Tile, str, str]] = []

    def compile_ahead(launches: Any, device: Device, progress: object) -> None:
        assert device == H200
        compiled.extend((facts.code.tile, facts.kernel, variant.schedule) for _, facts, variant in launches)

    monkeypatch.setattr(prepare, "compile_ahead", compile_ahead)
    path = tmp_path / "mine.csv"
    mine = ["--kernel", "mma", "--tile", "128x256x64", "--dtype", "bf16"]
    assert main(["calibrate", "--device", "cuda:1", *mine, "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    assert asked == [(1, 7, ALL_PLACES)] * len(LAUNCHES)
    assert compiled == [(TILE, "gemm_mma", text.split(":")[0]) for _, _, text, _ in LAUNCHES]
    assert read(path)[0].stream_slowdown == pytest.approx(0.2, abs=0.01)
    assert f"launch {len(LAUNCHES)} of {len(LAUNCHES)}, " in err
    assert f"128x256x64 bf16 {len(LAUNCHES)} {len(LAUNCHES) - 1} " in text_of(out)
    assert "staggered +2" in text_of(out)
    # next to no time: the first launch alone
    argv = ["calibrate", *mine, "-o", str(path), "--seconds", "0.0000001"]
    assert main(argv) == 0
    assert f"no time for {len(LAUNCHES) - 1} launches" in capsys.readouterr().err
    assert "fixed_cycles" in read(path)[0].unseen
