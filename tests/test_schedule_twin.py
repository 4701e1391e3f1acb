"""schedule.py against schedule.cuh, compiled by the host compiler: every unit, every round."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from host_compiler import host_compiler
from hypothesis import given, settings
from hypothesis import strategies as st

from wavescope.kernels import SCHEDULE_IDS
from wavescope.nvrtc import kernel_directory
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES, Raster, decompose

SHIM = """
#include "schedule.cuh"
extern "C" int twin(int schedule, int tiles_m, int tiles_n, int k_iters, int group, int num_ctas, int* rows) {
    const wavescope::TileGrid grid{tiles_m, tiles_n, k_iters, group};
    int count = 0;
    for (int cta = 0; cta < num_ctas; ++cta) {
        wavescope::Unit unit;
        for (int round = 0; wavescope::next_unit(schedule, grid, cta, round, num_ctas, cta + round * num_ctas, &unit);
             ++round) {
            int* row = rows + 6 * count++;
            row[0] = unit.index, row[1] = cta, row[2] = unit.tile_m, row[3] = unit.tile_n;
            row[4] = unit.k_begin, row[5] = unit.k_end;
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
rasters = st.sampled_from(["row", "column", "grouped1", "grouped3", "grouped8", "grouped999"])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SCHEDULES), problems, tiles, rasters, st.integers(1, 40))
def test_every_unit_is_the_same(
    twin: ctypes.CDLL, name: str, problem: Problem, tile: Tile, raster: str, places: int
) -> None:
    schedule = decompose(name, problem, tile, places, Raster(raster))
    tiles_m, tiles_n = tile.tiles_m(problem), tile.tiles_n(problem)
    rows = np.full((schedule.num_units + 1, 6), -7, np.int32)
    count = twin.twin(
        SCHEDULE_IDS[name],
        tiles_m,
        tiles_n,
        tile.k_iters(problem),
        Raster(raster).group(tiles_m),
        schedule.num_ctas,
        rows.ctypes.data_as(ctypes.POINTER(ctypes.c_int)),
    )
    assert count == schedule.num_units
    cuda = rows[:count][np.argsort(rows[:count, 0])]
    index = np.arange(count)
    # tickets of the dynamic schedule are drawn round robin here; who draws is not the schedule's to say
    cta = index % schedule.num_ctas if name == "dynamic" else schedule.cta
    python = np.stack([index, cta, schedule.tile_m, schedule.tile_n, schedule.k_begin, schedule.k_end], axis=1)
    assert np.array_equal(cuda, python)


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
