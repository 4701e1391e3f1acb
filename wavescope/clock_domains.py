"""Clock domains: SMs whose clock64 counters run together, found from their offsets.

clock64 of two SMs has no common origin in general, but SMs of one domain count from the
same one and at the same rate.  A domain is what the counters show and nothing else: it is
not a GPC (H200, 2026-11: SMs of two cluster domains share one clock), and how many CTAs a
cluster may have, only the driver knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.clock_band import SLACK_CYCLES, band_of, stamps_of
from wavescope.states import dense_index, has_clocks
from wavescope.trace import NULL, IntColumn, Spans

FloatArray = NDArray[np.float64]

# Between an SM's first stamp and the common moment its clock may differ by this share from the mean of all.
# H200, 2026-11: up to 1.2 where SMs idle, down to 0.82 of the mean under load.
_CLOCK_UNKNOWN = 0.25


@dataclass(frozen=True)
class ClockDomains:
    """Which SMs share a clock; `reason` says why that cannot be told, and `domain` is then NULL everywhere.

    `domain` is an index for each of `sm_ids` (ascending), counted by the domain's lowest
    SM.  `spread_cycles` is how far offsets lie apart inside each domain,
    `gap_cycles` the smallest distance between two domains (None for a single one), and
    `tolerance_cycles` how well an offset is known.
    """

    sm_ids: IntColumn
    domain: IntColumn
    spread_cycles: tuple[float, ...]
    gap_cycles: float | None
    tolerance_cycles: float
    reason: str | None

    def __len__(self) -> int:
        """The number of domains; 0 where they cannot be told."""
        return len(self.spread_cycles)

    def members(self, domain: int) -> IntColumn:
        """SM ids of one domain."""
        ids: IntColumn = self.sm_ids[self.domain == domain]
        return ids

    def of_sm(self, sm: IntColumn) -> IntColumn:
        """The domain of each SM id; NULL for an SM that is not among them."""
        if len(self.sm_ids) == 0:
            return np.full(len(sm), NULL, np.int64)
        at = np.minimum(np.searchsorted(self.sm_ids, sm), len(self.sm_ids) - 1)
        return np.where(self.sm_ids[at] == sm, self.domain[at], NULL)


def domains_of_spans(spans: Spans, step_ns: float, max_clock_mhz: float) -> ClockDomains:
    """Clock domains from the begins and ends of one launch's spans.

    An SM's offset is its counter at the moment when half of the SMs had begun, carried
    there from its first begin with the mean clock of all.  SMs whose offsets agree as far
    as these are known make a domain, if in addition all their stamps of the launch fit one
    counter.
    """
    sm_ids = np.unique(spans.sm)
    if not has_clocks(spans):
        return _unknown(sm_ids, 0.0, "the spans carry no clock readings")
    stamps = stamps_of(spans)
    at_sm = dense_index(stamps.sm)[1]
    order = np.lexsort((stamps.clock, at_sm))
    starts = np.append(True, np.diff(at_sm[order]) > 0)
    first, last = order[starts], order[np.append(starts[1:], True)]
    first_ns, first_clock = stamps.time_ns[first], stamps.clock[first]
    passed = stamps.time_ns[last] - first_ns
    if passed.max() <= 0:
        return _unknown(sm_ids, 0.0, "no SM was seen for longer than a step of the timer")
    rate = float(np.median(((stamps.clock[last] - first_clock) / np.maximum(passed, 1))[passed > 0]))
    away = np.median(first_ns) - first_ns
    tolerance = SLACK_CYCLES + rate * (step_ns + _CLOCK_UNKNOWN * float(np.abs(away).max()))
    found = _grouped(sm_ids, first_clock - first_clock[0] + rate * away, tolerance)
    for domain in range(len(found)):
        mine = stamps.select(np.isin(stamps.sm, found.members(domain)))
        if not band_of(mine, step_ns, max_clock_mhz).is_possible:
            return _unknown(
                sm_ids,
                tolerance,
                f"SMs {_some(found.members(domain))} began with one offset, but their clocks came apart",
            )
    return found


def domains_of_pairs(sm: IntColumn, time_ns: IntColumn, clock: IntColumn, step_ns: float) -> ClockDomains:
    """Clock domains from pairs of readings, [SMs, pairs], taken on all SMs at about the same time.

    An SM's offset is the median of clock - rate x time over its pairs, with one rate for all.
    """
    order = np.argsort(sm)
    time = (time_ns[order] - time_ns.min()).astype(np.float64)
    cycles = (clock[order] - clock.min()).astype(np.float64)
    rate = float(np.median((cycles[:, -1] - cycles[:, 0]) / (time[:, -1] - time[:, 0])))
    offsets = np.median(cycles - rate * time, axis=1)
    return _grouped(sm[order], offsets, SLACK_CYCLES + rate * step_ns)


def _grouped(sm_ids: IntColumn, offsets: FloatArray, tolerance: float) -> ClockDomains:
    """Cut the offsets, put in order, wherever two neighbours are further apart than they can be told to be."""
    order = np.argsort(offsets, kind="stable")
    gaps = np.diff(offsets[order])
    group = np.empty(len(sm_ids), np.int64)
    group[order] = np.append(0, np.cumsum(gaps > tolerance))
    count = int(group.max()) + 1
    by_lowest = np.argsort([sm_ids[group == index].min() for index in range(count)])
    domain = np.argsort(by_lowest)[group]
    spread = tuple(float(np.ptp(offsets[domain == index])) for index in range(count))
    if max(spread) > tolerance:
        widest = sm_ids[domain == int(np.argmax(spread))]
        return _unknown(
            sm_ids,
            tolerance,
            f"offsets of SMs {_some(widest)} spread over {max(spread):.0f} cycles without a gap, "
            f"and an offset is known to {tolerance:.0f}",
        )
    if count == len(sm_ids) and count > 1:
        return _unknown(sm_ids, tolerance, f"no two of {count} SMs share an offset")
    apart = gaps[gaps > tolerance]
    return ClockDomains(sm_ids, domain, spread, float(apart.min()) if len(apart) else None, tolerance, None)


def _unknown(sm_ids: IntColumn, tolerance: float, reason: str) -> ClockDomains:
    return ClockDomains(sm_ids, np.full(len(sm_ids), NULL, np.int64), (), None, tolerance, reason)


def _some(sm_ids: IntColumn) -> str:
    """The first few of many SM ids."""
    shown = ", ".join(map(str, sm_ids[:4].tolist()))
    return shown + (f" and {len(sm_ids) - 4} more" if len(sm_ids) > 4 else "")
