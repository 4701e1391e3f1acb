"""The virtual device: a schedule and a calibration become the trace that the device would leave.

List scheduling over places, on a clock that stands still at the busy frequency
(`nominal` time); nominal time is then mapped to nanoseconds, faster once the last,
partly filled wave has begun.  Nothing here is measured, and the launch's notes say what
is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wavescope import __version__
from wavescope.calibration import Calibration, lookup
from wavescope.device import Device
from wavescope.errors import ShapeError
from wavescope.first_wave import first_wave_order
from wavescope.list_schedule import Occupied, UnitCosts, occupy
from wavescope.schedule import Schedule
from wavescope.shared_schedule import occupy_shared
from wavescope.sharing import epilogue_speeds, main_loop_speeds
from wavescope.trace import NULL, IntColumn, Kind, Launch, Spans, Trace

FloatArray = NDArray[np.float64]

TIMER_STEP_NS = 32  # H200, 2026-11: %globaltimer moves by 32 ns
# H200, 2026-11: clock64 of different SMs lies up to 8.9 million cycles apart.
MAX_CLOCK_OFFSET = 8_900_000
ROUNDING_NS = 1e-3  # a time this close below a step of the timer is that step, computed with floats


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
) -> Trace:
    """The trace of `schedule` on a virtual `device`, the same for the same seed.

    The first CTAs go to the SMs in the order of `first_wave_order`.  After that the
    hardware's dispatch and a queue hand the next unit to the place that is free first (on
    a tie to the SM with the smaller id); static CTAs take their own.  A unit costs what
    `calibration` says (by default the table's, see calibration.lookup), times seeded
    noise.  CTAs that share an SM share its throughput, the oldest first (sharing.py).

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
    costs = _costs(schedule, calibration, resident, places, device.sms, random)
    start_ns = np.empty(device.sms)
    start_ns[first_wave_order(device)] = np.linspace(0, calibration.ramp_ns, device.sms)
    following = _following(schedule, resident) if schedule.dispatch == "static" else None
    full = calibration.ctas_per_sm
    main_loop = main_loop_speeds(ctas_per_sm, full, calibration.sharing, calibration.seniority)
    epilogue = epilogue_speeds(ctas_per_sm, full)
    if ctas_per_sm == 1:
        costs = replace(costs, mac=costs.mac / main_loop[1][0], epilogue=costs.epilogue / epilogue[1])
        occupied = occupy(costs, first_sm, start_ns, ns_per_cycle, following)
    else:
        occupied = occupy_shared(costs, first_sm, start_ns, ns_per_cycle, following, main_loop, epilogue)
    offset = random.integers(0, MAX_CLOCK_OFFSET, device.sms)
    spans = _spans(schedule, costs, occupied, first_sm, ns_per_cycle, calibration)
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
        notes=_notes(calibration, ctas_per_sm, schedule.work is None),
        parts=schedule.parts,
        work=None if schedule.work is None else str(schedule.work),
        order=schedule.order,
    )
    limit = device.max_clock_mhz * float(ns_per_cycle.min()) / 1e3  # the fastest SM may reach the maximum
    warp = _clock_gain(occupied.begin, places, device.sms, calibration, limit)
    return Trace(tool_version, device, TIMER_STEP_NS, (launch,), _columns(spans, schedule, offset, ns_per_cycle, warp))


def _following(schedule: Schedule, resident: int) -> IntColumn:
    """The unit that each unit's CTA does next; negative after its last."""
    unit = np.arange(schedule.num_units) + resident
    return np.where(unit < schedule.num_units, unit, NULL)


def _costs(
    schedule: Schedule, calibration: Calibration, resident: int, places: int, sms: int, random: np.random.Generator
) -> UnitCosts:
    """Cycles of each unit on an SM as full as the calibration's."""
    num_units, k_iters = schedule.num_units, schedule.k_iters.astype(np.float64)
    index = np.arange(num_units)
    first = index < resident
    last_wave = index >= num_units - num_units % places
    idle = np.where(last_wave, max(0.0, 1 - np.count_nonzero(last_wave) / sms), 0.0)
    noise = np.exp(random.standard_normal(num_units) * calibration.noise)
    per_k_iter = calibration.cycles_per_k_iter * (1 - calibration.idle_gain * idle)
    hardware = schedule.dispatch == "hardware"
    between = {
        "hardware": calibration.turnaround_cycles,
        "static": calibration.gap_cycles,
        "queue": calibration.queue_gap_cycles,
    }[schedule.dispatch]
    handover = np.where(first, 0.0, between)
    return UnitCosts(
        handover=handover if hardware else np.zeros(num_units),
        before=handover + np.where(first | hardware, calibration.prologue_cycles, 0.0),
        mac=(k_iters * per_k_iter + calibration.fixed_cycles + first * calibration.cold_cycles) * noise,
        epilogue=np.where(schedule.stores_tile, calibration.epilogue_cycles, 0.0) * noise,
        after=np.full(num_units, calibration.exit_cycles if hardware else 0.0),
    )


@dataclass(frozen=True)
class _NominalSpans:
    """Spans in nominal ns; `unit` is NULL for CTAs that run several."""

    kind: IntColumn
    unit: IntColumn
    cta: IntColumn
    sm: IntColumn
    begin: FloatArray
    end: FloatArray


