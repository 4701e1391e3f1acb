"""Tiles and schedules ranked by predicted time: the choice on problems whose answer is plain, ties, and the commands."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.test_cli_errors import failed
from wavescope import auto, cuda_device
from wavescope.auto import CUT_MARGIN, MOST_UNITS, OF_EACH, Choice, rank
from wavescope.calibration import table
from wavescope.calibration_row import Calibration
from wavescope.cli.contenders import contenders
from wavescope.cli.main import main
from wavescope.comparison import Entry
from wavescope.device import Device, virtual_device
from wavescope.errors import DeviceError, ShapeError, UsageError
from wavescope.kernel_table import KERNELS
from wavescope.problem import Problem, Tile
from wavescope.schedule import SPLIT_SCHEDULES
from wavescope.trace_file import load
from wavescope.variant import Variant
from wavescope.virtual_comparison import predicted_ns
from wavescope.work import Work

H200, A100 = virtual_device("h200"), virtual_device("a100-80gb")
BIG = Tile(128, 256, 64)
ONE_WAVE = Problem(128 * 12, 256 * 11, 4096)  # 132 tiles of BIG on 132 SMs
PARTIAL = Problem(2304, 2304, 4096)
JOB = ["--m", "2304", "--n", "2304", "--k", "4096", "--device", "virtual:h200"]


@pytest.fixture
def even_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of every tile scaled from one row, without noise, so that equal work takes equal time."""
    (row,) = (one for one in table() if (one.kernel, one.tile) == ("gemm_mma", BIG))
    even = replace(row, kernel="gemm_sm90", cycles_per_k_iter=1024.0, noise=0.0, clock_spread=0.0)

    def lookup(kernel: str, tile: Tile, *_: object, **__: object) -> Calibration:
        share = tile.m * tile.n / (BIG.m * BIG.n)
        return replace(even, kernel=kernel, tile=tile, cycles_per_k_iter=1024.0 * share)

    monkeypatch.setattr(auto, "lookup", lookup)
    monkeypatch.setattr("wavescope.virtual.lookup", lookup)


def words(*chosen: Choice) -> list[str]:
    return [str(one) for one in chosen]


@pytest.mark.usefixtures("even_costs")
def test_tiles_that_fill_all_sms_stay_whole() -> None:
    found = rank(ONE_WAVE, H200, kernel="gemm_sm90")
    assert str(found.best) == "gemm_sm90 128x256x64 persistent"
    assert found.best.exact
    # 256 x 128 makes 6 x 22 tiles of the same cost: a tie, which the name decides
    second = found.choices[1]
    assert (str(second), second.predicted_ns) == ("gemm_sm90 256x128x64 persistent", found.best.predicted_ns)
    # three waves of them just as well
    three = Problem(128 * 36, 256 * 11, 4096)
    assert words(*rank(three, H200, kernel="gemm_sm90").choices[:2]) == words(*found.choices[:2])


@pytest.mark.usefixtures("even_costs")
def test_few_tiles_of_long_sums_are_cut() -> None:
    found = rank(Problem(512, 512, 8192), H200, kernel="gemm_sm90")
    assert found.best.variant.schedule in SPLIT_SCHEDULES
    whole = rank(Problem(512, 512, 8192), H200, kernel="gemm_sm90", variants=[Variant("persistent")]).best
    assert found.best.predicted_ns < 0.75 * whole.predicted_ns


@pytest.mark.usefixtures("even_costs")
def test_a_partial_wave_is_shared_out_by_a_smaller_tile_or_a_split() -> None:
    found = rank(PARTIAL, H200, kernel="gemm_sm90")
    (whole,) = rank(PARTIAL, H200, tiles=[BIG], variants=[Variant("fixed")]).choices
    assert str(found.best) != str(whole)
    assert found.best.predicted_ns < 0.8 * whole.predicted_ns


@pytest.mark.usefixtures("even_costs")
def test_equal_schedules_go_by_the_simpler_one() -> None:
    # one wave: fixed and persistent are the same launch, in whatever order they are given
    for given in (["fixed", "persistent"], ["persistent", "fixed"]):
        found = rank(ONE_WAVE, H200, tiles=[BIG], variants=[Variant(name) for name in given])
        assert [one.variant.schedule for one in found.choices] == ["persistent", "fixed"]
        assert len({one.predicted_ns for one in found.choices}) == 1


def test_the_same_ranking_every_time() -> None:
    first = rank(PARTIAL, H200)
    assert rank(PARTIAL, H200) == first
    assert all(with_margin(one) <= with_margin(other) for one, other in pairwise(first.choices))


def with_margin(one: Choice) -> float:
    return one.predicted_ns * (CUT_MARGIN if one.variant.schedule in SPLIT_SCHEDULES else 1)


