"""Reads what `nsys export --type sqlite` writes: the kernels of a Nsight Systems profile, of any version's schema."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.audit import quality
from wavescope.audit.database import Database, integers, num_rows, opened, rows
from wavescope.audit.extents import MAX_GRID, MAX_THREADS
from wavescope.audit.gpus import completed, unknown
from wavescope.audit.launches import NO_NAME, NULL, UNKNOWN_PART, IntColumn, Launches, ProfiledDevice
from wavescope.audit.nsys_operators import operators
from wavescope.audit.nsys_refusal import explain_no_kernels, explain_no_profile
from wavescope.audit.source import Progress
from wavescope.audit.table import chosen, positive, table, whole

_KERNEL_TABLE = re.compile(r"CUPTI_ACTIVITY_KIND_(CONCURRENT_)?KERNEL(_?V\d+)?", re.IGNORECASE)
_KNOWN_TABLES = re.compile(
    r"StringIds|StringTable|(META_DATA|EXPORT|TARGET_INFO|CUPTI_ACTIVITY|NVTX)_\w+", re.IGNORECASE
)
_NUMBERS = (
    "start",
    "end",
    "deviceId",
    "contextId",
    "greenContextId",
    "streamId",
    "correlationId",
    "globalPid",
    "registersPerThread",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "graphNodeId",
    "graphId",
    "clusterX",
    "clusterY",
    "clusterZ",
    "maxActiveClusters",
)
_NAME_COLUMNS = ("demangledName", "shortName", "name", "mangledName")
_GPU_COLUMNS = (
    "id",
    "cuDevice",
    "name",
    "smCount",
    "clockRate",
    "computeMajor",
    "computeMinor",
    "maxRegistersPerSm",
    "maxShmemPerSm",
    "maxShmemPerBlockOptin",
    "maxWarpsPerSm",
    "threadsPerWarp",
)
_MAX_START = 2**62
Columns = dict[str, IntColumn]


def read(path: str | Path, *, progress: Progress | None = None) -> Launches:
    """The kernels of an nsys export.

    What the schema at hand lacks is NULL.  The operator is the innermost PyTorch range
    (torch.autograd.profiler.emit_nvtx) around the call that launched the kernel.

    Raises: InputError for what is no such database, locked or damaged; NoKernels for an
    export without kernels, with its own diagnostics.
    """
    with opened(path, progress) as database:
        if not any(_KNOWN_TABLES.fullmatch(name) for name in database.columns):
            explain_no_profile(database)
        kernels = _kernel_table(database)
        if kernels is None:
            explain_no_kernels(database, any(_KERNEL_TABLE.fullmatch(name) for name in database.columns))
        return _launches(database, kernels)


def _kernel_table(database: Database) -> str | None:
    """The table with kernels in it; of several the one with the plainest name."""
    names = sorted((name for name in database.columns if _KERNEL_TABLE.fullmatch(name)), key=len)
    return next((name for name in names if num_rows(database, name)), None)


def _launches(database: Database, kernels: str) -> Launches:
    numbers = integers(database, kernels, _NUMBERS)
    process = np.where(numbers["globalPid"] == NULL, NULL, numbers["globalPid"] >> 24 & 0xFFFFFF)
    start_ns, duration_ns = _times(numbers)
    graph = np.where(numbers["graphId"] > 0, numbers["graphId"], numbers["graphNodeId"])
    graph[graph <= 0] = NULL
    lane = quality.lanes(numbers["deviceId"], process, numbers["contextId"], numbers["streamId"])
    cut_ns, overlaps = quality.clip(lane, start_ns, duration_ns, graph != NULL)
    notes = [*quality.times(start_ns, duration_ns, []), *overlaps, *_missing_graphs(database)]
    device, devices = _devices(database, numbers["deviceId"], process)
    names, name = _names(database, kernels)
    operator, shapes = operators(database, numbers["correlationId"], process)
    columns: dict[str, NDArray[Any]] = {
        "name": chosen(names, name),
        "operator": operator,
        "shapes": shapes,
        "device": device,
        "stream": numbers["streamId"],
        "start_ns": start_ns,
        "duration_ns": cut_ns,
        "grid": _extents(numbers, "grid"),
        "block": _extents(numbers, "block"),
        "cluster": _clusters(numbers),
        "registers": _within(numbers["registersPerThread"], 0, 1024),
        "shared_static": _within(numbers["staticSharedMemory"], 0, 2**31),
        "shared_dynamic": _within(numbers["dynamicSharedMemory"], 0, 2**31),
        "max_active_clusters": _within(numbers["maxActiveClusters"], 1, 2**20),
        "context_sms": _context_sms(database, numbers, process),
        "graph": graph,
    }
    return table(database.where, "nsys", devices, columns, notes)


def _within(values: IntColumn, least: int, most: int) -> IntColumn:
    return np.where((values >= least) & (values <= most), values, NULL)


def _times(numbers: Columns) -> tuple[IntColumn, IntColumn]:
    """Start and duration; a duration that cannot be is NULL."""
    start, end = (_within(numbers[name], 0, _MAX_START) for name in ("start", "end"))
    known = (start != NULL) & (end != NULL)
    return start, _within(np.where(known, end - start, NULL), 0, quality.MAX_KERNEL_NS)


def _extents(numbers: Columns, what: str) -> IntColumn:
    """[kernels, 3] extents of the "grid" or "block", all NULL where one cannot be."""
    extents = np.stack([numbers[what + axis] for axis in "XYZ"], axis=1)
    extents[((extents < 1) | (extents > MAX_GRID)).any(axis=1)] = NULL
    if what == "block":
        extents[(extents > MAX_THREADS).any(axis=1) | (extents.prod(axis=1) > MAX_THREADS)] = NULL
    return extents


def _clusters(numbers: Columns) -> IntColumn:
    """[kernels, 3]: 0 in all three stands for a launch without clusters."""
    clusters = np.stack([numbers["cluster" + axis] for axis in "XYZ"], axis=1)
    clusters[(clusters == 0).all(axis=1)] = 1
    clusters[((clusters < 1) | (clusters > 64)).any(axis=1)] = NULL
    return clusters


def _names(database: Database, kernels: str) -> tuple[list[str], IntColumn]:
    """The distinct kernel names, and which of them each row of `kernels` has."""
    column = next((name for name in _NAME_COLUMNS if database.has(kernels, name)), None)
    if column is None:
        return [NO_NAME], np.zeros(num_rows(database, kernels), np.int64)
    strings = _strings(database)
    found: dict[object, int] = {}
    index = np.fromiter(
        (found.setdefault(value, len(found)) for (value,) in rows(database, kernels, [column])), np.int64
    )
    return [value if isinstance(value, str) else strings.get(value, NO_NAME) for value in found], index


def _strings(database: Database) -> dict[object, str]:
    """The table that holds names, by id; kept whole, since kernels use most of an export's strings."""
    for name, key in (("StringIds", "id"), ("StringTable", "_id_")):
        strings = database.table(name)
        if strings is not None:
            return {
                number: value for number, value in rows(database, strings, [key, "value"]) if isinstance(value, str)
            }
    return {}


