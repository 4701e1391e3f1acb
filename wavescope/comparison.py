"""Schedules of one problem side by side: what each was asked to be, what ran, and how long it took.

A measured comparison comes from `duel`, a simulated one from `virtual_comparison`; what
follows does not know which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wavescope.device import Device
from wavescope.problem import Problem, Tile
from wavescope.stats import Estimate
from wavescope.trace import Kind, Launch, Source, Trace, join
from wavescope.variant import Variant, schedule_of
from wavescope.work import Work

LIBRARY = "cublas"  # the name of the contender that is a library
SIMULATED = "simulated"  # the regime of a virtual device


@dataclass(frozen=True)
class Entry:
    """What a contender is to run: a schedule, in a tile of a kernel (None: the best that can, kernels.kernel_for)."""

    name: str
    variant: Variant
    tile: Tile
    kernel: str | None = None


def entries(variants: Sequence[Variant], tile: Tile, kernel: str | None = None) -> tuple[Entry, ...]:
    """Schedules of one tile and kernel, each by its own name."""
    return tuple(Entry(str(variant), variant, tile, kernel) for variant in variants)


@dataclass(frozen=True)
class Contender:
    """One side of a comparison.

    `name` is what was asked for, `ran` what that came to in words (of a library: its
    kernel).  `trace` holds a launch a regime, None for a library.  By regime: `times`,
    ns of a launch (event time of the plain kernel; T where it is simulated), and
    `ratios`, the first contender's time over this one's, paired by round (above 1:
    faster).  `predicted_ns` is the T of the same schedule on the calibrated virtual
    device, an estimate.  `unavailable` says why a contender could not run; it then has
    nothing else.
    """

    name: str
    ran: str
    trace: Trace | None
    times: dict[str, Estimate] = field(default_factory=dict)
    ratios: dict[str, Estimate] = field(default_factory=dict)
    predicted_ns: float | None = None
    verified: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unavailable: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Contenders that computed the same problem on the same device; the first is the reference.

    All in the same `tile` and kernel, but for a ladder's: there they are the first entry's, and
    each trace names its own.  `reason` (a clause) says why a simulated comparison is one.  `work`: tiles of unequal k,
    the same for all.
    """

    problem: Problem
    tile: Tile
    device: Device
    source: Source
    reason: str
    contenders: tuple[Contender, ...]
    work: Work | None = None

    @property
    def kernel(self) -> str:
        """The kernel that all contenders ran, or the first of a ladder, but for a library; empty where none ran."""
        return next((one.trace.launches[0].kernel for one in self.contenders if one.trace), "")

    @property
    def k_iters(self) -> int:
        """k_iters of all tiles together."""
        if self.work is None:
            return self.tile.num_tiles(self.problem) * self.tile.k_iters(self.problem)
        return int(self.work.k_iters_of(self.problem, self.tile).sum())

    @property
    def regimes(self) -> tuple[str, ...]:
        """The regimes under which contenders were timed, in the order of their first appearance."""
        return tuple(dict.fromkeys(regime for contender in self.contenders for regime in contender.times))

    @property
    def first(self) -> Contender:
        """The reference: the first contender that ran."""
        return next((contender for contender in self.contenders if contender.unavailable is None), self.contenders[0])


def unavailable(name: str, why: str) -> Contender:
    """A contender that could not run, and why."""
    return Contender(name, name, None, unavailable=why)


def speed_ratio(reference: Contender, own: Contender, regime: str) -> Estimate | None:
    """Time of `reference` over `own`'s under a regime (above 1: faster); None where one of them has none.

    Exact where `reference` is the contender that all ratios are against.  Otherwise the
    quotient of two such ratios, with the widest interval that theirs allow.
    """
    below, above = reference.ratios.get(regime), own.ratios.get(regime)
    if below is None or above is None:
        return None
    if own is reference:
        return Estimate(1.0, 1.0, 1.0, above.count)
    return Estimate(
        above.median / below.median,
        above.low / below.high,
        above.high / below.low,
        min(above.count, below.count),
    )


def arranged(found: Comparison, names: Sequence[str]) -> Comparison:
    """The same comparison in the order of `names`: ratios against the first that ran, launches numbered through.

    Contenders that `names` does not hold come last, in their own order.
    """
    order = {name: place for place, name in enumerate(names)}
    contenders = sorted(found.contenders, key=lambda contender: order.get(contender.name, len(order)))
    first = replace(found, contenders=tuple(contenders)).first
    placed, next_id = [], 0
    for contender in contenders:
        ratios = {regime: speed_ratio(first, contender, regime) for regime in contender.times}
        trace = contender.trace and _numbered(contender.trace, next_id, contender.name)
        next_id += len(trace.launches) if trace else 0
        known = {regime: ratio for regime, ratio in ratios.items() if ratio is not None}
        placed.append(replace(contender, ratios=known, trace=trace))
    return replace(found, contenders=tuple(placed))


def _numbered(trace: Trace, first_id: int, name: str) -> Trace:
    """The trace with launch ids from `first_id` on, and a note that says whose launches they are."""
    ids = np.array([launch.launch_id for launch in trace.launches])
    order = np.argsort(ids)
    renamed = first_id + order[np.searchsorted(ids[order], trace.spans.launch_id)]
    launches = tuple(
        replace(launch, launch_id=first_id + place, notes=(*launch.notes, f"compared as {name}"))
        for place, launch in enumerate(trace.launches)
    )
    return replace(trace, launches=launches, spans=replace(trace.spans, launch_id=renamed))


def joined(found: Comparison) -> Trace:
    """All launches of an arranged comparison in one trace."""
    traces = [contender.trace for contender in found.contenders if contender.trace]
    return replace(
        traces[0],
        timer_step_ns=max(trace.timer_step_ns for trace in traces),
        launches=tuple(launch for trace in traces for launch in trace.launches),
        spans=join([trace.spans for trace in traces]),
    )


def regime_of(launch: Launch) -> str:
    """The regime that a launch was timed under."""
    return launch.timing.regime if launch.timing else SIMULATED


def is_split(trace: Trace, launch: Launch) -> bool:
    """True where a tile of the launch was cut along k."""
    spans = trace.spans
    return bool(((spans.launch_id == launch.launch_id) & (spans.kind == Kind.MAC) & (spans.k_begin > 0)).any())


def words_of(launch: Launch) -> str:
    """What a launch of wavescope's own kernels really ran, in words (Schedule.in_words); else the kernel's name."""
    if launch.schedule is None or launch.raster is None or launch.problem is None or launch.tile is None:
        return launch.kernel
    return schedule_of(launch).in_words
