"""Calibrations: fitted costs are the ones that made the trace; rows without a measurement are scaled and marked."""

import runpy
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tests.recorded import triton_matmul
from tests.synthetic import DEVICE, Span, trace_from
from wavescope.calibrate import fit, fit_all
from wavescope.calibration import lookup, table
from wavescope.calibration_row import COLUMNS, Calibration, parse, render
from wavescope.device import virtual_device
from wavescope.errors import UsageError
from wavescope.problem import Problem, Tile
from wavescope.schedule import decompose
from wavescope.simulate import simulate
from wavescope.trace import Kind, Trace

TILE = Tile(128, 128, 32)
H200 = virtual_device("h200")
ROW = Calibration(
    kernel="gemm_mma",
    tile=TILE,
    dtype="bf16",
    device="NVIDIA H200",
    ctas_per_sm=1,
    cycles_per_k_iter=400.0,
    fixed_cycles=1500.0,
    cold_cycles=1000.0,
    fill_cycles=0.0,
    beside_cycles=0.0,
    epilogue_cycles=900.0,
    prologue_cycles=300.0,
    exit_cycles=100.0,
    gap_cycles=50.0,
    queue_gap_cycles=700.0,
    turnaround_cycles=400.0,
    partial_cycles=600.0,
    add_cycles=800.0,
    share_cycles=1000.0,
    spare_cycles=1000.0,
    ramp_ns=160.0,
    clock_mhz=1700.0,
    idle_clock_mhz=1800.0,
    clock_spread=0.004,
    idle_gain=0.1,
    sharing=1.0,
    seniority=0.0,
    stream_slowdown=0.2,
    edge_slowdown=0.3,
    noise=0.005,
    source="made up for tests",
)
SCRIPT = Path(__file__).parent / "data" / "rebuild_calibration.py"


def run(row: Calibration, num_tiles: int, k: int, name: str = "fixed", seed: int = 0) -> Trace:
    schedule = decompose(name, Problem(128, 128 * num_tiles, k), TILE, H200.sms * row.ctas_per_sm)
    return simulate(
        schedule,
        H200,
        kernel=row.kernel,
        block=128,
        registers=128,
        shared_bytes=0,
        ctas_per_sm=row.ctas_per_sm,
        calibration=row,
        seed=seed,
    )


def runs(row: Calibration) -> list[Trace]:
    """Three schedules and three k, waves of several fills."""
    return [
        run(row, num_tiles, k, name, seed)
        for seed, (num_tiles, k, name) in enumerate(
            [
                (700, 1024, "fixed"),
                (560, 4096, "fixed"),
                (300, 2048, "persistent"),
                (800, 4096, "persistent"),
                (420, 1024, "dynamic"),
                (60, 2048, "fixed"),
            ]
        )
    ]


# What a fit may be off by: relative for costs with much data, in their own unit for small ones.
def close(found: Calibration, truth: Calibration) -> None:
    for name, relative, absolute in [
        ("cycles_per_k_iter", 0.003, 0),
        ("fixed_cycles", 0, 150),
        ("cold_cycles", 0, 150),
        ("epilogue_cycles", 0.005, 0),
        ("prologue_cycles", 0.01, 0),
        ("exit_cycles", 0.01, 0),
        ("gap_cycles", 0.01, 0),
        ("queue_gap_cycles", 0.01, 0),
        ("turnaround_cycles", 0.01, 0),
        ("ramp_ns", 0, 32),
        ("clock_mhz", 0.002, 0),
        ("idle_clock_mhz", 0.005, 0),
        ("clock_spread", 0.2, 0),
        ("idle_gain", 0, 0.01),
        ("noise", 0.1, 0),
    ]:
        expected = pytest.approx(getattr(truth, name), rel=relative, abs=absolute)
        assert getattr(found, name) == expected, name


def test_a_fit_finds_the_costs_that_made_the_traces() -> None:
    found = fit(runs(ROW))
    close(found, ROW)
    assert (found.kernel, found.tile, found.dtype, found.device, found.ctas_per_sm) == (
        "gemm_mma",
        TILE,
        "bf16",
        "NVIDIA H200",
        1,
    )
    assert found.recorded_in == "6 launches, 2840 units of 32, 64, 128 k_iters (simulated)"
    assert found.unseen == ("stream_slowdown", "edge_slowdown")
    assert found.estimated == ("partial_cycles", "add_cycles", "share_cycles", "spare_cycles")


