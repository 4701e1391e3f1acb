"""Occupancy: hand-worked cases, and the CUDA occupancy calculator over 100,000 random ones."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from wavescope.device import Device, virtual_device
from wavescope.errors import DeviceError, ShapeError
from wavescope.occupancy import (
    UNLIMITED,
    Limiter,
    Occupancy,
    Resources,
    ctas_per_sm,
    limits,
    places,
    require_fit,
)

H200 = virtual_device("h200")
A100 = virtual_device("a100")
T4 = virtual_device("t4")
RTX4090 = virtual_device("rtx4090")


@pytest.mark.parametrize(
    ("device", "resources", "expected"),
    [
        # 3 stages of (128 + 256) x 64 bf16: 147,456 bytes + 1,024 reserved = 148,480 of 233,472: one.
        (H200, Resources(256, 168, 147_456), Occupancy(1, "shared memory")),
        # 128x128x32, 3 stages: 49,152 + 1,024 = 50,176; 233,472 // 50,176 = 4.  Registers: 128 * 32 = 4,096 a
        # warp, 16,384 // 4,096 = 4 warps a partition, 16 an SM, 8 a CTA: two.
        (H200, Resources(256, 128, 49_152), Occupancy(2, "registers")),
        # 255 * 32 = 8,160 -> 8,192 a warp; 16,384 // 8,192 = 2 a partition, 8 an SM; a CTA of 8 warps: one.
        (H200, Resources(256, 255, 0), Occupancy(1, "registers")),
        # 92 registers, 224 threads: 92 * 32 = 2,944 -> 3,072 a warp; 65,536 // 3,072 = 21 warps = 3 CTAs of 7 if
        # the registers were one pool, but 16,384 // 3,072 = 5 a partition, 20 an SM: two.
        (A100, Resources(224, 92, 0), Occupancy(2, "registers")),
        # 200 registers, 288 threads: 6,400 a warp; 9 warps are 57,600 of 65,536, but a partition holds 2 and an SM 8.
        (A100, Resources(288, 200, 0), Occupancy(0, "registers")),
        # 1,536 threads are 48 warps; CTAs of 32 warps: one.
        (RTX4090, Resources(1024, 32, 0), Occupancy(1, "warps")),
        # 48 // 1 = 48 warps, 24 CTAs.
        (RTX4090, Resources(32, 16, 0), Occupancy(24, "CTAs")),
        # All of it: 101,376 + 1,024 = 102,400.
        (RTX4090, Resources(128, 32, 101_376), Occupancy(1, "shared memory")),
        (RTX4090, Resources(128, 32, 101_377), Occupancy(0, "shared memory")),
        # Turing reserves nothing: 65,536 // 32,768 = 2 (with 1,024 reserved it would be one).
        (T4, Resources(128, 32, 32_768), Occupancy(2, "shared memory")),
        (A100, Resources(128, 32, 81_920), Occupancy(2, "shared memory")),
        # 83,968 is half of 167,936, but each CTA takes 1,024 more.
        (A100, Resources(128, 32, 83_968), Occupancy(1, "shared memory")),
        # 64 barriers an SM on Hopper, 16 a CTA: four.
        (H200, Resources(128, 32, 0, barriers=16), Occupancy(4, "barriers")),
        (A100, Resources(128, 32, 0, barriers=16), Occupancy(16, "registers")),
        # Without the opt-in a CTA has 48 KiB, whatever the SM has.
        (replace(H200, shared_per_block=49_152), Resources(128, 32, 49_152), Occupancy(4, "shared memory")),
        (replace(H200, shared_per_block=49_152), Resources(128, 32, 49_153), Occupancy(0, "shared memory")),
        (H200, Resources(1025, 32, 0), Occupancy(0, "warps")),
        (H200, Resources(32, 257, 0), Occupancy(0, "registers")),
    ],
)
def test_occupancy_worked_by_hand(device: Device, resources: Resources, expected: Occupancy) -> None:
    assert ctas_per_sm(resources, device) == expected


def test_limits_of_one_kernel_worked_by_hand() -> None:
    # Shared memory: 20,000 + 1,024 = 21,024 -> 21,120; 233,472 // 21,120 = 11.
    # Registers: 40 * 32 = 1,280 a warp; 16,384 // 1,280 = 12 a partition, 48 an SM; // 4 = 12.
    # Warps: 64 // 4 = 16.  CTAs: 32.  Barriers: 64 // 2 = 32.
    assert limits(Resources(100, 40, 20_000, barriers=2), H200) == {
        "shared memory": 11,
        "registers": 12,
        "warps": 16,
        "CTAs": 32,
        "barriers": 32,
    }


def test_what_a_kernel_does_not_use_limits_nothing() -> None:
    assert limits(Resources(32, 0, 0, barriers=0), T4) == {
        "shared memory": UNLIMITED,
        "registers": UNLIMITED,
        "warps": 32,
        "CTAs": 16,
        "barriers": UNLIMITED,
    }


def test_places_are_sms_times_ctas() -> None:
    assert places(Resources(256, 128, 49_152), H200) == 264
    # A MIG slice with 60 SMs has fewer places.
    assert places(Resources(256, 128, 49_152), replace(H200, sms=60)) == 120


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            # 3 stages of (256 + 256) x 128 bf16
            Resources(256, 128, 393_216),
            "393216 bytes of shared memory a CTA; the H200 has 232448; use a smaller tile or fewer stages",
        ),
        (
            Resources(512, 200, 0),
            (
                "102400 registers a CTA (200 a thread, 512 threads); the H200 has 65536; "
                "use a smaller tile or fewer threads"
            ),
        ),
        (
            Resources(128, 300, 0),
            "300 registers a thread; a thread can have 255; use a smaller tile or more threads",
        ),
        (
            Resources(2048, 0, 0),
            "2048 threads a CTA; the H200 allows 1024; use fewer warps",
        ),
        (
            Resources(128, 32, 0, barriers=65),
            "65 barriers a CTA; the H200 has 64 an SM; use fewer",
        ),
    ],
)
def test_a_kernel_that_does_not_fit_is_refused_with_the_need(resources: Resources, message: str) -> None:
    with pytest.raises(DeviceError) as refusal:
        require_fit("tile 256x256x128", resources, H200)
    assert str(refusal.value) == f"tile 256x256x128 needs {message}"


def test_a_kernel_that_fits_keeps_its_occupancy() -> None:
    assert require_fit("tile 128x128x32", Resources(256, 128, 49_152), H200) == Occupancy(2, "registers")


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"registers": -1}, {"shared_bytes": -1}, {"barriers": -1}])
def test_impossible_resources_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ShapeError, match="cannot be a kernel's"):
        Resources(**{"threads": 128, "registers": 32, "shared_bytes": 0, **wrong})


def test_a_device_older_than_the_rules_is_refused() -> None:
    pascal = replace(H200, name="Tesla P100-PCIE-16GB", compute_capability=(6, 0))
    with pytest.raises(DeviceError, match=r"P100-PCIE-16GB has compute capability 6\.0; occupancy is known from 7\.0"):
        ctas_per_sm(Resources(128, 32, 0), pascal)


# --- the oracle: cuda_occupancy.h of the installed runtime wheel ---

ORACLE_DEVICES = (
    *(virtual_device(key) for key in ("v100", "t4", "a100", "rtx3090", "rtx4090", "h200", "b200", "rtx5090")),
    replace(virtual_device("b200"), compute_capability=(10, 3)),  # fewer barriers than 10.0
    replace(virtual_device("rtx5090"), compute_capability=(12, 1)),
)
NUM_CASES = 100_000
LIMITS: tuple[Limiter, ...] = ("shared memory", "registers", "warps", "CTAs", "barriers")


def _without_oracle(reason: str) -> NoReturn:
    """Skips the test, or fails it where the oracle must be there."""
    if os.environ.get("WAVESCOPE_REQUIRE_ORACLE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _oracle_header() -> Path:
    """cuda_occupancy.h of an installed CUDA runtime wheel."""
    for wheel in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "cuda_occupancy.h":
                return Path(str(file.locate()))
    _without_oracle("no nvidia-cuda-runtime wheel with cuda_occupancy.h is installed")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    header = _oracle_header()
    compiler = shutil.which("g++")
    if compiler is None:
        _without_oracle("g++ is not installed")
    library = tmp_path_factory.mktemp("oracle") / "occupancy_oracle.so"
    source = Path(__file__).with_name("occupancy_oracle.cpp")
    command = [str(compiler), "-O1", "-shared", "-fPIC", f"-I{header.parent}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def _column(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def _random_cases(rng: np.random.Generator) -> NDArray[np.int32]:
    """Columns device, threads, registers, shared bytes, barriers; the edges more often than chance would."""

    def draw(low: int, high: int) -> NDArray[np.int64]:
        return rng.integers(low, high, NUM_CASES)

    def either(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.choose(draw(0, len(columns)), columns)

    device = draw(0, len(ORACLE_DEVICES))
    shared_per_sm = _column(*(d.shared_per_sm for d in ORACLE_DEVICES))[device]
    shared_per_block = _column(*(d.shared_per_block for d in ORACLE_DEVICES))[device]
    # The share of one of 1 to 33 CTAs, a few bytes off, so that they just fit or just do not.
    fair_share = np.maximum(shared_per_sm // draw(1, 34) + draw(-1300, 300), 0)
    shared = either(_column(0), fair_share, shared_per_block + draw(-130, 130), draw(0, 240_000))
    threads = either(32 * draw(1, 34), draw(1, 1100), draw(1, 100))
    registers = either(8 * draw(0, 34), draw(0, 270), draw(0, 50))
    barriers = either(_column(1), draw(0, 18))
    return np.stack([device, threads, registers, shared, barriers], axis=1).astype(np.int32)


def _facts(device: Device) -> list[int]:
    """The numbers occupancy_oracle.cpp takes of a device, in its order."""
    per_block = [device.shared_per_block, device.shared_reserved_per_block]
    per_sm = [device.registers_per_sm, device.shared_per_sm]
    return [*device.compute_capability, *per_sm, *per_block, device.threads_per_sm, device.sms]


def test_every_limit_is_that_of_the_cuda_occupancy_calculator(oracle: ctypes.CDLL) -> None:
    devices = np.array([_facts(device) for device in ORACLE_DEVICES], np.int32)
    cases = _random_cases(np.random.default_rng(20_261_129))
    expected = np.empty((NUM_CASES, 1 + len(LIMITS)), np.int32)
    pointers = (array.ctypes.data_as(ctypes.POINTER(ctypes.c_int)) for array in (devices, cases, expected))
    refused = oracle.occupancy_batch(*pointers, NUM_CASES)
    assert refused == 0, f"the calculator refuses case {cases[refused - 1]}"

    found = np.empty_like(expected)
    for i, (device, *numbers) in enumerate(cases.tolist()):
        resources = Resources(*numbers)
        by_resource = limits(resources, ORACLE_DEVICES[device])
        found[i] = [ctas_per_sm(resources, ORACLE_DEVICES[device]).count, *map(by_resource.__getitem__, LIMITS)]

    wrong = np.flatnonzero((found != expected).any(axis=1))
    assert len(wrong) == 0, f"{len(wrong)} differ, first {cases[wrong[0]]}: {found[wrong[0]]}, not {expected[wrong[0]]}"
    # The cases reach everything: each limit decides some of those that fit, and some do not fit.
    fits = expected[:, 0] > 0
    decides = expected[fits, 1:] == expected[fits, :1]
    assert (decides.sum(axis=0) > 1000).all()
    assert (~fits).sum() > 1000


def test_the_limiter_is_a_resource_whose_limit_decides() -> None:
    for device, *numbers in _random_cases(np.random.default_rng(7))[:2000].tolist():
        resources = Resources(*numbers)
        occupancy = ctas_per_sm(resources, ORACLE_DEVICES[device])
        by_resource = limits(resources, ORACLE_DEVICES[device])
        assert occupancy.count == min(by_resource.values()) == by_resource[occupancy.limiter]
