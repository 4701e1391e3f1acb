"""A comparison for a terminal: a table a regime, budgets and pictures side by side, and the verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rich.text import Text

from wavescope.comparison import LIBRARY, SIMULATED, Comparison, Contender
from wavescope.report import compare_charts, figures
from wavescope.report.layout import INDENT, Column, Page, fitting, heading, labelled, paragraph, table
from wavescope.report.text import verified_line
from wavescope.standings import Standing
from wavescope.stats import Estimate
from wavescope.trace import SIMULATED_BECAUSE
from wavescope.verdicts import Verdict
from wavescope.wave_report import Picture, WaveReport

_LABEL = 12
_TO_LIBRARY = f"x {LIBRARY}"
_WIDTH = "95%"
_OUTCOME_STYLES = {"faster": "bold green", "slower": "bold red", "even": "bold", "same work": "bold"}


def lines(
    page: Page,
    found: Comparison,
    placed: Sequence[Standing],
    said: Sequence[Verdict],
    pictures: Sequence[tuple[Standing, Picture]],
) -> list[Text]:
    """The whole comparison, one Text a line, none wider than the page."""
    sections = [_header(page, found)]
    sections += _results(page, found, placed)
    for regime in found.regimes:
        here = [standing for standing in placed if standing.regime == regime and standing.report]
        sections.append(compare_charts.budgets(page, here, found.source))
    sections += [compare_charts.pictures(page, pictures, found.source), _verdicts(page, said)]
    body = [line for section in sections if section for line in (*section, Text())]
    return body[:-1]


def _header(page: Page, found: Comparison) -> list[Text]:
    result = [heading(page, f"wavescope compare: {found.problem}, tile {found.tile}", found.source)]
    device = found.device
    if found.source == "simulated":
        text = f"SIMULATED because {found.reason}: a virtual {device.name} made these numbers, nothing was measured."
        result += paragraph(page, text, "bold yellow")
    major, minor = device.compute_capability
    rows = [
        ("device", f"{device.name}, {device.sms} SMs, sm_{major}{minor}, up to {device.max_clock_mhz:g} MHz"),
        ("kernel", f"{found.kernel}, for every schedule" if found.kernel else ""),
        ("tiles", f"{_tiles(found)}, for every schedule"),
    ]
    rows += [(one.name, ran) for one in found.contenders if (ran := _what_ran(one))]
    rows += _verified(found)
    rows += [("note", note) for note in _notes(found)]
    for label, text in rows:
        result += _labelled(page, label, text) if text else []
    return result


def _tiles(found: Comparison) -> str:
    tiles, most = found.tile.num_tiles(found.problem), found.tile.k_iters(found.problem)
    if found.work is None:
        return f"{figures.grouped(tiles)} of {figures.grouped(most)} k_iters each"
    share = figures.percent(found.k_iters / (tiles * most))
    return f"{figures.grouped(tiles)} of unequal k_iters ({found.work}), {share} of {figures.grouped(most)} each"


def _labelled(page: Page, label: str, text: str) -> list[Text]:
    """A label and its text; a label that leaves no gap is followed by two spaces."""
    width = _LABEL if len(label) < _LABEL else len(label) + 2
    return labelled(page, label, text, label_width=width)


def _what_ran(one: Contender) -> str:
    """What ran, without the schedule's name in front; nothing where that name says all."""
    schedule, _, rest = one.ran.partition(": ")
    return rest if re.split("[:@]", one.name)[0] == schedule else one.ran


def _verified(found: Comparison) -> list[tuple[str, str]]:
    """Checks of the results, contenders that came to the same together."""
    by_words: dict[str, list[str]] = {}
    for one in found.contenders:
        words = verified_line(one.verified) or "not verified"
        if one.unavailable is None and found.source == "measured":
            by_words.setdefault(words, []).append(one.name)
    everybody = len(by_words) == 1
    return [("verified", words if everybody else f"{', '.join(names)}: {words}") for words, names in by_words.items()]


def _notes(found: Comparison) -> list[str]:
    """Remarks on the contenders: those of every trace, then those of some, with their names in front."""
    by_note: dict[str, list[str]] = {}
    for one in found.contenders:
        launches = one.trace.launches if one.trace else ()
        said_above = (f"compared as {one.name}", f"{SIMULATED_BECAUSE}{found.reason}")
        for note in dict.fromkeys([*(note for launch in launches for note in launch.notes), *one.notes]):
            if note not in said_above:
                by_note.setdefault(note, []).append(one.name)
    traced = {one.name for one in found.contenders if one.trace}
    shared = [note for note, names in by_note.items() if traced <= set(names)]
    own = [(", ".join(names), note) for note, names in by_note.items() if note not in shared]
    return shared + [note if note.startswith(f"{names} ") else f"{names}: {note}" for names, note in own]


# --- the tables


