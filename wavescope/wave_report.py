"""The WaveReport: everything the analysis finds out about one launch, as plain data.

`analyze` makes it; `report/` renders it; nothing is computed after it.  Times are
nanoseconds from T0; "SM-ns" are nanoseconds of one SM, summed over SMs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wavescope.device import Device
from wavescope.flop import Flop
from wavescope.trace import IntColumn, Launch

# The states of an SM in priority order, then the four kinds of idle: together S * T.
ACTIVE_STATES = ("mac", "fixup", "epilogue", "wait", "resident")
IDLE_STATES = ("turnaround", "ramp", "tail", "unfilled")
STATES = ACTIVE_STATES + IDLE_STATES

# Where the cycles of mac time go, what comes after it, and what the copying warp waits beside all that.
INSIDE_MAC = ("pipe", "operands", "fill", "rest")
INSIDE_PARTS = (*INSIDE_MAC, "epilogue", "drain", "room")
INSIDE_MEANINGS = {
    "pipe": "the tensor pipe at its rate",
    "operands": "waiting for operands, pipe idle",
    "fill": "waiting for a CTA's first operands",
    "rest": "pipe idle for another reason",
    "epilogue": "storing, no unit multiplies",
    "drain": "from a CTA's last span to its end",
    "room": "meanwhile: copier waiting for room",
}

# A conclusion whose error is over this share of its value is refused.
REFUSAL_SHARE = 0.1


@dataclass(frozen=True)
class Quantity:
    """A number with the error its timestamps leave it (absolute, same unit)."""

    value: float
    error: float

    @property
    def refused(self) -> bool:
        """True where the error is too large a share of the value to conclude from it."""
        return self.error > REFUSAL_SHARE * abs(self.value)


@dataclass(frozen=True)
class Budget:
    """Where S * T went, in SM-ns.

    `terms` has one Quantity for each name in STATES, each computed on its own;
    `residual_ns` = S * T minus their sum (0 when the spans are consistent).
    `padding` is the part of mac spent on elements outside the problem; `per_sm` is
    [sms, len(STATES)] int64, rows in the order of `sm_ids` (used SMs first come from
    the trace; an SM that ran nothing has id -1).
    """

    sms: int
    used_sms: int
    duration_ns: int
    total_ns: int
    terms: dict[str, Quantity]
    residual_ns: int
    padding: Quantity
    sm_ids: NDArray[np.int64]
    per_sm: NDArray[np.int64]

    def share(self, name: str) -> float:
        """A term's share of S * T."""
        return self.terms[name].value / self.total_ns

    @property
    def not_idle(self) -> Quantity:
        """SM-ns with a CTA resident."""
        parts = [self.terms[name] for name in ACTIVE_STATES]
        return Quantity(sum(p.value for p in parts), sum(p.error**2 for p in parts) ** 0.5)


@dataclass(frozen=True)
class CostModel:
    """Nominal cost of a unit in ns: per_k_iter * k_iters + store [stores the tile] + partial [writes one].

    Fitted on the trace by least squares.  Terms that do not vary among the units cannot
    be told apart and are folded into `per_k_iter_ns`; `r_squared` is None where all
    nominal costs are equal, since there is then no variation to explain.
    """

    per_k_iter_ns: float
    store_ns: float
    partial_ns: float
    r_squared: float | None


@dataclass(frozen=True)
class TailSplit:
    """tail = quantization + imbalance, in SM-ns; imbalance is signed, never clipped.

    `makespan_ns` is M*: the largest nominal load of an SM or of one CTA (static), or the
    list-scheduled makespan (dynamic, hardware dispatch).  `of_equal_units`: all nominal
    costs were put to their mean, since the work was irregular.
    """

    quantization: Quantity
    imbalance: Quantity
    makespan_ns: float
    cost: CostModel
    of_equal_units: bool = False


@dataclass(frozen=True)
class RankWave:
    """One rank wave: units ranked by begin, P at a time.

    It reaches from the previous wave's boundary to [begin_ns, end_ns); `utilization` is
    the mean share of SMs not idle in it; `fill` = units / P.  Durations are of its units.
    """

    index: int
    units: int
    begin_ns: float
    end_ns: float
    utilization: float
    fill: float
    median_duration_ns: float
    low_duration_ns: float  # 10th percentile
    high_duration_ns: float  # 90th percentile
    median_cycles: float  # 0 where the spans carry no clocks


@dataclass(frozen=True)
class Waves:
    """Rank waves of a launch; `reason` says why there are none (units of unequal size, no units).

    `nominal_waves` and `efficiency` are arithmetic (estimated); `duration_ratio` and
    `cycle_ratio` compare the last wave's median unit with the first wave's (measured).
    `places`: units that run at once; fewer than the launch's where fewer CTAs take several each.
    From `tail_onset_ns` on at least one SM has run its last CTA; `busy_shares` are the mean
    shares of SMs not idle in equal parts of T.  Both are there with and without waves.
    """

    places: int
    num_units: int
    nominal_waves: float
    efficiency: float
    waves: tuple[RankWave, ...]
    reason: str | None
    duration_ratio: float | None
    cycle_ratio: float | None
    tail_onset_ns: int | None = None
    busy_shares: tuple[float, ...] = ()


