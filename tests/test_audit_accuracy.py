"""The estimate of SM activity against counters of an H200, through the readers and without anything fitted here.

The corpus (34 GEMM shapes and a batched one) was not used to choose the model; SPREAD comes
from other launches (tests/benchmarks/audit_spread.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from audit_fixture import CORPUS, CORPUS_COUNTERS, recorded_activity

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))

import audit_accuracy
import audit_spread

from wavescope.audit.activity import SPREAD
from wavescope.audit.assessed import Assessed, assess_launches
from wavescope.audit.counters import with_counters
from wavescope.audit.launches import NULL
from wavescope.audit.read import read
from wavescope.errors import InputError

PROFILES = Path(os.environ.get("WAVESCOPE_PROFILES", Path(__file__).parents[2] / "shared"))
PUBLIC = sorted(PROFILES.rglob("kineto/*.json.gz"))


@pytest.fixture(scope="module")
def corpus() -> Assessed:
    return assess_launches(with_counters(read(CORPUS), read(CORPUS_COUNTERS)))


@pytest.fixture(scope="module")
def recorded() -> Assessed:
    return assess_launches(recorded_activity())


def errors(assessed: Assessed, selection: str) -> tuple[float, float, int]:
    """Mean error in points of estimate and baseline over a selection, and its size."""
    estimate, measured, baseline = audit_accuracy.activities(assessed)
    chosen = audit_accuracy.selections(assessed)[selection] & ~np.isnan(measured)
    return (
        audit_accuracy.mean_error(estimate, measured, chosen),
        audit_accuracy.mean_error(baseline, measured, chosen),
        int(chosen.sum()),
    )


@pytest.mark.parametrize(
    ("selection", "most", "count"),
    [
        ("more tiles than blocks", 1.5, 9),
        ("10 us and more, split-K included", 2.2, 20),
        ("all", 2.2, 32),
        ("fill under 90 %", 2.2, 12),
    ],
)
def test_the_estimate_is_close_on_the_corpus(corpus: Assessed, selection: str, most: float, count: int) -> None:
    ours, baseline, chosen = errors(corpus, selection)
    assert chosen == count
    assert ours <= most
    assert baseline >= 2 * ours


@pytest.mark.parametrize(
    ("selection", "most"),
    [
        ("more tiles than blocks", 2.0),
        ("10 us and more, split-K included", 2.5),
        ("fill under 90 %, more tiles than blocks", 3.5),
    ],
)
def test_the_estimate_is_close_on_510_random_products(recorded: Assessed, selection: str, most: float) -> None:
    ours, baseline, _ = errors(recorded, selection)
    assert ours <= most
    assert baseline >= 2 * ours


def test_2304_by_2304(corpus: Assessed) -> None:
    row = corpus.launches.name.tolist().index("nvjet_sm90_hsh_168x128_64x5_1x2_h_bz_TNN")
    entry = corpus.assessments[corpus.key_of[row]]
    assert entry.tiling is not None
    assert entry.tiling.tiles == 252
    assert round(entry.sm_rounds, 2) == 1.91
    assert round(100 * entry.fill, 1) == 95.5
    assert round(100 * corpus.launches.sm_active_avg_over_max[row], 1) == 94.8


def test_the_grid_of_every_kernel_follows_from_its_name_and_shapes(recorded: Assessed) -> None:
    """Clusters launched: as many as there are groups of tiles, or as fit."""
    plain = 0
    for key, entry in zip(recorded.keys, recorded.assessments, strict=True):
        assert entry.tiling is not None
        assert entry.tiling.agrees
        fit = key.max_active_clusters if key.max_active_clusters != NULL else 132
        assert key.blocks // entry.tiling.group == min(entry.tiling.groups, fit)
        plain += entry.decoded is not None and not entry.decoded.split_k
    assert plain == 413


@pytest.mark.parametrize("path", [CORPUS, *PUBLIC], ids=lambda path: path.name)
def test_occupancy_is_the_traces_own_wherever_that_is_not_zero(path: Path) -> None:
    """PyTorch's traces print 0 above 48 KB of shared memory; all their other numbers are met."""
    try:
        assessed = assess_launches(read(path))
    except InputError:
        pytest.skip("not a profile with kernels")
    printed = assessed.launches.profile_occupancy
    computed = 100 * assessed.of_launches(lambda entry: entry.occupancy)
    both = (printed > 0) & ~np.isnan(computed)
    assert np.abs(computed - printed)[both].max(initial=0) <= 1
    # computed wherever the trace has a number, and for most of the zeros
    assert both.sum() == (printed > 0).sum() or not assessed.launches.devices[0].compute_capability
    if path == CORPUS:
        assert (int(both.sum()), int((~np.isnan(computed)).sum())) == (8, 41)


def test_the_spread_is_that_of_least_error() -> None:
    steps = [round(SPREAD + 0.01 * step, 2) for step in range(-3, 4)]
    found = audit_spread.errors(steps)
    assert steps[int(np.argmin(found))] == SPREAD


def test_the_table_prints(capsys: pytest.CaptureFixture[str]) -> None:
    audit_accuracy.main([])
    out = capsys.readouterr().out
    assert "hsh_168x128_64x5_1x2_h_bz_TNN" in out
    assert "1.91  95.5%" in out
    assert len(out.splitlines()) == 1 + 32 + 2 + 5