def _results(page: Page, found: Comparison, placed: Sequence[Standing]) -> list[list[Text]]:
    """A table a regime; below the last one who did not run, and what the columns are."""
    sections: list[list[Text]] = []
    titles: set[str] = set()
    for regime in found.regimes:
        columns = fitting(page, _columns(page, [one for one in placed if one.regime == regime]))
        titles |= {column.title for column in columns}
        title = "Result" if regime == SIMULATED else f"Result, regime {regime}"
        sections.append([heading(page, title, found.source), *table(page, columns)])
    for one in found.contenders:
        if one.unavailable:
            sections[-1] += paragraph(page, f"{one.name} did not run: {one.unavailable}.", "yellow")
    sections[-1] += paragraph(page, _legend(found, titles), "dim")
    return sections


def _columns(page: Page, here: Sequence[Standing]) -> list[Column]:
    """Every column that has something in it; what says most goes last where room is short."""
    unit = figures.unit_for(max(one.time_ns.median for one in here), at_least=10)
    wide = max(len("schedule"), *(len(one.name) for one in here))

    def of_report(title: str, cell: Callable[[WaveReport], str], drop: int = 0) -> Column:
        return Column(title, [cell(one.report) if one.report else "" for one in here], drop)

    columns = [
        Column("schedule".ljust(wide), [one.name.ljust(wide) for one in here]),
        Column(f"time {unit.name}", [unit.number(one.time_ns.median, unit.decimals) for one in here]),
        Column(_WIDTH, [_half(page, one.time_ns, unit.ns, unit.decimals) for one in here], drop=4),
        Column("TFLOP/s", [f"{one.tflops:.1f}" for one in here], drop=5),
        Column("speed", [f"{one.ratio.median:.3f} {_half(page, one.ratio, 1.0, 3)}".rstrip() for one in here]),
        Column(_TO_LIBRARY, [f"{one.library_ratio.median:.3f}" if one.library_ratio else "" for one in here], drop=2),
        of_report("units", lambda report: figures.grouped(report.waves.num_units), drop=9),
        of_report("busy", lambda report: figures.percent(report.budget.not_idle.value / report.budget.total_ns)),
        of_report("fixup+wait", _fixup_and_wait, drop=1),
        of_report("tail", lambda report: figures.percent(report.budget.share("tail"))),
        of_report("imbalance", _imbalance),
        of_report("bound", lambda report: f"{report.bound.value:.3f}", drop=7),
        Column("kcycles", [f"{one.cycles.median / 1e3:.1f}" if one.cycles else "" for one in here], drop=3),
        of_report("MHz", lambda report: f"{report.clock.mean_mhz:.0f}" if report.clock else "", drop=6),
        Column(f"predicted {unit.name}", [_predicted(one, unit) for one in here], drop=8),
    ]
    return [column for column in columns if any(cell.strip() for cell in column.cells)]


def _half(page: Page, value: Estimate, scale: float, decimals: int) -> str:
    """The wider side of an interval, in units of `scale`; nothing of an exact value."""
    wider = max(value.high - value.median, value.median - value.low) / scale
    return f"{page.glyphs.plus_minus}{wider:.{decimals}f}" if value.high > value.low else ""


def _fixup_and_wait(report: WaveReport) -> str:
    return figures.percent(report.budget.share("fixup") + report.budget.share("wait"))


def _imbalance(report: WaveReport) -> str:
    tail = report.tail
    return figures.percent(tail.imbalance.value / report.budget.total_ns) if tail and tail.of_equal_units else ""


def _predicted(one: Standing, unit: figures.TimeUnit) -> str:
    predicted = one.contender.predicted_ns
    return "" if predicted is None else unit.number(predicted, unit.decimals)


def _legend(found: Comparison, titles: set[str]) -> str:
    """What the columns are, of those that are there."""
    said = [f"speed: time of {found.first.name} / own"]
    if _TO_LIBRARY in titles:
        said.append(f"{_TO_LIBRARY}: time of {LIBRARY} / own")
    said.append("busy: SM time not idle")
    if "imbalance" in titles:
        said.append("imbalance: the tail beyond that of as many equal tiles (estimated)")
    if "bound" in titles:
        said.append("bound: what perfect balance could bring at most (estimated)")
    if "kcycles" in titles:
        said.append("kcycles: of the SM that was at work the longest")
    if any(title.startswith("predicted") for title in titles):
        said.append("predicted: T on the calibrated virtual device (estimated)")
    if found.source == "measured":
        said.append("medians with the wider side of their 95% interval")
    return "; ".join(said) + "."


# --- the verdicts


def _verdicts(page: Page, said: Sequence[Verdict]) -> list[Text]:
    """A paragraph a verdict, its outcome first, contender by contender; what two regimes share is said once."""
    if not said:
        return []
    result = [heading(page, "Verdict" if len(said) == 1 else "Verdicts")]
    for name in dict.fromkeys(verdict.contender for verdict in said):
        printed: set[str] = set()
        for verdict in (verdict for verdict in said if verdict.contender == name):
            first, *others = verdict.sentences
            result += paragraph(page, first, _OUTCOME_STYLES[verdict.outcome])
            for sentence in others:
                result += paragraph(page, sentence, indent=2 * INDENT) if sentence not in printed else []
            printed |= set(others)
    return result
