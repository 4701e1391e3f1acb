"""FLOP a clock and SM that the tensor cores really give: the check of wavescope/data/flop_per_clock.csv.

Loops of mma.sync (sm_80 and later) and, on sm_90, of wgmma, with nothing else in them.
Run on a device: python tests/benchmarks/rates.py; prints JSON.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from wavescope.cuda_device import query
from wavescope.launch import allocate, download, launch, load, open_stream, wait
from wavescope.nvrtc import architecture, compile_kernel
from wavescope.rates import flop_per_clock

ITERATIONS = 4000


def rate(source: str, defines: dict[str, int], threads: int, flop_per_iteration: int) -> float:
    """Median FLOP a clock and SM over all SMs."""
    device = query(0)
    stream = open_stream(0, source)
    arch = architecture(device.compute_capability)
    function = load(compile_kernel(Path(__file__).with_name(source), defines, arch), "rate", threads)
    cycles, sink = allocate(8 * device.sms), allocate(4 * device.sms * threads)
    for _ in range(2):  # the first run warms up
        launch(function, (device.sms,), (cycles, sink, np.int32(ITERATIONS)), stream)
        wait(stream, 10.0)
    return float(ITERATIONS * flop_per_iteration / np.median(download(cycles, np.dtype("<u8"), stream)))


def main() -> None:
    """Print the rates beside the table's."""
    device = query(0)
    found = {"device": device.name, "table": flop_per_clock(device, "bf16").flop}
    for warps, chains in ((4, 16), (8, 16), (8, 32)):
        flop = warps * chains * 2 * 16 * 8 * 16
        found[f"mma.sync, {warps} warps, {chains} chains"] = rate("rate_mma.cu", {"CHAINS": chains}, warps * 32, flop)
    if device.compute_capability == (9, 0):
        found["wgmma m64n128k16, 1 warpgroup"] = rate("rate_wgmma.cu", {}, 128, 4 * 2 * 64 * 128 * 16)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
