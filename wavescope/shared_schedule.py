"""List scheduling where an SM holds several CTAs, whose speed depends on who else is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

import numpy as np

from wavescope.list_schedule import FloatArray, IntArray, Occupied, UnitCosts
from wavescope.sharing import Speeds

_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class _Work:
    """What a place works on: its CTA's age, the unit, and cycles left of the unit's part that is under way."""

    age: int
    unit: int
    left: float = 0.0


@dataclass(slots=True)
class _Sm:
    """What the CTAs of an SM are doing at `now`, in cycles of its clock from T0.

    `waiting` for a prologue, gap or turnaround to pass: a heap of (until, age, work).
    `looping` in their main loops, the oldest first; `storing` their tiles.
    """

    now: float
    waiting: list[tuple[float, int, _Work]] = field(default_factory=list)
    looping: list[_Work] = field(default_factory=list)
    storing: list[_Work] = field(default_factory=list)


class _Parts(NamedTuple):
    """Cycles of each unit's main loop and epilogue, their speeds, and, in cycles of its SM, when main loops ran."""

    mac: list[float]
    epilogue: list[float]
    mac_speeds: Speeds
    epilogue_speeds: tuple[float, ...]
    mac_begin: list[float]
    mac_end: list[float]


def occupy_shared(
    costs: UnitCosts,
    first_sm: IntArray,
    start_ns: FloatArray,
    ns_per_cycle: FloatArray,
    following: IntArray | None,
    mac_speeds: Speeds,
    epilogue_speeds: tuple[float, ...],
) -> Occupied:
    """As list_schedule.occupy, where several places are on one SM.

    Main loops run at mac_speeds[n][rank], n being those of their SM, and epilogues at
    epilogue_speeds[n], n being main loops and epilogues (sharing.py); what comes before
    and after takes its cycles whoever else is there.  Places with `following` are as old
    as their index says; without it each unit is a CTA, younger than all that began before.

    Between two ends of units an SM is on its own; only who takes the next unit is decided
    among all SMs.
    """
    num_units = len(costs.mac)
    nothing = [0.0] * num_units
    parts = _Parts(
        costs.mac.tolist(), costs.epilogue.tolist(), mac_speeds, epilogue_speeds, nothing.copy(), nothing.copy()
    )
    before, after, scale = costs.before.tolist(), costs.after.tolist(), ns_per_cycle.tolist()
    place, begin, stored = list(range(num_units)), nothing.copy(), nothing.copy()
    sms = [_Sm(now) for now in (start_ns / ns_per_cycle).tolist()]
    for unit, sm in enumerate(first_sm.tolist()):
        here = sms[sm]
        begin[unit] = here.now
        heappush(here.waiting, (here.now + before[unit], unit, _Work(unit, unit)))
    done = [(sm, _until_stored(here, parts)) for sm, here in enumerate(sms) if here.waiting]
    events = [(sms[sm].now * scale[sm], sm, work) for sm, work in done]
    heapify(events)
    successor = None if following is None else following.tolist()
    taken = len(first_sm)
    while events:
        _, sm, work = events[0]
        here, unit = sms[sm], work.unit
        stored[unit] = here.now
        following_unit = successor[unit] if successor else taken if taken < num_units else -1
        if following_unit >= 0:
            taken += 1
            place[following_unit], begin[following_unit] = place[unit], here.now + after[unit]
            work.unit = following_unit
            if not successor:
                work.age = following_unit
            heappush(here.waiting, (begin[following_unit] + before[following_unit], work.age, work))
        if here.waiting or here.looping or here.storing:
            work = _until_stored(here, parts)
            heapreplace(events, (here.now * scale[sm], sm, work))
        else:
            heappop(events)
    of_place = np.array(place)
    cycle = ns_per_cycle[first_sm[of_place]]
    end = np.array(stored) + costs.after
    times = (np.array(begin), np.array(parts.mac_begin), np.array(parts.mac_end), np.array(stored), end)
    return Occupied(of_place, *(at * cycle for at in times))


def _until_stored(here: _Sm, parts: _Parts) -> _Work:
    """Let the SM go on until a tile is stored; returns the work that is done with."""
    waiting, looping, storing, now = here.waiting, here.looping, here.storing, here.now
    mac, epilogue, mac_speeds, epilogue_speeds, mac_begin, mac_end = parts
    while True:
        speeds = mac_speeds[len(looping)]
        soon, ending, stores = waiting[0][0] - now if waiting else _NEVER, None, False
        # equally long; strict=True would cost a quarter of the whole run's time
        for work, speed in zip(looping, speeds):  # noqa: B905
            needs = work.left / speed
            if needs < soon:
                soon, ending = needs, work
        if storing:
            speed = epilogue_speeds[len(looping) + len(storing)]
            for work in storing:
                needs = work.left / speed
                if needs < soon:
                    soon, ending, stores = needs, work, True
            passed = soon * speed
            for work in storing:
                work.left -= passed
        for work, speed in zip(looping, speeds):  # noqa: B905
            work.left -= soon * speed
        now += soon
        if ending is None:
            _, _, work = heappop(waiting)
            mac_begin[work.unit], work.left = now, mac[work.unit]
            _insert(looping, work)
        elif stores:
            storing.remove(ending)
            here.now = now
            return ending
        else:
            looping.remove(ending)
            mac_end[ending.unit], ending.left = now, epilogue[ending.unit]
            storing.append(ending)


def _insert(looping: list[_Work], work: _Work) -> None:
    """Put the work where its age belongs."""
    at = len(looping)
    while at and looping[at - 1].age > work.age:
        at -= 1
    looping.insert(at, work)
