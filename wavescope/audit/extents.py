"""Extents of grids and blocks, as far as CUDA allows them: products stay within 64 bits."""

from __future__ import annotations

from wavescope.audit.launches import NULL

# CUDA's limits, of every architecture.
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_THREADS = 1024  # a block

Extents = tuple[int, int, int]
NO_EXTENTS: Extents = (NULL, NULL, NULL)


def grid_extents(value: object) -> Extents:
    """The three extents of a grid, all NULL where one is missing or cannot be."""
    if isinstance(value, (list, tuple)) and len(value) == 3:
        x, y, z = value
        whole = type(x) is type(y) is type(z) is int
        if whole and 0 < x <= MAX_GRID[0] and 0 < y <= MAX_GRID[1] and 0 < z <= MAX_GRID[2]:
            return x, y, z
    return NO_EXTENTS


def block_extents(value: object) -> Extents:
    """The three extents of a block, all NULL where one is missing or cannot be."""
    extents = grid_extents(value)
    return extents if 0 < extents[0] * extents[1] * extents[2] <= MAX_THREADS else NO_EXTENTS
