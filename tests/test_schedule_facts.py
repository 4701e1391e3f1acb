"""Published worked examples of wave arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from wavescope.errors import ShapeError, UsageError
from wavescope.grid_model import GridModel
from wavescope.problem import Problem, Tile
from wavescope.schedule import Schedule, decompose, nominal_waves, wave_efficiency
from wavescope.variant import Variant

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


# The Stream-K paper's worked examples on four SMs, 128 x 128 x 4 tiles (arXiv:2301.03598, figures 1 to 3).
SMALL, MEDIUM = Problem(384, 384, 128), Problem(896, 384, 128)
PAPERS_TILE = Tile(128, 128, 4)


def by_cta(schedule: Schedule) -> list[int]:
    """k_iters of each CTA."""
    return np.bincount(schedule.cta, weights=schedule.k_iters).astype(int).tolist()


def test_stream_k_shares_288_iterations_72_each() -> None:
    schedule = decompose("streamk", SMALL, PAPERS_TILE, 4, parts=4)
    assert by_cta(schedule) == [72, 72, 72, 72]


def test_stream_k_begins_at_0_32_64_96() -> None:
    schedule = decompose("streamk", MEDIUM, PAPERS_TILE, 4, parts=4)
    assert by_cta(schedule) == [168, 168, 168, 168]
    # shares are dealt from the last CTA to the first, and tiles walked from k = 128 to 0
    starts = [128 - int(schedule.k_end[schedule.cta == cta][0]) * PAPERS_TILE.k for cta in (3, 2, 1, 0)]
    assert starts == [0, 32, 64, 96]


def test_stream_k_goes_through_k_together() -> None:
    # 162 tiles of 64 k_iters for 132 CTAs, 78 or 79 each: what a CTA does first begins at k 0, and what it does
    # last, after a whole tile or not, is then 14 or 15 k_iters behind
    schedule = decompose("streamk", Problem(2304, 2304, 4096), Tile(128, 256, 64), H200_SMS, parts=H200_SMS)
    firsts = [np.flatnonzero(schedule.cta == cta)[0] for cta in range(H200_SMS)]
    assert np.count_nonzero(schedule.k_begin[firsts]) == 0
    lag = []
    for cta in range(H200_SMS):
        mine = np.flatnonzero(schedule.cta == cta)
        begun = np.append(0, np.cumsum(schedule.k_iters[mine])[:-1])
        lag += (begun - schedule.k_begin[mine])[schedule.peers[mine] > 1].tolist()
    assert sorted(set(lag)) == [0, 14, 15]


@pytest.mark.parametrize(("parts", "whole", "iters"), [(1, 20, 8), (2, 16, 40)])
def test_hybrids_of_21_tiles(parts: int, whole: int, iters: int) -> None:
    schedule = decompose("hybrid", MEDIUM, PAPERS_TILE, 4, parts=parts)
    shared = schedule.unit < schedule.split_tiles + 4
    assert 21 - schedule.split_tiles == whole
    assert np.bincount(schedule.cta[shared], weights=schedule.k_iters[shared]).tolist() == [iters] * 4
    assert by_cta(schedule) == [168] * 4


@pytest.mark.parametrize(
    ("problem", "grid"),
    [(Problem(256, 3584, 8192), 108), (Problem(1024, 1024, 1024), 64), (Problem(128, 128, 16384), 8)],
)
def test_papers_grid_sizes_on_108_sms(problem: Problem, grid: int) -> None:
    tile, model = Tile(128, 128, 32), GridModel(a=0, b=10, c=1, d=8)
    assert model.best_grid(tile.num_tiles(problem), tile.k_iters(problem), 108) == grid
    assert decompose("streamk", problem, tile, 108, model=model).num_ctas == grid


@pytest.mark.parametrize("problem", [Problem(512, 512, 8192), Problem(128, 128, 32768), Problem(1152, 2560, 8192)])
def test_hybrid_of_few_tiles_takes_as_many_ctas_as_streamk(problem: Problem) -> None:
    # H200, 2026-11: one tile of 512 k_iters took 104 us in 132 shares, which one CTA adds, and 58 us in 16
    tile = Tile(128, 256, 64)
    hybrid, streamk = (decompose(name, problem, tile, H200_SMS) for name in ("hybrid", "streamk"))
    assert 1 < hybrid.num_ctas == streamk.num_ctas < H200_SMS
    for column in ("unit", "cta", "k_begin", "k_end", "rank", "peers"):
        assert np.array_equal(getattr(hybrid, column), getattr(streamk, column)), column


def test_tail_split_of_162_tiles() -> None:
    # 30 tiles are left over on 132 places: four parts each fill 120 of them, 16 k_iters long
    schedule = decompose("tailsplit", Problem(2304, 2304, 4096), Tile(128, 256, 64), H200_SMS, parts=4)
    assert (schedule.split_tiles, schedule.num_slots, schedule.num_ctas) == (30, 120, 132)
    assert set(schedule.k_iters[:120].tolist()) == {16}
    assert max(by_cta(schedule)) == 80


def test_the_same_part_of_neighbouring_tiles_runs_side_by_side() -> None:
    # 132 CTAs, 4 parts: 16 tiles together, whose 64 CTAs are fewer than half of all; then the other 14
    schedule = decompose("tailsplit", Problem(2304, 2304, 4096), Tile(128, 256, 64), H200_SMS, parts=4)
    found = sorted(zip(schedule.cta[:120].tolist(), schedule.unit[:120].tolist(), strict=True))
    first = [(16 * part + tile, 4 * tile + part) for part in range(4) for tile in range(16)]
    other = [(64 + 14 * part + tile, 64 + 4 * tile + part) for part in range(4) for tile in range(14)]
    assert found == [*first, *other]
    # a tile of more parts than half of the CTAs is alone
    alone = decompose("tailsplit", Problem(256, 128, 64 * 12), Tile(128, 128, 64), 24, parts=12)
    assert alone.cta.tolist() == list(range(24))


# 30 tiles of 64 k_iters in p parts on 132 places, 132 whole tiles before: a part takes 2 + ceil(64 / p), and 4 to leave
# its sum; the 132 - 30 p CTAs without a part then have 8 for each of 30 tiles, over as many CTAs.
PLAIN = GridModel(a=2, b=4, c=1, d=4, share=4, spare=8)


@pytest.mark.parametrize(
    ("parts", "reducers", "time"),
    [
        (1, 0, 66),  # nothing to add
        (2, 72, 38),  # 8 * 30 / 72 is less than 38
        (3, 42, 28),
        (4, 12, 22),  # 8 * 30 / 12 = 20
    ],
)
def test_spare_ctas_add_the_sums_of_162_tiles(parts: int, reducers: int, time: float) -> None:
    assert PLAIN.tail_reducers(30, 64, parts, H200_SMS, 132) == reducers
    assert PLAIN.tail_time(30, 64, parts, H200_SMS, 132) == time
    schedule = decompose("tailsplit", Problem(2304, 2304, 4096), Tile(128, 256, 64), H200_SMS, parts=parts, model=PLAIN)
    assert schedule.reducers == reducers
    assert PLAIN.best_tail_parts(30, 64, H200_SMS, 132) == 4


@pytest.mark.parametrize(
    ("spare", "reducers", "time"),
    [
        (8.8, 12, 22),  # 22: no longer than a part
        (10.0, 12, 25),  # 25: 3 longer, and a share would take 4
        (10.4, 0, 26),  # 26: shares are as fast
        (12.0, 0, 26),
    ],
)
def test_shares_where_spare_ctas_are_not_faster(spare: float, reducers: int, time: float) -> None:
    model = GridModel(a=2, b=4, c=1, d=4, share=4, spare=spare)
    assert model.tail_reducers(30, 64, 4, H200_SMS, 132) == reducers
    assert model.tail_time(30, 64, 4, H200_SMS, 132) == pytest.approx(time)


def test_no_ctas_are_spare_without_whole_tiles_or_without_places() -> None:
    assert PLAIN.tail_reducers(30, 64, 4, H200_SMS, 0) == 0
    assert PLAIN.tail_time(30, 64, 4, H200_SMS) == 26
    assert PLAIN.tail_reducers(33, 64, 4, H200_SMS, 132) == 0  # 132 parts
    assert PLAIN.tail_time(33, 64, 4, H200_SMS, 132) == 26
    assert decompose("tailsplit", Problem(384, 384, 128), PAPERS_TILE, 10, model=PLAIN).reducers == 0  # 9 tiles


def test_spare_ctas_are_the_last_and_have_no_part() -> None:
    schedule = decompose("tailsplit", Problem(2304, 2304, 4096), Tile(128, 256, 64), H200_SMS, model=PLAIN)
    assert (schedule.parts, schedule.reducers, schedule.adds_by) == (4, 12, "spare_cycles")
    assert schedule.in_words.endswith("then 132 whole tiles, 12 spare CTAs add the parts")
    assert int(schedule.cta[schedule.peers > 1].max()) == H200_SMS - 12 - 1
    assert set(range(H200_SMS - 12, H200_SMS)) <= set(schedule.cta.tolist())
    by_shares = decompose("tailsplit", MEDIUM, PAPERS_TILE, 4, model=GridModel(a=2, b=4, c=1, d=0))
    assert (by_shares.reducers, by_shares.adds_by) == (0, "share_cycles")


def test_names_say_when_nothing_is_split() -> None:
    tile = Tile(128, 256, 64)
    one_each, two_each = Problem(128 * 11, 256 * 12, 4096), Problem(128 * 22, 256 * 12, 4096)  # 132 and 264 tiles
    for name in ("hybrid", "tailsplit"):
        assert decompose(name, one_each, tile, H200_SMS).in_words.endswith("so it runs as fixed")
        assert decompose(name, two_each, tile, H200_SMS).in_words.endswith("so it runs as persistent on 132 CTAs")
    assert decompose("splitk", two_each, tile, H200_SMS, parts=1).in_words.endswith("so it runs as fixed")
    half = decompose("streamk", two_each, tile, H200_SMS, parts=66)
    assert half.in_words == "streamk: no tile is split here; 66 CTAs of 4 neighbouring tiles"
    assert half.comes_to == "streamk"  # persistent hands a CTA every 66th tile


def test_a_refused_number_of_parts_names_the_limit_that_binds() -> None:
    for problem, parts, why in (
        (Problem(512, 16, 64), 2, "k has 1 k_iters"),
        (Problem(1280, 2560, 8192), 2, "100 tiles are left over"),
        (Problem(128, 256, 32768), 33, "at most 32 CTAs wait for one another"),
    ):
        with pytest.raises(ShapeError, match=why):
            decompose("tailsplit", problem, Tile(128, 256, 64), H200_SMS, parts=parts)


def test_hybrid_that_shares_all_tiles_comes_to_streamk() -> None:
    tile = Tile(128, 256, 64)
    names = [
        decompose("hybrid", problem, tile, H200_SMS).comes_to
        for problem in (Problem(2304, 2304, 4096), Problem(1408, 1408, 4096), Problem(3072, 3072, 3072))
    ]
    assert names == ["streamk", "streamk", "hybrid"]
    assert decompose("fixed", Problem(1408, 1408, 4096), tile, H200_SMS).comes_to == "fixed"
    assert decompose("dynamic", Problem(1408, 1408, 4096), tile, H200_SMS).comes_to == "fixed"
    assert decompose("dynamic", Problem(3072, 3072, 3072), tile, H200_SMS).comes_to == "dynamic"


@pytest.mark.parametrize(
    ("name", "parts", "message"),
    [
        ("fixed", 4, "fixed takes no number"),
        ("streamk", 133, "streamk:133 is not possible (CTAs that share all k_iters: 1 to 132"),
        ("hybrid", 3, "use hybrid:2"),
        ("splitk", 65, "k has 64 k_iters"),
        ("tailsplit", 0, "use tailsplit:1"),
    ],
)
def test_numbers_that_do_not_go(name: str, parts: int, message: str) -> None:
    with pytest.raises((ShapeError, UsageError)) as refused:
        decompose(name, Problem(2304, 2304, 4096), Tile(128, 256, 64), H200_SMS, parts=parts)
    assert message in str(refused.value)


def test_a_schedule_has_one_raster() -> None:
    assert str(Variant.parse("fixed@row")) == "fixed@row"
    with pytest.raises(UsageError, match='"fixed@row@column" names several rasters'):
        Variant.parse("fixed@row@column")


def test_shares_of_few_k_iters_leave_no_place_empty() -> None:
    # 133 tiles of 64 k_iters on 132 SMs: the one left over has not a k_iter for each, so two tiles' worth are shared
    few = decompose("hybrid", Problem(17024, 256, 4096), Tile(128, 256, 64), H200_SMS, parts=1)
    assert (few.num_ctas, few.split_tiles) == (132, 133)
    many = decompose("hybrid", Problem(17024, 256, 64 * 132), Tile(128, 256, 64), H200_SMS, parts=1)
    assert (many.num_ctas, many.split_tiles) == (132, 1)
    for problem in (Problem(17024, 256, 64), Problem(62336, 256, 64)):
        one_k = decompose("hybrid", problem, Tile(128, 256, 64), H200_SMS, parts=1)
        assert (one_k.num_ctas, one_k.num_slots) == (132, 0)
    assert one_k.in_words == "hybrid: no tile is split here; 132 CTAs"
    uneven = decompose("streamk", Problem(62336, 256, 64), Tile(128, 256, 64), H200_SMS, parts=132)
    assert uneven.in_words == "streamk: no tile is split here; 132 CTAs of 3 or 4 neighbouring tiles"
