"""Findings about one launch that a report gives only when asked: clocks, dispatch, co-residency, spread, what if."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from wavescope import observations
from wavescope.clocks import Clocks, clocks
from wavescope.co_residency import CoResidency, co_residency
from wavescope.dispatch import Dispatch, dispatch
from wavescope.spread import Spread, spread
from wavescope.states import launch_of
from wavescope.trace import Trace
from wavescope.what_if import Change, WhatIf, what_if

DETAILS = ("clocks", "dispatch", "spread")
SIMULATED = "SIMULATED: this is what the virtual device's model does; no hardware was observed."


@dataclass(frozen=True)
class Details:
    """What was `asked` for, of DETAILS; the rest is None.

    `co_residency` belongs to dispatch; it is None too where no SM held two CTAs, and `clocks`
    where the spans carry none.  `what_if` is None where no change was asked for.
    `sentences` say what each found, by its field's name.
    """

    asked: tuple[str, ...] = ()
    clocks: Clocks | None = None
    dispatch: Dispatch | None = None
    co_residency: CoResidency | None = None
    spread: Spread | None = None
    what_if: WhatIf | None = None
    sentences: dict[str, tuple[str, ...]] = field(default_factory=dict)


def details(trace: Trace, launch_id: int | None, asked: Collection[str], changes: Sequence[Change] = ()) -> Details:
    """The findings asked for about one launch, and what the changes would make of it.

    Raises: as `analyze` for the launch, and as `what_if`.
    """
    found = Details(
        asked=tuple(name for name in DETAILS if name in asked),
        clocks=clocks(trace, launch_id) if "clocks" in asked else None,
        dispatch=dispatch(trace, launch_id) if "dispatch" in asked else None,
        co_residency=co_residency(trace, launch_id) if "dispatch" in asked else None,
        spread=spread(trace, launch_id) if "spread" in asked else None,
        what_if=what_if(trace, launch_id, changes) if changes else None,
    )
    said = _sentences(found)
    if launch_of(trace, launch_id).source == "simulated":
        said = {name: (SIMULATED, *sentences) for name, sentences in said.items()}
    return replace(found, sentences=said)


def _sentences(found: Details) -> dict[str, tuple[str, ...]]:
    said = {}
    if found.clocks:
        said["clocks"] = observations.of_clocks(found.clocks)
    if found.dispatch:
        said["dispatch"] = observations.of_dispatch(found.dispatch)
    if found.co_residency:
        said["co_residency"] = observations.of_co_residency(found.co_residency)
    if found.spread:
        said["spread"] = observations.of_spread(found.spread)
    if found.what_if:
        said["what_if"] = found.what_if.notes
    return said
