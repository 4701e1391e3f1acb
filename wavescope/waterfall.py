"""From the device's peak to what was achieved, as a product of factors that is exact.

Each factor is the share left after one loss.  The losses are taken in one order (clock,
inside the tile, padding, then the SM states by priority, idle last, launch and probe);
another order would share them out otherwise, with the same product.

Inside the tile there is one factor, issued FLOP / (rate * C), with rate the SM's FLOP a clock
(rates) and C the cycles of mac time, clock64 summed over SMs.  A launch that measured how
long its units waited has four in its place, with the same product; their cycles are those
of inside_tile, pipe + operands + fill + rest = C:

issue rate   issued FLOP / (rate * pipe): what the kernel's instruction reaches of the SM's rate
operands     pipe / (pipe + operands): cycles in which the pipe does not idle for want of operands
pipe fill    (pipe + operands) / (pipe + operands + fill): of those and the fill of CTAs' first units
rest of mac  (pipe + operands + fill) / C: all mac cycles but the pipe's other idle ones

What the epilogue costs, where no unit multiplies beside it, is the state epilogue's factor.
"""

from __future__ import annotations

import math

import numpy as np

from wavescope.device import Device
from wavescope.flop import Flop
from wavescope.problem import Dtype
from wavescope.rates import flop_per_clock
from wavescope.states import NUM_STATES, SmStates
from wavescope.stats import Estimate
from wavescope.trace import Kind, Launch, Timing
from wavescope.wave_report import STATES, Budget, Factor, InsideTile, Waterfall

_MEANINGS = {
    "fixup": "SM time not spent on partial sums",
    "epilogue": "SM time not spent storing tiles with no mac beside it",
    "wait": "SM time not spent waiting for another CTA",
    "resident": "SM time not spent in prologue, barriers and exit of a CTA",
    "turnaround": "SM time not spent between one CTA and the next",
    "ramp": "SM time not spent before an SM's first CTA",
    "tail": "SM time not spent after an SM's last CTA",
    "unfilled": "SMs that got a CTA at all",
}


_INSIDE_MEANINGS = {
    "issue rate": "what the kernel's instruction reaches of the SM's rate",
    "operands": "cycles in which the pipe did not idle for want of operands",
    "pipe fill": "cycles not spent on the first operands of a CTA",
    "rest of mac": "cycles in which the pipe did not idle for another reason",
}


def waterfall(
    budget: Budget,
    states: SmStates,
    launch: Launch,
    flop: Flop | None,
    device: Device,
    timer_step_ns: float,
    inside: InsideTile | None = None,
) -> tuple[Waterfall | None, tuple[str, ...]]:
    """The waterfall, or None, and sentences on what keeps it from being there or from being believed."""
    problem, cycles = launch.problem, states.state_cycles
    if problem is None or flop is None:
        return None, ("No waterfall: the trace does not say which problem and tile were computed.",)
    rate = flop_per_clock(device, problem.dtype)
    if rate is None:
        capability = ".".join(str(part) for part in device.compute_capability)
        known = f"no {problem.dtype} rate per clock is known for {device.name} (compute capability {capability})"
        return None, (f"No waterfall: {known}.",)
    if budget.terms["mac"].value == 0:
        return None, ("No waterfall: the trace has no mac spans, so the time inside tiles is unknown.",)
    if cycles is None or cycles[:, Kind.MAC].sum() == 0:
        return None, ("No waterfall: the spans carry no clocks.",)
    mac_cycles = int(cycles[:, Kind.MAC].sum())
    factors = (
        _clock_factor(budget, mac_cycles, device.max_clock_mhz),
        *_inside_factors(states, mac_cycles, rate.flop, flop, problem.dtype, inside),
        Factor("padding", flop.useful / flop.issued, 0.0, "issued operations that fall inside the problem"),
        *_state_factors(budget),
        *(_timing_factors(budget.duration_ns, timer_step_ns, launch.timing) if launch.timing else ()),
    )
    against_ns = launch.timing.plain_ns.median if launch.timing else float(budget.duration_ns)
    regime = f"plain event time, regime {launch.timing.regime}" if launch.timing else "T (no event time was taken)"
    found = Waterfall(
        peak_tflops=device.sms * rate.flop * device.max_clock_mhz / 1e6,
        datasheet_tflops=device.peak_tflops.get(problem.dtype),
        flop_per_clock_sm=rate.flop,
        factors=factors,
        achieved_tflops=flop.useful / against_ns / 1e3,
        against=regime,
    )
    return found, tuple(_over_one(factors))


