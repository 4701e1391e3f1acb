"""Least squares with bounds, and which of the parameters the data can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from wavescope.errors import UsageError

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]
Residuals = Callable[[FloatArray], FloatArray]

# A column that others explain to within this share of its length cannot be told apart from them.
SEPARABLE = 0.02

_STEP = 1e-3  # of a parameter about as large as 1, for its derivative


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
    """Non-negative coefficients of those columns that can be told apart, in the order given; {} where none can be."""
    weighted = {name: column * weight for name, column in columns.items()}
    seen = separable_columns(list(weighted.values()))
    chosen = [name for name, shown in zip(columns, seen, strict=True) if shown]
    while chosen:
        basis = np.stack([weighted[name] for name in chosen], axis=1)
        solution = np.linalg.lstsq(basis, target * weight, rcond=None)[0]
        effect = solution * np.linalg.norm(basis, axis=0)
        if effect.min() >= 0:
            return dict(zip(chosen, map(float, solution), strict=True))
        del chosen[int(effect.argmin())]
    return {}


def separable(residuals: Residuals, at: FloatArray, high: FloatArray) -> Mask:
    """Which parameters change the residuals in a way that those before them cannot, near `at`."""
    return separable_columns(list(_derivatives(residuals, at, high).T))


def require_scipy() -> None:
    """Raises: UsageError where SciPy, which only fits of costs need, is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        raise UsageError(
            "calibration needs SciPy, which is not installed; pip install 'wavescope[calibrate]'"
        ) from None


def bounded(residuals: Residuals, start: FloatArray, low: FloatArray, high: FloatArray, moves: Mask) -> FloatArray:
    """Parameters in [low, high] with the least sum of squared residuals that a descent from `start` finds.

    Parameters are about as large as 1; those that do not `move` stay as they are.

    Raises: UsageError where SciPy is not installed.
    """
    require_scipy()
    from scipy.optimize import least_squares

    at = start.copy()
    if not moves.any():
        return at

    def of_moving(values: FloatArray) -> FloatArray:
        at[moves] = values
        return residuals(at)

    found = least_squares(
        of_moving, np.clip(start, low, high)[moves], bounds=(low[moves], high[moves]), diff_step=_STEP, method="dogbox"
    )
    at[moves] = found.x
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
