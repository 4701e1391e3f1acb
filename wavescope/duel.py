"""Measure several schedules of one problem against each other, and against a library."""

from __future__ import annotations

from collections.abc import Sequence

from wavescope.cuda_device import query
from wavescope.errors import WavescopeError
from wavescope.grid_model import UNCALIBRATED, GridModel
from wavescope.integrity import check
from wavescope.kernels import facts
from wavescope.launch import Stream, fill_bytes, named_range, open_stream
from wavescope.library import cublas
from wavescope.measure import timer_step_ns, timing_and_records, trace_of, verify_integers, verify_one
from wavescope.operands import POISON, check_set, fill_set
from wavescope.prepare import Prepared, prepare
from wavescope.problem import Problem, Tile
from wavescope.timing import BLOCK_S, Library, Measured, Progress, Regime, measure_regime
from wavescope.trace import Trace
from wavescope.variant import Variant


def measure_all(
    problem: Problem,
    tile: Tile,
    variants: Sequence[Variant],
    device_index: int,
    *,
    library: bool = False,
    regimes: Sequence[Regime] = ("cool", "sustained"),
    repeat: int,
    seconds: float = BLOCK_S,
    most_ctas: int | None = None,
    seed: int,
    progress: Progress,
    model: GridModel = UNCALIBRATED,
) -> tuple[list[Trace], list[dict[Regime, Measured]], str | None]:
    """Traces of all variants (a launch a regime), what was measured of each, and why the library is missing.

    All use the same operands and are timed in one sequence (timing.measure_regime); with
    `library`, cuBLAS is the last one measured, and has no trace.

    Raises: as measure.measure; DeviceError where two of them do not fit together.
    """
    device = query(device_index)
    fact = facts(problem, tile, device, most_ctas)
    stream = open_stream(device_index, f"{fact.kernel} {', '.join(map(str, variants))}, {problem}, tile {tile}")
    progress(f"compiling {fact.kernel} {tile} for {device.name}: {len(variants)} schedules")
    prepared: list[Prepared] = []
    with named_range("compile"):
        for variant in variants:
            sets = prepared[0].sets if prepared else ()
            prepared.append(prepare(problem, tile, variant, device, device_index, fact, model, sets))
    step_ns = timer_step_ns(prepared[0].functions.timer, stream)
    progress("verifying on small integers")
    with named_range("verify"):
        verified = [verify_integers(one, seed, stream) for one in prepared]
        for index, operands in enumerate(prepared[0].sets):
            fill_set(prepared[0].functions.operands, operands, "normal", seed + index, stream)
    contenders: list[Prepared | Library] = list(prepared)
    missing = None
    if library:
        other, missing = _library(prepared[0], stream)
        contenders += [other] if other else []
    measured: list[dict[Regime, Measured]] = [{} for _ in contenders]
    for regime in regimes:
        with named_range(f"time {regime}"):
            for of_one, found in zip(
                measured, measure_regime(contenders, regime, repeat, seconds, stream, progress), strict=True
            ):
                of_one[regime] = found
    progress("verifying on random operands")
    traces = []
    for one, of_one, verdicts in zip(prepared, measured, verified, strict=False):
        verdicts["plain_normal"] = verify_one(one, one.functions.plain, "normal", stream)
        trace = trace_of(one, [timing_and_records(found) for found in of_one.values()], verdicts, step_ns)
        check(trace, one.schedule)
        traces.append(trace)
    return traces, measured, missing


def _library(prepared: Prepared, stream: Stream) -> tuple[Library | None, str | None]:
    """cuBLAS on the operands of `prepared`, or why it cannot run; verified as the kernels are."""
    try:
        library = cublas(prepared.schedule.problem, prepared.sets, prepared.deadline_s)
        operands = prepared.sets[0]
        fill_bytes(operands.c, POISON, stream)
        library.launch(0, stream)
        check_set(prepared.functions.operands, operands, "normal", stream).require("cublas")
    except WavescopeError as error:
        return None, str(error)
    return library, None
