"""How a problem is to be run: a schedule, its number, the order of its tiles and how partial sums meet.

Written as `schedule[:number][@raster][@lpt][@atomic]`: `fixed`, `splitk:4`,
`persistent@grouped16`, `dynamic@lpt`, `streamk:96@atomic`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches

from wavescope.errors import UsageError
from wavescope.grid_model import UNCALIBRATED, GridModel
from wavescope.problem import Problem, Tile
from wavescope.raster import DEFAULT_RASTER, Raster
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES, Schedule, check_work, decompose
from wavescope.trace import Launch, Order, Reduction
from wavescope.work import Work, work_of

_MOST_DIGITS = 9  # of a schedule's number


@dataclass(frozen=True)
class Variant:
    """A schedule with its options; `parts` None: the grid-size model chooses.

    `reduction` says how the partial sums of a tile meet: `ordered`, in the order of k (or from
    the last to the first), the same bits every time; `atomic`, in the order in which they come.
    `order` is that of the tiles: as the raster walks them, or, where their work is irregular,
    the longest first (`lpt`: longest processing time first).

    Raises: UsageError for a word that is unknown, or that the schedule does not take.
    """

    schedule: str
    parts: int | None = None
    raster: Raster = DEFAULT_RASTER
    reduction: Reduction = "ordered"
    order: Order = "raster"

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            close = get_close_matches(self.schedule.lower(), SCHEDULES, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f'schedule "{self.schedule}" is unknown; use one of {", ".join(SCHEDULES)}{hint}')
        if self.parts is not None and self.schedule not in SPLIT_SCHEDULES:
            takers = ", ".join(f"{name} ({meaning})" for name, meaning in SPLIT_SCHEDULES.items())
            raise UsageError(f"{self.schedule}:{self.parts}: {self.schedule} takes no number; these do: {takers}")
        if self.reduction == "atomic" and self.schedule not in SPLIT_SCHEDULES:
            raise UsageError(f"{self.schedule}@atomic: only {', '.join(SPLIT_SCHEDULES)} have partial sums to add")
        if self.order == "lpt" and self.schedule in SPLIT_SCHEDULES:
            raise UsageError(f"{self.schedule}@lpt: only schedules that keep tiles whole put the longest first")

    @classmethod
    def parse(cls, text: str, raster: Raster = DEFAULT_RASTER) -> Variant:
        """Read `schedule[:number][@raster][@lpt][@atomic]`; `raster` where the text names none."""
        name, *options = text.strip().split("@")
        match = re.fullmatch(r"([^:]*)(?::(\d+))?", name, re.ASCII)
        if match is None:
            raise UsageError(
                f'"{text}" is not schedule[:number][@raster][@lpt][@atomic]; write it as in splitk:4@grouped8'
            )
        if len(match[2] or "") > _MOST_DIGITS:
            raise UsageError(f'"{text[:40]}": no problem has so many k_iters or CTAs; write it as in splitk:4@grouped8')
        reduction: Reduction = "ordered"
        order: Order = "raster"
        if sum(option not in ("atomic", "lpt") for option in options) > 1:
            raise UsageError(f'"{text[:80]}" names several rasters; give one, as in persistent@grouped8')
        for option in options:
            if option == "atomic":
                reduction = "atomic"
            elif option == "lpt":
                order = "lpt"
            else:
                raster = Raster(option)
        return cls(match[1], None if match[2] is None else int(match[2]), raster, reduction, order)

    @classmethod
    def of(cls, launch: Launch) -> Variant:
        """How a recorded launch was run.

        Raises: UsageError where its kernel is not wavescope's own.
        """
        if launch.schedule is None or launch.raster is None:
            raise UsageError(f"launch {launch.launch_id} of {launch.kernel} names no schedule of wavescope's")
        parts = launch.parts if launch.schedule in SPLIT_SCHEDULES else None
        return cls(launch.schedule, parts, Raster(launch.raster), launch.reduction, launch.order)

    def check_work(self, work: Work | None) -> None:
        """Pass where this can run on such work; raises as schedule.check_work."""
        check_work(self.schedule, work, self.order)

    def decompose(
        self,
        problem: Problem,
        tile: Tile,
        places: int,
        model: GridModel = UNCALIBRATED,
        work: Work | None = None,
        cluster: int = 1,
        ctas: int | None = None,
    ) -> Schedule:
        """The schedule of a problem, of irregular `work` or of whole sums; raises as schedule.decompose."""
        return decompose(
            self.schedule, problem, tile, places, self.raster, self.parts, model, work, self.order, cluster, ctas
        )

    def __str__(self) -> str:
        number = "" if self.parts is None else f":{self.parts}"
        raster = "" if self.raster == DEFAULT_RASTER else f"@{self.raster.name}"
        options = f"{'@lpt' if self.order == 'lpt' else ''}{'@atomic' if self.reduction == 'atomic' else ''}"
        return f"{self.schedule}{number}{raster}{options}"


def schedule_of(launch: Launch) -> Schedule:
    """What a recorded launch had to run.

    Raises: UsageError where its kernel is not wavescope's own.
    """
    variant = Variant.of(launch)
    if launch.problem is None or launch.tile is None:
        raise UsageError(f"launch {launch.launch_id} of {launch.kernel} names no problem and tile")
    schedule = variant.decompose(
        launch.problem, launch.tile, launch.places, work=work_of(launch), cluster=launch.cluster, ctas=launch.grid
    )
    return replace(schedule, reducers=launch.reducers)