def test_costs_without_noise_are_exact() -> None:
    # 32 and 64 k_iters, no noise: 13800 + 500 and 26600 + 500 cycles without the fixed costs
    quiet = replace(ROW, noise=0.0, clock_spread=0.0, idle_gain=0.0, cold_cycles=0.0, idle_clock_mhz=1700.0)
    found = fit([run(quiet, 132, 1024), run(quiet, 264, 2048)])
    assert found.cycles_per_k_iter == pytest.approx(400, abs=0.01)
    assert found.fixed_cycles == pytest.approx(1500, abs=1)
    assert found.turnaround_cycles == pytest.approx(400, abs=1)
    assert found.noise == pytest.approx(0, abs=1e-4)


SHARED = replace(
    ROW, ctas_per_sm=3, cycles_per_k_iter=1200.0, epilogue_cycles=2700.0, idle_gain=0.0, idle_clock_mhz=ROW.clock_mhz
)


@pytest.mark.parametrize(("sharing", "seniority"), [(0.9, 0.25), (0.6, 0.45), (1.0, 0.05), (0.8, 0.6)])
def test_how_ctas_share_an_sm_is_fitted(sharing: float, seniority: float) -> None:
    truth = replace(SHARED, sharing=sharing, seniority=seniority)
    launches = [(970, 1024, "fixed"), (500, 4096, "fixed"), (1100, 2048, "persistent")]
    found = fit([run(truth, tiles, k, name, seed) for seed, (tiles, k, name) in enumerate(launches)])
    assert found.ctas_per_sm == 3
    for name, relative, absolute in [
        ("cycles_per_k_iter", 0.005, 0),
        ("sharing", 0, 0.01),
        ("seniority", 0, 0.01),
        ("fixed_cycles", 0, 300),
        ("cold_cycles", 0, 300),
        ("epilogue_cycles", 0.03, 0),  # a neighbour in its prologue counts as at work
        ("prologue_cycles", 0.01, 0),
        ("turnaround_cycles", 0.01, 0),
    ]:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=relative, abs=absolute), name
    assert found.idle_gain == 0
    assert found.idle_clock_mhz == found.clock_mhz
    assert found.unseen == ("stream_slowdown", "edge_slowdown", "queue_gap_cycles")


def test_which_of_two_equal_ctas_gets_ahead_does_not_matter() -> None:
    # the persistent launch once more, the CTAs of each SM the other way round
    truth = replace(SHARED, ctas_per_sm=2, seniority=0.4)
    fixed, trace = run(truth, 400, 4096), run(truth, 264, 2048, "persistent")
    other = np.where(trace.spans.cta < 132, trace.spans.cta + 132, trace.spans.cta - 132)
    swapped = replace(trace, spans=replace(trace.spans, cta=other))
    found = fit([fixed, swapped])
    assert found == fit([fixed, trace])
    assert found.seniority == pytest.approx(0.4, abs=0.01)


def test_ctas_that_end_together_do_not_tell_what_one_does_alone() -> None:
    quiet = replace(SHARED, ctas_per_sm=2, sharing=0.5, noise=0.0, clock_spread=0.0, cold_cycles=0.0)
    found = fit([run(quiet, 264, 1024), run(quiet, 528, 2048)])
    assert (found.sharing, found.seniority) == (1, pytest.approx(0, abs=1e-3))
    assert found.cycles_per_k_iter == pytest.approx(1200, rel=0.002)
    assert "sharing" in found.unseen


def test_one_k_does_not_tell_fixed_costs_apart() -> None:
    found = fit([run(ROW, 700, 1024)])
    # (32 * 400 + 1500) / 32 = 446.9
    assert found.cycles_per_k_iter == pytest.approx(446.9, rel=0.003)
    assert found.fixed_cycles == 0
    assert found.unseen == ("fixed_cycles", "stream_slowdown", "edge_slowdown", "gap_cycles", "queue_gap_cycles")
    assert "; not to be told from these launches: fixed_cycles, stream_slowdown, edge_slowdown, " in found.source