def test_cut_tiles_must_win_by_more_than_their_simulation_errs() -> None:
    """On a problem where they win by less, whole tiles are taken, and the faster simulation stands among the others."""
    problem = Problem(2048, 4352, 4096)
    ranking = rank(problem, H200)
    cut = min(one.predicted_ns for one in ranking.choices if one.is_cut)
    whole = min(one.predicted_ns for one in ranking.choices if not one.is_cut)
    assert whole / CUT_MARGIN < cut < whole
    assert not ranking.best.is_cut


def test_predictions_are_those_of_compare() -> None:
    for one in rank(PARTIAL, H200, seed=3).choices[:4]:
        assert one.predicted_ns == predicted_ns(PARTIAL, Entry("auto", one.variant, one.tile, one.kernel), H200, seed=3)


def test_sums_stand_in_for_simulations() -> None:
    """The sum that decides which are simulated is near what the simulation says, whatever the schedule."""
    for problem in (PARTIAL, Problem(4096, 4096, 4096), Problem(512, 512, 8192), Problem(1408, 1408, 4096)):
        for device in (H200, A100):
            for one in rank(problem, device).choices:
                assert one.summed_ns == pytest.approx(one.predicted_ns, rel=0.35), one


def test_every_kernel_that_runs_here_takes_part() -> None:
    assert rank(Problem(64, 64, 64), H200).best.kernel == "gemm_mma"  # the only one with such a small tile
    assert {one.kernel for one in rank(PARTIAL, H200, kernel="gemm_mma").choices} == {"gemm_mma"}
    assert {one.kernel for one in rank(PARTIAL, A100).choices} == {"gemm_mma"}
    assert {one.kernel for one in rank(Problem(2304, 2304, 4096, "fp32"), H200).choices} == {"gemm_simt"}


def test_teams_that_take_turns_keep_tiles_whole() -> None:
    found = rank(PARTIAL, H200, kernel="gemm_sm90_pingpong")
    assert {one.variant.schedule for one in found.choices} == {"persistent", "fixed"}
    assert all(one.exact for one in found.choices)
    assert "gemm_sm90_pingpong" in {one.kernel for one in rank(PARTIAL, H200).choices}
    named = rank(PARTIAL, H200, kernel="gemm_sm90_pingpong", variants=[Variant("tailsplit")])
    assert named.best.variant.schedule == "tailsplit"  # asked for


def test_shares_at_different_k_only_where_a_and_b_fit_the_l2() -> None:
    def schedules(k: int, device: Device = H200) -> set[str]:
        return {one.variant.schedule for one in rank(Problem(2816, 2816, k), device, tiles=[BIG]).choices}

    assert {"streamk", "hybrid", "splitk"} <= schedules(64 * 87)  # 62.7 of 62.9 MB
    assert schedules(64 * 88) & {"streamk", "hybrid", "splitk"} == {"splitk"}
    assert {"streamk", "hybrid"} <= schedules(64 * 88, replace(H200, l2_bytes=2 * H200.l2_bytes))
    # asked for, they are simulated
    asked = rank(Problem(2816, 2816, 8192), H200, tiles=[BIG], variants=[Variant("hybrid")])
    assert asked.best.variant.schedule == "hybrid"


def test_shares_that_are_equal_parts_of_tiles_are_left_to_splitk() -> None:
    # 44 tiles in three parts each fill 132 SMs: those of splitk that run side by side are at the same k
    found = {one.variant for one in rank(Problem(128 * 4, 256 * 11, 64 * 60), H200, tiles=[BIG]).choices}
    assert Variant("splitk", 3) in found
    assert not {"streamk", "hybrid"} & {one.schedule for one in found}
    named = rank(Problem(128 * 4, 256 * 11, 64 * 60), H200, tiles=[BIG], variants=[Variant("streamk", 132)])
    assert named.best.variant == Variant("streamk", 132)


def test_a_short_launch_cuts_tiles_only_for_a_microsecond() -> None:
    ranking = rank(Problem(176, 664, 496), H200)  # H200, 2026-12: splitk:2 of gemm_mma 5.1 us, 64x128 persistent 4.0
    fastest = min(ranking.choices, key=lambda one: one.predicted_ns)
    assert fastest.is_cut
    assert not ranking.best.is_cut
    assert fastest.predicted_ns < ranking.best.predicted_ns < fastest.predicted_ns + auto.CUT_NS
    assert "cut tiles must win by 3 % and by 1 us" in str(ranking)


