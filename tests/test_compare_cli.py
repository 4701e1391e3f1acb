"""`wavescope compare`: what it takes, what it refuses, what it writes."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import compare_fixture as fixture
from wavescope import cuda_device
from wavescope.cli import target
from wavescope.cli.contenders import contenders
from wavescope.cli.main import main
from wavescope.comparison import Comparison, unavailable
from wavescope.device import virtual_device
from wavescope.errors import DeviceError, UsageError
from wavescope.report.figures import below
from wavescope.schedule import SCHEDULES
from wavescope.trace_file import load
from wavescope.variant import Variant

SIZES = ["--m", "2304", "--n", "2304", "--k", "4096"]
SMALL = ["--m", "512", "--n", "512", "--k", "256", "--tile", "128x128x64"]
TILE = ["--tile", "128x256x64"]
VIRTUAL = ["--device", "virtual:h200"]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)


# --- words


def names(*words: str) -> tuple[str, ...]:
    return contenders(words).names


def test_vs_may_stand_between_or_not() -> None:
    assert names("fixed", "vs", "streamk") == names("fixed", "streamk") == ("fixed", "streamk")
    assert names("fixed", "VS", "splitk:4", "vs.", "tailsplit:8@row") == ("fixed", "splitk:4", "tailsplit:8@row")


def test_all_stands_for_every_schedule_that_is_not_named() -> None:
    assert names("all") == SCHEDULES
    assert names("streamk", "vs", "all") == ("streamk", *(name for name in SCHEDULES if name != "streamk"))
    assert names("all", "vs", "fixed", "cublas") == (
        *(name for name in SCHEDULES if name != "fixed"),
        "fixed",
        "cublas",
    )
    assert names("fixed@row", "ALL")[:2] == ("fixed@row", "fixed")


def test_the_library_keeps_its_place_and_is_no_variant() -> None:
    found = contenders(["cuBLAS", "vs", "tailsplit:4"])
    assert (found.names, found.library) == (("cublas", "tailsplit:4"), True)
    assert found.variants == (Variant("tailsplit", 4),)
    assert not contenders(["fixed", "streamk"]).library


WORDS: list[tuple[list[str], tuple[str, ...]]] = [
    (["fixed"], ("fixed alone is no comparison", "name a second contender, as in 'wavescope compare")),
    (["cublas"], ("cublas alone is no comparison",)),
    (["vs", "fixed", "vs"], ("fixed alone",)),
    ([], ("no schedules to compare", "as in 'wavescope compare")),
    (["vs"], ("no schedules to compare",)),
    (["fixed", "fixed"], ("fixed is named twice",)),
    (["fixed", "fixed@grouped8"], ("fixed is named twice",)),  # the same, written out
    (["cublas", "fixed", "CUBLAS"], ("cublas is named twice",)),
    (["all", "all"], ("all is named twice",)),
    (["fixed", "streemk"], ('"streemk" is no schedule to compare', "did you mean streamk?")),
    (["fixed", "StreamK"], ("did you mean streamk?",)),
    (["fixed", "cublass"], ("did you mean cublas?",)),
    (["fixed", "al"], ("did you mean all?",)),
    (["fixed", "zzz"], ('"zzz"', "use fixed, persistent, dynamic", "cublas or all")),
    (["fixed", ""], ('""',)),
    (["fixed", "2304x2304x4096"], ('"2304x2304x4096" is a problem', "compare once for each problem")),
    (["fixed", "cublas:3"], ('"cublas:3"', "takes no options")),
    (["fixed", "persistent:3"], ("persistent takes no number",)),
    (["fixed", "splitk:4@zigzag"], ("zigzag", "row, column or groupedG")),
    (["fixed", "splitk:x"], ("splitk:x", "splitk:4@grouped8")),
    (["fixed", "fixed@atomic"], ("fixed@atomic",)),
]


@pytest.mark.parametrize(("words", "said"), WORDS, ids=[" ".join(words) or "none" for words, _ in WORDS])
def test_words_that_are_no_comparison(words: list[str], said: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as error:
        contenders(words)
    for part in said:
        assert part in str(error.value)


# --- the command line


def failed(capsys: pytest.CaptureFixture[str], argv: list[str], status: int, *said: str) -> None:
    assert main(["compare", *argv]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("wavescope: ")
    assert err.count("\n") == 1
    for part in said:
        assert part in err


USAGE: list[tuple[list[str], int, tuple[str, ...]]] = [
    (["fixed", *SIZES], 2, ("fixed alone",)),
    (SIZES, 2, ("no schedules to compare",)),
    (["fixed", "streamk", "--m", "2304", "--n", "2304"], 2, ("missing option '--k'",)),
    (["fixed", "streamk", *SIZES, "--m", "4096"], 2, ("--m is given as 2304 and as 4096", "different problems")),
    (["fixed", "streamk", *SIZES, "-k", "64"], 2, ("--k is given as 4096 and as 64",)),
    (["fixed", "streamk", *SIZES[:-1], "x"], 2, ("--k", '"x"')),
    (["fixed", "streamk", *SIZES, "--regime", "warm"], 2, ("--regime", '"warm"', "cool, sustained, both")),
    (["fixed", "streamk", *SIZES, "--dtype", "fp8"], 2, ("--dtype", '"fp8"')),
    (["fixed", "streamk", *SIZES, "--repeat", "0"], 2, ("--repeat",)),
    (["fixed", "streamk", *SIZES, "--fail-under-ratio", "0"], 2, ("--fail-under-ratio", '"0"', "1.05")),
    (["fixed", "streamk", *SIZES, "--fail-under-ratio", "most"], 2, ('"most"',)),
    (["fixed", "streamk", *SIZES, "-o", "x", "--csv", "x"], 2, ("--csv: x is already -o",)),
    (["fixed", "streamk", *SIZES, "--csv", "-"], 2, ("not a file name",)),
    (["fixed", "streamk", *SIZES, "-o", "no/x.parquet"], 8, ("no/x.parquet", "create it first")),
    (["fixed", "streamk", *SIZES, "--tile", "1x1x1"], 2, ("1x1x1", "128x256x64")),
    (["fixed", "streamk:133", *SIZES, *TILE], 2, ("streamk:133 is not possible", "use streamk:132")),
    (["fixed", "streamk", *SIZES, "--device", "virtual:t4"], 3, ("bf16", "--dtype fp32")),
]


@pytest.mark.parametrize(("argv", "status", "said"), USAGE, ids=[" ".join(argv[-2:]) for argv, _, _ in USAGE])
def test_usage(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    argv: list[str],
    status: int,
    said: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    failed(capsys, argv, status, *said)
    assert list(tmp_path.iterdir()) == []


def test_the_same_size_twice_is_one_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "fixed", "persistent", *SMALL, "--m", "512"]) == 0
    capsys.readouterr()


# --- simulated


def test_without_a_gpu_it_is_simulated_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "fixed", "vs", "tailsplit", *SIZES, *TILE]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = " ".join(out.split())
    assert "SIMULATED because no CUDA device was found: a virtual NVIDIA H200 made these numbers" in text
    assert "SIMULATED: tailsplit is " in text
    assert "tail removed" in text
    assert max(len(line) for line in out.splitlines()) == 80


def test_json_is_all_there_is_on_stdout_and_files_agree_with_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace, table = tmp_path / "x.parquet", tmp_path / "x.csv"
    argv = ["compare", "persistent", "vs", "tailsplit:2", "vs", "cublas", *SIZES, *TILE, "-o", str(trace)]
    assert main([*argv, "--json", "--csv", str(table)]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert err.splitlines() == [
        "wavescope: simulated because no CUDA device was found",
        f"wavescope: wrote {trace}, launches 0 persistent, 1 tailsplit:2",
        f"wavescope: wrote {table}",
    ]
    recorded = load(trace)
    assert [launch.schedule for launch in recorded.launches] == ["persistent", "tailsplit"]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["contender"] for row in rows] == ["persistent", "tailsplit:2", "cublas"]
    assert float(rows[1]["ratio"]) == document["contenders"][1]["regimes"][0]["ratio"]["median"]
    for launch in recorded.launches:  # every launch of the file has its own report
        assert main(["report", str(trace), "--launch", str(launch.launch_id), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        mine = document["contenders"][launch.launch_id]["regimes"][0]["launch"]
        assert report["budget"]["duration_ns"] == mine["duration_ns"]
    failed_without = main(["report", str(trace)])
    assert failed_without == 2
    assert (
        "choose one with --launch: 0 (persistent 2304x2304x4096), 1 (tailsplit 2304x2304x4096)\n"
        in capsys.readouterr().err
    )


def test_a_bar_judges_the_last_against_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", "fixed", "vs", "tailsplit", *SIZES, *TILE, "--json"]
    assert main([*argv, "--fail-under-ratio", "1.2"]) == 0
    assert "below" not in capsys.readouterr().err
    assert main([*argv, "--fail-under-ratio", "3"]) == 1
    assert "times as fast as fixed (simulated), below 3" in capsys.readouterr().err
    turned = ["compare", "tailsplit", "vs", "fixed", *SIZES, *TILE, "--json", "--fail-under-ratio", "0.9"]
    assert main(turned) == 1
    assert "fixed is 0." in capsys.readouterr().err


@pytest.mark.parametrize("words", [("fixed", "cublas"), ("cublas", "fixed")], ids=" ".join)
def test_a_bar_on_what_did_not_run_is_not_met(capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> None:
    argv = ["compare", *words, *SMALL]
    assert main(argv) == 0  # the row says so, the command does not fail
    assert "cublas did not run" in capsys.readouterr().out
    assert main([*argv, "--fail-under-ratio", "0.1"]) == 1
    assert "cublas did not run, so --fail-under-ratio 0.1 is not met" in capsys.readouterr().err


def test_all_schedules_on_another_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "all", "vs", "cublas", *SMALL, "--device", "virtual:a100", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    for name in SCHEDULES:
        assert f"\n  {name} " in out
    assert "runs as fixed" in out  # 16 tiles on 108 SMs: nothing for persistent to do
    assert max(len(line) for line in out.splitlines()) <= 80


# --- measured, with the GPU side replaced


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[Comparison], list[dict[str, Any]]]:
    """A GPU whose measurement is a comparison made by hand; what it was asked for is kept."""
    asked: list[dict[str, Any]] = []

    def install(found: Comparison) -> list[dict[str, Any]]:
        def duel(*args: Any, **options: Any) -> Comparison:
            asked.append({"args": args, **options})
            return found

        monkeypatch.setitem(sys.modules, "wavescope.duel", SimpleNamespace(duel=duel))  # type: ignore[arg-type]
        device = target.Target(virtual_device("h200"), 0)
        monkeypatch.setattr(target, "choose", lambda _: device)
        return asked

    return install


def test_a_measured_comparison(capsys: pytest.CaptureFixture[str], gpu: Any, tmp_path: Path) -> None:
    asked = gpu(fixture.full_comparison())
    words = ["fixed", "tailsplit", "streamk:4", "persistent@row", "hybrid", "cublas"]
    argv = ["compare", *words, *SIZES, "-o", str(tmp_path / "x.parquet"), "--fail-under-ratio", "1.6"]
    assert main([*argv, "--repeat", "7", "--ctas-per-sm", "1"]) == 0
    out, err = capsys.readouterr()
    assert "SIMULATED" not in out
    assert "hybrid did not run: it was left out." in out
    assert "launches 0 fixed cool, 1 fixed sustained, 2 tailsplit cool, 3 tailsplit sustained" in err
    (call,) = asked
    assert tuple(entry.variant for entry in call["args"][1]) == (
        Variant("fixed"),
        Variant("tailsplit"),
        Variant("streamk", 4),
        Variant.parse("persistent@row"),
        Variant("hybrid"),
    )
    assert {key: call[key] for key in ("library", "regimes", "repeat", "most_ctas", "seed")} == {
        "library": True,
        "regimes": ("cool", "sustained"),
        "repeat": 7,
        "most_ctas": 1,
        "seed": 0,
    }
    assert main(["compare", *words, *SIZES, "--json", "--regime", "sustained", "--fail-under-ratio", "1.7"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["source"] == "measured"
    assert asked[1]["regimes"] == ("sustained",)


def test_the_library_as_reference(capsys: pytest.CaptureFixture[str], gpu: Any) -> None:
    gpu(fixture.full_comparison())
    argv = ["compare", "cublas", "vs", "fixed", "vs", "tailsplit", *SIZES, "--json"]
    main(argv)
    document = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in document["contenders"]][:3] == ["cublas", "fixed", "tailsplit"]
    assert document["first"] == "cublas"
    assert document["contenders"][2]["regimes"][0]["ratio"]["median"] == pytest.approx(120 / 162)


def test_without_the_extra_the_librarys_row_says_so(capsys: pytest.CaptureFixture[str], gpu: Any) -> None:
    real = fixture.full_comparison()
    missing = unavailable("cublas", "cuBLAS is not installed; pip install 'wavescope[cublas]'")
    gpu(replace(real, contenders=(*real.contenders[:4], missing)))
    assert main(["compare", "cublas", "fixed", "tailsplit", "streamk:4", "persistent@row", *SIZES]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "cublas did not run: cuBLAS is not installed; pip install 'wavescope[cublas]'." in text
    assert "tailsplit is 1.241 times as fast as fixed" in text  # the first that ran is the reference


def test_a_gpu_that_is_asked_for_is_never_replaced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_driver(index: int) -> None:
        raise DeviceError(f"device cuda:{index} does not exist; this machine has none")

    monkeypatch.setattr(cuda_device, "query", no_driver)
    failed(capsys, ["fixed", "streamk", *SIZES, "--device", "cuda:0"], 3, "--device cuda:0", "does not exist")


def test_all_keeps_to_what_the_kernel_runs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "all", "--m", "2304", "--n", "2304", "--k", "4096", "--device", "virtual:h200", "--json"]
    assert main([*words, "--kernel", "gemm_sm90_cluster2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["contenders"]] == ["fixed", "persistent"]


def test_a_simulated_verdict_says_what_it_leaves_out_past_the_l2(capsys: pytest.CaptureFixture[str]) -> None:
    def told(*words: str, k: int) -> str:
        problem = ["--m", "4352", "--n", "4352", "--k", str(k), "--tile", "128x128x64", "--device", "virtual:h200"]
        assert main(["compare", *words, *problem]) == 0
        return " ".join(capsys.readouterr().out.split())

    said = "CTAs of streamk are at different k and read past the L2 here, which a simulation leaves out"
    assert said in told("fixed", "streamk", k=8192)
    assert said in told("streamk", "fixed", k=8192)
    assert "past the L2" not in told("fixed", "streamk", k=2048)
    assert "past the L2" not in told("fixed", "persistent", k=8192)


def test_a_hybrid_of_few_tiles_is_described_as_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    problem = ["--m", "512", "--n", "512", "--k", "8192", "--tile", "128x256x64", "--kernel", "gemm_mma"]
    assert main(["compare", "fixed", "hybrid", "streamk", *problem, "--device", "virtual:h200", "--json"]) == 0
    _, hybrid, streamk = json.loads(capsys.readouterr().out)["contenders"]
    ctas = int(streamk["ran"].split()[1])  # "streamk: 64 CTAs of .."
    assert ctas < 132
    assert hybrid["ran"] == f"hybrid: all 8 tiles shared by {ctas} CTAs, as by streamk"


def test_a_ratio_below_its_bar_has_the_digits_that_show_it() -> None:
    assert below(1.25, 1.31) == "1.250"
    assert below(1.3096, 1.31) == "1.3096"
    assert below(1.31 - 1e-9, 1.31) == "1.309999999"
    assert below(np.nextafter(1.31, 0), 1.31) != "1.310"
