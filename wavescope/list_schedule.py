"""List scheduling: units on places, a free place takes the next unit.

One CTA an SM here; shared_schedule.py for SMs that hold several.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class UnitCosts:
    """Cycles of each unit, split into its parts.

    `before` = what its place does first (turnaround or gap, then a CTA's prologue), of
    which the first `handover` lie outside the CTA; `mac` and `epilogue` = its work;
    `after` = the CTA's exit, where the unit is all that its CTA does.
    """

    handover: FloatArray
    before: FloatArray
    mac: FloatArray
    epilogue: FloatArray
    after: FloatArray


@dataclass(frozen=True)
class Occupied:
    """Which place each unit had and, in ns, when it took it, when its parts began and ended, and when it left."""

    place: IntArray
    begin: FloatArray
    mac_begin: FloatArray
    mac_end: FloatArray
    epilogue_end: FloatArray
    end: FloatArray


def occupy(
    costs: UnitCosts,
    first_sm: IntArray,
    start_ns: FloatArray,
    ns_per_cycle: FloatArray,
    following: IntArray | None,
) -> Occupied:
    """Unit i begins on place i, alone on SM first_sm[i], when that SM starts; a place that is free takes the next unit.

    The next unit is following[unit] (negative: none); without `following`, the first one
    that no place has taken yet.  Of SMs that are free at the same time the one with the
    smaller id takes first.
    """
    num_units, places = len(costs.mac), len(first_sm)
    length = (costs.before + costs.mac + costs.epilogue + costs.after).tolist()
    starts, scale = start_ns.tolist(), ns_per_cycle.tolist()
    place, begin, end = list(range(num_units)), [0.0] * num_units, [0.0] * num_units
    running = [0] * len(starts)
    events = []
    for unit, sm in enumerate(first_sm.tolist()):
        running[sm], begin[unit] = unit, starts[sm]
        events.append((starts[sm] + length[unit] * scale[sm], sm))
    heapify(events)
    successor = None if following is None else following.tolist()
    taken = places
    while events:
        now, sm = events[0]
        unit = running[sm]
        end[unit] = now
        after = successor[unit] if successor else taken if taken < num_units else -1
        if after < 0:
            heappop(events)
            continue
        taken += 1
        running[sm], place[after], begin[after] = after, place[unit], now
        heapreplace(events, (now + length[after] * scale[sm], sm))
    return _with_parts(costs, np.array(place), np.array(begin), np.array(end), ns_per_cycle[first_sm])


def _with_parts(
    costs: UnitCosts, place: IntArray, begin: FloatArray, end: FloatArray, ns_per_cycle: FloatArray
) -> Occupied:
    """Parts follow each other; `ns_per_cycle` of each place."""
    scale = ns_per_cycle[place]
    mac_begin = begin + costs.before * scale
    epilogue_end = end - costs.after * scale
    return Occupied(place, begin, mac_begin, mac_begin + costs.mac * scale, epilogue_end, end)
