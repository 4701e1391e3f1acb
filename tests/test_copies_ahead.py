"""Kernels that copy operands ahead: filling costs once a CTA, shares are added beside whole tiles; recovered by fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.test_calibrate_command import measured
from tests.test_calibration import H200, ROW
from tests.told_costs import told
from wavescope.calibrate import fit
from wavescope.calibration import lookup
from wavescope.calibration_launches import LAUNCHES_AHEAD, plans
from wavescope.calibration_row import parse, render
from wavescope.errors import UsageError
from wavescope.fixup_costs import estimated_beside_cycles
from wavescope.grid_model import GridModel
from wavescope.job_costs import costs_used
from wavescope.jobs import beside_a_share
from wavescope.kernel_table import GEMM_SM90
from wavescope.kernels import adds_beside, copies_ahead, takes_turns
from wavescope.launch_costs import fixup_cycles, gap_cycles, prologue_and_exit_cycles, recorded_launch
from wavescope.leave_one_out import leave_one_out
from wavescope.problem import Problem, Tile
from wavescope.schedule import Schedule, decompose
from wavescope.simulate import simulate
from wavescope.trace import Kind, Trace, join

TILE = Tile(128, 256, 64)
AHEAD = replace(ROW, kernel="gemm_sm90", tile=TILE, fixed_cycles=300.0, fill_cycles=2000.0, beside_cycles=1400.0)
QUIET = replace(AHEAD, noise=0.0, clock_spread=0.0, ramp_ns=0.0, idle_gain=0.0, idle_clock_mhz=AHEAD.clock_mhz)
PROBLEM = Problem(128 * 18, 256 * 11, 64 * 32)  # 198 tiles: 132 whole ones, and 66 cut into 132 halves


def run(
    row: object, name: str = "tailsplit", parts: int | None = 2, problem: Problem = PROBLEM
) -> tuple[Schedule, Trace]:
    """A launch on 132 SMs."""
    schedule = decompose(name, problem, TILE, 132, parts=parts)
    trace = simulate(
        schedule, H200, kernel=row.kernel, block=384, registers=168, shared_bytes=0, ctas_per_sm=1, calibration=row,
    )  # type: ignore[attr-defined, arg-type] # fmt: skip
    return schedule, trace


def mac_cycles(trace: Trace) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """By unit."""
    macs = trace.spans.select(trace.spans.kind == Kind.MAC)
    return (macs.end_clock - macs.begin_clock)[np.argsort(macs.unit)]


def test_which_kernels_do() -> None:
    assert [copies_ahead(name) for name in ("gemm_sm90", "gemm_sm90_pingpong", "gemm_mma", "triton_matmul")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert [takes_turns(name) for name in ("gemm_sm90", "gemm_sm90_pingpong", "gemm_mma")] == [False, True, False]
    tiles = (Tile(128, 256, 64), Tile(128, 128, 64), Tile(128, 256, 64), Tile(256, 192, 64))
    kernels = ("gemm_sm90", "gemm_sm90_pingpong", "gemm_mma", "gemm_sm90")  # the last has 192 sums a thread
    assert [adds_beside(*one) for one in zip(kernels, tiles, strict=True)] == [True, False, False, False]


def test_filling_is_paid_once_a_cta() -> None:
    cold = AHEAD.cold_cycles
    of_loop = 32 * AHEAD.cycles_per_k_iter + 300
    # 396 tiles, three a CTA
    three = Problem(128 * 36, 256 * 11, 64 * 32)
    _, trace = run(QUIET, "persistent", None, three)
    assert np.abs(mac_cycles(trace)[:132] - of_loop - 2000 - cold).max() <= 1
    assert np.abs(mac_cycles(trace)[132:] - of_loop).max() <= 1
    # each tile a CTA of its own
    _, trace = run(QUIET, "fixed", None, three)
    assert np.sort(mac_cycles(trace))[:264] == pytest.approx(of_loop + 2000, abs=1)
    assert np.sort(mac_cycles(trace))[264:] == pytest.approx(of_loop + 2000 + cold, abs=1)


def test_a_share_is_added_beside_a_whole_tile() -> None:
    schedule, trace = run(QUIET)
    assert schedule.reducers == 0
    beside = beside_a_share(schedule)
    assert np.flatnonzero(beside).tolist() == list(range(132, 264))
    assert mac_cycles(trace)[132:] == pytest.approx(32 * AHEAD.cycles_per_k_iter + 300 + 1400, abs=1)
    fixups = trace.spans.select(trace.spans.kind == Kind.FIXUP)
    assert len(fixups) == 132  # parts left; what other warps add takes no time of the CTA
    without = run(replace(QUIET, kernel="gemm_mma"))[1]
    assert np.count_nonzero(without.spans.kind == Kind.FIXUP) == 264
    longer = int(without.spans.end_clock.max() - without.spans.begin_clock.min())
    assert longer != int(trace.spans.end_clock.max() - trace.spans.begin_clock.min())
    # without whole tiles all warps add
    alone, trace = run(QUIET, problem=Problem(128 * 6, 256 * 11, 64 * 32))
    assert not beside_a_share(alone).any()
    assert np.count_nonzero(trace.spans.kind == Kind.FIXUP) == 264
    assert "beside_cycles" in costs_used(schedule)
    assert "beside_cycles" not in costs_used(alone)


def test_the_plan_tells_all_costs_apart() -> None:
    (plan,) = plans(H200, [TILE], ["bf16"])
    assert {launch.kernel for launch in plan} == {"gemm_sm90"}
    assert len(plan) == len(LAUNCHES_AHEAD)
    traces = [measured(launch, AHEAD, seed) for seed, launch in enumerate(plan)]
    assert {trace.launches[0].reducers > 0 for trace in traces if trace.launches[0].schedule == "tailsplit"} == {
        True, False,
    }  # fmt: skip
    found = fit(traces)
    assert (found.unseen, found.estimated) == ((), ())
    told(found, AHEAD)
    known = [one for one in leave_one_out(traces, found) if not one.missing]
    assert len(known) >= 7
    off = {one.launch.schedule: abs(one.error) for one in sorted(known, key=lambda one: abs(one.error))}
    assert off.pop("dynamic") < 0.04  # whose own gap no other launch shows
    assert max(off.values()) < 0.015


def test_the_same_launches_of_a_kernel_that_does_not() -> None:
    (plan,) = plans(H200, [TILE], ["bf16"])
    found = fit([measured(launch, replace(AHEAD, kernel="gemm_mma")) for launch in plan[:3]])
    assert (found.fill_cycles, found.beside_cycles) == (0, 0)
    assert not {"fill_cycles", "beside_cycles"} & {*found.unseen, *found.estimated}


def test_every_tile_has_a_place_for_its_share() -> None:
    for plan in plans(H200, kernel="gemm_sm90"):
        halves = next(launch for launch in plan if str(launch.variant) == "tailsplit:2")
        assert halves.tile.num_tiles(halves.problem) == 198
    assert len(plans(H200, kernel="gemm_sm90")) == len(GEMM_SM90.codes)


def test_costs_that_are_not_shown() -> None:
    persistent = run(AHEAD, "persistent", None)[1]
    found = fit([persistent])
    assert "fill_cycles" in found.unseen
    assert found.estimated[-1] == "beside_cycles"
    assert found.beside_cycles == estimated_beside_cycles(TILE) == 1400
    held = fit([persistent], otherwise=AHEAD)
    assert (held.fill_cycles, held.beside_cycles, held.fixed_cycles) == (2000, 1400, 300)
    assert held.cycles_per_k_iter == pytest.approx(AHEAD.cycles_per_k_iter, rel=0.01)


def with_shares_beside(trace: Trace) -> Trace:
    """The trace as the device leaves it: each CTA's other warps wait and add while the whole tile is multiplied."""
    spans = trace.spans
    order = np.lexsort((spans.begin_clock, spans.cta))
    spans = spans.select(order[spans.kind[order] != Kind.WAIT])
    whole = spans.select((spans.kind == Kind.MAC) & (spans.unit >= 132))
    parts = spans.select((spans.kind == Kind.MAC) & (spans.unit < 132))
    parts = parts.select(np.argsort(parts.cta))
    whole = whole.select(np.argsort(whole.cta))
    begin = whole.begin_clock - 100  # as the part is left, a little before the next unit
    middle, end = begin + 1500, begin + 9000
    added = [
        replace(
            parts,
            kind=np.full(len(parts), int(kind)),
            begin_clock=from_clock,
            end_clock=to_clock,
            begin_ns=whole.begin_ns,
            end_ns=whole.end_ns,
        )
        for kind, from_clock, to_clock in ((Kind.WAIT, begin, middle), (Kind.FIXUP, middle, end))
    ]
    return replace(trace, spans=join([spans, *added]))


