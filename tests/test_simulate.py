"""The virtual device: hand-worked schedules on four SMs, one cycle a nanosecond, no noise."""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.recorded import triton_matmul
from tests.synthetic import DEVICE
from wavescope.calibration import table
from wavescope.calibration_row import Calibration
from wavescope.device import virtual_device
from wavescope.errors import ShapeError
from wavescope.first_wave import first_wave_order
from wavescope.integrity import check
from wavescope.problem import Problem, Tile
from wavescope.schedule import Raster, Schedule, decompose
from wavescope.simulate import simulate
from wavescope.simulated_spans import TIMER_STEP_NS
from wavescope.trace import NULL, Kind, Spans, Trace

TILE = Tile(16, 16, 16)
FREE = Calibration(
    kernel="toy",
    tile=TILE,
    dtype="bf16",
    device="Test GPU",
    ctas_per_sm=1,
    cycles_per_k_iter=320.0,
    fixed_cycles=0.0,
    cold_cycles=0.0,
    fill_cycles=0.0,
    beside_cycles=0.0,
    epilogue_cycles=0.0,
    prologue_cycles=0.0,
    exit_cycles=0.0,
    gap_cycles=0.0,
    queue_gap_cycles=0.0,
    turnaround_cycles=0.0,
    partial_cycles=0.0,
    add_cycles=0.0,
    share_cycles=0.0,
    spare_cycles=0.0,
    ramp_ns=0.0,
    clock_mhz=1000.0,
    idle_clock_mhz=1000.0,
    clock_spread=0.0,
    idle_gain=0.0,
    sharing=1.0,
    seniority=0.0,
    stream_slowdown=0.0,
    edge_slowdown=0.0,
    noise=0.0,
    source="made up for tests",
)
# Everything costs something; all are multiples of the timer's 32 ns.
COSTLY = replace(
    FREE,
    fixed_cycles=160.0,
    epilogue_cycles=128.0,
    prologue_cycles=64.0,
    exit_cycles=32.0,
    gap_cycles=32.0,
    queue_gap_cycles=96.0,
    turnaround_cycles=192.0,
)


def tiles(count: int, name: str = "fixed", places: int = 4, k_iters: int = 10) -> Schedule:
    """`count` tiles in a row of C."""
    return decompose(name, Problem(16, 16 * count, 16 * k_iters), TILE, places, Raster("row"))


def run(schedule: Schedule, calibration: Calibration, sms: int = 4, ctas_per_sm: int = 1, seed: int = 0) -> Trace:
    return simulate(
        schedule,
        replace(DEVICE, sms=sms, max_clock_mhz=2000.0),
        kernel="toy",
        block=128,
        registers=64,
        shared_bytes=1024,
        ctas_per_sm=ctas_per_sm,
        seed=seed,
        calibration=calibration,
    )


def spans_of(trace: Trace, kind: Kind) -> Spans:
    return trace.spans.select(trace.spans.kind == kind)


def rows(spans: Spans, *names: str) -> list[tuple[int, ...]]:
    return sorted(zip(*(getattr(spans, name).tolist() for name in names), strict=True))


def uneven(k_iters: Sequence[int], num_ctas: int, dispatch: str, cta: Sequence[int]) -> Schedule:
    """Units of different size, which decompose does not make."""
    count = len(k_iters)
    index = np.arange(count, dtype=np.int32)
    return Schedule(
        name=dispatch,
        problem=Problem(16, 16 * count, 16 * max(k_iters)),
        tile=TILE,
        raster=Raster("row"),
        num_ctas=num_ctas,
        dispatch=dispatch,  # type: ignore[arg-type]
        parts=1,
        split_tiles=0,
        reducers=0,
        num_slots=0,
        unit=index,
        cta=np.array(cta, np.int32),
        tile_m=np.zeros(count, np.int32),
        tile_n=index,
        k_begin=np.zeros(count, np.int32),
        k_end=np.array(k_iters, np.int32),
        first_slot=0 * index,
        rank=0 * index,
        peers=0 * index + 1,
    )


