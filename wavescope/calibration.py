"""What a unit costs: rows of data/calibration.csv, fitted on recorded traces, or the nearest one scaled.

tests/data/rebuild_calibration.py writes the table; calibrate.py fits its rows.
"""

from __future__ import annotations

import csv
import functools
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from typing import Any

from wavescope.device import Device, known_device
from wavescope.errors import UsageError
from wavescope.grid_model import GridModel
from wavescope.kernels import facts
from wavescope.occupancy import Resources, require_fit
from wavescope.problem import DTYPE_BYTES, Dtype, Problem, Tile
from wavescope.rates import kernel_flop_per_clock

SIGNIFICANT_DIGITS = 5

# Parts of `source`, each before the names of costs.
UNSEEN = "not to be told from these launches: "
ESTIMATED = "estimated from the tile's size: "


@dataclass(frozen=True)
class Calibration:
    """Costs of a kernel's units on a device, `ctas_per_sm` of its CTAs sharing each SM.

    In cycles; a main loop's and an epilogue's as their mean with that many of them on the SM:
    a unit's main loop   fixed_cycles + cycles_per_k_iter * k_iters, and cold_cycles more
                         for the first unit of a place (cold caches, all SMs at once);
    its end              epilogue_cycles, storing the tile;
    a CTA                prologue_cycles before its first unit, exit_cycles after its last;
    between units        gap_cycles in a CTA, queue_gap_cycles where a counter hands out,
                         turnaround_cycles between two CTAs that the hardware hands out;
    a tile that is cut   partial_cycles to leave a partial sum, add_cycles to read and add
                         one, share_cycles to add and store one share of all (tailsplit).
                         k_iters of shares that are at different k (Stream-K) cost
                         1 + stream_slowdown times as much, for lost read sharing.

    `sharing` and `seniority` say how a main loop fares with fewer or older ones beside it
    (sharing.py): sharing is the share of its cost that goes with their number (1: they
    share one throughput; 0: none is slowed), seniority how much less each gets than the
    next older one (0: all the same).

    `ramp_ns` is how long the first CTAs take to begin on all SMs.  `clock_mhz` is the
    clock with all SMs busy, `idle_clock_mhz` the one that a lone SM would see; SMs
    differ by `clock_spread` (relative standard deviation), units by `noise`.
    `idle_gain` is the share of the k_iters' cost saved when the rest of the device idles;
    it is 0 with several CTAs per SM, where sharing accounts for what partly filled waves
    save.

    A cost that the launches did not show (`unseen`) is 0, or part of cycles_per_k_iter;
    sharing is 1 then.  What partial sums cost is `estimated` instead.

    `exact` is False where the numbers are scaled from another tile, dtype, kernel or
    device; `notes` then says from which.
    """

    kernel: str
    tile: Tile
    dtype: Dtype
    device: str
    ctas_per_sm: int
    cycles_per_k_iter: float
    fixed_cycles: float
    cold_cycles: float
    epilogue_cycles: float
    prologue_cycles: float
    exit_cycles: float
    gap_cycles: float
    queue_gap_cycles: float
    turnaround_cycles: float
    partial_cycles: float
    add_cycles: float
    share_cycles: float
    ramp_ns: float
    clock_mhz: float
    idle_clock_mhz: float
    clock_spread: float
    idle_gain: float
    sharing: float
    seniority: float
    stream_slowdown: float
    noise: float
    source: str
    exact: bool = True
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What was calibrated, in words."""
        return f"{self.kernel} {self.tile} {self.dtype} on {self.device}"

    @property
    def recorded_in(self) -> str:
        """The part of `source` that says what was recorded."""
        return self.source.split(f"; {UNSEEN}")[0].split(f"; {ESTIMATED}")[0]

    @property
    def unseen(self) -> tuple[str, ...]:
        """Costs that the launches did not show."""
        return self._named(UNSEEN)

    @property
    def estimated(self) -> tuple[str, ...]:
        """Costs that are no fit, but follow from the tile's size."""
        return self._named(ESTIMATED)

    def _named(self, what: str) -> tuple[str, ...]:
        names = self.source.partition(f"; {what}")[2].partition("; ")[0]
        return tuple(names.split(", ")) if names else ()

    @property
    def grid_model(self) -> GridModel:
        """The grid-size model's constants in cycles, as with every place taken."""
        return GridModel(
            a=self.fixed_cycles + self.epilogue_cycles,
            b=self.partial_cycles,
            c=self.cycles_per_k_iter,
            d=self.add_cycles,
            staggered=self.stream_slowdown,
        )


