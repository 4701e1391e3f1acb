"""The kernels: which tiles each one has, how it is compiled, what one CTA needs.

The .cu files are in the folder that nvrtc.kernel_directory() names.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources

from wavescope.device import Device
from wavescope.errors import DeviceError, UsageError
from wavescope.problem import Dtype, Layout, Problem, Tile
from wavescope.schedule import SCHEDULES, ScheduleName
from wavescope.trace import Reduction

# What a kernel that only shows a technique runs.
WHOLE_AND_STATIC: tuple[ScheduleName, ...] = ("fixed", "persistent")

WARP, WARPGROUP = 32, 128  # threads; wgmma works with a warpgroup
MOST_SUMS_BESIDE_ADDERS = 160  # of a thread: with 192 none of 216 registers is left for the main loop
# gemm_sm90.cu: columns of a box of B or C; rows that are stored at once by a warp, and by a warpgroup of a turned tile.
BOX_COLUMNS, STORE_ROWS, TURNED_STORE_ROWS = 64, 16, 32
PIECE_COLUMNS = 32  # fixup.cuh: of a warp's piece of sixteen rows
_NAMED_TILES = 6  # in a message
SHARED_GRANULE_BYTES = 1024  # a multiple of every architecture's allocation unit (128 or 256 bytes)

# The numbers that element.cuh, mma.cuh, schedule.cuh and fixup.cuh give to these words.
DTYPE_IDS: dict[Dtype, int] = {"bf16": 0, "fp16": 1, "fp32": 2}
LAYOUT_IDS: dict[Layout, int] = {"tn": 0, "nn": 1}
REDUCTION_IDS: dict[Reduction, int] = {"ordered": 0, "atomic": 1}
SCHEDULE_IDS: dict[str, int] = {name: number for number, name in enumerate(SCHEDULES)}


@dataclass(frozen=True)
class TileCode:
    """How a kernel computes one tile.

    `warps_m` x `warps_n` warps for a tile; `teams` of so many take the tiles of a CTA in turn;
    `stages` k steps in shared memory at once, fewer (never below `least_stages`) where a
    device has no room; `min_ctas` CTAs that the compiler must let an SM hold;
    `store_buffers` of STORE_ROWS x BOX_COLUMNS elements a warp, through which results leave, or
    of TURNED_STORE_ROWS for each warpgroup of a turned tile.
    """

    tile: Tile
    warps_m: int
    warps_n: int
    stages: int
    least_stages: int
    min_ctas: int
    store_buffers: int = 0
    teams: int = 1

    @property
    def threads(self) -> int:
        """Threads of a CTA that multiply."""
        return 32 * self.warps_m * self.warps_n * self.teams

    @property
    def groups(self) -> int:
        """Warpgroups of a team."""
        return self.threads // self.teams // WARPGROUP

    @property
    def turned(self) -> bool:
        """Whether the tensor cores' rows, which come in blocks of 64, run along n, and not along m.

        All warps are side by side then, so that m can be any multiple of 8.
        """
        return self.warps_m == 1 and self.warps_n > 1

    @property
    def rows_columns(self) -> tuple[int, int]:
        """The tile's sides along the tensor cores' rows, and along their columns."""
        return (self.tile.n, self.tile.m) if self.turned else (self.tile.m, self.tile.n)

    @property
    def partial_elements(self) -> int:
        """Elements that a partial sum of the tile takes in the workspace: whole pieces of its columns."""
        rows, columns = self.rows_columns
        return rows * -(-columns // PIECE_COLUMNS) * PIECE_COLUMNS


@dataclass(frozen=True)
class Kernel:
    """A GEMM kernel: how it computes the tiles of `codes`.

    `source` names its file and the entry in it, where that is not `name`.
    `most_compute_capability`: for instructions that later devices no longer have.
    `pad_bytes` is what each k-major row adds in shared memory, `align_bytes` what aligning
    the stages may take; `copy_threads` of a CTA only copy.  `schedules`: those it can run.
    `flags`: further -D constants of its source file.  `cluster` CTAs form a cluster: grids
    are multiples of it.  `stage_element_bytes` of an element in shared memory, where it is
    not the operands' size (0: it is).
    """

    name: str
    dtypes: tuple[Dtype, ...]
    least_compute_capability: tuple[int, int]
    codes: tuple[TileCode, ...]
    pad_bytes: int = 0
    align_bytes: int = 0
    copy_threads: int = 0
    most_compute_capability: tuple[int, int] | None = None
    source: str = ""
    schedules: tuple[ScheduleName, ...] = SCHEDULES
    flags: tuple[tuple[str, int], ...] = ()
    cluster: int = 1
    stage_element_bytes: int = 0

    @property
    def file(self) -> str:
        """The name of its source file, without .cu, and of the entry in it."""
        return self.source or self.name

    def runs_on(self, device: Device) -> bool:
        """Whether the device has the kernel's instructions."""
        most = self.most_compute_capability
        return self.least_compute_capability <= device.compute_capability and (
            most is None or device.compute_capability <= most
        )


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