def test_few_of_many_are_simulated_within_a_second() -> None:
    for problem in (PARTIAL, Problem(2**15, 2**15, 512), Problem(128, 128, 2**20)):
        begin = time.process_time()
        found = rank(problem, H200)
        assert time.process_time() - begin < 3.0  # a machine that does other things too
        assert found.considered > len(found.choices)
        schedules = [one.variant.schedule for one in found.choices]
        assert max(schedules.count(name) for name in schedules) <= OF_EACH
        assert sum(one.effort for one in found.choices) <= MOST_UNITS


def test_only_what_was_asked_for() -> None:
    tiles = [Tile(128, 128, 64), BIG]
    found = rank(PARTIAL, H200, tiles=tiles, variants=[Variant.parse("tailsplit:4")])
    assert words(*found.choices) == ["gemm_sm90 128x256x64 tailsplit:4"]  # of 128 x 128 too many tiles are left over
    with pytest.raises(ShapeError, match="tailsplit:4 is not possible"):
        rank(PARTIAL, H200, tiles=tiles[:1], variants=[Variant.parse("tailsplit:4")])
    with pytest.raises(UsageError, match="tile 1x2x3 is not one of"):
        rank(PARTIAL, H200, tiles=[Tile(1, 2, 3)])
    with pytest.raises(DeviceError, match="of device memory"):
        rank(Problem(2**19, 2**19, 64), H200)


def test_irregular_work_has_its_own_tile() -> None:
    ragged = Work("ragged", 7)
    found = rank(PARTIAL, H200, tiles=[BIG], work=ragged)
    assert found.best.variant == Variant("dynamic", order="lpt")
    assert not any(one.variant.schedule in SPLIT_SCHEDULES for one in found.choices)
    with pytest.raises(UsageError, match="work ragged:7 is another one for each tile"):
        rank(PARTIAL, H200, work=ragged)


def test_in_one_line() -> None:
    found = rank(Problem(512, 512, 8192), H200, kernel="gemm_mma")
    best, second = found.choices[:2]
    text = str(found)
    assert text.startswith(f"auto takes {best}, {best.predicted_ns / 1e3:.4g} us, then {second} ")
    assert text.endswith(f"(estimated, of {found.considered} tiles and schedules)")
    assert str(rank(Problem(512, 512, 8192), A100)).endswith("; unit costs are scaled)")


# --- the commands


