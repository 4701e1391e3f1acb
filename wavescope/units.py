"""The units a launch ran: spans that belong to one unit, put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wavescope.states import count_before, dense_index, has_clocks, latest_so_far, order_within, uncovered
from wavescope.trace import NULL, IntColumn, Kind, Spans


@dataclass(frozen=True)
class Units:
    """Columns with one element a unit, in unit order; times in ns from T0.

    A unit reaches from its spans' first begin to their last end.  `held_ns` is the time
    it kept its place: for each of its spans, from the last end of the spans before it in the
    same CTA and lane (or the CTA's begin) to its own end (the CTA's end for the last one),
    less what it waited for other CTAs; so a CTA's time is shared out whole, but for what
    spans of no unit take (spare CTAs that add partial sums).  What other warps of a CTA do
    meanwhile, a share of partial sums beside the products of another unit, holds no place, but
    where it outlasts everything else in its lane.  `cycles` is None without clocks.
    `lanes` is the number of units one CTA multiplies at once: mac time over the time with any
    mac in a CTA, rounded.  Teams that take turns, one storing while the other multiplies, are one.

    `operand_stall` and `room_stall` are the cycles in which those who multiply the unit waited
    for operands, and in which the warp that copies them waited for room in the ring; None
    where the launch did not measure them (trace.STALL_KERNELS do).

    `stores_tile` is True for units that store their tile; for all, where CTAs stand for units.

    Where a launch recorded nothing but CTAs, each CTA is a unit, `of_ctas` is True, and
    its tile and k-range are NULL.
    """

    unit: IntColumn
    cta: IntColumn
    sm: IntColumn
    tile_m: IntColumn
    tile_n: IntColumn
    k_begin: IntColumn
    k_end: IntColumn
    begin_ns: IntColumn
    end_ns: IntColumn
    held_ns: IntColumn
    cycles: IntColumn | None
    lanes: int
    of_ctas: bool
    stores_tile: NDArray[np.bool_]
    operand_stall: IntColumn | None = None
    room_stall: IntColumn | None = None

    def __len__(self) -> int:
        """The number of units."""
        return len(self.unit)

    @property
    def duration_ns(self) -> IntColumn:
        """First begin to last end of each unit."""
        return self.end_ns - self.begin_ns

    @property
    def k_iters(self) -> IntColumn:
        """k_iters of each unit; 1 where a CTA stands for a unit, its work being unknown."""
        return np.ones(len(self), np.int64) if self.of_ctas else self.k_end - self.k_begin


class Extents(NamedTuple):
    """Stretches of CTAs' lanes."""

    cta: IntColumn
    lane: IntColumn
    begin_ns: IntColumn
    end_ns: IntColumn


def in_unit(spans: Spans) -> NDArray[np.bool_]:
    """True for the spans that belong to a unit."""
    return (spans.kind > Kind.CTA) & (spans.unit > NULL)


def units_of(spans: Spans) -> Units:
    """Put the spans of one launch together to units."""
    ctas = spans.select(np.flatnonzero(spans.kind == Kind.CTA))
    inner = spans.select(np.flatnonzero(spans.kind > Kind.CTA))
    return _units_of_spans(inner, ctas) if in_unit(inner).any() else _units_of_ctas(ctas)


def _units_of_ctas(ctas: Spans) -> Units:
    ctas = ctas.select(np.argsort(ctas.cta, kind="stable"))
    nothing = np.full(len(ctas), NULL, np.int64)
    lifetime = ctas.end_ns - ctas.begin_ns
    return Units(
        unit=ctas.cta,
        cta=ctas.cta,
        sm=ctas.sm,
        tile_m=nothing,
        tile_n=nothing,
        k_begin=nothing,
        k_end=nothing,
        begin_ns=ctas.begin_ns,
        end_ns=ctas.end_ns,
        held_ns=lifetime,
        cycles=ctas.end_clock - ctas.begin_clock if has_clocks(ctas) else None,
        lanes=1,
        of_ctas=True,
        stores_tile=np.ones(len(ctas), np.bool_),
    )


