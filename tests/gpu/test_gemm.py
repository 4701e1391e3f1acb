"""The kernels on the device: right results for any shape, records that match the schedule, faults caught."""

import itertools
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wavescope import kernel_table, kernels
from wavescope.calibration_launches import ALL_PLACES
from wavescope.device import Device
from wavescope.duel import duel
from wavescope.errors import DeviceError, IntegrityError, LaunchError
from wavescope.grid_model import UNCALIBRATED, GridModel
from wavescope.integrity import check
from wavescope.kernel_table import Kernel
from wavescope.ladder import RUNGS, climb, steps
from wavescope.launch import Stream, allocate, download, fill_bytes, launch, load, open_stream, timed_ns, upload, wait
from wavescope.measure import measure, timer_step_ns, verify_integers, verify_one
from wavescope.nvrtc import architecture, compile_kernel, kernel_directory
from wavescope.operands import OperandSet, allocate_set, fill_set
from wavescope.prepare import Prepared, clear, graph_of, prepare, run
from wavescope.problem import LAYOUTS, Layout, Problem, Tile
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES, Raster, decompose
from wavescope.standings import standings
from wavescope.trace import RECORD_DTYPE, Launch, Trace, spans_of_records
from wavescope.variant import Variant
from wavescope.work import Work

SHAPE_SEED = 20261129
SHAPES = int(os.environ.get("WAVESCOPE_SHAPES", "60"))  # of each kernel, each under all schedules
SHAPE_PARTS = 4
ATOMIC = tuple(SPLIT_SCHEDULES)
RASTERS = ("row", "column", "grouped3", "grouped8")


def random_problems(count: int, seed: int, most: int = 3000) -> list[Problem]:
    """Shapes with 1, primes and multiples of 8 among them."""
    draw = random.Random(seed)
    special = [1, 2, 3, 7, 13, 31, 61, 127, 251, 509, 1021, 2039, 2999, 64, 128, 256, 1024]
    return [
        Problem(
            *(draw.choice(special) if draw.random() < 0.4 else draw.randint(1, most) for _ in range(3)),
            dtype=draw.choice(["bf16", "bf16", "fp16", "fp32"]),
            layout=draw.choice(["tn", "nn"]),
        )
        for _ in range(count)
    ]


def ready(
    problem: Problem,
    tile: Tile,
    schedule: str,
    raster: str,
    device: Device,
    work: Work | None = None,
    sets: tuple[OperandSet, ...] = (),
    kernel: str | None = None,
    model: GridModel = UNCALIBRATED,
) -> Prepared:
    variant = Variant.parse(schedule, Raster(raster))
    facts = kernels.facts(problem, tile, device, kernel_name=kernel)
    return prepare(problem, tile, variant, device, 0, facts, model, work=work, sets=sets)


def drawn(draw: random.Random, problem: Problem, device: Device) -> tuple[str, Tile]:
    """A kernel that runs here, and one of its tiles that the check can verify with unequal k."""
    able = [kernel for kernel in kernel_table.KERNELS if problem.dtype in kernel.dtypes and kernel.runs_on(device)]
    kernel = draw.choice(able)
    return kernel.name, draw.choice([code.tile for code in kernel.codes if code.tile.m % 64 == code.tile.n % 64 == 0])


def trace_of(prepared: Prepared, device: Device, step_ns: int) -> Trace:
    stream = open_stream(0, "download")
    spans, t0 = spans_of_records(download(prepared.records[0], RECORD_DTYPE, stream), 0, cluster=prepared.facts.cluster)
    schedule, functions = prepared.schedule, prepared.functions
    resident = functions.recorded_ctas_per_sm(schedule)
    launch_facts = Launch(
        0, "measured", prepared.facts.kernel, schedule.name, schedule.raster.name, schedule.problem, schedule.tile,
        schedule.num_ctas, prepared.facts.threads, prepared.facts.cluster, functions.plain.registers, prepared.facts.shared_bytes,
        resident, device.sms * resident, t0_globaltimer_ns=t0, parts=schedule.parts, reducers=schedule.reducers,
        work=None if schedule.work is None else str(schedule.work), order=schedule.order,
    )  # fmt: skip
    return Trace("test", device, step_ns, (launch_facts,), spans)


def launch_probed(prepared: Prepared, stream: Stream) -> None:
    """One launch of the probed kernel into cleared records."""
    clear(prepared, stream)
    run(prepared, prepared.functions.probed, 0, stream)
    wait(stream, prepared.deadline_s)


