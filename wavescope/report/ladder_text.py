"""A ladder of kernels for a terminal: what each step adds, its time, and waterfalls and waves side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from wavescope.comparison import LIBRARY, SIMULATED, Comparison, Contender
from wavescope.ladder import INSIDE, INSIDE_FACTORS, RUNGS, Step, factors_of, library_of
from wavescope.report import figures
from wavescope.report.layout import Column, Page, fitting, heading, labelled, paragraph, table, width_of
from wavescope.standings import Standing
from wavescope.stats import Estimate
from wavescope.trace import SIMULATED_BECAUSE
from wavescope.wave_report import WaveReport

_LABEL = 15


def lines(page: Page, found: Comparison, placed: Sequence[Standing], climbed: Sequence[Step]) -> list[Text]:
    """The whole ladder, one Text a line, none wider than the page."""
    sections = [_header(page, found, climbed)]
    for regime in found.regimes:
        here = [step for step in climbed if step.standing.regime == regime]
        library = library_of(placed, regime)
        sections += [
            _result(page, found, here, library, regime),
            _waterfalls(page, found, here, regime),
            _waves(page, found, here, regime),
        ]
    body = [line for section in sections if section for line in (*section, Text())]
    return body[:-1]


def _header(page: Page, found: Comparison, climbed: Sequence[Step]) -> list[Text]:
    result = [heading(page, f"wavescope compare --ladder: {found.problem}", found.source)]
    device = found.device
    if found.source == "simulated":
        text = f"SIMULATED because {found.reason}: a virtual {device.name} made these numbers, nothing was measured."
        result += paragraph(page, text, "bold yellow")
    major, minor = device.compute_capability
    rows = [("device", f"{device.name}, {device.sms} SMs, sm_{major}{minor}, up to {device.max_clock_mhz:g} MHz")]
    if climbed:
        rows.append(("schedule", f"{climbed[0].standing.contender.ran}, for every step"))
    for label, text in rows:
        result += labelled(page, label, text, _LABEL)
    contenders = {one.name: one for one in found.contenders}
    for number, rung in enumerate(RUNGS, 1):
        if rung.name in contenders:
            text = f"{rung.kernel} {rung.tile}: {rung.adds}{_why_not(contenders[rung.name])}"
            result += labelled(page, f"{number} {rung.name}", text, _LABEL)
    if LIBRARY in contenders:
        one = contenders[LIBRARY]
        result += labelled(page, LIBRARY, _why_not(one).lstrip("; ") if one.unavailable else one.ran, _LABEL)
    for note in _notes(found):
        result += labelled(page, "note", note, _LABEL)
    return result


def _why_not(one: Contender) -> str:
    return f"; did not run: {one.unavailable}" if one.unavailable else ""


def _notes(found: Comparison) -> list[str]:
    """Remarks on the contenders, each once, with the names of those it is about where it is not about all."""
    by_note: dict[str, list[str]] = {}
    traced = [one for one in found.contenders if one.trace]
    for one in found.contenders:
        launches = one.trace.launches if one.trace else ()
        said_above = (f"compared as {one.name}", f"{SIMULATED_BECAUSE}{found.reason}")
        for note in dict.fromkeys([*(note for launch in launches for note in launch.notes), *one.notes]):
            if note not in said_above:
                by_note.setdefault(note, []).append(one.name)
    return [note if len(names) == len(traced) else f"{', '.join(names)}: {note}" for note, names in by_note.items()]


def _titled(page: Page, found: Comparison, title: str, regime: str) -> Text:
    return heading(page, title if regime == SIMULATED else f"{title}, regime {regime}", found.source)


def _result(page: Page, found: Comparison, here: Sequence[Step], library: Standing | None, regime: str) -> list[Text]:
    """A row a step, and the library's."""
    standings = [*(step.standing for step in here), *([library] if library else [])]
    gains = [*(step.gain for step in here), *([None] if library else [])]
    names = [*(f"{step.number} {step.rung.name}" for step in here), *([LIBRARY] if library else [])]
    unit = figures.unit_for(max(one.time_ns.median for one in standings), at_least=10)
    wide = max(map(len, (*names, "step")))

    def of_report(title: str, cell: Callable[[WaveReport], str], drop: int) -> Column:
        return Column(title, [cell(one.report) if one.report else "" for one in standings], drop)

    columns = [
        Column("step".ljust(wide), [name.ljust(wide) for name in names]),
        Column(f"time {unit.name}", [unit.number(one.time_ns.median, unit.decimals) for one in standings]),
        Column("95%", [_half(page, one.time_ns, unit.ns, unit.decimals) for one in standings], drop=4),
        Column("TFLOP/s", [f"{one.tflops:.1f}" for one in standings]),
        Column("x before", [f"{gain.median:.3f}{_half(page, gain, 1.0, 3, ' ')}" if gain else "" for gain in gains]),
        Column(f"x {LIBRARY}", [f"{one.library_ratio.median:.3f}" if one.library_ratio else "" for one in standings]),
        of_report("busy", lambda report: figures.percent(report.budget.not_idle.value / report.budget.total_ns), 3),
        Column("kcycles", [f"{one.cycles.median / 1e3:.1f}" if one.cycles else "" for one in standings], drop=1),
        of_report("MHz", lambda report: f"{report.clock.mean_mhz:.0f}" if report.clock else "", 2),
    ]
    columns = fitting(page, [column for column in columns if any(cell.strip() for cell in column.cells)])
    said = ["x before: time of the step before that ran / own"]
    if library:
        said.append(f"x {LIBRARY}: time of {LIBRARY} / own")
    if any(column.title == "busy" for column in columns):
        said.append("busy: SM time not idle")
    if any(column.title == "kcycles" for column in columns):
        said.append("kcycles: of the SM that was at work the longest")
    if found.source == "measured":
        said.append("medians with the wider side of their 95% interval")
    title = _titled(page, found, "Step by step", regime)
    return [title, *table(page, columns), *paragraph(page, "; ".join(said) + ".", "dim")]


