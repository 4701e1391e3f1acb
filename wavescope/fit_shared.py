"""Fit what main loops cost where an SM holds several CTAs: each SM is simulated until its end agrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from wavescope.calibration_row import Calibration
from wavescope.jobs import Jobs, independent_jobs
from wavescope.launch_costs import RecordedLaunch
from wavescope.least_squares import FloatArray, bounded, separable
from wavescope.list_schedule import JobCosts
from wavescope.shared_schedule import occupy_shared
from wavescope.sharing import epilogue_speeds, main_loop_speeds
from wavescope.sm_profiles import SmProfile, sm_profiles


@dataclass(frozen=True)
class _Parameter:
    """What is fitted: its bounds, where descents may begin, and what it is where the launches do not show it.

    `cycles` are counted in those that a k_iter takes on a full SM, so that all parameters
    are about as large as 1.
    """

    name: str
    starts: tuple[float, ...]
    low: float
    high: float
    unseen: float
    cycles: bool = False


# In the order in which effects that look alike are put down to them.
_PARAMETERS = (
    _Parameter("cycles_per_k_iter", (0.9, 1.0, 1.1), 0.1, 10.0, 1.0, cycles=True),
    _Parameter("sharing", (0.3, 0.6, 0.9), 0.0, 1.0, 1.0),
    _Parameter("seniority", (0.1, 0.2, 0.4, 0.6), 0.0, 0.99, 0.0),
    _Parameter("fixed_cycles", (0.5,), 0.0, 50.0, 0.0, cycles=True),
    _Parameter("cold_cycles", (0.5,), 0.0, 50.0, 0.0, cycles=True),
)
_AS_GOOD = 1.01
_PERFECT = 1e-4  # of the times: no recording is that regular
_SENIORITY = [one.name for one in _PARAMETERS].index("seniority")


@dataclass(frozen=True)
class _Case:
    """One SM to simulate: its units in the order in which places take them, and what is to come out.

    `latency_before` and `latency_after` are cycles that no other CTA changes.
    """

    profile: SmProfile
    weight: float
    places: int
    k_iters: FloatArray
    cold: FloatArray
    epilogue: FloatArray
    latency_before: FloatArray
    latency_after: FloatArray
    jobs: Jobs = field(repr=False)


def fit_shared(
    recorded: Sequence[RecordedLaunch],
    ctas_per_sm: int,
    latencies: dict[str, float],
    held: Mapping[str, float],
    near: Calibration | None = None,
) -> tuple[dict[str, float], list[str]]:
    """cycles_per_k_iter, fixed_cycles, cold_cycles, sharing and seniority, and the names of those not seen.

    Every launch's SMs are run through the simulation's own scheduling, one at a time, and
    the times at which main loops and units end are compared in order of time, as shares
    of the SM's whole time; least squares, every launch alike.  `latencies` are the other
    costs of a Calibration; `held` says what is taken for those not seen.  `near`: costs
    to descend from, where they are about known.
    """
    cases = [case for one in recorded for case in _cases(one, latencies)]
    per_k_iter = _full_speed(cases)
    units = [per_k_iter if one.cycles else 1.0 for one in _PARAMETERS]

    def costs(values: FloatArray) -> dict[str, float]:
        return {one.name: float(value) * unit for one, value, unit in zip(_PARAMETERS, values, units, strict=True)}

    def residuals(values: FloatArray) -> FloatArray:
        return np.concatenate([_residuals(case, costs(values), ctas_per_sm) for case in cases])

    low, high, unseen = np.array([(one.low, one.high, one.unseen) for one in _PARAMETERS]).T
    for index, (one, unit) in enumerate(zip(_PARAMETERS, units, strict=True)):
        unseen[index] = np.clip(held.get(one.name, one.unseen * unit) / unit, low[index], high[index])

    def misfit(values: FloatArray) -> float:
        return float(np.linalg.norm(residuals(values)))

    if near is not None:
        known = [getattr(near, one.name) / unit for one, unit in zip(_PARAMETERS, units, strict=True)]
        starts = [np.clip(known, low, high)]
    else:  # a descent ends in the next hollow, and there are several: begin one for each seniority
        grid = [np.array(start) for start in product(*(one.starts for one in _PARAMETERS))]
        starts = [
            min((one for one in grid if one[_SENIORITY] == value), key=misfit)
            for value in _PARAMETERS[_SENIORITY].starts
        ]
    seen = np.any([separable(residuals, start, high) for start in starts], axis=0)
    # tiles at the edge would tell fixed_cycles from equal k_iters, but only by what they are assumed to cost more
    if len(np.unique(np.concatenate([one.k_iters for one in recorded]))) == 1:
        seen[[one.name for one in _PARAMETERS].index("fixed_cycles")] = False
    found = min((bounded(residuals, np.where(seen, start, unseen), low, high, seen) for start in starts), key=misfit)
    # where all CTAs of an SM end together, say, nobody is ever alone: what then changes nothing was not seen
    still_seen = seen & separable(residuals, found, high)
    without = bounded(residuals, np.where(still_seen, found, unseen), low, high, still_seen)
    if misfit(without) <= _AS_GOOD * misfit(found):
        seen, found = still_seen, without
    for index in reversed(range(1, len(_PARAMETERS))):  # nor was what a perfect fit does without
        fewer = seen & (np.arange(len(seen)) != index)
        without = bounded(residuals, np.where(fewer, found, unseen), low, high, fewer)
        if misfit(without) <= _PERFECT:
            seen, found = fewer, without
    return costs(found), [one.name for one, shown in zip(_PARAMETERS, seen, strict=True) if not shown]


def _full_speed(cases: Sequence[_Case]) -> float:
    """About how many cycles a k_iter takes on a full SM."""
    return float(np.median([case.profile.unit_end[-1] * case.places / case.k_iters.sum() for case in cases]))


def _cases(one: RecordedLaunch, latencies: dict[str, float]) -> list[_Case]:
    profiles = sm_profiles(one)
    gap = latencies["queue_gap_cycles" if one.launch.schedule == "dynamic" else "gap_cycles"]
    sms = sum(profile.sms for profile in profiles)
    return [_case(profile, profile.sms / sms, one.launch.ctas_per_sm, latencies, gap) for profile in profiles]


def _case(profile: SmProfile, share: float, most: int, latencies: dict[str, float], gap: float) -> _Case:
    """CTAs of one unit each take over from one another; others keep their place for all their units."""
    ctas = profile.k_iters
    dispatched = all(len(units) == 1 for units in ctas)
    places = min(most, len(ctas)) if dispatched else len(ctas)
    rounds = [(cta, nth) for nth in range(max(map(len, ctas))) for cta in range(len(ctas)) if nth < len(ctas[cta])]
    index = {unit: at for at, unit in enumerate(rounds)}
    first = np.arange(len(rounds)) < places
    prologue, between = latencies["prologue_cycles"], latencies["turnaround_cycles"] if dispatched else gap
    stores = np.array([profile.stores[cta][nth] for cta, nth in rounds])
    return _Case(
        profile=profile,
        weight=(share / (2 * len(rounds))) ** 0.5 / profile.unit_end[-1],
        places=places,
        k_iters=np.array([ctas[cta][nth] for cta, nth in rounds], np.float64),
        cold=first.astype(np.float64),
        epilogue=stores * latencies["epilogue_cycles"],
        latency_before=np.where(first, prologue, between + prologue * dispatched),
        latency_after=np.full(len(rounds), latencies["exit_cycles"] * dispatched),
        jobs=independent_jobs(
            len(rounds),
            places,
            None if dispatched else np.array([index.get((cta, nth + 1), -1) for cta, nth in rounds]),
        ),
    )


def _residuals(case: _Case, values: dict[str, float], full: int) -> FloatArray:
    """Simulated less recorded ends of main loops and units, weighted."""
    mac = case.k_iters * values["cycles_per_k_iter"] + values["fixed_cycles"] + case.cold * values["cold_cycles"]
    nothing = np.zeros_like(mac)
    occupied = occupy_shared(
        JobCosts(nothing, case.latency_before, mac, nothing, nothing, case.epilogue, case.latency_after),
        case.jobs,
        np.zeros(case.places, np.int64),
        np.zeros(1),
        np.ones(1),
        main_loop_speeds(case.places, full, values["sharing"], values["seniority"]),
        epilogue_speeds(case.places, full),
    )
    ends = np.concatenate([np.sort(occupied.mac_end), np.sort(occupied.stored)])
    off: FloatArray = ends - np.concatenate([case.profile.mac_end, case.profile.unit_end])
    return off * case.weight
