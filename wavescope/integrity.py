"""Can these spans be true?  Every launch of a trace is checked before it is analysed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wavescope.coverage import check_units
from wavescope.errors import IntegrityError
from wavescope.schedule import Schedule
from wavescope.states import dense_index, order_within
from wavescope.trace import NULL, IntColumn, Kind, Launch, Spans, Trace

MAX_SM_ID = 2**16 - 1  # the record keeps an SM id in 16 bits (trace.cuh)
# H200, 2026-11: CTAs ran at up to 1.000 of the maximum clock; the rest is room for other devices' readings of it
FASTEST_OF_MAXIMUM = 1.25
CLOCK_STEPS = 100  # timer steps: a shorter CTA's clock rate is not resolved, and counts as one of this length
CLOCK_SLACK_CYCLES = 256  # between warps of a busy SM the readings of a stamp lie up to 205 apart (clock_band)
AGAIN = "record the trace again"

Mask = NDArray[np.bool_]


def check(trace: Trace, schedule: Schedule | None = None) -> None:
    """Pass a trace whose spans can be true; with `schedule`, one that ran exactly that.

    Checked: times, kinds and SM ids are possible; each CTA lived once, on one SM, with its
    spans inside, by time and by clock, and not faster than the device can; no wait inside a
    unit is longer than what it lies in, and all mac spans measured it, or none; no lane computes
    or stores two things at once, though other warps may add partial sums meanwhile; no unit does
    two things at once; no SM and no device holds more CTAs than fit; every k_iter of
    every tile is computed once, and the grid is complete (where the kernel is wavescope's own).
    An SM id may exceed the SM count (a MIG or MPS share keeps the whole device's ids), so
    ids only have to fit the record, and not be more in number than there are SMs.

    Raises: IntegrityError with the first thing that cannot be.
    """
    known = np.array([launch.launch_id for launch in trace.launches], np.int64)
    _refuse(
        ~np.isin(trace.spans.launch_id, known) if len(known) != 1 else trace.spans.launch_id != known[0],
        trace.spans,
        "belong to a launch that the trace does not describe",
        ("launch_id",),
    )
    for launch in trace.launches:
        mine = trace.spans.launch_id == launch.launch_id
        spans = trace.spans if mine.all() else trace.spans.select(mine)
        if len(spans) == 0:
            raise IntegrityError(f"launch {launch.launch_id} ({launch.kernel}) has no spans; {AGAIN}")
        _check_values(spans, trace.device.sms)
        _check_ctas(spans, launch, trace)
        _check_stalls(spans)
        _check_lanes(spans)
        _check_order(spans, trace.timer_step_ns)
        check_units(spans, launch, schedule)
        _check_grid(spans, launch)


def _refuse(bad: Mask, spans: Spans, what: str, columns: tuple[str, ...]) -> None:
    """Raise for the spans marked bad, with their number and the first one's values."""
    count = int(np.count_nonzero(bad))
    if count == 0:
        return
    first = int(np.argmax(bad))
    values = ", ".join(f"{name} {int(getattr(spans, name)[first])}" for name in ("cta", "sm", *columns))
    raise IntegrityError(f"{count} of {len(spans)} spans {what} (first: {values}); {AGAIN}")


def _check_values(spans: Spans, sms: int) -> None:
    """Each span by itself."""
    times = ("begin_ns", "end_ns")
    _refuse((spans.kind < min(Kind)) | (spans.kind > max(Kind)), spans, "are of no known kind", ("kind",))
    _refuse((spans.begin_ns < 0) | (spans.end_ns < 0), spans, "have a begin or end before T0, or none", times)
    _refuse(spans.end_ns < spans.begin_ns, spans, "end before they begin", times)
    clocks = (spans.begin_clock != NULL) & (spans.end_clock != NULL)
    negative = clocks & (spans.end_clock < spans.begin_clock)
    _refuse(negative, spans, "end before they begin by their clock", ("begin_clock", "end_clock"))
    _refuse(spans.cta < 0, spans, "belong to no CTA", ())
    _refuse((spans.sm < 0) | (spans.sm > MAX_SM_ID), spans, f"have an SM id outside 0..{MAX_SM_ID}", ())
    used = len(dense_index(spans.sm)[0])
    if used > sms:
        raise IntegrityError(
            f"spans name {used} SMs, but the device has {sms}; {AGAIN}, or use the device it was taken on"
        )


def _check_ctas(spans: Spans, launch: Launch, trace: Trace) -> None:
    """CTAs live once, on one SM, around their spans, and no more at a time than fit."""
    is_cta = spans.kind == Kind.CTA
    cta_ids, cta = dense_index(spans.cta)
    lives = np.bincount(cta[is_cta], minlength=len(cta_ids))
    _refuse(is_cta & (lives[cta] > 1), spans, "are lifetimes of a CTA that has more than one", ("begin_ns",))
    _refuse(lives[cta] == 0, spans, "belong to a CTA whose lifetime was not recorded", ("kind",))
    life = np.empty(len(cta_ids), np.int64)
    life[cta[is_cta]] = np.flatnonzero(is_cta)
    sm, begin, end = spans.sm[life], spans.begin_ns[life], spans.end_ns[life]
    _refuse(spans.sm != sm[cta], spans, "lie on another SM than their CTA", ("kind",))
    outside = (spans.begin_ns < begin[cta]) | (spans.end_ns > end[cta])
    _refuse(outside, spans, "reach outside their CTA's lifetime", ("kind", "begin_ns", "end_ns"))
    _check_clocks(spans, life[cta], trace)
    gone = np.maximum(begin, end - trace.timer_step_ns)  # ends may be late by one step of the timer
    if launch.ctas_per_sm > 0:
        most, at = _most_at_once(sm, begin, gone)
        if most > launch.ctas_per_sm:
            raise IntegrityError(
                f"{most} CTAs at once on SM {at}, but at most {launch.ctas_per_sm} of this kernel fit; {AGAIN}"
            )
    if launch.places > 0:
        most = _most_at_once(np.zeros_like(sm), begin, gone)[0]
        if most > launch.places:
            raise IntegrityError(f"{most} CTAs at once on the device, but it has places for {launch.places}; {AGAIN}")


def _check_clocks(spans: Spans, life: IntColumn, trace: Trace) -> None:
    """Clock readings lie within the CTA's own, and a CTA's cycles fit into its time; `life`: each span's CTA span."""
    first, last = spans.begin_clock[life], spans.end_clock[life]
    known = (spans.begin_clock != NULL) & (spans.end_clock != NULL) & (first != NULL) & (last != NULL)
    clocks = ("begin_clock", "end_clock")
    outside = (first - spans.begin_clock > CLOCK_SLACK_CYCLES) | (spans.end_clock - last > CLOCK_SLACK_CYCLES)
    _refuse(known & outside, spans, "reach outside their CTA's lifetime by their clock", ("kind", *clocks))
    long = np.maximum(spans.end_ns - spans.begin_ns, CLOCK_STEPS * trace.timer_step_ns)
    fastest = FASTEST_OF_MAXIMUM * trace.device.max_clock_mhz / 1e3  # cycles a ns
    fast = known & (spans.kind == Kind.CTA) & (spans.end_clock - spans.begin_clock > long * fastest)
    what = f"of kind cta count more cycles than {FASTEST_OF_MAXIMUM} x {trace.device.max_clock_mhz:g} MHz makes"
    _refuse(fast, spans, what, ("begin_ns", "end_ns", *clocks))


def _most_at_once(sm: IntColumn, begin: IntColumn, gone: IntColumn) -> tuple[int, int]:
    """The most CTAs at once on one SM, and which SM that is."""
    owner = np.concatenate([sm, sm])
    order = order_within(owner, np.concatenate([gone, begin]))  # stable: at one instant ends come first
    resident = np.cumsum(np.where(order < len(sm), -1, 1))
    return int(resident.max()), int(owner[order[int(np.argmax(resident))]])


def _check_stalls(spans: Spans) -> None:
    """Waits for operands lie within their mac span, waits for room within the CTA; no launch measures some of them."""
    measured = spans.stall_clock != NULL
    if not measured.any():
        return
    is_mac, is_cta = spans.kind == Kind.MAC, spans.kind == Kind.CTA
    _refuse(is_mac & ~measured, spans, "of kind mac have no stall_clock, and others do", ("unit",))
    _refuse(is_cta & measured, spans, "of kind cta have a stall_clock, and wait for nothing", ("stall_clock",))
    _refuse(spans.stall_clock < NULL, spans, "have a negative stall_clock", ("stall_clock",))
    cycles = spans.end_clock - spans.begin_clock
    of_cta = np.zeros(int(spans.cta.max()) + 1, np.int64)
    of_cta[spans.cta[is_cta]] = cycles[is_cta]
    longest = np.where(is_mac, cycles, of_cta[spans.cta]) + CLOCK_SLACK_CYCLES
    known = measured & (spans.begin_clock != NULL) & (spans.end_clock != NULL)
    what = "waited longer inside than they, or their CTA, took"
    _refuse(known & (spans.stall_clock > longest), spans, what, ("kind", "stall_clock", "begin_clock", "end_clock"))


def _check_lanes(spans: Spans) -> None:
    """One lane of a CTA computes one thing at a time."""
    macs = np.flatnonzero(spans.kind == Kind.MAC)
    if len(macs) < 2:
        return
    lane = spans.cta[macs] * (int(spans.lane.max()) + 2) + spans.lane[macs] + 1  # a lane may be NULL
    order = order_within(lane, spans.begin_ns[macs])
    macs, lane = macs[order], lane[order]
    overlap = (lane[1:] == lane[:-1]) & (spans.begin_ns[macs[1:]] < spans.end_ns[macs[:-1]])
    bad = np.zeros(len(spans), np.bool_)
    bad[macs[1:][overlap]] = True
    _refuse(bad, spans, "of kind mac begin before the one before them in their lane ends", ("unit", "begin_ns"))


def _check_order(spans: Spans, timer_step_ns: int) -> None:
    """A lane stores a tile when it has computed it, not while it computes; and a unit does one thing at a time.

    A wait or fixup beside another unit's spans is another warp's work.  The timer's step is allowed for.
    """
    stores = (spans.kind == Kind.MAC) | (spans.kind == Kind.EPILOGUE)
    lane = spans.cta * (int(spans.lane.max()) + 2) + spans.lane + 1  # a lane may be NULL
    _refuse_overlap(spans, lane, stores, timer_step_ns, "of kind mac and epilogue", "lane")
    mine = (spans.kind != Kind.CTA) & (spans.unit != NULL)
    _refuse_overlap(spans, spans.unit, mine, timer_step_ns, "of a unit", "unit")


def _refuse_overlap(spans: Spans, owner: IntColumn, mask: Mask, timer_step_ns: int, what: str, of: str) -> None:
    """Raise for spans that begin more than a step before the one before them of their owner ends."""
    mine = np.flatnonzero(mask)
    if len(mine) < 2:
        return
    mine = mine[order_within(owner[mine], spans.begin_ns[mine])]
    overlap = np.minimum(spans.end_ns[mine[:-1]], spans.end_ns[mine[1:]]) - spans.begin_ns[mine[1:]]
    bad = np.zeros(len(spans), np.bool_)
    bad[mine[1:][(owner[mine[1:]] == owner[mine[:-1]]) & (overlap > timer_step_ns)]] = True
    _refuse(bad, spans, f"{what} overlap with the one before them in their {of}", ("unit", "kind", "begin_ns"))


def _check_grid(spans: Spans, launch: Launch) -> None:
    """Every CTA of wavescope's own kernels leaves a record."""
    ctas = int(np.count_nonzero(spans.kind == Kind.CTA))  # each lived once
    if launch.schedule is not None and ctas != launch.grid:
        raise IntegrityError(
            f"{ctas} CTAs were recorded of a grid of {launch.grid}; records were lost, or the grid is wrong; {AGAIN}"
        )
