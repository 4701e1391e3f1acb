"""What a unit costs: the user's own calibration, the shipped one, or the nearest row scaled.

tests/data/rebuild_calibration.py writes the shipped table, `wavescope calibrate` the
user's; calibrate.py fits the rows of both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

from wavescope.calibration_file import user_rows
from wavescope.calibration_row import Calibration, parse
from wavescope.device import Device, known_device
from wavescope.errors import UsageError
from wavescope.fixup_costs import estimated_beside_cycles
from wavescope.grid_model import GridModel
from wavescope.kernels import adds_beside, copies_ahead, facts
from wavescope.occupancy import Resources, require_fit
from wavescope.problem import DTYPE_BYTES, Dtype, Problem, Tile
from wavescope.rates import kernel_flop_per_clock


@functools.cache
def table() -> tuple[Calibration, ...]:
    """The rows of data/calibration.csv, then those of each data/calibration-*.csv.

    The first is rebuilt from recordings; the others are as `wavescope calibrate -o` wrote them.
    """
    names = sorted(file.name for file in files("wavescope").joinpath("data").iterdir())
    measured = [name for name in names if name.startswith("calibration-") and name.endswith(".csv")]
    rows: dict[tuple[object, ...], Calibration] = {}
    for name in ("calibration.csv", *measured):
        text = files("wavescope").joinpath("data", name).read_text(encoding="utf-8")
        for row in parse(text, f"wavescope/data/{name}"):
            rows.setdefault(row.key, row)
    return tuple(rows.values())


def installed() -> tuple[Calibration, ...]:
    """The user's rows, then the table's where the user has none of the same key.

    Raises: InputError where the user's file cannot be read.
    """
    own = user_rows()
    keys = {row.key for row in own}
    return (*own, *(row for row in table() if row.key not in keys))


def lookup(
    kernel: str,
    tile: Tile,
    dtype: Dtype,
    device: Device,
    ctas_per_sm: int = 1,
    rows: Sequence[Calibration] | None = None,
) -> Calibration:
    """The costs of `kernel`'s units on `device`: its own row, or the nearest one scaled, marked estimated.

    Nearest: of the same kernel, then of a dtype of the same size, then of the same
    device, then of another kernel with as many CTAs an SM, then the tile closest in
    multiply-adds.  Of rows that differ only in CTAs per SM, the one closest to `ctas_per_sm`.
    Where its launches do not show the power cap, and those of the kernel's other tiles do, it
    has the cap of the closest of these: a tile without one would seem faster than they are.

    `rows`: those to look in, by default the installed ones.

    Raises: UsageError where there is no row at all; InputError as `installed`.
    """
    rows = installed() if rows is None else rows
    if not rows:
        raise UsageError("no calibration is installed; measure on a GPU instead (--device cuda:0)")
    rows = sorted(rows, key=lambda row: abs(row.ctas_per_sm - ctas_per_sm))
    for row in rows:
        if (row.kernel, row.tile, row.dtype, row.device) == (kernel, tile, dtype, device.name):
            return _capped(row, rows)
    nearest = min(
        rows,
        key=lambda row: (
            row.kernel != kernel,
            DTYPE_BYTES[row.dtype] != DTYPE_BYTES[dtype],
            row.device != device.name,
            row.kernel != kernel and row.ctas_per_sm != ctas_per_sm,
            row.dtype != dtype,
            abs(math.log(_macs(tile) / _macs(row.tile))),
        ),
    )
    return _scaled(_capped(nearest, rows), kernel, tile, dtype, device)


def _capped(row: Calibration, rows: Sequence[Calibration]) -> Calibration:
    """The row, with a power cap where one is known for its kernel, type and device."""
    if row.capped_tflops:
        return row
    alike = [
        one
        for one in rows
        if one.capped_tflops and (one.kernel, one.dtype, one.device) == (row.kernel, row.dtype, row.device)
    ]
    if not alike:
        return row
    closest = min(alike, key=lambda one: abs(math.log(_macs(one.tile) / _macs(row.tile))))
    return replace(row, capped_tflops=closest.capped_tflops)


def model_for(kernel: str, tile: Tile, dtype: Dtype, device: Device, ctas_per_sm: int = 1) -> GridModel:
    """The grid-size model of a kernel's tile on a device, in cycles; raises as `lookup`."""
    return lookup(kernel, tile, dtype, device, ctas_per_sm).grid_model