def _half(page: Page, value: Estimate, scale: float, decimals: int, gap: str = "") -> str:
    """The wider side of an interval, in units of `scale`; nothing of an exact value."""
    wider = max(value.high - value.median, value.median - value.low) / scale
    return f"{gap}{page.glyphs.plus_minus}{wider:.{decimals}f}" if value.high > value.low else ""


def _side_by_side(page: Page, here: Sequence[Step], rows: Sequence[tuple[str, Sequence[str]]]) -> list[Text]:
    """Rows with a cell a step, under the steps' names where they have room, else numbers; the rest goes below."""
    shown = [(name, cells) for name, cells in rows if any(cells)]
    named = _columns(here, shown, [f"{step.number} {step.rung.name}" for step in here])
    if width_of(named) <= page.room:
        return table(page, named)
    numbered = _columns(here, shown, [str(step.number) for step in here])
    lines: list[Text] = []
    first, rest = numbered[0], numbered[1:]
    while rest:
        count = len(rest)
        while count > 1 and width_of([first, *rest[:count]]) > page.room:
            count -= 1
        lines += [*([Text()] if lines else []), *table(page, [first, *rest[:count]])]
        rest = rest[count:]
    return lines


def _columns(here: Sequence[Step], rows: Sequence[tuple[str, Sequence[str]]], titles: Sequence[str]) -> list[Column]:
    wide = max(len(name) for name, _ in rows)
    first = Column("".ljust(wide), [name.ljust(wide) for name, _ in rows])
    return [first, *(Column(titles[at], [cells[at] for _, cells in rows]) for at in range(len(here)))]


def _waterfalls(page: Page, found: Comparison, here: Sequence[Step], regime: str) -> list[Text]:
    """From the same peak to what each step achieved: factors, the parts of those inside the tile set in."""
    reports = [step.standing.report for step in here]
    falls = [report.waterfall if report else None for report in reports]
    if not any(falls):
        return []
    factors = [factors_of(fall) if fall else {} for fall in falls]
    names = _in_order([list(one) for one in factors])
    rows = [("peak TFLOP/s", [f"{fall.peak_tflops:.0f}" if fall else "" for fall in falls])]
    for name in names:
        values = [one.get(name) for one in factors]
        if any(value is not None and value != 1.0 for value in values):
            label = f"  {name}" if name in INSIDE_FACTORS else name
            rows.append((label, ["" if value is None else f"{value:.3f}" for value in values]))
    rows.append(("achieved", [f"{fall.achieved_tflops:.1f}" if fall else "" for fall in falls]))
    note = "Factors; their product is exact, their order a convention. Those that are 1 everywhere are left out."
    if any(name in INSIDE_FACTORS for name in names):
        note += f" The set-in ones are parts of {INSIDE}, of kernels that measure their waits."
    title = _titled(page, found, "Waterfalls from peak to achieved", regime)
    return [title, *_side_by_side(page, here, rows), *paragraph(page, note, "dim")]


def _in_order(lists: Sequence[Sequence[str]]) -> list[str]:
    """All names of lists that agree in their order, each once."""
    longest = max(lists, key=len)
    return [*longest, *(name for names in lists for name in names if name not in longest)]


def _waves(page: Page, found: Comparison, here: Sequence[Step], regime: str) -> list[Text]:
    """The waves of each step."""
    reports = [step.standing.report for step in here]

    def row(name: str, cell: Callable[[WaveReport], str]) -> tuple[str, list[str]]:
        return name, [cell(report) if report else "" for report in reports]

    rows = [
        row("units", lambda report: figures.grouped(report.waves.num_units)),
        row("places", lambda report: figures.grouped(report.waves.places)),
        row("nominal waves", lambda report: f"{report.waves.nominal_waves:.2f}"),
        row("wave efficiency", lambda report: figures.percent(report.waves.efficiency)),
        row("not idle", lambda report: figures.percent(report.budget.not_idle.value / report.budget.total_ns)),
        row("tail", lambda report: figures.percent(report.budget.share("tail"))),
        row("median unit us", lambda report: _first_median(report)),
        row("last / first", lambda report: f"{report.waves.duration_ratio:.3f}" if report.waves.duration_ratio else ""),
    ]
    note = (
        "Nominal waves and wave efficiency are estimated: units over places. Median unit: of the first wave; "
        "last / first: median unit of the last wave over it."
    )
    return [_titled(page, found, "Waves", regime), *_side_by_side(page, here, rows), *paragraph(page, note, "dim")]


def _first_median(report: WaveReport) -> str:
    return f"{report.waves.waves[0].median_duration_ns / 1e3:.2f}" if report.waves.waves else ""