# Warp tiles of 64 x 64 ask the fewest shared-memory reads of a tensor-core step, and fill
# the registers of one CTA of 8 warps, or of two of 4.
GEMM_MMA = Kernel(
    "gemm_mma",
    ("bf16", "fp16"),
    (8, 0),
    (
        TileCode(Tile(64, 64, 64), 2, 2, stages=3, least_stages=2, min_ctas=4),
        TileCode(Tile(128, 64, 64), 2, 2, stages=4, least_stages=2, min_ctas=2),
        TileCode(Tile(128, 128, 32), 2, 2, stages=4, least_stages=2, min_ctas=2),
        TileCode(Tile(128, 128, 64), 2, 2, stages=3, least_stages=2, min_ctas=2),
        TileCode(Tile(128, 256, 64), 2, 4, stages=4, least_stages=2, min_ctas=1),
        TileCode(Tile(256, 128, 64), 4, 2, stages=4, least_stages=2, min_ctas=1),
    ),
)
# What cp.async is worth: the same with a thread's own loads and stores in place of its copies.
GEMM_MMA_SYNC = replace(
    GEMM_MMA,
    name="gemm_mma_sync",
    source="gemm_mma",
    codes=tuple(code for code in GEMM_MMA.codes if code.tile in (Tile(128, 128, 64), Tile(128, 256, 64))),
    schedules=WHOLE_AND_STATIC,
    flags=(("ASYNC", 0),),
)
# Steps of 8 along k: 16 of them unrolled no longer fit the instruction cache (H200, 2026-11,
# 4096^3: 12 % slower), and two CTAs an SM leave no registers for a longer prefetch.
GEMM_SIMT = Kernel(
    "gemm_simt",
    ("fp32",),
    (7, 0),
    (TileCode(Tile(128, 128, 8), 2, 4, stages=2, least_stages=2, min_ctas=2),),
    pad_bytes=16,
)
# What tensor cores are worth: the ordinary ones on the same 16-bit operands.
GEMM_SIMT_16 = replace(
    GEMM_SIMT,
    name="gemm_simt_16",
    source="gemm_simt",
    dtypes=("bf16", "fp16"),
    least_compute_capability=(8, 0),
    schedules=WHOLE_AND_STATIC,
    stage_element_bytes=4,
)
# As many stages as leave room for what is stored; H200, 2026-11: less than 144 KB of them under way is slower.
# Many widths, so that a problem finds one which fills the last wave.
GEMM_SM90 = Kernel(
    "gemm_sm90",
    ("bf16", "fp16"),
    (9, 0),
    (
        TileCode(Tile(64, 128, 64), 4, 1, stages=8, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(128, 96, 64), 8, 1, stages=7, least_stages=2, min_ctas=1, store_buffers=1),
        TileCode(Tile(128, 128, 64), 8, 1, stages=6, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(128, 160, 64), 8, 1, stages=5, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(128, 192, 64), 8, 1, stages=4, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(192, 128, 64), 12, 1, stages=5, least_stages=2, min_ctas=1, store_buffers=1),
        TileCode(Tile(128, 224, 64), 8, 1, stages=4, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(128, 256, 64), 8, 1, stages=4, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(256, 128, 64), 8, 1, stages=4, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(192, 192, 64), 12, 1, stages=4, least_stages=2, min_ctas=1, store_buffers=1),
        TileCode(Tile(256, 160, 64), 8, 1, stages=4, least_stages=2, min_ctas=1, store_buffers=1),
        TileCode(Tile(256, 192, 64), 8, 1, stages=3, least_stages=2, min_ctas=1, store_buffers=2),
        TileCode(Tile(192, 200, 64), 12, 1, stages=4, least_stages=2, min_ctas=1, store_buffers=1),
        TileCode(Tile(136, 256, 64), 1, 8, stages=4, least_stages=2, min_ctas=1, store_buffers=2),
    ),
    align_bytes=1024,
    copy_threads=WARPGROUP,
    most_compute_capability=(9, 0),
)


