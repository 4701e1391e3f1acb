"""How the CTAs of an SM share it: what a full SM does more than one CTA, and who gets how much of that.

H200, 2026-11 (tests/data/h200, two to four CTAs an SM).  The CTA that was there first runs
almost as fast as alone, and the ones that came later get the rest: with 128x128x32 tiles
and 128 k_iters, two CTAs that began together took 98,500 and 136,000 cycles for the same
work.  Age decides, not the place: a CTA that takes over the place of one that ended is
the youngest.  A CTA that stores its tile leaves the tensor cores to the others.

Two numbers say all of it, `sharing` and `seniority`.  Launches that they were not fitted
on came out to 4 % in time (tests/test_recorded_launches.py); fitted with three CTAs an SM,
they gave the times with four to 1 %.
"""

from __future__ import annotations

# speeds[n][rank] of n main loops at once, the oldest first
Speeds = tuple[tuple[float, ...], ...]


def main_loop_speeds(most: int, full: int, sharing: float, seniority: float) -> Speeds:
    """How fast each of 0, 1, .. `most` main loops of an SM runs, the oldest first; 1 is the mean of `full` of them.

    The mean of n is 1 / (1 - sharing (1 - n / full)): with sharing 1 they divide one
    throughput, with 0 none slows another.  Each gets 1 - seniority times what the next
    older one gets, but none runs faster than alone; what is left over goes to the
    younger ones.
    """
    means = [1 / (1 - sharing * (1 - number / full)) for number in range(1, most + 1)]
    return ((), *(_divide(number * mean, number, seniority, means[0]) for number, mean in enumerate(means, 1)))


def _divide(throughput: float, number: int, seniority: float, limit: float) -> tuple[float, ...]:
    """Throughput divided over `number` CTAs in a falling geometric series, none above the limit."""
    found, left = [], throughput
    for rank in range(number):
        weights = [(1 - seniority) ** younger for younger in range(number - rank)]
        found.append(min(limit, left / sum(weights)))
        left -= found[-1]
    return tuple(found)


def epilogue_speeds(most: int, full: int) -> tuple[float, ...]:
    """How fast an epilogue runs with 1, 2, .. `most` CTAs at work on its SM (index 0: as with one); 1 with `full`.

    H200, 2026-11: alone 2420 to 2470 cycles with 128x128 tiles, 4770 to 5090 beside another
    CTA; 710 alone and 1970 with 64x64 tiles and three CTAs.  They divide one throughput.
    """
    return tuple(full / max(1, number) for number in range(most + 1))
