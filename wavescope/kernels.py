"""Which kernel and tile a problem takes on a device, what one CTA needs, and how it is compiled."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from wavescope.device import Device
from wavescope.errors import DeviceError, UsageError
from wavescope.kernel_table import (
    ALL_KERNELS,
    BOX_COLUMNS,
    GEMM_SIMT,
    GEMM_SM90,
    KERNELS,
    STORE_ROWS,
    TURNED_STORE_ROWS,
    WARP,
    WARPGROUP,
    Kernel,
    TileCode,
)
from wavescope.problem import Dtype, Layout, Problem, Tile
from wavescope.schedule import SCHEDULES
from wavescope.trace import Reduction

_NAMED_TILES = 6  # in a message
SHARED_GRANULE_BYTES = 1024  # a multiple of every architecture's allocation unit (128 or 256 bytes)

# The numbers that element.cuh, mma.cuh, schedule.cuh and fixup.cuh give to these words.
DTYPE_IDS: dict[Dtype, int] = {"bf16": 0, "fp16": 1, "fp32": 2}
LAYOUT_IDS: dict[Layout, int] = {"tn": 0, "nn": 1}
REDUCTION_IDS: dict[Reduction, int] = {"ordered": 0, "atomic": 1}
SCHEDULE_IDS: dict[str, int] = {name: number for number, name in enumerate(SCHEDULES)}


@dataclass(frozen=True)
class KernelFacts:
    """What one CTA of a kernel needs on a device; `source` is Kernel.file.

    `registers` a thread is the compiler's figure for the plain kernel; it comes from the
    recorded table where nothing is compiled.
    """

    kernel: str
    source: str
    code: TileCode
    threads: int
    registers: int
    shared_bytes: int
    stages: int
    cluster: int = 1


def named(name: str) -> Kernel:
    """The kernel of that name, one of ALL_KERNELS.

    Raises: UsageError where there is none.
    """
    for kernel in ALL_KERNELS:
        if kernel.name == name:
            return kernel
    known = ", ".join(kernel.name for kernel in ALL_KERNELS)
    raise UsageError(f'kernel "{name[:80]}" is none of this wavescope\'s, which are {known}; record the launch again')


def require_schedule(kernel_name: str, schedule: str) -> None:
    """Pass a schedule that the kernel can run.

    Raises: UsageError naming those it can.
    """
    kernel = named(kernel_name)
    if schedule not in kernel.schedules:
        can = " and ".join(kernel.schedules)
        raise UsageError(f"{kernel.name} runs the schedules {can}, not {schedule}; use one of them or --kernel auto")


def copies_ahead(name: str) -> bool:
    """Whether a warp of that kernel copies a unit's operands while the one before is still stored."""
    return any(kernel.name == name and kernel.copy_threads > 0 for kernel in ALL_KERNELS)


def adds_beside(name: str, tile: Tile) -> bool:
    """Whether other warps of that kernel add a CTA's share of partial sums while it multiplies a whole tile."""
    codes = [code for kernel in ALL_KERNELS if kernel.name == name for code in kernel.codes if code.tile == tile]
    return copies_ahead(name) and any(code.has_adders for code in codes)


def takes_turns(name: str) -> bool:
    """Whether that kernel's CTAs have teams of warps that take units in turn: one stores while another multiplies."""
    return any(code.teams > 1 for kernel in ALL_KERNELS if kernel.name == name for code in kernel.codes)


