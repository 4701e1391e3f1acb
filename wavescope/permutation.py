"""Does a factor explain a spread?  Its share of the variance, tested by shuffling.

eta squared of a factor with many levels is large by chance alone, so a share means
nothing without what shuffled values give; the p-value is the share of shuffles that
explain as much.  Nothing here assumes a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.trace import IntColumn

FloatArray = NDArray[np.float64]

PERMUTATIONS = 999  # the smallest p-value is 1 / 1000
_BLOCK = 4_000_000  # shuffled values held at once

# Relative: shuffles that put values into other groups of equal sums differ by rounding only.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Effect:
    """`eta_squared` = share of the variance between groups; `by_chance` its mean over the shuffles; `p_value`."""

    eta_squared: float
    by_chance: float
    p_value: float


def shuffles(strata: IntColumn, count: int, seed: int) -> IntColumn:
    """Permutations that keep each element in its stratum, [count, elements], as indices."""
    random = np.random.default_rng(seed)
    keys = random.random((count, len(strata)))
    keys += strata  # integers: strata stay apart, and in their order
    shuffled = np.argsort(keys, axis=1)
    at_home = np.argsort(strata, kind="stable")
    result = np.empty_like(shuffled)
    result[:, at_home] = shuffled
    return result


def centred(values: FloatArray, strata: IntColumn) -> FloatArray:
    """Values less the mean of their stratum."""
    counts = np.bincount(strata)
    means = np.bincount(strata, weights=values) / np.maximum(counts, 1)
    return values - means[strata]


def effect_of(values: FloatArray, groups: IntColumn, strata: IntColumn, permutations: IntColumn) -> Effect | None:
    """The share of `values`' variance within strata that lies between groups, tested with `permutations` of the strata.

    Groups and strata count from 0.  None where nothing varies.
    """
    inside = centred(values, strata)
    total = float(inside @ inside)
    if total <= _ROUNDING * float(values @ values):
        return None
    counts = np.bincount(groups)
    used = np.flatnonzero(counts)
    member = np.zeros((len(values), len(used)))
    member[np.arange(len(values)), np.searchsorted(used, groups)] = 1.0
    weight = 1.0 / counts[used]
    observed = float(((inside @ member) ** 2 @ weight) / total)
    rows = max(1, _BLOCK // len(values))
    shuffled = np.concatenate(
        [
            (inside[permutations[at : at + rows]] @ member) ** 2 @ weight / total
            for at in range(0, len(permutations), rows)
        ]
    )
    reached = int(np.count_nonzero(shuffled >= observed * (1 - _ROUNDING)))
    return Effect(observed, float(shuffled.mean()), (1 + reached) / (1 + len(permutations)))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number, so that one below 5 % by chance is as rare as that in all of them.

    Source: Holm, A simple sequentially rejective multiple test procedure, 1979.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    reached = 0.0
    for rank, index in enumerate(order):
        reached = max(reached, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = reached
    return adjusted