def _units_of_spans(inner: Spans, ctas: Spans) -> Units:
    lanes = _at_once(inner.select(np.flatnonzero(in_unit(inner) & (inner.kind == Kind.MAC))))
    if lanes == 1:  # who takes turns shares a place, and so does who adds partial sums meanwhile
        inner = replace(inner, lane=np.zeros(len(inner), np.int64))
    mine = np.flatnonzero(in_unit(inner))
    spans = inner if len(mine) == len(inner) else inner.select(mine)
    unit, index = dense_index(spans.unit)
    count = len(unit)
    first = np.full(count, len(spans), np.int64)  # the span that speaks for the unit: its first mac, if any
    np.minimum.at(first, index, np.arange(len(spans)))
    macs = np.flatnonzero(spans.kind == Kind.MAC)
    first[index[macs[::-1]]] = macs[::-1]
    begin, end = _extent(index, spans.begin_ns, spans.end_ns, count)
    has_stalls = len(macs) > 0 and bool((spans.stall_clock[macs] != NULL).all())
    cycles = None
    if has_clocks(spans):
        begin_clock, end_clock = _extent(index, spans.begin_clock, spans.end_clock, count)
        cycles = end_clock - begin_clock
    return Units(
        unit=unit,
        cta=spans.cta[first],
        sm=spans.sm[first],
        tile_m=spans.tile_m[first],
        tile_n=spans.tile_n[first],
        k_begin=spans.k_begin[first],
        k_end=spans.k_end[first],
        begin_ns=begin,
        end_ns=end,
        held_ns=_held(inner, mine, index, Extents(spans.cta[first], spans.lane[first], begin, end), ctas),
        cycles=cycles,
        lanes=lanes,
        of_ctas=False,
        stores_tile=_stores(spans, index, count),
        operand_stall=_of_units(spans.operand_stall, index, count) if has_stalls else None,
        room_stall=_of_units(spans.room_stall, index, count) if has_stalls else None,
    )


def _stores(spans: Spans, index: IntColumn, count: int) -> NDArray[np.bool_]:
    """True for units with an epilogue; for those with a tile's first k_iter where the launch recorded no epilogue."""
    wanted = spans.kind == Kind.EPILOGUE
    if not wanted.any():
        wanted = spans.k_begin <= 0
    return np.bincount(index[wanted], minlength=count) > 0


def _of_units(stall: IntColumn, index: IntColumn, count: int) -> IntColumn:
    """Each unit's sum of what its spans measured, 0 where none did."""
    return np.bincount(index, weights=np.maximum(stall, 0), minlength=count).astype(np.int64)


def _at_once(macs: Spans) -> int:
    """How many units one CTA multiplies at once, in the mean over the time in which it does, rounded."""
    lanes = len(np.unique(macs.lane)) or 1
    if lanes == 1:
        return 1
    in_mac = int((macs.end_ns - macs.begin_ns).sum())
    any_mac = int((macs.end_ns - uncovered(macs.cta, macs.begin_ns, macs.end_ns)).sum())
    return round(in_mac / any_mac) if any_mac else lanes


def _extent(index: IntColumn, begin: IntColumn, end: IntColumn, count: int) -> tuple[IntColumn, IntColumn]:
    """First begin and last end of each group."""
    first = np.full(count, np.iinfo(np.int64).max)
    last = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, index, begin)
    np.maximum.at(last, index, end)
    return first, last


def _held(spans: Spans, mine: IntColumn, index: IntColumn, units: Extents, ctas: Spans) -> IntColumn:
    """Time each unit kept its place: the CTA's life shared out span by span, waits left out.

    `mine` are the spans that belong to units, `index` to which of them.
    """
    if len(mine) == len(spans) and not ((spans.kind == Kind.WAIT) | (spans.kind == Kind.FIXUP)).any():
        return _shared_out(units, ctas)  # a unit's spans follow one another: units will do
    lanes = spans.lane.copy()
    lanes[mine] = units.lane[index]
    alone, holds = _alone(Extents(spans.cta, lanes, spans.begin_ns, spans.end_ns), spans.kind, spans.unit)
    held = np.zeros(len(spans), np.int64)
    held[holds] = _shared_out(Extents(*(column[holds] for column in alone)), ctas)
    held -= np.where((spans.kind == Kind.WAIT) & holds, alone.end_ns - alone.begin_ns, 0)
    return np.bincount(index, weights=held[mine], minlength=len(units.lane)).astype(np.int64)


