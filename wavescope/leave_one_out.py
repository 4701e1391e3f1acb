"""How well a calibration predicts: each launch from the others, its time against the measured one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wavescope.calibrate import each_launch, fit, groups_of
from wavescope.calibration_row import Calibration
from wavescope.job_costs import costs_used
from wavescope.replay import replay
from wavescope.trace import Launch, Trace
from wavescope.variant import schedule_of

# Costs without which a launch's time still comes out (tests/test_recorded_launches.py).
_SMALL = frozenset({"idle_gain", "gap_cycles", "queue_gap_cycles"})


@dataclass(frozen=True)
class Prediction:
    """A launch's time from first to last CTA, measured and as the other launches predict it.

    `missing` names costs that it needs and no other launch shows.
    """

    launch: Launch
    measured_ns: float
    predicted_ns: float
    missing: tuple[str, ...]

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_ns / self.measured_ns - 1


@dataclass(frozen=True)
class Checked:
    """A calibration, the number of launches it is fitted on, and each of them predicted from the others."""

    row: Calibration
    num_launches: int
    predictions: tuple[Prediction, ...]


def fit_and_check(traces: Sequence[Trace]) -> Iterator[Checked]:
    """A calibration for each kernel, tile, dtype, device and number of CTAs per SM among the launches.

    Raises: as calibrate.fit and leave_one_out.
    """
    for alike in groups_of(traces):
        row = fit(alike)
        yield Checked(row, len(alike), tuple(leave_one_out(alike, row)))


def leave_one_out(traces: Sequence[Trace], all_fitted: Calibration | None = None) -> Iterator[Prediction]:
    """Predict each launch of one kernel, tile, dtype, device and CTAs per SM from all others; none where there is one.

    `all_fitted`: the fit on all of them, where it is known already.
    Raises: as calibrate.fit; UsageError for launches of kernels that are not wavescope's own.
    """
    alone = each_launch(traces)
    if len(alone) < 2:
        return
    fitted = fit(alone) if all_fitted is None else all_fitted
    for index, left_out in enumerate(alone):
        others = fit([*alone[:index], *alone[index + 1 :]], near=fitted)
        yield predict(left_out, others, frozenset({*fitted.unseen, *fitted.estimated}))


def predict(trace: Trace, calibration: Calibration, unknown: frozenset[str] = frozenset()) -> Prediction:
    """The one launch of a trace, by a calibration.

    `unknown`: costs that no launch shows, this one included, and that are part of others
    (fixed_cycles of a k_iter's, say): they are not missing.
    """
    launch = trace.launches[0]
    schedule = schedule_of(launch)
    again = replay(launch, schedule, trace.device, calibration)
    needed = costs_used(schedule) - _SMALL - unknown
    missing = tuple(name for name in (*calibration.unseen, *calibration.estimated) if name in needed)
    return Prediction(launch, float(trace.spans.end_ns.max()), float(again.spans.end_ns.max()), missing)
