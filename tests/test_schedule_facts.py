"""Published worked examples of wave arithmetic."""

from __future__ import annotations

import pytest

from wavescope.problem import Problem, Tile
from wavescope.schedule import nominal_waves, wave_efficiency

A100_SMS, H200_SMS = 108, 132


@pytest.mark.parametrize(
    ("tile", "tiles", "waves", "efficiency"),
    [
        # Osama et al., Stream-K, arXiv:2301.03598, figures 1 and 2: 384 x 384 x 128 on four SMs
        (Tile(128, 128, 4), 9, 3, 0.75),
        (Tile(128, 64, 4), 18, 5, 0.90),
    ],
)
def test_stream_k_papers_four_sms(tile: Tile, tiles: int, waves: int, efficiency: float) -> None:
    num_tiles = tile.num_tiles(Problem(384, 384, 128))
    assert num_tiles == tiles
    assert -(-num_tiles // 4) == waves
    assert wave_efficiency(num_tiles, 4) == efficiency


@pytest.mark.parametrize(
    ("n", "tiles", "percent"),
    [
        (1536, 108, 100.0),
        (1537, 117, 54.17),
        (1664, 117, 54.17),
        (3073, 225, 69.44),
        (4609, 333, 77.08),
        (6145, 441, 81.67),
    ],
)
def test_a100_with_2304_rows_and_256x128_tiles(n: int, tiles: int, percent: float) -> None:
    num_tiles = Tile(256, 128, 32).num_tiles(Problem(2304, n, 4096))
    assert num_tiles == tiles
    assert round(100 * wave_efficiency(num_tiles, A100_SMS), 2) == percent


@pytest.mark.parametrize(("size", "tiles", "percent"), [(1792, 98, 90.7), (1793, 120, 55.6)])
def test_a100_squares_on_either_side_of_one_wave(size: int, tiles: int, percent: float) -> None:
    num_tiles = Tile(256, 128, 32).num_tiles(Problem(size, size, 4096))
    assert num_tiles == tiles
    assert round(100 * wave_efficiency(num_tiles, A100_SMS), 1) == percent


def test_one_tile_more_than_a_wave_on_the_h200() -> None:
    assert round(100 * wave_efficiency(133, H200_SMS), 1) == 50.4
    assert wave_efficiency(132, H200_SMS) == 1.0
    assert nominal_waves(133, H200_SMS) == 133 / 132


def test_h200_example_of_162_tiles() -> None:
    num_tiles = Tile(128, 256, 64).num_tiles(Problem(2304, 2304, 4096))
    assert num_tiles == 162
    assert round(nominal_waves(num_tiles, H200_SMS), 3) == 1.227
    assert round(100 * wave_efficiency(num_tiles, H200_SMS), 1) == 61.4


@pytest.mark.parametrize("size", [2048, 4096, 8192])
def test_powers_of_two_hide_the_cliff_on_the_h200(size: int) -> None:
    tile = Tile(128, 128, 64) if size == 2048 else Tile(128, 256, 64)
    assert round(100 * wave_efficiency(tile.num_tiles(Problem(size, size, size)), H200_SMS), 2) == 96.97
