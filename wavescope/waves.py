"""Rank waves and the share of SMs at work over time, from the states of the SMs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.schedule import nominal_waves, wave_efficiency
from wavescope.states import IDLE, SmStates
from wavescope.trace import IntColumn, Launch
from wavescope.units import Units
from wavescope.wave_report import RankWave, Waves

BUSY_PARTS = 20  # equal parts of T for which a report keeps the share of SMs not idle
_LOW, _MEDIAN, _HIGH = 0.1, 0.5, 0.9  # quantiles of the durations in a wave

FloatArray = NDArray[np.float64]


def waves_of(units: Units, states: SmStates, launch: Launch, sms: int) -> Waves:
    """Rank the units by begin, P at a time (P x lanes where a CTA works on several units).

    Where fewer CTAs than P take several units each, P is their number: no more ran at once.

    Boundaries are common to all SMs: T0, then the median end of each wave, then T1.  A
    wave that backfill ended before its predecessor gets the predecessor's boundary (a
    running maximum), so boundaries never go back; the lengths times the utilizations
    sum to the share of S x T that is not idle, whatever the boundaries are.  There is no
    barrier at a boundary.

    Units of different size have no common wave: `waves` is then empty and `reason` says
    so; the busy shares and the tail's onset say what can be said.
    """
    takes_several = len(units) > launch.grid * units.lanes
    held = max(1, min(launch.places, launch.grid) if takes_several else launch.places)
    places = held * units.lanes
    busy = busy_intervals(states)
    reason = _no_waves(units, launch)
    waves = () if reason else _rank_waves(units, busy, states.duration_ns, places, sms)
    first, last = (waves[0], waves[-1]) if len(waves) > 1 else (None, None)
    edges = np.arange(BUSY_PARTS + 1) * states.duration_ns / BUSY_PARTS
    shares = np.diff(busy.total_before(edges)) / np.diff(edges) / sms
    return Waves(
        places=held,
        num_units=len(units),
        nominal_waves=nominal_waves(len(units), places),
        efficiency=wave_efficiency(len(units), places),
        waves=waves,
        reason=reason,
        duration_ratio=_ratio(last.median_duration_ns, first.median_duration_ns) if first and last else None,
        cycle_ratio=_ratio(last.median_cycles, first.median_cycles) if first and last else None,
        tail_onset_ns=int(states.last_end_ns.min()),
        busy_shares=tuple(shares.tolist()),
    )


@dataclass(frozen=True)
class BusyIntervals:
    """Begins and ends, each sorted, of the stretches in which an SM is not idle, over all SMs."""

    begin: IntColumn
    end: IntColumn

    def count_at(self, at: FloatArray) -> IntColumn:
        """SMs not idle just after each time."""
        return np.searchsorted(self.begin, at, "right") - np.searchsorted(self.end, at, "right")

    def total_before(self, at: FloatArray) -> FloatArray:
        """SM-ns not idle before each time."""
        return _sum_of_minima(self.end, at) - _sum_of_minima(self.begin, at)


def busy_intervals(states: SmStates) -> BusyIntervals:
    """The stretches in which an SM is not idle, whatever it does."""
    segments = states.segments
    busy = segments.state != IDLE
    joined = busy[1:] & busy[:-1] & (segments.sm[1:] == segments.sm[:-1])
    begins, ends = busy & ~np.append(False, joined), busy & ~np.append(joined, False)
    return BusyIntervals(np.sort(segments.begin[begins]), np.sort(segments.end[ends]))


def busy_over_time(states: SmStates) -> tuple[IntColumn, IntColumn]:
    """The number of SMs not idle as a step function: from each time on, so many."""
    busy = busy_intervals(states)
    times = np.unique(np.concatenate([busy.begin, busy.end]))
    return times, busy.count_at(times.astype(np.float64))


def _sum_of_minima(ordered: IntColumn, at: FloatArray) -> FloatArray:
    """For each time the sum of min(value, time) over all values, which come sorted."""
    passed = np.searchsorted(ordered, at, "right")
    sums = np.append(0, np.cumsum(ordered))
    return sums[passed] + at * (len(ordered) - passed)


def _no_waves(units: Units, launch: Launch) -> str | None:
    """Why these units have no waves, if they have none."""
    k_iters = units.k_iters
    low, high = int(k_iters.min()), int(k_iters.max())
    if low == high:
        return None
    how = f" under schedule {launch.schedule}" if launch.schedule else ""
    how = f" by work {launch.work}" if launch.work else how
    return f"units differ in size{how} ({low} to {high} k_iters), so they have no wave in common"


def _rank_waves(units: Units, busy: BusyIntervals, duration_ns: int, places: int, sms: int) -> tuple[RankWave, ...]:
    order = np.argsort(units.begin_ns, kind="stable")
    end = _by_wave(units.end_ns[order], places, [_MEDIAN])[:, 0]
    durations = _by_wave(units.duration_ns[order], places, [_LOW, _MEDIAN, _HIGH])
    no_cycles = np.zeros((len(end), 1))
    cycles = no_cycles if units.cycles is None else _by_wave(units.cycles[order], places, [_MEDIAN])
    edges = np.concatenate([[0.0], np.maximum.accumulate(end)[:-1], [float(duration_ns)]])
    lengths = np.diff(edges)
    mean_busy = busy.count_at(edges[:-1]).astype(np.float64)  # stands where a wave has no length
    np.divide(np.diff(busy.total_before(edges)), lengths, out=mean_busy, where=lengths > 0)
    counts = np.full(len(end), places)
    counts[-1] = len(units) - places * (len(end) - 1)
    return tuple(
        RankWave(
            index=index,
            units=int(counts[index]),
            begin_ns=float(edges[index]),
            end_ns=float(edges[index + 1]),
            utilization=float(mean_busy[index]) / sms,
            fill=int(counts[index]) / places,
            median_duration_ns=float(durations[index, 1]),
            low_duration_ns=float(durations[index, 0]),
            high_duration_ns=float(durations[index, 2]),
            median_cycles=float(cycles[index, 0]),
        )
        for index in range(len(end))
    )


def _by_wave(ranked: IntColumn, places: int, quantiles: list[float]) -> FloatArray:
    """Quantiles of each wave's values, [waves, quantiles]; values come in rank order."""
    whole = len(ranked) // places * places
    parts = []
    if whole:
        parts.append(np.quantile(ranked[:whole].reshape(-1, places), quantiles, axis=1).T)
    if whole < len(ranked):
        parts.append(np.quantile(ranked[whole:], quantiles)[None, :])
    return np.concatenate(parts)


def _ratio(last: float, first: float) -> float | None:
    return last / first if first > 0 else None
