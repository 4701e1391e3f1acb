"""Groups: launches of the same kernel, grid, block and shapes, added up and ranked by time lost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.assess import Assessment, Key, Triple
from wavescope.audit.assessed import Assessed, estimated_activity, lost_ns, measured_activity
from wavescope.audit.plateaus import Plateau, plateaus

By = Literal["kernel", "operator"]
BYS: tuple[By, ...] = get_args(By)
LOSSES = ("lost_low", "quantization", "few_blocks", "clusters", "padding")


@dataclass(frozen=True)
class Beside:
    """Launches of a group that shared the GPU: `count` of them, mostly with kernel `name`.

    `sms` is what others held on average; `waves` are the most waves that the blocks needed on
    what was left (NaN: nothing was).
    """

    name: str
    count: int
    total_ns: float
    sms: float
    waves: float


@dataclass(frozen=True)
class Group:
    """Launches that are one line of the report; times are sums in ns unless named otherwise.

    `assessment` is that of the launches with most time.  `fill`, `activity` (estimated) and
    `measured` are means weighted by time, NaN where there is none.  `lost_low_ns` to
    `lost_high_ns` is the time lost to waves, the three causes sum to the former;
    `padding_ns` is the time spent outside the problem.  `plateaus` are those of the longest
    launch with a sampled series.
    """

    name: str
    operator: str | None
    shapes: object
    grid: Triple
    block: Triple
    count: int
    total_ns: float
    median_ns: float
    assessment: Assessment
    fill: float
    activity: float
    measured: float
    lost_low_ns: float
    lost_high_ns: float
    quantization_ns: float
    few_blocks_ns: float
    clusters_ns: float
    padding_ns: float
    kernels: int
    beside: Beside | None
    plateaus: tuple[Plateau, ...]

    @property
    def ranked_ns(self) -> float:
        """Time lost, for ranking: to waves by arithmetic; by counters where that is not possible."""
        if self.assessment.is_assessed or math.isnan(self.measured):
            return self.lost_low_ns
        return (1 - self.measured) * self.total_ns


def groups(profiles: Sequence[Assessed], by: By = "kernel") -> tuple[Group, ...]:
    """All launches of the profiles in groups, most time lost first, then most time."""
    index: dict[object, int] = {}
    of_keys = [
        np.array([index.setdefault(_identity(key, by), len(index)) for key in profile.keys], np.int32)
        for profile in profiles
    ]
    parts = [of_key[profile.key_of] for of_key, profile in zip(of_keys, profiles, strict=True)]
    if not index:
        return ()
    rows = _sorted_rows(profiles, np.concatenate(parts), len(index))
    numbers = {name: values.tolist() for name, values in _numbers(rows, of_keys, len(index)).items()}
    found = [
        _group(rows, number, by, {name: values[number] for name, values in numbers.items()})
        for number in range(len(index))
    ]
    return tuple(sorted(found, key=lambda group: (-group.ranked_ns, -group.total_ns, group.name)))


def _identity(key: Key, by: By) -> object:
    if by == "operator" and key.operator is not None:
        return key.operator, key.shapes
    return key.name, key.grid, key.block, key.operator, key.shapes


@dataclass(frozen=True)
class _Rows:
    """The launches of all profiles; `order[edges[g] : edges[g + 1]]` are those of group g.

    `duration` in ns, 0 where unknown; `beside` is True for launches that shared the GPU.
    """

    profiles: Sequence[Assessed]
    first: NDArray[np.int64]  # row of each profile's first launch
    duration: NDArray[np.float64]
    beside: NDArray[np.bool_]
    group_of: NDArray[np.int32]
    order: NDArray[np.int64]
    edges: NDArray[np.int64]

    def parts(self, number: int) -> list[tuple[int, NDArray[np.int64]]]:
        """The rows of a group, by profile."""
        rows = self.order[self.edges[number] : self.edges[number + 1]]
        cuts = np.searchsorted(rows, self.first)
        return [
            (profile, rows[begin:end])
            for profile, (begin, end) in enumerate(itertools.pairwise(cuts.tolist()))
            if begin < end
        ]


def _sorted_rows(profiles: Sequence[Assessed], group_of: NDArray[np.int32], count: int) -> _Rows:
    return _Rows(
        profiles=profiles,
        first=np.cumsum([0, *(len(profile.launches) for profile in profiles)]),
        duration=np.concatenate([profile.duration_ns for profile in profiles]),
        beside=np.concatenate([profile.has_neighbour for profile in profiles]),
        group_of=group_of,
        order=np.argsort(group_of, kind="stable"),
        edges=np.cumsum([0, *np.bincount(group_of, minlength=count)]),
    )


def _numbers(rows: _Rows, of_keys: list[NDArray[np.int32]], count: int) -> dict[str, NDArray[np.float64]]:
    """Sums and means of every group.

    What is the same for all launches of a key is added up by key.
    """
    found = {name: np.zeros(count) for name in LOSSES}
    with_fill, filled = np.zeros(count), np.zeros(count)
    for profile, of_key in zip(rows.profiles, of_keys, strict=True):
        time = profile.time_of_key
        for name, lost in losses_of_keys(profile).items():
            found[name] += _sums(of_key, lost * time, count)
        fill = profile.of_keys(lambda entry: entry.fill)
        weight = np.where(np.isnan(fill), 0.0, np.maximum(time, 1.0))
        with_fill += _sums(of_key, weight, count)
        filled += _sums(of_key, weight * np.nan_to_num(fill), count)
    found["total"] = _sums(rows.group_of, rows.duration, count)
    found["fill"] = _ratio(filled, with_fill)
    found["lost_high"] = _sums(rows.group_of, _joined(rows, lambda profile: lost_ns(profile)[1]), count)
    found["activity"] = _mean(rows, _joined(rows, estimated_activity), count)
    found["measured"] = _mean(rows, _joined(rows, measured_activity), count)
    return found


def losses_of_keys(profile: Assessed) -> dict[str, NDArray[np.float64]]:
    """The shares of LOSSES for each key, 0 where unknown."""
    shares: dict[str, Callable[[Assessment], float]] = {
        "lost_low": lambda entry: 1 - entry.fill,
        "quantization": lambda entry: entry.lost_to_quantization,
        "few_blocks": lambda entry: entry.lost_to_few_blocks,
        "clusters": lambda entry: entry.lost_to_clusters,
        "padding": lambda entry: entry.padding * entry.fill,
    }
    return {name: np.nan_to_num(profile.of_keys(share)) for name, share in shares.items()}


def _joined(rows: _Rows, of_profile: Callable[[Assessed], NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.concatenate([of_profile(profile) for profile in rows.profiles])


def _mean(rows: _Rows, values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Mean by group, weighted by time, over the launches that have a value; NaN where none has."""
    has = ~np.isnan(values)
    weight, group_of = np.maximum(rows.duration[has], 1.0), rows.group_of[has]
    return _ratio(_sums(group_of, weight * values[has], count), _sums(group_of, weight, count))


