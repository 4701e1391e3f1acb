"""The virtual H200 and what-if against launches of an H200 on which nothing was fitted (tests/data/predictions)."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))

import predictions
import readme_tables

MEDIAN, NINE_TENTHS = 0.06, 0.15
WHAT_IF = 0.05


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    return predictions.compared(predictions.STORED)


def test_every_case_was_measured(compared: dict[str, Any]) -> None:
    wanted = [([c.m, c.n, c.k], str(tile), text) for c, tile in predictions.cases() for text in predictions.SCHEDULES]
    assert [(row["problem"], row["tile"], row["schedule"]) for row in compared["shapes"]] == wanted
    assert {row["sms"] for row in compared["fewer_sms"]} == set(predictions.FEWER)
    assert all(row["used_sms"] == row["sms"] for row in compared["fewer_sms"])


def test_random_shapes_are_predicted(compared: dict[str, Any]) -> None:
    off = np.abs(predictions.errors(compared["shapes"]))
    assert np.median(off) <= MEDIAN
    assert np.quantile(off, 0.9) <= NINE_TENTHS


def test_fewer_sms_are_predicted(compared: dict[str, Any]) -> None:
    assert np.abs(predictions.errors(compared["fewer_sms"])).max() <= WHAT_IF


def test_the_readme_shows_these_errors(compared: dict[str, Any]) -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    assert readme_tables.predictions(compared) in text
