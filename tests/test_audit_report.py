"""What the audit says: text that fits, documented JSON, CSV and frames with the same numbers, comparisons."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audit_fixture import GEMM, H200, NCCL, PLAIN, launches

from wavescope.audit import frames
from wavescope.audit.advice import advice
from wavescope.audit.counters import with_counters
from wavescope.audit.difference import difference
from wavescope.audit.examine import Audit, examine, on_device
from wavescope.audit.launches import NULL, Launches
from wavescope.errors import NoKernels
from wavescope.report import audit_csv, audit_json, audit_text
from wavescope.report.glyphs import ASCII, UNICODE, Glyphs
from wavescope.report.layout import Page, page_width

LONG = "void at::native::" + "vectorized_elementwise_kernel<4, std::array<char*, 3> >" * 4
ROWS: tuple[dict[str, Any], ...] = (
    {"name": NCCL, "stream": 20, "start_ns": 0, "grid": (24, 1, 1), "block": (640, 1, 1), "shapes": None},
    {"sm_active_avg_over_max": 0.948},
    {"start_ns": 100_000, "sm_active_avg_over_max": 0.946},
    {"name": PLAIN, "start_ns": 200_000, "grid": (133, 1, 1), "duration_ns": 10_000, "operator": None, "shapes": None},
    {"name": PLAIN, "start_ns": 300_000, "grid": (132, 1, 1), "duration_ns": 10_000, "operator": None, "shapes": None},
    {"name": LONG, "start_ns": 400_000, "grid": (2, 1, 1), "duration_ns": 5000, "operator": "aten::add"},
    {"name": "no_time", "start_ns": 500_000, "grid": (2, 1, 1), "duration_ns": NULL, "shapes": None},
)


@pytest.fixture
def audit() -> Audit:
    return examine([launches(*ROWS, notes=["1 kernel has no believable time; not in any sum of time"])])


def rendered(audit: Audit, width: int = 80, chars: Glyphs = UNICODE, top: int = 10) -> list[str]:
    page = Page(page_width(width), chars)
    return [line.plain for line in audit_text.lines(page, audit, advice(audit), top)]


def words(audit: Audit, width: int = 140) -> str:
    return " ".join(" ".join(rendered(audit, width)).split())


# --- groups and totals ---------------------------------------------------------------------------


def test_groups_are_ranked_by_time_lost(audit: Audit) -> None:
    # 133 blocks: 131 of 264 places idle of 10 us = 4.96 us; the matmuls: 12 / 264 of 120 us = 5.45 us
    names = [(group.name, group.grid[0], round(group.lost_low_ns)) for group in audit.groups]
    assert names[:3] == [(GEMM, 2, 5455), (PLAIN, 133, 4962), (LONG, 2, 4924)]
    first = audit.groups[0]
    assert (first.count, first.total_ns, first.median_ns, first.kernels) == (2, 120_000, 60_000, 1)
    assert first.measured == pytest.approx(0.947)
    assert first.quantization_ns == pytest.approx(first.lost_low_ns)
    assert (first.few_blocks_ns, first.clusters_ns) == (0, 0)
    assert first.lost_high_ns > first.lost_low_ns


def test_totals_add_up(audit: Audit) -> None:
    total = audit.totals
    assert total.launches == 7
    assert total.total_ns == 60_000 + 120_000 + 10_000 + 10_000 + 5000
    assert total.assessed_ns == 120_000 + 10_000 + 5000
    parts = total.quantization_ns + total.few_blocks_ns + total.clusters_ns
    assert total.lost_low_ns == pytest.approx(parts) == pytest.approx(sum(g.lost_low_ns for g in audit.groups))
    assert total.verdicts == {
        "tail-bound": (1, 10_000),
        "too few blocks": (2, 5000),
        "persistent, hidden tiles": (2, 120_000),
        "persistent, tiles unknown": (1, 10_000),
        "not assessable": (1, 60_000),
    }


def test_kernels_of_one_operator_are_added_up() -> None:
    table = launches({}, {"name": PLAIN, "grid": (133, 1, 1), "duration_ns": 1000}, {"operator": None, "shapes": None})
    by_operator = examine([table], by="operator")
    first = next(group for group in by_operator.groups if group.operator == "aten::mm")
    assert (first.count, first.kernels, first.name, first.total_ns) == (2, 2, GEMM, 61_000)
    assert "aten::mm: 2 kernels, most time in nvjet" in words(by_operator)
    assert [group.operator for group in by_operator.groups] == ["aten::mm", None]


def test_an_unknown_fill_with_counters_ranks_by_what_was_measured() -> None:
    table = launches(
        {"name": PLAIN, "grid": (132, 1, 1), "sm_active_avg_over_max": 0.5},
        {"duration_ns": 600_000},
    )
    first, second = examine([table]).groups
    assert (first.name, first.ranked_ns, first.lost_low_ns) == (PLAIN, 30_000, 0)
    assert second.name == GEMM


# --- text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chars", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_page(audit: Audit, width: int, chars: Glyphs) -> None:
    lines = rendered(audit, width, chars)
    versus = difference(audit, examine([launches({"duration_ns": 70_000}, {"name": LONG})]))
    lines += [line.plain for line in audit_text.difference_lines(Page(page_width(width), chars), versus)]
    assert max(len(line) for line in lines) == width
    assert all(line == line.rstrip() for line in lines)
    if chars is ASCII:
        assert "\n".join(lines).isascii()


def test_the_text_says_what_is_known(audit: Audit) -> None:
    text = words(audit)
    for said in (
        "made.json: kineto, 7 kernels, 205.0 us",
        "device NVIDIA H200, 132 SMs",
        "kernel time 205.0 us in all, 146.0 us with at least one running",
        "65.9% of it; tail-bound 1; too few blocks 2; persistent, hidden tiles 2; persistent, tiles unknown 1;",
        "2304x2304x4096 persistent, hidden tiles; 252 tiles of 168x128 on 132 blocks in clusters of 2",
        "1 beside ncclDevKernel_AllReduce_Sum_bf16_RING_LL, held 24 SMs",
        "persistent, tiles unknown (one block on each of 132 SMs; the name carries no tile)",
        "not assessable (a communication kernel: its blocks wait for other GPUs)",
        "- 1 kernel has no believable time; not in any sum of time",
        "1 launch, 0.060 ms, shared the GPU with a kernel of another stream",
    ):
        assert said in text
    row = next(line.split() for line in rendered(audit, 140) if line.split()[:1] == ["1"])
    assert row[:4] == ["1", "120.00", "58.5%", "2"]
    assert row[5:] == ["1.00", "1.91", "95.5%", "94.1%", "94.7%"]


def test_top_limits_the_kernels_shown(audit: Audit) -> None:
    assert f"{len(audit.groups) - 2} more; --top N shows them" in " ".join(rendered(audit, top=2))
    assert "more; --top" not in " ".join(rendered(audit, top=50))


def test_a_name_that_would_move_the_cursor_is_shown_plain() -> None:
    lines = rendered(examine([launches({"name": "evil\x1b[2J\nkernel\x07", "grid": (7, 1, 1)})]))
    assert not re.search(r"[\x00-\x1f\x7f]", "".join(lines))
    assert any("evil [2J kernel" in line for line in lines), lines


def test_nothing_assessed_is_said() -> None:
    text = words(examine([launches({}, device=replace(H200, sms=None))]))
    assert "lost not known: no kernel could be assessed" in text
    assert "Where SM time is lost" not in text
    assert "name it with --gpu" in text


# --- advice --------------------------------------------------------------------------------------


def test_advice_is_a_bound_and_names_what_can_be_changed(audit: Audit) -> None:
    tiles, tail, few, beside = advice(audit)
    assert tiles == (
        f"{GEMM} 2304x2304x4096: the last of 2 rounds occupies 120 of 132 blocks, 12 more tiles of this size would "
        "cost no time; try a shape or a tile that fills it; filling the rounds could save at most 4.5% of its time, "
        "2.7% of all kernel time, at unchanged cost of a unit and unchanged clock."
    )
    assert "133 blocks on 132 SMs leave 131 of them without one in the last of 2 rounds" in tail
    assert "too few blocks, 2 for 132 SMs; there is no tail to remove" in few
    assert "at most 98.5% of its time" in few
    assert "1 of 2 launches run beside" in beside
    assert all("at most" in sentence or "up to" in sentence for sentence in (tiles, tail, few, beside))


@pytest.mark.parametrize(
    ("shapes", "grid", "said"),
    [
        # n: 120 / 40 = 3, m: ceil(392 / 256) = 2: 24 blocks, and 11 times as many are two rounds of 132
        (((392, 8192), (8192, 120)), (4, 6, 1), "for smaller tiles or k in 11 parts (264 blocks)"),
        # k of 4096 has 64 steps, enough for 8 parts of 8: 5 of them are 120 blocks, 90.9 %
        (((392, 4096), (4096, 120)), (4, 6, 1), "for smaller tiles or k in 5 parts (120 blocks)"),
        # k of 256 has only 4 steps of 64: too short to be shared
        (((392, 256), (256, 120)), (4, 6, 1), "only room for smaller tiles;"),
    ],
)
def test_a_split_is_proposed_that_fills_the_rounds(shapes: object, grid: tuple[int, int, int], said: str) -> None:
    row = {"name": "nvjet_sm90_tst_40x64_64x16_1x4_h_bz_TNT", "grid": grid, "shapes": shapes}
    (sentence,) = advice(examine([launches(row)]))
    assert said in sentence
    assert "where it waits for memory, filling SMs brings nothing" in sentence


def test_much_time_in_kernels_without_shapes_is_spoken_of() -> None:
    (sentence,) = advice(examine([launches({"shapes": None}, {"name": PLAIN, "grid": (264, 1, 1), "operator": None})]))
    assert sentence.startswith("50% of all kernel time is in 1 launch of persistent kernels whose tiles cannot")
    assert "record_shapes=True" in sentence


def test_nothing_is_advised_where_nothing_is_lost() -> None:
    full = {"name": PLAIN, "grid": (264, 1, 1), "shared_dynamic": 200_000, "operator": None}
    assert advice(examine([launches(full)])) == ()
    assert advice(examine([launches({"duration_ns": NULL})])) == ()
    assert advice(examine([launches({"duration_ns": 0, "shapes": None})])) == ()


# --- JSON ----------------------------------------------------------------------------------------


def _paths(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict) and path.endswith("verdicts"):
        return {sub for entry in value.values() for sub in _paths(entry, f"{path}.*")} or {path}
    if isinstance(value, dict):
        return {sub for key, entry in value.items() for sub in _paths(entry, f"{path}.{key}" if path else key)}
    if isinstance(value, list):
        return {sub for entry in value for sub in _paths(entry, f"{path}[]")}
    return {path}


def test_every_key_is_documented_and_every_documented_key_is_there(audit: Audit) -> None:
    versus = difference(audit, examine([launches({})]))
    sampled = {"activity": (1500 * np.arange(40), np.full(40, 1.0)), "start_ns": 900_000}
    whole = examine([launches(*ROWS, sampled, notes=["a note"])])
    parsed = json.loads(audit_json.render(whole, advice(whole), versus))
    # a list of several depths: shapes are as the framework has them
    paths = {re.sub(r"shapes(\[\])+", "shapes", path) for path in _paths(parsed)}
    documented = set(audit_json.KEYS)
    assert paths - documented == set()
    parents = {"against"} | {path for path in documented if path.endswith("verdicts")}
    assert documented - paths - parents == set()


def test_json_has_no_nan_and_agrees_with_the_text(audit: Audit) -> None:
    text = audit_json.render(audit, advice(audit))
    assert "NaN" not in text
    assert "Infinity" not in text
    document = json.loads(text)
    first = document["groups"][0]
    assert (first["tiles"], round(first["sm_rounds"], 2), round(first["fill"], 4)) == (252, 1.91, 0.9545)
    assert first["problem"] == "2304x2304x4096"
    assert document["totals"]["lost_share"] == pytest.approx(audit.totals.lost_low_ns / audit.totals.total_ns)
    unknown = next(group for group in document["groups"] if group["verdict"] == "not assessable")
    assert unknown["fill"] is None
    assert unknown["lost_low_ns"] is None
    assert document["against"] is None


# --- CSV and frames ------------------------------------------------------------------------------


def test_csv_has_a_row_a_group_and_a_row_a_launch(audit: Audit) -> None:
    grouped = list(csv.DictReader(io.StringIO(audit_csv.encode(audit_csv.groups_table(audit)).decode())))
    assert [row["name"] for row in grouped] == [group.name for group in audit.groups]
    assert grouped[0]["grid"] == "[2, 66, 1]"
    single = list(csv.DictReader(io.StringIO(audit_csv.encode(audit_csv.launches_table(audit)).decode())))
    assert [row["name"] for row in single] == [row.get("name", GEMM) for row in ROWS]
    assert (single[1]["tiles"], single[1]["grid"], single[1]["neighbour"]) == ("252", "2,66,1", NCCL)
    assert single[6]["duration_ns"] == ""
    assert single[0]["fill"] == ""


def test_frames_have_the_same_rows_as_the_csv(audit: Audit) -> None:
    table = frames.launches(audit)
    assert list(table.columns) == list(frames.launch_columns(audit.profiles[0]))
    assert len(table) == len(ROWS)
    assert table["tiles"].isna().tolist() == [True, False, False, True, True, True, True]
    assert table.loc[1, "fill"] == pytest.approx(252 / 264)
    assert table.loc[1, "neighbour"] == NCCL
    assert table["duration_ns"].isna().sum() == 1
    by_group = frames.groups(audit)
    assert by_group["lost_low_ns"].sum() == pytest.approx(audit.totals.lost_low_ns)
    two = frames.launches(examine([launches({}), launches({}, path="other.json")]))
    assert two["file"].tolist() == ["made.json", "other.json"]


# --- several files, devices, counters ------------------------------------------------------------


def test_several_profiles_are_added_up_and_notes_say_whose_they_are() -> None:
    ranks = [launches({}, path="rank0.json", notes=["odd"]), launches({}, {"start_ns": 10**6}, path="rank1.json")]
    both = examine(ranks)
    assert both.totals.launches == 3
    assert [sums.launches for sums in both.per_profile] == [1, 2]
    assert both.groups[0].count == 3
    assert both.notes == ("rank0.json: odd",)
    assert "rank1.json: kineto, 2 kernels, 120.0 us, 4.5% to" in words(both)


def test_where_the_gpu_is_not_named_one_block_per_sm_is_taken_and_said() -> None:
    plain = {"name": PLAIN, "grid": (133, 1, 1), "operator": None, "shapes": None}
    table = launches(
        plain, device=replace(H200, name=None, compute_capability=None, sms=100, sms_source="blocks per SM")
    )
    found = examine([table])
    assert found.notes[0] == "device 0: 100 SMs (from: blocks per SM)"
    assert "how many blocks of 1 launch fit on an SM cannot be computed from the profile; taken: one" in found.notes[1]


def test_one_device_of_several() -> None:
    table = launches({}, {"device": 1, "start_ns": 9000})
    assert on_device(table, 0).device.tolist() == [0]
    with pytest.raises(NoKernels, match="no kernels on device 7; there are some on 0, 1"):
        on_device(table, 7)


def _measured(*rows: dict[str, Any]) -> Launches:
    return launches(*({**row, "operator": None, "shapes": None} for row in rows), path="ncu.csv")


def test_counters_are_matched_by_name_and_grid_in_order() -> None:
    trace = launches(
        {},
        {"name": "void ns::f<int, 3>(int*)", "grid": (5, 1, 1), "start_ns": 2000},
        {"start_ns": 3000},
        {"grid": (1, 2, 1)},
    )
    counted = _measured(
        {"sm_active_avg_over_max": 0.9, "max_active_clusters": 66, "cluster": (2, 1, 1)},
        {"name": "f", "grid": (5, 1, 1), "sm_active_avg_over_max": 0.5, "start_ns": 2000},
        {"sm_active_avg_over_max": 0.8, "start_ns": 3000},
    )
    joined = with_counters(trace, counted)
    assert joined.name.tolist() == trace.name.tolist()
    by_start = dict(zip(joined.start_ns.tolist(), joined.sm_active_avg_over_max.tolist(), strict=True))
    assert (by_start[2000], by_start[3000]) == (0.5, 0.8)
    assert sorted(value for value in joined.sm_active_avg_over_max.tolist() if not math.isnan(value)) == [0.5, 0.8, 0.9]
    assert joined.notes == ("counters of ncu.csv for 3 of 4 launches, matched by name and grid",)
    first = int(np.flatnonzero(joined.sm_active_avg_over_max == 0.9)[0])
    assert joined.max_active_clusters[first] == 66
    assert joined.cluster[first].tolist() == [2, 1, 1]


def test_counters_of_other_kernels_change_nothing() -> None:
    joined = with_counters(launches({}), _measured({"name": "other"}))
    assert np.isnan(joined.sm_active_avg_over_max).all()
    assert joined.notes == ("counters of ncu.csv for 0 of 1 launches, matched by name and grid",)


# --- comparison ----------------------------------------------------------------------------------


def test_a_difference_tells_another_kernel_from_another_fill() -> None:
    slower = "nvjet_sm90_hsh_128x256_64x4_2x1_v_bz_coopA_TNN"
    now = examine(
        [launches({"name": slower, "duration_ns": 70_000}, {"name": PLAIN, "grid": (4, 1, 1), "operator": None})]
    )
    before = examine([launches({}, {"name": "gone", "grid": (4, 1, 1), "operator": None, "duration_ns": 1000})])
    found = difference(now, before)
    by_kernel = {change.kernel or change.before_kernel: change for change in found.changes}
    product = by_kernel[slower]
    assert (product.operator, product.problem) == ("aten::mm", "2304x2304x4096")
    assert (product.before_kernel, product.same_kernel, product.change_ns) == (GEMM, False, 10_000)
    assert by_kernel["gone"].total_ns == 0
    assert by_kernel[PLAIN].before_total_ns == 0
    assert [abs(change.change_ns) for change in found.changes] == [60_000, 10_000, 1000]
    text = " ".join(line.plain for line in audit_text.difference_lines(Page(100, ASCII), found))
    assert f"before: {GEMM}" in text
    assert "not there now" in text
