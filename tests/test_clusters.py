"""Clusters of CTAs: whole ones in every grid, pairs with neighbouring tiles, boxes of half a tile, spare CTAs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.synthetic import Span, spans_from, trace_from
from tests.test_integrity import run
from wavescope import kernel_table, kernels, tensor_maps
from wavescope.analyze import analyze
from wavescope.comparison import words_of
from wavescope.device import virtual_device
from wavescope.errors import IntegrityError
from wavescope.integrity import check
from wavescope.operands import OperandSet
from wavescope.problem import Problem, Tile
from wavescope.raster import Raster
from wavescope.schedule import decompose
from wavescope.trace import RECORD_DTYPE, Kind, spans_of_records
from wavescope.variant import Variant
from wavescope.virtual import run as simulated

TILE = Tile(16, 16, 16)


@pytest.mark.parametrize(
    ("schedule", "tiles", "places", "ctas"),
    [
        ("fixed", 6, 4, 6),
        ("fixed", 7, 4, 8),  # the last CTA has no tile
        ("fixed", 1, 4, 2),
        ("persistent", 7, 4, 4),
        ("persistent", 7, 5, 4),  # half a pair finds no room
        ("persistent", 3, 8, 4),
        ("persistent", 4, 8, 4),
        ("persistent", 3, 3, 2),
    ],
)
def test_grids_are_whole_pairs(schedule: str, tiles: int, places: int, ctas: int) -> None:
    found = Variant(schedule).decompose(Problem(16 * tiles, 16, 64), TILE, places, cluster=2)
    assert found.num_ctas == ctas
    assert found.num_units == tiles
    alone = Variant(schedule).decompose(Problem(16 * tiles, 16, 64), TILE, places)
    assert alone.num_ctas == (tiles if schedule == "fixed" else min(places, tiles))


@pytest.mark.parametrize("raster", ["row", "column", "grouped3", "grouped8"])
@pytest.mark.parametrize("schedule", kernel_table.WHOLE_AND_STATIC)
@pytest.mark.parametrize(("m", "n"), [(7, 5), (8, 5), (1, 1), (1, 9), (9, 1), (12, 11)])
def test_a_pair_has_neighbouring_units_in_every_round(schedule: str, raster: str, m: int, n: int) -> None:
    """What unit_of_peer in gemm_sm90.cu goes by: the other CTA's unit is this one's with the lowest bit turned."""
    found = decompose(schedule, Problem(16 * m, 16 * n, 64), TILE, 6, Raster(raster), cluster=2)
    rounds = found.unit // found.num_ctas
    for unit, cta, own_round in zip(found.unit, found.cta, rounds, strict=True):
        peer = (found.cta == cta ^ 1) & (rounds == own_round)
        assert found.unit[peer].tolist() == ([unit ^ 1] if unit ^ 1 < found.num_units else [])


def test_a_spare_cta_leaves_its_record_and_nothing_else() -> None:
    problem = Problem(48, 16, 64)
    schedule = decompose("fixed", problem, TILE, 4, cluster=2)
    rows = [*run(schedule), Span(Kind.CTA, 3, 1, 300, 305)]
    facts: dict[str, Any] = {"problem": problem, "tile": TILE, "schedule": "fixed", "raster": "grouped8", "cluster": 2}
    trace = trace_from(rows, sms=2, **facts)
    assert trace.launches[0].grid == schedule.num_ctas == 4
    check(trace, schedule)
    report = analyze(trace)
    assert report.budget.residual_ns == 0
    assert report.waves.num_units == 3
    assert words_of(trace.launches[0]) == "fixed"
    with pytest.raises(IntegrityError, match="3 CTAs were recorded of a grid of 4"):
        check(trace_from(spans_from(rows[:-1]), sms=2, grid=4, **facts), schedule)


def test_spans_name_their_cluster() -> None:
    records = np.zeros(6, RECORD_DTYPE)
    records["kind"], records["cta"], records["end_ns"] = Kind.CTA, np.arange(6), 1
    assert spans_of_records(records, 0, cluster=2)[0].cluster_id.tolist() == [0, 0, 1, 1, 2, 2]
    assert set(spans_of_records(records, 0, cluster=1)[0].cluster_id.tolist()) == {-1}


@pytest.mark.parametrize(
    ("layout", "cluster", "box"), [("tn", 1, (64, 256)), ("tn", 2, (64, 128)), ("nn", 1, (64, 64)), ("nn", 2, (64, 64))]
)
def test_each_of_a_pair_copies_a_box_of_its_own(
    monkeypatch: pytest.MonkeyPatch, layout: str, cluster: int, box: tuple[int, int]
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(tensor_maps, "_encode", lambda *facts: asked.append(facts[-1]))
    operands = OperandSet(Problem(512, 512, 512, "bf16", layout), *[SimpleNamespace()] * 3)  # type: ignore[arg-type]
    code = next(code for code in kernel_table.GEMM_SM90.codes if code.tile == Tile(128, 256, 64))
    tensor_maps.tensor_maps(operands, code, cluster)
    assert asked == [(64, 128), box, (64, 16)]


def test_a_turned_tile_copies_the_same_and_stores_more_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(tensor_maps, "_encode", lambda *facts: asked.append(facts[-1]))
    operands = OperandSet(Problem(512, 512, 512, "bf16"), *[SimpleNamespace()] * 3)  # type: ignore[arg-type]
    code = next(code for code in kernel_table.GEMM_SM90.codes if code.tile == Tile(136, 256, 64))
    assert code.turned
    tensor_maps.tensor_maps(operands, code)
    assert asked == [(64, 136), (64, 256), (64, 32)]


def test_only_the_kernel_of_pairs_needs_pairs() -> None:
    device, problem = virtual_device("h200"), Problem(4096, 4096, 4096)
    clusters = {
        kernel.name: kernels.facts(
            Problem(64, 64, 64, kernel.dtypes[0]), kernel.codes[0].tile, device, kernel_name=kernel.name
        ).cluster
        for kernel in kernel_table.ALL_KERNELS
    }
    assert {name for name, cluster in clusters.items() if cluster == 2} == {"gemm_sm90_cluster2"}
    assert set(clusters.values()) == {1, 2}
    trace = simulated(
        problem, Tile(128, 256, 64), Variant("persistent"), device, reason="it is a test", kernel="gemm_sm90_cluster2"
    )
    assert trace.launches[0].cluster == 1
    assert "clusters of 2 CTAs are not simulated: each runs by itself" in trace.launches[0].notes
