"""Fit a Calibration on traces of one kernel, tile, dtype and device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.calibration import Calibration
from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.launch_costs import (
    RecordedLaunch,
    clock_spread,
    crowd,
    epilogue_cycles,
    gap_cycles,
    idle_share,
    noise,
    prologue_and_exit_cycles,
    ramp_ns,
    recorded_launch,
    turnaround_cycles,
)
from wavescope.problem import Dtype, Tile
from wavescope.trace import Kind, Launch, Trace

FloatArray = NDArray[np.float64]
_Key = tuple[str, Tile, Dtype, str, int]  # kernel, tile, dtype, device, CTAs per SM

# A column that others explain to within this share of its length cannot be told apart from them.
_SEPARABLE = 0.02
_MAX_IDLE_GAIN = 0.9
_SHARINGS = np.linspace(0, 1, 51)


def fit_all(traces: Sequence[Trace]) -> tuple[Calibration, ...]:
    """A row for each kernel, tile, dtype, device and number of CTAs per SM among the launches, in that order."""
    groups: dict[_Key, list[Trace]] = defaultdict(list)
    for trace in traces:
        for launch in trace.launches:
            spans = trace.spans.select(trace.spans.launch_id == launch.launch_id)
            alone = Trace(trace.tool_version, trace.device, trace.timer_step_ns, (launch,), spans)
            groups[_key(launch, trace.device)].append(alone)
    return tuple(fit(groups[key]) for key in sorted(groups, key=lambda key: (key[0], str(key[1]), key[2:])))


def _key(launch: Launch, device: Device) -> _Key:
    if launch.problem is None or launch.tile is None:
        raise UsageError(f"launch {launch.launch_id} of {launch.kernel} names no problem and tile; calibrate on others")
    return launch.kernel, launch.tile, launch.problem.dtype, device.name, launch.ctas_per_sm


def fit(traces: Sequence[Trace]) -> Calibration:
    """The costs that explain the traces' spans best; every launch counts alike.

    The main loop's cycles are fitted by least squares of relative residuals; the other
    costs are medians.  What the launches do not tell apart (fixed costs where all units
    have equal k_iters, say) stays in cycles_per_k_iter, and `source` says so.

    Raises: UsageError without launches, for launches of different kernels, tiles,
    dtypes, devices or CTAs per SM, and for spans that do not say their k_iters.
    """
    keys = {_key(launch, trace.device) for trace in traces for launch in trace.launches}
    if len(keys) != 1:
        found = f"{len(keys)} kinds of launch cannot share a calibration" if keys else "no trace to calibrate on"
        raise UsageError(f"{found}; give launches of one kernel, tile, dtype, device and number of CTAs per SM")
    kernel, tile, dtype, device, ctas_per_sm = keys.pop()
    recorded = [recorded_launch(trace, launch) for trace in traces for launch in trace.launches]
    costs, missing = _main_loop(recorded)
    latencies, unseen = _latencies(recorded)
    clock, idle_clock = _clocks(recorded)
    return Calibration(
        kernel=kernel,
        tile=tile,
        dtype=dtype,
        device=device,
        ctas_per_sm=ctas_per_sm,
        **costs,
        **latencies,
        ramp_ns=float(np.median([ramp_ns(one) for one in recorded])),
        clock_mhz=clock,
        idle_clock_mhz=idle_clock,
        clock_spread=float(np.median([clock_spread(one) for one in recorded])),
        noise=float(np.median([spread for one in recorded for spread in noise(one)])),
        source=_source(recorded, missing + unseen),
    )


def _main_loop(recorded: Sequence[RecordedLaunch]) -> tuple[dict[str, Any], list[str]]:
    """Coefficients of work = a k (1 - gain idle) + fixed + cold [first], and the names of those not seen.

    A unit's work is what its cycles would be with its SM full: with r of C CTAs there it
    advances 1 / (1 - sharing (1 - r / C)) times as fast.  The sharing is the one of a
    grid of values that leaves the smallest residual.
    """
    k = np.concatenate([one.k_iters for one in recorded]).astype(np.float64)
    cycles = np.concatenate([one.cycles for one in recorded]).astype(np.float64)
    crowds = np.concatenate([crowd(one) for one in recorded])
    idle = np.concatenate([idle_share(one) for one in recorded])
    columns = {
        "cycles_per_k_iter": k,
        "fixed_cycles": np.ones_like(k),
        "cold_cycles": np.concatenate([one.wave == 0 for one in recorded]).astype(np.float64),
        "idle_gain": -idle * k,
    }
    weight = np.concatenate([np.full(len(one.units), len(one.units) ** -0.5) for one in recorded])
    alone = 1 - np.arange(1, crowds.shape[1] + 1) / crowds.shape[1]  # share of an SM's places left empty
    seen = float(np.mean(crowds @ alone)) > _SEPARABLE
    # not seen: CTAs of one SM share its tensor cores, so alone each is as fast as all together
    best: tuple[float, float, dict[str, float]] | None = None
    for sharing in _SHARINGS if seen else _SHARINGS[-1:]:
        work = cycles * (crowds @ (1 / (1 - sharing * alone)))
        found, residual = _least_squares(columns, work, weight / work)
        if best is None or residual < best[0]:
            best = residual, float(sharing), found
    assert best is not None
    _, sharing, found = best
    per_k_iter = found["cycles_per_k_iter"]
    costs: dict[str, Any] = {
        name: found.get(name, 0.0) for name in ("cycles_per_k_iter", "fixed_cycles", "cold_cycles")
    }
    costs["idle_gain"] = min(found.get("idle_gain", 0.0) / per_k_iter, _MAX_IDLE_GAIN)
    costs["sharing"] = sharing
    missing = [name for name in columns if name not in found]
    return costs, missing + (["sharing"] if len(alone) > 1 and not seen else [])


def _least_squares(
    columns: dict[str, FloatArray], target: FloatArray, weight: FloatArray
) -> tuple[dict[str, float], float]:
    """Non-negative coefficients of those columns that can be told apart, in the order given, and the residual."""
    chosen: list[str] = []
    for name, column in columns.items():
        scaled, left = column * weight, column * weight
        if chosen:
            basis = np.stack([columns[other] * weight for other in chosen], axis=1)
            left = scaled - basis @ np.linalg.lstsq(basis, scaled, rcond=None)[0]
        if np.linalg.norm(left) > _SEPARABLE * np.linalg.norm(scaled):
            chosen.append(name)
    while True:
        basis = np.stack([columns[name] * weight for name in chosen], axis=1)
        solution = np.linalg.lstsq(basis, target * weight, rcond=None)[0]
        effect = solution * np.linalg.norm(basis, axis=0)
        if effect.min() >= 0:
            residual = float(np.linalg.norm(basis @ solution - target * weight))
            return dict(zip(chosen, map(float, solution), strict=True)), residual
        del chosen[int(effect.argmin())]


def _latencies(recorded: Sequence[RecordedLaunch]) -> tuple[dict[str, Any], list[str]]:
    """Median over launches of each launch's median, and the names of what no launch shows."""
    values = {
        "epilogue_cycles": [epilogue_cycles(one) for one in recorded],
        "prologue_cycles": [prologue_and_exit_cycles(one)[0] for one in recorded],
        "exit_cycles": [prologue_and_exit_cycles(one)[1] for one in recorded],
        "gap_cycles": [gap_cycles(one) for one in recorded if one.launch.schedule == "persistent"],
        "queue_gap_cycles": [gap_cycles(one) for one in recorded if one.launch.schedule == "dynamic"],
        "turnaround_cycles": [turnaround_cycles(one) for one in recorded],
    }
    medians = {name: [np.median(launch) for launch in launches if len(launch)] for name, launches in values.items()}
    found = {name: max(0.0, float(np.median(launches))) if launches else 0.0 for name, launches in medians.items()}
    return found, [name for name, launches in medians.items() if not launches]


