from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.synthetic import DEVICE, Span, spans_from, trace_from
from wavescope.analyze import analyze
from wavescope.device import Device, list_devices
from wavescope.problem import Problem, Tile
from wavescope.rates import flop_per_clock, rates
from wavescope.stats import Estimate
from wavescope.trace import Kind, Timing, Trace
from wavescope.wave_report import STATES, Waterfall, WaveReport

# Two tiles of 64 x 64 x 64 on two SMs, 120 useful rows of 128; one SM clocks at half a cycle a ns.
PROBLEM, TILE = Problem(120, 64, 128), Tile(64, 64, 64)
ROWS = [
    Span(Kind.CTA, 0, 0, 0, 700),
    Span(Kind.MAC, 0, 0, 100, 600, 0, 0, 0, 0, 2),
    Span(Kind.EPILOGUE, 0, 0, 600, 650, 0, 0, 0, 0, 2),
    Span(Kind.CTA, 1, 1, 50, 1000),
    Span(Kind.MAC, 1, 1, 100, 900, 1, 1, 0, 0, 2),
    Span(Kind.EPILOGUE, 1, 1, 900, 1000, 1, 1, 0, 0, 2),
]
TIMING = Timing("cool", Estimate(1100, 1090, 1110, 9), Estimate(1250, 1225, 1275, 9), Estimate(1.13, 1.12, 1.14, 9))


def slow_second_sm() -> Trace:
    spans = spans_from(ROWS)
    slow = spans.sm == 1
    origin = spans.begin_clock.min()
    begin, end = spans.begin_clock.copy(), spans.end_clock.copy()
    begin[slow], end[slow] = origin + spans.begin_ns[slow] // 2, origin + spans.end_ns[slow] // 2
    return trace_from(
        replace(spans, begin_clock=begin, end_clock=end), sms=2, problem=PROBLEM, tile=TILE, schedule="fixed"
    )


def report(trace: Trace, device: Device | None = None, timing: Timing | None = None, step: int = 1) -> WaveReport:
    launch = replace(trace.launches[0], timing=timing)
    return analyze(replace(trace, launches=(launch,), device=device or trace.device, timer_step_ns=step))


def waterfall_of(trace: Trace, **changes: object) -> Waterfall:
    found = report(trace, **changes).waterfall  # type: ignore[arg-type]
    assert found is not None
    return found


def test_hand_worked_waterfall() -> None:
    # S = 2, rho = 4096 (sm_90 bf16), f0 = 1000 MHz: peak 2 * 4096 * 1e9 = 8.192 TFLOP/s.
    # M = 500 + 800 = 1300 ns; C = 500 + 400 = 900 cycles; clock 900 / 1300.
    # Issued: 2 tiles * 2 k_iters * 2 * 64^3 = 2097152; useful 2 * 120 * 64 * 128 = 1966080.
    # Then epilogue 50 + 100, resident 100 + 50 + 50, ramp 50, tail 300; S x T = 2000.
    found = waterfall_of(slow_second_sm(), timing=TIMING)
    assert found.peak_tflops == pytest.approx(8.192)
    assert (found.datasheet_tflops, found.flop_per_clock_sm) == (15.0, 4096)
    assert [(factor.name, factor.value) for factor in found.factors] == [
        ("clock", pytest.approx(900 / 1300)),
        ("inside tile", pytest.approx(2097152 / (4096 * 900))),
        ("padding", pytest.approx(1966080 / 2097152)),
        ("fixup", 1.0),
        ("epilogue", pytest.approx(1300 / 1450)),
        ("wait", 1.0),
        ("resident", pytest.approx(1450 / 1650)),
        ("turnaround", 1.0),
        ("ramp", pytest.approx(1650 / 1700)),
        ("tail", pytest.approx(1700 / 2000)),
        ("unfilled", 1.0),
        ("launch", pytest.approx(1000 / 1250)),
        ("probe", pytest.approx(1250 / 1100)),
    ]
    assert found.achieved_tflops == pytest.approx(1966080 / 1100 / 1e3)
    assert found.against == "plain event time, regime cool"
    assert found.factors[0].meaning == "the SM clock in mac time was 692 of 1000 MHz"


