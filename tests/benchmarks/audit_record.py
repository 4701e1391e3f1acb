"""Records what tests/benchmarks/audit_accuracy.py compares: random GEMMs through PyTorch, traced and counted.

Needs a GPU, PyTorch and Nsight Compute; the seed makes the launches the same in both runs.

    python tests/benchmarks/audit_record.py --seed 11 --trace own.pt.trace.json.gz
    ncu --clock-control none -k regex:'nvjet|gemm|cutlass|splitK' --section LaunchStats --section Occupancy \\
        --metrics gpu__time_duration.sum,sm__cycles_active.avg,sm__cycles_active.max,sm__cycles_active.min \\
        --csv --page raw --print-units base --log-file own_ncu_raw.csv \\
        python tests/benchmarks/audit_record.py --seed 11
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass

MAX_ELEMENTS = 3 * 2**27  # of both operands together


@dataclass(frozen=True)
class Product:
    """One product of random sizes; `a_transposed`, `b_transposed`: stored column by column."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    a_transposed: bool
    b_transposed: bool


def products(seed: int) -> list[Product]:
    """Sizes spread evenly over their logarithms, rounded down to multiples of 8; single and batched."""
    numbers = random.Random(seed)

    def size(least: int, most: int) -> int:
        return max(8, int(2 ** numbers.uniform(math.log2(least), math.log2(most))) // 8 * 8)

    found = []
    while len(found) < 470:
        m, n, k = size(8, 20_000), size(64, 20_000), size(96, 20_000)
        if 2e7 < m * n * k < 4e11:
            dtype = "bfloat16" if numbers.random() < 0.75 else "float16"
            found.append(Product(1, m, n, k, dtype, numbers.random() < 0.2, numbers.random() < 0.55))
    for _ in range(40):
        batch, m, n, k = numbers.randint(2, 96), size(64, 2048), size(64, 2048), size(32, 2048)
        found.append(Product(batch, m, n, k, "float16", False, numbers.random() < 0.5))
    numbers.shuffle(found)
    return found


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--trace", help="write a PyTorch trace with shapes here")
    options = parser.parse_args()
    store = {
        name: torch.randn(MAX_ELEMENTS, device="cuda", dtype=getattr(torch, name)) for name in ("bfloat16", "float16")
    }

    def operand(dtype: str, batch: int, rows: int, columns: int, transposed: bool, begin: int) -> torch.Tensor:
        flat = store[dtype][begin : begin + batch * rows * columns]
        whole = flat.view(batch, columns, rows).transpose(1, 2) if transposed else flat.view(batch, rows, columns)
        return whole if batch > 1 else whole[0]

    def run() -> None:
        for one in products(options.seed):
            a = operand(one.dtype, one.batch, one.m, one.k, one.a_transposed, 0)
            b = operand(one.dtype, one.batch, one.k, one.n, one.b_transposed, one.batch * one.m * one.k)
            a @ b
            torch.cuda.synchronize()

    if not options.trace:
        run()
        return
    run()
    with torch.profiler.profile(record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(options.trace)


if __name__ == "__main__":
    main()
