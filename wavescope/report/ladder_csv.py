"""A ladder of kernels for other tools: one row a step and regime, and the library's, as CSV.

A step that did not run has one row, with the reason.  What there is not is an empty field.
`factor_X` are those of the waterfall; factor_inside_tile is the product of the four after
it where they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from wavescope.comparison import LIBRARY, Comparison
from wavescope.ladder import INSIDE, INSIDE_FACTORS, RUNGS, Step, factors_of, library_of
from wavescope.report import audit_csv
from wavescope.standings import Standing
from wavescope.stats import Estimate
from wavescope.wave_report import STATES

_TEXT, _COUNT, _NUMBER = pa.string(), pa.int64(), pa.float64()
# In the waterfall's order; the state mac is what the first ones are about.
_FACTORS = ("clock", INSIDE, *INSIDE_FACTORS, "padding", *STATES[1:], "launch", "probe")


def _spread(name: str) -> dict[str, Any]:
    return {name: _NUMBER, f"{name}_low": _NUMBER, f"{name}_high": _NUMBER, f"{name}_samples": _COUNT}


_COLUMNS: dict[str, Any] = {
    "number": _COUNT,
    **dict.fromkeys(("step", "kernel", "tile", "adds", "ran", "source", "regime", "unavailable"), _TEXT),
    **_spread("time_ns"),
    **_spread("gain"),
    **_spread("library_ratio"),
    **dict.fromkeys(("tflops", "peak_tflops", "cycles", "clock_mhz"), _NUMBER),
    **{f"factor_{name.replace(' ', '_')}": _NUMBER for name in _FACTORS},
    **dict.fromkeys(("launch_id", "units", "places"), _COUNT),
    **dict.fromkeys(("nominal_waves", "wave_efficiency", "not_idle", "tail_share", "duration_ratio"), _NUMBER),
}


def encode(found: Comparison, placed: Sequence[Standing], climbed: Sequence[Step]) -> bytes:
    """The rows under a header line, step by step."""
    contenders = {one.name: one for one in found.contenders}
    rows: list[dict[str, Any]] = []
    for number, rung in enumerate(RUNGS, 1):
        one = contenders[rung.name]
        facts = {
            "number": number,
            "step": rung.name,
            "kernel": rung.kernel,
            "tile": str(rung.tile),
            "adds": rung.adds,
            "ran": one.ran,
            "source": found.source,
            "unavailable": one.unavailable,
        }
        mine = [step for step in climbed if step.rung is rung]
        rows += [facts | _row(step.standing, step.gain) for step in mine] or [facts]
    if LIBRARY in contenders:
        one = contenders[LIBRARY]
        facts = {"step": LIBRARY, "ran": one.ran, "source": found.source, "unavailable": one.unavailable}
        standings = [standing for regime in found.regimes if (standing := library_of(placed, regime))]
        rows += [facts | _row(standing, None) for standing in standings] or [facts]
    return audit_csv.encode(pa.Table.from_pylist(rows, schema=pa.schema(list(_COLUMNS.items()))))


def _row(standing: Standing, gain: Estimate | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "regime": standing.regime,
        **_of_estimate("time_ns", standing.time_ns),
        **_of_estimate("gain", gain),
        **_of_estimate("library_ratio", standing.library_ratio),
        "tflops": standing.tflops,
        "cycles": standing.cycles.median if standing.cycles else None,
    }
    report = standing.report
    if report is None:
        return row
    if report.waterfall:
        row["peak_tflops"] = report.waterfall.peak_tflops
        factors = factors_of(report.waterfall)
        row |= {f"factor_{name.replace(' ', '_')}": value for name, value in factors.items()}
    waves, budget = report.waves, report.budget
    return row | {
        "clock_mhz": report.clock.mean_mhz if report.clock else None,
        "launch_id": report.launch.launch_id,
        "units": waves.num_units,
        "places": waves.places,
        "nominal_waves": waves.nominal_waves,
        "wave_efficiency": waves.efficiency,
        "not_idle": budget.not_idle.value / budget.total_ns,
        "tail_share": budget.share("tail"),
        "duration_ratio": waves.duration_ratio,
    }


def _of_estimate(name: str, value: Estimate | None) -> dict[str, Any]:
    if value is None:
        return {}
    return {name: value.median, f"{name}_low": value.low, f"{name}_high": value.high, f"{name}_samples": value.count}
