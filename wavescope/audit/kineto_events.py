"""The events of a PyTorch (Kineto) trace that tell of kernels, as columns; everything else is counted and let go."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from wavescope.audit.gpus import MAX_RATIOS
from wavescope.audit.kineto_values import decoded, extents, nanoseconds, plain
from wavescope.audit.launches import NULL
from wavescope.audit.table import whole

_ABSENT = msgspec.Raw(b"")
_MAX_CATEGORIES = 200  # real traces have a dozen
MAX_KERNEL_NS = 86_400 * 10**9  # a kernel that runs for a day is a wrong number


class Event(msgspec.Struct, gc=False):
    """One element of traceEvents; every field as it stands in the file."""

    cat: msgspec.Raw = _ABSENT
    name: msgspec.Raw = _ABSENT
    pid: msgspec.Raw = _ABSENT
    tid: msgspec.Raw = _ABSENT
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: msgspec.Raw = _ABSENT


class _KernelArgs(
    msgspec.Struct,
    gc=False,
    rename={
        "external": "External id",
        "old_external": "external id",
        "registers": "registers per thread",
        "shared": "shared memory",
        "blocks_per_sm": "blocks per SM",
        "warps_per_sm": "warps per SM",
        "occupancy": "est. achieved occupancy %",
        "graph": "graph id",
    },
):
    device: Any = None
    stream: Any = None
    correlation: Any = None
    external: Any = None
    old_external: Any = None
    registers: Any = None
    shared: Any = None
    grid: Any = None
    block: Any = None
    blocks_per_sm: Any = None
    warps_per_sm: Any = None
    occupancy: Any = None
    graph: Any = None


class _OperatorArgs(
    msgspec.Struct,
    gc=False,
    rename={"external": "External id", "old_external": "external id", "dims": "Input Dims", "old_dims": "Input dims"},
):
    external: Any = None
    old_external: Any = None
    dims: msgspec.Raw = _ABSENT
    old_dims: msgspec.Raw = _ABSENT


class _CallArgs(msgspec.Struct, gc=False):
    correlation: Any = None


_kernel_args = msgspec.json.Decoder(_KernelArgs)
_operator_args = msgspec.json.Decoder(_OperatorArgs)
_call_args = msgspec.json.Decoder(_CallArgs)


def _integers() -> array[int]:
    return array("q")


def _indices() -> array[int]:
    return array("i")


@dataclass
class Kernels:
    """A column for each fact of a kernel event; `grid` and `block` hold three numbers a kernel."""

    name: array[int] = field(default_factory=_indices)
    device: array[int] = field(default_factory=_integers)
    stream: array[int] = field(default_factory=_integers)
    start_ns: array[int] = field(default_factory=_integers)
    duration_ns: array[int] = field(default_factory=_integers)
    grid: array[int] = field(default_factory=_integers)
    block: array[int] = field(default_factory=_integers)
    registers: array[int] = field(default_factory=_integers)
    shared: array[int] = field(default_factory=_integers)
    graph: array[int] = field(default_factory=_integers)
    correlation: array[int] = field(default_factory=_integers)
    external: array[int] = field(default_factory=_integers)
    occupancy: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class Operators:
    """A column for each fact of a framework operator; `signature` says which name and shapes."""

    external: array[int] = field(default_factory=_integers)
    thread: array[int] = field(default_factory=_indices)
    begin_ns: array[int] = field(default_factory=_integers)
    end_ns: array[int] = field(default_factory=_integers)
    signature: array[int] = field(default_factory=_indices)


@dataclass
class Calls:
    """A column for each fact of a call that launched something; `graph` is 1 where that was a graph."""

    correlation: array[int] = field(default_factory=_integers)
    thread: array[int] = field(default_factory=_indices)
    start_ns: array[int] = field(default_factory=_integers)
    graph: array[int] = field(default_factory=lambda: array("b"))


class Events:
    """What is kept of the events seen so far."""

    def __init__(self) -> None:
        self.kernels = Kernels()
        self.operators = Operators()
        self.calls = Calls()
        self.windows: list[tuple[int, int]] = []
        self.categories: dict[bytes, int] = {}
        self.names: dict[bytes, int] = {}  # of kernels, as they stand in the file
        self.signatures: dict[tuple[bytes, bytes], int] = {}
        self.ratios: dict[int, list[tuple[float, float]]] = {}  # device: (blocks, blocks per SM) of launches
        self.impossible = 0
        self._threads: dict[tuple[bytes, bytes], int] = {}

    def add(self, events: Iterable[Event]) -> None:
        """Sort `events` into the columns."""
        keep: dict[bytes, Callable[[Event], None]] = {
            b'"kernel"': self._add_kernel,
            b'"Kernel"': self._add_kernel,
            b'"cpu_op"': self._add_operator,
            b'"Operator"': self._add_operator,
            b'"cuda_runtime"': self._add_call,
            b'"cuda_driver"': self._add_call,
            b'"Runtime"': self._add_call,
            b'"Trace"': self._add_window,
        }
        categories = self.categories
        for event in events:
            category = bytes(event.cat)
            if category in categories:
                categories[category] += 1
            elif len(categories) < _MAX_CATEGORIES:
                categories[category] = 1
            wanted = keep.get(category)
            if wanted is not None:
                wanted(event)

    def forget_links(self) -> None:
        """Give back the memory of operators and calls."""
        self.operators, self.calls = Operators(), Calls()

    def forget_kernels(self) -> None:
        """Give back the memory of kernels."""
        self.kernels = Kernels()

    def _add_kernel(self, event: Event) -> None:
        args = decoded(_kernel_args, event.args, _KernelArgs)
        kernels = self.kernels
        kernels.name.append(self.names.setdefault(bytes(event.name), len(self.names)))
        device = whole(args.device)
        device = device if device != NULL else whole(plain(event.pid))
        kernels.device.append(device)
        kernels.stream.append(whole(args.stream))
        start = nanoseconds(bytes(event.ts))
        kernels.start_ns.append(NULL if start is None else start)
        kernels.duration_ns.append(self._duration(bytes(event.dur)))
        grid, block = extents(args.grid, "grid"), extents(args.block, "block")
        kernels.grid.extend(grid)
        kernels.block.extend(block)
        kernels.registers.append(whole(args.registers, 0, 1024))
        kernels.shared.append(whole(args.shared, 0, 2**31))
        kernels.graph.append(whole(args.graph, 1))
        kernels.correlation.append(whole(args.correlation, 1, 2**62))
        external = args.external if args.external is not None else args.old_external
        kernels.external.append(whole(external, 1, 2**62))
        occupancy = args.occupancy
        sound = isinstance(occupancy, (int, float)) and 0 <= occupancy <= 100
        kernels.occupancy.append(float(occupancy) if sound else float("nan"))
        self._add_ratio(device, grid, block, args)

    def _duration(self, raw: bytes) -> int:
        duration = nanoseconds(raw)
        if duration is not None and 0 <= duration <= MAX_KERNEL_NS:
            return duration
        self.impossible += 1
        return NULL

    def _add_ratio(self, device: int, grid: tuple[int, ...], block: tuple[int, ...], args: _KernelArgs) -> None:
        ratios = self.ratios.setdefault(device, [])
        if len(ratios) >= MAX_RATIOS or NULL in (*grid, *block):
            return
        per_sm = args.blocks_per_sm
        if per_sm is None and isinstance(args.warps_per_sm, (int, float)):
            per_sm = args.warps_per_sm / -(-block[0] * block[1] * block[2] // 32)
        if isinstance(per_sm, (int, float)) and per_sm > 0:
            ratios.append((float(grid[0] * grid[1] * grid[2]), float(per_sm)))

    def _add_operator(self, event: Event) -> None:
        args = decoded(_operator_args, event.args, _OperatorArgs)
        start, duration = nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))
        if start is None or duration is None:
            return
        operators = self.operators
        external = args.external if args.external is not None else args.old_external
        operators.external.append(whole(external, 1, 2**62))
        operators.thread.append(self._thread(event))
        operators.begin_ns.append(start)
        operators.end_ns.append(start + duration)
        signature = bytes(event.name), bytes(args.dims) or bytes(args.old_dims)
        operators.signature.append(self.signatures.setdefault(signature, len(self.signatures)))

    def _add_call(self, event: Event) -> None:
        name = bytes(event.name)
        if b"aunch" not in name:  # cudaLaunchKernelExC, cuLaunchKernel, hipModuleLaunchKernel, cudaGraphLaunch, ...
            return
        correlation = whole(decoded(_call_args, event.args, _CallArgs).correlation, 1, 2**62)
        start = nanoseconds(bytes(event.ts))
        if correlation == NULL or start is None:
            return
        calls = self.calls
        calls.correlation.append(correlation)
        calls.thread.append(self._thread(event))
        calls.start_ns.append(start)
        calls.graph.append(b"GraphLaunch" in name)

    def _add_window(self, event: Event) -> None:
        start, duration = nanoseconds(bytes(event.ts)), nanoseconds(bytes(event.dur))
        if start is not None and duration is not None and len(self.windows) < 1000:
            self.windows.append((start, start + duration))

    def _thread(self, event: Event) -> int:
        return self._threads.setdefault((bytes(event.pid), bytes(event.tid)), len(self._threads))
