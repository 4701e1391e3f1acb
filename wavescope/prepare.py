"""Everything a measurement needs, ready on the device: both kernels, operand sets, record buffers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wavescope.cuda_device import kernel_timeout
from wavescope.device import Device, sm_count_note
from wavescope.errors import DeviceError, LaunchError
from wavescope.grid_model import UNCALIBRATED, GridModel
from wavescope.kernel_table import GEMM_SM90
from wavescope.kernels import KernelFacts, defines, require_schedule
from wavescope.launch import (
    Function,
    Stream,
    allocate,
    capture,
    download,
    fill_bytes,
    free_bytes,
    launch,
    load,
    open_stream,
    upload,
    wait,
)
from wavescope.nvrtc import architecture, cache_directory, compile_kernel, kernel_directory
from wavescope.operands import OperandKernels, OperandSet, allocate_set, k_ends_of_checks
from wavescope.problem import Problem, Tile
from wavescope.schedule import SPLIT_SCHEDULES, Schedule
from wavescope.tensor_maps import TensorMap, tensor_maps
from wavescope.trace import RECORD_DTYPE, Reduction
from wavescope.variant import Variant
from wavescope.work import Work

PARTIAL_BYTES = 4  # of an element of a partial sum: fp32 (fixup.cuh)
SPIN_LIMIT_S = 2.0  # fixup.cuh: SPIN_LIMIT_NS
SYNC_WORDS = 2  # launches ended and error, before the flags and arrivals of each slot (fixup.cuh)
L2_MULTIPLE = 3  # operand sets rotate through more than this many times the L2
MAX_GRAPH_LAUNCHES = 20
# A kernel that is slower than this on every SM is taken for hung: 64 FLOP a clock at 1 GHz.
_SLOWEST_FLOP_PER_NS = 64
DEADLINE_S = 20.0
_AROUND = ("spin", "timer", "operands", "check")  # small kernels that every measurement needs


@dataclass(frozen=True)
class Functions:
    """The loaded kernels of a measurement."""

    plain: Function
    probed: Function
    spin: Function
    timer: Function
    operands: OperandKernels

    @property
    def ctas_per_sm(self) -> int:
        """CTAs an SM holds of both kernels, so that both run the same grid."""
        return min(self.plain.ctas_per_sm, self.probed.ctas_per_sm)

    def recorded_ctas_per_sm(self, schedule: Schedule) -> int:
        """CTAs an SM may hold of the probed kernel: as many as fit where the hardware deals them out."""
        return self.probed.ctas_per_sm if schedule.dispatch == "hardware" else self.ctas_per_sm


@dataclass(frozen=True)
class Prepared:
    """A problem on a device: launch number i uses operand set and record buffer i, each in turn.

    `deadline_s`: how long a graph of launches may take before it counts as hung.  `table` and
    `k_ends` are schedule.table and operands.k_ends_of_checks in device memory, None where
    all tiles sum over all of k.  `maps`: of each operand set, where the kernel takes them.
    """

    device: Device
    device_index: int
    schedule: Schedule
    facts: KernelFacts
    functions: Functions
    sets: tuple[OperandSet, ...]
    records: tuple[Any, ...]
    counter: Any
    partials: Any
    sync: Any
    reduction: Reduction
    deadline_s: float
    notes: tuple[str, ...]
    table: Any = None
    k_ends: Any = None
    maps: tuple[tuple[TensorMap, ...], ...] = ()

    @property
    def record_bytes(self) -> int:
        """Size of one launch's record buffer."""
        return int(self.records[0].nbytes)


def compile_ahead(
    launches: Sequence[tuple[Problem, KernelFacts, Variant]], device: Device, progress: Callable[[str], None]
) -> None:
    """Compile the kernels of many launches on all cores, so that measuring finds them in the cache.

    Raises: CompileError.
    """
    jobs = {
        (source, tuple(constants.items())): None
        for launch in launches
        for source, constants in _gemm_sources(*launch, irregular=False)
    }
    arch = architecture(device.compute_capability)
    progress(f"compiling {len(jobs)} kernels for {device.name}, those that no earlier run left in the cache")
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for _ in pool.map(lambda job: compile_kernel(job[0], dict(job[1]), arch), jobs):
            pass


