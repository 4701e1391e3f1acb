"""From times on a clock that stands still to the spans a device would record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.calibration_row import Calibration
from wavescope.jobs import Jobs
from wavescope.list_schedule import FloatArray, IntArray, JobCosts, Occupied
from wavescope.power_cap import stretch
from wavescope.schedule import Schedule
from wavescope.trace import NULL, IntColumn, Kind, Spans

TIMER_STEP_NS = 32  # H200, 2026-11: %globaltimer moves by 32 ns
ROUNDING_NS = 1e-3  # a time this close below a step of the timer is that step, computed with floats


@dataclass(frozen=True)
class NominalSpans:
    """Spans in ns at the busy clock; `unit` is a position in the schedule, NULL for CTAs and what is no unit's."""

    kind: IntColumn
    unit: IntColumn
    cta: IntColumn
    sm: IntColumn
    begin: FloatArray
    end: FloatArray


def nominal_spans(
    schedule: Schedule,
    jobs: Jobs,
    costs: JobCosts,
    occupied: Occupied,
    first_sm: IntArray,
    ns_per_cycle: FloatArray,
    exit_cycles: float,
) -> NominalSpans:
    """The parts of each job, then the CTAs."""
    sm = first_sm[occupied.place]
    cta = occupied.place if schedule.dispatch == "queue" else jobs.cta
    is_unit = np.arange(len(jobs)) < schedule.num_units
    alone = jobs.last_of > 0  # adding to a sum and taking it out is one span
    waits = jobs.needs > 0
    adds = waits & (occupied.added > occupied.met)
    parts = [
        (Kind.MAC, is_unit, occupied.mac_begin, occupied.mac_end),
        (Kind.EPILOGUE, (costs.store > 0) & (occupied.stored > occupied.added), occupied.added, occupied.stored),
        (Kind.FIXUP, jobs.leaves, occupied.mac_end, np.where(alone, occupied.added, occupied.left)),
        (Kind.WAIT, waits, occupied.left, occupied.met),
        (Kind.FIXUP, adds, occupied.met, occupied.added),
    ]
    if schedule.dispatch == "hardware":
        cta_begin, cta_end, cta_sm = occupied.begin + costs.handover * ns_per_cycle[sm], occupied.end, sm
    else:
        cta_begin, cta_end, cta_sm = occupied.begin[jobs.first], np.zeros(len(first_sm)), first_sm
        np.maximum.at(cta_end, occupied.place, occupied.stored)
        cta_end += exit_cycles * ns_per_cycle[first_sm]
    chosen = [np.flatnonzero(mask) for _, mask, _, _ in parts]
    counts = [*map(len, chosen), len(cta_begin)]
    kinds = np.array([*(kind for kind, _, _, _ in parts), Kind.CTA], np.int64)
    return NominalSpans(
        kind=np.repeat(kinds, counts),
        unit=np.concatenate([*(jobs.unit[mine] for mine in chosen), np.full(counts[-1], NULL)]),
        cta=np.concatenate([*(cta[mine] for mine in chosen), np.arange(counts[-1])]),
        sm=np.concatenate([*(sm[mine] for mine in chosen), cta_sm]),
        begin=np.concatenate([*(begin[mine] for mine, (_, _, begin, _) in zip(chosen, parts, strict=True)), cta_begin]),
        end=np.concatenate([*(end[mine] for mine, (_, _, _, end) in zip(chosen, parts, strict=True)), cta_end]),
    )


def recorded_spans(
    spans: NominalSpans,
    schedule: Schedule,
    calibration: Calibration,
    offset: IntColumn,
    ns_per_cycle: FloatArray,
    max_clock_mhz: float,
) -> Spans:
    """Spans as a device records them: times floored to the timer's step, cycles to whole ones.

    The clock rises with the share of SMs that have no CTA yet, or none any more, but no
    SM's beyond the device's maximum; all are lower where the launch reaches the power cap
    (power_cap.py).  `offset` of each SM's clock64 in cycles.
    """
    limit = max_clock_mhz * float(ns_per_cycle.min()) / 1e3  # the fastest SM may reach the maximum
    nominal, real = _warp(spans, len(ns_per_cycle), calibration.idle_clock_mhz / calibration.clock_mhz, limit)
    real *= stretch(calibration, int(schedule.k_iters.sum()), float(real[-1]), len(ns_per_cycle))

    def at_ns(at: FloatArray) -> IntColumn:
        return np.floor((np.interp(at, nominal, real) + ROUNDING_NS) / TIMER_STEP_NS).astype(np.int64) * TIMER_STEP_NS

    def at_clock(at: FloatArray) -> IntColumn:
        cycles: IntColumn = offset[spans.sm] + np.rint(at / ns_per_cycle[spans.sm]).astype(np.int64)
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
        unit=unit_column(schedule.unit),
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


def _warp(spans: NominalSpans, sms: int, idle_gain: float, limit: float) -> tuple[FloatArray, FloatArray]:
    """Nominal times, and the real ones: `idle_gain` times as fast without any CTA, by the share of idle SMs between."""
    ctas = spans.kind == Kind.CTA
    first, last = np.full(sms, np.inf), np.full(sms, -np.inf)
    np.minimum.at(first, spans.sm[ctas], spans.begin[ctas])
    np.maximum.at(last, spans.sm[ctas], spans.end[ctas])
    begins, ends = np.sort(first), np.sort(last[np.isfinite(last)])
    times = np.unique(np.concatenate([[0.0], begins[np.isfinite(begins)], ends]))
    busy = np.searchsorted(begins, times[:-1], "right") - np.searchsorted(ends, times[:-1], "right")
    gain = np.clip(1 + (idle_gain - 1) * (1 - busy / sms), 1.0, max(1.0, limit))
    return times, np.concatenate([[0.0], np.cumsum(np.diff(times) / gain)])
