"""A comparison on paper: the terminal at several widths, JSON whose keys are documented, CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests import compare_fixture as fixture
from wavescope.comparison import Comparison, entries, unavailable
from wavescope.device import virtual_device
from wavescope.picture import picture
from wavescope.problem import Problem, Tile
from wavescope.report import compare_charts, compare_csv, compare_json, compare_text
from wavescope.report.glyphs import ASCII, UNICODE, Glyphs
from wavescope.report.layout import Page, page_width
from wavescope.standings import standings
from wavescope.variant import Variant
from wavescope.verdicts import verdicts
from wavescope.virtual_comparison import virtual_comparison
from wavescope.wave_report import STATES


def simulated(last: str = "tailsplit") -> Comparison:
    return virtual_comparison(
        Problem(2304, 2304, 4096),
        entries(
            [Variant("fixed"), Variant.parse("persistent@row"), Variant.parse(last)], Tile(128, 256, 64), "gemm_mma"
        ),
        virtual_device("h200"),
        reason="no CUDA device was found",
        seed=0,
        library=True,
    )


def library_first() -> Comparison:
    return fixture.comparison([fixture.library(), fixture.contender("fixed", fixture.fixed_spans(6), 6)], 6)


MAKES = (fixture.full_comparison, simulated, library_first)


def rendered(found: Comparison, width: int, chars: Glyphs = UNICODE) -> list[str]:
    page = Page(page_width(width), chars)
    placed = standings(found)
    drawn = [(one, one.report) for one in placed if one.report and one.regime == found.regimes[0]]
    rows, columns = compare_charts.picture_size(page.width, found.device.sms, len(drawn))
    longest = max(report.budget.duration_ns for _, report in drawn)
    pictures = []
    for one, report in drawn:
        assert one.contender.trace is not None
        wide = compare_charts.picture_columns(columns, report.budget.duration_ns, longest)
        pictures.append((one, picture(one.contender.trace, report.launch.launch_id, rows, wide)))
    lines = compare_text.lines(page, found, placed, verdicts(found, placed), pictures)
    return [line.plain for line in lines]


def section(lines: list[str], title: str) -> list[str]:
    """The lines under the heading that contains `title`, up to the next heading."""
    first = next(i for i, line in enumerate(lines) if title in line and line[:2] in ("──", "--"))
    end = next((i for i in range(first + 1, len(lines)) if lines[i][:2] in ("──", "--")), len(lines))
    return lines[first + 1 : end]


def joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


# --- the terminal


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("chars", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_page(make: Callable[[], Comparison], chars: Glyphs, width: int) -> None:
    lines = rendered(make(), width, chars)
    assert max(len(line) for line in lines) == width  # headings reach the edge, nothing goes over it
    assert all(line == line.rstrip() for line in lines)
    assert chars is UNICODE or "\n".join(lines).isascii()


def test_columns_give_way_by_their_worth() -> None:
    titles = {
        width: section(rendered(fixture.full_comparison(), width), "Result, regime cool")[0].split()
        for width in (60, 80, 100, 140)
    }
    assert titles[60] == ["schedule", "time", "us", "speed", "busy", "tail"]
    assert titles[80] == ["schedule", "time", "us", "speed", "x", "cublas", "busy", "fixup+wait", "tail"]
    assert titles[100] == [*titles[80][:3], "95%", *titles[80][3:], "kcycles"]
    assert titles[140] == [
        *("schedule", "time", "us", "95%", "TFLOP/s", "speed", "x", "cublas", "units", "busy", "fixup+wait", "tail"),
        *("bound", "kcycles", "MHz", "predicted", "us"),
    ]
    simulation = section(rendered(simulated(), 80), "Result")[0]
    assert "cublas" not in simulation  # what nobody has, has no column
    assert "95%" not in simulation
    assert "kcycles" in simulation


def test_a_row_has_the_numbers_of_its_launch() -> None:
    table = section(rendered(fixture.full_comparison(), 140), "Result, regime cool")
    # 150 us of mac, 2 of waiting, 9 of fix-up, 1 around the launch; 11 / 161 = 6.8 %; 201 / 162; 120 / 162
    row = "tailsplit 162.00 ±0.16 0.0 1.241 ±0.001 0.741 8 100.0% 6.8% 0.0% 1.000 161.0 1000 165.24"
    assert " ".join(table[2].split()) == row
    assert table[5].split() == ["cublas", "120.00", "±0.24", "0.0", "1.675", "±0.002", "1.000"]
    assert table[1].split()[4] == "1.000"  # the first against itself has no interval


def test_every_estimate_is_called_one_and_every_gap_explained() -> None:
    below = joined(section(rendered(fixture.full_comparison(), 140), "Result, regime sustained"))
    assert "hybrid did not run: it was left out." in below
    assert "bound: what perfect balance could bring at most (estimated)" in below
    assert "predicted: T on the calibrated virtual device (estimated)" in below
    assert "predicted" not in joined(section(rendered(fixture.full_comparison(), 80), "Result, regime sustained"))


def test_the_header_says_what_ran_and_what_was_checked() -> None:
    header = joined(section(rendered(fixture.full_comparison(), 80), "wavescope compare: 96 x 16 x 128 bf16"))
    for words in (
        "device Test GPU, 4 SMs, sm_90, up to 1000 MHz",
        "tiles 6 of 8 k_iters each, for every schedule",
        "tailsplit 2 tiles cut into 2, then 4 whole tiles",
        "cublas nvjet_sm90_tst_128x128_64x6_1x2_h_bz_TNT",
        "fixed, tailsplit, streamk:4, persistent@row: exact on small integers (plain)",
        "note cublas: cuBLAS 13.0",
    ):
        assert words in header
    assert "SIMULATED" not in header
    assert "compared as" not in header


def test_a_note_that_begins_with_its_contender_names_it_once() -> None:
    found = fixture.full_comparison()
    first, second, *others = found.contenders
    first = replace(first, notes=(f"{first.name} takes a tile", "a remark"))
    text = joined(rendered(replace(found, contenders=(first, second, *others)), 80))
    assert f"note {first.name} takes a tile" in text
    assert f"note {first.name}: a remark" in text


def test_a_simulation_says_so_first_and_its_shared_notes_once() -> None:
    lines = rendered(simulated(), 80)
    assert joined(lines[1:3]) == (
        "SIMULATED because no CUDA device was found: a virtual NVIDIA H200 made these numbers, nothing was measured."
    )
    headings = [line for line in lines if line.startswith("── ")]
    assert [line.split()[-2] for line in headings[:-1]] == ["simulated"] * (len(headings) - 1)
    assert joined(lines).count("unit costs as recorded") == 1
    one_alone = rendered(simulated("streamk@atomic"), 80)
    assert "note streamk@atomic: " in joined(one_alone)  # what the simulation knows less well of it alone
    assert "verified" not in joined(lines)
    assert "cublas did not run: cublas runs on a GPU only" in joined(lines)
    verdict = section(lines, "Verdicts")
    assert all(line.startswith("  SIMULATED: ") for line in verdict if line[2] != " " and line[2].isupper())


def test_budgets_stand_side_by_side_in_shares_of_the_first() -> None:
    budgets = section(
        rendered(fixture.full_comparison(), 80), "Budgets, regime cool: SM time / 4 SMs, share of fixed's"
    )
    rows = [line.split() for line in budgets]
    assert ["█", "mac", "150.00", "75.0%", "150.00", "75.0%", "210.00", "105.0%", "150.00", "75.0%"] in rows
    assert ["▚", "fixup", "-", "9.00", "4.5%", "40.00", "20.0%", "-"] in rows
    assert ["·", "tail", "50.00", "25.0%", "-", "-", "50.00", "25.0%"] in rows
    assert ["sum", "200.00", "100.0%", "161.00", "80.5%", "250.00", "125.0%", "200.00", "100.0%"] in rows
    bars = {row[0]: row[1] for row in rows[:4]}
    assert len(bars["fixed"]) / len(bars["streamk:4"]) == pytest.approx(200 / 250, abs=0.02)
    assert bars["fixed"].count("·") / len(bars["fixed"]) == pytest.approx(0.25, abs=0.02)


def test_budgets_that_do_not_fit_go_below() -> None:
    budgets = section(rendered(fixture.full_comparison(), 60), "Budgets, regime cool")
    assert sum(line.split()[:2] == ["█", "mac"] for line in budgets) == 2


def test_pictures_have_one_time_axis() -> None:
    lines = section(rendered(fixture.full_comparison(), 80), "SMs by time, regime cool")
    rows = {}
    for at, line in enumerate(lines):
        if line.startswith("  ") and line[2] != " " and line.endswith(" us"):
            rows[line.split()[0]] = [row[13:] for row in lines[at + 1 : at + 5]]
    assert list(rows) == ["fixed", "tailsplit", "streamk:4", "persistent@row"]
    lengths = {name: max(map(len, row)) for name, row in rows.items()}
    axis = next(line for line in lines if "└" in line)
    assert lengths["streamk:4"] == len(axis) - 13 == 67
    assert lengths == {"fixed": 54, "tailsplit": 43, "streamk:4": 67, "persistent@row": 54}  # 67 x 200, 161 / 250
    assert "250.0 us" in joined(lines)


def test_what_two_regimes_share_is_said_once() -> None:
    text = joined(section(rendered(fixture.full_comparison(), 80), "Verdicts"))
    assert text.count("streamk:4 loses") == 2
    assert text.count("There are 8 units in place of 6") == 1


def test_a_library_as_reference_has_no_budget() -> None:
    text = joined(rendered(library_first(), 80))
    assert "fixed loses: it takes 1.675 times as long as cublas" in text
    assert "cublas leaves no spans" in text
    assert "share of fixed's" in text  # the budgets' own first


# --- JSON


def paths(value: Any, at: str = "") -> set[str]:
    """The paths of all leaves, as KEYS writes them."""
    if at == "contenders[].verified":
        return {at}
    if isinstance(value, dict):
        return set().union(*(paths(entry, f"{at}.{key}" if at else key) for key, entry in value.items()))
    if isinstance(value, list):
        return set().union(*(paths(entry, f"{at}[]") for entry in value)) if value else {f"{at}[]"}
    return {at}


def document(found: Comparison) -> dict[str, Any]:
    placed = standings(found)
    text = compare_json.render(found, placed, verdicts(found, placed))
    assert text.endswith("}\n")
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_every_key_is_documented_and_every_documented_key_is_there() -> None:
    # the first has no verdict, a library no launch, one did not run: documented parents that are null
    assert paths(document(fixture.full_comparison())) == set(compare_json.KEYS) - {
        "contenders[].regimes[].library_ratio"
    }
    alone = fixture.comparison([one for one in fixture.full_comparison().contenders if one.name != "cublas"], 6)
    assert "contenders[].regimes[].library_ratio" in paths(document(alone))


def test_a_simulated_document_has_null_where_there_is_nothing() -> None:
    found = document(simulated())
    assert paths(found) <= set(compare_json.KEYS)
    assert (found["source"], found["reason"], found["regimes"]) == (
        "simulated",
        "no CUDA device was found",
        ["simulated"],
    )
    assert [one["predicted"] for one in found["contenders"]] == [None] * 4
    assert found["contenders"][3]["regimes"] == []


def test_numbers_of_the_document_are_the_comparisons() -> None:
    found = document(fixture.full_comparison())
    assert found["problem"] == {"m": 96, "n": 16, "k": 128, "dtype": "bf16", "layout": "tn", "flop": 393_216}
    assert [one["name"] for one in found["contenders"]] == [
        *("fixed", "tailsplit", "streamk:4", "persistent@row", "cublas", "hybrid")
    ]
    split = found["contenders"][1]["regimes"][0]
    assert split["launch"]["launch_id"] == 2
    assert [term["state"] for term in split["launch"]["terms"]] == list(STATES)
    assert sum(term["share_of_first"] for term in split["launch"]["terms"]) == pytest.approx(161 / 200)
    account = split["verdict"]["account"]
    assert account["total_ns"] == pytest.approx(-39_000)
    assert sum(part["ns"] for part in account["parts"]) == pytest.approx(account["total_ns"])
    assert split["verdict"]["reasons"] == ["tail", "fixup", "wait"]
    assert split["verdict"]["gain"]["ideal"] == pytest.approx(8 / 6)


def test_what_is_not_finite_becomes_null() -> None:
    found = fixture.full_comparison()
    broken = replace(found.contenders[0], predicted_ns=math.nan)
    shown = document(replace(found, contenders=(broken, *found.contenders[1:])))
    assert shown["contenders"][0]["predicted"] == {"source": "estimated", "time_ns": None}


# --- CSV


def test_csv_has_a_row_a_contender_and_regime() -> None:
    found = fixture.full_comparison()
    placed = standings(found)
    text = compare_csv.encode(found, placed, verdicts(found, placed)).decode()
    rows = list(csv.DictReader(text.splitlines()))
    assert [(row["contender"], row["regime"]) for row in rows] == [
        *(
            (name, regime)
            for name in ("fixed", "tailsplit", "streamk:4", "persistent@row", "cublas")
            for regime in found.regimes
        ),
        ("hybrid", ""),
    ]
    split = rows[2]
    assert float(split["time_ns"]) == 162_000
    assert float(split["fixup_share"]) == pytest.approx(9 / 161)
    assert sum(float(split[f"{state}_share"]) for state in STATES) == pytest.approx(1)
    parts = [float(value) for name, value in split.items() if name.startswith("account_")]
    assert sum(parts) == pytest.approx(162_000 - 201_000)
    assert split["outcome"] == "faster"
    assert split["verdict"].startswith("tailsplit is 1.241 times as fast as fixed")
    assert rows[8]["units"] == ""  # a library's
    assert rows[10]["unavailable"] == "it was left out"
    assert unavailable("hybrid", "it was left out") in found.contenders