def _gemm_sources(
    problem: Problem, facts: KernelFacts, variant: Variant, irregular: bool
) -> list[tuple[Path, dict[str, int]]]:
    """File and constants of the plain and of the probed kernel."""
    source = kernel_directory() / f"{facts.source}.cu"
    return [
        (source, defines(problem, facts, variant.schedule, probe, variant.reduction, irregular))
        for probe in (False, True)
    ]


def load_functions(
    problem: Problem, facts: KernelFacts, variant: Variant, device: Device, irregular: bool = False
) -> Functions:
    """Compile (in parallel) and load the plain and the probed kernel and the small ones around them.

    `irregular`: for tiles of unequal k.

    Raises: CompileError; DeviceError where not one CTA fits an SM.
    """
    arch = architecture(device.compute_capability)
    jobs = _gemm_sources(problem, facts, variant, irregular)
    jobs += [(kernel_directory() / f"{name}.cu", {}) for name in _AROUND]
    with ThreadPoolExecutor() as pool:  # NVRTC lets go of the interpreter while it compiles
        plain, probed, spin, timer, fill, check = pool.map(lambda job: compile_kernel(job[0], job[1], arch), jobs)
    functions = Functions(
        plain=load(plain, facts.source, facts.threads, facts.shared_bytes),
        probed=load(probed, facts.source, facts.threads, facts.shared_bytes),
        spin=load(spin, "spin", 1),
        timer=load(timer, "timer", 1),
        operands=OperandKernels(load(fill, "operands", 256), load(check, "check", 256)),
    )
    if functions.ctas_per_sm < 1:
        raise DeviceError(
            f"tile {facts.code.tile}: not one CTA ({facts.threads} threads, {plain.registers} registers, "
            f"{facts.shared_bytes} bytes of shared memory) fits an SM of {device.name}; use a smaller tile"
        )
    return functions


