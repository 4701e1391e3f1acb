"""What the numbers of a report mean, in two to five plain sentences; a pure function of the report."""

from __future__ import annotations

from wavescope.analyze import MIN_UNIT_STEPS
from wavescope.wave_report import RankWave, WaveReport

# A bound below this is no promise worth a warning about clocks.
SMALL_BOUND = 1.02
# Above this share of mac time, padding is worth a sentence.
LARGE_PADDING = 0.2
# A bound above this reads better as a factor.
LARGE_BOUND = 2.0
# Below this share of S x T, SMs without any CTA are not worth a sentence.
SMALL_SHARE = 0.01


def meaning(report: WaveReport) -> tuple[str, ...]:
    """Two to five sentences for somebody who asks where the time went."""
    sentences = [_rounds(report), _hidden_waves(report), _padding(report), _unit_times(report), _bound(report)]
    said = [sentence for sentence in sentences if sentence]
    if report.launch.source == "simulated":
        said[0] = f"SIMULATED, nothing of this was measured. {said[0]}"
    return tuple(said)


def _rounds(report: WaveReport) -> str:
    """How the units fill the places, and what that costs."""
    waves, shares = report.waves, report.budget
    if waves.nominal_waves < 1:
        return _too_few(report)
    units, on = _units(report), _places(report)
    tail = _tail_cost(report)
    if waves.reason:
        onset = (waves.tail_onset_ns or 0) / shares.duration_ns
        work = f" ({report.launch.work})" if report.launch.work else ""
        return (
            f"{units} of unequal size{work} on {on} have no rounds in common: "
            f"the first SM is done at {onset:.0%} of the time, and {tail}."
        )
    rounds, last = len(waves.waves), waves.waves[-1]
    if last.fill == 1 or rounds == 1:
        many = "1 round" if rounds == 1 else f"{rounds} rounds"
        return f"{units} fill {many} of {on} completely, so no places are left over, and {tail}."
    places = round(last.units / last.fill)
    return (
        f"{units} on {on}: the {_ordinal(rounds)} round occupies {last.units} of them, "
        f"the other {places - last.units} have nothing left to do, and {tail}."
    )


def _too_few(report: WaveReport) -> str:
    """Below one wave there is no tail to remove: there are too few blocks."""
    shares = report.budget
    unused = shares.sms - shares.used_sms
    idle = (
        f"{unused} of {shares.sms} SMs never get one, which is {shares.share('unfilled'):.0%} of all SM time"
        if shares.share("unfilled") >= SMALL_SHARE
        else f"all {shares.sms} SMs get one, but not as many as fit"
    )
    tail = report.budget.terms["tail"]
    if shares.share("tail") >= SMALL_SHARE and not tail.refused:
        early = "SMs with short ones" if report.launch.work else "SMs with fewer of them"
        end = f"{early} end earlier, and {_tail_cost(report)}. There is"
    else:
        end = "There is no tail to remove, only"
    how = "more parts of k" if _is_cut(report) else "k split among CTAs"
    return (
        f"Too few blocks: {_units(report)} for {_places(report)}; {idle}. {end} room for more units (a smaller tile, "
        f"or {how}); whether they pay has to be measured."
    )


def _is_cut(report: WaveReport) -> bool:
    """Whether tiles were cut along k, so that there are more units than tiles."""
    launch = report.launch
    if launch.problem is None or launch.tile is None:
        return False
    return report.waves.num_units > launch.tile.num_tiles(launch.problem)