def _alone(parts: Extents, kind: IntColumn, unit: IntColumn) -> tuple[Extents, NDArray[np.bool_]]:
    """The spans without what lies beside others of their lane, and which of them are left.

    A wait or fixup that overlaps a mac or epilogue of another unit is the work of other warps: of it is left
    what comes after all mac and epilogue spans of the lane.
    """
    lane_ids, lanes = dense_index(parts.lane)
    place_ids, place = dense_index(parts.cta * len(lane_ids) + lanes)
    is_main = (kind == Kind.MAC) | (kind == Kind.EPILOGUE)
    main, other = np.flatnonzero(is_main), np.flatnonzero(~is_main)
    if len(main) == 0 or len(other) == 0:
        return parts, np.ones(len(kind), np.bool_)
    main = main[order_within(place[main], parts.begin_ns[main])]
    before = count_before(place[main], parts.begin_ns[main], place[other], parts.end_ns[other])
    latest = main[latest_so_far(place[main], parts.end_ns[main])]
    last = latest[np.maximum(before - 1, 0)]  # of those that began before the other's end, the last to end
    beside = (before > 0) & (place[last] == place[other]) & (parts.end_ns[last] > parts.begin_ns[other])
    beside &= unit[last] != unit[other]
    last_end = np.zeros(len(place_ids), np.int64)
    np.maximum.at(last_end, place[main], parts.end_ns[main])
    begin, end, holds = parts.begin_ns.copy(), parts.end_ns.copy(), np.ones(len(kind), np.bool_)
    cut = other[beside]
    begin[cut], end[cut] = np.maximum(begin[cut], last_end[place[cut]]), np.maximum(end[cut], last_end[place[cut]])
    holds[cut] = begin[cut] < end[cut]
    return Extents(parts.cta, parts.lane, begin, end), holds


def _shared_out(parts: Extents, ctas: Spans) -> IntColumn:
    """The life of each CTA's lane shared out: a part's time begins where all before it have ended."""
    cta_ids, of_cta = dense_index(ctas.cta)
    cta_begin, cta_end = np.empty(len(cta_ids), np.int64), np.empty(len(cta_ids), np.int64)
    cta_begin[of_cta], cta_end[of_cta] = ctas.begin_ns, ctas.end_ns
    of_part = _positions(cta_ids, parts.cta)
    orphan = cta_ids[of_part] != parts.cta  # no lifetime recorded for its CTA
    lane_ids, lanes = dense_index(parts.lane)
    place = of_part if len(lane_ids) == 1 and not orphan.any() else parts.cta * len(lane_ids) + lanes
    order = order_within(place, parts.begin_ns)
    follows = np.append(False, place[order][1:] == place[order][:-1])
    leads = np.append(follows[1:], False)
    end = parts.end_ns[order]
    end = end[latest_so_far(place[order], end)]
    held_from = np.where(follows, np.append(0, end[:-1]), np.where(orphan, parts.begin_ns, cta_begin[of_part])[order])
    held_to = np.where(leads, end, np.where(orphan, parts.end_ns, cta_end[of_part])[order])
    held = np.empty(len(place), np.int64)
    held[order] = held_to - held_from
    return held


def _positions(ids: IntColumn, values: IntColumn) -> IntColumn:
    """Where each value stands among the ascending ids; somewhere, where it does not."""
    if ids[0] >= 0 and ids[-1] <= 4 * len(values) + 2**16:
        table = np.zeros(int(max(ids[-1], values.max())) + 1, np.int64)
        table[ids] = np.arange(len(ids))
        return table[np.maximum(values, 0)]
    return np.minimum(np.searchsorted(ids, values), len(ids) - 1)
