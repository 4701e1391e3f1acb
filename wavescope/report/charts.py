"""The charts of a terminal report: waterfall, budget and the SM-by-time picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from wavescope.report import figures
from wavescope.report.glyphs import STATE_STYLES
from wavescope.report.layout import INDENT, Page, heading, paragraph
from wavescope.wave_report import STATES, Budget, Factor, Picture, Quantity, TailSplit, Waterfall, WaveReport

_NAME = 14
_BAR_LIMIT = 60
_WIDE_BAR = 36
_PICTURE_LABEL = 10


def waterfall(page: Page, report: WaveReport) -> list[Text]:
    """From the peak to the achieved rate: what each factor leaves, and what it takes."""
    fall = report.waterfall
    if fall is None:
        return []
    lines = [heading(page, "Waterfall from peak to achieved, TFLOP/s", report.launch.source)]
    lines.append(_waterfall_row(page, "peak", "", "", fall.peak_tflops, fall.peak_tflops, fall.peak_tflops))
    rate = fall.peak_tflops
    for factor in fall.factors:
        if _is_one(factor):
            continue
        before, rate = rate, rate * factor.value
        error = f"{page.glyphs.plus_minus}{factor.error:.4f}"
        row = _waterfall_row(page, factor.name, f"x {factor.value:.4f}", error, rate, before, fall.peak_tflops)
        lines += _with_remark(page, row, factor.meaning)
    lines.append(_waterfall_row(page, "achieved", "", "", fall.achieved_tflops, fall.achieved_tflops, fall.peak_tflops))
    lines += paragraph(page, _waterfall_note(report, fall), "dim")
    return lines


def _is_one(factor: Factor) -> bool:
    return factor.value == 1 and factor.error == 0


def _waterfall_note(report: WaveReport, fall: Waterfall) -> str:
    ones = [factor.name for factor in fall.factors if _is_one(factor)]
    sheet = f" (datasheet {fall.datasheet_tflops:g})" if fall.datasheet_tflops else ""
    return (
        f"peak = {report.device.sms} SMs x {fall.flop_per_clock_sm} FLOP a clock x "
        f"{report.device.max_clock_mhz:g} MHz{sheet}; achieved = useful FLOP / {fall.against}. "
        + (f"Factors of exactly 1: {', '.join(ones)}. " if ones else "")
        + "The product is exact, its order a convention."
    )


def _waterfall_row(page: Page, name: str, factor: str, error: str, rate: float, before: float, peak: float) -> Text:
    bar_room = _WIDE_BAR if page.is_wide else page.room - _NAME - 9 - 9 - 9
    line = Text(f"{'':{INDENT}}{name:<{_NAME}}", "bold" if not factor else "")
    line.append(f"{factor:<9}").append(f"{error:<9}", "dim").append(f"{figures.significant(rate):>7}  ")
    kept = page.glyphs.bar(_share(rate / peak) * bar_room)
    line.append(kept, STATE_STYLES["mac"])
    loss = round(_share(before / peak) * bar_room) - len(kept)
    line.append(page.glyphs.lost * max(0, loss), STATE_STYLES["tail"])
    return line


def _share(value: float) -> float:
    """The value within 0 and 1: no bar is longer than its room, whatever a trace claims."""
    return max(0.0, min(1.0, value))


def _with_remark(page: Page, row: Text, remark: str) -> list[Text]:
    """A row of the waterfall with the factor's meaning beside it, where the page is wide."""
    if not page.is_wide:
        return [row]
    at = INDENT + _NAME + 9 + 9 + 9 + _WIDE_BAR + 2
    row.pad_right(at - len(row))
    first, *more = textwrap.wrap(remark, page.width - at) or [""]
    row.append(first, "dim")
    return [row, *(Text(" " * at + part, "dim") for part in more)]


def budget(page: Page, report: WaveReport) -> list[Text]:
    """The states' shares of S * T, each with its SM time, its error and a bar."""
    parts = report.budget
    unit = figures.unit_for(parts.total_ns, at_least=10)
    title = f"Budget of {parts.sms} SMs x {figures.time(parts.duration_ns)}, SM-{unit.name}"
    lines = [heading(page, title, report.launch.source)]
    shown = [name for name in STATES if parts.terms[name].value != 0]
    for name in shown:
        lines.append(_budget_row(page, parts, unit, name, parts.terms[name], STATE_STYLES[name]))
        if name == "mac" and parts.padding.value:
            lines.append(_budget_row(page, parts, unit, "of it padding", parts.padding, "dim"))
        if name == "tail" and report.tail:
            lines += _tail_rows(page, parts, unit, report.tail)
    lines.append(_budget_row(page, parts, unit, "sum", Quantity(float(parts.total_ns), 0), None))
    zero = [name for name in STATES if name not in shown]
    notes = [f"Nothing in: {', '.join(zero)}."] if zero else []
    if parts.residual_ns:
        notes.append(f"The terms miss the sum by {parts.residual_ns} SM-ns.")
    if any(parts.terms[name].refused for name in shown):
        notes.append("? = the timer's error is over a tenth of the value: conclude nothing from it.")
    if report.tail:
        notes.append(_tail_note(report.tail))
    lines += paragraph(page, " ".join(notes), "dim")
    return lines


