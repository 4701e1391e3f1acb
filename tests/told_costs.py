"""How near a fit comes to the costs that its launches were simulated with."""

from __future__ import annotations

import pytest

from wavescope.calibration_row import Calibration

# Relative and absolute: what the noise of a few launches leaves.
MARGINS = {
    "cycles_per_k_iter": (0.005, 0),
    "fixed_cycles": (0, 150),
    "cold_cycles": (0, 150),
    "fill_cycles": (0, 150),
    "beside_cycles": (0, 150),
    "epilogue_cycles": (0.01, 0),
    "partial_cycles": (0.01, 0),
    "add_cycles": (0.01, 0),
    "share_cycles": (0.01, 0),
    "spare_cycles": (0.01, 0),
    "gap_cycles": (0.02, 0),
    "queue_gap_cycles": (0.01, 0),
    "turnaround_cycles": (0.01, 0),
    "stream_slowdown": (0, 0.01),
    "edge_slowdown": (0, 0.01),
    "idle_gain": (0, 0.02),
}


def told(found: Calibration, own: Calibration) -> None:
    """Every cost of `found` is that of `own`, within its margin."""
    for name, (relative, absolute) in MARGINS.items():
        assert getattr(found, name) == pytest.approx(getattr(own, name), rel=relative, abs=absolute), name
