"""What-if: predictions from one launch's own costs, against what the same device does with the change made."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.recorded import DATA, triton_matmul
from tests.synthetic import Span, trace_from
from tests.test_calibrate_command import H200, TILE, text_of
from tests.test_calibration import ROW, SHARED
from tests.test_cli_errors import failed
from wavescope import virtual
from wavescope.calibrate import fit
from wavescope.calibration_file import VARIABLE, merge
from wavescope.calibration_row import Calibration
from wavescope.cli.main import main
from wavescope.details import details
from wavescope.errors import ShapeError, UsageError
from wavescope.launch_costs import recorded_launch
from wavescope.own_costs import own_costs
from wavescope.problem import Problem, Tile
from wavescope.report import detail_text
from wavescope.report.glyphs import ASCII, UNICODE
from wavescope.report.layout import Page
from wavescope.trace import Kind, Trace
from wavescope.trace_file import load, save
from wavescope.variant import Variant
from wavescope.what_if import Change, what_if

PROBLEM = Problem(2304, 2304, 4096)  # 162 tiles of 128x256x64
RECORDED = DATA / "gemm_mma-128x256x64-fixed-2304x2304x4096.parquet"
TRUTH = replace(ROW, tile=TILE, cycles_per_k_iter=1700.0, fixed_cycles=2500.0, epilogue_cycles=2800.0)
STEADY = replace(TRUTH, idle_gain=0.0, idle_clock_mhz=TRUTH.clock_mhz)  # whatever other SMs do
OTHER_TILE = replace(SHARED, tile=Tile(128, 128, 64), ctas_per_sm=2, sharing=0.7, seniority=0.3)


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Installed costs of both tiles: right for what one fixed launch does not show, and wrong for what it does."""
    path = tmp_path / "mine.csv"
    wrong = {"cycles_per_k_iter": 3333.0, "epilogue_cycles": 1.0, "clock_mhz": 1000.0, "idle_clock_mhz": 1000.0}
    merge(path, [replace(TRUTH, **wrong), OTHER_TILE])
    monkeypatch.setenv(VARIABLE, str(path))
    return path


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Installed costs that idle SMs do not change."""
    path = tmp_path / "mine.csv"
    merge(path, [STEADY])
    monkeypatch.setenv(VARIABLE, str(path))


def run(
    text: str, row: Calibration = TRUTH, sms: int = 132, problem: Problem = PROBLEM, used: int | None = None
) -> Trace:
    """A launch on `used` of a device's SMs (all) whose units cost what `row` says, as if it had been measured."""
    device = replace(H200, sms=sms)
    variant = Variant.parse(text)
    schedule = variant.decompose(problem, row.tile, (used or sms) * row.ctas_per_sm, row.grid_model)
    trace = virtual.simulate(
        schedule,
        device,
        kernel="gemm_mma",
        block=256,
        registers=255,
        shared_bytes=196608,
        ctas_per_sm=row.ctas_per_sm,
        calibration=row,
        seed=3,
        reduction=variant.reduction,
    )
    return replace(trace, launches=(replace(trace.launches[0], source="measured"),))


def predicted(trace: Trace, text: str) -> float:
    return what_if(trace, None, [Change.parse(text)]).outcomes[2].duration_ns


def truth(*launch: object, **more: object) -> float:
    return float(run(*launch, **more).spans.end_ns.max())  # type: ignore[arg-type]


@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize(
    "schedule", ["persistent", "dynamic", "splitk:2", "streamk", "hybrid", "tailsplit", "hybrid@atomic"]
)
def test_another_schedule(schedule: str) -> None:
    assert predicted(run("fixed"), f"schedule={schedule}") == pytest.approx(truth(schedule), rel=0.01)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("sms", [66, 108, 162, 200])
@pytest.mark.parametrize("schedule", ["fixed", "tailsplit", "streamk"])
def test_other_numbers_of_sms(schedule: str, sms: int) -> None:
    expected = truth(schedule, STEADY, sms=sms)
    assert predicted(run(schedule, STEADY), f"sms={sms}") == pytest.approx(expected, rel=0.015)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("sms", [66, 108])
