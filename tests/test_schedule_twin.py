"""schedule.py against schedule.cuh, compiled by the host compiler: every unit, every round."""

import ctypes
import subprocess
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from host_compiler import host_compiler
from hypothesis import given, settings
from hypothesis import strategies as st

from wavescope.kernels import SCHEDULE_IDS
from wavescope.nvrtc import kernel_directory
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES, Raster, Schedule, decompose
from wavescope.trace import Order
from wavescope.work import Work

SHIM = """
#include "schedule.cuh"
extern "C" int twin(int schedule, int tiles_m, int tiles_n, int k_iters, int group, int num_ctas, int parts,
                    int split_tiles, const wavescope::TileWork* work, int* rows) {
    const wavescope::Plan plan{{tiles_m, tiles_n, k_iters, group}, num_ctas, parts, split_tiles, 0};
    int count = 0;
    for (int cta = 0; cta < num_ctas; ++cta) {
        wavescope::Unit unit;
        for (int round = 0; wavescope::next_unit(schedule, plan, cta, round, cta + round * num_ctas, &unit); ++round) {
            if (work) unit = wavescope::unit_of_work(plan.grid, work[unit.index], unit.index);
            int* row = rows + 9 * count++;
            row[0] = unit.index, row[1] = cta, row[2] = unit.tile_m, row[3] = unit.tile_n;
            row[4] = unit.k_begin, row[5] = unit.k_end;
            const wavescope::Sharing mine = wavescope::sharing_of(schedule, plan, cta, unit);
            row[6] = mine.peers > 1 ? mine.first_slot : 0, row[7] = mine.rank, row[8] = mine.peers;
        }
    }
    return count;
}
"""


