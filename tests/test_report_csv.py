"""CSV: one row a span, one row an SM, nulls empty."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_fixture as fixture

from wavescope.analyze import analyze
from wavescope.report import csv
from wavescope.trace import NULL, Kind, Spans
from wavescope.trace_file import load


def spans() -> Spans:
    """Two spans: a CTA without a unit, and its mac span."""
    same = {"launch_id": [0, 0], "cta": [5, 5], "cluster_id": [NULL, NULL], "lane": [0, 0], "sm": [131, 131]}
    unit = {"unit": [NULL, 7], "tile_m": [NULL, 1], "tile_n": [NULL, 2], "k_begin": [NULL, 0], "k_end": [NULL, 64]}
    time = {"kind": [Kind.CTA, Kind.MAC], "begin_ns": [0, 32], "end_ns": [4096, 4000]}
    clock = {"begin_clock": [10, 60], "end_clock": [7000, 6900], "stall_clock": [NULL, 12]}
    return Spans(**{name: np.array(values, np.int64) for name, values in (same | unit | time | clock).items()})


def test_spans_become_rows_with_kinds_by_name_and_nulls_empty() -> None:
    assert csv.encode(csv.spans_table(spans())).decode() == (
        "launch_id,cta,cluster_id,lane,sm,unit,tile_m,tile_n,k_begin,k_end,kind,"
        "begin_ns,end_ns,begin_clock,end_clock,stall_clock\n"
        "0,5,,0,131,,,,,,cta,0,4096,10,7000,\n"
        "0,5,,0,131,7,1,2,0,64,mac,32,4000,60,6900,12\n"
    )


def test_sm_rows_name_the_states_and_sum_to_the_duration() -> None:
    lines = csv.encode(csv.sms_table([fixture.report()])).decode().splitlines()
    assert lines[0] == (
        "launch_id,sm,mac_ns,fixup_ns,epilogue_ns,wait_ns,resident_ns,turnaround_ns,ramp_ns,tail_ns,unfilled_ns,duration_ns,"
        "active_cycles,pipe_cycles,operand_wait_cycles,fill_cycles,mac_rest_cycles,epilogue_cycles,drain_cycles,copier_wait_cycles"
    )
    assert len(lines) == 1 + 132
    for sm, line in enumerate(lines[1:]):
        cells = line.split(",")
        assert cells[12:] == [""] * 8  # no clocks here, and this launch did not measure how long its units waited
        launch_id, row_sm, *states, duration = (int(cell) for cell in cells[:12])
        assert (launch_id, row_sm, sum(states), duration) == (0, sm, 85_728, 85_728)


def test_sm_rows_have_the_cycles_of_units_where_waits_were_measured() -> None:
    report = fixture.inside_report()
    ids = report.budget.sm_ids.copy()
    ids[-1] = NULL
    assert report.inside is not None
    used = replace(report.inside, per_sm=np.arange(131 * 7).reshape(131, 7) + 0.4)
    parts = replace(report, budget=replace(report.budget, sm_ids=ids), inside=used)
    rows = [line.split(",")[13:] for line in csv.encode(csv.sms_table([parts, fixture.report()])).decode().splitlines()]
    assert rows[1] == ["0", "1", "2", "3", "4", "5", "6"]
    assert rows[131] == [str(cycles) for cycles in range(130 * 7, 131 * 7)]
    assert rows[132] == ["0"] * 7  # of the SM that ran nothing
    assert rows[133] == [""] * 7


def test_an_sm_that_ran_nothing_has_no_id_and_launches_follow_each_other() -> None:
    first = fixture.report()
    ids = first.budget.sm_ids.copy()
    ids[-1] = NULL
    second = replace(first, launch=replace(first.launch, launch_id=1), budget=replace(first.budget, sm_ids=ids))
    lines = csv.encode(csv.sms_table([first, second])).decode().splitlines()
    assert len(lines) == 1 + 2 * 132
    assert lines[132].startswith("0,131,")
    assert lines[133].startswith("1,0,")
    assert lines[-1].startswith("1,,")


def test_active_cycles_of_sms_give_the_ratio_of_the_report() -> None:
    trace = load(Path(__file__).parent / "data/h200/gemm_mma-128x128x64-schedules.parquet")
    report = analyze(trace, 1)
    lines = [line.split(",") for line in csv.encode(csv.sms_table([report])).decode().splitlines()]
    active = [int(line[lines[0].index("active_cycles")]) for line in lines[1:]]
    assert len(active) == 132
    assert max(active) == report.longest_sm_cycles
    assert sum(active) / len(active) / max(active) == pytest.approx(report.active_cycles_ratio)