def test_ctas_alone_count_as_main_loop() -> None:
    # two SMs, one CTA each of 1000 and two of 1010 cycles after 50: turnaround 50, 10 k_iters
    rows = [
        Span(Kind.CTA, cta, sm, begin, end, unit=cta, k_begin=0, k_end=10)
        for cta, sm, begin, end in [(0, 0, 0, 1000), (1, 1, 0, 1000), (2, 0, 1050, 2050), (3, 1, 1050, 2050)]
    ]
    trace = trace_from(rows, sms=2, schedule="fixed", problem=Problem(16, 64, 160), tile=Tile(16, 16, 16), places=2)
    found = fit([trace])
    assert found.cycles_per_k_iter == pytest.approx(100)
    assert (found.turnaround_cycles, found.clock_mhz, found.epilogue_cycles) == (50, pytest.approx(1000), 0)
    assert "CTAs only, so prologue, epilogue and exit count as main loop" in found.source


def test_fits_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="no trace to calibrate on"):
        fit([])
    with pytest.raises(UsageError, match="cannot share a calibration"):
        fit([run(ROW, 10, 1024), run(replace(ROW, kernel="other"), 10, 1024)])
    unknown = trace_from([Span(Kind.CTA, 0, 0, 0, 32)])
    with pytest.raises(UsageError, match="launch 0 of made_up names no problem and tile"):
        fit([unknown])
    with pytest.raises(UsageError, match="does not say its k_iters"):
        fit([triton_matmul("triton_matmul_2304", Problem(2304, 2304, 4096))])


def test_each_kernel_gets_its_row() -> None:
    other = replace(ROW, kernel="other")
    rows = fit_all([run(other, 140, 1024), run(ROW, 140, 1024), run(ROW, 140, 2048)])
    assert [(row.kernel, row.source.split(",")[0]) for row in rows] == [
        ("gemm_mma", "2 launches"),
        ("other", "1 launches"),
    ]


def test_csv_round_trip() -> None:
    other = replace(ROW, device="Other GPU", source='a "b", c')
    assert parse(render([ROW, other]), "x.csv") == (ROW, other)
    cells = render([replace(ROW, noise=0.123456789)]).splitlines()[1].split(",")
    assert cells[COLUMNS.index("noise")] == "0.12346"


def test_the_tables_are_what_the_recordings_give() -> None:
    script = runpy.run_path(str(SCRIPT))
    traces = script["recorded_traces"]()
    rebuilt = script["calibrations"](traces)
    text = files("wavescope").joinpath("data/calibration.csv").read_text(encoding="utf-8")
    shipped_rows = parse(text, "calibration.csv")  # without what `wavescope calibrate` measured
    assert len(shipped_rows) == len(rebuilt) > 0
    assert table()[: len(rebuilt)] == shipped_rows
    for shipped, fitted in zip(shipped_rows, rebuilt, strict=True):
        for entry in fields(Calibration):
            have, expected = getattr(shipped, entry.name), getattr(fitted, entry.name)
            near = pytest.approx(expected, rel=1e-3, abs=1e-3) if isinstance(expected, float) else expected
            assert have == near, f"{shipped.name}: {entry.name}"
    dispatch = files("wavescope").joinpath("data/dispatch.csv").read_text(encoding="utf-8")
    assert dispatch == script["dispatch_table"](traces)


def test_rows_can_be_simulated() -> None:
    for row in table():
        assert row.cycles_per_k_iter > 0
        assert row.clock_mhz <= row.idle_clock_mhz
        for name in ("fixed_cycles", "cold_cycles", "epilogue_cycles", "turnaround_cycles", "noise", "clock_spread"):
            assert getattr(row, name) >= 0
        assert 0 <= row.sharing <= 1
        assert 0 <= row.seniority < 1
        assert 0 <= row.idle_gain < 1
        assert 0 <= row.edge_slowdown < 1
        assert row.source


def test_lookup_of_an_own_row() -> None:
    two = replace(ROW, ctas_per_sm=2)
    rows = (replace(ROW, kernel="other"), ROW, two)
    assert lookup("gemm_mma", TILE, "bf16", H200, rows=rows) is ROW
    assert lookup("gemm_mma", TILE, "bf16", H200, 2, rows=rows) is two
    assert lookup("gemm_mma", TILE, "bf16", H200, 3, rows=rows) is two
    assert ROW.exact
    assert ROW.notes == ()


