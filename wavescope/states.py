"""What every SM did at every instant: the spans of a launch become states, one at a time.

Where spans of one SM overlap, the larger Kind wins (mac > fixup > epilogue > wait > cta);
an instant without any span is idle.  The same sweep runs over nanoseconds and, SM by SM,
over clock64 cycles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wavescope.errors import InputError, IntegrityError, NoKernels
from wavescope.trace import NULL, IntColumn, Kind, Launch, Spans, Trace

IDLE = 0  # the state without a span; the other states are the values of Kind
NUM_STATES = max(Kind) + 1

_EVENT_BITS = 4  # of a sort key: a span's kind, and whether it begins or ends
_COUNT_BITS = 12  # open spans of one kind on one SM: five counters share an int64


@dataclass(frozen=True)
class Segments:
    """Stretches of one state, ordered by SM and then time; no stretch is empty.

    `sm` is an index into SmStates.sm_ids.  Before an SM's first and after its last
    segment it is idle; idle segments are the gaps between.
    """

    sm: IntColumn
    state: IntColumn
    begin: IntColumn
    end: IntColumn


@dataclass(frozen=True)
class SmStates:
    """The states of every SM that ran something in one launch, times from T0.

    `state_ns` and `state_cycles` are [SMs, NUM_STATES], column IDLE being the gaps between
    an SM's spans; `state_cycles` is None where the spans carry no clocks.  First begin and
    last end are those of the SM's CTAs.  `duration_ns` is T1 - T0.
    """

    sm_ids: IntColumn
    segments: Segments
    state_ns: NDArray[np.int64]
    state_cycles: NDArray[np.int64] | None
    first_begin_ns: IntColumn
    last_end_ns: IntColumn
    duration_ns: int


def launch_of(trace: Trace, launch_id: int | None = None) -> Launch:
    """The launch with this id, or the only one.

    Raises: NoKernels for a trace without launches; InputError for an unknown id, or for
    no id where there are several launches.
    """
    ids = [launch.launch_id for launch in trace.launches]
    if not ids:
        raise NoKernels("the trace holds no launch; record one with 'wavescope profile -o FILE'")
    in_a_row = len(ids) > 2 and ids == list(range(ids[0], ids[0] + len(ids)))
    listed = ", ".join(str(i) for i in ids[:10]) + (f" and {len(ids) - 10} more" if len(ids) > 10 else "")
    known = f"{ids[0]} to {ids[-1]}" if in_a_row else listed
    if launch_id is None and len(ids) > 1:
        raise InputError(f"the trace holds {len(ids)} launches; name one of {known}")
    wanted = ids[0] if launch_id is None else launch_id
    for launch in trace.launches:
        if launch.launch_id == wanted:
            return launch
    raise InputError(f"launch {launch_id} is not in the trace; it holds {known}")


def spans_of(trace: Trace, launch: Launch) -> Spans:
    """The spans of one launch, with times counted from its first CTA's begin (T0).

    Raises: NoKernels where the launch has no spans; IntegrityError where none is of kind
    cta, since T0 and T1 are then unknown.
    """
    mine = trace.spans.launch_id == launch.launch_id
    spans = trace.spans if mine.all() else trace.spans.select(mine)
    if len(spans) == 0:
        raise NoKernels(f"launch {launch.launch_id} ({launch.kernel}) has no spans; record it again")
    is_cta = spans.kind == Kind.CTA
    if not is_cta.any():
        raise IntegrityError(
            f"launch {launch.launch_id} has {len(spans)} spans but none of kind cta; "
            "its begin and end are unknown, record CTA lifetimes too"
        )
    t0 = int(spans.begin_ns[is_cta].min())
    if t0 == 0:
        return spans
    return replace(spans, begin_ns=spans.begin_ns - t0, end_ns=spans.end_ns - t0)


def dense_index(values: IntColumn) -> tuple[IntColumn, IntColumn]:
    """The distinct values, ascending, and each value's position among them."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 4 * len(values) + 2**16:
        ids, index = np.unique(values, return_inverse=True)
        return ids, index.astype(np.int64)
    present = np.zeros(high + 1, np.bool_)
    present[values] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[values]


def order_within(owner: IntColumn, time: IntColumn) -> IntColumn:
    """Indices that sort by owner, then by time; equals keep their order."""
    bits = int(time.max()).bit_length()
    if int(time.min()) < 0 or int(owner.min()) < 0 or int(owner.max()).bit_length() + bits > 63:
        return np.lexsort((time, owner))
    return np.argsort(owner << bits | time, kind="stable")


def count_before(owner: IntColumn, time: IntColumn, at_owner: IntColumn, at: IntColumn) -> IntColumn:
    """How many pairs (owner, time) come before each pair (at_owner, at), by owner and then time."""
    order = order_within(np.concatenate([at_owner, owner]), np.concatenate([at, time]))  # stable: equals do not count
    count = np.empty(len(order), np.int64)
    count[order] = np.cumsum(order >= len(at))
    return count[: len(at)]


def latest_so_far(owner: IntColumn, end: IntColumn) -> IntColumn:
    """Of spans in the order of owner and begin: the position of the one that ends last among its owner's up to each."""
    count = len(end)
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(count, np.int64)
    rank[by_end] = np.arange(count)
    owners = np.cumsum(np.append(False, owner[1:] != owner[:-1])[:count])
    latest: IntColumn = by_end[np.maximum.accumulate(owners * count + rank) % max(count, 1)]
    return latest


