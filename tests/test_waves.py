from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.random_launches import launches
from tests.synthetic import LAUNCH, Span, spans_from, tiled, trace_from
from wavescope.states import sm_states, spans_of
from wavescope.trace import Kind, Spans
from wavescope.units import units_of
from wavescope.wave_report import RankWave, Waves
from wavescope.waves import BUSY_PARTS, busy_over_time, waves_of


def found(rows: list[Span] | Spans, sms: int, places: int | None = None, schedule: str | None = None) -> Waves:
    trace = trace_from(rows, sms=sms, places=places or sms, schedule=schedule)
    launch = trace.launches[0]
    spans = spans_of(trace, launch)
    return waves_of(units_of(spans), sm_states(spans), launch, sms)


def block(cta: int, sm: int, begin: int, end: int) -> Span:
    return Span(Kind.CTA, cta, sm, begin, end)


# Two SMs: 0..10 and 0..12, then 12..20 on SM 0 and 14..26 on SM 1, then 22..30 on SM 0.
FIVE = [block(0, 0, 0, 10), block(1, 1, 0, 12), block(2, 0, 12, 20), block(3, 1, 14, 26), block(4, 0, 22, 30)]


def test_hand_worked_waves() -> None:
    # Wave 0: units 0 and 1, median end 11; wave 1: units 2 and 3, median end 23; wave 2: unit 4, ends with T = 30.
    # Not idle: [0, 11): SM 0 10, SM 1 11 = 21 of 22; [11, 23): SM 0 8 + 1, SM 1 1 + 9 = 19 of 24;
    # [23, 30): SM 0 7, SM 1 3 = 10 of 14.
    waves = found(FIVE, sms=2)
    assert waves == Waves(
        places=2,
        num_units=5,
        nominal_waves=2.5,
        efficiency=5 / 6,
        waves=(
            RankWave(0, 2, 0, 11, pytest.approx(21 / 22), 1.0, 11, pytest.approx(10.2), pytest.approx(11.8), 11),
            RankWave(1, 2, 11, 23, pytest.approx(19 / 24), 1.0, 10, pytest.approx(8.4), pytest.approx(11.6), 10),
            RankWave(2, 1, 23, 30, pytest.approx(10 / 14), 0.5, 8, 8, 8, 8),
        ),
        reason=None,
        duration_ratio=8 / 11,
        cycle_ratio=8 / 11,
        tail_onset_ns=26,
        busy_shares=waves.busy_shares,
    )
    assert sum(waves.busy_shares) / BUSY_PARTS == pytest.approx(50 / 60)
    assert waves.busy_shares[-1] == pytest.approx(0.5)  # of the last 1.5 ns SM 0 is busy all, SM 1 none


def test_busy_over_time_is_a_step_function() -> None:
    trace = trace_from(FIVE, sms=2)
    times, counts = busy_over_time(sm_states(spans_of(trace, trace.launches[0])))
    assert times.tolist() == [0, 10, 12, 14, 20, 22, 26, 30]
    assert counts.tolist() == [2, 1, 1, 2, 1, 2, 1, 0]  # at 12 SM 1 ends as SM 0 begins


@given(launches(), st.integers(1, 6))
def test_lengths_times_utilizations_sum_to_the_share_not_idle(launch: tuple[list[Span], int], places: int) -> None:
    rows, sms = launch
    ctas = [row for row in rows if row.kind == Kind.CTA]  # so that each CTA is a unit
    trace = trace_from(ctas, sms=sms)
    states = sm_states(spans_of(trace, trace.launches[0]))
    busy = int(states.state_ns.sum() - states.state_ns[:, 0].sum())
    waves = found(ctas, sms=sms, places=places)
    edges = [wave.begin_ns for wave in waves.waves] + [waves.waves[-1].end_ns]
    assert edges == sorted(edges)
    assert (edges[0], edges[-1]) == (0, states.duration_ns)
    assert [wave.end_ns for wave in waves.waves[:-1]] == edges[1:-1]
    assert sum(wave.units for wave in waves.waves) == len(ctas)
    total = sum((wave.end_ns - wave.begin_ns) * wave.utilization for wave in waves.waves) * sms
    assert total == pytest.approx(busy)
    assert all(0 <= wave.utilization <= 1 for wave in waves.waves)
    assert sum(waves.busy_shares) / BUSY_PARTS * states.duration_ns * sms == pytest.approx(busy)


