"""List scheduling: units on places, a free place takes the next unit."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Occupied:
    """When each unit had its place, in ns, and which place."""

    begin: FloatArray
    end: FloatArray
    place: NDArray[np.int64]


def occupy(
    cycles: FloatArray,
    first_sm: NDArray[np.int64],
    start_ns: FloatArray,
    ns_per_cycle: FloatArray,
    slowdown: FloatArray,
    stride: int,
) -> Occupied:
    """List scheduling: unit i begins on place i; a place that is free takes the next unit.

    `cycles` are of each unit with its SM full; with r CTAs on the SM it advances
    1 / slowdown[r] times as fast.  `stride` > 0: the place takes the unit that many
    further on; 0: whichever no place has taken yet.

    Each SM keeps its units in a heap by the level of work at which they end: a level
    that all units of the SM rise through together.
    """
    work, num_units = cycles.tolist(), len(cycles)
    begin, end = [0.0] * num_units, [0.0] * num_units
    place = list(range(len(first_sm))) + [0] * (num_units - len(first_sm))
    starts, scale, slow = start_ns.tolist(), ns_per_cycle.tolist(), slowdown.tolist()
    inside: list[list[tuple[float, int]]] = [[] for _ in starts]
    for unit, sm in enumerate(first_sm.tolist()):
        begin[unit] = starts[sm]
        inside[sm].append((work[unit], unit))
    events = []
    for sm, units in enumerate(inside):
        if units:
            heapify(units)
            events.append((starts[sm] + units[0][0] * slow[len(units)] * scale[sm], sm))
    heapify(events)
    taken = len(first_sm)
    while events:
        now, sm = events[0]
        units = inside[sm]
        level, unit = units[0]
        end[unit] = now
        following = unit + stride if stride else taken
        if following < num_units:
            taken += 1
            begin[following] = now
            place[following] = place[unit]
            heapreplace(units, (level + work[following], following))
        else:
            heappop(units)
        if units:
            heapreplace(events, (now + (units[0][0] - level) * slow[len(units)] * scale[sm], sm))
        else:
            heappop(events)
    return Occupied(np.array(begin), np.array(end), np.array(place, np.int64))