def busy_share(trace: Trace) -> float:
    ctas = spans_of(trace, Kind.CTA)
    return float((ctas.end_ns - ctas.begin_ns).sum() / (trace.device.sms * ctas.end_ns.max()))


def test_fixed_five_tiles_on_four_sms() -> None:
    # a CTA: 64 prologue + (10 * 320 + 160) mac + 128 epilogue + 32 exit = 3584; the fifth begins
    # 192 after the first to end, on the lowest SM
    trace = run(tiles(5), COSTLY)
    assert rows(spans_of(trace, Kind.CTA), "cta", "sm", "begin_ns", "end_ns", "unit") == [
        (0, 0, 0, 3584, NULL),
        (1, 1, 0, 3584, NULL),
        (2, 2, 0, 3584, NULL),
        (3, 3, 0, 3584, NULL),
        (4, 0, 3776, 7360, NULL),
    ]
    assert rows(spans_of(trace, Kind.MAC), "unit", "cta", "sm", "begin_ns", "end_ns", "tile_n", "k_begin", "k_end") == [
        (0, 0, 0, 64, 3424, 0, 0, 10),
        (1, 1, 1, 64, 3424, 1, 0, 10),
        (2, 2, 2, 64, 3424, 2, 0, 10),
        (3, 3, 3, 64, 3424, 3, 0, 10),
        (4, 4, 0, 3840, 7200, 4, 0, 10),
    ]
    assert rows(spans_of(trace, Kind.EPILOGUE), "unit", "sm", "begin_ns", "end_ns") == [
        (0, 0, 3424, 3552),
        (1, 1, 3424, 3552),
        (2, 2, 3424, 3552),
        (3, 3, 3424, 3552),
        (4, 0, 7200, 7328),
    ]


def test_persistent_five_tiles_on_four_sms() -> None:
    # CTA 0: prologue 64, unit 0 until 3424 + 128, gap 32, unit 4 from 3584, exit 32
    trace = run(tiles(5, "persistent"), COSTLY)
    assert rows(spans_of(trace, Kind.CTA), "cta", "sm", "begin_ns", "end_ns") == [
        (0, 0, 0, 7104),
        (1, 1, 0, 3584),
        (2, 2, 0, 3584),
        (3, 3, 0, 3584),
    ]
    assert rows(spans_of(trace, Kind.MAC), "unit", "cta", "begin_ns", "end_ns")[-1] == (4, 0, 3584, 6944)
    assert rows(spans_of(trace, Kind.EPILOGUE), "unit", "begin_ns", "end_ns")[-1] == (4, 6944, 7072)


def test_a_queue_gives_to_who_is_free_first() -> None:
    # 320 cycles a k_iter: units of 10, 2, 4, 1, 8 k_iters on 2 CTAs.
    # CTA 1: unit 1 until 640, unit 2 until 1920, unit 3 until 2240, unit 4 until 4800
    trace = run(uneven([10, 2, 4, 1, 8], 2, "queue", [-1] * 5), FREE, sms=2)
    assert rows(spans_of(trace, Kind.MAC), "unit", "cta", "sm", "begin_ns", "end_ns") == [
        (0, 0, 0, 0, 3200),
        (1, 1, 1, 0, 640),
        (2, 1, 1, 640, 1920),
        (3, 1, 1, 1920, 2240),
        (4, 1, 1, 2240, 4800),
    ]
    # the same units, dealt out beforehand: CTA 0 takes 0, 2, 4 and CTA 1 takes 1, 3
    trace = run(uneven([10, 2, 4, 1, 8], 2, "static", [0, 1, 0, 1, 0]), FREE, sms=2)
    assert rows(spans_of(trace, Kind.MAC), "unit", "cta", "begin_ns", "end_ns") == [
        (0, 0, 0, 3200),
        (1, 1, 0, 640),
        (2, 0, 3200, 4480),
        (3, 1, 640, 960),
        (4, 0, 4480, 7040),
    ]


