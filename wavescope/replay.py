"""A recorded launch once more, on the virtual device."""

from __future__ import annotations

from wavescope.calibration import Calibration
from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.schedule import Schedule
from wavescope.simulate import simulate
from wavescope.trace import Launch, Trace
from wavescope.variant import Variant


def schedule_of(launch: Launch) -> Schedule:
    """What a recorded launch had to run.

    Raises: UsageError where its kernel is not wavescope's own.
    """
    variant = Variant.of(launch)
    if launch.problem is None or launch.tile is None:
        raise UsageError(f"launch {launch.launch_id} of {launch.kernel} names no problem and tile")
    return variant.decompose(launch.problem, launch.tile, launch.places)


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