VARIANTS = (*SCHEDULES, *(f"{name}@atomic" for name in ATOMIC))


def shapes_of(kernel: Kernel, part: int) -> list[tuple[Problem, Tile, str]]:
    """Random problems of a kernel's types, each with a tile and a raster."""
    draw = random.Random(f"{SHAPE_SEED} {kernel.name} {part}")
    found = []
    for problem in random_problems(SHAPES, SHAPE_SEED)[part::SHAPE_PARTS]:
        dtype = problem.dtype if problem.dtype in kernel.dtypes else draw.choice(kernel.dtypes)
        found.append((replace(problem, dtype=dtype), draw.choice(kernel.codes).tile, draw.choice(RASTERS)))
    return found


def compile_all(kernel: Kernel, shapes: list[tuple[Problem, Tile, str]], device: Device) -> None:
    """Every variant that the shapes need, on all cores; the tests then find it in the cache."""
    arch, source = architecture(device.compute_capability), kernel_directory() / f"{kernel.file}.cu"
    wanted: dict[tuple[tuple[str, int], ...], None] = {}
    for problem, tile, _ in shapes:
        facts = kernels.facts(problem, tile, device, kernel_name=kernel.name)
        for variant in map(Variant.parse, VARIANTS):
            if variant.schedule not in kernel.schedules:
                continue
            for probe in (False, True):
                defines = kernels.defines(problem, facts, variant.schedule, probe, variant.reduction)
                wanted[tuple(defines.items())] = None
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda defines: compile_kernel(source, dict(defines), arch), wanted))


@pytest.mark.parametrize("part", range(SHAPE_PARTS))
@pytest.mark.parametrize("kernel", kernel_table.KERNELS, ids=lambda kernel: kernel.name)
def test_random_shapes_are_right(device: Device, kernel: Kernel, part: int) -> None:
    """Every schedule on every shape: plain and probed exactly on integers, records as scheduled, plain on normals."""
    if not kernel.runs_on(device):
        pytest.skip(f"{device.name} lacks the instructions of {kernel.name}")
    shapes = shapes_of(kernel, part)
    compile_all(kernel, shapes, device)
    for number, (problem, tile, raster) in enumerate(shapes):
        sets = (allocate_set(problem),)
        stream = open_stream(0, str(problem))
        step_ns = None
        model = (UNCALIBRATED, ALL_PLACES)[number % 2]  # as many CTAs as pay, or as fit: few tiles then have many peers
        for schedule in VARIANTS:
            prepared = ready(problem, tile, schedule, raster, device, sets=sets, kernel=kernel.name, model=model)
            step_ns = step_ns or timer_step_ns(prepared.functions.timer, stream)
            verify_integers(prepared, SHAPE_SEED, stream)
            try:
                check(trace_of(prepared, device, step_ns), prepared.schedule)
            except IntegrityError as error:
                fit = (prepared.functions.plain.ctas_per_sm, prepared.functions.probed.ctas_per_sm)
                pytest.fail(
                    f"{problem} {kernel.name} {tile} {raster} {prepared.schedule.in_words}, CTAs an SM {fit}: {error}"
                )
            fill_set(prepared.functions.operands, sets[0], "normal", SHAPE_SEED, stream)
            verify_one(prepared, prepared.functions.plain, "normal", stream)


def test_no_cta_begins_before_another_has_recorded_its_end(device: Device) -> None:
    """Registers alone keep a third CTA out, and the last warp of a CTA with a part has flags to raise."""
    problem = Problem(2017, 2264, 416, "fp32", "nn")
    prepared = ready(problem, Tile(128, 128, 8), "splitk:4", "grouped8", device)
    stream = open_stream(0, f"{problem} splitk:4")
    step_ns = timer_step_ns(prepared.functions.timer, stream)
    for _ in range(30):  # H200, 2026-11: without the barrier before the end 167 times in 231 launches
        launch_probed(prepared, stream)
        check(trace_of(prepared, device, step_ns), prepared.schedule)


@pytest.mark.parametrize("schedule", ["fixed", "persistent", "dynamic", "dynamic@lpt"])
@pytest.mark.parametrize("work", ["ragged:5", "skip:0.6:5"])
def test_irregular_work_is_right(device: Device, work: str, schedule: str) -> None:
    draw = random.Random(SHAPE_SEED)
    problems = random_problems(12, SHAPE_SEED + 6, most=2000)
    assert {problem.dtype == "fp32" for problem in problems} == {False, True}  # both kernels
    for problem in problems:
        kernel, tile = drawn(draw, problem, device)
        raster = draw.choice(RASTERS)
        prepared = ready(problem, tile, schedule, raster, device, Work.parse(work), kernel=kernel)
        stream = open_stream(0, f"{problem} {work}")
        verify_integers(prepared, SHAPE_SEED, stream)
        check(trace_of(prepared, device, timer_step_ns(prepared.functions.timer, stream)), prepared.schedule)
        fill_set(prepared.functions.operands, prepared.sets[0], "normal", SHAPE_SEED, stream)
        verify_one(prepared, prepared.functions.plain, "normal", stream)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("more", [-1, 1])
