"""Tiles of unequal k from schedule to report: five of 10, 2, 4, 1 and 8 k_iters by hand, and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_simulate import FREE, TILE
from test_simulate import run as simulated

from wavescope import cuda_device
from wavescope.analyze import analyze
from wavescope.cli.main import main
from wavescope.device import virtual_device
from wavescope.flop import Flop
from wavescope.integrity import check
from wavescope.meaning import meaning
from wavescope.problem import Problem, Tile
from wavescope.schedule import Raster, Schedule
from wavescope.trace import Kind, Trace
from wavescope.trace_file import load
from wavescope.variant import Variant
from wavescope.virtual import run as run_virtual
from wavescope.wave_report import TailSplit
from wavescope.work import Work

SIZES = (10, 2, 4, 1, 8)  # k_iters of 320 ns
PROBLEM = Problem(16, 16 * len(SIZES), 16 * max(SIZES))
WORK = Work("ragged", 0)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every work gives the five tiles their SIZES."""
    with monkeypatch.context() as patch:
        patch.setattr(Work, "k_iters_of", lambda *_: np.array([SIZES], np.int32))
        yield


def five(variant: str, sms: int) -> Schedule:
    return Variant.parse(variant, Raster("row")).decompose(PROBLEM, TILE, sms, work=WORK)


def on(variant: str, sms: int) -> Trace:
    return simulated(five(variant, sms), FREE, sms=sms)


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    ("variant", "on_four", "on_two"),
    [
        # in turn: 10 + 8 on the first of four SMs; 10 + 4 + 8 on the first of two
        ("persistent", 18, 22),
        # the 8 goes to the SM that is done with the 1; of two: 10 | 2 + 4 + 1 + 8
        ("dynamic", 10, 15),
        ("fixed", 10, 15),
        # 10, 8, 4, 2, 1: the 1 to the SM that is done with the 2; of two: 10 + 2 | 8 + 4, then the 1
        ("dynamic@lpt", 10, 13),
        ("fixed@lpt", 10, 13),
        # 10 + 1 | 8 | 4 | 2; of two: 10 + 4 + 1 | 8 + 2
        ("persistent@lpt", 11, 15),
    ],
)
def test_makespans_by_hand(variant: str, on_four: int, on_two: int) -> None:
    for sms, k_iters in ((4, on_four), (2, on_two)):
        trace = on(variant, sms)
        check(trace, five(variant, sms))
        assert trace.spans.end_ns.max() == 320 * k_iters


def split(trace: Trace) -> TailSplit:
    found = analyze(trace).tail
    assert found is not None
    return found


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    ("variant", "imbalance"),
    [
        # 25 k_iters in all, 5 the mean.  Equal ones: two on one of four SMs, M* = 10, quantization 4 * 10 - 25 = 15.
        # persistent: T = 18, tail 4 * 18 - 25 = 47, imbalance 32;  T = 10: tail 15, imbalance 0;  T = 11: 19, 4
        ("persistent", 32),
        ("dynamic", 0),
        ("dynamic@lpt", 0),
        ("persistent@lpt", 4),
    ],
)
def test_the_tail_of_irregular_work_is_imbalance(variant: str, imbalance: int) -> None:
    found = split(on(variant, 4))
    assert found.of_equal_units
    assert found.makespan_ns == pytest.approx(10 * 320)
    assert found.quantization.value == pytest.approx(15 * 320)
    assert found.imbalance.value == pytest.approx(imbalance * 320, abs=1e-6)
    assert (found.cost.per_k_iter_ns, found.cost.store_ns) == (pytest.approx(320), pytest.approx(0, abs=1e-6))


@pytest.mark.usefixtures("by_hand")
def test_unequal_tiles_may_lose_less_than_equal_ones() -> None:
    # two SMs: equal ones 3 * 5 = 15, quantization 2 * 15 - 25 = 5; longest first 13, a tail of 1
    found = split(on("dynamic@lpt", 2))
    assert found.quantization.value == pytest.approx(5 * 320)
    assert found.imbalance.value == pytest.approx(-4 * 320)


@pytest.mark.usefixtures("by_hand")
def test_sentences_name_the_work_and_what_equal_tiles_would_lose() -> None:
    # the first SM is done after 1 of 18; tail 47 of 72, equal ones 15 of 72
    assert meaning(analyze(on("persistent", 4)))[0] == (
        "SIMULATED, nothing of this was measured. 5 tiles of unequal size (ragged:0) on 4 SMs have no rounds in common: "
        "the first SM is done at 6% of the time, and waiting for the last ones (the tail) is 65.3% of all SM time, where "
        "as many of equal size would lose 20.8% (estimated)."
    )
    assert analyze(on("persistent", 4)).waves.reason == (
        "units differ in size by work ragged:0 (1 to 10 k_iters), so they have no wave in common"
    )
    # five of eight SMs, one tile each: no equal ones would lose anything
    assert "SMs with short ones end earlier" in meaning(analyze(on("persistent", 8)))[0]
    assert "where as many of equal size would lose 0.0% (estimated)" in meaning(analyze(on("persistent", 8)))[0]


# Operations


