"""Measure one GEMM: compile, verify, time plain against probed, keep the trace of the median launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wavescope import __version__
from wavescope.cuda_device import query
from wavescope.errors import DeviceError, UsageError
from wavescope.grid_model import UNCALIBRATED, GridModel
from wavescope.integrity import check
from wavescope.kernels import facts
from wavescope.launch import (
    Function,
    Stream,
    allocate,
    download,
    fill_bytes,
    launch,
    named_range,
    open_stream,
    wait,
)
from wavescope.operands import POISON, Values, check_set, fill_set
from wavescope.prepare import DEADLINE_S, Prepared, clear, prepare, require_met, run
from wavescope.problem import Problem, Tile
from wavescope.timing import BLOCK_S, Measured, Progress, Records, Regime, measure_regime
from wavescope.trace import STALL_KERNELS, Launch, Timing, Trace, join, spans_of_records
from wavescope.variant import Variant
from wavescope.work import Work

TIMER_STEPS = 256
TIMER_READS = 1_000_000


def measure(
    problem: Problem,
    tile: Tile,
    variant: Variant,
    device_index: int,
    *,
    regimes: Sequence[Regime] = ("cool",),
    repeat: int,
    seconds: float = BLOCK_S,
    most_ctas: int | None = None,
    seed: int,
    progress: Progress,
    model: GridModel = UNCALIBRATED,
    work: Work | None = None,
    kernel: str | None = None,
) -> Trace:
    """A trace with one launch a regime: the median one of those timed in `repeat` rounds.

    `seconds`: length of a block of the sustained regime.  `most_ctas`: CTAs an SM may
    hold at once, forced by padding shared memory.  `work`: tiles of unequal k.  `kernel`:
    its name, None for the best (kernels.kernel_for).

    Raises: UsageError for a schedule that cannot do the work; DeviceError for what the
    device cannot hold; CompileError; IntegrityError for a wrong result, or records that
    contradict the schedule; LaunchError for a kernel that fails or hangs.
    """
    if repeat < 1:
        raise UsageError(f"repeat={repeat} gives no measurement; use 1 or more")
    variant.check_work(work)
    device = query(device_index)
    fact = facts(problem, tile, device, most_ctas, kernel)
    of_work = f" ({work})" if work else ""
    stream = open_stream(device_index, f"{fact.kernel} {variant}, {problem}{of_work}, tile {tile}, {device.name}")
    progress(f"compiling {fact.kernel} {tile} for {device.name}")
    with named_range("compile"):
        prepared = prepare(problem, tile, variant, device, device_index, fact, model, work=work)
    step_ns = timer_step_ns(prepared.functions.timer, stream)
    progress("verifying on small integers")
    with named_range("verify"):
        verified = verify_integers(prepared, seed, stream)
        for index, operands in enumerate(prepared.sets):
            fill_set(prepared.functions.operands, operands, "normal", seed + index, stream)
    found: list[tuple[Timing, Records]] = []
    for regime in regimes:
        with named_range(f"time {regime}"):
            (measured,) = measure_regime([prepared], regime, repeat, seconds, stream, progress)
            found.append(timing_and_records(measured))
    progress("verifying on random operands")
    with named_range("verify"):
        verified["plain_normal"] = verify_one(prepared, prepared.functions.plain, "normal", stream)
    trace = trace_of(prepared, found, verified, step_ns)
    check(trace, prepared.schedule)
    return trace


def timer_step_ns(timer: Function, stream: Stream) -> int:
    """The step by which globaltimer moves on, in ns: the smallest of some 256 seen."""
    pairs = allocate(16 * TIMER_STEPS)
    fill_bytes(pairs, 0, stream)
    launch(timer, (1,), (pairs, np.int32(TIMER_STEPS), np.int32(TIMER_READS)), stream)
    wait(stream, DEADLINE_S)
    moments = download(pairs, np.dtype("<u8"), stream)[::2]
    steps = np.diff(moments[moments > 0].astype(np.int64))
    if len(steps) == 0:
        raise DeviceError("globaltimer does not move on this device, so spans cannot be placed in time")
    return int(steps.min())


def verify_integers(prepared: Prepared, seed: int, stream: Stream) -> dict[str, Any]:
    """Both kernels over small integers, exactly; what was found, as plain data.

    Raises: IntegrityError for a wrong element.
    """
    found: dict[str, Any] = {}
    fill_set(prepared.functions.operands, prepared.sets[0], "integers", seed, stream)
    for name in ("plain", "probed"):
        clear(prepared, stream)
        function = getattr(prepared.functions, name)
        found[f"{name}_integers"] = verify_one(prepared, function, "integers", stream)
    return found


def verify_one(prepared: Prepared, function: Function, values: Values, stream: Stream) -> dict[str, Any]:
    """One launch over a poisoned C, compared with the reference; the verdict as plain data.

    Raises: IntegrityError for a wrong element.
    """
    operands = prepared.sets[0]
    fill_bytes(operands.c, POISON, stream)
    run(prepared, function, 0, stream)
    wait(stream, prepared.deadline_s)
    require_met(prepared, stream)
    verdict = check_set(prepared.functions.operands, operands, values, stream, prepared.k_ends)
    probe = "probed" if function is prepared.functions.probed else "plain"
    verdict.require(f"{function.name} {prepared.schedule.name} ({probe}), {prepared.schedule.problem}")
    return verdict.as_found()


def timing_and_records(measured: Measured) -> tuple[Timing, Records]:
    """What a kernel of wavescope's own leaves, and a library does not."""
    assert measured.timing is not None
    assert measured.records is not None
    return measured.timing, measured.records


def trace_of(prepared: Prepared, found: list[tuple[Timing, Records]], verified: dict[str, Any], step_ns: int) -> Trace:
    """A trace of one launch for each timing and its records."""
    schedule, device, functions = prepared.schedule, prepared.device, prepared.functions
    resident = functions.recorded_ctas_per_sm(schedule)
    launches, spans = [], []
    for launch_id, (timing, records) in enumerate(found):
        of_launch, t0 = spans_of_records(
            records, launch_id, cluster=1, has_stalls=prepared.facts.kernel in STALL_KERNELS
        )
        spans.append(of_launch)
        launches.append(
            Launch(
                launch_id=launch_id,
                source="measured",
                kernel=prepared.facts.kernel,
                schedule=schedule.name,
                raster=schedule.raster.name,
                problem=schedule.problem,
                tile=schedule.tile,
                grid=schedule.num_ctas,
                block=prepared.facts.threads,
                cluster=1,
                registers=functions.plain.registers,
                shared_bytes=prepared.facts.shared_bytes,
                ctas_per_sm=resident,
                places=device.sms * resident,
                t0_globaltimer_ns=t0,
                timing=timing,
                verified=verified,
                notes=prepared.notes,
                parts=schedule.parts,
                reduction=prepared.reduction,
                reducers=schedule.reducers,
                work=None if schedule.work is None else str(schedule.work),
                order=schedule.order,
            )
        )
    return Trace(__version__, device, step_ns, tuple(launches), join(spans))
