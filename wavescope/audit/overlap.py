"""Overlap: launches that share the GPU with another stream's, and the SMs those hold."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.launches import NULL, IntColumn, Launches

# More kernels running at the same time than this are not told apart.
_MOST_AT_ONCE = 64


@dataclass(frozen=True)
class Overlaps:
    """Per launch: the `neighbour` that held most SMs beside it (NULL: none), and how many SMs all held.

    `sms` is a mean over the launch's duration of the SMs that launches of other streams
    held; only those count that leave no room beside them.  `pairs` counts overlaps
    between streams.
    """

    neighbour: IntColumn
    sms: NDArray[np.float32]
    pairs: int


# The SMs that the first launch takes from the second, both by index; 0 where they fit side by side.
Taken = Callable[[int, int], int]


def overlaps(launches: Launches, taken: Taken) -> Overlaps:
    """Which launches ran at the same time as one of another stream of the same device."""
    neighbour = np.full(len(launches), NULL, np.int64)
    sms = np.zeros(len(launches), np.float32)
    pairs = 0
    for device in np.unique(launches.device):
        mine = np.flatnonzero((launches.device == device) & (launches.duration_ns > 0) & (launches.start_ns != NULL))
        start = launches.start_ns[mine]
        order = np.argsort(start, kind="stable")
        mine, start = mine[order], start[order]
        end = start + launches.duration_ns[mine]
        for begin, stop in _crowds(start, end):
            pairs += _crowd(launches, mine[begin:stop], start[begin:stop], end[begin:stop], taken, neighbour, sms)
    return Overlaps(neighbour, sms, pairs)


def _crowds(start: IntColumn, end: IntColumn) -> list[tuple[int, int]]:
    """Ranges of launches, in order of start, that are chained by overlaps; those of one launch left out."""
    if len(start) < 2:
        return []
    reached = np.maximum.accumulate(end)
    cuts = np.flatnonzero(start[1:] >= reached[:-1]) + 1
    edges = np.concatenate([[0], cuts, [len(start)]])
    return [(int(a), int(b)) for a, b in itertools.pairwise(edges) if b - a > 1]


def _crowd(
    launches: Launches,
    rows: IntColumn,
    start: IntColumn,
    end: IntColumn,
    taken: Taken,
    neighbour: IntColumn,
    sms: NDArray[np.float32],
) -> int:
    """Account for the overlaps among the launches `rows`; return the number of pairs."""
    stream = launches.stream[rows].tolist()
    running: list[int] = []
    most: dict[int, float] = {}
    pairs = 0
    for later in range(len(rows)):
        running = [index for index in running if end[index] > start[later]][-_MOST_AT_ONCE:]
        for earlier in running:
            if stream[earlier] == stream[later]:
                continue  # a dependent launch, started early on purpose
            pairs += 1
            shared = int(min(end[earlier], end[later]) - start[later])
            for one, other in ((later, earlier), (earlier, later)):
                row, held = int(rows[one]), taken(int(rows[other]), int(rows[one]))
                amount = held * shared / int(end[one] - start[one])
                sms[row] += amount
                if amount > most.get(row, 0.0):
                    most[row] = amount
                    neighbour[row] = rows[other]
        running.append(later)
    return pairs
