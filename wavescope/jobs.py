"""What the places of a device do, one job after the other: a schedule's units, and the shares added after them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wavescope.schedule import Schedule
from wavescope.trace import NULL, IntColumn, Reduction

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Jobs:
    """Columns with one element a job; the first jobs are the units, in their order.

    Where all parts of a cut tile add a share of it, those shares are jobs too, after all
    units.  `unit` is the unit a job belongs to, by its position.  `first` is the job that
    each resident CTA begins with, `following` the one its CTA does next (NULL after its
    last); None where the hardware or a queue hands jobs out in their order.  `resident`
    is True where CTAs do job after job, False where each job is a CTA.

    `tile` numbers the cut tiles (NULL: not cut).  A job that `leaves` a partial sum is
    done with that, but for the last of `last_of` to do so (0: for nobody).  A job goes on
    when `needs` partial sums of its tile are to be read.  `raises` names the tiles whose
    partial sums a job lets others read when it is done, one entry for each.
    """

    unit: IntColumn
    first: IntColumn
    following: IntColumn | None
    resident: bool
    tile: IntColumn
    leaves: Mask
    needs: IntColumn
    last_of: IntColumn
    raises: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.unit)

    @property
    def meet(self) -> bool:
        """True where jobs of different CTAs depend on one another."""
        return bool((self.tile != NULL).any())


def independent_jobs(count: int, places: int, following: IntColumn | None = None) -> Jobs:
    """Jobs that never wait; place i begins with job i."""
    nothing = np.zeros(count, np.int64)
    return Jobs(
        unit=np.arange(count),
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
    either way: all leave theirs, may be read when their CTA has done its whole tiles, and
    then add a share.
    """
    cut, together = schedule.peers > 1, schedule.is_cooperative
    later = np.flatnonzero(cut) if together else np.empty(0, np.int64)
    alone = reduction == "atomic" and not together  # one owner: who comes last
    unit = np.concatenate([np.arange(schedule.num_units), later])
    peers, is_share = schedule.peers[unit].astype(np.int64), np.arange(len(unit)) >= schedule.num_units
    waits = is_share | (cut & (schedule.rank == 0) & (not together) & (not alone))[unit]
    others = peers - np.where(is_share, 0, 1)  # a share needs its own unit's partial sum too
    cta = schedule.cta[unit]
    first, following = np.arange(min(places, schedule.num_ctas)), None
    if schedule.dispatch == "static":
        order = np.argsort(cta, kind="stable")
        follows = np.append(cta[order][1:] == cta[order][:-1], False)
        following = np.full(len(unit), NULL)
        following[order] = np.where(follows, np.append(order[1:], NULL), NULL)
        first = order[np.append(True, ~follows[:-1])]
    leaves = ~is_share & cut[unit] & (schedule.writes_partial[unit] | alone)
    return Jobs(
        unit=unit,
        first=first,
        following=following,
        resident=schedule.dispatch != "hardware",
        tile=np.where(cut[unit], schedule.first_slot[unit], NULL).astype(np.int64),
        leaves=leaves,
        needs=np.where(waits, others, 0),
        last_of=np.where(leaves & alone, peers, 0),
        raises={} if alone else _raises(schedule, cta, leaves),
    )


def _raises(schedule: Schedule, cta: NDArray[np.int32], leaves: Mask) -> dict[int, tuple[int, ...]]:
    """After which unit the partial sums may be read: their own, or the last of their CTA."""
    raises: dict[int, list[int]] = defaultdict(list)
    last = {}
    if schedule.is_cooperative:
        last = {owner: unit for unit, owner in enumerate(cta[: schedule.num_units].tolist())}
    for job in np.flatnonzero(leaves).tolist():
        raises[last.get(int(cta[job]), job)].append(int(schedule.first_slot[job]))
    return {job: tuple(tiles) for job, tiles in raises.items()}
