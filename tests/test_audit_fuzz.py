"""A short run of what tests/benchmarks/audit_fuzz.py does at length."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from audit_mutations import SEEDS, fuzz
from test_audit_public_files import PROFILES

# The share accepted of the long run is a quarter or more; of few it may be a little less than a tenth by chance.
RUNS = {"kineto": 120, "csv": 100, "sqlite": 60, "ncu-rep": 3}


@pytest.mark.parametrize("kind", RUNS)
def test_damaged_profiles_are_reported_or_refused(kind: str, tmp_path: Path) -> None:
    if kind == "ncu-rep" and (importlib.util.find_spec("ncu_report") is None or not SEEDS[kind](tmp_path, PROFILES)):
        pytest.skip("no ncu-report, or no report to damage")
    outcome = fuzz(kind, range(RUNS[kind]), seed=2, folder=tmp_path, profiles=PROFILES)
    assert outcome.failures == []
    assert outcome.runs == RUNS[kind]
    if kind != "ncu-rep":
        assert 0.1 <= outcome.share_accepted < 1
