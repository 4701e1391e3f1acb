"""A comparison on a device that is not there, and what that device says of one that is."""

from __future__ import annotations

from collections.abc import Sequence

from wavescope.calibration import lookup
from wavescope.comparison import LIBRARY, SIMULATED, Comparison, Contender, Entry, unavailable, words_of
from wavescope.device import Device
from wavescope.errors import WavescopeError
from wavescope.kernels import facts
from wavescope.problem import Problem
from wavescope.states import spans_of
from wavescope.stats import Estimate
from wavescope.trace import Kind, Trace
from wavescope.virtual import run
from wavescope.work import Work


def virtual_comparison(
    problem: Problem,
    entries: Sequence[Entry],
    device: Device,
    *,
    reason: str,
    seed: int,
    library: bool = False,
    most_ctas: int | None = None,
    work: Work | None = None,
) -> Comparison:
    """Simulate every entry, with the same seed; the regime is called simulated, and a time is the T of its trace.

    `library`: a contender that says that no library can be simulated.  `most_ctas`: CTAs
    an SM may hold at once.  `work`: tiles of unequal k.

    Raises: as virtual.run.
    """
    contenders: list[Contender] = []
    first_ns = 0.0
    for entry in entries:
        trace = _run(problem, entry, device, reason, seed, most_ctas, work)
        time_ns = span_ns(trace)
        first_ns = first_ns or time_ns
        contenders.append(
            Contender(
                name=entry.name,
                ran=words_of(trace.launches[0]),
                trace=trace,
                times={SIMULATED: _exactly(time_ns)},
                ratios={SIMULATED: _exactly(first_ns / time_ns)},
            )
        )
    if library:
        contenders.append(unavailable(LIBRARY, f"{LIBRARY} runs on a GPU only: its kernels are not simulated"))
    return Comparison(problem, entries[0].tile, device, "simulated", reason, tuple(contenders), work)


def calibrated(
    problem: Problem, entries: Sequence[Entry], device: Device, most_ctas: int | None = None
) -> tuple[tuple[Entry, ...], tuple[Contender, ...]]:
    """The entries whose unit costs on this device are known, and the others with the reason.

    Raises: as kernels.facts and calibration.lookup.
    """
    known, unknown = [], []
    for entry in entries:
        need = facts(problem, entry.tile, device, most_ctas, entry.kernel)
        if lookup(need.kernel, entry.tile, problem.dtype, device).exact:
            known.append(entry)
        else:
            why = f"{need.kernel} {entry.tile} {problem.dtype} has no calibration on {device.name}"
            unknown.append(unavailable(entry.name, why))
    return tuple(known), tuple(unknown)


def predicted_ns(
    problem: Problem,
    entry: Entry,
    device: Device,
    *,
    seed: int,
    most_ctas: int | None = None,
    work: Work | None = None,
) -> float | None:
    """T of an entry on the calibrated virtual device, in ns (an estimate); None where it cannot be simulated."""
    try:
        trace = _run(problem, entry, device, "it predicts", seed, most_ctas, work)
    except WavescopeError:
        return None
    return span_ns(trace)


def _run(
    problem: Problem,
    entry: Entry,
    device: Device,
    reason: str,
    seed: int,
    most_ctas: int | None,
    work: Work | None,
) -> Trace:
    return run(
        problem,
        entry.tile,
        entry.variant,
        device,
        reason=reason,
        most_ctas=most_ctas,
        seed=seed,
        work=work,
        kernel=entry.kernel,
    )


def span_ns(trace: Trace) -> float:
    """T of a trace's first launch: its last CTA's end less its first CTA's begin."""
    spans = spans_of(trace, trace.launches[0])
    return float(spans.end_ns[spans.kind == Kind.CTA].max())


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value, 1)
