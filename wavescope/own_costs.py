"""What the units of one launch cost: fitted on its spans alone, and what they do not show from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wavescope.calibrate import fit
from wavescope.calibration import lookup
from wavescope.calibration_row import Calibration, source_text
from wavescope.kernels import facts
from wavescope.occupancy import Resources, require_fit
from wavescope.problem import Tile
from wavescope.trace import Launch, Trace

_LEAST_SHARE = 0.5  # of a k_iter's fitted cost that must stay when costs once a unit are taken out of it
_PARTS_OF_A_K_ITER = (
    "fixed_cycles",
    "cold_cycles",
    "fill_cycles",
    "beside_cycles",
    "idle_gain",
    "stream_slowdown",
    "edge_slowdown",
)


@dataclass(frozen=True)
class OwnCosts:
    """Costs for launches like the recorded one; `taken` names those that are `installed`'s and not its own."""

    costs: Calibration
    installed: Calibration
    taken: frozenset[str]


def own_costs(trace: Trace) -> OwnCosts:
    """The costs of the one launch in a trace.

    Where all units have equal k_iters, what a unit costs once cannot be told from what
    its k_iters cost: the installed calibration says how to divide it.  Where that would
    leave less than half of it for the k_iters, they keep it all.

    Raises: as calibrate.fit and calibration.lookup.
    """
    plain = fit([trace])
    installed = lookup(plain.kernel, plain.tile, plain.dtype, trace.device, plain.ctas_per_sm)
    costs = fit([trace], near=plain, otherwise=installed)
    if costs.cycles_per_k_iter < _LEAST_SHARE * plain.cycles_per_k_iter:
        unseen = {*installed.unseen, *_PARTS_OF_A_K_ITER}
        lesser = replace(installed, source=source_text("", sorted(unseen), installed.estimated))
        costs = fit([trace], near=plain, otherwise=lesser)
    taken = {*plain.unseen, *plain.estimated} - {*costs.unseen, *costs.estimated}
    return OwnCosts(costs, installed, frozenset(taken))


def costs_of_tile(own: OwnCosts, launch: Launch, tile: Tile, trace: Trace) -> tuple[Launch, Calibration, str]:
    """The launch with another tile, what its units cost, and in words where that is from.

    As calibrated for that tile, at the clock of this launch; where nobody has, scaled
    from this launch's own.

    Raises: UsageError for a tile that the launch's kernel lacks; DeviceError where it does not fit.
    """
    assert launch.problem is not None
    need = facts(launch.problem, tile, trace.device, kernel_name=launch.kernel)
    resources = Resources(need.threads, need.registers, need.shared_bytes)
    count = require_fit(f"tile {tile}", resources, trace.device).count
    dtype = launch.problem.dtype
    other = lookup(need.kernel, tile, dtype, trace.device, count)
    if other.exact:
        ratio = own.costs.clock_mhz / other.clock_mhz
        costs = replace(
            other,
            clock_mhz=own.costs.clock_mhz,
            idle_clock_mhz=min(other.idle_clock_mhz * ratio, trace.device.max_clock_mhz),
        )
        origin = f"Costs of tile {tile} are as calibrated ({other.recorded_in}), at this launch's clock."
    else:
        costs = lookup(need.kernel, tile, dtype, trace.device, count, rows=(own.costs,))
        origin = f"Costs of tile {tile}, which nobody calibrated here, are this launch's, scaled by multiply-adds."
    changed = replace(
        launch,
        kernel=need.kernel,
        tile=tile,
        block=need.threads,
        registers=need.registers,
        shared_bytes=need.shared_bytes,
        ctas_per_sm=count,
    )
    return changed, costs, origin
