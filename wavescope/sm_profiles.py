"""SMs of a launch that ran the same work, and when they were done with it.

With several CTAs an SM the length of a unit says little: it depends on who else was
there, and of two CTAs that begin together either may get ahead.  When an SM's first,
second, .. unit ended says more, and when the last one did says what the SM can do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.launch_costs import RecordedLaunch
from wavescope.trace import IntColumn, Kind

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class SmProfile:
    """`sms` SMs of one launch whose CTAs, in order of age, ran units of the same `k_iters`.

    `k_iters` and `stores` (whether a tile is stored) have an entry a CTA, of one entry a
    unit (RecordedLaunch.inner_k_iters).  `mac_end` and `unit_end` are in cycles from the
    SM's first begin, each in order of time: medians over the SMs.  `deviations` are those
    of the SMs' main loops from the median one that ended at the same place in the order,
    relative: [sms, units].
    """

    sms: int
    k_iters: tuple[tuple[float, ...], ...]
    stores: tuple[tuple[bool, ...], ...]
    mac_end: FloatArray
    unit_end: FloatArray
    deviations: FloatArray


def sm_profiles(one: RecordedLaunch) -> tuple[SmProfile, ...]:
    """The launch's SMs, those with the same work together.

    Of the CTAs that came into an empty SM, those that got ahead count as the older ones;
    after that, those that began earlier.
    """
    unit_end = _unit_end_clock(one)
    groups = defaultdict(list)
    stored = np.isin(one.units.unit, one.spans.unit[one.spans.kind == Kind.EPILOGUE])
    for sm in np.unique(one.ctas.sm).tolist():
        units = _by_age(one, sm)
        work = tuple(tuple(one.inner_k_iters[mine].tolist()) for mine in units)
        stores = tuple(tuple(stored[mine].tolist()) for mine in units)
        all_units = np.concatenate(units)
        order = all_units[np.argsort(one.units.end_clock[all_units], kind="stable")]
        origin = one.ctas.begin_clock[one.ctas.sm == sm].min()
        times = one.units.end_clock[order] - origin, np.sort(unit_end[all_units]) - origin, one.cycles[order]
        groups[work, stores].append(np.stack(times).astype(np.float64))
    return tuple(_profile(work, stores, np.stack(found)) for (work, stores), found in groups.items())


def _profile(work: tuple[tuple[float, ...], ...], stores: tuple[tuple[bool, ...], ...], times: FloatArray) -> SmProfile:
    mac_end, unit_end, cycles = np.median(times, axis=0)
    deviations = times[:, 2] / np.maximum(cycles, 1) - 1
    return SmProfile(len(times), work, stores, mac_end, unit_end, deviations)


def _unit_end_clock(one: RecordedLaunch) -> IntColumn:
    """When each unit ended, its epilogue included."""
    end = one.units.end_clock.copy()
    epilogues = one.spans.select(one.spans.kind == Kind.EPILOGUE)
    order = np.argsort(one.units.unit)
    place = order[np.searchsorted(one.units.unit, epilogues.unit, sorter=order)]
    np.maximum.at(end, place, epilogues.end_clock)
    return end


def _by_age(one: RecordedLaunch, sm: int) -> list[IntColumn]:
    """Indices of the units of each of an SM's CTAs, the oldest CTA first."""
    here = np.flatnonzero(one.units.sm == sm)
    here = here[np.argsort(one.units.begin_clock[here], kind="stable")]
    units = [here[one.units.cta[here] == cta] for cta in np.unique(one.units.cta[here])]
    units.sort(key=lambda mine: int(one.units.begin_clock[mine[0]]))
    together, work = one.launch.ctas_per_sm, one.inner_k_iters
    units[:together] = sorted(units[:together], key=lambda mine: float(one.cycles[mine[0]] / work[mine[0]]))
    return units
