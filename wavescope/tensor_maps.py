"""What the copy engine (TMA) of Hopper must know of a matrix, as the CUDA driver encodes it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.cuda_device import DRIVER_LIBRARY
from wavescope.errors import DeviceError
from wavescope.kernel_table import BOX_COLUMNS, STORE_ROWS, TURNED_STORE_ROWS, TileCode
from wavescope.operands import OperandSet
from wavescope.problem import Dtype

# Of cuda.h: CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion.
DATA_TYPES: dict[Dtype, int] = {"fp16": 6, "bf16": 9}
SWIZZLE_128B = 3
L2_PROMOTION_128B = 2
MAP_DTYPE = np.dtype([("words", "<u8", 16)])  # CUtensorMap; TensorMap in hopper.cuh

TensorMap = NDArray[np.void]


def tensor_maps(operands: OperandSet, code: TileCode, cluster: int = 1) -> tuple[TensorMap, TensorMap, TensorMap]:
    """Maps of A, B and C for gemm_sm90's boxes: a stage of A and of B, and what is stored of C at once.

    Where B is stored [k, n] its boxes are 64 columns wide; else each of `cluster` CTAs copies
    a box of a stage.

    Raises: DeviceError where the driver cannot encode them.
    """
    problem, tile = operands.problem, code.tile
    box_c = (BOX_COLUMNS, TURNED_STORE_ROWS if code.turned else STORE_ROWS)
    lda, ldb, ldc = operands.pitches
    box_b = (tile.k, tile.n // cluster) if problem.layout == "tn" else (BOX_COLUMNS, tile.k)
    columns_b, rows_b = problem.b_shape[1], problem.b_shape[0]
    return (
        _encode(problem.dtype, operands.a, (problem.k, problem.m), lda, (tile.k, tile.m)),
        _encode(problem.dtype, operands.b, (columns_b, rows_b), ldb, box_b),
        _encode(problem.dtype, operands.c, (problem.n, problem.m), ldc, box_c),
    )


def _encode(dtype: Dtype, matrix: Any, size: tuple[int, int], pitch: int, box: tuple[int, int]) -> TensorMap:
    """`size` and `box`: columns, rows; `pitch` in 16-bit elements."""
    found = np.zeros(2, MAP_DTYPE)  # twice the size, of which one half starts at a multiple of 64 bytes
    start = -found.ctypes.data % 64
    encoded = np.frombuffer(found.data, np.uint8)[start : start + MAP_DTYPE.itemsize]
    status = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(encoded.ctypes.data),
        ctypes.c_int(DATA_TYPES[dtype]),
        ctypes.c_uint32(2),
        ctypes.c_void_p(int(matrix.data.ptr)),
        (ctypes.c_uint64 * 2)(*size),
        (ctypes.c_uint64 * 1)(2 * pitch),
        (ctypes.c_uint32 * 2)(*box),
        (ctypes.c_uint32 * 2)(1, 1),
        ctypes.c_int(0),
        ctypes.c_int(SWIZZLE_128B),  # a row of every box is one swizzled line
        ctypes.c_int(L2_PROMOTION_128B),
        ctypes.c_int(0),
    )
    if status != 0:
        raise DeviceError(
            f"the driver cannot describe a matrix of {size[1]} x {size[0]} elements to the copy engine "
            f"(status {status})"
        )
    return encoded.copy().view(MAP_DTYPE)


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL(DRIVER_LIBRARY)
        driver.cuTensorMapEncodeTiled.restype = ctypes.c_int
    except (OSError, AttributeError) as error:
        raise DeviceError(f"the driver has no tensor maps ({error}); CUDA 12 or later is needed") from None
    return driver
