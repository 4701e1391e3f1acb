"""Irregular work: its words, its draws, the schedules of it, and what the check takes from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wavescope import kernel_table, kernels
from wavescope.device import virtual_device
from wavescope.errors import CompileError, UsageError
from wavescope.kernel_table import GEMM_MMA, GEMM_SIMT
from wavescope.nvrtc import compile_kernel, kernel_directory
from wavescope.operands import _CHECK_BLOCK, k_ends_of_checks
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES, Raster, decompose, tile_at
from wavescope.variant import Variant
from wavescope.work import MAX_SEED, Work

TILE = Tile(16, 16, 16)
WHOLE = tuple(name for name in SCHEDULES if name not in SPLIT_SCHEDULES)

works = st.one_of(
    st.builds(Work, st.just("ragged"), st.integers(0, MAX_SEED)),
    st.builds(Work, st.just("skip"), st.integers(0, MAX_SEED), st.floats(0, 1, exclude_max=True)),
)
problems = st.builds(Problem, st.integers(1, 300), st.integers(1, 300), st.integers(1, 900))


# Words


@given(works)
def test_what_is_written_is_read_back(work: Work) -> None:
    assert Work.parse(str(work)) == Work.parse(f" {work} ", seed=3) == work


def test_skip_takes_the_seed_given_unless_it_has_its_own() -> None:
    assert Work.parse("skip:0.5", seed=7) == Work("skip", 7, 0.5)
    assert Work.parse("skip:.5:9", seed=7) == Work("skip", 9, 0.5)
    assert Work.parse("ragged:9", seed=7) == Work("ragged", 9)
    assert str(Work("skip", 7, 0.5)) == "skip:0.5:7"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raged:1", "work 'raged:1' is unknown; did you mean ragged? write it as in ragged:7"),
        ("", "work '' is unknown; write it as"),
        ("ragged", "work 'ragged' lacks its number"),
        ("skip", "work 'skip' lacks its number"),
        ("ragged:1:2", "or has one too many"),
        ("skip:0.1:2:3", "or has one too many"),
        ("ragged:-1", "'-1' is no seed; give a whole number from 0 to 2147483647"),
        ("ragged:1.5", "'1.5' is no seed"),
        ("ragged:", "'' is no seed"),
        ("ragged:2147483648", "seed 2147483648 is outside 0 to 2147483647"),
        ("skip:0.5:x", "'x' is no seed"),
        ("skip:half", "'half' is no number; give the share of the k_iters to drop, as in skip:0.5"),
        ("skip:1", "work skip:1.0:0: 1 is no share of the k_iters to drop; give one from 0 to below 1"),
        ("skip:-0.1", "-0.1 is no share"),
        ("skip:nan", "nan is no share"),
        ("ragged:" + "9" * 500, "is no seed"),
    ],
)
def test_words_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        Work.parse(text)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 200


# Draws


def test_the_same_numbers_everywhere() -> None:
    # Traces hold the seed alone: were these to change, recorded ones would be refused.
    problem = Problem(48, 64, 160)
    assert Work("ragged", 7).k_iters_of(problem, TILE).tolist() == [[1, 8, 8, 5], [9, 10, 2, 6], [5, 10, 9, 1]]
    assert Work("skip", 7, 0.5).k_iters_of(problem, TILE).tolist() == [[4, 5, 6, 4], [7, 4, 4, 4], [6, 4, 6, 6]]


@settings(max_examples=300, deadline=None)
@given(works, problems)
def test_each_tile_takes_one_k_iter_to_all(work: Work, problem: Problem) -> None:
    found = work.k_iters_of(problem, TILE)
    assert found.shape == (TILE.tiles_m(problem), TILE.tiles_n(problem))
    assert found.dtype == np.int32
    assert found.min() >= 1
    assert found.max() <= TILE.k_iters(problem)
    assert np.array_equal(found, work.k_iters_of(problem, TILE))


def test_ragged_is_uniform() -> None:
    # 90,000 draws of 1 to 9: 10,000 each, standard deviation 94
    found = Work("ragged", 1).k_iters_of(Problem(16 * 300, 16 * 300, 16 * 9), TILE)
    assert np.abs(np.bincount(found.ravel(), minlength=10)[1:] - 10_000).max() < 5 * 94


@pytest.mark.parametrize("dropped", [0.02, 0.5, 0.9])
def test_skip_drops_each_k_iter_alone(dropped: float) -> None:
    # the number that stay of 12 is binomial, with none counted as one
    count, tiles = 12, 200 * 200
    found = Work("skip", 3, dropped).k_iters_of(Problem(16 * 200, 16 * 200, 16 * count), TILE)
    chance = [math.comb(count, n) * (1 - dropped) ** n * dropped ** (count - n) for n in range(count + 1)]
    expected = np.array([0.0, chance[0] + chance[1], *chance[2:]])
    deviation = np.sqrt(tiles * expected * (1 - expected)) + 1
    assert (np.abs(np.bincount(found.ravel(), minlength=count + 1) - tiles * expected) < 5 * deviation).all()


def test_shares_at_their_ends() -> None:
    problem = Problem(160, 160, 16 * 64)
    assert (Work("skip", 1, 0.0).k_iters_of(problem, TILE) == 64).all()
    assert (Work("skip", 1, 5e-324).k_iters_of(problem, TILE) == 64).all()
    assert (Work("skip", 1, math.nextafter(1, 0)).k_iters_of(problem, TILE) == 1).all()


def test_long_sums_do_not_fill_the_memory() -> None:
    # 2^26 k_iters, half of them dropped: standard deviation 4096
    found = Work("skip", 1, 0.5).k_iters_of(Problem(16, 16, 2**30), TILE)
    assert abs(int(found[0, 0]) - 2**25) < 6 * 4096


# Schedules


@settings(max_examples=500, deadline=None)
@given(works, problems, st.sampled_from(WHOLE), st.integers(1, 40), st.sampled_from(["row", "column", "grouped3"]))
def test_longest_first_is_a_permutation_that_descends(
    work: Work, problem: Problem, name: str, places: int, raster: str
) -> None:
    plain = decompose(name, problem, TILE, places, Raster(raster), work=work)
    lpt = decompose(name, problem, TILE, places, Raster(raster), work=work, order="lpt")
    k_iters = work.k_iters_of(problem, TILE)
    for schedule in (plain, lpt):
        tiles = schedule.tile_m.astype(np.int64) * k_iters.shape[1] + schedule.tile_n
        assert np.array_equal(np.sort(tiles), np.arange(k_iters.size))
        assert np.array_equal(schedule.k_end, k_iters[schedule.tile_m, schedule.tile_n])
        assert not schedule.k_begin.any()
        assert schedule.table is not None
        assert np.array_equal(schedule.table[:, 1], schedule.k_end)
        places_of = tile_at(schedule.table[:, 0], *k_iters.shape, Raster(raster))
        assert np.array_equal(np.stack(places_of), np.stack([schedule.tile_m, schedule.tile_n]))
        assert np.array_equal(schedule.cta, plain.cta)  # dealt in turn, whatever the order
        assert schedule.num_slots == 0
    assert plain.table is not None
    assert lpt.table is not None
    assert np.array_equal(plain.table[:, 0], np.arange(k_iters.size))
    assert (np.diff(lpt.k_end) <= 0).all()
    same = np.diff(lpt.k_end) == 0
    assert (np.diff(lpt.table[:, 0])[same] > 0).all()  # equal ones in raster order


def test_whole_sums_need_no_table() -> None:
    schedule = decompose("dynamic", Problem(48, 48, 160), TILE, 4)
    assert (schedule.work, schedule.order, schedule.table) == (None, "raster", None)
    assert schedule.in_words == "dynamic"
    ragged = decompose("dynamic", Problem(48, 48, 160), TILE, 4, work=Work("ragged", 1), order="lpt")
    assert ragged.in_words == "dynamic, longest tiles first"


@pytest.mark.parametrize("name", sorted(SPLIT_SCHEDULES))
def test_schedules_that_split_tiles_refuse_irregular_work(name: str) -> None:
    message = f"{name} cuts tiles of equal k, and with work ragged:1 each has its own; use fixed, persistent or dynamic"
    with pytest.raises(UsageError, match=message):
        decompose(name, Problem(48, 48, 160), TILE, 4, work=Work("ragged", 1))
    with pytest.raises(UsageError, match=message):
        Variant(name).check_work(Work("ragged", 1))
    with pytest.raises(UsageError, match=f"{name}@lpt: only schedules that keep tiles whole"):
        Variant.parse(f"{name}@lpt")


def test_equal_tiles_have_no_longest_first() -> None:
    with pytest.raises(
        UsageError, match=r"dynamic@lpt puts the longest tiles first, .*; use dynamic, or give the work"
    ):
        Variant.parse("dynamic@lpt").decompose(Problem(48, 48, 160), TILE, 4)


@pytest.mark.parametrize("text", ["dynamic@lpt", "persistent@row@lpt", "fixed@lpt"])
def test_variants_say_their_order(text: str) -> None:
    variant = Variant.parse(text)
    assert str(variant) == text
    work = Work("ragged", 2)
    schedule = variant.decompose(Problem(48, 48, 160), TILE, 4, work=work)
    assert (schedule.order, schedule.work, schedule.raster) == ("lpt", work, variant.raster)


# What the check and the kernels take from it


def test_each_block_of_the_check_ends_where_its_tile_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # 2 x 2 tiles of 128 x 64, k_iters of 64, k = 200: the last of 4 is cut
    monkeypatch.setattr(Work, "k_iters_of", lambda *_: np.array([[1, 2], [3, 4]], np.int32))
    found = k_ends_of_checks(Problem(200, 100, 200), Tile(128, 64, 64), Work("ragged", 0))
    assert found.tolist() == [[64, 128], [64, 128], [192, 200], [192, 200]]
    assert found.dtype == np.int32


def test_a_tile_that_is_not_whole_blocks_of_the_check_is_refused() -> None:
    refused = set()
    for kernel in kernel_table.KERNELS:
        for code in kernel.codes:
            problem, work = Problem(500, 700, 300, kernel.dtypes[0]), Work("ragged", 3)
            if code.tile.m % _CHECK_BLOCK == code.tile.n % _CHECK_BLOCK == 0:
                assert k_ends_of_checks(problem, code.tile, work).shape == (8, 11)
                continue
            refused.add(code.tile)
            with pytest.raises(UsageError, match=f"tile {code.tile} with work ragged:3 cannot be verified"):
                k_ends_of_checks(problem, code.tile, work)
    assert refused


def defines(kernel: kernel_table.Kernel, code: kernel_table.TileCode, schedule: str, probe: bool) -> dict[str, int]:
    problem = Problem(code.tile.m, code.tile.n, code.tile.k, kernel.dtypes[0])
    facts = kernels.facts(problem, code.tile, virtual_device("h200"), kernel_name=kernel.name)
    return kernels.defines(problem, facts, schedule, probe, irregular=True)


@pytest.mark.parametrize("schedule", WHOLE)
def test_kernels_of_irregular_work_compile_and_do_not_spill(schedule: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    for kernel in kernel_table.KERNELS:
        for code in kernel.codes:
            source = kernel_directory() / f"{kernel.file}.cu"
            assert compile_kernel(source, defines(kernel, code, schedule, False), "sm_90a").spill_bytes == 0, code


@pytest.mark.parametrize("kernel", [GEMM_MMA, GEMM_SIMT], ids=lambda kernel: kernel.name)
def test_a_kernel_that_splits_tiles_does_not_compile_for_it(kernel: kernel_table.Kernel) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    with pytest.raises(CompileError, match="only whole tiles have k_iters of their own"):
        compile_kernel(
            kernel_directory() / f"{kernel.name}.cu", defines(kernel, kernel.codes[0], "streamk", False), "sm_90a"
        )
