"""CTAs side by side on an SM: how many, who came first, and what units cost then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.recorded import DATA
from tests.synthetic import Span, spans_from, trace_from
from wavescope.co_residency import CoResidency, Crowd, Forced, Rank, co_residency, compare
from wavescope.errors import UsageError
from wavescope.neighbours import older_neighbours
from wavescope.observations import of_co_residency
from wavescope.problem import Problem, Tile
from wavescope.trace import NULL, Kind, Trace
from wavescope.trace_file import load
from wavescope.units import units_of


def cta(index: int, sm: int, begin: int, end: int) -> Span:
    return Span(Kind.CTA, index, sm, begin, end)


# SM 0: CTAs 0 and 1 side by side for 300 ns (CTA 1 until 320), then CTA 2 alone but for 20 ns.  SM 1: CTA 3 alone.
ROWS = [cta(0, 0, 0, 300), cta(1, 0, 0, 320), cta(2, 0, 300, 500), cta(3, 1, 0, 200)]


def test_hand_worked_co_residency() -> None:
    # SM 0: two CTAs in [0, 320), one in [320, 500); SM 1: one in [0, 200), none in [200, 500).
    # CTAs 0 and 1 never had another number; CTA 2 was alone for 180 of 200 = nine tenths, CTA 3 all the time.
    # Alone 200 cycles, beside another (300 + 320) / 2 = 310: the SM does 2 * 200 / 310.
    # Beside each other, CTA 0 is the oldest, CTA 1 found it there; CTA 2 is no unit of a full SM.
    found = co_residency(trace_from(ROWS, sms=2, ctas_per_sm=2))
    assert found is not None
    assert found == CoResidency(
        ctas_per_sm=2,
        sms=2,
        crowds=(
            Crowd(0, 300 / 1000, 0, None, None, None),
            Crowd(1, 380 / 1000, 2, 200.0, 200.0, 1.0),
            Crowd(2, 320 / 1000, 2, 310.0, 310.0, pytest.approx(400 / 310)),
        ),
        ranks=(Rank(0, 1, 300.0, 300.0), Rank(1, 1, 320.0, 320.0)),
        parts=found.parts,
        mean_resident=pytest.approx((380 + 2 * 320) / 700),
    )
    # 25 ns a part: three CTAs on two SMs until 200, two until 320 (20 ns into its part), one until 500
    assert found.parts == pytest.approx([1.5] * 8 + [1.0] * 4 + [(2 * 20 + 5) / 50] + [0.5] * 7)
    told = of_co_residency(found)
    assert told[1] == (
        "Units on an SM with 2 CTAs take 1.55 times the cycles of units alone on theirs, so the SM does 1.29 times as much."
    )
    assert told[2].endswith("take 1.07 times the cycles of units whose CTA is the oldest: an SM is not shared evenly.")


def test_one_cta_an_sm_has_none() -> None:
    assert co_residency(trace_from([cta(0, 0, 0, 10), cta(1, 0, 10, 20)], sms=1)) is None


def test_who_was_there_before() -> None:
    # SM 0: CTA 5 from 0, CTA 2 from 10, CTA 3 and 4 together from 20; CTA 5 leaves at 15, CTA 2 at 30, and CTA 6 comes
    # at 30.  SM 1 has nobody before.
    rows = [cta(5, 0, 0, 15), cta(2, 0, 10, 30), cta(3, 0, 20, 50), cta(4, 0, 20, 60), cta(6, 0, 30, 70)]
    rows.append(cta(7, 1, 35, 70))
    trace = trace_from(rows, sms=2, ctas_per_sm=3)
    units = units_of(trace.spans)
    found = dict(zip(units.cta.tolist(), older_neighbours(trace.spans, units).tolist(), strict=True))
    assert found == {5: 0, 2: 1, 3: 1, 4: 2, 6: 2, 7: 0}


def test_a_unit_finds_older_ctas_when_it_begins_not_when_its_cta_does() -> None:
    # CTA 1 begins beside CTA 0, which leaves before the second unit of CTA 1.
    rows = [cta(0, 0, 0, 50), cta(1, 0, 0, 100)]
    rows += [Span(Kind.MAC, 1, 0, 0, 50, 1, 0, 1, 0, 8), Span(Kind.MAC, 1, 0, 50, 100, 2, 0, 2, 0, 8)]
    rows.append(Span(Kind.MAC, 0, 0, 0, 50, 0, 0, 0, 0, 8))
    spans = spans_from(rows)
    units = units_of(spans)
    assert older_neighbours(spans.select(spans.kind == Kind.CTA), units).tolist() == [0, 1, 0]


def forced(per_sm: int, length: int, mhz: int = 1000) -> Trace:
    """Two SMs filled twice with `per_sm` CTAs of so many ns."""
    rows = [
        cta(index, index // per_sm % 2, index // per_sm // 2 * length, (index // per_sm // 2 + 1) * length)
        for index in range(4 * per_sm)
    ]
    spans = spans_from(rows)
    end = spans.begin_clock + (spans.end_ns - spans.begin_ns) * mhz // 1000
    return trace_from(
        replace(spans, end_clock=end),
        sms=2,
        ctas_per_sm=per_sm,
        problem=Problem(64, 64, 64),
        tile=Tile(16, 16, 16),
    )


def test_forced_launches_side_by_side() -> None:
    # Alone 1000 cycles, two together 1600: the SM does 2 * 1000 / 1600 = 1.25; three take 3000: 1.0.  At 800 MHz three
    # take 3750 ns.
    rows = compare([forced(3, 3750, mhz=800), forced(1, 1000), forced(2, 1600)])
    assert rows == (
        Forced(1, 4, 1000.0, 1000.0, 1000.0, 1.0, 1.0),
        Forced(2, 8, 1600.0, 1600.0, 1000.0, 1.25, 1.25),
        Forced(3, 12, 3000.0, 3750.0, 800.0, 1.0, pytest.approx(0.8)),
    )


def test_only_units_on_full_sms_are_compared() -> None:
    # Two pairs take 1600 cycles; then ten CTAs, each alone, take 900.
    rows = [cta(index, 0, index // 2 * 1600, (index // 2 + 1) * 1600) for index in range(4)]
    rows += [cta(4 + index, 0, 3200 + 900 * index, 4100 + 900 * index) for index in range(10)]
    mixed = trace_from(rows, sms=1, ctas_per_sm=2, problem=Problem(64, 64, 64), tile=Tile(16, 16, 16))
    alone, pairs = compare([mixed, forced(1, 1000)])
    assert (alone.ctas_per_sm, pairs.ctas_per_sm, pairs.units, pairs.unit_cycles) == (1, 2, 4, 1600.0)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageError, match="1 launches cannot be compared"):
        compare([forced(1, 1000)])
    other = forced(2, 1600)
    other = replace(other, launches=(replace(other.launches[0], tile=Tile(32, 16, 16)),))
    with pytest.raises(UsageError, match=r"different work do not show contention .*32x16x16"):
        compare([forced(1, 1000), other])
    bare = forced(2, 1600)
    nothing = np.full(len(bare.spans), NULL)
    bare = replace(bare, spans=replace(bare.spans, begin_clock=nothing, end_clock=nothing))
    with pytest.raises(UsageError, match="no clock readings"):
        compare([forced(1, 1000), bare])


def test_recorded_older_ctas_are_faster() -> None:
    # gemm_mma 128x128x64, two CTAs an SM: the one that came first takes 104 thousand cycles, the other 129 thousand.
    found = co_residency(load(DATA / "gemm_mma-128x128x64-fixed-2304x2304x4096.parquet"))
    assert found is not None
    assert [rank.older for rank in found.ranks] == [0, 1]
    first, second = (rank.cycles or 0.0 for rank in found.ranks)
    assert 1.1 < second / first < 1.4
    # so it is with fp32 on the ordinary cores
    simt = co_residency(load(DATA / "gemm_simt-128x128x8-fixed-2304x2304x4096.parquet"))
    assert simt is not None
    first, second = (rank.cycles or 0.0 for rank in simt.ranks[:2])
    assert 1.25 < second / first < 1.45
