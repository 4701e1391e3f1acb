"""Reads what `ncu --csv` prints: the details page and the raw page, with all that gets printed around them."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from wavescope.audit import ncu_metrics
from wavescope.audit.extents import NO_EXTENTS, Extents, grid_extents
from wavescope.audit.launches import NO_NAME, Launches
from wavescope.audit.lines import lines
from wavescope.audit.ncu_metrics import DEVICE_NAME, WANTED, Kernel, launches
from wavescope.audit.ncu_numbers import Separators, is_rounded, scale
from wavescope.audit.quality import counted
from wavescope.audit.source import Progress, refuse
from wavescope.audit.table import whole
from wavescope.errors import NoKernels

_PERMISSION = "ERR_NVGPUCTRPERM"
# The details page's labels, for those of the metrics it shows.
_LABELS = {
    "Duration": ncu_metrics.DURATION,
    "Elapsed Cycles": ncu_metrics.ELAPSED_GPC,
    "SM Active Cycles": ncu_metrics.ACTIVE,
    "Total SM Elapsed Cycles": ncu_metrics.ELAPSED_SUM,
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Cluster Size": "launch__cluster_size",
    "Max Active Clusters": "launch__cluster_max_active",
    "# SMs": "launch__sm_count",
    "Grid Size": "launch__grid_size",
    "Uses Green Context": "launch__uses_green_context",
}
_WAVES = "launch__waves_per_multiprocessor"  # has decimals, so it shows how they are written
_FACTS = ("ID", "Kernel Name", "Block Size", "Grid Size", "Device", "Stream", "CC", DEVICE_NAME)
_EVIDENCE_ROWS = 200  # rows of a raw page whose every number is looked at for separators
_EXTENTS = re.compile(r"\(?\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)?")
_CAPABILITY = re.compile(r"(\d{1,2})[.,](\d{1,2})")
_DELIMITERS = (",", ";", "\t")
_ADVICE = "export with 'ncu --csv --print-units base' under an English locale (LC_ALL=C)"
_NO_COUNTERS = (
    "an administrator must open GPU performance counters to all users; no counters are needed by torch.profiler and "
    "nsys: audit their files"
)


@dataclass(frozen=True)
class _Header:
    """A table's first line: where each column is, and how rows are written."""

    columns: dict[str, int]
    delimiter: str
    quoted: bool

    @property
    def is_details(self) -> bool:
        return "Metric Name" in self.columns

    def begins_row(self, line: str) -> bool:
        """Whether `line` belongs to the table, and not to what a program printed into it."""
        return line.startswith('"') if self.quoted else line.count(self.delimiter) > 2 and not line.startswith("==")


@dataclass
class _Row:
    """One kernel as its cells stand in the file; a metric with its unit."""

    facts: dict[str, str]
    metrics: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass
class _Found:
    """What has been read of a file."""

    rows: list[_Row] = field(default_factory=list)
    separators: Separators = field(default_factory=Separators)
    ragged: int = 0
    header: _Header | None = None
    units: dict[str, str] = field(default_factory=dict)
    row_of: dict[str, _Row] = field(default_factory=dict)  # by the ID in the current details page
    said: dict[str, str] = field(default_factory=dict)  # kind of remark: the first such line


def read(path: str | Path, *, progress: Progress | None = None) -> Launches:
    """The kernels of an `ncu --csv` export (details or raw page).

    Raises: InputError for a file without such a table, and for one whose separators of
    thousands and decimals cannot be told apart; NoKernels for a table without kernels,
    and for a run that was not allowed to read counters.
    """
    where = str(path)
    found = _Found()
    for line in lines(path, progress):
        header = _header(line)
        if header is not None:
            found.header, found.units, found.row_of = header, {}, {}
        elif found.header is not None and found.header.begins_row(line):
            _take(found, found.header, line)
        else:
            _hear(found, line)
    if not found.rows:
        _explain_none(where, found)
    problem = found.separators.problem()
    if problem:
        refuse(where, problem, _ADVICE)
    return launches(where, "ncu csv", [_kernel(row, found.separators) for row in found.rows], _notes(found))


def _header(line: str) -> _Header | None:
    if "Kernel Name" not in line or "ID" not in line:
        return None
    for delimiter in _DELIMITERS:
        cells = _cells(line, delimiter)
        if "Kernel Name" in cells and "ID" in cells:
            return _Header({name: index for index, name in enumerate(cells)}, delimiter, line.startswith('"'))
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a field above the module's limit, say
        return []


