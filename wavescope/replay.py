"""A recorded launch once more, on the virtual device."""

from __future__ import annotations

from dataclasses import replace

from wavescope.calibration_row import Calibration
from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.schedule import Schedule
from wavescope.simulate import simulate
from wavescope.trace import Launch, Trace
from wavescope.variant import Variant
from wavescope.work import work_of


def schedule_of(launch: Launch) -> Schedule:
    """What a recorded launch had to run.

    Raises: UsageError where its kernel is not wavescope's own.
    """
    variant = Variant.of(launch)
    if launch.problem is None or launch.tile is None:
        raise UsageError(f"launch {launch.launch_id} of {launch.kernel} names no problem and tile")
    schedule = variant.decompose(launch.problem, launch.tile, launch.places, work=work_of(launch))
    return replace(schedule, reducers=launch.reducers)


def replay(launch: Launch, schedule: Schedule, device: Device, calibration: Calibration | None = None) -> Trace:
    """The trace of `schedule` run as `launch` was, at the calibration's costs (by default, calibration.lookup's)."""
    return simulate(
        schedule,
        device,
        kernel=launch.kernel,
        block=launch.block,
        registers=launch.registers,
        shared_bytes=launch.shared_bytes,
        ctas_per_sm=launch.ctas_per_sm,
        calibration=calibration,
        reduction=launch.reduction,
    )
