"""What split tiles cost: fitted on the traces that show it, estimated where none does."""

from dataclasses import replace

import numpy as np
import pytest

from tests.synthetic import Span, trace_from
from tests.test_calibration import H200, ROW, SHARED, TILE
from tests.test_calibration import run as run_whole
from wavescope.calibrate import fit
from wavescope.calibration import lookup, model_for, model_of, table
from wavescope.calibration_row import Calibration
from wavescope.errors import UsageError
from wavescope.fixup_costs import estimated_fixup_cycles
from wavescope.grid_model import UNCALIBRATED, GridModel
from wavescope.launch_costs import fixup_cycles, gap_cycles, prologue_and_exit_cycles, recorded_launch
from wavescope.leave_one_out import leave_one_out, predict
from wavescope.problem import Problem, Tile
from wavescope.replay import replay
from wavescope.schedule import decompose
from wavescope.simulate import simulate
from wavescope.trace import Kind, Trace
from wavescope.variant import Variant, schedule_of

FIXUPS = ("partial_cycles", "add_cycles", "share_cycles", "spare_cycles")


def run(row: Calibration, tiles_a_place: float, k: int, text: str, seed: int = 0) -> Trace:
    places = H200.sms * row.ctas_per_sm
    variant = Variant.parse(text)
    problem = Problem(128, 128 * int(tiles_a_place * places), k)
    return simulate(
        variant.decompose(problem, TILE, places, row.grid_model),
        H200,
        kernel=row.kernel,
        block=128,
        registers=128,
        shared_bytes=0,
        ctas_per_sm=row.ctas_per_sm,
        calibration=row,
        seed=seed,
        reduction=variant.reduction,
    )


WHOLE = [(1.2, 2048, "fixed"), (1.2, 512, "fixed"), (2.4, 1024, "persistent"), (1.9, 1024, "fixed")]
SPLIT = [
    (1.23, 2048, "streamk"),
    (1.6, 1024, "hybrid"),
    (0.6, 2048, "splitk:3"),
    (1.23, 2048, "tailsplit:4"),  # by spare CTAs
    (0.45, 2048, "tailsplit:2"),  # by shares, for there is no whole tile
    (1.4, 1024, "hybrid@atomic"),
]


def runs(row: Calibration, launches: list[tuple[float, int, str]]) -> list[Trace]:
    return [run(row, *launch, seed=seed) for seed, launch in enumerate(launches)]


def test_split_tiles_tell_what_partial_sums_cost() -> None:
    found = fit(runs(ROW, [*WHOLE, *SPLIT]))
    for name in FIXUPS:
        assert getattr(found, name) == pytest.approx(getattr(ROW, name), rel=0.01), name
    assert found.stream_slowdown == pytest.approx(0.2, abs=0.01)
    assert found.cycles_per_k_iter == pytest.approx(400, rel=0.005)
    assert found.fixed_cycles == pytest.approx(1500, abs=150)
    assert (found.estimated, found.unseen) == ((), ("edge_slowdown", "queue_gap_cycles"))


def test_with_several_ctas_an_sm_too() -> None:
    truth = replace(SHARED, ctas_per_sm=2, sharing=0.7, seniority=0.3)
    found = fit(runs(truth, [*WHOLE, *SPLIT]))
    for name in FIXUPS:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.03), name
    assert found.stream_slowdown == pytest.approx(0.2, abs=0.01)
    assert found.sharing == pytest.approx(0.7, abs=0.02)
    assert found.seniority == pytest.approx(0.3, abs=0.02)
    assert (found.estimated, found.unseen) == ((), ("edge_slowdown", "queue_gap_cycles"))


def test_a_queue_of_resident_ctas_keeps_their_age() -> None:
    truth = replace(SHARED, ctas_per_sm=2, sharing=0.7, seniority=0.3)
    found = fit(runs(truth, [(1.2, 2048, "fixed"), (2.3, 1024, "dynamic")]))
    assert found.sharing == pytest.approx(0.7, abs=0.02)
    assert found.seniority == pytest.approx(0.3, abs=0.02)