def _spans(
    schedule: Schedule,
    costs: UnitCosts,
    occupied: Occupied,
    first_sm: IntColumn,
    ns_per_cycle: FloatArray,
    calibration: Calibration,
) -> _NominalSpans:
    """The parts of each unit, then the CTAs."""
    num_units = schedule.num_units
    unit, sm = np.arange(num_units), first_sm[occupied.place]
    hardware = schedule.dispatch == "hardware"
    cta = unit if hardware else occupied.place
    stored = schedule.stores_tile & (costs.epilogue > 0)
    if hardware:
        cta_begin, cta_end = occupied.begin + costs.handover * ns_per_cycle[sm], occupied.end
    else:
        cta_begin, cta_end = occupied.begin[: len(first_sm)], np.zeros(len(first_sm))
        np.maximum.at(cta_end, occupied.place, occupied.epilogue_end)
        cta_end += calibration.exit_cycles * ns_per_cycle[first_sm]
    counts = [num_units, int(np.count_nonzero(stored)), len(cta_begin)]
    return _NominalSpans(
        kind=np.repeat(np.array([Kind.MAC, Kind.EPILOGUE, Kind.CTA], np.int64), counts),
        unit=np.concatenate([unit, unit[stored], np.full(counts[-1], NULL)]),
        cta=np.concatenate([cta, cta[stored], np.arange(counts[-1])]),
        sm=np.concatenate([sm, sm[stored], sm if hardware else first_sm]),
        begin=np.concatenate([occupied.mac_begin, occupied.mac_end[stored], cta_begin]),
        end=np.concatenate([occupied.mac_end, occupied.epilogue_end[stored], cta_end]),
    )


def _clock_gain(
    begin: FloatArray, places: int, sms: int, calibration: Calibration, limit: float
) -> tuple[float, float]:
    """From which nominal time on the clock is how many times as fast, at most `limit`: the last wave's median begin."""
    partial = len(begin) % places
    if partial == 0:
        return float("inf"), 1.0
    from_ns = 0.0 if partial == len(begin) else float(np.median(begin[-partial:]))
    idle = max(0.0, 1 - partial / sms)
    gain = 1 + (calibration.idle_clock_mhz / calibration.clock_mhz - 1) * idle
    return from_ns, max(1.0, min(gain, limit))


def _columns(
    spans: _NominalSpans, schedule: Schedule, offset: IntColumn, ns_per_cycle: FloatArray, gain: tuple[float, float]
) -> Spans:
    """Spans as a device records them: times floored to the timer's step, cycles to whole ones."""
    from_ns, faster = gain

    def at_ns(nominal: FloatArray) -> IntColumn:
        ns = np.minimum(nominal, from_ns) + np.maximum(nominal - from_ns, 0.0) / faster
        return np.floor((ns + ROUNDING_NS) / TIMER_STEP_NS).astype(np.int64) * TIMER_STEP_NS

    def at_clock(nominal: FloatArray) -> IntColumn:
        cycles: IntColumn = offset[spans.sm] + np.rint(nominal / ns_per_cycle[spans.sm]).astype(np.int64)
        return cycles

    count, of_unit = len(spans.kind), spans.unit != NULL

    def unit_column(values: NDArray[np.int32]) -> IntColumn:
        return np.where(of_unit, values[spans.unit], NULL).astype(np.int64)

    nothing = np.full(count, NULL, np.int64)
    begin_ns = at_ns(spans.begin)
    t0 = begin_ns.min()
    return Spans(
        launch_id=np.zeros(count, np.int64),
        cta=spans.cta,
        cluster_id=nothing,
        lane=np.zeros(count, np.int64),
        sm=spans.sm,
        unit=spans.unit,
        tile_m=unit_column(schedule.tile_m),
        tile_n=unit_column(schedule.tile_n),
        k_begin=unit_column(schedule.k_begin),
        k_end=unit_column(schedule.k_end),
        kind=spans.kind,
        begin_ns=begin_ns - t0,
        end_ns=at_ns(spans.end) - t0,
        begin_clock=at_clock(spans.begin),
        end_clock=at_clock(spans.end),
        stall_clock=nothing,
    )


def _recorded_in(calibration: Calibration) -> str:
    """Where the costs are from; what those recordings left open is for who reads the table."""
    return calibration.source.split("; not to be told")[0]


def _notes(calibration: Calibration, ctas_per_sm: int, is_regular: bool) -> tuple[str, ...]:
    """What a reader must know before believing a simulated trace."""
    notes = [
        "simulated: no GPU ran this; unit costs, clock and turnaround are calibrated, noise is drawn from the seed",
        *(calibration.notes or (f"unit costs as recorded: {calibration.name}, {_recorded_in(calibration)}",)),
        f"layout{', raster order' if is_regular else ''} and timing regime do not enter a simulation",
    ]
    if ctas_per_sm != calibration.ctas_per_sm:
        notes.append(
            f"{ctas_per_sm} CTAs per SM, calibrated with {calibration.ctas_per_sm}: "
            "estimated from how they share an SM there"
        )
    return tuple(notes)
