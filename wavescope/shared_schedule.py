"""List scheduling where CTAs share an SM, whose speed depends on who else is there, or wait for one another."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from wavescope.errors import IntegrityError
from wavescope.jobs import Jobs
from wavescope.list_schedule import FloatArray, IntArray, JobCosts, Occupied
from wavescope.sharing import Speeds

_NEVER = float("inf")
_MAC, _LEAVE, _ADD, _STORE = range(4)  # parts of a job


@dataclass(slots=True, eq=False)
class _Work:
    """What a place works on: its CTA's age, the job, the part that is under way, and cycles left of that."""

    age: int
    job: int
    part: int = _MAC
    left: float = 0.0


@dataclass(slots=True, eq=False)
class _Sm:
    """What the CTAs of an SM are doing at `now`, in cycles of its clock from T0.

    `waiting` for a prologue, gap or turnaround to pass: a heap of (until, age, work).
    `looping` in their main loops, the oldest first; `storing` tiles and partial sums, or
    adding the latter.  After `soon` cycles `ending` is done with its part, or (None) the
    first of `waiting` begins; `version` counts how often that has been found out.
    """

    index: int
    ns_per_cycle: float
    now: float
    waiting: list[tuple[float, int, _Work]] = field(default_factory=list)
    looping: list[_Work] = field(default_factory=list)
    storing: list[_Work] = field(default_factory=list)
    soon: float = _NEVER
    ending: _Work | None = None
    version: int = 0


def occupy_shared(
    costs: JobCosts,
    jobs: Jobs,
    first_sm: IntArray,
    start_ns: FloatArray,
    ns_per_cycle: FloatArray,
    mac_speeds: Speeds,
    store_speeds: tuple[float, ...],
) -> Occupied:
    """As list_schedule.occupy, where several places are on one SM, and jobs wait for others' partial sums.

    Main loops run at mac_speeds[n][rank], n being those of their SM; epilogues, and
    leaving and adding partial sums, at store_speeds[n], n being all of these (sharing.py).
    What comes before and after takes its cycles whoever else is there; a CTA that waits
    leaves the SM to the others.  A resident CTA is as old as its place's index says;
    where each job is a CTA, it is younger than all that began before.

    Raises: IntegrityError where jobs wait for what nobody leaves.
    """
    return _Run(costs, jobs, first_sm, start_ns, ns_per_cycle, mac_speeds, store_speeds).occupied()


