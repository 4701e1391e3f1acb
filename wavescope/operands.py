"""Operands on the device, and the verdict on a result: own kernels, so no CUDA library is needed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wavescope.errors import IntegrityError, UsageError
from wavescope.kernels import DTYPE_IDS, LAYOUT_IDS
from wavescope.launch import Function, Stream, allocate, download, fill_bytes, launch, load
from wavescope.nvrtc import compile_kernel, kernel_directory
from wavescope.problem import Dtype, Problem, Tile
from wavescope.work import Work

Values = Literal["integers", "normal"]

POISON = 0xFF  # every byte: a NaN in bf16, fp16 and fp32, so an element left unwritten is wrong
_CHECK_BLOCK = 64  # check.cu: a CTA checks 64 x 64 elements
_MAX_GRID_Y = 65_535
# Multiply-adds of one check launch: some 50 ms at 4 T/s (a T4), far below a display's time-out.
_CHECK_SLICE = 2 * 10**11
_VERDICT_DTYPE = np.dtype([("wrong", "<u8"), ("first", "<u8"), ("worst", "<f4"), ("padding", "<u4")])

# Unit roundoff of the output type: half a unit in the last place over the least value that has it.
_ROUNDOFF: dict[Dtype, float] = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 2.0**-24}
# An fp32 sum of k products of standard normals passes through partial sums of about sqrt(i),
# and each addition rounds by up to 2^-24 of one: a random walk of k * 2^-24.5.  Reference
# and kernel both do it; six sigma of the difference are k * 2^-21.4.
_ROUNDING_PER_K = 2.0**-21
# Tensor cores cut off what does not fit instead of rounding, always towards zero, so this
# error adds up: up to 2^-23 of the partial sum for each 16 of k.
_CUT = 2.0**-23
_CUT_EVERY_K = 16
_PARTIAL_SUM = 2.0  # of sqrt(k): a partial sum may be larger than the final one


@dataclass(frozen=True)
class OperandKernels:
    """The two small kernels that make and check operands."""

    fill: Function
    check: Function


@dataclass(frozen=True)
class OperandSet:
    """One A, B and C of a problem, rows padded to 16 bytes."""

    problem: Problem
    a: Any
    b: Any
    c: Any

    @property
    def pitches(self) -> tuple[int, int, int]:
        """Leading dimensions lda, ldb, ldc in elements."""
        p = self.problem
        return p.pitch(p.k), p.pitch(p.b_shape[1]), p.pitch(p.n)


@dataclass(frozen=True)
class Verdict:
    """What the check found: elements, how many are wrong, and the largest error met."""

    values: Values
    elements: int
    wrong: int
    first: tuple[int, int] | None
    worst_error: float
    tolerance: str

    def as_found(self) -> dict[str, Any]:
        """The verdict on a right result, as plain data."""
        return {key: value for key, value in asdict(self).items() if key not in ("wrong", "first")}

    def require(self, what: str) -> None:
        """Raises: IntegrityError naming the first wrong element, where there is one."""
        if self.wrong:
            raise IntegrityError(
                f"{what}: {self.wrong} of {self.elements} elements are wrong on {self.values} operands, the first at "
                f"(m, n) = {self.first}, largest error {self.worst_error:.4g} (tolerance {self.tolerance}); "
                "its times mean nothing"
            )


def load_operand_kernels(arch: str) -> OperandKernels:
    """Compile and load the fill and check kernels."""
    folder = kernel_directory()
    return OperandKernels(
        load(compile_kernel(folder / "operands.cu", {}, arch), "operands", 256),
        load(compile_kernel(folder / "check.cu", {}, arch), "check", 256),
    )


def allocate_set(problem: Problem) -> OperandSet:
    """Device memory for one A, B, C.  Raises: DeviceError where it does not fit."""
    size = problem.element_bytes
    return OperandSet(
        problem,
        allocate(problem.m * problem.pitch(problem.k) * size),
        allocate(problem.b_shape[0] * problem.pitch(problem.b_shape[1]) * size),
        allocate(problem.m * problem.pitch(problem.n) * size),
    )


def fill_set(kernels: OperandKernels, operands: OperandSet, values: Values, seed: int, stream: Stream) -> None:
    """Fill A and B, and poison C."""
    problem = operands.problem
    matrices = ((operands.a, problem.m, problem.k), (operands.b, *problem.b_shape))
    for index, (matrix, rows, columns) in enumerate(matrices):
        pitch = problem.pitch(columns)
        arguments = (
            matrix,
            np.int64(rows),
            np.int32(columns),
            np.int32(pitch),
            np.int32(DTYPE_IDS[problem.dtype]),
            np.int32(values == "integers"),
            np.uint64((2 * seed + index) % 2**64),
        )
        blocks = min(4096, -(-rows * pitch // kernels.fill.threads))
        launch(kernels.fill, (blocks,), arguments, stream)
    fill_bytes(operands.c, POISON, stream)


def k_ends_of_checks(problem: Problem, tile: Tile, work: Work) -> NDArray[np.int32]:
    """How much of k the elements of each CTA of check.cu sum over, [rows of CTAs, columns of CTAs].

    Such a CTA's elements lie in one tile.

    Raises: UsageError for a tile that is no multiple of _CHECK_BLOCK.
    """
    if tile.m % _CHECK_BLOCK or tile.n % _CHECK_BLOCK:
        raise UsageError(
            f"tile {tile} with work {work} cannot be verified, since m or n is no multiple of {_CHECK_BLOCK}; "
            "use another tile, such as 128x128x64"
        )
    of_tile = np.minimum(work.k_iters_of(problem, tile).astype(np.int64) * tile.k, problem.k)
    rows, columns = (np.arange(-(-size // _CHECK_BLOCK)) * _CHECK_BLOCK for size in (problem.m, problem.n))
    return of_tile[np.ix_(rows // tile.m, columns // tile.n)].astype(np.int32)


def check_set(
    kernels: OperandKernels, operands: OperandSet, values: Values, stream: Stream, k_ends: Any = None
) -> Verdict:
    """Compare C with a reference computed on the ordinary cores in fp32.

    `k_ends`: k_ends_of_checks in device memory, where tiles sum over unequal k.

    On integers C must be the correctly rounded exact result (sums stay below 2^24); on
    normal operands within half a unit of the output type plus what the order of an fp32
    sum of k products can change.
    """
    problem = operands.problem
    relative, absolute = (0.0, 0.0) if values == "integers" else tolerance(problem)
    report = allocate(_VERDICT_DTYPE.itemsize)
    report.set(np.array([(0, 2**64 - 1, 0.0, 0)], _VERDICT_DTYPE).view(np.uint8))
    blocks_n, blocks_m = -(-problem.n // _CHECK_BLOCK), -(-problem.m // _CHECK_BLOCK)
    slice_m = max(1, min(_MAX_GRID_Y, _CHECK_SLICE // (blocks_n * _CHECK_BLOCK**2 * problem.k)))
    for first in range(0, blocks_m, slice_m):
        arguments = (
            operands.a,
            operands.b,
            operands.c,
            *(np.int32(size) for size in (problem.m, problem.n, problem.k, *operands.pitches)),
            np.int32(DTYPE_IDS[problem.dtype]),
            np.int32(LAYOUT_IDS[problem.layout]),
            np.float32(relative),
            np.float32(absolute),
            np.int32(first),
            np.uint64(0) if k_ends is None else k_ends,
            report,
        )
        launch(kernels.check, (blocks_n, min(slice_m, blocks_m - first)), arguments, stream)
    (found,) = download(report, _VERDICT_DTYPE, stream)
    wrong = int(found["wrong"])
    return Verdict(
        values=values,
        elements=problem.m * problem.n,
        wrong=wrong,
        first=(int(found["first"]) // problem.n, int(found["first"]) % problem.n) if wrong else None,
        worst_error=float(found["worst"]),
        tolerance="exact" if values == "integers" else f"{relative:.3g} x |value| + {absolute:.3g}",
    )


def tolerance(problem: Problem) -> tuple[float, float]:
    """Relative and absolute tolerance on standard normal operands.

    Half a unit in the last place of the output type, and what two fp32 sums of k products
    in different orders, one of them on tensor cores, can differ by.
    """
    cuts = -(-problem.k // _CUT_EVERY_K) * _CUT
    absolute = _ROUNDING_PER_K * problem.k + cuts * _PARTIAL_SUM * math.sqrt(problem.k)
    return _ROUNDOFF[problem.dtype] + cuts, absolute
