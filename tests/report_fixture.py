"""A WaveReport, picture and sentences made by hand: the H200's 162 tiles on 132 SMs.

Each SM runs one unit of about 43 us; 30 SMs run a second one.  The numbers are close
to a recorded run, and the budget's terms are sums over the per-SM table, so they add up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wavescope.device import Device
from wavescope.flop import Flop
from wavescope.problem import Problem, Tile
from wavescope.stats import Estimate
from wavescope.trace import Launch, Timing
from wavescope.wave_report import (
    STATES,
    Budget,
    Clock,
    CostModel,
    Factor,
    InsideTile,
    Picture,
    Quantity,
    RankWave,
    TailSplit,
    UnitCycles,
    Waterfall,
    WaveReport,
    Waves,
)

SMS = 132
SECOND_ROUND = 30
STEP_NS = 32
FACTORS = (
    Factor("clock", 0.8645, 0.0002, "SM clock while its tensor cores work, against the maximum clock"),
    Factor("inside tile", 0.9421, 0.0002, "issued FLOP against what those cycles could do"),
    Factor("padding", 1.0, 0.0, "useful FLOP against issued FLOP"),
    Factor("fixup", 1.0, 0.0, "mac time against mac and fixup time"),
    Factor("epilogue", 0.9545, 0.0001, "time before epilogues against time with them"),
    Factor("wait", 1.0, 0.0, "time before waits against time with them"),
    Factor("resident", 0.9926, 0.0001, "time in spans against time with a CTA resident"),
    Factor("turnaround", 0.9990, 0.0001, "time against time with the gaps between CTAs"),
    Factor("ramp", 0.9943, 0.0001, "time against time with the wait for the first CTA"),
    Factor("tail", 0.6190, 0.0001, "time against time with the tail"),
    Factor("unfilled", 1.0, 0.0, "time against time of SMs that never got a CTA"),
    Factor("launch", 0.9860, 0.0004, "span time against event time of the probed launch"),
    Factor("probe", 1.0012, 0.0009, "event time with the probe against without"),
)


def device() -> Device:
    return Device(
        name="NVIDIA H200",
        compute_capability=(9, 0),
        sms=SMS,
        max_clock_mhz=1980.0,
        registers_per_sm=65536,
        shared_per_sm=233472,
        shared_per_block=232448,
        shared_reserved_per_block=1024,
        threads_per_sm=2048,
        ctas_per_sm=32,
        l2_bytes=62914560,
        memory_bytes=150_000_000_000,
        memory_gb_per_s=4800.0,
        peak_tflops={"bf16": 989.0, "fp16": 989.0},
        source="driver",
    )


def launch() -> Launch:
    return Launch(
        launch_id=0,
        source="measured",
        kernel="gemm_mma",
        schedule="fixed",
        raster="grouped8",
        problem=Problem(2304, 2304, 4096, "bf16"),
        tile=Tile(128, 256, 64),
        grid=162,
        block=256,
        cluster=1,
        registers=234,
        shared_bytes=147456,
        ctas_per_sm=1,
        places=SMS,
        t0_globaltimer_ns=1_796_000_000_123_456_789,
        timing=Timing(
            regime="cool",
            plain_ns=Estimate(87_010.0, 86_880.0, 87_230.0, 41),
            probed_ns=Estimate(87_114.0, 86_960.0, 87_300.0, 41),
            perturbation=Estimate(1.0012, 1.0003, 1.0021, 41),
            cycles=Estimate(146_200.0, 146_100.0, 146_400.0, 82),
        ),
        verified={
            "plain_integers": {"values": "integers", "elements": 5308416, "worst_error": 0.0, "tolerance": "exact"},
            "plain_normal": {
                "values": "normal",
                "elements": 5308416,
                "worst_error": 0.5,
                "tolerance": "0.00394 x value",
            },
        },
    )


def per_sm() -> np.ndarray:
    """[132, 9] SM-ns by state, rows of one length."""
    rows = []
    for sm in range(SMS):
        ramp = 32 * (sm % 20)
        first = 43_008 + 32 * (sm % 7)
        second = 41_600 + 32 * (sm % 5) if sm < SECOND_ROUND else 0
        ctas = 1 + (sm < SECOND_ROUND)
        row = dict.fromkeys(STATES, 0)
        row["epilogue"] = 2048 * ctas
        row["resident"] = 320 * ctas
        row["mac"] = first + second - row["epilogue"] - row["resident"]
        row["ramp"] = ramp
        row["turnaround"] = 224 * (ctas - 1)
        rows.append(row)
    duration = max(sum(row.values()) for row in rows)
    for row in rows:
        row["tail"] = duration - sum(row.values())
    return np.array([[row[state] for state in STATES] for row in rows], np.int64)


def budget() -> Budget:
    table = per_sm()
    duration = int(table[0].sum())
    sums = dict(zip(STATES, table.sum(axis=0), strict=True))
    return Budget(
        sms=SMS,
        used_sms=SMS,
        duration_ns=duration,
        total_ns=SMS * duration,
        terms={state: Quantity(float(sums[state]), 0.0 if sums[state] == 0 else 580.0) for state in STATES},
        residual_ns=0,
        padding=Quantity(0.0, 0.0),
        sm_ids=np.arange(SMS, dtype=np.int64),
        per_sm=table,
    )


def waves() -> Waves:
    return Waves(
        places=SMS,
        num_units=162,
        nominal_waves=162 / SMS,
        efficiency=162 / 264,
        waves=(
            RankWave(0, 132, 0.0, 43_420.0, 0.9866, 1.0, 43_104.0, 43_008.0, 43_200.0, 73_880.0),
            RankWave(1, 30, 43_420.0, 85_760.0, 0.2391, 30 / SMS, 41_664.0, 41_600.0, 41_728.0, 72_900.0),
        ),
        reason=None,
        duration_ratio=0.9666,
        cycle_ratio=0.9867,
        tail_onset_ns=43_008,
        busy_shares=(0.99,) * 10 + (0.2273,) * 10,
    )


def waterfall() -> Waterfall:
    peak = SMS * 4096 * 1980e6 / 1e12
    achieved = peak
    for factor in FACTORS:
        achieved *= factor.value
    return Waterfall(peak, 989.0, 4096, FACTORS, achieved, "plain event time")


def report() -> WaveReport:
    parts = budget()
    tail = parts.terms["tail"]
    return WaveReport(
        launch=launch(),
        device=device(),
        timer_step_ns=STEP_NS,
        budget=parts,
        tail=TailSplit(
            quantization=Quantity(tail.value - 31_000.0, 900.0),
            imbalance=Quantity(31_000.0, 1_070.0),
            makespan_ns=84_700.0,
            cost=CostModel(per_k_iter_ns=661.7, store_ns=0.0, partial_ns=0.0, r_squared=None),
        ),
        waves=waves(),
        waterfall=waterfall(),
        clock=Clock(1711.8, 1690.2, 1733.4, 1725.0, 1702.5),
        bound=Quantity(parts.total_ns / parts.not_idle.value, 0.0002),
        active_cycles_ratio=0.6214,
        longest_sm_cycles=146_200,
        place_busy=parts.not_idle.value / parts.total_ns,
        refusals=(),
        flop=Flop(2 * 2304 * 2304 * 4096, 2 * 2304 * 2304 * 4096),
    )


def inside() -> InsideTile:
    """162 units of 64 k_iters of 1024 cycles, 132 of them their CTA's first, all alike otherwise."""
    first, units = SMS, 162
    totals = {
        "pipe": units * 65_536.0,
        "operands": units * 320.0,
        "fill": first * 3_500.0,
        "rest": units * 410.0,
        "epilogue": units * 2_000.0,
        "drain": first * 150.0,
        "room": units * 62_000.0,
    }
    medians = {name: total / (first if name in ("fill", "drain") else units) for name, total in totals.items()}
    per_sm = np.outer(np.ones(SMS), np.array(list(totals.values())) / SMS)
    errors = {"operands": 900.0, "fill": 850.0, "rest": 512.0 * units}
    return InsideTile(
        units=units,
        pipe_per_k_iter=1024.0,
        parts={name: UnitCycles(totals[name], medians[name], medians[name], errors.get(name, 0.0)) for name in totals},
        fill_known=True,
        limit="tensor",
        sentence="Tensor-bound: the copying warp waits for room in 90% of the mac cycles.",
        per_sm=per_sm,
    )