def test_a_wave_that_ends_before_its_predecessor_gets_its_boundary() -> None:
    # Three places.  Wave 0: two units to 100, one to 10: median 100.  Wave 1: three short ones on SM 2, median 30.
    # Wave 2: one more on SM 2.  Wave 1 has no length: it counts the SMs at work at 100, where both long ones end.
    rows = [block(0, 0, 0, 100), block(1, 1, 0, 100), block(2, 2, 0, 10)]
    rows += [block(3 + turn, 2, 10 * (turn + 1), 10 * (turn + 2)) for turn in range(4)]
    rows.append(block(7, 2, 90, 120))
    waves = found(rows, sms=3).waves
    assert [(wave.begin_ns, wave.end_ns) for wave in waves] == [(0, 100), (100, 100), (100, 120)]
    assert waves[1].utilization == pytest.approx(1 / 3)
    total = sum((wave.end_ns - wave.begin_ns) * wave.utilization for wave in waves)
    assert total * 3 == pytest.approx(100 + 100 + 50 + 30)


def test_units_that_differ_in_size_have_no_waves_and_a_reason() -> None:
    rows = [block(0, 0, 0, 80), block(1, 1, 0, 40)]
    rows += [Span(Kind.MAC, 0, 0, 0, 80, 0, 0, 0, 0, 8), Span(Kind.MAC, 1, 1, 0, 40, 1, 0, 1, 0, 4)]
    waves = found(rows, sms=2, schedule="streamk")
    assert waves.waves == ()
    assert (
        waves.reason == "units differ in size under schedule streamk (4 to 8 k_iters), so they have no wave in common"
    )
    assert (waves.duration_ratio, waves.tail_onset_ns) == (None, 40)
    assert waves.busy_shares == (1.0,) * 10 + (0.5,) * 10


def test_units_reach_from_the_first_begin_to_the_last_end_of_their_spans() -> None:
    rows = [block(0, 0, 0, 50)]
    rows += [
        Span(Kind.MAC, 0, 0, 5, 30, 0, 0, 0, 0, 8),
        Span(Kind.EPILOGUE, 0, 0, 30, 45, 0, 0, 0, 0, 8),
    ]
    only = found(rows, sms=1).waves[0]
    assert (only.median_duration_ns, only.median_cycles) == (40, 40)


def test_persistent_units_give_rank_waves_inside_one_residency() -> None:
    # Two CTAs, three units: the second wave lies inside CTA 0.
    rows = [block(0, 0, 0, 100), block(1, 1, 0, 50)]
    rows += [
        Span(Kind.MAC, unit % 2, unit % 2, unit // 2 * 50, unit // 2 * 50 + 50, unit, 0, unit, 0, 8)
        for unit in range(3)
    ]
    waves = found(rows, sms=2, schedule="persistent")
    assert [(wave.units, wave.begin_ns, wave.end_ns, wave.utilization) for wave in waves.waves] == [
        (2, 0, 50, 1.0),
        (1, 50, 100, 0.5),
    ]


def test_fewer_ctas_than_places_rank_as_many_units_at_a_time() -> None:
    rows = []
    for cta in range(2):  # of 4 places
        rows += [Span(Kind.CTA, cta, cta, 0, 300)]
        rows += [
            Span(
                Kind.MAC,
                cta,
                cta,
                100 * n,
                100 * n + 100,
                2 * n + cta,
                tile_m=0,
                tile_n=2 * n + cta,
                k_begin=0,
                k_end=8,
            )
            for n in range(3)
        ]
    found = waves_of(units_of(spans_from(rows)), sm_states(spans_from(rows)), replace(LAUNCH, places=4, grid=2), 4)
    assert (found.places, found.nominal_waves, found.efficiency) == (2, 3.0, 1.0)
    assert [(wave.units, wave.fill) for wave in found.waves] == [(2, 1.0)] * 3
    # a CTA for each unit: they could all have run at once
    alone = waves_of(units_of(spans_from(rows)), sm_states(spans_from(rows)), replace(LAUNCH, places=4, grid=6), 4)
    assert (alone.places, alone.nominal_waves) == (4, 1.5)


def test_thousands_of_waves() -> None:
    spans, _, _ = tiled(12_000, places=4, jitter_ns=300)
    waves = found(spans, sms=4, schedule="fixed")
    assert len(waves.waves) == 3000
    lengths = sum(wave.end_ns - wave.begin_ns for wave in waves.waves)
    assert lengths == pytest.approx(waves.waves[-1].end_ns)


def test_without_clocks_cycles_are_zero_and_have_no_ratio() -> None:
    spans = spans_from(FIVE)
    nothing = spans.begin_clock * 0 - 1
    waves = found(replace(spans, begin_clock=nothing, end_clock=nothing), sms=2)
    assert [wave.median_cycles for wave in waves.waves] == [0, 0, 0]
    assert (waves.cycle_ratio, waves.duration_ratio) == (None, 8 / 11)
