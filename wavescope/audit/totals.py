"""Totals: the GPU time of a profile, how much of it could be assessed, and where it was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wavescope.audit.assess import ASSESSED, VERDICTS, Verdict
from wavescope.audit.assessed import Assessed, lost_ns
from wavescope.audit.groups import LOSSES, losses_of_keys
from wavescope.audit.launches import NULL


@dataclass(frozen=True)
class Totals:
    """Sums over launches in ns; `busy_ns` is the time in which at least one kernel ran, over all GPUs; 0
    where the profile has no start times.

    `lost_low_ns` to `lost_high_ns` is the time lost to waves; `quantization_ns`,
    `few_blocks_ns` and `clusters_ns` sum to the former.  `padding_ns` is the time spent on
    parts of tiles outside the problem, where that is known.  `beside_ns` is the time of
    launches that shared the GPU.  `verdicts` has the count of launches and their time.
    """

    launches: int
    total_ns: float
    busy_ns: float
    assessed_ns: float
    lost_low_ns: float
    lost_high_ns: float
    quantization_ns: float
    few_blocks_ns: float
    clusters_ns: float
    padding_ns: float
    beside_ns: float
    verdicts: dict[Verdict, tuple[int, float]]

    @property
    def lost_share(self) -> float:
        """Least time lost to waves / time of all kernels."""
        return self.lost_low_ns / self.total_ns if self.total_ns else 0.0


def totals(profiles: Sequence[Assessed]) -> Totals:
    """The sums over all launches of the profiles."""
    lost = dict.fromkeys(LOSSES, 0.0)
    for profile in profiles:
        for name, shares in losses_of_keys(profile).items():
            lost[name] += float((shares * profile.time_of_key).sum())
    verdicts = _verdicts(profiles)
    return Totals(
        launches=sum(len(profile.launches) for profile in profiles),
        total_ns=sum(time for _, time in verdicts.values()),
        busy_ns=float(sum(_busy_ns(profile) for profile in profiles)),
        assessed_ns=sum(time for verdict, (_, time) in verdicts.items() if verdict in ASSESSED),
        lost_low_ns=lost["lost_low"],
        lost_high_ns=float(sum(lost_ns(profile)[1].sum() for profile in profiles)),
        quantization_ns=lost["quantization"],
        few_blocks_ns=lost["few_blocks"],
        clusters_ns=lost["clusters"],
        padding_ns=lost["padding"],
        beside_ns=float(sum(profile.duration_ns[profile.has_neighbour].sum() for profile in profiles)),
        verdicts=verdicts,
    )


def _verdicts(profiles: Sequence[Assessed]) -> dict[Verdict, tuple[int, float]]:
    counts = dict.fromkeys(VERDICTS, 0)
    times = dict.fromkeys(VERDICTS, 0.0)
    for profile in profiles:
        size = len(profile.keys)
        of_key = np.bincount(profile.key_of, minlength=size).tolist()
        time_of_key = profile.time_of_key.tolist()
        for entry, count, time in zip(profile.assessments, of_key, time_of_key, strict=True):
            counts[entry.verdict] += count
            times[entry.verdict] += time
    return {verdict: (counts[verdict], times[verdict]) for verdict in VERDICTS if counts[verdict]}


def _busy_ns(profile: Assessed) -> int:
    """Time with at least one kernel, summed over the profile's GPUs."""
    launches = profile.launches
    busy = 0
    for device in np.unique(launches.device):
        mine = np.flatnonzero((launches.device == device) & (launches.duration_ns > 0) & (launches.start_ns != NULL))
        start = launches.start_ns[mine]
        order = np.argsort(start, kind="stable")
        start = start[order]
        end = np.maximum.accumulate(start + launches.duration_ns[mine][order])
        before = np.concatenate([start[:1], end[:-1]])
        busy += int((end - np.maximum(before, start)).sum())
    return busy