def model_of(
    problem: Problem, tile: Tile, device: Device, most_ctas: int | None = None, kernel: str | None = None
) -> GridModel:
    """The same for a problem's kernel, with as many CTAs an SM as fit; raises as kernels.facts and require_fit."""
    need = facts(problem, tile, device, most_ctas, kernel)
    fit = require_fit(f"tile {tile}", Resources(need.threads, need.registers, need.shared_bytes), device)
    return model_for(need.kernel, tile, problem.dtype, device, fit.count)


def _macs(tile: Tile) -> int:
    """Multiply-adds of one k_iter."""
    return tile.m * tile.n * tile.k


def _scaled(row: Calibration, kernel: str, tile: Tile, dtype: Dtype, device: Device) -> Calibration:
    """`row`'s cycles a multiply-add and an SM's rate, applied to another tile, dtype, kernel or device.

    Latencies (pipeline fill, prologue, turnaround) stay, storing and partial sums go with
    the tile's area, the clock keeps its ratio to the device's maximum; another card's power
    cap is not known.  Where only one of
    the kernels copies operands ahead, what a unit costs once is what filling costs a CTA.
    """
    notes = [f"unit costs are estimated, scaled from {row.name} by multiply-adds and FLOP a clock"]
    origin = known_device(row.device)
    from_rate = kernel_flop_per_clock(row.kernel, origin, row.dtype) if origin else None
    to_rate = kernel_flop_per_clock(kernel, device, dtype)
    rate_ratio = from_rate / to_rate if from_rate and to_rate else 1.0
    if not (from_rate and to_rate):
        notes.append(f"the FLOP a clock of {kernel} on {device.name} is not known and taken as that of {row.name}")
    if row.device != device.name:
        notes.append("memory bandwidth and cache of the other device are not in the estimate")
    same_card = row.device == device.name and DTYPE_BYTES[row.dtype] == DTYPE_BYTES[dtype]
    area_ratio = (tile.m * tile.n) / (row.tile.m * row.tile.n)
    clock_ratio = device.max_clock_mhz / origin.max_clock_mhz if origin else 1.0
    fixed, fill = row.fixed_cycles, row.fill_cycles
    if copies_ahead(kernel) != copies_ahead(row.kernel):
        fixed, fill = (0.0, fixed) if copies_ahead(kernel) else (fixed + fill, 0.0)
    beside = row.beside_cycles * area_ratio
    if adds_beside(kernel, tile) != adds_beside(row.kernel, row.tile):
        beside = estimated_beside_cycles(tile) if adds_beside(kernel, tile) else 0.0
    return replace(
        row,
        kernel=kernel,
        fixed_cycles=fixed,
        fill_cycles=fill,
        beside_cycles=beside,
        tile=tile,
        dtype=dtype,
        device=device.name,
        cycles_per_k_iter=row.cycles_per_k_iter * _macs(tile) / _macs(row.tile) * rate_ratio,
        epilogue_cycles=row.epilogue_cycles * area_ratio,
        partial_cycles=row.partial_cycles * area_ratio,
        add_cycles=row.add_cycles * area_ratio,
        share_cycles=row.share_cycles * area_ratio,
        spare_cycles=row.spare_cycles * area_ratio,
        clock_mhz=row.clock_mhz * clock_ratio,
        idle_clock_mhz=row.idle_clock_mhz * clock_ratio,
        capped_tflops=row.capped_tflops if same_card else 0.0,
        exact=False,
        notes=tuple(notes),
    )
