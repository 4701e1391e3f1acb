"""A ladder of kernels as JSON: one object, no NaN or Infinity, every key documented in KEYS.

`schema_version` rises when a key changes its meaning or goes; new keys may come at any
time.  A number that cannot be given is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wavescope import __version__
from wavescope.comparison import LIBRARY, Comparison
from wavescope.ladder import RUNGS, Rung, Step, factors_of, library_of
from wavescope.report.json import ESTIMATE, finite, keys_of
from wavescope.standings import Standing
from wavescope.stats import Estimate

SCHEMA_VERSION = 1

_BY_REGIME = "steps[].regimes[]"
_WATERFALL = f"{_BY_REGIME}.waterfall"
_WAVES = f"{_BY_REGIME}.waves"

# Every key of the document by its path; [] stands for the elements of a list.
KEYS: dict[str, str] = {
    "schema_version": "version of this document's keys",
    "recorded_by": "version of wavescope that made the comparison",
    "source": "where the times are from: measured or simulated",
    "reason": "why a simulated comparison is one, null where it was measured",
    "problem.m": "rows of C",
    "problem.n": "columns of C",
    "problem.k": "length of the sums",
    "problem.dtype": "type of the operands and of C",
    "problem.layout": "which dimension of the operands is contiguous",
    "problem.flop": "operations of the whole problem",
    "device.name": "product name",
    "device.sms": "SMs of the context",
    "device.max_clock_mhz": "maximum SM clock",
    "regimes[]": "names of the regimes timed, or simulated",
    "library": "null where none was asked for",
    "library.unavailable": "why it did not run, null where it did",
    "library.ran": "its kernel",
    "library.regimes[]": "one entry a regime, empty where it did not run",
    "library.regimes[].regime": "name of the regime",
    **keys_of("library.regimes[].time_ns", "time of a launch", ESTIMATE),
    "library.regimes[].tflops": "useful FLOP / time",
    "steps[].number": "place on the ladder, from 1",
    "steps[].name": "name of the step",
    "steps[].adds": "the technique that it adds to the one before",
    "steps[].kernel": "kernel",
    "steps[].tile.m": "tile rows",
    "steps[].tile.n": "tile columns",
    "steps[].tile.k": "k of one k_iter",
    "steps[].ran": "schedule it ran by, in words",
    "steps[].unavailable": "why it did not run, null where it did",
    "steps[].verified": "checks of the result by name, with what they found",
    _BY_REGIME: "one entry a regime, empty where it did not run",
    f"{_BY_REGIME}.regime": "name of the regime",
    **keys_of(f"{_BY_REGIME}.time_ns", "event time of the plain kernel, of a simulation its T", ESTIMATE),
    f"{_BY_REGIME}.gain": "null for the first step that ran",
    **keys_of(f"{_BY_REGIME}.gain", "time of the step before that ran / own", ESTIMATE),
    f"{_BY_REGIME}.library_ratio": "null where no library ran",
    **keys_of(f"{_BY_REGIME}.library_ratio", "time of the library / own", ESTIMATE),
    f"{_BY_REGIME}.tflops": "useful FLOP / time",
    f"{_BY_REGIME}.launch_id": "number of the launch in the trace that -o writes",
    f"{_BY_REGIME}.cycles": "cycles of the SM that was at work the longest (median), null where none were recorded",
    f"{_BY_REGIME}.clock_mhz": "mean SM clock, null where no cycles were recorded",
    _WATERFALL: "null where it cannot be drawn",
    f"{_WATERFALL}.peak_tflops": "SMs x FLOP a clock x maximum clock",
    f"{_WATERFALL}.achieved_tflops": "useful FLOP / time",
    f"{_WATERFALL}.factors[].name": "what takes the share; 'inside tile' is the product of its parts where they follow",
    f"{_WATERFALL}.factors[].value": "the share that is left",
    f"{_WATERFALL}.factors[].in_product": "false for 'inside tile' where its parts are in the product",
    f"{_WAVES}.units": "units",
    f"{_WAVES}.places": "room for resident CTAs",
    f"{_WAVES}.nominal": "units / places, estimated",
    f"{_WAVES}.efficiency": "nominal waves / their ceiling, estimated",
    f"{_WAVES}.not_idle": "not-idle share of S * T",
    f"{_WAVES}.tail": "share of S * T after SMs' last CTAs",
    f"{_WAVES}.duration_ratio": "median unit of the last wave / of the first, null where there is one wave, or none",
}


def document(
    found: Comparison, placed: Sequence[Standing], climbed: Sequence[Step], rungs: Sequence[Rung] = RUNGS
) -> dict[str, Any]:
    """The ladder as plain lists and dicts, ready to be written as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "recorded_by": __version__,
        "source": found.source,
        "reason": found.reason or None,
        "problem": asdict(found.problem) | {"flop": found.problem.flop},
        "device": {key: getattr(found.device, key) for key in ("name", "sms", "max_clock_mhz")},
        "regimes": list(found.regimes),
        "library": _library(found, placed),
        "steps": [_step(found, rung, number, climbed) for number, rung in enumerate(rungs, 1)],
    }


