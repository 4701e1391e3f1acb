"""Measure one GEMM: compile, verify, time plain against probed, keep the trace of the median launch.

The regime is `cool`: a few idle milliseconds before each graph of launches, plain (A) and
probed (B) in turn as A B B A, operands rotating through more than three times the L2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wavescope import __version__
from wavescope.cuda_device import query
from wavescope.device import Device
from wavescope.errors import DeviceError, ShapeError
from wavescope.integrity import check
from wavescope.kernels import KernelFacts, defines, facts
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
    named_range,
    open_stream,
    timed_ns,
    wait,
)
from wavescope.nvrtc import architecture, cache_directory, compile_kernel, kernel_directory
from wavescope.operands import OperandKernels, OperandSet, Verdict, allocate_set, check_set, fill_set
from wavescope.operands import load_operand_kernels as load_operand_kernels
from wavescope.problem import Problem, Tile
from wavescope.schedule import Raster, Schedule, decompose
from wavescope.stats import median_interval
from wavescope.trace import RECORD_DTYPE, Kind, Launch, Timing, Trace, spans_of_records

Progress = Callable[[str], None]

IDLE_S = 0.003  # H200, 2026-11: 3 ms idle before each graph keeps short runs off the power cap
LEAD_NS = 150_000  # the spin kernel that launches queue behind; enqueuing a graph takes 30 to 60 us
GRAPH_NS = 2_000_000  # launches are gathered into graphs of about this length
MAX_GRAPH_LAUNCHES = 20
L2_MULTIPLE = 3  # operand sets rotate through more than this many times the L2
KEPT_BYTES = 256 << 20  # records kept on the host while the median launch is looked for
TIMER_STEPS = 256
TIMER_READS = 1_000_000
# A kernel slower than this on one SM is taken for hung: 64 FLOP a clock at 1 GHz.
_SLOWEST_FLOP_PER_NS = 64
_DEADLINE_S = 20.0


@dataclass(frozen=True)
class _Setup:
    """A loaded problem: both kernels, operand sets, and a record buffer a launch of a graph."""

    device: Device
    schedule: Schedule
    facts: KernelFacts
    plain: Function
    probed: Function
    operand_kernels: OperandKernels
    sets: tuple[OperandSet, ...]
    records: tuple[Any, ...]
    counter: Any
    deadline_s: float
    notes: tuple[str, ...]

    @property
    def launches(self) -> int:
        return len(self.records)


def measure(
    problem: Problem,
    tile: Tile,
    schedule_name: str,
    raster: Raster,
    device_index: int,
    *,
    repeat: int,
    seed: int,
    progress: Progress,
) -> Trace:
    """The trace of the median launch, with the times of `repeat` A B B A rounds.

    Raises: DeviceError for what the device cannot hold; CompileError; IntegrityError for
    a wrong result or records that contradict the schedule; LaunchError for a kernel that
    fails or hangs.
    """
    device = query(device_index)
    fact = facts(problem, tile, device)
    stream = open_stream(device_index, f"{fact.kernel} {schedule_name}, {problem}, tile {tile}, {device.name}")
    with named_range("compile"):
        progress(f"compiling {fact.kernel} {tile} for {device.name}")
        plain, probed, spin, timer, operand_kernels = _load(problem, fact, schedule_name, device)
    if plain.ctas_per_sm < 1 or probed.ctas_per_sm < 1:
        raise DeviceError(f"tile {tile}: not one CTA fits an SM of {device.name}; use a smaller tile")
    ctas_per_sm = min(plain.ctas_per_sm, probed.ctas_per_sm)
    schedule = decompose(schedule_name, problem, tile, device.sms * ctas_per_sm, raster)
    step_ns = timer_step_ns(timer, stream)

    with named_range("verify"):
        progress("verifying on small integers")
        setup = _allocate(device, schedule, fact, plain, probed, operand_kernels, stream)
        verified = _verify(setup, stream, seed)
    with named_range("time"):
        timing, records = _time(setup, spin, stream, repeat, seed, progress)
    with named_range("verify"):
        progress("verifying on random operands")
        verified |= _verify_random(setup, stream)

    spans, t0 = spans_of_records(records, 0, cluster=1)
    launch_facts = Launch(
        launch_id=0,
        source="measured",
        kernel=fact.kernel,
        schedule=schedule.name,
        raster=raster.name,
        problem=problem,
        tile=tile,
        grid=schedule.num_ctas,
        block=fact.threads,
        cluster=1,
        registers=plain.registers,
        shared_bytes=fact.shared_bytes,
        ctas_per_sm=ctas_per_sm,
        places=device.sms * ctas_per_sm,
        t0_globaltimer_ns=t0,
        timing=timing,
        verified=verified,
        notes=setup.notes,
    )
    trace = Trace(__version__, device, step_ns, (launch_facts,), spans)
    check(trace, schedule)
    return trace


def timer_step_ns(timer: Function, stream: Stream) -> int:
    """The step by which globaltimer moves on, in ns: the smallest seen over 256 moments."""
    pairs = allocate(16 * TIMER_STEPS)
    fill_bytes(pairs, 0, stream)
    launch(timer, (1,), (pairs, np.int32(TIMER_STEPS), np.int32(TIMER_READS)), stream)
    wait(stream, _DEADLINE_S)
    moments = download(pairs, np.dtype("<u8"), stream)[::2]
    steps = np.diff(moments[moments > 0].astype(np.int64))
    if len(steps) == 0:
        raise DeviceError("globaltimer does not move on this device; spans cannot be placed in time")
    return int(steps.min())


def _load(
    problem: Problem, fact: KernelFacts, schedule_name: str, device: Device
) -> tuple[Function, Function, Function, Function, OperandKernels]:
    folder, arch = kernel_directory(), architecture(device.compute_capability)
    source = folder / f"{fact.kernel}.cu"
    jobs: list[tuple[Any, dict[str, int]]] = [
        (source, defines(problem, fact, schedule_name, probe=False)),
        (source, defines(problem, fact, schedule_name, probe=True)),
        (folder / "spin.cu", {}),
        (folder / "timer.cu", {}),
        (folder / "operands.cu", {}),
        (folder / "check.cu", {}),
    ]
    with ThreadPoolExecutor() as pool:  # NVRTC lets go of the interpreter while it compiles
        cubins = list(pool.map(lambda job: compile_kernel(*job, arch), jobs))
    plain, probed = (load(cubin, fact.kernel, fact.threads, fact.shared_bytes) for cubin in cubins[:2])
    return plain, probed, load(cubins[2], "spin", 1), load(cubins[3], "timer", 1), load_operand_kernels(arch)


def _allocate(
    device: Device,
    schedule: Schedule,
    fact: KernelFacts,
    plain: Function,
    probed: Function,
    operand_kernels: OperandKernels,
    stream: Stream,
) -> _Setup:
    problem = schedule.problem
    record_bytes = num_records(schedule) * RECORD_DTYPE.itemsize
    rounds = -(-schedule.num_units // schedule.num_ctas) if schedule.dispatch != "hardware" else 1
    slowest_s = rounds * schedule.tile.issued_flop(problem) / schedule.num_units / _SLOWEST_FLOP_PER_NS * 1e-9
    waves = -(-schedule.num_units // (device.sms * plain.ctas_per_sm))
    deadline_s = _DEADLINE_S + MAX_GRAPH_LAUNCHES * slowest_s * (waves if schedule.dispatch == "hardware" else 1)
    free = free_bytes()
    need = problem.operand_bytes + record_bytes
    if need > free:
        raise DeviceError(
            f"{problem} needs {need} bytes of device memory (one A, B, C and {record_bytes} for records); "
            f"{device.name} has {free} free; use a smaller problem"
        )
    notes = [note for note in (cache_directory()[1],) if note]
    if plain.ctas_per_sm != probed.ctas_per_sm:
        notes.append(f"the probe changes CTAs per SM from {plain.ctas_per_sm} to {probed.ctas_per_sm}")
    wanted_sets = min(MAX_GRAPH_LAUNCHES, L2_MULTIPLE * device.l2_bytes // problem.operand_bytes + 1)
    num_sets = max(1, min(wanted_sets, int(0.8 * (free - record_bytes)) // problem.operand_bytes))
    if num_sets * problem.operand_bytes <= L2_MULTIPLE * device.l2_bytes:
        notes.append(f"{num_sets} operand sets do not exceed {L2_MULTIPLE} x L2: operands may be found in L2")
    counter = allocate(4)
    fill_bytes(counter, 0, stream)
    return _Setup(
        device,
        schedule,
        fact,
        plain,
        probed,
        operand_kernels,
        tuple(allocate_set(problem) for _ in range(num_sets)),
        (allocate(record_bytes),),
        counter,
        deadline_s,
        tuple(notes),
    )


def num_records(schedule: Schedule) -> int:
    """Record slots of a launch: mac and epilogue of each unit, then one a CTA (kernels/include/loop.cuh)."""
    return 2 * schedule.num_units + schedule.num_ctas


def _run(setup: _Setup, function: Function, index: int, stream: Stream) -> None:
    """Launch `function` on operand set and record buffer number `index`, each in turn."""
    operands, problem = setup.sets[index % len(setup.sets)], setup.schedule.problem
    group = setup.schedule.raster.group(setup.schedule.tile.tiles_m(problem))
    arguments = (
        operands.a,
        operands.b,
        operands.c,
        *(np.int32(size) for size in (problem.m, problem.n, problem.k, *operands.pitches, group)),
        setup.counter,
        setup.records[index % setup.launches],
    )
    launch(function, (setup.schedule.num_ctas,), arguments, stream)


def _verify(setup: _Setup, stream: Stream, seed: int) -> dict[str, Any]:
    """Both kernels on small integers, exactly; the probed one's records against the schedule."""
    found: dict[str, Any] = {}
    for name, function in (("plain", setup.plain), ("probed", setup.probed)):
        fill_set(setup.operand_kernels, setup.sets[0], "integers", seed, stream)
        fill_bytes(setup.records[0], 0, stream)
        _run(setup, function, 0, stream)
        wait(stream, setup.deadline_s)
        found[f"{name}_integers"] = _verdict(setup, "integers", stream, name)
    return found


