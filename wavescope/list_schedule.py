"""List scheduling: jobs on places, a free place takes the next one.

One CTA an SM here, and none waits for another; shared_schedule.py for all else.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

import numpy as np
from numpy.typing import NDArray

from wavescope.jobs import Jobs

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class JobCosts:
    """Cycles of each job, split into its parts.

    `before` = what its place does first (turnaround or gap, then a CTA's prologue), of
    which the first `handover` lie outside the CTA; then `mac`, its main loop; `leave`,
    where it leaves a partial sum; `add`, reading others'; `store`, its epilogue; `after` =
    the CTA's exit, where the job is all that its CTA does.
    """

    handover: FloatArray
    before: FloatArray
    mac: FloatArray
    leave: FloatArray
    add: FloatArray
    store: FloatArray
    after: FloatArray


@dataclass(frozen=True)
class Occupied:
    """Which place each job had and, in ns, when it took it, when its parts ended, and when it left.

    From `mac_begin` on the parts follow one another: main loop, partial sum left, waited
    (`met`), others' partial sums added, stored.  A part that a job does not have ends as
    it begins.
    """

    place: IntArray
    begin: FloatArray
    mac_begin: FloatArray
    mac_end: FloatArray
    left: FloatArray
    met: FloatArray
    added: FloatArray
    stored: FloatArray
    end: FloatArray


def occupy(costs: JobCosts, jobs: Jobs, first_sm: IntArray, start_ns: FloatArray, ns_per_cycle: FloatArray) -> Occupied:
    """Place i, alone on SM first_sm[i], begins with job jobs.first[i] when that SM starts; a free place takes the next.

    The next one is jobs.following's; without that, the first job that no place has taken
    yet.  Of SMs that are free at the same time the one with the smaller id takes first.
    Jobs must not wait for one another.
    """
    num_jobs = len(jobs)
    length = (costs.before + costs.mac + costs.store + costs.after).tolist()
    starts, scale = start_ns.tolist(), ns_per_cycle.tolist()
    place, begin, end = [0] * num_jobs, [0.0] * num_jobs, [0.0] * num_jobs
    running = [0] * len(starts)
    events = []
    for index, (job, sm) in enumerate(zip(jobs.first.tolist(), first_sm.tolist(), strict=True)):
        running[sm], place[job], begin[job] = job, index, starts[sm]
        events.append((starts[sm] + length[job] * scale[sm], sm))
    heapify(events)
    successor = None if jobs.following is None else jobs.following.tolist()
    taken = len(first_sm)
    while events:
        now, sm = events[0]
        job = running[sm]
        end[job] = now
        after = successor[job] if successor else taken if taken < num_jobs else -1
        if after < 0:
            heappop(events)
            continue
        taken += 1
        running[sm], place[after], begin[after] = after, place[job], now
        heapreplace(events, (now + length[after] * scale[sm], sm))
    return _with_parts(costs, np.array(place), np.array(begin), np.array(end), ns_per_cycle[first_sm])


def _with_parts(
    costs: JobCosts, place: IntArray, begin: FloatArray, end: FloatArray, ns_per_cycle: FloatArray
) -> Occupied:
    """Parts follow each other; `ns_per_cycle` of each place."""
    scale = ns_per_cycle[place]
    mac_begin = begin + costs.before * scale
    stored = end - costs.after * scale
    mac_end = mac_begin + costs.mac * scale
    return Occupied(place, begin, mac_begin, mac_end, mac_end, mac_end, mac_end, stored, end)
