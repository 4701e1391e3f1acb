"""The commands at work on a virtual device: outputs, pipes, encodings, start-up."""

from __future__ import annotations

import csv
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from wavescope import __version__, cuda_device
from wavescope.cli.main import main
from wavescope.cli.numbers import share, whole_number

MAIN_JOB = ["profile", "--m", "2304", "--n", "2304", "--k", "4096", "--tile", "128x256x64"]
VIRTUAL = ["--device", "virtual:h200"]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "run.parquet"
    assert main([*MAIN_JOB, *VIRTUAL, "-o", str(path), "--json"]) == 0
    return path


def run(*argv: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """`python -m wavescope` in a process of its own, without this one's terminal settings."""
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-m", "wavescope", *argv]
    root = Path(__file__).resolve().parents[1]
    return subprocess.run(command, cwd=root, env=kept | environment, capture_output=True, check=False, timeout=60)


def test_main_job_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(MAIN_JOB) == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = " ".join(out.split())
    assert "SIMULATED because no CUDA device was found: a virtual NVIDIA H200 made these numbers" in text
    assert "162 units, grid 162, 132 places" in text
    assert "wave efficiency 61.4% (estimated)" in text
    assert "162 tiles on 132 SMs: the second round occupies 30" in text
    assert max(len(line) for line in out.splitlines()) <= 80
    assert all(line == line.rstrip() for line in out.splitlines())


def test_report_of_the_trace_is_the_report_of_the_run(capsys: pytest.CaptureFixture[str], trace_file: Path) -> None:
    capsys.readouterr()
    assert main([*MAIN_JOB, *VIRTUAL]) == 0
    ran = capsys.readouterr().out
    assert main(["report", str(trace_file)]) == 0
    assert capsys.readouterr().out == ran
    assert main([*MAIN_JOB, *VIRTUAL, "--json"]) == 0
    ran = capsys.readouterr().out
    assert main(["report", str(trace_file), "--launch", "0", "--json"]) == 0
    assert capsys.readouterr().out == ran


def test_json_is_all_there_is_on_stdout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output, table = tmp_path / "run.parquet", tmp_path / "x.csv"
    argv = [*MAIN_JOB, "--json", "-o", str(output), "--csv", str(table), "--fail-under", "0.9"]
    assert main(argv) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["waves"]["num_units"] == 162
    assert document["budget"]["not_idle"]["share"] < 0.9
    share_text = f"{100 * document['budget']['not_idle']['share']:.3f}%"
    assert err.splitlines() == [
        "wavescope: simulated because no CUDA device was found",
        f"wavescope: wrote {output}",
        f"wavescope: wrote {table} and {tmp_path / 'x.sm.csv'}",
        f"wavescope: {share_text} of SM time is not idle, below --fail-under 0.9",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.parquet", "x.csv", "x.sm.csv"]


def test_a_bar_that_is_met_ends_with_0(capsys: pytest.CaptureFixture[str], trace_file: Path) -> None:
    assert main(["report", str(trace_file), "--fail-under", "0.5"]) == 0
    assert "below" not in capsys.readouterr().err
    assert main(["report", str(trace_file), "--fail-under", "1"]) == 1


def test_export_writes_what_the_report_says(
    capsys: pytest.CaptureFixture[str], trace_file: Path, tmp_path: Path
) -> None:
    assert main(["report", str(trace_file), "--json"]) == 0
    budget = json.loads(capsys.readouterr().out)["budget"]
    assert main(["export", str(trace_file), "--csv", str(tmp_path / "x.csv")]) == 0
    assert capsys.readouterr().out == ""
    spans = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert len({row["unit"] for row in spans if row["kind"] == "mac"}) == 162
    sms = list(csv.DictReader((tmp_path / "x.sm.csv").read_text().splitlines()))
    assert len(sms) == 132
    for term in budget["terms"]:
        assert sum(int(row[f"{term['state']}_ns"]) for row in sms) == term["value"]


def test_seed_decides_the_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        assert main([*MAIN_JOB, "--json", "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("schedule", ["fixed", "persistent", "dynamic"])
@pytest.mark.parametrize("sizes", [("1", "1", "1"), ("127", "257", "65"), ("4096", "4096", "512")], ids="x".join)
@pytest.mark.parametrize("device", ["virtual:a100", "virtual:v100"])
def test_any_shape_schedule_and_device_reports(
    capsys: pytest.CaptureFixture[str], sizes: tuple[str, str, str], schedule: str, device: str
) -> None:
    dtype = "fp32" if device == "virtual:v100" else "fp16"
    argv = ["profile", "-m", sizes[0], "-n", sizes[1], "-k", sizes[2], "--dtype", dtype]
    assert main([*argv, "--schedule", schedule, "--device", device]) == 0
    out, err = capsys.readouterr()
    assert f"{sizes[0]} x {sizes[1]} x {sizes[2]} {dtype}" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert err == ""


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "wave", "efficiency"]) == 0
    assert "nominal waves / ceil(nominal waves)" in capsys.readouterr().out
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert "\nquantization " in out
    assert main(["explain", "--", "--json"]) == 0
    assert "\nbudget.not_idle.share " in capsys.readouterr().out
    assert main(["explain", "compare", "json"]) == 0
    assert "\ncontenders[].regimes[].ratio.median " in capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"wavescope {__version__}\n"
    for argv in ([], ["--help"], ["-h"]):
        assert main(argv) == 0
        out = capsys.readouterr().out
        assert "..." not in out.replace("[ARGS]...", "")  # no command's summary is cut
        for command in ("profile", "compare", "report", "export", "devices", "doctor", "explain"):
            assert f"\n  {command} " in out
    assert main(["profile", "--help"]) == 0
    assert "--fail-under" in capsys.readouterr().out


# --- in a process of its own


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from wavescope.cli.main import main; main(['--help']); "
        "print(sorted({'numpy', 'pandas', 'pyarrow', 'cupy', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    took = []
    for _ in range(3):  # processor time, so that a busy machine does not count
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert done.stderr == "[]\n"
    assert min(took) < 0.3


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_consoles_without_blocks_get_ascii(encoding: str) -> None:
    done = run(*MAIN_JOB, *VIRTUAL, PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert b"####" in done.stdout


def test_a_pipe_gets_blocks_in_utf8_and_no_control_codes() -> None:
    done = run(*MAIN_JOB, *VIRTUAL, PYTHONIOENCODING="utf-8", COLUMNS="140")
    lines = done.stdout.decode().splitlines()
    assert max(len(line) for line in lines) == 140
    assert "\x1b" not in done.stdout.decode()
    assert any("████" in line for line in lines)


def test_colour_can_be_forced_and_forbidden() -> None:
    forced = run(*MAIN_JOB, *VIRTUAL, FORCE_COLOR="1", TERM="xterm-256color")
    assert b"\x1b[38;5;39m" in forced.stdout
    without = run(*MAIN_JOB, *VIRTUAL, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color")
    assert b"38;5" not in without.stdout


@pytest.mark.parametrize("argv", [[*MAIN_JOB, *VIRTUAL], ["report", "--help"], ["devices"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(argv: list[str]) -> None:
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "wavescope", *argv]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    root = Path(__file__).resolve().parents[1]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "wavescope", *MAIN_JOB, *VIRTUAL],
            cwd=root,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert done.returncode == 8
    assert done.stderr == b"wavescope: output: No space left on device; nothing more can be written\n"


def test_names_the_console_cannot_show_are_escaped(tmp_path: Path) -> None:
    found = run("doctor", PYTHONIOENCODING="ascii", PYTHONUTF8="1", WAVESCOPE_CACHE_DIR=str(tmp_path / "caf\u00e9"))
    assert (found.returncode, found.stderr) == (0, b"")
    assert b"caf\\xe9" in found.stdout
    done = run("report", "caf\u00e9.parquet", PYTHONIOENCODING="ascii", PYTHONUTF8="1")
    assert done.returncode == 5
    assert b"caf\\xe9.parquet" in done.stderr
    assert b"Traceback" not in done.stderr


# --- numbers


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("007", 7), ("4_096", 4096), (" 12 ", 12), ("100", 100)])
def test_whole_numbers(text: str, number: int) -> None:
    assert whole_number("--m", text, most=4096, example=1) == number


def test_zero_is_fine_where_it_is_the_least() -> None:
    assert whole_number("--seed", "0", least=0, most=9, example=0) == 0
    assert whole_number("--seed", "-0", least=0, most=9, example=0) == 0


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("0.9", 0.9), ("1", 1.0), ("9e-1", 0.9)])
def test_shares(text: str, value: float) -> None:
    assert share("--fail-under", text) == value


@pytest.mark.parametrize("columns", ["0", "-3", "²", "wide"])
def test_a_nonsensical_width_does_not_count(columns: str) -> None:
    done = run(*MAIN_JOB, *VIRTUAL, COLUMNS=columns, PYTHONIOENCODING="utf-8")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Waterfall" in done.stdout


def test_what_is_noted_cannot_steer_the_terminal() -> None:
    done = run("profile", "-m", "5", "-n", "5", "-k", "5", "-o", "/nowhere/\x1b[31mred", *VIRTUAL)
    assert done.returncode == 8
    assert b"\x1b" not in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_a_stderr_that_fails_does_not_decide_the_result(tmp_path: Path) -> None:
    code = "import sys, os; sys.stderr = open('/dev/full', 'w'); from wavescope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "profile", "-m", "5", "-n", "5", "-k", "5", *VIRTUAL, "--json"]
    done = subprocess.run([*command, "-o", str(tmp_path / "x.parquet")], capture_output=True, check=False)
    assert b'"schema_version"' in done.stdout


def test_a_trace_can_go_into_a_pipe() -> None:
    done = run("profile", "-m", "300", "-n", "300", "-k", "64", *VIRTUAL, "-o", "/dev/stdout")
    assert (done.returncode, done.stdout[:4]) == (0, b"PAR1")


def test_a_name_that_is_too_long_is_said_to_be() -> None:
    done = run("profile", "-m", "5", "-n", "5", "-k", "5", *VIRTUAL, "-o", "x" * 300)
    assert done.returncode == 8
    assert b"File name too long; give another path" in done.stderr


def test_sigterm_ends_as_an_interrupt_does(tmp_path: Path) -> None:
    # the signal arrives while the file is being written: nothing of it stays behind
    code = (
        "import os, signal, sys, wavescope.output_file as out; from wavescope.__main__ import run; "
        "replace = os.replace; out.os.replace = lambda *names: os.kill(os.getpid(), signal.SIGTERM); "
        f"sys.argv = ['wavescope', 'profile', '-m5', '-n5', '-k5', *{VIRTUAL!r}, '-o', {str(tmp_path / 'x.parquet')!r}]; "
        "sys.exit(run())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (143, b"wavescope: interrupted\n")
    assert list(tmp_path.iterdir()) == []