@pytest.mark.parametrize("name", ["fixed", "persistent", "dynamic"])
@pytest.mark.parametrize(
    ("problem", "tile", "units", "waves", "busy"),
    [
        (Problem(384, 384, 128), Tile(128, 128, 4), 9, 3, 9 / 12),
        (Problem(384, 384, 128), Tile(128, 64, 4), 18, 5, 18 / 20),
        (Problem(896, 384, 128), Tile(128, 128, 4), 21, 6, 21 / 24),
    ],
    ids=["75 %", "90 %", "87.5 %"],
)
def test_four_sms_of_the_stream_k_paper(
    name: str, problem: Problem, tile: Tile, units: int, waves: int, busy: float
) -> None:
    # 32 k_iters of 320 cycles: a wave takes 10240 ns
    trace = run(decompose(name, problem, tile, 4), FREE)
    assert len(spans_of(trace, Kind.MAC)) == units
    assert trace.spans.end_ns.max() == waves * 10240
    assert busy_share(trace) == busy


def test_persistent_launches_as_many_ctas_as_places() -> None:
    trace = run(tiles(40, "persistent", places=8), FREE, ctas_per_sm=2)
    ctas = spans_of(trace, Kind.CTA)
    assert rows(ctas, "cta", "sm") == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1), (6, 2), (7, 3)]
    assert trace.launches[0].grid == 8
    assert trace.launches[0].places == 8
    assert len(spans_of(trace, Kind.MAC)) == 40


@pytest.mark.parametrize(("sharing", "end"), [(1.0, 1536), (0.5, 1792), (0.0, 2048)])
def test_a_cta_alone_on_its_sm_takes_a_larger_share(sharing: float, end: int) -> None:
    # one SM, two places, three units of 1024 at a full SM: the third is alone from 1024 on and
    # takes 1024 * (1 - sharing / 2)
    calibration = replace(FREE, ctas_per_sm=2, sharing=sharing)
    trace = run(tiles(3, places=2), replace(calibration, cycles_per_k_iter=102.4), sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.CTA), "cta", "begin_ns", "end_ns") == [(0, 0, 1024), (1, 0, 1024), (2, 1024, end)]


def test_a_unit_speeds_up_when_its_neighbour_ends() -> None:
    # one SM, 320 cycles a k_iter with both there: unit 0 (10) ends at 3200, when unit 1 (30) has
    # 20 left, at twice the speed: 3200 more
    calibration = replace(FREE, ctas_per_sm=2)
    trace = run(uneven([10, 30], 2, "static", [0, 1]), calibration, sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.MAC), "unit", "begin_ns", "end_ns") == [(0, 0, 3200), (1, 0, 6400)]


# One SM with two places; 3200 cycles a unit with both there, so 1600 alone.  Of two, the older
# runs at 4/3 and the younger at 2/3, half as fast.
UNFAIR = replace(FREE, ctas_per_sm=2, seniority=0.5)


def test_the_older_cta_runs_faster() -> None:
    # unit 0: 3200 / (4/3) = 2400; unit 1 then has 1600 left, alone at 2: until 3200
    trace = run(tiles(2, places=2), UNFAIR, sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.MAC), "unit", "begin_ns", "end_ns") == [(0, 0, 2400), (1, 0, 3200)]


def test_the_one_that_comes_next_is_the_youngest() -> None:
    # at 2400 unit 1 is the older one, with 1600 left at 4/3: until 3600, by the timer 3584; unit 2
    # has then done 800 of 3200, and the rest alone at 2: until 4800
    trace = run(tiles(3, places=2), UNFAIR, sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.MAC), "unit", "begin_ns", "end_ns") == [
        (0, 0, 2400),
        (1, 0, 3584),
        (2, 2400, 4800),
    ]


def test_a_persistent_cta_stays_the_older_one() -> None:
    # CTA 0 does units 0 and 2 at 4/3, until 2400 and 4800; CTA 1 unit 1 at 2/3 until 4800, then
    # unit 3 alone at 2: until 6400
    trace = run(tiles(4, "persistent", places=2), UNFAIR, sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.MAC), "unit", "cta", "begin_ns", "end_ns") == [
        (0, 0, 0, 2400),
        (1, 1, 0, 4800),
        (2, 0, 2400, 4800),
        (3, 1, 4800, 6400),
    ]


