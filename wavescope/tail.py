"""The tail split in two: what the number of units forces, and what their durations add."""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from wavescope.schedule import STATIC_SCHEDULES
from wavescope.states import dense_index
from wavescope.trace import Launch
from wavescope.units import Units
from wavescope.wave_report import CostModel, Quantity, TailSplit

FloatArray = NDArray[np.float64]


def tail_split(
    units: Units, launch: Launch, used_sms: int, not_idle_ns: float, tail: Quantity, timer_step_ns: float
) -> TailSplit:
    """Split the tail into quantization (nominal loads against M*) and imbalance (the rest, signed).

    All of it is SM time: where an SM runs several units at once, one unit of cost c takes
    c / w of it, with w the units that ran side by side on an SM, measured: the time units
    held places over the time SMs were not idle (`not_idle_ns`).  The nominal load of an SM
    is the sum of its units' c / w.  M* is a time: the largest load for static schedules;
    otherwise when the last SM ends if each takes the next unit as it falls free.  Over U
    equal units on S used SMs this gives (S * ceil(U / S) - U) * c / w.

    With irregular work (launch.work) the units that a schedule must place are unequal by
    nature, and what that costs is imbalance: quantization is then what as many units of the
    mean cost would give, and M* belongs to those.

    Counted by places instead of SMs, idleness is overstated many times over where several
    CTAs share an SM, since the ones that are left over run faster.

    Where tiles were cut, units also fill pipelines and meet others, which their nominal costs do
    not know: how far the nominal loads of SMs miss the measured ones (their median) is then part
    of the error, so that what the model cannot tell is refused.
    """
    cost, nominal = fit_cost(units)
    most = max(1, launch.ctas_per_sm) * units.lanes
    side_by_side = min(most, max(1.0, float(units.held_ns.sum()) / max(not_idle_ns, 1.0))) if most > 1 else 1.0
    if launch.work is not None:
        nominal = np.full(len(nominal), nominal.mean())
    loads = nominal / side_by_side
    if launch.schedule in STATIC_SCHEDULES:
        makespan = float(_sums(units.sm, loads).max())
    else:
        makespan = list_makespan(loads, max(1, launch.places // max(1, launch.ctas_per_sm)))
    quantization = used_sms * makespan - float(loads.sum())
    if abs(quantization) < 1e-6 * float(loads.sum()):
        quantization = 0.0  # of loads that are equal but for rounding
    # Relative error of a mean over the units' lengths, two endpoints each.
    error = abs(quantization) * timer_step_ns * math.sqrt(2 / len(units)) / max(float(nominal.mean()), 1.0)
    if (units.k_begin > 0).any():
        missed = _sums(units.sm, loads) - _sums(units.sm, units.held_ns / side_by_side)
        error = math.hypot(error, used_sms * float(np.median(np.abs(missed))))
        if cost.r_squared is not None and cost.r_squared < 0:
            error = math.hypot(error, quantization)  # a fit that is worse than the mean tells nothing
    return TailSplit(
        quantization=Quantity(quantization, error),
        imbalance=Quantity(tail.value - quantization, math.hypot(tail.error, error)),
        makespan_ns=makespan,
        cost=cost,
        of_equal_units=launch.work is not None,
    )


def fit_cost(units: Units) -> tuple[CostModel, FloatArray]:
    """Fit per_k_iter * k_iters + store [stores the tile] + partial [writes one] to the time units held places.

    Returns the model and the nominal cost of each unit in ns.  A term that the units do
    not let tell apart from those before it is left out (0), so its share sits in
    `per_k_iter_ns`.  So is one that would come out below 0: where whole tiles are stored and
    parts of them are not, what parts cost beyond their k_iters is their partial sum.
    """
    group_ids, group = dense_index(units.k_iters * 2 + units.stores_tile)
    k_iters, stores = group_ids >> 1, group_ids & 1
    columns = np.stack([k_iters, stores, 1 - stores], axis=1).astype(np.float64)
    count = np.bincount(group)
    mean = np.bincount(group, weights=units.held_ns) / count
    for wanted in ([0, 1, 2], [0, 2], [0, 1], [0]):
        model = _least_squares(columns, mean, count, _told_apart(columns, wanted))
        if model.min() >= 0 and (columns @ model).min() > 0:
            break
    nominal = (columns @ model)[group]
    equal = len(np.unique(columns @ model)) == 1
    per_k_iter, store, partial = (float(value) for value in model)
    return CostModel(per_k_iter, store, partial, None if equal else _r_squared(units.held_ns, nominal)), nominal


def _told_apart(columns: FloatArray, wanted: list[int]) -> list[int]:
    """The first of the wanted columns of full rank together."""
    chosen: list[int] = []
    for column in wanted:
        candidate = columns[:, [*chosen, column]]
        if columns[:, column].any() and np.linalg.matrix_rank(candidate / np.abs(candidate).max(axis=0)) > len(chosen):
            chosen.append(column)
    return chosen


def _least_squares(columns: FloatArray, mean: FloatArray, count: NDArray[np.int64], chosen: list[int]) -> FloatArray:
    """Least squares over all units, from the mean and the number of each sort of unit."""
    weight = np.sqrt(count)
    model = np.zeros(columns.shape[1])
    model[chosen] = np.linalg.lstsq(columns[:, chosen] * weight[:, None], mean * weight, rcond=None)[0]
    return model


def _r_squared(measured: NDArray[np.int64], fitted: FloatArray) -> float | None:
    """Share of the measured variation that the fit explains."""
    variation = float(((measured - measured.mean()) ** 2).sum())
    return None if variation == 0 else 1.0 - float(((measured - fitted) ** 2).sum()) / variation


def _sums(owner: NDArray[np.int64], cost: FloatArray) -> FloatArray:
    """The total cost of each owner, in ascending order of owners."""
    return np.bincount(dense_index(owner)[1], weights=cost).astype(np.float64)


def list_makespan(costs: FloatArray, places: int) -> float:
    """When the last place ends, if units in this order each go to the place that is free first."""
    if costs.min() == costs.max():
        return float(costs[0]) * -(-len(costs) // places)
    free_at = [0.0] * min(places, len(costs))
    for cost in costs.tolist():
        heapq.heapreplace(free_at, free_at[0] + cost)
    return max(free_at)
