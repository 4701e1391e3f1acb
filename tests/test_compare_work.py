"""`wavescope compare --work`: the same irregular work for all, what imbalance costs each, and what cannot take part."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from wavescope import cuda_device
from wavescope.cli.contenders import contenders
from wavescope.cli.main import main
from wavescope.comparison import words_of
from wavescope.problem import Problem, Tile
from wavescope.trace_file import load
from wavescope.variant import schedule_of
from wavescope.work import Work

SIZES = ["--m", "2304", "--n", "2304", "--k", "4096", "--tile", "128x256x64", "--kernel", "mma"]
WORK = ["--work", "ragged:7"]
K_ITERS = int(Work("ragged", 7).k_iters_of(Problem(2304, 2304, 4096), Tile(128, 256, 64)).sum())
USEFUL = 2 * 128 * 256 * 64 * K_ITERS  # no tile sticks out


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)


def test_static_dynamic_and_longest_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["compare", "persistent", "vs", "dynamic", "vs", "dynamic@lpt", "vs", "cublas", *SIZES, *WORK]
    assert main([*words, "--json", "--csv", str(tmp_path / "x.csv"), "-o", str(tmp_path / "x.parquet")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["work"] == "ragged:7"
    assert found["problem"]["flop"] == 2 * 2304 * 2304 * 4096
    static, queue, lpt, library = found["contenders"]
    assert "not simulated" in library["unavailable"]
    assert lpt["ran"] == "dynamic, longest tiles first"
    launches = [one["regimes"][0]["launch"] for one in (static, queue, lpt)]
    times = [one["duration_ns"] for one in launches]
    assert times[0] > 1.2 * times[1] > 1.2 * times[2]
    for one, launch in zip((static, queue, lpt), launches, strict=True):
        assert launch["useful_flop"] == USEFUL
        assert one["regimes"][0]["tflops"] == pytest.approx(USEFUL / one["regimes"][0]["time_ns"]["median"] / 1e3)
    assert launches[0]["imbalance"] > launches[1]["imbalance"] > launches[2]["imbalance"]
    # the tail is all that changes, and what equal tiles would lose is the same for all, to the noise of the fits
    tails = [next(term["sm_ns"] for term in one["terms"] if term["state"] == "tail") for one in launches]
    assert tails[0] - launches[0]["imbalance"] == pytest.approx(tails[2] - launches[2]["imbalance"], rel=0.01)
    verdict = lpt["regimes"][0]["verdict"]
    assert verdict["outcome"] == "faster"
    assert verdict["reasons"][0] == "tail"
    assert verdict["gain"] is None  # waves of equal tiles say nothing here
    lost = [launch["imbalance"] / 132 / 1e3 for launch in (launches[0], launches[2])]
    assert f"Of its tail persistent loses {lost[0]:+.1f} us to imbalance, dynamic@lpt {lost[1]:+.1f} us" in " ".join(
        verdict["sentences"]
    )
    rows = list(csv.DictReader((tmp_path / "x.csv").read_text().splitlines()))
    assert {row["work"] for row in rows} == {"ragged:7"}
    assert float(rows[0]["imbalance_share"]) == pytest.approx(launches[0]["imbalance"] / (132 * times[0]))
    for launch, ran in zip(load(tmp_path / "x.parquet").launches, (static, queue, lpt), strict=True):
        assert words_of(launch) == ran["ran"]
        assert schedule_of(launch).work == Work("ragged", 7)
        assert main(["report", str(tmp_path / "x.parquet"), "--launch", str(launch.launch_id), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["flop"]["useful"] == USEFUL


def test_the_table_says_what_imbalance_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "persistent", "dynamic@lpt", *SIZES, *WORK]) == 0
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert f"tiles 162 of unequal k_iters (ragged:7), {K_ITERS / (162 * 64):.1%} of 64 each, for every schedule" in text
    assert "tail imbalance" in text
    assert "imbalance: the tail beyond that of as many equal tiles (estimated)" in text
    assert max(len(line) for line in out.splitlines()) <= 80
    assert main(["compare", "persistent", "dynamic", *SIZES]) == 0
    assert "imbalance" not in capsys.readouterr().out


def test_all_stands_for_those_that_can(capsys: pytest.CaptureFixture[str]) -> None:
    every = ("fixed", "persistent", "dynamic", "persistent@lpt", "dynamic@lpt")
    assert contenders(["all"], irregular=True).names == every
    assert contenders(["dynamic@lpt", "all"], irregular=True).names == ("dynamic@lpt", *every[:-1])
    assert main(["compare", "all", *SIZES, *WORK, "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["contenders"]] == list(every)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["persistent", "streamk", *SIZES, *WORK], "streamk cuts tiles of equal k, and with work ragged:7"),
        (["persistent", "dynamic@lpt", *SIZES], "dynamic@lpt puts the longest tiles first"),
        (["persistent", "dynamic", *SIZES, "--work", "skip:2"], "2 is no share of the k_iters"),
        (["dynamic@lpt", "dynamic@lpt@grouped8", *SIZES, *WORK], "dynamic@lpt is named twice"),
    ],
)
def test_what_cannot_be_compared(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    assert main(["compare", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("wavescope: ")
    assert err.count("\n") == 1
    assert said in err


def test_an_order_is_not_the_same_work(capsys: pytest.CaptureFixture[str]) -> None:
    # 2 x 2 tiles on 132 SMs: no difference in time, but other units on other SMs
    small = ["--m", "256", "--n", "512", "--k", "4096", "--tile", "128x256x64", *WORK, "--json"]
    outcomes = []
    for words in (["dynamic", "dynamic@lpt"], ["persistent", "fixed"]):
        assert main(["compare", *words, *small]) == 0
        outcomes.append(json.loads(capsys.readouterr().out)["contenders"][1]["regimes"][0]["verdict"]["outcome"])
    assert outcomes == ["even", "same work"]