def _verify_random(setup: _Setup, stream: Stream) -> dict[str, Any]:
    """The plain kernel once more, on the random operands that were timed."""
    fill_bytes(setup.sets[0].c, 0xFF, stream)
    _run(setup, setup.plain, 0, stream)
    wait(stream, setup.deadline_s)
    return {"plain_normal": _verdict(setup, "normal", stream, "plain")}


def _verdict(setup: _Setup, values: Any, stream: Stream, name: str) -> dict[str, Any]:
    verdict: Verdict = check_set(setup.operand_kernels, setup.sets[0], values, stream)
    verdict.require(f"{setup.facts.kernel} {setup.schedule.name} ({name}), {setup.schedule.problem}")
    return {key: value for key, value in asdict(verdict).items() if key not in ("wrong", "first")}


def _time(
    setup: _Setup, spin: Function, stream: Stream, repeat: int, seed: int, progress: Progress
) -> tuple[Timing, NDArray[Any]]:
    """ABBA rounds of graphs; the records of the launch whose T is the median of those kept."""
    if repeat < 1:
        raise ShapeError(f"repeat={repeat} gives no measurement; use 1 or more")
    for index, operands in enumerate(setup.sets):
        fill_set(setup.operand_kernels, operands, "normal", seed + index, stream)
    setup = _with_launches(setup, spin, stream)

    def lead(on: Stream) -> None:
        launch(spin, (1,), (np.uint64(LEAD_NS),), on)

    def graph_of(function: Function) -> Any:
        return capture(
            [lambda on, index=index: _run(setup, function, index, on) for index in range(setup.launches)], stream
        )

    graphs = {"A": graph_of(setup.plain), "B": graph_of(setup.probed)}
    times: dict[str, list[float]] = {"A": [], "B": []}
    kept: list[NDArray[Any]] = []
    record_bytes = setup.records[0].nbytes
    for round_index in range(-1, repeat):  # round -1 warms up, and is dropped
        if round_index % 20 == 0:
            progress(f"timing: round {round_index + 1} of {repeat}")
        for which in "ABBA":
            for buffer in setup.records:
                fill_bytes(buffer, 0, stream)
            wait(stream, setup.deadline_s)
            time.sleep(IDLE_S)
            elapsed = timed_ns(graphs[which], lead, setup.deadline_s, stream)
            if round_index < 0:
                continue
            times[which].append(elapsed / setup.launches)
            if which == "B" and (not kept or (len(kept) + setup.launches) * record_bytes <= KEPT_BYTES):
                # the first launch of a graph starts cold: it is kept only where it is the only one
                later = setup.records[1:] or setup.records
                kept += [download(buffer, RECORD_DTYPE, stream) for buffer in later]
    a, b = np.array(times["A"]), np.array(times["B"])
    pairs = b.reshape(-1, 2).sum(axis=1) / a.reshape(-1, 2).sum(axis=1)
    timing = Timing("cool", median_interval(a), median_interval(b), median_interval(pairs))
    durations = [_duration_ns(records) for records in kept]
    median = sorted(range(len(kept)), key=durations.__getitem__)[(len(kept) - 1) // 2]
    return timing, kept[median]


def _with_launches(setup: _Setup, spin: Function, stream: Stream) -> _Setup:
    """The setup with as many record buffers as a graph of about GRAPH_NS needs."""
    probe = capture([lambda on: _run(setup, setup.plain, 0, on)], stream)

    def lead(on: Stream) -> None:
        launch(spin, (1,), (np.uint64(LEAD_NS),), on)

    once = min(timed_ns(probe, lead, setup.deadline_s, stream) for _ in range(3))
    wanted = max(1, min(MAX_GRAPH_LAUNCHES, math.ceil(GRAPH_NS / once)))
    record_bytes = setup.records[0].nbytes
    room = 1 + int(0.5 * free_bytes()) // record_bytes
    count = max(1, min(wanted, room))
    more = tuple(allocate(record_bytes) for _ in range(count - 1))
    fields = {name: getattr(setup, name) for name in setup.__dataclass_fields__}
    return _Setup(**{**fields, "records": setup.records + more})


def _duration_ns(records: NDArray[Any]) -> int:
    ctas = records[records["kind"] == Kind.CTA]
    return int(ctas["end_ns"].max() - ctas["begin_ns"].min())
