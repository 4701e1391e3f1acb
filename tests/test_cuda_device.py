"""The CUDA devices as asked through CuPy, with a stand-in for CuPy: these tests need no GPU."""

from __future__ import annotations

import builtins
import ctypes
import importlib.metadata
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wavescope import cuda_device
from wavescope.cli.devices import devices
from wavescope.device import Device, virtual_device
from wavescope.errors import DeviceError

H200 = virtual_device("h200")
OLDER = "pip install 'wavescope[cuda12]' for CUDA 12 drivers"
NO_GPU = "use --device virtual:h200, which needs no GPU"


class FakeCudaError(RuntimeError):
    """CuPy's CUDARuntimeError: a message and a status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeRuntime:
    """cupy.cuda.runtime on a machine with H200s, or one whose driver answers with an error."""

    CUDARuntimeError = FakeCudaError

    def __init__(self, num_devices: int = 1, error: FakeCudaError | None = None, driver: int = 13000, **facts: int):
        self.num_devices, self.error, self.driver = num_devices, error, driver
        self.facts = {
            "cudaDevAttrClockRate": 1_980_000,
            "cudaDevAttrMultiProcessorCount": 132,
            "cudaDevAttrKernelExecTimeout": 0,
            "cudaDevAttrMemoryClockRate": 3_201_000,
            "cudaDevAttrGlobalMemoryBusWidth": 6_016,
            "cudaDevAttrL2CacheSize": 62_914_560,
            "cudaDevAttrMaxThreadsPerMultiProcessor": 2_048,
            "cudaDevAttrComputeCapabilityMajor": 9,
            "cudaDevAttrComputeCapabilityMinor": 0,
            "cudaDevAttrMaxSharedMemoryPerMultiprocessor": 233_472,
            "cudaDevAttrMaxRegistersPerMultiprocessor": 65_536,
            "cudaDevAttrMaxSharedMemoryPerBlockOptin": 232_448,
            "cudaDevAttrMaxBlocksPerMultiprocessor": 32,
            "cudaDevAttrReservedSharedMemoryPerBlock": 1_024,
            **facts,
        }
        self.name = b"NVIDIA H200"

    def getDeviceCount(self) -> int:  # noqa: N802 - CuPy's name
        if self.error is not None:
            raise self.error
        return self.num_devices

    def getDeviceProperties(self, index: int) -> dict[str, Any]:  # noqa: N802
        assert 0 <= index < self.num_devices
        return {"name": self.name, "totalGlobalMem": 150_109_880_320}

    def deviceGetAttribute(self, attribute: int, index: int) -> int:  # noqa: N802
        assert 0 <= index < self.num_devices
        names = {number: name for name, number in cuda_device.ATTRIBUTES.items()}
        return self.facts[names[attribute]]

    def driverGetVersion(self) -> int:  # noqa: N802
        return self.driver

    def runtimeGetVersion(self) -> int:  # noqa: N802
        return 13020


def install(monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime) -> None:
    """Makes `import cupy` give the stand-in, as the one CuPy that is installed."""
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    install_distributions(monkeypatch, "cupy-cuda13x")


def install_distributions(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [SimpleNamespace(name=name) for name in names])


def test_attribute_numbers_are_those_of_the_installed_header() -> None:
    header = next(
        (
            Path(str(file.locate()))
            for wheel in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12")
            if any(importlib.metadata.distributions(name=wheel))
            for file in importlib.metadata.files(wheel) or []
            if file.name == "driver_types.h"
        ),
        None,
    )
    if header is None:
        pytest.skip("no nvidia-cuda-runtime wheel with driver_types.h is installed")
    numbers = dict(re.findall(r"^\s*(cudaDevAttr\w+)\s*=\s*(\d+)", header.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name: int(numbers[name]) for name in cuda_device.ATTRIBUTES} == cuda_device.ATTRIBUTES


def test_a_device_is_what_the_driver_says_with_the_datasheets_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeRuntime())
    found = cuda_device.query(0)
    # 2 x 3.201 GHz x 6016 bit / 8 bit = 4814.304 GB/s
    assert found.memory_gb_per_s == pytest.approx(4814.304, abs=1e-9)
    assert replace(found, memory_gb_per_s=4814.3) == replace(H200, source="driver")


def test_an_unknown_product_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = FakeRuntime()
    runtime.name = b"NVIDIA H200 NVL"
    install(monkeypatch, runtime)
    assert (cuda_device.query(0).name, cuda_device.query(0).peak_tflops) == ("NVIDIA H200 NVL", {})


def test_the_context_decides_the_sm_count(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeRuntime(cudaDevAttrMultiProcessorCount=66))
    assert cuda_device.query(0).sms == 66


def test_the_kernel_timeout_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeRuntime())
    assert not cuda_device.kernel_timeout(0)
    install(monkeypatch, FakeRuntime(cudaDevAttrKernelExecTimeout=1))
    assert cuda_device.kernel_timeout(0)


@pytest.mark.parametrize("ask", [cuda_device.query, cuda_device.kernel_timeout])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    install(monkeypatch, FakeRuntime(num_devices=2))
    with pytest.raises(DeviceError) as refusal:
        ask(7)
    assert str(refusal.value) == (
        "device cuda:7 does not exist; this machine has cuda:0 (NVIDIA H200), cuda:1 (NVIDIA H200)"
    )
    with pytest.raises(DeviceError, match="cuda:-1 does not exist"):
        ask(-1)


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (
            FakeRuntime(error=FakeCudaError(35, "cudaErrorInsufficientDriver: too old"), driver=12020),
            f"the NVIDIA driver knows CUDA up to 12.2, CuPy needs 13.2; update the driver, or {OLDER}",
        ),
        (
            FakeRuntime(error=FakeCudaError(35, "cudaErrorInsufficientDriver: too old"), driver=0),
            f"there is no NVIDIA driver on this machine; install one, or {NO_GPU}",
        ),
        (
            FakeRuntime(error=FakeCudaError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")),
            f"the NVIDIA driver shows no CUDA device with CUDA_VISIBLE_DEVICES=''; see nvidia-smi, or {NO_GPU}",
        ),
        (
            FakeRuntime(num_devices=0),
            f"the NVIDIA driver shows no CUDA device with CUDA_VISIBLE_DEVICES=''; see nvidia-smi, or {NO_GPU}",
        ),
        (
            FakeRuntime(error=FakeCudaError(802, "cudaErrorSystemNotReady: not yet")),
            f"the CUDA driver does not start (cudaErrorSystemNotReady: not yet); see nvidia-smi, or {NO_GPU}",
        ),
    ],
    ids=["driver too old", "no driver", "no device", "zero devices", "not ready"],
)
def test_why_there_is_no_device(monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime, message: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    install(monkeypatch, runtime)
    with pytest.raises(DeviceError) as refusal:
        cuda_device.query(0)
    assert str(refusal.value) == message
    assert refusal.value.exit_code == 3


def refuse_import(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    """Makes `import cupy` fail with `error`."""
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    original = builtins.__import__

    def fail_for_cupy(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "cupy":
            raise error
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", fail_for_cupy)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ModuleNotFoundError("No module named 'cupy'", name="cupy"),
            f"CuPy is not installed; pip install 'wavescope[cuda13]', or {NO_GPU}",
        ),
        (
            ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock"),
            "CuPy lacks the module fastrlock; reinstall it: pip install 'wavescope[cuda13]'",
        ),
        (
            # CuPy wraps its advice in a line of equals signs.
            ImportError("\n====\nFailed to import CuPy.\n\nIf you installed CuPy via wheels...\n===="),
            "CuPy cannot be imported (Failed to import CuPy.); reinstall it: pip install 'wavescope[cuda13]'",
        ),
    ],
    ids=["missing", "incomplete", "broken"],
)
def test_cupy_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch, error: ImportError, message: str) -> None:
    install_distributions(monkeypatch)
    refuse_import(monkeypatch, error)
    with pytest.raises(DeviceError) as refusal:
        cuda_device.count()
    assert str(refusal.value) == message


def test_two_cupys_are_named_before_either_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_import(monkeypatch, ImportError("must not be tried"))
    install_distributions(monkeypatch, "numpy", "cupy-xarray", "cupy-cuda13x", "cupy-cuda12x")
    with pytest.raises(DeviceError) as refusal:
        cuda_device.load_cupy()
    assert str(refusal.value) == (
        "CuPy is installed 2 times (cupy-cuda12x, cupy-cuda13x) and the copies overwrite each other; run: "
        "pip uninstall -y cupy-cuda12x cupy-cuda13x, then pip install 'wavescope[cuda13]' "
        "(or pip install 'wavescope[cuda12]' for CUDA 12 drivers)"
    )


def test_packages_are_not_searched_again_once_cupy_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeRuntime())

    def search() -> list[Any]:
        pytest.fail("a measurement asks for the device dozens of times, and each search takes half a second")

    monkeypatch.setattr(importlib.metadata, "distributions", search)
    assert cuda_device.query(0).sms == H200.sms
    assert not cuda_device.kernel_timeout(0)


class FakeDriver:
    """libcuda.so.1 that starts, or not, and counts devices."""

    def __init__(self, status: int, num_devices: int) -> None:
        self.status, self.num_devices = status, num_devices

    def cuInit(self, flags: int) -> int:  # noqa: N802 - the driver's name
        return self.status

    def cuDeviceGetCount(self, found: Any) -> int:  # noqa: N802
        found._obj.value = self.num_devices
        return 0

    def cuDriverGetVersion(self, number: Any) -> int:  # noqa: N802
        number._obj.value = 12020
        return self.status


@pytest.mark.parametrize(("status", "num_devices", "present"), [(0, 1, True), (0, 0, False), (100, 1, False)])
def test_a_gpu_is_seen_without_cupy(
    monkeypatch: pytest.MonkeyPatch, status: int, num_devices: int, present: bool
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(status, num_devices))
    assert cuda_device.gpu_present() is present


def test_no_gpu_is_seen_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert cuda_device.gpu_present() is False
    assert cuda_device.driver_version() is None


def test_the_driver_says_which_cuda_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver(0, 1))
    assert cuda_device.driver_version() == "12.2"


# --- wavescope devices ---


def test_devices_lists_virtual_and_real_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, FakeRuntime(cudaDevAttrMultiProcessorCount=66, cudaDevAttrKernelExecTimeout=1))
    devices()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert [line.split() for line in lines if line.startswith(("virtual:h200", "virtual:v100 "))] == [
        ["virtual:v100", "7.0", "80", "1530", "96", "6", "16", "898", "125", "fp16"],
        ["virtual:h200", "9.0", "132", "1980", "228", "60", "140", "4814", "989.4", "bf16"],
    ]
    assert lines[-3:] == [
        "cuda:0 is NVIDIA H200",
        "cuda:0: NVIDIA H200 shows 66 of its 132 SMs (an MPS share or a green context); waves are counted on 66",
        "cuda:0: the driver ends kernels that run for seconds (it may drive a display)",
    ]
    assert ["cuda:0", "9.0", "66"] in [line.split()[:3] for line in lines]


def test_devices_says_why_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, FakeRuntime(error=FakeCudaError(35, "too old"), driver=0))
    monkeypatch.setenv("COLUMNS", "80")
    devices()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).endswith(
        f"No CUDA device: there is no NVIDIA driver on this machine; install one, or {NO_GPU}"
    )


def test_devices_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    install(monkeypatch, FakeRuntime())
    devices(json_output=True)
    document = json.loads(capsys.readouterr().out)
    assert document.keys() == {"schema_version", "virtual", "cuda", "cuda_missing"}
    assert (document["schema_version"], document["cuda_missing"]) == (1, None)
    by_name = {entry["device"]: entry for entry in document["virtual"]}
    assert from_json(by_name["virtual:h200"]) == H200
    (real,) = document["cuda"]
    assert (real.pop("kernel_timeout"), real.pop("note")) == (False, None)
    assert from_json(real) == cuda_device.query(0)


def from_json(entry: dict[str, Any]) -> Device:
    facts = {name: value for name, value in entry.items() if name != "device"}
    return Device(**{**facts, "compute_capability": tuple(facts["compute_capability"])})
