"""cuBLAS as a contender: the launches that cublasLt would choose for the same operands.

Called through its C interface (cuda.pathfinder finds the library of the `cublas` extra, of
PyTorch or of a CUDA toolkit); source of the numbers below: cublasLt.h, CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from functools import lru_cache
from typing import Any

from wavescope.errors import DeviceError
from wavescope.launch import Stream, allocate
from wavescope.operands import OperandSet
from wavescope.problem import Dtype, Problem
from wavescope.timing import Library

INSTALL = "pip install 'wavescope[cublas]'"
WORKSPACE_BYTES = 32 << 20
_TYPES: dict[Dtype, int] = {"fp32": 0, "fp16": 2, "bf16": 14}  # cudaDataType
_COMPUTE_32F = 68  # cublasComputeType_t: fp32 sums, no TF32
_TRANSA, _MAX_WORKSPACE = 3, 1  # attributes of a matmul description and of a preference


class _Heuristic(Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


@lru_cache(maxsize=1)
def _library() -> tuple[Any, c_void_p]:
    """The loaded library and a handle."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("cublasLt").abs_path
        library = ctypes.CDLL(path)
    except (ImportError, OSError, RuntimeError) as error:  # DynamicLibNotFoundError is a RuntimeError
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DeviceError(f"cuBLAS is not installed ({reason}); {INSTALL}") from None
    handle = c_void_p()
    _check(library.cublasLtCreate(byref(handle)), "start")
    return library, handle


def library_version() -> str:
    """cuBLAS's version, such as '13.1.0'.

    Raises: DeviceError where the library is missing.
    """
    library, _ = _library()
    library.cublasLtGetVersion.restype = c_size_t
    number = int(library.cublasLtGetVersion())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _check(status: int, what: str) -> None:
    if status != 0:
        raise DeviceError(f"cuBLAS cannot {what} (status {status})")


def _created(create: Callable[..., int], *arguments: Any) -> c_void_p:
    made = c_void_p()
    _check(create(byref(made), *arguments), "describe this product")
    return made


def heuristics(problem: Problem, operands: OperandSet, most: int = 8) -> list[_Heuristic]:
    """What cublasLt proposes for a problem, its first choice first; at most `most`, none for what it cannot do.

    Raises: DeviceError where the library is missing or refuses.
    """
    library, handle = _library()
    preference = _created(library.cublasLtMatmulPreferenceCreate)
    size = c_size_t(WORKSPACE_BYTES)
    _check(
        library.cublasLtMatmulPreferenceSetAttribute(preference, _MAX_WORKSPACE, byref(size), c_size_t(8)),
        "take a workspace size",
    )
    found, returned = (_Heuristic * most)(), c_int()
    description, (a, b, c) = _description(problem, operands)
    status = library.cublasLtMatmulAlgoGetHeuristic(
        handle, description, b, a, c, c, preference, c_int(most), found, byref(returned)
    )
    _check(status, f"choose a kernel for {problem}")
    return [found[index] for index in range(returned.value) if found[index].state == 0]


def _description(problem: Problem, operands: OperandSet) -> tuple[c_void_p, tuple[c_void_p, c_void_p, c_void_p]]:
    """The product and the layouts of A, B, C.

    cuBLAS counts by columns: our rows are its columns, so it computes the transpose of C
    as the transpose of B times the transpose of A.
    """
    library, _ = _library()
    kind = _TYPES[problem.dtype]
    description = _created(library.cublasLtMatmulDescCreate, c_int(_COMPUTE_32F), c_int(_TYPES["fp32"]))
    is_transposed = c_int32(problem.layout == "tn")
    _check(
        library.cublasLtMatmulDescSetAttribute(description, _TRANSA, byref(is_transposed), c_size_t(4)),
        "transpose B",
    )
    rows, columns = problem.b_shape
    shapes = ((problem.m, problem.k), (rows, columns), (problem.m, problem.n))
    layouts = [
        _created(library.cublasLtMatrixLayoutCreate, c_int(kind), c_uint64(inner), c_uint64(outer), c_int64(pitch))
        for (outer, inner), pitch in zip(shapes, operands.pitches, strict=True)
    ]
    return description, (layouts[0], layouts[1], layouts[2])


def cublas(problem: Problem, sets: Sequence[OperandSet], deadline_s: float, choice: int = 0) -> Library:
    """Launches of cublasLt's choice number `choice` (0: its default) on the operand sets in turn.

    Raises: DeviceError where the library is missing, or has no such choice.
    """
    library, handle = _library()
    found = heuristics(problem, sets[0])
    if choice >= len(found):
        raise DeviceError(f"cuBLAS proposes {len(found)} kernels for {problem}, not {choice + 1}")
    chosen = found[choice]
    workspace = allocate(WORKSPACE_BYTES)
    description, (a, b, c) = _description(problem, sets[0])
    one, zero = c_float(1.0), c_float(0.0)
    library.cublasLtMatmul.argtypes = [
        c_void_p, c_void_p, POINTER(c_float), c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_float), c_void_p,
        c_void_p, c_void_p, c_void_p, POINTER(_Heuristic), c_void_p, c_size_t, c_void_p,
    ]  # fmt: skip

    def launch(index: int, stream: Stream) -> None:
        operands = sets[index % len(sets)]
        at_c = operands.c.data.ptr
        # the algorithm is the first member of the heuristic's result
        status = library.cublasLtMatmul(
            handle, description, byref(one), operands.b.data.ptr, b, operands.a.data.ptr, a, byref(zero), at_c, c,
            at_c, c, byref(chosen), workspace.data.ptr, WORKSPACE_BYTES, stream.raw.ptr,
        )  # fmt: skip
        _check(status, f"run {problem}")

    return Library(f"cuBLAS's choice {choice + 1}, {chosen.waves:.2f} waves (its estimate)", launch, deadline_s)
