"""`wavescope compare --ladder`: kernels of growing technique, their gains, and waterfalls and waves side by side."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import compare_fixture as fixture
from tests.test_cli_errors import failed
from tests.test_compare_report import joined, paths, section
from wavescope import calibration, cuda_device, kernel_table, kernels
from wavescope.calibration import table
from wavescope.cli import target
from wavescope.cli.main import main
from wavescope.comparison import LIBRARY, Comparison, arranged, unavailable
from wavescope.device import virtual_device
from wavescope.ladder import INSIDE_FACTORS, RUNGS, climb, factors_of, steps
from wavescope.problem import Problem
from wavescope.report import ladder_csv, ladder_json, ladder_text
from wavescope.report.glyphs import ASCII, UNICODE, Glyphs
from wavescope.report.layout import Page, page_width
from wavescope.standings import standings
from wavescope.trace_file import load
from wavescope.variant import Variant
from wavescope.waterfall import _INSIDE_MEANINGS
from wavescope.wave_report import Factor, Waterfall

PROBLEM = Problem(4096, 4096, 4096)
REGIMES = ("cool", "sustained")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_device, "gpu_present", lambda: False)


def climbed(missing: Sequence[str] = (), library: bool = True, regimes: Sequence[str] = REGIMES) -> Comparison:
    """Every rung of the ladder, each faster than the one before, but those that are missing."""
    ran = [rung.name for rung in RUNGS if rung.name not in missing]
    made = [
        replace(
            fixture.contender(
                "persistent", fixture.fixed_spans(6, (50 - 5 * at) * 1000), 6, beyond_ns=0, regimes=regimes
            ),
            name=name,
        )
        for at, name in enumerate(ran)
    ]
    found = fixture.comparison([*made, *([fixture.library(regimes)] if library else [])], 6)
    gone = tuple(unavailable(name, f"{name} was taken away") for name in missing)
    whole = replace(found, contenders=(*found.contenders, *gone))
    return arranged(whole, [*(rung.name for rung in RUNGS), LIBRARY])


def rendered(found: Comparison, width: int, chars: Glyphs = UNICODE) -> list[str]:
    placed = standings(found)
    lines = ladder_text.lines(Page(page_width(width), chars), found, placed, steps(found, placed))
    return [line.plain for line in lines]


# --- the rungs


def test_every_rung_is_a_tile_of_a_kernel_that_runs_both_schedules() -> None:
    assert len({rung.name for rung in RUNGS}) == len({rung.kernel for rung in RUNGS}) == len(RUNGS)
    for rung in RUNGS:
        kernel = kernels.named(rung.kernel)
        assert rung.tile in [code.tile for code in kernel.codes]
        assert set(kernel_table.WHOLE_AND_STATIC) <= set(kernel.schedules)
        assert {"bf16", "fp16"} <= set(kernel.dtypes)


def test_a_device_runs_the_rungs_that_it_has_instructions_for() -> None:
    entries, missing = climb(PROBLEM, virtual_device("h200"), Variant("persistent"))
    assert [entry.name for entry in entries] == [rung.name for rung in RUNGS]
    assert missing == ()
    entries, missing = climb(PROBLEM, virtual_device("a100-80gb"), Variant("fixed"))
    of_hopper = [rung.name for rung in RUNGS if rung.kernel.startswith("gemm_sm90")]
    assert [one.name for one in missing] == of_hopper
    assert len(entries) + len(missing) == len(RUNGS)
    assert {entry.variant.schedule for entry in entries} == {"fixed"}
    assert missing[0].unavailable is not None
    assert missing[0].unavailable.endswith("needs compute capability 9.0; NVIDIA A100-SXM4-80GB has 8.0")


def test_a_step_is_against_the_one_before_it_that_ran() -> None:
    found = climbed(missing=[RUNGS[1].name])
    made = steps(found, standings(found))
    assert [step.number for step in made] == [n for n in range(1, len(RUNGS) + 1) if n != 2] * 2
    assert made[0].gain is None
    assert made[1].gain is not None
    before, own = (step.standing.time_ns.median for step in made[:2])
    assert made[1].gain.median == pytest.approx(before / own)
    assert before / own > 1.01
    assert [step.standing.regime for step in made[:: len(RUNGS) - 1]] == list(REGIMES)


def test_inside_the_tile_is_one_factor_for_all() -> None:
    assert tuple(_INSIDE_MEANINGS) == INSIDE_FACTORS
    four = [Factor(name, value, 0.0, "") for name, value in zip(INSIDE_FACTORS, (0.9, 0.8, 1.0, 0.5), strict=True)]
    fall = Waterfall(1.0, None, 1, (Factor("clock", 0.7, 0.0, ""), *four, Factor("tail", 0.6, 0.0, "")), 1.0, "")
    found = factors_of(fall)
    assert list(found) == ["clock", "inside tile", *INSIDE_FACTORS, "tail"]
    assert found["inside tile"] == pytest.approx(0.36)
    one = replace(fall, factors=(Factor("clock", 0.7, 0.0, ""), Factor("inside tile", 0.36, 0.0, "")))
    assert factors_of(one) == {"clock": 0.7, "inside tile": 0.36}


# --- paper


@pytest.mark.parametrize("chars", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_page(width: int, chars: Glyphs) -> None:
    lines = rendered(climbed(), width, chars)
    assert max(len(line) for line in lines) == width
    assert chars is UNICODE or "\n".join(lines).isascii()


def test_steps_stand_side_by_side() -> None:
    found = climbed()
    lines = rendered(found, 80)
    rows = section(lines, "Step by step, regime cool")
    first, second = rows[1].split(), rows[2].split()
    assert first[:3] == ["1", RUNGS[0].name, "100.00"]  # two waves of 50 us
    assert second[:3] == ["2", RUNGS[1].name, "90.00"]
    assert f"{100 / 90:.3f}" in second
    assert f"{90 / 80:.3f}" in rows[3].split()
    assert f"{120 / 90:.3f}" in second  # of cublas's time
    falls = section(lines, "Waterfalls from peak to achieved, regime cool")
    assert [line.split()[0] for line in falls[1:3]] == ["peak", "inside"]  # the clock is the maximum
    assert all(len(line.split()) >= len(RUNGS) for line in falls[1:3])
    waves = section(lines, "Waves, regime sustained")
    assert waves[1].split() == ["units", *["6"] * len(RUNGS)]
    assert waves[2].split() == ["places", *["4"] * len(RUNGS)]


def test_steps_that_did_not_run_are_named() -> None:
    text = joined(rendered(climbed(missing=[RUNGS[0].name]), 80))
    assert f"1 {RUNGS[0].name}" in text
    assert f"did not run: {RUNGS[0].name} was taken away" in text
    assert "SIMULATED" not in text


def test_every_key_is_documented_and_every_documented_key_is_there() -> None:
    found = climbed()
    placed = standings(found)
    text = ladder_json.render(found, placed, steps(found, placed))
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    for step in document["steps"]:
        step["verified"] = None  # its keys are the checks'
    there = paths(document)
    of_steps = ("", ".library_ratio", ".waterfall")  # what may be null, or empty, and is not here
    parents = {"library", "library.regimes[]", *(f"steps[].regimes[]{name}" for name in of_steps)}
    assert there == set(ladder_json.KEYS) - parents
    alone = climbed(missing=[RUNGS[1].name], library=False)
    placed = standings(alone)
    document = ladder_json.document(alone, placed, steps(alone, placed))
    assert document["library"] is None
    assert document["steps"][1]["regimes"] == []
    assert document["steps"][1]["unavailable"] == f"{RUNGS[1].name} was taken away"
    assert document["steps"][2]["regimes"][0]["gain"]["median"] == pytest.approx(100 / 90)


def test_rows_of_the_table() -> None:
    found = climbed(missing=[RUNGS[1].name])
    placed = standings(found)
    rows = list(csv.DictReader(ladder_csv.encode(found, placed, steps(found, placed)).decode().splitlines()))
    assert len(rows) == 2 * (len(RUNGS) - 1) + 1 + 2
    assert [row["step"] for row in rows[:3]] == [RUNGS[0].name] * 2 + [RUNGS[1].name]
    assert rows[2]["unavailable"] == f"{RUNGS[1].name} was taken away"
    assert rows[2]["time_ns"] == rows[2]["gain"] == ""
    assert float(rows[3]["gain"]) == pytest.approx(100 / 90)
    assert [row["step"] for row in rows[-2:]] == [LIBRARY] * 2
    assert float(rows[0]["factor_clock"]) * float(rows[0]["factor_inside_tile"]) > 0


# --- the command


def test_without_a_gpu_steps_with_a_calibration_are_simulated_and_the_others_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mma = tuple(row for row in table() if row.kernel == "gemm_mma")
    monkeypatch.setattr(calibration, "table", lambda: mma)
    trace, rows = tmp_path / "x.parquet", tmp_path / "x.csv"
    assert main(["compare", "--ladder", "-o", str(trace), "--csv", str(rows)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "wavescope compare --ladder: 4096 x 4096 x 4096 bf16" in text
    assert "SIMULATED because no CUDA device was found: a virtual NVIDIA H200 made these numbers" in text
    assert "did not run: gemm_sm90 128x256x64 bf16 has no calibration on NVIDIA H200" in text
    assert "cublas did not run: cublas runs on a GPU only" in text
    assert [launch.kernel for launch in load(trace).launches] == ["gemm_mma"]
    assert [launch.schedule for launch in load(trace).launches] == ["persistent"]
    assert [bool(row["time_ns"]) for row in csv.DictReader(rows.read_text().splitlines())].count(True) == 1
    assert main(["compare", "--ladder", "fixed", "--m", "2304", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["problem"]["m"], document["problem"]["n"]) == (2304, 4096)
    assert {step["ran"] for step in document["steps"] if not step["unavailable"]} == {"fixed"}
    failed(
        capsys, ["compare", "--ladder", "--device", "virtual:a100-80gb"], 3, "no step of the ladder can be simulated"
    )


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["streamk"], 2, "not every kernel runs streamk; use fixed or persistent"),
        (["fixed", "vs", "persistent"], 2, "by one schedule, not fixed and persistent"),
        (["--tile", "128x128x64"], 2, "--ladder and --tile do not go together"),
        (["--kernel", "mma"], 2, "--ladder and --kernel"),
        (["--work", "ragged:7"], 2, "--ladder and --work do not go together: its steps do all k_iters"),
        (["--fail-under-ratio", "1"], 2, "go together: no step is to beat another"),
        (["--dtype", "fp32"], 2, "bf16 and fp16, not fp32"),
        (["--m", "64", "--m", "65"], 2, "--m is given as 64 and as 65"),
    ],
)
def test_what_does_not_go_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], status: int, said: str
) -> None:
    failed(capsys, ["compare", "--ladder", *words], status, said)


def test_sizes_may_be_left_out_of_a_ladder_only(capsys: pytest.CaptureFixture[str]) -> None:
    failed(capsys, ["compare", "fixed", "splitk", "--m", "64", "--n", "64"], 2, "missing option '--k'")


def test_on_a_gpu_every_step_and_the_library_are_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def duel(*args: Any, **options: Any) -> Comparison:
        asked.append((args, options))
        return climbed()

    monkeypatch.setitem(sys.modules, "wavescope.duel", SimpleNamespace(duel=duel))  # type: ignore[arg-type]
    monkeypatch.setattr(target, "choose", lambda _: target.Target(virtual_device("h200"), 0))
    assert main(["compare", "--ladder", "cublas", "--dtype", "fp16", "--regime", "cool"]) == 0
    out = capsys.readouterr().out
    ((args, options),) = asked
    assert args[0] == Problem(4096, 4096, 4096, "fp16")
    assert [(entry.kernel, entry.tile) for entry in args[1]] == [(rung.kernel, rung.tile) for rung in RUNGS]
    assert {str(entry.variant) for entry in args[1]} == {"persistent"}
    assert (options["library"], options["regimes"]) == (True, ("cool",))
    assert "x cublas" in out