def test_sms_left_out_are_idle_and_raise_the_clock(sms: int) -> None:
    row = replace(TRUTH, idle_gain=0.0, idle_clock_mhz=1.15 * TRUTH.clock_mhz)  # 7 % faster with half of the SMs
    expected = truth("persistent", row, used=sms)
    assert predicted(run("persistent", row), f"sms={sms}") == pytest.approx(expected, rel=0.01)
    assert truth("persistent", row, sms=sms) > 1.02 * expected  # what a device without those SMs takes


@pytest.mark.usefixtures("calibrated")
def test_sms_left_out_are_idle_and_leave_the_others_faster() -> None:
    # 10 % off the k_iters with all SMs idle: 5 % with half of them, and 5 / 95 of what is left with the rest
    row = replace(TRUTH, idle_clock_mhz=TRUTH.clock_mhz)
    other = replace(row, cycles_per_k_iter=0.95 * row.cycles_per_k_iter, idle_gain=5 / 95)
    assert predicted(run("persistent", row), "sms=66") == pytest.approx(truth("persistent", other, sms=66), rel=0.01)


@pytest.mark.usefixtures("calibrated")
def test_another_tile() -> None:
    # as installed for that tile; the clock is the launch's, and so is the problem
    assert predicted(run("fixed"), "tile=128x128x64") == pytest.approx(truth("fixed", OTHER_TILE), rel=0.01)
    both = predicted(run("fixed"), "tile=128x128x64,schedule=hybrid,sms=108")
    assert both == pytest.approx(truth("hybrid", OTHER_TILE, sms=108), rel=0.01)


def test_a_tile_nobody_calibrated_is_scaled_from_the_launch() -> None:
    alone = run("fixed")
    far = replace(alone, device=replace(alone.device, name="Other GPU"))
    found = what_if(far, None, [Change.parse("tile=256x128x64")])
    assert found.outcomes[2].duration_ns == pytest.approx(found.outcomes[1].duration_ns, rel=0.02)  # as large a tile
    assert any("scaled by multiply-adds" in note for note in found.notes)


@pytest.mark.usefixtures("calibrated")
def test_several_ctas_an_sm() -> None:
    trace = run("fixed", OTHER_TILE)
    assert predicted(trace, "sms=108") == pytest.approx(truth("fixed", OTHER_TILE, sms=108), rel=0.02)
    assert predicted(trace, "schedule=tailsplit") == pytest.approx(truth("tailsplit", OTHER_TILE), rel=0.03)
    # from Stream-K to whole tiles: how much staggered shares are slower is known, and taken out
    assert predicted(run("streamk", OTHER_TILE), "schedule=fixed") == pytest.approx(
        truth("fixed", OTHER_TILE), rel=0.03
    )


@pytest.mark.usefixtures("calibrated")
def test_costs_once_a_unit_are_divided_from_those_a_k_iter() -> None:
    trace = run("fixed")
    fitted, own = fit([trace]), own_costs(trace)
    assert "fixed_cycles" in fitted.unseen
    assert own.costs.fixed_cycles == 2500
    assert own.costs.cycles_per_k_iter == pytest.approx(1700, rel=0.003)
    assert "fixed_cycles" in own.taken
    # what the units took together stays: 1 - 30 / 132 of the SMs idle beside the last 30
    one = recorded_launch(trace, trace.launches[0])
    gain = np.where(one.wave == 1, 1 - 0.1 * (1 - 30 / 132), 1.0)
    expected = own.costs.cycles_per_k_iter * 64 * gain + 2500 + own.costs.cold_cycles * one.is_cold
    assert float(one.cycles.sum()) == pytest.approx(float(expected.sum()), rel=1e-4)
    assert own.costs.epilogue_cycles == pytest.approx(2800, rel=0.01)  # the launch's own, not the installed 1
    # staggered shares alone: their slowdown is divided out too
    streamk = own_costs(run("streamk"))
    assert streamk.costs.cycles_per_k_iter == pytest.approx(1700, rel=0.01)
    assert streamk.costs.stream_slowdown == 0.2


