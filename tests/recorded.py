"""Recorded block times of kernels that were not wavescope's own, as traces.

The files hold one row a block (SM id, clock64 and globaltimer at begin and end), so a
trace of them has nothing but cta spans: each block is a unit.  Provenance:
tests/data/README.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wavescope.device import known_device
from wavescope.problem import Problem, Tile
from wavescope.trace import NULL, Kind, Launch, Spans, Trace

DATA = Path(__file__).parent / "data" / "h200"
TIMER_STEP_NS = 32  # H200: the step of globaltimer
TILE = Tile(128, 256, 64)


def triton_matmul(name: str, problem: Problem) -> Trace:
    """The trace of a probed Triton matmul, one block a tile of TILE and one block an SM."""
    with np.load(DATA / f"{name}.npz") as recorded:
        blocks = {column: recorded[column].astype(np.int64) for column in recorded.files}
    return _trace(
        f"triton {name}",
        blocks["smid"],
        (blocks["clock_begin"], blocks["clock_end"]),
        (blocks["globaltimer_begin_ns"], blocks["globaltimer_end_ns"]),
        problem,
    )


def spin() -> Trace:
    """The trace of 284 equal blocks that spin for 200,000 cycles, one on an SM."""
    columns = np.load(DATA / "spin.npy").astype(np.int64).T
    return _trace("spin", columns[0], (columns[1], columns[2]), (columns[3], columns[4]), None)


def _trace(name: str, sm: Any, clock: tuple[Any, Any], time: tuple[Any, Any], problem: Problem | None) -> Trace:
    blocks = len(sm)
    device = known_device("NVIDIA H200")
    assert device is not None
    nothing, zero = np.full(blocks, NULL, np.int64), np.zeros(blocks, np.int64)
    t0 = int(time[0].min())
    spans = Spans(
        launch_id=zero,
        cta=np.arange(blocks),
        cluster_id=nothing,
        lane=zero,
        sm=sm,
        unit=nothing,
        tile_m=nothing,
        tile_n=nothing,
        k_begin=nothing,
        k_end=nothing,
        kind=np.full(blocks, int(Kind.CTA)),
        begin_ns=time[0] - t0,
        end_ns=time[1] - t0,
        begin_clock=clock[0],
        end_clock=clock[1],
        stall_clock=nothing,
    )
    launch = Launch(
        launch_id=0,
        source="measured",
        kernel=name,
        schedule=None,
        raster=None,
        problem=problem,
        tile=TILE if problem else None,
        grid=blocks,
        block=NULL,
        cluster=1,
        registers=NULL,
        shared_bytes=NULL,
        ctas_per_sm=1,
        places=device.sms,
        t0_globaltimer_ns=t0,
    )
    return Trace("recorded", replace(device), TIMER_STEP_NS, (launch,), spans)
