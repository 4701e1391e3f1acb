"""A recorded launch once more, on the virtual device."""

from __future__ import annotations

from wavescope.calibration_row import Calibration
from wavescope.device import Device
from wavescope.schedule import Schedule
from wavescope.simulate import simulate
from wavescope.trace import Launch, Trace


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