def test_installed_costs_larger_than_the_units_are_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    merge(path, [replace(STEADY, fixed_cycles=1e6)])
    monkeypatch.setenv(VARIABLE, str(path))
    own = own_costs(run("fixed", STEADY))
    assert own.costs.fixed_cycles == 0
    assert "fixed_cycles" not in own.taken
    assert own.costs.cycles_per_k_iter == pytest.approx(1700 + 2500 / 64, rel=0.01)


def test_the_comparison_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    merge(path, [STEADY])
    monkeypatch.setenv(VARIABLE, str(path))
    trace = run("fixed", STEADY)
    found = what_if(trace, None, [Change.parse("sms=108"), Change.parse("schedule=tailsplit:4")])
    recorded, again, fewer, tail = found.outcomes
    assert [one.source for one in found.outcomes] == ["measured", "estimated", "estimated", "estimated"]
    assert [one.what for one in found.outcomes] == ["as recorded", "as recorded", "sms=108", "schedule=tailsplit:4"]
    assert (recorded.duration_ns, recorded.to_recorded) == (trace.spans.end_ns.max(), 1)
    assert again.to_recorded == pytest.approx(1, abs=0.01)
    # 162 tiles of equal cost: two rounds on 132 as on 108 SMs; busy 162 / 264 and 162 / 216
    assert recorded.not_idle_share == pytest.approx(162 / 264, abs=0.01)
    assert fewer.not_idle_share == pytest.approx(162 / 216, abs=0.01)
    assert fewer.tail_share == pytest.approx(1 - 162 / 216, abs=0.01)
    assert fewer.bound == pytest.approx(216 / 162, rel=0.01)
    assert (fewer.sms, tail.sms, tail.schedule, str(tail.tile)) == (108, 132, "tailsplit", "128x256x64")
    assert tail.runs == "tailsplit: 30 tiles cut into 4, then 132 whole tiles, 12 spare CTAs add the parts"
    assert tail.met_share > 0 == recorded.met_share
    assert tail.to_recorded == pytest.approx(tail.duration_ns / recorded.duration_ns)


def test_numbers_that_follow_the_places() -> None:
    # all 132 places before, all 66 after; a number asked for stays
    runs = [
        what_if(run(recorded), None, [Change.parse(text)]).outcomes[2].runs
        for recorded, text in [
            ("streamk:132", "sms=66"),
            ("streamk:100", "schedule=streamk:50"),
            ("splitk:3", "sms=66"),
            ("tailsplit:4", "tile=256x128x64"),
        ]
    ]
    assert runs[0].startswith("streamk: 66 CTAs")
    assert runs[1].startswith("streamk: 50 CTAs")
    assert runs[2] == "splitk: each tile cut into 3"
    assert runs[3].startswith("tailsplit: 30 tiles cut into 4, then 132 whole tiles")


def test_a_recorded_number_that_another_tile_cannot_have_is_chosen_anew() -> None:
    # 39 tiles of 128x256 are left over, of 256x128 it is 48, and 132 places hold no three parts of each
    recorded = run("tailsplit:3", problem=Problem(2432, 2304, 4096))
    again = what_if(recorded, None, [Change.parse("tile=256x128x64")]).outcomes[2]
    assert again.runs.startswith("tailsplit: 48 tiles cut into 2, then 132 whole tiles")
    with pytest.raises(ShapeError, match="tailsplit:3 is not possible"):
        what_if(recorded, None, [Change.parse("tile=256x128x64,schedule=tailsplit:3")])


def test_notes_say_what_the_costs_rest_on() -> None:
    notes = " ".join(what_if(run("fixed"), None, [Change.parse("schedule=hybrid")]).notes)
    assert (
        "so from the calibration of gemm_mma 128x256x64 bf16 on NVIDIA H200: add_cycles, fixed_cycles, gap_cycles, "
        "idle_gain, partial_cycles, stream_slowdown." in notes
    )
    assert "memory bandwidth and L2, which stay as they are" in notes
    whole = " ".join(what_if(run("fixed"), None, [Change.parse("sms=108")]).notes)
    assert "partial_cycles" not in whole
    assert "staggered" not in whole


