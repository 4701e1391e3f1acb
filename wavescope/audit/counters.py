"""Counters: what Nsight Compute measured, put beside the same launches of another profile."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import replace
from pathlib import Path

import numpy as np

from wavescope.audit.launches import NULL, Launches

# Profilers spell template arguments in different ways; the name before them is the same.
_BEFORE_TEMPLATE = re.compile(r"^(?:void )?([^<(]+)")
_FILLED = ("max_active_clusters", "cluster")
_MEASURED = ("sm_active_avg_over_max", "sm_active_share", "activity")


def with_counters(launches: Launches, measured: Launches) -> Launches:
    """`launches` with the activity, clusters and sampled series of `measured`, in a note how many.

    The n-th launch of a kernel name and grid on one side is the n-th on the other; launches
    that only one side has stay as they are.
    """
    waiting: defaultdict[tuple[object, ...], deque[int]] = defaultdict(deque)
    for row in range(len(measured)):
        waiting[_identity(measured, row)].append(row)
    pairs = [(row, queue.popleft()) for row in range(len(launches)) if (queue := waiting.get(_identity(launches, row)))]
    name, found = Path(measured.path).name, f"{len(pairs):,} of {len(launches):,} launches"
    note = f"counters of {name} for {found}, matched by name and grid"
    if not pairs:
        return replace(launches, notes=(*launches.notes, note))
    to, of = np.array(pairs, np.int64).T
    columns = {}
    for name in (*_MEASURED, *_FILLED):
        mine, theirs = getattr(launches, name).copy(), getattr(measured, name)
        if name in _MEASURED:
            mine[to] = theirs[of]
        else:
            unknown = (mine[to] == NULL).reshape(len(to), -1).any(axis=1)
            mine[to[unknown]] = theirs[of[unknown]]
        columns[name] = mine
    return replace(launches, **columns, notes=(*launches.notes, note))


def _identity(launches: Launches, row: int) -> tuple[object, ...]:
    name = str(launches.name[row])
    found = _BEFORE_TEMPLATE.match(name)
    return (found.group(1).strip().rsplit("::", 1)[-1] if found else name, *launches.grid[row].tolist())
