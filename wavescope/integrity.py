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
AGAIN = "record the trace again"

Mask = NDArray[np.bool_]


def check(trace: Trace, schedule: Schedule | None = None) -> None:
    """Pass a trace whose spans can be true; with `schedule`, one that ran exactly that.

    Checked: times, kinds and SM ids are possible; each CTA lived once, on one SM, with its
    spans inside; no lane computes two things at once; no SM holds more CTAs than fit;
    every k_iter of every tile is computed once.  An SM id may exceed the SM count (a MIG
    or MPS share keeps the whole device's ids), so ids only have to fit the record, and
    not be more in number than there are SMs.

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
        _check_ctas(spans, launch, trace.timer_step_ns)
        _check_lanes(spans)
        check_units(spans, launch, schedule)


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


def _check_ctas(spans: Spans, launch: Launch, timer_step_ns: int) -> None:
    """CTAs live once, on one SM, around their spans, and no more at a time than fit."""
    is_cta = spans.kind == Kind.CTA
    cta_ids, cta = dense_index(spans.cta)
    lives = np.bincount(cta[is_cta], minlength=len(cta_ids))
    _refuse(is_cta & (lives[cta] > 1), spans, "are lifetimes of a CTA that has more than one", ("begin_ns",))
    _refuse(lives[cta] == 0, spans, "belong to a CTA whose lifetime was not recorded", ("kind",))
    sm, begin, end = (np.empty(len(cta_ids), np.int64) for _ in range(3))
    own = cta[is_cta]
    sm[own], begin[own], end[own] = spans.sm[is_cta], spans.begin_ns[is_cta], spans.end_ns[is_cta]
    _refuse(spans.sm != sm[cta], spans, "lie on another SM than their CTA", ("kind",))
    outside = (spans.begin_ns < begin[cta]) | (spans.end_ns > end[cta])
    _refuse(outside, spans, "reach outside their CTA's lifetime", ("kind", "begin_ns", "end_ns"))
    if launch.ctas_per_sm > 0:
        _check_residency(sm, begin, end, launch.ctas_per_sm, timer_step_ns)


def _check_residency(sm: IntColumn, begin: IntColumn, end: IntColumn, limit: int, timer_step_ns: int) -> None:
    """No SM holds more CTAs at once than fit; ends may be late by one step of the timer."""
    gone = np.maximum(begin, end - timer_step_ns)
    owner = np.concatenate([sm, sm])
    order = order_within(owner, np.concatenate([gone, begin]))  # stable: at one instant ends come first
    resident = np.cumsum(np.where(order < len(sm), -1, 1))
    most = int(resident.max())
    if most > limit:
        raise IntegrityError(
            f"{most} CTAs at once on SM {int(owner[order[int(np.argmax(resident))]])}, "
            f"but at most {limit} of this kernel fit; {AGAIN}"
        )


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
