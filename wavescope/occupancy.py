"""How many CTAs of a kernel fit on an SM, and what keeps the next one out.

The rules are the CUDA occupancy calculator's (cuda_occupancy.h of the CUDA 13 runtime),
with shared memory and L1 split as the kernel needs; tests/test_occupancy.py compares every
limit with that header.  Clusters are not modelled: ask the driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wavescope.device import Device
from wavescope.errors import DeviceError, ShapeError

Limiter = Literal["shared memory", "registers", "warps", "CTAs", "barriers"]

WARP_THREADS = 32
MAX_THREADS_PER_CTA = 1024
# A thread can address 255 registers, and the 256 of its allocation are what some profilers report.
MAX_REGISTERS_PER_THREAD = 256
REGISTER_UNIT = 256  # registers are handed to a warp in units of 256
SUB_PARTITIONS = 4  # each has a quarter of the SM's registers, and a warp lives in one of them
OLDEST_CAPABILITY = (7, 0)
UNLIMITED = 2**31 - 1  # the resource is not used, so it limits nothing


@dataclass(frozen=True)
class Resources:
    """What a kernel needs: threads a CTA, registers a thread, shared memory a CTA (static and dynamic).

    `barriers` are the named barriers a CTA uses; __syncthreads() is one.

    Raises: ShapeError for less than one thread, or a negative amount of anything.
    """

    threads: int
    registers: int
    shared_bytes: int
    barriers: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1 or min(self.registers, self.shared_bytes, self.barriers) < 0:
            raise ShapeError(f"{self} cannot be a kernel's; threads start at 1, the rest at 0")

    @property
    def warps(self) -> int:
        """Warps a CTA."""
        return -(-self.threads // WARP_THREADS)


@dataclass(frozen=True)
class Occupancy:
    """CTAs resident on an SM at once, and the resource that runs out first.

    Where several run out together, `limiter` is the first of the Limiter list.
    """

    count: int
    limiter: Limiter


def ctas_per_sm(resources: Resources, device: Device) -> Occupancy:
    """How many CTAs fit on one SM; a count of 0 means that the kernel cannot run there.

    Raises: DeviceError below compute capability 7.0.
    """
    found = limits(resources, device)
    limiter = min(found, key=found.__getitem__)
    return Occupancy(found[limiter], limiter)


def places(resources: Resources, device: Device) -> int:
    """Room for resident CTAs on the whole device, without clusters."""
    return device.sms * ctas_per_sm(resources, device).count


def limits(resources: Resources, device: Device) -> dict[Limiter, int]:
    """CTAs an SM has room for by each resource on its own; UNLIMITED where none of it is used.

    Raises: DeviceError below compute capability 7.0.
    """
    if device.compute_capability < OLDEST_CAPABILITY:
        major, minor = device.compute_capability
        raise DeviceError(f"{device.name} has compute capability {major}.{minor}; occupancy is known from 7.0 on")
    return {
        "shared memory": _by_shared_memory(resources, device),
        "registers": _by_registers(resources, device),
        "warps": _by_warps(resources, device),
        "CTAs": device.ctas_per_sm,
        "barriers": _by_barriers(resources, device),
    }


def _by_shared_memory(resources: Resources, device: Device) -> int:
    if resources.shared_bytes > device.shared_per_block:
        return 0
    unit = 256 if device.compute_capability < (8, 0) else 128
    allocated = -(-(resources.shared_bytes + device.shared_reserved_per_block) // unit) * unit
    return device.shared_per_sm // allocated if allocated else UNLIMITED


def _registers_per_warp(resources: Resources) -> int:
    return -(-resources.registers * WARP_THREADS // REGISTER_UNIT) * REGISTER_UNIT


def _registers_per_cta(resources: Resources) -> int:
    """What a launch needs free: as many warps in each sub-partition as in the fullest."""
    return _registers_per_warp(resources) * -(-resources.warps // SUB_PARTITIONS) * SUB_PARTITIONS


def _by_registers(resources: Resources, device: Device) -> int:
    if resources.registers == 0:
        return UNLIMITED
    if resources.registers > MAX_REGISTERS_PER_THREAD:
        return 0
    # The limit of a CTA needs no check of its own: from 7.0 on it is the SM's, 65,536.
    warps_per_partition = device.registers_per_sm // SUB_PARTITIONS // _registers_per_warp(resources)
    return warps_per_partition * SUB_PARTITIONS // resources.warps


def _by_warps(resources: Resources, device: Device) -> int:
    if resources.threads > MAX_THREADS_PER_CTA:
        return 0
    return device.threads_per_sm // WARP_THREADS // resources.warps


def _barriers_per_sm(device: Device) -> int:
    doubled = device.compute_capability[0] == 9 or device.compute_capability == (10, 0)
    return device.ctas_per_sm * (2 if doubled else 1)


def _by_barriers(resources: Resources, device: Device) -> int:
    # Before Hopper the calculator does not count them.
    if resources.barriers == 0 or device.compute_capability < (9, 0):
        return UNLIMITED
    return _barriers_per_sm(device) // resources.barriers


def require_fit(what: str, resources: Resources, device: Device) -> Occupancy:
    """The occupancy of a kernel that fits; `what` names it in the message ('tile 256x256x128').

    Raises: DeviceError where not even one CTA fits, with the need, what there is, and a way out.
    """
    occupancy = ctas_per_sm(resources, device)
    if occupancy.count == 0:
        raise DeviceError(f"{what} needs {_shortage(occupancy.limiter, resources, device)}")
    return occupancy


def _shortage(limiter: Limiter, resources: Resources, device: Device) -> str:
    the_device = f"the {device.name.removeprefix('NVIDIA ')}"
    if limiter == "shared memory":
        return (
            f"{resources.shared_bytes} bytes of shared memory a CTA; {the_device} has {device.shared_per_block}; "
            "use a smaller tile or fewer stages"
        )
    if limiter == "registers" and resources.registers > MAX_REGISTERS_PER_THREAD:
        return f"{resources.registers} registers a thread; a thread can have 255; use a smaller tile or more threads"
    if limiter == "registers":
        return (
            f"{_registers_per_cta(resources)} registers a CTA ({resources.registers} a thread, {resources.threads} "
            f"threads); {the_device} has {device.registers_per_sm}; use a smaller tile or fewer threads"
        )
    if limiter == "warps":
        most = min(MAX_THREADS_PER_CTA, device.threads_per_sm)
        return f"{resources.threads} threads a CTA; {the_device} allows {most}; use fewer warps"
    return f"{resources.barriers} barriers a CTA; {the_device} has {_barriers_per_sm(device)} an SM; use fewer"
