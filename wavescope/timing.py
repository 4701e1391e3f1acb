"""Times of launches under a named regime, and the records of each contender's median launch.

One contender alone is a kernel, plain (A) and probed (B); several are timed in one
sequence, so that they meet the same clock.  cool: a few idle milliseconds before each
graph of launches, all graphs forwards and then backwards (A B B A).  sustained: each graph
alone for a third of a second, so that the card runs at its power cap; forwards and
backwards again, and only the second half of each block counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wavescope.cuda_device import clock_limits
from wavescope.launch import Stream, capture, download, launch, replay_ns, timed_ns, wait
from wavescope.prepare import MAX_GRAPH_LAUNCHES, Prepared, clear, graph_of, require_met, with_records
from wavescope.stats import Estimate, median_interval
from wavescope.trace import RECORD_DTYPE, Kind, Timing

Regime = Literal["cool", "sustained"]
Progress = Callable[[str], None]
Records = NDArray[Any]

IDLE_S = 0.003  # H200, 2026-11: 3 ms idle before each graph keeps short runs off the power cap
BLOCK_S = 0.3  # H200, 2026-11: after 0.3 s at the cap the clock has settled
LEAD_NS = 150_000  # the spin kernel that launches queue behind; enqueuing a graph takes 30 to 60 us
GRAPH_NS = 2_000_000  # launches are gathered into graphs of about this length
KEPT_LAUNCHES = 200  # launches whose records are kept while the median one is looked for
KEPT_BYTES = 256 << 20
SUSTAINED_ROUNDS = 2  # blocks forwards and backwards; the samples lie within the blocks
LISTEN_S = 0.03  # between two questions to NVML, which answers in about a millisecond


@dataclass(frozen=True)
class Library:
    """Launches of a library, to be timed beside the own kernels: `launch(index, stream)` enqueues one."""

    name: str
    launch: Callable[[int, Stream], None]
    deadline_s: float


@dataclass(frozen=True)
class Measured:
    """What timing found of one contender: ns a launch, and the first contender's time over its own, by rounds.

    `timing` and `records` (of the launch whose duration is the median of those kept) are
    None for a library.
    """

    time_ns: Estimate
    ratio: Estimate
    timing: Timing | None
    records: Records | None


@dataclass
class _Samples:
    """What the rounds gather of one contender: ns a launch, and of each round the mean of both directions."""

    plain: list[float] = field(default_factory=list)
    probed: list[float] = field(default_factory=list)
    plain_rounds: list[float] = field(default_factory=list)
    probed_rounds: list[float] = field(default_factory=list)
    kept: list[Records] = field(default_factory=list)
    clock_limits: set[str] | None = None


@dataclass(frozen=True)
class _Entrant:
    """One graph of `count` launches, and where its times go."""

    graph: Any
    count: int
    prepared: Prepared | None  # cleared before each graph; None for a library
    is_probed: bool
    deadline_s: float
    samples: _Samples

    def add(self, times: Sequence[float], round_ns: float) -> None:
        one_launch = [time / self.count for time in times]
        (self.samples.probed if self.is_probed else self.samples.plain).extend(one_launch)
        rounds = self.samples.probed_rounds if self.is_probed else self.samples.plain_rounds
        rounds.append(round_ns / self.count)


def measure_regime(
    contenders: Sequence[Prepared | Library],
    regime: Regime,
    rounds: int,
    seconds: float,
    stream: Stream,
    progress: Progress,
) -> list[Measured]:
    """Times of all contenders under one regime.

    `rounds`: of the cool regime, each once forwards and once backwards.  `seconds`: how
    long each block of the sustained one lasts, of which each contender has eight.  Of
    contenders, the first must be a Prepared: its spin kernel is what launches queue behind.
    Raises: LaunchError for a launch that fails or hangs.
    """
    first = contenders[0]
    if isinstance(first, Library):
        raise TypeError("the first contender must be a kernel of wavescope's own")

    def lead(on: Stream) -> None:
        launch(first.functions.spin, (1,), (np.uint64(LEAD_NS),), on)

    gathered = [_Samples() for _ in contenders]
    entrants: list[_Entrant] = []
    for one, samples in zip(contenders, gathered, strict=True):
        entrants += _entrants(one, samples, lead, stream)
    if regime == "cool":
        _cool(entrants, lead, rounds, stream, progress)
    else:
        _sustained(entrants, lead, first.device_index, seconds, stream, progress)
    for one in contenders:
        if isinstance(one, Prepared):
            require_met(one, stream)
    reference = np.array(gathered[0].plain_rounds)
    return [_measured(samples, reference, regime) for samples in gathered]


def _measured(samples: _Samples, reference: NDArray[np.float64], regime: Regime) -> Measured:
    plain = np.array(samples.plain_rounds)
    time_ns, ratio = median_interval(samples.plain), median_interval(reference / plain)
    if not samples.probed:
        return Measured(time_ns, ratio, None, None)
    timing = Timing(
        regime,
        time_ns,
        median_interval(samples.probed),
        median_interval(np.array(samples.probed_rounds) / plain),
        None if samples.clock_limits is None else tuple(sorted(samples.clock_limits)),
        median_interval([longest_cycles(records) for records in samples.kept]),
    )
    by_duration = sorted(samples.kept, key=duration_ns)
    return Measured(time_ns, ratio, timing, by_duration[(len(by_duration) - 1) // 2])


def duration_ns(records: Records) -> int:
    """T of a launch: its last CTA's end less its first CTA's begin."""
    ctas = records[records["kind"] == Kind.CTA]
    return int(ctas["end_ns"].max() - ctas["begin_ns"].min())


def longest_cycles(records: Records) -> int:
    """Cycles from an SM's first CTA's begin to its last one's end, of the SM with the most."""
    ctas = records[records["kind"] == Kind.CTA]
    sm = ctas["sm"].astype(np.int64)
    begin, end = np.full(sm.max() + 1, np.iinfo(np.int64).max), np.zeros(sm.max() + 1, np.int64)
    np.minimum.at(begin, sm, ctas["begin_clock"].astype(np.int64))
    np.maximum.at(end, sm, ctas["end_clock"].astype(np.int64))
    return int((end - begin)[np.unique(sm)].max())