PARSED = [
    ("sms=108", Change("sms=108", sms=108)),
    (" tile = 128x128x64 , sms=66", Change("tile=128x128x64,sms=66", sms=66, tile=Tile(128, 128, 64))),
    ("schedule=splitk:4@row", Change("schedule=splitk:4@row", schedule="splitk:4@row")),
]


@pytest.mark.parametrize(("text", "change"), PARSED)
def test_questions(text: str, change: Change) -> None:
    assert Change.parse(text) == change


BAD = [
    ("", '"" is unknown; use sms=.., schedule=.., tile=..'),
    ("108", '"108" is unknown'),
    ("sm=108", '"sm" is unknown; use sms=.., schedule=.., tile=..; did you mean sms?'),
    ("sms", "sms has no value"),
    ("sms=", "sms has no value"),
    ("sms=0", '"0" is not a number from 1 to 65536'),
    ("sms=-5", '"-5" is not'),
    ("sms=1e2", '"1e2" is not'),
    ("sms=99999999", '"99999999" is not'),
    ("sms=1,sms=2", "sms is there twice"),
    ("sms=108,", '"" is unknown'),
    ("schedule=streemk", "did you mean streamk?"),
    ("schedule=fixed:4", "fixed takes no number"),
    ("tile=big", "'big' is not MxNxK"),
    ("tile=512x512x64", "512x512x64 is not one of gemm_mma's"),
    ("schedule=splitk:65", "splitk:65 is not possible"),
    ("schedule=streamk:133", "streamk:133 is not possible"),
]


@pytest.mark.parametrize(("text", "what"), BAD, ids=[text or "empty" for text, _ in BAD])
def test_questions_that_are_none(capsys: pytest.CaptureFixture[str], text: str, what: str) -> None:
    failed(capsys, ["report", str(RECORDED), "--what-if", text], 2, what)


def test_launches_that_cannot_be_scheduled_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "triton.parquet"
    save(replace(triton_matmul("triton_matmul_2304", PROBLEM), tool_version="0"), path)
    failed(capsys, ["report", str(path), "--what-if", "sms=108"], 2, "only launches of wavescope's own kernels")
    with pytest.raises(UsageError, match="does not say which units it ran"):
        what_if(trace_from([Span(Kind.CTA, 0, 0, 0, 32)]), None, [Change("sms=1", sms=1)])
    ragged = replace(run("fixed"), launches=(replace(run("fixed").launches[0], work="ragged:7"),))
    with pytest.raises(UsageError, match="launch 0 did ragged:7; irregular work is not re-scheduled"):
        what_if(ragged, None, [Change("sms=1", sms=1)])
    other = replace(run("fixed"), launches=(replace(run("fixed").launches[0], kernel="mine"),))
    with pytest.raises(UsageError, match='kernel "mine" is none of this wavescope\'s, which are gemm_sm90, '):
        what_if(other, None, [Change.parse("tile=128x128x64")])
    long = run("fixed", problem=Problem(128, 256, 64 * 3_000_000))
    with pytest.raises(ShapeError, match="2100000 units are more than the 2000000 that are simulated"):
        what_if(long, None, [Change.parse("schedule=splitk:2100000")])


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["report", str(RECORDED)]) == 0
    plain = capsys.readouterr().out
    argv = ["report", str(RECORDED), "--what-if", "sms=108", "--what-if", "schedule=tailsplit:2,sms=120"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert out.startswith(plain)
    added = text_of(out.removeprefix(plain))
    assert added.startswith("── What if ")
    assert "as recorded, measured 138.14 61.3% 38.6% 0.0% 1.631" in added
    assert "sms=108, estimated" in added
    assert "question 2, estimated" in added
    assert (
        "question 2 schedule=tailsplit:2,sms=120: 120 SMs, tile 128x256x64, tailsplit: 42 tiles cut into 2, then"
        in added
    )
    assert max(len(line) for line in out.splitlines()) <= 80


def test_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(RECORDED), "--json", "--what-if", "sms=108"]) == 0
    found = json.loads(capsys.readouterr().out)["what_if"]
    assert [one["source"] for one in found["outcomes"]] == ["measured", "estimated", "estimated"]
    assert (found["outcomes"][2]["sms"], found["outcomes"][2]["tile"]) == (108, "128x256x64")
    assert found["outcomes"][1]["to_recorded"] == pytest.approx(1, abs=0.02)
    assert any("Not in the estimates" in said for said in found["sentences"])
    assert main(["report", str(RECORDED), "--json"]) == 0
    assert "what_if" not in json.loads(capsys.readouterr().out)


