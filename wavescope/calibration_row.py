"""What a unit costs on a device: a row of data/calibration.csv, or of a file that `wavescope calibrate` wrote."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from wavescope.errors import InputError, UsageError
from wavescope.grid_model import GridModel
from wavescope.kernels import adds_beside, takes_turns
from wavescope.problem import DTYPES, Dtype, Tile

SIGNIFICANT_DIGITS = 5

# Parts of `source`, each before the names of costs.
UNSEEN = "not to be told from these launches: "
ESTIMATED = "estimated from the tile's size: "


def source_text(recorded_in: str, unseen: Sequence[str], estimated: Sequence[str]) -> str:
    """The `source` of a Calibration: where it is from, and what its launches did not tell."""
    parts = [recorded_in]
    parts += [f"{UNSEEN}{', '.join(unseen)}"] if unseen else []
    parts += [f"{ESTIMATED}{', '.join(estimated)}"] if estimated else []
    return "; ".join(parts)


@dataclass(frozen=True)
class Calibration:
    """Costs of a kernel's units on a device, `ctas_per_sm` of its CTAs sharing each SM.

    In cycles; a main loop's and an epilogue's as their mean with that many of them on the SM:
    a unit's main loop   fixed_cycles + cycles_per_k_iter * k_iters, and cold_cycles more
                         for the first unit of a place (cold caches, all SMs at once),
                         fill_cycles more for the first one of each CTA, where the operands
                         of the others are copied ahead (kernels.copies_ahead), and
                         beside_cycles more while other warps add a share of partial sums;
    its end              epilogue_cycles, storing the tile;
    a CTA                prologue_cycles before its first unit, exit_cycles after its last;
    between units        gap_cycles in a CTA, queue_gap_cycles where a counter hands out,
                         turnaround_cycles between two CTAs that the hardware hands out;
    a tile that is cut   partial_cycles to leave a partial sum, add_cycles to read and add
                         one, share_cycles to add and store one share of all (tailsplit),
                         spare_cycles for each four of a tile where a CTA without a
                         part adds all of them.
                         k_iters of shares that are at different k (Stream-K) cost
                         1 + stream_slowdown times as much, for lost read sharing;
    a tile at the edge   1 + edge_slowdown times as much a k_iter where it reaches over m or n.

    `sharing` and `seniority` say how a main loop fares with fewer or older ones beside it
    (sharing.py): sharing is the share of its cost that goes with their number (1: they
    share one throughput; 0: none is slowed), seniority how much less each gets than the
    next older one (0: all the same).

    `ramp_ns` is how long the first CTAs take to begin on all SMs.  `clock_mhz` is the
    clock with all SMs busy, `idle_clock_mhz` the one that a lone SM would see; SMs
    differ by `clock_spread` (relative standard deviation), units by `noise`.
    `idle_gain` is the share of the k_iters' cost saved when the rest of the device idles;
    it is 0 with several CTAs per SM, where sharing accounts for what partly filled waves
    save.  `capped_tflops` is the rate of issued multiply-adds that the card's power cap
    leaves in a long launch (power_cap.py; 0: not known).

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
    fill_cycles: float
    beside_cycles: float
    epilogue_cycles: float
    prologue_cycles: float
    exit_cycles: float
    gap_cycles: float
    queue_gap_cycles: float
    turnaround_cycles: float
    partial_cycles: float
    add_cycles: float
    share_cycles: float
    spare_cycles: float
    ramp_ns: float
    clock_mhz: float
    idle_clock_mhz: float
    clock_spread: float
    idle_gain: float
    sharing: float
    seniority: float
    stream_slowdown: float
    edge_slowdown: float
    noise: float
    source: str
    capped_tflops: float = 0.0
    exact: bool = True
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What was calibrated, in words."""
        return f"{self.kernel} {self.tile} {self.dtype} on {self.device}"

    @property
    def key(self) -> tuple[str, str, Dtype, str, int]:
        """What there is one row of: kernel, tile, dtype, device, CTAs per SM."""
        return self.kernel, str(self.tile), self.dtype, self.device, self.ctas_per_sm

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
            share=self.share_cycles,
            spare=self.spare_cycles,
            fill=self.fill_cycles,
            beside=self.beside_cycles
            if adds_beside(self.kernel, self.tile)
            else 0.0
            if takes_turns(self.kernel)
            else None,
        )


_NO_COLUMNS = ("exact", "notes", "source")
COLUMNS = (*(entry.name for entry in fields(Calibration) if entry.name not in _NO_COLUMNS), "source")
_LATER = "capped_tflops"  # the column that files of before 2026-12 lack: not known there
_TEXTS = ("kernel", "dtype", "device", "source")
_NUMBERS = tuple(name for name in COLUMNS if name not in (*_TEXTS, "tile", "ctas_per_sm"))
# What a number may be; cycles and ns otherwise.
_RANGES = {
    "cycles_per_k_iter": (1e-6, 1e9),
    "clock_mhz": (1.0, 1e5),
    "idle_clock_mhz": (1.0, 1e5),
    "clock_spread": (0.0, 0.2),  # drawn from a normal distribution: with more, an SM's clock could come out near 0
    "idle_gain": (0.0, 0.99),
    "sharing": (0.0, 1.0),
    "seniority": (0.0, 0.99),
    "stream_slowdown": (0.0, 100.0),
    "edge_slowdown": (0.0, 100.0),
    "noise": (0.0, 1.0),
    "capped_tflops": (0.0, 1e5),
}
_CYCLES = (0.0, 1e9)
_LEAST_CAP = 0.01  # TFLOP/s: less than one SM does without tensor cores
_MAX_CTAS_PER_SM = 1024
_MAX_TEXT = 1000


def parse(text: str, where: str, advice: str = "reinstall wavescope") -> tuple[Calibration, ...]:
    """Rows of CSV text; inverse of `render` up to rounding.

    Raises: InputError with `where`, the line, the value and `advice`.
    """
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: dict[tuple[object, ...], Calibration] = {}
    try:
        names = tuple(reader.fieldnames or ())
        old = names == tuple(name for name in COLUMNS if name != _LATER)
        if names != COLUMNS and not old:
            missing = [name for name in COLUMNS if name not in names]
            what = f"lacks the column {missing[0]}" if missing else "has other columns than this wavescope writes"
            raise InputError(f"{where}: {what}; {advice}")
        for cells in reader:
            if old:
                cells[_LATER] = "0"
            row = _row(cells, f"{where}: line {reader.line_num}", advice)
            if row.key in rows:
                _refuse(f"{where}: line {reader.line_num}", f"{row.name} is there twice", advice)
            rows[row.key] = row
    except csv.Error as error:
        raise InputError(f"{where}: line {reader.line_num}: no CSV ({error}); {advice}") from error
    return tuple(rows.values())


def _refuse(where: str, what: str, advice: str) -> NoReturn:
    raise InputError(f"{where}: {what}; {advice}")


def _row(cells: dict[str, str], where: str, advice: str) -> Calibration:
    if None in cells or None in cells.values():
        _refuse(where, f"not {len(COLUMNS)} cells", advice)
    for name in _TEXTS:
        if not cells[name] or len(cells[name]) > _MAX_TEXT or not cells[name].isprintable():
            _refuse(where, f"{name} is {cells[name][:40]!r}, not a line of text", advice)
    dtype: Dtype | None = next((known for known in DTYPES if known == cells["dtype"]), None)
    if dtype is None:
        _refuse(where, f"dtype is {cells['dtype'][:40]!r}, not one of {', '.join(DTYPES)}", advice)
    try:
        tile = Tile.parse(cells["tile"])
    except UsageError:
        _refuse(where, f"tile is {cells['tile'][:40]!r}, not MxNxK", advice)
    ctas = cells["ctas_per_sm"]
    if not (ctas.isascii() and ctas.isdigit() and len(ctas) < 5 and 1 <= int(ctas) <= _MAX_CTAS_PER_SM):
        _refuse(where, f"ctas_per_sm is {ctas[:40]!r}, not a number from 1 to {_MAX_CTAS_PER_SM}", advice)
    values: dict[str, Any] = {name: cells[name] for name in _TEXTS if name != "dtype"}
    for name in _NUMBERS:
        low, high = _RANGES.get(name, _CYCLES)
        values[name] = _number(cells[name])
        if not low <= values[name] <= high:
            _refuse(where, f"{name} is {cells[name][:40]!r}, not a number from {low:g} to {high:g}", advice)
    if 0 < values["capped_tflops"] < _LEAST_CAP:
        said = cells["capped_tflops"][:40]
        _refuse(where, f"capped_tflops is {said!r}, less than {_LEAST_CAP:g} and not 0 (not known)", advice)
    return Calibration(tile=tile, dtype=dtype, ctas_per_sm=int(ctas), **values)


def _number(text: str) -> float:
    """NaN for what is no number, also where Python would take it (1_000, digits of other scripts)."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


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
