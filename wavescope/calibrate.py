"""Fit a Calibration on traces of one kernel, tile, dtype and device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.calibration import Calibration
from wavescope.device import Device
from wavescope.errors import UsageError
from wavescope.problem import Dtype, Tile
from wavescope.trace import NULL, IntColumn, Kind, Launch, Spans, Trace

FloatArray = NDArray[np.float64]
_Key = tuple[str, Tile, Dtype, str, int]  # kernel, tile, dtype, device, CTAs per SM

# A column that another explains to within this share of its length cannot be told apart from it.
_SEPARABLE = 0.02
_MAX_IDLE_GAIN = 0.9
_SIGMA_OF_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True)
class _Recorded:
    """One launch's CTA spans and one span a unit (its mac; the CTA where nothing else was recorded)."""

    launch: Launch
    device: Device
    spans: Spans
    ctas: Spans
    units: Spans

    @property
    def wave(self) -> IntColumn:
        """Rank wave of each unit: units ranked by begin, P at a time."""
        rank = np.empty(len(self.units), np.int64)
        rank[np.lexsort((self.units.unit, self.units.begin_ns))] = np.arange(len(self.units))
        return rank // self.launch.places

    @property
    def idle_share(self) -> FloatArray:
        """For each unit, the share of SMs that its rank wave has no unit for."""
        wave = self.wave
        return np.maximum(0.0, 1 - np.bincount(wave)[wave] / self.device.sms)

    @property
    def residency(self) -> FloatArray:
        """For each unit, the mean number of CTAs on its SM while it ran, over the most there can be."""
        share = np.ones(len(self.units))
        for sm in np.unique(self.units.sm) if self.launch.ctas_per_sm > 1 else ():
            here, mine = self.ctas.sm == sm, self.units.sm == sm
            begin, end = self.units.begin_ns[mine], self.units.end_ns[mine]
            held = _held_before(self.ctas.select(here), end) - _held_before(self.ctas.select(here), begin)
            share[mine] = held / np.maximum(end - begin, 1) / self.launch.ctas_per_sm
        return share


def _held_before(ctas: Spans, at: IntColumn) -> IntColumn:
    """CTA-ns lived on an SM before each time."""
    begin, end = ctas.begin_ns[:, None], ctas.end_ns[:, None]
    held: IntColumn = np.clip(at[None, :] - begin, 0, end - begin).sum(axis=0)
    return held


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
    if not traces:
        raise UsageError("no trace to calibrate on; record some first")
    recorded = [_recorded(trace, launch) for trace in traces for launch in trace.launches]
    keys = {_key(one.launch, one.device) for one in recorded}
    if len(keys) > 1:
        raise UsageError(f"these launches cannot share a calibration: {sorted(map(str, keys))}; fit each alone")
    kernel, tile, dtype, device, ctas_per_sm = keys.pop()
    costs, missing = _main_loop(recorded)
    clock, idle_clock = _clocks(recorded)
    latencies = {
        "epilogue_cycles": [_epilogue(one) for one in recorded],
        "prologue_cycles": [_ends(one)[0] for one in recorded],
        "exit_cycles": [_ends(one)[1] for one in recorded],
        "gap_cycles": [_gaps(one) for one in recorded if one.launch.schedule == "persistent"],
        "queue_gap_cycles": [_gaps(one) for one in recorded if one.launch.schedule == "dynamic"],
        "turnaround_cycles": [_turnarounds(one) for one in recorded],
    }
    for name, values in latencies.items():
        median = _median_of_medians(values)
        costs[name] = max(0.0, median or 0.0)
        missing += [name] if median is None else []
    return Calibration(
        kernel=kernel,
        tile=tile,
        dtype=dtype,
        device=device,
        ctas_per_sm=ctas_per_sm,
        **costs,
        ramp_ns=float(np.median([_ramp(one) for one in recorded])),
        clock_mhz=clock,
        idle_clock_mhz=idle_clock,
        clock_spread=float(np.median([_clock_spread(one) for one in recorded])),
        noise=_noise(recorded),
        source=_source(recorded, missing),
    )


def _recorded(trace: Trace, launch: Launch) -> _Recorded:
    spans = trace.spans.select(trace.spans.launch_id == launch.launch_id)
    ctas, macs = spans.select(spans.kind == Kind.CTA), spans.select(spans.kind == Kind.MAC)
    units = macs if len(macs) else ctas
    if len(units) == 0 or (units.k_begin == NULL).any() or (units.k_end <= units.k_begin).any():
        raise UsageError(f"a unit of launch {launch.launch_id} ({launch.kernel}) does not say its k_iters")
    return _Recorded(launch, trace.device, spans, ctas, units)


