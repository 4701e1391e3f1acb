"""Reads the trace that PyTorch's profiler (Kineto) writes: Chrome trace JSON, plain or gzip, of any size."""

from __future__ import annotations

import contextlib
import gc
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.audit import quality
from wavescope.audit.gpus import completed, unknown, with_sms_of_ratio
from wavescope.audit.json_stream import Member, stream
from wavescope.audit.kineto_events import Event, Events
from wavescope.audit.kineto_values import shapes, text
from wavescope.audit.launches import NULL, IntColumn, Launches, ProfiledDevice
from wavescope.audit.links import (
    AnyIntColumn,
    Spans,
    column,
    enclosing,
    ids_are_links,
    rows_of,
    small_column,
    values_at,
)
from wavescope.audit.source import Progress, pieces, refuse, shown
from wavescope.audit.table import chosen, positive, table, whole
from wavescope.errors import NoKernels

ARRAY = "traceEvents"
_AMD_KEYS = ("roctracer_version", "hip_driver_version", "hip_runtime_version", "rocprofiler-sdk_version")
_SHOWN = 8  # names in an error message


def read(path: str | Path, *, progress: Progress | None = None) -> Launches:
    """The kernels of a PyTorch trace.

    Times are the trace's own (microseconds, with up to three decimals), in ns, without
    baseTimeNanoseconds.  Shared memory is the sum of static and dynamic.  The operator is
    the one of the kernel's external id, or the innermost one around the call that
    launched it; kernels of a CUDA graph have none.

    Raises: InputError for what is no such trace, damaged or truncated, with the offset;
    NoKernels for a trace without kernel events.
    """
    where = str(path)
    events, facts, keys = Events(), dict[str, Any](), list[str]()
    found = False
    with _no_search_for_cycles():
        for part in stream(pieces(path, progress), ARRAY, Event, where):
            if isinstance(part, Member):
                keys.append(part.key)
                if part.key == "deviceProperties" or part.key in _AMD_KEYS:
                    facts[part.key] = _loaded(part.raw)
            else:
                found = True
                events.add(part.elements)
    if not found:
        names = ", ".join(shown(key) for key in keys[:_SHOWN]) or "none"
        refuse(where, f"JSON, but not a trace: no list '{ARRAY}' (members: {names})", "give a PyTorch trace")
    if not events.kernels.name:
        raise NoKernels(f"{where}: {_why_none(events)}")
    return _launches(where, events, facts)