def test_stream_k_alone_does_not_tell_staggered_from_slow() -> None:
    found = fit([run(ROW, 1.23, 2048, "streamk")])
    assert found.cycles_per_k_iter == pytest.approx(480, rel=0.01)
    assert found.stream_slowdown == 0
    assert "stream_slowdown" in found.unseen
    assert found.estimated == ("share_cycles", "spare_cycles")
    shared = fit([run(replace(SHARED, ctas_per_sm=2), 1.23, 2048, "streamk")])
    assert {"stream_slowdown", "sharing", "seniority"} <= set(shared.unseen)
    assert shared.cycles_per_k_iter == pytest.approx(1.2 * 1200, rel=0.1)  # CTAs that end early leave the SM to others


def test_a_slow_start_of_staggered_shares_is_no_cost_of_others() -> None:
    # as on an H200: the first share of a CTA takes longer, whatever its k, and later ones hardly do
    row = replace(ROW, stream_slowdown=0.0)
    traces = runs(row, [*WHOLE, *SPLIT])
    for index, trace in enumerate(traces):
        if trace.launches[0].schedule in ("streamk", "hybrid"):
            spans = trace.spans
            macs = np.flatnonzero(spans.kind == Kind.MAC)
            macs = macs[np.lexsort((spans.begin_clock[macs], spans.cta[macs]))]
            firsts = macs[np.append(True, np.diff(spans.cta[macs]) > 0)]
            begin_clock = spans.begin_clock.copy()
            begin_clock[firsts] -= 3000
            traces[index] = replace(trace, spans=replace(spans, begin_clock=begin_clock))
    found = fit(traces)
    assert found.cycles_per_k_iter == pytest.approx(400, rel=0.005)
    assert found.fixed_cycles == pytest.approx(1500, abs=150)
    assert found.cold_cycles == pytest.approx(1000, abs=150)
    assert found.stream_slowdown > 0.1  # their mean


def test_sums_that_are_added_atomically_are_another_cost() -> None:
    found = fit([run(ROW, 1.4, 1024, "hybrid@atomic"), run(ROW, 1.2, 512, "fixed")])
    assert found.estimated == FIXUPS


def test_fixup_spans_by_hand() -> None:
    # one tile in three: ranks 1 and 2 leave theirs in 30 and 50; the owner waits 15 and adds both in 80
    problem = Problem(16, 16, 96)
    inside = [
        (0, 1, 2, [(Kind.MAC, 0, 100), (Kind.FIXUP, 100, 130)]),
        (1, 0, 1, [(Kind.MAC, 0, 100), (Kind.FIXUP, 100, 150)]),
        (2, 2, 0, [(Kind.MAC, 0, 135), (Kind.WAIT, 135, 150), (Kind.FIXUP, 150, 230), (Kind.EPILOGUE, 230, 250)]),
    ]
    rows = [Span(Kind.CTA, cta, sm, parts[0][1], parts[-1][2]) for cta, sm, _, parts in inside]
    rows += [
        Span(kind, cta, sm, begin, end, unit=cta, tile_m=0, tile_n=0, k_begin=2 * part, k_end=2 * part + 2)
        for cta, sm, part, parts in inside
        for kind, begin, end in parts
    ]
    launch = {"schedule": "splitk", "raster": "row", "parts": 3, "problem": problem, "tile": Tile(16, 16, 16)}
    trace = trace_from(rows, **launch)
    found = fixup_cycles(recorded_launch(trace, trace.launches[0]))
    assert (found.partial.tolist(), found.add.tolist(), len(found.share), len(found.spare)) == ([30, 50], [40], 0, 0)
    other = trace_from(rows, **{**launch, "parts": 2})
    with pytest.raises(UsageError, match="units of launch 0 are not those of its schedule splitk"):
        recorded_launch(other, other.launches[0])


