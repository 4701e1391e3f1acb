"""Contenders made by hand: four SMs, tiles of 8 k_iters, 100 us a tile, one cycle a nanosecond."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.synthetic import DEVICE, LAUNCH, Span, spans_from
from wavescope.comparison import Comparison, Contender, arranged, unavailable
from wavescope.problem import Problem, Tile
from wavescope.stats import Estimate
from wavescope.trace import Kind, Spans, Timing, Trace, join

SMS = 4
TILE = Tile(16, 16, 16)
K_ITERS = 8
MAC_NS = 100_000
COUNT = 41  # rounds


def problem(tiles: int) -> Problem:
    """A problem of so many tiles, one below the other."""
    return Problem(16 * tiles, 16, 16 * K_ITERS)


def cta(index: int, sm: int, begin: int, *parts: tuple[Kind, int, int, tuple[int, int]]) -> list[Span]:
    """A CTA whose spans follow one another from `begin`: (kind, length, tile, k range); unit = 10 x tile + k begin."""
    rows, now = [], begin
    for kind, length, tile, (k_begin, k_end) in parts:
        unit = 10 * tile + k_begin
        rows.append(Span(kind, index, sm, now, now + length, unit, tile, 0, k_begin, k_end))
        now += length
    return [Span(Kind.CTA, index, sm, begin, now), *rows]


def tile(index: int, length: int = MAC_NS) -> tuple[Kind, int, int, tuple[int, int]]:
    """The main loop of a whole tile."""
    return Kind.MAC, length, index, (0, K_ITERS)


def half(index: int, which: int, length: int = MAC_NS // 2) -> tuple[Kind, int, int, tuple[int, int]]:
    """The main loop of the first or second half of a tile."""
    return Kind.MAC, length, index, (4 * which, 4 * which + 4)


def fixed_spans(tiles: int, length: int = MAC_NS) -> Spans:
    """One CTA a tile, four at a time."""
    return spans_from(
        row for index in range(tiles) for row in cta(index, index % SMS, index // SMS * length, tile(index, length))
    )


def split_spans(fixup_ns: int = 0, wait_ns: int = 0, mac_ns: int = MAC_NS) -> Spans:
    """Six tiles: four whole ones, and two cut in halves, one half an SM; each SM adds partial sums at its end."""
    rows: list[Span] = []
    for sm in range(SMS):
        part = half(4 + sm // 2, sm % 2, mac_ns // 2)
        end = [(Kind.WAIT, wait_ns, *part[2:]), (Kind.FIXUP, fixup_ns, *part[2:])]
        rows += cta(sm, sm, 0, tile(sm, mac_ns), part, *[entry for entry in end if entry[1]])
    return spans_from(rows)


def slowed_clock(spans: Spans, factor: float) -> Spans:
    """The same cycles in `factor` times the time."""
    begin, end = (np.rint(column * factor).astype(np.int64) for column in (spans.begin_ns, spans.end_ns))
    return replace(spans, begin_ns=begin, end_ns=end)


def contender(
    name: str,
    spans: Spans,
    tiles: int,
    *,
    beyond_ns: float = 1_000.0,
    regimes: Sequence[str] = ("cool",),
    width: float = 0.001,
    **launch: Any,
) -> Contender:
    """A measured contender whose times are T and `beyond_ns`; `width` is half its intervals, as a share."""
    duration = float(spans.end_ns.max())
    time_ns = _around(duration + beyond_ns, width)
    schedule = name.split(":")[0].split("@")[0]
    described = replace(
        LAUNCH,
        kernel="gemm_mma",
        schedule=schedule,
        raster=name.split("@")[1] if "@" in name else "grouped8",
        problem=problem(tiles),
        tile=TILE,
        grid=len(np.unique(spans.cta)),
        places=SMS,
        **launch,
    )
    launches = tuple(
        replace(described, launch_id=place, timing=Timing(regime, time_ns, time_ns, _around(1.0, width)))
        for place, regime in enumerate(regimes)
    )
    all_spans = join([replace(spans, launch_id=spans.launch_id + place) for place in range(len(regimes))])
    trace = Trace("test", replace(DEVICE, sms=SMS), 1, launches, all_spans)
    return Contender(name, schedule, trace, times=dict.fromkeys(regimes, time_ns))


def _around(value: float, width: float) -> Estimate:
    return Estimate(value, value * (1 - width), value * (1 + width), COUNT)


def comparison(contenders: Iterable[Contender], tiles: int, width: float = 0.001) -> Comparison:
    """These contenders measured together; ratios are of their times, with intervals of +- `width`."""
    listed = list(contenders)
    first = next(one for one in listed if one.times)
    ready = [
        replace(
            one,
            ratios={
                regime: _around(first.times[regime].median / time.median, 0 if one is first else width)
                for regime, time in one.times.items()
            },
        )
        for one in listed
    ]
    found = Comparison(problem(tiles), TILE, replace(DEVICE, sms=SMS), "measured", "", tuple(ready))
    return arranged(found, [one.name for one in ready])


def library(regimes: Sequence[str] = ("cool",), time_ns: float = 120_000.0) -> Contender:
    """A library: time only."""
    times = {regime: _around(time_ns, 0.002) for regime in regimes}
    return Contender("cublas", "nvjet_sm90_tst_128x128_64x6_1x2_h_bz_TNT", None, times=times, notes=("cuBLAS 13.0",))


def full_comparison() -> Comparison:
    """Every kind of row: won, lost, the same, a library, one that could not run; two regimes; verified, predicted."""
    regimes = ("cool", "sustained")
    verified = {"plain_integers": {"values": "integers", "tolerance": "exact", "worst_error": 0.0}}
    own = [
        contender("fixed", fixed_spans(6), 6, regimes=regimes),
        contender("tailsplit", split_spans(fixup_ns=9_000, wait_ns=2_000), 6, regimes=regimes, parts=2),
        contender("streamk:4", split_spans(fixup_ns=40_000, mac_ns=140_000), 6, regimes=regimes, parts=4),
        contender("persistent@row", fixed_spans(6), 6, regimes=regimes),
    ]
    own = [replace(one, verified=verified, predicted_ns=1.02 * one.times["cool"].median) for one in own]
    own[1] = replace(own[1], ran="tailsplit: 2 tiles cut into 2, then 4 whole tiles")
    return comparison([*own, library(regimes), unavailable("hybrid", "it was left out")], 6)
