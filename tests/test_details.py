"""Clocks, dispatch, co-residency and spread in a report: only where asked, in any width, documented in JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_report_json import paths

from tests.recorded import DATA, spin, triton_matmul
from tests.synthetic import Span, trace_from
from tests.test_co_residency import ROWS, forced
from wavescope.cli.main import main
from wavescope.co_residency import compare
from wavescope.details import DETAILS, SIMULATED, Details, details
from wavescope.device import virtual_device
from wavescope.observations import of_clocks
from wavescope.problem import Problem, Tile
from wavescope.report import detail_json, detail_text
from wavescope.report.dispatch_text import comparison
from wavescope.report.glyphs import ASCII, UNICODE
from wavescope.report.json import DETAIL_KEYS, KEYS, finite
from wavescope.report.layout import Page
from wavescope.trace import Kind, Trace
from wavescope.trace_file import load, save
from wavescope.variant import Variant
from wavescope.virtual import run
from wavescope.what_if import Change

FOUR_AN_SM = DATA / "gemm_mma-64x64x64-fixed-2304x2304x4096.parquet"
FREE_FORM = "clocks.by_kind"  # named by kind of span


def shown(found: Details, width: int = 80) -> str:
    return "\n".join(line.plain for line in detail_text.lines(Page(width, UNICODE), found, "measured"))


def test_a_report_has_no_details_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(FOUR_AN_SM), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) & {"clocks", "dispatch", "co_residency", "spread"} == set()
    assert main(["report", str(FOUR_AN_SM)]) == 0
    plain = capsys.readouterr().out
    assert main(["report", str(FOUR_AN_SM), "--dispatch"]) == 0
    longer = capsys.readouterr().out
    assert longer.startswith(plain)
    added = longer.removeprefix(plain)
    assert "Dispatch: what the block scheduler did" in added
    assert "Co-residency: CTAs side by side on an SM" in added
    assert "Clocks:" not in added
    assert "Spread:" not in added


def test_every_detail_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "triton.parquet"
    save(replace(triton_matmul("triton_matmul_2304", Problem(2304, 2304, 4096)), tool_version="0"), path)
    assert main(["report", str(path), *(f"--{name}" for name in DETAILS)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for said in (
        "mean 1723.1 ±0.1 of 1980; by SM",
        "8 clock domains of 16, 16, 16, 16, 16, 16, 18, 18 SMs",
        "They are clock domains, not GPCs: what a cluster may use, only the driver knows.",
        "CTAs 0, 1, 2, ... went to SMs 124, 125, 126, 127, 128, 129, 130, 131, 14, 15, 30, 31, 46, 47, 62, 63 and 116 more.",
        "A place is taken again 192 ns after it was left (median of 30; 160 to 256) = 360 cycles (332 to 495).",
        "Observed in this launch; CUDA guarantees none of it.",
        "By wave: 60% of the variance of the units' cycles (1% by chance, p 0.004); wave 1 takes 1.9% more than wave 2.",
        "Domains differ in time and not in cycles (p 0.57): that is their clock, not the work.",
    ):
        assert said in out
    assert "Co-residency" not in out  # one CTA an SM


def keys(value: Any, at: str = "") -> set[str]:
    """Paths of all leaves, with what is named by kind of span cut off."""
    return {FREE_FORM if path.startswith(FREE_FORM) else path.replace("[][]", "[][]") for path in paths(value, at)}


def test_every_key_is_documented_and_every_documented_key_is_there() -> None:
    both = [details(trace, None, DETAILS) for trace in (load(FOUR_AN_SM), odd_traces()["sixteen waves"])]
    both.append(details(load(FOUR_AN_SM), None, (), [Change.parse("sms=108")]))
    found = set().union(*(keys(finite(detail_json.document(one))) for one in both))
    nullable = {
        "clocks",
        "dispatch",
        "co_residency",
        "spread",
        "dispatch.all_turnarounds",
        "dispatch.turnarounds[]",
        "what_if",
    }
    nullable |= {"dispatch.turnarounds[].cycles", "dispatch.all_turnarounds.cycles", "clocks.domain_difference"}
    nullable |= {"clocks.domains[]", "spread.measured[]", "spread.left_out[]"}
    assert found - nullable == set(DETAIL_KEYS) - nullable
    assert not set(DETAIL_KEYS) & set(KEYS)


def test_details_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(FOUR_AN_SM), "--json", "--clocks", "--dispatch", "--spread"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert sum(len(domain["sms"]) for domain in found["clocks"]["domains"]) == 132
    assert len(found["dispatch"]["order"]) == 132
    assert found["dispatch"]["peak_ctas"] == [{"ctas": 4, "sms": 132}]
    assert sum(crowd["sm_share"] for crowd in found["co_residency"]["crowds"]) == pytest.approx(1)
    assert [one["measure"] for one in found["spread"]["measured"]] == ["cycles", "ns"]
    assert all(found[name]["sentences"] for name in ("clocks", "dispatch", "co_residency", "spread"))


def test_what_was_not_asked_for_is_not_computed() -> None:
    assert details(spin(), None, ()) == Details()
    found = details(spin(), None, ("spread",))
    assert (found.asked, found.clocks, found.dispatch) == (("spread",), None, None)
    assert set(detail_json.document(found)) == {"spread"}


def test_a_simulated_launch_says_so() -> None:
    trace = run(Problem(512, 512, 512), Tile(64, 64, 64), Variant("fixed"), virtual_device("h200"), reason="a test")
    found = details(trace, None, DETAILS)
    assert set(found.sentences) >= {"clocks", "dispatch", "spread"}
    assert all(said[0] == SIMULATED for said in found.sentences.values())


def odd_traces() -> dict[str, Trace]:
    bare = trace_from(ROWS, sms=2, ctas_per_sm=2)
    nothing = np.full(len(bare.spans), -1)
    return {
        "without clocks": replace(bare, spans=replace(bare.spans, begin_clock=nothing, end_clock=nothing)),
        "one CTA": trace_from([Span(Kind.CTA, 0, 0, 0, 7)]),
        "three an SM": load(FOUR_AN_SM),
        "sixteen waves": triton_matmul("triton_matmul_8192", Problem(8192, 8192, 8192)),
    }


@pytest.mark.parametrize("name", list(odd_traces()))
def test_no_line_is_wider_than_the_page(name: str) -> None:
    found = details(odd_traces()[name], None, DETAILS)
    for width in (60, 80, 140):
        for glyphs in (UNICODE, ASCII):
            lines = [line.plain for line in detail_text.lines(Page(width, glyphs), found, "measured")]
            assert max(len(line) for line in lines) <= width
            assert lines[0] == ""
            assert glyphs is UNICODE or all(line.isascii() for line in lines)


def test_without_clocks_the_clocks_say_so() -> None:
    found = details(odd_traces()["without clocks"], None, ("clocks",))
    assert "The spans carry no clock readings." in shown(found)
    assert detail_json.document(found) == {"clocks": None}


def test_many_waves_of_turnaround_are_cut() -> None:
    text = shown(details(odd_traces()["sixteen waves"], None, ("dispatch",)))
    assert "… 3 waves left out" in text


def test_domains_are_claimed_to_differ_only_beyond_the_error() -> None:
    found = details(spin(), None, ("clocks",))
    assert found.clocks is not None
    assert of_clocks(found.clocks)[-1] == "No difference between the domains' clocks that the timer could show."


def test_a_comparison_of_forced_launches() -> None:
    rows = compare([forced(1, 1000), forced(2, 1600)])
    lines = [line.plain.rstrip() for line in comparison(Page(80, ASCII), rows, "measured")]
    assert [line.split() for line in lines[1:]] == [
        ["CTAs", "per", "SM", "units", "unit", "kcycles", "unit", "MHz", "SM", "does,", "by", "cycle", "by", "time"],
        ["1", "4", "1.00", "1.000", "us", "1000", "1.000", "1.000"],
        ["2", "8", "1.60", "1.600", "us", "1000", "1.250", "1.250"],
    ]