def _in_turn(m: int, n: int) -> TileCode:
    """A tile for each of two teams of one warpgroup, with as many stages as there is room for."""
    warps = (4, 1) if m == WARPGROUP else (1, 4)
    stages, buffers = (6, 2) if m + n <= (256 if m == WARPGROUP else 272) else (5, 2) if m + n < 320 else (5, 1)
    return TileCode(Tile(m, n, 64), *warps, stages, least_stages=2, min_ctas=1, store_buffers=buffers, teams=2)


# Each team has a tile of its own, so that storing one costs the tensor cores no time, and tiles can be small: steps
# of 8 and 16 leave few waves half empty.
GEMM_SM90_PINGPONG = replace(
    GEMM_SM90,
    name="gemm_sm90_pingpong",
    source="gemm_sm90",
    codes=(
        *(_in_turn(128, n) for n in (128, 112, 120, 136, 144, 152, 160, 168, 176, 192)),
        *(_in_turn(m, 128) for m in (112, 120, 136, 144, 152, 168, 176)),
    ),
)
# What a copying warp is worth: TMA and wgmma as in gemm_sm90, but the team's first thread copies, and a unit at a time.
GEMM_SM90_PLAIN = replace(
    GEMM_SM90,
    name="gemm_sm90_plain",
    source="gemm_sm90",
    codes=tuple(code for code in GEMM_SM90.codes if code.tile in (Tile(128, 128, 64), Tile(128, 256, 64))),
    copy_threads=0,
    schedules=WHOLE_AND_STATIC,
    flags=(("SPECIALISED", 0),),
)
# What sharing reads is worth: the CTAs of a pair copy half of B each, for both.
GEMM_SM90_CLUSTER2 = replace(
    GEMM_SM90,
    name="gemm_sm90_cluster2",
    source="gemm_sm90",
    codes=tuple(code for code in GEMM_SM90.codes if code.tile in (Tile(128, 256, 64), Tile(256, 128, 64))),
    schedules=WHOLE_AND_STATIC,
    flags=(("CLUSTER", 2),),
    cluster=2,
)
# The first that can is taken.
KERNELS = (
    GEMM_SM90,
    GEMM_SM90_PINGPONG,
    GEMM_MMA,
    GEMM_SIMT,
)
# These show what one technique is worth (ladder), and are taken only where they are named.
STEPS = (GEMM_SIMT_16, GEMM_MMA_SYNC, GEMM_SM90_PLAIN, GEMM_SM90_CLUSTER2)
ALL_KERNELS = (*KERNELS, *STEPS)


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
    return copies_ahead(name) and any(_has_adders(code) for code in codes)


def _has_adders(code: TileCode) -> bool:
    """Whether a Hopper kernel's warps that do not copy have registers enough to add partial sums.

    Not where two teams take turns (the other one adds), nor beside 192 sums a thread.
    """
    return code.teams == 1 and code.tile.m * code.tile.n // code.threads <= MOST_SUMS_BESIDE_ADDERS


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
            "HAS_ADDERS": int(_has_adders(code)),
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