@contextlib.contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Spare the garbage collector the millions of short-lived objects of a trace, none of which is in a cycle.

    It takes 8 % of the time to read one otherwise (tests/benchmarks/audit_speed.py).
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _loaded(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _why_none(events: Events) -> str:
    """What a trace without kernels holds, and what to do."""
    if not events.categories:
        return "a trace without events; profile while the model runs"
    counts = sorted(events.categories.items(), key=lambda item: -item[1])
    held = ", ".join(f"{shown(text(name)) if name else 'metadata'} {count}" for name, count in counts[:_SHOWN])
    if b'"cuda_profiler_range"' in events.categories:
        advice = "CUPTI range profiling was on, which replaces kernel events; profile without it"
    else:
        advice = "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] while the GPU works"
    return f"no kernels among its events ({held}); {advice}"


def _launches(where: str, events: Events, facts: dict[str, Any]) -> Launches:
    kernels = events.kernels
    correlation = column(kernels.correlation)
    call = rows_of(correlation, column(events.calls.correlation))
    call_ns = values_at(column(events.calls.start_ns), call)
    graph = _graphs(events, call, correlation)
    signature = _signatures(events, call)
    events.forget_links()
    del call, correlation
    start_ns, duration_ns = column(kernels.start_ns), column(kernels.duration_ns)
    device, stream_ids = column(kernels.device), column(kernels.stream)
    lane = quality.lanes(device, stream_ids)
    cut_ns, overlaps = quality.clip(lane, start_ns, duration_ns, graph != NULL)
    notes = [
        *quality.times(start_ns, duration_ns, events.windows),
        *overlaps,
        *quality.order_of_launch(start_ns, call_ns),
        *quality.resolution(start_ns, duration_ns),
    ]
    del lane, call_ns
    amd = _is_amd(facts)
    if amd:
        notes.append("an AMD GPU: its kernels are listed, their waves are not assessed")
    columns: dict[str, NDArray[Any]] = {
        "name": chosen([text(raw) for raw in events.names], small_column(kernels.name)),
        "operator": chosen([text(name) for name, _ in events.signatures], signature),
        "shapes": chosen([shapes(dims) for _, dims in events.signatures], signature),
        "device": device,
        "stream": stream_ids,
        "start_ns": start_ns,
        "duration_ns": cut_ns,
        "grid": column(kernels.grid).reshape(-1, 3),
        "block": column(kernels.block).reshape(-1, 3),
        "registers": column(kernels.registers),
        "shared_dynamic": column(kernels.shared),
        "profile_occupancy": np.frombuffer(kernels.occupancy),
    }
    if (graph != NULL).any():
        columns["graph"] = graph
    devices = [_device(int(index), facts, events, amd) for index in np.unique(device)]
    events.forget_kernels()
    del kernels, signature, graph, device, stream_ids, start_ns, duration_ns, cut_ns  # `table` moves the columns
    return table(where, "kineto", devices, columns, notes)


def _is_amd(facts: dict[str, Any]) -> bool:
    """Whether the GPUs are AMD's: older traces say so only in the devices' names, or by their warps of 64."""
    return any(key in facts for key in _AMD_KEYS) or any(
        str(entry.get("name")).startswith("AMD") or entry.get("warpSize") == 64 for entry in _entries(facts)
    )


def _entries(facts: dict[str, Any]) -> list[dict[str, Any]]:
    listed = facts.get("deviceProperties")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def _graphs(events: Events, call: IntColumn, correlation: AnyIntColumn) -> IntColumn:
    """The graph of each kernel: its id, or the correlation id of the replay where the trace has no graph ids."""
    graph = column(events.kernels.graph)
    replayed = (graph == NULL) & (call != NULL)
    replayed[replayed] = small_column(events.calls.graph)[call[replayed]] == 1
    return np.where(replayed, correlation, graph)


def _signatures(events: Events, call: IntColumn) -> AnyIntColumn:
    """For each kernel the row of events.signatures that its operator has, NULL for none."""
    kernels, operators, calls = events.kernels, events.operators, events.calls
    external, correlation = column(kernels.external), column(kernels.correlation)
    row = np.full(len(external), NULL, np.int64)
    if ids_are_links(external, correlation):
        row = rows_of(external, column(operators.external))
    operators.external = array("q")  # has done its work, and a large trace has a million of them
    is_graph = values_at(small_column(calls.graph), call) == 1
    row[is_graph] = NULL
    unlinked = np.flatnonzero((row == NULL) & (call != NULL) & ~is_graph)
    if len(unlinked):
        called = call[unlinked]
        moment = column(calls.start_ns)[called]
        row[unlinked] = enclosing(
            Spans(small_column(calls.thread)[called], moment, moment),
            Spans(small_column(operators.thread), column(operators.begin_ns), column(operators.end_ns)),
        )
    return values_at(small_column(operators.signature), row)


def _device(index: int, facts: dict[str, Any], events: Events, amd: bool) -> ProfiledDevice:
    """What the trace says of GPU `index`: its deviceProperties, or else what the launches' ratios imply."""
    entries = _entries(facts)
    entry = next((entry for entry in entries if entry.get("id") == index), None)
    if entry is None and len(entries) == 1 and len(events.ratios) == 1:
        entry = entries[0]  # AMD numbers its agents in another way
    device = unknown(index) if entry is None else _described(index, entry, amd)
    if amd:
        return device
    return completed(with_sms_of_ratio(device, events.ratios.get(index, ())))


def _described(index: int, entry: dict[str, Any], amd: bool) -> ProfiledDevice:
    name = entry.get("name")
    major, minor = whole(entry.get("computeMajor"), 1, 99), whole(entry.get("computeMinor"), 0, 99)
    return ProfiledDevice(
        index=index,
        name=name if isinstance(name, str) and name else None,
        compute_capability=None if amd or NULL in (major, minor) else (major, minor),
        sms=positive(entry, "numSms"),
        registers_per_sm=positive(entry, "regsPerMultiprocessor"),
        shared_per_sm=positive(entry, "sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
        shared_per_block=positive(entry, "sharedMemPerBlockOptin", "sharedMemPerBlock"),
        threads_per_sm=positive(entry, "maxThreadsPerMultiprocessor"),
        max_clock_mhz=None,
    )
