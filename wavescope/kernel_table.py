"""The kernels: which tiles each one has, what it can run, and how it computes a tile.

The .cu files are in the folder that nvrtc.kernel_directory() names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wavescope.device import Device
from wavescope.problem import Dtype, Tile
from wavescope.schedule import SCHEDULES, ScheduleName

# What a kernel that only shows a technique runs.
WHOLE_AND_STATIC: tuple[ScheduleName, ...] = ("fixed", "persistent")

WARP, WARPGROUP = 32, 128  # threads; wgmma works with a warpgroup
MOST_SUMS_BESIDE_ADDERS = 160  # of a thread: with 192 none of 216 registers is left for the main loop
# gemm_sm90.cu: columns of a box of B or C; rows that are stored at once by a warp, and by a warpgroup of a turned tile.
BOX_COLUMNS, STORE_ROWS, TURNED_STORE_ROWS = 64, 16, 32
PIECE_COLUMNS = 32  # fixup.cuh: of a warp's piece of sixteen rows


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
    def has_adders(self) -> bool:
        """Whether a Hopper kernel's warps that do not copy have registers enough to add partial sums.

        Not where two teams take turns (the other one adds), nor beside 192 sums a thread.
        """
        return self.teams == 1 and self.tile.m * self.tile.n // self.threads <= MOST_SUMS_BESIDE_ADDERS

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
