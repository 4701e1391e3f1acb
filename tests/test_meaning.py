from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests import report_fixture as fixture
from tests.synthetic import Span, trace_from
from wavescope.analyze import analyze
from wavescope.meaning import meaning
from wavescope.problem import Problem, Tile
from wavescope.trace import Kind
from wavescope.wave_report import Quantity


def blocks(durations: list[int], places: int) -> list[Span]:
    """CTAs dealt to SMs round robin, each right after the one before it."""
    free = [0] * places
    rows = []
    for cta, duration in enumerate(durations):
        sm = cta % places
        rows.append(Span(Kind.CTA, cta, sm, free[sm], free[sm] + duration))
        free[sm] += duration
    return rows


def said(rows: list[Span], sms: int = 4, **launch: Any) -> tuple[str, ...]:
    return meaning(analyze(trace_from(rows, sms=sms, **launch)))


def with_units(rows: list[Span]) -> list[Span]:
    """Each CTA computes one tile of a column of tiles, 8 k_iters."""
    return rows + [Span(Kind.MAC, row.cta, row.sm, row.begin, row.end, row.cta, row.cta, 0, 0, 8) for row in rows]


def column_of(tiles: int) -> dict[str, Any]:
    return {"problem": Problem(16 * tiles, 16, 128), "tile": Tile(16, 16, 16)}


def test_a_partial_last_round() -> None:
    # 5 tiles of 1000 ns on 4 SMs, the last one of 900: T = 1900; the tail is 3 * 900 of 7600.
    rows = with_units(blocks([1000] * 4 + [900], 4))
    assert said(rows, schedule="fixed", **column_of(5)) == (
        "5 tiles on 4 SMs: the second round occupies 1 of them, the other 3 have nothing left to do, and waiting for "
        "the last ones (the tail) is 35.5% of all SM time, nearly all of it from the number of units.",
        "A unit of the last round takes 0.90 of the time of one of the first (0.90 in cycles); no barrier stands between "
        "rounds, an SM goes on as soon as it has room.",
        "Perfect balance would make it at most 55% faster, at unchanged unit cost and clock; part of that is not to be "
        "had, since the clock rises while SMs idle.",
    )


def test_full_rounds() -> None:
    rows = with_units(blocks([100_000] * 7 + [101_000], 4))
    assert said(rows, schedule="fixed", **column_of(8)) == (
        "8 tiles fill 2 rounds of 4 SMs completely, so no places are left over, and waiting for the last ones (the tail) "
        "is 0.4% of all SM time.",
        "A unit of the last round takes 1.00 of the time of one of the first (1.00 in cycles); no barrier stands between "
        "rounds, an SM goes on as soon as it has room.",
        "Balance is not the loss here: perfect balance would make it at most 0.4% faster.",
    )


def test_below_one_wave_there_are_too_few_blocks_and_no_tail() -> None:
    rows = with_units(blocks([1000, 1000], 2))
    found = said(rows, schedule="fixed", **column_of(2))
    assert found == (
        "Too few blocks: 2 tiles for 4 SMs; 2 of 4 SMs never get one, which is 50% of all SM time. There is no tail to "
        "remove, only room for more units (a smaller tile, or k split among CTAs); whether they pay has to be measured.",
        "Perfect balance would make it at most 2.0 times as fast, at unchanged unit cost and clock; part of that is not to be "
        "had, since the clock rises while SMs idle.",
    )


def test_below_one_wave_with_a_cta_on_every_sm() -> None:
    rows = with_units(blocks([1000] * 4, 4))
    assert said(rows, schedule="fixed", ctas_per_sm=2, **column_of(4))[0] == (
        "Too few blocks: 4 tiles for 8 places (4 SMs); all 4 SMs get one, but not as many as fit. There is no tail to "
        "remove, only room for more units (a smaller tile, or k split among CTAs); whether they pay has to be measured."
    )


