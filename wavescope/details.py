"""Findings about one launch that a report gives only when asked: clocks, dispatch, company, spread."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from wavescope import observations
from wavescope.clocks import Clocks, clocks
from wavescope.co_residency import CoResidency, co_residency
from wavescope.dispatch import Dispatch, dispatch
from wavescope.spread import Spread, spread
from wavescope.trace import Trace

DETAILS = ("clocks", "dispatch", "spread")


@dataclass(frozen=True)
class Details:
    """What was `asked` for, of DETAILS; the rest is None.

    `company` belongs to dispatch; it is None too where no SM held two CTAs, and `clocks`
    where the spans carry none.  `sentences` say what each found, by its field's name.
    """

    asked: tuple[str, ...] = ()
    clocks: Clocks | None = None
    dispatch: Dispatch | None = None
    company: CoResidency | None = None
    spread: Spread | None = None
    sentences: dict[str, tuple[str, ...]] = field(default_factory=dict)


def details(trace: Trace, launch_id: int | None, asked: Collection[str]) -> Details:
    """The findings asked for about one launch.

    Raises: as `analyze` for the launch.
    """
    found = Details(
        asked=tuple(name for name in DETAILS if name in asked),
        clocks=clocks(trace, launch_id) if "clocks" in asked else None,
        dispatch=dispatch(trace, launch_id) if "dispatch" in asked else None,
        company=co_residency(trace, launch_id) if "dispatch" in asked else None,
        spread=spread(trace, launch_id) if "spread" in asked else None,
    )
    return replace(found, sentences=_sentences(found))


def _sentences(found: Details) -> dict[str, tuple[str, ...]]:
    said = {}
    if found.clocks:
        said["clocks"] = observations.of_clocks(found.clocks)
    if found.dispatch:
        said["dispatch"] = observations.of_dispatch(found.dispatch)
    if found.company:
        said["company"] = observations.of_company(found.company)
    if found.spread:
        said["spread"] = observations.of_spread(found.spread)
    return said