def test_a_tile_of_a_wrong_k_is_caught(device: Device, more: int, dtype: str) -> None:
    problem = Problem(300, 500, 700, dtype)  # type: ignore[arg-type]
    tile = kernels.kernel_for(problem, device).codes[0].tile
    prepared = ready(problem, tile, "persistent", "row", device, Work("skip", 3, 0.5))
    stream = open_stream(0, "a wrong k")
    verify_integers(prepared, 5, stream)  # right before the fault is planted
    assert prepared.schedule.table is not None
    table = prepared.schedule.table.copy()
    table[1, 1] += more
    broken = replace(prepared, table=upload(table, stream))
    with pytest.raises(IntegrityError, match="elements are wrong on integers operands"):
        verify_integers(broken, 5, stream)
    launch_probed(broken, stream)
    trace = trace_of(broken, device, timer_step_ns(prepared.functions.timer, stream))
    with pytest.raises(IntegrityError, match=r"unit 1 computes tile|k_iters \[\d+, \d+\) missing"):
        check(trace)


STORES = {
    "gemm_sm90": "store_tile(map_c, unit, stages + STAGES * BYTES_STAGE, buffer, acc)",
    "gemm_mma": "store_tile(Output{c, m, n, ldc}, unit, flat)",
    "gemm_simt": "store_tile(Output{c, m, n, ldc}, unit, flat)",
}
LAST_K_ITER = ("for (; k_iter < unit.k_end; ++k_iter) turn<false>",
               "for (; k_iter < unit.k_end - (unit.index == 1); ++k_iter) turn<false>")  # fmt: skip
K_ITERS = {
    "gemm_sm90": ("k = k_iter * TILE_K;", "k = (k_iter - (unit.index == 1 && k_iter == unit.k_end - 1)) * TILE_K;"),
    "gemm_mma": LAST_K_ITER,
    "gemm_simt": LAST_K_ITER,
}  # fmt: skip


def fault_of(kernel: Kernel, fault: str) -> tuple[str, str]:
    """What stands in the kernel's file, and what the fault puts in its place."""
    if fault == "a dropped k_iter":
        return K_ITERS[kernel.file]
    good = STORES[kernel.file]
    return good, f"Unit moved = unit; if (unit.index == 1) moved.tile_n = 0; {good.replace(' unit,', ' moved,')}"


FAULTS = ("a dropped k_iter", "a wrong tile")


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kernel", kernel_table.KERNELS, ids=lambda kernel: kernel.name)
def test_faults_can_be_planted(kernel: Kernel, fault: str) -> None:
    """Needs no device: what a fault replaces stands once in the kernel."""
    source = (kernel_directory() / f"{kernel.file}.cu").read_text()
    assert source.count(fault_of(kernel, fault)[0]) == 1


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("layout", ["tn", "nn"])
@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        pytest.param(kernel, dtype, id=f"{kernel.name}-{dtype}")
        for kernel in kernel_table.KERNELS
        for dtype in kernel.dtypes
    ],
)
def test_planted_faults_are_caught(
    device: Device, kernel: Kernel, dtype: str, layout: str, fault: str, tmp_path: Path
) -> None:
    if not kernel.runs_on(device):
        pytest.skip(f"{device.name} lacks the instructions of {kernel.name}")
    problem = Problem(300, 500, 700, dtype, layout)  # type: ignore[arg-type]
    tile = kernel.codes[0].tile
    prepared = ready(problem, tile, "fixed", "row", device, kernel=kernel.name)
    stream = open_stream(0, fault)
    verify_integers(prepared, 5, stream)  # right before the fault is planted

    good, bad = fault_of(kernel, fault)
    source = (kernel_directory() / f"{kernel.file}.cu").read_text()
    assert source.count(good) == 1
    (tmp_path / f"{kernel.file}.cu").write_text(source.replace(good, bad))
    cubin = compile_kernel(
        tmp_path / f"{kernel.file}.cu",
        kernels.defines(problem, prepared.facts, "fixed", probe=False),
        architecture(device.compute_capability),
    )
    faulty = load(cubin, kernel.file, prepared.facts.threads, prepared.facts.shared_bytes)
    broken = replace(prepared, functions=replace(prepared.functions, plain=faulty))
    with pytest.raises(IntegrityError, match="elements are wrong on integers operands"):
        verify_integers(broken, 5, stream)
    fill_set(prepared.functions.operands, prepared.sets[0], "normal", 5, stream)
    with pytest.raises(IntegrityError, match="elements are wrong on normal operands"):
        verify_one(broken, faulty, "normal", stream)