def render(found: Comparison, placed: Sequence[Standing], climbed: Sequence[Step]) -> str:
    """The ladder as JSON text, ending with a newline."""
    return json.dumps(finite(document(found, placed, climbed)), indent=2, allow_nan=False) + "\n"


def _library(found: Comparison, placed: Sequence[Standing]) -> dict[str, Any] | None:
    one = next((one for one in found.contenders if one.name == LIBRARY), None)
    if one is None:
        return None
    standings = [standing for regime in found.regimes if (standing := library_of(placed, regime))]
    return {
        "unavailable": one.unavailable,
        "ran": one.ran,
        "regimes": [
            {"regime": standing.regime, "time_ns": asdict(standing.time_ns), "tflops": standing.tflops}
            for standing in standings
        ],
    }


def _step(found: Comparison, rung: Rung, number: int, climbed: Sequence[Step]) -> dict[str, Any]:
    one = next(one for one in found.contenders if one.name == rung.name)
    return {
        "number": number,
        "name": rung.name,
        "adds": rung.adds,
        "kernel": rung.kernel,
        "tile": asdict(rung.tile),
        "ran": one.ran,
        "unavailable": one.unavailable,
        "verified": one.verified,
        "regimes": [_regime(step) for step in climbed if step.rung is rung],
    }


def _regime(step: Step) -> dict[str, Any]:
    standing, report = step.standing, step.standing.report
    row: dict[str, Any] = {
        "regime": standing.regime,
        "time_ns": asdict(standing.time_ns),
        "gain": _estimate(step.gain),
        "library_ratio": _estimate(standing.library_ratio),
        "tflops": standing.tflops,
        "cycles": standing.cycles.median if standing.cycles else None,
    }
    if report is None:  # a step is a kernel of wavescope's own, which leaves a trace
        return row
    fall, waves, budget = report.waterfall, report.waves, report.budget
    row["launch_id"] = report.launch.launch_id
    row["clock_mhz"] = report.clock.mean_mhz if report.clock else None
    row["waterfall"] = None
    if fall:
        own = {factor.name for factor in fall.factors}
        row["waterfall"] = {
            "peak_tflops": fall.peak_tflops,
            "achieved_tflops": fall.achieved_tflops,
            "factors": [
                {"name": name, "value": value, "in_product": name in own} for name, value in factors_of(fall).items()
            ],
        }
    row["waves"] = {
        "units": waves.num_units,
        "places": waves.places,
        "nominal": waves.nominal_waves,
        "efficiency": waves.efficiency,
        "not_idle": budget.not_idle.value / budget.total_ns,
        "tail": budget.share("tail"),
        "duration_ratio": waves.duration_ratio,
    }
    return row


def _estimate(value: Estimate | None) -> dict[str, Any] | None:
    return asdict(value) if value else None
