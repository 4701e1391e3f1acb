"""Which kernel runs: the best that can, or the one that was named; and whose costs it then has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recorded import DATA
from tests.test_cli_errors import failed
from wavescope import calibration, cuda_device
from wavescope.calibration import lookup, table
from wavescope.calibration_row import render
from wavescope.cli.main import main
from wavescope.cli.options import kernel_name
from wavescope.device import virtual_device
from wavescope.errors import DeviceError, UsageError
from wavescope.kernel_table import GEMM_MMA
from wavescope.kernels import default_tile, facts, kernel_for
from wavescope.problem import Problem, Tile
from wavescope.replay import replay
from wavescope.trace_file import load
from wavescope.variant import schedule_of

H200, A100, B200 = (virtual_device(name) for name in ("h200", "a100-80gb", "b200"))
PROBLEM = Problem(2304, 2304, 4096)
TILE = Tile(128, 256, 64)
RECORDED = DATA / "gemm_mma-128x256x64-fixed-2304x2304x4096.parquet"
JOB = ["--m", "2304", "--n", "2304", "--k", "4096", "--device", "virtual:h200"]


@pytest.mark.parametrize(
    ("device", "dtype", "tile", "kernel"),
    [
        (H200, "bf16", None, "gemm_sm90"),
        (H200, "fp16", TILE, "gemm_sm90"),
        (H200, "bf16", Tile(64, 64, 64), "gemm_mma"),  # a tile that gemm_sm90 lacks
        (H200, "fp32", None, "gemm_simt"),
        (A100, "bf16", TILE, "gemm_mma"),
        (B200, "bf16", TILE, "gemm_mma"),  # which has no wgmma any more
    ],
)
def test_the_best_that_can_is_taken(device: object, dtype: str, tile: Tile | None, kernel: str) -> None:
    problem = Problem(2304, 2304, 4096, dtype)  # type: ignore[arg-type]
    assert kernel_for(problem, device, tile=tile).name == kernel  # type: ignore[arg-type]
    chosen = tile or default_tile(problem, device)  # type: ignore[arg-type]
    assert facts(problem, chosen, device).kernel == kernel  # type: ignore[arg-type]


def test_a_kernel_may_be_named() -> None:
    assert facts(PROBLEM, TILE, H200, kernel_name="gemm_mma").code == GEMM_MMA.codes[4]
    assert facts(PROBLEM, TILE, H200, kernel_name="gemm_sm90").threads == 384  # two warpgroups and one that copies
    with pytest.raises(
        DeviceError, match=r"gemm_sm90 needs compute capability 9\.0; .*A100.* has 8\.0; use --kernel auto"
    ):
        kernel_for(PROBLEM, A100, "gemm_sm90")
    with pytest.raises(UsageError, match="gemm_mma computes bf16 and fp16, not fp32; use --kernel auto"):
        kernel_for(Problem(64, 64, 64, "fp32"), H200, "gemm_mma")
    with pytest.raises(UsageError, match="tile 64x64x64 is not one of gemm_sm90's; use gemm_sm90's 64x128x64, "):
        facts(PROBLEM, Tile(64, 64, 64), H200, kernel_name="gemm_sm90")
    with pytest.raises(
        UsageError, match="tile 7x7x7 is not one of gemm_sm90 or .*gemm_mma's; use gemm_sm90's .*, or gemm_mma's "
    ):
        facts(PROBLEM, Tile(7, 7, 7), H200)


def test_the_default_tile_is_the_kernels() -> None:
    assert default_tile(PROBLEM, H200) == TILE
    assert default_tile(Problem(1408, 1408, 4096), H200) == Tile(64, 128, 64)  # of 128 x 128 there are 121
    assert default_tile(Problem(64, 64, 64), H200) == Tile(64, 128, 64)
    assert default_tile(Problem(64, 64, 64), H200, "gemm_mma") == Tile(64, 64, 64)
    # sides of 192 fit few problems
    found = {default_tile(Problem(64 * size, 64 * size, 64), H200) for size in range(1, 60)}
    assert found == {Tile(64, 128, 64), Tile(128, 128, 64), TILE}


def test_short_words() -> None:
    assert [kernel_name(word) for word in ("auto", "sm90", "mma", "simt", "gemm_mma")] == [
        None, "gemm_sm90", "gemm_mma", "gemm_simt", "gemm_mma",
    ]  # fmt: skip
    with pytest.raises(
        UsageError, match='--kernel: "sm80" is unknown; use one of auto, gemm_sm90, gemm_sm90_pingpong, gemm_mma, '
    ):
        kernel_name("sm80")


@pytest.mark.parametrize(("words", "kernel"), [([], "gemm_sm90"), (["--kernel", "mma"], "gemm_mma")])
def test_profile_and_compare_run_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], kernel: str
) -> None:
    path = str(tmp_path / "x.parquet")
    assert main(["profile", *JOB, *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["launch"]["kernel"] == kernel
    assert main(["compare", "fixed", "splitk", *JOB, *words, "-o", path]) == 0
    assert {launch.kernel for launch in load(Path(path)).launches} == {kernel}
    shown = " ".join(capsys.readouterr().out.split())
    assert f"kernel {kernel}, for every schedule" in shown


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--kernel", "mma", "--device", "virtual:t4"], 3, "8.0; Tesla T4 has 7.5; use --dtype fp32"),
        (["--kernel", "wgmma"], 2, '--kernel: "wgmma" is unknown'),
        (["--kernel", "simt"], 2, "gemm_simt computes fp32, not bf16"),
        (["--kernel", "sm90", "--tile", "64x64x64"], 2, "tile 64x64x64 is not one of gemm_sm90's"),
        (
            ["--kernel", "sm90", "--device", "virtual:a100-80gb"],
            3,
            "gemm_sm90 needs compute capability 9.0; NVIDIA A100",
        ),
        (
            ["--kernel", "sm90", "--device", "virtual:b200"],
            3,
            "9.0, no later one; NVIDIA B200 has 10.0; use --kernel auto",
        ),
    ],
)
def test_one_that_cannot_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    job = [*JOB[:6], *words, *(() if "--device" in words else JOB[6:])]
    failed(capsys, ["profile", *job], status, said)
    failed(capsys, ["compare", "fixed", "splitk", *job], status, said)


def test_what_was_recorded_stays_with_its_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    (launch,) = load(RECORDED).launches
    again = replay(launch, schedule_of(launch), H200)
    assert again.launches[0].kernel == "gemm_mma"
    assert again.launches[0].notes[1].startswith("unit costs as recorded: gemm_mma 128x256x64")
    argv = ["report", str(RECORDED), "--what-if", "tile=64x64x64", "--what-if", "schedule=hybrid,tile=256x128x64"]
    assert main(argv) == 0
    assert "18 launches, 17031 units" in " ".join(capsys.readouterr().out.split())  # gemm_mma's own, four CTAs an SM
    failed(capsys, [*argv[:3], "tile=192x192x64"], 2, "tile 192x192x64 is not one of gemm_mma's")


def test_costs_that_nobody_measured_are_estimated_and_say_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)
    mma = [row for row in table() if row.kernel == "gemm_mma"]
    (big,) = (row for row in mma if row.tile == TILE)
    rates = 2719 / 4096  # of mma.sync's rate to wgmma's
    for tile, share in ((TILE, 1.0), (Tile(128, 128, 64), 0.5), (Tile(64, 128, 64), 0.25)):
        row = lookup("gemm_sm90", tile, "bf16", H200, rows=mma)
        assert not row.exact
        assert row.ctas_per_sm == 1  # as the kernel itself: nothing is known of how two would share an SM
        assert row.cycles_per_k_iter == pytest.approx(big.cycles_per_k_iter * rates * share)
    monkeypatch.setattr(calibration, "table", lambda: tuple(mma))
    assert main(["profile", *JOB]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "unit costs are estimated, scaled from gemm_mma 128x256x64" in shown


def test_rows_laid_beside_the_table_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/calibration.csv").write_text(render([row for row in table() if row.kernel == "gemm_mma"]))
    row = lookup("gemm_sm90", TILE, "bf16", H200, rows=table())
    measured = [type(row)(**{**vars(row), "cycles_per_k_iter": 1024.0, "exact": True, "notes": ()})]
    (tmp_path / "data/calibration-gemm_sm90.csv").write_text(render(measured))
    (tmp_path / "data/calibration-notes.txt").write_text("no table")
    monkeypatch.setattr(calibration, "files", lambda package: tmp_path)
    table.cache_clear()
    try:
        found = lookup("gemm_sm90", TILE, "bf16", H200)
    finally:
        monkeypatch.undo()
        table.cache_clear()
    assert found.exact
    assert found.cycles_per_k_iter == 1024.0
