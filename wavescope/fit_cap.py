"""Fit what a card's power cap leaves of the rate, from long launches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wavescope.calibration_row import Calibration
from wavescope.launch_costs import RecordedLaunch
from wavescope.power_cap import capped_tflops, issued_flop

_LONG_NS = 150e3
_ALL_BUSY = 0.85  # share of SM time with a CTA; what the others take from the rate is in the formula
_LOWER = 0.98  # of the clock that all launches have together; from there on it is noise, not the cap


def fit_cap(recorded: Sequence[RecordedLaunch], row: Calibration) -> float:
    """The rate of whole tiles without end at the power cap, in TFLOP/s; 0 where no launch shows it.

    Those of 150 us or more that keep all SMs busy, at a lower clock than `row`'s, show it;
    the highest of them counts.
    """
    found = [0.0]
    for one in recorded:
        ctas, sms = one.ctas, one.device.sms
        ns = float(ctas.end_ns.max() - ctas.begin_ns.min())
        busy = float((ctas.end_ns - ctas.begin_ns).sum())
        mhz = 1e3 * float(one.cycles.sum() / np.maximum(one.units.end_ns - one.units.begin_ns, 1).sum())
        if ns >= _LONG_NS and busy >= _ALL_BUSY * ns * one.launch.places and mhz < _LOWER * row.clock_mhz:
            tflops = issued_flop(row.tile, int(one.k_iters.sum())) / ns / 1e3
            found.append(capped_tflops(row, tflops, mhz, sms))
    return max(found)
