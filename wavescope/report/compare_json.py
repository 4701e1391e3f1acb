"""A comparison as JSON: one object, no NaN or Infinity, every key documented in KEYS.

`schema_version` rises when a key changes its meaning or goes; new keys may come at any
time.  A number that cannot be given is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wavescope import __version__
from wavescope.accounts import Account
from wavescope.comparison import Comparison, Contender
from wavescope.report.json import ESTIMATE, finite, keys_of
from wavescope.standings import Standing
from wavescope.verdicts import Verdict
from wavescope.wave_report import WaveReport

SCHEMA_VERSION = 1

_BY_REGIME = "contenders[].regimes[]"
_VERDICT = f"{_BY_REGIME}.verdict"

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
    "work": "irregular work in the words of --work, null where every tile sums over all of k",
    "kernel": "kernel that all contenders ran, but for a library; empty where none ran",
    "tile.m": "tile rows, of all contenders",
    "tile.n": "tile columns",
    "tile.k": "k of one k_iter",
    "device.name": "product name",
    "device.sms": "SMs of the context",
    "device.max_clock_mhz": "maximum SM clock",
    "first": "name of the contender that ratios and verdicts are against: the first that ran",
    "regimes[]": "names of the regimes timed, or simulated",
    "contenders[].name": "schedule, with its options",
    "contenders[].ran": "what it came to in words; of a library its kernel",
    "contenders[].unavailable": "why it did not run, null where it did",
    "contenders[].notes[]": "remarks",
    "contenders[].verified": "checks of the result by name, with what they found",
    "contenders[].predicted": "null where there is no prediction",
    "contenders[].predicted.source": "estimated: by the calibrated virtual device",
    "contenders[].predicted.time_ns": "T it predicts",
    _BY_REGIME: "one entry a regime, empty where it did not run",
    f"{_BY_REGIME}.regime": "name of the regime",
    **keys_of(f"{_BY_REGIME}.time_ns", "event time of the plain kernel, of a simulation its T", ESTIMATE),
    **keys_of(f"{_BY_REGIME}.ratio", "time of the first contender / own, paired by round", ESTIMATE),
    f"{_BY_REGIME}.library_ratio": "null where no library ran",
    **keys_of(f"{_BY_REGIME}.library_ratio", "time of the library / own", ESTIMATE),
    f"{_BY_REGIME}.tflops": "useful FLOP / time",
    f"{_BY_REGIME}.launch": "its traced launch, null for a library",
    f"{_BY_REGIME}.launch.launch_id": "number of the launch in the trace that -o writes",
    f"{_BY_REGIME}.launch.units": "units",
    f"{_BY_REGIME}.launch.duration_ns": "first CTA's begin to last CTA's end, T",
    f"{_BY_REGIME}.launch.not_idle": "not-idle share of S * T",
    f"{_BY_REGIME}.launch.bound": "speed-up that perfect balance could bring at most, estimated",
    f"{_BY_REGIME}.launch.useful_flop": "operations inside the problem and in the k_iters done",
    f"{_BY_REGIME}.launch.imbalance": "SM-ns of the tail that are not quantization, estimated; null where refused",
    f"{_BY_REGIME}.launch.clock_mhz": "mean SM clock, null where no cycles were recorded",
    f"{_BY_REGIME}.launch.clock_limits": "why the clock was below its maximum, null where that is not known",
    f"{_BY_REGIME}.launch.terms[].state": "state of an SM; the terms share out S * T",
    f"{_BY_REGIME}.launch.terms[].sm_ns": "SM-ns in it",
    f"{_BY_REGIME}.launch.terms[].error": "its absolute error",
    f"{_BY_REGIME}.launch.terms[].share": "share of the launch's own S * T",
    f"{_BY_REGIME}.launch.terms[].share_of_first": "share of the first contender's S * T, null where it has no trace",
    f"{_BY_REGIME}.launch.terms[].refused": "true: too uncertain to conclude from",
    f"{_BY_REGIME}.cycles": "null for a library",
    **keys_of(f"{_BY_REGIME}.cycles", "cycles of the SM that was at work the longest", ESTIMATE),
    _VERDICT: "this contender against the first, null for the first itself",
    f"{_VERDICT}.outcome": "faster, slower, even (the interval includes 1) or same work (both do the same)",
    f"{_VERDICT}.sentences[]": "the verdict in words",
    f"{_VERDICT}.reasons[]": "parts of the account that make a difference, largest first",
    f"{_VERDICT}.account": "own time less the first's as a sum of parts, null where one of them has no trace",
    f"{_VERDICT}.account.total_ns": "the difference of the times, the sum of the parts",
    f"{_VERDICT}.account.parts[].name": "units: mac by its cycles; clock: mac by its clock; a state; launch; left over",
    f"{_VERDICT}.account.parts[].ns": "what it adds, SM time / SMs",
    f"{_VERDICT}.account.parts[].error": "its absolute error",
    f"{_VERDICT}.account.parts[].refused": "true: too uncertain to conclude from",
    f"{_VERDICT}.account.parts[].before": "what the first has of it: ns; units mac cycles an SM; clock MHz",
    f"{_VERDICT}.account.parts[].after": "what this one has of it",
    f"{_VERDICT}.gain": "share of what the partial wave costs that is gained, null where there is none to gain",
    f"{_VERDICT}.gain.share": "g = (speedup - 1) / (ideal - 1)",
    f"{_VERDICT}.gain.speedup": "in SM cycles over base",
    f"{_VERDICT}.gain.ideal": "1 / wave efficiency of fixed, estimated",
    f"{_VERDICT}.gain.base": "the better of fixed and persistent",
}


def document(found: Comparison, placed: Sequence[Standing], said: Sequence[Verdict]) -> dict[str, Any]:
    """The comparison as plain lists and dicts, ready to be written as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "recorded_by": __version__,
        "source": found.source,
        "reason": found.reason or None,
        "problem": asdict(found.problem) | {"flop": found.problem.flop},
        "work": None if found.work is None else str(found.work),
        "kernel": found.kernel,
        "tile": asdict(found.tile),
        "device": {key: getattr(found.device, key) for key in ("name", "sms", "max_clock_mhz")},
        "first": found.first.name,
        "regimes": list(found.regimes),
        "contenders": [_contender(found, one, placed, said) for one in found.contenders],
    }


