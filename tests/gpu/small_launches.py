"""Small launches of every schedule, plain and probed, for compute-sanitizer to watch; exit status 0 when all are right."""

import itertools

from wavescope.cuda_device import query
from wavescope.kernels import facts
from wavescope.launch import open_stream
from wavescope.measure import verify_integers
from wavescope.prepare import prepare, run
from wavescope.problem import Problem, Tile
from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES, Raster
from wavescope.variant import Variant
from wavescope.work import Work

SHAPES = ((1, 1, 1), (65, 67, 33), (129, 250, 71), (200, 130, 128))


def main() -> None:
    device = query(0)
    dtypes = itertools.cycle((("bf16", "tn"), ("fp32", "nn"), ("fp16", "nn"), ("fp32", "tn"), ("bf16", "nn")))
    whole = [(name, Work("ragged", 3)) for name in SCHEDULES if name not in SPLIT_SCHEDULES]
    kinds = [*((name, None) for name in SCHEDULES if name not in SPLIT_SCHEDULES), *whole]
    for (m, n, k), (schedule, work) in itertools.product(SHAPES, kinds):
        dtype, layout = next(dtypes)
        problem = Problem(m, n, k, dtype, layout)  # type: ignore[arg-type]
        tile = Tile(128, 128, 8) if problem.dtype == "fp32" else Tile(64, 64, 64)
        variant = Variant(schedule, raster=Raster("grouped3"))
        prepared = prepare(problem, tile, variant, device, 0, facts(problem, tile, device), work=work)
        verify_integers(prepared, 7, open_stream(0, str(problem)))
    # k of several k_iters, and tiles left over beside whole ones on one CTA an SM
    cut = (Problem(65, 67, 200), Problem(129, 250, 300, "fp32", "nn"), Problem(64 * 12, 64 * device.sms // 11, 128))
    texts = ("splitk:2", f"streamk:{device.sms}", "hybrid", "tailsplit:2")
    for problem, text, reduction in itertools.product(cut, texts, ("", "@atomic")):
        tile = Tile(128, 128, 8) if problem.dtype == "fp32" else Tile(64, 64, 64)
        alone = facts(problem, tile, device, most_ctas=1)
        prepared = prepare(problem, tile, Variant.parse(text + reduction), device, 0, alone)
        assert prepared.schedule.num_slots > 0, (problem, text)
        verify_integers(prepared, 7, open_stream(0, str(problem)))
        run(prepared, prepared.functions.plain, 0, open_stream(0, str(problem)))  # a second launch on the same flags
    print("all launches are right")


if __name__ == "__main__":
    main()
