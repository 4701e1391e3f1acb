"""Nsight Compute's metrics of profiled kernels, as launches: what its CSV pages and its report files share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.extents import NO_EXTENTS, Extents, block_extents, grid_extents
from wavescope.audit.gpus import completed
from wavescope.audit.launches import NULL, Launches, ProfiledDevice
from wavescope.audit.quality import counted
from wavescope.audit.table import positive, table, whole

ACTIVE, ACTIVE_MAX = "sm__cycles_active.avg", "sm__cycles_active.max"
ELAPSED, ELAPSED_SUM = "sm__cycles_elapsed.avg", "sm__cycles_elapsed.sum"
ELAPSED_GPC = "gpc__cycles_elapsed.max"
DURATION, DURATION_AVG = "gpu__time_duration.sum", "gpu__time_duration.avg"
DEVICE_NAME = "device__attribute_display_name"
_LAUNCH = (
    "block_dim_x",
    "block_dim_y",
    "block_dim_z",
    "cluster_dim_x",
    "cluster_dim_y",
    "cluster_dim_z",
    "cluster_max_active",
    "cluster_size",
    "device_id",
    "grid_dim_x",
    "grid_dim_y",
    "grid_dim_z",
    "grid_size",
    "registers_per_thread",
    "shared_mem_per_block_dynamic",
    "shared_mem_per_block_static",
    "sm_count",
    "stream_id",
    "uses_green_context",
)
_ATTRIBUTES = (
    "clock_rate",
    "compute_capability_major",
    "compute_capability_minor",
    "max_registers_per_multiprocessor",
    "max_shared_memory_per_block_optin",
    "max_shared_memory_per_multiprocessor",
    "max_threads_per_multiprocessor",
    "multiprocessor_count",
)
# The metrics that are numbers; those with a unit come in the unit of WANTED_UNITS.
WANTED = (
    ACTIVE,
    ACTIVE_MAX,
    ELAPSED,
    ELAPSED_SUM,
    ELAPSED_GPC,
    DURATION,
    DURATION_AVG,
    *(f"launch__{name}" for name in _LAUNCH),
    *(f"device__attribute_{name}" for name in _ATTRIBUTES),
)

# CTAs of a cluster: 16 with the non-portable size of today.
_MAX_CLUSTER = 1024
Activity = tuple[NDArray[np.int64], NDArray[np.float64]]


@dataclass(frozen=True)
class Kernel:
    """One profiled kernel: `metrics` holds those of WANTED that have a value, in ns, bytes and cycles."""

    name: str
    metrics: Mapping[str, float]
    device_name: str | None = None
    compute_capability: tuple[int, int] | None = None
    grid: Extents = NO_EXTENTS
    block: Extents = NO_EXTENTS
    device: int = NULL
    stream: int = NULL
    activity: Activity | None = field(default=None, compare=False)


def launches(where: str, kind: str, kernels: Sequence[Kernel], notes: Iterable[str] = ()) -> Launches:
    """The table of `kernels`, in the order given: Nsight Compute runs one at a time and tells no start."""
    device = [_device_index(kernel) for kernel in kernels]
    columns: dict[str, NDArray[Any]] = {
        "name": _objects([kernel.name for kernel in kernels]),
        "device": np.array(device, np.int64),
        "stream": _whole(kernels, "launch__stream_id", 0, lambda kernel: kernel.stream),
        "duration_ns": np.array([_duration(kernel.metrics) for kernel in kernels], np.int64),
        "grid": np.array([_extents(kernel, "grid") for kernel in kernels], np.int64).reshape(-1, 3),
        "block": np.array([_extents(kernel, "block") for kernel in kernels], np.int64).reshape(-1, 3),
        "cluster": np.array([_cluster(kernel.metrics) for kernel in kernels], np.int64).reshape(-1, 3),
        "registers": _whole(kernels, "launch__registers_per_thread", 0),
        "shared_static": _whole(kernels, "launch__shared_mem_per_block_static", 0),
        "shared_dynamic": _whole(kernels, "launch__shared_mem_per_block_dynamic", 0),
        "max_active_clusters": _whole(kernels, "launch__cluster_max_active", 1),
        "context_sms": np.array([_context_sms(kernel.metrics) for kernel in kernels], np.int64),
        "sm_active_avg_over_max": np.array([_over_max(kernel.metrics) for kernel in kernels]),
        "sm_active_share": np.array([_share(kernel.metrics) for kernel in kernels]),
        "activity": _objects([kernel.activity for kernel in kernels]),
    }
    first = {index: kernels[row] for row, index in reversed(list(enumerate(device)))}
    devices = [_device(index, first[index]) for index in sorted(first)]
    return table(where, kind, devices, columns, [*_missing(columns), *notes])


def _objects(values: Sequence[object]) -> NDArray[np.object_]:
    column = np.empty(len(values), object)
    for row, value in enumerate(values):
        column[row] = value
    return column


def _whole(
    kernels: Sequence[Kernel], metric: str, least: int, otherwise: Any = lambda kernel: NULL
) -> NDArray[np.int64]:
    values = (_metric(kernel.metrics, metric, least) for kernel in kernels)
    return np.array(
        [value if value != NULL else otherwise(kernel) for value, kernel in zip(values, kernels, strict=True)], np.int64
    )


def _metric(metrics: Mapping[str, float], name: str, least: int = 0) -> int:
    """A metric to the nearest whole number, NULL for none below `least`."""
    value = metrics.get(name, math.nan)
    return whole(round(value), least) if math.isfinite(value) else NULL


def _duration(metrics: Mapping[str, float]) -> int:
    duration = _metric(metrics, DURATION)
    return duration if duration != NULL else _metric(metrics, DURATION_AVG)


def _device_index(kernel: Kernel) -> int:
    index = _metric(kernel.metrics, "launch__device_id")
    return index if index != NULL else max(kernel.device, 0)


def _extents(kernel: Kernel, what: str) -> Extents:
    checked = grid_extents if what == "grid" else block_extents
    found = checked([_metric(kernel.metrics, f"launch__{what}_dim_{axis}", 1) for axis in "xyz"])
    return checked(kernel.grid if what == "grid" else kernel.block) if found == NO_EXTENTS else found


def _cluster(metrics: Mapping[str, float]) -> Extents:
    """The cluster's extents; its size stands in the first where the others are not given, 0 is no cluster."""
    x, y, z = (_metric(metrics, f"launch__cluster_dim_{axis}") for axis in "xyz")
    if NULL in (x, y, z):
        x, y, z = _metric(metrics, "launch__cluster_size"), 1, 1
    if not 0 <= x * y * z <= _MAX_CLUSTER:
        return NO_EXTENTS
    return max(x, 1), max(y, 1), max(z, 1)