@dataclass(frozen=True)
class Factor:
    """One step of the waterfall: peak times all factors = achieved."""

    name: str
    value: float
    error: float
    meaning: str


@dataclass(frozen=True)
class Waterfall:
    """From the peak S * rho * f0 to what was achieved, exact; the order is a convention.

    `achieved_tflops` = useful FLOP / plain event time (or / T where no event time was
    taken: `against` says which).  None in a WaveReport where the problem is unknown.
    """

    peak_tflops: float
    datasheet_tflops: float | None
    flop_per_clock_sm: int
    factors: tuple[Factor, ...]
    achieved_tflops: float
    against: str


@dataclass(frozen=True)
class UnitCycles:
    """SM cycles of one part of the units: their sum, a unit's median and 95 % quantile, and the error of the sum.

    Median and quantile are over all units, of fill over the first unit of each CTA, of drain
    over the last.
    """

    total: float
    median: float
    p95: float
    error: float

    @property
    def refused(self) -> bool:
        """True where the error is too large a share of the sum to conclude from it."""
        return Quantity(self.total, self.error).refused


@dataclass(frozen=True)
class InsideTile:
    """Where the cycles of a launch's units go, measured (inside_tile has the formulas).

    `parts` has an entry for each of INSIDE_PARTS; those of INSIDE_MAC sum to the mac cycles.
    `pipe_per_k_iter` are the cycles the tensor pipe takes for a k_iter.  `fill_known` is False
    where every unit is its CTA's first, so that the fill stands in operands.  `limit` names
    what holds the units up (memory, latency, fill or latency, tensor, issue, none), `sentence`
    says why.  `per_sm` is [used SMs, parts], cycles, rows as in Budget.
    """

    units: int
    pipe_per_k_iter: float
    parts: dict[str, UnitCycles]
    fill_known: bool
    limit: str
    sentence: str
    per_sm: NDArray[np.float64]

    @property
    def mac_cycles(self) -> float:
        """Cycles of mac time of all SMs."""
        return sum(self.parts[name].total for name in INSIDE_MAC)

    def share(self, name: str) -> float:
        """A part's share of all units' cycles; of room, which runs beside them, against the mac cycles."""
        whole = sum(part.total for other, part in self.parts.items() if other != "room")
        return self.parts[name].total / (self.mac_cycles if name == "room" else whole)


@dataclass(frozen=True)
class Clock:
    """SM clock seen by the spans: cycles / ns over CTA lifetimes, in MHz."""

    mean_mhz: float
    low_mhz: float  # slowest SM
    high_mhz: float  # fastest SM
    first_tenth_mhz: float  # over the first tenth of T
    last_tenth_mhz: float


@dataclass(frozen=True)
class Placement:
    """How begins and ends were placed where the timer steps too coarsely: from clock64, with error bars.

    `counters` clock64 counters were taken, one a clock domain (`by_domain`) or one an SM.
    Error bars are half-widths: their median and 95 % quantile over the CTAs' begins, and
    the share of CTA begins that is refused, its bar being too wide to conclude from.
    `misfit_sms` could not be placed and keep the timer's readings.  `t0_shift_ns` is the
    placed T0 less the reading at it; errors of sums follow `step_ns` in place of
    `timer_step_ns` (twice the root mean square of the bars).
    """

    timer_step_ns: int
    counters: int
    by_domain: bool
    t0_shift_ns: float
    median_error_ns: float
    high_error_ns: float
    refused_share: float
    misfit_sms: tuple[int, ...]
    step_ns: int


@dataclass(frozen=True)
class WaveReport:
    """All findings about one launch.

    `bound` = S * T / (SM time not idle): what perfect balance could bring at most, at
    unchanged unit cost and clock.  `active_cycles_ratio` = sum of active cycles /
    (S x the largest SM's), to be compared with ncu's sm__cycles_active avg / max.
    `place_busy` = share of place-time (P * T) with a CTA in it.  `longest_sm_cycles` is the
    longest active time of an SM, `mac_cycles` the time of all SMs in mac, in cycles.  `refusals` are sentences about
    conclusions that the errors do not allow.  `placement` is there where the timer was too
    coarse to place events alone.  `flop` is None where the problem is unknown, `inside`
    where the launch did not measure how long its units waited.  `sm_active_cycles` has an
    element for each used SM, in the order of budget.sm_ids; None without clocks.
    """

    launch: Launch
    device: Device
    timer_step_ns: int
    budget: Budget
    tail: TailSplit | None
    waves: Waves
    waterfall: Waterfall | None
    clock: Clock | None
    bound: Quantity
    active_cycles_ratio: float | None
    longest_sm_cycles: int | None
    place_busy: float
    refusals: tuple[str, ...]
    placement: Placement | None = None
    flop: Flop | None = None
    mac_cycles: int | None = None
    inside: InsideTile | None = None
    sm_active_cycles: IntColumn | None = None


@dataclass(frozen=True)
class Picture:
    """SM-by-time picture: which state holds most of each cell.

    `cells` is [rows, columns] of indices into STATES; `rows_sms` the SM ids a row merges;
    `column_ns` the width of a column.
    """

    cells: NDArray[np.int8]
    rows_sms: tuple[tuple[int, ...], ...]
    column_ns: float
    sms_per_row: int
