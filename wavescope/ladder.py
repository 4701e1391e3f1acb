"""One problem by a row of kernels, each of which adds one technique to the one before: what each technique is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wavescope.comparison import LIBRARY, Comparison, Contender, Entry, speed_ratio, unavailable
from wavescope.device import Device
from wavescope.errors import DeviceError
from wavescope.kernels import kernel_for
from wavescope.problem import Problem, Tile
from wavescope.standings import Standing
from wavescope.stats import Estimate
from wavescope.variant import Variant
from wavescope.wave_report import Waterfall

# Factors that stand in the place of "inside tile" where a launch measured the waits inside its units (waterfall).
INSIDE_FACTORS = ("issue rate", "operands", "pipe fill", "rest of mac")
INSIDE = "inside tile"


@dataclass(frozen=True)
class Rung:
    """A kernel and a tile of it; `adds` (a clause) is the technique."""

    name: str
    kernel: str
    tile: Tile
    adds: str


RUNGS = (
    Rung("simt", "gemm_simt_16", Tile(128, 128, 8), "multiply-adds of the ordinary cores in fp32, one at a time"),
    Rung("mma", "gemm_mma_sync", Tile(128, 256, 64), "tensor cores (mma.sync), operands copied through registers"),
    Rung("cp.async", "gemm_mma", Tile(128, 256, 64), "copies to shared memory while the tensor cores work"),
    Rung("wgmma+TMA", "gemm_sm90_plain", Tile(128, 256, 64), "wgmma reads shared memory, one thread copies boxes"),
    Rung(
        "specialised",
        "gemm_sm90",
        Tile(128, 256, 64),
        "a warp of its own copies, ahead across the CTA's tiles",
    ),
    Rung(
        "ping-pong",
        "gemm_sm90_pingpong",
        Tile(128, 128, 64),
        "two teams take tiles in turn: one stores while the other multiplies",
    ),
    Rung(
        "clusters", "gemm_sm90_cluster2", Tile(128, 256, 64), "of the specialised: pairs of CTAs copy B once for both"
    ),
)


@dataclass(frozen=True)
class Step:
    """A rung under one regime; `gain` is the time of the rung before it that ran over its own, None for the first."""

    rung: Rung
    standing: Standing
    gain: Estimate | None

    @property
    def number(self) -> int:
        """Its place on the ladder, from 1."""
        return RUNGS.index(self.rung) + 1


def climb(problem: Problem, device: Device, variant: Variant) -> tuple[tuple[Entry, ...], tuple[Contender, ...]]:
    """The rungs that the device has the instructions for, and those it has not.

    Raises: UsageError for a dtype that a rung does not compute.
    """
    entries, missing = [], []
    for rung in RUNGS:
        try:
            kernel_for(problem, device, rung.kernel, rung.tile)
            entries.append(Entry(rung.name, variant, rung.tile, rung.kernel))
        except DeviceError as error:
            missing.append(unavailable(rung.name, str(error).rpartition("; use ")[0]))
    return tuple(entries), tuple(missing)


def steps(found: Comparison, placed: Sequence[Standing]) -> tuple[Step, ...]:
    """Regime by regime, the rungs that ran, each against the one before it that ran."""
    made = []
    for regime in found.regimes:
        before: Contender | None = None
        here = {one.name: one for one in placed if one.regime == regime}
        for rung in RUNGS:
            standing = here.get(rung.name)
            if standing is None:
                continue
            gain = None if before is None else speed_ratio(before, standing.contender, regime)
            made.append(Step(rung, standing, gain))
            before = standing.contender
    return tuple(made)


def library_of(placed: Sequence[Standing], regime: str) -> Standing | None:
    """The library's standing under a regime, where it ran."""
    return next((one for one in placed if one.name == LIBRARY and one.regime == regime), None)


def factors_of(fall: Waterfall) -> dict[str, float]:
    """The factors of a waterfall by name; `INSIDE` is in all, as the product of INSIDE_FACTORS where those are."""
    found: dict[str, float] = {}
    inside = 1.0
    for factor in fall.factors:
        if factor.name in INSIDE_FACTORS:
            inside *= factor.value
            found[INSIDE] = inside  # stands before its parts
        found[factor.name] = factor.value
    return found