def _clock_factor(budget: Budget, mac_cycles: int, max_clock_mhz: float) -> Factor:
    mac = budget.terms["mac"]
    clock_mhz = mac_cycles / mac.value * 1e3
    return Factor(
        "clock",
        clock_mhz / max_clock_mhz,
        clock_mhz / max_clock_mhz * mac.error / mac.value,
        f"the SM clock in mac time was {clock_mhz:.0f} of {max_clock_mhz:.0f} MHz",
    )


def _inside_factors(
    states: SmStates, mac_cycles: int, rate: int, flop: Flop, dtype: Dtype, inside: InsideTile | None
) -> list[Factor]:
    """From what the SMs could do in mac time to the operations they issued."""
    stretches = int(np.bincount(states.segments.state, minlength=NUM_STATES)[Kind.MAC])
    endpoints = math.sqrt(2 * stretches)  # clock64 counts single cycles
    if inside is None:
        share = flop.issued / (rate * mac_cycles)
        units = "FP32 lanes" if dtype == "fp32" else "tensor cores"
        meaning = f"cycles of mac time that the {units} need at their full rate"
        return [Factor("inside tile", share, share * endpoints / mac_cycles, meaning)]
    before = inside.parts["pipe"].total
    factors = [Factor("issue rate", flop.issued / (rate * before), 0.0, _INSIDE_MEANINGS["issue rate"])]
    for name, part in (("operands", "operands"), ("pipe fill", "fill"), ("rest of mac", "rest")):
        cycles = inside.parts[part]
        after = float(mac_cycles) if part == "rest" else before + cycles.total
        error = math.hypot(cycles.error, endpoints if cycles.total else 0.0)
        factors.append(Factor(name, before / after, before / after * error / after, _INSIDE_MEANINGS[name]))
        before = after
    return factors


def _state_factors(budget: Budget) -> list[Factor]:
    """One factor a state, from mac time to S x T."""
    factors = []
    before = budget.terms["mac"].value
    for name in STATES[1:]:
        term = budget.terms[name]
        after = float(budget.total_ns) if name == STATES[-1] else before + term.value
        factors.append(Factor(name, before / after, term.error / after, _MEANINGS[name]))
        before = after
    return factors


def _timing_factors(duration_ns: int, timer_step_ns: float, timing: Timing) -> list[Factor]:
    """Launch and probe: from T to the event time of the plain kernel."""
    probed, plain = timing.probed_ns.median, timing.plain_ns.median
    launch, probe = duration_ns / probed, probed / plain
    relative = math.hypot(math.sqrt(2) * timer_step_ns / duration_ns, _half_width(timing.probed_ns) / probed)
    return [
        Factor("launch", launch, launch * relative, "event time of the probed kernel in which a CTA was on the device"),
        Factor(
            "probe",
            probe,
            _half_width(timing.perturbation),
            "event time of the probed kernel over the plain one's: what the probe costs, given back",
        ),
    ]


def _half_width(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / 2


def _over_one(factors: tuple[Factor, ...]) -> list[str]:
    """A sentence for each factor that cannot be: a share over 1 by more than its error."""
    return [
        f"The factor '{factor.name}' is {factor.value:.4f} (error {factor.error:.4f}): a share over 1 is a bug in the "
        "trace or in the device's facts, do not rely on the waterfall."
        for factor in factors
        if factor.name != "probe" and factor.value > 1 + factor.error + 1e-9
    ]