def _main_loop(recorded: Sequence[_Recorded]) -> tuple[dict[str, Any], list[str]]:
    """Coefficients of cycles = a k + fixed + cold [first] - a k (gain idle + sharing (1 - residency))."""
    k = np.concatenate([one.units.k_end - one.units.k_begin for one in recorded]).astype(np.float64)
    cycles = np.concatenate([one.units.end_clock - one.units.begin_clock for one in recorded]).astype(np.float64)
    first = np.concatenate([one.wave == 0 for one in recorded]).astype(np.float64)
    idle = np.concatenate([one.idle_share for one in recorded])
    alone = 1 - np.concatenate([one.residency for one in recorded])
    weight = np.concatenate([np.full(len(one.units), len(one.units) ** -0.5) for one in recorded]) / cycles
    columns = {
        "cycles_per_k_iter": k,
        "fixed_cycles": np.ones_like(k),
        "cold_cycles": first,
        "sharing": -alone * k,
        "idle_gain": -idle * k,
    }
    found = _least_squares(columns, cycles, weight)
    per_k_iter = found["cycles_per_k_iter"]
    costs: dict[str, Any] = {
        name: found.get(name, 0.0) for name in ("cycles_per_k_iter", "fixed_cycles", "cold_cycles")
    }
    costs["idle_gain"] = min(found.get("idle_gain", 0.0) / per_k_iter, _MAX_IDLE_GAIN)
    # not seen: CTAs of one SM share its tensor cores, so alone each is as fast as all together
    costs["sharing"] = min(found["sharing"] / per_k_iter, 1.0) if "sharing" in found else 1.0
    return costs, [name for name in columns if name not in found and (name != "sharing" or alone.any())]


def _least_squares(columns: dict[str, FloatArray], target: FloatArray, weight: FloatArray) -> dict[str, float]:
    """Non-negative coefficients of those columns that can be told apart, in the order given."""
    chosen: list[str] = []
    for name, column in columns.items():
        scaled = column * weight
        basis = (
            np.stack([columns[other] * weight for other in chosen], axis=1) if chosen else np.zeros((len(weight), 0))
        )
        left = scaled - basis @ np.linalg.lstsq(basis, scaled, rcond=None)[0] if chosen else scaled
        if np.linalg.norm(left) > _SEPARABLE * np.linalg.norm(scaled):
            chosen.append(name)
    while True:
        basis = np.stack([columns[name] * weight for name in chosen], axis=1)
        solution = np.linalg.lstsq(basis, target * weight, rcond=None)[0]
        effect = solution * np.linalg.norm(basis, axis=0)
        if effect.min() >= 0:
            return dict(zip(chosen, map(float, solution), strict=True))
        del chosen[int(effect.argmin())]


def _clocks(recorded: Sequence[_Recorded]) -> tuple[float, float]:
    """MHz with all SMs busy, and extrapolated to none, from the rank waves of all launches."""
    mhz, idle, weight = [], [], []
    for one in recorded:
        wave, idle_share = one.wave, one.idle_share
        ns = np.bincount(wave, weights=one.units.end_ns - one.units.begin_ns)
        cycles = np.bincount(wave, weights=one.units.end_clock - one.units.begin_clock)
        counts = np.bincount(wave)
        mhz.append(cycles / np.maximum(ns, 1) * 1e3)
        idle.append(np.bincount(wave, weights=idle_share) / counts)
        weight.append(np.sqrt(counts / counts.sum()))
    columns = {"busy": np.concatenate([np.ones_like(values) for values in idle]), "gain": np.concatenate(idle)}
    found = _least_squares(columns, np.concatenate(mhz), np.concatenate(weight))
    highest = recorded[0].device.max_clock_mhz
    return found["busy"], max(found["busy"], min(found["busy"] + found.get("gain", 0.0), highest))


def _clock_spread(one: _Recorded) -> float:
    """Relative standard deviation of the SMs' clocks in a launch."""
    _, index = np.unique(one.units.sm, return_inverse=True)
    ns = np.bincount(index, weights=one.units.end_ns - one.units.begin_ns)
    mhz = np.bincount(index, weights=one.units.end_clock - one.units.begin_clock) / np.maximum(ns, 1)
    return _relative_spread(mhz)


