"""The device table: its rows against each other and against recorded facts, and look-ups by name."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from wavescope.device import (
    VIRTUAL_PREFIX,
    Device,
    Row,
    cuda_index,
    known_device,
    list_devices,
    rows,
    sm_count_note,
    virtual_device,
)
from wavescope.errors import UsageError

# FP32 lanes an SM: the architectures' whitepapers (GV100, TU102, GA100, GA102, AD102, GH100, GB202).
FP32_LANES = {(7, 0): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 9): 128, (9, 0): 128, (10, 0): 128, (12, 0): 128}

each_row = pytest.mark.parametrize("row", rows(), ids=lambda row: row.keys[0])


def test_the_table_has_the_devices_people_use() -> None:
    assert " ".join(row.keys[0] for row in rows()) == (
        "v100 v100-32gb t4 a100-40gb a100-80gb a100-pcie-40gb a100-pcie-80gb a10 rtx3090 "
        "l4 l40s rtx4090 h100-pcie h100-sxm h200 gh200 b200 rtx5090"
    )


def test_keys_and_product_names_are_unique() -> None:
    keys = [key for row in rows() for key in row.keys]
    names = [name for row in rows() for name in row.names]
    assert len(set(keys)) == len(keys)
    assert len(set(names)) == len(names)
    assert all(text == text.strip() != "" for text in keys + names)


@each_row
def test_every_fact_is_there_and_positive(row: Row) -> None:
    for field in fields(Device):
        value = getattr(row.device, field.name)
        if isinstance(value, (int, float)) and field.name != "shared_reserved_per_block":
            assert value > 0, field.name
    assert {"fp16", "fp32"} <= row.device.peak_tflops.keys()
    assert all(peak > 0 for peak in row.device.peak_tflops.values())


@each_row
def test_every_row_cites_titled_and_dated_sources(row: Row) -> None:
    for part in ("peaks: NVIDIA ", "(20", "datasheet", "CUDA C++ Programming Guide"):
        assert part in row.device.source.replace("whitepaper", "datasheet")


@each_row
def test_limits_are_those_of_the_compute_capability(row: Row) -> None:
    # (shared memory an SM, of one CTA, reserved a CTA, threads, CTAs) an SM, in KiB and counts
    expected = {
        (7, 0): (96, 96, 0, 2048, 32),
        (7, 5): (64, 64, 0, 1024, 16),
        (8, 0): (164, 163, 1, 2048, 32),
        (8, 6): (100, 99, 1, 1536, 16),
        (8, 9): (100, 99, 1, 1536, 24),
        (9, 0): (228, 227, 1, 2048, 32),
        (10, 0): (228, 227, 1, 2048, 32),
        (12, 0): (100, 99, 1, 1536, 24),
    }[row.device.compute_capability]
    device = row.device
    shared = (device.shared_per_sm, device.shared_per_block, device.shared_reserved_per_block)
    assert (*(size / 1024 for size in shared), device.threads_per_sm, device.ctas_per_sm) == expected
    assert device.registers_per_sm == 65536


@each_row
def test_sms_and_clock_make_the_published_fp32_peak(row: Row) -> None:
    lanes = FP32_LANES[row.device.compute_capability]
    tflops = row.device.sms * lanes * 2 * row.device.max_clock_mhz / 1e6
    # Datasheets round to three digits, the B200's to 75 (74.4 at its highest clock).
    assert tflops == pytest.approx(row.device.peak_tflops["fp32"], rel=0.01)


@each_row
def test_bf16_runs_at_the_fp16_rate_from_ampere_on(row: Row) -> None:
    peaks = row.device.peak_tflops
    assert peaks.get("bf16") == (peaks["fp16"] if row.device.compute_capability >= (8, 0) else None)


def test_the_h200_is_what_its_driver_reports() -> None:
    # Nsight Compute's device attributes on an H200, driver 580; bandwidth = 2 x 3.201 GHz x 6016 bit / 8.
    device = virtual_device("virtual:h200")
    assert device == Device(
        name="NVIDIA H200",
        compute_capability=(9, 0),
        sms=132,
        max_clock_mhz=1980.0,
        registers_per_sm=65_536,
        shared_per_sm=233_472,
        shared_per_block=232_448,
        shared_reserved_per_block=1_024,
        threads_per_sm=2_048,
        ctas_per_sm=32,
        l2_bytes=62_914_560,
        memory_bytes=150_109_880_320,
        memory_gb_per_s=4814.3,
        peak_tflops={"bf16": 989.4, "fp16": 989.4, "fp32": 66.9},
        source=device.source,
    )


def test_virtual_devices_are_found_by_key_and_alias_in_any_case() -> None:
    assert virtual_device("virtual:a100") == virtual_device("A100-80GB") == virtual_device(" Virtual:a100-80gb")
    assert virtual_device("a100").name == "NVIDIA A100-SXM4-80GB"
    assert virtual_device("h100").name == "NVIDIA H100 80GB HBM3"


def test_each_listed_name_leads_to_its_device() -> None:
    listed = list_devices()
    assert len(listed) == len(rows())
    for name, device in listed.items():
        assert name.startswith(VIRTUAL_PREFIX)
        assert virtual_device(name) == device


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("virtual:h20", "device 'virtual:h20' is unknown; use cuda:N or virtual:NAME; did you mean virtual:h200"),
        ("rtx409", "device 'rtx409' is unknown; use cuda:N or virtual:NAME; did you mean virtual:rtx4090"),
        ("tpu", "device 'tpu' is unknown; use cuda:N or virtual:NAME; known: v100, v100-16gb,"),
        ("", "device '' is unknown; use cuda:N or virtual:NAME; known: v100, v100-16gb,"),
        ("cuda:x", "device 'cuda:x' is unknown; use cuda:N or virtual:NAME; "),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        virtual_device(name)
    assert str(refusal.value).startswith(message)


def test_a_product_is_known_by_its_exact_name_only() -> None:
    assert known_device("Tesla T4") == virtual_device("t4")
    # One row, another of its names: the name stays the driver's.
    assert known_device("A100-SXM4-40GB") == replace(virtual_device("a100-40gb"), name="A100-SXM4-40GB")
    for other in ("NVIDIA A10G", "NVIDIA H200 NVL", "nvidia h200", "H200", "NVIDIA H200 ", ""):
        assert known_device(other) is None


@pytest.mark.parametrize(
    ("name", "index"),
    [("cuda:0", 0), ("CUDA:17", 17), (" cuda:3 ", 3)]
    + [(name, None) for name in ("cuda", "cuda:", "cuda:-1", "cuda:1.5", "cuda:x", "cuda:\u0663", "virtual:h200", "0")],
)
def test_a_cuda_name_gives_its_index(name: str, index: int | None) -> None:
    assert cuda_index(name) == index


def test_a_slice_of_a_product_is_noted() -> None:
    t4 = virtual_device("t4")
    assert sm_count_note(t4) is None
    assert sm_count_note(replace(t4, sms=4)) == (
        "Tesla T4 shows 4 of its 40 SMs (an MPS share or a green context); waves are counted on 4"
    )
    a100 = virtual_device("a100-40gb")
    assert sm_count_note(replace(a100, name="NVIDIA A100-SXM4-40GB MIG 3g.20gb", sms=42)) == (
        "NVIDIA A100-SXM4-40GB shows 42 of its 108 SMs (a MIG instance); waves are counted on 42"
    )
    assert sm_count_note(replace(t4, name="NVIDIA Unheard Of", sms=4)) is None
