"""Profiles made by rule, small enough to be read in a test: PyTorch traces, nsys exports, ncu's CSV pages."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

H200 = {
    "id": 0,
    "name": "NVIDIA H200",
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlock": 49152,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
    "numSms": 132,
    "warpSize": 32,
}
GEMM = "nvjet_sm90_tst_168x128_64x5_1x2_h_bz_TNN"
COPY = "void at::native::elementwise_kernel<128, 4>(int)"


def kernel_event(name: str = GEMM, ts: object = 1000.5, dur: object = 58.24, **args: object) -> dict[str, Any]:
    """A kernel of a PyTorch trace; an argument of None leaves that member out."""
    known: dict[str, object] = {
        "External id": 7,
        "queued": 0,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": 70,
        "registers per thread": 168,
        "shared memory": 206044,
        "blocks per SM": 1.0,
        "warps per SM": 12.0,
        "grid": [2, 66, 1],
        "block": [384, 1, 1],
        "est. achieved occupancy %": 0,
    } | args
    members = {key: value for key, value in known.items() if value is not None}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": members}


def operator_event(name: str = "aten::mm", ts: float = 900, dur: float = 50, **args: object) -> dict[str, Any]:
    """An operator of a PyTorch trace, with shapes."""
    known: dict[str, object] = {"External id": 7, "Input Dims": [[2304, 4096], [4096, 2304]]} | args
    members = {key: value for key, value in known.items() if value is not None}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": members}


def call_event(name: str = "cudaLaunchKernelExC", ts: float = 910, correlation: int = 70) -> dict[str, Any]:
    """A launching call of a PyTorch trace."""
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 5, "args": args}


def kineto_trace(events: Sequence[Mapping[str, Any]], **members: object) -> dict[str, Any]:
    """A PyTorch trace with the H200's properties; a member of None is left out."""
    known = {"schemaVersion": 1, "deviceProperties": [H200], "traceEvents": list(events)} | members
    return {key: value for key, value in known.items() if value is not None}


def as_kineto_writes(trace: Mapping[str, Any]) -> str:
    """The trace's text in the layout of Kineto's writer: a line or two an event, arrays and objects indented."""
    parts = []
    for key, value in trace.items():
        if key == "traceEvents":
            events = ",\n".join("  " + json.dumps(event, indent=2).replace("\n", "\n  ") for event in value)
            parts.append(f'  "{key}": [\n{events}\n  ]')
        else:
            parts.append(f'  "{key}": {json.dumps(value)}')
    return "\n{\n" + ",\n".join(parts) + "\n}\n"


KERNEL_COLUMNS = [
    "start",
    "end",
    "deviceId",
    "contextId",
    "greenContextId",
    "streamId",
    "correlationId",
    "globalPid",
    "demangledName",
    "shortName",
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
]
GPU_COLUMNS = [
    "id",
    "name",
    "clockRate",
    "smCount",
    "computeMajor",
    "computeMinor",
    "maxRegistersPerSm",
    "maxShmemPerSm",
    "maxShmemPerBlockOptin",
    "maxWarpsPerSm",
    "threadsPerWarp",
    "cuDevice",
]
H200_ROW = (0, "NVIDIA H200", 1_980_000_000, 132, 9, 0, 65536, 233472, 232448, 64, 32, 0)
PID = 41


def kernel_row(**values: object) -> tuple[object, ...]:
    """A row of an nsys export's kernel table, in the order of KERNEL_COLUMNS."""
    known: dict[str, object] = {
        "start": 1_000_500,
        "end": 1_058_740,
        "deviceId": 0,
        "contextId": 1,
        "greenContextId": 0,
        "streamId": 7,
        "correlationId": 70,
        "globalPid": 1 << 48 | PID << 24,
        "demangledName": 1,
        "shortName": 2,
        "registersPerThread": 168,
        "gridX": 2,
        "gridY": 66,
        "gridZ": 1,
        "blockX": 384,
        "blockY": 1,
        "blockZ": 1,
        "staticSharedMemory": 1024,
        "dynamicSharedMemory": 205020,
        "graphNodeId": None,
        "graphId": None,
        "clusterX": 2,
        "clusterY": 1,
        "clusterZ": 1,
        "maxActiveClusters": 66,
    } | values
    return tuple(known[column] for column in KERNEL_COLUMNS)


def nsys_export(
    path: Path,
    kernels: Iterable[Sequence[object]] | None,
    *,
    gpus: Iterable[Sequence[object]] | None = (H200_ROW,),
    without: Sequence[str] = (),
    table: str = "CUPTI_ACTIVITY_KIND_KERNEL",
    more: Mapping[str, tuple[Sequence[str], Iterable[Sequence[object]]]] | None = None,
) -> Path:
    """An nsys export at `path`: `without` are kernel columns that its schema lacks, None leaves a table out."""
    tables: dict[str, tuple[Sequence[str], Iterable[Sequence[object]]]] = {
        "StringIds": (("id", "value"), [(1, GEMM), (2, "short"), (3, COPY)]),
        "META_DATA_EXPORT": (("name", "value"), [("EXPORT_SCHEMA_VERSION", "3.24.14")]),
    }
    if kernels is not None:
        kept = [index for index, column in enumerate(KERNEL_COLUMNS) if column not in without]
        rows = [[row[index] for index in kept] for row in kernels]
        tables[table] = ([KERNEL_COLUMNS[index] for index in kept], rows)
    if gpus is not None:
        tables["TARGET_INFO_GPU"] = (GPU_COLUMNS, gpus)
    write_tables(path, tables | dict(more or {}))
    return path


