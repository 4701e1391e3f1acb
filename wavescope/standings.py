"""Every contender of a comparison under every regime: its time, its place and the analysis of its launch."""

from __future__ import annotations

from dataclasses import dataclass

from wavescope.analyze import analyze
from wavescope.comparison import LIBRARY, Comparison, Contender, is_split, regime_of, speed_ratio
from wavescope.schedule import Schedule
from wavescope.stats import Estimate
from wavescope.trace import Launch
from wavescope.variant import schedule_of
from wavescope.wave_report import WaveReport


@dataclass(frozen=True)
class Standing:
    """One contender under one regime.

    `ratio` is the first contender's time over this one's, `library_ratio` the library's
    over this one's, None where it did not run.  `report` analyses its launch, whose tiles
    were cut along k where `is_split`, and `planned` is what it had to run; None for a library,
    which leaves no spans.
    """

    contender: Contender
    regime: str
    time_ns: Estimate
    ratio: Estimate
    library_ratio: Estimate | None
    tflops: float
    report: WaveReport | None
    is_split: bool
    planned: Schedule | None

    @property
    def name(self) -> str:
        """The contender's."""
        return self.contender.name

    @property
    def cycles(self) -> Estimate | None:
        """Cycles of the SM that was at work the longest: over all probed launches where timed, else of this one."""
        if self.report is None:
            return None
        timing, longest = self.report.launch.timing, self.report.longest_sm_cycles
        if timing and timing.cycles:
            return timing.cycles
        return None if longest is None else Estimate(float(longest), float(longest), float(longest), 1)


def standings(found: Comparison) -> tuple[Standing, ...]:
    """Regime by regime, the contenders in their order; those that could not run are left out.

    Raises: as `analyze` for a trace without what an analysis needs.
    """
    library = next((one for one in found.contenders if one.name == LIBRARY and one.unavailable is None), None)
    placed = []
    for regime in found.regimes:
        for contender in found.contenders:
            time_ns, ratio = contender.times.get(regime), contender.ratios.get(regime)
            if time_ns is None or ratio is None:
                continue
            launch = launch_under(contender, regime)
            report, split = None, False
            if contender.trace and launch:
                report, split = analyze(contender.trace, launch.launch_id), is_split(contender.trace, launch)
            placed.append(
                Standing(
                    contender=contender,
                    regime=regime,
                    time_ns=time_ns,
                    ratio=ratio,
                    library_ratio=speed_ratio(library, contender, regime) if library else None,
                    tflops=(report.flop.useful if report and report.flop else found.problem.flop)
                    / time_ns.median
                    / 1e3,
                    report=report,
                    is_split=split,
                    planned=schedule_of(launch) if launch and launch.schedule else None,
                )
            )
    return tuple(placed)


def launch_under(contender: Contender, regime: str) -> Launch | None:
    """The contender's launch that was timed under a regime."""
    launches = contender.trace.launches if contender.trace else ()
    return next((launch for launch in launches if regime_of(launch) == regime), None)