TWIN = """
#include "schedule.cuh"
extern "C" __global__ void twin(int schedule, int tiles_m, int tiles_n, int k_iters, int group, int num_ctas,
                                int parts, int split_tiles, int* rows) {
    const wavescope::Plan plan{{tiles_m, tiles_n, k_iters, group}, num_ctas, parts, split_tiles, 0};
    wavescope::Unit unit;
    for (int round = 0; wavescope::next_unit(schedule, plan, blockIdx.x, round, blockIdx.x + round * num_ctas, &unit);
         ++round) {
        int* row = rows + 8 * unit.index;
        const wavescope::Sharing mine = wavescope::sharing_of(schedule, plan, blockIdx.x, unit);
        row[0] = unit.index, row[1] = blockIdx.x, row[2] = unit.tile_m, row[3] = unit.tile_n;
        row[4] = unit.k_begin, row[5] = unit.k_end, row[6] = mine.rank, row[7] = mine.peers;
    }
}
"""


def test_schedule_twin_under_nvrtc(device: Device, tmp_path: Path) -> None:
    (tmp_path / "twin.cu").write_text(TWIN)
    cubin = compile_kernel(tmp_path / "twin.cu", {}, architecture(device.compute_capability))
    function, stream = load(cubin, "twin", 1), open_stream(0, "twin")
    for problem in random_problems(40, 7):
        for name in SCHEDULES:
            for raster in RASTERS:
                tile = Tile(64, 32, 16)
                schedule = decompose(name, problem, tile, 50, Raster(raster))
                rows = allocate(32 * schedule.unit_ids)
                fill_bytes(rows, 0xFF, stream)
                tiles_m = tile.tiles_m(problem)
                numbers = (SCHEDULES.index(name), tiles_m, tile.tiles_n(problem), tile.k_iters(problem))
                last = (Raster(raster).group(tiles_m), schedule.num_ctas, schedule.parts, schedule.split_tiles)
                launch(function, (schedule.num_ctas,), (*map(np.int32, numbers + last), rows), stream)
                got = download(rows, np.dtype("<i4"), stream).reshape(-1, 8)
                got = got[got[:, 0] >= 0]
                cta = schedule.unit % schedule.num_ctas if name == "dynamic" else schedule.cta
                work = (schedule.tile_m, schedule.tile_n, schedule.k_begin, schedule.k_end)
                want = np.stack([schedule.unit, cta, *work, schedule.rank, schedule.peers], 1)
                assert np.array_equal(got, want)


def test_a_hanging_kernel_is_given_up(device: Device) -> None:
    problem, tile = Problem(64, 64, 64), Tile(64, 64, 64)
    prepared = ready(problem, tile, "fixed", "row", device)
    stream = open_stream(0, "spin, grid 1, block 1")
    launch(prepared.functions.spin, (1,), (np.uint64(400_000_000),), stream)
    with pytest.raises(LaunchError, match=r"no end after 0\.1 s, given up: spin, grid 1, block 1"):
        wait(stream, 0.1)
    wait(stream, 5.0)


def test_a_graph_queues_behind_the_lead(device: Device) -> None:
    prepared = ready(Problem(64, 64, 64), Tile(64, 64, 64), "fixed", "row", device)
    stream = open_stream(0, "lead")
    graph = graph_of(prepared, prepared.functions.plain, stream)
    lead_ns = 3_000_000
    elapsed = timed_ns(graph, lambda on: launch(prepared.functions.spin, (1,), (np.uint64(lead_ns),), on), 5.0, stream)
    assert elapsed < lead_ns / 10  # the lead's 3 ms are not part of the graph's time


def test_too_much_memory_is_refused_before_anything_is_allocated(device: Device) -> None:
    problem = Problem(2**18, 2**18, 2**18)
    with pytest.raises(DeviceError, match="bytes of device memory for A, B and C"):
        ready(problem, Tile(128, 256, 64), "persistent", "row", device)