def test_what_other_warps_do_meanwhile_is_no_gap_and_no_share() -> None:
    _, trace = run(QUIET)
    plain, beside = (recorded_launch(one, one.launches[0]) for one in (trace, with_shares_beside(trace)))
    assert len(beside.spans) > len(plain.spans)
    assert np.median(gap_cycles(beside)) == pytest.approx(QUIET.gap_cycles, abs=1)
    assert gap_cycles(beside).min() >= 0
    for one in prologue_and_exit_cycles(beside):
        assert one.min() >= 0
    assert prologue_and_exit_cycles(beside)[1] == pytest.approx(QUIET.exit_cycles, abs=1)
    assert len(fixup_cycles(beside).share) == 0  # took the time of other warps
    assert fixup_cycles(beside).partial == pytest.approx(QUIET.partial_cycles, abs=1)


def taking_turns(trace: Trace, store: int) -> Trace:
    """The trace as teams that take turns leave it: a tile is stored, and the next begun, beside a main loop."""
    spans = trace.spans.select(np.lexsort((trace.spans.begin_clock, trace.spans.cta)))
    is_mac = spans.kind == Kind.MAC
    again = np.append(False, spans.cta[1:] == spans.cta[:-1])
    turn = np.zeros(len(spans), np.int64)
    for cta in np.unique(spans.cta):
        mine = is_mac & (spans.cta == cta)
        turn[mine] = np.arange(np.count_nonzero(mine))
    early = np.where(is_mac & again & (turn > 0), 900, 0)
    macs = spans.select(is_mac)
    stored = replace(
        macs,
        kind=np.full(len(macs), int(Kind.EPILOGUE)),
        begin_clock=macs.end_clock,
        end_clock=macs.end_clock + store,
        begin_ns=macs.end_ns,
        end_ns=macs.end_ns + store,
        lane=turn[is_mac] % 2,
    )
    shown = replace(spans, begin_clock=spans.begin_clock - early, lane=np.where(is_mac, turn % 2, 0))
    return replace(trace, spans=join([shown, stored]))


