"""How each schedule cuts the tiles, in raster order, into units: plain arrays, one element a unit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


class Cut(NamedTuple):
    """Units in the order of their ids; `tile` counts in raster order, the rest is as in Schedule."""

    num_ctas: int
    split_tiles: int
    num_slots: int
    unit: Longs
    cta: Longs
    tile: Longs
    k_begin: Longs
    k_end: Longs
    first_slot: Longs
    rank: Longs
    peers: Longs


def whole(k_iters: Longs, num_ctas: int, is_queue: bool, longest_first: bool = False) -> Cut:
    """A tile a unit, dealt to the CTAs in turn, or taken from a queue; `k_iters` of each tile in raster order."""
    unit, nothing = np.arange(len(k_iters)), np.zeros(len(k_iters), np.int64)
    cta = np.full(len(k_iters), -1) if is_queue else unit % num_ctas
    tile = np.argsort(-k_iters, kind="stable") if longest_first else unit
    return Cut(num_ctas, 0, 0, unit, cta, tile, nothing, k_iters[tile], nothing, nothing, nothing + 1)


def splitk(tiles: int, k_iters: int, splits: int) -> Cut:
    """A CTA for each part of each tile."""
    cta = np.arange(tiles * splits)
    tile, part = cta % tiles, splits - 1 - cta // tiles  # who waits comes last
    begin, end = share_begin(k_iters, splits, part), share_begin(k_iters, splits, part + 1)
    return Cut(len(cta), tiles, len(cta), cta, cta, tile, begin, end, tile * splits, part, np.full(len(cta), splits))


def stream(tiles: int, k_iters: int, split_tiles: int, num_ctas: int) -> Cut:
    """The first `split_tiles` tiles shared evenly by all CTAs, then whole tiles in turn.

    Each tile is walked from its last k_iter to the first: a CTA begins with the first k_iters of a tile,
    as its neighbours do, and ends with the last ones of another, which it stores.
    """
    total, whole = split_tiles * k_iters, np.arange(tiles - split_tiles)
    share = np.arange(num_ctas if split_tiles else 0)
    cuts = np.union1d(share_begin(total, num_ctas, share), np.arange(split_tiles) * k_iters)
    end = np.append(cuts, total)[1:]
    tile, owner = cuts // max(k_iters, 1), share_of(total, num_ctas, cuts)
    first = share_of(total, num_ctas, tile * k_iters)
    last = share_of(total, num_ctas, (tile + 1) * k_iters - 1)
    nothing, ids = np.zeros(len(whole), np.int64), split_tiles + num_ctas if split_tiles else 0
    return Cut(
        num_ctas,
        split_tiles,
        len(share),
        np.concatenate([tile + owner, ids + whole]),
        np.concatenate([num_ctas - 1 - owner, whole % num_ctas]),  # who waits comes after those it waits for
        np.concatenate([tile, split_tiles + whole]),
        np.concatenate([(tile + 1) * k_iters - end, nothing]),
        np.concatenate([(tile + 1) * k_iters - cuts, nothing + k_iters]),
        np.concatenate([first, nothing]),
        np.concatenate([owner - first, nothing]),
        np.concatenate([last - first + 1, nothing + 1]),
    )


def tailsplit(tiles: int, k_iters: int, split_tiles: int, parts: int, places: int) -> Cut:
    """The first `split_tiles` tiles cut into `parts`, then whole tiles in turn.

    The same part of neighbouring tiles runs side by side, in groups of as many tiles as half of
    the CTAs compute: then they read the same operands at the same time, and no more CTAs than
    that wait for one another, unless one tile alone has more parts.
    """
    part_of, whole = np.arange(split_tiles * parts), np.arange(tiles - split_tiles)
    num_ctas = min(places, max(len(part_of), len(whole)))
    tile, part = part_of // parts, part_of % parts
    together = max(1, num_ctas // 2 // parts)
    first = tile // together * together
    cta = first * parts + part * np.minimum(together, split_tiles - first) + tile - first
    nothing = np.zeros(len(whole), np.int64)
    return Cut(
        num_ctas,
        split_tiles,
        len(part_of),
        np.arange(len(part_of) + len(whole)),
        np.concatenate([cta, whole % num_ctas]),
        np.concatenate([tile, split_tiles + whole]),
        np.concatenate([share_begin(k_iters, parts, part), nothing]),
        np.concatenate([share_begin(k_iters, parts, part + 1), nothing + k_iters]),
        np.concatenate([part_of - part, nothing]),
        np.concatenate([part, nothing]),
        np.concatenate([np.full(len(part_of), parts), nothing + 1]),
    )


def share_begin(total: int, shares: int, index: Longs) -> Longs:
    """Where each share of `total` begins: equal shares, the first ones longer by one."""
    begins: Longs = index * (total // shares) + np.minimum(index, total % shares)
    return begins


def share_of(total: int, shares: int, at: Longs) -> Longs:
    """The share that holds each of [0, total): inverse of share_begin; total >= shares."""
    length, longer = total // shares, total % shares
    within = longer * (length + 1)
    owner: Longs = np.where(at < within, at // (length + 1), longer + (at - within) // max(length, 1))
    return owner
