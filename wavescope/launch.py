"""The boundary to the GPU: load cubins, allocate, launch, wait, and time.

Everything of CuPy and NVTX stands here; the rest of the package sees pointers and numbers.
A kernel that does not end is reported by `wait`, which never blocks for longer than its
deadline.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.cuda_device import load_cupy
from wavescope.errors import DeviceError, LaunchError
from wavescope.nvrtc import Cubin

NVTX_DOMAIN = "wavescope"
_POLL_S = 0.0002

Argument = Any  # a CuPy array, an int (a pointer) or a NumPy scalar
Operation = Callable[["Stream"], None]


@dataclass(frozen=True)
class Function:
    """A loaded kernel and what the driver says of it.

    `ctas_per_sm` is the driver's occupancy query for `threads` and `shared_bytes` (dynamic).
    """

    name: str
    threads: int
    shared_bytes: int
    registers: int
    ctas_per_sm: int
    raw: Any


@dataclass(frozen=True)
class Stream:
    """A stream of the device at hand, and the facts to print when something on it fails."""

    raw: Any
    facts: str


def open_stream(device_index: int, facts: str) -> Stream:
    """A non-blocking stream on a device; makes that device current."""
    cupy = _cupy()
    cupy.cuda.Device(device_index).use()
    return Stream(cupy.cuda.Stream(non_blocking=True), facts)


@lru_cache(maxsize=1024)
def load(cubin: Cubin, name: str, threads: int, shared_bytes: int = 0) -> Function:
    """Load a compiled kernel, once each, for CTAs of `threads` with `shared_bytes` of dynamic shared memory.

    Raises: DeviceError where the driver refuses the cubin or its resources.
    """
    cupy = _cupy()
    try:
        raw = cupy.RawModule(path=str(cubin.path)).get_function(name)
        if shared_bytes:
            raw.max_dynamic_shared_size_bytes = shared_bytes
        resident = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(raw.kernel.ptr, threads, shared_bytes)
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise DeviceError(
            f"the driver refuses {cubin.path.name} ({error}); a driver older than NVRTC does, `wavescope doctor` tells"
        ) from None
    return Function(name, threads, shared_bytes, int(raw.num_regs), int(resident), raw)


def free_bytes() -> int:
    """Device memory that can still be allocated."""
    free, _ = _cupy().cuda.runtime.memGetInfo()
    return int(free)


def allocate(num_bytes: int) -> Any:
    """`num_bytes` of device memory, not initialised; freed with the last reference.

    Raises: DeviceError naming what was asked for and what is free.
    """
    cupy = _cupy()
    try:
        return cupy.empty(num_bytes, np.uint8)
    except cupy.cuda.memory.OutOfMemoryError:
        raise DeviceError(f"{num_bytes} bytes of device memory do not fit; {free_bytes()} are free") from None


def fill_bytes(buffer: Any, value: int, stream: Stream) -> None:
    """Set every byte of a buffer, in stream order."""
    buffer.data.memset_async(value, buffer.nbytes, stream.raw)


def upload(values: NDArray[Any], stream: Stream) -> Any:
    """The values in device memory of their own, once the stream has come so far.

    Raises: as allocate.
    """
    buffer = allocate(values.nbytes)
    with _driver_errors(stream):
        buffer.set(np.ascontiguousarray(values).view(np.uint8).ravel(), stream=stream.raw)
    return buffer


def download(buffer: Any, dtype: np.dtype[Any], stream: Stream) -> NDArray[Any]:
    """The buffer on the host, as an array of `dtype`; waits for the copy."""
    with _driver_errors(stream):
        return np.frombuffer(buffer.get(stream=stream.raw).tobytes(), dtype)


def launch(function: Function, grid: Sequence[int], arguments: Sequence[Argument], stream: Stream) -> None:
    """Launch a kernel; returns at once."""
    with _driver_errors(stream), stream.raw:
        function.raw(tuple(grid), (function.threads,), tuple(arguments), shared_mem=function.shared_bytes)


def capture(operations: Sequence[Operation], stream: Stream) -> Any:
    """Operations on a stream, recorded as one CUDA graph."""
    with _driver_errors(stream), stream.raw:
        stream.raw.begin_capture()
        for operation in operations:
            operation(stream)
        return stream.raw.end_capture()


def timed_ns(graph: Any, lead: Operation, deadline_s: float, stream: Stream) -> float:
    """Event time of one graph replay, queued behind `lead` so that no launch gap counts.

    Raises: LaunchError past the deadline, or where the event time is absurd.
    """
    cupy = _cupy()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    with _driver_errors(stream):
        lead(stream)
        begin.record(stream.raw)
        graph.launch(stream.raw)
        end.record(stream.raw)
    wait(stream, deadline_s)
    return _elapsed_ns(begin, end, deadline_s, stream)


def replay_ns(graph: Any, count: int, deadline_s: float, stream: Stream, meanwhile: Callable[[], None]) -> list[float]:
    """Event times of `count` replays of a graph, back to back; `meanwhile` is called while they run.

    Raises: LaunchError past the deadline.
    """
    cupy = _cupy()
    events = [cupy.cuda.Event() for _ in range(count + 1)]
    with _driver_errors(stream):
        events[0].record(stream.raw)
        for event in events[1:]:
            graph.launch(stream.raw)
            event.record(stream.raw)
    wait(stream, deadline_s, meanwhile)
    return [_elapsed_ns(*pair, deadline_s, stream) for pair in itertools.pairwise(events)]


def wait(stream: Stream, deadline_s: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Return when the stream is idle; until then call `meanwhile` again and again.

    Raises: LaunchError past the deadline, with the launch's facts: the kernel may run on,
    so the process must end.
    """
    cupy = _cupy()
    with _driver_errors(stream):
        event = cupy.cuda.Event(disable_timing=True)
        event.record(stream.raw)
        begin = time.monotonic()
        while not event.done:
            if time.monotonic() - begin > deadline_s:
                raise LaunchError(f"no end after {deadline_s:.1f} s, given up: {stream.facts}")
            meanwhile()
            time.sleep(_POLL_S)


@contextmanager
def named_range(name: str) -> Iterator[None]:
    """An NVTX range in wavescope's own domain, where nvtx is installed."""
    try:
        import nvtx
    except ImportError:
        yield
        return
    with nvtx.annotate(name, domain=NVTX_DOMAIN):
        yield


def _elapsed_ns(begin: Any, end: Any, deadline_s: float, stream: Stream) -> float:
    elapsed_ns = float(_cupy().cuda.get_elapsed_time(begin, end)) * 1e6
    if not 0 < elapsed_ns < deadline_s * 1e9:
        raise LaunchError(f"an event time of {elapsed_ns:.0f} ns is impossible, so times mean nothing: {stream.facts}")
    return elapsed_ns


@lru_cache(maxsize=1)
def _cupy() -> Any:
    return load_cupy()


@contextmanager
def _driver_errors(stream: Stream) -> Iterator[None]:
    cupy = _cupy()
    try:
        yield
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise LaunchError(f"{error}: {stream.facts}") from None
