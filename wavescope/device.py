"""The device: what the driver says of it, or the row of devices.csv with its exact name."""

from __future__ import annotations

import csv
import difflib
import functools
import re
from dataclasses import dataclass, replace
from importlib.resources import files

from wavescope.errors import UsageError
from wavescope.problem import DTYPES

VIRTUAL_PREFIX = "virtual:"
CUDA_PREFIX = "cuda:"
DRIVER = "driver"  # the `source` of a device that was asked rather than looked up
SEPARATOR = ";"  # between the keys, and between the product names, of one row


@dataclass(frozen=True)
class Device:
    """Facts that scheduling and reports need; units in the names.

    `sms` is the SM count of the context at hand (device, MIG slice or green context).
    `source` says where the facts are from: "driver", or the citation of the table's row.
    `peak_tflops` are the datasheet's dense rates by dtype, for printing beside the
    measured-clock peak; a dtype that is not in it has no published rate.
    """

    name: str
    compute_capability: tuple[int, int]
    sms: int
    max_clock_mhz: float
    registers_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    shared_reserved_per_block: int
    threads_per_sm: int
    ctas_per_sm: int
    l2_bytes: int
    memory_bytes: int
    memory_gb_per_s: float
    peak_tflops: dict[str, float]
    source: str


@dataclass(frozen=True)
class Row:
    """A row of devices.csv: the device, its keys (canonical first) and the names drivers give it."""

    keys: tuple[str, ...]
    names: tuple[str, ...]
    device: Device


@functools.cache
def rows() -> tuple[Row, ...]:
    """The rows of devices.csv, oldest architecture first."""
    table = files("wavescope").joinpath("data/devices.csv").read_text(encoding="utf-8")
    return tuple(_row(cells) for cells in csv.DictReader(table.splitlines()))


def _row(cells: dict[str, str]) -> Row:
    names = tuple(cells["names"].split(SEPARATOR))
    major, minor = cells["compute_capability"].split(".")
    peaks = {dtype: cells[f"peak_{dtype}_tflops"] for dtype in DTYPES}
    device = Device(
        name=names[0],
        compute_capability=(int(major), int(minor)),
        sms=int(cells["sms"]),
        max_clock_mhz=float(cells["max_clock_mhz"]),
        registers_per_sm=int(cells["registers_per_sm"]),
        shared_per_sm=int(cells["shared_per_sm"]),
        shared_per_block=int(cells["shared_per_block"]),
        shared_reserved_per_block=int(cells["shared_reserved_per_block"]),
        threads_per_sm=int(cells["threads_per_sm"]),
        ctas_per_sm=int(cells["ctas_per_sm"]),
        l2_bytes=int(cells["l2_bytes"]),
        memory_bytes=int(cells["memory_bytes"]),
        memory_gb_per_s=float(cells["memory_gb_per_s"]),
        peak_tflops={dtype: float(peak) for dtype, peak in peaks.items() if peak},
        source=cells["source"],
    )
    return Row(tuple(cells["keys"].split(SEPARATOR)), names, device)


def list_devices() -> dict[str, Device]:
    """The devices that can be simulated, by the name the command line takes ('virtual:h200')."""
    return {VIRTUAL_PREFIX + row.keys[0]: row.device for row in rows()}


def virtual_device(name: str) -> Device:
    """The table's device for 'virtual:h200' or 'h200', in any case.

    Raises: UsageError for a name that is neither a key nor an alias in devices.csv.
    """
    by_key = {key: row.device for row in rows() for key in row.keys}
    key = name.strip().lower().removeprefix(VIRTUAL_PREFIX)
    if key in by_key:
        return by_key[key]
    close = difflib.get_close_matches(key, by_key, n=3)
    known = ", ".join(by_key)
    hint = f"did you mean {' or '.join(VIRTUAL_PREFIX + match for match in close)}?" if close else f"known: {known}"
    raise UsageError(f"device '{name}' is unknown; use cuda:N or virtual:NAME; {hint}")


def known_device(product_name: str) -> Device | None:
    """The table's device that a driver calls exactly `product_name`; None for any other name.

    Close names are different products (A10 and A10G differ in SMs), so nothing is guessed.
    """
    for row in rows():
        if product_name in row.names:
            return replace(row.device, name=product_name)
    return None


def cuda_index(name: str) -> int | None:
    """N of 'cuda:N'; None for a name that is not of that form, such as 'virtual:h200'."""
    match = re.fullmatch(CUDA_PREFIX + r"(\d{1,4})", name.strip().lower(), re.ASCII)
    return int(match.group(1)) if match else None


def sm_count_note(device: Device) -> str | None:
    """A sentence where `device` has another SM count than the product of its name; None otherwise.

    MIG instances ('NVIDIA A100-SXM4-40GB MIG 3g.20gb'), MPS shares and green contexts show
    a part of the SMs.
    """
    product_name, mig, _ = device.name.partition(" MIG ")
    product = known_device(product_name)
    if product is None or product.sms == device.sms:
        return None
    cause = "a MIG instance" if mig else "an MPS share or a green context"
    return f"{product_name} shows {device.sms} of its {product.sms} SMs ({cause}); waves are counted on {device.sms}"
