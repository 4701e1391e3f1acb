"""The charts of a comparison: budgets side by side, and SM-by-time pictures under one time axis."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from wavescope.report import charts, figures
from wavescope.report.glyphs import STATE_STYLES
from wavescope.report.layout import GAP, INDENT, Column, Page, heading, paragraph, table
from wavescope.standings import Standing
from wavescope.wave_report import STATES, Budget, Picture, WaveReport

_SUM = "sum"
_TIME = 11  # a bar's time behind it
_MOST_ROWS, _LEAST_ROWS = 12, 8
_ROWS_IN_ALL = 36  # of all pictures together, where there are that few


def budgets(page: Page, here: Sequence[Standing], source: str) -> list[Text]:
    """SM time by state, contenders beside one another: bars as long as their times, then the numbers.

    Amounts are SM time over SMs; shares are of the first one's S * T, so that lengths of
    all contenders compare.
    """
    reports = [(one.name, one.report) for one in here if one.report]
    if not reports:
        return []
    first = reports[0][1].budget
    timing = reports[0][1].launch.timing
    title = (
        f"Budgets{f', regime {timing.regime}' if timing else ''}: SM time / {first.sms} SMs, share of {reports[0][0]}'s"
    )
    lines = [heading(page, title, source), *_bars(page, reports), Text()]
    shown = [name for name in STATES if any(report.budget.terms[name].value for _, report in reports)]
    lines += _numbers(page, reports, shown, first)
    zero = [name for name in STATES if name not in shown]
    notes = [f"Nothing in: {', '.join(zero)}."] if zero else []
    terms = [report.budget.terms[name] for _, report in reports for name in shown]
    if any(term.value and term.refused for term in terms):
        notes.append("? = the timer's error is over a tenth of the value: conclude nothing from it.")
    return lines + paragraph(page, " ".join(notes), "dim")


def _bars(page: Page, reports: Sequence[tuple[str, WaveReport]]) -> list[Text]:
    """A bar a contender, as long as its T and divided by its states."""
    label = max(len(name) for name, _ in reports) + 2
    room = max(1, page.room - label - _TIME)
    longest = max(report.budget.duration_ns for _, report in reports)
    lines = []
    for name, report in reports:
        line = Text(f"{'':{INDENT}}{name:<{label}}")
        for state, cells in _shared_out(report.budget, room * report.budget.duration_ns / longest).items():
            line.append(page.glyphs.states[state] * cells, STATE_STYLES[state])
        lines.append(line.append(f" {figures.time(report.budget.duration_ns)}", "dim"))
    return lines


def _shared_out(shares: Budget, length: float) -> dict[str, int]:
    """Whole cells of a bar `length` long for each state; the largest remainders are rounded up."""
    exact = {state: max(0.0, shares.share(state)) * length for state in STATES}
    cells = {state: int(value) for state, value in exact.items()}
    left = max(0, round(length) - sum(cells.values()))
    for state in sorted(STATES, key=lambda name: cells[name] - exact[name])[:left]:
        cells[state] += 1
    return cells


def _numbers(page: Page, reports: Sequence[tuple[str, WaveReport]], shown: Sequence[str], first: Budget) -> list[Text]:
    """The terms in columns, one a contender; where not all fit beside one another, some below."""
    unit = figures.unit_for(first.duration_ns, at_least=10)
    names = [f"{page.glyphs.states[name]} {name}" for name in shown] + [f"  {_SUM}"]
    wide = max(len(name) for name in names)
    key = Column(f"{unit.name}".ljust(wide), [name.ljust(wide) for name in names])
    lines: list[Text] = []
    block = [key]
    for name, report in reports:
        column = Column(name, [_cell(report.budget, state, unit, first) for state in (*shown, _SUM)])
        if len(block) > 1 and sum(each.width for each in [*block, column]) + GAP * len(block) > page.room:
            lines += [*table(page, block), Text()]
            block = [key]
        block.append(column)
    return lines + table(page, block)


def _cell(shares: Budget, state: str, unit: figures.TimeUnit, first: Budget) -> str:
    """SM time over SMs, and its share of the first one's S * T."""
    if state == _SUM:
        return (
            f"{unit.number(shares.duration_ns, unit.decimals)} {figures.percent(shares.total_ns / first.total_ns):>6} "
        )
    term = shares.terms[state]
    if not term.value:
        return "- "
    share = figures.percent(term.value / first.total_ns)
    return f"{unit.number(term.value / shares.sms, unit.decimals)} {share:>6}{'?' if term.refused else ' '}"


def picture_size(width: int, sms: int, pictures: int) -> tuple[int, int]:
    """Rows of each of so many pictures, and columns of the longest, on a page of this width."""
    rows = max(_LEAST_ROWS, min(_MOST_ROWS, _ROWS_IN_ALL // max(1, pictures)))
    return min(sms, rows), charts.picture_size(width, 0, sms)[1]


def picture_columns(columns: int, duration_ns: float, longest_ns: float) -> int:
    """Columns of a picture under a time axis that ends at `longest_ns`, to the nearest one."""
    return max(1, round(columns * duration_ns / longest_ns))


def pictures(page: Page, drawn: Sequence[tuple[Standing, Picture]], source: str) -> list[Text]:
    """The pictures, one below the other, over one time axis."""
    shown = [(one.name, one.report, cells) for one, cells in drawn if one.report]
    if not shown:
        return []
    regime = "" if shown[0][1].launch.timing is None else f", regime {drawn[0][0].regime}"
    longest = max((report.budget.duration_ns, cells.cells.shape[1], cells.column_ns) for _, report, cells in shown)
    title = f"SMs by time{regime}: latest end first, a column {figures.time(longest[2], 3)}"
    lines = [heading(page, title, source)]
    for name, report, cells in shown:
        lines.append(Text(f"{'':{INDENT}}{name}", "bold").append(f"  {figures.time(report.budget.duration_ns)}", "dim"))
        lines += charts.picture_rows(page, cells)
    lines += charts.time_axis(page, longest[1], longest[0])
    return lines + charts.picture_key(page, [cells for _, _, cells in shown])
