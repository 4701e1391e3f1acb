"""Everything a measurement needs, ready on the device: both kernels, operand sets, record buffers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wavescope.cuda_device import kernel_timeout
from wavescope.device import Device, sm_count_note
from wavescope.errors import DeviceError
from wavescope.kernels import KernelFacts, defines
from wavescope.launch import Function, Stream, allocate, capture, fill_bytes, free_bytes, launch, load
from wavescope.nvrtc import architecture, cache_directory, compile_kernel, kernel_directory
from wavescope.operands import OperandKernels, OperandSet, allocate_set
from wavescope.problem import Problem, Tile
from wavescope.schedule import Raster, Schedule, decompose
from wavescope.trace import RECORD_DTYPE

L2_MULTIPLE = 3  # operand sets rotate through more than this many times the L2
MAX_GRAPH_LAUNCHES = 20
# A kernel that is slower than this on every SM is taken for hung: 64 FLOP a clock at 1 GHz.
_SLOWEST_FLOP_PER_NS = 64
DEADLINE_S = 20.0


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


@dataclass(frozen=True)
class Prepared:
    """A problem on a device: launch number i uses operand set and record buffer i, each in turn.

    `deadline_s`: how long a graph of launches may take before it counts as hung.
    """

    device: Device
    device_index: int
    schedule: Schedule
    facts: KernelFacts
    functions: Functions
    sets: tuple[OperandSet, ...]
    records: tuple[Any, ...]
    counter: Any
    deadline_s: float
    notes: tuple[str, ...]

    @property
    def record_bytes(self) -> int:
        """Size of one launch's record buffer."""
        return int(self.records[0].nbytes)


def load_functions(problem: Problem, facts: KernelFacts, schedule: str, device: Device) -> Functions:
    """Compile (in parallel) and load the plain and the probed kernel and the small ones around them.

    Raises: CompileError; DeviceError where not one CTA fits an SM.
    """
    folder, arch = kernel_directory(), architecture(device.compute_capability)
    source = folder / f"{facts.kernel}.cu"
    jobs: list[tuple[Path, dict[str, int]]] = [
        (source, defines(problem, facts, schedule, probe=False)),
        (source, defines(problem, facts, schedule, probe=True)),
        *((folder / f"{name}.cu", {}) for name in ("spin", "timer", "operands", "check")),
    ]
    with ThreadPoolExecutor() as pool:  # NVRTC lets go of the interpreter while it compiles
        plain, probed, spin, timer, fill, check = pool.map(lambda job: compile_kernel(job[0], job[1], arch), jobs)
    functions = Functions(
        plain=load(plain, facts.kernel, facts.threads, facts.shared_bytes),
        probed=load(probed, facts.kernel, facts.threads, facts.shared_bytes),
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
    schedule_name: str,
    raster: Raster,
    device: Device,
    device_index: int,
    facts: KernelFacts,
) -> Prepared:
    """Compile, load and allocate one record buffer and as many operand sets as rotation asks for.

    Raises: CompileError; ShapeError; DeviceError where memory does not suffice.
    """
    functions = load_functions(problem, facts, schedule_name, device)
    schedule = decompose(schedule_name, problem, tile, device.sms * functions.ctas_per_sm, raster)
    record_bytes = num_records(schedule) * RECORD_DTYPE.itemsize
    free = free_bytes()
    if problem.operand_bytes + record_bytes > free:
        raise DeviceError(
            f"{problem} needs {problem.operand_bytes} bytes of device memory for A, B and C and {record_bytes} for "
            f"records; {device.name} has {free} free; use a smaller problem"
        )
    wanted = min(MAX_GRAPH_LAUNCHES, L2_MULTIPLE * device.l2_bytes // problem.operand_bytes + 1)
    # four fifths of what is free: the rest is for records and whoever else uses the device
    num_sets = max(1, min(wanted, (4 * free // 5 - record_bytes) // problem.operand_bytes))
    counter = allocate(4)
    return Prepared(
        device=device,
        device_index=device_index,
        schedule=schedule,
        facts=facts,
        functions=functions,
        sets=tuple(allocate_set(problem) for _ in range(num_sets)),
        records=(allocate(record_bytes),),
        counter=counter,
        deadline_s=DEADLINE_S + MAX_GRAPH_LAUNCHES * _slowest_s(schedule, device),
        notes=tuple(_notes(functions, problem, num_sets, device, device_index)),
    )


def with_records(prepared: Prepared, wanted: int) -> Prepared:
    """The same with `wanted` record buffers, or as many as half the free memory holds."""
    room = 1 + free_bytes() // 2 // prepared.record_bytes
    more = max(0, min(wanted, room) - len(prepared.records))
    return replace(prepared, records=prepared.records + tuple(allocate(prepared.record_bytes) for _ in range(more)))


def num_records(schedule: Schedule) -> int:
    """Record slots of a launch: one a CTA, then mac and epilogue of each unit (kernels/include/loop.cuh)."""
    return 2 * schedule.num_units + schedule.num_ctas


def run(prepared: Prepared, function: Function, index: int, stream: Stream) -> None:
    """Launch number `index` of the plain or probed kernel."""
    operands, problem = prepared.sets[index % len(prepared.sets)], prepared.schedule.problem
    group = prepared.schedule.raster.group(prepared.schedule.tile.tiles_m(problem))
    arguments = (
        operands.a,
        operands.b,
        operands.c,
        *(np.int32(size) for size in (problem.m, problem.n, problem.k, *operands.pitches, group)),
        prepared.counter,
        prepared.records[index % len(prepared.records)],
    )
    launch(function, (prepared.schedule.num_ctas,), arguments, stream)


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
        notes.append(f"the probe changes CTAs per SM from {plain} to {probed}; both kernels run {min(plain, probed)}")
    if num_sets * problem.operand_bytes <= L2_MULTIPLE * device.l2_bytes:
        notes.append(f"operands ({num_sets} sets) do not exceed {L2_MULTIPLE} x L2, so launches may find them there")
    if kernel_timeout(device_index):
        notes.append("this GPU drives a display: the driver ends kernels that take seconds")
    return notes
