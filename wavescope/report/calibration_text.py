"""Calibrations for a terminal: the constants of each tile side by side, and how well they predict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from wavescope.calibration_row import Calibration
from wavescope.kernels import copies_ahead
from wavescope.leave_one_out import Checked, Prediction
from wavescope.report import figures
from wavescope.report.layout import Column, Page, heading, paragraph, table

_CONSTANTS = (
    ("a k_iter", "cycles_per_k_iter"),
    ("  staggered", "stream_slowdown"),
    ("  at an edge", "edge_slowdown"),
    ("  others idle", "idle_gain"),
    ("a unit", "fixed_cycles"),
    ("  first", "cold_cycles"),
    ("  CTA's first", "fill_cycles"),
    ("  with a share", "beside_cycles"),
    ("store a tile", "epilogue_cycles"),
    ("leave a sum", "partial_cycles"),
    ("add a sum", "add_cycles"),
    ("add a share", "share_cycles"),
    ("spare CTAs add", "spare_cycles"),
    ("prologue", "prologue_cycles"),
    ("exit", "exit_cycles"),
    ("gap", "gap_cycles"),
    ("queue gap", "queue_gap_cycles"),
    ("turnaround", "turnaround_cycles"),
    ("ramp ns", "ramp_ns"),
    ("MHz", "clock_mhz"),
    ("  others idle", "idle_clock_mhz"),
    ("  spread", "clock_spread"),
    ("capped TFLOP/s", "capped_tflops"),
    ("sharing", "sharing"),
    ("seniority", "seniority"),
    ("noise", "noise"),
)
_SLOWDOWNS = frozenset({"stream_slowdown", "edge_slowdown"})
_SHARES = frozenset({*_SLOWDOWNS, "idle_gain", "clock_spread", "noise"})
_RATIOS = frozenset({"sharing", "seniority"})
_AHEAD = frozenset({"fill_cycles", "beside_cycles"})  # costs of kernels that copy operands ahead
_WIDE = 14  # least cells of a column
LEGEND = (
    "Cycles, but where another unit is named. e: estimated from the tile's size. -: these launches do not tell it, "
    "so it counts as 0 or as part of a k_iter. Staggered: how much longer k_iters of Stream-K's shares take. "
    "At an edge: the same of tiles that reach over m or n. "
    "CTA's first: more for it where other units' operands are copied ahead. "
    "With a share: more for a tile while other warps add one. "
    "Others idle: what a k_iter saves, and the clock, where all other SMs idle. "
    "Capped: the rate that the card's power cap leaves in a long launch. "
    "Predicted: launches of which the others show all costs. "
    "A leave-one-out error is the predicted time of a launch over the measured one, less 1, with the costs that "
    "the other launches give."
)


def lines(page: Page, checked: Sequence[Checked]) -> list[Text]:
    """All calibrations, as many side by side as fit, then how well each predicts."""
    found: list[Text] = []
    for device in dict.fromkeys(one.row.device for one in checked):
        mine = [one for one in checked if one.row.device == device]
        found += [heading(page, f"Unit costs on {device}", "measured"), *_constants(page, [one.row for one in mine])]
        found += [Text(), heading(page, "Each launch predicted from the others", "estimated"), *_errors(page, mine)]
        found.append(Text())
    return [*found, *paragraph(page, LEGEND, "dim")]


def _constants(page: Page, rows: Sequence[Calibration]) -> list[Text]:
    labels = Column("", [f"{label:<{_WIDE}}" for label in ("", "", *(label for label, _ in _CONSTANTS))])
    wide = max([_WIDE, *(len(row.kernel) for row in rows)])
    room = max(1, (page.room - labels.width) // (wide + 2))
    found: list[Text] = []
    for begin in range(0, len(rows), room):
        shown = rows[begin : begin + room]
        columns = [Column(f"{row.kernel:>{_WIDE}}", _cells(row)) for row in shown]
        found += [*([Text()] if begin else []), *table(page, [labels, *columns])]
    return found


def _cells(row: Calibration) -> list[str]:
    return [str(row.tile), f"{row.dtype}, {row.ctas_per_sm} an SM", *(_cell(row, name) for _, name in _CONSTANTS)]


def _cell(row: Calibration, name: str) -> str:
    value: float = getattr(row, name)
    if name in row.unseen or (name == "capped_tflops" and value == 0):
        return "-"
    if name in _AHEAD and not copies_ahead(row.kernel):
        return ""
    if name in _SHARES:
        return figures.signed_percent(value) if name in _SLOWDOWNS else f"{value:.2%}"
    if name in _RATIOS:
        return f"{value:.3f}"
    text = "0" if value == 0 else f"{value:.1f}" if value < 1e4 else f"{value:.0f}"
    return f"{text} e" if name in row.estimated else text


def _errors(page: Page, checked: Sequence[Checked]) -> list[Text]:
    rows = [_error_cells(one) for one in checked]
    titles = ("tile", "type", "launches", "predicted", "median", "worst", "worst launch")
    drops = (0, 0, 0, 0, 0, 0, 1)
    columns = [
        Column(title, list(cells), drop)
        for title, cells, drop in zip(titles, zip(*rows, strict=True), drops, strict=True)
    ]
    return table(page, columns)


def _error_cells(one: Checked) -> tuple[str, ...]:
    known = [found for found in one.predictions if not found.missing]
    head = (str(one.row.tile), one.row.dtype, str(one.num_launches), str(len(known)))
    if not known:
        return (*head, "-", "-", "")
    worst = max(known, key=lambda found: abs(found.error))
    median = float(np.median([abs(found.error) for found in known]))
    return (*head, f"{median:.1%}", f"{worst.error:+.1%}", _named(worst))


def _named(found: Prediction) -> str:
    problem = found.launch.problem
    size = f" {problem.m}x{problem.n}x{problem.k}" if problem else ""
    return f"{found.launch.schedule}{size}"
