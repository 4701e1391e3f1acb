"""Totals: the GPU time of a profile, how much of it could be assessed, and where it was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wavescope.audit.assess import VERDICTS, Verdict
from wavescope.audit.assessed import Assessed
from wavescope.audit.groups import columns
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
    found = columns(profiles)
    return Totals(
        launches=len(found.duration),
        total_ns=float(found.duration.sum()),
        busy_ns=float(sum(_busy_ns(profile) for profile in profiles)),
        assessed_ns=float(found.duration[found.assessed].sum()),
        lost_low_ns=float(found.lost_low.sum()),
        lost_high_ns=float(found.lost_high.sum()),
        quantization_ns=float(found.quantization.sum()),
        few_blocks_ns=float(found.few_blocks.sum()),
        clusters_ns=float(found.clusters.sum()),
        padding_ns=float(found.padding.sum()),
        beside_ns=float(found.duration[found.beside].sum()),
        verdicts=_verdicts(profiles),
    )


def _verdicts(profiles: Sequence[Assessed]) -> dict[Verdict, tuple[int, float]]:
    counts = dict.fromkeys(VERDICTS, 0)
    times = dict.fromkeys(VERDICTS, 0.0)
    for profile in profiles:
        size = len(profile.keys)
        of_key = np.bincount(profile.key_of, minlength=size).tolist()
        time_of_key = np.bincount(profile.key_of, profile.duration_ns, size).tolist()
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