def test_errors_of_the_factors() -> None:
    # Step 2; mac has 2 stretches, 4 endpoints: 2 * 2 = 4 of 1300.  Two SMs: T0 and T1 count twice.
    errors = {factor.name: factor.error for factor in waterfall_of(slow_second_sm(), timing=TIMING, step=2).factors}
    assert errors["clock"] == pytest.approx(900 / 1300 * 4 / 1300)
    assert errors["inside tile"] == pytest.approx(2097152 / (4096 * 900) * 2 / 900)
    assert errors["padding"] == 0
    assert errors["tail"] == pytest.approx(2 * math.sqrt(6) / 2000)
    assert errors["launch"] == pytest.approx(0.8 * math.hypot(2 * math.sqrt(2) / 1000, 25 / 1250))
    assert errors["probe"] == pytest.approx(0.01)


@pytest.mark.parametrize("timing", [TIMING, None])
def test_the_product_is_exact(timing: Timing | None) -> None:
    found = waterfall_of(slow_second_sm(), timing=timing)
    product = found.peak_tflops * math.prod(factor.value for factor in found.factors)
    assert product == pytest.approx(found.achieved_tflops, rel=1e-12)


def test_without_event_time_the_product_ends_at_t() -> None:
    found = waterfall_of(slow_second_sm())
    assert [factor.name for factor in found.factors] == ["clock", "inside tile", "padding", *STATES[1:]]
    assert found.achieved_tflops == pytest.approx(1966080 / 1000 / 1e3)
    assert found.against == "T (no event time was taken)"


def test_a_share_over_one_is_named() -> None:
    # At a maximum of 500 MHz the clock factor is 1.385; the probe factor is above 1 by nature.
    slow = replace(slow_second_sm().device, max_clock_mhz=500.0)
    refusals = report(slow_second_sm(), device=slow, timing=TIMING).refusals
    assert [line for line in refusals if "over 1" in line] == [
        "The factor 'clock' is 1.3846 (error 0.0021): a share over 1 is a bug in the trace or in the device's facts, "
        "do not rely on the waterfall."
    ]
    assert not [line for line in report(slow_second_sm(), timing=TIMING).refusals if "over 1" in line]


def test_what_keeps_a_waterfall_from_being_there() -> None:
    trace = slow_second_sm()
    pascal = replace(DEVICE, sms=2, name="Old GPU", compute_capability=(6, 0))
    no_mac = trace_from([row for row in ROWS if row.kind == Kind.CTA], sms=2, problem=PROBLEM, tile=TILE)
    spans = replace(trace.spans, begin_clock=trace.spans.begin_clock * 0 - 1)
    for found, reason in [
        (report(trace, device=pascal), "no bf16 rate per clock is known for Old GPU (compute capability 6.0)"),
        (report(trace_from(ROWS, sms=2)), "the trace does not say which problem and tile were computed"),
        (report(no_mac), "the trace has no mac spans, so the time inside tiles is unknown"),
        (report(replace(trace, spans=spans)), "the spans carry no clocks"),
    ]:
        assert found.waterfall is None
        assert f"No waterfall: {reason}." in found.refusals


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "flop"),
    [
        ("NVIDIA H200", (9, 0), "bf16", 4096),
        ("NVIDIA H200", (9, 0), "fp32", 256),
        ("Tesla T4", (7, 5), "fp16", 1024),
        ("Tesla T4", (7, 5), "bf16", None),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), "fp16", 512),
        ("NVIDIA GeForce GTX 1660 Ti", (7, 5), "fp16", None),
        ("NVIDIA GeForce GTX 1660 Ti", (7, 5), "fp32", 128),
        ("NVIDIA L40S", (8, 9), "bf16", 1024),
        ("NVIDIA GeForce RTX 4090", (8, 9), "bf16", 512),
        ("NVIDIA RTX PRO 6000 Blackwell", (12, 0), "bf16", 1024),
        ("NVIDIA GeForce RTX 5090", (12, 0), "fp16", 512),
        ("Some GPU", (99, 0), "fp16", None),
    ],
)
def test_rates_by_device_and_dtype(name: str, capability: tuple[int, int], dtype: str, flop: int | None) -> None:
    rate = flop_per_clock(replace(DEVICE, name=name, compute_capability=capability), dtype)  # type: ignore[arg-type]
    assert (rate.flop if rate else None) == flop


def test_rates_agree_with_the_datasheets() -> None:
    # S x rho x the maximum clock is the datasheet's peak, which is quoted at a boost clock of 86 to 100 % of it.
    for name, device in list_devices().items():
        for dtype, peak in device.peak_tflops.items():
            rate = flop_per_clock(device, dtype)  # type: ignore[arg-type]
            assert rate is not None, (name, dtype)
            assert 0.86 < peak / (device.sms * rate.flop * device.max_clock_mhz / 1e6) < 1.02, (name, dtype)


def test_every_rate_has_a_source() -> None:
    assert all(rate.source for rate in rates())
