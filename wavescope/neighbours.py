"""Who else was on the SM: how many CTAs beside a unit, and which had come before its own.

CTAs that share an SM do not share it evenly.  H200, 2026-11 (gemm_mma 128x128x64, two CTAs
an SM, first wave): the one that began first takes 104 thousand cycles, the one beside it
129 thousand, for the same work.  Both numbers have to be known before anything else is
said about a unit's length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.trace import IntColumn, Spans
from wavescope.units import Units

FloatArray = NDArray[np.float64]

# A CTA is not looked for beyond this many begins before: one that has outlived so many neighbours is no GEMM's.
_MAX_LAG = 64


def older_neighbours(ctas: Spans, units: Units) -> IntColumn:
    """How many CTAs were on its SM when a unit began, and had begun before the unit's own CTA.

    Of two that began at the same time, the one of lower index counts as the older.  0 for
    a unit whose CTA's life was not recorded.
    """
    order = np.lexsort((ctas.cta, ctas.begin_ns, ctas.sm))
    sm, end = ctas.sm[order], ctas.end_ns[order]
    place = _place_of(ctas.cta[order], units.cta)
    count = np.zeros(len(units), np.int64)
    for lag in range(1, min(_MAX_LAG, len(order) - 1) + 1):
        other = np.maximum(place - lag, 0)
        beside = (place >= lag) & (sm[other] == units.sm)
        if not beside.any():
            break
        count += beside & (end[other] > units.begin_ns)
    return count


def _place_of(cta: IntColumn, wanted: IntColumn) -> IntColumn:
    """Where in `cta` each wanted CTA stands; -1 for one that is not there."""
    by_id = np.argsort(cta, kind="stable")
    at = np.minimum(np.searchsorted(cta[by_id], wanted), len(cta) - 1)
    return np.where(cta[by_id[at]] == wanted, by_id[at], -1)


@dataclass(frozen=True)
class Timeline:
    """Stretches with one number of resident CTAs, in the order of SM and time; `owner` are SM ids."""

    owner: IntColumn
    resident: IntColumn
    begin: IntColumn
    length: IntColumn

    @property
    def most(self) -> int:
        """CTAs at once on an SM at most."""
        return int(self.resident.max())


def timeline_of(ctas: Spans) -> Timeline:
    """How many CTAs each SM held, from the lifetimes of all."""
    sm = np.concatenate([ctas.sm, ctas.sm])
    time = np.concatenate([ctas.end_ns, ctas.begin_ns])
    change = np.repeat([-1, 1], len(ctas))
    order = np.lexsort((change, time, sm))  # at one instant ends come first
    sm, time = sm[order], time[order]
    resident = np.cumsum(change[order])  # an SM ends with none
    lasts = np.append(sm[1:] != sm[:-1], True)
    length = np.where(lasts, 0, np.append(time[1:], 0) - time)
    return Timeline(sm, np.maximum(resident, 0), time, length)


def shares_of(timeline: Timeline, units: Units) -> FloatArray:
    """Shares of each unit's time with 0, 1, .. CTAs on its SM, its own among them, [units, most at once + 1]."""
    most = timeline.most
    shares = np.zeros((len(units), most + 1))
    for sm in np.unique(units.sm):
        here, mine = timeline.owner == sm, np.flatnonzero(units.sm == sm)
        if not here.any():
            continue
        edges = timeline.begin[here]
        resident, length = timeline.resident[here], timeline.length[here]
        for number in range(1, most + 1):
            held = np.append(0, np.cumsum(length[:-1] * (resident[:-1] == number)))
            shares[mine, number] = np.interp(units.end_ns[mine], edges, held) - np.interp(
                units.begin_ns[mine], edges, held
            )
    total = shares.sum(axis=1, keepdims=True)
    normal: FloatArray = shares / np.where(total == 0, 1.0, total)
    return normal
