"""Fit a Calibration on traces of one kernel, tile, dtype and device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.calibration_row import Calibration, source_text
from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.fit_alone import fit_alone
from wavescope.fit_cap import fit_cap
from wavescope.fit_edges import fit_edges
from wavescope.fit_replayed import fit_k_iters, fit_slowdown
from wavescope.fit_shared import fit_shared
from wavescope.fixup_costs import estimated_beside_cycles, estimated_fixup_cycles
from wavescope.kernels import adds_beside, takes_turns
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
from wavescope.schedule import STATIC_SCHEDULES
from wavescope.sm_profiles import sm_profiles
from wavescope.trace import Kind, Launch, Trace

FloatArray = NDArray[np.float64]
_Key = tuple[str, Tile, Dtype, str, int]  # kernel, tile, dtype, device, CTAs per SM

# Costs that some launches do not show; the last two mean something with as many CTAs an SM only.
OF_COMPANY = ("sharing", "seniority")
FIXUPS = frozenset(estimated_fixup_cycles(Tile(1, 1, 1), 1))
HOLDABLE = (
    "fixed_cycles",
    "cold_cycles",
    "fill_cycles",
    "beside_cycles",
    "idle_gain",
    "stream_slowdown",
    "edge_slowdown",
    "epilogue_cycles",
    "prologue_cycles",
    "exit_cycles",
    "gap_cycles",
    "queue_gap_cycles",
    "turnaround_cycles",
    "partial_cycles",
    "add_cycles",
    "share_cycles",
    "spare_cycles",
    *OF_COMPANY,
)
_ENOUGH_IDLE = 0.25  # share of SMs without a unit from which on the clock without any is extrapolated
_ENOUGH_SMS = 5  # equal SMs from which a spread is taken
_LISTED = 6  # numbers of k_iters


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
        raise UsageError(f"launch {launch.launch_id} of {launch.kernel} names no problem and tile; take another launch")
    return launch.kernel, launch.tile, launch.problem.dtype, device.name, launch.ctas_per_sm


def fit(traces: Sequence[Trace], near: Calibration | None = None, otherwise: Calibration | None = None) -> Calibration:
    """The costs that explain the traces' spans best; every launch counts alike.

    The main loop's cycles are fitted by least squares of relative residuals, with several
    CTAs an SM by simulating each SM (fit_shared.py); the other costs are medians.  Launches
    with tiles at the edge of C tell edge_slowdown and nothing else, unless all are such; those
    with staggered shares tell stream_slowdown, and no other cost of main loops, likewise (H200,
    2026-11: they are slower above all at their start, which reads all of k at once).  What
    the launches do not tell apart (fixed costs where all units have equal k_iters, say)
    stays in cycles_per_k_iter, and `source` says so.  Partial sums that no launch shows
    are estimated (fixup_costs.py).

    `near`: a fit on about the same launches, which saves time.  `otherwise`: costs that
    stand in for those the launches do not show, and that the others are then fitted with.

    Raises: UsageError without launches, for launches of different kernels, tiles,
    dtypes, devices or CTAs per SM, and for spans that do not say their k_iters.
    """
    keys = {_key(launch, trace.device) for trace in traces for launch in trace.launches}
    if len(keys) != 1:
        found = f"{len(keys)} kinds of launch cannot share a calibration" if keys else "no trace to calibrate on"
        raise UsageError(f"{found}; give launches of one kernel, tile, dtype, device and number of CTAs per SM")
    kernel, tile, dtype, device, ctas_per_sm = keys.pop()
    recorded = [recorded_launch(trace, launch) for trace in traces for launch in trace.launches]
    held = _held(otherwise, ctas_per_sm)
    every, recorded = recorded, [one for one in recorded if not one.is_edge.any()]
    slowdown = None
    if not recorded:
        slowdown = fit_edges(every, held)
        known = held.get("edge_slowdown", 0.0) if slowdown is None else slowdown
        recorded = [replace(one, edge_slowdown=known) for one in every]
    latencies, unseen = _latencies(recorded, held)
    fixups, estimated = _fixups(recorded, tile, ctas_per_sm, held)
    whole = [one for one in recorded if not one.is_split]
    in_step = [one for one in recorded if not one.is_staggered.any()]
    if ctas_per_sm == 1:
        costs, missing = fit_alone(in_step or recorded, held)
        if in_step and len(in_step) < len(recorded):
            missing.remove("stream_slowdown")  # fitted at the end
    elif whole:
        costs, missing = fit_shared(whole, ctas_per_sm, latencies, held, near)
        costs |= {"idle_gain": 0.0, "stream_slowdown": held.get("stream_slowdown", 0.0)}
        missing += [] if any(one.is_staggered.any() for one in recorded) else ["stream_slowdown"]
    else:
        costs, missing = _about(recorded, held)
    if slowdown is None:
        slowdown = fit_edges(every, costs)
    missing += [] if slowdown is not None else ["edge_slowdown"]
    if "beside_cycles" in missing and "beside_cycles" not in held and adds_beside(kernel, tile):
        costs["beside_cycles"] = estimated_beside_cycles(tile)
        missing.remove("beside_cycles")
        estimated.append("beside_cycles")
    hidden = set() if adds_beside(kernel, tile) else {"beside_cycles"}
    hidden |= {"epilogue_cycles"} if takes_turns(kernel) else set()  # tiles are stored beside other main loops
    missing = [name for name in missing if name not in hidden]
    unseen = [name for name in unseen if name not in hidden]
    costs["edge_slowdown"] = held.get("edge_slowdown", 0.0) if slowdown is None else slowdown
    values: dict[str, Any] = {"fill_cycles": 0.0, "beside_cycles": 0.0, **costs, **latencies, **fixups}
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
        source=_source(every, [name for name in missing + unseen if name not in held], estimated),
    )
    fitted = replace(fitted, capped_tflops=fit_cap(recorded, fitted))
    if ctas_per_sm == 1 and not in_step:
        return fitted
    if ctas_per_sm > 1 and not whole:
        return replace(fitted, cycles_per_k_iter=fit_k_iters(recorded, fitted))
    staggered = fit_slowdown(recorded, fitted)
    return fitted if staggered is None else replace(fitted, stream_slowdown=staggered)


def _about(recorded: Sequence[RecordedLaunch], held: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Costs before a fit of cycles_per_k_iter alone, which is about right, and the names of the others: not seen."""
    per_k_iter = [float(one.cycles.sum() / one.inner_k_iters.sum()) for one in recorded]
    unseen = {"fixed_cycles": 0.0, "cold_cycles": 0.0, "stream_slowdown": 0.0, "sharing": 1.0, "seniority": 0.0}
    costs = {name: held.get(name, value) for name, value in unseen.items()}
    return {**costs, "cycles_per_k_iter": float(np.median(per_k_iter)), "idle_gain": 0.0}, list(unseen)


