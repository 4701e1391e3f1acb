"""The report for a terminal: plain lines that fit a width, coloured where there is colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from wavescope.comparison import words_of
from wavescope.device import sm_count_note
from wavescope.report import charts, figures
from wavescope.report.layout import Column, Page, heading, labelled, paragraph, table
from wavescope.schedule import SPLIT_SCHEDULES
from wavescope.trace import NULL, SIMULATED_BECAUSE
from wavescope.wave_report import INSIDE_MEANINGS, Picture, RankWave, WaveReport

# More rows than this are cut in the middle; the first and last waves are the telling ones.
_SHOWN_WAVES = 16

# Operands of a check, in words.
_OPERANDS = {"integers": "small integers", "normal": "random operands"}


def lines(page: Page, report: WaveReport, picture: Picture | None, sentences: Sequence[str]) -> list[Text]:
    """The whole report, one Text a line, none wider than the page."""
    sections = [
        _header(page, report),
        _result(page, report),
        charts.waterfall(page, report),
        _inside(page, report),
        charts.budget(page, report),
        _waves(page, report),
        charts.picture(page, report, picture) if picture else [],
        _meaning(page, report, sentences),
    ]
    body = [line for section in sections if section for line in (*section, Text())]
    return body[:-1]


def _header(page: Page, report: WaveReport) -> list[Text]:
    launch, device = report.launch, report.device
    what = str(launch.problem) if launch.problem else launch.kernel
    result = [heading(page, f"wavescope: {what}", launch.source)]
    notes = list(launch.notes)
    if launch.source == "simulated":
        why = next((note for note in notes if note.startswith(SIMULATED_BECAUSE)), "")
        notes = [note for note in notes if note != why]
        because = why.replace("simulated", "", 1)
        text = f"SIMULATED{because}: a virtual {device.name} made these numbers, nothing was measured."
        result += paragraph(page, text, "bold yellow")
    major, minor = device.compute_capability
    rows = [
        ("device", f"{device.name}, {device.sms} SMs, sm_{major}{minor}, up to {device.max_clock_mhz:g} MHz"),
        ("kernel", _kernel_line(report)),
        ("schedule", _schedule_line(report)),
        ("work", _work_line(report)),
        ("clock", _clock_line(report)),
        ("timer", _timer_line(page, report)),
    ]
    rows += [("verified", verified_line(launch.verified))]
    rows += [("note", note) for note in (sm_count_note(device), *notes) if note]
    for label, text in rows:
        result += labelled(page, label, text) if text else []
    return result


def verified_line(verified: dict[str, Any]) -> str:
    """The checks of the result in words, those that found the same thing together."""
    found: dict[str, list[str]] = {}
    for name, verdict in verified.items():
        kernel, _, values = name.partition("_")
        operands = _OPERANDS.get(values, values.replace("_", " "))
        found.setdefault(f"{_verdict(verdict)} on {operands}", []).append(kernel)
    return "; ".join(f"{text} ({' and '.join(kernels)})" for text, kernels in found.items())


def _verdict(verdict: Any) -> str:
    if not isinstance(verdict, dict) or "tolerance" not in verdict:
        return str(verdict)
    if verdict["tolerance"] == "exact":
        return "exact"
    return f"all within {verdict['tolerance']} (largest difference {verdict.get('worst_error', 0):.3g})"


def _kernel_line(report: WaveReport) -> str:
    launch = report.launch
    tile = f"tile {launch.tile}, " if launch.tile else ""
    cluster = f", clusters of {launch.cluster}" if launch.cluster > 1 else ""
    block, registers = (_known(value) for value in (launch.block, launch.registers))
    shared = "unknown" if launch.shared_bytes == NULL else figures.size(launch.shared_bytes)
    return (
        f"{launch.kernel}, {tile}{block} threads, {registers} registers, "
        f"{shared} shared memory{cluster}: {launch.ctas_per_sm} CTA"
        f"{'s' if launch.ctas_per_sm > 1 else ''} per SM"
    )


def _known(value: int) -> str:
    return "unknown" if value == NULL else str(value)


def _schedule_line(report: WaveReport) -> str:
    launch = report.launch
    name = launch.schedule or "the kernel's own"
    if launch.schedule in SPLIT_SCHEDULES and launch.parts is not None:
        name += f" ({words_of(launch).removeprefix(f'{name}: ')})"
    raster = f", raster {launch.raster}" if launch.raster else ""
    raster = ", longest tiles first (lpt)" + raster if launch.order == "lpt" else raster
    return (
        f"{name}{raster}: {figures.counted(report.waves.num_units, 'unit')}, grid {figures.grouped(launch.grid)}, "
        f"{figures.counted(launch.places, 'place')}"
    )


def _work_line(report: WaveReport) -> str:
    launch, flop = report.launch, report.flop
    if launch.work is None or launch.problem is None or flop is None:
        return ""
    share = figures.percent(flop.useful / launch.problem.flop)
    return f"{launch.work}: each tile takes its own number of k_iters, in all {share} of the problem's operations"


def _timer_line(page: Page, report: WaveReport) -> str:
    steps, placed = f"steps of {report.timer_step_ns} ns", report.placement
    if placed is None:
        return steps
    counters = f"{placed.counters} clock domains" if placed.by_domain else f"the clocks of {placed.counters} SMs"
    return (
        f"{steps}; begins of CTAs placed by {counters}, {page.glyphs.plus_minus}{placed.median_error_ns:.0f} ns "
        f"(median; 95%: {placed.high_error_ns:.0f})"
    )


def _clock_line(report: WaveReport) -> str:
    clock = report.clock
    if clock is None:
        return ""
    return (
        f"{clock.mean_mhz:.0f} MHz mean, {clock.low_mhz:.0f} to {clock.high_mhz:.0f} by SM; "
        f"{clock.first_tenth_mhz:.0f} in the first tenth of the time, {clock.last_tenth_mhz:.0f} in the last"
    )


def _result(page: Page, report: WaveReport) -> list[Text]:
    result = [heading(page, "Result", report.launch.source)]
    rows = [("time", _time_line(report))]
    if report.waterfall:
        fall = report.waterfall
        share = fall.achieved_tflops / fall.peak_tflops
        sheet = fall.datasheet_tflops
        beside = f", {figures.percent(fall.achieved_tflops / sheet)} of the datasheet's" if sheet else ""
        rate = figures.significant(fall.achieved_tflops)
        rows.append(("rate", f"{rate} TFLOP/s, {figures.percent(share)} of peak{beside}"))
    rows.append(("SMs", _busy_line(page, report)))
    rows.append(("balance", _bound_line(report)))
    if report.launch.timing:
        probe = report.launch.timing.perturbation
        change = signed_interval(probe.median, probe.low, probe.high)
        cost = f"costs at most {figures.signed_percent(probe.high - 1)} of the time"
        if probe.high < 1:
            cost = "the probed kernel is the faster one, so the spans are of code that differs from the plain kernel's"
        rows.append(("probe", f"{change}, {probe.count} pairs: {cost}"))
    for label, text in rows:
        result += labelled(page, label, text, style="bold" if label in ("time", "rate") else "")
    for refusal in report.refusals:
        result += labelled(page, "refused", refusal, style="yellow")
    return result


def signed_interval(median: float, low: float, high: float) -> str:
    """A ratio as a change in percent with its 95% interval."""
    inside = f"{figures.signed_percent(low - 1)} to {figures.signed_percent(high - 1)}"
    return f"{figures.signed_percent(median - 1)} (95%: {inside})"


def _time_line(report: WaveReport) -> str:
    timing = report.launch.timing
    span = f"{figures.time(report.budget.duration_ns)} from the first CTA's begin to the last one's end"
    if timing is None:
        return span
    span += " (of the probed launch)"
    plain = timing.plain_ns
    return (
        f"{figures.time(plain.median)} a launch (95%: {figures.time(plain.low)} to {figures.time(plain.high)}, "
        f"{plain.count} samples, regime {timing.regime}); {span}"
    )


def _busy_line(page: Page, report: WaveReport) -> str:
    parts = report.budget
    busy = parts.not_idle
    error = f"{page.glyphs.plus_minus}{figures.significant(100 * busy.error / parts.total_ns, 1)}"
    used = f"{parts.used_sms} of {parts.sms} SMs used, " if parts.used_sms < parts.sms else ""
    places = f"; places {figures.percent(report.place_busy)} busy" if report.launch.ctas_per_sm > 1 else ""
    active = f"; active cycles average / maximum {report.active_cycles_ratio:.3f}" if report.active_cycles_ratio else ""
    return f"{used}{figures.percent(busy.value / parts.total_ns)} of SM time not idle ({error} points){places}{active}"


def _bound_line(report: WaveReport) -> str:
    return (
        f"at most {report.bound.value:.3f} times faster with perfect balance, at unchanged unit cost and clock "
        "(estimated; the clock rises while SMs idle, so part of it cannot be had)"
    )


def _inside(page: Page, report: WaveReport) -> list[Text]:
    """Cycles a unit by what they went into, and what the limit is."""
    inside = report.inside
    if inside is None:
        return []
    parts = [(name, part) for name, part in inside.parts.items() if part.total or name in ("pipe", "operands", "room")]
    columns = [
        Column("cycles", [name for name, _ in parts], align="<"),
        Column("", [INSIDE_MEANINGS[name] for name, _ in parts], drop=1, align="<"),
        Column("median", [str(round(part.median)) for _, part in parts]),
        Column("p95", [str(round(part.p95)) for _, part in parts]),
        Column("share", [figures.percent(inside.share(name)) + ("?" if part.refused else " ") for name, part in parts]),
    ]
    result = [heading(page, "Inside the tile, SM cycles a unit", report.launch.source)]
    result += table(page, columns) + paragraph(page, inside.sentence)
    unsure = " ? = the error is over a tenth of the value." if any(part.refused for _, part in parts) else ""
    fill = "" if inside.fill_known else " Each CTA has one unit, so operands include the pipeline's fill."
    note = (
        f"A k_iter takes {inside.pipe_per_k_iter:g} cycles of pipe; fill and drain are a CTA's. Shares are of all "
        f"units' cycles, that of room of the mac cycles.{fill}{unsure}"
    )
    return result + paragraph(page, note, "dim")


def _waves(page: Page, report: WaveReport) -> list[Text]:
    waves = report.waves
    result = [heading(page, f"Waves: units ranked by begin, {waves.places} at a time", report.launch.source)]
    if waves.reason:
        result += paragraph(page, f"No waves: {waves.reason}.")
        bars = "".join(page.glyphs.level(share) for share in waves.busy_shares)
        result += labelled(page, "not idle", f"{bars}  share of the SMs in {len(bars)} equal parts of the time")
    if waves.waves:
        result += _wave_table(page, waves.waves, report.budget.duration_ns)
    notes = [
        f"{waves.nominal_waves:.2f} nominal waves, wave efficiency {figures.percent(waves.efficiency)} (estimated)."
    ]
    if waves.duration_ratio is not None:
        cycles = f" in time, {waves.cycle_ratio:.3f} in cycles" if waves.cycle_ratio is not None else ""
        notes.append(f"Median unit of the last wave / first wave: {waves.duration_ratio:.3f}{cycles}.")
    if waves.tail_onset_ns is not None:
        onset = waves.tail_onset_ns / report.budget.duration_ns
        at = figures.time(waves.tail_onset_ns)
        notes.append(f"The first SM ends its last CTA at {at}, {figures.percent(onset)} of the time.")
    if len(waves.waves) > 1:
        notes.append("No barrier parts the waves; a boundary is the median end of a wave's units.")
    return result + paragraph(page, " ".join(notes))


def _wave_table(page: Page, waves: Sequence[RankWave], duration_ns: int) -> list[Text]:
    shown, left_out = _elided(waves)
    unit = figures.unit_for(duration_ns, at_least=10)
    first = waves[0].median_duration_ns

    def times(values: list[float]) -> list[str]:
        return [unit.number(value, 2) for value in values]

    columns = [
        Column("wave", [str(wave.index + 1) for wave in shown]),
        Column("units", [str(wave.units) for wave in shown]),
        Column("fill", [figures.percent(wave.fill) for wave in shown], drop=1),
        Column(f"begin {unit.name}", times([wave.begin_ns for wave in shown]), drop=5),
        Column(f"end {unit.name}", times([wave.end_ns for wave in shown])),
        Column("length", times([wave.end_ns - wave.begin_ns for wave in shown]), drop=4),
        Column("not idle", [figures.percent(wave.utilization) for wave in shown]),
        Column("unit p10", times([wave.low_duration_ns for wave in shown]), drop=3),
        Column("median", times([wave.median_duration_ns for wave in shown])),
        Column("p90", times([wave.high_duration_ns for wave in shown]), drop=3),
        Column("to first", [f"{wave.median_duration_ns / first:.3f}" if first else "" for wave in shown], drop=2),
        Column("kcycles", [f"{wave.median_cycles / 1e3:.1f}" for wave in shown], drop=6),
    ]
    lines = table(page, columns)
    if left_out:
        middle = 1 + _SHOWN_WAVES // 2
        note = f"{page.glyphs.ellipsis} {left_out} waves left out here; --json has all {page.glyphs.ellipsis}"
        lines[middle:middle] = paragraph(page, note, "dim")
    return lines


def _elided(waves: Sequence[RankWave]) -> tuple[Sequence[RankWave], int]:
    """The first and last waves where there are too many, and how many are left out."""
    if len(waves) <= _SHOWN_WAVES + 1:
        return waves, 0
    half = _SHOWN_WAVES // 2
    return [*waves[:half], *waves[-half:]], len(waves) - 2 * half


def _meaning(page: Page, report: WaveReport, sentences: Sequence[str]) -> list[Text]:
    if not sentences:
        return []
    result = [heading(page, "What it means")]
    for sentence in sentences:
        result += paragraph(page, sentence)
    return result
