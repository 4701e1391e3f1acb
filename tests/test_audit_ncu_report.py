"""Nsight Compute's report files: the child process that may crash, hang or lie, and the sampled series."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from test_audit_public_files import PROFILES

from wavescope.audit import ncu_report
from wavescope.audit.launches import NULL, ProfiledDevice
from wavescope.errors import InputError, NoKernels

needs_library = pytest.mark.skipif(
    importlib.util.find_spec(ncu_report.LIBRARY) is None, reason="ncu-report is not installed"
)
REPORT = PROFILES / "data" / "h200" / "cublas_full.ncu-rep"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(b"NVR\0 and some more")
    return path


def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Have `code` run in the place of the process that opens reports."""
    script = tmp_path / "child.py"
    script.write_text(code)
    monkeypatch.setattr(ncu_report, "_CHILD", script)
    monkeypatch.setattr(ncu_report, "LIBRARY", "json")  # found, whatever is installed


def says(found: object) -> str:
    return f"print({json.dumps(json.dumps(found))})"


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import os; os.abort()", "the library crashed"),
        ("raise SystemExit(3)", "the library crashed"),
        ("1 / 0", "the library crashed"),
        ("print('no report'); raise SystemExit(1)", "no report"),
        ("print('{')", "the library's output cannot be understood"),
    ],
)
def test_a_child_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: Path, code: str, problem: str
) -> None:
    child(monkeypatch, tmp_path, code)
    with pytest.raises(InputError) as caught:
        ncu_report.read(report)
    assert f"the Nsight Compute report is damaged or truncated ({problem})" in str(caught.value)


def test_a_child_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: Path) -> None:
    child(monkeypatch, tmp_path, "while True: pass")
    monkeypatch.setattr(ncu_report, "_TIMEOUT_S", 0.3)
    with pytest.raises(InputError, match="not read after 0.3 s"):
        ncu_report.read(report)


def test_what_the_child_prints_becomes_launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: Path) -> None:
    metrics = {
        "device__attribute_display_name": "NVIDIA H200",
        "launch__grid_dim_x": 2,
        "launch__grid_dim_y": 66,
        "launch__grid_dim_z": 1,
        "gpu__time_duration.sum": 58240.0,
        "sm__cycles_active.avg": 90.0,
        "sm__cycles_active.max": 100.0,
        "sm__cycles_elapsed.avg": "n/a",
        "launch__cluster_max_active": float("inf"),
    }
    kernel = {"name": "gemm", "metrics": metrics, "time_ns": [], "series": {}}
    child(monkeypatch, tmp_path, says({"kernels": [kernel], "others": 2}))
    launches = ncu_report.read(report)
    assert launches.kind == "ncu report"
    assert (launches.name[0], launches.grid[0].tolist(), launches.duration_ns[0]) == ("gemm", [2, 66, 1], 58240)
    assert launches.sm_active_avg_over_max[0] == 0.9
    assert launches.max_active_clusters[0] == NULL
    assert launches.notes == ("2 results are no kernels (a range or a graph as a whole); left out",)
    assert launches.devices == (
        ProfiledDevice(0, "NVIDIA H200", (9, 0), 132, 65536, 233472, 232448, 2048, 1980.0, "device table"),
    )


def test_a_report_without_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, report: Path) -> None:
    child(monkeypatch, tmp_path, says({"kernels": [], "others": 0}))
    with pytest.raises(NoKernels, match="no kernels in this report"):
        ncu_report.read(report)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, report: Path) -> None:
    monkeypatch.setattr(ncu_report, "LIBRARY", "a_package_that_is_not_there")
    with pytest.raises(InputError, match=r"pip install 'wavescope\[nsight\]', or export it"):
        ncu_report.read(report)


def test_not_a_report(tmp_path: Path) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(b"{}")
    with pytest.raises(InputError, match="not an Nsight Compute report"):
        ncu_report.read(path)


@needs_library
def test_damage(report: Path) -> None:
    """Rubbish behind the magic number is an empty report to the library; half of a report makes it crash."""
    with pytest.raises(NoKernels):
        ncu_report.read(report)
    if REPORT.exists():
        report.write_bytes(REPORT.read_bytes()[:1_000_000])
        with pytest.raises(InputError, match=r"damaged or truncated \(the library crashed\)"):
            ncu_report.read(report)


def test_share_of_active_sms_from_instructions() -> None:
    """At 40 % of the peak of 4 a cycle and 2 an active cycle, 1.6 / 2 = 80 % of the SMs are active."""
    series = {
        "active": [0, 5, 9, 9, 9, 2, 0],
        "issued_pct": [0, 25, 50, 50, 40, 10, 0],
        "issued_per_active": [0, 2, 2, 2, 2, 2, 0],
    }
    found = ncu_report.activity(
        [10, 20, 30, 41, 50, 60, 70], {name: [float(v) for v in s] for name, s in series.items()}
    )
    assert found is not None
    time_ns, share = found
    assert time_ns.tolist() == [0, 10, 21, 30, 40]
    assert share.tolist() == [0.5, 1.0, 1.0, 0.8, 0.2]


def test_share_of_active_sms_from_cycles_alone() -> None:
    found = ncu_report.activity([10, 20, 30, 40, 50], {"active": [0.0, 50.0, 100.0, 100.0, 90.0]})
    assert found is not None
    assert found[1].tolist() == [0.5, 1.0, 1.0, 0.9]


@pytest.mark.parametrize(
    ("time_ns", "active"),
    [
        ([], []),
        ([1, 2, 3, 4, 5], [0.0] * 5),
        ([1, 2, 3], [9.0] * 3),
        ([1, 2], [9.0] * 5),
        ([1, 2, 3, 4], [1, 1, np.nan, 1]),
    ],
)
def test_series_that_show_nothing(time_ns: list[int], active: list[float]) -> None:
    assert ncu_report.activity(time_ns, {"active": active}) is None


@needs_library
@pytest.mark.skipif(not REPORT.exists(), reason="the recorded report is not here")
def test_second_plateau_of_a_hidden_wave() -> None:
    """cuBLAS 2304x2304x4096: 252 tiles on 132 SMs, so 120 of them have a second one: 90.9 % of the SMs."""
    launches = ncu_report.read(REPORT)
    assert len(launches) == 4
    assert launches.name[3] == "nvjet_sm90_tst_168x128_64x5_1x2_h_bz_TNN"
    assert launches.max_active_clusters.tolist() == [66] * 4
    time_ns, share = launches.activity[3]
    assert len(time_ns) == len(share)
    late = share[22:36]
    assert np.abs(late - 120 / 132).max() < 0.002
    assert abs(launches.sm_active_avg_over_max[3] - 0.949) < 0.001
