"""Verdicts from traces in which one thing differs, and what they must not claim."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import compare_fixture as fixture
from tests.synthetic import Span
from wavescope.comparison import Comparison, Contender, arranged, joined, speed_ratio, unavailable, words_of
from wavescope.integrity import check
from wavescope.standings import standings
from wavescope.stats import Estimate
from wavescope.trace import Kind
from wavescope.verdicts import Verdict, verdicts

MAC = fixture.MAC_NS


def against(first: Contender, *others: Contender, tiles: int = 6, width: float = 0.001) -> list[Verdict]:
    """The verdicts on `others`."""
    found = fixture.comparison([first, *others], tiles, width)
    return list(verdicts(found, standings(found)))


def against_fixed(other: Contender, tiles: int = 6, width: float = 0.001) -> Verdict:
    (verdict,) = against(fixture.contender("fixed", fixture.fixed_spans(tiles), tiles), other, tiles=tiles, width=width)
    return verdict


def words(verdict: Verdict) -> str:
    return " ".join(verdict.sentences)


def four_tiles_and(kind: Kind, length: int) -> Contender:
    """A split schedule whose every SM spends some time on one thing more than fixed does."""
    rows: list[Span] = []
    for sm in range(4):
        rows += fixture.cta(sm, sm, 0, fixture.half(sm, 0), fixture.half(sm, 1), (kind, length, sm, (4, 8)))
    return fixture.contender("streamk", fixture.spans_from(rows), 4)


def test_a_removed_tail_wins() -> None:
    verdict = against_fixed(fixture.contender("tailsplit", fixture.split_spans(), 6))
    assert (verdict.outcome, verdict.reasons) == ("faster", ("tail",))
    # 201 us against 151: 6 tiles of 100 us on 4 SMs, and 1 us around the launch
    assert verdict.sentences[0] == (
        "tailsplit is 1.331 times as fast as fixed (cool, 95%: 1.330 to 1.332): 151.0 against 201.0 us."
    )
    assert "What makes the -50.0 us, SM time over SMs: tail removed -50.0 (50.0 to 0.0)." in words(verdict)


def test_fix_up_that_is_paid_for_nothing_loses() -> None:
    verdict = against_fixed(four_tiles_and(Kind.FIXUP, 30_000), tiles=4)
    assert (verdict.outcome, verdict.reasons) == ("slower", ("fixup",))
    assert verdict.sentences[0] == (
        "streamk loses: it takes 1.297 times as long as fixed (cool, 95%: 1.296 to 1.298), 131.0 against 101.0 us."
    )
    assert "fix-up paid +30.0 (0.0 to 30.0)." in words(verdict)


def test_waiting_is_named() -> None:
    verdict = against_fixed(four_tiles_and(Kind.WAIT, 20_000), tiles=4)
    assert (verdict.outcome, verdict.reasons) == ("slower", ("wait",))
    assert "waiting for other CTAs +20.0 (0.0 to 20.0)" in words(verdict)


def test_slower_units_lose_and_lost_read_sharing_is_only_inferred() -> None:
    slow = fixture.contender("streamk", fixture.split_spans(mac_ns=140_000), 6, parts=4)
    verdict = against_fixed(slow)
    # 6 tiles of 140 us on 4 SMs: 210 us against 200, though the tail is gone
    assert (verdict.outcome, verdict.reasons) == ("slower", ("units", "tail"))
    # 6 tiles of 8 k_iters: 12,500 and 17,500 cycles each
    assert "units slower +60.0 (mac cycles a k_iter 12500 to 17500), tail removed -50.0" in words(verdict)
    assert "There are 8 units in place of 6" in words(verdict)
    assert "share fewer of their reads (inferred: reads were not counted)" in words(verdict)
    in_step = fixture.contender("streamk", fixture.split_spans(mac_ns=140_000), 6, parts=3)  # two whole tiles each
    for other in (in_step, fixture.contender("tailsplit", fixture.split_spans(mac_ns=140_000), 6)):
        assert "share fewer" not in words(against_fixed(other))  # its CTAs are at the same k


def test_another_raster_is_named_where_units_are_slower() -> None:
    verdict = against_fixed(fixture.contender("fixed@row", fixture.fixed_spans(4, 110_000), 4), tiles=4)
    assert (verdict.outcome, verdict.reasons) == ("slower", ("units",))
    assert "The raster is another one: row here, grouped8 in fixed." in words(verdict)


def test_a_lower_clock_is_paid_back_idleness() -> None:
    slow = fixture.contender("tailsplit", fixture.slowed_clock(fixture.split_spans(), 1.2), 6)
    verdict = against_fixed(slow)
    assert (verdict.outcome, verdict.reasons) == ("faster", ("tail", "clock"))
    assert "lower clock +30.0 (1000 to 833 MHz in mac)" in words(verdict)  # 150 us of mac, 1.2 times as long
    assert "SMs that idle in fixed come back as clock there (inferred)." in words(verdict)
    assert slow.trace is not None
    timed = [
        replace(launch, timing=replace(launch.timing, clock_limits=("software power cap",)))
        for launch in slow.trace.launches
        if launch.timing
    ]
    capped = replace(slow, trace=replace(slow.trace, launches=tuple(timed)))
    assert "come back as clock there (NVML names the power cap)." in words(against_fixed(capped))


def test_clock_alone() -> None:
    spans = fixture.slowed_clock(four_tiles_and(Kind.FIXUP, 1).trace.spans, 1.1)  # type: ignore[union-attr]
    verdict = against_fixed(fixture.contender("streamk", spans, 4), tiles=4)
    assert (verdict.outcome, verdict.reasons) == ("slower", ("clock",))
    assert "come back as clock" not in words(verdict)  # nothing idled in fixed


def test_what_the_interval_includes_is_no_difference() -> None:
    verdict = against_fixed(fixture.contender("tailsplit", fixture.split_spans(), 6), width=0.3)
    assert verdict.outcome == "even"  # 1.331 +- 30 %
    assert verdict.sentences[0] == (
        "Between tailsplit and fixed there is no difference that the measurement shows: "
        "ratio 1.331 (cool, 95%: 0.932 to 1.730), 151.0 against 201.0 us."
    )
    assert "faster" not in words(verdict)
    assert "What makes" not in words(verdict)


def test_a_single_round_shows_nothing() -> None:
    found = fixture.comparison(
        [
            fixture.contender("fixed", fixture.fixed_spans(6), 6),
            fixture.contender("tailsplit", fixture.split_spans(), 6),
        ],
        6,
    )
    one = replace(found.contenders[1], ratios={"cool": Estimate(1.331, 1.331, 1.331, 1)})
    found = replace(found, contenders=(found.contenders[0], one))
    (verdict,) = verdicts(found, standings(found))
    assert verdict.outcome == "even"
    assert "ratio 1.331 (cool, a single round, so no interval)" in words(verdict)
    few = replace(found.contenders[1], ratios={"cool": Estimate(1.331, 1.2, 1.4, 2)})
    found = replace(found, contenders=(found.contenders[0], few))
    (verdict,) = verdicts(found, standings(found))
    assert "(cool, all of 2 rounds: 1.200 to 1.400)" in words(verdict)


def test_what_cancels_is_said_to() -> None:
    # 6 tiles of 133 us on 4 SMs take as long as two rounds of 100 us
    verdict = against_fixed(fixture.contender("tailsplit", fixture.split_spans(mac_ns=133_332), 6))
    assert verdict.outcome == "even"
    assert "What is saved is paid elsewhere, us of SM time over SMs: tail removed -50.0 (50.0 to 0.0), " in words(
        verdict
    )
    assert "units slower +50.0" in words(verdict)


def test_a_split_schedule_that_splits_nothing_names_what_ran() -> None:
    verdict = against_fixed(fixture.contender("tailsplit", fixture.fixed_spans(4), 4), tiles=4)
    assert verdict.outcome == "same work"
    assert verdict.sentences == (
        "No tile is split here, so tailsplit runs as fixed; tailsplit does the same work as fixed, "
        "and a ratio of 1.000 (cool, 95%: 0.999 to 1.001) is noise.",
    )


def persistent(name: str, tiles: int = 6, length: int = MAC) -> Contender:
    """Four CTAs, tiles round robin."""
    rows: list[Span] = []
    for sm in range(4):
        rows += fixture.cta(sm, sm, 0, *(fixture.tile(index, length) for index in range(sm, tiles, 4)))
    return fixture.contender(name, fixture.spans_from(rows), tiles)


def test_it_runs_as_persistent_and_only_that_difference_is_noise() -> None:
    verdict = against_fixed(persistent("tailsplit", length=110_000))
    assert (verdict.outcome, verdict.reasons) == ("slower", ("units", "tail"))
    said = "No tile is split here, so tailsplit runs as persistent on 4 CTAs; what differs from that is noise."
    assert said in words(verdict)
    (same,) = against(persistent("persistent"), persistent("tailsplit"))
    assert same.outcome == "same work"
    assert "tailsplit runs as persistent on 4 CTAs; tailsplit does the same work as persistent, and" in words(same)
    (other,) = against(persistent("persistent"), persistent("tailsplit@row"))
    assert other.outcome == "even"  # another order of tiles is another schedule


def test_the_same_work_with_a_ratio_that_excludes_1_is_not_put_down_to_the_schedule() -> None:
    (verdict,) = against(persistent("persistent"), persistent("tailsplit", length=105_000))
    assert verdict.outcome == "same work"
    assert "is noise or code around the tiles, not the schedule." in words(verdict)


# --- g


def test_g_is_of_those_that_cut_tiles() -> None:
    first = fixture.contender("fixed", fixture.fixed_spans(6), 6)
    (verdict,) = against(first, persistent("dynamic", length=95_000))
    assert verdict.outcome == "faster"
    assert verdict.gain is None
    assert "g = " not in words(verdict)


def test_g_is_the_share_of_what_the_partial_wave_costs() -> None:
    first = fixture.contender("fixed", fixture.fixed_spans(6), 6)
    split = fixture.contender("tailsplit", fixture.split_spans(fixup_ns=10_000), 6)
    faster = persistent("persistent", length=95_000)
    _, verdict = against(first, faster, split)
    # i = 8 / 6; s = 190,000 / 160,000 cycles over persistent, the better of the two: (s - 1) / (i - 1) = 0.5625
    assert verdict.gain is not None
    assert (verdict.gain.base, verdict.gain.ideal) == ("persistent", pytest.approx(8 / 6))
    assert verdict.gain.speedup == pytest.approx(190 / 160)
    assert verdict.gain.share == pytest.approx(0.5625)
    assert "It gains g = 0.56 of what the partial wave costs" in words(verdict)
    assert "estimated" in words(verdict)


def test_without_fixed_or_persistent_or_a_partial_wave_there_is_no_g() -> None:
    split = fixture.contender("tailsplit", fixture.split_spans(), 6)
    (verdict,) = against(fixture.contender("streamk", fixture.split_spans(mac_ns=120_000), 6), split)
    assert verdict.gain is None
    assert against_fixed(four_tiles_and(Kind.FIXUP, 30_000), tiles=4).gain is None


def test_a_loss_has_a_negative_g_in_plain_words() -> None:
    verdict = against_fixed(fixture.contender("streamk", fixture.split_spans(mac_ns=140_000), 6))
    assert verdict.gain is not None
    assert verdict.gain.share < 0
    assert "It gains nothing of what the partial wave costs: g = -0.14" in words(verdict)  # (200 / 210 - 1) / (1/3)


# --- comparisons


def test_a_library_is_judged_by_its_time_alone() -> None:
    (verdict,) = against(fixture.contender("fixed", fixture.fixed_spans(6), 6), fixture.library())
    assert (verdict.outcome, verdict.reasons, verdict.account) == ("faster", (), None)
    assert "cublas leaves no spans (nvjet_sm90_tst_128x128_64x6_1x2_h_bz_TNT ran), so no budget says why." in words(
        verdict
    )


def test_the_first_that_ran_is_the_reference() -> None:
    own = [
        fixture.contender("fixed", fixture.fixed_spans(6), 6),
        fixture.contender("tailsplit", fixture.split_spans(), 6),
    ]
    found = fixture.comparison([unavailable("cublas", "not installed"), *own], 6)
    assert found.first.name == "fixed"
    assert [verdict.contender for verdict in verdicts(found, standings(found))] == ["tailsplit"]


def test_another_order_of_contenders_turns_the_ratios_round() -> None:
    found = fixture.full_comparison()
    turned = arranged(found, ["cublas", "tailsplit", "fixed"])
    assert [one.name for one in turned.contenders][:3] == ["cublas", "tailsplit", "fixed"]
    before = {one.name: one.times["cool"].median for one in found.contenders if one.times}
    for one in turned.contenders:
        if one.times:
            assert one.ratios["cool"].median == pytest.approx(before["cublas"] / before[one.name])
            assert one.ratios["cool"].low <= one.ratios["cool"].median <= one.ratios["cool"].high
    assert turned.contenders[0].ratios["cool"] == Estimate(1.0, 1.0, 1.0, fixture.COUNT)
    # the interval against the library is the widest that both ratios allow
    library, split = found.contenders[4], found.contenders[1]
    ratio = speed_ratio(library, split, "cool")
    assert ratio is not None
    assert ratio.low == pytest.approx(split.ratios["cool"].low / library.ratios["cool"].high)
    back = arranged(turned, [one.name for one in found.contenders])
    assert back.contenders[1].ratios["cool"].median == pytest.approx(split.ratios["cool"].median)


def test_all_launches_join_in_one_trace_with_ids_of_their_own() -> None:
    found = arranged(fixture.full_comparison(), ["streamk:4", "fixed"])
    trace = joined(found)
    check(trace)
    assert [launch.launch_id for launch in trace.launches] == list(range(8))
    assert [launch.notes[-1] for launch in trace.launches[::2]] == [
        f"compared as {name}" for name in ("streamk:4", "fixed", "tailsplit", "persistent@row")
    ]
    for one in found.contenders:
        for launch in one.trace.launches if one.trace else ():
            mine = trace.spans.launch_id == launch.launch_id
            assert one.trace is not None
            assert mine.sum() == (one.trace.spans.launch_id == launch.launch_id).sum() > 0


def test_a_launch_says_what_it_was() -> None:
    found = fixture.full_comparison()
    tail = found.contenders[1].trace
    assert tail is not None
    assert words_of(tail.launches[0]) == "tailsplit: 2 tiles cut into 2, then 4 whole tiles"
    assert words_of(replace(tail.launches[0], schedule=None, kernel="theirs")) == "theirs"


def test_standings_read_times_ratios_and_cycles() -> None:
    found: Comparison = fixture.full_comparison()
    placed = standings(found)
    assert [(one.regime, one.name) for one in placed[:5]] == [
        ("cool", name) for name in ("fixed", "tailsplit", "streamk:4", "persistent@row", "cublas")
    ]
    split, library = placed[1], placed[4]
    assert split.tflops == pytest.approx(found.problem.flop / 162_000 / 1e3)  # 150 + 9 + 2 us, and 1 around
    assert split.library_ratio is not None
    assert split.library_ratio.median == pytest.approx(120 / 162)
    assert split.cycles == Estimate(161_000, 161_000, 161_000, 1)
    assert (library.report, library.cycles) == (None, None)
    assert split.is_split
    assert not placed[0].is_split
