"""What the host passes to a kernel is what the kernel's parameters are: number, order of kinds, and size."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wavescope import operands, prepare
from wavescope.nvrtc import kernel_directory
from wavescope.operands import OperandKernels, OperandSet, check_set, fill_set
from wavescope.problem import Problem, Tile
from wavescope.schedule import decompose
from wavescope.tensor_maps import MAP_DTYPE
from wavescope.work import Work

PROBLEM = Problem(100, 200, 300)
KERNELS = OperandKernels(*[SimpleNamespace(threads=256)] * 2)  # type: ignore[arg-type]
SCALARS = {"int": np.int32, "long long": np.int64, "float": np.float32, "unsigned long long": np.uint64}
MAP = np.zeros(1, MAP_DTYPE)


class Buffer:
    """Stands for device memory."""

    nbytes = 64

    def set(self, values: Any) -> None:
        pass


def parameters(kernel: str) -> list[str]:
    """The types of a kernel's parameters; pointers as '*'."""
    source = (kernel_directory() / f"{kernel}.cu").read_text()
    match = re.search(rf'extern "C" __global__ void.*?\b{kernel}\((.*?)\) {{', source, re.DOTALL)
    assert match is not None
    listed = [" ".join(one.replace("const ", "").split()) for one in match.group(1).split(",")]
    return ["*" if "*" in one else one.rsplit(" ", 1)[0] for one in listed]


def matches(argument: Any, parameter: str) -> bool:
    if parameter == "*":  # a null pointer is a number of its size
        return isinstance(argument, Buffer) or (type(argument) is np.uint64 and argument == 0)
    if parameter == "__grid_constant__ TensorMap":
        return argument is MAP
    return type(argument) is SCALARS[parameter]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The arguments of every launch."""
    found: list[tuple[Any, ...]] = []
    for module in (prepare, operands):
        monkeypatch.setattr(module, "launch", lambda function, grid, arguments, stream: found.append(arguments))
    monkeypatch.setattr(operands, "allocate", lambda size: Buffer())
    monkeypatch.setattr(operands, "fill_bytes", lambda *_: None)
    verdict = np.zeros(1, operands._VERDICT_DTYPE)
    monkeypatch.setattr(operands, "download", lambda *_: verdict)
    return found


def passes(arguments: tuple[Any, ...], kernel: str) -> None:
    expected = parameters(kernel)
    assert len(arguments) == len(expected)
    assert [matches(*pair) for pair in zip(arguments, expected, strict=True)] == [True] * len(expected)


@pytest.mark.parametrize("work", [None, Work("ragged", 1)])
@pytest.mark.parametrize("kernel", ["gemm_mma", "gemm_simt", "gemm_sm90"])
def test_gemm(launched: list[tuple[Any, ...]], kernel: str, work: Work | None) -> None:
    buffer = Buffer()
    prepared = SimpleNamespace(
        sets=(OperandSet(PROBLEM, buffer, buffer, buffer),),
        schedule=decompose("persistent", PROBLEM, Tile(64, 64, 64), 4, work=work),
        counter=buffer, partials=buffer, sync=buffer, records=(buffer,), table=None if work is None else buffer,
        maps=((MAP, MAP, MAP),) if kernel == "gemm_sm90" else (),
    )  # fmt: skip
    prepare.run(prepared, None, 0, None)  # type: ignore[arg-type]
    (arguments,) = launched
    passes(arguments, kernel)
    table = arguments[-1 - 3 * (kernel == "gemm_sm90")]
    assert table is buffer if work else table == 0


@pytest.mark.parametrize("k_ends", [None, Buffer()], ids=["all of k", "unequal k"])
def test_check(launched: list[tuple[Any, ...]], k_ends: Buffer | None) -> None:
    buffer = Buffer()
    check_set(KERNELS, OperandSet(PROBLEM, buffer, buffer, buffer), "integers", None, k_ends)  # type: ignore[arg-type]
    (arguments,) = launched
    passes(arguments, "check")
    assert arguments[-2] is k_ends if k_ends else arguments[-2] == 0


def test_fill(launched: list[tuple[Any, ...]]) -> None:
    buffer = Buffer()
    fill_set(KERNELS, OperandSet(PROBLEM, buffer, buffer, buffer), "normal", 1, None)  # type: ignore[arg-type]
    assert len(launched) == 2
    for arguments in launched:
        passes(arguments, "operands")