COLUMNS = tuple(entry.name for entry in fields(Calibration) if entry.name not in ("exact", "notes"))
_TEXTS = ("kernel", "dtype", "device", "source")


@functools.cache
def table() -> tuple[Calibration, ...]:
    """The rows of data/calibration.csv."""
    return parse(files("wavescope").joinpath("data/calibration.csv").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[Calibration, ...]:
    """Rows of CSV text; inverse of `render` up to rounding."""
    return tuple(_row(cells) for cells in csv.DictReader(io.StringIO(text)))


def _row(cells: dict[str, str]) -> Calibration:
    values: dict[str, Any] = {
        name: cells[name] if name in _TEXTS else float(cells[name])
        for name in COLUMNS
        if name not in ("tile", "ctas_per_sm")
    }
    return Calibration(tile=Tile.parse(cells["tile"]), ctas_per_sm=int(cells["ctas_per_sm"]), **values)


def render(rows: Sequence[Calibration]) -> str:
    """CSV text of the rows, numbers to five significant digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(getattr(row, name)) for name in COLUMNS])
    return text.getvalue()


def _cell(value: object) -> str:
    return f"{value:.{SIGNIFICANT_DIGITS}g}" if isinstance(value, float) else str(value)


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
    device, then the tile closest in multiply-adds.  Of rows that differ only in CTAs per
    SM, the one closest to `ctas_per_sm`.

    Raises: UsageError where there is no row at all.
    """
    rows = table() if rows is None else rows
    if not rows:
        raise UsageError("no calibration is installed; measure on a GPU instead (--device cuda:0)")
    rows = sorted(rows, key=lambda row: abs(row.ctas_per_sm - ctas_per_sm))
    for row in rows:
        if (row.kernel, row.tile, row.dtype, row.device) == (kernel, tile, dtype, device.name):
            return row
    nearest = min(
        rows,
        key=lambda row: (
            row.kernel != kernel,
            DTYPE_BYTES[row.dtype] != DTYPE_BYTES[dtype],
            row.device != device.name,
            row.dtype != dtype,
            abs(math.log(_macs(tile) / _macs(row.tile))),
        ),
    )
    return _scaled(nearest, kernel, tile, dtype, device)


def model_for(kernel: str, tile: Tile, dtype: Dtype, device: Device, ctas_per_sm: int = 1) -> GridModel:
    """The grid-size model of a kernel's tile on a device, in cycles; raises as `lookup`."""
    return lookup(kernel, tile, dtype, device, ctas_per_sm).grid_model


def model_of(problem: Problem, tile: Tile, device: Device, most_ctas: int | None = None) -> GridModel:
    """The same for a problem's kernel, with as many CTAs an SM as fit; raises as kernels.facts and require_fit."""
    need = facts(problem, tile, device, most_ctas)
    fit = require_fit(f"tile {tile}", Resources(need.threads, need.registers, need.shared_bytes), device)
    return model_for(need.kernel, tile, problem.dtype, device, fit.count)


def _macs(tile: Tile) -> int:
    """Multiply-adds of one k_iter."""
    return tile.m * tile.n * tile.k


def _scaled(row: Calibration, kernel: str, tile: Tile, dtype: Dtype, device: Device) -> Calibration:
    """`row`'s cycles a multiply-add and an SM's rate, applied to another tile, dtype, kernel or device.

    Latencies (pipeline fill, prologue, turnaround) stay, storing and partial sums go with
    the tile's area, the clock keeps its ratio to the device's maximum.
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
    area_ratio = (tile.m * tile.n) / (row.tile.m * row.tile.n)
    clock_ratio = device.max_clock_mhz / origin.max_clock_mhz if origin else 1.0
    return replace(
        row,
        kernel=kernel,
        tile=tile,
        dtype=dtype,
        device=device.name,
        cycles_per_k_iter=row.cycles_per_k_iter * _macs(tile) / _macs(row.tile) * rate_ratio,
        epilogue_cycles=row.epilogue_cycles * area_ratio,
        partial_cycles=row.partial_cycles * area_ratio,
        add_cycles=row.add_cycles * area_ratio,
        share_cycles=row.share_cycles * area_ratio,
        clock_mhz=row.clock_mhz * clock_ratio,
        idle_clock_mhz=row.idle_clock_mhz * clock_ratio,
        exact=False,
        notes=tuple(notes),
    )
