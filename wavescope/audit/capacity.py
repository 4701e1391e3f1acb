"""Capacity: how many CTAs of a launch the GPU holds at once, and how many of its SMs they reach."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from wavescope.audit.launches import NULL, ProfiledDevice
from wavescope.device import Device, known_device, rows
from wavescope.errors import DeviceError, ShapeError
from wavescope.occupancy import WARP_THREADS, Resources, ctas_per_sm

FROM_OCCUPANCY = "computed from registers, shared memory and block size"
FROM_DRIVER = "max active clusters, as the driver answered"
FROM_GRIDS = "the largest grid of a persistent kernel with such clusters in this profile"
FROM_DIVISION = "estimate: SMs divided by the cluster size; GPCs of unequal size hold fewer"

# Rates of the tensor cores beside that for bf16: NVIDIA H100 and A100 Tensor Core GPU whitepapers
# (2022, 2020); H100: 989.4 TFLOP/s bf16, 1978.9 fp8, 494.7 tf32; A100: 312 bf16, 156 tf32.
_RATE_TO_BF16 = {"fp8": 2.0, "tf32": 0.5}


@dataclass(frozen=True)
class Needs:
    """What one CTA needs and how it is clustered; NULL where the profile is silent."""

    threads: int
    registers: int
    shared_bytes: int
    cluster: int = 1  # CTAs a cluster
    max_active_clusters: int = NULL


@dataclass(frozen=True)
class Capacity:
    """CTAs resident at once.

    `ctas_per_sm` is None where the profile lacks what it follows from; then one is assumed
    in `ctas`.  `reachable_sms` are those that CTAs of this cluster size can use at the same
    time.  `source` says where `ctas` is from; `is_estimate` where that is no fact.
    """

    sms: int
    ctas_per_sm: int | None
    ctas: int
    reachable_sms: int
    source: str
    is_estimate: bool


@functools.cache
def machine(profiled: ProfiledDevice, sms: int) -> Device | None:
    """What occupancy is computed with: the profile's facts, completed by those of its compute capability.

    Limits per SM belong to the compute capability, so any product of the device table that
    has it will do.  None where neither the profile nor the table settles them.
    """
    product = known_device(profiled.name) if profiled.name else None
    template = product or next(
        (row.device for row in rows() if row.device.compute_capability == profiled.compute_capability), None
    )
    if template is None:
        return None
    return replace(
        template,
        name=profiled.name or template.name,
        sms=sms,
        registers_per_sm=profiled.registers_per_sm or template.registers_per_sm,
        shared_per_sm=profiled.shared_per_sm or template.shared_per_sm,
        shared_per_block=max(profiled.shared_per_block or 0, template.shared_per_block),
        threads_per_sm=profiled.threads_per_sm or template.threads_per_sm,
        peak_tflops=product.peak_tflops if product else {},
    )


def peak_flop_per_ns(profiled: ProfiledDevice, dtype: str | None, sms: int) -> float | None:
    """The datasheet's dense rate for operands of `dtype` on `sms` SMs; None for an unknown product or type."""
    product = known_device(profiled.name) if profiled.name else None
    if product is None or dtype is None:
        return None
    tflops = product.peak_tflops.get(dtype)
    if tflops is None and dtype in _RATE_TO_BF16 and "bf16" in product.peak_tflops:
        tflops = _RATE_TO_BF16[dtype] * product.peak_tflops["bf16"]
    return None if tflops is None else tflops * 1e3 * sms / product.sms


def occupancy(needs: Needs, profiled: ProfiledDevice, sms: int) -> int | None:
    """CTAs that fit on one SM; None where the profile says too little.

    What ran has fitted, so a need that is above the limits (counters that include the
    driver's own share) gives one.
    """
    device = machine(profiled, sms)
    if device is None or min(needs.threads, needs.registers, needs.shared_bytes) < 0 or needs.threads == 0:
        return None
    try:
        found = ctas_per_sm(Resources(needs.threads, needs.registers, needs.shared_bytes), device)
    except (DeviceError, ShapeError):
        return None
    return max(1, found.count)


def occupancy_share(needs: Needs, profiled: ProfiledDevice, room: Capacity, blocks: int) -> float:
    """Resident warps / warps an SM has room for, with no more blocks than there are; NaN where unknown.

    What PyTorch's traces call "est. achieved occupancy", which they give as 0 for kernels
    above 48 KB of shared memory.
    """
    device = machine(profiled, room.sms)
    if device is None or room.ctas_per_sm is None or device.threads_per_sm < WARP_THREADS:
        return float("nan")
    warps = -(-needs.threads // WARP_THREADS)
    return min(room.ctas_per_sm, blocks / room.sms) * warps / (device.threads_per_sm // WARP_THREADS)


def capacity(needs: Needs, profiled: ProfiledDevice, sms: int, seen_clusters: int = 0) -> Capacity:
    """How many CTAs fit at once on `sms` SMs.

    `seen_clusters` is the largest number of clusters of this size that a persistent kernel
    of the profile launched, 0 for none: such a kernel launches as many as fit.
    """
    fitting = occupancy(needs, profiled, sms)
    each = fitting or 1
    size = max(1, needs.cluster)
    if size == 1:
        return Capacity(sms, fitting, sms * each, sms, FROM_OCCUPANCY, is_estimate=fitting is None)
    if needs.max_active_clusters > 0:
        clusters, source, is_estimate = needs.max_active_clusters, FROM_DRIVER, False
    elif seen_clusters > 0:
        clusters, source, is_estimate = seen_clusters, FROM_GRIDS, True
    else:
        clusters, source, is_estimate = max(1, sms * each // size), FROM_DIVISION, True
    ctas = clusters * size
    return Capacity(sms, fitting, ctas, min(sms, max(1, ctas // each)), source, is_estimate)
