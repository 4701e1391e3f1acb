"""Tiles that reach over m or n: which they are, how much slower their k_iters, and who says so."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_calibration import H200, ROW, SHARED, TILE
from tests.test_calibration_split import WHOLE, runs
from tests.test_simulate import COSTLY, FREE, rows, spans_of
from tests.test_simulate import run as run_toy
from wavescope.calibrate import fit
from wavescope.calibration import lookup
from wavescope.calibration_launches import LAUNCHES, planned
from wavescope.calibration_row import Calibration
from wavescope.fit_edges import fit_edges
from wavescope.job_costs import costs_used
from wavescope.launch_costs import recorded_launch
from wavescope.leave_one_out import predict
from wavescope.problem import Problem, Tile
from wavescope.raster import Raster
from wavescope.schedule import Schedule, decompose
from wavescope.simulate import simulate
from wavescope.trace import Kind, Trace
from wavescope.variant import Variant

TOY = Tile(16, 16, 16)
RECORD = Path(__file__).parent / "data" / "record_h200.py"


def toy(name: str = "fixed", m: int = 16, n: int = 72) -> Schedule:
    """Tiles of ten k_iters on four places; by default five in a row, the last half outside."""
    return decompose(name, Problem(m, n, 160), TOY, 4, Raster("row"))


def run(row: Calibration, tiles_a_place: float, k: int, text: str, seed: int = 0) -> Trace:
    """Twelve rows of tiles, of which the last row and column reach over the edge."""
    variant, places = Variant.parse(text), H200.sms * row.ctas_per_sm
    problem = Problem(12 * TILE.m - 24, TILE.n * int(tiles_a_place * places / 12) - 24, k)
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
    )


def test_which_tiles_reach_over_the_edge() -> None:
    # 2 x 3 tiles in rows: 32 x 40 leaves the last column half outside, 24 x 48 the last row
    assert toy(m=32, n=40).is_edge.tolist() == [False, False, True, False, False, True]
    assert toy(m=24, n=48).is_edge.tolist() == [False, False, False, True, True, True]
    assert toy(m=31, n=47).is_edge.tolist() == [False, False, True, True, True, True]
    assert not toy(m=32, n=48).is_edge.any()
    assert toy(m=15, n=1).is_edge.tolist() == [True]
    # parts of a tile are at the edge where the tile is; an edge of k is none
    split = decompose("splitk", Problem(16, 40, 168), TOY, 4, parts=2)
    assert np.array_equal(split.is_edge, split.tile_n == 2)


def test_units_at_the_edge_by_hand() -> None:
    # ten k_iters of 320 and 160 once: 3360; at the edge ten of 400: 4160, from 192 + 64 after 3584 on
    trace = run_toy(toy(), replace(COSTLY, edge_slowdown=0.25))
    assert rows(spans_of(trace, Kind.MAC), "unit", "begin_ns", "end_ns") == [
        (0, 64, 3424),
        (1, 64, 3424),
        (2, 64, 3424),
        (3, 64, 3424),
        (4, 3840, 8000),
    ]
    # alone in a CTA of two an SM, with the other there until it ends
    trace = run_toy(toy(n=24), replace(FREE, ctas_per_sm=2, edge_slowdown=0.25), sms=1, ctas_per_sm=2)
    # both 320 a k_iter until 3200; the edge has 800 left, at twice the speed
    assert rows(spans_of(trace, Kind.MAC), "unit", "begin_ns", "end_ns") == [(0, 0, 3200), (1, 0, 3584)]


def test_only_schedules_with_edges_use_the_cost() -> None:
    assert "edge_slowdown" in costs_used(toy())
    assert "edge_slowdown" not in costs_used(toy(n=80))
    assert FREE.grid_model == replace(FREE, edge_slowdown=0.5).grid_model


@pytest.mark.parametrize("text", ["fixed", "persistent", "splitk:2", "hybrid"])
def test_a_launch_with_edges_tells_how_much_slower_they_are(text: str) -> None:
    inner = runs(ROW, WHOLE)
    found, without = fit([*inner, run(ROW, 1.9, 1024, text, seed=9)]), fit(inner)
    assert found.edge_slowdown == pytest.approx(0.3, abs=0.015)
    assert without.unseen == ("stream_slowdown", "edge_slowdown", "queue_gap_cycles")
    assert found.unseen == ("stream_slowdown", "queue_gap_cycles")
    # and nothing else: all other costs are those of the launches without edges
    assert replace(found, edge_slowdown=0.0, source=without.source) == without


def test_with_several_ctas_an_sm_too() -> None:
    truth = replace(SHARED, ctas_per_sm=2, sharing=0.7, seniority=0.3)
    inner = runs(truth, WHOLE)
    found, without = fit([*inner, run(truth, 1.9, 1024, "fixed", seed=9)]), fit(inner)
    assert found.edge_slowdown == pytest.approx(0.3, abs=0.03)
    assert replace(found, edge_slowdown=0.0, source=without.source) == without


@pytest.mark.parametrize("truth", [ROW, replace(SHARED, ctas_per_sm=2, sharing=0.7, seniority=0.3)], ids=["1", "2"])
def test_launches_with_edges_alone_tell_the_other_costs_as_well(truth: Calibration) -> None:
    edges = [
        run(truth, 1.3, 2048, "fixed", 0),
        run(truth, 1.3, 512, "fixed", 1),
        run(truth, 2.4, 1024, "persistent", 2),
    ]
    found = fit(edges)
    assert found.cycles_per_k_iter == pytest.approx(truth.cycles_per_k_iter, rel=0.03)
    # what a unit costs once is not known before this cost, so it stands among the k_iters: a sixth too little; and the
    # neighbours on an SM blur it: more than a quarter, which cycles_per_k_iter makes up for
    assert found.edge_slowdown == pytest.approx(0.252 if truth is ROW else 0.2195, abs=0.005)
    assert "edge_slowdown" not in found.unseen
    for trace in edges:
        assert predict(trace, found).error == pytest.approx(0, abs=0.04)


def test_a_launch_of_nothing_but_edges_takes_the_cost_from_elsewhere() -> None:
    trace = run(ROW, 1.2, 1024, "fixed")
    narrow = decompose("fixed", Problem(100, 128 * 132, 1024), TILE, H200.sms)
    alone = simulate(
        narrow, H200, kernel="gemm_mma", block=128, registers=128, shared_bytes=0, ctas_per_sm=1, calibration=ROW
    )
    plain, held = fit([alone]), fit([alone], otherwise=replace(ROW, source="x"))
    assert fit_edges([recorded_launch(alone, alone.launches[0])], {}) is None
    assert fit_edges([recorded_launch(trace, trace.launches[0])], {}) is not None
    assert "edge_slowdown" in plain.unseen
    assert plain.edge_slowdown == 0
    # (32 * 400 * 1.3 + 1500 + 1000) / 32; held, the rest is left for 400 and what a unit costs once
    assert plain.cycles_per_k_iter == pytest.approx(597, rel=0.02)
    assert held.edge_slowdown == 0.3
    assert held.cycles_per_k_iter == pytest.approx(400, rel=0.02)


def test_edges_that_are_not_slower_cost_nothing() -> None:
    quick = replace(ROW, edge_slowdown=0.0)
    found = fit([*runs(quick, WHOLE), run(quick, 1.9, 1024, "fixed", seed=9)])
    assert found.edge_slowdown == pytest.approx(0, abs=0.005)
    assert "edge_slowdown" not in found.unseen


def test_a_prediction_says_that_no_other_launch_shows_edges() -> None:
    trace = run(ROW, 1.9, 1024, "fixed")
    assert predict(trace, fit(runs(ROW, WHOLE))).missing == ("edge_slowdown",)
    assert predict(trace, ROW).missing == ()


def test_a_scaled_row_keeps_the_slowdown() -> None:
    assert lookup("gemm_mma", Tile(128, 256, 64), "bf16", H200, rows=(ROW,)).edge_slowdown == 0.3


def test_a_simulation_says_once_that_edges_were_not_recorded() -> None:
    unknown = replace(FREE, source="x; not to be told from these launches: edge_slowdown")

    def said(schedule: Schedule, costs: Calibration) -> list[str]:
        return [note for note in run_toy(schedule, costs).launches[0].notes if "edge of C" in note]

    assert said(toy(), unknown) == [
        "k_iters of tiles that reach over the edge of C take longer: by how much was not recorded, and is left out here"
    ]
    assert said(toy("splitk"), unknown) == said(toy(), unknown)
    assert said(toy(n=80), unknown) == []
    assert said(toy(), FREE) == []


def test_the_last_planned_launch_alone_has_edges() -> None:
    for tile in (Tile(128, 256, 64), Tile(64, 64, 64), Tile(128, 128, 8)):
        *others, last = planned("gemm_mma", tile, "bf16", 264)
        assert not any(plan.has_edges for plan in others)
        assert last.has_edges
        assert last.variant == Variant("fixed")
        schedule = decompose("fixed", last.problem, tile, 264)
        rows_of_tiles, columns = tile.tiles_m(last.problem), tile.tiles_n(last.problem)
        assert np.count_nonzero(schedule.is_edge) == rows_of_tiles + columns - 1
        assert replace(last.problem, m=last.problem.m + 24, n=last.problem.n + 24) in [plan.problem for plan in others]


def test_the_recording_script_keeps_edges_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names: dict[str, Any] = runpy.run_path(str(RECORD))["main"].__globals__
    trace = run(ROW, 1.2, 1024, "fixed")
    asked: list[tuple[Problem, Tile]] = []
    saved: dict[str, list[tuple[Problem, Tile]]] = {}

    def one(problem: Problem, tile: Tile, variant: Variant, kernel: str) -> Trace:
        asked.append((problem, tile))
        return trace

    def save(found: Trace, path: Path) -> None:
        saved[path.name] = asked.copy()
        asked.clear()

    for name, stand_in in (("query", lambda index: None), ("one", one), ("together", lambda found: trace)):
        monkeypatch.setitem(names, name, stand_in)
    monkeypatch.setitem(names, "save", save)
    monkeypatch.setattr("sys.argv", ["record_h200.py", str(tmp_path)])
    names["main"]()
    for name, launches in saved.items():
        with_edges = [problem for problem, tile in launches if problem.m % tile.m or problem.n % tile.n]
        assert len(with_edges) == name.endswith("-edges.parquet"), name
    assert len(saved["gemm_mma-128x256x64-edges.parquet"]) == 1
    assert len(saved["gemm_simt-128x128x8-schedules.parquet"]) == sum("fixed" not in plan for plan in LAUNCHES)
