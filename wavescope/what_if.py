"""What if: a recorded launch re-scheduled with its own unit costs, on other SMs, by another schedule or tile."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NamedTuple, NoReturn

from wavescope.analyze import analyze
from wavescope.calibrate import each_launch
from wavescope.calibration_row import Calibration
from wavescope.device import Device
from wavescope.errors import ShapeError, UsageError
from wavescope.job_costs import costs_used
from wavescope.own_costs import OwnCosts, costs_of_tile, own_costs
from wavescope.problem import Tile
from wavescope.raster import Raster
from wavescope.replay import replay
from wavescope.schedule import Schedule
from wavescope.simulate import past_l2
from wavescope.states import launch_of
from wavescope.trace import Launch, Trace
from wavescope.trace_metadata import MAX_SMS
from wavescope.variant import Variant, schedule_of
from wavescope.virtual import MAX_SIMULATED_UNITS
from wavescope.wave_report import WaveReport

KEYS = ("sms", "schedule", "tile")
NOT_IN_IT = (
    "Not in the estimates: memory bandwidth and L2, which stay as they are whatever the number of SMs, and the clock "
    "that another power draw would bring, save that of SMs left out, which count as idle."
)


@dataclass(frozen=True)
class Change:
    """One question: what is to be different; None: as recorded.  `schedule` as Variant.parse takes it."""

    text: str
    sms: int | None = None
    schedule: str | None = None
    tile: Tile | None = None

    @classmethod
    def parse(cls, text: str) -> Change:
        """Read 'sms=108', 'schedule=hybrid', 'tile=128x128x64', or several of them with commas between.

        Raises: UsageError naming the key or the value.
        """
        found: dict[str, str] = {}
        for part in text.split(","):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if key not in KEYS:
                close = get_close_matches(key.lower(), KEYS, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                _refuse(text, f'"{key}" is unknown; use {", ".join(f"{known}=.." for known in KEYS)}{hint}')
            if not equals or not value:
                _refuse(text, f"{key} has no value; write it as in sms=108, schedule=hybrid or tile=128x128x64")
            if key in found:
                _refuse(text, f"{key} is there twice; ask twice instead (--what-if may be repeated)")
            found[key] = value
        sms = found.get("sms")
        if sms is not None and not (re.fullmatch(r"\d{1,6}", sms, re.ASCII) and 1 <= int(sms) <= MAX_SMS):
            _refuse(text, f'sms: "{sms}" is not a number from 1 to {MAX_SMS}')
        if "schedule" in found:
            Variant.parse(found["schedule"])
        return cls(
            ",".join(f"{key}={value}" for key, value in found.items()),
            None if sms is None else int(sms),
            found.get("schedule"),
            Tile.parse(found["tile"]) if "tile" in found else None,
        )


def _refuse(text: str, what: str) -> NoReturn:
    raise UsageError(f"--what-if {text[:80]}: {what}")


@dataclass(frozen=True)
class Outcome:
    """One line of the comparison: the launch as recorded, the same simulated, or changed and simulated.

    `runs` says what is scheduled; shares are of SMs x time, `met_share` that of partial
    sums and of waiting for them; `bound` is that of perfect balance.
    """

    what: str
    source: str
    runs: str
    sms: int
    schedule: str
    tile: Tile
    duration_ns: float
    to_recorded: float
    not_idle_share: float
    tail_share: float
    met_share: float
    bound: float


@dataclass(frozen=True)
class WhatIf:
    """The launch as recorded, simulated again with its own costs, then each change; and what they rest on."""

    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]


def what_if(trace: Trace, launch_id: int | None, changes: Sequence[Change]) -> WhatIf:
    """Predict what the changes would make of a launch.

    Raises: UsageError for a launch whose kernel is not wavescope's own, and for a schedule
    or tile that does not go; ShapeError; DeviceError for a tile that does not fit.
    """
    launch = launch_of(trace, launch_id)
    if launch.schedule is None or launch.problem is None or launch.tile is None:
        raise UsageError(
            f"--what-if: launch {launch.launch_id} of {launch.kernel} does not say which units it ran; "
            "only launches of wavescope's own kernels can be re-scheduled"
        )
    if launch.work is not None:
        raise UsageError(f"--what-if: launch {launch.launch_id} did {launch.work}; irregular work is not re-scheduled")
    alone = next(one for one in each_launch([trace]) if one.launches[0] == launch)
    own = own_costs(alone)
    report = analyze(alone)
    outcomes = [_outcome("as recorded", launch.source, launch, launch.schedule, report, report.budget.duration_ns)]
    notes, used = [], set[str]()
    for change in (Change("as recorded"), *changes):
        try:
            plan = _planned(alone, own, change)
        except (UsageError, ShapeError) as error:
            if "--what-if" in str(error) or change.text == "as recorded":
                raise
            raise type(error)(f"--what-if {change.text}: {error}") from error
        again = analyze(replay(plan.launch, plan.schedule, plan.device, plan.costs))
        in_words = plan.schedule.in_words
        outcomes.append(_outcome(change.text, "estimated", plan.launch, in_words, again, report.budget.duration_ns))
        notes += [note for note in plan.notes if note not in notes]
        used |= costs_used(plan.schedule) if plan.launch.tile == launch.tile else set()
    return WhatIf(tuple(outcomes), (*_origins(own, used), *notes, NOT_IN_IT))


def _origins(own: OwnCosts, used: Collection[str]) -> list[str]:
    """Where the costs of the launch's own tile are from."""
    notes = ["Estimated from what this launch's units cost, scheduled again; 'as recorded, estimated' tells how well."]
    taken = sorted(own.taken & set(used))
    if taken:
        scaled = "" if own.installed.exact else " (scaled, an estimate)"
        notes.append(
            f"Not shown by this launch, so from the calibration of {own.installed.name}{scaled}: {', '.join(taken)}."
        )
    estimated = [name for name in own.costs.estimated if name in used]
    if estimated:
        notes.append(_estimated_note(own.costs, estimated))
    return notes


