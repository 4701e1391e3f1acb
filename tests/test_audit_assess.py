"""How launches fill the GPU: tiles, capacity, rounds and what is lost, with numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from audit_fixture import A100, GEMM, H200, NCCL, PLAIN, ROW, launches
from hypothesis import given
from hypothesis import strategies as st

from wavescope.audit.activity import SPREAD, UNKNOWN_MATH_SHARE, activity, math_share
from wavescope.audit.assess import Assessment, Key, assess, cluster_size
from wavescope.audit.assessed import assess_launches, estimated_activity, keys_of, lost_ns
from wavescope.audit.capacity import (
    FROM_DIVISION,
    FROM_DRIVER,
    FROM_GRIDS,
    FROM_OCCUPANCY,
    Capacity,
    Needs,
    capacity,
    occupancy_share,
    peak_flop_per_ns,
)
from wavescope.audit.launches import NULL, UNKNOWN_PART, ProfiledDevice
from wavescope.audit.names import decode
from wavescope.audit.operators import Gemm, gemm_of
from wavescope.audit.tiling import Tiling, tiling


def key(**changes: object) -> Key:
    names = Key.__dataclass_fields__
    return Key(**{name: value for name, value in {**ROW, **changes}.items() if name in names})  # type: ignore[arg-type]


# --- operators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "shapes", "product"),
    [
        ("aten::mm", ((2, 3), (3, 4)), Gemm(1, 2, 4, 3)),
        ("aten::addmm", ((4,), (2, 3), (3, 4), (), ()), Gemm(1, 2, 4, 3)),
        ("aten::bmm", ((5, 2, 3), (5, 3, 4)), Gemm(5, 2, 4, 3)),
        ("aten::baddbmm", ((1,), (5, 2, 3), (5, 3, 4)), Gemm(5, 2, 4, 3)),
        ("aten::linear", ((7, 2, 3), (4, 3), (4,)), Gemm(1, 14, 4, 3)),
        ("aten::matmul", ((7, 1, 2, 3), (6, 3, 4)), Gemm(42, 2, 4, 3)),
        ("aten::matmul", ((2, 3), (6, 3, 4)), Gemm(6, 2, 4, 3)),
        ("aten::_scaled_mm", ((2, 3), (3, 4), (), ()), Gemm(1, 2, 4, 3)),
        ("aten::mm", ((2, 3), (4, 3)), None),  # do not fit
        ("aten::matmul", ((7, 2, 3), (6, 3, 4)), None),
        ("aten::mm", ((2, 3),), None),
        ("aten::mm", ((2, 0), (0, 4)), None),
        ("aten::mm", ((2**31, 2**31), (2**31, 2**31)), None),  # 2**93 multiply-adds
        ("aten::mm", None, None),
        ("aten::mm", ((2, 3), "x"), None),
        ("aten::add", ((2, 3), (3, 4)), None),
        (None, ((2, 3), (3, 4)), None),
    ],
)
def test_an_operator_and_its_shapes_give_the_product(operator: str, shapes: object, product: Gemm | None) -> None:
    assert gemm_of(operator, shapes) == product


# --- tiling --------------------------------------------------------------------------------------


def cut(name: str, gemm: Gemm, blocks: int, cluster: int = 1) -> Tiling:
    decoded = decode(name)
    assert decoded is not None
    found = tiling(decoded, gemm, blocks, cluster)
    assert found is not None
    return found


def test_2304_by_2304_in_tiles_of_168_by_128_is_126_pairs_for_66_clusters() -> None:
    # 168 covers n: ceil(2304 / 168) = 14; 128 covers m, two to a cluster: 2304 / 256 = 9.  14 * 9 = 126 pairs.
    assert cut(GEMM, Gemm(1, 2304, 2304, 4096), 132, 2) == Tiling(
        tiles=252,
        group=2,
        groups=126,
        split_k=1,
        split_is_known=True,
        empty=0,
        issued_macs=252 * 168 * 128 * 4096,
        useful_macs=2304 * 2304 * 4096,
        agrees=True,
    )


def test_a_cluster_takes_its_tiles_together_and_some_lie_outside() -> None:
    # n: ceil(3080 / 128) = 25 columns of tiles, in pairs 13; m: ceil(2064 / 208) = 10: 130 pairs, 10 tiles of them void.
    found = cut("nvjet_sm90_tst_128x208_64x5_2x1_v_bz_coopA_TNT", Gemm(1, 2064, 3080, 2064), 132)
    assert (found.tiles, found.groups, found.empty, found.agrees) == (250, 130, 10, True)
    # k is padded to 33 steps of 64
    assert found.issued_macs == 260 * 128 * 208 * 2112


def test_a_batch_counts_each_product() -> None:
    found = cut("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", Gemm(16, 1024, 1024, 64), 132)
    assert (found.tiles, found.groups) == (16 * 4 * 8, 16 * 4 * 4)


@pytest.mark.parametrize(
    ("blocks", "split", "known"),
    [
        (56, 1, True),  # 7 groups of 8 tiles on 7 clusters
        (112, 2, True),
        (80, 4, False),  # 10 clusters: 2, 3, 4 parts are 14, 21, 28 groups in 2, 3, 3 rounds: 70 %, 70 %, 93 %
    ],
)
def test_the_grid_tells_the_number_of_splits_or_the_best_filling_one_is_taken(
    blocks: int, split: int, known: bool
) -> None:
    name = "nvjet_sm90_tst_128x80_64x8_2x4_h_bz_splitK_TNT"
    found = cut(name, Gemm(1, 320, 1736, 12712), blocks)
    assert (found.split_k, found.split_is_known, found.groups) == (split, known, 7 * split)


def test_a_product_asked_for_transposed_is_recognised_by_the_grid() -> None:
    # 2 columns of 168 in n = 336, 2 * 128 rows in m = 1024: 2 * 4 = 8 pairs, 16 blocks.
    straight = cut(GEMM, Gemm(1, 1024, 336, 64), 16)
    assert (straight.groups, straight.agrees) == (8, True)
    # With m and n exchanged, ceil(1024 / 168) * ceil(336 / 256) = 14 pairs need 28 blocks.
    assert cut(GEMM, Gemm(1, 336, 1024, 64), 28).groups == 14
    # A grid of 28 blocks for the first product is explained only by the exchange.
    assert cut(GEMM, Gemm(1, 1024, 336, 64), 28) == cut(GEMM, Gemm(1, 336, 1024, 64), 28)


def test_more_blocks_than_tiles_do_not_agree() -> None:
    assert not cut(GEMM, Gemm(1, 100, 100, 64), 66).agrees


def test_one_tile_a_block_where_the_kernel_is_not_persistent() -> None:
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_execute_kernel__5x_cublas"
    whole = cut(name, Gemm(1, 368, 2144, 616), 3 * 34)  # ceil(368 / 128) * ceil(2144 / 64)
    assert (whole.tiles, whole.split_k, whole.agrees) == (102, 1, True)
    assert cut(name, Gemm(1, 368, 2144, 616), 204).split_k == 2
    assert not cut(name, Gemm(1, 368, 2144, 616), 100).agrees


def test_padding_is_what_lies_outside() -> None:
    found = cut(GEMM, Gemm(1, 2304, 2304, 4096), 132)
    assert found.padding == pytest.approx(1 - 2304 * 2304 / (252 * 168 * 128))


# --- capacity ------------------------------------------------------------------------------------


NVJET = Needs(384, 168, 206_044)
SMALL = Needs(256, 47, 0)


def test_without_clusters_places_are_computed() -> None:
    # 48 registers a thread, rounded to 1536 a warp: 65536 / 4 / 1536 = 10 warps a quarter, 40 warps, 5 CTAs of 8.
    assert capacity(SMALL, A100, 108) == Capacity(108, 5, 540, 108, FROM_OCCUPANCY, is_estimate=False)


def test_the_drivers_clusters_come_first_then_the_profiles_own_then_a_division() -> None:
    eight = replace(NVJET, cluster=8)
    assert capacity(replace(eight, max_active_clusters=15), H200, 132) == Capacity(
        132, 1, 120, 120, FROM_DRIVER, is_estimate=False
    )
    assert capacity(eight, H200, 132, seen_clusters=15) == Capacity(132, 1, 120, 120, FROM_GRIDS, is_estimate=True)
    assert capacity(eight, H200, 132) == Capacity(132, 1, 128, 128, FROM_DIVISION, is_estimate=True)


@pytest.mark.parametrize(
    ("needs", "device"),
    [
        (replace(SMALL, registers=NULL), H200),
        (replace(SMALL, shared_bytes=NULL), H200),
        (SMALL, replace(H200, name=None, compute_capability=None)),
        (SMALL, replace(H200, name=None, compute_capability=(6, 0))),
        (replace(SMALL, threads=0), H200),
    ],
)
def test_where_the_profile_is_silent_one_cta_per_sm_is_assumed(needs: Needs, device: ProfiledDevice) -> None:
    assert capacity(needs, device, 132) == Capacity(132, None, 132, 132, FROM_OCCUPANCY, is_estimate=True)


def test_a_kernel_that_ran_has_fitted_whatever_its_numbers_say() -> None:
    found = capacity(replace(NVJET, shared_bytes=300_000), H200, 132)
    assert found.ctas_per_sm == 1


def test_occupancy_of_impossible_facts_is_unknown() -> None:
    # 5 CTAs of 8 warps in room for 64; with one block an SM no more than those 8
    room = capacity(SMALL, A100, 108)
    assert occupancy_share(SMALL, A100, room, 10_000) == 40 / 64
    assert occupancy_share(SMALL, A100, room, 108) == 8 / 64
    assert math.isnan(occupancy_share(SMALL, replace(A100, threads_per_sm=3), room, 108))


def test_limits_come_with_the_compute_capability_where_the_product_is_unknown() -> None:
    other = ProfiledDevice(0, "NVIDIA H800", (9, 0), 132, None, None, None, None, None)
    assert capacity(NVJET, other, 132).ctas_per_sm == 1
    assert peak_flop_per_ns(other, "bf16", 132) is None


@pytest.mark.parametrize(
    ("dtype", "sms", "rate"),
    [("bf16", 132, 989.5e3), ("fp8", 132, 1979e3), ("tf32", 66, 247.4e3), ("int8", 132, None), (None, 132, None)],
)
def test_the_datasheets_rate_scales_with_the_sms(dtype: str | None, sms: int, rate: float | None) -> None:
    assert peak_flop_per_ns(H200, dtype, sms) == (None if rate is None else pytest.approx(rate, rel=1e-3))


# --- assess --------------------------------------------------------------------------------------


def test_the_hidden_second_round_of_a_persistent_kernel() -> None:
    found = assess(key(), H200)
    assert found.verdict == "persistent, hidden tiles"
    assert found.waves == 1  # what Nsight Compute says
    assert found.sm_rounds == pytest.approx(252 / 132)
    assert found.rounds == 2
    assert found.fill == pytest.approx(252 / 264)
    assert found.lost_to_quantization == pytest.approx(12 / 264)
    assert (found.lost_to_few_blocks, found.lost_to_clusters) == (0, 0)
    assert found.padding == pytest.approx(1 - 2304 * 2304 / (252 * 168 * 128))
    assert found.math_ns == pytest.approx(2 * 252 * 168 * 128 * 4096 / 989.5e3, rel=1e-3)


def test_too_few_tiles_are_no_tail() -> None:
    # n: 240 / 40 = 6 tiles, m: 392 / 64 = 7; clusters of 1 x 4: 6 * 2 = 12 ... 48 blocks
    name = "nvjet_sm90_tst_40x64_64x16_1x4_h_bz_TNT"
    found = assess(key(name=name, grid=(4, 12, 1), shapes=((392, 640), (640, 240))), H200)
    assert found.verdict == "too few blocks"
    assert (found.fill, found.lost_to_few_blocks) == (pytest.approx(48 / 132), pytest.approx(84 / 132))
    assert (found.lost_to_quantization, found.lost_to_clusters) == (0, 0)


def test_clusters_of_eight_do_not_reach_twelve_of_132_sms() -> None:
    # n: ceil(1424 / 144) = 10, m: ceil(1520 / 128) = 12; clusters of 2 x 4: 5 * 3 = 15, 120 blocks
    name = "nvjet_sm90_tst_144x128_64x6_2x4_h_bz_TNN"
    row = {"name": name, "grid": (8, 15, 1), "shapes": ((1520, 1168), (1168, 1424))}
    found = assess(key(**row, max_active_clusters=15), H200)
    assert (found.verdict, found.fill) == ("full waves", pytest.approx(120 / 132))
    assert found.lost_to_clusters == pytest.approx(12 / 132)
    assert (found.lost_to_quantization, found.lost_to_few_blocks) == (0, 0)
    # without the driver's answer, 16 clusters might fit
    assert assess(key(**row), H200).verdict == "too few blocks"


def test_blocks_that_share_an_sm_do_not_leave_it_idle_when_one_goes() -> None:
    # Public A100 profile panjd_report-s4: 576 blocks, 5 fit on each of 108 SMs.  Measured: 11.2 % idle.
    found = assess(key(name=PLAIN, grid=(24, 24, 1), block=(16, 16, 1), registers=47, shared_dynamic=0), A100)
    assert found.verdict == "tail-bound"
    assert found.waves == pytest.approx(576 / 540)
    assert found.sm_rounds == pytest.approx(576 / 108)
    assert found.fill == pytest.approx(576 / (6 * 108))  # 88.9 %
    assert found.place_fill == pytest.approx(576 / 1080)  # 53.3 %: the place formula says 46.7 % idle
    assert found.lost_to_quantization == pytest.approx(1 - 576 / 648)


@pytest.mark.parametrize(
    ("blocks", "verdict"),
    [
        (131, "too few blocks"),
        (133, "tail-bound"),
        (2 * 132, "full waves"),
        (263, "full waves"),  # 0.4 % idle, though the tail rule says 50 %
        (10 * 132 + 66, "many waves"),
        (20 * 132, "many waves"),
    ],
)
def test_verdicts_of_one_block_per_sm(blocks: int, verdict: str) -> None:
    found = assess(key(name=PLAIN, grid=(blocks, 1, 1), shared_dynamic=200_000), H200)
    assert found.verdict == verdict
    assert found.fill == pytest.approx(blocks / (132 * math.ceil(blocks / 132)))


def test_a_grid_of_one_block_per_sm_is_persistent_with_unknown_tiles() -> None:
    found = assess(key(name=PLAIN, grid=(132, 1, 1), operator=None, shapes=None), H200)
    assert found.verdict == "persistent, tiles unknown"
    assert "no tile" in found.reason
    assert math.isnan(found.fill)
    known = assess(key(shapes=None), H200)
    assert (known.verdict, known.reason) == ("persistent, tiles unknown", "no shapes of its operator in the profile")


def test_a_tile_that_does_not_explain_the_grid_is_not_believed() -> None:
    found = assess(key(grid=(2, 66, 1), shapes=((100, 64), (64, 100))), H200)
    assert (found.verdict, found.tiling) == ("persistent, tiles unknown", None)
    assert "do not explain a grid of 132 blocks" in found.reason


@pytest.mark.parametrize(
    ("changes", "device", "reason"),
    [
        ({"grid": (NULL, NULL, NULL)}, H200, "no grid"),
        ({"grid": (2**40, 2**40, 1)}, H200, "no grid"),
        ({"context_sms": UNKNOWN_PART}, H200, "green context"),
        ({"name": NCCL}, H200, "communication"),
        ({}, replace(H200, sms=None), "--gpu"),
        ({}, None, "--gpu"),
    ],
)
def test_what_cannot_be_assessed_says_why(changes: dict[str, object], device: ProfiledDevice, reason: str) -> None:
    found = assess(key(**changes), device)
    assert found.verdict == "not assessable"
    assert reason in found.reason


def test_a_cluster_that_cannot_be_is_not_believed() -> None:
    assert cluster_size(key(cluster=(2**20, 2**20, 1)), None) == 1
    assert cluster_size(key(cluster=(2, 1, 1)), None) == 2
    assert cluster_size(key(), decode(GEMM)) == 2


def test_a_green_context_has_its_own_sms() -> None:
    found = assess(key(name=PLAIN, grid=(114, 1, 1), context_sms=114), H200)
    assert found.verdict == "persistent, tiles unknown"
    assert found.capacity is not None
    assert found.capacity.sms == 114


BLOCKS = st.integers(1, 5000)


@given(BLOCKS, st.sampled_from([32, 128, 256, 1024]), st.integers(16, 255), st.integers(0, 230_000))
def test_fill_and_losses_share_out_the_whole(blocks: int, threads: int, registers: int, shared: int) -> None:
    found = assess(
        key(name=PLAIN, grid=(blocks, 1, 1), block=(threads, 1, 1), registers=registers, shared_dynamic=shared), H200
    )
    if found.verdict == "persistent, tiles unknown":
        assert blocks == 132
        return
    _is_whole(found)
    assert found.place_fill <= found.fill + 1e-12 or found.waves >= 1


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 8), st.sampled_from([None, 15]))
def test_tiles_of_persistent_kernels_share_out_the_whole(m: int, n: int, batch: int, clusters: int | None) -> None:
    name = "nvjet_sm90_tst_144x128_64x6_2x4_h_bz_TNN"
    groups = math.ceil(n / 288) * math.ceil(m / 512) * batch
    blocks = 8 * min(groups, 15)
    shapes = ((batch, m, 64), (batch, 64, n))
    row = key(name=name, grid=(8, blocks // 8, 1), operator="aten::bmm", shapes=shapes)
    found = assess(replace(row, max_active_clusters=clusters or NULL), H200)
    _is_whole(found)
    assert found.tiling is not None
    assert found.tiling.groups == groups
    assert 0 <= found.padding < 1


def _is_whole(found: Assessment) -> None:
    parts = (found.fill, found.lost_to_quantization, found.lost_to_few_blocks, found.lost_to_clusters)
    assert sum(parts) == pytest.approx(1)
    assert min(parts) >= 0
    assert found.fill > 0


# --- activity ------------------------------------------------------------------------------------


def test_the_model_of_activity() -> None:
    assert activity(0.5, 1, 1.0) == 0.5  # pure arithmetic has no spread
    assert activity(1.0, 1, 0.0) == pytest.approx(1 - SPREAD)
    assert activity(1.0, 4, 0.0) == pytest.approx(1 - SPREAD / 2)
    assert activity(0.8, 4, 0.5) == pytest.approx(0.8 * (1 - SPREAD / 4))


def test_the_math_share_is_of_busy_time() -> None:
    shares = math_share([50.0, 500.0, np.nan, 50.0], [100.0, 100.0, 100.0, 0.0], [0.8, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(shares, [0.625, 1.0, UNKNOWN_MATH_SHARE, 1.0])


# --- whole profiles ------------------------------------------------------------------------------


def test_launches_of_a_kind_are_assessed_once() -> None:
    table = launches({}, {"start_ns": 99_000}, {"name": PLAIN, "grid": (133, 1, 1), "start_ns": 10**6})
    keys, key_of = keys_of(table)
    assert len(keys) == 2
    assert key_of.tolist() == [0, 0, 1]
    assert keys[0] == key()


def test_the_largest_grid_of_full_kernels_is_the_capacity_of_others() -> None:
    full = {"name": "nvjet_sm90_tst_144x128_64x6_2x4_h_bz_TNN", "grid": (8, 15, 1)}
    many = {**full, "shapes": ((4096, 64), (64, 4096))}  # 15 * 8 groups for 15 clusters
    once = {**full, "shapes": ((1520, 1168), (1168, 1424)), "start_ns": 10**6}
    alone, beside = assess_launches(launches(once)), assess_launches(launches(many, once))
    assert alone.assessments[0].verdict == "too few blocks"
    assert beside.assessments[1].verdict == "full waves"
    assert beside.assessments[1].capacity == Capacity(132, 1, 120, 120, FROM_GRIDS, is_estimate=True)


def test_estimate_and_losses_of_one_launch() -> None:
    assessed = assess_launches(launches({}))
    fill = 252 / 264
    share = 2 * 252 * 168 * 128 * 4096 / 989.5e3 / (60_000 * fill)
    expected = fill * (1 - SPREAD * (1 - share) / math.sqrt(2))
    assert estimated_activity(assessed)[0] == pytest.approx(expected, rel=1e-4)
    low, high = lost_ns(assessed)
    assert low[0] == pytest.approx(60_000 * 12 / 264)
    assert high[0] == pytest.approx(60_000 * (1 - expected), rel=1e-4)


def test_a_launch_without_a_time_or_an_assessment_loses_nothing() -> None:
    assessed = assess_launches(launches({"duration_ns": NULL}, {"name": NCCL}))
    low, high = lost_ns(assessed)
    assert low.tolist() == [0, 0]
    assert high.tolist() == [0, 0]
    assert math.isnan(estimated_activity(assessed)[1])
