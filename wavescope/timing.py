"""Times of a launch under a named regime, plain and probed in turn, and the records of the median launch.

cool: a few idle milliseconds before each graph of launches, plain (A) and probed (B) as
A B B A.  sustained: each kernel alone for a third of a second, so that the card runs at
its power cap; A B B A again, and only the second half of each block counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wavescope.cuda_device import clock_limits
from wavescope.launch import Stream, download, launch, replay_ns, timed_ns, wait
from wavescope.prepare import MAX_GRAPH_LAUNCHES, Prepared, clear, graph_of, with_records
from wavescope.stats import median_interval
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
SUSTAINED_ROUNDS = 2  # A B B A blocks; the samples lie within the blocks
LISTEN_S = 0.03  # between two questions to NVML, which answers in about a millisecond


@dataclass
class _Samples:
    """What the rounds gather: ns a launch, ratios probed / plain, records of probed launches."""

    plain: list[float] = field(default_factory=list)
    probed: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    kept: list[Records] = field(default_factory=list)
    clock_limits: set[str] | None = None


def measure_regime(
    prepared: Prepared, regime: Regime, rounds: int, seconds: float, stream: Stream, progress: Progress
) -> tuple[Timing, Records]:
    """Times under one regime, and the records of the launch whose duration is the median of those kept.

    `rounds`: A B B A rounds of the cool regime.  `seconds`: how long each block of the
    sustained one lasts, of which there are eight.
    Raises: LaunchError for a launch that fails or hangs.
    """
    prepared = with_records(prepared, _launches_per_graph(prepared, stream))
    graphs = [graph_of(prepared, f, stream) for f in (prepared.functions.plain, prepared.functions.probed)]
    samples = _Samples()
    if regime == "cool":
        _cool(prepared, graphs, rounds, stream, progress, samples)
    else:
        _sustained(prepared, graphs, seconds, stream, progress, samples)
    count = len(prepared.records)
    timing = Timing(
        regime,
        median_interval(np.array(samples.plain) / count),
        median_interval(np.array(samples.probed) / count),
        median_interval(samples.ratios),
        None if samples.clock_limits is None else tuple(sorted(samples.clock_limits)),
    )
    by_duration = sorted(samples.kept, key=duration_ns)
    return timing, by_duration[(len(by_duration) - 1) // 2]


def duration_ns(records: Records) -> int:
    """T of a launch: its last CTA's end less its first CTA's begin."""
    ctas = records[records["kind"] == Kind.CTA]
    return int(ctas["end_ns"].max() - ctas["begin_ns"].min())


def _lead(prepared: Prepared) -> Callable[[Stream], None]:
    return lambda stream: launch(prepared.functions.spin, (1,), (np.uint64(LEAD_NS),), stream)


def _launches_per_graph(prepared: Prepared, stream: Stream) -> int:
    clear(prepared, stream)
    single = graph_of(prepared, prepared.functions.plain, stream)
    once = min(timed_ns(single, _lead(prepared), prepared.deadline_s, stream) for _ in range(3))
    return max(1, min(MAX_GRAPH_LAUNCHES, math.ceil(GRAPH_NS / once)))


def _cool(
    prepared: Prepared, graphs: list[Any], rounds: int, stream: Stream, progress: Progress, samples: _Samples
) -> None:
    for index in range(-1, rounds):  # round -1 warms up, and is dropped
        progress(f"timing, cool: round {max(index, 0) + 1} of {rounds}")
        times: list[float] = []
        for which in (0, 1, 1, 0):
            clear(prepared, stream)
            wait(stream, prepared.deadline_s)
            time.sleep(IDLE_S)
            times.append(timed_ns(graphs[which], _lead(prepared), prepared.deadline_s, stream))
            if which == 1 and index >= 0:
                _keep(prepared, stream, samples)
        if index >= 0:
            samples.plain += [times[0], times[3]]
            samples.probed += [times[1], times[2]]
            samples.ratios.append((times[1] + times[2]) / (times[0] + times[3]))


def _sustained(
    prepared: Prepared, graphs: list[Any], seconds: float, stream: Stream, progress: Progress, samples: _Samples
) -> None:
    once = timed_ns(graphs[0], _lead(prepared), prepared.deadline_s, stream)
    replays = max(2, math.ceil(seconds * 1e9 / once))
    listen = _clock_listener(prepared, samples)
    for index in range(SUSTAINED_ROUNDS):
        progress(f"timing, sustained: round {index + 1} of {SUSTAINED_ROUNDS}")
        blocks: list[list[float]] = []
        for which in (0, 1, 1, 0):
            clear(prepared, stream)
            times = replay_ns(graphs[which], replays, 10 * seconds + prepared.deadline_s, stream, listen)
            blocks.append(times[len(times) // 2 :])
            if which == 1:
                _keep(prepared, stream, samples)
        samples.plain += blocks[0] + blocks[3]
        samples.probed += blocks[1] + blocks[2]
        medians = [float(np.median(block)) for block in blocks]
        samples.ratios.append((medians[1] + medians[2]) / (medians[0] + medians[3]))


def _clock_listener(prepared: Prepared, samples: _Samples) -> Callable[[], None]:
    """Adds NVML's reasons for a lowered clock to the samples, at most every LISTEN_S."""
    last = 0.0

    def listen() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < LISTEN_S:
            return
        last = now
        reasons = clock_limits(prepared.device_index)
        if reasons is not None:
            samples.clock_limits = (samples.clock_limits or set()) | set(reasons)

    return listen


def _keep(prepared: Prepared, stream: Stream, samples: _Samples) -> None:
    # the first launch of a graph starts cold: it is kept only where it is the only one
    buffers = prepared.records[1:] or prepared.records
    room = min(KEPT_LAUNCHES, KEPT_BYTES // prepared.record_bytes)
    if not samples.kept or len(samples.kept) + len(buffers) <= room:
        samples.kept += [download(buffer, RECORD_DTYPE, stream) for buffer in buffers]
