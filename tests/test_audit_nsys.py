"""Exports of Nsight Systems: every schema's columns, several GPUs and processes, what is refused and why."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from audit_profiles import COPY, GEMM, H200_ROW, PID, kernel_row, nsys_export, write_tables

from wavescope.audit import nsys
from wavescope.audit.launches import NULL, UNKNOWN_PART, ProfiledDevice
from wavescope.errors import InputError, NoKernels

OLD = ("greenContextId", "globalPid", "graphNodeId", "graphId", "clusterX", "clusterY", "clusterZ", "maxActiveClusters")
TID = 1 << 48 | PID << 24 | 5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "report.sqlite"


def test_every_column_of_one_kernel(path: Path) -> None:
    launches = nsys.read(nsys_export(path, [kernel_row()]))
    row = {name: values[0] for name, values in vars(launches).items() if isinstance(values, np.ndarray)}
    nan = ("sm_active_avg_over_max", "sm_active_share", "profile_occupancy")
    assert all(np.isnan(row.pop(name)) for name in nan)
    assert {
        name: value.tolist() if isinstance(value, np.generic | np.ndarray) else value for name, value in row.items()
    } == {
        "name": GEMM,
        "device": 0,
        "stream": 7,
        "start_ns": 1_000_500,
        "duration_ns": 58_240,
        "grid": [2, 66, 1],
        "block": [384, 1, 1],
        "cluster": [2, 1, 1],
        "registers": 168,
        "shared_static": 1024,
        "shared_dynamic": 205020,
        "max_active_clusters": 66,
        "context_sms": NULL,
        "graph": NULL,
        "operator": None,
        "shapes": None,
        "activity": None,
    }
    assert launches.kind == "nsys"
    assert launches.devices == (
        ProfiledDevice(0, "NVIDIA H200", (9, 0), 132, 65536, 233472, 232448, 2048, 1980.0, "profile"),
    )
    assert launches.notes == ()


def test_old_schema_leaves_columns_unknown(path: Path) -> None:
    launches = nsys.read(nsys_export(path, [kernel_row()], without=OLD, gpus=[(0, "NVIDIA H200", *[None] * 10)]))
    assert launches.cluster.tolist() == [[NULL] * 3]
    assert (launches.max_active_clusters[0], launches.graph[0]) == (NULL, NULL)
    assert (launches.devices[0].sms, launches.devices[0].sms_source) == (132, "device table")


@pytest.mark.parametrize(
    "table",
    ["CUPTI_ACTIVITY_KIND_KERNEL_V3", "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "cupti_activity_kind_kernel"],
)
def test_kernel_table_of_another_name(path: Path, table: str) -> None:
    assert len(nsys.read(nsys_export(path, [kernel_row()], table=table))) == 1


def test_without_gpu_table_nothing_is_known_of_the_gpu(path: Path) -> None:
    device = nsys.read(nsys_export(path, [kernel_row(deviceId=3)], gpus=None)).devices[0]
    assert device == ProfiledDevice(3, None, None, None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("values", "column", "expected"),
    [
        ({"clusterX": 0, "clusterY": 0, "clusterZ": 0}, "cluster", [1, 1, 1]),
        ({"clusterX": None}, "cluster", [NULL] * 3),
        ({"maxActiveClusters": 0}, "max_active_clusters", NULL),
        ({"gridX": None}, "grid", [NULL] * 3),
        ({"gridY": "many"}, "grid", [NULL] * 3),
        ({"blockX": 1024, "blockY": 2}, "block", [NULL] * 3),
        ({"registersPerThread": -1}, "registers", NULL),
        ({"graphId": 4, "graphNodeId": 9}, "graph", 4),
        ({"graphNodeId": 9}, "graph", 9),
        ({"end": 1_000_499}, "duration_ns", NULL),
        ({"end": None}, "duration_ns", NULL),
        ({"end": 2**62}, "duration_ns", NULL),
        ({"demangledName": 99}, "name", "(no name)"),
        ({"demangledName": "plain text"}, "name", "plain text"),
        ({"greenContextId": 5}, "context_sms", UNKNOWN_PART),
    ],
)
def test_odd_values(path: Path, values: dict[str, object], column: str, expected: object) -> None:
    found = getattr(nsys.read(nsys_export(path, [kernel_row(**values)])), column)[0]
    assert (found.tolist() if isinstance(found, np.generic | np.ndarray) else found) == expected


def test_green_context_of_known_size(path: Path) -> None:
    columns = ("contextId", "processId", "isGreenContext", "numMultiprocessors")
    contexts = [(5, PID, 1, 114), (6, PID, 1, 0), (1, PID, 0, 0), (5, PID + 1, 1, 20)]
    rows = [kernel_row(start=i, end=i + 1, greenContextId=green) for i, green in enumerate((5, 6, 0))]
    more = {"TARGET_INFO_CUDA_CONTEXT_INFO": (columns, contexts)}
    assert nsys.read(nsys_export(path, rows, more=more)).context_sms.tolist() == [114, UNKNOWN_PART, NULL]


def test_processes_that_number_their_gpus_differently(path: Path) -> None:
    """Both processes call their GPU 0; the second one's is GPU 3."""
    other = 1 << 48 | (PID + 1) << 24
    more = {"TARGET_INFO_CUDA_DEVICE": (("gpuId", "cudaId", "pid"), [(0, 0, PID), (3, 0, PID + 1)])}
    gpus = [H200_ROW, (3, "NVIDIA A100-SXM4-40GB", *H200_ROW[2:3], 108, *H200_ROW[4:])]
    launches = nsys.read(
        nsys_export(path, [kernel_row(), kernel_row(start=2e6, globalPid=other)], gpus=gpus, more=more)
    )
    assert sorted(launches.device.tolist()) == [0, 3]
    assert [(device.index, device.sms) for device in launches.devices] == [(0, 132), (3, 108)]


