"""A comparison on a device that is not there, and what that device says of one that is."""

from __future__ import annotations

from collections.abc import Sequence

from wavescope.comparison import LIBRARY, SIMULATED, Comparison, Contender, unavailable, words_of
from wavescope.device import Device
from wavescope.errors import WavescopeError
from wavescope.problem import Problem, Tile
from wavescope.states import spans_of
from wavescope.stats import Estimate
from wavescope.trace import Kind, Trace
from wavescope.variant import Variant
from wavescope.virtual import run
from wavescope.work import Work


def virtual_comparison(
    problem: Problem,
    tile: Tile,
    variants: Sequence[Variant],
    device: Device,
    *,
    reason: str,
    seed: int,
    library: bool = False,
    most_ctas: int | None = None,
    work: Work | None = None,
    kernel: str | None = None,
) -> Comparison:
    """Simulate every variant, with the same seed; the regime is called simulated, and a time is the T of its trace.

    `library`: a contender that says that no library can be simulated.  `most_ctas`: CTAs
    an SM may hold at once.  `work`: tiles of unequal k.  `kernel`: as virtual.run.

    Raises: as virtual.run.
    """
    contenders: list[Contender] = []
    first_ns = 0.0
    for variant in variants:
        trace = run(
            problem, tile, variant, device, reason=reason, most_ctas=most_ctas, seed=seed, work=work, kernel=kernel
        )
        time_ns = span_ns(trace)
        first_ns = first_ns or time_ns
        contenders.append(
            Contender(
                name=str(variant),
                ran=words_of(trace.launches[0]),
                trace=trace,
                times={SIMULATED: _exactly(time_ns)},
                ratios={SIMULATED: _exactly(first_ns / time_ns)},
            )
        )
    if library:
        contenders.append(unavailable(LIBRARY, f"{LIBRARY} runs on a GPU only: its kernels are not simulated"))
    return Comparison(problem, tile, device, "simulated", reason, tuple(contenders), work)


def predicted_ns(
    problem: Problem,
    tile: Tile,
    variant: Variant,
    device: Device,
    *,
    seed: int,
    most_ctas: int | None = None,
    work: Work | None = None,
    kernel: str | None = None,
) -> float | None:
    """T of a variant on the calibrated virtual device, in ns (an estimate); None where it cannot be simulated."""
    try:
        trace = run(
            problem,
            tile,
            variant,
            device,
            reason="it predicts",
            most_ctas=most_ctas,
            seed=seed,
            work=work,
            kernel=kernel,
        )
    except WavescopeError:
        return None
    return span_ns(trace)


def span_ns(trace: Trace) -> float:
    """T of a trace's first launch: its last CTA's end less its first CTA's begin."""
    spans = spans_of(trace, trace.launches[0])
    return float(spans.end_ns[spans.kind == Kind.CTA].max())


def _exactly(value: float) -> Estimate:
    return Estimate(value, value, value, 1)
