"""Least squares with bounds, and which of the parameters the data can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# A column that others explain to within this share of its length cannot be told apart from them.
SEPARABLE = 0.02

_STEP = 1e-3  # of a parameter's scale, for its derivative
_MAX_STEPS = 60
_MAX_DAMPING = 1e6
_ENOUGH = 1e-7  # relative gain below which a step is the last


def separable(columns: Sequence[FloatArray]) -> list[int]:
    """Indices of the columns that can be told apart from those chosen before them, in order."""
    chosen: list[int] = []
    for index, column in enumerate(columns):
        left = column
        if chosen:
            basis = np.stack([columns[other] for other in chosen], axis=1)
            left = column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0]
        if np.linalg.norm(left) > SEPARABLE * np.linalg.norm(column):
            chosen.append(index)
    return chosen


def non_negative(columns: dict[str, FloatArray], target: FloatArray, weight: FloatArray) -> dict[str, float]:
    """Non-negative coefficients of those columns that can be told apart, in the order given."""
    weighted = {name: column * weight for name, column in columns.items()}
    names = list(columns)
    chosen = [names[index] for index in separable(list(weighted.values()))]
    while True:
        basis = np.stack([weighted[name] for name in chosen], axis=1)
        solution = np.linalg.lstsq(basis, target * weight, rcond=None)[0]
        effect = solution * np.linalg.norm(basis, axis=0)
        if effect.min() >= 0:
            return dict(zip(chosen, map(float, solution), strict=True))
        del chosen[int(effect.argmin())]


def derivatives(
    residuals: Callable[[FloatArray], FloatArray], at: FloatArray, scale: FloatArray, high: FloatArray
) -> FloatArray:
    """Derivative of each residual by each parameter, in units of the parameter's scale: [residuals, parameters]."""
    base = residuals(at)
    columns = []
    for index, length in enumerate(scale * _STEP):
        moved = at.copy()
        moved[index] += length if at[index] + length <= high[index] else -length
        columns.append((residuals(moved) - base) / (moved[index] - at[index]) * scale[index])
    return np.stack(columns, axis=1)


def bounded(
    residuals: Callable[[FloatArray], FloatArray],
    start: FloatArray,
    scale: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> FloatArray:
    """Parameters in [low, high] with the least sum of squared residuals that a descent from `start` finds.

    `scale` is the size of each parameter's changes that matter.  A parameter at a bound
    that would leave it stays there while the others move.

    Source: Levenberg-Marquardt with Marquardt's scaling, derivatives by differences.
    """
    at, now = start, residuals(start)
    damping = 1e-3
    for _ in range(_MAX_STEPS):
        slopes = derivatives(residuals, at, scale, high)
        while damping < _MAX_DAMPING:
            to = np.clip(at + scale * _step(slopes, now, damping, at <= low, at >= high), low, high)
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


def _step(
    slopes: FloatArray, residual: FloatArray, damping: float, lowest: NDArray[np.bool_], highest: NDArray[np.bool_]
) -> FloatArray:
    """The damped step of those parameters that it does not push over the bound they are at."""
    free = np.ones(slopes.shape[1], np.bool_)
    while True:
        step = np.zeros(len(free))
        normal = slopes[:, free].T @ slopes[:, free]
        normal += damping * np.diag(np.diag(normal) + 1e-12)
        step[free] = np.linalg.solve(normal, -slopes[:, free].T @ residual)
        out = free & ((lowest & (step < 0)) | (highest & (step > 0)))
        if not out.any():
            return step
        free &= ~out
