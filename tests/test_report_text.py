"""The terminal report: widths, characters, and what it must say."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import report_fixture as fixture
from rich.console import Console

from wavescope.report import charts, figures, glyphs, text
from wavescope.report.glyphs import ASCII, UNICODE, Glyphs
from wavescope.report.layout import Column, Page, page_width, table
from wavescope.trace import NULL
from wavescope.wave_report import STATES, WaveReport

REPORTS = (
    fixture.report,
    fixture.inside_report,
    fixture.simulated_report,
    fixture.many_waves_report,
    fixture.no_waves_report,
)


def rendered(report: WaveReport, width: int, chars: Glyphs = UNICODE) -> list[str]:
    page = Page(page_width(width), chars)
    rows, columns = charts.picture_size(page.width, 30, report.budget.sms)
    picture = fixture.picture(rows, columns)
    return [line.plain for line in text.lines(page, report, picture, fixture.SENTENCES)]


def section(lines: list[str], title: str) -> list[str]:
    """The lines under the heading that contains `title`, up to the next empty line."""
    first = next(i for i, line in enumerate(lines) if title in line and line[:2] in ("──", "--"))
    end = next((i for i in range(first, len(lines)) if not lines[i]), len(lines))
    return lines[first + 1 : end]


@pytest.mark.parametrize("make", REPORTS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("chars", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_page(make: Callable[[], WaveReport], chars: Glyphs, width: int) -> None:
    lines = rendered(make(), width, chars)
    assert max(len(line) for line in lines) == width  # headings reach the edge, nothing goes over it
    assert all(line == line.rstrip() for line in lines)


def test_narrow_terminals_get_the_smallest_page_and_wide_ones_the_largest() -> None:
    assert [page_width(width) for width in (0, 59, 80, 139, 500)] == [60, 60, 80, 139, 140]


@pytest.mark.parametrize("make", REPORTS, ids=lambda make: make.__name__)
def test_ascii_report_is_ascii(make: Callable[[], WaveReport]) -> None:
    assert "\n".join(rendered(make(), 80, ASCII)).isascii()


@pytest.mark.parametrize(
    ("encoding", "chars"),
    [("utf-8", UNICODE), ("utf-16", UNICODE), ("ascii", ASCII), ("cp1252", ASCII), ("cp437", ASCII), (None, ASCII)],
)
def test_characters_follow_the_console_encoding(encoding: str | None, chars: Glyphs) -> None:
    assert glyphs.for_encoding(encoding) is chars


@pytest.mark.parametrize("chars", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_every_state_has_a_character_and_a_style_of_its_own(chars: Glyphs) -> None:
    assert tuple(chars.states) == STATES
    assert len(set(chars.states.values())) == len(STATES)
    assert tuple(glyphs.STATE_STYLES) == STATES
    assert len(set(glyphs.STATE_STYLES.values())) == len(STATES)


def test_bars_grow_by_eighths_and_leave_a_mark_for_little() -> None:
    assert [UNICODE.bar(x) for x in (0, 0.01, 0.5, 1, 1.95, 2.125)] == ["", "▏", "▌", "█", "██", "██▏"]
    assert [ASCII.bar(x) for x in (0, 0.01, 1.4, 1.6)] == ["", "#", "#", "##"]


def test_header_names_device_kernel_schedule_and_clock() -> None:
    header = " ".join(" ".join(section(rendered(fixture.report(), 80), "wavescope: ")).split())
    for words in (
        "device NVIDIA H200, 132 SMs, sm_90, up to 1980 MHz",
        "kernel gemm_mma, tile 128x256x64, 256 threads, 234 registers, 144 KiB shared memory: 1 CTA per SM",
        "schedule fixed, raster grouped8: 162 units, grid 162, 132 places",
        "clock 1712 MHz mean, 1690 to 1733 by SM; 1725 in the first tenth of the time, 1702 in the last",
        "timer steps of 32 ns",
        "verified exact on small integers (plain); all within 0.00394 x value (largest difference 0.5) on random operands (plain)",
    ):
        assert words in header
    assert "SIMULATED" not in header


def test_the_header_says_what_a_split_schedule_cut() -> None:
    real = fixture.report()
    cut = replace(real, launch=replace(real.launch, schedule="tailsplit", parts=4))
    header = " ".join(" ".join(section(rendered(cut, 80), "wavescope: ")).split())
    assert "schedule tailsplit (30 tiles cut into 4, then 132 whole tiles), raster grouped8: " in header
    unknown = replace(real, launch=replace(real.launch, schedule="tailsplit", parts=None))
    header = " ".join(" ".join(section(rendered(unknown, 80), "wavescope: ")).split())
    assert "schedule tailsplit, raster grouped8: " in header


def test_counts_of_one_are_singular() -> None:
    real = fixture.report()
    one = replace(real, waves=replace(real.waves, num_units=1), launch=replace(real.launch, grid=1, places=1))
    header = " ".join(" ".join(section(rendered(one, 80), "wavescope: ")).split())
    assert "raster grouped8: 1 unit, grid 1, 1 place clock" in header


@pytest.mark.parametrize(
    ("store_ns", "partial_ns", "words"),
    [
        (8774.0, 8720.0, "661.7 ns a k_iter + 8.774 us to store a tile + 8.720 us to write a partial"),
        (-218.2, -197.3, "661.7 ns a k_iter - 218.2 ns to store a tile - 197.3 ns to write a partial"),
        (0.0, 0.0, "661.7 ns a k_iter (units of equal cost"),
    ],
)
def test_fitted_costs_carry_their_sign(store_ns: float, partial_ns: float, words: str) -> None:
    real = fixture.report()
    cost = replace(real.tail.cost, store_ns=store_ns, partial_ns=partial_ns)
    shown = rendered(replace(real, tail=replace(real.tail, cost=cost)), 80)
    assert words in " ".join(" ".join(section(shown, "Budget")).split())


def test_a_part_of_a_device_is_said_to_be_one() -> None:
    report = fixture.report()
    part = replace(report, device=replace(report.device, name="NVIDIA H200 MIG 3g.71gb", sms=60))
    header = " ".join(" ".join(section(rendered(part, 80), "wavescope: ")).split())
    assert "NVIDIA H200 shows 60 of its 132 SMs (a MIG instance)" in header


def test_simulated_report_says_so_first_and_in_every_heading() -> None:
    lines = rendered(fixture.simulated_report(), 80)
    assert "SIMULATED because no CUDA device was found" in lines[1]
    headings = [line for line in lines if line.startswith("── ")]
    assert [line.split()[-2] for line in headings[:-1]] == ["simulated"] * (len(headings) - 1)
    assert "measured" not in "\n".join(line for line in lines if "nothing was measured" not in line)


def test_result_states_time_rate_share_bound_and_perturbation() -> None:
    result = " ".join(" ".join(section(rendered(fixture.report(), 80), "Result")).split())
    for words in (
        "87.01 us a launch (95%: 86.88 us to 87.23 us, 41 samples, regime cool)",
        "501.4 TFLOP/s, 46.8% of peak, 50.7% of the datasheet's",
        "61.3% of SM time not idle (±0.009 points)",
        "at most 1.631 times faster with perfect balance, at unchanged unit cost and clock (estimated;",
        "+0.12% (95%: +0.03% to +0.21%), 41 pairs: costs at most +0.21% of the time",
    ):
        assert words in result


def test_what_was_not_recorded_of_a_kernel_is_unknown() -> None:
    real = fixture.report()
    unknown = replace(real, launch=replace(real.launch, block=NULL, registers=NULL, shared_bytes=NULL))
    shown = " ".join(" ".join(rendered(unknown, 80)).split())
    assert "unknown threads, unknown registers, unknown shared memory" in shown


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_bar_outgrows_its_room_whatever_the_rates(width: int) -> None:
    real = fixture.report()
    assert real.waterfall is not None
    fall = replace(real.waterfall, peak_tflops=real.waterfall.peak_tflops / 1000)
    factors = (replace(fall.factors[0], value=999.0), *fall.factors[1:])  # the rest of the row stays as it was
    fall = replace(fall, factors=factors)
    rows = section(rendered(replace(real, waterfall=fall), width), "Waterfall")
    bar_room = 36 if width >= 110 else width - 2 - 14 - 9 - 9 - 9
    assert max(row.count("█") for row in rows) == bar_room


def test_waterfall_multiplies_down_to_what_was_achieved() -> None:
    rows = section(rendered(fixture.report(), 80), "Waterfall")
    rates = {line[2:16].strip(): line[34:43].strip() for line in rows[:11]}
    # 132 * 4096 * 1980 MHz = 1070.5; * 0.8645 = 925.5; * 0.9421 = 871.9; ... * 0.6190 = 507.9
    assert rates["peak"] == "1071"
    assert rates["clock"] == "925.5"
    assert rates["inside tile"] == "871.9"
    assert rates["tail"] == "507.9"
    assert rates["achieved"] == "501.4"
    assert "Factors of exactly 1: padding, fixup, wait, unfilled." in " ".join(" ".join(rows).split())


def test_wide_waterfall_says_what_each_factor_compares() -> None:
    rows = section(rendered(fixture.report(), 140), "Waterfall")
    assert any("issued FLOP against what those cycles could do" in line for line in rows)
    assert not any("against what those cycles" in line for line in rendered(fixture.report(), 80))


def test_budget_shows_every_state_that_took_time_and_names_the_others() -> None:
    rows = section(rendered(fixture.report(), 80), "Budget")
    shares = {line[4:18].strip(): line[18:25].strip() for line in rows[:9]}
    assert shares == {
        "mac": "57.9%",
        "epilogue": "2.9%",
        "resident": "0.5%",
        "turnaround": "0.1%",
        "ramp": "0.3%",
        "tail": "38.3%",
        "quantization": "38.0%",
        "imbalance": "0.3%",
        "sum": "100.0%",
    }
    assert "Nothing in: fixup, wait, unfilled." in " ".join(rows)
    assert "estimated from the unit costs" in " ".join(" ".join(rows).split())


def test_wave_table_drops_columns_before_it_gets_too_wide() -> None:
    narrow = section(rendered(fixture.report(), 80), "Waves")
    assert narrow[:3] == [
        "  wave  units    fill  end us  not idle  unit p10  median    p90  to first",
        "     1    132  100.0%   43.42     98.7%     43.01   43.10  43.20     1.000",
        "     2     30   22.7%   85.76     23.9%     41.60   41.66  41.73     0.967",
    ]
    wide = section(rendered(fixture.report(), 140), "Waves")
    titles = "  wave  units    fill  begin us  end us  length  not idle  unit p10  median    p90  to first  kcycles"
    assert wide[0] == titles
    notes = " ".join(" ".join(narrow[3:]).split())
    assert "1.23 nominal waves, wave efficiency 61.4% (estimated)." in notes
    assert "Median unit of the last wave / first wave: 0.967 in time, 0.987 in cycles." in notes


def test_thousands_of_waves_are_cut_in_the_middle_and_it_says_so() -> None:
    rows = section(rendered(fixture.many_waves_report(3000), 80), "Waves")
    numbers = [line.split()[0] for line in rows[1:18]]
    assert numbers == [*"12345678", "…", *(str(n) for n in range(2993, 3001))]
    assert "2984 waves left out here" in rows[9]


def test_units_without_waves_give_the_reason_and_the_busy_shares() -> None:
    rows = section(rendered(fixture.no_waves_report(), 80), "Waves")
    assert "No waves: units differ in size" in rows[0]
    assert any("██████████▂▂▂▂▂▂▂▂▂▂" in line for line in rows)
    ascii_rows = section(rendered(fixture.no_waves_report(), 80, ASCII), "Waves")
    assert any("99999999992222222222" in line for line in ascii_rows)


def test_picture_has_a_row_for_each_merged_group_and_a_legend() -> None:
    lines = rendered(fixture.report(), 80)
    rows = section(lines, "SMs by time")
    assert "each row 6 SMs, latest end first, a column 1.28 us" in "\n".join(lines)
    assert rows[0] == "      SM 0-5 " + "█" * 32 + "▒" + "█" * 33 + "▒"
    assert rows[21] == "  SM 126-131 " + "█" * 32 + "▒" + "·" * 34
    assert rows[23].split() == ["0", "42.9", "85.7", "us"]
    assert rows[24] == "  █ mac   ▒ epilogue   · tail   (a cell shows what fills most of it)"


@pytest.mark.parametrize(
    ("sms", "label"),
    [((7,), "SM 7"), ((0, 1, 2), "SM 0-2"), ((0, 16, 17), "SM 0 +2"), ((-1, -1), "unused"), ((131, -1), "SM 131 +1")],
)
def test_row_labels(sms: tuple[int, ...], label: str) -> None:
    assert charts.sm_label(sms) == label


def test_a_pipe_gets_no_control_codes_and_a_terminal_gets_colour() -> None:
    def printed(**options: object) -> str:
        stream = io.StringIO()
        console = Console(file=stream, width=80, highlight=False, markup=False, emoji=False, **options)  # type: ignore[arg-type]
        for line in text.lines(Page(80, UNICODE), fixture.report(), fixture.picture(22, 67), fixture.SENTENCES):
            console.print(line, soft_wrap=True)
        return stream.getvalue()

    plain = printed()
    assert "\x1b" not in plain
    assert max(len(line) for line in plain.splitlines()) == 80
    coloured = printed(force_terminal=True, color_system="256", no_color=False)
    assert "\x1b[38;5;39m" in coloured  # mac
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", printed(force_terminal=True, color_system="256", no_color=True))


def test_meaning_comes_last() -> None:
    lines = rendered(fixture.report(), 140)
    assert [line.strip() for line in lines[-3:]] == list(fixture.SENTENCES)


def test_table_drops_the_columns_marked_first() -> None:
    columns = [Column("a", ["1"]), Column("wide column", ["2"], drop=2), Column("b", ["3"], drop=1)]
    assert [line.plain for line in table(Page(10, ASCII), columns)] == ["  a  b", "  1  3"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (93.7, "93.70"), (1070.5, "1070"), (12345, "12345"), (0.00123, "0.001230"), (999.96, "1000.0")],
)
def test_significant_digits(value: float, shown: str) -> None:
    assert figures.significant(value) == shown


@pytest.mark.parametrize(
    ("value_ns", "shown"), [(0, "0 ns"), (832, "832.0 ns"), (85_730, "85.73 us"), (1.5e6, "1.500 ms"), (2e9, "2.000 s")]
)
def test_times(value_ns: float, shown: str) -> None:
    assert figures.time(value_ns) == shown


@pytest.mark.parametrize(
    ("share", "shown"), [(0, "0.0%"), (0.0004, "<0.1%"), (-0.0004, ">-0.1%"), (0.0005, "0.1%"), (0.614, "61.4%")]
)
def test_percent(share: float, shown: str) -> None:
    assert figures.percent(share) == shown


@pytest.mark.parametrize("width", [60, 80, 140])
def test_inside_the_tile_shows_each_part_a_unit_and_says_what_the_limit_is(width: int) -> None:
    lines = rendered(fixture.inside_report(), width)
    rows = section(lines, "Inside the tile")
    cells = {row.split()[0]: row.split()[-3:] for row in rows[1:8]}
    assert cells == {
        "pipe": ["65536", "65536", "92.0%"],
        "operands": ["320", "320", "0.4%"],
        "fill": ["3500", "3500", "4.0%"],
        "rest": ["410", "410", "0.6%?"],
        "epilogue": ["2000", "2000", "2.8%"],
        "drain": ["150", "150", "0.2%"],
        "room": ["62000", "62000", "89.7%"],
    }
    said = " ".join(" ".join(rows).split())
    assert "Tensor-bound: the copying warp waits for room in 90% of the mac cycles." in said
    assert said.endswith("? = the error is over a tenth of the value.")  # of rest: half a k_iter a unit
    assert "A k_iter takes 1024 cycles of pipe; fill and drain are a CTA's." in said
    assert ("waiting for a CTA's first operands" in said) is (width >= 80)
    factors = [row[2:16].strip() for row in section(lines, "Waterfall") if " x 0." in row]
    assert factors[:5] == ["clock", "operands", "pipe fill", "rest of mac", "epilogue"]


def test_nothing_is_said_inside_a_tile_that_was_not_measured() -> None:
    assert not [line for line in rendered(fixture.report(), 140) if "nside the tile" in line]