def test_profile_takes_the_best(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    found = rank(PARTIAL, H200)
    assert main(["profile", *JOB, "--tile", "auto", "--schedule", "auto", "-o", str(path)]) == 0
    assert str(found) in " ".join(capsys.readouterr().out.split())
    (launch,) = load(path).launches
    assert (launch.kernel, launch.tile, Variant.of(launch).schedule) == (
        found.best.kernel, found.best.tile, found.best.variant.schedule,
    )  # fmt: skip
    assert launch.notes[-1] == str(found)


@pytest.mark.parametrize("size", [(3072, 3072, 3072), (4224, 4096, 4096), (2112, 2048, 1024)])
def test_tiles_that_leave_no_tail_do_not_stop_a_schedule_that_cuts_it(size: tuple[int, int, int]) -> None:
    problem = Problem(*size)
    ranking = rank(problem, H200, variants=[Variant("tailsplit")])
    tiles = [code.tile for kernel in KERNELS if "bf16" in kernel.dtypes for code in kernel.codes]
    assert any(tile.num_tiles(problem) % H200.sms == 0 for tile in tiles)
    assert ranking.considered == len(tiles)


def test_a_number_that_few_tiles_take_finds_one_of_them() -> None:
    problem = Problem(2304, 2304, 4096)
    best = rank(problem, H200, variants=[Variant("tailsplit", 4)]).best
    assert best.tile == Tile(128, 256, 64)  # the runner-up where everything is open
    with pytest.raises(ShapeError, match=r"with tile \d+x\d+x64 tailsplit:33 is not possible"):
        rank(problem, H200, variants=[Variant("tailsplit", 33)])


def test_of_equal_times_the_fuller_last_wave_is_taken() -> None:
    large = rank(Problem(8192, 8192, 8192), H200)
    assert str(large.best) == "gemm_sm90_pingpong 128x192x64 persistent"  # 99 % full; h200_hopper.json: 0.996
    ranking = rank(Problem(5120, 4096, 4096), H200)
    assert str(ranking.best) == "gemm_sm90 256x160x64 persistent"  # 98 % full
    times = {str(one): one.predicted_ns for one in ranking.choices}
    other = times["gemm_sm90 128x256x64 persistent"]  # 97 % full
    assert other < ranking.best.predicted_ns < auto.TIE * other
    assert "; of equal times those that fill their waves" in str(ranking)


def test_tiles_that_read_parts_of_lines_are_left_out() -> None:
    tn, nn = (Problem(1152, 4352, 4096, "bf16", layout) for layout in ("tn", "nn"))  # type: ignore[arg-type]
    assert str(rank(tn, H200).best).startswith("gemm_sm90 192x200x64")
    ranking = rank(nn, H200)
    assert {choice.tile.n % 64 for choice in ranking.choices} == {0}
    assert any(choice.tile.m % 64 for choice in ranking.choices)  # turned ones read B in whole lines
    assert rank(nn, H200, tiles=[Tile(192, 200, 64)]).best.tile.n == 200  # who asks for one gets it


def test_profile_takes_the_best_of_what_is_left_open(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--kernel", "mma", "--tile", "128x256x64", "--raster", "row", "--json"]
    assert main(["profile", *JOB, *given, "--schedule", "auto"]) == 0
    launch = json.loads(capsys.readouterr().out)["launch"]
    assert (launch["kernel"], launch["tile"]["n"], launch["raster"]) == ("gemm_mma", 256, "row")
    assert launch["schedule"] == "tailsplit"
    assert main(["profile", *JOB, "--tile", "auto", "--schedule", "fixed", "--json"]) == 0
    launch = json.loads(capsys.readouterr().out)["launch"]
    assert launch["schedule"] == "fixed"
    assert launch["notes"][-1].startswith("auto takes gemm_sm90_pingpong ")


def test_auto_is_a_contender(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", "fixed", "vs", "auto", "vs", "cublas", *JOB, "--kernel", "mma", "--tile", "128x256x64"]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    fixed, best, library = found["contenders"]
    assert (fixed["name"], best["name"], library["name"]) == ("fixed", "auto", "cublas")
    assert best["ran"].startswith("tailsplit: ")
    assert best["notes"][-1].startswith("auto takes gemm_mma 128x256x64 tailsplit:")
    assert not any(note.startswith("auto") for note in fixed["notes"])
    assert best["regimes"][0]["time_ns"]["median"] < fixed["regimes"][0]["time_ns"]["median"]
    assert main(argv) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "auto tailsplit: 30 tiles cut into" in shown
    assert "auto is 1." in shown


def test_all_contenders_of_a_chosen_tile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "fixed", "persistent", *JOB, "--tile", "auto", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    best = rank(PARTIAL, H200, variants=[Variant("fixed"), Variant("persistent")]).best
    assert (found["kernel"], found["tile"]["m"], found["tile"]["n"]) == (best.kernel, best.tile.m, best.tile.n)
    # what auto chose may be there by name: then both do the same work
    small = ["--m", "512", "--n", "512", "--k", "256", "--device", "virtual:h200", "--tile", "128x128x64", "--json"]
    assert main(["compare", "persistent", "auto", *small]) == 0
    assert json.loads(capsys.readouterr().out)["contenders"][1]["regimes"][0]["verdict"]["outcome"] == "same work"


def test_the_word_auto() -> None:
    lineup = contenders(["fixed", "auto", "cublas"])
    assert (lineup.names, lineup.own_names) == (("fixed", "auto", "cublas"), ("fixed", "auto"))
    assert lineup.variants == (Variant("fixed"), None)
    with pytest.raises(UsageError, match="auto is named twice"):
        contenders(["auto", "auto"])
    assert "auto" not in contenders(["all"]).names


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["profile", "--schedule", "auto:4"], '"auto:4": auto takes no options'),
        (["profile", "--tile", "auto:4"], '"auto:4": auto takes no options; it chooses the tile'),
        (["profile", "--tile", "auto", "--work", "ragged:7"], "work ragged:7 is another one for each tile"),
        (["profile", "--tile", "auto", "--schedule", "tailsplit:33"], "tailsplit:33 is not possible"),
        (["profile", "--tile", "auto", "--kernel", "simt"], "gemm_simt computes fp32, not bf16"),
        (["profile", "--schedule", "auto", "--tile", "9x9x9"], "tile 9x9x9 is not one of"),
        (["compare", "fixed", "auto@row"], '"auto@row": auto takes no options'),
        (["compare", "auto"], "auto alone is no comparison"),
    ],
)
def test_what_does_not_go_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    failed(capsys, [*argv, *JOB], 2, said)


def test_a_kernel_of_few_schedules_is_given_those() -> None:
    ranking = rank(PARTIAL, H200, kernel="gemm_mma_sync")
    assert {one.variant.schedule for one in ranking.choices} == {"persistent", "fixed"}


def test_the_line_says_why_a_slower_simulation_is_taken() -> None:
    problem = Problem(2048, 4352, 4096)  # as in test_cut_tiles_must_win_by_more_than_their_simulation_errs
    assert "; cut tiles must win by 3 % and by 1 us)" in str(rank(problem, H200))
    assert "must win" not in str(rank(Problem(4096, 4096, 4096), H200))
    assert " ms, then" in str(rank(Problem(8192, 8192, 8192), H200))
