"""Who wins, who loses and why: each contender against the first, from their times and their two budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wavescope.accounts import Account, Part, account
from wavescope.comparison import SIMULATED, Comparison
from wavescope.raster import DEFAULT_RASTER
from wavescope.reasons import account_words, causes, doubts, draw_words, imbalance_words, microseconds
from wavescope.schedule import SPLIT_SCHEDULES, wave_efficiency
from wavescope.standings import Standing
from wavescope.stats import LEAST_SAMPLES, Estimate

Outcome = Literal["faster", "slower", "even", "same work"]

# A part of a difference below this share of the first contender's time goes into "the rest".
NAMED_SHARE = 0.005
# Virtual H200, 2304x2304x4096, 128x256x64, seeds 0 to 4: persistent comes out at 0.975 to 0.993
# of the speed of fixed.  Differences below this depend on the seed.
SIMULATED_RESOLUTION = 0.02
# Where the partial wave costs less than this, there is no share of it worth a number.
LEAST_IDEAL = 1.02


@dataclass(frozen=True)
class Gain:
    """How much of what the partial last wave costs a schedule gains: `share` = (speedup - 1) / (ideal - 1).

    `speedup` is in SM cycles (Standing.cycles) over `base`, the better of
    fixed and persistent in this comparison; `ideal` = 1 / wave efficiency of fixed in the
    same tile, an estimate.
    """

    share: float
    speedup: float
    ideal: float
    base: str


@dataclass(frozen=True)
class Verdict:
    """One contender against the first under one regime.

    `outcome` is even where the interval of the ratio includes 1, and same work where both
    do the same, whatever their names say.  `reasons` are the names of the parts of
    `account` that make a difference, the largest first; `account` is None where one of
    the two leaves no spans.
    """

    contender: str
    regime: str
    outcome: Outcome
    reasons: tuple[str, ...]
    account: Account | None
    gain: Gain | None
    sentences: tuple[str, ...]


def verdicts(found: Comparison, placed: Sequence[Standing]) -> tuple[Verdict, ...]:
    """A verdict for each standing but the first contender's, in their order.

    Raises: InputError for contenders on different numbers of SMs.
    """
    made = []
    for regime in found.regimes:
        here = [standing for standing in placed if standing.regime == regime]
        first = next((standing for standing in here if standing.name == found.first.name), None)
        if first is not None:
            made += [_verdict(found, first, own, _gain(found, own, here)) for own in here if own is not first]
    return tuple(made)


def _verdict(found: Comparison, first: Standing, own: Standing, gain: Gain | None) -> Verdict:
    if _work(own) is not None and _work(own) == _work(first):
        return Verdict(own.name, own.regime, "same work", (), None, None, (_same_work(found, first, own),))
    outcome = _outcome(found, own.ratio)
    between, named = _account(first, own)
    said = [_headline(found, first, own, outcome)]
    if between is None:
        silent = first if first.report is None else own
        said.append(f"{silent.name} leaves no spans ({silent.contender.ran} ran), so no budget says why.")
    else:
        numbers = first.time_ns.median, found.k_iters / found.device.sms
        said += draw_words(named, *numbers) if outcome == "even" else account_words(between, named, *numbers)
        said += imbalance_words(first, own)
        said += causes(first, own, named, found.source) if outcome != "even" else []
        said += doubts(first, own, found.device) if found.source == "simulated" else []
    if _comes_to(own):
        said.append(f"{_comes_to(own)}; what differs from that is noise.")
    if gain and outcome != "even":
        said.append(_gain_words(gain))
    return Verdict(own.name, own.regime, outcome, tuple(part.name for part in named), between, gain, tuple(said))


def _account(first: Standing, own: Standing) -> tuple[Account | None, list[Part]]:
    """The account of the two times, where both leave spans, and the parts of it that are worth a name."""
    if not (first.report and own.report):
        return None, []
    between = account(first.report, own.report, first.time_ns, own.time_ns)
    least = NAMED_SHARE * first.time_ns.median
    named = [part for part in between.parts if abs(part.amount.value) >= least and not part.amount.refused]
    return between, sorted(named, key=lambda part: -abs(part.amount.value))


def _outcome(found: Comparison, ratio: Estimate) -> Outcome:
    slack = SIMULATED_RESOLUTION if found.source == "simulated" else 0.0
    if found.source == "measured" and ratio.count < 2:
        return "even"  # a single round has no interval
    if ratio.low <= 1 + slack and ratio.high >= 1 - slack:
        return "even"
    return "faster" if ratio.median > 1 else "slower"


def _headline(found: Comparison, first: Standing, own: Standing, outcome: Outcome) -> str:
    """Who is faster and by how much, with the interval of the measurement."""
    mine, its = (microseconds(one.time_ns.median, first.time_ns.median) for one in (own, first))
    times = f"{mine} against {its} us"
    if outcome == "faster":
        said = f"{own.name} is {own.ratio.median:.3f} times as fast as {first.name}{_interval(own)}: {times}."
    elif outcome == "slower":
        longer = f"{1 / own.ratio.median:.3f} times as long as {first.name}{_interval(own, inverse=True)}"
        said = f"{own.name} loses: it takes {longer}, {times}."
    else:
        shows = "the simulation could tell from its noise" if found.source == "simulated" else "the measurement shows"
        ratio = f"ratio {own.ratio.median:.3f}{_interval(own)}"
        said = f"Between {own.name} and {first.name} there is no difference that {shows}: {ratio}, {times}."
    return _marked(found, said)


def _interval(one: Standing, inverse: bool = False) -> str:
    """The regime and the interval of the ratio, or of its inverse, in brackets; nothing where nothing was measured."""
    if one.regime == SIMULATED:
        return ""
    rounds = one.ratio.count
    if rounds < 2:
        return f" ({one.regime}, a single round, so no interval)"
    low, high = (1 / one.ratio.high, 1 / one.ratio.low) if inverse else (one.ratio.low, one.ratio.high)
    share = "95%" if rounds >= LEAST_SAMPLES else f"all of {rounds} rounds"
    return f" ({one.regime}, {share}: {low:.3f} to {high:.3f})"


def _marked(found: Comparison, said: str) -> str:
    return f"SIMULATED: {said}" if found.source == "simulated" else said


# --- schedules that come to the same


def runs_as(one: Standing) -> str | None:
    """The schedule that a launch comes to (Schedule.comes_to); None for kernels that are not wavescope's own."""
    return None if one.planned is None else one.planned.comes_to


