"""Operators of a framework: the matrix product that one of them asks for, from its input shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

Shape = tuple[int, ...]

# Where the two factors stand among an operator's inputs (PyTorch's native_functions.yaml).
_FACTORS = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::matmul": (0, 1),
    "aten::_int_mm": (0, 1),
    "aten::_scaled_mm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::addmm_": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::baddbmm_": (1, 2),
}
# More multiply-adds than any kernel does: an hour at 1 PFLOP/s is less.
_MOST_MACS = 2**61
_LINEAR = "aten::linear"  # its second factor is stored as [n, k]


@dataclass(frozen=True)
class Gemm:
    """`batch` products C[m, n] = A[m, k] x B[k, n], all row-major as the framework sees them."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def macs(self) -> int:
        """Multiply-adds of all of them."""
        return self.batch * self.m * self.n * self.k

    def __str__(self) -> str:
        size = f"{self.m}x{self.n}x{self.k}"
        return f"{self.batch} x {size}" if self.batch > 1 else size


def gemm_of(operator: str | None, shapes: object) -> Gemm | None:
    """The product that an operator with these input shapes computes; None for other operators.

    `shapes` is a tuple with one entry an input, a tuple of extents for a tensor.  Shapes
    that do not fit together, or that no GPU could work through, give None: nothing is guessed.
    """
    if operator is None or not isinstance(shapes, tuple):
        return None
    first, second = _FACTORS.get(operator, (0, 1) if operator == _LINEAR else (-1, -1))
    if first < 0 or len(shapes) <= second:
        return None
    a, b = shapes[first], shapes[second]
    if not (_is_matrix(a) and _is_matrix(b)):
        return None
    if operator == _LINEAR:
        b = (*b[:-2], b[-1], b[-2])
    found = _product(a, b)
    return found if found and found.macs <= _MOST_MACS else None


def _is_matrix(shape: object) -> TypeGuard[Shape]:
    return isinstance(shape, tuple) and len(shape) >= 2 and all(isinstance(side, int) and side > 0 for side in shape)


def _product(a: Shape, b: Shape) -> Gemm | None:
    if a[-1] != b[-2]:
        return None
    if len(b) == 2:  # rows of all leading dimensions of A go into one product
        return Gemm(1, math.prod(a[:-1]), b[-1], a[-1])
    if len(a) == 2:
        return Gemm(math.prod(b[:-2]), a[0], b[-1], a[-1])
    batches = [max(left, right) for left, right in zip(_leading(a, b), _leading(b, a), strict=True)]
    fits = all(left in (1, size) for left, size in zip(_leading(a, b), batches, strict=True)) and all(
        right in (1, size) for right, size in zip(_leading(b, a), batches, strict=True)
    )
    return Gemm(math.prod(batches), a[-2], b[-1], a[-1]) if fits else None


def _leading(shape: Shape, other: Shape) -> Shape:
    """The dimensions before the last two, padded with ones to those of the other."""
    missing = max(0, len(other) - len(shape))
    return (1,) * missing + shape[:-2]
