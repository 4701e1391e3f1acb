"""Fit one cost of launches whose CTAs wait for one another, all others known: they are simulated until they agree.

With several CTAs an SM no SM can be simulated by itself there (fit_shared.py), but the whole device can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from wavescope.calibration_row import Calibration
from wavescope.launch_costs import RecordedLaunch
from wavescope.replay import replay
from wavescope.schedule import Schedule
from wavescope.trace import Kind

_STEPS = 3
_FIRST_SLOWDOWN, _MOST_SLOWDOWN = 0.25, 5.0
_FIRST_STEP, _MOST_TIMES = 1.1, 10.0


def fit_slowdown(recorded: Sequence[RecordedLaunch], costs: Calibration) -> float | None:
    """stream_slowdown, `costs` being all others: a median over launches; None where none has staggered shares."""
    found = [
        _root(_excess(one, one.schedule, costs, "stream_slowdown"), 0.0, _FIRST_SLOWDOWN, 0.0, _MOST_SLOWDOWN)
        for one in recorded
        if one.schedule is not None and one.is_staggered.any()
    ]
    return float(np.median(found)) if found else None


def fit_k_iters(recorded: Sequence[RecordedLaunch], costs: Calibration) -> float:
    """cycles_per_k_iter, `costs` being all others: a median over launches of wavescope's own kernels."""
    about = costs.cycles_per_k_iter
    found = [
        _root(
            _excess(one, one.schedule, costs, "cycles_per_k_iter"),
            about,
            _FIRST_STEP * about,
            about / _MOST_TIMES,
            about * _MOST_TIMES,
        )
        for one in recorded
        if one.schedule is not None
    ]
    return float(np.median(found))


def _excess(one: RecordedLaunch, schedule: Schedule, costs: Calibration, name: str) -> Callable[[float], float]:
    """By how many cycles the launch's main loops, those that the cost concerns, are longer simulated than recorded."""
    concerned = schedule.is_staggered if name == "stream_slowdown" else np.ones(schedule.num_units, np.bool_)
    quiet = replace(costs, noise=0.0, clock_spread=0.0)
    wanted = float(one.cycles[concerned[one.planned]].sum())

    def excess(value: float) -> float:
        changed: dict[str, Any] = {name: value}
        trace = replay(one.launch, schedule, one.device, replace(quiet, **changed))
        macs = trace.spans.select(trace.spans.kind == Kind.MAC)
        mine = concerned[np.searchsorted(schedule.unit, macs.unit)]
        return float((macs.end_clock - macs.begin_clock)[mine].sum()) - wanted

    return excess


def _root(excess: Callable[[float], float], first: float, second: float, low: float, high: float) -> float:
    """Where a rising function that is close to a line is 0, between `low` and `high`: secants."""
    at_first, at_second = excess(first), excess(second)
    for _ in range(_STEPS):
        if at_first == at_second:
            break
        following = min(max(low, second - at_second * (second - first) / (at_second - at_first)), high)
        if following == second:
            break
        first, at_first, second, at_second = second, at_second, following, excess(following)
    return second