def _context_sms(metrics: Mapping[str, float]) -> int:
    """The SMs of the launch's context where they are a part of the device's."""
    sms = _metric(metrics, "launch__sm_count", 1)
    device = _metric(metrics, "device__attribute_multiprocessor_count", 1)
    is_green = _metric(metrics, "launch__uses_green_context") == 1
    return sms if is_green or (NULL not in (sms, device) and sms < device) else NULL


def _over_max(metrics: Mapping[str, float]) -> float:
    return _ratio(metrics.get(ACTIVE), metrics.get(ACTIVE_MAX))


def _share(metrics: Mapping[str, float]) -> float:
    elapsed = metrics.get(ELAPSED)
    sms = metrics.get("launch__sm_count", 0)
    if elapsed is None and ELAPSED_SUM in metrics and sms > 0:
        elapsed = metrics[ELAPSED_SUM] / sms
    return _ratio(metrics.get(ACTIVE), metrics.get(ELAPSED_GPC) if elapsed is None else elapsed)


def _ratio(part: float | None, of: float | None) -> float:
    """part / of where that is a share, NaN for anything else."""
    if part is None or of is None or not of > 0 or not part >= 0:
        return math.nan
    share = part / of
    return share if share <= 1.01 else math.nan  # two passes may differ by a little


def _device(index: int, kernel: Kernel) -> ProfiledDevice:
    facts = {name: _metric(kernel.metrics, f"device__attribute_{name}") for name in _ATTRIBUTES}
    major, minor = facts["compute_capability_major"], facts["compute_capability_minor"]
    sms = positive(facts, "multiprocessor_count")
    if sms is None and _metric(kernel.metrics, "launch__uses_green_context") != 1:
        sms = positive({"sms": _metric(kernel.metrics, "launch__sm_count")}, "sms")
    kilohertz = positive(facts, "clock_rate")
    return completed(
        ProfiledDevice(
            index=index,
            name=kernel.device_name,
            compute_capability=kernel.compute_capability if NULL in (major, minor) else (major, minor),
            sms=sms,
            registers_per_sm=positive(facts, "max_registers_per_multiprocessor"),
            shared_per_sm=positive(facts, "max_shared_memory_per_multiprocessor"),
            shared_per_block=positive(facts, "max_shared_memory_per_block_optin"),
            threads_per_sm=positive(facts, "max_threads_per_multiprocessor"),
            max_clock_mhz=kilohertz / 1000 if kilohertz else None,
        )
    )


def _missing(columns: Mapping[str, NDArray[Any]]) -> list[str]:
    """Sentences on kernels without a time or without counters."""
    notes = []
    untimed = int((columns["duration_ns"] == NULL).sum())
    if untimed:
        notes.append(f"{counted(untimed, 'kernel has', 'kernels have')} no duration; not in any sum of time")
    uncounted = int((np.isnan(columns["sm_active_avg_over_max"]) & np.isnan(columns["sm_active_share"])).sum())
    if uncounted:
        what = counted(uncounted, "kernel has", "kernels have")
        notes.append(f"{what} no SM activity counted (n/a, or not collected); only estimates for those")
    return notes
