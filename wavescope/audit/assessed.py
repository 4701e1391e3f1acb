"""The launches of one profile with what was worked out for each: one assessment a kind of launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

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
        return np.array([value(entry) for entry in self.assessments], np.float64)[self.key_of]

    @property
    def duration_ns(self) -> FloatColumn:
        """Durations, 0 for launches without a believable one."""
        return np.maximum(self.launches.duration_ns, 0).astype(np.float64)

    @property
    def has_neighbour(self) -> NDArray[np.bool_]:
        """True for launches beside which another stream held SMs that their own blocks would have used."""
        blocks = np.array([key.blocks for key in self.keys], np.float64)[self.key_of]
        sms = self.of_launches(lambda entry: entry.capacity.sms if entry.capacity else np.nan)
        return (self.overlaps.sms >= _SMALL_NEIGHBOUR) & (blocks > sms - self.overlaps.sms)

    def waves_beside(self) -> FloatColumn:
        """Waves of blocks on the SMs that neighbours leave, whole clusters only; NaN where all are left, or none."""
        shared = np.flatnonzero(self.has_neighbour)
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
    key_of: NDArray[np.int32] = np.empty(len(launches), np.int32)
    columns = [field.name for field in fields(Key)]
    for begin in range(0, len(launches), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        parts = []
        for name in columns:
            values = getattr(launches, name)[part]
            parts.append([*map(tuple, values.tolist())] if values.ndim == 2 else values.tolist())
        key_of[part] = [index.setdefault(row, len(index)) for row in zip(*parts, strict=True)]
    return tuple(Key(*row) for row in index), key_of  # type: ignore[arg-type]


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
    fill = assessed.of_launches(lambda entry: entry.fill)
    share = math_share(assessed.of_launches(lambda entry: entry.math_ns), assessed.duration_ns, fill)
    return activity(fill, assessed.of_launches(lambda entry: entry.rounds), share)


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
    fill = assessed.of_launches(lambda entry: entry.fill)
    place_fill = assessed.of_launches(lambda entry: entry.place_fill)
    most = 1 - np.minimum(estimated_activity(assessed), place_fill)
    waves = assessed.of_launches(lambda entry: entry.waves)
    most = np.fmax(most, 1 - np.ceil(waves) / np.ceil(assessed.waves_beside()))
    duration = assessed.duration_ns
    return np.nan_to_num((1 - fill) * duration), np.nan_to_num(most * duration)
