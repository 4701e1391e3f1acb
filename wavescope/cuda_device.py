"""The CUDA devices of this machine, asked through CuPy, and why there are none to ask.

CuPy is imported by the functions, never by this module.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import sys
from typing import Any

from wavescope.device import DRIVER, Device, known_device
from wavescope.errors import DeviceError

INSTALL = "pip install 'wavescope[cuda13]'"
INSTALL_OLDER = "pip install 'wavescope[cuda12]'"
VIRTUAL = "use --device virtual:h200, which needs no GPU"

# cudaDeviceAttr of driver_types.h, compared in tests/test_cuda_device.py with the installed header.
ATTRIBUTES = {
    "cudaDevAttrClockRate": 13,  # kHz
    "cudaDevAttrMultiProcessorCount": 16,
    "cudaDevAttrKernelExecTimeout": 17,
    "cudaDevAttrMemoryClockRate": 36,  # kHz
    "cudaDevAttrGlobalMemoryBusWidth": 37,  # bits
    "cudaDevAttrL2CacheSize": 38,
    "cudaDevAttrMaxThreadsPerMultiProcessor": 39,
    "cudaDevAttrComputeCapabilityMajor": 75,
    "cudaDevAttrComputeCapabilityMinor": 76,
    "cudaDevAttrMaxSharedMemoryPerMultiprocessor": 81,
    "cudaDevAttrMaxRegistersPerMultiprocessor": 82,
    "cudaDevAttrMaxSharedMemoryPerBlockOptin": 97,
    "cudaDevAttrMaxBlocksPerMultiprocessor": 106,
    "cudaDevAttrReservedSharedMemoryPerBlock": 111,
}
DRIVER_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
INSUFFICIENT_DRIVER = 35  # cudaErrorInsufficientDriver; also what a machine without a driver answers
NO_DEVICE = 100  # cudaErrorNoDevice


def load_cupy() -> Any:
    """The cupy module, whose installation is sound.

    That is looked at until it is imported, since looking takes half a second among many packages.

    Raises: DeviceError where CuPy is missing, installed twice, or cannot be imported.
    """
    installed = [] if "cupy" in sys.modules else cupy_distributions()
    if len(installed) > 1:
        raise DeviceError(
            f"CuPy is installed {len(installed)} times ({', '.join(installed)}) and the copies overwrite each other; "
            f"run: pip uninstall -y {' '.join(installed)}, then {INSTALL} (or {INSTALL_OLDER} for CUDA 12 drivers)"
        )
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise DeviceError(f"CuPy lacks the module {error.name}; reinstall it: {INSTALL}") from error
        raise DeviceError(f"CuPy is not installed; {INSTALL}, or {VIRTUAL}") from error
    except ImportError as error:
        raise DeviceError(f"CuPy cannot be imported ({_first_line(error)}); reinstall it: {INSTALL}") from error
    return cupy


def cupy_distributions() -> list[str]:
    """Installed distributions that bring the package cupy, such as cupy-cuda13x."""
    names = {distribution.name for distribution in importlib.metadata.distributions() if distribution.name}
    return sorted(name for name in names if re.fullmatch(r"cupy(-cuda\w+|-rocm-[\w-]+)?", name, re.IGNORECASE))


def gpu_present() -> bool:
    """Whether the NVIDIA driver shows this process a device; asked without CuPy, and never an error."""
    try:
        driver = ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return False
    found = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(found)) == 0 and found.value > 0


def driver_version() -> str | None:
    """The CUDA version that the NVIDIA driver knows, such as '13.0'; None without a driver."""
    try:
        driver = ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return None
    number = ctypes.c_int(0)
    return _version(number.value) if driver.cuDriverGetVersion(ctypes.byref(number)) == 0 else None


def count() -> int:
    """CUDA devices this process sees, one or more.

    Raises: DeviceError where CuPy is unusable, or the driver is missing, too old or sees no device.
    """
    runtime = load_cupy().cuda.runtime
    try:
        found = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise DeviceError(_why_none(runtime, error)) from error
    if found == 0:
        raise DeviceError(_no_device())
    return found


def _why_none(runtime: Any, error: Any) -> str:
    if error.status == NO_DEVICE:
        return _no_device()
    if error.status != INSUFFICIENT_DRIVER:
        return f"the CUDA driver does not start ({_first_line(error)}); see nvidia-smi, or {VIRTUAL}"
    driver = int(runtime.driverGetVersion())
    if driver == 0:
        return f"there is no NVIDIA driver on this machine; install one, or {VIRTUAL}"
    needed = _version(int(runtime.runtimeGetVersion()))
    return (
        f"the NVIDIA driver knows CUDA up to {_version(driver)}, CuPy needs {needed}; "
        f"update the driver, or {INSTALL_OLDER} for CUDA 12 drivers"
    )


def _no_device() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cause = "" if visible is None else f" with CUDA_VISIBLE_DEVICES='{visible}'"
    return f"the NVIDIA driver shows no CUDA device{cause}; see nvidia-smi, or {VIRTUAL}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip("= \t")), type(error).__name__)


def query(index: int) -> Device:
    """The facts of cuda:`index` as the driver reports them, of the context at hand.

    Only `peak_tflops` is from the table, by exact product name; {} where that is unknown.

    Raises: DeviceError as `count`, and where there is no such device.
    """
    runtime = _runtime_of(index)
    properties = runtime.getDeviceProperties(index)
    name = _name(properties)
    product = known_device(name)

    def fact(attribute: str) -> int:
        return _attribute(runtime, attribute, index)

    clock_khz = fact("cudaDevAttrClockRate")
    memory_bits_per_ms = 2 * fact("cudaDevAttrMemoryClockRate") * fact("cudaDevAttrGlobalMemoryBusWidth")
    return Device(
        name=name,
        compute_capability=(fact("cudaDevAttrComputeCapabilityMajor"), fact("cudaDevAttrComputeCapabilityMinor")),
        sms=fact("cudaDevAttrMultiProcessorCount"),
        max_clock_mhz=clock_khz / 1e3,
        registers_per_sm=fact("cudaDevAttrMaxRegistersPerMultiprocessor"),
        shared_per_sm=fact("cudaDevAttrMaxSharedMemoryPerMultiprocessor"),
        shared_per_block=fact("cudaDevAttrMaxSharedMemoryPerBlockOptin"),
        shared_reserved_per_block=fact("cudaDevAttrReservedSharedMemoryPerBlock"),
        threads_per_sm=fact("cudaDevAttrMaxThreadsPerMultiProcessor"),
        ctas_per_sm=fact("cudaDevAttrMaxBlocksPerMultiprocessor"),
        l2_bytes=fact("cudaDevAttrL2CacheSize"),
        memory_bytes=int(properties["totalGlobalMem"]),
        memory_gb_per_s=memory_bits_per_ms / 8 / 1e6,
        peak_tflops={} if product is None else product.peak_tflops,
        source=DRIVER,
    )


def kernel_timeout(index: int) -> bool:
    """Whether the driver ends kernels on cuda:`index` that run for seconds, as on GPUs that drive a display.

    Raises: DeviceError as `query`.
    """
    return _attribute(_runtime_of(index), "cudaDevAttrKernelExecTimeout", index) != 0


def _runtime_of(index: int) -> Any:
    found = count()
    runtime = load_cupy().cuda.runtime
    if not 0 <= index < found:
        there = ", ".join(f"cuda:{i} ({_name(runtime.getDeviceProperties(i))})" for i in range(found))
        raise DeviceError(f"device cuda:{index} does not exist; this machine has {there}")
    return runtime


def _attribute(runtime: Any, attribute: str, index: int) -> int:
    return int(runtime.deviceGetAttribute(ATTRIBUTES[attribute], index))


def _name(properties: dict[str, Any]) -> str:
    name = properties["name"]
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


# nvmlClocksEventReason bits, by the names nvidia-smi gives them.
CLOCK_LIMITS = {
    0x2: "applications clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks setting",
}


def clock_limits(index: int) -> tuple[str, ...] | None:
    """Why the clock is below its maximum right now, as NVML has it; () if it is not limited.

    None where NVML does not answer: no nvidia-ml-py, no permission, a virtual GPU.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        bus = load_cupy().cuda.runtime.deviceGetPCIBusId(index)
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (pynvml.NVMLError, AttributeError):  # AttributeError: a release that names the call otherwise
        return None
    return tuple(name for bit, name in CLOCK_LIMITS.items() if bits & bit)
