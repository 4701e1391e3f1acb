"""Time and peak memory of `wavescope audit`, as JSON: beside HolisticTraceAnalysis on one trace, and alone on 1 GB.

    python tests/benchmarks/audit_speed.py TRACE [--hta PYTHON] [--runs 5] [--gigabytes 1]

TRACE is a PyTorch trace (the project's figures are for the 53 MB one of
HolisticTraceAnalysis, 19,370 kernels on a V100).  PYTHON is the interpreter of an
environment with HolisticTraceAnalysis (pip install HolisticTraceAnalysis); it loads the
same file into its frame.  The two take turns; each run is a process of its own, from its
start to its end.  The large trace repeats TRACE's events with times shifted; the bound on
its memory is 150 MB and 200 bytes a kernel.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
HTA = """
import sys
from hta.common.trace import Trace
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="/")
trace.parse_traces(use_multiprocessing=False)
print(len(trace.get_trace(0)))
"""
BASE_MB, BYTES_A_KERNEL = 150, 200


@dataclass(frozen=True)
class Taken:
    """What a process took: wall and CPU seconds, peak memory in MB (10**6 bytes); and what it said on stderr."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    stderr: bytes


def run(command: list[str], compiled: Path) -> Taken:
    """Run a process that must succeed, its modules compiled to the folder `compiled`, as an installation has them."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    with tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        err.seek(0)
        said = err.read()
    if process.returncode:
        sys.exit(f"{command}: exit {process.returncode}: {said.decode(errors='replace')[-500:]}")
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, said)


def audit(trace: Path) -> list[str]:
    return [sys.executable, "-m", "wavescope", "audit", str(trace)]


def side_by_side(trace: Path, hta: str | None, runs: int, compiled: Path) -> dict[str, dict[str, float]]:
    """Median seconds and peak MB of each, in turns, after a run of each that is not counted."""
    commands = {"wavescope": audit(trace)} | ({"hta": [hta, "-c", HTA, str(trace)]} if hta else {})
    taken: dict[str, list[Taken]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            took = run(command, compiled)
            if turn:
                taken[name].append(took)
    return {
        name: {
            "seconds": round(statistics.median(one.seconds for one in some), 3),
            "least_seconds": round(min(one.seconds for one in some), 3),
            "cpu_seconds": round(statistics.median(one.cpu_seconds for one in some), 3),
            "peak_mb": round(max(one.peak_mb for one in some), 1),
        }
        for name, some in taken.items()
    }


def write_large(trace: Path, target: Path, size: int) -> int:
    """A trace of `size` bytes or more at `target`: the events of `trace` again and again; its kernels."""
    content = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
    begin = content.index(b"[", content.index(b'"traceEvents"')) + 1
    # the end of the array: the last bracket before which an object ends
    end = max(match.start(1) for match in re.finditer(rb"\}\s*(\])", content))
    events = content[begin:end]
    parts = re.split(rb'("ts": *)(\d+)', events)
    times = [int(text) for text in parts[2::3]]
    span = max(times) - min(times) + 1_000_000
    kernels = len(re.findall(rb'"cat": *"[Kk]ernel"', events))
    copies = 0
    with open(target, "wb") as file:
        file.write(content[:begin])
        while file.tell() < size:
            for index, moment in enumerate(times):
                parts[3 * index + 2] = b"%d" % (moment + copies * span)
            file.write((b"," if copies else b"") + b"".join(parts))
            copies += 1
        file.write(content[end:])
    return kernels * copies


def large(trace: Path, gigabytes: float, compiled: Path) -> dict[str, float]:
    """Seconds and peak memory on a trace of that size, and the bound."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "large.json"
        # in a process of its own: a child's peak memory counts what its parent holds as it forks
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as writing:
            kernels = writing.submit(write_large, trace, target, int(gigabytes * 1e9)).result()
        taken = run(audit(target), compiled)
        return {
            "gigabytes": round(target.stat().st_size / 1e9, 3),
            "kernels": kernels,
            "seconds": round(taken.seconds, 2),
            "peak_mb": round(taken.peak_mb, 1),
            "bound_mb": round(BASE_MB + BYTES_A_KERNEL * kernels / 1e6, 1),
            "lines_of_progress": taken.stderr.count(b"read "),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--hta", metavar="PYTHON")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    given = parser.parse_args()
    result: dict[str, object] = {"trace": given.trace.name}
    with tempfile.TemporaryDirectory() as folder:
        compared = side_by_side(given.trace.resolve(), given.hta, given.runs, Path(folder))
        result |= compared
        if "hta" in compared:
            ours, theirs = compared["wavescope"], compared["hta"]
            result["times_faster"] = round(theirs["seconds"] / ours["seconds"], 2)
            result["share_of_memory"] = round(ours["peak_mb"] / theirs["peak_mb"], 3)
        if given.gigabytes > 0:
            result["large"] = large(given.trace.resolve(), given.gigabytes, Path(folder))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
