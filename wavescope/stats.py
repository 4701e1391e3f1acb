"""Medians with their interval: the form in which every repeated measurement is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEAST_SAMPLES = 6  # below it no pair of order statistics covers 95 %
CONFIDENCE_Z = 1.959963984540054  # two-sided 95 % of the normal distribution


@dataclass(frozen=True)
class Estimate:
    """A median and its 95 % confidence interval [low, high] over `count` samples."""

    median: float
    low: float
    high: float
    count: int


def median_interval(samples: Sequence[float] | NDArray[np.float64]) -> Estimate:
    """Median of `samples` with the distribution-free 95 % interval of order statistics.

    Below six samples no pair of order statistics covers 95 %; the interval is then the
    samples' range, which covers less.

    Raises: ValueError without samples.
    Source: Conover, Practical Nonparametric Statistics, section 3.2 (quantile intervals).
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    count = len(ordered)
    if count == 0:
        raise ValueError("a median needs at least one sample")
    half_width = CONFIDENCE_Z * math.sqrt(count) / 2
    low = max(0, math.floor((count - 1) / 2 - half_width))
    high = min(count - 1, math.ceil((count - 1) / 2 + half_width))
    return Estimate(float(np.median(ordered)), float(ordered[low]), float(ordered[high]), count)
