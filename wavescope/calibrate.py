"""Fit a Calibration on traces of one kernel, tile, dtype and device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.calibration import ESTIMATED, UNSEEN, Calibration
from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.fit_shared import fit_shared
from wavescope.fit_slowdown import fit_slowdown
from wavescope.fixup_costs import estimated_fixup_cycles
from wavescope.launch_costs import (
    RecordedLaunch,
    clock_spread,
    epilogue_cycles,
    fixup_cycles,
    gap_cycles,
    idle_share,
    prologue_and_exit_cycles,
    ramp_ns,
    recorded_launch,
    relative_spread,
    turnaround_cycles,
)
from wavescope.least_squares import non_negative
from wavescope.problem import Dtype, Tile
from wavescope.sm_profiles import sm_profiles
from wavescope.trace import Kind, Launch, Trace

FloatArray = NDArray[np.float64]
_Key = tuple[str, Tile, Dtype, str, int]  # kernel, tile, dtype, device, CTAs per SM

_MAX_IDLE_GAIN = 0.9
_ENOUGH_IDLE = 0.25  # share of SMs without a unit from which on the clock without any is extrapolated
_ENOUGH_SMS = 5  # equal SMs from which a spread is taken
_LISTED = 6  # numbers of k_iters
_STATIC = ("persistent", "streamk", "hybrid", "tailsplit")  # CTAs that take their units without asking


def fit_all(traces: Sequence[Trace]) -> tuple[Calibration, ...]:
    """A row for each kernel, tile, dtype, device and number of CTAs per SM among the launches, in that order."""
    return tuple(fit(alike) for alike in groups_of(traces))


def groups_of(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Traces of one launch, those together that share a calibration.

    Raises: UsageError for a launch without problem and tile.
    """
    groups: dict[_Key, list[Trace]] = defaultdict(list)
    for alone in each_launch(traces):
        groups[_key(alone.launches[0], alone.device)].append(alone)
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0], str(key[1]), key[2:]))]


def each_launch(traces: Sequence[Trace]) -> list[Trace]:
    """A trace for each launch."""
    found = []
    for trace in traces:
        for launch in trace.launches:
            spans = trace.spans.select(trace.spans.launch_id == launch.launch_id)
            found.append(Trace(trace.tool_version, trace.device, trace.timer_step_ns, (launch,), spans))
    return found


def _key(launch: Launch, device: Device) -> _Key:
    if launch.problem is None or launch.tile is None:
        raise UsageError(f"launch {launch.launch_id} of {launch.kernel} names no problem and tile; calibrate on others")
    return launch.kernel, launch.tile, launch.problem.dtype, device.name, launch.ctas_per_sm


def fit(traces: Sequence[Trace], near: Calibration | None = None) -> Calibration:
    """The costs that explain the traces' spans best; every launch counts alike.

    The main loop's cycles are fitted by least squares of relative residuals, with several
    CTAs an SM by simulating each SM (fit_shared.py); the other costs are medians.  What
    the launches do not tell apart (fixed costs where all units have equal k_iters, say)
    stays in cycles_per_k_iter, and `source` says so.  Partial sums that no launch shows
    are estimated (fixup_costs.py).  `near`: a fit on about the same launches, which saves
    time.

    Raises: UsageError without launches, for launches of different kernels, tiles,
    dtypes, devices or CTAs per SM, and for spans that do not say their k_iters.
    """
    keys = {_key(launch, trace.device) for trace in traces for launch in trace.launches}
    if len(keys) != 1:
        found = f"{len(keys)} kinds of launch cannot share a calibration" if keys else "no trace to calibrate on"
        raise UsageError(f"{found}; give launches of one kernel, tile, dtype, device and number of CTAs per SM")
    kernel, tile, dtype, device, ctas_per_sm = keys.pop()
    recorded = [recorded_launch(trace, launch) for trace in traces for launch in trace.launches]
    latencies, unseen = _latencies(recorded)
    fixups, estimated = _fixups(recorded, tile, ctas_per_sm)
    whole = [one for one in recorded if not one.is_split]
    if ctas_per_sm == 1:
        costs, missing = _main_loop_alone(recorded)
    elif whole:
        costs, missing = fit_shared(whole, ctas_per_sm, latencies, near)
        costs |= {"idle_gain": 0.0, "stream_slowdown": 0.0}
        staggered = any(one.is_staggered.any() for one in recorded)
        missing += [] if staggered else ["stream_slowdown"]
    else:  # CTAs that wait for one another on other SMs: no SM can be simulated by itself
        costs, missing = _main_loop_alone(recorded)
        costs["idle_gain"] = 0.0
        missing += ["sharing", "seniority"]
    values: dict[str, Any] = {**costs, **latencies, **fixups}
    clock, idle_clock = _clocks(recorded)
    fitted = Calibration(
        kernel=kernel,
        tile=tile,
        dtype=dtype,
        device=device,
        ctas_per_sm=ctas_per_sm,
        **values,
        ramp_ns=float(np.median([ramp_ns(one) for one in recorded])),
        clock_mhz=clock,
        idle_clock_mhz=idle_clock,
        clock_spread=float(np.median([clock_spread(one) for one in recorded])),
        noise=_noise(whole or recorded),
        source=_source(recorded, missing + unseen, estimated),
    )
    slowdown = fit_slowdown(recorded, fitted) if ctas_per_sm > 1 and whole else None
    return fitted if slowdown is None else replace(fitted, stream_slowdown=slowdown)


