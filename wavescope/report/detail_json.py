"""Clocks, dispatch, co-residency, spread and what-if as JSON, each under its own key where it was asked for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from wavescope.clocks import Clocks
from wavescope.co_residency import CoResidency
from wavescope.details import Details
from wavescope.dispatch import Dispatch, Turnaround
from wavescope.spread import Spread
from wavescope.wave_report import Quantity

_MHZ = {"value": "the number", "error": "its absolute error", "refused": "true: too uncertain to conclude from"}


def _keys(prefix: str, about: str) -> dict[str, str]:
    return {f"{prefix}.{key}": f"{about}: {text}" for key, text in _MHZ.items()}


def _turn_keys(prefix: str, about: str) -> dict[str, str]:
    return {
        f"{prefix}.count": f"{about}: places that were taken again",
        f"{prefix}.ns[]": f"{about}: least, median and most ns from the end of a CTA to the next one's begin there",
        f"{prefix}.cycles": f"{about}: null without clocks",
        f"{prefix}.cycles[]": f"{about}: the same in cycles",
    }


# Every key by its path, as in KEYS of report/json.py; a detail's keys are there where it was asked for.
DETAIL_KEYS: dict[str, str] = {
    "clocks": "SM clock, with --clocks; null where the spans carry no clock readings",
    "clocks.sentences[]": "what it means",
    "clocks.max_mhz": "maximum SM clock",
    **_keys("clocks.mean", "MHz over CTA lifetimes"),
    "clocks.by_kind": "MHz by kind of span, each with value, error and refused",
    "clocks.span_mhz[]": "5, 50 and 95 % quantiles over single spans",
    "clocks.span_error_mhz": "error of one span of median length",
    "clocks.domain_difference": "fastest over slowest clock domain, less 1; null without two",
    **_keys("clocks.domain_difference", "fastest over slowest clock domain, less 1"),
    "clocks.domains_reason": "why clock domains cannot be told, null where they can",
    "clocks.offset_tolerance_cycles": "how well an SM's clock64 offset is known",
    "clocks.domain_gap_cycles": "smallest distance between the offsets of two domains, null with one",
    "clocks.domains[].sms[]": "SMs whose clock64 run together",
    "clocks.domains[].spread_cycles": "how far their offsets lie apart",
    **_keys("clocks.domains[].mhz", "MHz over CTA lifetimes"),
    "clocks.by_sm[].sm": "SM id",
    **_keys("clocks.by_sm[]", "MHz over CTA lifetimes"),
    "clocks.parts_mhz[][]": "a row a domain (one for all SMs where there are none): MHz in equal parts of T, or null",
    "dispatch": "what the block scheduler did, with --dispatch; observed, not guaranteed",
    "dispatch.sentences[]": "what it means",
    "dispatch.ctas": "CTAs launched",
    "dispatch.sms": "SMs that got one",
    "dispatch.places": "places P",
    "dispatch.order[]": "SMs in the order of the index of their first CTA",
    "dispatch.pair_share": "share of the SM pairs 2j, 2j + 1 that stand side by side in it, null without pairs",
    "dispatch.domains": "clock domains, 0 where they cannot be told",
    "dispatch.domain_runs": "how often the order enters a clock domain, null where they cannot be told",
    **_keys("dispatch.ahead_ns", "how much earlier than one of lower index a CTA began at most"),
    "dispatch.distinct_first": "SMs that the first CTAs, as many as SMs, went to",
    **_keys("dispatch.ramp_ns", "T0 to the begin of the last SM's first CTA"),
    "dispatch.peak_ctas[].ctas": "CTAs at most at once on an SM",
    "dispatch.peak_ctas[].sms": "on how many SMs",
    "dispatch.peak_places": "places taken at once at most",
    "dispatch.turnarounds[].wave": "rank wave of the CTA that begins, from 0",
    **_turn_keys("dispatch.turnarounds[]", "rank wave"),
    "dispatch.all_turnarounds": "over all waves, null where no place was taken again",
    **_turn_keys("dispatch.all_turnarounds", "all"),
    "dispatch.early_share": "CTAs of later waves that began before the wave before had ended, null with one wave",
    "co_residency": "CTAs side by side on an SM, with --dispatch; null where there never were two",
    "co_residency.sentences[]": "what it means",
    "co_residency.ctas_per_sm": "CTAs that fit on an SM",
    "co_residency.sms": "SMs",
    "co_residency.mean_resident": "mean CTAs on an SM while it is not idle",
    "co_residency.parts[]": "mean CTAs per SM in equal parts of T",
    "co_residency.crowds[].resident": "CTAs on the SM",
    "co_residency.crowds[].sm_share": "share of all SM time",
    "co_residency.crowds[].units": "units that ran beside so many for nine tenths of their time",
    "co_residency.crowds[].cycles": "their median length in cycles, null without any",
    "co_residency.crowds[].ns": "the same in ns",
    "co_residency.crowds[].throughput": "units a cycle of such an SM against one with one CTA, null without either",
    "co_residency.ranks[].older": "CTAs on a full SM, when a unit began there, that had begun before the unit's own",
    "co_residency.ranks[].units": "units that found so many",
    "co_residency.ranks[].cycles": "their median length in cycles, null without clocks",
    "co_residency.ranks[].ns": "the same in ns",
    "spread": "what unit lengths go with, with --spread",
    "spread.sentences[]": "what it means",
    "spread.units": "units",
    "spread.tested": "units tested",
    "spread.per_k_iter": "true: lengths are a k_iter's",
    "spread.permutations": "shuffles",
    "spread.reason": "why nothing was tested, null where it was",
    "spread.left_out[].name": "factor or measure that was not tested",
    "spread.left_out[].reason": "why",
    "spread.measured[].measure": "cycles or ns",
    "spread.measured[].median": "median length",
    "spread.measured[].low": "10 % quantile",
    "spread.measured[].high": "90 % quantile",
    "spread.measured[].variation": "standard deviation / mean",
    "spread.measured[].factors[].name": "factor",
    "spread.measured[].factors[].within": "what is held fixed while lengths are shuffled",
    "spread.measured[].factors[].levels": "values it takes",
    "spread.measured[].factors[].eta_squared": "share of the variance between its levels",
    "spread.measured[].factors[].by_chance": "mean of that share over the shuffles",
    "spread.measured[].factors[].p_value": "share of the shuffles that reach it",
    "spread.measured[].factors[].adjusted_p": "the same after Holm, over all factors and measures",
    "spread.measured[].factors[].explains": "true: adjusted_p is 0.05 or less, and the share 0.01 beyond chance",
    "spread.measured[].factors[].slowest": "level with the longest units, null where levels are too small",
    "spread.measured[].factors[].fastest": "level with the shortest",
    "spread.measured[].factors[].difference": "distance of the two, relative to the mean",
    "what_if": "predictions for a changed launch, with --what-if; estimated",
    "what_if.sentences[]": "what they rest on, and what they leave out",
    "what_if.outcomes[].what": "the change; the first two are the launch as recorded, measured and estimated",
    "what_if.outcomes[].source": "measured, simulated or estimated",
    "what_if.outcomes[].runs": "what is scheduled, in words",
    "what_if.outcomes[].sms": "SMs",
    "what_if.outcomes[].schedule": "schedule",
    "what_if.outcomes[].tile": "tile, MxNxK",
    "what_if.outcomes[].duration_ns": "first CTA's begin to last CTA's end, T",
    "what_if.outcomes[].to_recorded": "that over the recorded T",
    "what_if.outcomes[].not_idle_share": "share of SMs x T not idle",
    "what_if.outcomes[].tail_share": "share of SMs x T in the tail",
    "what_if.outcomes[].met_share": "share of SMs x T in partial sums and waiting for them",
    "what_if.outcomes[].bound": "speed-up that perfect balance could bring at most",
}


def document(found: Details) -> dict[str, Any]:
    """The details asked for as plain lists and dicts."""
    entries: dict[str, Any] = {}
    if "clocks" in found.asked:
        entries["clocks"] = _clocks(found.clocks) if found.clocks else None
    if found.dispatch:
        entries["dispatch"] = _dispatch(found.dispatch)
        entries["co_residency"] = _co_residency(found.co_residency) if found.co_residency else None
    if found.spread:
        entries["spread"] = _spread(found.spread)
    if found.what_if:
        outcomes = [asdict(one) | {"tile": str(one.tile)} for one in found.what_if.outcomes]
        entries["what_if"] = {"outcomes": outcomes}
    for name, sentences in found.sentences.items():
        entries[name] = {"sentences": list(sentences), **entries[name]}
    return entries


def _quantity(quantity: Quantity) -> dict[str, Any]:
    return {"value": quantity.value, "error": quantity.error, "refused": quantity.refused}


def _clocks(found: Clocks) -> dict[str, Any]:
    domains, difference = found.domains, found.domain_difference
    return {
        "max_mhz": found.max_mhz,
        "mean": _quantity(found.mean),
        "by_kind": {name: _quantity(mhz) for name, mhz in found.by_kind.items()},
        "span_mhz": list(found.span),
        "span_error_mhz": found.span_error,
        "domain_difference": _quantity(difference) if difference else None,
        "domains_reason": domains.reason,
        "offset_tolerance_cycles": domains.tolerance_cycles,
        "domain_gap_cycles": domains.gap_cycles,
        "domains": [
            {"sms": domains.members(index).tolist(), "spread_cycles": spread, "mhz": _quantity(mhz)}
            for index, (spread, mhz) in enumerate(zip(domains.spread_cycles, found.by_domain, strict=True))
        ],
        "by_sm": [{"sm": sm, **_quantity(mhz)} for sm, mhz in zip(domains.sm_ids.tolist(), found.by_sm, strict=True)],
        "parts_mhz": found.parts.tolist(),
    }


def _dispatch(found: Dispatch) -> dict[str, Any]:
    turns, overall = found.turnarounds, found.all_turnarounds
    return {
        **asdict(found),
        "ahead_ns": _quantity(found.ahead_ns),
        "ramp_ns": _quantity(found.ramp_ns),
        "peak_ctas": [{"ctas": ctas, "sms": sms} for ctas, sms in found.peak_ctas.items()],
        "turnarounds": [{"wave": turn.wave, **_turnaround(turn)} for turn in turns],
        "all_turnarounds": _turnaround(overall) if overall else None,
    }


def _turnaround(turn: Turnaround) -> dict[str, Any]:
    return {"count": turn.count, "ns": list(turn.ns), "cycles": list(turn.cycles) if turn.cycles else None}


def _co_residency(found: CoResidency) -> dict[str, Any]:
    return asdict(found)


def _spread(found: Spread) -> dict[str, Any]:
    return {
        "units": found.units,
        "tested": found.tested,
        "per_k_iter": found.per_k_iter,
        "permutations": found.permutations,
        "reason": found.reason,
        "left_out": [{"name": name, "reason": why} for name, why in found.left_out.items()],
        "measured": [
            {
                "measure": measured.measure,
                "median": measured.median,
                "low": measured.low,
                "high": measured.high,
                "variation": measured.variation,
                "factors": [
                    {
                        "name": one.name,
                        "within": one.within,
                        "levels": one.levels,
                        **asdict(one.effect),
                        "adjusted_p": one.adjusted_p,
                        "explains": one.explains,
                        "slowest": one.slowest,
                        "fastest": one.fastest,
                        "difference": one.difference,
                    }
                    for one in measured.factors
                ],
            }
            for measured in found.measured
        ],
    }
