"""Several CTAs on an SM: how many were there, and what a unit costs beside them.

Places empty and fill one at a time, so an SM with one of three CTAs gone is not idle and
runs the other two faster.  A unit's cycles against the number of CTAs on its SM are the
contention; forcing 1, 2, .. CTAs per SM on one problem measures it in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.coarse_timer import launch_spans
from wavescope.errors import UsageError
from wavescope.neighbours import older_neighbours, shares_of, timeline_of
from wavescope.states import launch_of
from wavescope.trace import IntColumn, Kind, Launch, Trace
from wavescope.units import Units, units_of

PARTS = 20  # equal parts of T, as of the busy shares
# A unit that spent this share of its time beside one number of CTAs stands for that number.
STANDS_FOR = 0.9

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Crowd:
    """One number of CTAs resident on an SM: `sm_share` of all SM time, and the units that ran in it.

    `units` counts those that ran beside so many for STANDS_FOR of their time; their median
    length, in `cycles` (None without clocks or units) and `ns`.  `throughput` is
    what an SM then did against an SM with one CTA, in cycles:
    resident x median cycles alone / median cycles here (None without either).
    """

    resident: int
    sm_share: float
    units: int
    cycles: float | None
    ns: float | None
    throughput: float | None


@dataclass(frozen=True)
class Rank:
    """`units` units that ran on a full SM and found `older` CTAs there that had begun before theirs; medians."""

    older: int
    units: int
    cycles: float | None
    ns: float


@dataclass(frozen=True)
class CoResidency:
    """CTAs side by side on the SMs of one launch with room for `ctas_per_sm` CTAs on each of `sms`.

    `crowds` has an entry for each number of resident CTAs from 0; `ranks` those full SMs'
    units apart by who came first.  `parts` is the mean number resident per SM in PARTS
    equal parts of T, `mean_resident` the mean while an SM is not idle.  Crowds of one
    launch also differ in when they occur (first and last waves are the lonely ones), so a
    comparison of forced launches is the cleaner one.
    """

    ctas_per_sm: int
    sms: int
    crowds: tuple[Crowd, ...]
    ranks: tuple[Rank, ...]
    parts: tuple[float, ...]
    mean_resident: float


def co_residency(trace: Trace, launch_id: int | None = None) -> CoResidency | None:
    """Who ran beside whom; None where an SM never held more than one CTA.

    Raises: as `analyze` for the launch.
    """
    launch = launch_of(trace, launch_id)
    spans, _, _ = launch_spans(trace, launch)
    ctas, units = spans.select(spans.kind == Kind.CTA), units_of(spans)
    timeline = timeline_of(ctas)
    most = timeline.most
    if most < 2:
        return None
    duration, sms = int(ctas.end_ns.max()), trace.device.sms
    held = np.bincount(timeline.resident, weights=timeline.length, minlength=most + 1)
    held[0] = sms * duration - held[1:].sum()
    shares = shares_of(timeline, units)
    alone = _median_cycles(units, shares[:, 1] >= STANDS_FOR)
    edges = np.arange(PARTS + 1) * duration / PARTS
    passed = np.clip(edges[:, None] - ctas.begin_ns, 0, ctas.end_ns - ctas.begin_ns).sum(axis=1)
    busy = float(held[1:].sum())
    return CoResidency(
        ctas_per_sm=launch.ctas_per_sm,
        sms=sms,
        crowds=tuple(
            _crowd(number, float(held[number]) / (sms * duration), units, shares[:, number], alone)
            for number in range(most + 1)
        ),
        ranks=_ranks(units, older_neighbours(ctas, units), shares[:, most] >= STANDS_FOR),
        parts=tuple((np.diff(passed) / np.diff(edges) / sms).tolist()),
        mean_resident=float(held @ np.arange(most + 1)) / busy,
    )


def _ranks(units: Units, older: IntColumn, full: NDArray[np.bool_]) -> tuple[Rank, ...]:
    """Units on full SMs by the number of older neighbours."""
    found = []
    for number in np.unique(older[full]).tolist():
        mine = full & (older == number)
        ns = float(np.median(_per_tile(units, units.duration_ns)[mine]))
        found.append(Rank(number, int(np.count_nonzero(mine)), _median_cycles(units, mine), ns))
    return tuple(found)


def _median_cycles(units: Units, mine: NDArray[np.bool_]) -> float | None:
    if units.cycles is None or not mine.any():
        return None
    return float(np.median(_per_tile(units, units.cycles)[mine]))


def _per_tile(units: Units, amount: IntColumn) -> FloatArray:
    """The amount each unit would take with as many k_iters as the largest."""
    k_iters = units.k_iters
    whole: FloatArray = amount * (k_iters.max() / np.maximum(k_iters, 1))
    return whole


def _crowd(number: int, sm_share: float, units: Units, shares: FloatArray, alone: float | None) -> Crowd:
    mine = shares >= STANDS_FOR
    cycles = _median_cycles(units, mine)
    return Crowd(
        resident=number,
        sm_share=sm_share,
        units=int(np.count_nonzero(mine)),
        cycles=cycles,
        ns=float(np.median(_per_tile(units, units.duration_ns)[mine])) if mine.any() else None,
        throughput=number * alone / cycles if alone and cycles else None,
    )


@dataclass(frozen=True)
class Forced:
    """One launch of a comparison: the same problem and tile with `ctas_per_sm` CTAs on an SM.

    Medians over units with a full SM (all units where there is none such): `unit_cycles`,
    `unit_ns`, and their ratio `mhz`.  `per_sm_cycle` is the throughput of a full SM in
    units a cycle relative to the first row's, `per_sm_ns` the same in time.
    """

    ctas_per_sm: int
    units: int
    unit_cycles: float
    unit_ns: float
    mhz: float
    per_sm_cycle: float
    per_sm_ns: float


def compare(traces: Sequence[Trace]) -> tuple[Forced, ...]:
    """Contention from launches of one problem and tile, each with another number of CTAs per SM.

    Rows are in rising number of CTAs per SM; throughput is relative to the first.

    Raises: UsageError for less than two launches, for different problems, tiles or
    kernels, and for spans without clocks.
    """
    launches = [(trace, launch) for trace in traces for launch in trace.launches]
    if len(launches) < 2:
        raise UsageError(f"{len(launches)} launches cannot be compared; give two or more, with 1, 2, .. CTAs per SM")
    kinds = {(launch.kernel, launch.problem, launch.tile) for _, launch in launches}
    if len(kinds) > 1:
        found = "; ".join(sorted(f"{kernel} {problem} {tile}" for kernel, problem, tile in kinds))
        raise UsageError(f"launches of different work do not show contention ({found}); give one problem and tile")
    rows = sorted((_full(trace, launch) for trace, launch in launches), key=lambda row: row[0])
    first_ctas, _, first_cycles, first_ns = rows[0]
    return tuple(
        Forced(
            ctas_per_sm=ctas,
            units=count,
            unit_cycles=cycles,
            unit_ns=ns,
            mhz=cycles / ns * 1e3,
            per_sm_cycle=(ctas / cycles) / (first_ctas / first_cycles),
            per_sm_ns=(ctas / ns) / (first_ctas / first_ns),
        )
        for ctas, count, cycles, ns in rows
    )


def _full(trace: Trace, launch: Launch) -> tuple[int, int, float, float]:
    """CTAs per SM, and number, median cycles and median ns of the units that ran on full SMs."""
    spans, _, _ = launch_spans(trace, launch)
    units = units_of(spans)
    if units.cycles is None:
        raise UsageError(f"launch {launch.launch_id} carries no clock readings; contention is counted in cycles")
    timeline = timeline_of(spans.select(spans.kind == Kind.CTA))
    most = timeline.most
    full = shares_of(timeline, units)[:, most] >= STANDS_FOR
    if not full.any():
        full[:] = True
    cycles, ns = _per_tile(units, units.cycles)[full], _per_tile(units, units.duration_ns)[full]
    return most, int(np.count_nonzero(full)), float(np.median(cycles)), float(np.median(ns))