@pytest.mark.parametrize(
    ("schedule", "work"), [*((name, None) for name in SCHEDULES), ("dynamic@lpt", Work("ragged", 3))]
)
def test_measured_trace_adds_up(device: Device, schedule: str, work: Work | None) -> None:
    from wavescope.analyze import analyze

    problem, variant = Problem(1000, 1500, 1100), Variant.parse(schedule)
    trace = measure(problem, Tile(128, 128, 64), variant, 0, repeat=2, seed=1, progress=lambda text: None, work=work)
    report = analyze(trace)
    assert report.budget.residual_ns == 0
    assert report.waterfall is not None
    product = report.waterfall.peak_tflops * float(np.prod([factor.value for factor in report.waterfall.factors]))
    assert product == pytest.approx(report.waterfall.achieved_tflops, rel=1e-9)
    (launched,) = trace.launches
    assert launched.timing is not None
    assert launched.timing.plain_ns.median > 0
    assert {"plain_integers", "probed_integers", "plain_normal"} <= set(launched.verified)


def test_both_regimes_are_two_launches(device: Device) -> None:
    trace = measure(
        Problem(2048, 2048, 2048), Tile(128, 128, 64), Variant("persistent"), 0,
        regimes=("cool", "sustained"), repeat=2, seed=1, progress=lambda text: None,
    )  # fmt: skip
    assert [launched.timing.regime for launched in trace.launches if launched.timing] == ["cool", "sustained"]
    assert set(trace.spans.launch_id.tolist()) == {0, 1}


# Steps of the ladder: inside, over every edge, one tile, an odd number of tiles and of tile rows, less than a CTA a place.
STEP_SHAPES = ((1, 1, 1), (257, 513, 200), (640, 512, 576), (300, 1000, 71), (1152, 2304, 640), (4096, 2176, 64))


@pytest.mark.parametrize("raster", RASTERS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", kernel_table.STEPS, ids=lambda kernel: kernel.name)
def test_steps_of_the_ladder_are_right(device: Device, kernel: Kernel, layout: Layout, raster: str) -> None:
    if not kernel.runs_on(device):
        pytest.skip(f"{device.name} has not the instructions of {kernel.name}")
    for m, n, k in STEP_SHAPES:
        for code, dtype in itertools.product(kernel.codes, kernel.dtypes):
            problem = Problem(m, n, k, dtype, layout)
            sets = (allocate_set(problem),)
            for schedule in kernel.schedules:
                stream = open_stream(0, f"{kernel.name} {problem} {code.tile} {schedule} {raster}")
                prepared = ready(problem, code.tile, schedule, raster, device, sets=sets, kernel=kernel.name)
                verify_integers(prepared, SHAPE_SEED, stream)
                check(trace_of(prepared, device, timer_step_ns(prepared.functions.timer, stream)), prepared.schedule)
                fill_set(prepared.functions.operands, sets[0], "normal", SHAPE_SEED, stream)
                for _ in range(3):
                    verify_one(prepared, prepared.functions.plain, "normal", stream)


@pytest.mark.parametrize("kernel", kernel_table.STEPS, ids=lambda kernel: kernel.name)
def test_steps_take_tiles_of_unequal_k(device: Device, kernel: Kernel) -> None:
    if not kernel.runs_on(device):
        pytest.skip(f"{device.name} has not the instructions of {kernel.name}")
    for layout, schedule in itertools.product(LAYOUTS, kernel.schedules):
        problem = Problem(700, 1300, 900, kernel.dtypes[0], layout)
        stream = open_stream(0, f"{kernel.name} {problem} {schedule}, unequal k")
        tile, work = kernel.codes[0].tile, Work.parse("ragged:5")
        prepared = ready(problem, tile, schedule, "grouped3", device, work, kernel=kernel.name)
        verify_integers(prepared, SHAPE_SEED, stream)
        check(trace_of(prepared, device, timer_step_ns(prepared.functions.timer, stream)), prepared.schedule)


def test_a_ladder_is_measured(device: Device) -> None:
    problem = Problem(1024, 1024, 512)
    entries, missing = climb(problem, device, Variant("persistent"))
    assert len(entries) + len(missing) == len(RUNGS)
    found = duel(problem, entries, 0, regimes=("cool",), repeat=2, seed=1, progress=lambda text: None)
    made = steps(found, standings(found))
    assert [step.rung.name for step in made] == [entry.name for entry in entries]
    for step in made:
        assert step.standing.report is not None
        assert step.standing.report.launch.kernel == step.rung.kernel
        assert step.standing.report.budget.residual_ns == 0
