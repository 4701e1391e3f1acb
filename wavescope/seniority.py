"""Who came first: CTAs that share an SM do not share it evenly.

H200, 2026-11 (gemm_mma 128x128x64, two CTAs an SM, first wave): the CTA that began first
takes 104 thousand cycles, the one beside it 129 thousand, for the same work.  Who was
there before has to be known before anything else is said about a unit's length.
"""

from __future__ import annotations

import numpy as np

from wavescope.trace import IntColumn, Spans
from wavescope.units import Units

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
