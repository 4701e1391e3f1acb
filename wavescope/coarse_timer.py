"""Places for begins and ends where globaltimer steps too coarsely: clock64 says what the timer does not.

Before Hopper the timer may step by a microsecond (1,024 ns measured by others on RTX 3060 and
4090), longer than most gaps that a budget is about.  Each stamp then only
bounds its time to one step; but the stamps of all SMs that share a clock lie on one
curve, whose slope is known to lie between the SM's slowest and fastest clock, and every
stamp narrows every other (clock_band).  What is left is the error bar.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wavescope.clock_band import band_of, stamps_of
from wavescope.clock_domains import ClockDomains, domains_of_spans
from wavescope.states import dense_index, has_clocks, spans_of
from wavescope.trace import IntColumn, Kind, Launch, Spans, Trace
from wavescope.wave_report import Placement

COARSE_STEP_NS = 256  # a step from which on clock64 places events better than the timer does
REFUSED_NS = 300.0  # an error bar above this is no place to conclude from

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Placed:
    """Spans at the times found for them, in ns from the placed T0, with each stamp's error bar."""

    spans: Spans
    begin_error_ns: FloatArray
    end_error_ns: FloatArray
    summary: Placement


def launch_spans(trace: Trace, launch: Launch) -> tuple[Spans, int, Placement | None]:
    """The spans of a launch from its T0, the step that their errors follow, and how they were placed.

    Where the timer's step is fine, or clocks were not recorded, the spans are as recorded
    and there is no Placement.

    Raises: as states.spans_of.
    """
    spans = spans_of(trace, launch)
    if trace.timer_step_ns < COARSE_STEP_NS or not has_clocks(spans):
        return spans, trace.timer_step_ns, None
    placed = place(spans, trace.timer_step_ns, trace.device.max_clock_mhz)
    return placed.spans, placed.summary.step_ns, placed.summary


def place(spans: Spans, step_ns: int, max_clock_mhz: float) -> Placed:
    """Begins and ends of one launch in the middle of the times that they can have had.

    Half of what is left between earliest and latest is the error bar.  Stamps of a clock
    domain are taken together; SM by SM where domains cannot be told.  An SM whose own
    stamps fit no clock keeps its readings, with a whole step as error.
    """
    stamps = stamps_of(spans)
    domains = domains_of_spans(spans, step_ns, max_clock_mhz)
    middle, error = stamps.time_ns + step_ns / 2, np.full(len(stamps.sm), float(step_ns))
    misfits: list[int] = []
    counters = _counters(domains, stamps.sm)
    for members in counters:
        band = band_of(stamps.select(members), step_ns, max_clock_mhz)
        if band.is_possible:
            middle[members] = (band.earliest_ns + band.latest_ns) / 2
            error[members] = (band.latest_ns - band.earliest_ns) / 2
        else:
            misfits.append(int(stamps.sm[members][0]))
    count = len(spans)
    is_cta = spans.kind == Kind.CTA
    t0 = float(middle[:count][is_cta].min())
    begin, end = np.rint(middle[:count] - t0).astype(np.int64), np.rint(middle[count:] - t0).astype(np.int64)
    cta_begins = error[:count][is_cta]
    summary = Placement(
        timer_step_ns=step_ns,
        counters=len(counters),
        by_domain=domains.reason is None,
        t0_shift_ns=t0,
        median_error_ns=float(np.median(cta_begins)),
        high_error_ns=float(np.quantile(cta_begins, 0.95)),
        refused_share=float(np.mean(cta_begins > REFUSED_NS)),
        misfit_sms=tuple(sorted(misfits)),
        step_ns=max(1, round(2 * float(np.sqrt(np.mean(error**2))))),
    )
    return Placed(replace(spans, begin_ns=begin, end_ns=end), error[:count], error[count:], summary)


def _counters(domains: ClockDomains, sm: IntColumn) -> list[NDArray[np.bool_]]:
    """A mask for the stamps of each counter: of a clock domain, or of an SM."""
    group = domains.of_sm(sm) if domains.reason is None else dense_index(sm)[1]
    return [group == index for index in range(int(group.max()) + 1)]


def placement_sentences(placement: Placement | None) -> tuple[str, ...]:
    """What the placement does not allow, in sentences; none where every CTA's begin has a place."""
    if placement is None:
        return ()
    found = []
    if placement.refused_share > 0:
        found.append(
            f"The timer steps by {placement.timer_step_ns} ns. Placed by clock64, begins of CTAs have error bars of "
            f"{placement.median_error_ns:.0f} ns (median; 95%: {placement.high_error_ns:.0f}); "
            f"{placement.refused_share:.0%} of them are wider than {REFUSED_NS:.0f} ns: "
            "conclude nothing from where those began."
        )
    if placement.misfit_sms:
        sms = ", ".join(map(str, placement.misfit_sms[:8]))
        found.append(
            f"The clock64 readings of {len(placement.misfit_sms)} SMs do not fit their timer's ({sms}): "
            "their begins and ends are the timer's own."
        )
    return tuple(found)