def _context_sms(database: Database, numbers: Columns, process: IntColumn) -> IntColumn:
    """The SMs of each launch's green context, UNKNOWN_PART where the export does not say how many."""
    sms = np.full(len(process), NULL, np.int64)
    green = numbers["greenContextId"] > 0
    contexts = database.table("TARGET_INFO_CUDA_CONTEXT_INFO")
    known: dict[tuple[int, int], int] = {}
    if contexts is not None:
        facts = integers(database, contexts, ("processId", "contextId", "numMultiprocessors", "isGreenContext"))
        is_green = facts.pop("isGreenContext") == 1
        for pid, context, count in zip(*(values[is_green].tolist() for values in facts.values()), strict=True):
            known[pid, context] = count if count > 0 else UNKNOWN_PART
    context_id = np.where(green, numbers["greenContextId"], numbers["contextId"])
    for pid, context in np.unique(np.stack([process, context_id], axis=1), axis=0).tolist():
        here = (process == pid) & (context_id == context)
        sms[here] = known.get((pid, context), NULL)
    sms[green & (sms == NULL)] = UNKNOWN_PART
    return sms


def _missing_graphs(database: Database) -> list[str]:
    graphs = database.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    number = num_rows(database, graphs) if graphs else 0
    if not number:
        return []
    what = quality.counted(number, "graph launch is", "graph launches are")
    return [f"{what} in the profile without kernels; nsys profile --cuda-graph-trace=node records them"]


def _devices(database: Database, device: IntColumn, process: IntColumn) -> tuple[IntColumn, list[ProfiledDevice]]:
    """The GPU of each launch, and what is known of those GPUs.

    A process numbers the GPUs that it sees from 0, so two processes may mean different
    GPUs by one number; where the export says which, the GPU's own id is used.
    """
    gpu_of: dict[tuple[int, int], int] = {}
    mapping = database.table("TARGET_INFO_CUDA_DEVICE")
    if mapping is not None:
        facts = integers(database, mapping, ("pid", "cudaId", "gpuId"))
        gpu_of = {(pid, cuda): gpu for pid, cuda, gpu in zip(*(facts[key].tolist() for key in facts), strict=True)}
    gpus = _gpus(database)
    found = device.copy()
    for pid, cuda in np.unique(np.stack([process, device], axis=1), axis=0).tolist():
        by_driver = next((gpu for gpu, entry in gpus.items() if whole(entry.get("cuDevice")) == cuda), cuda)
        found[(process == pid) & (device == cuda)] = gpu_of.get((pid, cuda), by_driver)
    used = [int(gpu) for gpu in np.unique(found)]
    return found, [completed(_described(gpu, gpus[gpu]) if gpu in gpus else unknown(gpu)) for gpu in used]


def _gpus(database: Database) -> dict[int, dict[str, Any]]:
    gpus = database.table("TARGET_INFO_GPU")
    if gpus is None:
        return {}
    entries = [dict(zip(_GPU_COLUMNS, row, strict=True)) for row in rows(database, gpus, _GPU_COLUMNS)]
    return {entry["id"]: entry for entry in entries if isinstance(entry["id"], int)}


def _described(index: int, entry: dict[str, Any]) -> ProfiledDevice:
    major, minor = whole(entry["computeMajor"], 1, 99), whole(entry["computeMinor"], 0, 99)
    warps, lanes = positive(entry, "maxWarpsPerSm"), positive(entry, "threadsPerWarp")
    hertz = positive(entry, "clockRate")
    return ProfiledDevice(
        index=index,
        name=entry["name"] if isinstance(entry["name"], str) and entry["name"] else None,
        compute_capability=None if NULL in (major, minor) else (major, minor),
        sms=positive(entry, "smCount"),
        registers_per_sm=positive(entry, "maxRegistersPerSm"),
        shared_per_sm=positive(entry, "maxShmemPerSm"),
        shared_per_block=positive(entry, "maxShmemPerBlockOptin"),
        threads_per_sm=warps * lanes if warps and lanes else None,
        max_clock_mhz=hertz / 1e6 if hertz else None,
    )
