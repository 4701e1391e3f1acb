"""Shares of variance and their p-values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavescope.permutation import Effect, centred, effect_of, holm, shuffles


def test_hand_worked_share_and_every_shuffle() -> None:
    # Values 1 2 | 3 4: mean 2.5, squares 2.25 + 0.25 + 0.25 + 2.25 = 5; groups 1.5 and 3.5: 4 * 1 = 4, so 80 %.
    # Of the 24 orders 8 put {1, 2} apart from {3, 4} (2 * 2 * 2); 8 give 1 3 | 2 4: 20 %; 8 give 1 4 | 2 3: 0.
    every = np.array(list(itertools.permutations(range(4))))
    found = effect_of(np.array([1.0, 2, 3, 4]), np.array([0, 0, 1, 1]), np.zeros(4, np.int64), every)
    assert found == Effect(pytest.approx(0.8), pytest.approx((0.8 + 0.2 + 0) / 3), (1 + 8) / (1 + 24))


def test_strata_take_their_means_along() -> None:
    # Stratum 0: 1 and 2, stratum 1: 103 and 104.  Groups take one of each: within strata the group explains all.
    values, strata = np.array([1.0, 2, 103, 104]), np.array([0, 0, 1, 1])
    assert centred(values, strata).tolist() == [-0.5, 0.5, -0.5, 0.5]
    every = shuffles(strata, 200, seed=1)
    found = effect_of(values, np.array([0, 1, 0, 1]), strata, every)
    assert found is not None
    # of four equally likely shuffles two keep all larger values in one group, two put one in each
    assert (found.eta_squared, round(found.by_chance, 1)) == (pytest.approx(1.0), 0.5)
    # the same groups without strata explain next to nothing of a spread of a hundred
    without = effect_of(values, np.array([0, 1, 0, 1]), np.zeros(4, np.int64), shuffles(strata * 0, 200, seed=1))
    assert without is not None
    assert without.eta_squared == pytest.approx(1 / 10405, rel=0.01)


def test_nothing_that_varies_has_no_effect() -> None:
    values, groups = np.array([5.0, 5, 7, 7]), np.array([0, 1, 0, 1])
    assert effect_of(values, groups, np.array([0, 0, 1, 1]), shuffles(groups, 9, seed=0)) is None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 1000))
def test_shuffles_stay_in_their_strata(strata: list[int], seed: int) -> None:
    labels = np.array(strata)
    for order in shuffles(labels, 5, seed):
        assert sorted(order.tolist()) == list(range(len(strata)))
        assert labels[order].tolist() == strata


def test_shuffles_are_even() -> None:
    # Two strata of three: each of the six orders of each comes 1000 times of 6000, give or take five deviations of 29.
    strata = np.array([1, 0, 1, 0, 0, 1])
    found = shuffles(strata, 6000, seed=3)
    for mine in (np.flatnonzero(strata == 0), np.flatnonzero(strata == 1)):
        counts = np.unique(found[:, mine], axis=0, return_counts=True)[1]
        assert len(counts) == 6
        assert abs(counts - 1000).max() < 145


def test_hand_worked_holm() -> None:
    # 0.01 * 4, then 0.02 * 3, then 0.03 * 2 raised to the one before, then 0.5.
    assert holm([0.5, 0.01, 0.03, 0.02]) == [0.5, 0.04, 0.06, 0.06]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
