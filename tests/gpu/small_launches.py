"""Small launches of every schedule, plain and probed, for compute-sanitizer to watch; exit status 0 when all are right.

python tests/gpu/small_launches.py [KERNEL ...]    by default all kernels that run here
"""

import itertools
import sys

from wavescope import kernel_table
from wavescope.calibration_launches import ALL_PLACES
from wavescope.cuda_device import query
from wavescope.device import Device
from wavescope.kernel_table import Kernel
from wavescope.kernels import facts
from wavescope.launch import open_stream, wait
from wavescope.measure import verify_integers
from wavescope.prepare import Prepared, prepare, require_met, run
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES, Raster
from wavescope.variant import Variant
from wavescope.work import Work

SHAPES = ((1, 1, 1), (65, 67, 33), (129, 250, 71), (200, 130, 128))
WHOLE = tuple(name for name in SCHEDULES if name not in SPLIT_SCHEDULES)
K_ITERS = 3  # of the shapes whose tiles are cut
MANY = 24  # parts of one tile, so many that their sums are added in small pieces (fixup.cuh: add_share)


def whole_tiles(kernel: Kernel, tile: Tile, device: Device) -> None:
    """Schedules that keep tiles whole, on tiles of equal and of unequal k."""
    types = itertools.cycle(itertools.product(kernel.dtypes, ("tn", "nn")))
    works = (None, Work("ragged", 3)) if tile.m % 64 == tile.n % 64 == 0 else (None,)  # operands.k_ends_of_checks
    for (m, n, k), schedule, work in itertools.product(SHAPES, WHOLE, works):
        dtype, layout = next(types)
        problem = Problem(m, n, k, dtype, layout)  # type: ignore[arg-type]
        variant = Variant(schedule, raster=Raster("grouped3"))
        need = facts(problem, tile, device, kernel_name=kernel.name)
        check(prepare(problem, tile, variant, device, 0, need, work=work), f"{problem} {variant} {work or ''}")


def cut_tiles(kernel: Kernel, tile: Tile, device: Device) -> None:
    """Schedules that cut tiles, on a few tiles, and on some left over beside whole ones, on one CTA an SM."""
    left_over = 12 * tile.m, (device.sms // 12 + 1) * tile.n
    shapes = ((tile.m + 1, tile.n + 3, K_ITERS * tile.k), (*left_over, K_ITERS * tile.k - 1))
    texts = ("splitk:2", f"streamk:{device.sms}", "hybrid", "tailsplit:2")
    for (m, n, k), text, reduction in itertools.product(shapes, texts, ("", "@atomic")):
        problem = Problem(m, n, k, kernel.dtypes[0])
        alone = facts(problem, tile, device, most_ctas=1, kernel_name=kernel.name)
        prepared = prepare(problem, tile, Variant.parse(text + reduction), device, 0, alone, ALL_PLACES)
        assert prepared.schedule.num_slots > 0, (problem, text)
        check(prepared, f"{problem} {text}{reduction}")
    problem = Problem(tile.m - 1, tile.n - 3, MANY * tile.k, kernel.dtypes[0])
    need = facts(problem, tile, device, kernel_name=kernel.name)
    check(prepare(problem, tile, Variant.parse(f"tailsplit:{MANY}"), device, 0, need), f"{problem} tailsplit:{MANY}")


def check(prepared: Prepared, what: str) -> None:
    """Both kernels give the right result, and so a second launch on the same flags."""
    stream = open_stream(0, what)
    verify_integers(prepared, 7, stream)
    run(prepared, prepared.functions.plain, 0, stream)
    wait(stream, prepared.deadline_s)
    require_met(prepared, stream)
    print(f"{prepared.facts.kernel} {what}: right", flush=True)


def smallest(kernel: Kernel) -> list[Tile]:
    """The smallest tile, and the smallest turned one where the kernel has any."""
    kinds = ([code.tile for code in kernel.codes if code.turned is turned] for turned in (False, True))
    return [min(tiles, key=lambda tile: tile.m * tile.n) for tiles in kinds if tiles]


def main() -> None:
    device = query(0)
    names = sys.argv[1:] or [kernel.name for kernel in kernel_table.KERNELS if kernel.runs_on(device)]
    for kernel in kernel_table.KERNELS:
        if kernel.name in names:
            for tile in smallest(kernel):
                whole_tiles(kernel, tile, device)
                cut_tiles(kernel, tile, device)
    print("all launches are right")


if __name__ == "__main__":
    main()
