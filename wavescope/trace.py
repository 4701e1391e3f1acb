"""The trace, version 1: every span of one or more launches, and what describes them.

One Parquet file.  Later stages read nothing else, so a recorded trace analyses the same
way everywhere.  Twin of the device's record: kernels/include/trace.cuh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wavescope.device import Device
from wavescope.errors import IntegrityError
from wavescope.problem import Problem, Tile
from wavescope.stats import Estimate

SCHEMA_VERSION = 1
NULL = -1  # in memory, for the columns that may be null in the file

SIMULATED_BECAUSE = "simulated because "  # begins the note of a launch that says why it was not measured

Source = Literal["measured", "simulated"]
Reduction = Literal["ordered", "atomic"]
Order = Literal["raster", "lpt"]
IntColumn = NDArray[np.int64]


class Kind(IntEnum):
    """What a span is; a larger value wins where spans of one SM overlap."""

    CTA = 1
    WAIT = 2
    EPILOGUE = 3
    FIXUP = 4
    MAC = 5


# Kernels whose records say how long a unit waited inside.  The others write 0 there, which is
# no measurement; simulations and files of older versions have none either.
STALL_KERNELS = frozenset({"gemm_sm90", "gemm_sm90_pingpong"})

# What the kernels write, 64 bytes a span (trace.cuh); kind 0: the slot was not used.
RECORD_DTYPE = np.dtype(
    [
        ("begin_ns", "<u8"),
        ("begin_clock", "<u8"),
        ("end_ns", "<u8"),
        ("end_clock", "<u8"),
        ("cta", "<u4"),
        ("unit", "<u4"),
        ("tile_m", "<u4"),
        ("tile_n", "<u4"),
        ("k_begin", "<u4"),
        ("k_end", "<u4"),
        ("sm", "<u2"),
        ("kind", "u1"),
        ("lane", "u1"),
        ("stall_clock", "<u4"),
    ]
)


@dataclass(frozen=True)
class Spans:
    """Columns of equal length, one element a span; NULL (-1) where there is nothing to say.

    `begin_ns`, `end_ns` count from the launch's T0 (globaltimer, one origin for all SMs).
    `begin_clock`, `end_clock` are clock64 cycles: only values of the same SM may be
    subtracted.  `k_begin`, `k_end` in k_iters, half-open.

    `stall_clock` counts SM cycles, and is NULL where nobody counted them (STALL_KERNELS do).
    Two waits share the column, and the properties tell them apart: on a mac span how long
    those who multiply waited for operands, on the unit's span after it how long the warp that
    copies waited for room in the ring, while it copied that unit's operands.  All other spans
    have NULL.
    """

    launch_id: IntColumn
    cta: IntColumn
    cluster_id: IntColumn
    lane: IntColumn
    sm: IntColumn
    unit: IntColumn
    tile_m: IntColumn
    tile_n: IntColumn
    k_begin: IntColumn
    k_end: IntColumn
    kind: IntColumn
    begin_ns: IntColumn
    end_ns: IntColumn
    begin_clock: IntColumn
    end_clock: IntColumn
    stall_clock: IntColumn

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def operand_stall(self) -> IntColumn:
        """Cycles in which those who multiply waited for operands; NULL on all but measured mac spans."""
        return np.where(self.kind == Kind.MAC, self.stall_clock, NULL)

    @property
    def room_stall(self) -> IntColumn:
        """Cycles in which the copying warp waited for room; NULL on all but measured spans after a mac."""
        return np.where(self.kind == Kind.MAC, NULL, self.stall_clock)

    def select(self, mask: NDArray[Any]) -> Spans:
        """The spans a boolean mask or an index array picks."""
        return Spans(*(getattr(self, column.name)[mask] for column in fields(self)))


@dataclass(frozen=True)
class Timing:
    """Times of the same launch, repeated: nanoseconds a launch, as medians.

    `regime` names the protocol.  `plain_ns` and `probed_ns` are event times a launch of
    the kernel without and with the probe; `perturbation` is the median of the paired
    ratios probed / plain.  `clock_limits` are the reasons NVML gave, while the launches
    ran, for the clock being below its maximum; None where NVML does not answer.  `cycles`
    are those of the SM that was at work the longest, over the probed launches.
    """

    regime: str
    plain_ns: Estimate
    probed_ns: Estimate
    perturbation: Estimate
    clock_limits: tuple[str, ...] | None = None
    cycles: Estimate | None = None


@dataclass(frozen=True)
class Launch:
    """What the host knows of one launch.

    `block` in threads, `shared_bytes` a CTA (static and dynamic), `ctas_per_sm` from the
    driver's occupancy query when measured; `places` = room for resident CTAs on the
    device.  `schedule` and `raster` name how units were handed out; None where the
    kernel is not wavescope's own.  `parts` is the schedule's number
    (schedule.SPLIT_SCHEDULES), `reduction` how the partial sums of split tiles met,
    `reducers` how many CTAs without a part added them (0: others did).
    `work` says in the words of work.Work that tiles took unequal numbers of k_iters (None:
    all of them), `order` how units walked the tiles: as the raster does, or the longest
    first (lpt).
    """

    launch_id: int
    source: Source
    kernel: str
    schedule: str | None
    raster: str | None
    problem: Problem | None
    tile: Tile | None
    grid: int
    block: int
    cluster: int
    registers: int
    shared_bytes: int
    ctas_per_sm: int
    places: int
    stream: int = 0
    t0_globaltimer_ns: int = 0
    timing: Timing | None = None
    verified: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    parts: int = 1
    reduction: Reduction = "ordered"
    reducers: int = 0
    work: str | None = None
    order: Order = "raster"


@dataclass(frozen=True)
class Trace:
    """Spans of one or more launches on one device.

    `timer_step_ns` is the measured step of the timer behind begin_ns and end_ns.
    """

    tool_version: str
    device: Device
    timer_step_ns: int
    launches: tuple[Launch, ...]
    spans: Spans


def join(parts: Sequence[Spans]) -> Spans:
    """The spans of several launches in one."""
    return Spans(*(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Spans)))


def spans_of_records(
    records: NDArray[Any], launch_id: int, cluster: int, has_stalls: bool = False
) -> tuple[Spans, int]:
    """Spans from the device's records (RECORD_DTYPE), and T0, the first CTA's begin, in globaltimer ns.

    Slots that were not used (kind 0) are left out; times are counted from T0.  Without
    `has_stalls` what the records hold as stall_clock is no measurement, and is left out.

    Raises: IntegrityError where no CTA left a record.
    """
    used = records[records["kind"] != 0]
    ctas = used[used["kind"] == Kind.CTA]
    if len(ctas) == 0:
        raise IntegrityError(f"launch {launch_id}: the probe left no CTA record; the probed kernel did not run")
    t0 = ctas["begin_ns"].min()

    def column(name: str) -> IntColumn:
        values: IntColumn = used[name].astype(np.int64)
        if used[name].dtype == np.uint32:
            values[used[name] == np.uint32(0xFFFFFFFF)] = NULL
        return values

    nothing = np.full(len(used), NULL, np.int64)
    spans = Spans(
        launch_id=np.full(len(used), launch_id, np.int64),
        cta=column("cta"),
        cluster_id=column("cta") // cluster if cluster > 1 else nothing,
        lane=column("lane"),
        sm=column("sm"),
        unit=column("unit"),
        tile_m=column("tile_m"),
        tile_n=column("tile_n"),
        k_begin=column("k_begin"),
        k_end=column("k_end"),
        kind=column("kind"),
        begin_ns=(used["begin_ns"] - t0).astype(np.int64),
        end_ns=(used["end_ns"] - t0).astype(np.int64),
        begin_clock=column("begin_clock"),
        end_clock=column("end_clock"),
        stall_clock=nothing,
    )
    if has_stalls:
        stalls = used["stall_clock"].astype(np.int64)  # up to all of its 32 bits is a number of cycles
        spans = replace(spans, stall_clock=np.where(_bears_stall(spans), stalls, NULL))
    return spans, int(t0)


def _bears_stall(spans: Spans) -> NDArray[np.bool_]:
    """True for mac spans, and for the first other span of each unit."""
    bears: NDArray[np.bool_] = spans.kind == Kind.MAC
    others = np.flatnonzero((spans.kind != Kind.CTA) & ~bears & (spans.unit != NULL))
    others = others[np.lexsort((spans.begin_clock[others], spans.unit[others]))]
    first = np.append(True, spans.unit[others][1:] != spans.unit[others][:-1])[: len(others)]
    bears[others[first]] = True
    return bears
