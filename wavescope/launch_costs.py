"""What one recorded launch shows of each cost in a Calibration, before anything is fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.jobs import beside_a_share
from wavescope.kernels import adds_beside, takes_turns
from wavescope.schedule import Schedule
from wavescope.states import dense_index
from wavescope.trace import NULL, IntColumn, Kind, Launch, Spans, Trace
from wavescope.variant import schedule_of

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]

_SIGMA_OF_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch's spans: all, its CTAs, and one a unit (its mac; the CTA where nothing else was recorded).

    `wave` is the rank wave of each unit: units ranked by begin, P at a time.  `schedule`
    is what was to run (None for kernels that are not wavescope's own), `planned` each
    unit's position in it.  `edge_slowdown` is what is known of that cost (Calibration) beforehand.
    """

    launch: Launch
    device: Device
    spans: Spans
    ctas: Spans
    units: Spans
    wave: IntColumn
    schedule: Schedule | None
    planned: IntColumn
    edge_slowdown: float = 0.0

    @property
    def is_split(self) -> bool:
        """True where tiles were cut, so that units depend on one another."""
        return self.schedule is not None and self.schedule.num_slots > 0

    @property
    def is_cold(self) -> Mask:
        """True for the first unit of each CTA that began in an empty place."""
        return self._firsts(self.launch.places)

    @property
    def is_first(self) -> Mask:
        """True for the first unit of each CTA."""
        return self._firsts(len(self.ctas))

    def _firsts(self, ctas: int) -> Mask:
        """True for the first unit of each of the first so many CTAs."""
        order = np.lexsort((self.units.unit, self.units.begin_ns))
        first = np.unique(dense_index(self.units.cta)[1][order], return_index=True)[1]
        found = np.zeros(len(self.units), np.bool_)
        found[order[np.sort(first)[:ctas]]] = True
        return found

    @property
    def is_beside(self) -> Mask:
        """True for whole tiles during which other warps added their CTA's share of partial sums."""
        tile = self.launch.tile
        if self.schedule is None or tile is None or not adds_beside(self.launch.kernel, tile):
            return np.zeros(len(self.units), np.bool_)
        return beside_a_share(self.schedule)[self.planned]

    @property
    def is_staggered(self) -> Mask:
        """True for units at another k than those beside them (Schedule.is_staggered)."""
        if self.schedule is None:
            return np.zeros(len(self.units), np.bool_)
        return self.schedule.is_staggered[self.planned]

    @property
    def is_edge(self) -> Mask:
        """True for units whose tile reaches over m or n (Schedule.is_edge)."""
        if self.schedule is None:
            return np.zeros(len(self.units), np.bool_)
        return self.schedule.is_edge[self.planned]

    @property
    def k_iters(self) -> IntColumn:
        """k_iters of each unit."""
        return self.units.k_end - self.units.k_begin

    @property
    def inner_k_iters(self) -> FloatArray:
        """How many k_iters of a tile inside C cost as much as the unit's."""
        cost: FloatArray = self.k_iters * (1 + self.edge_slowdown * self.is_edge)
        return cost

    @property
    def cycles(self) -> IntColumn:
        """Cycles of each unit's span."""
        return self.units.end_clock - self.units.begin_clock


