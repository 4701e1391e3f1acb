"""Neighbours on other streams take SMs, and sampled series have plateaus."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from audit_fixture import GEMM, NCCL, PLAIN, launches
from hypothesis import given
from hypothesis import strategies as st

from wavescope.audit.advice import advice
from wavescope.audit.assessed import assess_launches, lost_ns
from wavescope.audit.examine import examine
from wavescope.audit.launches import NULL
from wavescope.audit.plateaus import Plateau, plateaus
from wavescope.audit.totals import totals

# 24 blocks that leave no room beside them on their SMs, from 0 to 100 us.
ALL_REDUCE: dict[str, Any] = {
    "name": NCCL,
    "stream": 20,
    "start_ns": 0,
    "duration_ns": 100_000,
    "grid": (24, 1, 1),
    "block": (640, 1, 1),
    "registers": 96,
    "shared_dynamic": 80_000,
    "operator": None,
    "shapes": None,
}


def test_an_all_reduce_beside_a_persistent_matmul_costs_it_a_wave() -> None:
    audit = examine([launches(ALL_REDUCE, {})])
    assessed = audit.profiles[0]
    assert assessed.overlaps.neighbour.tolist() == [NULL, 0]
    assert assessed.overlaps.sms.tolist() == [0, 24]
    assert assessed.overlaps.pairs == 1
    group = audit.groups[0]
    assert group.name == GEMM
    beside = group.beside
    assert beside is not None
    assert (beside.name, beside.count, beside.sms) == (NCCL, 1, 24)
    assert beside.waves == pytest.approx(132 / 108)
    # two waves of blocks where one would do: half of its time at most
    assert lost_ns(assessed)[1].tolist() == [0, 30_000]
    assert "108 of 132 SMs are left, its blocks then need 2 waves instead of 1: up to 2.0 times" in advice(audit)[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"stream": 7},  # same stream: a dependent launch
        {"start_ns": 200_000},  # another time
        {"duration_ns": 1000},  # over before
        {"start_ns": 2000},  # later: all blocks of the matmul are resident by then
        {"device": 1},
        {"registers": 16, "block": (64, 1, 1), "shared_dynamic": 1024},  # fits beside it on the same SM
        {"duration_ns": NULL},
    ],
)
def test_what_takes_no_sms(changes: dict[str, Any]) -> None:
    assessed = assess_launches(launches({**ALL_REDUCE, **changes}, {}))
    row = assessed.launches.name.tolist().index(GEMM)
    assert not assessed.has_neighbour[row]
    assert math.isnan(assessed.waves_beside()[row])


def test_a_neighbour_counts_by_the_time_it_was_there() -> None:
    # the all-reduce ends half way through the matmul's 60 us
    assessed = assess_launches(launches({**ALL_REDUCE, "duration_ns": 31_000}, {}))
    assert assessed.overlaps.sms[1] == pytest.approx(12)


def test_a_kernel_whose_blocks_find_room_elsewhere_is_not_disturbed() -> None:
    small = {"name": PLAIN, "grid": (100, 1, 1), "stream": 7}
    assessed = assess_launches(launches(ALL_REDUCE, small))
    assert assessed.overlaps.sms[1] == 24
    assert not assessed.has_neighbour[1]  # 108 SMs are left for 100 blocks


def test_a_kernel_of_several_waves_loses_sms_to_one_that_comes_later() -> None:
    many = {"name": PLAIN, "grid": (1320, 1, 1), "start_ns": 0, "duration_ns": 100_000}
    assessed = assess_launches(launches(many, {**ALL_REDUCE, "start_ns": 50_000, "duration_ns": 50_000}))
    assert assessed.overlaps.sms[0] == pytest.approx(12)
    assert assessed.waves_beside()[0] == pytest.approx(1320 / 120)


def test_where_the_neighbour_adds_no_wave_nothing_is_said_of_one() -> None:
    # 133 blocks need two waves on 132 SMs, and on 108 as well
    audit = examine([launches(ALL_REDUCE, {"name": PLAIN, "grid": (133, 1, 1), "operator": None})])
    assert advice(audit)[-1].endswith("; 108 of 132 SMs are left.")


def test_time_is_not_summed_as_if_kernels_ran_one_after_another() -> None:
    found = totals([assess_launches(launches(ALL_REDUCE, {}, {"start_ns": 150_000}))])
    assert found.total_ns == 100_000 + 60_000 + 60_000
    assert found.busy_ns == 100_000 + 60_000
    assert found.beside_ns == 60_000


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(0, 3)), max_size=12))
def test_pairs_and_busy_time_are_those_of_brute_force(rows: list[tuple[int, int, int]]) -> None:
    table = launches(
        *({**ALL_REDUCE, "start_ns": begin, "duration_ns": length, "stream": stream} for begin, length, stream in rows),
        {"start_ns": 10_000},
    )
    spans = [(begin, begin + length, stream) for begin, length, stream in rows]
    pairs = sum(
        a[2] != b[2] and max(a[0], b[0]) < min(a[1], b[1]) for at, a in enumerate(spans) for b in spans[at + 1 :]
    )
    assessed = assess_launches(table)
    assert assessed.overlaps.pairs == pairs
    covered = {time for begin, end, _ in spans for time in range(begin, end)}
    assert totals([assessed]).busy_ns == len(covered) + 60_000


# --- plateaus ------------------------------------------------------------------------------------

# Sampled every 1.5 us in the second of the recorded matmuls: share of tensor pipes busy.
SAMPLED = [0.579, *[1.0] * 19, 0.957, 0.905, 0.886, *[0.9085] * 14, 0.665, 0.003]


def test_the_second_plateau_is_120_of_132_sms() -> None:
    times = 1500 * np.arange(1, len(SAMPLED) + 3)
    found = plateaus(times, [0.0, *SAMPLED, 0.0], 132)
    assert found == (
        Plateau(2 * 1500, 21 * 1500, 1.0, 132, 132),
        Plateau(24 * 1500, 38 * 1500, 0.9085, 120, 132),
    )
    assert [str(step) for step in found] == ["132 of 132 SMs for 28.5 us", "120 of 132 SMs for 21.0 us"]


@pytest.mark.parametrize(
    ("times", "shares", "sms"),
    [
        ([], [], 132),
        ([1, 2, 3], [1.0, 1.0, 1.0], 132),
        (range(50), np.linspace(0, 1, 50), 132),
        (range(9), [1.0] * 9, 0),
    ],
)
def test_no_plateau_in_short_series_ramps_or_without_sms(times: Any, shares: Any, sms: int) -> None:
    assert plateaus(list(times), shares, sms) == ()


@given(st.lists(st.tuples(st.integers(1, 132), st.integers(20, 60)), min_size=1, max_size=4))
def test_steps_are_found_whatever_their_heights(steps: list[tuple[int, int]]) -> None:
    heights = [height for height, _ in steps]
    series = np.concatenate([[0.0], *([height / 132] * length for height, length in steps), [0.0]])
    found = plateaus(1000 * np.arange(len(series)), series, 132)
    merged = [height for at, height in enumerate(heights) if at == 0 or heights[at - 1] != height]
    if all(abs(a - b) > 2 for a, b in itertools.pairwise(merged)) and min(heights) > 3:
        assert [step.busy for step in found] == merged


def test_a_group_shows_the_plateaus_of_its_longest_sampled_launch() -> None:
    times = 1500 * np.arange(len(SAMPLED))
    table = launches(
        {"activity": (times, np.array(SAMPLED)), "shapes": None},
        {"activity": (times, np.full(len(SAMPLED), 0.5)), "shapes": None, "duration_ns": 1000},
    )
    (group,) = examine([table]).groups
    assert [step.busy for step in group.plateaus] == [132, 120]
