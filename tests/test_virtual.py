"""What a virtual device says of a launch that it cannot judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wavescope.analyze import analyze
from wavescope.device import Device, virtual_device
from wavescope.problem import Problem, Tile
from wavescope.variant import Variant
from wavescope.virtual import run
from wavescope.work import Work

H200 = virtual_device("h200")
TILE = Tile(128, 256, 64)


def notes(problem: Problem, device: Device = H200, work: Work | None = None) -> str:
    (launch,) = run(problem, TILE, Variant("persistent"), device, reason="of tests", work=work).launches
    return "; ".join(launch.notes)


def test_a_time_that_memory_could_not_keep_up_with_is_told() -> None:
    # C of 16384 x 16384 x 2 bytes, A and B of 16384 x 64 x 2 each: 541.1 MB, less 62.9 MB of L2, at 2000 GB/s
    told = notes(Problem(16384, 16384, 64, "bf16"), replace(H200, memory_gb_per_s=2000.0))
    assert (
        "faster than memory allows: A, B and C are 0.54 GB, and what of it is not in L2 takes 239.1 us at least at "
        "2000 GB/s"
    ) in told


@pytest.mark.parametrize("sizes", [(16384, 16384, 1024), (2304, 2304, 64)])
def test_a_time_that_memory_allows_is_not(sizes: tuple[int, int, int]) -> None:
    assert "memory allows" not in notes(Problem(*sizes, "bf16"))


def test_of_irregular_work_only_c_counts() -> None:
    slow = replace(H200, memory_gb_per_s=100.0)
    problem, work = Problem(8192, 8192, 128, "bf16"), Work.parse("skip:0.5")
    assert "C is 0.13 GB, and what of it is not in L2 takes 713 us at least at 100 GB/s" in notes(problem, slow, work)


@pytest.mark.parametrize(
    ("size", "tile"), [((127, 129, 16384), Tile(176, 128, 64)), ((8192, 8192, 8192), Tile(128, 192, 64))]
)
def test_no_unit_is_faster_than_the_tensor_cores(size: tuple[int, int, int], tile: Tile) -> None:
    # a fit may put a k_iter a per cent below what it takes at the full rate
    trace = run(Problem(*size), tile, Variant("persistent"), H200, reason="it is a test", kernel="gemm_sm90_pingpong")
    waterfall = analyze(trace).waterfall
    assert waterfall is not None
    (inside,) = (factor for factor in waterfall.factors if factor.name == "inside tile")
    assert 0.9 < inside.value <= 1 + inside.error
