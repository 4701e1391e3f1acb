"""What a profile says of its GPUs, completed where the product's name or the launches themselves settle it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wavescope.audit.launches import ProfiledDevice
from wavescope.device import known_device

FROM_RATIO = "blocks per SM"
FROM_TABLE = "device table"
_MAX_SMS = 4096  # far above any product; the largest so far has a few hundred
MAX_RATIOS = 4096  # launches looked at: they all say the same


def unknown(index: int) -> ProfiledDevice:
    """GPU `index`, of which nothing is known."""
    return ProfiledDevice(index, None, None, None, None, None, None, None, None)


def completed(device: ProfiledDevice) -> ProfiledDevice:
    """`device` with the gaps filled from the device table, where that has exactly this product.

    A MIG slice or an MPS share has the product's name and fewer SMs, so an SM count of the
    profile stays.
    """
    product = known_device(device.name) if device.name else None
    if product is None:
        return device
    return replace(
        device,
        compute_capability=device.compute_capability or product.compute_capability,
        sms=device.sms or product.sms,
        sms_source=device.sms_source if device.sms else FROM_TABLE,
        registers_per_sm=device.registers_per_sm or product.registers_per_sm,
        shared_per_sm=device.shared_per_sm or product.shared_per_sm,
        shared_per_block=device.shared_per_block or product.shared_per_block,
        threads_per_sm=device.threads_per_sm or product.threads_per_sm,
        max_clock_mhz=device.max_clock_mhz or product.max_clock_mhz,
    )


def with_sms_of_ratio(device: ProfiledDevice, ratios: Sequence[tuple[float, float]]) -> ProfiledDevice:
    """`device` with the one SM count that explains every (blocks, blocks per SM) of its launches, if there is one.

    PyTorch's trace prints the second for each launch; the printed digits (six decimals, or
    six significant ones) leave room, which shrinks with the ratio's size.
    """
    if device.sms is not None or not ratios:
        return device
    blocks, ratio = np.array(ratios).T
    slack = 1e-6 / ratio + 5e-6  # relative
    quotient = blocks / ratio
    sms = round(min(float(quotient[slack.argmin()]), _MAX_SMS + 1))
    agrees = np.abs(quotient - sms) <= slack * sms
    # a few launches may be odd; a count that the rest contradicts is no count
    if not 1 <= sms <= _MAX_SMS or agrees.mean() < 0.9:
        return device
    return replace(device, sms=sms, sms_source=FROM_RATIO)
