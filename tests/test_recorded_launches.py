"""The virtual device against the real one: every launch recorded in tests/data/h200, simulated and compared."""

from functools import cache
from math import prod

import numpy as np
import pytest

from tests.recorded import DATA
from wavescope import virtual
from wavescope.analyze import analyze
from wavescope.calibrate import each_launch, groups_of
from wavescope.calibration_row import Calibration
from wavescope.device import virtual_device
from wavescope.integrity import check
from wavescope.kernel_table import GEMM_MMA, GEMM_SIMT, KERNELS, Kernel
from wavescope.leave_one_out import leave_one_out
from wavescope.problem import Problem
from wavescope.replay import replay
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES
from wavescope.trace import Kind, Trace
from wavescope.trace_file import load
from wavescope.variant import Variant, schedule_of

H200 = virtual_device("h200")
SPLIT_ERROR = 0.1
# What the simulation does not reproduce to these bounds, launch by launch, and how far it is off (2026-11-30).
KNOWN = {
    ("gemm_simt-128x128x8-edges", "time"): 0.085,  # 8.3 % long
    ("gemm_mma-128x128x32-edges", "busy"): 0.036,  # 3.5 points less
    ("gemm_mma-128x128x32-schedules 3", "time"): 0.11,  # splitk:3, 10.6 % short
    ("gemm_mma-64x64x64-persistent-2304x1792x2048", "units"): 0.12,  # the shortest tenth is 11.5 % short
}


@cache
def recordings() -> dict[str, Trace]:
    """A trace of one launch each: by file, and by number where a file holds several."""
    found = {}
    for path in sorted(DATA.glob("gemm*.parquet")):
        alone = each_launch([load(path)])
        for trace in alone:
            found[path.stem + (f" {trace.launches[0].launch_id}" if len(alone) > 1 else "")] = trace
    return found


NAMES = list(recordings())
SPLIT = [name for name, trace in recordings().items() if trace.launches[0].schedule in SPLIT_SCHEDULES]


def recorded(name: str) -> Trace:
    return recordings()[name]


def simulated(trace: Trace, calibration: Calibration | None = None) -> Trace:
    """The same launch on the virtual device."""
    launch = trace.launches[0]
    return replay(launch, schedule_of(launch), H200, calibration)


def duration_us(trace: Trace) -> float:
    return float(trace.spans.end_ns.max()) / 1e3


def main_loops_us(trace: Trace) -> list[float]:
    """10th, 50th and 90th percentile of the main loops' lengths."""
    macs = trace.spans.select(trace.spans.kind == Kind.MAC)
    return [float(value) for value in np.percentile((macs.end_ns - macs.begin_ns) / 1e3, [10, 50, 90])]


def units_of_sms(trace: Trace) -> list[int]:
    """How many SMs ran 0, 1, 2, .. units."""
    macs = trace.spans.sm[trace.spans.kind == Kind.MAC]
    _, units = np.unique(macs, return_counts=True)
    return np.bincount(units).tolist()


def test_every_tile_is_recorded_and_no_other() -> None:
    launches = [recorded(name).launches[0] for name in NAMES]
    assert {(launch.kernel, launch.tile) for launch in launches} == {
        (kernel.name, code.tile) for kernel in (GEMM_MMA, GEMM_SIMT) for code in kernel.codes
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_launch_is_reproduced(name: str) -> None:
    """Its time to 3 % with one CTA an SM, 6 % with several, 10 % with split tiles; where time is lost; units' lengths."""
    real = recorded(name)
    copy = simulated(real)
    check(copy, schedule_of(real.launches[0]))
    assert copy.launches[0].notes[1].startswith("unit costs as recorded"), "the launch was left out of the calibration"
    several = real.launches[0].ctas_per_sm > 1
    assert duration_us(copy) == pytest.approx(
        duration_us(real),
        rel=KNOWN.get((name, "time")) or (SPLIT_ERROR if name in SPLIT else 0.06 if several else 0.03),
    )
    budget, real_budget = analyze(copy).budget, analyze(real).budget
    assert budget.not_idle.value / budget.total_ns == pytest.approx(
        real_budget.not_idle.value / real_budget.total_ns,
        abs=KNOWN.get((name, "busy")) or (0.06 if name in SPLIT else 0.03),
    )
    if name not in SPLIT:
        within = KNOWN.get((name, "units")) or (0.1 if several else 0.05)
        assert main_loops_us(copy) == pytest.approx(main_loops_us(real), rel=within)


@pytest.mark.parametrize("name", [name for name in NAMES if recorded(name).launches[0].schedule == "persistent"])
def test_persistent_units_lie_on_the_sms_as_recorded(name: str) -> None:
    """Which SMs get how many is decided by the order of the first CTAs, and decides the time."""
    assert units_of_sms(simulated(recorded(name))) == units_of_sms(recorded(name))


def test_a_launch_is_predicted_from_the_others_of_its_tile() -> None:
    """Fitted without it, half of the launches come out to 3 % in time and nine tenths to 6 %, with split tiles to 8 %.

    Tiles with one CTA an SM only: with several a fit takes seconds, and there is one for each launch.
    """
    errors: dict[bool, list[float]] = {False: [], True: []}
    alone = [trace for trace in recordings().values() if trace.launches[0].ctas_per_sm == 1]
    groups = groups_of(alone)
    for alike in groups:
        for found in leave_one_out(alike):
            if not found.missing:
                errors[found.launch.schedule in SPLIT_SCHEDULES].append(abs(found.error))
    launches = [trace.launches[0] for alike in groups for trace in alike]
    split = [launch for launch in launches if launch.schedule in SPLIT_SCHEDULES]
    assert len(errors[False]) == len(launches) - len(split) - len(groups)  # but for the only one with edges
    assert len(errors[True]) >= 0.8 * len(split)  # some have costs that no other launch shows
    for is_split, most in ((False, 0.06), (True, 0.08)):
        middle, high, worst = np.quantile(errors[is_split], [0.5, 0.9, 1.0])
        assert middle <= 0.03
        assert high <= most
        assert worst <= 0.2


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_simulated_reports_add_up(kernel: Kernel) -> None:
    """Every tile and schedule, on full and part-filled devices: the spans can be true, and the identities hold."""
    problem = Problem(2304, 1790, 500, kernel.dtypes[0])
    for code in kernel.codes:
        for schedule in SCHEDULES:
            for most_ctas in (None, 1):
                trace = virtual.run(problem, code.tile, Variant(schedule), H200, reason="of tests", most_ctas=most_ctas)
                check(trace)
                report = analyze(trace)
                budget, tail, waterfall = report.budget, report.tail, report.waterfall
                assert budget.total_ns == H200.sms * trace.spans.end_ns.max()
                assert sum(term.value for term in budget.terms.values()) == budget.total_ns
                assert budget.residual_ns == 0
                assert tail is not None
                assert tail.quantization.value + tail.imbalance.value == pytest.approx(budget.terms["tail"].value)
                assert waterfall is not None
                factors = prod(factor.value for factor in waterfall.factors)
                assert waterfall.peak_tflops * factors == pytest.approx(waterfall.achieved_tflops)