def _sums(group_of: NDArray[np.int32], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    return np.bincount(group_of, values, count).astype(np.float64)


def _ratio(total: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(weight > 0, total / np.maximum(weight, 1e-300), np.nan)


def _group(rows: _Rows, number: int, by: By, numbers: dict[str, float]) -> Group:
    parts = rows.parts(number)
    mine = rows.order[rows.edges[number] : rows.edges[number + 1]]
    durations = rows.duration[mine]
    timed = durations[durations > 0]
    key, entry, kernels = _main(rows, parts)
    return Group(
        name=key.name,
        operator=key.operator,
        shapes=key.shapes,
        grid=key.grid,
        block=key.block,
        count=len(mine),
        total_ns=numbers["total"],
        median_ns=float(np.median(timed)) if len(timed) else 0.0,
        assessment=entry,
        fill=numbers["fill"],
        activity=numbers["activity"],
        measured=numbers["measured"],
        lost_low_ns=numbers["lost_low"],
        lost_high_ns=numbers["lost_high"],
        quantization_ns=numbers["quantization"],
        few_blocks_ns=numbers["few_blocks"],
        clusters_ns=numbers["clusters"],
        padding_ns=numbers["padding"],
        kernels=kernels if by == "operator" else 1,
        beside=_beside(rows, parts),
        plateaus=_plateaus(rows, parts, entry),
    )


def _main(rows: _Rows, parts: list[tuple[int, NDArray[np.int64]]]) -> tuple[Key, Assessment, int]:
    """Key and assessment of the launches with most time, and how many kernel names there are."""
    spent: dict[tuple[int, int], float] = {}
    for profile, mine in parts:
        key_of = rows.profiles[profile].key_of[mine - rows.first[profile]]
        if (key_of == key_of[0]).all():
            spent[profile, int(key_of[0])] = float(rows.duration[mine].sum())
            continue
        times = np.bincount(key_of, rows.duration[mine])
        spent.update({(profile, key): float(times[key]) for key in np.unique(key_of).tolist()})
    profile, key = max(spent, key=lambda pair: spent[pair])
    names = {rows.profiles[number].keys[index].name for number, index in spent}
    return rows.profiles[profile].keys[key], rows.profiles[profile].assessments[key], len(names)


def _beside(rows: _Rows, parts: list[tuple[int, NDArray[np.int64]]]) -> Beside | None:
    spent: dict[str, float] = {}
    count, held, waves = 0, 0.0, 0.0
    for profile, mine in parts:
        shared = mine[rows.beside[mine]]
        if not len(shared):
            continue
        count += len(shared)
        at, times = shared - rows.first[profile], rows.duration[shared]
        overlaps = rows.profiles[profile].overlaps
        held += float((times * overlaps.sms[at]).sum())
        waves = max(waves, float(np.nanmax(rows.profiles[profile].waves_beside()[at], initial=0.0)))
        names = rows.profiles[profile].launches.name[overlaps.neighbour[at]]
        for name, time in zip(names.tolist(), times.tolist(), strict=True):
            spent[name] = spent.get(name, 0.0) + time
    if not spent:
        return None
    total = sum(spent.values())
    sms = held / total
    return Beside(max(spent, key=lambda name: spent[name]), count, total, sms, waves or math.nan)


def _plateaus(rows: _Rows, parts: list[tuple[int, NDArray[np.int64]]], entry: Assessment) -> tuple[Plateau, ...]:
    """Those of the longest launch that has a sampled series."""
    found: tuple[Plateau, ...] = ()
    longest = 0.0
    for profile, mine in parts:
        series = rows.profiles[profile].launches.activity
        if series.strides == (0,) and series[0] is None:
            continue  # a column of nothing
        for row in mine.tolist():
            sampled, duration = series[row - int(rows.first[profile])], float(rows.duration[row])
            if sampled is not None and duration > longest and entry.capacity:
                longest = duration
                found = plateaus(sampled[0], sampled[1], entry.capacity.sms)
    return found
