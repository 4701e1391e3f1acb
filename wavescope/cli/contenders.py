"""The words of `wavescope compare`: who is compared, and of which problem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from wavescope.cli.options import AUTO, is_auto
from wavescope.comparison import LIBRARY
from wavescope.errors import UsageError
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES
from wavescope.variant import Variant

ALL = "all"
# What all stands for where tiles have unequal k: schedules that keep them whole, and both orders.
OF_IRREGULAR_WORK = (*(name for name in SCHEDULES if name not in SPLIT_SCHEDULES), "persistent@lpt", "dynamic@lpt")
BETWEEN = ("vs", "vs.", "versus")  # words that stand between contenders and mean nothing
EXAMPLE = "wavescope compare fixed vs streamk --m 2304 --n 2304 --k 4096"
_PROBLEM = re.compile(r"\d+(x\d+)+", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class Lineup:
    """Who takes part, in the order of the words: `names` of all, `variants` without the `library`.

    None among the variants stands for the one that is still to be chosen (AUTO).
    """

    names: tuple[str, ...]
    variants: tuple[Variant | None, ...]
    library: bool

    @property
    def own_names(self) -> tuple[str, ...]:
        """Those of the variants."""
        return tuple(name for name in self.names if name != LIBRARY)


def contenders(words: Sequence[str], irregular: bool = False, can_run: Sequence[str] = SCHEDULES) -> Lineup:
    """Read the words; `all` stands for every schedule that no other word names (with `irregular` work: that can do it).

    `can_run`: the schedules of the kernel, which `all` keeps to.

    Raises: UsageError for a word that is no contender, one that comes twice, and fewer
    than two contenders.
    """
    found: dict[str, Variant | None] = {}
    asked = [word for word in words if word.strip().lower() not in BETWEEN]
    if not any(word.strip() for word in asked):
        raise UsageError(f"no schedules to compare; name two, as in '{EXAMPLE}'")
    for word in asked:
        if word.strip().lower() != ALL:
            variant = _contender(word)
            name = str(variant) if variant else AUTO if is_auto(word) else LIBRARY
            if name in found:
                raise UsageError(f"{name} is named twice; a comparison needs different contenders")
            found[name] = variant
    if len(asked) - len(found) > 1:
        raise UsageError(f"{ALL} is named twice; once stands for every schedule")
    every = OF_IRREGULAR_WORK if irregular else SCHEDULES
    found = _in_order(asked, found, [name for name in every if name.partition("@")[0] in can_run])
    if len(found) < 2:
        (name,) = found
        raise UsageError(f"{name} alone is no comparison; name a second contender, as in '{EXAMPLE}'")
    own = tuple(variant for name, variant in found.items() if name != LIBRARY)
    return Lineup(tuple(found), own, LIBRARY in found)


def _in_order(
    asked: Sequence[str], named: dict[str, Variant | None], every: Sequence[str]
) -> dict[str, Variant | None]:
    """The named contenders with `all`, which is `every`, in its place."""
    ordered: dict[str, Variant | None] = {}
    rest = iter(named.items())
    for word in asked:
        if word.strip().lower() == ALL:
            ordered |= {name: Variant.parse(name) for name in every if name not in named}
        else:
            ordered.update([next(rest)])
    return ordered


def _contender(word: str) -> Variant | None:
    """The variant that a word names, None for the library and for auto."""
    if is_auto(word):
        return None
    text = word.strip()
    name = re.split("[:@]", text)[0]
    if name.lower() == LIBRARY:
        if text.lower() != LIBRARY:
            raise UsageError(f'"{word}": {LIBRARY} takes no options; it chooses its own kernel')
        return None
    if _PROBLEM.fullmatch(text):
        raise UsageError(
            f'"{word}" is a problem, not a schedule; all contenders compute the one that --m, --n and --k give, '
            "so compare once for each problem"
        )
    if name not in SCHEDULES:
        known = (*SCHEDULES, AUTO, LIBRARY, ALL)
        close = get_close_matches(name.lower(), known, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f'"{word}" is no schedule to compare; use {", ".join(known[:-1])} or {known[-1]}{hint}')
    return Variant.parse(text)


def one_value(option: str, values: Sequence[str]) -> str:
    """The value of a size that is to be given once.

    Raises: UsageError where it is missing, or comes with several values: a comparison has one problem.
    """
    if not values:
        raise UsageError(f"missing option '{option}'; name the problem by --m, --n and --k, as in '{EXAMPLE}'")
    given = list(dict.fromkeys(value.strip() for value in values))
    if len(given) > 1:
        raise UsageError(
            f"{option} is given as {' and as '.join(given)}: these are different problems; compare once for each"
        )
    return given[0]
