"""Least squares with bounds, and which of the parameters the data can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]
Residuals = Callable[[FloatArray], FloatArray]

# A column that others explain to within this share of its length cannot be told apart from them.
SEPARABLE = 0.02

_STEP = 1e-3  # of a parameter about as large as 1, for its derivative
_MAX_STEPS = 60
_MAX_DAMPING = 1e6
_ENOUGH = 1e-7  # relative gain below which a step is the last


def separable_columns(columns: Sequence[FloatArray]) -> Mask:
    """Which of the columns can be told apart from those before them that can."""
    chosen: list[FloatArray] = []
    found = np.zeros(len(columns), np.bool_)
    for index, column in enumerate(columns):
        left = column
        if chosen:
            basis = np.stack(chosen, axis=1)
            left = column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
        if np.linalg.norm(left) > SEPARABLE * np.linalg.norm(column):
            chosen.append(column)
            found[index] = True
    return found


def non_negative(columns: dict[str, FloatArray], target: FloatArray, weight: FloatArray) -> dict[str, float]:
    """Non-negative coefficients of those columns that can be told apart, in the order given."""
    weighted = {name: column * weight for name, column in columns.items()}
    seen = separable_columns(list(weighted.values()))
    chosen = [name for name, shown in zip(columns, seen, strict=True) if shown]
    while True:
        basis = np.stack([weighted[name] for name in chosen], axis=1)
        solution = np.linalg.lstsq(basis, target * weight, rcond=None)[0]
        effect = solution * np.linalg.norm(basis, axis=0)
        if effect.min() >= 0:
            return dict(zip(chosen, map(float, solution), strict=True))
        del chosen[int(effect.argmin())]


def separable(residuals: Residuals, at: FloatArray, high: FloatArray) -> Mask:
    """Which parameters change the residuals in a way that those before them cannot, near `at`."""
    return separable_columns(list(_derivatives(residuals, at, high).T))


def bounded(residuals: Residuals, start: FloatArray, low: FloatArray, high: FloatArray, moves: Mask) -> FloatArray:
    """Parameters in [low, high] with the least sum of squared residuals that a descent from `start` finds.

    Parameters are about as large as 1; those that do not `move` stay as they are.  One at
    a bound stays there while a step would take it across.

    Source: Levenberg-Marquardt with Marquardt's scaling, derivatives by differences.
    """
    at, now = start, residuals(start)
    damping = 1e-3
    for _ in range(_MAX_STEPS):
        slopes = _derivatives(residuals, at, high)
        while damping < _MAX_DAMPING:
            to = np.clip(at + _step(slopes, now, damping, moves, at <= low, at >= high), low, high)
            then = residuals(to)
            if then @ then < now @ now:
                break
            damping *= 5
        else:
            return at
        gain = 1 - (then @ then) / (now @ now)
        at, now, damping = to, then, max(damping / 5, 1e-9)
        if gain < _ENOUGH:
            break
    return at


def _derivatives(residuals: Residuals, at: FloatArray, high: FloatArray) -> FloatArray:
    """Derivative of each residual by each parameter: [residuals, parameters]."""
    base = residuals(at)
    columns = []
    for index in range(len(at)):
        moved = at.copy()
        moved[index] += _STEP if at[index] + _STEP <= high[index] else -_STEP
        columns.append((residuals(moved) - base) / (moved[index] - at[index]))
    return np.stack(columns, axis=1)


def _step(slopes: FloatArray, now: FloatArray, damping: float, moves: Mask, lowest: Mask, highest: Mask) -> FloatArray:
    """The damped step of the parameters that move, without those that it would push over the bound they are at."""
    free = moves.copy()
    while True:
        step = np.zeros(len(free))
        normal = slopes[:, free].T @ slopes[:, free]
        normal += damping * np.diag(np.diag(normal) + 1e-12)
        step[free] = np.linalg.solve(normal, -slopes[:, free].T @ now)
        out = free & ((lowest & (step < 0)) | (highest & (step > 0)))
        if not out.any():
            return step
        free &= ~out