def _budget_row(
    page: Page, parts: Budget, unit: figures.TimeUnit, name: str, amount: Quantity, style: str | None
) -> Text:
    share = amount.value / parts.total_ns
    key = page.glyphs.states.get(name, " ")
    line = Text(" " * INDENT).append(key, style or "").append(f" {name:<{_NAME}}", "bold" if style is None else "")
    line.append(f"{figures.percent(share):>7}{'?' if amount.refused else ' '}")
    line.append(f"{unit.number(amount.value, 3):>10}")
    if style is None:
        return line
    line.append(f" {page.glyphs.plus_minus + unit.number(amount.error, 3):<8} ", "dim")
    used = INDENT + 2 + _NAME + 8 + 10 + 10
    line.append(page.glyphs.bar(_share(share) * min(_BAR_LIMIT, page.width - used)), style)
    line.rstrip()
    return line


def _tail_rows(page: Page, parts: Budget, unit: figures.TimeUnit, tail: TailSplit) -> list[Text]:
    pairs = (("quantization", tail.quantization), ("imbalance", tail.imbalance))
    return [_budget_row(page, parts, unit, f"  {name}", amount, "dim") for name, amount in pairs]


def _tail_note(tail: TailSplit) -> str:
    cost = tail.cost
    terms = f"{figures.time(cost.per_k_iter_ns)} a k_iter"
    for value_ns, what in ((cost.store_ns, "to store a tile"), (cost.partial_ns, "to write a partial")):
        if value_ns:
            terms += f" {'-' if value_ns < 0 else '+'} {figures.time(abs(value_ns))} {what}"
    fit = "units of equal cost, so no R2" if cost.r_squared is None else f"R2 {cost.r_squared:.3f}"
    costs = f"the unit costs fitted here: {terms} ({fit})"
    makespan = figures.time(tail.makespan_ns)
    if tail.of_equal_units:
        return (
            "The work is irregular, so quantization is what as many units of the mean cost would lose, and imbalance "
            "what unequal ones add (negative: they fill gaps that equal ones leave). Both are estimated from "
            f"{costs}; units of the mean cost would take {makespan}."
        )
    return f"Quantization and imbalance are estimated from {costs}; longest nominal load {makespan}."


def picture_size(width: int, height: int, sms: int) -> tuple[int, int]:
    """Rows and columns of a picture that fits a terminal of this size."""
    return min(sms, max(8, min(44, height - 6))), width - INDENT - _PICTURE_LABEL - 1


def picture(page: Page, report: WaveReport, cells: Picture) -> list[Text]:
    """Rows of SMs, columns of time; a cell shows the state that holds most of it."""
    rows = f"each row {cells.sms_per_row} SMs, latest end first" if cells.sms_per_row > 1 else "a row an SM"
    title = f"SMs by time: {rows}, a column {figures.time(cells.column_ns, 3)}"
    lines = [heading(page, title, report.launch.source), *picture_rows(page, cells)]
    lines += time_axis(page, cells.cells.shape[1], report.budget.duration_ns)
    return lines + picture_key(page, [cells])


def picture_rows(page: Page, cells: Picture) -> list[Text]:
    """The rows of a picture, each behind the SMs it shows."""
    lines = []
    for sms, row in zip(cells.rows_sms, cells.cells, strict=True):
        line = Text(f"{'':{INDENT}}{sm_label(sms):>{_PICTURE_LABEL}} ", "dim")
        for name, count in _runs([STATES[index] for index in row]):
            line.append(page.glyphs.states[name] * count, f"not dim {STATE_STYLES[name]}")
        line.rstrip()
        lines.append(line)
    return lines


def picture_key(page: Page, pictures: Sequence[Picture]) -> list[Text]:
    """What the characters of these pictures stand for."""
    present = {STATES[index] for cells in pictures for index in set(cells.cells.ravel().tolist())}
    keys = "   ".join(
        f"{page.glyphs.states[name].replace(' ', '(blank)')} {name}" for name in STATES if name in present
    )
    return paragraph(page, f"{keys}   (a cell shows what fills most of it)")


def _runs(names: list[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return runs


def sm_label(sms: tuple[int, ...]) -> str:
    """Which SMs a row shows: 'SM 7', 'SM 0-5', or the first one and how many more."""
    known = [sm for sm in sms if sm >= 0]
    if not known:
        return "unused"
    if len(sms) == 1:
        return f"SM {known[0]}"
    if len(known) == len(sms) and known == list(range(known[0], known[0] + len(known))):
        return f"SM {known[0]}-{known[-1]}"
    return f"SM {known[0]} +{len(sms) - 1}"


def time_axis(page: Page, columns: int, duration_ns: int) -> list[Text]:
    """The axis under pictures of `columns` columns, from 0 to `duration_ns`."""
    pad = " " * (INDENT + _PICTURE_LABEL + 1)
    glyphs = page.glyphs
    line = glyphs.axis_start + glyphs.axis * (columns - 2) + glyphs.axis_end
    unit = figures.unit_for(duration_ns)
    end = f"{unit.number(duration_ns)} {unit.name}"
    middle = unit.number(duration_ns / 2)
    numbers = "0" + middle.center(columns - 1 - len(end))[: columns - 1 - len(end)] + end
    return [Text(pad + line, "dim"), Text(pad + numbers, "dim")]
