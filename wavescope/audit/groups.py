"""Groups: launches of the same kernel, grid, block and shapes, added up and ranked by time lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.assess import Assessment, Key, Triple
from wavescope.audit.assessed import Assessed, estimated_activity, lost_ns, measured_activity
from wavescope.audit.plateaus import Plateau, plateaus

By = Literal["kernel", "operator"]
BYS: tuple[By, ...] = get_args(By)
_SUMMED = ("duration", "lost_low", "lost_high", "quantization", "few_blocks", "clusters", "padding")
_AVERAGED = ("fill", "activity", "measured")


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


@dataclass(frozen=True)
class Columns:
    """Per launch, over all profiles: what groups and totals add up; in ns, 0 where unknown."""

    duration: NDArray[np.float64]
    assessed: NDArray[np.bool_]
    lost_low: NDArray[np.float64]
    lost_high: NDArray[np.float64]
    quantization: NDArray[np.float64]
    few_blocks: NDArray[np.float64]
    clusters: NDArray[np.float64]
    padding: NDArray[np.float64]
    fill: NDArray[np.float64]
    activity: NDArray[np.float64]
    measured: NDArray[np.float64]
    beside: NDArray[np.bool_]
    waves_beside: NDArray[np.float64]


def columns(profiles: Sequence[Assessed]) -> Columns:
    """The columns of all profiles, one after the other."""
    parts = [_columns(profile) for profile in profiles]
    return Columns(*(np.concatenate(column) for column in zip(*(vars(part).values() for part in parts), strict=True)))


def _columns(profile: Assessed) -> Columns:
    duration = profile.duration_ns
    low, high = lost_ns(profile)
    estimate = estimated_activity(profile)

    def lost(value: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.nan_to_num(value * duration)

    return Columns(
        duration=duration,
        assessed=profile.of_launches(lambda entry: float(entry.is_assessed)) > 0,
        lost_low=low,
        lost_high=high,
        quantization=lost(profile.of_launches(lambda entry: entry.lost_to_quantization)),
        few_blocks=lost(profile.of_launches(lambda entry: entry.lost_to_few_blocks)),
        clusters=lost(profile.of_launches(lambda entry: entry.lost_to_clusters)),
        padding=lost(profile.of_launches(lambda entry: entry.padding * entry.fill)),
        fill=profile.of_launches(lambda entry: entry.fill),
        activity=estimate,
        measured=measured_activity(profile),
        beside=profile.has_neighbour,
        waves_beside=profile.waves_beside(),
    )


def groups(profiles: Sequence[Assessed], by: By = "kernel") -> tuple[Group, ...]:
    """All launches of the profiles in groups, most time lost first, then most time."""
    index: dict[object, int] = {}
    parts = []
    for profile in profiles:
        of_key = np.array([index.setdefault(_identity(key, by), len(index)) for key in profile.keys], np.int64)
        parts.append(of_key[profile.key_of])
    if not index:
        return ()
    sorted_rows = _sorted_rows(profiles, np.concatenate(parts), len(index))
    sums = {name: np.bincount(sorted_rows.group_of, getattr(sorted_rows.columns, name), len(index)) for name in _SUMMED}
    means = {name: _mean(sorted_rows, getattr(sorted_rows.columns, name), len(index)) for name in _AVERAGED}
    numbers = {name: values.tolist() for name, values in {**sums, **means}.items()}
    found = [
        _group(sorted_rows, number, by, {name: values[number] for name, values in numbers.items()})
        for number in range(len(index))
    ]
    return tuple(sorted(found, key=lambda group: (-group.ranked_ns, -group.total_ns, group.name)))


def _identity(key: Key, by: By) -> object:
    if by == "operator" and key.operator is not None:
        return key.operator, key.shapes
    return key.name, key.grid, key.block, key.operator, key.shapes


@dataclass(frozen=True)
class _Rows:
    """The launches of all profiles; `order[edges[g] : edges[g + 1]]` are those of group g."""

    profiles: Sequence[Assessed]
    first: NDArray[np.int64]  # row of each profile's first launch
    columns: Columns
    group_of: NDArray[np.int64]
    order: NDArray[np.int64]
    edges: NDArray[np.int64]

    def parts(self, number: int) -> list[tuple[int, NDArray[np.int64]]]:
        """The rows of a group, by profile."""
        rows = self.order[self.edges[number] : self.edges[number + 1]]
        cuts = np.searchsorted(rows, self.first)
        return [
            (profile, rows[begin:end])
            for profile, (begin, end) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
            if begin < end
        ]


def _sorted_rows(profiles: Sequence[Assessed], group_of: NDArray[np.int64], count: int) -> _Rows:
    first = np.cumsum([0, *(len(profile.launches) for profile in profiles)])
    order = np.argsort(group_of, kind="stable")
    edges = np.searchsorted(group_of[order], np.arange(count + 1))
    return _Rows(profiles, first, columns(profiles), group_of, order, edges)


def _mean(rows: _Rows, values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Mean by group, weighted by time, over the launches that have a value; NaN where none has."""
    weight = np.where(np.isnan(values), 0.0, np.maximum(rows.columns.duration, 1.0))
    total = np.bincount(rows.group_of, weight, count)
    mean = np.bincount(rows.group_of, weight * np.nan_to_num(values), count) / np.maximum(total, 1e-300)
    return np.where(total > 0, mean, np.nan)


def _group(rows: _Rows, number: int, by: By, numbers: dict[str, float]) -> Group:
    parts = rows.parts(number)
    mine = rows.order[rows.edges[number] : rows.edges[number + 1]]
    durations = rows.columns.duration[mine]
    timed = durations[durations > 0]
    key, entry, kernels = _main(rows, parts)
    return Group(
        name=key.name,
        operator=key.operator,
        shapes=key.shapes,
        grid=key.grid,
        block=key.block,
        count=len(mine),
        total_ns=numbers["duration"],
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
            spent[profile, int(key_of[0])] = float(rows.columns.duration[mine].sum())
            continue
        times = np.bincount(key_of, rows.columns.duration[mine])
        spent.update({(profile, key): float(times[key]) for key in np.unique(key_of).tolist()})
    profile, key = max(spent, key=lambda pair: spent[pair])
    names = {rows.profiles[number].keys[index].name for number, index in spent}
    return rows.profiles[profile].keys[key], rows.profiles[profile].assessments[key], len(names)


def _beside(rows: _Rows, parts: list[tuple[int, NDArray[np.int64]]]) -> Beside | None:
    spent: dict[str, float] = {}
    count, held, waves = 0, 0.0, 0.0
    for profile, mine in parts:
        shared = mine[rows.columns.beside[mine]]
        if not len(shared):
            continue
        count += len(shared)
        at, times = shared - rows.first[profile], rows.columns.duration[shared]
        overlaps = rows.profiles[profile].overlaps
        held += float((times * overlaps.sms[at]).sum())
        waves = max(waves, float(np.nanmax(rows.columns.waves_beside[shared], initial=0.0)))
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
            sampled, duration = series[row - int(rows.first[profile])], float(rows.columns.duration[row])
            if sampled is not None and duration > longest and entry.capacity:
                longest = duration
                found = plateaus(sampled[0], sampled[1], entry.capacity.sms)
    return found
