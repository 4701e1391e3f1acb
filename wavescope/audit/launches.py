"""Launches: the one table that every profile reader fills and that `assess` reads.

A column holds one element a launch; what a profile does not say is NULL (-1) in integer
columns, NaN in float columns, None in object columns - never 0 and never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NULL = -1
# In `context_sms`: the launch ran in a green context whose SM count the profile does not give,
# so neither the device's count nor any other holds.
UNKNOWN_PART = -2
NO_NAME = "(no name)"  # of a kernel whose name the profile lacks

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]
ObjectColumn = NDArray[np.object_]


@dataclass(frozen=True)
class ProfiledDevice:
    """What a profile says of one GPU; None where it is silent.

    `sms_source` says where the SM count is from ("profile", "blocks per SM", "device table").
    """

    index: int
    name: str | None
    compute_capability: tuple[int, int] | None
    sms: int | None
    registers_per_sm: int | None
    shared_per_sm: int | None
    shared_per_block: int | None
    threads_per_sm: int | None
    max_clock_mhz: float | None
    sms_source: str = "profile"


@dataclass(frozen=True)
class Launches:
    """The kernel launches of one profile, in order of start.

    `start_ns`, `duration_ns` on the profile's own clock; a launch without a believable time
    has NULL as its duration.  `grid`, `block`, `cluster` are [launches, 3] (x, y, z), a
    cluster of (1, 1, 1) where the profile says that there was none.  `shared_static`,
    `shared_dynamic` in bytes a CTA; a profile that gives only their sum has it in
    `shared_dynamic`, and NULL in `shared_static`.  `max_active_clusters` as the driver
    answered when the profile was taken.  `context_sms`: the SMs of the launch's green
    context or MIG slice, UNKNOWN_PART where there is one of unknown size.  `graph`: the id
    of the graph, or of its replay, NULL outside graphs.  `operator` and `shapes` (a tuple
    of tuples) come from the framework.  `sm_active_avg_over_max` is ncu's
    sm__cycles_active.avg / .max; `sm_active_share` avg over elapsed cycles.  `activity`
    holds, per launch, a sampled series (time_ns, share of SMs active) or None.
    Columns may share memory (a column of NULLs is one element, repeated), so they are
    read-only.  `notes` are data-quality sentences, already counted.
    """

    path: str
    kind: str  # "kineto", "nsys", "ncu csv", "ncu report"
    devices: tuple[ProfiledDevice, ...]
    name: ObjectColumn
    device: IntColumn
    stream: IntColumn
    start_ns: IntColumn
    duration_ns: IntColumn
    grid: NDArray[np.int64]
    block: NDArray[np.int64]
    cluster: NDArray[np.int64]
    registers: IntColumn
    shared_static: IntColumn
    shared_dynamic: IntColumn
    max_active_clusters: IntColumn
    context_sms: IntColumn
    graph: IntColumn
    operator: ObjectColumn
    shapes: ObjectColumn
    profile_occupancy: FloatColumn  # as the profile prints it, in percent; never used, only compared
    sm_active_avg_over_max: FloatColumn
    sm_active_share: FloatColumn
    activity: ObjectColumn
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.name)
