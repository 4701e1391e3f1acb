"""The clock that a power cap leaves: how it lowers a simulation's, that a fit finds it again, and files without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.test_calibrate_command import measured
from tests.test_calibration import H200, ROW
from wavescope.calibrate import fit
from wavescope.calibration import lookup, table
from wavescope.calibration_file import read
from wavescope.calibration_launches import plans
from wavescope.calibration_row import COLUMNS, render
from wavescope.device import virtual_device
from wavescope.errors import InputError
from wavescope.kernel_table import GEMM_SM90, KERNELS
from wavescope.launch_costs import recorded_launch
from wavescope.power_cap import capped_tflops, stretch
from wavescope.problem import Problem, Tile
from wavescope.schedule import decompose
from wavescope.simulate import simulate
from wavescope.trace import Kind, Trace
from wavescope.virtual_comparison import span_ns

TILE = Tile(128, 256, 64)
FREE = replace(
    ROW, kernel="gemm_sm90", tile=TILE, cycles_per_k_iter=1024.0, fixed_cycles=0.0, noise=0.0, clock_spread=0.0,
    idle_clock_mhz=ROW.clock_mhz, idle_gain=0.0,
)  # fmt: skip
CAPPED = replace(FREE, capped_tflops=700.0)
ENDLESS = Problem(128 * 12 * 9, 256 * 11 * 10, 64 * 64)  # 90 tiles for each of 132 SMs
FEW = Problem(128 * 4, 256 * 11, 64 * 64)  # 44 tiles


def launch(row: object, problem: Problem) -> Trace:
    schedule = decompose("persistent", problem, TILE, 132)
    return simulate(
        schedule, H200, kernel="gemm_sm90", block=384, registers=168, shared_bytes=0, ctas_per_sm=1, calibration=row,
    )  # type: ignore[arg-type] # fmt: skip


def tflops(trace: Trace) -> float:
    (one,) = trace.launches
    assert one.tile is not None
    assert one.problem is not None
    return one.tile.issued_flop(one.problem) / span_ns(trace) / 1e3


def mhz(trace: Trace) -> float:
    one = recorded_launch(trace, trace.launches[0])
    return 1e3 * float(one.cycles.sum() / (one.units.end_ns - one.units.begin_ns).sum())


def test_a_long_launch_runs_at_the_cap() -> None:
    free, capped = launch(FREE, ENDLESS), launch(CAPPED, ENDLESS)
    assert tflops(free) > 850
    assert tflops(capped) == pytest.approx(700, rel=0.01)
    assert tflops(capped) <= 700 * 1.001
    # the clock falls, the cycles stay
    assert np.array_equal(
        free.spans.end_clock - free.spans.begin_clock, capped.spans.end_clock - capped.spans.begin_clock
    )
    assert mhz(capped) / mhz(free) == pytest.approx(tflops(capped) / tflops(free), rel=1e-3)


def test_fewer_flop_a_cycle_leave_a_higher_clock() -> None:
    # a third of the SMs: the cap leaves them the full clock
    assert np.array_equal(launch(CAPPED, FEW).spans.end_ns, launch(FREE, FEW).spans.end_ns)
    # short tiles, whose ends issue nothing: lower than without a cap, higher than without ends
    most = Problem(128 * 12 * 9, 256 * 11, 64 * 64 // 8)
    assert mhz(launch(CAPPED, ENDLESS)) < mhz(launch(CAPPED, most)) < mhz(launch(FREE, most))
    assert tflops(launch(CAPPED, most)) < 700


def test_how_much_longer() -> None:
    assert stretch(FREE, 10**6, 1e3, 132) == 1
    assert stretch(CAPPED, 64, 1e9, 132) == 1
    rates = [stretch(CAPPED, k_iters, 1e5, 132) for k_iters in (10_000, 14_000, 18_000, 22_000)]
    assert rates == sorted(rates)
    assert rates[-1] > rates[-2] > 1
    # what the cap leaves of a rate follows from any rate that it left
    base, times = 18_000, stretch(CAPPED, 18_000, 1e5, 132)
    left = 2 * TILE.m * TILE.n * TILE.k * base / (1e5 * times) / 1e3
    assert capped_tflops(CAPPED, left, CAPPED.clock_mhz / times, 132) == pytest.approx(700)


def test_a_fit_finds_the_cap_again() -> None:
    (plan,) = plans(H200, [TILE], ["bf16"])
    traces = [measured(one, replace(CAPPED, noise=0.003), seed) for seed, one in enumerate(plan)]
    found = fit(traces)
    assert found.capped_tflops == pytest.approx(700, rel=0.02)
    full = next(trace for trace in traces if span_ns(trace) >= 150e3)
    short = [trace for trace in traces if trace is not full]
    assert fit(short).capped_tflops == 0
    # a card that keeps its clock shows no cap
    assert fit([measured(one, FREE) for one in plan]).capped_tflops == 0


@pytest.mark.parametrize(("tiles", "busy", "cap"), [(11 * 42, 0.87, 700), (11 * 40, 0.83, 0)])
def test_a_last_wave_that_leaves_sms_idle_may_hide_it(tiles: int, busy: float, cap: float) -> None:
    (plan,) = plans(H200, [TILE], ["bf16"])
    full = next(one for one in plan if one.tile.num_tiles(one.problem) > 2.6 * H200.sms)
    trace = measured(replace(full, problem=Problem(128 * tiles // 11, 256 * 11, 64 * 64)), CAPPED)
    held = (trace.spans.end_ns - trace.spans.begin_ns)[trace.spans.kind == Kind.CTA].sum()
    assert held / (H200.sms * span_ns(trace)) == pytest.approx(busy, abs=0.01)
    short = [measured(one, CAPPED) for one in plan if one.tile.num_tiles(one.problem) < 2.6 * H200.sms]
    assert fit([trace, *short]).capped_tflops == pytest.approx(cap, rel=0.02)


def test_a_launch_shows_it_for_every_tile() -> None:
    for plan in plans(H200, kernel="gemm_sm90"):
        row = lookup("gemm_sm90", plan[0].tile, "bf16", H200)
        long = [one for one in plan if one.tile.num_tiles(one.problem) > 2.6 * H200.sms]
        assert [str(one.variant) for one in long] == ["persistent"]
        trace = measured(long[0], row)
        assert 150e3 <= span_ns(trace) <= 250e3, plan[0].tile
        busy = (trace.spans.end_ns - trace.spans.begin_ns)[trace.spans.kind == Kind.CTA].sum()
        assert busy > 0.9 * H200.sms * span_ns(trace), plan[0].tile
    assert len(plans(H200, kernel="gemm_sm90")) == len(GEMM_SM90.codes)


def test_the_shipped_rows_have_one() -> None:
    for row in table():
        if row.kernel.startswith("gemm_sm90"):
            assert 600 < row.capped_tflops < 900  # the least: tiles of 64x128, which the L2 limits
        elif row.kernel in {kernel.name for kernel in KERNELS}:
            assert row.capped_tflops == 0


def test_scaled_rows_have_that_of_the_same_card() -> None:
    other = Tile(128, 128, 64)
    assert lookup("gemm_sm90", other, "bf16", H200, rows=(CAPPED,)).capped_tflops == 700
    assert lookup("gemm_sm90", other, "bf16", virtual_device("a100-80gb"), rows=(CAPPED,)).capped_tflops == 0


def test_a_tile_whose_launches_did_not_show_the_cap_has_its_neighbours() -> None:
    far, near, own = Tile(64, 128, 64), Tile(128, 224, 64), Tile(128, 192, 64)
    unknown = replace(FREE, tile=own)
    rows = (replace(CAPPED, tile=far, capped_tflops=600.0), unknown, replace(CAPPED, tile=near))
    assert lookup("gemm_sm90", own, "bf16", H200, rows=rows) == replace(unknown, capped_tflops=700.0)
    for other in ({"kernel": "gemm_mma"}, {"dtype": "fp16"}, {"device": "another"}):
        rows = (unknown, replace(CAPPED, tile=near, **other))  # type: ignore[arg-type]
        assert lookup("gemm_sm90", own, "bf16", H200, rows=rows).capped_tflops == 0


def test_files_without_the_column(tmp_path: Path) -> None:
    at = COLUMNS.index("capped_tflops")
    lines = [line.split(",") for line in render([replace(CAPPED, source="made up")]).splitlines()]
    old = tmp_path / "old.csv"
    old.write_text("\n".join(",".join(cells[:at] + cells[at + 1 :]) for cells in lines) + "\n")
    assert [row.capped_tflops for row in read(old)] == [0]
    old.write_text(old.read_text().replace("noise,", ""))
    with pytest.raises(InputError, match=r"old.csv: lacks the column noise; run 'wavescope calibrate' again"):
        read(old)
    new = tmp_path / "new.csv"
    new.write_text(render([replace(CAPPED, capped_tflops=1e7)]))
    with pytest.raises(InputError, match="line 2: capped_tflops is '1e"):
        read(new)
