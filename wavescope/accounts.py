"""Where the difference of two times comes from: the budgets of two launches, term by term."""

from __future__ import annotations

import math
from dataclasses import dataclass

from wavescope.errors import InputError
from wavescope.stats import Estimate
from wavescope.wave_report import STATES, Quantity, WaveReport

# The parts of a difference: mac is there as units (cycles) and clock, then the other states
# of an SM, what lies outside the spans, and what the budgets leave over.
PARTS = ("units", "clock", *STATES[1:], "launch", "left over")


@dataclass(frozen=True)
class Part:
    """One part of a difference in time: ns an SM (SM-ns over all SMs) that it adds, negative where it saves.

    `before` and `after` are what the two launches have of it, in the same unit; of units
    the mac cycles of an SM, of the clock MHz in mac.
    """

    name: str
    amount: Quantity
    before: float
    after: float


@dataclass(frozen=True)
class Account:
    """Time of one launch less that of another, in ns, as a sum of parts (one for each name in PARTS).

    Where the spans carry no clocks, `units` holds all of mac and `clock` is 0.
    """

    total_ns: float
    parts: tuple[Part, ...]

    def part(self, name: str) -> Part:
        """The part of that name."""
        return self.parts[PARTS.index(name)]


def account(before: WaveReport, after: WaveReport, before_ns: Estimate, after_ns: Estimate) -> Account:
    """Share out `after_ns` - `before_ns` (medians): every part computed on its own, and their sum is the whole.

    T is the sum of the budget's terms over S, so a difference of T is the sum of the
    terms' differences.  Time in mac is cycles over clock, and its difference splits as
    d(C / f) = dC * mean(1 / f) + mean(C) * d(1 / f), exactly.  `launch` is what the times
    have beyond T: gaps between launches, and T being the probed kernel's.

    Raises: InputError for launches on different numbers of SMs.
    """
    sms = before.budget.sms
    if after.budget.sms != sms:
        raise InputError(f"launches on {sms} and {after.budget.sms} SMs have no common account; use one device")
    launch = [ns.median - report.budget.duration_ns for ns, report in ((before_ns, before), (after_ns, after))]
    left = [report.budget.residual_ns / sms for report in (before, after)]
    parts = (
        *_mac(before, after),
        *(_state(name, before, after) for name in STATES[1:]),
        Part("launch", Quantity(launch[1] - launch[0], _launch_error(before, after, before_ns, after_ns)), *launch),
        Part("left over", Quantity(left[1] - left[0], 0.0), *left),
    )
    return Account(after_ns.median - before_ns.median, parts)


def _state(name: str, before: WaveReport, after: WaveReport) -> Part:
    sms = before.budget.sms
    first, second = before.budget.terms[name], after.budget.terms[name]
    change = Quantity((second.value - first.value) / sms, math.hypot(first.error, second.error) / sms)
    return Part(name, change, first.value / sms, second.value / sms)


def _mac(before: WaveReport, after: WaveReport) -> tuple[Part, Part]:
    """Time in mac, as its cycles at an unchanged clock and as its clock at unchanged cycles."""
    whole, sms = _state("mac", before, after), before.budget.sms
    if not (before.mac_cycles and after.mac_cycles and whole.before and whole.after):
        nothing = Part("clock", Quantity(0.0, 0.0), 0.0, 0.0)
        return Part("units", whole.amount, whole.before, whole.after), nothing
    cycles = before.mac_cycles / sms, after.mac_cycles / sms
    ns_per_cycle = whole.before / cycles[0], whole.after / cycles[1]
    units = (cycles[1] - cycles[0]) * (ns_per_cycle[0] + ns_per_cycle[1]) / 2
    clock = (ns_per_cycle[1] - ns_per_cycle[0]) * (cycles[0] + cycles[1]) / 2
    # clock64 counts single cycles, so the timer's error is all in the clock
    relative = whole.amount.error / (whole.before + whole.after)
    return (
        Part("units", Quantity(units, abs(units) * relative), *cycles),
        Part("clock", Quantity(clock, whole.amount.error), *(1e3 / step for step in ns_per_cycle)),
    )


def _launch_error(before: WaveReport, after: WaveReport, before_ns: Estimate, after_ns: Estimate) -> float:
    """Half the intervals of the times, and a step of the timer at each end of both T."""
    steps = [report.placement.step_ns if report.placement else report.timer_step_ns for report in (before, after)]
    halves = [(ns.high - ns.low) / 2 for ns in (before_ns, after_ns)]
    return math.hypot(*halves, *(math.sqrt(2) * step for step in steps))