def render(found: Comparison, placed: Sequence[Standing], said: Sequence[Verdict]) -> str:
    """The comparison as JSON text, ending with a newline."""
    return json.dumps(finite(document(found, placed, said)), indent=2, allow_nan=False) + "\n"


def _contender(
    found: Comparison, one: Contender, placed: Sequence[Standing], said: Sequence[Verdict]
) -> dict[str, Any]:
    verdicts = {(verdict.contender, verdict.regime): verdict for verdict in said}
    firsts = {standing.regime: standing.report for standing in placed if standing.name == found.first.name}
    predicted = one.predicted_ns
    return {
        "name": one.name,
        "ran": one.ran,
        "unavailable": one.unavailable,
        "notes": list(one.notes),
        "verified": one.verified,
        "predicted": None if predicted is None else {"source": "estimated", "time_ns": predicted},
        "regimes": [
            _standing(standing, firsts.get(standing.regime), verdicts.get((one.name, standing.regime)))
            for standing in placed
            if standing.contender is one
        ],
    }


def _standing(standing: Standing, first: WaveReport | None, verdict: Verdict | None) -> dict[str, Any]:
    return {
        "regime": standing.regime,
        "time_ns": asdict(standing.time_ns),
        "ratio": asdict(standing.ratio),
        "library_ratio": asdict(standing.library_ratio) if standing.library_ratio else None,
        "tflops": standing.tflops,
        "cycles": asdict(standing.cycles) if standing.cycles else None,
        "launch": _launch(standing.report, first) if standing.report else None,
        "verdict": _verdict(verdict) if verdict else None,
    }


def _launch(report: WaveReport, first: WaveReport | None) -> dict[str, Any]:
    budget, timing = report.budget, report.launch.timing
    return {
        "launch_id": report.launch.launch_id,
        "units": report.waves.num_units,
        "duration_ns": budget.duration_ns,
        "not_idle": budget.not_idle.value / budget.total_ns,
        "bound": report.bound.value,
        "useful_flop": report.flop.useful if report.flop else None,
        "imbalance": report.tail.imbalance.value if report.tail and not report.tail.imbalance.refused else None,
        "clock_mhz": report.clock.mean_mhz if report.clock else None,
        "clock_limits": timing.clock_limits if timing else None,
        "terms": [
            {
                "state": name,
                "sm_ns": term.value,
                "error": term.error,
                "share": budget.share(name),
                "share_of_first": term.value / first.budget.total_ns if first else None,
                "refused": term.refused,
            }
            for name, term in budget.terms.items()
        ],
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "outcome": verdict.outcome,
        "sentences": list(verdict.sentences),
        "reasons": list(verdict.reasons),
        "account": _account(verdict.account) if verdict.account else None,
        "gain": asdict(verdict.gain) if verdict.gain else None,
    }


def _account(between: Account) -> dict[str, Any]:
    return {
        "total_ns": between.total_ns,
        "parts": [
            {
                "name": part.name,
                "ns": part.amount.value,
                "error": part.amount.error,
                "refused": part.amount.refused,
                "before": part.before,
                "after": part.after,
            }
            for part in between.parts
        ],
    }