@pytest.fixture(scope="session")
def twin(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("twin")
    (folder / "twin.cpp").write_text(SHIM)
    library = folder / "twin.so"
    include = Path(kernel_directory()) / "include"
    options = ["-std=c++17", "-O1", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run([host_compiler(), *options, folder / "twin.cpp", "-o", library], check=True)
    return ctypes.CDLL(str(library))


problems = st.builds(Problem, st.integers(1, 900), st.integers(1, 900), st.integers(1, 300))
tiles = st.builds(Tile, *(st.sampled_from([16, 32, 64, 128]),) * 3)
works = st.one_of(
    st.builds(Work, st.just("ragged"), st.integers(0, 99)),
    st.builds(Work, st.just("skip"), st.integers(0, 99), st.floats(0, 0.99)),
)
rasters = st.sampled_from(["row", "column", "grouped1", "grouped3", "grouped8", "grouped999"])


def units(twin: ctypes.CDLL, schedule: Schedule) -> np.ndarray:
    """What schedule.cuh hands out, in the order of the ids."""
    tile, problem = schedule.tile, schedule.problem
    tiles_m = tile.tiles_m(problem)
    rows = np.full((schedule.num_units + 1, 9), -7, np.int32)
    grid = (tiles_m, tile.tiles_n(problem), tile.k_iters(problem), schedule.raster.group(tiles_m))
    plan = (schedule.num_ctas, schedule.parts, schedule.split_tiles)
    table = None if schedule.table is None else schedule.table.ctypes.data_as(ctypes.c_void_p)
    count = twin.twin(SCHEDULE_IDS[schedule.name], *grid, *plan, table, rows.ctypes.data_as(ctypes.c_void_p))
    assert count == schedule.num_units
    return rows[:count][np.argsort(rows[:count, 0])]


def planned(schedule: Schedule) -> np.ndarray:
    """The same by schedule.py."""
    # tickets of the dynamic schedule are drawn round robin here; who draws is not the schedule's to say
    cta = schedule.unit % schedule.num_ctas if schedule.name == "dynamic" else schedule.cta
    work = (schedule.tile_m, schedule.tile_n, schedule.k_begin, schedule.k_end)
    return np.stack([schedule.unit, cta, *work, schedule.first_slot, schedule.rank, schedule.peers], axis=1)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    name, places = draw(st.sampled_from(SCHEDULES)), draw(st.integers(1, 40))
    problem, tile = draw(problems), draw(tiles)
    left = tile.num_tiles(problem) % places
    k_iters = tile.k_iters(problem)
    at_once = min(9, k_iters, places // left if left else k_iters)
    most = {"splitk": min(9, k_iters), "streamk": places, "hybrid": 2, "tailsplit": at_once}.get(name)
    raster = Raster(draw(rasters))
    if most is None and draw(st.booleans()):
        work, order = draw(works), draw(st.sampled_from(get_args(Order)))
        return decompose(name, problem, tile, places, raster, work=work, order=order)
    parts = None if most is None else draw(st.one_of(st.none(), st.integers(1, most)))
    return decompose(name, problem, tile, places, raster, parts)


@settings(max_examples=5000, deadline=None)
@given(schedules())
def test_every_unit_is_the_same(twin: ctypes.CDLL, schedule: Schedule) -> None:
    assert np.array_equal(units(twin, schedule), planned(schedule))


@settings(max_examples=5000, deadline=None)
@given(schedules())
def test_every_k_iter_once_and_one_owner_a_tile(schedule: Schedule) -> None:
    problem, tile = schedule.problem, schedule.tile
    k_iters = tile.k_iters(problem)
    done = np.zeros((tile.tiles_m(problem), tile.tiles_n(problem), k_iters + 1), np.int64)
    at = (schedule.tile_m, schedule.tile_n)
    np.add.at(done, (*at, schedule.k_begin), 1)
    np.add.at(done, (*at, schedule.k_end), -1)
    todo = np.full(done.shape[:2], k_iters)
    if schedule.work is not None:
        todo = schedule.work.k_iters_of(problem, tile)
    assert np.array_equal(np.cumsum(done, axis=2)[:, :, :-1], np.arange(done.shape[2] - 1) < todo[:, :, None])
    assert (schedule.k_end > schedule.k_begin).all()
    first, rank, peers = (getattr(schedule, name).astype(np.int64) for name in ("first_slot", "rank", "peers"))
    backwards = schedule.name in ("streamk", "hybrid")  # their tiles are walked from the last k_iter to the first
    owns = schedule.k_end == k_iters if backwards else schedule.k_begin == 0
    assert (owns == (rank == 0)).all()
    # who shares a tile agrees on it, and their slots are theirs alone
    tile_id = schedule.tile_m.astype(np.int64) * tile.tiles_n(problem) + schedule.tile_n
    order = np.lexsort((-schedule.k_begin if backwards else schedule.k_begin, tile_id))
    starts = np.flatnonzero(np.append(True, np.diff(tile_id[order]) > 0))
    sizes = np.diff(np.append(starts, len(order)))
    assert (peers[order] == np.repeat(sizes, sizes)).all()
    assert (rank[order] == np.arange(len(order)) - np.repeat(starts, sizes)).all()
    assert (first[order] == np.repeat(first[order][starts], sizes)).all()
    split = peers > 1
    slots = (first + rank)[split & ((rank > 0) | (schedule.name == "tailsplit"))]
    assert len(np.unique(slots)) == len(slots)
    assert len(slots) == 0 or (slots.min() >= 0 and slots.max() < schedule.num_slots)
    common = first[split & (rank == 0)]  # where a tile's sums meet that come in any order
    assert len(np.unique(common)) == len(common)
    if schedule.dispatch == "static":
        assert schedule.num_slots <= schedule.num_ctas * max(
            1, -(-schedule.split_tiles * schedule.parts // schedule.num_ctas)
        )
    # CTAs wait for CTAs of smaller index only, or, where all parts of a tile wait for each other, for those around them
    owner = np.repeat(schedule.cta[order][starts], sizes)
    if schedule.name in ("splitk", "streamk", "hybrid"):
        assert (schedule.cta[order] <= owner).all()
    if schedule.name == "tailsplit" and schedule.split_tiles:
        reach = np.maximum.reduceat(schedule.cta[order], starts) - np.minimum.reduceat(schedule.cta[order], starts)
        assert reach.max() < max(schedule.parts, schedule.num_ctas // 2)
    assert (schedule.unit[1:] > schedule.unit[:-1]).all()
    assert schedule.unit[-1] < schedule.unit_ids


@settings(max_examples=200, deadline=None)
@given(problems, tiles, rasters)
def test_units_cover_each_tile_once(problem: Problem, tile: Tile, raster: str) -> None:
    schedule = decompose("fixed", problem, tile, 1, Raster(raster))
    visited = set(zip(schedule.tile_m.tolist(), schedule.tile_n.tolist(), strict=True))
    every = {(m, n) for m in range(-(-problem.m // tile.m)) for n in range(-(-problem.n // tile.n))}
    assert visited == every
    assert schedule.num_units == len(every)


def test_grouped_raster_by_hand() -> None:
    # 3 x 2 tiles in groups of two rows: down each column of the first two rows, then row 2
    schedule = decompose("fixed", Problem(48, 32, 16), Tile(16, 16, 16), 4, Raster("grouped2"))
    order = list(zip(schedule.tile_m.tolist(), schedule.tile_n.tolist(), strict=True))
    assert order == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]


def test_persistent_deals_round_robin_by_hand() -> None:
    # 5 tiles on 2 places: CTA 0 takes units 0, 2, 4 and CTA 1 takes 1, 3
    schedule = decompose("persistent", Problem(80, 16, 16), Tile(16, 16, 16), 2, Raster("row"))
    assert schedule.cta.tolist() == [0, 1, 0, 1, 0]
    assert schedule.num_ctas == 2
