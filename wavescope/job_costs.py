"""What each job of a schedule costs by a calibration, in cycles of an SM that is as full as the calibration's."""

from __future__ import annotations

import numpy as np

from wavescope.calibration_row import Calibration
from wavescope.jobs import Jobs, Mask, beside_a_share
from wavescope.kernels import adds_beside
from wavescope.list_schedule import FloatArray, JobCosts
from wavescope.schedule import Schedule
from wavescope.trace import Reduction

_ALWAYS = (
    "cycles_per_k_iter",
    "fixed_cycles",
    "cold_cycles",
    "fill_cycles",
    "epilogue_cycles",
    "prologue_cycles",
    "exit_cycles",
    "idle_gain",
    "sharing",
    "seniority",
)
_BETWEEN = {"hardware": "turnaround_cycles", "static": "gap_cycles", "queue": "queue_gap_cycles"}


def costs_used(schedule: Schedule) -> frozenset[str]:
    """The names of those costs that decide how long a schedule's jobs take."""
    used = {*_ALWAYS, _BETWEEN[schedule.dispatch]}
    if schedule.num_slots:
        used |= {"partial_cycles", schedule.adds_by}
    if beside_a_share(schedule).any():
        used.add("beside_cycles")
    if schedule.is_staggered.any():
        used.add("stream_slowdown")
    if schedule.is_edge.any():
        used.add("edge_slowdown")
    return frozenset(used)


def job_costs(
    schedule: Schedule,
    jobs: Jobs,
    calibration: Calibration,
    reduction: Reduction,
    places: int,
    sms: int,
    random: np.random.Generator,
    least_per_k_iter: float = 0.0,
) -> JobCosts:
    """Cycles of each job's parts; `random` draws the noise of its work.

    `least_per_k_iter`: what a k_iter takes at the SM's full rate, below which no work goes (a fit may
    lie a per cent below).
    """
    count = len(jobs)
    is_unit = np.arange(count) < schedule.num_units
    first = np.zeros(count, np.bool_)
    first[jobs.first] = True
    noise = np.exp(random.standard_normal(count) * calibration.noise)
    hardware = schedule.dispatch == "hardware"
    handover = np.where(first, 0.0, getattr(calibration, _BETWEEN[schedule.dispatch]))
    slower = 1 + calibration.stream_slowdown * schedule.is_staggered
    slower *= 1 + calibration.edge_slowdown * schedule.is_edge
    per_k_iter = calibration.cycles_per_k_iter * slower * (1 - calibration.idle_gain * _idle(schedule, places, sms))
    beside = beside_a_share(schedule) & adds_beside(calibration.kernel, calibration.tile)
    done = np.isin(jobs.cta, schedule.cta[beside]) & ~is_unit  # shares that other warps have added meanwhile
    of_unit = schedule.k_iters * per_k_iter + calibration.fixed_cycles + beside * calibration.beside_cycles
    mac = of_unit[jobs.unit] + first * calibration.cold_cycles + (first | hardware) * calibration.fill_cycles
    stores = schedule.stores_tile[jobs.unit] | (jobs.last_of > 0)
    return JobCosts(
        handover=handover if hardware else np.zeros(count),
        before=np.where(done, 0.0, handover + np.where(first | hardware, calibration.prologue_cycles, 0.0)),
        mac=np.where(is_unit, np.maximum(mac * noise, schedule.k_iters[jobs.unit] * least_per_k_iter), 0.0),
        leave=np.where(jobs.leaves, calibration.partial_cycles, 0.0) * noise,
        add=_add(schedule, jobs, is_unit, done, calibration, reduction) * noise,
        store=np.where(stores & is_unit, calibration.epilogue_cycles, 0.0) * noise,
        after=np.full(count, calibration.exit_cycles if hardware else 0.0),
    )


def _idle(schedule: Schedule, places: int, sms: int) -> FloatArray:
    """For each unit, the share of SMs that has nothing to do meanwhile: known beforehand where units are equal."""
    index = np.arange(schedule.num_units)
    if schedule.dispatch == "static" and schedule.num_slots:
        return np.full(schedule.num_units, max(0.0, 1 - schedule.num_ctas / sms))
    last_wave = index >= schedule.num_units - schedule.num_units % places
    return np.where(last_wave, max(0.0, 1 - np.count_nonzero(last_wave) / sms), 0.0)


def _add(
    schedule: Schedule, jobs: Jobs, is_unit: Mask, done: Mask, calibration: Calibration, reduction: Reduction
) -> FloatArray:
    """Reading others' partial sums: an owner one after the other, the last of a common sum that, others their share.

    What other warps have `done` beside a whole tile takes no time of its own after it.
    """
    atomic = reduction == "atomic"
    owner = calibration.add_cycles * np.where(atomic, jobs.last_of > 0, jobs.needs)
    later = calibration.share_cycles
    if schedule.reducers:
        reads = schedule.split_tiles if atomic else schedule.spare_reads  # atomic: one sum to read, not one a part
        later = calibration.spare_cycles * reads / schedule.reducers
    elif atomic:
        later /= max(schedule.parts, 1)
    return np.where(is_unit, owner, np.where(done, 0.0, later))
