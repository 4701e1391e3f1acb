"""What is computed: the problem (m, n, k, dtype, layout) and the tile it is cut into."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from wavescope.errors import ShapeError, UsageError

Dtype = Literal["bf16", "fp16", "fp32"]
Layout = Literal["tn", "nn"]

DTYPES: tuple[Dtype, ...] = get_args(Dtype)
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
DTYPE_BYTES: dict[Dtype, int] = {"bf16": 2, "fp16": 2, "fp32": 4}

MAX_DIMENSION = 2**30  # the kernels count rows, columns and k in int32, with room to round up
MAX_UNITS = 2**31 - 1  # a grid's first dimension, and the kernels' unit index
CHUNK_BYTES = 16  # cp.async moves 16 bytes: every row starts at a multiple of them
# Rows of a line and more start at a line: H200, 2026-11, gemm_mma at 4096 x 4096 x 4100 with
# 128x128x32 tiles took 455 us with rows that start at 16 bytes only, and takes 310 us.
LINE_BYTES = 128


@dataclass(frozen=True)
class Problem:
    """C[m, n] = A[m, k] x B; B is stored [n, k] (layout tn) or [k, n] (layout nn), rows contiguous.

    Raises: ShapeError for a dimension outside 1..2**30; UsageError for a dtype or
    layout that no kernel knows.
    """

    m: int
    n: int
    k: int
    dtype: Dtype = "bf16"
    layout: Layout = "tn"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_DIMENSION:
                raise ShapeError(f"{name}={value} is outside 1..{MAX_DIMENSION}; give a positive number of elements")
        if self.dtype not in DTYPES:
            raise UsageError(f"dtype '{self.dtype}' is unknown; use one of {', '.join(DTYPES)}")
        if self.layout not in LAYOUTS:
            raise UsageError(f"layout '{self.layout}' is unknown; use one of {', '.join(LAYOUTS)}")

    @property
    def flop(self) -> int:
        """Useful floating-point operations: a multiply and an add for each (m, n, k)."""
        return 2 * self.m * self.n * self.k

    @property
    def element_bytes(self) -> int:
        """Bytes of one operand or output element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def read_bytes(self) -> int:
        """Bytes of A and B, without padding."""
        return (self.m + self.n) * self.k * self.element_bytes

    def pitch(self, elements: int) -> int:
        """Leading dimension for rows of `elements`: padded to whole 16-byte chunks, long rows to 128 bytes."""
        alignment = LINE_BYTES if elements * self.element_bytes > LINE_BYTES else CHUNK_BYTES
        chunk = alignment // self.element_bytes
        return -(-elements // chunk) * chunk

    @property
    def b_shape(self) -> tuple[int, int]:
        """Rows and columns of B as it is stored."""
        return (self.n, self.k) if self.layout == "tn" else (self.k, self.n)

    @property
    def operand_bytes(self) -> int:
        """Device memory of one A, one B and one C with padded leading dimensions."""
        b_rows, b_columns = self.b_shape
        elements = self.m * (self.pitch(self.k) + self.pitch(self.n)) + b_rows * self.pitch(b_columns)
        return elements * self.element_bytes

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k} {self.dtype}"


@dataclass(frozen=True)
class Tile:
    """The block of C one unit computes (tile_m x tile_n) and the k step it takes (tile_k).

    Raises: ShapeError for a size that is not positive.
    """

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k) < 1:
            raise ShapeError(f"tile {self} has a size below 1; write it as MxNxK, for example 128x256x64")

    @classmethod
    def parse(cls, text: str) -> Tile:
        """Read '128x256x64' (M x N x K)."""
        match = re.fullmatch(r"\s*(\d{1,9})x(\d{1,9})x(\d{1,9})\s*", text, re.IGNORECASE | re.ASCII)
        if match is None:
            raise UsageError(f"tile '{text}' is not MxNxK; write it as in 128x256x64")
        return cls(*(int(group) for group in match.groups()))

    def tiles_m(self, problem: Problem) -> int:
        """Tiles along m."""
        return -(-problem.m // self.m)

    def tiles_n(self, problem: Problem) -> int:
        """Tiles along n."""
        return -(-problem.n // self.n)

    def num_tiles(self, problem: Problem) -> int:
        """Tiles that cover C."""
        return self.tiles_m(problem) * self.tiles_n(problem)

    def k_iters(self, problem: Problem) -> int:
        """tile_k steps that cover k."""
        return -(-problem.k // self.k)

    def issued_flop(self, problem: Problem) -> int:
        """Operations the tensor cores are given: whole tiles and whole k steps."""
        return 2 * self.m * self.n * self.k * self.num_tiles(problem) * self.k_iters(problem)

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"