def _tail_cost(report: WaveReport) -> str:
    term = report.budget.terms["tail"]
    if term.refused:
        return "the tail is too short for the timer"
    split = report.tail
    cause = ""
    if split and split.of_equal_units and not split.quantization.refused:
        equal = split.quantization.value / report.budget.total_ns
        cause = f", where as many of equal size would lose {equal:.1%} (estimated)"
    elif split and not split.quantization.refused and term.value > 0 and report.budget.share("tail") >= SMALL_SHARE:
        part = split.quantization.value / term.value
        cause = ", nearly all of it from the number of units" if 0.9 <= part <= 1.1 else ""
        unequal = "units that add partial sums, and so end later" if _is_cut(report) else "unequal durations"
        cause = f", most of it from {unequal}" if part < 0.5 else cause
    return f"waiting for the last ones (the tail) is {report.budget.share('tail'):.1%} of all SM time{cause}"


def _hidden_waves(report: WaveReport) -> str | None:
    """Where all CTAs are resident at once, Nsight Compute sees one wave whatever happens inside."""
    launch, waves = report.launch, report.waves
    places = max(1, launch.places)
    if launch.schedule is None and launch.grid == places:
        return (
            f"All {launch.grid} blocks are resident at once: if the kernel is persistent, its waves are inside the "
            "blocks, and this trace does not show them."
        )
    if waves.num_units <= launch.grid or launch.grid > places:
        return None
    inside = f"there are {len(waves.waves)} rank waves inside" if waves.waves else "its units come in no common waves"
    return (
        f"Nsight Compute would call this {launch.grid / places:.2f} waves, for its {launch.grid} blocks are all "
        f"resident at once; {inside}."
    )


def _padding(report: WaveReport) -> str | None:
    """Where a good part of the work lies outside the problem, that is the first thing to know."""
    parts = report.budget
    mac = parts.terms["mac"].value
    share = parts.padding.value / mac if mac else 0.0
    if share < LARGE_PADDING:
        return None
    return f"{share:.0%} of the work the tiles issue lies outside the problem (padding): try smaller tiles."


def _unit_times(report: WaveReport) -> str | None:
    """The last round's units against the first's."""
    waves = report.waves
    if waves.duration_ratio is None or _short(waves.waves[0], report) or _short(waves.waves[-1], report):
        return None
    cycles = f" ({waves.cycle_ratio:.2f} in cycles)" if waves.cycle_ratio is not None else ""
    return (
        f"A unit of the last round takes {waves.duration_ratio:.2f} of the time of one of the first{cycles}; no "
        "barrier stands between rounds, an SM goes on as soon as it has room."
    )


def _short(wave: RankWave, report: WaveReport) -> bool:
    return wave.median_duration_ns < MIN_UNIT_STEPS * report.timer_step_ns


def _bound(report: WaveReport) -> str:
    """What perfect balance could bring at most."""
    bound = report.bound
    if bound.refused:
        return "The timer is too coarse to say what perfect balance could bring."
    if bound.value < SMALL_BOUND:
        return f"Balance is not the loss here: perfect balance would make it at most {bound.value - 1:.1%} faster."
    faster = f"{bound.value:.1f} times as fast" if bound.value >= LARGE_BOUND else f"{bound.value - 1:.0%} faster"
    return (
        f"Perfect balance would make it at most {faster}, at unchanged unit cost and clock; part of that is not to be "
        "had, since the clock rises while SMs idle."
    )


def _units(report: WaveReport) -> str:
    """The units counted, by their name: blocks of a foreign kernel, whole tiles, or parts of them."""
    launch, count = report.launch, report.waves.num_units
    name = "unit"
    if launch.schedule is None:
        name = "block"
    elif launch.problem and launch.tile and launch.tile.num_tiles(launch.problem) == count:
        name = "tile"
    return f"{count} {name}" if count == 1 else f"{count} {name}s"


def _places(report: WaveReport) -> str:
    """The room they have: SMs where one CTA fits on each, else places; or the CTAs, where fewer were launched."""
    places, sms = report.waves.places, report.budget.sms
    if places < report.launch.places:
        return f"{places} CTAs ({sms} SMs)"
    return f"{sms} SMs" if places == sms else f"{places} places ({sms} SMs)"


def _ordinal(number: int) -> str:
    names = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
    if number <= len(names):
        return names[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
