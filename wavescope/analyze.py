"""The analysis: one launch of a trace becomes a WaveReport."""

from __future__ import annotations

import math

import numpy as np

from wavescope.budget import budget
from wavescope.coarse_timer import launch_spans, placement_sentences
from wavescope.flop import Flop, flop_of
from wavescope.inside_tile import inside_tile
from wavescope.states import IDLE, SmStates, dense_index, has_clocks, launch_of, sm_states
from wavescope.tail import tail_split
from wavescope.trace import IntColumn, Kind, Spans, Trace
from wavescope.units import Units, in_unit, units_of
from wavescope.waterfall import waterfall
from wavescope.wave_report import Budget, Clock, Quantity, TailSplit, WaveReport
from wavescope.waves import waves_of

# Below this many timer steps a unit's length is mostly the timer's own.
MIN_UNIT_STEPS = 10


def analyze(trace: Trace, launch_id: int | None = None) -> WaveReport:
    """Everything the spans of one launch tell; `launch_id` may be left out where there is one launch.

    The spans are taken as true: run `integrity.check` on the trace first.  Where the timer
    steps by a microsecond, begins and ends are those that clock64 gives (coarse_timer).

    Raises: InputError for an unknown launch, NoKernels for a trace or launch without
    anything in it, IntegrityError for spans that have no budget (more SMs than the device,
    no CTA, no duration).
    """
    launch = launch_of(trace, launch_id)
    spans, step, placement = launch_spans(trace, launch)
    device = trace.device
    states, units = sm_states(spans), units_of(spans)
    flop = flop_of(launch, units)
    shares = budget(states, device.sms, step, flop.useful / flop.issued if flop else None)
    tail = tail_split(units, launch, shares.used_sms, shares.not_idle.value, shares.terms["tail"], step)
    inside, unsplit = inside_tile(spans, units, states, launch, device)
    steps, doubts = waterfall(shares, states, launch, flop, device, step, inside)
    active = _active_cycles(states)
    longest = None if active is None else int(active.max())
    ctas = spans.select(np.flatnonzero(spans.kind == Kind.CTA))
    return WaveReport(
        launch=launch,
        device=device,
        timer_step_ns=trace.timer_step_ns,
        budget=shares,
        tail=tail,
        waves=waves_of(units, states, launch, device.sms),
        waterfall=steps,
        clock=_clock(spans, ctas, states),
        bound=_bound(shares),
        active_cycles_ratio=float(active.sum()) / (device.sms * longest) if active is not None and longest else None,
        longest_sm_cycles=longest,
        place_busy=float((ctas.end_ns - ctas.begin_ns).sum()) / (max(1, launch.places) * states.duration_ns),
        refusals=(*_refusals(shares, tail, units, flop, step), *unsplit, *doubts, *placement_sentences(placement)),
        placement=placement,
        flop=flop,
        mac_cycles=None if states.state_cycles is None else int(states.state_cycles[:, Kind.MAC].sum()),
        inside=inside,
        sm_active_cycles=active,
    )


def _bound(shares: Budget) -> Quantity:
    """S x T over the SM time not idle, with the error of the latter."""
    value = shares.total_ns / shares.not_idle.value if shares.not_idle.value else math.inf
    return Quantity(value, value * shares.not_idle.error / max(shares.not_idle.value, 1.0))


def _active_cycles(states: SmStates) -> IntColumn | None:
    """Cycles in which each used SM was active; None without clocks."""
    if states.state_cycles is None:
        return None
    active: IntColumn = states.state_cycles.sum(axis=1) - states.state_cycles[:, IDLE]
    return active


def _clock(spans: Spans, ctas: Spans, states: SmStates) -> Clock | None:
    """Cycles per ns; over the first and last tenth from the units' spans, which are shorter than CTAs.

    A span that reaches into a tenth counts with the part of it that lies inside.
    """
    if not has_clocks(spans):
        return None
    ns, cycles = ctas.end_ns - ctas.begin_ns, ctas.end_clock - ctas.begin_clock
    sm = dense_index(ctas.sm)[1]
    sm_ns, sm_cycles = np.bincount(sm, weights=ns), np.bincount(sm, weights=cycles)
    sm_mhz = sm_cycles[sm_ns > 0] / sm_ns[sm_ns > 0] * 1e3
    if len(sm_mhz) == 0:
        return None
    mean = float(sm_cycles.sum() / sm_ns.sum()) * 1e3
    fine = np.flatnonzero(in_unit(spans))
    source = spans.select(fine) if len(fine) else ctas
    tenth = states.duration_ns / 10
    return Clock(
        mean_mhz=mean,
        low_mhz=float(sm_mhz.min()),
        high_mhz=float(sm_mhz.max()),
        first_tenth_mhz=_mhz_between(source, 0.0, tenth, mean),
        last_tenth_mhz=_mhz_between(source, states.duration_ns - tenth, float(states.duration_ns), mean),
    )


def _mhz_between(spans: Spans, begin: float, end: float, otherwise: float) -> float:
    """Mean clock of the spans' parts inside [begin, end); `otherwise` where none is inside."""
    ns = spans.end_ns - spans.begin_ns
    inside = np.minimum(spans.end_ns, end) - np.maximum(spans.begin_ns, begin)
    some = (inside > 0) & (ns > 0)
    if not some.any():
        return otherwise
    mhz = (spans.end_clock[some] - spans.begin_clock[some]) / ns[some] * 1e3
    return float(np.average(mhz, weights=inside[some]))


def _refusals(shares: Budget, tail: TailSplit, units: Units, flop: Flop | None, step: int) -> list[str]:
    """A sentence for each conclusion that the timer or the trace does not allow."""
    found = []
    median = float(np.median(units.duration_ns))
    if median < MIN_UNIT_STEPS * step:
        found.append(
            f"Units take {median:.0f} ns, fewer than {MIN_UNIT_STEPS} steps of the {step} ns timer: "
            "their durations, and ratios of them, say little."
        )
    quantities = {**shares.terms, "quantization": tail.quantization, "imbalance": tail.imbalance}
    refused = [
        f"{name} ({q.value / shares.total_ns:.2%} of SM time, error {q.error / shares.total_ns:.2%})"
        for name, q in quantities.items()
        if q.value != 0 and q.refused
    ]
    if refused:
        found.append(f"Too small for a timer of {step} ns steps, conclude nothing from: {', '.join(refused)}.")
    if shares.residual_ns:
        share = shares.residual_ns / shares.total_ns
        found.append(
            f"The budget leaves {shares.residual_ns} SM-ns ({share:.2%}) over: spans reach outside their CTAs."
        )
    if flop is None:
        found.append("Padding is unknown: the trace does not say which problem and tile were computed.")
    return found
