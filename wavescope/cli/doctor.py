"""`wavescope doctor`: what is there, what is missing, and the way out of each gap."""

from __future__ import annotations

import json as json_module
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Annotated, Literal

import typer

from wavescope.errors import WavescopeError

SCHEMA_VERSION = 1
State = Literal["ok", "missing", "problem"]
BASE_PACKAGES = ("typer", "rich", "numpy", "pandas", "pyarrow")
OLDEST_PYTHON = (3, 11)
SUMMARY = "profile and report"


@dataclass(frozen=True)
class Finding:
    """One line: `missing` is an extra that is not there, `problem` keeps something from working."""

    what: str
    state: State
    detail: str
    way_out: str = ""


def doctor(json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> int:
    """Check the installation; exit with 0 where at least simulated profiles and reports work."""
    findings = list(examine())
    if json:
        print(
            json_module.dumps({"schema_version": SCHEMA_VERSION, "findings": [asdict(f) for f in findings]}, indent=2)
        )
    else:
        wide = max(len(finding.what) for finding in findings)
        for finding in findings:
            print(f"{finding.state:<8} {finding.what:<{wide}}  {finding.detail}")
            if finding.way_out:
                print(f"{'':<8} {'':<{wide}}  -> {finding.way_out}")
    works = next(finding for finding in findings if finding.what == SUMMARY)
    return 0 if works.state == "ok" else 1


def examine() -> Iterator[Finding]:
    """All findings, the installation first, then the GPU, then the console."""
    yield _python()
    for package in BASE_PACKAGES:
        yield _package(package, "problem", f"pip install {package}")
    yield _checked(SUMMARY, _simulate, "see the message; reinstall wavescope")
    yield _checked("calibration", _calibration, "")
    yield from _cupy()
    yield _checked("NVRTC", _nvrtc, "")
    yield _checked("kernel sources", _sources, "")
    yield _cache()
    yield _driver()
    yield from _devices()
    yield _package("nvtx", "missing", "pip install nvtx; without it profilers show no ranges")
    yield _tool("ncu", "Nsight Compute, for cross-checks; profiles do without it")
    yield _console()


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("python", "ok", version)
    return Finding("python", "problem", version, "install Python 3.11 or newer")


def _package(name: str, otherwise: State, way_out: str) -> Finding:
    try:
        return Finding(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, otherwise, "not installed", way_out)


def _checked(what: str, ask: Callable[[], str], way_out: str) -> Finding:
    """What `ask` answers, or the error it raises as a problem."""
    try:
        return Finding(what, "ok", ask())
    except WavescopeError as error:
        text, _, advice = str(error).partition("; ")
        return Finding(what, "problem", text, advice or way_out)
    except ImportError as error:
        return Finding(what, "problem", f"{error.name or 'a module'} cannot be imported", way_out)


def _simulate() -> str:
    """A tiny simulated profile, so that this says what works rather than what is installed."""
    from wavescope.analyze import analyze
    from wavescope.device import list_devices, virtual_device
    from wavescope.kernels import default_tile
    from wavescope.problem import Problem
    from wavescope.variant import Variant
    from wavescope.virtual import run

    device = virtual_device("h200")
    problem = Problem(512, 512, 512)
    trace = run(problem, default_tile(problem, device), Variant("fixed"), device, reason="doctor tries it")
    analyze(trace)
    return f"work without a GPU, on {len(list_devices())} virtual devices"


def _calibration() -> str:
    """Whose unit costs simulations and Stream-K use."""
    from wavescope.calibration_file import user_path, user_rows

    rows = user_rows()
    devices = ", ".join(sorted({row.device for row in rows}))
    return f"{user_path()}: {len(rows)} rows for {devices}, else the shipped one" if rows else "the shipped one"


def _cupy() -> Iterator[Finding]:
    from wavescope.cuda_device import INSTALL, cupy_distributions

    installed = cupy_distributions()
    if not installed:
        yield Finding("cupy", "missing", "not installed; measuring on a GPU needs it", INSTALL)
    elif len(installed) > 1:
        names = " ".join(installed)
        yield Finding(
            "cupy",
            "problem",
            f"installed {len(installed)} times ({names}): the copies overwrite each other",
            f"pip uninstall -y {names}; then {INSTALL}",
        )
    else:
        yield Finding("cupy", "ok", f"{installed[0]} {metadata.version(installed[0])}")


def _nvrtc() -> str:
    from wavescope.nvrtc import nvrtc_version

    return nvrtc_version()


def _sources() -> str:
    from wavescope.nvrtc import kernel_directory

    return str(kernel_directory())


def _cache() -> Finding:
    from wavescope.nvrtc import cache_directory

    folder, remark = cache_directory()
    if remark is None:
        return Finding("cubin cache", "ok", str(folder))
    return Finding("cubin cache", "problem", remark, "set WAVESCOPE_CACHE_DIR to a folder you may write to")


def _driver() -> Finding:
    from wavescope.cuda_device import driver_version

    version = driver_version()
    if version is None:
        return Finding("NVIDIA driver", "missing", "not installed", "profiles are simulated without one")
    return Finding("NVIDIA driver", "ok", f"knows CUDA up to {version}")


def _devices() -> Iterator[Finding]:
    from wavescope import cuda_device
    from wavescope.errors import DeviceError

    if not cuda_device.gpu_present():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        hint = f" (CUDA_VISIBLE_DEVICES is '{visible}')" if visible is not None else ""
        yield Finding("GPU", "missing", f"none that a driver shows{hint}", "profiles are simulated without one")
        return
    try:
        for index in range(cuda_device.count()):
            device = cuda_device.query(index)
            major, minor = device.compute_capability
            yield Finding(f"cuda:{index}", "ok", f"{device.name}, {device.sms} SMs, sm_{major}{minor}")
    except DeviceError as error:
        text, _, advice = str(error).partition("; ")
        yield Finding("GPU", "problem", text, advice)


def _tool(name: str, purpose: str) -> Finding:
    path = shutil.which(name)
    return Finding(name, "ok", path) if path else Finding(name, "missing", "not on PATH", purpose)


def _console() -> Finding:
    from wavescope.report.glyphs import UNICODE, for_encoding

    encoding = getattr(sys.stdout, "encoding", None) or "unknown"
    if for_encoding(encoding) is UNICODE:
        return Finding("console", "ok", encoding)
    way_out = "set PYTHONIOENCODING=utf-8 for block characters"
    return Finding("console", "ok", f"{encoding}: reports use plain ASCII", way_out)
