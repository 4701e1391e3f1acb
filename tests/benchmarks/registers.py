"""Registers and spills of every kernel, tile and architecture, as the assembler reports them.

Writes wavescope/data/registers.csv (what the virtual device assumes) and prints the table;
needs NVRTC, no GPU.  Run: python tests/benchmarks/registers.py [KERNEL ...] [--write]; with
kernels named only theirs are compiled, and the other rows stay.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from wavescope import kernel_table, kernels, nvrtc
from wavescope.device import list_devices
from wavescope.problem import Problem

FIELDS = ("kernel", "tile", "compute_capability", "registers", "spill_bytes", "worst_registers", "worst_spill_bytes")


def rows(names: list[str]) -> list[dict[str, str | int]]:
    """One row a kernel (of `names`, or any), tile and compute capability: plain fixed, and the worst of all variants."""
    capabilities = {device.compute_capability: device for device in list_devices().values()}
    table: list[dict[str, str | int]] = []
    for kernel in (kernel for kernel in kernel_table.ALL_KERNELS if kernel.name in names or not names):
        for code in kernel.codes:
            for capability, device in sorted(capabilities.items()):
                if capability < (7, 5) or not kernel.runs_on(device):  # NVRTC 13 starts at 7.5
                    continue
                problem = Problem(code.tile.m, code.tile.n, code.tile.k, kernel.dtypes[0])
                stages = kernels.stages_that_fit(kernel, code, problem, device)
                if stages is None:
                    continue
                fact = kernels.KernelFacts(kernel.name, kernel.file, code, code.threads, 0, 0, stages)
                source = nvrtc.kernel_directory() / f"{kernel.file}.cu"
                arch = nvrtc.architecture(capability)
                cubins = {
                    (schedule, probe): nvrtc.compile_kernel(
                        source, kernels.defines(problem, fact, schedule, probe), arch
                    )
                    for schedule in kernel.schedules
                    for probe in (False, True)
                }
                plain = cubins["fixed", False]
                table.append(
                    {
                        "kernel": kernel.name,
                        "tile": str(code.tile),
                        "compute_capability": "{}.{}".format(*capability),
                        "registers": plain.registers,
                        "spill_bytes": plain.spill_bytes,
                        "worst_registers": max(cubin.registers for cubin in cubins.values()),
                        "worst_spill_bytes": max(cubin.spill_bytes for cubin in cubins.values()),
                    }
                )
    return table


def main() -> None:
    """Print the table; with --write, replace the recorded one."""
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    table = rows(names)
    for row in table:
        print(" ".join(f"{row[name]!s:>12}" for name in FIELDS))
    if "--write" in sys.argv:
        path = Path(__file__).parents[2] / "wavescope" / "data" / "registers.csv"
        with path.open(newline="") as file:
            others = [row for row in csv.DictReader(file) if names and row["kernel"] not in names]
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows([*others, *table])


if __name__ == "__main__":
    main()