def test_streams_of_two_processes_are_two(path: Path) -> None:
    """Kernels of one stream number in two processes overlap by 58 us, which is legal."""
    rows = [kernel_row(), kernel_row(globalPid=1 << 48 | (PID + 1) << 24, start=1_000_600)]
    assert nsys.read(nsys_export(path, rows)).notes == ()


def test_overlap_on_one_stream_is_cut(path: Path) -> None:
    launches = nsys.read(nsys_export(path, [kernel_row(), kernel_row(start=1_010_500)]))
    assert launches.duration_ns.tolist() == [10_000, 48_240]
    assert len(launches.notes) == 1


def test_operators_of_emit_nvtx(path: Path) -> None:
    ranges = [
        (100, 900, TID, "aten::linear, seq = 3, op_id = 1"),
        (200, 300, TID, "aten::addmm, seq = 4, op_id = 2, sizes = [[8], [4, 2], [2, 8]], input_op_ids = [(0,0)]"),
        (210, 290, TID, "my own range"),
        (200, 300, TID + 1, "aten::relu"),
        (150, None, TID, "aten::mark"),
    ]
    calls = [(70, TID, 250), (71, TID, 800), (72, TID, 950), (70, TID - (1 << 24), 250)]
    more = {
        "NVTX_EVENTS": (("start", "end", "globalTid", "text"), ranges),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("correlationId", "globalTid", "start"), calls),
    }
    rows = [kernel_row(start=10**6 * i, end=10**6 * i + 1, correlationId=69 + i) for i in (1, 2, 3)]
    launches = nsys.read(nsys_export(path, rows, more=more))
    assert launches.operator.tolist() == ["aten::addmm", "aten::linear", None]
    assert launches.shapes.tolist() == [((8,), (4, 2), (2, 8)), None, None]


