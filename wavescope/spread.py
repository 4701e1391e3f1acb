"""Where do slow units come from?  Unit lengths by wave, clock domain, SM, tile and reuse distance.

In cycles and in ns: what shows in ns alone is the clock, what shows in cycles is the
work, its memory traffic above all.  A factor is named only where shuffled lengths explain
as much less often than 5 % over all factors tried (Holm).  Factors overlap, since the
first wave binds SMs to tiles: a factor that explains is where slow units are, not why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wavescope.clock_domains import ClockDomains, domains_of_spans
from wavescope.coarse_timer import launch_spans
from wavescope.neighbours import older_neighbours, shares_of, timeline_of
from wavescope.permutation import PERMUTATIONS, Effect, centred, effect_of, holm, shuffles
from wavescope.states import dense_index, launch_of, spans_of
from wavescope.trace import IntColumn, Kind, Launch, Spans, Trace
from wavescope.units import Units, units_of

SIGNIFICANT = 0.05
WORTH_NAMING = 0.01  # share of the variance beyond what chance gives
MIN_UNITS = 20  # below it shuffles say nothing
MAX_UNITS = 20_000  # of more, a random choice of so many is tested
REUSE_CLASSES = 6
FIRST_TOUCH = -1

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Factor:
    """One factor with the units' lengths in it.

    `within` names what is held fixed while lengths are shuffled.  `effect` is on the
    variance that is left then; `adjusted_p` is over all factors and both measures.
    `slowest` and `fastest` are levels by name, `difference` how far apart their means are
    with the same held fixed, relative to the mean of all, among levels of at least 3
    units (None without two such).
    """

    name: str
    within: str
    levels: int
    effect: Effect
    adjusted_p: float
    slowest: str | None
    fastest: str | None
    difference: float | None

    @property
    def explains(self) -> bool:
        """True where the factor may be named: no chance, and a share worth a word."""
        beyond = self.effect.eta_squared - self.effect.by_chance
        return self.adjusted_p <= SIGNIFICANT and beyond >= WORTH_NAMING


@dataclass(frozen=True)
class Measured:
    """Unit lengths in one measure, `cycles` or `ns`: their median, 10 and 90 % quantiles, and the factors."""

    measure: str
    median: float
    low: float
    high: float
    variation: float  # standard deviation over mean
    factors: tuple[Factor, ...]


@dataclass(frozen=True)
class Spread:
    """Where the units' lengths differ; `reason` says why it was not asked, and `measured` is then empty.

    Lengths are a k_iter's where units differ in k_iters (`per_k_iter`).  `tested` of
    `units` were tested; `left_out` maps a factor, or a measure, to why it was not.
    """

    units: int
    tested: int
    per_k_iter: bool
    permutations: int
    measured: tuple[Measured, ...]
    left_out: dict[str, str]
    reason: str | None


@dataclass(frozen=True)
class _Asked:
    """A factor's level for each unit, what is held fixed, and a level's name."""

    name: str
    within: str
    groups: IntColumn
    strata: IntColumn
    label: Callable[[int], str]


def spread(trace: Trace, launch_id: int | None = None, permutations: int = PERMUTATIONS, seed: int = 0) -> Spread:
    """Test what the lengths of one launch's units go with.

    Raises: as `analyze` for the launch.
    """
    launch = launch_of(trace, launch_id)
    spans, step, _ = launch_spans(trace, launch)
    units = units_of(spans)
    chosen = _chosen(len(units), seed)
    per_k_iter = bool(units.k_iters.min() != units.k_iters.max())
    if len(units) < MIN_UNITS:
        why = f"{len(units)} units are too few to tell chance from cause; {MIN_UNITS} or more are needed"
        return Spread(len(units), 0, per_k_iter, 0, (), {}, why)
    if launch.work is not None:
        why = f"with work {launch.work} units differ by their k_iters, which hides what else they differ by"
        return Spread(len(units), 0, per_k_iter, 0, (), {}, why)
    domains = domains_of_spans(spans_of(trace, launch), trace.timer_step_ns, trace.device.max_clock_mhz)
    ctas = spans.select(spans.kind == Kind.CTA)
    asked, left_out = _factors(units, ctas, launch, domains, chosen)
    plans = {name: shuffles(strata, permutations, seed) for name, strata in {a.within: a.strata for a in asked}.items()}
    scale = np.maximum(units.k_iters, 1)[chosen] if per_k_iter else 1
    lengths = {} if units.cycles is None else {"cycles": units.cycles[chosen] / scale}
    if float(units.duration_ns[chosen].std()) >= step:
        lengths["ns"] = units.duration_ns[chosen] / scale
    else:
        left_out["ns"] = f"lengths differ by less than the timer's error ({step} ns)"
    found = {
        (measure, one.name): effect_of(values, one.groups, one.strata, plans[one.within])
        for measure, values in lengths.items()
        for one in asked
    }
    tried = [key for key, effect in found.items() if effect is not None]
    adjusted = dict(zip(tried, holm([found[key].p_value for key in tried]), strict=True))  # type: ignore[union-attr]
    measured = []
    for measure, values in lengths.items():
        factors = [
            _factor(one, values, effect, adjusted[measure, one.name])
            for one in asked
            if (effect := found[measure, one.name]) is not None
        ]
        low, median, high = np.quantile(values, [0.1, 0.5, 0.9]).tolist()
        variation = float(values.std() / values.mean()) if values.mean() > 0 else 0.0
        measured.append(Measured(measure, median, low, high, variation, tuple(factors)))
    return Spread(len(units), len(chosen), per_k_iter, permutations, tuple(measured), left_out, None)


def _chosen(count: int, seed: int) -> IntColumn:
    """All units, or a random choice of MAX_UNITS in their order."""
    if count <= MAX_UNITS:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, MAX_UNITS, replace=False))


def _factors(
    units: Units, ctas: Spans, launch: Launch, domains: ClockDomains, chosen: IntColumn
) -> tuple[list[_Asked], dict[str, str]]:
    """The factors that this launch can be asked for, and why not the others.

    What is known to matter is held fixed while the others are shuffled: the wave, and
    where CTAs share an SM, how many they were and who came first.
    """
    nothing = np.zeros(len(units), np.int64)
    wave = _Asked("wave", "nothing", _rank_wave(units, launch), nothing, lambda index: f"wave {index + 1}")
    held, candidates = _Held("waves", wave.groups), [wave]
    shares = shares_of(timeline_of(ctas), units)
    if shares.shape[1] > 2:  # two CTAs or more at once on an SM
        beside = np.rint(shares @ np.arange(shares.shape[1])).astype(np.int64)  # mean number over the unit's time
        older = older_neighbours(ctas, units)
        waves_and_beside = wave.groups * (int(beside.max()) + 1) + beside
        candidates.append(_Asked("CTAs on the SM", "waves", beside, wave.groups, lambda index: f"{index} on its SM"))
        candidates.append(
            _Asked("older neighbours", "waves and CTAs", older, waves_and_beside, lambda index: f"{index} older")
        )
        held = _Held("waves and neighbours", waves_and_beside * (int(older.max()) + 1) + older)
    left_out: dict[str, str] = {}
    candidates += [*_of_place(units, domains, held, left_out), *_of_tile(units, held, left_out)]
    asked = []
    for one in candidates:
        ids, groups = dense_index(one.groups[chosen])
        if len(ids) < 2:
            left_out[one.name] = f"all units are alike in it ({one.label(int(ids[0]))})"
        elif len(ids) > len(chosen) // 2:
            left_out[one.name] = f"{len(ids)} levels for {len(chosen)} units, too few to compare"
        else:
            strata = dense_index(one.strata[chosen])[1]
            asked.append(replace(one, groups=groups, strata=strata, label=_named(ids, one.label)))
    return asked, left_out


@dataclass(frozen=True)
class _Held:
    """What stays fixed while lengths are shuffled, in words and as strata."""

    name: str
    strata: IntColumn


def _of_place(units: Units, domains: ClockDomains, held: _Held, left_out: dict[str, str]) -> list[_Asked]:
    """Factors of where a unit ran."""
    if domains.reason is not None or len(domains) < 2:
        why = f"domains cannot be told: {domains.reason}" if domains.reason else "all SMs share one clock"
        left_out["clock domain"] = why
        return [_Asked("SM", held.name, units.sm, held.strata, lambda index: f"SM {index}")]
    domain = domains.of_sm(units.sm)
    inside = held.strata * len(domains) + domain
    return [
        _Asked("clock domain", held.name, domain, held.strata, lambda index: f"domain {index}"),
        _Asked("SM", f"{held.name}, in its domain", units.sm, inside, lambda index: f"SM {index}"),
    ]


def _of_tile(units: Units, held: _Held, left_out: dict[str, str]) -> list[_Asked]:
    """Factors of what a unit computed."""
    if units.of_ctas:
        left_out.update(
            dict.fromkeys(("tile_m", "tile_n", "reuse distance"), "the trace does not say who ran which tile")
        )
        return []
    classes, names = reuse_classes(reuse_distance(units))
    return [
        _Asked("tile_m", held.name, units.tile_m, held.strata, lambda index: f"tile row {index}"),
        _Asked("tile_n", held.name, units.tile_n, held.strata, lambda index: f"tile column {index}"),
        _Asked("reuse distance", held.name, classes, held.strata, lambda index: names[index]),
    ]


def _named(ids: IntColumn, label: Callable[[int], str]) -> Callable[[int], str]:
    return lambda index: label(int(ids[index]))


def _rank_wave(units: Units, launch: Launch) -> IntColumn:
    """The rank wave of each unit: by begin, as many at a time as there are places."""
    rank = np.empty(len(units), np.int64)
    rank[np.argsort(units.begin_ns, kind="stable")] = np.arange(len(units))
    return rank // max(1, launch.places * units.lanes)


def reuse_distance(units: Units) -> IntColumn:
    """How many units began since a unit's operands were last touched; FIRST_TOUCH where one never was.

    In the order of begins (index where they are equal), a unit of tile (m, n) reads panel m of A and
    panel n of B; the distance of each is the number of units from the last one that read
    it.  The larger of the two counts: that panel has had the most time to leave L2.  A
    distance below the number of places means that both units ran at the same time.
    """
    order = np.lexsort((units.unit, units.begin_ns))
    rank = np.empty(len(units), np.int64)
    rank[order] = np.arange(len(units))
    distances = [_since_last(panel, rank) for panel in (units.tile_m, units.tile_n)]
    first = np.minimum(*distances) == FIRST_TOUCH
    return np.where(first, FIRST_TOUCH, np.maximum(*distances))


def _since_last(panel: IntColumn, rank: IntColumn) -> IntColumn:
    """Ranks since the last unit of the same panel."""
    order = np.lexsort((rank, panel))
    same = np.append(False, panel[order][1:] == panel[order][:-1])
    distance = np.empty(len(rank), np.int64)
    distance[order] = np.where(same, rank[order] - np.append(0, rank[order][:-1]), FIRST_TOUCH)
    return distance


def reuse_classes(distance: IntColumn) -> tuple[IntColumn, list[str]]:
    """Distances in up to REUSE_CLASSES classes of about as many units each; first touches are class 0."""
    again = distance[distance != FIRST_TOUCH]
    inner = np.arange(1, REUSE_CLASSES) / REUSE_CLASSES
    edges = np.unique(np.quantile(again, inner, method="lower")) if len(again) else np.empty(0, np.int64)
    classes = np.where(distance == FIRST_TOUCH, 0, 1 + np.searchsorted(edges, distance, "left"))
    names = ["first touch"]
    for index in range(len(edges) + 1):
        mine = distance[classes == index + 1]
        if len(mine) == 0:
            names.append("none")
        else:
            low, high = int(mine.min()), int(mine.max())
            names.append(f"distance {low}" if low == high else f"distance {low} to {high}")
    return classes.astype(np.int64), names


def _factor(one: _Asked, values: FloatArray, effect: Effect, adjusted: float) -> Factor:
    counts, mean = np.bincount(one.groups), float(values.mean())
    means = np.bincount(one.groups, weights=centred(values, one.strata)) / np.maximum(counts, 1)
    enough = np.flatnonzero(counts >= 3)
    slowest = fastest = difference = None
    if len(enough) >= 2 and mean > 0:
        high, low = enough[np.argmax(means[enough])], enough[np.argmin(means[enough])]
        slowest, fastest = one.label(int(high)), one.label(int(low))
        difference = float(means[high] - means[low]) / mean
    return Factor(one.name, one.within, len(counts), effect, adjusted, slowest, fastest, difference)
