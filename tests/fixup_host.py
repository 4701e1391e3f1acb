"""Compiles and runs fixup_kernel.cpp with fixup_host.cpp: loop.cuh and fixup.cuh as they are, or with a fault."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import get_args

from host_compiler import host_compiler

from wavescope.errors import ShapeError
from wavescope.kernels import REDUCTION_IDS, SCHEDULE_IDS
from wavescope.nvrtc import kernel_directory
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES, Raster, Schedule, ScheduleName, decompose
from wavescope.trace import Order, Reduction
from wavescope.work import Work

INCLUDE = Path(kernel_directory()) / "include"
TESTS = Path(__file__).parent
OPTIONS = ("-std=c++17", "-Wall", "-Werror", "-Wno-unknown-pragmas", f"-I{TESTS}")
TILE = Tile(16, 16, 16)  # a name for it only: on the host a tile is 64 threads of 80 floats
MAX_CTAS = 20


@dataclass(frozen=True)
class Case:
    """Launches of a schedule, one after the other on one workspace.

    `resident`: CTAs that have a place at the same time; below the schedule's number they
    come in the order of their index.  `launches_before`: how many the workspace has seen.
    """

    schedule: Schedule
    resident: int
    launches: int = 1
    launches_before: int = 0
    seed: int = 1

    def __str__(self) -> str:
        """Its line for fixup_host.cpp."""
        it = self.schedule
        tiles_m, tiles_n = TILE.tiles_m(it.problem), TILE.tiles_n(it.problem)
        grid = (tiles_m, tiles_n, TILE.k_iters(it.problem), it.raster.group(tiles_m))
        plan = (it.num_ctas, it.parts, it.split_tiles, it.reducers, it.num_slots)
        how = (self.resident, self.launches, self.launches_before, self.seed)
        rows = [] if it.table is None else it.table.ravel().tolist()
        return " ".join(map(str, (SCHEDULE_IDS[it.name], *grid, *plan, *how, len(rows) // 2, *rows)))


def schedule_of(name: str, tiles: tuple[int, int], k_iters: int, places: int, parts: int | None = None) -> Schedule:
    problem = Problem(TILE.m * tiles[0], TILE.n * tiles[1], TILE.k * k_iters)
    return decompose(name, problem, TILE, places, Raster("grouped2"), parts)


def draw(rng: Random, names: tuple[ScheduleName, ...]) -> Case:
    """A random case of one of the schedules."""
    while True:
        name, places = rng.choice(names), rng.randint(1, 12)
        most = {"splitk": 6, "streamk": places, "hybrid": 2, "tailsplit": min(places, 8)}.get(name)
        parts = None if most is None or rng.random() < 0.2 else rng.randint(1, most)
        tiles = (rng.randint(1, 4), rng.randint(1, 4))
        try:
            schedule = schedule_of(name, tiles, rng.choice((1, 2, 3, 5, 8, 13)), places, parts)
        except ShapeError:  # more parts than k_iters, or than places
            continue
        if rng.random() < 0.5:
            schedule = replace(schedule, reducers=rng.randint(0, spare_ctas(schedule)))
        if schedule.num_ctas > MAX_CTAS or (name in SPLIT_SCHEDULES and not schedule.num_slots):
            continue
        return case_of(rng, schedule)


def draw_reducing(rng: Random) -> Case:
    """A random case in which CTAs without a part add all partial sums: any number of tiles and reducers."""
    split_tiles, parts, spare = rng.randint(1, 4), rng.randint(2, 3), rng.randint(1, 4)
    places = split_tiles * parts + spare
    schedule = schedule_of("tailsplit", (1, split_tiles + places), rng.choice((3, 5, 8)), places, parts)
    return case_of(rng, replace(schedule, reducers=rng.randint(1, spare_ctas(schedule))))


def case_of(rng: Random, schedule: Schedule) -> Case:
    """Launches of the schedule, with all CTAs resident or as few as it bears."""
    resident = rng.choice((schedule.num_ctas, least_resident(schedule)))
    last_number = 0xFFFFFFFF // schedule.num_ctas  # of launches; the next one begins at 1 again
    launches, before = rng.choice(((1, 0), (2, 0), (3, 0), (4, last_number - 2)))
    return Case(schedule, resident, launches, before, rng.getrandbits(63))


def cases_of(name: ScheduleName) -> list[Case]:
    rng = Random(7)
    return [draw(rng, (name,)) for _ in range(25)]


def many_parts() -> list[Case]:
    """A tile or two in so many parts that a warp has a small piece, or none."""
    rng = Random(7)
    shapes = [(tiles, parts) for tiles in (1, 2) for parts in range(9, 1 + MAX_CTAS // tiles)]
    return [case_of(rng, schedule_of("tailsplit", (tiles, 1), 23, MAX_CTAS, parts)) for tiles, parts in shapes]


def reducing_cases() -> list[Case]:
    rng = Random(7)
    return [draw_reducing(rng) for _ in range(25)]


def irregular_cases() -> list[Case]:
    """Random cases of tiles of unequal k, in both orders."""
    rng = Random(7)
    cases = []
    for _ in range(60):
        name = rng.choice([name for name in SCHEDULES if name not in SPLIT_SCHEDULES])
        problem = Problem(TILE.m * rng.randint(1, 4), TILE.n * rng.randint(1, 4), TILE.k * rng.choice((1, 3, 13)))
        work, order = Work("ragged", rng.randint(0, 99)), rng.choice(get_args(Order))
        schedule = decompose(name, problem, TILE, rng.randint(1, 12), Raster("grouped2"), work=work, order=order)
        cases.append(case_of(rng, schedule))
    return cases


def spare_ctas(schedule: Schedule) -> int:
    """CTAs that have no part of a split tile, and may add the partial sums: the most that `reducers` may be."""
    parts = schedule.split_tiles * schedule.parts
    return schedule.num_ctas - parts if schedule.is_cooperative and schedule.split_tiles else 0


def least_resident(schedule: Schedule) -> int:
    """Places without which the schedule's CTAs would wait for ever.

    One is enough where CTAs wait for those of smaller index only; where the parts of a tile wait
    for one another, half of the CTAs (the tiles whose parts run side by side), or one tile's parts.
    """
    if not (schedule.is_cooperative and schedule.split_tiles) or schedule.reducers:
        return 1
    return schedule.parts * min(schedule.split_tiles, max(1, schedule.num_ctas // 2 // schedule.parts))


def compile_objects(folder: Path) -> list[Path]:
    """Object files that every program shares: the small GPU, and what is around the loop."""
    made = [folder / f"{source}.o" for source in ("host_gpu", "host_memory", "fixup_host")]
    for file in made:
        source = TESTS / file.with_suffix(".cpp").name
        subprocess.run([host_compiler(), *OPTIONS, f"-I{INCLUDE}", "-O2", "-c", source, "-o", file], check=True)
    return made


def compile_program(
    objects: list[Path],
    reduction: Reduction,
    program: Path,
    include: Path = INCLUDE,
    only: ScheduleName | None = None,
    irregular: bool = False,
) -> Path:
    """The program with the loop of all schedules, or of one; `irregular`: of those that keep tiles whole, of unequal k."""
    defines = [f"-DREDUCTION={REDUCTION_IDS[reduction]}", *([f"-DONLY={SCHEDULE_IDS[only]}"] if only else [])]
    defines += ["-DWORK=1"] if irregular else []
    options = (*OPTIONS, f"-I{include}", "-O1", *defines)
    subprocess.run([host_compiler(), *options, TESTS / "fixup_kernel.cpp", *objects, "-o", program], check=True)
    return program


def answers(program: Path, cases: list[Case]) -> list[str]:
    """What the program says to each case, up to the first fault: 'ok DIGEST', or what went wrong in which launch."""
    text = "".join(f"{case}\n" for case in cases)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.splitlines()


def include_with(folder: Path, header: str, *changes: tuple[str, str]) -> Path:
    """A copy of the headers in which each old text, found once in one of them, has become a new one."""
    copy = folder / "include"
    shutil.copytree(INCLUDE, copy)
    text = (copy / header).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{header} holds {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    (copy / header).write_text(text)
    return copy
