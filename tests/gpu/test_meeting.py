"""Partial sums on the device: the same bits every time, and no CTA that waits for ever, whoever else holds SMs."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from wavescope import kernels
from wavescope.device import Device
from wavescope.kernel_table import GEMM_MMA, GEMM_SM90, GEMM_SM90_PINGPONG, Kernel
from wavescope.launch import allocate, download, fill_bytes, launch, load, open_stream, wait
from wavescope.measure import verify_integers, verify_one
from wavescope.nvrtc import architecture, compile_kernel
from wavescope.operands import fill_set
from wavescope.prepare import Prepared, clear, prepare, require_met, run
from wavescope.problem import Problem, Tile
from wavescope.trace import RECORD_DTYPE, Kind
from wavescope.variant import Variant

LARGE, SMALL = Tile(128, 256, 64), Tile(128, 128, 64)
# Tiles left over beside whole ones; a tail without whole tiles; fewer tiles than SMs.
SHAPES = {
    LARGE: (Problem(2304, 2304, 1024), Problem(1408, 1408, 4096), Problem(512, 512, 4096)),
    SMALL: (Problem(2304, 2304, 1024), Problem(1024, 1024, 4096), Problem(512, 512, 4096)),
}
KERNELS = {GEMM_MMA: LARGE, GEMM_SM90: LARGE, GEMM_SM90_PINGPONG: SMALL}
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
SPLITS = ("splitk:3", "streamk:132", "hybrid", "hybrid:1", "tailsplit", "tailsplit:2")
REPEATS, LAUNCHES = 20, 1000


def ready(device: Device, kernel: Kernel, shape: int, text: str) -> Prepared:
    """One of the kernel's SHAPES."""
    if not kernel.runs_on(device):
        pytest.skip(f"{device.name} lacks the instructions of {kernel.name}")
    tile = KERNELS[kernel]
    problem = SHAPES[tile][shape]
    tile_ctas = f"streamk:{device.sms}" if text.startswith("streamk") else text
    facts = kernels.facts(problem, tile, device, kernel_name=kernel.name)
    prepared = prepare(problem, tile, Variant.parse(tile_ctas), device, 0, facts)
    assert prepared.schedule.num_slots > 0, text  # something is split, else the test shows nothing
    return prepared


@pytest.mark.parametrize("text", SPLITS)
@pytest.mark.parametrize("shape", range(3))
@each_kernel
def test_ordered_sums_have_the_same_bits(device: Device, kernel: Kernel, shape: int, text: str) -> None:
    prepared, stream = ready(device, kernel, shape, text), open_stream(0, text)
    fill_set(prepared.functions.operands, prepared.sets[0], "normal", 11, stream)
    verify_one(prepared, prepared.functions.plain, "normal", stream)
    once = dataclasses.replace(prepared, sets=prepared.sets[:1])
    seen = set()
    for _ in range(REPEATS):
        fill_bytes(once.sets[0].c, 0xFF, stream)
        run(once, once.functions.plain, 0, stream)
        seen.add(download(once.sets[0].c, np.dtype("u1"), stream).tobytes())
    require_met(prepared, stream)
    assert len(seen) == 1


OCCUPANT = """
extern "C" __global__ void occupant(unsigned long long duration_ns, unsigned long long* rows) {
    extern __shared__ unsigned char all_of_it[];
    unsigned long long begin, now;
    unsigned int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    } while (now - begin < duration_ns);
    all_of_it[threadIdx.x] = 0;
    rows[3 * blockIdx.x] = sm, rows[3 * blockIdx.x + 1] = begin, rows[3 * blockIdx.x + 2] = now;
}
"""


@pytest.mark.parametrize("held", [0, 1, 24, 60])
@pytest.mark.parametrize("text", ["streamk:132", "hybrid", "tailsplit", "tailsplit:2", "splitk:3"])
@each_kernel
def test_a_thousand_launches_end(device: Device, kernel: Kernel, text: str, held: int, tmp_path: Path) -> None:
    if held > device.sms // 2:  # as many CTAs of tailsplit may wait for one another
        pytest.skip(f"half of {device.name}'s {device.sms} SMs must be left")
    prepared = ready(device, kernel, 1 if text == "tailsplit:2" else 0, text)
    stream = open_stream(0, f"{text} beside {held} busy SMs")
    verify_integers(prepared, 3, stream)
    (tmp_path / "occupant.cu").write_text(OCCUPANT)
    cubin = compile_kernel(tmp_path / "occupant.cu", {}, architecture(device.compute_capability))
    occupant = load(cubin, "occupant", 1, device.shared_per_block)
    rows, beside = allocate(24 * max(held, 1)), open_stream(0, "occupant")
    if held:
        launch(occupant, (held,), (np.uint64(700_000_000), rows), beside)
    clear(prepared, stream)
    run(prepared, prepared.functions.probed, 0, stream)
    for index in range(LAUNCHES):
        run(prepared, prepared.functions.plain, index, stream)
    run(prepared, prepared.functions.probed, 1, stream)
    wait(stream, 60.0)
    require_met(prepared, stream)
    records = download(prepared.records[0], RECORD_DTYPE, stream)  # of the last launch
    ctas = records[records["kind"] == Kind.CTA]
    assert len(ctas) == prepared.schedule.num_ctas
    if held:
        wait(beside, 10.0)
        busy = download(rows, np.dtype("<u8"), beside).reshape(-1, 3)
        assert len(np.unique(busy[:, 0])) == held  # one SM each, with all of its shared memory
        assert not set(busy[:, 0].tolist()) & set(ctas["sm"].tolist())
        assert busy[:, 1].max() < ctas["begin_ns"].min()
        assert busy[:, 2].min() > ctas["end_ns"].max()  # it held them until the thousand launches were over
    verify_integers(prepared, 4, stream)