def test_no_kernel_table_quotes_the_diagnostics(path: Path) -> None:
    said = [
        (1, "Profiling has started."),
        (2, "No NVTX events collected. Does the process use NVTX?"),
        (3, "CUDA driver 13.3 is not\nsupported."),
    ]
    nsys_export(path, None, more={"DIAGNOSTIC_EVENT": (("severity", "text"), said)})
    with pytest.raises(NoKernels) as caught:
        nsys.read(path)
    message = str(caught.value)
    assert "no kernel table in this Nsight Systems export; it says: 'CUDA driver 13.3 is not supported.';" in message
    assert "usual causes: no '--trace=cuda'" in message
    assert "NVTX" not in message
    assert caught.value.exit_code == 6


def test_empty_kernel_table(path: Path) -> None:
    with pytest.raises(NoKernels, match="the kernel table is empty; usual causes"):
        nsys.read(nsys_export(path, []))


def test_graphs_recorded_as_wholes(path: Path) -> None:
    graphs = {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (("start",), [(1,), (2,)])}
    with pytest.raises(NoKernels, match="2 CUDA graph launches were recorded as wholes.*--cuda-graph-trace=node"):
        nsys.read(nsys_export(path, None, more=graphs))
    path.unlink()
    assert nsys.read(nsys_export(path, [kernel_row()], more=graphs)).notes == (
        "2 graph launches are in the profile without kernels; nsys profile --cuda-graph-trace=node records them",
    )


def test_other_databases(path: Path) -> None:
    write_tables(path, {"songs": (("id",), [(1,)])})
    with pytest.raises(InputError, match=r"no Nsight Systems export \(tables: songs\)"):
        nsys.read(path)
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.execute("DROP TABLE t")
    connection.close()
    with pytest.raises(InputError, match="an SQLite database without tables"):
        nsys.read(path)


def test_locked_database(path: Path) -> None:
    nsys_export(path, [kernel_row()])
    writer = sqlite3.connect(path)
    writer.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(InputError, match="locked: another program is writing"):
            nsys.read(path)
    finally:
        writer.close()


def test_truncated_and_damaged_database(path: Path) -> None:
    nsys_export(path, [kernel_row()] * 500)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4096])
    with pytest.raises(InputError, match=f"truncated: {len(whole) - 4096} bytes are there, {len(whole)} should be"):
        nsys.read(path)
    path.write_bytes(whole[:60])
    with pytest.raises(InputError, match="truncated: 60 bytes"):
        nsys.read(path)
    path.write_bytes(whole[:100] + bytes(4000) + whole[4100:])
    with pytest.raises(InputError, match="the SQLite database is damaged"):
        nsys.read(path)


def test_views_are_not_run(path: Path) -> None:
    """A view could loop forever under the kernel table's name."""
    nsys_export(path, None)
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS "
        "WITH RECURSIVE t(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM t) SELECT start FROM t"
    )
    connection.commit()
    connection.close()
    with pytest.raises(NoKernels, match="no kernel table"):
        nsys.read(path)


def test_the_file_and_its_folder_stay_as_they_are(tmp_path: Path, path: Path) -> None:
    nsys_export(path, [kernel_row()])
    before = path.read_bytes()
    os.chmod(path, 0o444)
    nsys.read(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["with space?#%20.sqlite", "umlaut \u00e4.sqlite", "no text \udcff.sqlite"])
def test_names_that_a_uri_would_misread(tmp_path: Path, name: str) -> None:
    assert len(nsys.read(nsys_export(tmp_path / name, [kernel_row()]))) == 1


def test_progress_and_order(path: Path) -> None:
    rows: Sequence[tuple[object, ...]] = [
        kernel_row(start=start, end=start + 1, demangledName=3) for start in (30, 10, 20)
    ]
    seen: list[tuple[int, int]] = []
    launches = nsys.read(nsys_export(path, rows), progress=lambda done, size: seen.append((done, size)))
    assert launches.start_ns.tolist() == [10, 20, 30]
    assert launches.name.tolist() == [COPY] * 3
    size = path.stat().st_size
    assert seen[0] == (size, size)
