"""Fit what main loops cost where each is alone on its SM: least squares over all units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wavescope.kernels import copies_ahead
from wavescope.launch_costs import RecordedLaunch, idle_share
from wavescope.least_squares import non_negative

_MAX_IDLE_GAIN = 0.9


def fit_alone(recorded: Sequence[RecordedLaunch], held: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Coefficients of cycles = a k (1 - gain idle + slower [staggered]) + fixed + cold [first], and those not seen.

    Where operands are copied ahead, + fill [first of its CTA] + beside [a share is added meanwhile].
    Residuals are relative, and every launch counts alike.  What is not seen is 0, or as
    `held` says, and the others are fitted to what that leaves.
    """
    k = np.concatenate([one.inner_k_iters for one in recorded])
    cycles = np.concatenate([one.cycles for one in recorded]).astype(np.float64)
    idle = np.concatenate([idle_share(one) for one in recorded])
    cold = np.concatenate([one.is_cold for one in recorded]).astype(np.float64)
    staggered = np.concatenate([one.is_staggered for one in recorded])
    columns = {
        "cycles_per_k_iter": k,
        "fixed_cycles": np.ones_like(k),
        "cold_cycles": cold,
        "idle_gain": -idle * k,
        "stream_slowdown": k * staggered,
    }
    once = {"fixed_cycles": np.ones_like(k), "cold_cycles": cold}
    if all(copies_ahead(one.launch.kernel) for one in recorded):
        once["fill_cycles"] = np.concatenate([one.is_first for one in recorded]).astype(np.float64)
        once["beside_cycles"] = np.concatenate([one.is_beside for one in recorded]).astype(np.float64)
        columns |= once
    weight = np.concatenate([np.full(len(one.units), len(one.units) ** -0.5) for one in recorded]) / cycles
    # tiles at the edge would tell fixed_cycles from equal k_iters, but only by what they are assumed to cost more
    equal = len(np.unique(np.concatenate([one.k_iters for one in recorded]))) == 1
    told = {name: column for name, column in columns.items() if not (equal and name == "fixed_cycles")}
    found = non_negative(told, cycles, weight)
    missing = [name for name in columns if name not in found]
    given = {name: held.get(name, 0.0) for name in missing}
    if any(given.values()):
        known = sum((given.get(name, 0.0) * column for name, column in once.items()), np.zeros_like(k))
        each = 1 - given.get("idle_gain", 0.0) * idle + given.get("stream_slowdown", 0.0) * staggered
        left = {name: column for name, column in columns.items() if name in found} | {"cycles_per_k_iter": k * each}
        found = non_negative(left, cycles - known, weight)
    per_k_iter = found.get("cycles_per_k_iter", 0.0)
    costs = {name: given.get(name, found.get(name, 0.0)) for name in columns}
    for name in ("idle_gain", "stream_slowdown"):  # shares of a k_iter's cost
        if name not in given:
            costs[name] = costs[name] / per_k_iter if per_k_iter else 0.0
    costs["idle_gain"] = min(costs["idle_gain"], _MAX_IDLE_GAIN)
    return {"fill_cycles": 0.0, "beside_cycles": 0.0, **costs, "sharing": 1.0, "seniority": 0.0}, missing
