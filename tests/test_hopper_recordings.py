"""What the Hopper kernels left on an H200: launches of every schedule, analysed, simulated and fitted."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from wavescope.analyze import analyze
from wavescope.calibrate import fit
from wavescope.calibration import table
from wavescope.calibration_row import render
from wavescope.integrity import check
from wavescope.jobs import beside_a_share
from wavescope.trace import NULL, Kind, Launch, Spans, Trace
from wavescope.trace_file import load
from wavescope.variant import Variant, schedule_of
from wavescope.virtual import run
from wavescope.virtual_comparison import span_ns

FOLDER = Path(__file__).parent / "data" / "h200_hopper"
FILES = {path.stem: load(path) for path in sorted(FOLDER.glob("*.parquet"))}
LAUNCHES = [
    pytest.param(trace, launch, id=f"{name}-{launch.schedule}-{launch.problem}")
    for name, trace in FILES.items()
    for launch in trace.launches
]
# A simulation's error against the launch it was partly fitted on, and those that are known to be further off.
MEDIAN, WORST = 0.035, 0.08
KNOWN = {  # relative error, to a hundredth
    ("128x256x64", "splitk", 4096): 0.14,
    ("128x256x64", "fixed", 1024): 0.09,
    ("64x128x64", "streamk", 4096): -0.11,
    ("64x128x64", "fixed", 1024): 0.13,
    ("64x128x64", "persistent", 1024): 0.09,
    ("128x128x64", "fixed", 1024): 0.08,
    ("168x128x64", "fixed", 1024): 0.10,
    ("168x128x64", "fixed", 2048): 0.08,
}


def spans_of(trace: Trace, launch: Launch) -> Spans:
    return trace.spans.select(trace.spans.launch_id == launch.launch_id)


@pytest.mark.parametrize(("trace", "launch"), LAUNCHES)
def test_it_adds_up(trace: Trace, launch: Launch) -> None:
    check(trace)
    report = analyze(trace, launch.launch_id)
    assert report.budget.residual_ns == 0
    assert report.waterfall is not None
    factors = report.waterfall.factors
    product = report.waterfall.peak_tflops * math.prod(factor.value for factor in factors)
    assert product == pytest.approx(report.waterfall.achieved_tflops, rel=1e-9)
    for factor in factors:
        if factor.name != "probe":  # a cost beside which the kernels differ
            assert factor.value <= 1 + factor.error, factor
    names = [factor.name for factor in factors]
    assert {"issue rate", "operands", "pipe fill", "rest of mac"} < set(names)
    assert "inside tile" not in names


@pytest.mark.parametrize(("trace", "launch"), LAUNCHES)
def test_waits_are_measured(trace: Trace, launch: Launch) -> None:
    spans = spans_of(trace, launch)
    macs = spans.select(spans.kind == Kind.MAC)
    assert (macs.stall_clock != NULL).all()
    assert (macs.stall_clock < macs.end_clock - macs.begin_clock).all()
    assert macs.stall_clock.max() > 0


def test_a_long_launch_keeps_its_copier_waiting_and_its_tensor_cores_busy() -> None:
    """128x256 tiles of 64 k_iters: 95 % of the mac cycles are the tensor pipe's, and the copier waits most of the time."""
    trace = FILES["gemm_sm90-128x256x64"]
    longest = max(trace.launches, key=lambda launch: launch.problem.flop if launch.problem else 0)
    spans = spans_of(trace, longest)
    macs = spans.select(spans.kind == Kind.MAC)
    cycles = (macs.end_clock - macs.begin_clock).astype(float)
    assert np.median(macs.stall_clock / cycles) < 0.03
    assert np.median((macs.k_end - macs.k_begin) * 1024 / cycles) > 0.95
    stores = spans.select(spans.kind == Kind.EPILOGUE)
    assert np.median(stores.stall_clock) > 0.4 * np.median(cycles)


def test_two_teams_store_while_the_other_multiplies() -> None:
    trace = FILES["gemm_sm90_pingpong-128x128x64"]
    longest = max(trace.launches, key=lambda launch: launch.problem.flop if launch.problem else 0)
    spans = spans_of(trace, longest)
    macs, stores = spans.select(spans.kind == Kind.MAC), spans.select(spans.kind == Kind.EPILOGUE)
    assert set(macs.lane.tolist()) == {0, 1}
    hidden = 0
    for cta in np.unique(stores.cta):
        begin, end = (getattr(macs, name)[macs.cta == cta] for name in ("begin_clock", "end_clock"))
        mine = stores.select(stores.cta == cta)
        hidden += sum(
            bool(((begin < at) & (end > to)).any()) for at, to in zip(mine.begin_clock, mine.end_clock, strict=True)
        )
    assert hidden > 0.8 * len(stores)  # all but the last ones of each CTA


def test_shares_are_added_beside_whole_tiles() -> None:
    trace = FILES["gemm_sm90-128x256x64"]
    (launch,) = (
        one for one in trace.launches if one.schedule == "tailsplit" and one.parts == 2 and one.problem.n > 2000
    )  # type: ignore[union-attr]
    assert launch.reducers == 0
    assert beside_a_share(schedule_of(launch)).any()
    spans = spans_of(trace, launch)
    added = spans.select((spans.kind == Kind.FIXUP) & (spans.lane == 1))
    macs = spans.select(spans.kind == Kind.MAC)
    whole = macs.k_end - macs.k_begin == 64
    ends = dict(zip(macs.cta[whole].tolist(), macs.end_clock[whole].tolist(), strict=True))
    early = [end < ends[cta] for cta, end in zip(added.cta.tolist(), added.end_clock.tolist(), strict=True)]
    assert len(early) > 100
    assert np.mean(early) > 0.95


def test_the_shipped_costs_are_those_of_the_recordings() -> None:
    for trace in FILES.values():
        fitted = fit([trace])
        shipped = next(row for row in table() if (row.kernel, row.tile) == (fitted.kernel, fitted.tile))
        mine, theirs = (render([row]).splitlines()[1].split(",")[:30] for row in (fitted, shipped))
        assert mine == theirs


def test_simulations_are_near() -> None:
    errors = []
    for trace in FILES.values():
        for launch in trace.launches:
            assert launch.problem is not None
            assert launch.tile is not None
            if launch.reducers:
                continue  # simulated with other CTAs
            spans = spans_of(trace, launch)
            simulated = run(launch.problem, launch.tile, Variant.of(launch), trace.device, reason="compared with a recording",
                            kernel=launch.kernel)  # fmt: skip
            error = span_ns(simulated) / int(spans.end_ns.max() - spans.begin_ns.min()) - 1
            known = KNOWN.get((str(launch.tile), launch.schedule or "", launch.problem.k))
            what = (launch.kernel, launch.schedule, launch.problem, error)
            assert abs(error) < WORST if known is None else error == pytest.approx(known, abs=0.01), what
            errors.append(error)
    assert len(errors) > 25
    assert np.median(np.abs(errors)) < MEDIAN
