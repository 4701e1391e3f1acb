"""Tiles: how a matrix product is cut by the tile in a kernel's name, and shared out over its grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wavescope.audit.names import DecodedName
from wavescope.audit.operators import Gemm

# A split whose number the grid does not tell is looked for up to here (H200, 2026-11: of 97
# split-K kernels of cuBLAS the four with more clusters of tiles than fit had 2, 3, 4 and 4).
_LARGEST_HIDDEN_SPLIT = 4


@dataclass(frozen=True)
class Tiling:
    """How one launch's work is cut.

    `tiles` are those of C, over the whole batch.  A cluster takes its tiles together, so
    work is handed out in groups of `group` = CTAs a cluster: `groups` counts them, splits
    along k included; tiles of a group that lie outside C (`empty` of them) are computed or
    waited for all the same.  `split_k` is the number of parts along k, and
    `split_is_known` False where it had to be inferred.  `agrees` says whether the grid is
    the one that this cut leads to.
    """

    tiles: int
    group: int
    groups: int
    split_k: int
    split_is_known: bool
    empty: int
    issued_macs: int
    useful_macs: int
    agrees: bool

    @property
    def padding(self) -> float:
        """Share of the issued multiply-adds that lie outside the problem."""
        return 1 - self.useful_macs / self.issued_macs


def tiling(name: DecodedName, gemm: Gemm, blocks: int, cluster: int) -> Tiling | None:
    """The cut of `gemm` by the tile in `name`, over `blocks` CTAs in clusters of `cluster`.

    Where the cut does not lead to the grid, but the one with rows and columns exchanged
    does (the product was asked for transposed), the latter is meant.  None for names
    without a tile.
    """
    if not name.row_tile or not name.column_tile:
        return None
    cut = _persistent if name.persistent else _one_tile_a_block
    found = cut(name, gemm, blocks, cluster)
    if not found.agrees:
        other = cut(name, replace(gemm, m=gemm.n, n=gemm.m), blocks, cluster)
        return other if other.agrees else found
    return found


def _persistent(name: DecodedName, gemm: Gemm, blocks: int, cluster: int) -> Tiling:
    rows, columns = _cluster_shape(name, cluster)
    size = rows * columns
    per_split = _ceil(gemm.m, name.row_tile * rows) * _ceil(gemm.n, name.column_tile * columns) * gemm.batch  # type: ignore[operator]
    clusters = max(1, blocks // size)
    split, known = _split(per_split, clusters) if name.split_k else (1, True)
    groups = per_split * split
    agrees = blocks % size == 0 and groups >= clusters
    return _tiling(name, gemm, size, per_split, split, known, agrees)


def _split(per_split: int, clusters: int) -> tuple[int, bool]:
    """Parts along k, and whether the grid settles them.

    As many clusters as groups: the grid is the product of both.  Otherwise the grid is what
    fits, and the number is hidden: the library is taken to choose, among splits of up to
    _LARGEST_HIDDEN_SPLIT that need every cluster, the smallest that fills the rounds best.
    """
    if clusters % per_split == 0:
        return clusters // per_split, True
    fewest = clusters // per_split + 1
    candidates = range(fewest, max(fewest, _LARGEST_HIDDEN_SPLIT) + 1)

    def fill(split: int) -> float:
        groups = per_split * split
        return groups / (clusters * _ceil(groups, clusters))

    return max(candidates, key=lambda split: (fill(split), -split)), False


def _one_tile_a_block(name: DecodedName, gemm: Gemm, blocks: int, cluster: int) -> Tiling:
    per_split = _ceil(gemm.m, name.row_tile) * _ceil(gemm.n, name.column_tile) * gemm.batch  # type: ignore[arg-type]
    split, rest = divmod(blocks, per_split)
    return _tiling(name, gemm, 1, per_split, max(1, split), rest == 0, rest == 0 and split >= 1)


def _tiling(name: DecodedName, gemm: Gemm, size: int, per_split: int, split: int, known: bool, agrees: bool) -> Tiling:
    row_tile, column_tile = name.row_tile or 1, name.column_tile or 1
    tiles = _ceil(gemm.m, row_tile) * _ceil(gemm.n, column_tile) * gemm.batch
    depth = _ceil(gemm.k, name.tile_k) * name.tile_k if name.tile_k else gemm.k
    return Tiling(
        tiles=tiles,
        group=size,
        groups=per_split * split,
        split_k=split,
        split_is_known=known,
        empty=per_split * size - tiles,
        issued_macs=per_split * size * row_tile * column_tile * depth,
        useful_macs=gemm.macs,
        agrees=agrees,
    )


def _cluster_shape(name: DecodedName, cluster: int) -> tuple[int, int]:
    """CTAs of a cluster along the rows and the columns of a row-major C.

    A cluster that the name does not have but the profile does takes its tiles in no known
    arrangement: it counts as single CTAs.
    """
    if name.cluster_m is None or name.cluster_n is None:
        return 1, 1
    shape = (name.cluster_m, name.cluster_n)
    if cluster > 1 and shape[0] * shape[1] != cluster:
        return 1, 1
    return (shape[1], shape[0]) if name.column_major else shape


def _ceil(count: int, size: int) -> int:
    return -(-count // size)
