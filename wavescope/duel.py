"""Measure several schedules of one problem against each other, and against a library."""

from __future__ import annotations

from collections.abc import Sequence

from wavescope.calibration import model_of
from wavescope.comparison import LIBRARY, Comparison, Contender, unavailable
from wavescope.cuda_device import query
from wavescope.errors import WavescopeError
from wavescope.integrity import check
from wavescope.kernels import facts
from wavescope.launch import Stream, fill_bytes, named_range, open_stream, wait
from wavescope.library import cublas
from wavescope.measure import timer_step_ns, timing_and_records, trace_of, verify_integers, verify_one
from wavescope.operands import POISON, Verdict, check_set, fill_set
from wavescope.prepare import Prepared, prepare
from wavescope.problem import Problem, Tile
from wavescope.timing import BLOCK_S, Library, Measured, Progress, Regime, measure_regime
from wavescope.variant import Variant
from wavescope.virtual_comparison import predicted_ns
from wavescope.work import Work


def duel(
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
    work: Work | None = None,
    kernel: str | None = None,
) -> Comparison:
    """All variants measured on the same operands in one sequence, ratios against the first (timing.measure_regime).

    With `library`, cuBLAS is the last contender, or says why it could not run.  The
    grid-size model of the kernel's calibration chooses where a variant has no number.
    `work`: tiles of unequal k, the same for all; cuBLAS has none such.  `kernel`: its name,
    None for the best (kernels.kernel_for).

    Raises: as measure.measure.
    """
    for variant in variants:
        variant.check_work(work)
    device = query(device_index)
    fact = facts(problem, tile, device, most_ctas, kernel)
    model = model_of(problem, tile, device, most_ctas, fact.kernel)
    stream = open_stream(device_index, f"{fact.kernel} {', '.join(map(str, variants))}, {problem}, tile {tile}")
    progress(f"compiling {fact.kernel} {tile} for {device.name}: {len(variants)} schedules")
    prepared: list[Prepared] = []
    with named_range("compile"):
        for variant in variants:
            sets = prepared[0].sets if prepared else ()
            prepared.append(prepare(problem, tile, variant, device, device_index, fact, model, sets, work))
    step_ns = timer_step_ns(prepared[0].functions.timer, stream)
    progress("verifying on small integers")
    with named_range("verify"):
        verified = [verify_integers(one, seed, stream) for one in prepared]
        for index, operands in enumerate(prepared[0].sets):
            fill_set(prepared[0].functions.operands, operands, "normal", seed + index, stream)
    entrants: list[Prepared | Library] = list(prepared)
    other = _library(prepared[0], stream) if library else None
    if isinstance(other, tuple):
        entrants.append(other[0])
    measured: list[dict[str, Measured]] = [{} for _ in entrants]
    for regime in regimes:
        with named_range(f"time {regime}"):
            found = measure_regime(entrants, regime, repeat, seconds, stream, progress)
            for of_one, times in zip(measured, found, strict=True):
                of_one[regime] = times
    progress("verifying on random operands")
    contenders = []
    for variant, one, of_one, verdicts in zip(variants, prepared, measured, verified, strict=False):
        verdicts["plain_normal"] = verify_one(one, one.functions.plain, "normal", stream)
        trace = trace_of(one, [timing_and_records(each) for each in of_one.values()], verdicts, step_ns)
        check(trace, one.schedule)
        contenders.append(
            Contender(
                name=str(variant),
                ran=one.schedule.in_words,
                trace=trace,
                times={regime: each.time_ns for regime, each in of_one.items()},
                ratios={regime: each.ratio for regime, each in of_one.items()},
                predicted_ns=predicted_ns(
                    problem, tile, variant, device, seed=seed, most_ctas=most_ctas, work=work, kernel=fact.kernel
                ),
                verified=verdicts,
                notes=one.notes,
            )
        )
    if isinstance(other, str):
        contenders.append(unavailable(LIBRARY, other))
    elif other:
        contenders.append(
            Contender(
                name=LIBRARY,
                ran=other[0].name,
                trace=None,
                times={regime: each.time_ns for regime, each in measured[-1].items()},
                ratios={regime: each.ratio for regime, each in measured[-1].items()},
                verified={"plain_normal": other[1].as_found()},
            )
        )
    return Comparison(problem, tile, device, "measured", "", tuple(contenders), work)


def _library(prepared: Prepared, stream: Stream) -> tuple[Library, Verdict] | str:
    """cuBLAS on the operands of `prepared`, verified as the kernels are; or why it cannot run."""
    operands = prepared.sets[0]
    if prepared.schedule.work is not None:
        return f"{LIBRARY} sums over all of k, and has no work {prepared.schedule.work}"
    try:
        library = cublas(prepared.schedule.problem, prepared.sets, prepared.deadline_s)
        fill_bytes(operands.c, POISON, stream)
        library.launch(0, stream)
        wait(stream, prepared.deadline_s)
        verdict = check_set(prepared.functions.operands, operands, "normal", stream)
        verdict.require(LIBRARY)
    except WavescopeError as error:
        return str(error)
    return library, verdict
