"""compute-sanitizer finds nothing in small launches of every schedule."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wavescope import kernel_table
from wavescope.device import Device
from wavescope.kernel_table import Kernel

SANITIZER = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
@pytest.mark.parametrize("kernel", kernel_table.KERNELS, ids=lambda kernel: kernel.name)
def test_nothing_is_found(device: Device, kernel: Kernel, tool: str) -> None:
    if not kernel.runs_on(device):
        pytest.skip(f"{device.name} lacks the instructions of {kernel.name}")
    if SANITIZER is None:
        pytest.skip("compute-sanitizer is not installed")
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [SANITIZER, "--tool", tool, "--error-exitcode", "9", sys.executable, "tests/gpu/small_launches.py", kernel.name],
        capture_output=True, text=True, check=False, cwd=root, env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]
    assert "all launches are right" in result.stdout
    assert "ERROR SUMMARY: 0 errors" in result.stdout or "RACECHECK SUMMARY: 0 hazards" in result.stdout
