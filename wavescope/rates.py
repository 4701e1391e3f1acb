"""How many operations an SM's units do a clock: the rate that peaks are counted from.

Checked on a device by tests/benchmarks/rates.py, whose loops hold nothing but the
instruction.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

from wavescope.device import Device
from wavescope.problem import Dtype


@dataclass(frozen=True)
class Rate:
    """Dense floating-point operations per clock and SM with fp32 accumulation, and where that is from."""

    compute_capability: str
    product: str
    dtype: str
    flop: int
    source: str


@functools.cache
def rates() -> tuple[Rate, ...]:
    """The rows of flop_per_clock.csv; flop 0 says that the product lacks the unit."""
    table = files("wavescope").joinpath("data/flop_per_clock.csv").read_text(encoding="utf-8")
    return tuple(
        Rate(row["compute_capability"], row["product"], row["dtype"], int(row["flop_per_clock_sm"]), row["source"])
        for row in csv.DictReader(table.splitlines())
    )


def flop_per_clock(device: Device, dtype: Dtype) -> Rate | None:
    """The rate of a device's SM for a dtype: the row with the longest product name its name holds.

    None where no rate is known; tensor cores for bf16 and fp16, FP32 lanes for fp32.
    """
    capability = ".".join(str(part) for part in device.compute_capability)
    fitting = [
        rate
        for rate in rates()
        if (rate.compute_capability, rate.dtype) == (capability, dtype) and rate.product in device.name
    ]
    best = max(fitting, key=lambda rate: len(rate.product), default=None)
    return best if best is not None and best.flop else None


_OF_MMA_SYNC = ("gemm_mma", "gemm_mma_sync")
_OF_ORDINARY_CORES = ("gemm_simt", "gemm_simt_16")

# Of the tensor cores' rate, what mma.sync is given.  H200, 2026-11: 2719 of 4096 FLOP a clock,
# where wgmma has 4095 (tests/benchmarks/rates.py); before Hopper mma.sync is all there is.
_MMA_SYNC_SHARE = {(9, 0): 2719 / 4096}


def kernel_flop_per_clock(kernel: str, device: Device, dtype: Dtype) -> float | None:
    """The rate of the instruction a kernel uses: gemm_mma's is mma.sync, gemm_simt's a multiply-add in fp32, the
    others' the SM's own.

    None where no rate is known, or mma.sync's share of it is not (sm_100).
    """
    rate = flop_per_clock(device, "fp32" if kernel in _OF_ORDINARY_CORES else dtype)
    if rate is None:
        return None
    if kernel not in _OF_MMA_SYNC:
        return float(rate.flop)
    if device.compute_capability in _MMA_SYNC_SHARE:
        return rate.flop * _MMA_SYNC_SHARE[device.compute_capability]
    return None if (10, 0) <= device.compute_capability < (12, 0) else float(rate.flop)
