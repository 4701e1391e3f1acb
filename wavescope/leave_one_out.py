"""How well a calibration predicts: each launch from the others, its time against the measured one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from wavescope.calibrate import each_launch, fit
from wavescope.calibration import Calibration
from wavescope.replay import replay, schedule_of
from wavescope.schedule import Schedule
from wavescope.trace import Launch, Trace

# Costs without which a launch's time still comes out (tests/test_recorded_launches.py).
_SMALL = frozenset({"idle_gain", "gap_cycles", "queue_gap_cycles"})
_OF_SPLIT_TILES = frozenset({"partial_cycles", "add_cycles", "share_cycles", "stream_slowdown"})


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
        yield predict(left_out, fit([*alone[:index], *alone[index + 1 :]], near=fitted))


def predict(trace: Trace, calibration: Calibration) -> Prediction:
    """The one launch of a trace, by a calibration."""
    launch = trace.launches[0]
    schedule = schedule_of(launch)
    again = replay(launch, schedule, trace.device, calibration)
    missing = _needed(schedule, (*calibration.unseen, *calibration.estimated))
    return Prediction(launch, float(trace.spans.end_ns.max()), float(again.spans.end_ns.max()), missing)


def _needed(schedule: Schedule, names: Sequence[str]) -> tuple[str, ...]:
    """Those of the costs that decide the time of a schedule."""
    spared = set(_SMALL | _OF_SPLIT_TILES)
    if schedule.num_slots:
        spared -= {"partial_cycles", "share_cycles" if schedule.is_cooperative else "add_cycles"}
    if schedule.is_staggered.any():
        spared.discard("stream_slowdown")
    return tuple(name for name in names if name not in spared)