def prepare(
    problem: Problem,
    tile: Tile,
    variant: Variant,
    device: Device,
    device_index: int,
    facts: KernelFacts,
    model: GridModel = UNCALIBRATED,
    sets: tuple[OperandSet, ...] = (),
    work: Work | None = None,
) -> Prepared:
    """Compile, load and allocate one record buffer and as many operand sets as rotation asks for.

    `sets`: use these instead, of another Prepared of the same problem.  `work`: tiles of
    unequal k.

    Raises: CompileError; UsageError for a schedule that cannot do the work; ShapeError;
    DeviceError where memory does not suffice.
    """
    variant.check_work(work)
    require_schedule(facts.kernel, variant.schedule)
    functions = load_functions(problem, facts, variant, device, irregular=work is not None)
    schedule = variant.decompose(problem, tile, device.sms * functions.ctas_per_sm, model, work, facts.cluster)
    record_bytes = num_records(schedule) * RECORD_DTYPE.itemsize
    partial_bytes = schedule.num_slots * facts.code.partial_elements * PARTIAL_BYTES
    free = free_bytes()
    operand_bytes = 0 if sets else problem.operand_bytes
    if operand_bytes + record_bytes + partial_bytes > free:
        raise DeviceError(
            f"{problem} needs {operand_bytes} bytes of device memory for A, B and C, {record_bytes} for "
            f"records and {partial_bytes} for partial sums; {device.name} has {free} free; use a smaller problem"
        )
    wanted = min(MAX_GRAPH_LAUNCHES, L2_MULTIPLE * device.l2_bytes // problem.operand_bytes + 1)
    # four fifths of what is free: the rest is for records and whoever else uses the device
    num_sets = max(1, min(wanted, (4 * free // 5 - record_bytes - partial_bytes) // problem.operand_bytes))
    stream = open_stream(device_index, "clearing the workspace")
    sets = sets or tuple(allocate_set(problem) for _ in range(num_sets))
    prepared = Prepared(
        device=device,
        device_index=device_index,
        schedule=schedule,
        facts=facts,
        functions=functions,
        sets=sets,
        records=(allocate(record_bytes),),
        counter=allocate(4),
        partials=allocate(max(partial_bytes, PARTIAL_BYTES)),
        sync=allocate(4 * (SYNC_WORDS + 2 * schedule.num_slots)),
        reduction=variant.reduction,
        deadline_s=DEADLINE_S + MAX_GRAPH_LAUNCHES * _slowest_s(schedule, device),
        notes=tuple(_notes(functions, problem, len(sets), device, device_index)),
        table=None if schedule.table is None else upload(schedule.table, stream),
        k_ends=None if work is None else upload(k_ends_of_checks(problem, tile, work), stream),
        maps=tuple(tensor_maps(one, facts.code, facts.cluster) for one in sets)
        if facts.source == GEMM_SM90.name
        else (),
    )
    for buffer in (prepared.partials, prepared.sync):  # once: launches leave it as they want to find it
        fill_bytes(buffer, 0, stream)
    wait(stream, prepared.deadline_s)
    return prepared


def require_met(prepared: Prepared, stream: Stream) -> None:
    """Raises: LaunchError where a CTA gave up waiting for another's partial sums."""
    if download(prepared.sync, np.dtype("<u4"), stream)[1]:
        raise LaunchError(
            f"a CTA gave up waiting, {SPIN_LIMIT_S:g} s for another's partial sums, or for operands: {stream.facts}; "
            "is another program holding the GPU?"
        )


def with_records(prepared: Prepared, wanted: int) -> Prepared:
    """The same with `wanted` record buffers, or as many as half the free memory holds."""
    room = 1 + free_bytes() // 2 // prepared.record_bytes
    more = max(0, min(wanted, room) - len(prepared.records))
    return replace(prepared, records=prepared.records + tuple(allocate(prepared.record_bytes) for _ in range(more)))


def num_records(schedule: Schedule) -> int:
    """Record slots of a launch: one a CTA, then those of each unit id (records_of_unit in loop.cuh)."""
    of_unit = 4 if schedule.name in SPLIT_SCHEDULES else 2
    return of_unit * schedule.unit_ids + schedule.num_ctas


def run(prepared: Prepared, function: Function, index: int, stream: Stream) -> None:
    """Launch number `index` of the plain or probed kernel."""
    operands, schedule = prepared.sets[index % len(prepared.sets)], prepared.schedule
    problem = schedule.problem
    group = schedule.raster.group(schedule.tile.tiles_m(problem))
    arguments = (
        operands.a,
        operands.b,
        operands.c,
        *(np.int32(size) for size in (problem.m, problem.n, problem.k, *operands.pitches, group)),
        *(np.int32(number) for number in (schedule.parts, schedule.split_tiles, schedule.reducers)),
        prepared.counter,
        prepared.partials,
        prepared.sync,
        np.int32(schedule.num_slots),
        prepared.records[index % len(prepared.records)],
        np.uint64(0) if prepared.table is None else prepared.table,
        *(prepared.maps[index % len(prepared.maps)] if prepared.maps else ()),
    )
    launch(function, (schedule.num_ctas,), arguments, stream)


def graph_of(prepared: Prepared, function: Function, stream: Stream) -> Any:
    """A CUDA graph of one launch for each record buffer."""

    def numbered(index: int) -> Any:
        return lambda on: run(prepared, function, index, on)

    return capture([numbered(index) for index in range(len(prepared.records))], stream)


def clear(prepared: Prepared, stream: Stream) -> None:
    """Zero the records and the counter, so that what a launch leaves behind is its own."""
    for buffer in (*prepared.records, prepared.counter):
        fill_bytes(buffer, 0, stream)


def _slowest_s(schedule: Schedule, device: Device) -> float:
    waves = -(-schedule.num_units // device.sms)
    flop_per_unit = schedule.tile.issued_flop(schedule.problem) / schedule.num_units
    return waves * flop_per_unit / _SLOWEST_FLOP_PER_NS * 1e-9


def _notes(functions: Functions, problem: Problem, num_sets: int, device: Device, device_index: int) -> list[str]:
    notes = [note for note in (cache_directory()[1], sm_count_note(device)) if note]
    plain, probed = functions.plain.ctas_per_sm, functions.probed.ctas_per_sm
    if plain != probed:
        notes.append(
            f"the probe changes CTAs per SM from {plain} to {probed}; resident grids are for {min(plain, probed)}"
        )
    if num_sets * problem.operand_bytes <= L2_MULTIPLE * device.l2_bytes:
        notes.append(f"operands ({num_sets} sets) do not exceed {L2_MULTIPLE} x L2, so launches may find them there")
    if kernel_timeout(device_index):
        notes.append("this GPU drives a display: the driver ends kernels that take seconds")
    return notes
