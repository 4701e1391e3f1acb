"""Record the traces that calibrate the virtual device: every tile, few shapes, fixed and persistent.

Run on the device that is to be recorded: python tests/data/record_h200.py FOLDER.  The
files go to tests/data/h200; rebuild_calibration.py makes wavescope/data/calibration.csv
from them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from wavescope.cuda_device import query
from wavescope.kernels import KERNELS
from wavescope.measure import measure
from wavescope.problem import Problem
from wavescope.trace_file import save
from wavescope.variant import Variant

# (m, n, k, schedule): a tail, two lengths of k to tell fixed costs from costs a k_iter, and
# a persistent launch for the gaps between units of one CTA.
SHAPES = ((2304, 2304, 4096, "fixed"), (2304, 2304, 1024, "fixed"), (2304, 1792, 2048, "persistent"))
ROUNDS = 7


def main() -> None:
    """Measure and save."""
    folder = Path(sys.argv[1])
    query(0)
    for kernel in KERNELS:
        for code in kernel.codes:
            for m, n, k, schedule in SHAPES:
                problem = Problem(m, n, k, kernel.dtypes[0])
                trace = measure(
                    problem, code.tile, Variant(schedule), 0, repeat=ROUNDS, seed=1, progress=lambda text: None
                )
                save(trace, folder / f"{kernel.name}-{code.tile}-{schedule}-{m}x{n}x{k}.parquet")


if __name__ == "__main__":
    main()