def uncovered(owner: IntColumn, begin: IntColumn, end: IntColumn) -> IntColumn:
    """Where each span begins to outlast those that its owner began before: its own share of their union."""
    order = order_within(owner, begin)
    latest = latest_so_far(owner[order], end[order])
    before = np.append(0, latest[:-1])
    follows = np.append(False, owner[order][1:] == owner[order][:-1])
    own = np.empty(len(order), np.int64)
    reached = np.where(follows, end[order][before], begin[order])
    own[order] = np.minimum(np.maximum(begin[order], reached), end[order])
    return own


def has_clocks(spans: Spans) -> bool:
    """True where every span carries its clock64 readings."""
    return bool((spans.begin_clock != NULL).all() and (spans.end_clock != NULL).all())


def sm_states(spans: Spans) -> SmStates:
    """Sweep the spans of one launch (times from T0) into states per SM.

    Raises: IntegrityError for an SM with spans but without a CTA, a launch of no length,
    and times too far apart to be one launch.
    """
    sm_ids, sm = dense_index(spans.sm)
    num_sms = len(sm_ids)
    is_cta = spans.kind == Kind.CTA
    first = np.full(num_sms, np.iinfo(np.int64).max)
    last = np.full(num_sms, -1, np.int64)
    np.minimum.at(first, sm[is_cta], spans.begin_ns[is_cta])
    np.maximum.at(last, sm[is_cta], spans.end_ns[is_cta])
    if (last < 0).any():
        missing = sm_ids[last < 0]
        raise IntegrityError(
            f"{len(missing)} SMs have spans but no CTA (first: SM {missing[0]}); record the trace again"
        )
    duration = int(last.max())
    if duration == 0:
        raise IntegrityError(f"{len(spans)} spans all within 0 ns; the launch is shorter than the timer's step")
    segments = sweep(sm, spans.kind, spans.begin_ns, spans.end_ns)
    return SmStates(
        sm_ids=sm_ids,
        segments=segments,
        state_ns=state_totals(segments, num_sms),
        state_cycles=_state_cycles(spans, sm, num_sms) if has_clocks(spans) else None,
        first_begin_ns=first,
        last_end_ns=last,
        duration_ns=duration,
    )


def _state_cycles(spans: Spans, sm: IntColumn, num_sms: int) -> NDArray[np.int64]:
    """Cycles per SM and state: clock64 has another origin on each SM, so each starts at its own first."""
    origin = np.full(num_sms, np.iinfo(np.int64).max)
    np.minimum.at(origin, sm, spans.begin_clock)
    shift = origin[sm]
    return state_totals(sweep(sm, spans.kind, spans.begin_clock - shift, spans.end_clock - shift), num_sms)


def sweep(sm: IntColumn, kind: IntColumn, begin: IntColumn, end: IntColumn) -> Segments:
    """Cut each SM's time at every begin and end, and name the state in between.

    `sm` counts from 0.  A span of no length has no state, but it bounds the idle time
    beside it.  At most 4095 spans of one kind may be open at once on an SM.

    Raises: IntegrityError for a span that ends before it begins, and where SM and time do
    not fit one 64-bit sort key.
    """
    if (end < begin).any():
        raise IntegrityError(f"{np.count_nonzero(end < begin)} spans end before they begin; record the trace again")
    origin = int(begin.min())
    time_bits = max(1, (int(end.max()) - origin).bit_length())
    sm_bits = int(sm.max()).bit_length()
    if sm_bits + time_bits + _EVENT_BITS > 63:
        raise IntegrityError(
            f"spans of {int(sm.max()) + 1} SMs reach over {int(end.max()) - origin} ticks of time, "
            "too long for one launch; record the trace again"
        )
    keys = np.concatenate([end, begin]) - origin
    keys <<= _EVENT_BITS
    keys[: len(end)] |= (sm << (time_bits + _EVENT_BITS)) | (kind << 1)
    keys[len(end) :] |= (sm << (time_bits + _EVENT_BITS)) | (kind << 1) | 1
    keys.sort()
    open_spans = np.cumsum(_STEPS[keys & (2**_EVENT_BITS - 1)])
    keys >>= _EVENT_BITS  # now SM and time: an instant
    last_at_instant = np.append(keys[1:] != keys[:-1], True)
    instant, state = keys[last_at_instant], _state(open_spans[last_at_instant])
    at_sm = instant >> time_bits
    other_sm = at_sm[1:] != at_sm[:-1]
    kept = np.append(True, (state[1:] != state[:-1]) | other_sm)
    kept |= np.append(other_sm, True)
    at_sm, state, at = at_sm[kept], state[kept], (instant[kept] & (2**time_bits - 1)) + origin
    inside = np.append(at_sm[1:] == at_sm[:-1], False)
    return Segments(at_sm[inside], state[inside], at[inside], np.append(at[1:], 0)[inside])


# What an event (kind << 1 | begins) adds to the five packed counters.
_STEPS = np.array(
    [
        0 if event >> 1 not in list(Kind) else (1 if event & 1 else -1) << (_COUNT_BITS * ((event >> 1) - 1))
        for event in range(2**_EVENT_BITS)
    ],
    np.int64,
)


def _state(open_spans: IntColumn) -> IntColumn:
    """The largest kind with an open span: the highest counter that is not zero."""
    state = (open_spans > 0).astype(np.int64)
    for kind in range(Kind.CTA + 1, NUM_STATES):
        state += open_spans >= 1 << (_COUNT_BITS * (kind - 1))
    return state


def state_totals(segments: Segments, num_sms: int) -> NDArray[np.int64]:
    """Length of each state on each SM, [num_sms, NUM_STATES]."""
    cell = segments.sm * NUM_STATES + segments.state
    totals = np.bincount(cell, weights=segments.end - segments.begin, minlength=num_sms * NUM_STATES)
    return totals.astype(np.int64).reshape(num_sms, NUM_STATES)
