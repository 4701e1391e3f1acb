"""Damaged profiles, many of them: `audit` must report or refuse each, quickly and in constant memory.

    python tests/benchmarks/audit_fuzz.py [--seed 1] [--runs kineto=100000 csv=100000 sqlite=20000 ncu-rep=1000]

Prints JSON: how many were accepted (at least a tenth must reach the report), how many
refused and why, the failures, the growth of memory after the first tenth.  The exit status
is 1 where anything failed.  One failure is seen again with --only KIND INDEX.  .ncu-rep
files are taken from WAVESCOPE_PROFILES (by default the folder shared beside the checkout).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "tests")]
from audit_mutations import KINDS, SEEDS, Outcome, fuzz  # noqa: E402

RUNS = {"kineto": 100_000, "csv": 100_000, "sqlite": 20_000, "ncu-rep": 1_000}
LEAST_ACCEPTED = 0.10
MOST_GROWTH_MB = 20
SHOWN = 5
PROFILES = Path(os.environ.get("WAVESCOPE_PROFILES", CHECKOUT.parent / "shared"))


def resident_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def long_run(kind: str, runs: int, seed: int, folder: Path) -> dict[str, object]:
    """Fuzz one kind, in ten parts, with the memory after the first and after the last."""
    if not SEEDS[kind](folder, PROFILES):
        return {"runs": 0, "skipped": f"no seeds in {PROFILES.name}"}
    total = Outcome()
    begin = time.perf_counter()
    memory = []
    for part in range(10):
        found = fuzz(kind, range(runs * part // 10, runs * (part + 1) // 10), seed, folder, PROFILES)
        total.runs += found.runs
        total.accepted += found.accepted
        total.refusals += found.refusals
        total.failures += found.failures
        memory.append(resident_mb())
        print(
            f"{kind}: {total.runs} of {runs}, {total.accepted} accepted, {len(total.failures)} failed", file=sys.stderr
        )
    return {
        "runs": total.runs,
        "accepted": total.accepted,
        "share_accepted": round(total.share_accepted, 3),
        "failures": len(total.failures),
        "first_failures": total.failures[:SHOWN],
        "growth_mb": round(memory[-1] - memory[0], 1),
        "seconds": round(time.perf_counter() - begin, 1),
        "refusals": dict(total.refusals.most_common(12)),
    }


def is_fine(result: dict[str, object]) -> bool:
    if result["runs"] == 0:
        return True
    share, growth = float(str(result["share_accepted"])), float(str(result["growth_mb"]))
    return not result["failures"] and share >= LEAST_ACCEPTED and growth <= MOST_GROWTH_MB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", nargs="*", default=[], metavar="KIND=N")
    parser.add_argument("--only", nargs=2, metavar=("KIND", "INDEX"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        if given.only:
            kind, index = given.only
            found = fuzz(kind, range(int(index), int(index) + 1), given.seed, Path(folder), PROFILES)
            print("\n".join(found.failures) or f"accepted: {found.accepted}, refused: {dict(found.refusals)}")
            return bool(found.failures)
        asked = {kind: int(number) for kind, _, number in (text.partition("=") for text in given.runs)} or RUNS
        result = {kind: long_run(kind, asked[kind], given.seed, Path(folder)) for kind in KINDS if asked.get(kind)}
    print(json.dumps({"seed": given.seed, **result}, indent=2))
    return 0 if all(is_fine(part) for part in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