class _Run:
    """The device at work: events in the order of time, each the end of a part of one job."""

    def __init__(
        self,
        costs: JobCosts,
        jobs: Jobs,
        first_sm: IntArray,
        start_ns: FloatArray,
        ns_per_cycle: FloatArray,
        mac_speeds: Speeds,
        store_speeds: tuple[float, ...],
    ) -> None:
        count = len(jobs)
        self.costs, self.jobs, self.first_sm, self.ns_per_cycle = costs, jobs, first_sm, ns_per_cycle
        self.mac_speeds, self.store_speeds = mac_speeds, store_speeds
        self.before, self.after = costs.before.tolist(), costs.after.tolist()
        self.cycles = [part.tolist() for part in (costs.mac, costs.leave, costs.add, costs.store)]
        self.tile, self.needs = jobs.tile.tolist(), jobs.needs.tolist()
        self.leaves, self.last_of = jobs.leaves.tolist(), jobs.last_of.tolist()
        self.following = None if jobs.following is None else jobs.following.tolist()
        self.place, self.begin, self.mac_begin, self.met = [0] * count, [0.0] * count, [0.0] * count, [0.0] * count
        self.ends = [[0.0] * count for _ in range(4)]  # of each part
        self.taken = len(first_sm)
        self.arrived: dict[int, int] = defaultdict(int)  # partial sums of each tile that may be read
        self.held_up: dict[int, list[tuple[_Sm, _Work]]] = defaultdict(list)
        starts = zip((start_ns / ns_per_cycle).tolist(), ns_per_cycle.tolist(), strict=True)
        self.sms = [_Sm(index, scale, now) for index, (now, scale) in enumerate(starts)]

    def occupied(self) -> Occupied:
        """Run until all is done."""
        for index, (job, sm) in enumerate(zip(self.jobs.first.tolist(), self.first_sm.tolist(), strict=True)):
            here = self.sms[sm]
            self.place[job], self.begin[job] = index, here.now
            age = index if self.jobs.resident else job
            heappush(here.waiting, (here.now + self.before[job], age, _Work(age, job)))
        events = [self._next(here) for here in self.sms if here.waiting]
        heapify(events)
        while events:
            _, index, version = events[0]
            here = self.sms[index]
            if version != here.version:
                heappop(events)
                continue
            freed = self._step(here)
            if here.waiting or here.looping or here.storing:
                heapreplace(events, self._next(here))
            else:
                here.version += 1
                heappop(events)
            for other in freed:
                heappush(events, self._next(other))
        if any(self.held_up.values()):
            raise IntegrityError("CTAs wait for partial sums that nobody leaves; the schedule is wrong")
        return self._occupied()

    def _occupied(self) -> Occupied:
        place = np.array(self.place)
        stored = np.array(self.ends[_STORE])
        times = (self.begin, self.mac_begin, self.ends[_MAC], self.ends[_LEAVE], self.met, self.ends[_ADD])
        cycle = self.ns_per_cycle[self.first_sm[place]]
        return Occupied(place, *(np.array(at) * cycle for at in (*times, stored, stored + self.costs.after)))

    def _next(self, here: _Sm) -> tuple[float, int, int]:
        """Find what ends next on an SM: the event (ns, SM, version)."""
        looping, storing = here.looping, here.storing
        soon, ending = here.waiting[0][0] - here.now if here.waiting else _NEVER, None
        # equally long; strict=True would cost a quarter of the whole run's time
        for work, speed in zip(looping, self.mac_speeds[len(looping)]):  # noqa: B905
            needs = work.left / speed
            if needs < soon:
                soon, ending = needs, work
        if storing:
            speed = self.store_speeds[len(looping) + len(storing)]
            for work in storing:
                needs = work.left / speed
                if needs < soon:
                    soon, ending = needs, work
        here.soon, here.ending = soon, ending
        here.version += 1
        return (here.now + soon) * here.ns_per_cycle, here.index, here.version

    def _pass(self, here: _Sm, cycles: float) -> None:
        """Let cycles go by on an SM, in which no part ends."""
        looping, storing = here.looping, here.storing
        for work, speed in zip(looping, self.mac_speeds[len(looping)]):  # noqa: B905
            work.left -= cycles * speed
        if storing:
            done = cycles * self.store_speeds[len(looping) + len(storing)]
            for work in storing:
                work.left -= done
        here.now += cycles

    def _step(self, here: _Sm) -> list[_Sm]:
        """Let an SM go on to what ends next; returns other SMs whose CTAs need not wait any longer."""
        self._pass(here, here.soon)
        work = here.ending
        if work is None:
            _, _, work = heappop(here.waiting)
            job, work.part = work.job, _MAC
            self.mac_begin[job], work.left = here.now, self.cycles[_MAC][job]
            if work.left or not self.needs[job]:
                _insert(here.looping, work)
                return []
        elif work.part == _MAC:
            here.looping.remove(work)
        else:
            here.storing.remove(work)
        job, part = work.job, work.part
        self.ends[part][job] = here.now
        if part == _MAC and self.leaves[job]:
            self._begin(here, work, _LEAVE)
        elif part == _MAC:
            self.ends[_LEAVE][job] = here.now
            self._meet(here, work)
        elif part == _ADD:
            self._begin(here, work, _STORE)
        elif part == _LEAVE and self._is_last(job):
            self.met[job] = here.now
            self._begin(here, work, _ADD)
        else:
            if part == _LEAVE:
                self.met[job] = self.ends[_ADD][job] = self.ends[_STORE][job] = here.now
            return self._done(here, work)
        return []

    def _begin(self, here: _Sm, work: _Work, part: int) -> None:
        work.part, work.left = part, self.cycles[part][work.job]
        here.storing.append(work)

    def _meet(self, here: _Sm, work: _Work) -> None:
        """Go on, or wait for the partial sums of others."""
        job = work.job
        if self.arrived[self.tile[job]] < self.needs[job]:
            self.held_up[self.tile[job]].append((here, work))
            return
        self.met[job] = here.now
        if self.needs[job]:
            self._begin(here, work, _ADD)
        else:
            self.ends[_ADD][job] = here.now
            self._begin(here, work, _STORE)

    def _is_last(self, job: int) -> bool:
        """True for the last of those that add to one sum."""
        if not self.last_of[job]:
            return False
        self.arrived[self.tile[job]] += 1
        is_last: bool = self.arrived[self.tile[job]] == self.last_of[job]
        return is_last

    def _done(self, here: _Sm, work: _Work) -> list[_Sm]:
        """Others may read what the job left; its place takes the next one."""
        job = work.job
        freed = self._raise(here, job)
        following = self.following[job] if self.following else self.taken if self.taken < len(self.jobs) else -1
        if following >= 0:
            self.taken += 1
            self.place[following], self.begin[following] = self.place[job], here.now + self.after[job]
            work.job = following
            if not self.jobs.resident:
                work.age = following
            heappush(here.waiting, (self.begin[following] + self.before[following], work.age, work))
        return freed

    def _raise(self, here: _Sm, job: int) -> list[_Sm]:
        freed = []
        for tile in self.jobs.raises.get(job, ()):
            self.arrived[tile] += 1
            still = []
            for other, work in self.held_up.pop(tile, ()):
                if self.arrived[tile] < self.needs[work.job]:
                    still.append((other, work))
                    continue
                if other is not here:
                    self._pass(other, max(0.0, here.now * here.ns_per_cycle / other.ns_per_cycle - other.now))
                    freed.append(other)
                self.met[work.job] = other.now
                self._begin(other, work, _ADD)
            if still:
                self.held_up[tile] = still
        return freed


def _insert(looping: list[_Work], work: _Work) -> None:
    """Put the work where its age belongs."""
    at = len(looping)
    while at and looping[at - 1].age > work.age:
        at -= 1
    looping.insert(at, work)
