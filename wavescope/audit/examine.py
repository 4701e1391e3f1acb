"""Examine: profiles in, the whole audit out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wavescope.audit.assessed import Assessed, assess_launches
from wavescope.audit.capacity import FROM_DIVISION
from wavescope.audit.counters import with_counters
from wavescope.audit.groups import By, Group, groups
from wavescope.audit.launches import Launches, ProfiledDevice
from wavescope.audit.read import read
from wavescope.audit.source import Progress
from wavescope.audit.totals import Totals, totals
from wavescope.device import Device
from wavescope.errors import NoKernels


@dataclass(frozen=True)
class Audit:
    """What is known of the kernels of one or several profiles (the ranks of one program, say).

    `groups` are ranked, most time lost first.  `per_profile` has the totals of each profile
    in the order of `profiles`.  `notes` say what is wrong or missing in the data.
    """

    profiles: tuple[Assessed, ...]
    per_profile: tuple[Totals, ...]
    totals: Totals
    groups: tuple[Group, ...]
    by: By
    notes: tuple[str, ...]


def audit(
    paths: Sequence[str | Path],
    *,
    device: int | None = None,
    by: By = "kernel",
    counters: str | Path | None = None,
    gpu: Device | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Read profiles and assess every launch in them, on `device` only where one is given.

    `counters` is a profile of Nsight Compute of the same launches, whose measured activity
    and clusters are put beside those of the first profile.  `gpu` is taken where a profile
    does not say which GPU it was.

    Raises: InputError for a file that is no profile or cannot be read, NoKernels where there
    is nothing to assess.
    """
    profiles = [read(path, progress=progress) for path in paths]
    if counters is not None:
        profiles[0] = with_counters(profiles[0], read(counters, progress=progress))
    if gpu is not None:
        profiles = [replace(launches, devices=_named(launches, gpu)) for launches in profiles]
    if device is not None:
        profiles = [on_device(launches, device) for launches in profiles]
    return examine(profiles, by)


def examine(profiles: Sequence[Launches], by: By = "kernel") -> Audit:
    """Assess launches that were read before."""
    assessed = tuple(assess_launches(launches) for launches in profiles)
    return Audit(
        profiles=assessed,
        per_profile=tuple(totals([profile]) for profile in assessed),
        totals=totals(assessed),
        groups=groups(assessed, by),
        by=by,
        notes=tuple(note for profile in assessed for note in _notes(profile, many=len(assessed) > 1)),
    )


def _named(launches: Launches, gpu: Device) -> tuple[ProfiledDevice, ...]:
    """The profile's GPUs, those of which it says too little taken to be `gpu`; an SM count it has stays."""
    known = {device.index: device for device in launches.devices}
    found = []
    for index in sorted({*known, *np.unique(launches.device).tolist()}):
        device = known.get(index)
        if device is None or device.sms is None or device.compute_capability is None:
            sms = device.sms if device else None
            device = ProfiledDevice(
                index=index,
                name=gpu.name,
                compute_capability=gpu.compute_capability,
                sms=sms or gpu.sms,
                registers_per_sm=gpu.registers_per_sm,
                shared_per_sm=gpu.shared_per_sm,
                shared_per_block=gpu.shared_per_block,
                threads_per_sm=gpu.threads_per_sm,
                max_clock_mhz=gpu.max_clock_mhz,
                sms_source=device.sms_source if device and sms else "command line",
            )
        found.append(device)
    return tuple(found)


def on_device(launches: Launches, device: int) -> Launches:
    """The launches of one GPU.

    Raises: NoKernels where there are none, with the GPUs that have some.
    """
    rows = np.flatnonzero(launches.device == device)
    if not len(rows):
        there = ", ".join(str(index) for index in np.unique(launches.device).tolist())
        raise NoKernels(f"{launches.path}: no kernels on device {device}; there are some on {there}")
    return select(launches, rows)


def select(launches: Launches, rows: np.ndarray) -> Launches:
    """The launches of these rows."""
    chosen = {name: values[rows] for name, values in vars(launches).items() if isinstance(values, np.ndarray)}
    return replace(launches, **chosen)


def _notes(profile: Assessed, *, many: bool) -> list[str]:
    """What the reader found, what had to be assumed, and who shared the GPU."""
    said = [*profile.launches.notes, *_assumptions(profile), *_sharing(profile)]
    return [f"{Path(profile.launches.path).name}: {note}" for note in said] if many else said


def _assumptions(profile: Assessed) -> list[str]:
    said = []
    for device in profile.launches.devices:
        if device.sms and device.sms_source != "profile":
            said.append(f"device {device.index}: {device.sms} SMs (from: {device.sms_source})")
    used = np.bincount(profile.key_of, minlength=len(profile.keys)).tolist()
    guessed = unsettled = unknown = 0
    for entry, count in zip(profile.assessments, used, strict=True):
        room, cut = entry.capacity, entry.tiling
        unknown += count if room and room.ctas_per_sm is None and entry.is_assessed else 0
        guessed += count if room and room.source == FROM_DIVISION and entry.is_assessed else 0
        unsettled += count if cut and not cut.split_is_known else 0
    if unknown:
        said.append(
            f"how many blocks of {_launches(unknown)} fit on an SM cannot be computed from the profile; taken: one "
            "(--gpu names the GPU where the profile does not)"
        )
    if guessed:
        said.append(
            f"how many clusters of {_launches(guessed)} fit at once is not in the profile; estimated as SMs / cluster "
            "size, though GPCs of unequal size hold fewer"
        )
    if unsettled:
        said.append(
            f"the number of splits along k of {_launches(unsettled)} is not in the profile; taken: the one, up to 4, "
            "that fills the rounds best"
        )
    return said


def _sharing(profile: Assessed) -> list[str]:
    count = int(profile.has_neighbour.sum())
    if not count:
        return []
    time = float(profile.duration_ns[profile.has_neighbour].sum())
    return [
        f"{_launches(count)}, {time / 1e6:.3f} ms, shared the GPU with a kernel of another stream that left less than "
        "all SMs; estimates are for the kernel alone"
    ]


def _launches(count: int) -> str:
    return "1 launch" if count == 1 else f"{count:,} launches"