def _entrants(
    contender: Prepared | Library, samples: _Samples, lead: Callable[[Stream], None], stream: Stream
) -> list[_Entrant]:
    """The graphs of one contender: plain and probed, or the library's."""
    if isinstance(contender, Library):
        single = capture([partial(contender.launch, 0)], stream)
        count = _launches_per_graph(single, lead, contender.deadline_s, stream)
        graph = capture([partial(contender.launch, index) for index in range(count)], stream)
        return [_Entrant(graph, count, None, False, contender.deadline_s, samples)]
    clear(contender, stream)
    single = graph_of(contender, contender.functions.plain, stream)
    prepared = with_records(contender, _launches_per_graph(single, lead, contender.deadline_s, stream))
    count = len(prepared.records)
    return [
        _Entrant(graph_of(prepared, function, stream), count, prepared, is_probed, prepared.deadline_s, samples)
        for function, is_probed in ((prepared.functions.plain, False), (prepared.functions.probed, True))
    ]


def _launches_per_graph(single: Any, lead: Callable[[Stream], None], deadline_s: float, stream: Stream) -> int:
    once = min(timed_ns(single, lead, deadline_s, stream) for _ in range(3))
    return max(1, min(MAX_GRAPH_LAUNCHES, math.ceil(GRAPH_NS / once)))


def _cool(
    entrants: Sequence[_Entrant], lead: Callable[[Stream], None], rounds: int, stream: Stream, progress: Progress
) -> None:
    for index in range(-1, rounds):  # round -1 warms up, and is dropped
        progress(f"timing, cool: round {max(index, 0) + 1} of {rounds}")
        times: dict[int, list[float]] = {}
        for which in (*range(len(entrants)), *reversed(range(len(entrants)))):
            entrant = entrants[which]
            if entrant.prepared:
                clear(entrant.prepared, stream)
            wait(stream, entrant.deadline_s)
            time.sleep(IDLE_S)
            times.setdefault(which, []).append(timed_ns(entrant.graph, lead, entrant.deadline_s, stream))
            if index >= 0:
                _keep(entrant, stream)
        if index >= 0:
            for which, both in times.items():
                entrants[which].add(both, sum(both) / 2)


def _sustained(
    entrants: Sequence[_Entrant],
    lead: Callable[[Stream], None],
    device_index: int,
    seconds: float,
    stream: Stream,
    progress: Progress,
) -> None:
    replays = [max(2, math.ceil(seconds * 1e9 / timed_ns(one.graph, lead, one.deadline_s, stream))) for one in entrants]
    for index in range(SUSTAINED_ROUNDS):
        progress(f"timing, sustained: round {index + 1} of {SUSTAINED_ROUNDS}")
        blocks: dict[int, list[list[float]]] = {}
        for which in (*range(len(entrants)), *reversed(range(len(entrants)))):
            entrant = entrants[which]
            if entrant.prepared:
                clear(entrant.prepared, stream)
            listen = _clock_listener(device_index, entrant.samples)
            times = replay_ns(entrant.graph, replays[which], 10 * seconds + entrant.deadline_s, stream, listen)
            blocks.setdefault(which, []).append(times[len(times) // 2 :])
            _keep(entrant, stream)
        for which, both in blocks.items():
            entrants[which].add(both[0] + both[1], sum(float(np.median(block)) for block in both) / 2)


def _clock_listener(device_index: int, samples: _Samples) -> Callable[[], None]:
    """Adds NVML's reasons for a lowered clock to the samples, at most every LISTEN_S."""
    last = 0.0

    def listen() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < LISTEN_S:
            return
        last = now
        reasons = clock_limits(device_index)
        if reasons is not None:
            samples.clock_limits = (samples.clock_limits or set()) | set(reasons)

    return listen


def _keep(entrant: _Entrant, stream: Stream) -> None:
    """Keep the records that a probed graph left."""
    if entrant.prepared is None or not entrant.is_probed:
        return
    # the first launch of a graph starts cold: it is kept only where it is the only one
    buffers, kept = entrant.prepared.records[1:] or entrant.prepared.records, entrant.samples.kept
    room = min(KEPT_LAUNCHES, KEPT_BYTES // entrant.prepared.record_bytes)
    if not kept or len(kept) + len(buffers) <= room:
        kept += [download(buffer, RECORD_DTYPE, stream) for buffer in buffers]
