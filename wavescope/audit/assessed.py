"""The launches of one profile with what was worked out for each: one assessment a kind of launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.activity import activity, math_share
from wavescope.audit.assess import Assessment, Key, Triple, assess, sms_of
from wavescope.audit.capacity import machine
from wavescope.audit.launches import FloatColumn, Launches, ProfiledDevice
from wavescope.audit.overlap import Overlaps, overlaps

# Launches looked at together: their columns are Python lists for a moment.
_CHUNK = 1 << 14
# A neighbour that holds less than one SM on average is not worth a word.
_SMALL_NEIGHBOUR = 1.0
_ROUNDING = 1e-3  # of a CTA: shares of SMs are held in 32 bits


@dataclass(frozen=True)
class Assessed:
    """`key_of[i]` is the index into `keys` and `assessments` of launch i."""

    launches: Launches
    keys: tuple[Key, ...]
    key_of: NDArray[np.int32]
    assessments: tuple[Assessment, ...]
    overlaps: Overlaps

    def of_launches(self, value: Callable[[Assessment], float]) -> FloatColumn:
        """A number of the assessment for every launch."""
        return self.of_keys(value)[self.key_of]

    @property
    def duration_ns(self) -> FloatColumn:
        """Durations, 0 for launches without a believable one."""
        return np.maximum(self.launches.duration_ns, 0).astype(np.float64)

    @property
    def time_of_key(self) -> FloatColumn:
        """Time of all launches of each key."""
        return np.bincount(self.key_of, self.duration_ns, len(self.keys)).astype(np.float64)

    def of_keys(self, value: Callable[[Assessment], float]) -> FloatColumn:
        """A number of the assessment for every key."""
        return np.array([value(entry) for entry in self.assessments], np.float64)

    @property
    def has_neighbour(self) -> NDArray[np.bool_]:
        """True for launches beside which another stream held SMs that their own blocks would have used."""
        found = self.overlaps.sms >= _SMALL_NEIGHBOUR
        rows = np.flatnonzero(found)
        found[rows] = self._needs_neighbours_sms(rows)
        return found

    def _needs_neighbours_sms(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        blocks = np.array([key.blocks for key in self.keys], np.float64)[self.key_of[rows]]
        sms = self.of_keys(lambda entry: entry.capacity.sms if entry.can_be_disturbed and entry.capacity else np.nan)
        sms = sms[self.key_of[rows]]
        return blocks > sms - self.overlaps.sms[rows]

    def waves_beside(self) -> FloatColumn:
        """Waves of blocks on the SMs that neighbours leave, whole clusters only; NaN where all are left, or none."""
        shared = np.flatnonzero(self.has_neighbour)
        if not len(shared):
            return np.broadcast_to(np.nan, len(self.launches))
        waves = np.full(len(self.launches), np.nan)
        for row in shared.tolist():
            key, entry = self.keys[self.key_of[row]], self.assessments[self.key_of[row]]
            if entry.capacity:
                group = entry.tiling.group if entry.tiling else 1
                room, held = entry.capacity, float(self.overlaps.sms[row])
                left = int(room.ctas * max(0.0, room.sms - held) / room.sms + _ROUNDING) // group * group
                waves[row] = key.blocks / left if left else np.nan
        return waves


def assess_launches(launches: Launches) -> Assessed:
    """Assess every launch of a profile."""
    keys, key_of = keys_of(launches)
    devices = {device.index: device for device in launches.devices}
    first = [assess(key, devices.get(key.device)) for key in keys]
    seen = _seen_clusters(keys, first)
    found = tuple(
        assess(key, devices.get(key.device), seen[where]) if (where := _where(key, entry)) in seen else entry
        for key, entry in zip(keys, first, strict=True)
    )
    return Assessed(launches, keys, key_of, found, overlaps(launches, _taken(launches, keys, key_of, found, devices)))


def keys_of(launches: Launches) -> tuple[tuple[Key, ...], NDArray[np.int32]]:
    """The distinct keys in order of first appearance, and the index of each launch's."""
    index: dict[tuple[object, ...], int] = {}
    first: list[int] = []  # the first launch of each key
    key_of: NDArray[np.int32] = np.empty(len(launches), np.int32)
    columns = [getattr(launches, field.name) for field in fields(Key)]
    objects = [column for column in columns if column.dtype == object]
    integers = [column for column in columns if column.dtype != object]
    for begin in range(0, len(launches), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        numbers = np.ascontiguousarray(np.column_stack([column[part] for column in integers]))
        rows = numbers.view(f"V{numbers.shape[1] * numbers.itemsize}").ravel().tolist()  # one bytes object a launch
        for at, row in enumerate(zip(rows, *(column[part].tolist() for column in objects), strict=True), begin):
            known = index.get(row)
            if known is None:
                known = index[row] = len(first)
                first.append(at)
            key_of[at] = known
    return tuple(_key(launches, row) for row in first), key_of


def _key(launches: Launches, row: int) -> Key:
    values = {field.name: getattr(launches, field.name)[row] for field in fields(Key)}
    return Key(**{name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    """A number or a tuple of numbers instead of numpy's."""
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value.item() if isinstance(value, np.generic) else value


def _where(key: Key, entry: Assessment) -> tuple[int, int, int]:
    """What launches share that compete for the same clusters: device, part of it, cluster size."""
    return key.device, key.context_sms, entry.tiling.group if entry.tiling else 1


def _seen_clusters(keys: tuple[Key, ...], found: list[Assessment]) -> dict[tuple[int, int, int], int]:
    """The most clusters that kernels with more work than clusters launched, by device and cluster size."""
    seen: dict[tuple[int, int, int], int] = {}
    for key, entry in zip(keys, found, strict=True):
        if entry.verdict == "persistent, hidden tiles" and entry.tiling and entry.tiling.group > 1:
            where = _where(key, entry)
            seen[where] = max(seen.get(where, 0), key.blocks // entry.tiling.group)
    return seen


def _taken(
    launches: Launches,
    keys: tuple[Key, ...],
    key_of: NDArray[np.int32],
    found: tuple[Assessment, ...],
    devices: dict[int, ProfiledDevice],
) -> Callable[[int, int], int]:
    """How many SMs one launch takes from another; see overlap.Taken."""
    held: dict[tuple[int, int], int] = {}

    def by_key(other: int, one: int) -> int:
        device = devices.get(keys[one].device)
        sms, _ = sms_of(keys[one], device)
        if sms == 0 or keys[other].blocks == 0 or device is None or _fit_together(keys[other], keys[one], device, sms):
            return 0
        return min(keys[other].blocks, sms)

    def taken(other: int, one: int) -> int:
        key, room = keys[key_of[one]], found[key_of[one]].capacity
        at_once = room.ctas if room else sms_of(key, devices.get(key.device))[0]
        if key.blocks <= at_once and launches.start_ns[other] > launches.start_ns[one]:
            return 0  # all its blocks were there before the other came
        pair = (int(key_of[other]), int(key_of[one]))
        if pair not in held:
            held[pair] = by_key(*pair)
        return held[pair]

    return taken


def _fit_together(a: Key, b: Key, device: ProfiledDevice, sms: int) -> bool:
    """True where one CTA of each fits on the same SM by threads, registers and shared memory."""
    limits = machine(device, sms)
    needs = [(_threads(key.block), key.registers, key.shared_bytes) for key in (a, b)]
    if limits is None or any(min(need) < 0 or need[0] == 0 for need in needs):
        return False
    reserved = limits.shared_reserved_per_block
    return (
        sum(threads for threads, _, _ in needs) <= limits.threads_per_sm
        and sum(threads * registers for threads, registers, _ in needs) <= limits.registers_per_sm
        and sum(shared + reserved for _, _, shared in needs) <= limits.shared_per_sm
    )


def _threads(block: Triple) -> int:
    x, y, z = block
    return x * y * z if min(block) > 0 else 0


def estimated_activity(assessed: Assessed) -> FloatColumn:
    """SM activity (average / maximum) of every launch, NaN where not assessed; for a launch alone on the GPU."""
    fill, math_ns, rounds = (
        assessed.of_keys(value)
        for value in (lambda entry: entry.fill, lambda entry: entry.math_ns, lambda entry: entry.rounds)
    )
    estimate = np.empty(len(assessed.launches))
    for part, key_of in _parts(assessed):
        duration = assessed.launches.duration_ns[part]
        share = math_share(math_ns[key_of], duration, fill[key_of])
        estimate[part] = activity(fill[key_of], rounds[key_of], share)
    return estimate


def _parts(assessed: Assessed) -> Iterator[tuple[slice, NDArray[np.int32]]]:
    """The launches in parts, so that intermediate columns stay small: where, and the keys there."""
    for begin in range(0, len(assessed.launches), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        yield part, assessed.key_of[part]


def measured_activity(assessed: Assessed) -> FloatColumn:
    """SM activity by counters, NaN where there are none.

    Average / maximum as estimated_activity has it; where a profile lacks the maximum, average
    / elapsed cycles, which the time before the first block and after the last makes smaller.
    """
    table = assessed.launches
    return np.where(np.isnan(table.sm_active_avg_over_max), table.sm_active_share, table.sm_active_avg_over_max)


def lost_ns(assessed: Assessed) -> tuple[FloatColumn, FloatColumn]:
    """Idle SM time of every launch as a part of its duration, least and most; 0 where not assessed.

    Least: units take equal times, and an SM is as fast with one CTA as with several.  Most:
    units drift apart as the model of activity has it, or CTAs keep their pace however many
    share an SM, or blocks that a neighbour displaced need waves of their own.
    """
    fill, place_fill = assessed.of_keys(lambda entry: entry.fill), assessed.of_keys(lambda entry: entry.place_fill)
    waves = assessed.of_keys(lambda entry: entry.waves)
    beside = assessed.waves_beside()
    low, high = np.empty(len(assessed.launches)), estimated_activity(assessed)
    for part, key_of in _parts(assessed):
        duration = np.maximum(assessed.launches.duration_ns[part], 0)
        most = 1 - np.minimum(high[part], place_fill[key_of])
        most = np.fmax(most, 1 - np.ceil(waves[key_of]) / np.ceil(beside[part]))
        low[part] = np.nan_to_num((1 - fill[key_of]) * duration)
        high[part] = np.nan_to_num(most * duration)
    return low, high
