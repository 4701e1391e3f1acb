"""What one launch shows of the hardware's block scheduler: order, places, turnaround.

Read from CTA lifetimes alone, so any trace has it.  Everything here was observed in one
launch; none of it is guaranteed by CUDA.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wavescope.clock_domains import domains_of_spans
from wavescope.coarse_timer import launch_spans
from wavescope.states import dense_index, has_clocks, launch_of, order_within, spans_of
from wavescope.trace import NULL, IntColumn, Kind, Launch, Spans, Trace
from wavescope.wave_report import Quantity


@dataclass(frozen=True)
class Turnaround:
    """Times from the end of a CTA to the begin of the next one in its place.

    `wave` is the rank wave of the CTAs that begin (from 1, the second).  `ns` and `cycles`
    are minimum, median and maximum; `cycles` is None without clocks.
    """

    wave: int
    count: int
    ns: tuple[float, float, float]
    cycles: tuple[float, float, float] | None


@dataclass(frozen=True)
class Dispatch:
    """The block scheduler's doing in one launch, `ctas` CTAs on `sms` SMs.

    `order` are the SMs by the index of their first CTA.  `pair_share` is the share of
    SMs 2j, 2j + 1 that follow each other there (None where no such pair was used);
    `domain_runs` is how often the order enters a clock domain (None where the `domains`
    cannot be told).  `ahead_ns` is how much earlier than a CTA of lower index one began at
    most: 0 where begins follow the index.  `distinct_first` is on how many different SMs
    the first `sms` CTAs went: all, where each SM gets a CTA before one gets a second.

    `ramp_ns`: T0 to the begin of the last SM's first CTA.  `peak_ctas` maps resident CTAs
    at most on an SM to how many SMs; `peak_places` is how many places were taken at once.
    `turnarounds` has an entry a rank wave, `all_turnarounds` is over all (None where no
    place was used twice).  `early_share` is the share of CTAs of later waves that began
    before the wave before theirs had ended (None with one wave): a barrier would make
    it 0.
    """

    ctas: int
    sms: int
    places: int
    order: tuple[int, ...]
    pair_share: float | None
    domains: int
    domain_runs: int | None
    ahead_ns: Quantity
    distinct_first: int
    ramp_ns: Quantity
    peak_ctas: dict[int, int]
    peak_places: int
    turnarounds: tuple[Turnaround, ...]
    all_turnarounds: Turnaround | None
    early_share: float | None


def dispatch(trace: Trace, launch_id: int | None = None) -> Dispatch:
    """What the launch shows of the block scheduler.

    Raises: as `analyze` for the launch.
    """
    launch = launch_of(trace, launch_id)
    spans, step, _ = launch_spans(trace, launch)
    as_read = spans_of(trace, launch)
    domains = domains_of_spans(as_read, trace.timer_step_ns, trace.device.max_clock_mhz)
    ctas = spans.select(np.flatnonzero(spans.kind == Kind.CTA))
    ctas = ctas.select(np.argsort(ctas.cta, kind="stable"))
    sm_ids, sm = dense_index(ctas.sm)
    firsts = np.sort(np.unique(sm, return_index=True)[1])  # index of each SM's first CTA
    order = ctas.sm[firsts]
    domain = domains.of_sm(order)
    ahead = np.maximum.accumulate(ctas.begin_ns) - ctas.begin_ns
    peak = _most_at_once(ctas, sm, len(sm_ids))
    turns = _turnarounds(ctas, sm, peak, launch)
    first_begin = ctas.begin_ns[_first_to_begin(ctas, sm)]
    counts = np.bincount(peak)
    return Dispatch(
        ctas=len(ctas),
        sms=len(sm_ids),
        places=launch.places,
        order=tuple(order.tolist()),
        pair_share=_pair_share(order),
        domains=len(domains),
        domain_runs=1 + int(np.count_nonzero(np.diff(domain))) if len(domains) else None,
        ahead_ns=Quantity(float(ahead.max()), step * 2**0.5),
        distinct_first=len(np.unique(sm[: len(sm_ids)])),
        ramp_ns=Quantity(float(first_begin.max()), step * 2**0.5),
        peak_ctas={count: int(counts[count]) for count in np.flatnonzero(counts).tolist()},
        peak_places=int(_most_at_once(ctas, np.zeros(len(ctas), np.int64), 1)[0]),
        turnarounds=tuple(_summary(turns, wave) for wave in np.unique(turns.wave).tolist()),
        all_turnarounds=_summary(turns, None) if len(turns.wave) else None,
        early_share=_early_share(ctas, launch),
    )


def _first_to_begin(ctas: Spans, sm: IntColumn) -> IntColumn:
    """Index of the CTA of each SM that began first."""
    order = order_within(sm, ctas.begin_ns)
    firsts: IntColumn = order[np.append(True, np.diff(sm[order]) > 0)]
    return firsts


def _pair_share(order: IntColumn) -> float | None:
    """Of the pairs 2j, 2j + 1 among the SMs, how many stand side by side."""
    place = {sm: index for index, sm in enumerate(order.tolist())}
    pairs = [(sm, sm + 1) for sm in place if sm % 2 == 0 and sm + 1 in place]
    if not pairs:
        return None
    return sum(abs(place[left] - place[right]) == 1 for left, right in pairs) / len(pairs)


def _most_at_once(ctas: Spans, owner: IntColumn, owners: int) -> IntColumn:
    """Most CTAs resident at once for each owner; one that begins as another ends takes its place."""
    time = np.concatenate([ctas.end_ns, ctas.begin_ns])  # stable: at one instant ends come first
    who = np.concatenate([owner, owner])
    order = order_within(who, time)
    resident = np.cumsum(np.where(order < len(owner), -1, 1))  # an owner ends with as many as it began
    most = np.zeros(owners, np.int64)
    np.maximum.at(most, who[order], resident)
    return most


@dataclass(frozen=True)
class _Turns:
    """One element for each CTA that took a place that another one had left."""

    wave: IntColumn
    ns: IntColumn
    cycles: IntColumn | None


def _turnarounds(ctas: Spans, sm: IntColumn, peak: IntColumn, launch: Launch) -> _Turns:
    """The begin number C + i of an SM took the place that its end number i left; C is the most it held at once."""
    ranks = np.empty(len(ctas), np.int64)
    ranks[np.argsort(ctas.begin_ns, kind="stable")] = np.arange(len(ctas))
    clocked = has_clocks(ctas)
    begin, end = (ctas.begin_clock, ctas.end_clock) if clocked else (ctas.begin_ns, ctas.end_ns)
    by_begin, by_end = np.lexsort((begin, sm)), np.lexsort((end, sm))
    starts = np.searchsorted(sm[by_begin], np.arange(len(peak)))
    number = np.arange(len(ctas)) - starts[sm[by_begin]]  # of each begin on its SM
    later = number >= peak[sm[by_begin]]
    at = np.flatnonzero(later)
    follower, leaver = by_begin[at], by_end[at - peak[sm[by_begin[at]]]]
    return _Turns(
        wave=ranks[follower] // max(1, launch.places),
        ns=ctas.begin_ns[follower] - ctas.end_ns[leaver],
        cycles=ctas.begin_clock[follower] - ctas.end_clock[leaver] if clocked else None,
    )


def _summary(turns: _Turns, wave: int | None) -> Turnaround:
    mine = np.ones(len(turns.wave), np.bool_) if wave is None else turns.wave == wave
    return Turnaround(
        wave=NULL if wave is None else wave,
        count=int(np.count_nonzero(mine)),
        ns=_extent(turns.ns[mine]),
        cycles=None if turns.cycles is None else _extent(turns.cycles[mine]),
    )


def _extent(values: IntColumn) -> tuple[float, float, float]:
    return float(values.min()), float(np.median(values)), float(values.max())


def _early_share(ctas: Spans, launch: Launch) -> float | None:
    """Share of later waves' CTAs that began while the wave before was still running."""
    places = max(1, launch.places)
    if len(ctas) <= places:
        return None
    order = np.argsort(ctas.begin_ns, kind="stable")
    wave = np.arange(len(ctas)) // places
    ended = np.zeros(int(wave[-1]) + 1, np.int64)
    np.maximum.at(ended, wave, ctas.end_ns[order])
    later = wave > 0
    return float(np.mean(ctas.begin_ns[order][later] < ended[wave[later] - 1]))
