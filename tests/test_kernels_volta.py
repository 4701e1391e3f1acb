"""sm_70, which only the NVRTC of CUDA 12 still knows, compiles the kernels that are to run there."""

import ctypes
import sys
from pathlib import Path

import pytest

from wavescope import kernel_table, kernels
from wavescope.device import virtual_device
from wavescope.kernel_table import GEMM_SIMT
from wavescope.nvrtc import LANGUAGE, kernel_directory
from wavescope.problem import LAYOUTS, Problem
from wavescope.schedule import SCHEDULES


@pytest.fixture(scope="module")
def nvrtc12() -> ctypes.CDLL:
    for folder in map(Path, sys.path):
        for library in folder.glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.12"):
            return ctypes.CDLL(str(library))
    pytest.fail("the NVRTC of CUDA 12 is missing; install the extra 'test'")


def compile_for_volta(nvrtc: ctypes.CDLL, name: str, defines: dict[str, int]) -> tuple[int, str]:
    """Status and log of one compilation."""
    folder = kernel_directory()
    program = ctypes.c_void_p()
    source = (folder / f"{name}.cu").read_bytes()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, f"{name}.cu".encode(), 0, None, None) == 0
    options = [
        b"--gpu-architecture=sm_70",
        *(option.encode() for option in LANGUAGE),
        f"--include-path={folder / 'include'}".encode(),
        *(f"-D{key}={value}".encode() for key, value in defines.items()),
    ]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value + 1)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return status, log.value.decode(errors="replace")


@pytest.mark.parametrize("name", ["operands", "check", "timer", "spin"])
def test_small_kernels(nvrtc12: ctypes.CDLL, name: str) -> None:
    assert compile_for_volta(nvrtc12, name, {})[0] == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gemm_simt(nvrtc12: ctypes.CDLL, schedule: str, layout: str) -> None:
    device, tile = virtual_device("v100"), GEMM_SIMT.codes[0].tile
    problem = Problem(tile.m, tile.n, tile.k, "fp32", layout)  # type: ignore[arg-type]
    defines = kernels.defines(problem, kernels.facts(problem, tile, device), schedule, probe=True)
    assert compile_for_volta(nvrtc12, "gemm_simt", defines)[0] == 0


def test_what_volta_lacks_is_found(nvrtc12: ctypes.CDLL) -> None:
    device, tile = virtual_device("h200"), kernel_table.GEMM_MMA.codes[0].tile
    problem = Problem(64, 64, 64)
    defines = kernels.defines(problem, kernels.facts(problem, tile, device), "fixed", probe=False)
    status, log = compile_for_volta(nvrtc12, "gemm_mma", defines)
    assert status != 0
    assert "cp.async" in log