def inside_report() -> WaveReport:
    """The same findings of a launch that measured how long its units waited."""
    real = report()
    assert real.waterfall is not None
    clock, _, *states = real.waterfall.factors
    within = (
        Factor("issue rate", 1.0, 0.0, "what the kernel's instruction reaches of the SM's rate"),
        Factor("operands", 0.9951, 0.0001, "cycles in which the pipe did not idle for want of operands"),
        Factor("pipe fill", 0.9586, 0.0001, "cycles not spent on the first operands of a CTA"),
        Factor("rest of mac", 0.9876, 0.0074, "cycles in which the pipe did not idle for another reason"),
    )
    fall = replace(real.waterfall, factors=(clock, *within, *states))
    kept = replace(real.launch, kernel="gemm_sm90", block=384)
    return replace(real, launch=kept, waterfall=fall, inside=inside())


def simulated_report() -> WaveReport:
    """The same findings as a virtual device's: no event times, a note that says why."""
    real = report()
    kept = replace(
        real.launch, source="simulated", timing=None, notes=("simulated because no CUDA device was found",), verified={}
    )
    return replace(real, launch=kept)


def no_waves_report() -> WaveReport:
    """Units of two sizes: no waves, and the reason."""
    real = report()
    none = replace(
        real.waves,
        waves=(),
        reason="units differ in size under schedule streamk (12 to 64 k_iters), so they have no wave in common",
        duration_ratio=None,
        cycle_ratio=None,
    )
    return replace(real, waves=none)


