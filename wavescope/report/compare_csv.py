"""A comparison for other tools: one row a contender and regime, as CSV; what there is not is an empty field.

A contender that did not run has one row, with the reason.  Times in ns, shares of S * T,
`account_X_ns` what part X adds to the first contender's time (accounts.PARTS).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from wavescope.accounts import PARTS
from wavescope.comparison import Comparison
from wavescope.report import audit_csv
from wavescope.standings import Standing
from wavescope.stats import Estimate
from wavescope.verdicts import Verdict
from wavescope.wave_report import STATES

_TEXT, _COUNT, _NUMBER = pa.string(), pa.int64(), pa.float64()


def _spread(name: str) -> dict[str, Any]:
    return {name: _NUMBER, f"{name}_low": _NUMBER, f"{name}_high": _NUMBER, f"{name}_samples": _COUNT}


_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("contender", "ran", "source", "regime", "unavailable"), _TEXT),
    **_spread("time_ns"),
    **_spread("ratio"),
    **_spread("library_ratio"),
    **_spread("cycles"),
    "tflops": _NUMBER,
    "predicted_ns": _NUMBER,
    **dict.fromkeys(("launch_id", "units", "duration_ns"), _COUNT),
    **dict.fromkeys(("not_idle", "bound", "clock_mhz"), _NUMBER),
    **{f"{state}_share": _NUMBER for state in STATES},
    "outcome": _TEXT,
    **{f"account_{name.replace(' ', '_')}_ns": _NUMBER for name in PARTS},
    "gain": _NUMBER,
    "verdict": _TEXT,
}


def encode(found: Comparison, placed: Sequence[Standing], said: Sequence[Verdict]) -> bytes:
    """The rows under a header line, contender by contender."""
    verdicts = {(verdict.contender, verdict.regime): verdict for verdict in said}
    rows: list[dict[str, Any]] = []
    for one in found.contenders:
        facts = {"contender": one.name, "ran": one.ran, "source": found.source, "unavailable": one.unavailable}
        mine = [standing for standing in placed if standing.contender is one]
        rows += [facts | _row(standing, verdicts.get((one.name, standing.regime))) for standing in mine]
        rows += [] if mine else [facts]
    schema = pa.schema(list(_COLUMNS.items()))
    return audit_csv.encode(pa.Table.from_pylist(rows, schema=schema))


def _row(standing: Standing, verdict: Verdict | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "regime": standing.regime,
        **_of_estimate("time_ns", standing.time_ns),
        **_of_estimate("ratio", standing.ratio),
        **_of_estimate("library_ratio", standing.library_ratio),
        **_of_estimate("cycles", standing.cycles),
        "tflops": standing.tflops,
        "predicted_ns": standing.contender.predicted_ns,
    }
    if standing.report:
        report, budget = standing.report, standing.report.budget
        row |= {
            "launch_id": report.launch.launch_id,
            "units": report.waves.num_units,
            "duration_ns": budget.duration_ns,
            "not_idle": budget.not_idle.value / budget.total_ns,
            "bound": report.bound.value,
            "clock_mhz": report.clock.mean_mhz if report.clock else None,
            **{f"{state}_share": budget.share(state) for state in STATES},
        }
    if verdict:
        parts = verdict.account.parts if verdict.account else ()
        row |= {f"account_{part.name.replace(' ', '_')}_ns": part.amount.value for part in parts}
        row |= {"outcome": verdict.outcome, "verdict": " ".join(verdict.sentences)}
        row |= {"gain": verdict.gain.share if verdict.gain else None}
    return row


def _of_estimate(name: str, value: Estimate | None) -> dict[str, Any]:
    if value is None:
        return {}
    return {name: value.median, f"{name}_low": value.low, f"{name}_high": value.high, f"{name}_samples": value.count}
