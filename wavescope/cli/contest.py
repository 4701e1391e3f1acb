"""The contenders of `wavescope compare`, run on its device; what was left to choose is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wavescope.cli.contenders import Lineup
    from wavescope.cli.target import Target
    from wavescope.comparison import Comparison, Entry
    from wavescope.problem import Problem, Tile
    from wavescope.timing import Regime
    from wavescope.work import Work


class Timed(NamedTuple):
    """How contenders are run: regimes, rounds and seconds of a GPU's timing.

    `most_ctas` None: as many as fit; `work` None: every tile sums over all of k; `kernel`:
    its name, None for the best that can.
    """

    regimes: tuple[str, ...]
    repeat: int
    seconds: float
    most_ctas: int | None
    seed: int
    work: Work | None
    kernel: str | None


def run(problem: Problem, tile: Tile | None, any_tile: bool, lineup: Lineup, target: Target, how: Timed) -> Comparison:
    """The comparison on the target, in the order of the command's words; what was left to choose is chosen."""
    from dataclasses import replace

    from wavescope.comparison import arranged, entries
    from wavescope.kernels import default_tile

    tile = tile or default_tile(problem, target.device, how.kernel)
    given = tuple(variant for variant in lineup.variants if variant is not None)
    if len(given) == len(lineup.variants) and not any_tile:
        return arranged(timed(problem, entries(given, tile, how.kernel), lineup.library, target, how), lineup.names)
    from wavescope.auto import rank
    from wavescope.cli.console import note

    ranking = rank(
        problem,
        target.device,
        kernel=how.kernel,
        tiles=() if any_tile else (tile,),
        variants=given if len(given) == len(lineup.variants) else (),
        most_ctas=how.most_ctas,
        seed=how.seed,
        work=how.work,
    )
    best = ranking.best
    if target.cuda_index is not None:
        note(str(ranking))
    variants = tuple(variant or best.variant for variant in lineup.variants)
    found = timed(problem, entries(variants, best.tile, best.kernel), lineup.library, target, how)
    named = [
        replace(one, name=name, notes=(*one.notes, str(ranking)) if any_tile or variant is None else one.notes)
        for one, name, variant in zip(found.contenders, lineup.own_names, lineup.variants, strict=False)
    ]
    found = replace(found, contenders=(*named, *found.contenders[len(named) :]))
    return arranged(found, lineup.names)


def timed(problem: Problem, entries: Sequence[Entry], library: bool, target: Target, how: Timed) -> Comparison:
    """The contenders, measured or simulated; the library last."""
    from wavescope.cli.console import note

    if target.cuda_index is None:
        from wavescope.virtual_comparison import virtual_comparison

        return virtual_comparison(
            problem,
            entries,
            target.device,
            reason=target.reason,
            seed=how.seed,
            library=library,
            most_ctas=how.most_ctas,
            work=how.work,
        )
    from wavescope.duel import duel

    return duel(
        problem,
        entries,
        target.cuda_index,
        library=library,
        regimes=cast("Sequence[Regime]", how.regimes),
        repeat=how.repeat,
        seconds=how.seconds,
        most_ctas=how.most_ctas,
        seed=how.seed,
        progress=note,
        work=how.work,
    )
