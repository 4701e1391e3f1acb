"""Traces made by hand or by rule, for tests of the analysis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from wavescope.device import Device
from wavescope.problem import Problem, Tile
from wavescope.trace import NULL, Kind, Launch, Spans, Trace

# A device of round numbers: 1000 MHz is one cycle a nanosecond.
DEVICE = Device(
    name="Test GPU",
    compute_capability=(9, 0),
    sms=4,
    max_clock_mhz=1000.0,
    registers_per_sm=65536,
    shared_per_sm=233472,
    shared_per_block=232448,
    shared_reserved_per_block=1024,
    threads_per_sm=2048,
    ctas_per_sm=32,
    l2_bytes=1 << 20,
    memory_bytes=1 << 30,
    memory_gb_per_s=1000.0,
    peak_tflops={"bf16": 15.0},
    source="made up for tests",
)

LAUNCH = Launch(
    launch_id=0,
    source="measured",
    kernel="made_up",
    schedule=None,
    raster=None,
    problem=None,
    tile=None,
    grid=1,
    block=128,
    cluster=1,
    registers=128,
    shared_bytes=0,
    ctas_per_sm=1,
    places=4,
)


@dataclass(frozen=True)
class Span:
    """One span, with what most tests leave alone as defaults; one cycle a nanosecond."""

    kind: Kind
    cta: int
    sm: int
    begin: int
    end: int
    unit: int = NULL
    tile_m: int = NULL
    tile_n: int = NULL
    k_begin: int = NULL
    k_end: int = NULL
    lane: int = 0
    stall: int = NULL


# What the clock64 of an SM reads at T0: no two SMs agree.
def clock_origin(sm: int) -> int:
    return 1_000_000 + 777_777 * sm


def spans_from(rows: Iterable[Span]) -> Spans:
    """Columns of a list of spans."""
    listed = list(rows)

    def column(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([getattr(row, name) for row in listed], np.int64)

    origin = np.array([clock_origin(row.sm) for row in listed], np.int64)
    nothing = np.full(len(listed), NULL, np.int64)
    return Spans(
        launch_id=np.zeros(len(listed), np.int64),
        cta=column("cta"),
        cluster_id=nothing,
        lane=column("lane"),
        sm=column("sm"),
        unit=column("unit"),
        tile_m=column("tile_m"),
        tile_n=column("tile_n"),
        k_begin=column("k_begin"),
        k_end=column("k_end"),
        kind=column("kind"),
        begin_ns=column("begin"),
        end_ns=column("end"),
        begin_clock=column("begin") + origin,
        end_clock=column("end") + origin,
        stall_clock=column("stall"),
    )


def trace_from(rows: Iterable[Span] | Spans, sms: int = 4, timer_step_ns: int = 1, **launch: Any) -> Trace:
    """A trace of one launch on a device of `sms` SMs; `launch` overrides fields of LAUNCH."""
    spans = rows if isinstance(rows, Spans) else spans_from(rows)
    grid = len(np.unique(spans.cta[spans.kind == Kind.CTA]))
    described = replace(LAUNCH, **{"grid": grid, "places": sms * launch.get("ctas_per_sm", 1), **launch})
    return Trace("test", replace(DEVICE, sms=sms), timer_step_ns, (described,), spans)


def changed(spans: Spans, index: int, **values: int) -> Spans:
    """The spans with some values of one of them replaced; clocks follow their times."""
    columns = {column.name: getattr(spans, column.name).copy() for column in fields(spans)}
    for edge in ("begin", "end"):
        if f"{edge}_ns" in values:
            moved = values[f"{edge}_ns"] - columns[f"{edge}_ns"][index]
            columns[f"{edge}_clock"][index] += moved
    for name, value in values.items():
        columns[name][index] = value
    return Spans(**columns)


def tiled(
    num_tiles: int,
    places: int,
    mac_ns: int = 1000,
    epilogue_ns: int = 100,
    prologue_ns: int = 50,
    gap_ns: int = 20,
    k_iters: int = 8,
    jitter_ns: int = 0,
    seed: int = 0,
) -> tuple[Spans, Problem, Tile]:
    """One CTA a tile, dealt round robin to `places` SMs: cta, mac and epilogue spans, made without a loop."""
    random = np.random.default_rng(seed)
    index = np.arange(num_tiles)
    mac = mac_ns + random.integers(0, jitter_ns + 1, num_tiles)
    length = prologue_ns + mac + epilogue_ns
    sm, turn = index % places, index // places
    turns = -(-num_tiles // places)
    grid = np.zeros(turns * places, np.int64)
    grid[:num_tiles] = length + gap_ns
    begin = (np.cumsum(grid.reshape(turns, places), axis=0) - grid.reshape(turns, places))[turn, sm]
    mac_begin, mac_end, end = begin + prologue_ns, begin + prologue_ns + mac, begin + length
    nothing, zero = np.full(num_tiles, NULL, np.int64), np.zeros(num_tiles, np.int64)
    origin = clock_origin(0) + 777_777 * sm

    def interleave(*columns: Any) -> Any:
        return np.stack([np.broadcast_to(column, num_tiles) for column in columns], axis=1).ravel().astype(np.int64)

    spans = Spans(
        launch_id=interleave(zero, zero, zero),
        cta=interleave(index, index, index),
        cluster_id=interleave(nothing, nothing, nothing),
        lane=interleave(zero, zero, zero),
        sm=interleave(sm, sm, sm),
        unit=interleave(nothing, index, index),
        tile_m=interleave(nothing, index, index),
        tile_n=interleave(nothing, zero, zero),
        k_begin=interleave(nothing, zero, zero),
        k_end=interleave(nothing, zero + k_iters, zero + k_iters),
        kind=interleave(Kind.CTA, Kind.MAC, Kind.EPILOGUE),
        begin_ns=interleave(begin, mac_begin, mac_end),
        end_ns=interleave(end, mac_end, end),
        begin_clock=interleave(begin + origin, mac_begin + origin, mac_end + origin),
        end_clock=interleave(end + origin, mac_end + origin, end + origin),
        stall_clock=interleave(nothing, nothing, nothing),
    )
    return spans, Problem(m=16 * num_tiles, n=16, k=16 * k_iters), Tile(16, 16, 16)


def deferred(
    waits: tuple[tuple[int, int], tuple[int, int]] = ((260, 300), (275, 700)), adds: tuple[int, int] = (120, 200)
) -> tuple[list[Span], Problem, Tile]:
    """Two CTAs that share a tile: each leaves its part's sums, then multiplies a whole tile, while other warps wait
    (from, to) for the other CTA's and add (so long) a share of them, which may outlast the whole tile.

    SM 0: |0 cta                                                             800 or 20 after the last span|
          |10 mac 0 210|210 fixup 0 250|  |255      mac 2       655|655 epilogue 2 705|
                                             |260 wait 0 300|300 fixup 0 420|
    SM 1: |0 cta                                                             750 or 20 after the last span|
          |20 mac 1 220|220 fixup 1 270|  |272      mac 3       672|672 epilogue 3 730|
                                             |275       wait 1               700|700      fixup 1      900|
    """
    rows = []
    mains = (((10, 210), (210, 250), (255, 655), (655, 705), 800), ((20, 220), (220, 270), (272, 672), (672, 730), 750))
    for cta, (mac, leave, whole, store, end) in enumerate(mains):
        part = (cta, 0, 0, 2 * cta, 2 * cta + 2)
        tile = (2 + cta, 1 + cta, 0, 0, 4)
        added = waits[cta][1] + adds[cta]
        rows += [
            Span(Kind.CTA, cta, cta, 0, max(end, added + 20)),
            Span(Kind.MAC, cta, cta, *mac, *part),
            Span(Kind.FIXUP, cta, cta, *leave, *part),
            Span(Kind.WAIT, cta, cta, *waits[cta], *part),
            Span(Kind.FIXUP, cta, cta, waits[cta][1], added, *part),
            Span(Kind.MAC, cta, cta, *whole, *tile),
            Span(Kind.EPILOGUE, cta, cta, *store, *tile),
        ]
    return rows, Problem(m=3 * 16, n=16, k=4 * 16), Tile(16, 16, 16)
