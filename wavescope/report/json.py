"""The report as JSON: one object, no NaN or Infinity, every key documented in KEYS.

`schema_version` rises when a key changes its meaning or goes; new keys may come at any
time.  A number that cannot be given is null.  Details that were asked for add their own
keys, documented in DETAIL_KEYS.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wavescope.details import Details
from wavescope.report import detail_json
from wavescope.report.detail_json import DETAIL_KEYS
from wavescope.trace import Launch
from wavescope.wave_report import INSIDE_MEANINGS, Budget, InsideTile, Quantity, TailSplit, WaveReport

__all__ = ["DETAIL_KEYS", "KEYS", "SCHEMA_VERSION", "document", "finite", "render"]

SCHEMA_VERSION = 1

_QUANTITY = {"value": "the number", "error": "its absolute error", "refused": "true: too uncertain to conclude from"}
ESTIMATE = {
    "median": "median of the samples",
    "low": "lower end of its 95 % interval",
    "high": "upper end",
    "count": "samples",
}


def keys_of(prefix: str, about: str, parts: dict[str, str]) -> dict[str, str]:
    """The paths of an object's parts, ESTIMATE's say, with what they mean."""
    return {f"{prefix}.{key}": f"{about}: {text}" for key, text in parts.items()}


# Every key of the document by its path; [] stands for the elements of a list.
KEYS: dict[str, str] = {
    "schema_version": "version of this document's keys",
    "recorded_by": "version of wavescope that recorded the trace",
    "source": "where span times are from: measured or simulated",
    "meaning[]": "what the numbers mean, in sentences",
    "refusals[]": "conclusions the errors do not allow, in sentences",
    "device.name": "product name",
    "device.compute_capability[]": "major and minor number",
    "device.sms": "SMs of the context (device, MIG slice or green context)",
    "device.max_clock_mhz": "maximum SM clock",
    "device.registers_per_sm": "32-bit registers",
    "device.shared_per_sm": "bytes of shared memory",
    "device.shared_per_block": "bytes a CTA may use at most",
    "device.shared_reserved_per_block": "bytes the system keeps of each CTA's",
    "device.threads_per_sm": "resident threads at most",
    "device.ctas_per_sm": "resident CTAs at most",
    "device.l2_bytes": "L2 cache",
    "device.memory_bytes": "device memory",
    "device.memory_gb_per_s": "memory bandwidth by the datasheet",
    "device.peak_tflops": "datasheet's dense TFLOP/s by dtype",
    "device.source": "where these facts are from",
    "launch.launch_id": "number of the launch in its trace",
    "launch.kernel": "kernel that ran",
    "launch.schedule": "how units were handed out, null where the kernel is not wavescope's",
    "launch.raster": "order in which units walk the tiles",
    "launch.parts": "number of the schedule (splits, CTAs or parts), 1 where it has none",
    "launch.reducers": "CTAs without a part of a tile that added the partial sums, 0 where others did",
    "launch.reduction": "how the partial sums of split tiles met: ordered or atomic",
    "launch.work": "irregular work in the words of --work, null where every tile sums over all of k",
    "launch.order": "order of the tiles: raster, or lpt (longest first)",
    "launch.problem": "null where unknown",
    "launch.problem.m": "rows of C",
    "launch.problem.n": "columns of C",
    "launch.problem.k": "length of the sums",
    "launch.problem.dtype": "type of the operands and of C",
    "launch.problem.layout": "which dimension of the operands is contiguous",
    "launch.problem.flop": "operations of the whole problem",
    "launch.tile": "null where unknown",
    "launch.tile.m": "tile rows",
    "launch.tile.n": "tile columns",
    "launch.tile.k": "k of one k_iter",
    "launch.grid": "CTAs launched",
    "launch.block": "threads a CTA",
    "launch.cluster": "CTAs a cluster",
    "launch.registers": "registers a thread",
    "launch.shared_bytes": "shared memory a CTA, static and dynamic",
    "launch.ctas_per_sm": "CTAs that fit on an SM",
    "launch.places": "CTAs that fit on the device",
    "launch.stream": "stream number",
    "launch.t0_globaltimer_ns": "globaltimer at the first CTA's begin, as a string",
    "launch.verified": "checks of the result by name, with what they found",
    "launch.notes[]": "remarks, for example why the run was simulated",
    "launch.timing": "repeated event times, null where there are none",
    "launch.timing.regime": "timing protocol",
    "launch.timing.clock_limits": "why the clock was below its maximum meanwhile, null where NVML does not answer",
    **keys_of("launch.timing.plain_ns", "event time without the probe", ESTIMATE),
    **keys_of("launch.timing.probed_ns", "event time with the probe", ESTIMATE),
    **keys_of("launch.timing.perturbation", "paired ratio probed / plain", ESTIMATE),
    "launch.timing.cycles": "of the SM that was at work the longest, over the probed launches; null in older traces",
    **keys_of("launch.timing.cycles", "cycles of the busiest SM", ESTIMATE),
    "flop": "operations of the launch, null where the problem is unknown",
    "flop.useful": "those inside the problem and, with irregular work, in the k_iters done",
    "flop.issued": "those of whole tiles and k_iters",
    "timer_step_ns": "measured step of the timer behind the spans",
    "placement": "how clock64 placed begins and ends, null where the timer's step is fine enough",
    "placement.timer_step_ns": "step of the timer",
    "placement.counters": "clock64 counters it took",
    "placement.by_domain": "true: a counter a clock domain; false: a counter an SM",
    "placement.t0_shift_ns": "placed T0 less the timer's reading at it",
    "placement.median_error_ns": "median error bar (half-width) of CTA begins",
    "placement.high_error_ns": "95 % quantile of the error bars",
    "placement.refused_share": "share of CTA begins whose bar is too wide to conclude from",
    "placement.misfit_sms[]": "SMs that could not be placed",
    "placement.step_ns": "step that errors of sums follow",
    "budget.sms": "SMs S",
    "budget.used_sms": "SMs that ran a CTA",
    "budget.duration_ns": "first CTA's begin to last CTA's end, T",
    "budget.total_sm_ns": "S * T",
    "budget.residual_sm_ns": "S * T minus the sum of the terms",
    "budget.terms[].state": "state of an SM; the terms share out S * T",
    "budget.terms[].share": "share of S * T",
    **keys_of("budget.terms[]", "SM-ns in the state", _QUANTITY),
    **keys_of("budget.padding", "SM-ns of mac on elements outside the problem", _QUANTITY),
    **keys_of("budget.not_idle", "SM-ns with a CTA resident", _QUANTITY),
    "budget.not_idle.share": "not-idle share of S * T, what --fail-under compares",
    "budget.per_sm[].sm": "SM id, -1 for an SM that ran nothing",
    "budget.per_sm[].state_ns[]": "ns by state, in the order of budget.terms",
    "tail": "split of the tail, null where it is not defined",
    "tail.source": "estimated: from unit costs fitted on the spans",
    **keys_of("tail.quantization", "SM-ns lost because units do not share out evenly", _QUANTITY),
    **keys_of("tail.imbalance", "SM-ns of the rest of the tail, may be negative", _QUANTITY),
    "tail.makespan_ns": "largest nominal load of an SM, or with irregular work that of units of the mean cost",
    "tail.of_equal_units": "true: the work is irregular, so quantization is that of units of the mean cost",
    "tail.cost.per_k_iter_ns": "fitted cost of a k_iter",
    "tail.cost.store_ns": "fitted cost of storing a tile",
    "tail.cost.partial_ns": "fitted cost of writing a partial sum",
    "tail.cost.r_squared": "share of the variation explained, null where units are equal",
    "waves.places": "places P",
    "waves.num_units": "units",
    "waves.nominal_waves": "units / P, estimated",
    "waves.efficiency": "nominal waves / their ceiling, estimated",
    "waves.reason": "why there are no waves, null where there are",
    "waves.duration_ratio": "median unit of the last wave / first wave, in time",
    "waves.cycle_ratio": "the same in cycles",
    "waves.tail_onset_ns": "when the first SM ended its last CTA",
    "waves.busy_shares[]": "mean share of SMs not idle, in equal parts of T",
    "waves.waves[].index": "number of the rank wave, from 0",
    "waves.waves[].units": "units in it",
    "waves.waves[].begin_ns": "previous wave's boundary",
    "waves.waves[].end_ns": "its boundary",
    "waves.waves[].utilization": "mean share of SMs not idle",
    "waves.waves[].fill": "units / P",
    "waves.waves[].median_duration_ns": "median time of a unit",
    "waves.waves[].low_duration_ns": "10th percentile",
    "waves.waves[].high_duration_ns": "90th percentile",
    "waves.waves[].median_cycles": "median cycles of a unit",
    "waterfall": "null where the problem is unknown",
    "waterfall.peak_tflops": "SMs x FLOP a clock x maximum clock",
    "waterfall.datasheet_tflops": "peak by the datasheet, null where not published",
    "waterfall.flop_per_clock_sm": "FLOP a clock and SM",
    "waterfall.achieved_tflops": "useful FLOP / time",
    "waterfall.against": "which time that is",
    "waterfall.factors[].name": "step; the product of all is achieved / peak",
    "waterfall.factors[].value": "factor",
    "waterfall.factors[].error": "its absolute error",
    "waterfall.factors[].meaning": "what it compares",
    "inside": "cycles of units, null where the launch did not measure how long they waited",
    "inside.units": "units",
    "inside.pipe_per_k_iter": "cycles the tensor pipe takes for a k_iter",
    "inside.fill_known": "false: every unit is its CTA's first, and the fill stands in operands",
    "inside.limit": "memory, latency, fill or latency, tensor, issue, none",
    "inside.sentence": "what the limit is, and why",
    "inside.parts[].name": "pipe, operands, fill and rest sum to the mac cycles; epilogue and drain come after; "
    "room is what the copying warp waits beside them",
    "inside.parts[].meaning": "what these cycles are",
    "inside.parts[].total": "cycles of all units",
    "inside.parts[].share": "share of all units' cycles, of room against the mac cycles",
    "inside.parts[].median": "a unit's median; of fill over the first unit of each CTA, of drain over the last",
    "inside.parts[].p95": "a unit's 95 % quantile, of the same",
    "inside.parts[].error": "absolute error of the total",
    "inside.parts[].refused": "true: too uncertain to conclude from",
    "inside.per_sm[].sm": "SM id",
    "inside.per_sm[].cycles[]": "cycles by part, in the order of inside.parts",
    "clock": "SM clock seen by the spans, null where no cycles were recorded",
    "clock.mean_mhz": "mean",
    "clock.low_mhz": "slowest SM",
    "clock.high_mhz": "fastest SM",
    "clock.first_tenth_mhz": "over the first tenth of T",
    "clock.last_tenth_mhz": "over the last tenth of T",
    "bound.source": "estimated: at unchanged unit cost and clock",
    **keys_of("bound", "speed-up that perfect balance could bring at most", _QUANTITY),
    "active_cycles_ratio": "active cycles, average over SMs / largest, as ncu's sm__cycles_active",
    "longest_sm_cycles": "longest active time of an SM, in cycles",
    "place_busy": "share of place-time with a CTA in it",
}


def document(
    report: WaveReport, sentences: Sequence[str], recorded_by: str, details: Details | None = None
) -> dict[str, Any]:
    """The report and its details as plain lists and dicts, ready to be written as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "recorded_by": recorded_by,
        "source": report.launch.source,
        "meaning": list(sentences),
        "refusals": list(report.refusals),
        "device": asdict(report.device),
        "launch": _launch(report.launch),
        "flop": asdict(report.flop) if report.flop else None,
        "timer_step_ns": report.timer_step_ns,
        "placement": asdict(report.placement) if report.placement else None,
        "budget": _budget(report.budget),
        "tail": _tail(report.tail) if report.tail else None,
        "waves": asdict(report.waves),
        "waterfall": asdict(report.waterfall) if report.waterfall else None,
        "inside": _inside(report.inside, report.budget) if report.inside else None,
        "clock": asdict(report.clock) if report.clock else None,
        "bound": {"source": "estimated", **_quantity(report.bound)},
        "active_cycles_ratio": report.active_cycles_ratio,
        "longest_sm_cycles": report.longest_sm_cycles,
        "place_busy": report.place_busy,
        **(detail_json.document(details) if details else {}),
    }