def _noise(recorded: Sequence[_Recorded]) -> float:
    """Relative standard deviation of units' cycles among equal units of a rank wave."""
    spreads = []
    for one in recorded:
        cycles, k_iters = one.units.end_clock - one.units.begin_clock, one.units.k_end - one.units.k_begin
        _, equal = np.unique(np.stack([one.wave, k_iters]), axis=1, return_inverse=True)
        for group in range(int(equal.max()) + 1):
            spreads.append(_relative_spread(cycles[equal == group].astype(np.float64)))
    return float(np.median(spreads))


def _relative_spread(values: FloatArray) -> float:
    middle = float(np.median(values))
    return _SIGMA_OF_MAD * float(np.median(np.abs(values - middle))) / middle if middle > 0 else 0.0


def _median_of_medians(values: Sequence[NDArray[np.int64]]) -> float | None:
    """Median over launches of each launch's median; None where no launch has a value."""
    medians = [np.median(launch) for launch in values if len(launch)]
    return float(np.median(medians)) if medians else None


def _epilogue(one: _Recorded) -> IntColumn:
    """Cycles of each epilogue."""
    epilogues = one.spans.select(one.spans.kind == Kind.EPILOGUE)
    cycles: IntColumn = epilogues.end_clock - epilogues.begin_clock
    return cycles


def _in_order(one: _Recorded) -> tuple[Spans, NDArray[np.bool_]]:
    """Spans other than CTAs by CTA and begin, and where a CTA's first one stands."""
    inner = one.spans.select(one.spans.kind != Kind.CTA)
    inner = inner.select(np.lexsort((inner.end_clock, inner.begin_clock, inner.cta)))
    return inner, np.append(True, inner.cta[1:] != inner.cta[:-1])[: len(inner)]


def _ends(one: _Recorded) -> tuple[IntColumn, IntColumn]:
    """Cycles of each CTA before its first unit and after its last."""
    inner, leads = _in_order(one)
    if len(inner) == 0:
        return inner.begin_clock, inner.begin_clock
    ctas = one.ctas.select(np.argsort(one.ctas.cta))
    with_units = np.isin(ctas.cta, inner.cta)
    trails = np.append(leads[1:], True)
    before = inner.begin_clock[leads] - ctas.begin_clock[with_units]
    return before, ctas.end_clock[with_units] - inner.end_clock[trails]


def _gaps(one: _Recorded) -> IntColumn:
    """Cycles between the units of a CTA."""
    inner, leads = _in_order(one)
    between = ~leads[1:] & (inner.unit[1:] != inner.unit[:-1])
    gaps: IntColumn = (inner.begin_clock[1:] - inner.end_clock[:-1])[between]
    return gaps


def _turnarounds(one: _Recorded) -> IntColumn:
    """Cycles between CTAs of an SM that the hardware put into the same place.

    The CTA that begins as number C + i on an SM of C places took the place that the
    i-th end freed.
    """
    found = [np.empty(0, np.int64)]
    for sm in np.unique(one.ctas.sm):
        ctas = one.ctas.select(one.ctas.sm == sm)
        begins = np.sort(ctas.begin_clock)[one.launch.ctas_per_sm :]
        found.append(begins - np.sort(ctas.end_clock)[: len(begins)])
    return np.concatenate(found)


def _ramp(one: _Recorded) -> float:
    """From T0 to the first CTA's begin on the last SM that got one."""
    first = np.full(int(one.ctas.sm.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, one.ctas.sm, one.ctas.begin_ns)
    used = first[np.unique(one.ctas.sm)]
    return float(used.max() - used.min())


def _source(recorded: Sequence[_Recorded], missing: Sequence[str]) -> str:
    k_iters = np.unique(np.concatenate([one.units.k_end - one.units.k_begin for one in recorded]))
    num_units = sum(len(one.units) for one in recorded)
    text = f"{len(recorded)} launches, {num_units} units of {', '.join(map(str, k_iters))} k_iters"
    if all(one.launch.source == "simulated" for one in recorded):
        text += " (simulated)"
    if not any((one.spans.kind == Kind.MAC).any() for one in recorded):
        text += "; CTAs only, so prologue, epilogue and exit count as main loop"
    if missing:
        text += f"; not to be told from these launches, so 0 or within cycles_per_k_iter: {', '.join(missing)}"
    return text
