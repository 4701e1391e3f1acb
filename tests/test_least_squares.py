"""Descents with bounds, on functions whose lowest point is known."""

import numpy as np
import pytest

from wavescope.least_squares import FloatArray, bounded, non_negative, separable

LOW, HIGH = np.zeros(2), np.full(2, 10.0)
BOTH = np.array([True, True])


def banana(at: FloatArray) -> FloatArray:
    """Rosenbrock's function, whose sum of squares is 0 at (1, 1) only."""
    return np.array([10 * (at[1] - at[0] ** 2), 1 - at[0]])


def test_a_curved_valley() -> None:
    found = bounded(banana, np.array([2.0, 0.5]), LOW, HIGH, BOTH)
    assert found == pytest.approx([1, 1], abs=1e-3)


def test_a_bound_holds_while_the_others_move() -> None:
    # (x - 2)^2 + (x + y - 1)^2: without bounds (2, -1); with y >= 0 the lowest x is 3/2
    found = bounded(lambda at: np.array([at[0] - 2, at.sum() - 1]), np.array([0.5, 0.5]), LOW, HIGH, BOTH)
    assert found == pytest.approx([1.5, 0], abs=1e-6)


def test_what_does_not_move_stays() -> None:
    found = bounded(lambda at: at - 3, np.array([1.0, 1.0]), LOW, HIGH, np.array([True, False]))
    assert found == pytest.approx([3, 1], abs=1e-6)


def test_nothing_to_gain() -> None:
    start = np.array([1.0, 1.0])
    assert np.array_equal(bounded(banana, start, LOW, HIGH, BOTH), start)
    assert np.array_equal(bounded(banana, start, LOW, HIGH, ~BOTH), start)


def test_parameters_that_do_the_same_are_not_told_apart() -> None:
    at, k = np.array([1.0, 1.0]), np.array([1.0, 2.0, 3.0])
    assert separable(lambda p: p[0] * k + p[1], at, HIGH).tolist() == [True, True]
    assert separable(lambda p: p[0] * k + p[1] * 2 * k, at, HIGH).tolist() == [True, False]
    assert separable(lambda p: p[1] * k, at, HIGH).tolist() == [False, True]


def test_coefficients_are_not_negative() -> None:
    # y = 3 a - b, b = (0, 1, 1): without the negative b the best a is (3 + 2 + 2) / 3
    columns = {"a": np.ones(3), "b": np.array([0.0, 1.0, 1.0])}
    assert non_negative(columns, np.array([3.0, 2.0, 2.0]), np.ones(3)) == {"a": pytest.approx(7 / 3)}
