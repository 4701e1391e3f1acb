"""Fit how much longer k_iters of staggered shares take where several CTAs share an SM: simulated until they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wavescope.calibration import Calibration
from wavescope.launch_costs import RecordedLaunch
from wavescope.replay import replay
from wavescope.schedule import Schedule
from wavescope.trace import Kind

_FIRST_STEP = 0.25
_STEPS = 3
_MOST = 5.0


def fit_slowdown(recorded: Sequence[RecordedLaunch], costs: Calibration) -> float | None:
    """stream_slowdown, `costs` being all others: a median over launches; None where none has staggered shares."""
    found = [_of_launch(one, one.schedule, costs) for one in recorded if one.schedule and one.is_staggered.any()]
    return float(np.median(found)) if found else None


def _of_launch(one: RecordedLaunch, schedule: Schedule, costs: Calibration) -> float:
    """The slowdown with which the launch's staggered main loops take as many cycles as recorded, all together."""
    quiet = replace(costs, noise=0.0, clock_spread=0.0)
    wanted = float(one.cycles[one.is_staggered].sum())

    def excess(slowdown: float) -> float:
        trace = replay(one.launch, schedule, one.device, replace(quiet, stream_slowdown=slowdown))
        macs = trace.spans.select(trace.spans.kind == Kind.MAC)
        mine = schedule.is_staggered[np.searchsorted(schedule.unit, macs.unit)]
        return float((macs.end_clock - macs.begin_clock)[mine].sum()) - wanted

    low, at_low = 0.0, excess(0.0)
    if at_low >= 0:
        return 0.0
    high, at_high = _FIRST_STEP, excess(_FIRST_STEP)
    for _ in range(_STEPS):  # secants: the sum is close to a line
        if at_high == at_low:
            break
        slowdown = min(max(0.0, high - at_high * (high - low) / (at_high - at_low)), _MOST)
        low, at_low, high, at_high = high, at_high, slowdown, excess(slowdown)
    return high
