"""The times at which stamps of one counter can have been taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wavescope.clock_band import SLACK_CYCLES, Stamps, band_of

STEP = 1000
FASTEST = 1.01  # cycles a ns, with a maximum of 1000 MHz


def stamps(clock: list[int], time: list[int]) -> Stamps:
    return Stamps(np.zeros(len(clock), np.int64), np.array(clock), np.array(time))


def test_hand_worked_band() -> None:
    # Readings 0, 500 and 3000 cycles at 0, 1000 and 3000 ns, each rounded down to 1000.
    # The mean clock is at most 3000 / 4000 cycles a ns, so the slowest is 0.75 * 0.75 = 0.5625; the fastest 1.01.
    # 500 cycles took 495.05 to 888.89 ns, 2500 cycles 2475.25 to 4444.44, 3000 cycles 2970.30 to 5333.33.
    # Stamp 1 is in [1000, 2000), so stamp 0 in [1000 - 888.89, 1000): not before 111.11; stamp 2 is before 4000, so
    # stamp 1 before 4000 - 2475.25 = 1524.75 and from 1000 on; stamp 2 from 1000 + 2475.25 on.
    band = band_of(stamps([7, 507, 3007], [0, 1000, 3000]), STEP, 1000.0)
    slack = SLACK_CYCLES / FASTEST
    assert band.is_possible
    assert band.earliest_ns + slack == pytest.approx([111.111, 1000.0, 3475.248], abs=1e-3)
    # stamp 0: less than 1000 by itself, 1524.75 - 495.05 by the second; stamp 1: 1524.75; stamp 2: 4000.
    assert band.latest_ns - slack == pytest.approx([1000.0, 1524.752, 4000.0], abs=1e-3)
    assert band.slack_cycles == SLACK_CYCLES


def test_the_order_of_stamps_does_not_matter() -> None:
    forward = band_of(stamps([0, 500, 3000], [0, 1000, 3000]), STEP, 1000.0)
    shuffled = band_of(stamps([3000, 0, 500], [3000, 0, 1000]), STEP, 1000.0)
    assert shuffled.earliest_ns.tolist() == forward.earliest_ns[[2, 0, 1]].tolist()
    assert shuffled.latest_ns.tolist() == forward.latest_ns[[2, 0, 1]].tolist()


def test_readings_of_two_counters_have_no_times() -> None:
    # 100 cycles cannot take from 0 to 9000 ns while 9000 cycles take as long.
    assert not band_of(stamps([0, 100, 9000], [0, 9000, 9032]), 32, 1000.0).is_possible


def test_readings_of_a_stamp_that_lie_apart_widen_the_slack() -> None:
    # At 1 cycle a ns the second stamp should read 1000 cycles; it reads 100 more, as of a warp that had to wait.
    clock = [0, 1100, 2000, 3000]
    time = [0, 992, 1984, 2976]
    assert band_of(stamps(clock, time), 32, 1000.0).slack_cycles == 64
    assert band_of(stamps([0, 1000, 2000, 3000], time), 32, 1000.0).slack_cycles == SLACK_CYCLES


@st.composite
def readings(draw: st.DrawFn) -> tuple[list[int], list[float], int]:
    """Clock readings, the true times at which they were taken, and a timer's step.

    The clock runs at 0.8 to 1 cycle a ns and changes between any two readings.
    """
    gaps = draw(st.lists(st.integers(1, 40_000), min_size=1, max_size=12))
    rates = draw(st.lists(st.floats(0.8, 1.0), min_size=len(gaps), max_size=len(gaps)))
    start = draw(st.floats(0, 1e6))
    times = start + np.append(0, np.cumsum(np.array(gaps) / np.array(rates)))
    return np.append(0, np.cumsum(gaps)).tolist(), times.tolist(), draw(st.sampled_from([32, 1000, 1024]))


@given(readings())
def test_the_true_times_lie_in_the_band(taken: tuple[list[int], list[float], int]) -> None:
    clock, true, step = taken
    rounded = [int(time // step) * step for time in true]
    band = band_of(stamps(clock, rounded), step, 1000.0)
    assert band.is_possible
    assert (band.earliest_ns <= np.array(true)).all()
    assert (band.latest_ns >= np.array(true)).all()
    assert (band.latest_ns - band.earliest_ns <= step + 2 * SLACK_CYCLES / FASTEST + 1e-6).all()
    assert (np.diff(band.earliest_ns) >= 0).all()
    assert (np.diff(band.latest_ns) >= 0).all()
