"""`wavescope devices`: the devices to simulate, and the CUDA devices of this machine."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavescope import cuda_device
from wavescope.cli.console import make_console
from wavescope.device import CUDA_PREFIX, Device, list_devices, sm_count_note
from wavescope.errors import DeviceError

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1
KIB = 1024
MIB = 1024**2
GIB = 1024**3


def devices(
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the devices --device takes: virtual ones, and the GPUs of this machine."""
    virtual = list_devices()
    real, missing = _real_devices()
    if json_output:
        print(json.dumps(_document(virtual, real, missing), indent=2))
    else:
        _print_tables(virtual, real, missing)


def _real_devices() -> tuple[dict[str, Device], str | None]:
    """The GPUs by name, and the reason where there are none."""
    try:
        return {f"{CUDA_PREFIX}{index}": cuda_device.query(index) for index in range(cuda_device.count())}, None
    except DeviceError as error:
        return {}, str(error)


def _document(virtual: dict[str, Device], real: dict[str, Device], missing: str | None) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "virtual": [{"device": name, **dataclasses.asdict(device)} for name, device in virtual.items()],
        "cuda": [
            {
                "device": name,
                **dataclasses.asdict(device),
                "kernel_timeout": cuda_device.kernel_timeout(index),
                "note": sm_count_note(device),
            }
            for index, (name, device) in enumerate(real.items())
        ],
        "cuda_missing": missing,
    }


def _print_tables(virtual: dict[str, Device], real: dict[str, Device], missing: str | None) -> None:
    console = make_console(soft_wrap=True)
    console.print("Virtual devices (SIMULATED; the products' facts, their sources with --json)")
    console.print(_table(virtual))
    if missing is not None:
        make_console().print(f"No CUDA device: {missing}")  # in lines that fit
        return
    console.print("CUDA devices of this machine (facts from the driver, peaks from datasheets)")
    console.print(_table(real))
    for index, (name, device) in enumerate(real.items()):
        console.print(f"{name} is {device.name}")
        note = sm_count_note(device)
        if note is not None:
            console.print(f"{name}: {note}")
        if cuda_device.kernel_timeout(index):
            console.print(f"{name}: the driver ends kernels that run for seconds (it may drive a display)")


def _table(listed: dict[str, Device]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    table.add_column("device", no_wrap=True)
    for heading in ("cc", "SMs", "MHz", "shared\nKiB/SM", "L2\nMiB", "memory\nGiB", "GB/s", "peak\nTFLOP/s"):
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    for name, device in listed.items():
        table.add_row(name, *_cells(device))
    return table


def _cells(device: Device) -> list[str]:
    major, minor = device.compute_capability
    return [
        f"{major}.{minor}",
        str(device.sms),
        f"{device.max_clock_mhz:.0f}",
        f"{device.shared_per_sm / KIB:.0f}",
        f"{device.l2_bytes / MIB:.4g}",
        f"{device.memory_bytes / GIB:.0f}",
        f"{device.memory_gb_per_s:.0f}",
        _peak(device),
    ]


def _peak(device: Device) -> str:
    """The dense tensor-core rate, bf16 where the device has it."""
    for dtype in ("bf16", "fp16"):
        if dtype in device.peak_tflops:
            return f"{device.peak_tflops[dtype]:.4g} {dtype}"
    return "-"