def test_an_epilogue_leaves_the_tensor_cores_to_the_others() -> None:
    # unit 0's main loop ends at 2400; storing takes 512 with another at work, while unit 1, alone
    # in its main loop, does 1600 at 2 until 3200; alone its epilogue takes 256
    trace = run(tiles(2, places=2), replace(UNFAIR, epilogue_cycles=512.0), sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.MAC), "unit", "begin_ns", "end_ns") == [(0, 0, 2400), (1, 0, 3200)]
    assert rows(spans_of(trace, Kind.EPILOGUE), "unit", "begin_ns", "end_ns") == [(0, 2400, 2912), (1, 3200, 3456)]


def test_what_comes_before_and_after_is_not_shared() -> None:
    # both: prologue 64, main loop until 3264, exit 32; turnaround 192 and prologue 64 later the
    # third begins its main loop, alone: 1600 cycles
    latencies = replace(UNFAIR, seniority=0.0, prologue_cycles=64.0, exit_cycles=32.0, turnaround_cycles=192.0)
    trace = run(tiles(3, places=2), latencies, sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.CTA), "cta", "begin_ns", "end_ns") == [(0, 0, 3296), (1, 0, 3296), (2, 3488, 5184)]
    assert rows(spans_of(trace, Kind.MAC), "unit", "begin_ns", "end_ns") == [
        (0, 64, 3264),
        (1, 64, 3264),
        (2, 3552, 5152),
    ]


def test_fewer_ctas_than_calibrated_run_as_if_the_others_had_gone() -> None:
    # calibrated with two, sharing 1/2: alone 1 / (1 - 1/4) times as fast, so 3200 takes 2400; an
    # epilogue takes half
    calibration = replace(FREE, ctas_per_sm=2, sharing=0.5, epilogue_cycles=128.0)
    trace = run(tiles(1), calibration, sms=1)
    assert rows(spans_of(trace, Kind.MAC), "begin_ns", "end_ns") == [(0, 2400)]
    assert rows(spans_of(trace, Kind.EPILOGUE), "begin_ns", "end_ns") == [(2400, 2464)]


def test_more_ctas_than_calibrated_share_one_throughput() -> None:
    # calibrated alone: 3200 a unit; two at once take 6400 each
    trace = run(tiles(2, places=2), FREE, sms=1, ctas_per_sm=2)
    assert rows(spans_of(trace, Kind.MAC), "begin_ns", "end_ns") == [(0, 6400), (0, 6400)]
    assert "2 CTAs per SM, calibrated with 1: estimated" in trace.launches[0].notes[-1]


def test_the_clock_rises_with_the_last_partial_wave() -> None:
    # unit 4 is alone on 4 SMs: 3/4 idle, so its clock is 1000 + 3/4 * 800 = 1600 MHz: 3200 cycles
    # in 2000 ns, floored to 32 ns: 5200 -> 5184
    trace = run(tiles(5), replace(FREE, idle_clock_mhz=1800.0))
    last = spans_of(trace, Kind.MAC).select(np.array([4]))
    assert rows(last, "unit", "begin_ns", "end_ns") == [(4, 3200, 5184)]
    assert (last.end_clock - last.begin_clock).tolist() == [3200]


def test_a_last_partial_wave_costs_fewer_cycles() -> None:
    # 3/4 of the SMs idle, gain 1/3: 10 * 320 * (1 - 1/4) = 2400 cycles
    trace = run(tiles(5), replace(FREE, idle_gain=1 / 3))
    macs = spans_of(trace, Kind.MAC)
    assert (macs.end_clock - macs.begin_clock).tolist() == [3200, 3200, 3200, 3200, 2400]