def _take(found: _Found, header: _Header, line: str) -> None:
    """Sort one line of a table into `found`."""
    cells = _cells(line, header.delimiter)
    if len(cells) <= max(header.columns[name] for name in ("ID", "Kernel Name")):
        found.ragged += 1
        return
    row = {name: cells[index] for name, index in header.columns.items() if index < len(cells)}
    if header.is_details:
        _take_detail(found, row)
    elif row["ID"]:
        _take_raw(found, row)
    else:
        found.units = row  # the line below a raw page's header


def _take_detail(found: _Found, row: dict[str, str]) -> None:
    kernel = found.row_of.get(row["ID"])
    if kernel is None:
        kernel = found.row_of[row["ID"]] = _Row(_facts(row))
        found.rows.append(kernel)
    label, value, unit = (row.get(f"Metric {what}", "") for what in ("Name", "Value", "Unit"))
    metric = _LABELS.get(label, label)
    if unit:
        found.separators.see(value)
    if metric in WANTED:
        kernel.metrics[metric] = value, unit
        _compare_grid(found, kernel)


def _take_raw(found: _Found, row: dict[str, str]) -> None:
    kernel = _Row(_facts(row))
    found.rows.append(kernel)
    for metric in WANTED:
        if row.get(metric):
            kernel.metrics[metric] = row[metric], found.units.get(metric, "")
            found.separators.see(row[metric])
    if len(found.rows) <= _EVIDENCE_ROWS:
        for name, value in row.items():
            if found.units.get(name) or name == _WAVES:
                found.separators.see(value)
    _compare_grid(found, kernel)


def _facts(row: dict[str, str]) -> dict[str, str]:
    return {name: row[name] for name in _FACTS if name in row}


def _compare_grid(found: _Found, kernel: _Row) -> None:
    """The number of blocks is in the file twice, as a metric and as three extents: that settles a separator."""
    cell = kernel.metrics.get("launch__grid_size", ("", ""))[0]
    grid = _extents(kernel.facts.get("Grid Size", ""))
    if cell and grid != NO_EXTENTS:
        found.separators.see_whole(cell, math.prod(grid))


def _hear(found: _Found, line: str) -> None:
    """Keep what ncu says outside the table, if it may explain why there is none."""
    for kind, sign in (("permission", _PERMISSION), ("error", "==ERROR=="), ("none", "No kernels were profiled")):
        if sign in line:
            found.said.setdefault(kind, line.strip()[:200])
    if line.startswith("==PROF=="):
        found.said.setdefault("ncu", line[:200])


def _explain_none(where: str, found: _Found) -> NoReturn:
    if "permission" in found.said:
        raise NoKernels(
            f"{where}: no kernels: this user may not read the GPU's counters ({_PERMISSION}); {_NO_COUNTERS}"
        )
    if "error" in found.said:
        raise NoKernels(f"{where}: no kernels; ncu says: {found.said['error']}")
    if "none" in found.said or found.header is not None:
        raise NoKernels(f"{where}: Nsight Compute profiled no kernels; check its --kernel-name and launch filters")
    if "ncu" in found.said:
        refuse(where, "Nsight Compute's output without a table", "run ncu with --csv --page raw")
    refuse(
        where,
        "neither a PyTorch trace nor a table of Nsight Compute",
        "give a PyTorch trace, an nsys export (SQLite), ncu's CSV or an .ncu-rep file",
    )


def _kernel(row: _Row, separators: Separators) -> Kernel:
    metrics = {
        name: value * scale(name, unit)
        for name, (cell, unit) in row.metrics.items()
        if not math.isnan(value := separators.number(cell))
    }
    facts = row.facts
    capability = _CAPABILITY.fullmatch(facts.get("CC", "").strip())
    return Kernel(
        name=facts["Kernel Name"] or NO_NAME,
        metrics=metrics,
        device_name=facts.get(DEVICE_NAME) or None,
        compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
        grid=_extents(facts.get("Grid Size", "")),
        block=_extents(facts.get("Block Size", "")),
        device=whole(facts.get("Device", "")),
        stream=whole(facts.get("Stream", "")),
    )


def _extents(cell: str) -> Extents:
    match = _EXTENTS.fullmatch(cell.strip())
    return grid_extents([whole(extent) for extent in match.groups()]) if match else NO_EXTENTS


def _notes(found: _Found) -> list[str]:
    notes = []
    if found.ragged:
        notes.append(f"{counted(found.ragged, 'line is', 'lines are')} too short for the table; left out")
    rounded = sum(any(is_rounded(unit) for _, unit in row.metrics.values()) for row in found.rows)
    if rounded:
        what = counted(rounded, "kernel has", "kernels have")
        notes.append(f"{what} sizes rounded to a few digits; export with --print-units base for exact ones")
    if "permission" in found.said:
        notes.append(f"some kernels were not profiled: {_PERMISSION}; {_NO_COUNTERS}")
    return notes