def _held(otherwise: Calibration | None, ctas_per_sm: int) -> dict[str, float]:
    """What stands in for costs that the launches do not show: those that the other calibration's launches did.

    Partial sums go with the bytes that an SM's CTAs move at once (fixup_costs.py).
    """
    if otherwise is None:
        return {}
    names = set(HOLDABLE) - set(otherwise.unseen) - set(otherwise.estimated)
    if otherwise.ctas_per_sm != ctas_per_sm:
        names -= set(OF_COMPANY)
    fewer = ctas_per_sm / otherwise.ctas_per_sm
    return {name: getattr(otherwise, name) * (fewer if name in FIXUPS else 1.0) for name in names}


def _fixups(
    recorded: Sequence[RecordedLaunch], tile: Tile, ctas_per_sm: int, held: Mapping[str, float]
) -> tuple[dict[str, float], list[str]]:
    """What partial sums cost, and the names of those costs that are estimated."""
    shown = [fixup_cycles(one) for one in recorded]
    costs = estimated_fixup_cycles(tile, ctas_per_sm)
    estimated = []
    for name in costs:
        medians = [np.median(cycles) for one in shown if len(cycles := getattr(one, name.removesuffix("_cycles")))]
        if medians:
            costs[name] = float(np.median(medians))
        elif name in held:
            costs[name] = held[name]
        else:
            estimated.append(name)
    return costs, estimated


def _latencies(recorded: Sequence[RecordedLaunch], held: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Median over launches of each launch's median, and the names of what no launch shows: 0, or as held."""
    values: dict[str, list[NDArray[Any]]] = {
        "epilogue_cycles": [epilogue_cycles(one) for one in recorded],
        "prologue_cycles": [prologue_and_exit_cycles(one)[0] for one in recorded],
        "exit_cycles": [prologue_and_exit_cycles(one)[1] for one in recorded],
        "gap_cycles": [gap_cycles(one) for one in recorded if one.launch.schedule in STATIC_SCHEDULES],
        "queue_gap_cycles": [gap_cycles(one) for one in recorded if one.launch.schedule == "dynamic"],
        "turnaround_cycles": [turnaround_cycles(one) for one in recorded],
    }
    medians = {name: [np.median(launch) for launch in launches if len(launch)] for name, launches in values.items()}
    found = {
        name: max(0.0, float(np.median(launches))) if launches else held.get(name, 0.0)
        for name, launches in medians.items()
    }
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
    return source_text(text, missing, estimated)