def write_tables(path: Path, tables: Mapping[str, tuple[Sequence[str], Iterable[Sequence[object]]]]) -> None:
    """An SQLite database of these tables, each with its columns and rows."""
    connection = sqlite3.connect(path)
    try:
        for name, (columns, rows) in tables.items():
            listed = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{name}" ({listed})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [tuple(row) for row in rows])
        connection.commit()
    finally:
        connection.close()


# A raw page's columns, each with its unit and the value of one kernel.
RAW: dict[str, tuple[str, str]] = {
    "ID": ("", "0"),
    "Process ID": ("", "41"),
    "Kernel Name": ("", GEMM),
    "Context": ("", "1"),
    "Stream": ("", "7"),
    "Block Size": ("", "(384, 1, 1)"),
    "Grid Size": ("", "(2, 66, 1)"),
    "Device": ("", "0"),
    "CC": ("", "9.0"),
    "device__attribute_display_name": ("", "NVIDIA H200"),
    "device__attribute_multiprocessor_count": ("", "132"),
    "gpu__time_duration.sum": ("ns", "58,240"),
    "launch__cluster_dim_x": ("", "2"),
    "launch__cluster_dim_y": ("", "1"),
    "launch__cluster_dim_z": ("", "1"),
    "launch__cluster_max_active": ("cluster", "66"),
    "launch__cluster_size": ("", "2"),
    "launch__grid_size": ("", "132"),
    "launch__registers_per_thread": ("register/thread", "168"),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "205,020"),
    "launch__shared_mem_per_block_static": ("byte/block", "1,024"),
    "launch__sm_count": ("SM", "132"),
    "launch__waves_per_multiprocessor": ("", "1.00"),
    "sm__cycles_active.avg": ("cycle", "88,489.93"),
    "sm__cycles_active.max": ("cycle", "93,311"),
    "sm__cycles_elapsed.avg": ("cycle", "97,184.74"),
}
PREAMBLE = "==PROF== Connected to process 41 (/usr/bin/python3)\nloss 0.25, step 3\n"


def csv_line(cells: Iterable[str]) -> str:
    """A line as ncu writes it: every cell in quotes."""
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


def raw_page(*kernels: Mapping[str, str], without: Sequence[str] = (), units: Mapping[str, str] | None = None) -> str:
    """A raw page: each of `kernels` says where it differs from RAW."""
    columns = [name for name in RAW if name not in without]
    shown_units = {name: unit for name, (unit, _) in RAW.items()} | dict(units or {})
    rows = [columns, [shown_units[name] for name in columns]]
    for index, kernel in enumerate(kernels):
        cells = {name: value for name, (_, value) in RAW.items()} | {"ID": str(index)} | dict(kernel)
        rows.append([cells[name] for name in columns])
    return PREAMBLE + "\n".join(csv_line(row) for row in rows) + "\n==PROF== Disconnected from process 41\n"


DETAILS_FACTS = ("ID", "Process ID", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")
DETAILS_COLUMNS = (*DETAILS_FACTS, "Section Name", "Metric Name", "Metric Unit", "Metric Value", "Rule Name")
DETAILS: dict[str, tuple[str, str]] = {
    "Elapsed Cycles": ("cycle", "98,554"),
    "Duration": ("ns", "58,240"),
    "SM Active Cycles": ("cycle", "88,489.93"),
    "Registers Per Thread": ("register/thread", "168"),
    "Dynamic Shared Memory Per Block": ("byte/block", "205,020"),
    "Static Shared Memory Per Block": ("byte/block", "1,024"),
    "Cluster Size": ("", "2"),
    "Max Active Clusters": ("cluster", "66"),
    "Grid Size": ("", "132"),
    "# SMs": ("SM", "132"),
    "Waves Per SM": ("", "1"),
}


def details_page(*kernels: Mapping[str, tuple[str, str]]) -> str:
    """A details page: a line for each metric of each kernel, a longer one for each rule."""
    lines = [csv_line(DETAILS_COLUMNS)]
    for index, kernel in enumerate(kernels):
        facts = [str(index), *(RAW[name][1] for name in DETAILS_FACTS[1:])]
        for label, (unit, value) in (DETAILS | dict(kernel)).items():
            lines.append(csv_line([*facts, "Some Section", label, unit, value]))
        lines.append(csv_line([*facts, "Some Section", "", "", "", "A rule's name"]))
    return PREAMBLE + "\n".join(lines) + "\n==PROF== Disconnected from process 41\n"
