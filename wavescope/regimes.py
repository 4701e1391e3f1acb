"""What the timing regime does to one and the same kernel: time, cycles and clock side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wavescope.stats import Estimate
from wavescope.wave_report import WaveReport


@dataclass(frozen=True)
class RegimeRow:
    """One regime: event time of the plain kernel, SM cycles and clock of the traced launch.

    `time_ratio`, `cycle_ratio`, `clock_ratio` are against the first row; time is close to
    cycles over clock, and what is left is launch gaps and the spread between launches.
    """

    regime: str
    time_ns: Estimate
    tflops: float | None
    longest_sm_cycles: int
    clock_mhz: float
    tail_share: float
    time_ratio: float
    cycle_ratio: float
    clock_ratio: float
    clock_limits: tuple[str, ...] | None


def compare_regimes(reports: Sequence[WaveReport]) -> tuple[RegimeRow, ...]:
    """A row for each measured launch of the same work, the first as the reference."""
    rows: list[RegimeRow] = []
    for report in reports:
        timing, clock, cycles = report.launch.timing, report.clock, report.longest_sm_cycles
        if timing is None or clock is None or cycles is None:
            continue
        first = rows[0] if rows else None
        rows.append(
            RegimeRow(
                regime=timing.regime,
                time_ns=timing.plain_ns,
                tflops=report.waterfall.achieved_tflops if report.waterfall else None,
                longest_sm_cycles=cycles,
                clock_mhz=clock.mean_mhz,
                tail_share=report.budget.share("tail"),
                time_ratio=timing.plain_ns.median / first.time_ns.median if first else 1.0,
                cycle_ratio=cycles / first.longest_sm_cycles if first else 1.0,
                clock_ratio=clock.mean_mhz / first.clock_mhz if first else 1.0,
                clock_limits=timing.clock_limits,
            )
        )
    return tuple(rows)


def regime_sentences(rows: Sequence[RegimeRow]) -> tuple[str, ...]:
    """What the second regime changes against the first, in words."""
    if len(rows) < 2:
        return ()
    first, second = rows[0], rows[1]
    change = 100 * (second.time_ratio - 1)
    text = (
        f"{second.regime} takes {abs(change):.1f}% {'more' if change >= 0 else 'less'} time than {first.regime}: "
        f"{second.cycle_ratio:.3f} times the SM cycles, at {second.clock_ratio:.3f} times the clock "
        f"({second.clock_mhz:.0f} against {first.clock_mhz:.0f} MHz)."
    )
    if second.clock_limits is None:
        reason = "NVML does not say why the clock is what it is."
    elif second.clock_limits:
        reason = f"While it ran, NVML named for the clock: {', '.join(second.clock_limits)}."
    else:
        reason = "While it ran, NVML named no limit to the clock."
    if second.clock_limits and "software power cap" in second.clock_limits:
        reason += " The card runs at its power cap, so what idles is paid back as clock to what works."
    return text, reason
