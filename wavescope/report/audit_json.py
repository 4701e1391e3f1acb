"""The audit as JSON: one object, no NaN or Infinity, every key documented in KEYS.

`schema_version` rises when a key changes its meaning or goes; new keys may come at any
time.  Times are in ns; a number that is not known is null.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from wavescope.audit.assessed import Assessed
from wavescope.audit.difference import Difference
from wavescope.audit.examine import Audit
from wavescope.audit.frames import group_row
from wavescope.audit.totals import Totals
from wavescope.report.json import finite

SCHEMA_VERSION = 1

_TOTALS = {
    "launches": "kernels",
    "total_ns": "sum of all durations",
    "busy_ns": "time with at least one kernel running, over all GPUs",
    "assessed_ns": "time of kernels whose fill could be worked out",
    "lost_low_ns": "least time lost to waves, if equal units take equal times",
    "lost_high_ns": "most time lost to waves; see 'pace'",
    "lost_share": "lost_low_ns / total_ns, what --fail-over compares",
    "quantization_ns": "part of lost_low_ns: partial last rounds",
    "few_blocks_ns": "part of lost_low_ns: less than one round",
    "clusters_ns": "part of lost_low_ns: SMs that clusters do not reach",
    "padding_ns": "time spent on parts of tiles outside the problem, where known",
    "beside_ns": "time of kernels that shared the GPU with another stream's",
    "verdicts": "launches and time by verdict",
    "verdicts.*.launches": "kernels with this verdict",
    "verdicts.*.total_ns": "their time",
}
_CHANGE = {
    "operator": "framework's operator, null where unknown",
    "problem": "the product, batch x m x n x k, empty where unknown",
    "kernel": "kernel with most time now, empty where the work is gone",
    "before_kernel": "kernel with most time before",
    "same_kernel": "true where they are the same",
    "count": "launches now",
    "before_count": "launches before",
    "total_ns": "time now",
    "before_total_ns": "time before",
    "lost_ns": "least time lost to waves now",
    "before_lost_ns": "the same before",
}

# Every key of the document by its path; [] stands for the elements of a list, * for any name.
KEYS: dict[str, str] = {
    "schema_version": "version of this document's keys",
    "source": "estimated: fills and losses are arithmetic or a model unless a key says measured",
    "by": "what a group is: kernel or operator",
    "profiles[].path": "the file",
    "profiles[].kind": "kineto, nsys, ncu csv or ncu report",
    "profiles[].devices[].index": "number of the GPU",
    "profiles[].devices[].name": "product name, null where the profile is silent",
    "profiles[].devices[].compute_capability[]": "major and minor, null where the profile is silent",
    "profiles[].devices[].sms": "SMs, null where not known",
    "profiles[].devices[].sms_source": "where the SM count is from",
    "profiles[].devices[].registers_per_sm": "32-bit registers an SM",
    "profiles[].devices[].shared_per_sm": "shared memory an SM, bytes",
    "profiles[].devices[].shared_per_block": "shared memory a CTA may have, bytes",
    "profiles[].devices[].threads_per_sm": "resident threads at most",
    "profiles[].devices[].max_clock_mhz": "SM clock at most",
    **{f"profiles[].totals.{key}": text for key, text in _TOTALS.items()},
    **{f"totals.{key}": text for key, text in _TOTALS.items()},
    "groups[].name": "kernel, the one with most time where there are several",
    "groups[].operator": "framework's operator, null where unknown",
    "groups[].shapes": "its input shapes, null where unknown",
    "groups[].problem": "the product, batch x m x n x k, null where unknown",
    "groups[].grid[]": "CTAs in x, y, z, null where the profile has no grid",
    "groups[].block[]": "threads in x, y, z",
    "groups[].kernels": "different kernels in the group",
    "groups[].launches": "launches in the group",
    "groups[].total_ns": "their time",
    "groups[].median_ns": "median duration",
    "groups[].verdict": "how it fills the GPU; see 'wavescope explain verdict'",
    "groups[].reason": "why it cannot be assessed, null where it can",
    "groups[].tile": "tile in the kernel's name, in the name's order, null where it has none",
    "groups[].tiles": "tiles of the problem, null where unknown",
    "groups[].split_k": "parts along k",
    "groups[].split_k_is_known": "false where the number was inferred",
    "groups[].cluster": "CTAs a cluster",
    "groups[].sms": "SMs the kernel could use",
    "groups[].ctas_per_sm": "CTAs that fit on an SM, null where unknown",
    "groups[].places": "CTAs that fit at once",
    "groups[].reachable_sms": "SMs that CTAs of this cluster size reach at once",
    "groups[].capacity_source": "where places is from",
    "groups[].occupancy": "share of an SM's room for warps that is taken, computed",
    "groups[].waves": "blocks / places",
    "groups[].sm_rounds": "blocks, or tiles of a persistent kernel, per SM reached",
    "groups[].fill": "share of SM time in use if equal units start in rounds",
    "groups[].active_estimated": "SM active time, average / largest, by the model of activity",
    "groups[].active_measured": "the same by counters, null where there are none",
    "groups[].lost_low_ns": "least time lost to waves, null where not assessed",
    "groups[].lost_high_ns": "most",
    "groups[].quantization_ns": "part of lost_low_ns: the partial last round",
    "groups[].few_blocks_ns": "part of lost_low_ns: less than one round",
    "groups[].clusters_ns": "part of lost_low_ns: SMs that clusters do not reach",
    "groups[].padding_ns": "time spent on parts of tiles outside the problem, null where unknown",
    "groups[].beside": "kernel of another stream that held most SMs meanwhile, null where none did",
    "groups[].beside_launches": "launches that ran beside one",
    "groups[].beside_sms": "SMs held by others, mean over their time",
    "groups[].beside_waves": "waves of blocks on the SMs left",
    "groups[].plateaus[].begin_ns": "begin of a stretch with the same number of busy SMs, sampled",
    "groups[].plateaus[].end_ns": "its end",
    "groups[].plateaus[].share": "measured share of SMs busy",
    "groups[].plateaus[].busy_sms": "that in SMs",
    "notes[]": "what is wrong, missing or assumed in the data",
    "advice[]": "what could be tried, as bounds",
    "against": "comparison with --against, null without",
    **{f"against.totals.{key}": text for key, text in _TOTALS.items()},
    **{f"against.changes[].{key}": text for key, text in _CHANGE.items()},
}


def document(audit: Audit, advice: Sequence[str], against: Difference | None = None) -> dict[str, Any]:
    """The audit as plain lists and dicts, ready to be written as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "source": "estimated",
        "by": audit.by,
        "profiles": [_profile(profile, sums) for profile, sums in zip(audit.profiles, audit.per_profile, strict=True)],
        "totals": _totals(audit.totals),
        "groups": [group_row(group) for group in audit.groups],
        "notes": list(audit.notes),
        "advice": list(advice),
        "against": _against(against) if against else None,
    }


def render(audit: Audit, advice: Sequence[str], against: Difference | None = None) -> str:
    """The audit as JSON text, ending with a newline."""
    return json.dumps(finite(document(audit, advice, against)), indent=2, allow_nan=False) + "\n"


def _profile(profile: Assessed, sums: Totals) -> dict[str, Any]:
    launches = profile.launches
    return {
        "path": launches.path,
        "kind": launches.kind,
        "devices": [asdict(device) for device in launches.devices],
        "totals": _totals(sums),
    }


def _totals(sums: Totals) -> dict[str, Any]:
    entry = asdict(sums)
    entry["verdicts"] = {
        verdict: {"launches": count, "total_ns": time} for verdict, (count, time) in sums.verdicts.items()
    }
    return {**entry, "lost_share": sums.lost_share}


def _against(found: Difference) -> dict[str, Any]:
    return {
        "totals": _totals(found.before),
        "changes": [{**asdict(change), "same_kernel": change.same_kernel} for change in found.changes],
    }
