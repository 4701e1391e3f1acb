"""List scheduling where an SM holds several CTAs, whose speed depends on who else is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from wavescope.list_schedule import FloatArray, IntArray, Occupied, UnitCosts
from wavescope.sharing import Speeds

_NEVER = float("inf")


@dataclass(slots=True, eq=False)
class _Work:
    """A unit's main loop or epilogue, with the cycles it would still take at speed 1."""

    age: int
    unit: int
    left: float
    stores: bool = False


@dataclass(slots=True)
class _Sm:
    """What the CTAs of an SM are doing at `now`, in cycles of its clock from T0.

    `waiting` for a prologue, gap or turnaround to pass: a heap of (until, age, unit).
    `looping` and `storing`: main loops, the oldest CTA's first, and epilogues.  What
    happens `then` is that `ending` ends, or where that is None, that the first one has
    waited.
    """

    now: float
    waiting: list[tuple[float, int, int]] = field(default_factory=list)
    looping: list[_Work] = field(default_factory=list)
    storing: list[_Work] = field(default_factory=list)
    then: float = _NEVER
    ending: _Work | None = None


def occupy_shared(
    costs: UnitCosts,
    first_sm: IntArray,
    start_ns: FloatArray,
    ns_per_cycle: FloatArray,
    following: IntArray | None,
    main_loop: Speeds,
    epilogue: tuple[float, ...],
) -> Occupied:
    """As list_schedule.occupy, where several places are on one SM.

    Main loops run at main_loop[n][rank], n being those of their SM, and epilogues at
    epilogue[n], n being main loops and epilogues (sharing.py); what comes before and
    after takes its cycles whoever else is there.  Places with `following` are as old as
    their index says; without it each unit is a CTA, younger than all that began before.
    """
    num_units = len(costs.mac)
    before, mac, store, after = (part.tolist() for part in (costs.before, costs.mac, costs.epilogue, costs.after))
    place, scale = list(range(num_units)), ns_per_cycle.tolist()
    begin, mac_begin, mac_end, epilogue_end, end = ([0.0] * num_units for _ in range(5))
    starts = start_ns.tolist()
    sms = [_Sm(start / cycle) for start, cycle in zip(starts, scale, strict=True)]
    for unit, sm in enumerate(first_sm.tolist()):
        begin[unit] = starts[sm]
        heappush(sms[sm].waiting, (sms[sm].now + before[unit], unit, unit))
    events = []
    for sm, here in enumerate(sms):
        if here.waiting:
            _foresee(here, main_loop, epilogue)
            events.append((here.then * scale[sm], sm))
    heapify(events)
    successor = None if following is None else following.tolist()
    taken = len(first_sm)
    while events:
        now_ns, sm = events[0]
        here = sms[sm]
        work = here.ending
        _advance(here, main_loop, epilogue)
        if work is None:
            _, age, unit = heappop(here.waiting)
            mac_begin[unit] = now_ns
            _begin_loop(here, _Work(age, unit, mac[unit]))
        elif not work.stores:
            mac_end[work.unit] = now_ns
            here.looping.remove(work)
            work.left, work.stores = store[work.unit], True
            here.storing.append(work)
        else:
            here.storing.remove(work)
            unit = work.unit
            epilogue_end[unit] = now_ns
            left = here.now + after[unit]
            end[unit] = left * scale[sm]
            next_unit = successor[unit] if successor else taken if taken < num_units else -1
            if next_unit >= 0:
                taken += 1
                place[next_unit], begin[next_unit] = place[unit], end[unit]
                age = work.age if successor else next_unit
                heappush(here.waiting, (left + before[next_unit], age, next_unit))
        _foresee(here, main_loop, epilogue)
        if here.then < _NEVER:
            heapreplace(events, (here.then * scale[sm], sm))
        else:
            heappop(events)
    return Occupied(*map(np.array, (place, begin, mac_begin, mac_end, epilogue_end, end)))


def _foresee(here: _Sm, main_loop: Speeds, epilogue: tuple[float, ...]) -> None:
    """Find what happens next."""
    then = here.waiting[0][0] if here.waiting else _NEVER
    ending = None
    for work, speed in zip(here.looping, main_loop[len(here.looping)], strict=True):
        at = here.now + work.left / speed
        if at < then:
            then, ending = at, work
    speed = epilogue[len(here.looping) + len(here.storing)]
    for work in here.storing:
        at = here.now + work.left / speed
        if at < then:
            then, ending = at, work
    here.then, here.ending = then, ending


def _advance(here: _Sm, main_loop: Speeds, epilogue: tuple[float, ...]) -> None:
    """Let the time pass until that happens."""
    passed, here.now = here.then - here.now, here.then
    for work, speed in zip(here.looping, main_loop[len(here.looping)], strict=True):
        work.left -= passed * speed
    speed = epilogue[len(here.looping) + len(here.storing)]
    for work in here.storing:
        work.left -= passed * speed


def _begin_loop(here: _Sm, work: _Work) -> None:
    """Let the main loop begin, in its place by age."""
    at = len(here.looping)
    while at and here.looping[at - 1].age > work.age:
        at -= 1
    here.looping.insert(at, work)