def kernel_for(problem: Problem, device: Device, name: str | None = None, tile: Tile | None = None) -> Kernel:
    """The first of KERNELS that computes this dtype on this device, in this tile; or the one of that name.

    Raises: DeviceError where the device lacks the instructions; UsageError for a kernel
    without the dtype, and where none has the tile.
    """
    of_dtype = [kernel for kernel in KERNELS if problem.dtype in kernel.dtypes]
    if name is not None:
        known = named(name)
        of_dtype = [known] if problem.dtype in known.dtypes else []
        if not of_dtype:
            raise UsageError(f"{name} computes {' and '.join(known.dtypes)}, not {problem.dtype}; use --kernel auto")
    able = [kernel for kernel in of_dtype if kernel.runs_on(device)]
    if not able:
        least = min(of_dtype, key=lambda kernel: kernel.least_compute_capability)
        need, have = ("{}.{}".format(*c) for c in (least.least_compute_capability, device.compute_capability))
        what = problem.dtype if name is None else least.name
        others = any(kernel.runs_on(device) for kernel in KERNELS if problem.dtype in kernel.dtypes)
        instead = "--kernel auto" if others else "--dtype fp32"
        only = ", no later one" if least.least_compute_capability <= device.compute_capability else ""
        raise DeviceError(f"{what} needs compute capability {need}{only}; {device.name} has {have}; use {instead}")
    if tile is None:
        return able[0]
    for kernel in able:
        if any(code.tile == tile for code in kernel.codes):
            return kernel
    tiles = ", or ".join(f"{kernel.name}'s {_nearest(kernel, tile)}" for kernel in able)
    raise UsageError(f"tile {tile} is not one of {' or '.join(kernel.name for kernel in able)}'s; use {tiles}")


def _nearest(kernel: Kernel, tile: Tile) -> str:
    """The kernel's tiles that are nearest to one it does not have, and how many there are if these are not all."""

    def far(other: Tile) -> float:
        return sum(
            abs(math.log(a / b)) for a, b in zip((tile.m, tile.n, tile.k), (other.m, other.n, other.k), strict=True)
        )

    near = sorted((code.tile for code in kernel.codes), key=far)[:_NAMED_TILES]
    more = "" if len(near) == len(kernel.codes) else f" (the nearest of {len(kernel.codes)})"
    return ", ".join(map(str, near)) + more


def fitting_tiles(kernel: Kernel, problem: Problem, device: Device) -> list[Tile]:
    """The kernel's tiles whose shared memory the device has room for.

    Raises: DeviceError where there are none.
    """
    fitting = [code.tile for code in kernel.codes if stages_that_fit(kernel, code, problem, device) is not None]
    if not fitting:
        raise DeviceError(f"no tile of {kernel.name} fits the {device.shared_per_block} bytes of {device.name}")
    return fitting


def reads_whole_lines(kernel: Kernel, tile: Tile, problem: Problem) -> bool:
    """Whether boxes of B that lie along n begin where lines of 128 bytes do.

    H200, 2026-11, gemm_sm90 in layout nn against tn: tiles with n a multiple of 64 take the same
    time (64x128: 9 % longer), others 3 % (128x224) to 82 % (128x136) longer.
    """
    along_n = kernel.file == GEMM_SM90.name and problem.layout == "nn"
    return not along_n or tile.n % BOX_COLUMNS == 0


def default_tile(problem: Problem, device: Device, kernel_name: str | None = None) -> Tile:
    """The largest tile that fits the device and still gives every SM one, else the smallest.

    Tiles with a side that is no power of two are left out, since most problems are no
    multiple of it.  A rule for a start, not advice: measure other tiles.
    """
    kernel = kernel_for(problem, device, kernel_name)
    fitting = [tile for tile in fitting_tiles(kernel, problem, device) if (tile.m * tile.n).bit_count() == 1]
    by_size = sorted(fitting, key=lambda tile: (tile.m * tile.n, tile.k, tile.n), reverse=True)
    return next((tile for tile in by_size if tile.num_tiles(problem) >= device.sms), by_size[-1])


def facts(
    problem: Problem, tile: Tile, device: Device, most_ctas: int | None = None, kernel_name: str | None = None
) -> KernelFacts:
    """What one CTA of a kernel (None: kernel_for's choice) needs for this tile on this device.

    `most_ctas`: shared memory is padded so that an SM holds no more CTAs than this, to
    see what co-residency does.

    Raises: as kernel_for; DeviceError where its shared memory does not fit.
    """
    kernel = kernel_for(problem, device, kernel_name, tile)
    code = next(code for code in kernel.codes if code.tile == tile)
    stages = stages_that_fit(kernel, code, problem, device)
    if stages is None:
        need = shared_bytes(kernel, code, problem, code.least_stages)
        raise DeviceError(
            f"tile {tile} needs {need} bytes of shared memory a CTA; {device.name} has {device.shared_per_block}; "
            "use a smaller tile"
        )
    registers = recorded_registers(kernel.name, tile, device.compute_capability)
    need = shared_bytes(kernel, code, problem, stages)
    if most_ctas is not None:
        need = max(need, _shared_for_at_most(most_ctas, device))
    threads = code.threads + kernel.copy_threads
    return KernelFacts(kernel.name, kernel.file, code, threads, registers, need, stages, kernel.cluster)


