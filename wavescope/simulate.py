"""The virtual device: a schedule and a calibration become the trace that the device would leave.

List scheduling over places, on a clock that stands still at the busy frequency
(`nominal` time); nominal time is then mapped to nanoseconds, faster the more SMs idle.
Nothing here is measured, and the launch's notes say what is estimated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wavescope import __version__
from wavescope.calibration import lookup
from wavescope.calibration_row import Calibration
from wavescope.device import Device
from wavescope.errors import ShapeError
from wavescope.first_wave import first_wave_order
from wavescope.job_costs import job_costs
from wavescope.jobs import jobs_of
from wavescope.list_schedule import occupy
from wavescope.rates import kernel_flop_per_clock
from wavescope.schedule import Schedule
from wavescope.shared_schedule import occupy_shared
from wavescope.sharing import epilogue_speeds, main_loop_speeds
from wavescope.simulated_spans import TIMER_STEP_NS, nominal_spans, recorded_spans
from wavescope.trace import Launch, Reduction, Trace

# H200, 2026-11: clock64 of different SMs lies up to 8.9 million cycles apart.
MAX_CLOCK_OFFSET = 8_900_000


def simulate(
    schedule: Schedule,
    device: Device,
    *,
    kernel: str,
    block: int,
    registers: int,
    shared_bytes: int,
    ctas_per_sm: int,
    seed: int = 0,
    calibration: Calibration | None = None,
    tool_version: str = __version__,
    reduction: Reduction = "ordered",
    within_rate: bool = False,
) -> Trace:
    """The trace of `schedule` on a virtual `device`, the same for the same seed.

    The first CTAs go to the SMs in the order of `first_wave_order`.  After that the
    hardware's dispatch and a queue hand the next unit to the place that is free first (on
    a tie to the SM with the smaller id); static CTAs take their own.  A unit costs what
    `calibration` says (by default the table's, see calibration.lookup), times seeded
    noise.  CTAs that share an SM share its throughput, the oldest first (sharing.py);
    those that need others' partial sums wait until these are written.  `within_rate`: no unit
    multiplies faster than the SM can, where its rate is known.

    Raises: ShapeError for a schedule of more resident CTAs than there are places.
    """
    if calibration is None:
        calibration = lookup(kernel, schedule.tile, schedule.problem.dtype, device, ctas_per_sm)
    places = device.sms * ctas_per_sm
    if ctas_per_sm < 1 or (schedule.dispatch != "hardware" and schedule.num_ctas > places):
        raise ShapeError(
            f"{schedule.num_ctas} CTAs must be resident, and {device.name} has {places} places "
            f"({ctas_per_sm} CTAs on each of {device.sms} SMs); use a smaller tile or fewer CTAs"
        )
    random = np.random.default_rng(seed)
    resident = min(schedule.num_ctas, places)
    # a grid that does not fill the device goes round the SMs evenly (H200, 2026-11)
    order = first_wave_order(device, ctas_per_sm if resident == places else 1)
    first_sm = order[np.arange(resident) % len(order)]
    spread = np.clip(random.standard_normal(device.sms), -3, 3) * calibration.clock_spread
    ns_per_cycle = 1e3 / np.minimum(calibration.clock_mhz * (1 + spread), device.max_clock_mhz)
    jobs = jobs_of(schedule, places, reduction)
    rate = kernel_flop_per_clock(kernel, device, schedule.problem.dtype) if within_rate else None
    least_per_k_iter = 2 * schedule.tile.m * schedule.tile.n * schedule.tile.k / rate if rate else 0.0
    costs = job_costs(schedule, jobs, calibration, reduction, places, device.sms, random, least_per_k_iter)
    start_ns = np.empty(device.sms)
    start_ns[first_wave_order(device)] = np.linspace(0, calibration.ramp_ns, device.sms)
    full = calibration.ctas_per_sm
    main_loop = main_loop_speeds(ctas_per_sm, full, calibration.sharing, calibration.seniority)
    store = epilogue_speeds(ctas_per_sm, full)
    if ctas_per_sm == 1 and not jobs.meet:
        costs = replace(costs, mac=costs.mac / main_loop[1][0], store=costs.store / store[1])
        occupied = occupy(costs, jobs, first_sm, start_ns, ns_per_cycle)
    else:
        occupied = occupy_shared(costs, jobs, first_sm, start_ns, ns_per_cycle, main_loop, store)
    offset = random.integers(0, MAX_CLOCK_OFFSET, device.sms)
    spans = nominal_spans(schedule, jobs, costs, occupied, first_sm, ns_per_cycle, calibration.exit_cycles)
    launch = Launch(
        launch_id=0,
        source="simulated",
        kernel=kernel,
        schedule=schedule.name,
        raster=schedule.raster.name,
        problem=schedule.problem,
        tile=schedule.tile,
        grid=schedule.num_ctas,
        block=block,
        cluster=1,
        registers=registers,
        shared_bytes=shared_bytes,
        ctas_per_sm=ctas_per_sm,
        places=places,
        notes=_notes(calibration, schedule, device, ctas_per_sm, reduction),
        parts=schedule.parts,
        reduction=reduction,
        reducers=schedule.reducers,
        work=None if schedule.work is None else str(schedule.work),
        order=schedule.order,
    )
    recorded = recorded_spans(spans, schedule, calibration, offset, ns_per_cycle, device.max_clock_mhz)
    return Trace(tool_version, device, TIMER_STEP_NS, (launch,), recorded)


def past_l2(schedule: Schedule, device: Device) -> str:
    """A remark where CTAs read past the L2 (Schedule.reads_past), which no calibration shows; else nothing."""
    if not schedule.reads_past(device.l2_bytes):
        return ""
    return (
        f"A and B are {schedule.problem.read_bytes / 1e6:.3g} MB, more than the L2 of {device.l2_bytes / 1e6:.3g} MB: "
        "CTAs at different k then read from memory, and take longer than estimated, up to twice as long"
    )


def _notes(
    calibration: Calibration, schedule: Schedule, device: Device, ctas_per_sm: int, reduction: Reduction
) -> tuple[str, ...]:
    """What a reader must know before believing a simulated trace."""
    notes = [
        "simulated: no GPU ran this; unit costs, clock and turnaround are calibrated, noise is drawn from the seed",
        *(calibration.notes or (f"unit costs as recorded: {calibration.name}, {calibration.recorded_in}",)),
        f"layout{', raster order' if schedule.work is None else ''} and timing regime do not enter a simulation",
    ]
    if ctas_per_sm != calibration.ctas_per_sm:
        notes.append(
            f"{ctas_per_sm} CTAs per SM, calibrated with {calibration.ctas_per_sm}: "
            "estimated from how they share an SM there"
        )
    if schedule.is_edge.any() and "edge_slowdown" in calibration.unseen:
        notes.append(
            "k_iters of tiles that reach over the edge of C take longer: by how much was not recorded, "
            "and is left out here"
        )
    if said := past_l2(schedule, device):
        notes.append(said)
    if schedule.num_slots:
        notes += _notes_on_split_tiles(calibration, schedule, ctas_per_sm, reduction)
    return tuple(notes)


def _notes_on_split_tiles(
    calibration: Calibration, schedule: Schedule, ctas_per_sm: int, reduction: Reduction
) -> list[str]:
    """What is not known of partial sums and of shares that are at different k."""
    notes = []
    if {"partial_cycles", schedule.adds_by} & set(calibration.estimated):
        notes.append("what partial sums cost is estimated from the tile's size; no recorded launch showed it")
    if reduction == "atomic":
        notes.append("adding to a common sum is taken to cost what leaving a partial sum does (estimated)")
    if schedule.is_staggered.any() and "stream_slowdown" in calibration.unseen:
        notes.append(
            "shares at different k lose shared reads, so their k_iters take longer: by how much was not recorded, "
            "and is left out here"
        )
    if ctas_per_sm > 1:
        notes.append("a CTA that waits is taken to leave its SM to the others")
    return notes