def _clocks(recorded: Sequence[RecordedLaunch]) -> tuple[float, float]:
    """MHz with all SMs busy, and extrapolated to none, from the rank waves of all launches."""
    mhz, idle, weight = [], [], []
    for one in recorded:
        counts = np.bincount(one.wave)
        ns = np.bincount(one.wave, weights=one.units.end_ns - one.units.begin_ns)
        mhz.append(np.bincount(one.wave, weights=one.cycles) / np.maximum(ns, 1) * 1e3)
        idle.append(np.bincount(one.wave, weights=idle_share(one)) / counts)
        weight.append(np.sqrt(counts / counts.sum()))
    columns = {"busy": np.ones(sum(map(len, idle))), "gain": np.concatenate(idle)}
    found, _ = _least_squares(columns, np.concatenate(mhz), np.concatenate(weight))
    highest = recorded[0].device.max_clock_mhz
    return found["busy"], max(found["busy"], min(found["busy"] + found.get("gain", 0.0), highest))


def _source(recorded: Sequence[RecordedLaunch], missing: Sequence[str]) -> str:
    k_iters = np.unique(np.concatenate([one.k_iters for one in recorded]))
    num_units = sum(len(one.units) for one in recorded)
    text = f"{len(recorded)} launches, {num_units} units of {', '.join(map(str, k_iters))} k_iters"
    if all(one.launch.source == "simulated" for one in recorded):
        text += " (simulated)"
    if not any((one.spans.kind == Kind.MAC).any() for one in recorded):
        text += "; CTAs only, so prologue, epilogue and exit count as main loop"
    if missing:
        text += f"; not to be told from these launches: {', '.join(missing)}"
    return text