def test_another_tile_is_scaled_by_multiply_adds() -> None:
    # 128x256x64 has 4 times the multiply-adds of 128x128x32 and twice the area
    found = lookup("gemm_mma", Tile(128, 256, 64), "bf16", H200, rows=(ROW,))
    assert found == replace(
        ROW,
        tile=Tile(128, 256, 64),
        cycles_per_k_iter=1600.0,
        epilogue_cycles=1800.0,
        partial_cycles=1200.0,
        add_cycles=1600.0,
        share_cycles=2000.0,
        spare_cycles=2000.0,
        exact=False,
        notes=(
            "unit costs are estimated, scaled from gemm_mma 128x128x32 bf16 on NVIDIA H200 by multiply-adds and "
            "FLOP a clock",
        ),
    )


def test_another_device_is_scaled_by_its_rate() -> None:
    # mma.sync: A100 2048 FLOP a clock and SM, the H200 2719 of its 4096; at most 1410 MHz against 1980
    found = lookup("gemm_mma", TILE, "bf16", virtual_device("a100"), rows=(ROW,))
    assert found.cycles_per_k_iter == pytest.approx(400 * 2719 / 2048)
    assert found.clock_mhz == pytest.approx(1700 * 1410 / 1980)
    assert found.device == "NVIDIA A100-SXM4-80GB"
    assert not found.exact
    assert found.notes[1] == "memory bandwidth and cache of the other device are not in the estimate"


def test_another_dtype_is_scaled_by_its_rate() -> None:
    # fp32 lanes: 256 FLOP a clock and SM; fp16 as bf16
    assert lookup("gemm_simt", TILE, "fp32", H200, rows=(ROW,)).cycles_per_k_iter == pytest.approx(400 * 2719 / 256)
    half = lookup("gemm_mma", TILE, "fp16", H200, rows=(ROW,))
    assert half.cycles_per_k_iter == 400
    assert not half.exact


def test_an_unknown_device_is_said_to_be_guessed() -> None:
    found = lookup("gemm_mma", TILE, "bf16", replace(DEVICE, compute_capability=(99, 0)), rows=(ROW,))
    assert found.cycles_per_k_iter == 400
    assert found.notes[1].startswith("the FLOP a clock of gemm_mma on Test GPU is not known")
    b200 = lookup("gemm_mma", TILE, "bf16", virtual_device("b200"), rows=(ROW,))
    assert b200.notes[1].startswith("the FLOP a clock of gemm_mma on NVIDIA B200 is not known")


def test_the_nearest_row_wins() -> None:
    large, a100 = replace(ROW, tile=Tile(256, 128, 64)), replace(ROW, device="NVIDIA A100-SXM4-80GB")
    simt = replace(ROW, kernel="gemm_simt", dtype="fp32")
    rows = (a100, simt, ROW, large)
    for kernel, tile, dtype, expected in [
        ("gemm_mma", Tile(128, 256, 64), "bf16", "gemm_mma 256x128x64 bf16 on NVIDIA H200"),
        ("gemm_mma", Tile(64, 64, 64), "fp16", "gemm_mma 128x128x32 bf16 on NVIDIA H200"),
        ("gemm_simt", Tile(64, 64, 16), "fp32", "gemm_simt 128x128x32 fp32 on NVIDIA H200"),
    ]:
        note = lookup(kernel, tile, dtype, H200, rows=rows).notes[0]  # type: ignore[arg-type]
        assert note.startswith(f"unit costs are estimated, scaled from {expected} "), note
    with pytest.raises(UsageError, match="no calibration is installed"):
        lookup("gemm_mma", TILE, "bf16", H200, rows=())


def test_the_fit_on_recordings_predicts_them() -> None:
    """Costs fitted on three Triton launches give each launch's duration to 4 %."""
    row = next(row for row in table() if row.kernel == "triton_matmul")
    for size, k in ((2304, 4096), (4096, 4096), (8192, 8192)):
        problem = Problem(size, size, k)
        recorded = triton_matmul(f"triton_matmul_{size}", problem)
        schedule = decompose("fixed", problem, row.tile, H200.sms)
        simulated = simulate(
            schedule, H200, kernel="k", block=1, registers=1, shared_bytes=0, ctas_per_sm=1, calibration=row
        )
        ratio = np.max(simulated.spans.end_ns) / np.max(recorded.spans.end_ns)
        assert ratio == pytest.approx(1, abs=0.04), size
