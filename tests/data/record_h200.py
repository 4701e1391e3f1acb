"""Record the traces that calibrate the virtual device: every tile, few shapes, whole tiles and split ones.

Run on the device that is to be recorded: python tests/data/record_h200.py FOLDER.  The
files go to tests/data/h200; rebuild_calibration.py makes wavescope/data/calibration.csv
from them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from wavescope.calibration import model_of
from wavescope.cuda_device import query
from wavescope.kernels import KERNELS
from wavescope.measure import measure
from wavescope.problem import Problem
from wavescope.trace_file import save
from wavescope.variant import Variant

# (m, n, k, schedule): a tail, two lengths of k to tell fixed costs from costs a k_iter, and
# a persistent launch for the gaps between units of one CTA; then each way to split tiles, twice.
SHAPES = (
    (2304, 2304, 4096, "fixed"),
    (2304, 2304, 1024, "fixed"),
    (2304, 1792, 2048, "persistent"),
    (2304, 2304, 4096, "streamk"),
    (1408, 1408, 4096, "streamk"),
    (2304, 2304, 4096, "hybrid"),
    (3072, 3072, 2048, "hybrid"),
    (2304, 2304, 4096, "tailsplit"),
    (2048, 4352, 2048, "tailsplit"),
    (1408, 1408, 4096, "splitk:3"),
    (896, 896, 8192, "splitk:2"),
)
ROUNDS = 7


def main() -> None:
    """Measure and save."""
    folder = Path(sys.argv[1])
    for kernel in KERNELS:
        for code in kernel.codes:
            for m, n, k, schedule in SHAPES:
                problem = Problem(m, n, k, kernel.dtypes[0])
                variant, device = Variant.parse(schedule), query(0)
                trace = measure(
                    problem,
                    code.tile,
                    variant,
                    0,
                    repeat=ROUNDS,
                    seed=1,
                    progress=lambda text: None,
                    model=model_of(problem, code.tile, device),
                )
                save(trace, folder / f"{kernel.name}-{code.tile}-{variant.schedule}-{m}x{n}x{k}.parquet")


if __name__ == "__main__":
    main()