def test_persistent_waves_that_nsight_does_not_see() -> None:
    rows = [Span(Kind.CTA, 0, 0, 0, 2000), Span(Kind.CTA, 1, 1, 0, 1000)]
    rows += [Span(Kind.MAC, n % 2, n % 2, n // 2 * 1000, n // 2 * 1000 + 1000, n, n, 0, 0, 8) for n in range(3)]
    found = said(rows, sms=2, schedule="persistent", **column_of(3))
    assert found[1] == (
        "Nsight Compute would call this 1.00 waves, for its 2 blocks are all resident at once; there are 2 rank waves "
        "inside."
    )
    assert len(found) == 4


def test_units_of_unequal_size() -> None:
    # Two CTAs share 12 k_iters of two tiles: 8 + 4 of them; the first SM is done at half the time.
    rows = [Span(Kind.CTA, 0, 0, 0, 1000), Span(Kind.CTA, 1, 1, 0, 500)]
    rows += [Span(Kind.MAC, 0, 0, 0, 1000, 0, 0, 0, 0, 8), Span(Kind.MAC, 1, 1, 0, 500, 1, 1, 0, 0, 4)]
    found = said(rows, sms=2, schedule="streamk")
    assert found[0] == (
        "2 units of unequal size on 2 SMs have no rounds in common: the first SM is done at 50% of the time, and waiting "
        "for the last ones (the tail) is 25.0% of all SM time, nearly all of it from the number of units."
    )


def test_unequal_durations_are_named_as_the_cause() -> None:
    # Four tiles, one wave: nominal costs are equal, so nothing of the tail comes from their number.
    found = said(with_units(blocks([1000, 1000, 1000, 2000], 4)), schedule="fixed", **column_of(4))
    assert found[0] == (
        "4 tiles fill 1 round of 4 SMs completely, so no places are left over, and waiting for the last ones (the tail) "
        "is 37.5% of all SM time, most of it from unequal durations."
    )


def test_a_tail_of_both_causes_names_neither() -> None:
    # 5 tiles on 4 SMs of 1000, the second round's 1500: mean 1100, M* 2200, quantization 4 * 2200 - 5500 = 3300.
    # T = 2500, so the tail is 3 * 1500 = 4500: 73 % of it is quantization.
    found = said(with_units(blocks([1000] * 4 + [1500], 4)), schedule="fixed", **column_of(5))
    assert found[0].endswith("waiting for the last ones (the tail) is 45.0% of all SM time.")


def test_more_blocks_than_places_are_no_hidden_waves() -> None:
    # Three blocks of two tiles each on two SMs: Nsight Compute sees 1.5 waves itself.
    rows = blocks([2000] * 3, 2)
    rows += [
        Span(Kind.MAC, row.cta, row.sm, row.begin + half, row.begin + half + 1000, unit, unit, 0, 0, 8)
        for row in tuple(rows)
        for unit, half in ((2 * row.cta, 0), (2 * row.cta + 1, 1000))
    ]
    found = said(rows, sms=2, schedule="splitk", **column_of(6))
    assert not [sentence for sentence in found if "Nsight" in sentence]


def test_blocks_of_a_foreign_kernel_that_are_all_resident_at_once() -> None:
    found = said(blocks([1000] * 4, 4))
    assert found[0].startswith("4 blocks fill 1 round of 4 SMs completely")
    assert found[1] == (
        "All 4 blocks are resident at once: if the kernel is persistent, its waves are inside the blocks, and this trace "
        "does not show them."
    )


def test_simulated_numbers_say_so() -> None:
    assert said(blocks([1000] * 5, 4), source="simulated")[0].startswith(
        "SIMULATED, nothing of this was measured. 5 blocks on 4 SMs"
    )


def test_a_coarse_timer_forbids_conclusions() -> None:
    # Blocks of 100 ns and a timer of 1024: no tail, no ratio, no bound.
    trace = replace(trace_from(blocks([100] * 5, 4), sms=4), timer_step_ns=1024)
    assert meaning(analyze(trace)) == (
        "5 blocks on 4 SMs: the second round occupies 1 of them, the other 3 have nothing left to do, and the tail is "
        "too short for the timer.",
        "The timer is too coarse to say what perfect balance could bring.",
    )


def test_late_rounds_have_ordinals() -> None:
    assert "the 21st round occupies 1 of them" in said(blocks([100] * 81, 4))[0]
    assert "the 12th round occupies 3 of them" in said(blocks([100] * 47, 4))[0]
    assert "the tenth round occupies 2 of them" in said(blocks([100] * 38, 4))[0]


def test_much_padding_is_named() -> None:
    report = fixture.report()
    budget = replace(report.budget, padding=Quantity(report.budget.terms["mac"].value * 0.4, 0.0))
    assert any(
        "40% of the work the tiles issue lies outside the problem" in said
        for said in meaning(replace(report, budget=budget))
    )
    assert not any("padding" in said for said in meaning(report))
