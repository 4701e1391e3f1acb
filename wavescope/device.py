"""The device: what the driver says of it, or the row of devices.csv with its exact name."""

from __future__ import annotations

from dataclasses import dataclass


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