def _shared_for_at_most(count: int, device: Device) -> int:
    """Shared memory a CTA with which an SM has room for `count` CTAs, and for no more."""
    one_too_many = device.shared_per_sm // (count + 1) - device.shared_reserved_per_block
    granules = one_too_many // SHARED_GRANULE_BYTES + 1
    return min(granules * SHARED_GRANULE_BYTES, device.shared_per_block)


def shared_bytes(kernel: Kernel, code: TileCode, problem: Problem, stages: int) -> int:
    """Dynamic shared memory of a CTA with that many stages."""
    columns = code.tile.n
    if kernel.copy_threads and problem.layout == "nn":
        columns = -(-columns // BOX_COLUMNS) * BOX_COLUMNS
    row = (code.tile.m + columns) * (kernel.stage_element_bytes or problem.element_bytes) + 2 * kernel.pad_bytes
    rows = TURNED_STORE_ROWS * code.threads // WARPGROUP if code.turned else STORE_ROWS * code.threads // WARP
    stored = code.store_buffers * rows * BOX_COLUMNS * problem.element_bytes
    return stages * code.tile.k * row + stored + kernel.align_bytes


def defines(
    problem: Problem,
    facts: KernelFacts,
    schedule: str,
    probe: bool,
    reduction: Reduction = "ordered",
    irregular: bool = False,
) -> dict[str, int]:
    """The -D constants that compile the kernel for one tile and schedule; `irregular`: tiles of unequal k."""
    code = facts.code
    common = {
        "TILE_M": code.tile.m,
        "TILE_N": code.tile.n,
        "TILE_K": code.tile.k,
        "DTYPE": DTYPE_IDS[problem.dtype],
        "LAYOUT": LAYOUT_IDS[problem.layout],
        "SCHEDULE": SCHEDULE_IDS[schedule],
        "PROBE": int(probe),
        "REDUCTION": REDUCTION_IDS[reduction],
        "WORK": int(irregular),
    }
    if facts.source == GEMM_SM90.name:
        of_kernel = {
            "TEAMS": code.teams,
            "GROUPS": code.groups,
            "STORE_BUFFERS": code.store_buffers,
            "TURNED": int(code.turned),
            "HAS_ADDERS": int(code.has_adders),
        }
    else:
        of_kernel = {"WARPS_M": code.warps_m, "WARPS_N": code.warps_n, "MIN_CTAS": code.min_ctas}
    if facts.source != GEMM_SIMT.name:
        of_kernel |= {"STAGES": facts.stages}
    return common | of_kernel | dict(named(facts.kernel).flags)


def stages_that_fit(kernel: Kernel, code: TileCode, problem: Problem, device: Device) -> int | None:
    """The most stages, up to the code's own number, whose shared memory the device has room for."""
    for stages in range(code.stages, code.least_stages - 1, -1):
        if shared_bytes(kernel, code, problem, stages) <= device.shared_per_block:
            return stages
    return None


@lru_cache(maxsize=1)
def _register_table() -> dict[tuple[str, str, str], int]:
    text = resources.files("wavescope.data").joinpath("registers.csv").read_text()
    return {
        (row["kernel"], row["tile"], row["compute_capability"]): int(row["registers"])
        for row in csv.DictReader(text.splitlines())
    }


def recorded_registers(kernel: str, tile: Tile, compute_capability: tuple[int, int]) -> int:
    """Registers a thread of the fixed, plain kernel, as the assembler reported them.

    Source: wavescope/data/registers.csv, written by tests/benchmarks/registers.py; the
    nearest older compute capability stands in for one that is not listed.
    """
    table = _register_table()
    listed = sorted(
        tuple(int(part) for part in capability.split("."))
        for name, size, capability in table
        if (name, size) == (kernel, str(tile))
    )
    nearest = max((c for c in listed if c <= compute_capability), default=listed[0])
    return table[kernel, str(tile), "{}.{}".format(*nearest)]