def brute_force(problem: Problem, tile: Tile, k_iters: np.ndarray) -> Flop:
    """Each element of C has the k of its tile, and each tile is whole."""
    useful = 0
    for row in range(problem.m):
        for column in range(problem.n):
            useful += 2 * min(problem.k, int(k_iters[row // tile.m, column // tile.n]) * tile.k)
    return Flop(useful, 2 * tile.m * tile.n * tile.k * int(k_iters.sum()))


@pytest.mark.parametrize("work", ["ragged:3", "skip:0.4:5", "skip:0:0"])
def test_operations_are_those_of_the_units_that_ran(work: str) -> None:
    problem, tile = Problem(200, 150, 300), Tile(64, 64, 64)  # 4 x 3 tiles of 5 k_iters, cut at every edge
    asked = Work.parse(work)
    trace = run_virtual(
        problem, tile, Variant.parse("dynamic"), virtual_device("h200"), reason="a test", work=asked, seed=1
    )
    report = analyze(trace)
    expected = brute_force(problem, tile, asked.k_iters_of(problem, tile))
    assert report.flop == expected
    assert report.budget.padding.value == pytest.approx(
        report.budget.terms["mac"].value * (1 - expected.useful / expected.issued)
    )
    assert report.waterfall is not None
    assert report.waterfall.achieved_tflops == pytest.approx(expected.useful / report.budget.duration_ns / 1e3)
    product = report.waterfall.peak_tflops * float(np.prod([factor.value for factor in report.waterfall.factors]))
    assert product == pytest.approx(report.waterfall.achieved_tflops, rel=1e-9)
    if asked.dropped == 0 and asked.kind == "skip":
        assert expected == Flop(problem.flop, tile.issued_flop(problem))


# The command line

MAIN_JOB = ["profile", "--m", "2304", "--n", "2304", "--k", "4096", "--tile", "128x256x64", "--device", "virtual:h200"]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)


def test_text_says_work_and_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    argv = [*MAIN_JOB, "--work", "ragged:7", "--schedule", "dynamic@lpt", "-o", str(path)]
    assert main(argv) == 0
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert "schedule dynamic, longest tiles first (lpt), raster grouped8: 162 units, grid 132, 132 places" in text
    useful = Work("ragged", 7).k_iters_of(Problem(2304, 2304, 4096), Tile(128, 256, 64)).sum() / (162 * 64)
    assert f"work ragged:7: each tile takes its own number of k_iters, in all {useful:.1%} of the problem's" in text
    assert "No waves: units differ in size by work ragged:7 (1 to 64 k_iters)" in text
    assert "quantization is what as many units of the mean cost would lose" in text
    assert "raster order" not in text  # it decides which unit gets which k
    assert max(len(line) for line in out.splitlines()) <= 80
    assert main(["report", str(path)]) == 0
    assert capsys.readouterr().out == out
    assert main(["report", str(path), "--spread"]) == 0
    assert "Not asked: with work ragged:7 units differ by their k_iters" in " ".join(capsys.readouterr().out.split())
    launch = load(path).launches[0]
    assert (launch.work, launch.order) == ("ragged:7", "lpt")


def test_json_has_work_order_and_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MAIN_JOB, "--work", "skip:0.5", "--seed", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["launch"]["work"], found["launch"]["order"]) == ("skip:0.5:3", "raster")
    kept = int(Work("skip", 3, 0.5).k_iters_of(Problem(2304, 2304, 4096), Tile(128, 256, 64)).sum())
    assert found["flop"] == {"useful": 2 * 128 * 256 * 64 * kept, "issued": 2 * 128 * 256 * 64 * kept}
    assert found["launch"]["problem"]["flop"] == 2 * 2304 * 2304 * 4096
    assert found["tail"]["of_equal_units"]


def test_work_that_drops_nothing_is_regular(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MAIN_JOB, "--work", "skip:0", "--json"]) == 0
    dropped = json.loads(capsys.readouterr().out)
    assert main([*MAIN_JOB, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert [dropped[key] for key in ("budget", "waves", "waterfall", "flop")] == [
        whole[key] for key in ("budget", "waves", "waterfall", "flop")
    ]


def test_order_matters_and_work_is_the_same_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    # 3 x 132 tiles: equal ones would fill three waves
    argv = ["profile", "--m", "4096", "--n", str(4096 * 99 // 32), "--k", "4096", "--tile", "128x256x64", "--json"]
    argv += ["--device", "virtual:h200", "--work", "ragged:1", "--schedule"]
    times, useful = {}, set()
    for schedule in ("persistent", "dynamic", "dynamic@lpt"):
        assert main([*argv, schedule]) == 0
        found = json.loads(capsys.readouterr().out)
        times[schedule] = found["budget"]["duration_ns"]
        useful.add(found["flop"]["useful"])
    assert times["persistent"] > 1.1 * times["dynamic"] > 1.1 * times["dynamic@lpt"]
    assert len(useful) == 1


def test_spans_say_each_tiles_k(by_hand: None) -> None:
    macs = on("dynamic@lpt", 4).spans
    macs = macs.select(macs.kind == Kind.MAC)
    assert dict(zip(macs.tile_n.tolist(), macs.k_end.tolist(), strict=True)) == dict(enumerate(SIZES))
    assert macs.tile_n[np.argsort(macs.unit)].tolist() == [0, 4, 2, 1, 3]