def many_waves_report(count: int = 3000) -> WaveReport:
    """A report with `count` full waves of 10 us."""
    rows = tuple(
        RankWave(i, SMS, i * 10_000.0, (i + 1) * 10_000.0, 0.99, 1.0, 9_900.0, 9_800.0, 9_950.0, 16_900.0)
        for i in range(count)
    )
    real = report()
    return replace(real, waves=replace(real.waves, num_units=SMS * count, waves=rows, nominal_waves=float(count)))


def picture(rows: int = 22, columns: int = 60) -> Picture:
    """Mac, then epilogue at each unit's end, tail where there is no second unit."""
    table = per_sm()
    duration = int(table[0].sum())
    merged = -(-SMS // rows)
    groups = tuple(tuple(range(at, min(at + merged, SMS))) for at in range(0, SMS, merged))
    column_ns = duration / columns
    cells = np.full((len(groups), columns), STATES.index("mac"), np.int8)
    for row, sms in enumerate(groups):
        first_end = int((43_008 + 32 * (sms[0] % 7)) / column_ns)
        cells[row, first_end - 1] = STATES.index("epilogue")
        second = sms[-1] < SECOND_ROUND
        cells[row, first_end:] = STATES.index("mac" if second else "tail")
        if second:
            cells[row, -1] = STATES.index("epilogue")
    return Picture(cells, groups, column_ns, merged)


SENTENCES = (
    "162 tiles on 132 SMs: the second round occupies 30 of them, so 102 SMs idle for half of the time.",
    "38.0 % of all SM time is tail, 99.3 % of it quantization: another tile or schedule can change it, tuning cannot.",
    "Units of the second round take 0.97 of the first round's time: fewer SMs share power and memory.",
)