def test_a_simulated_launch_can_be_asked_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    job = ["profile", "-m", "2304", "-n", "2304", "-k", "4096", "--device", "virtual:a100", "-o", str(path)]
    assert main(job) == 0
    capsys.readouterr()
    assert main(["report", str(path), "--what-if", "sms=132"]) == 0
    text = text_of(capsys.readouterr().out)
    assert "as recorded, simulated" in text
    assert "SIMULATED: this is what the virtual device's model does" in text


def test_no_line_is_wider_than_the_page() -> None:
    changes = [Change.parse("schedule=streamk:96@grouped16@atomic,tile=128x128x64,sms=108"), Change.parse("sms=1000")]
    found = details(run("fixed"), None, (), changes)
    for width in (60, 80, 140):
        for glyphs in (UNICODE, ASCII):
            lines = [line.plain for line in detail_text.lines(Page(width, glyphs), found, "measured")]
            assert max(len(line) for line in lines) <= width
            assert glyphs is UNICODE or all(line.isascii() for line in lines)


def test_predictions_of_recorded_launches_come_close() -> None:
    """The launch itself, from nothing but its own spans and the installed rest, to 3 %."""
    for path in sorted(DATA.glob("gemm_*-fixed-2304x*.parquet")):
        outcomes = what_if(load(path), None, [Change.parse("sms=108")]).outcomes
        assert outcomes[1].to_recorded == pytest.approx(1, abs=0.03), path.name
        assert np.isfinite(outcomes[2].bound)


def test_a_question_that_cannot_be_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["report", str(RECORDED), "--what-if", "sms=108", "--what-if", "sms=9,schedule=fixed@lpt"]
    assert main(argv) == 2
    assert "--what-if sms=9,schedule=fixed@lpt: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        # tiles at the edge of C, several CTAs an SM: what a unit costs once is the calibration's
        ("-m 1500 -n 1664 -k 2048 --tile 64x64x64", "splitk:4"),
        ("-m 1500 -n 1664 -k 2048 --tile 64x64x64", "streamk"),
        ("-m 1000 -n 1000 -k 2048 --tile 128x128x64", "tailsplit"),
        # fewer CTAs an SM than the calibration has: partial sums move fewer bytes at once
        ("-m 2304 -n 2304 -k 2048 --tile 64x64x64 --ctas-per-sm 1 --schedule splitk:2@atomic", "splitk:2@atomic"),
    ],
)
def test_a_launch_predicts_what_the_other_schedule_takes(
    words: str, asked: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = ["profile", *words.split(), "--kernel", "gemm_mma", "--device", "virtual:h200"]
    assert main([*job, "-o", str(tmp_path / "run.parquet")]) == 0
    own = load(tmp_path / "run.parquet")
    assert main([*job, "--schedule", asked, "-o", str(tmp_path / "other.parquet")]) == 0
    truth = int(load(tmp_path / "other.parquet").spans.end_ns.max())
    recorded, _, other = what_if(own, None, [Change.parse(f"schedule={asked}")]).outcomes
    assert other.duration_ns == pytest.approx(truth, rel=0.06)
    capsys.readouterr()
    assert recorded.duration_ns == int(own.spans.end_ns.max())


def test_a_unit_too_short_to_tell_its_edge_leaves_that_to_the_calibration(tmp_path: Path) -> None:
    job = "-m 1024 -n 2648 -k 16 --tile 128x128x64 --kernel gemm_mma --device virtual:h200 --schedule hybrid"
    assert main(["profile", *job.split(), "-o", str(tmp_path / "run.parquet")]) == 0
    recorded, again, _ = what_if(load(tmp_path / "run.parquet"), None, [Change.parse("sms=108")]).outcomes
    assert again.duration_ns == pytest.approx(recorded.duration_ns, rel=0.06)