def _work(one: Standing) -> tuple[object, ...] | None:
    """What a launch does; equal for two that do the same."""
    planned = one.planned
    if planned is None or one.report is None:
        return None
    like, launch = planned.comes_to, one.report.launch
    options: tuple[object, ...] = ()
    if one.is_split:
        parts = planned.parts if like in ("splitk", "tailsplit") else None
        options = (planned.split_tiles, parts, planned.reducers, launch.reduction)
    return (like, launch.raster, launch.order, launch.grid, *options)


def _comes_to(one: Standing) -> str | None:
    """What really ran, where the name says something else."""
    like = runs_as(one)
    if one.report is None or like is None or like == one.report.launch.schedule:
        return None
    launch = one.report.launch
    why = "Every CTA computes one tile"
    if launch.schedule in SPLIT_SCHEDULES:
        why = "All tiles are shared" if one.is_split else "No tile is split"
    like += f" on {launch.grid} CTAs" if like == "persistent" else ""
    raster = "" if launch.raster == DEFAULT_RASTER.name else f"@{launch.raster}"
    return f"{why} here, so {one.name} runs as {like}{raster}"


def _same_work(found: Comparison, first: Standing, own: Standing) -> str:
    clauses = [clause for clause in (_comes_to(first), _comes_to(own)) if clause]
    ratio = f"a ratio of {own.ratio.median:.3f}{_interval(own)}"
    noise = "noise" if _outcome(found, own.ratio) == "even" else "noise or code around the tiles, not the schedule"
    clauses.append(f"{own.name} does the same work as {first.name}, and {ratio} is {noise}.")
    first_said, *then = clauses
    return _marked(found, "; ".join([first_said, *(f"{one[0].lower()}{one[1:]}" for one in then)]))


# --- the share of the ideal


def _gain(found: Comparison, own: Standing, here: Sequence[Standing]) -> Gain | None:
    """The share of the ideal gain of one that cuts tiles, where fixed or persistent is among those compared."""
    mine, its = own.cycles, [(one.cycles.median, one.name) for one in here if one.cycles and _is_base(one)]
    if mine is None or not its or own.report is None or not own.is_split or found.work is not None:
        return None
    cycles, base = min(its)
    ideal = 1 / wave_efficiency(found.tile.num_tiles(found.problem), max(1, own.report.launch.places))
    if ideal < LEAST_IDEAL:
        return None
    speedup = cycles / mine.median
    return Gain((speedup - 1) / (ideal - 1), speedup, ideal, base)


def _is_base(one: Standing) -> bool:
    return one.report is not None and one.report.launch.schedule in ("fixed", "persistent")


def _gain_words(gain: Gain) -> str:
    how = f"(s - 1) / (i - 1), s = {gain.speedup:.3f} in SM cycles over {gain.base}, i = {gain.ideal:.3f}, estimated"
    share = f"{gain.share:.2f}".replace("-0.00", "0.00")
    if gain.share <= 0:
        return f"It gains nothing of what the partial wave costs: g = {share} ({how})."
    return f"It gains g = {share} of what the partial wave costs ({how})."