def recorded_launch(trace: Trace, launch: Launch) -> RecordedLaunch:
    """The spans of one launch of a trace.

    Where teams of a CTA take its units in turn, these are described as one after another
    (_one_after_another).

    Raises: UsageError where a unit does not say its k_iters, or is none of its schedule's,
    and where a CTA works on two at once that are parts of tiles.
    """
    spans = trace.spans.select(trace.spans.launch_id == launch.launch_id)
    in_turn = takes_turns(launch.kernel) or bool((spans.lane[spans.kind == Kind.MAC] > 0).any())
    if in_turn:
        spans = _one_after_another(spans)
    ctas, macs = spans.select(spans.kind == Kind.CTA), spans.select(spans.kind == Kind.MAC)
    units = macs if len(macs) else ctas
    if len(units) == 0 or (units.k_begin == NULL).any() or (units.k_end <= units.k_begin).any():
        raise UsageError(
            f"a unit of launch {launch.launch_id} ({launch.kernel}) does not say its k_iters; take another launch"
        )
    if launch.work is not None:
        raise UsageError(
            f"launch {launch.launch_id} ({launch.kernel}) did {launch.work}, whose units have no wave in common; "
            "take another launch"
        )
    rank = np.empty(len(units), np.int64)
    rank[np.lexsort((units.unit, units.begin_ns))] = np.arange(len(units))
    schedule = None
    planned = np.zeros(len(units), np.int64)
    named = launch.schedule is not None and launch.raster is not None
    if named and launch.problem is not None and launch.tile is not None:
        schedule = schedule_of(launch)
        planned = np.minimum(np.searchsorted(schedule.unit, units.unit), schedule.num_units - 1)
        if not np.array_equal(schedule.unit[planned], units.unit):
            raise UsageError(f"units of launch {launch.launch_id} are not those of its schedule {launch.schedule}")
        if in_turn and schedule.num_slots:
            raise UsageError(
                f"CTAs of launch {launch.launch_id} ({launch.kernel}) work on two units at once, which a calibration "
                f"does not describe where tiles are cut ({launch.schedule}); take another launch"
            )
    return RecordedLaunch(launch, trace.device, spans, ctas, units, rank // launch.places, schedule, planned)


def _one_after_another(spans: Spans) -> Spans:
    """Spans of CTAs whose teams take units in turn, as if each CTA did one after another.

    The tensor cores are those of one main loop at a time, in the order of their ends; a
    unit's begins when the one before is done with them.  Tiles are stored beside another
    main loop, so that time is none of a CTA's own, but for the last, which counts as its exit.
    """
    spans = spans.select(spans.kind != Kind.EPILOGUE)
    macs = np.flatnonzero(spans.kind == Kind.MAC)
    macs = macs[np.lexsort((spans.end_clock[macs], spans.cta[macs]))]
    after = np.append(False, spans.cta[macs[1:]] == spans.cta[macs[:-1]])
    later, before = macs[after], np.roll(macs, 1)[after]
    begin_ns, begin_clock = spans.begin_ns.copy(), spans.begin_clock.copy()
    begin_ns[later] = np.maximum(begin_ns[later], spans.end_ns[before])
    begin_clock[later] = np.maximum(begin_clock[later], spans.end_clock[before])
    return replace(spans, begin_ns=begin_ns, begin_clock=begin_clock)


def idle_share(one: RecordedLaunch) -> FloatArray:
    """For each unit, the share of SMs that its rank wave has no unit for.

    Where tiles are cut, unequal units have no common waves: the share that got no CTA.
    """
    if one.is_split:
        return np.full(len(one.units), max(0.0, 1 - one.launch.grid / one.device.sms))
    return np.maximum(0.0, 1 - np.bincount(one.wave)[one.wave] / one.device.sms)


def crowd(one: RecordedLaunch, spans: Spans) -> FloatArray:
    """Shares of each of the spans' time with 1, 2, .. C CTAs on its SM, [spans, C]."""
    most = one.launch.ctas_per_sm
    shares = np.zeros((len(spans), most))
    for sm in np.unique(spans.sm):
        here, mine = one.ctas.sm == sm, np.flatnonzero(spans.sm == sm)
        begin, end = np.sort(one.ctas.begin_ns[here]), np.sort(one.ctas.end_ns[here])
        times = np.unique(np.concatenate([begin, end]))
        resident = np.searchsorted(begin, times, "right") - np.searchsorted(end, times, "right")
        resident = np.clip(resident, 1, most)[:-1]
        from_ns, to_ns = spans.begin_ns[mine], spans.end_ns[mine]
        for number in range(1, most + 1):
            held = np.append(0, np.cumsum(np.diff(times) * (resident == number)))
            shares[mine, number - 1] = np.interp(to_ns, times, held) - np.interp(from_ns, times, held)
    length = shares.sum(axis=1, keepdims=True)
    shares[length[:, 0] == 0, -1] = 1.0  # shorter than the timer's step: as if the SM were full
    return shares / np.where(length == 0, 1.0, length)


def clock_spread(one: RecordedLaunch) -> float:
    """Relative standard deviation of the SMs' clocks."""
    _, index = np.unique(one.units.sm, return_inverse=True)
    ns = np.bincount(index, weights=one.units.end_ns - one.units.begin_ns)
    return relative_spread(np.bincount(index, weights=one.cycles) / np.maximum(ns, 1))


def relative_spread(values: FloatArray) -> float:
    """Standard deviation over the median, from the median absolute deviation; 0 for a median of 0."""
    middle = float(np.median(values))
    return _SIGMA_OF_MAD * float(np.median(np.abs(values - middle))) / middle if middle > 0 else 0.0


def epilogue_cycles(one: RecordedLaunch) -> FloatArray:
    """Cycles of each epilogue, as if its SM had been full."""
    return _as_if_full(one, one.spans.select(one.spans.kind == Kind.EPILOGUE))


def _as_if_full(one: RecordedLaunch, spans: Spans) -> FloatArray:
    """Cycles of spans that divide one throughput of their SM, as if it had been full."""
    cycles = (spans.end_clock - spans.begin_clock).astype(np.float64)
    most = one.launch.ctas_per_sm
    if most == 1:
        return cycles
    company: FloatArray = crowd(one, spans) @ np.arange(1, most + 1)
    return cycles * most / company


@dataclass(frozen=True)
class FixupCycles:
    """Cycles of each partial sum left, of each one added by an owner or by spare CTAs, and of each share added."""

    partial: FloatArray
    add: FloatArray
    share: FloatArray
    spare: FloatArray


def fixup_cycles(one: RecordedLaunch) -> FixupCycles:
    """What partial sums cost, as if their SM had been full; nothing where they were added atomically."""
    fixups = one.spans.select(one.spans.kind == Kind.FIXUP)
    if one.schedule is None or not one.is_split or one.launch.reduction != "ordered" or len(fixups) == 0:
        return FixupCycles(*(np.empty(0) for _ in range(4)))
    spare = _as_if_full(one, fixups.select(fixups.unit == NULL))  # one span a CTA, for an equal share of all
    fixups = fixups.select(fixups.unit != NULL)
    if len(fixups) == 0:
        return FixupCycles(*(np.empty(0) for _ in range(4)))
    fixups = fixups.select(np.lexsort((fixups.begin_clock, fixups.unit)))
    unit = np.searchsorted(one.schedule.unit, fixups.unit)
    cycles, peers = _as_if_full(one, fixups), one.schedule.peers[unit]
    again = np.append(False, unit[1:] == unit[:-1])  # a share is added in its unit's second span
    alone = ~np.isin(fixups.cta, one.units.cta[one.is_beside])  # the others took the time of other warps
    owns = (one.schedule.rank[unit] == 0) & (not one.schedule.is_cooperative)
    by_owner, by_spare = (cycles / np.maximum(peers - 1, 1))[owns], spare * len(spare) / one.schedule.spare_reads
    return FixupCycles(cycles[~owns & ~again], by_owner, cycles[again & alone], by_spare)


def prologue_and_exit_cycles(one: RecordedLaunch) -> tuple[IntColumn, IntColumn]:
    """Cycles of each CTA before its first unit and after its last."""
    inner, leads = _by_cta(one)
    if len(inner) == 0:
        return inner.begin_clock, inner.begin_clock
    ctas = one.ctas.select(np.argsort(one.ctas.cta))
    ctas = ctas.select(np.isin(ctas.cta, inner.cta))
    trails = np.append(leads[1:], True)
    return inner.begin_clock[leads] - ctas.begin_clock, ctas.end_clock - inner.end_clock[trails]


def gap_cycles(one: RecordedLaunch) -> IntColumn:
    """Cycles between the units of a CTA."""
    inner, leads = _by_cta(one)
    between = ~leads[1:] & (inner.unit[1:] != inner.unit[:-1])
    gaps: IntColumn = (inner.begin_clock[1:] - inner.end_clock[:-1])[between]
    return gaps


def _by_cta(one: RecordedLaunch) -> tuple[Spans, NDArray[np.bool_]]:
    """Spans other than CTAs by CTA and begin, and where a CTA's first one stands; none of other warps' shares."""
    inner = one.spans.select(one.spans.kind != Kind.CTA)
    inner = inner.select(np.lexsort((inner.end_clock, inner.begin_clock, inner.cta)))
    if one.is_beside.any():
        shares = (inner.kind == Kind.WAIT) | (inner.kind == Kind.FIXUP)
        first_fixup = np.unique(np.where(inner.kind == Kind.FIXUP, inner.unit, NULL), return_index=True)[1]
        shares[first_fixup] = False  # the part is left
        inner = inner.select(~(shares & np.isin(inner.cta, one.units.cta[one.is_beside])))
    return inner, np.append(True, inner.cta[1:] != inner.cta[:-1])[: len(inner)]


def turnaround_cycles(one: RecordedLaunch) -> IntColumn:
    """Cycles between CTAs of an SM that the hardware put into the same place.

    The CTA that begins as number C + i on an SM of C places took the place that the
    i-th end freed.
    """
    found = [np.empty(0, np.int64)]
    for sm in np.unique(one.ctas.sm):
        ctas = one.ctas.select(one.ctas.sm == sm)
        begins = np.sort(ctas.begin_clock)[one.launch.ctas_per_sm :]
        found.append(begins - np.sort(ctas.end_clock)[: len(begins)])
    return np.concatenate(found)


def ramp_ns(one: RecordedLaunch) -> int:
    """From the first CTA's begin to the first begin on the last SM that got one."""
    first = np.full(int(one.ctas.sm.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, one.ctas.sm, one.ctas.begin_ns)
    used = first[np.unique(one.ctas.sm)]
    return int(used.max() - used.min())
