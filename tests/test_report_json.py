"""The JSON report: every key documented, no NaN, numbers that agree with the report."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import report_fixture as fixture

from wavescope.report.json import KEYS, SCHEMA_VERSION, document, finite, render
from wavescope.wave_report import STATES, Placement, Quantity, WaveReport

FREE_FORM = ("launch.verified", "device.peak_tflops")  # named by what was checked, by dtype


def paths(value: Any, at: str = "") -> set[str]:
    """The paths of all leaves, as KEYS writes them."""
    if at in FREE_FORM:
        return {at}
    if isinstance(value, dict):
        return set().union(*(paths(entry, f"{at}.{key}" if at else key) for key, entry in value.items()))
    if isinstance(value, list | tuple):
        return set().union(*(paths(entry, f"{at}[]") for entry in value)) if value else {f"{at}[]"}
    return {at}


def parsed(report: WaveReport) -> dict[str, Any]:
    text = render(report, fixture.SENTENCES, "0.1.0")
    assert text.endswith("}\n")
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_every_key_is_documented_and_every_documented_key_is_there() -> None:
    placement = Placement(1024, 8, True, 431.5, 59.0, 254.0, 0.29, (7,), 477)
    found = paths(parsed(replace(fixture.inside_report(), refusals=("no",), placement=placement)))
    # parents that are documented because they may be null
    parents = {
        "launch.problem",
        "launch.tile",
        "launch.timing",
        "launch.timing.cycles",
        "placement",
        "tail",
        "waterfall",
    }
    parents |= {"clock", "flop", "inside"}
    assert found == set(KEYS) - parents
    assert parents <= set(KEYS)


def test_a_simulated_report_has_null_where_there_is_nothing() -> None:
    found = parsed(replace(fixture.simulated_report(), tail=None, waterfall=None, clock=None))
    assert paths(found) <= set(KEYS)
    assert found["source"] == "simulated"
    assert [found[key] for key in ("tail", "waterfall", "clock", "placement")] == [None] * 4
    assert found["launch"]["timing"] is None
    assert found["launch"]["notes"] == ["simulated because no CUDA device was found"]


def test_numbers_are_the_reports() -> None:
    report = fixture.report()
    found = parsed(report)
    assert found["schema_version"] == SCHEMA_VERSION
    assert found["meaning"] == list(fixture.SENTENCES)
    assert found["launch"]["problem"] == {
        "m": 2304,
        "n": 2304,
        "k": 4096,
        "dtype": "bf16",
        "layout": "tn",
        "flop": 43_486_543_872,  # 2 * 2304 * 2304 * 4096
    }
    assert found["launch"]["t0_globaltimer_ns"] == "1796000000123456789"  # over 2**53: a string
    budget = found["budget"]
    assert [term["state"] for term in budget["terms"]] == list(STATES)
    assert sum(term["value"] for term in budget["terms"]) == budget["total_sm_ns"] == 132 * budget["duration_ns"]
    assert sum(term["share"] for term in budget["terms"]) == pytest.approx(1)
    assert all(sum(row["state_ns"]) == budget["duration_ns"] for row in budget["per_sm"])
    assert found["waves"]["waves"][1]["units"] == 30
    assert found["bound"]["source"] == found["tail"]["source"] == "estimated"
    assert found["bound"]["value"] * budget["not_idle"]["share"] == pytest.approx(1)


def test_the_split_inside_tiles_is_there_where_it_was_measured() -> None:
    report = fixture.inside_report()
    found = parsed(report)["inside"]
    assert report.inside is not None
    assert {part["name"]: part["total"] for part in found["parts"]} == {
        name: part.total for name, part in report.inside.parts.items()
    }
    shares = {part["name"]: part["share"] for part in found["parts"]}
    assert sum(share for name, share in shares.items() if name != "room") == pytest.approx(1)
    assert shares["room"] == pytest.approx(162 * 62_000 / report.inside.mac_cycles)
    assert (len(found["per_sm"]), found["per_sm"][3]["sm"]) == (132, 3)
    assert parsed(fixture.report())["inside"] is None


def test_what_is_not_finite_becomes_null() -> None:
    report = replace(fixture.report(), bound=Quantity(float("inf"), float("nan")))
    assert parsed(report)["bound"] == {"source": "estimated", "value": None, "error": None, "refused": False}


def test_numpy_scalars_become_plain_numbers() -> None:
    found = finite({"a": np.int64(3), "b": (np.float64("nan"), np.float64(0.5)), "c": True, "d": None})
    assert found == {"a": 3, "b": [None, 0.5], "c": True, "d": None}
    assert type(found["a"]) is int


def test_document_keeps_all_waves() -> None:
    assert len(document(fixture.many_waves_report(3000), (), "0.1.0")["waves"]["waves"]) == 3000