def test_spans_of_spare_ctas_by_hand() -> None:
    # one tile of three in two parts, whole tiles on CTAs 0 to 2 of three; CTA 2 has no part and adds both in 60
    schedule = replace(decompose("tailsplit", Problem(16, 64, 64), Tile(16, 16, 16), 3, parts=2), reducers=1)
    rows = [Span(Kind.CTA, cta, cta, 0, 300) for cta in range(3)]
    for at in range(schedule.num_units):
        cta, part = int(schedule.cta[at]), bool(schedule.peers[at] > 1)
        of_unit = {
            "unit": int(schedule.unit[at]),
            "tile_m": int(schedule.tile_m[at]),
            "tile_n": int(schedule.tile_n[at]),
            "k_begin": int(schedule.k_begin[at]),
            "k_end": int(schedule.k_end[at]),
        }
        begin = 0 if part or cta == 2 else 100
        rows.append(Span(Kind.MAC, cta, cta, begin, begin + 50, **of_unit))
        rows += [Span(Kind.FIXUP, cta, cta, 50, 75, **of_unit)] if part else []
    rows += [Span(Kind.WAIT, 2, 2, 70, 75), Span(Kind.FIXUP, 2, 2, 75, 135)]
    launch = {"schedule": "tailsplit", "raster": "grouped8", "parts": 2, "reducers": 1}
    trace = trace_from(rows, sms=3, problem=schedule.problem, tile=schedule.tile, **launch)
    one = recorded_launch(trace, trace.launches[0])
    found = fixup_cycles(one)
    assert (found.partial.tolist(), found.spare.tolist()) == ([25, 25], [60])
    assert (len(found.add), len(found.share)) == (0, 0)
    # what is no unit's ends CTA 2, after a gap of 20; there is none between its wait and what it adds
    prologue, leaving = prologue_and_exit_cycles(one)
    assert (prologue.tolist(), leaving.tolist()) == ([0, 0, 0], [150, 150, 165])
    assert gap_cycles(one).tolist() == [25, 25, 20]
    # the launch says who added, whatever a model would choose today
    assert one.schedule is not None
    assert one.schedule.reducers == 1
    by_shares = replace(trace, launches=(replace(trace.launches[0], reducers=0),))
    again = recorded_launch(by_shares, by_shares.launches[0]).schedule
    assert again is not None
    assert again.reducers == 0


def test_partial_sums_nobody_recorded_are_estimated_from_their_bytes() -> None:
    # 128 KB: 5900 and so on; a quarter of that is 32 KB, of which two CTAs move 64 KB at once
    assert estimated_fixup_cycles(Tile(128, 256, 64), 1) == {
        "partial_cycles": 5900,
        "add_cycles": 4500,
        "share_cycles": 5200,
        "spare_cycles": 14200,
    }
    assert estimated_fixup_cycles(Tile(64, 128, 64), 2)["partial_cycles"] == 2950
    found = fit([run_whole(ROW, 700, 1024)])
    assert found.estimated == FIXUPS
    assert found.partial_cycles == 2950
    scaled = lookup("gemm_mma", Tile(128, 256, 64), "bf16", H200, rows=(found,))
    assert (scaled.partial_cycles, scaled.estimated) == (5900, FIXUPS)


def test_the_table_has_what_split_tiles_need() -> None:
    for row in table():
        assert min(row.partial_cycles, row.add_cycles, row.share_cycles) > 0
        assert 0 <= row.stream_slowdown < 1


def test_the_grid_model_of_a_calibration() -> None:
    assert ROW.grid_model == GridModel(a=2400, b=600, c=400, d=800, staggered=0.2, share=1000, spare=1000)
    row = lookup("gemm_mma", Tile(128, 256, 64), "bf16", H200)
    assert model_for("gemm_mma", Tile(128, 256, 64), "bf16", H200) == row.grid_model
    assert model_of(Problem(2304, 2304, 4096), Tile(128, 256, 64), H200, kernel="gemm_mma") == row.grid_model
    two = lookup("gemm_mma", Tile(128, 128, 64), "bf16", H200, 2)
    assert model_of(Problem(2304, 2304, 4096), Tile(128, 128, 64), H200, kernel="gemm_mma") == two.grid_model


