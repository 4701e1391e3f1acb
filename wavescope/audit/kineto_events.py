"""The events of a PyTorch (Kineto) trace that tell of kernels, as columns; everything else is counted and let go."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import inf, nan, prod
from typing import Any

import msgspec

from wavescope.audit.extents import NO_EXTENTS, Extents, block_extents, grid_extents
from wavescope.audit.gpus import MAX_RATIOS
from wavescope.audit.kineto_values import decoded, times
from wavescope.audit.launches import NULL
from wavescope.audit.quality import MAX_KERNEL_NS
from wavescope.audit.table import wholes

_ABSENT = msgspec.Raw(b"")
_KERNEL = (b'"kernel"', b'"Kernel"')
_OPERATOR = (b'"cpu_op"', b'"Operator"')
_CALL = (b'"cuda_runtime"', b'"cuda_driver"', b'"Runtime"')
_WINDOW = b'"Trace"'
_MAX_CATEGORIES = 200  # real traces have a dozen
_MAX_WINDOWS = 1000
_MAX_ID = 2**62
_MAX_REGISTERS = 1024  # a thread; no architecture so far has more than 255


class Event(msgspec.Struct, gc=False):
    """One element of traceEvents; every field as it stands in the file."""

    cat: msgspec.Raw = _ABSENT
    name: msgspec.Raw = _ABSENT
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


_kernel_args = msgspec.json.Decoder(list[_KernelArgs])
_operator_args = msgspec.json.Decoder(list[_OperatorArgs])
_call_args = msgspec.json.Decoder(list[_CallArgs])


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
        self._threads: dict[bytes, int] = {}  # a process has one trace, so a thread's id is enough

    def add(self, events: Iterable[Event]) -> None:
        """Sort `events` into the columns."""
        by_category: defaultdict[bytes, list[Event]] = defaultdict(list)
        for event in events:
            by_category[bytes(event.cat)].append(event)
        for category, some in by_category.items():
            if category in self.categories or len(self.categories) < _MAX_CATEGORIES:
                self.categories[category] = self.categories.get(category, 0) + len(some)
            if category in _KERNEL:
                self._add_kernels(some)
            elif category in _OPERATOR:
                self._add_operators(some)
            elif category in _CALL:
                self._add_calls(some)
            elif category == _WINDOW:
                self._add_windows(some)

    def forget_links(self) -> None:
        """Give back the memory of operators and calls."""
        self.operators, self.calls = Operators(), Calls()

    def forget_kernels(self) -> None:
        """Give back the memory of kernels."""
        self.kernels = Kernels()

    def _add_kernels(self, events: list[Event]) -> None:
        kernels, names = self.kernels, self.names
        all_args = decoded(_kernel_args, [event.args for event in events], _KernelArgs)
        kernels.name.extend([names.setdefault(bytes(event.name), len(names)) for event in events])
        kernels.start_ns.extend([NULL if start is None else start for start in times(event.ts for event in events)])
        kernels.duration_ns.extend([_duration(duration) for duration in times(event.dur for event in events)])
        devices = wholes([args.device for args in all_args])
        grids = [grid_extents(args.grid) for args in all_args]
        blocks = [block_extents(args.block) for args in all_args]
        kernels.device.extend(devices)
        kernels.grid.extend(chain.from_iterable(grids))
        kernels.block.extend(chain.from_iterable(blocks))
        kernels.stream.extend(wholes([args.stream for args in all_args]))
        kernels.registers.extend(wholes([args.registers for args in all_args], 0, _MAX_REGISTERS))
        kernels.shared.extend(wholes([args.shared for args in all_args]))
        kernels.graph.extend(wholes([args.graph for args in all_args], 1))
        kernels.correlation.extend(wholes([args.correlation for args in all_args], 1, _MAX_ID))
        kernels.external.extend(_external(all_args))
        kernels.occupancy.extend([_percent(args.occupancy) for args in all_args])
        wanted = {device for device in set(devices) if len(self.ratios.setdefault(device, [])) < MAX_RATIOS}
        for device, grid, block, args in zip(devices, grids, blocks, all_args, strict=True) if wanted else ():
            ratios = self.ratios[device]
            if device not in wanted:
                continue
            per_sm = _blocks_per_sm(args, block)
            if per_sm and grid != NO_EXTENTS:
                ratios.append((float(prod(grid)), per_sm))

    def _add_operators(self, events: list[Event]) -> None:
        starts, durations = times(event.ts for event in events), times(event.dur for event in events)
        begins, ends, timed = [], [], []
        for event, start, duration in zip(events, starts, durations, strict=True):
            if start is not None and duration is not None:
                begins.append(start)
                ends.append(start + duration)
                timed.append(event)
        events = timed
        all_args = decoded(_operator_args, [event.args for event in events], _OperatorArgs)
        operators, signatures = self.operators, self.signatures
        operators.external.extend(_external(all_args))
        operators.thread.extend(self._threads_of(events))
        operators.begin_ns.extend(begins)
        operators.end_ns.extend(ends)
        operators.signature.extend(
            signatures.setdefault((bytes(event.name), bytes(args.dims) or bytes(args.old_dims)), len(signatures))
            for event, args in zip(events, all_args, strict=True)
        )

    def _add_calls(self, events: list[Event]) -> None:
        # cudaLaunchKernelExC, cuLaunchKernel, hipModuleLaunchKernel, cudaGraphLaunch, ...
        launching = [event for event in events if b"aunch" in bytes(event.name)]
        all_args = decoded(_call_args, [event.args for event in launching], _CallArgs)
        calls, starts, threads = self.calls, times(event.ts for event in launching), self._threads_of(launching)
        correlations = wholes([args.correlation for args in all_args], 1, _MAX_ID)
        for event, correlation, start, thread in zip(launching, correlations, starts, threads, strict=True):
            if correlation != NULL and start is not None:
                calls.correlation.append(correlation)
                calls.thread.append(thread)
                calls.start_ns.append(start)
                calls.graph.append(b"GraphLaunch" in bytes(event.name))

    def _add_windows(self, events: list[Event]) -> None:
        for start, duration in zip(times(e.ts for e in events), times(e.dur for e in events), strict=True):
            if start is not None and duration is not None and len(self.windows) < _MAX_WINDOWS:
                self.windows.append((start, start + duration))

    def _threads_of(self, events: list[Event]) -> list[int]:
        """A number for the thread of each event."""
        threads = self._threads
        return [threads.setdefault(bytes(event.tid), len(threads)) for event in events]


def _external(all_args: Sequence[_KernelArgs | _OperatorArgs]) -> list[int]:
    """The external ids, of either spelling."""
    return wholes([args.external if args.external is not None else args.old_external for args in all_args], 1, _MAX_ID)


def _duration(duration: int | None) -> int:
    return duration if duration is not None and 0 <= duration <= MAX_KERNEL_NS else NULL


def _percent(value: object) -> float:
    return value if isinstance(value, (int, float)) and 0 <= value <= 100 else nan


def _blocks_per_sm(args: _KernelArgs, block: Extents) -> float:
    """Blocks divided by SMs, as the trace has it, or by way of warps in the oldest traces; 0 where it is not there."""
    if isinstance(args.blocks_per_sm, (int, float)):
        per_sm = float(args.blocks_per_sm)
    elif isinstance(args.warps_per_sm, (int, float)) and block != NO_EXTENTS:
        per_sm = args.warps_per_sm / -(-prod(block) // 32)
    else:
        return 0.0
    return per_sm if 0 < per_sm < inf else 0.0
