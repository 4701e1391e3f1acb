"""What the places of a device do, one job after the other: a schedule's units, and partial sums added after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.schedule import Schedule
from wavescope.trace import NULL, IntColumn, Reduction

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Jobs:
    """Columns with one element a job; the first jobs are the units, in their order.

    Where partial sums are added later, by all parts of a tile or by spare CTAs, that are
    jobs too, after all units.  `unit` is the unit a job belongs to, by its position (NULL:
    none), `cta` its CTA (NULL: decided at run time).  `first` is the job that each resident
    CTA begins with, `following` the one its CTA does next (NULL after its last); None where
    the hardware or a queue hands jobs out in their order.  `resident` is True where CTAs do
    job after job, False where each job is a CTA.

    `tile` numbers the cut tiles (NULL: not cut).  A job that `leaves` a partial sum is
    done with that, and others may read it, but for the last of `last_of` to do so (0: for
    nobody), who takes the sum of all out.  A job goes on when `needs` partial sums of its
    tile are to be read.
    """

    unit: IntColumn
    cta: IntColumn
    first: IntColumn
    following: IntColumn | None
    resident: bool
    tile: IntColumn
    leaves: Mask
    needs: IntColumn
    last_of: IntColumn

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def meet(self) -> bool:
        """True where jobs of different CTAs depend on one another."""
        return bool((self.tile != NULL).any())


def beside_a_share(schedule: Schedule) -> Mask:
    """For each unit whether it is the whole tile that follows a CTA's part, of which the CTA adds a share itself."""
    follows = np.zeros(schedule.num_units, np.bool_)
    if schedule.is_cooperative and schedule.num_slots and not schedule.reducers:
        order = np.argsort(schedule.cta, kind="stable")
        cut, cta = schedule.peers[order] > 1, schedule.cta[order]
        follows[order[1:]] = cut[:-1] & ~cut[1:] & (cta[1:] == cta[:-1])
    return follows


def independent_jobs(count: int, places: int, following: IntColumn | None = None) -> Jobs:
    """Jobs that never wait; place i begins with job i."""
    nothing = np.zeros(count, np.int64)
    return Jobs(
        unit=np.arange(count),
        cta=nothing + NULL,
        first=np.arange(places),
        following=following,
        resident=following is not None,
        tile=nothing + NULL,
        leaves=nothing > 0,
        needs=nothing,
        last_of=nothing,
    )


def jobs_of(schedule: Schedule, places: int, reduction: Reduction) -> Jobs:
    """What a schedule's CTAs do on a device with that many places (run_units in loop.cuh).

    ordered: a unit of rank > 0 leaves its partial sum, the one of rank 0 waits for all of
    them.  atomic: all add to one sum, and who comes last stores the tile.  Cooperative,
    either way: all leave theirs, and add a share when their CTA has done its whole tiles;
    or spare CTAs, without a part, then add all, each those of a run of tiles, and wait for
    the first of these.
    """
    cut, together = schedule.peers > 1, schedule.is_cooperative
    alone = reduction == "atomic" and not together  # one owner: who comes last
    units = np.arange(schedule.num_units)
    later = np.flatnonzero(cut) if together and not schedule.reducers else np.empty(0, np.int64)
    spare = np.arange(schedule.reducers if schedule.num_slots else 0)
    unit = np.concatenate([units, later, np.full(len(spare), NULL)])
    cta = np.concatenate([schedule.cta, schedule.cta[later], schedule.num_ctas - len(spare) + spare])
    whole_tile = np.where(cut, schedule.first_slot, NULL)
    of_spare = spare * schedule.split_tiles // max(len(spare), 1) * schedule.parts
    tile = np.concatenate([whole_tile, whole_tile[later], of_spare]).astype(np.int64)
    owners = np.where(cut & (schedule.rank == 0) & (not together) & (not alone), schedule.peers - 1, 0)
    needs = np.concatenate([owners, schedule.peers[later], np.full(len(spare), schedule.parts)]).astype(np.int64)
    leaves = np.zeros(len(unit), np.bool_)
    leaves[: len(units)] = cut & (schedule.writes_partial | alone)
    first, following = np.arange(min(places, schedule.num_ctas)), None
    if schedule.dispatch == "static":
        order = np.argsort(cta, kind="stable")
        follows = np.append(cta[order][1:] == cta[order][:-1], False)
        following = np.full(len(unit), NULL)
        following[order] = np.where(follows, np.append(order[1:], NULL), NULL)
        first = order[np.append(True, ~follows[:-1])]
    last_of = np.zeros(len(unit), np.int64)
    last_of[: len(units)] = np.where(cut & alone, schedule.peers, 0)
    return Jobs(
        unit=unit,
        cta=cta.astype(np.int64),
        first=first,
        following=following,
        resident=schedule.dispatch != "hardware",
        tile=tile,
        leaves=leaves,
        needs=needs,
        last_of=last_of,
    )
