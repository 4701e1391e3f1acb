"""Reads Nsight Compute's report files (.ncu-rep) through NVIDIA's `ncu-report`, in a process of its own.

The library is C++ and trusts its input; a file that makes it crash or hang ends that
process, not this one.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from wavescope.audit.launches import NO_NAME, Launches
from wavescope.audit.ncu_metrics import DEVICE_NAME, WANTED, Activity, Kernel, launches
from wavescope.audit.quality import counted
from wavescope.audit.source import Progress, head, refuse
from wavescope.errors import NoKernels

MAGIC = b"NVR\0"
LIBRARY = "ncu_report"
_CHILD = Path(__file__).with_name("ncu_report_child.py")
_TIMEOUT_S = 120  # the largest report tried, 5.6 MB with every metric of 4 kernels, takes 0.3 s
# What the counter of issued instructions says in a cycle at most: one from each of an SM's four schedulers.
_PEAK_INSTRUCTIONS = 4
_MIN_SAMPLES = 4  # the first and the last cover a part of their interval, so fewer show nothing


def read(path: str | Path, *, progress: Progress | None = None) -> Launches:
    """The kernels of an .ncu-rep file, with the sampled series of active SMs where there is one.

    Raises: InputError for a damaged file, and where the package ncu-report is not
    installed; NoKernels for a report without kernels.
    """
    where = str(path)
    if not head(path).startswith(MAGIC):
        refuse(where, "not an Nsight Compute report", "give an .ncu-rep file")
    if importlib.util.find_spec(LIBRARY) is None:
        what = "an Nsight Compute report, and the package ncu-report, which reads it, is not installed"
        refuse(where, what, "pip install 'wavescope[nsight]', or export it: ncu --import FILE --csv --page raw")
    report = _parsed(where)
    kernels = [_kernel(entry) for entry in report["kernels"]]
    others = int(report["others"])
    what = counted(others, "result is no kernel", "results are no kernels")
    notes = [f"{what} (a range or a graph as a whole); left out"] if others else []
    if not kernels:
        raise NoKernels(f"{where}: no kernels in this report; {notes[0] if notes else 'profile it again'}")
    return launches(where, "ncu report", kernels, notes)


def _parsed(where: str) -> dict[str, Any]:
    """What the child process found in the file."""
    wanted = json.dumps([*WANTED, DEVICE_NAME])
    # -P: this folder's modules are not the child's
    command = [sys.executable, "-P", str(_CHILD), where, wanted]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return _damaged(where, f"not read after {_TIMEOUT_S} s")
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace").strip().splitlines()
        return _damaged(where, said[-1][:120] if said else "the library crashed")
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return _damaged(where, "the library's output cannot be understood")
    return found


def _damaged(where: str, reason: str) -> NoReturn:
    refuse(where, f"the Nsight Compute report is damaged or truncated ({reason})", "copy or profile it again")


def _kernel(entry: Mapping[str, Any]) -> Kernel:
    metrics = {
        name: float(value)
        for name, value in entry["metrics"].items()
        if name in WANTED and isinstance(value, (int, float)) and math.isfinite(value)
    }
    name = entry["metrics"].get(DEVICE_NAME)
    return Kernel(
        name=entry["name"] or NO_NAME,
        metrics=metrics,
        device_name=name if isinstance(name, str) and name else None,
        activity=activity(entry["time_ns"], entry["series"]),
    )


def activity(time_ns: list[int], series: Mapping[str, list[float]]) -> Activity | None:
    """The share of SMs active at each sample, from the kernel's first active sample to its last; None for few samples.

    Where instructions were counted per cycle and per active cycle, their ratio is the
    share itself, whatever the clock does; else active cycles are measured against the
    largest sample.  Times are from the first sample kept.
    """
    active, issued, per_active = (
        np.array(series.get(name, []), float) for name in ("active", "issued_pct", "issued_per_active")
    )
    if len(issued) == len(per_active) == len(active):
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(per_active > 0, issued / 100 * _PEAK_INSTRUCTIONS / per_active, 0.0)
    else:
        share = active / max(active.max(initial=0.0), 1.0)
    busy = np.flatnonzero(share > 0)
    if len(busy) < _MIN_SAMPLES or len(time_ns) != len(share) or not np.isfinite(share).all():
        return None
    kept = slice(busy[0], busy[-1] + 1)
    time = np.array(time_ns[kept], np.int64)
    return time - time[0], np.clip(share[kept], 0.0, 1.0)
