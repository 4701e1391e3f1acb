"""What partial sums cost where no recorded launch shows it."""

from __future__ import annotations

from wavescope.problem import Tile

_ELEMENT_BYTES = 4  # partial sums are fp32
# H200, 2026-11: with a CTA on each SM, leaving a partial sum of 128 KB (a 128x256 tile) took
# 4,000 to 9,000 cycles, and reading and adding one 5,000 to 9,000; the middle of each.
_KNOWN_BYTES = 128 * 256 * _ELEMENT_BYTES
_LEAVE_CYCLES, _ADD_CYCLES = 6500.0, 7000.0
_SPARE_CYCLES = 14500.0  # a CTA that adds all partial sums of a tile, up to four (H200, 2026-11)


def estimated_fixup_cycles(tile: Tile, ctas_per_sm: int) -> dict[str, float]:
    """What cut tiles cost, for a Calibration, by the bytes that an SM's CTAs move at once.

    A share reads as much as one partial sum, a part of each; where only some CTAs read,
    each reads faster.
    """
    scale = tile.m * tile.n * _ELEMENT_BYTES * ctas_per_sm / _KNOWN_BYTES
    return {
        "partial_cycles": _LEAVE_CYCLES * scale,
        "add_cycles": _ADD_CYCLES * scale,
        "share_cycles": _ADD_CYCLES * scale,
        "spare_cycles": _SPARE_CYCLES * scale,
    }
