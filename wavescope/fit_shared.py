"""Fit what main loops cost where an SM holds several CTAs: each SM is simulated until its end agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wavescope.launch_costs import RecordedLaunch
from wavescope.least_squares import FloatArray, bounded, derivatives, separable
from wavescope.list_schedule import IntArray, UnitCosts
from wavescope.shared_schedule import occupy_shared
from wavescope.sharing import epilogue_speeds, main_loop_speeds
from wavescope.sm_profiles import SmProfile, sm_profiles

# Bounds; where the descent begins; what it is when the launches do not show it.
_HIGHEST_SENIORITY = 0.99
_START = {"sharing": 0.8, "seniority": 0.25, "fixed_cycles": 0.5, "cold_cycles": 0.5}  # cycles: of those of a k_iter
_UNSEEN = {"sharing": 1.0, "seniority": 0.0, "fixed_cycles": 0.0, "cold_cycles": 0.0}
_MOST_CYCLES = 50  # k_iters' worth of fixed or cold cycles


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
    following: IntArray | None = field(repr=False)


def fit_shared(
    recorded: Sequence[RecordedLaunch], ctas_per_sm: int, latencies: dict[str, float]
) -> tuple[dict[str, float], list[str]]:
    """cycles_per_k_iter, fixed_cycles, cold_cycles, sharing and seniority, and the names of those not seen.

    Every launch's SMs are run through the simulation's own scheduling, one at a time, and
    the times at which main loops and units end are compared in order of time, as shares
    of the SM's whole time; least squares, every launch alike.  `latencies` are the other
    costs of a Calibration.
    """
    cases = [case for one in recorded for case in _cases(one, latencies)]
    per_k_iter = _full_speed(cases)
    names = ["cycles_per_k_iter", *_START]
    start = np.array([per_k_iter, *(_START[name] * (per_k_iter if "cycles" in name else 1) for name in _START)])
    scale = np.array([per_k_iter, 1, 1, per_k_iter, per_k_iter])
    low = np.array([per_k_iter / 10, 0, 0, 0, 0])
    high = np.array([per_k_iter * 10, 1, _HIGHEST_SENIORITY, _MOST_CYCLES * per_k_iter, _MOST_CYCLES * per_k_iter])
    unseen = np.array([per_k_iter, *_UNSEEN.values()])

    def residuals(values: FloatArray) -> FloatArray:
        return np.concatenate([_residuals(case, dict(zip(names, values, strict=True)), ctas_per_sm) for case in cases])

    def fitted(seen: Sequence[int]) -> FloatArray:
        def whole(values: FloatArray) -> FloatArray:
            return np.array([values[seen.index(at)] if at in seen else unseen[at] for at in range(len(names))])

        chosen = list(seen)
        return whole(
            bounded(lambda values: residuals(whole(values)), start[chosen], scale[chosen], low[chosen], high[chosen])
        )

    def told_apart(values: FloatArray) -> list[int]:
        return separable(list(derivatives(residuals, values, scale, high).T))

    seen = told_apart(start)
    found = fitted(seen)
    # where all CTAs of an SM end together, say, nobody is ever alone
    still_seen = [at for at in told_apart(found) if at in seen]
    if still_seen != seen:
        found = fitted(still_seen)
    missing = [name for at, name in enumerate(names) if at not in still_seen]
    return dict(zip(names, map(float, found), strict=True)), missing


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
        following=None if dispatched else np.array([index.get((cta, nth + 1), -1) for cta, nth in rounds]),
    )


def _residuals(case: _Case, values: dict[str, float], full: int) -> FloatArray:
    """Simulated less recorded ends of main loops and units, weighted."""
    mac = case.k_iters * values["cycles_per_k_iter"] + values["fixed_cycles"] + case.cold * values["cold_cycles"]
    occupied = occupy_shared(
        UnitCosts(np.zeros_like(mac), case.latency_before, mac, case.epilogue, case.latency_after),
        np.zeros(case.places, np.int64),
        np.zeros(1),
        np.ones(1),
        case.following,
        main_loop_speeds(case.places, full, values["sharing"], values["seniority"]),
        epilogue_speeds(case.places, full),
    )
    ends = np.concatenate([np.sort(occupied.mac_end), np.sort(occupied.epilogue_end)])
    off: FloatArray = ends - np.concatenate([case.profile.mac_end, case.profile.unit_end])
    return off * case.weight
