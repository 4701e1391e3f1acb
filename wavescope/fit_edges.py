"""Fit how much longer k_iters of tiles at the edge of C take: such units against the others of their launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wavescope.launch_costs import FloatArray, RecordedLaunch, idle_share

_LEAST_SHARE = 0.5  # of a unit's cycles that its k_iters must take for their ratio to mean something


def fit_edges(recorded: Sequence[RecordedLaunch], costs: Mapping[str, float]) -> float | None:
    """edge_slowdown: a median over launches; None where no launch has units of both kinds and equal k_iters.

    `costs` says what units cost once (fixed_cycles, cold_cycles, ..) and what idle SMs save
    (idle_gain), which is no matter of the edge; what is not there counts as 0.
    Several CTAs an SM: those beside a unit blur it; simulated ones of 0.3 gave 0.28
    to 0.31 at 1.9 tiles a place, and from three launches of 1.3 and 2.4 in eight of ten draws
    0.21 to 0.22, in two 0.09 (tests/test_edges.py).
    """
    medians = [ratio for one in recorded if (ratio := _ratio(one, costs)) is not None]
    return max(0.0, float(np.median(medians)) - 1) if medians else None


def _ratio(one: RecordedLaunch, costs: Mapping[str, float]) -> float | None:
    """Median cycles a k_iter of units at the edge over that of those inside, of the same k_iters; None as above."""
    once = costs.get("fixed_cycles", 0.0) + costs.get("cold_cycles", 0.0) * one.is_cold
    once = once + costs.get("fill_cycles", 0.0) * one.is_first + costs.get("beside_cycles", 0.0) * one.is_beside
    cycles = (one.cycles - once) / (1 - costs.get("idle_gain", 0.0) * idle_share(one))
    alike = 2 * one.k_iters + one.is_staggered
    found: list[FloatArray] = []
    for kind in np.unique(alike[one.is_edge]):
        inside = cycles[(alike == kind) & ~one.is_edge]
        whole = one.cycles[(alike == kind) & ~one.is_edge]
        if len(inside) and np.median(inside) >= _LEAST_SHARE * np.median(whole):
            found.append(cycles[(alike == kind) & one.is_edge] / np.median(inside))
    return float(np.median(np.concatenate(found))) if found else None