def _main_loop_alone(recorded: Sequence[RecordedLaunch]) -> tuple[dict[str, float], list[str]]:
    """Coefficients of cycles = a k (1 - gain idle + slower [staggered]) + fixed + cold [first], and those not seen."""
    k = np.concatenate([one.k_iters for one in recorded]).astype(np.float64)
    cycles = np.concatenate([one.cycles for one in recorded]).astype(np.float64)
    idle = np.concatenate([idle_share(one) for one in recorded])
    columns = {
        "cycles_per_k_iter": k,
        "fixed_cycles": np.ones_like(k),
        "cold_cycles": np.concatenate([one.is_cold for one in recorded]).astype(np.float64),
        "idle_gain": -idle * k,
        "stream_slowdown": k * np.concatenate([one.is_staggered for one in recorded]),
    }
    weight = np.concatenate([np.full(len(one.units), len(one.units) ** -0.5) for one in recorded])
    found = non_negative(columns, cycles, weight / cycles)
    costs = {name: found.get(name, 0.0) for name in columns}
    costs["idle_gain"] = min(costs["idle_gain"] / costs["cycles_per_k_iter"], _MAX_IDLE_GAIN)
    costs["stream_slowdown"] /= costs["cycles_per_k_iter"]
    return {**costs, "sharing": 1.0, "seniority": 0.0}, [name for name in columns if name not in found]


def _fixups(recorded: Sequence[RecordedLaunch], tile: Tile, ctas_per_sm: int) -> tuple[dict[str, float], list[str]]:
    """What partial sums cost, and the names of those costs that are estimated."""
    shown = [fixup_cycles(one) for one in recorded]
    costs = estimated_fixup_cycles(tile, ctas_per_sm)
    estimated = []
    for name in costs:
        medians = [np.median(cycles) for one in shown if len(cycles := getattr(one, name.removesuffix("_cycles")))]
        if medians:
            costs[name] = float(np.median(medians))
        else:
            estimated.append(name)
    return costs, estimated


def _latencies(recorded: Sequence[RecordedLaunch]) -> tuple[dict[str, float], list[str]]:
    """Median over launches of each launch's median, and the names of what no launch shows."""
    values: dict[str, list[NDArray[Any]]] = {
        "epilogue_cycles": [epilogue_cycles(one) for one in recorded],
        "prologue_cycles": [prologue_and_exit_cycles(one)[0] for one in recorded],
        "exit_cycles": [prologue_and_exit_cycles(one)[1] for one in recorded],
        "gap_cycles": [gap_cycles(one) for one in recorded if one.launch.schedule in _STATIC],
        "queue_gap_cycles": [gap_cycles(one) for one in recorded if one.launch.schedule == "dynamic"],
        "turnaround_cycles": [turnaround_cycles(one) for one in recorded],
    }
    medians = {name: [np.median(launch) for launch in launches if len(launch)] for name, launches in values.items()}
    found = {name: max(0.0, float(np.median(launches))) if launches else 0.0 for name, launches in medians.items()}
    return found, [name for name, launches in medians.items() if not launches]


def _clocks(recorded: Sequence[RecordedLaunch]) -> tuple[float, float]:
    """MHz with all SMs busy, and extrapolated to none, from the rank waves of all launches.

    The same twice where no wave leaves enough SMs idle to tell.
    """
    mhz, idle, weight = [], [], []
    for one in recorded:
        counts = np.bincount(one.wave)
        ns = np.bincount(one.wave, weights=one.units.end_ns - one.units.begin_ns)
        mhz.append(np.bincount(one.wave, weights=one.cycles) / np.maximum(ns, 1) * 1e3)
        idle.append(np.bincount(one.wave, weights=idle_share(one)) / counts)
        weight.append(np.sqrt(counts / counts.sum()))
    shares = np.concatenate(idle)
    columns = {"busy": np.ones(len(shares)), "gain": shares if shares.max() >= _ENOUGH_IDLE else 0 * shares}
    found = non_negative(columns, np.concatenate(mhz), np.concatenate(weight))
    highest = recorded[0].device.max_clock_mhz
    return found["busy"], max(found["busy"], min(found["busy"] + found.get("gain", 0.0), highest))


def _noise(recorded: Sequence[RecordedLaunch]) -> float:
    """Median over launches of how equal units on SMs of equal work differ."""
    spreads = []
    for one in recorded:
        deviations = [profile.deviations.ravel() for profile in sm_profiles(one) if profile.sms >= _ENOUGH_SMS]
        if deviations:
            spreads.append(relative_spread(1 + np.concatenate(deviations)))
    return float(np.median(spreads)) if spreads else 0.0


def _source(recorded: Sequence[RecordedLaunch], missing: Sequence[str], estimated: Sequence[str]) -> str:
    k_iters = np.unique(np.concatenate([one.k_iters for one in recorded]))
    num_units = sum(len(one.units) for one in recorded)
    sizes = ", ".join(map(str, k_iters)) if len(k_iters) <= _LISTED else f"{k_iters.min()} to {k_iters.max()}"
    text = f"{len(recorded)} launches, {num_units} units of {sizes} k_iters"
    if all(one.launch.source == "simulated" for one in recorded):
        text += " (simulated)"
    if not any((one.spans.kind == Kind.MAC).any() for one in recorded):
        text += "; CTAs only, so prologue, epilogue and exit count as main loop"
    if missing:
        text += f"; {UNSEEN}{', '.join(missing)}"
    if estimated:
        text += f"; {ESTIMATED}{', '.join(estimated)}"
    return text
