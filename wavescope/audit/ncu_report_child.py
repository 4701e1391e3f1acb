"""The process that opens an .ncu-rep file: prints its kernels as JSON, or one line of what is wrong.

Run as a script of its own: it needs nothing of wavescope, and starts in 0.1 s.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MAX_MEMORY = 4 << 30  # bytes of address space; a damaged length must not take the machine's memory
MAX_SAMPLES = 1_000_000
# The sampled counters, by the names that Nsight Compute 2024 and 2025 give them.
SERIES = {
    "active": ("pmsampling:sm__cycles_active.avg", "TPC.TriageCompute.sm__cycles_active.avg"),
    "issued_pct": (
        "pmsampling:sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
        "TPC.TriageCompute.sm__inst_executed_realtime.avg.pct_of_peak_sustained_elapsed",
    ),
    "issued_per_active": (
        "pmsampling:sm__inst_executed_realtime.avg.per_cycle_active",
        "TPC.TriageCompute.sm__inst_executed_realtime.avg.per_cycle_active",
    ),
}


def main(path: str, wanted: list[str]) -> int:
    """Print the report at `path` as JSON: each kernel's name, wanted metrics and sampled series."""
    _limit_memory()
    import ncu_report

    try:
        found = _contents(ncu_report.load_report(path), ncu_report, wanted)
    except (RuntimeError, ValueError) as error:  # how the library says that a file is damaged
        print(" ".join(str(error).split()) or type(error).__name__)
        return 1
    print(json.dumps(found))
    return 0


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _contents(report: Any, library: Any, wanted: list[str]) -> dict[str, Any]:
    kernels, others = [], 0
    for range_index in range(report.num_ranges()):
        actions = report.range_by_idx(range_index)
        for index in range(actions.num_actions()):
            action = actions.action_by_idx(index)
            kind = getattr(action, "workload_type", None)
            if kind is not None and kind() != library.IAction.WorkloadType_KERNEL:
                others += 1
                continue
            kernels.append(_kernel(action, wanted))
    return {"kernels": kernels, "others": others}


def _kernel(action: Any, wanted: list[str]) -> dict[str, Any]:
    known = set(action.metric_names())
    time_ns, series = _series(action, known)
    return {
        "name": _text(action.name(action.NameBase_DEMANGLED)),
        "metrics": {name: _value(action, name) for name in wanted if name in known},
        "time_ns": time_ns,
        "series": series,
    }


def _value(action: Any, name: str) -> float | str | None:
    value = action.metric_by_name(name).value()
    return value if isinstance(value, (int, float)) else _text(value) if isinstance(value, str) else None


def _text(value: str) -> str:
    return value.encode(errors="replace").decode()


def _series(action: Any, known: set[str]) -> tuple[list[int], dict[str, list[float]]]:
    """When the samples were taken (ns), and each counter's samples."""
    times: list[int] = []
    found: dict[str, list[float]] = {}
    for key, names in SERIES.items():
        name = next((name for name in names if name in known), None)
        if name is None:
            continue
        metric = action.metric_by_name(name)
        number = metric.num_instances()
        if not 2 <= number <= MAX_SAMPLES or not metric.has_correlation_ids():
            continue
        found[key] = [float(metric.value(index)) for index in range(number)]
        if key == "active":
            ids = metric.correlation_ids()
            times = [int(ids.value(index)) for index in range(number)]
    return times, found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