def test_staggered_shares_cost_the_grid_model_more() -> None:
    # 9 tiles of 32 k_iters: 3 CTAs have 3 tiles each, 4 CTAs 72 k_iters, 18 CTAs half a tile
    model = GridModel(a=0, b=0, c=1, d=0, staggered=0.5)
    assert [model.grid_time(9, 32, grid) for grid in (3, 4, 18)] == [96, 108, 16]


def test_which_shares_are_staggered() -> None:
    small, tile = Problem(384, 384, 128), Tile(128, 128, 4)
    assert decompose("streamk", small, tile, 4, parts=4).is_staggered.all()
    assert not decompose("streamk", small, tile, 4, parts=3).is_staggered.any()
    assert not decompose("streamk", small, tile, 18, parts=18).is_staggered.any()
    for name in ("fixed", "splitk", "tailsplit"):
        assert not decompose(name, small, tile, 4).is_staggered.any()
    hybrid = decompose("hybrid", Problem(896, 384, 128), tile, 4)
    assert np.array_equal(hybrid.is_staggered, hybrid.unit < 9)


def test_a_launch_says_how_it_was_run() -> None:
    for text in ("fixed", "splitk:3", "streamk:96@row@atomic", "tailsplit:4@column", "tailsplit:2@atomic"):
        variant = Variant.parse(text)
        launch = run(ROW, 1.23, 1024, text).launches[0]
        assert Variant.of(launch) == variant
        assert np.array_equal(schedule_of(launch).k_begin, variant.decompose(launch.problem, TILE, 132).k_begin)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="names no schedule of wavescope's"):
        Variant.of(trace_from([Span(Kind.CTA, 0, 0, 0, 32)]).launches[0])


def test_each_launch_is_predicted_from_the_others() -> None:
    launches = [*WHOLE, *SPLIT[:3]]  # each cost twice, but for those of tail splits
    found = list(leave_one_out(runs(ROW, launches)))
    assert [one.launch.schedule for one in found] == [text.partition(":")[0] for _, _, text in launches]
    assert max(abs(one.error) for one in found) < 0.02
    assert all(one.missing == () for one in found)
    assert list(leave_one_out(runs(ROW, WHOLE[:1]))) == []


def test_a_prediction_says_which_costs_no_other_launch_shows() -> None:
    tail = run(ROW, 1.23, 2048, "tailsplit:4")
    assert predict(tail, fit(runs(ROW, WHOLE))).missing == ("partial_cycles", "spare_cycles")
    stream = run(ROW, 1.23, 2048, "streamk")
    assert predict(stream, fit(runs(ROW, [*WHOLE, *SPLIT[2:4]]))).missing == ("stream_slowdown",)
    assert predict(stream, fit(runs(ROW, WHOLE[:1]))).missing[0] == "fixed_cycles"
    share = run(ROW, 0.45, 2048, "tailsplit:2")
    assert predict(share, fit(runs(ROW, WHOLE))).missing == ("partial_cycles", "share_cycles")
    # twice as slow a device: half as long as predicted
    slow = replay(stream.launches[0], schedule_of(stream.launches[0]), H200, replace(ROW, clock_mhz=850.0))
    assert predict(slow, ROW).error == pytest.approx(-0.5, abs=0.05)


def test_the_model_without_a_calibration_is_that_of_a_recorded_tile() -> None:
    recorded_model = lookup("gemm_mma", Tile(128, 256, 64), "bf16", H200).grid_model
    for name in ("a", "b", "c", "d", "share", "spare"):
        in_k_iters = getattr(recorded_model, name) / recorded_model.c
        assert getattr(UNCALIBRATED, name) == pytest.approx(in_k_iters, rel=0.02), name
