"""Where a run happens: a CUDA device, or a virtual one and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

from wavescope import cuda_device
from wavescope.device import CUDA_PREFIX, VIRTUAL_PREFIX, Device, cuda_index, virtual_device
from wavescope.errors import DeviceError, UsageError

DEFAULT_VIRTUAL = VIRTUAL_PREFIX + "h200"


@dataclass(frozen=True)
class Target:
    """A device; `cuda_index` is None for a virtual one, and `reason` then says why it is virtual."""

    device: Device
    cuda_index: int | None
    reason: str = ""


def choose(name: str | None) -> Target:
    """The device named by --device, else cuda:0, else the virtual H200 where there is no GPU.

    Nothing falls back where a device was named, or where a GPU is there but cannot be used.

    Raises: UsageError for an unknown name; DeviceError for a GPU that is not there or
    cannot be used.
    """
    if name is None:
        if cuda_device.gpu_present():
            return Target(cuda_device.query(0), 0)
        return Target(virtual_device(DEFAULT_VIRTUAL), None, "no CUDA device was found")
    index = cuda_index(name)
    if index is not None:
        try:
            return Target(cuda_device.query(index), index)
        except DeviceError as error:
            raise DeviceError(f"--device {name}: {error}") from error
    if name.strip().lower().startswith(CUDA_PREFIX.rstrip(":")):
        raise UsageError(f'--device: "{name}" names no CUDA device; write cuda:N, for example cuda:0')
    return Target(virtual_device(name), None, f"--device {name} asks for it")
