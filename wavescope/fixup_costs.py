"""What partial sums cost where no recorded launch shows it."""

from __future__ import annotations

from wavescope.problem import Tile

_ELEMENT_BYTES = 4  # partial sums are fp32
# H200, 2026-11 (tests/data/h200, gemm_mma with 128x256 tiles): a partial sum of 128 KB left, read and
# added, a share of all of a tile's added and stored, and a tile's added and stored by a CTA without a
# part, which hardly depends on their number (14,500 with four parts, 13,900 with two).
_KNOWN_BYTES = 128 * 256 * _ELEMENT_BYTES
_KNOWN = {"partial_cycles": 5900.0, "add_cycles": 4500.0, "share_cycles": 5200.0, "spare_cycles": 14200.0}
# H200, 2026-11, a kernel of the same kind: how much longer a 128x256 tile takes while other warps add a share.
_KNOWN_BESIDE = 1400.0


def estimated_beside_cycles(tile: Tile) -> float:
    """What a share costs, for a Calibration, that other warps add while a whole tile is multiplied."""
    return _KNOWN_BESIDE * tile.m * tile.n * _ELEMENT_BYTES / _KNOWN_BYTES


def estimated_fixup_cycles(tile: Tile, ctas_per_sm: int) -> dict[str, float]:
    """What cut tiles cost, for a Calibration, by the bytes that an SM's CTAs move at once."""
    scale = tile.m * tile.n * _ELEMENT_BYTES * ctas_per_sm / _KNOWN_BYTES
    return {name: cycles * scale for name, cycles in _KNOWN.items()}