@pytest.mark.parametrize("name", ["fixed", "persistent", "dynamic"])
def test_the_first_unit_of_a_place_is_cold(name: str) -> None:
    trace = run(tiles(8, name), replace(FREE, cold_cycles=96.0))
    macs = spans_of(trace, Kind.MAC)
    assert (macs.end_ns - macs.begin_ns).tolist() == [3296] * 4 + [3200] * 4


def test_sms_begin_one_after_the_other() -> None:
    trace = run(tiles(4), replace(FREE, ramp_ns=96.0))
    assert rows(spans_of(trace, Kind.CTA), "sm", "begin_ns") == [(0, 0), (1, 32), (2, 64), (3, 96)]


def test_clocks_of_different_sms_have_no_common_origin() -> None:
    trace = run(tiles(4), FREE)
    assert len(np.unique(trace.spans.begin_clock)) == 4


def test_same_seed_same_trace() -> None:
    noisy = replace(COSTLY, noise=0.05, clock_spread=0.01)
    first, again, other = (run(tiles(50), noisy, seed=seed) for seed in (7, 7, 8))
    same = [np.array_equal(getattr(first.spans, f.name), getattr(again.spans, f.name)) for f in fields(Spans)]
    assert all(same)
    assert not np.array_equal(first.spans.end_ns, other.spans.end_ns)


def test_noise_and_clock_spread_are_as_calibrated() -> None:
    macs = spans_of(run(tiles(4000), replace(FREE, cycles_per_k_iter=100_000.0, noise=0.02)), Kind.MAC)
    cycles = macs.end_clock - macs.begin_clock
    assert np.log(cycles).std() == pytest.approx(0.02, rel=0.05)
    assert np.median(cycles) == pytest.approx(1_000_000, rel=0.002)
    macs = spans_of(
        run(tiles(2000, places=2000), replace(FREE, cycles_per_k_iter=1e6, clock_spread=0.01), 2000), Kind.MAC
    )
    mhz = (macs.end_clock - macs.begin_clock) / (macs.end_ns - macs.begin_ns) * 1e3
    assert mhz.std() == pytest.approx(10, rel=0.1)
    assert mhz.mean() == pytest.approx(1000, rel=0.001)


def test_more_resident_ctas_than_places_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"8 CTAs must be resident, and Test GPU has 4 places \(1 CTAs on each of 4"):
        run(tiles(20, "persistent", places=8), FREE)
    with pytest.raises(ShapeError, match="Test GPU has 0 places"):
        run(tiles(20), FREE, ctas_per_sm=0)


def test_the_launch_says_what_is_simulated_and_from_what() -> None:
    launch = run(tiles(5), FREE).launches[0]
    assert launch.source == "simulated"
    assert (launch.kernel, launch.schedule, launch.raster, launch.grid) == ("toy", "fixed", "row", 5)
    assert (launch.block, launch.registers, launch.shared_bytes, launch.cluster) == (128, 64, 1024, 1)
    assert launch.notes[0].startswith("simulated: no GPU ran this")
    assert launch.notes[1] == "unit costs as recorded: toy 16x16x16 bf16 on Test GPU, made up for tests"
    assert launch.timing is None


def test_first_wave_orders_name_each_place_once() -> None:
    device = virtual_device("h200")
    for ctas_per_sm in range(1, 7):
        order = first_wave_order(device, ctas_per_sm)
        assert (np.bincount(order) == ctas_per_sm).all()
        assert len(order) == device.sms * ctas_per_sm
    order = first_wave_order(device)
    assert sorted(order[:8].tolist()) == [124, 125, 126, 127, 128, 129, 130, 131]
    assert order[8:16].tolist() == [0, 1, 16, 17, 32, 33, 48, 49]  # by clock domains; the first one differs by launch
    assert first_wave_order(replace(device, sms=16), 2).tolist() == [*range(16), *range(16)]
    assert first_wave_order(DEVICE).tolist() == [0, 1, 2, 3]


def test_eight_sms_have_all_their_ctas_first() -> None:
    # recorded with three CTAs an SM: SMs 124 to 131 are full after 200 CTAs, when most others have one or two
    first = np.bincount(first_wave_order(virtual_device("h200"), 3)[:200], minlength=132)
    assert first[124:].tolist() == [3] * 8
    assert first[:124].max() == 2


