"""`wavescope audit` at work: files in, text, JSON, CSV and exit codes out."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from audit_fixture import CORPUS, CORPUS_COUNTERS, GEMM
from audit_profiles import GEMM as TRACED
from audit_profiles import kernel_event, kernel_row, kineto_trace, nsys_export, operator_event

from wavescope.cli.audit import launches_path
from wavescope.cli.main import main


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(kineto_trace([operator_event(), kernel_event()])))
    return path


def read_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict:
    capsys.readouterr()
    assert main(["audit", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_recorded_corpus_with_its_counters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["audit", str(CORPUS), "--counters", str(CORPUS_COUNTERS), "--top", "40"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "counters of corpus_ncu_raw.csv for 40 of 41 launches" in out
    lines = out.splitlines()
    row = lines[next(at for at, line in enumerate(lines) if GEMM in line) - 1].split()
    # time, share, calls, lost, waves, rounds, fill, active, measured
    assert row[1:4] == ["59.78", "1.2%", "1"]
    assert row[5:] == ["1.00", "1.91", "95.5%", "94.2%", "94.8%"]


def test_one_kernel_as_text_json_and_csv(capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path) -> None:
    assert main(["audit", str(trace), "--csv", str(tmp_path / "out.csv")]) == 0
    out, err = capsys.readouterr()
    assert "252 tiles of 168x128 on 132 blocks in clusters of 2" in " ".join(out.split())
    assert f"wrote {tmp_path / 'out.csv'} and {tmp_path / 'out.launches.csv'}" in err
    with open(tmp_path / "out.csv", newline="") as file:
        (grouped,) = csv.DictReader(file)
    with open(tmp_path / "out.launches.csv", newline="") as file:
        (single,) = csv.DictReader(file)
    document = read_json(capsys, str(trace))
    (group,) = document["groups"]
    assert (group["name"], grouped["name"], single["name"]) == (TRACED, TRACED, TRACED)
    assert float(grouped["fill"]) == pytest.approx(group["fill"]) == pytest.approx(252 / 264)
    assert float(single["lost_low_ns"]) == pytest.approx(group["lost_low_ns"]) == pytest.approx(58_240 * 12 / 264)


def test_several_ranks_one_device_and_operators(
    capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path
) -> None:
    second = tmp_path / "rank1.json"
    second.write_text(json.dumps(kineto_trace([kernel_event(device=0), kernel_event(device=1, ts=2000.5)])))
    both = read_json(capsys, str(trace), str(second), "--by", "operator")
    assert both["totals"]["launches"] == 3
    assert [profile["totals"]["launches"] for profile in both["profiles"]] == [1, 2]
    assert both["by"] == "operator"
    assert read_json(capsys, str(second), "--device", "1")["totals"]["launches"] == 1
    assert main(["audit", str(second), "--device", "3"]) == 6
    assert "no kernels on device 3; there are some on 0, 1" in capsys.readouterr().err


def test_against_another_profile(capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path) -> None:
    before = tmp_path / "before.json"
    before.write_text(json.dumps(kineto_trace([operator_event(), kernel_event(dur=100.0)])))
    document = read_json(capsys, str(trace), "--against", str(before))
    (change,) = document["against"]["changes"]
    assert (change["total_ns"], change["before_total_ns"], change["same_kernel"]) == (58_240, 100_000, True)
    assert main(["audit", str(trace), "--against", str(before)]) == 0
    assert "58.24 us, before 100.0 us (-41.76%)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("bar", "status"), [("4.6", 0), ("4.5%", 1), ("0", 1), ("100", 0)])
def test_a_bar_for_ci(capsys: pytest.CaptureFixture[str], trace: Path, bar: str, status: int) -> None:
    # 12 of 264 places idle: 4.545 %
    assert main(["audit", str(trace), "--fail-over", bar]) == status
    assert ("of kernel time is lost to waves, over --fail-over" in capsys.readouterr().err) is bool(status)


def test_a_profile_that_does_not_name_its_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "export.sqlite"
    nsys_export(path, [kernel_row()], gpus=None)
    assert "name it with --gpu" in str(read_json(capsys, str(path))["groups"][0]["reason"])
    named = read_json(capsys, str(path), "--gpu", "virtual:h200")
    assert named["profiles"][0]["devices"][0]["sms_source"] == "command line"
    assert named["groups"][0]["sms"] == 132
    assert "device 0: 132 SMs (from: command line)" in named["notes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top", "0"], "--top: 0 is too small; give a whole number from 1 to 100000, such as 10"),
        (["--top", "x"], '--top: "x" is not a whole number'),
        (["--device", "-1"], "--device: -1 is negative"),
        (["--by", "stream"], '--by: "stream" is unknown; use one of kernel, operator'),
        (["--fail-over", "120"], '--fail-over: "120" is not a percentage from 0 to 100; give one such as 5'),
        (["--fail-over", "nan"], '--fail-over: "nan" is not a percentage'),
        (["--gpu", "h999"], "device 'h999' is unknown"),
    ],
)
def test_bad_options(capsys: pytest.CaptureFixture[str], trace: Path, options: list[str], message: str) -> None:
    assert main(["audit", str(trace), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1


def test_bad_files(capsys: pytest.CaptureFixture[str], trace: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text("")
    for argv, status in (
        ([str(empty)], 5),
        ([str(tmp_path / "missing.json")], 5),
        ([str(tmp_path)], 5),
        ([str(trace), str(empty)], 5),
        ([str(trace), "--against", str(empty)], 5),
        ([str(trace), "--counters", str(empty)], 5),
        ([], 2),
        ([str(trace), "--csv", str(tmp_path / "no" / "x.csv")], 8),
    ):
        assert main(["audit", *argv]) == status
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("wavescope: ") == 1


def test_an_input_is_not_overwritten(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    before = trace.read_bytes()
    assert main(["audit", str(trace), "--csv", str(trace)]) == 2
    assert "is an input; give another name" in capsys.readouterr().err
    os.symlink(trace, trace.with_name("link.launches.csv"))
    assert main(["audit", str(trace), "--csv", str(trace.with_name("link.csv"))]) == 2
    assert trace.read_bytes() == before


def test_launches_stand_beside_the_groups() -> None:
    assert launches_path(Path("a/x.csv")) == Path("a/x.launches.csv")
    assert launches_path(Path("x")) == Path("x.launches.csv")


def test_the_keys_of_the_json_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "audit", "json"]) == 0
    assert "groups[].active_estimated" in capsys.readouterr().out