def test_units_in_turn_are_described_one_after_another() -> None:
    hidden = replace(
        QUIET,
        kernel="gemm_sm90_pingpong",
        epilogue_cycles=0.0,
        gap_cycles=0.0,
        queue_gap_cycles=0.0,
        exit_cycles=3000.0,
    )
    for name in ("persistent", "fixed", "dynamic"):
        _, trace = run(hidden, name, None, Problem(128 * 36, 256 * 11, 64 * 32))
        plain, turns = (recorded_launch(one, one.launches[0]) for one in (trace, taking_turns(trace, 2000)))
        assert not (turns.spans.kind == Kind.EPILOGUE).any()
        assert np.array_equal(np.sort(turns.cycles), np.sort(plain.cycles)), name
        assert np.array_equal(np.sort(gap_cycles(turns)), np.sort(gap_cycles(plain))), name
        assert prologue_and_exit_cycles(turns)[1] == pytest.approx(3000, abs=1)
    _, trace = run(hidden, "persistent", None, Problem(128 * 36, 256 * 11, 64 * 32))
    found = fit([taking_turns(trace, 2000)])
    assert found.cycles_per_k_iter * 32 + found.fixed_cycles == pytest.approx(
        hidden.cycles_per_k_iter * 32 + hidden.fixed_cycles, rel=0.001
    )
    assert (found.epilogue_cycles, found.gap_cycles) == (0, 0)
    assert not {"epilogue_cycles", "beside_cycles"} & {*found.unseen, *found.estimated}


def test_parts_at_once_are_refused() -> None:
    for kernel in ("gemm_sm90", "gemm_sm90_pingpong"):
        _, trace = run(replace(AHEAD, kernel=kernel))
        lanes = np.where(trace.spans.kind == Kind.MAC, (trace.spans.unit >= 132).astype(np.int64), 0)
        trace = replace(trace, spans=replace(trace.spans, lane=lanes))
        with pytest.raises(UsageError, match=r"work on two units at once, .* where tiles are cut \(tailsplit\)"):
            fit([trace])


def test_the_plan_of_a_kernel_that_takes_turns_keeps_tiles_whole() -> None:
    (plan,) = plans(H200, [Tile(128, 192, 64)], ["bf16"], "gemm_sm90_pingpong")
    assert [str(one.variant) for one in plan].count("persistent") == 3
    assert {one.variant.schedule for one in plan} == {"fixed", "persistent", "dynamic"}


def test_scaling_moves_what_a_unit_costs_once() -> None:
    mma = replace(ROW, tile=TILE)
    to = lookup("gemm_sm90", TILE, "bf16", H200, rows=(mma,))
    assert (to.fixed_cycles, to.fill_cycles, to.beside_cycles) == (0, ROW.fixed_cycles, 1400)
    back = lookup("gemm_mma", TILE, "bf16", H200, rows=(AHEAD,))
    assert (back.fixed_cycles, back.fill_cycles, back.beside_cycles) == (2300, 0, 0)
    half = lookup("gemm_sm90", Tile(128, 128, 64), "bf16", H200, rows=(AHEAD,))
    assert (half.fixed_cycles, half.fill_cycles, half.beside_cycles) == (300, 2000, 700)


def test_the_grid_model_knows_both() -> None:
    model = AHEAD.grid_model
    assert (model.fill, model.beside) == (2000, 1400)
    assert ROW.grid_model.beside is None
    plain = GridModel(a=10, b=1, c=1, d=1, share=50)
    # a split is a CTA, and fills anew in each of three waves
    assert replace(plain, fill=7).splits_time(9, 8, 1, 3) - plain.splits_time(9, 8, 1, 3) == 21
    beside = replace(plain, beside=5)
    assert plain.tail_time(2, 8, 2, 4, whole=4) - beside.tail_time(2, 8, 2, 4, whole=4) == 45
    assert plain.tail_time(2, 8, 2, 4) == beside.tail_time(2, 8, 2, 4)  # no whole tile to add it beside


def test_rows_keep_both() -> None:
    assert parse(render([AHEAD]), "x") == (AHEAD,)