def test_a_grid_that_does_not_fill_the_device_goes_round_evenly() -> None:
    device = virtual_device("h200")
    for ctas, most in ((132, 1), (140, 2), (263, 2)):
        schedule = tiles(ctas, places=264)
        trace = simulate(
            schedule, device, kernel="toy", block=1, registers=1, shared_bytes=0, ctas_per_sm=2, calibration=FREE
        )
        on_sm = np.bincount(spans_of(trace, Kind.CTA).sm, minlength=132)
        assert (on_sm.min(), on_sm.max()) == (1, most)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 60),
    name=st.sampled_from(["fixed", "persistent", "dynamic"]),
    sms=st.integers(1, 5),
    ctas_per_sm=st.integers(1, 3),
    calibrated_with=st.integers(1, 3),
    sharing=st.floats(0, 1),
    seniority=st.floats(0, 0.99),
    noise=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 2**32),
)
def test_every_trace_can_be_true(
    count: int,
    name: str,
    sms: int,
    ctas_per_sm: int,
    calibrated_with: int,
    sharing: float,
    seniority: float,
    noise: float,
    seed: int,
) -> None:
    calibration = replace(
        COSTLY,
        ctas_per_sm=calibrated_with,
        sharing=sharing,
        seniority=seniority,
        noise=noise,
        clock_spread=noise,
        idle_clock_mhz=1300.0,
    )
    schedule = tiles(count, name, places=sms * ctas_per_sm)
    trace = run(schedule, calibration, sms, ctas_per_sm, seed)
    check(trace, schedule)  # coverage, one SM a CTA, spans inside, no more CTAs on an SM than fit
    macs, ctas = spans_of(trace, Kind.MAC), spans_of(trace, Kind.CTA)
    assert np.array_equal(macs.unit, np.arange(count))
    assert len(ctas) == schedule.num_ctas == trace.launches[0].grid
    assert trace.spans.begin_ns.min() == 0
    assert not (trace.spans.begin_ns % TIMER_STEP_NS).any()
    assert (trace.spans.end_clock >= trace.spans.begin_clock).all()
    assert len(np.unique(ctas.sm)) == min(sms, schedule.num_ctas)


def test_the_recorded_launch_is_reproduced() -> None:
    """162 tiles on the H200: 61.8 % of the SM time busy, 92.6 us; costs fitted on three launches."""
    device = virtual_device("h200")
    recorded = triton_matmul("triton_matmul_2304", Problem(2304, 2304, 4096))
    calibration = next(row for row in table() if row.kernel == "triton_matmul")
    schedule = decompose("fixed", Problem(2304, 2304, 4096), Tile(128, 256, 64), device.sms)
    simulated = simulate(
        schedule,
        device,
        kernel="triton_matmul",
        block=256,
        registers=204,
        shared_bytes=0,
        ctas_per_sm=1,
        calibration=calibration,
    )
    assert busy_share(recorded) == pytest.approx(0.618, abs=0.001)
    assert busy_share(simulated) == pytest.approx(busy_share(recorded), abs=0.02)
    assert simulated.spans.end_ns.max() == pytest.approx(recorded.spans.end_ns.max(), rel=0.03)


def test_no_clock_passes_the_devices_maximum() -> None:
    # calibrated at 1990 MHz with a spread of 1 %, and rising: a device of 2000 MHz stays below that
    fast = replace(FREE, clock_mhz=1990.0, idle_clock_mhz=2100.0, clock_spread=0.01)
    macs = spans_of(run(tiles(2001, places=2000), replace(fast, cycles_per_k_iter=1e6), 2000), Kind.MAC)
    mhz = (macs.end_clock - macs.begin_clock) / (macs.end_ns - macs.begin_ns) * 1e3
    assert mhz.max() <= 2000 * 1.0001  # times are floored to the timer's step
    assert mhz.min() < 1990