def render(report: WaveReport, sentences: Sequence[str], recorded_by: str, details: Details | None = None) -> str:
    """The report as JSON text, ending with a newline."""
    return json.dumps(finite(document(report, sentences, recorded_by, details)), indent=2, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """The same lists, dicts and numbers with null for what is not finite, and no numpy types."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _quantity(quantity: Quantity) -> dict[str, Any]:
    return {"value": quantity.value, "error": quantity.error, "refused": quantity.refused}


def _launch(launch: Launch) -> dict[str, Any]:
    entry = asdict(launch)
    del entry["source"]
    if launch.problem:
        entry["problem"]["flop"] = launch.problem.flop
    entry["t0_globaltimer_ns"] = str(launch.t0_globaltimer_ns)
    return entry


def _budget(budget: Budget) -> dict[str, Any]:
    rows = zip(budget.sm_ids.tolist(), budget.per_sm.tolist(), strict=True)
    busy = budget.not_idle
    return {
        "sms": budget.sms,
        "used_sms": budget.used_sms,
        "duration_ns": budget.duration_ns,
        "total_sm_ns": budget.total_ns,
        "residual_sm_ns": budget.residual_ns,
        "terms": [
            {"state": name, "share": budget.share(name), **_quantity(term)} for name, term in budget.terms.items()
        ],
        "padding": _quantity(budget.padding),
        "not_idle": {"share": busy.value / budget.total_ns, **_quantity(busy)},
        "per_sm": [{"sm": sm, "state_ns": row} for sm, row in rows],
    }


def _inside(inside: InsideTile, budget: Budget) -> dict[str, Any]:
    rows = zip(budget.sm_ids.tolist(), inside.per_sm.tolist(), strict=False)  # of the SMs that were used
    return {
        "units": inside.units,
        "pipe_per_k_iter": inside.pipe_per_k_iter,
        "fill_known": inside.fill_known,
        "limit": inside.limit,
        "sentence": inside.sentence,
        "parts": [
            {
                "name": name,
                "meaning": INSIDE_MEANINGS[name],
                "share": inside.share(name),
                **asdict(part),
                "refused": part.refused,
            }
            for name, part in inside.parts.items()
        ],
        "per_sm": [{"sm": sm, "cycles": row} for sm, row in rows],
    }


def _tail(tail: TailSplit) -> dict[str, Any]:
    return {
        "source": "estimated",
        "quantization": _quantity(tail.quantization),
        "imbalance": _quantity(tail.imbalance),
        "makespan_ns": tail.makespan_ns,
        "of_equal_units": tail.of_equal_units,
        "cost": asdict(tail.cost),
    }
