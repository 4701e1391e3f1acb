"""Who gets how much of an SM: speeds worked out by hand, and what holds for all."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavescope.sharing import epilogue_speeds, main_loop_speeds


def test_one_throughput_shared_evenly() -> None:
    # as slow as three on a full SM; two get half as much again, one all
    expected = ((), (3.0,), (1.5, 1.5), (1.0, 1.0, 1.0))
    for speeds, by_hand in zip(main_loop_speeds(3, 3, 1.0, 0.0), expected, strict=True):
        assert speeds == pytest.approx(by_hand)


def test_nobody_is_slowed() -> None:
    assert main_loop_speeds(2, 2, 0.0, 0.7) == ((), (1.0,), (1.0, 1.0))


def test_the_older_get_more() -> None:
    # two: 2 in the ratio 1 : 1/2; three of them: 2 in the ratio 1 : 1/2 : 1/4
    _, alone, two, three = main_loop_speeds(3, 2, 1.0, 0.5)
    assert alone == (2.0,)
    assert two == pytest.approx((4 / 3, 2 / 3))
    assert three == pytest.approx((8 / 7, 4 / 7, 2 / 7))


def test_nobody_is_faster_than_alone() -> None:
    # alone 1 / (1 - 1/4) = 4/3.  Three together do 3 / (1 + 1/4) = 12/5; of that the oldest would
    # get 2/3 and takes 4/3; of the 16/15 left the next would get 3/4, which is 4/5
    _, alone, _, three = main_loop_speeds(3, 2, 0.5, 2 / 3)
    assert alone == pytest.approx((4 / 3,))
    assert three == pytest.approx((4 / 3, 4 / 5, 4 / 15))


def test_epilogues_divide_one_throughput() -> None:
    assert epilogue_speeds(4, 2) == (2.0, 2.0, 1.0, 2 / 3, 0.5)


@given(
    most=st.integers(1, 8),
    full=st.integers(1, 8),
    sharing=st.floats(0, 1),
    seniority=st.floats(0, 0.99),
)
def test_what_holds_for_all(most: int, full: int, sharing: float, seniority: float) -> None:
    table = main_loop_speeds(most, full, sharing, seniority)
    alone, throughput = table[1][0], 0.0
    for number, speeds in enumerate(table):
        assert len(speeds) == number
        assert all(0 < speed <= alone * (1 + 1e-9) for speed in speeds)
        assert all(older >= younger * (1 - 1e-9) for older, younger in pairwise(speeds))
        assert sum(speeds) >= throughput * (1 - 1e-9)  # another CTA never costs throughput
        throughput = sum(speeds)
        if number:
            assert throughput == pytest.approx(number / (1 - sharing * (1 - number / full)))
