"""The SM clock during a launch: MHz = cycles / ns by kind of span, SM, clock domain and over time.

globaltimer places events, clock64 counts work; their ratio is the clock.  It moves while
a kernel runs and differs between domains (H200, 2026-11: 1.67 to 1.64 GHz within 1.5 ms,
2.5 % between domains), so one clock for a launch is an average and never a conversion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.clock_domains import ClockDomains, domains_of_spans
from wavescope.coarse_timer import launch_spans
from wavescope.states import dense_index, has_clocks, launch_of, spans_of
from wavescope.trace import IntColumn, Kind, Spans, Trace
from wavescope.units import in_unit
from wavescope.wave_report import Quantity

PARTS = 10  # equal parts of T over which the clock is followed

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Clocks:
    """The SM clock of one launch in MHz, each with the error that the timer leaves it.

    `by_kind` has the kinds of span that took time; `by_sm` one value for each of
    `domains.sm_ids`, `by_domain` one for each domain; both, and `mean`, are over CTA
    lifetimes.  `parts` is [domains, PARTS] (one row, all SMs, where domains cannot be
    told): the clock in equal parts of T, NaN where no span lies.  `span` are the 5, 50
    and 95 % quantiles over single spans of the finest sort, `span_error` is the error of
    one of median length.
    """

    max_mhz: float
    mean: Quantity
    by_kind: dict[str, Quantity]
    domains: ClockDomains
    by_sm: tuple[Quantity, ...]
    by_domain: tuple[Quantity, ...]
    parts: FloatArray
    span: tuple[float, float, float]
    span_error: float

    @property
    def domain_difference(self) -> Quantity | None:
        """Fastest over slowest domain, less 1; None without at least two domains."""
        if len(self.by_domain) < 2:
            return None
        low = min(self.by_domain, key=lambda domain: domain.value)
        high = max(self.by_domain, key=lambda domain: domain.value)
        ratio = high.value / low.value
        return Quantity(ratio - 1, ratio * math.hypot(low.error / low.value, high.error / high.value))


def clocks(trace: Trace, launch_id: int | None = None) -> Clocks | None:
    """The SM clock of one launch; None where its spans carry no clocks or no time.

    A span that reaches into a part of T counts with the share of it that lies inside, at
    its own mean clock: parts shorter than spans are not resolved.

    Raises: as `analyze` for the launch.
    """
    launch = launch_of(trace, launch_id)
    spans, step, _ = launch_spans(trace, launch)
    ctas = spans.select(spans.kind == Kind.CTA)
    if not has_clocks(spans) or not (ctas.end_ns > ctas.begin_ns).any():
        return None
    as_read = spans_of(trace, launch)  # a placed time is no reading that the timer rounded down
    domains = domains_of_spans(as_read, trace.timer_step_ns, trace.device.max_clock_mhz)
    fine = spans.select(in_unit(spans)) if in_unit(spans).any() else ctas
    fine = fine.select(fine.end_ns > fine.begin_ns)
    if len(fine) == 0:
        fine = ctas.select(ctas.end_ns > ctas.begin_ns)
    of_sm = dense_index(ctas.sm)[1]
    of_domain = domains.of_sm(ctas.sm)
    by_kind = {}
    for kind in Kind:
        mine = spans.select(spans.kind == kind)
        if (mine.end_ns > mine.begin_ns).any():
            by_kind[kind.name.lower()] = _mhz(mine, step)
    single = (fine.end_clock - fine.begin_clock) / (fine.end_ns - fine.begin_ns) * 1e3
    low, median, high = np.quantile(single, [0.05, 0.5, 0.95]).tolist()
    rows = [domains.of_sm(fine.sm) == index for index in range(len(domains))] or [np.ones(len(fine), np.bool_)]
    duration = int(ctas.end_ns.max())
    return Clocks(
        max_mhz=trace.device.max_clock_mhz,
        mean=_mhz(ctas, step),
        by_kind=by_kind,
        domains=domains,
        by_sm=tuple(_mhz(ctas.select(of_sm == index), step) for index in range(len(domains.sm_ids))),
        by_domain=tuple(_mhz(ctas.select(of_domain == index), step) for index in range(len(domains))),
        parts=np.stack([_over_time(fine.select(row), duration) for row in rows]),
        span=(low, median, high),
        span_error=median * step * math.sqrt(2) / float(np.median(fine.end_ns - fine.begin_ns)),
    )


def _mhz(spans: Spans, step: float) -> Quantity:
    """Cycles over ns of all spans; NaN where they took no time."""
    ns, cycles = int((spans.end_ns - spans.begin_ns).sum()), int((spans.end_clock - spans.begin_clock).sum())
    if ns == 0:
        return Quantity(math.nan, math.nan)
    value = cycles / ns * 1e3
    return Quantity(value, value * step * math.sqrt(2 * len(spans)) / ns)


def _over_time(spans: Spans, duration: int) -> FloatArray:
    """Mean clock in each part of T, spans weighted with their time in it."""
    edges = np.arange(PARTS + 1) * duration / PARTS
    mhz = (spans.end_clock - spans.begin_clock) / (spans.end_ns - spans.begin_ns) * 1e3
    inside = _time_before(spans.begin_ns, spans.end_ns, edges)
    weighed = _time_before(spans.begin_ns, spans.end_ns, edges, mhz)
    with np.errstate(invalid="ignore"):
        return np.diff(weighed) / np.diff(inside)


def _time_before(begin: IntColumn, end: IntColumn, at: FloatArray, weight: FloatArray | None = None) -> FloatArray:
    """Span time before each moment, weighted."""
    passed = np.clip(at[:, None] - begin, 0, end - begin)
    total: FloatArray = passed.sum(axis=1) if weight is None else passed @ weight
    return total