def _estimated_note(costs: Calibration, names: Sequence[str]) -> str:
    return f"No recorded launch of tile {costs.tile} shows these, so they follow from its size: {', '.join(names)}."


class _Plan(NamedTuple):
    """What is to be simulated for a change, and what is to be said of it."""

    launch: Launch
    schedule: Schedule
    device: Device
    costs: Calibration
    notes: tuple[str, ...]


def _planned(trace: Trace, own: OwnCosts, change: Change) -> _Plan:
    launch, costs, notes = trace.launches[0], own.costs, list[str]()
    if change.tile is not None and change.tile != launch.tile:
        launch, costs, origin = costs_of_tile(own, launch, change.tile, trace)
        notes.append(origin)
    device = trace.device if change.sms is None else replace(trace.device, sms=change.sms)
    if device.sms < trace.device.sms:
        costs = _beside_idle(costs, 1 - device.sms / trace.device.sms)
    is_changed = change.sms is not None or launch is not trace.launches[0]
    places = device.sms * launch.ctas_per_sm if is_changed else launch.places
    variant = _variant(trace.launches[0], change, places)
    assert launch.problem is not None
    assert launch.tile is not None
    if is_changed or change.schedule is not None:
        try:
            schedule = variant.decompose(launch.problem, launch.tile, places, costs.grid_model)
        except ShapeError:
            if change.schedule is not None or variant.parts is None:
                raise
            variant = replace(variant, parts=None)  # nobody asked for this number with these tiles and places
            schedule = variant.decompose(launch.problem, launch.tile, places, costs.grid_model)
    else:
        schedule = schedule_of(launch)
    if schedule.num_units > MAX_SIMULATED_UNITS:
        raise ShapeError(
            f"--what-if {change.text}: {schedule.num_units} units are more than the {MAX_SIMULATED_UNITS} that are "
            "simulated; ask for a larger tile"
        )
    estimated = [name for name in costs.estimated if name in costs_used(schedule)]
    if estimated and launch.tile != trace.launches[0].tile:
        notes.append(_estimated_note(costs, estimated))
    if "stream_slowdown" in costs.unseen and "stream_slowdown" in costs_used(schedule):
        notes.append(f"{change.text}: k_iters of staggered shares take longer, by how much is not known: left out.")
    if said := past_l2(schedule, device):
        notes.append(f"{change.text}: {said}.")
    if "edge_slowdown" in costs.unseen and "edge_slowdown" in costs_used(schedule):
        notes.append(
            f"{change.text}: k_iters of tiles at the edge of C take longer, by how much is not known: left out."
        )
    launch = replace(launch, schedule=variant.schedule, reduction=variant.reduction, places=places)
    return _Plan(launch, schedule, device, costs, tuple(notes))


def _beside_idle(costs: Calibration, share: float) -> Calibration:
    """The costs on the other SMs when that share of them is idle: clock and k_iters as both change with idle SMs."""
    still = 1 - costs.idle_gain * share
    return replace(
        costs,
        clock_mhz=costs.clock_mhz + (costs.idle_clock_mhz - costs.clock_mhz) * share,
        cycles_per_k_iter=costs.cycles_per_k_iter * still,
        idle_gain=costs.idle_gain * (1 - share) / still,
    )


def _variant(launch: Launch, change: Change, places: int) -> Variant:
    """The schedule asked for, else the recorded one, whose number goes along where it was a matter of the places."""
    if change.schedule is not None:
        return Variant.parse(change.schedule, Raster(launch.raster or "grouped8"))
    variant = Variant.of(launch)
    if places == launch.places or variant.schedule not in ("streamk", "tailsplit"):
        return variant
    if variant.schedule == "streamk" and launch.parts == launch.places:
        return replace(variant, parts=places)
    return replace(variant, parts=None)


def _outcome(what: str, source: str, launch: Launch, runs: str, report: WaveReport, recorded_ns: float) -> Outcome:
    assert launch.tile is not None
    budget = report.budget
    return Outcome(
        what=what,
        source=source,
        runs=runs,
        sms=budget.sms,
        schedule=report.launch.schedule or "",
        tile=launch.tile,
        duration_ns=float(budget.duration_ns),
        to_recorded=budget.duration_ns / recorded_ns,
        not_idle_share=budget.not_idle.value / budget.total_ns,
        tail_share=budget.share("tail"),
        met_share=budget.share("fixup") + budget.share("wait"),
        bound=report.bound.value,
    )
