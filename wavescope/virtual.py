"""A GEMM on a device that is not there: decompose, fit, simulate."""

from __future__ import annotations

from dataclasses import replace

from wavescope import __version__
from wavescope.calibration import lookup
from wavescope.device import Device
from wavescope.errors import DeviceError, ShapeError
from wavescope.kernels import facts, require_schedule
from wavescope.occupancy import Resources, require_fit
from wavescope.problem import Problem, Tile
from wavescope.simulate import simulate
from wavescope.trace import SIMULATED_BECAUSE, Trace
from wavescope.variant import Variant
from wavescope.work import Work

MAX_SIMULATED_UNITS = 2_000_000  # about 1 GB of spans


def run(
    problem: Problem,
    tile: Tile,
    variant: Variant,
    device: Device,
    *,
    reason: str,
    most_ctas: int | None = None,
    seed: int = 0,
    work: Work | None = None,
    kernel: str | None = None,
) -> Trace:
    """The trace of a simulated launch; `reason` (a clause) says in its notes why it is one.

    `work`: tiles of unequal k.  `kernel`: its name, None for the best (kernels.kernel_for).

    Raises: DeviceError where the operands or a CTA do not fit the device; UsageError and
    ShapeError as decompose and kernels.facts.
    """
    if problem.operand_bytes > device.memory_bytes:
        raise DeviceError(
            f"{problem} needs {problem.operand_bytes / 1e9:.1f} GB of device memory; {device.name} has "
            f"{device.memory_bytes / 1e9:.1f}; use a smaller problem"
        )
    need = facts(problem, tile, device, most_ctas, kernel)
    require_schedule(need.kernel, variant.schedule)
    fit = require_fit(f"tile {tile}", Resources(need.threads, need.registers, need.shared_bytes), device)
    units = tile.num_tiles(problem)
    if units > MAX_SIMULATED_UNITS:
        raise ShapeError(
            f"{problem} cut into {tile} gives {units} tiles, more than the {MAX_SIMULATED_UNITS} that are simulated; "
            "use a larger tile or a smaller problem"
        )
    calibration = lookup(need.kernel, tile, problem.dtype, device, fit.count)
    schedule = variant.decompose(problem, tile, device.sms * fit.count, calibration.grid_model, work)
    if schedule.num_units > MAX_SIMULATED_UNITS:
        raise ShapeError(
            f"{variant} gives {schedule.num_units} units, more than the {MAX_SIMULATED_UNITS} that are simulated; "
            "use fewer parts, a larger tile or a smaller problem"
        )
    trace = simulate(
        schedule,
        device,
        kernel=need.kernel,
        block=need.threads,
        registers=need.registers,
        shared_bytes=need.shared_bytes,
        ctas_per_sm=fit.count,
        seed=seed,
        calibration=calibration,
        tool_version=__version__,
        reduction=variant.reduction,
        within_rate=True,
    )
    alone = (f"clusters of {need.cluster} CTAs are not simulated: each runs by itself",) if need.cluster > 1 else ()
    notes = (SIMULATED_BECAUSE + reason, *alone, *_beyond_memory(problem, device, trace, work))
    launches = tuple(replace(launch, notes=(*notes, *launch.notes)) for launch in trace.launches)
    return replace(trace, launches=launches)


def _beyond_memory(problem: Problem, device: Device, trace: Trace, work: Work | None) -> tuple[str, ...]:
    """A remark where memory could not even move the operands once in the simulated time, L2 full at both ends.

    Of irregular work only C is sure to be moved whole.
    """
    moved = problem.operand_bytes if work is None else problem.m * problem.n * problem.element_bytes
    least_ns = (moved - device.l2_bytes) / device.memory_gb_per_s
    if float(trace.spans.end_ns.max()) >= least_ns:
        return ()
    return (
        f"faster than memory allows: {'A, B and C are' if work is None else 'C is'} {moved / 1e9:.2f} GB, and what of "
        f"it is not in L2 takes {least_ns / 1e3:.4g} us at least at {device.memory_gb_per_s:.0f} GB/s; bandwidth does "
        "not enter a simulation",
    )
