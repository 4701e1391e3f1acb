"""What is wrong with a profile's times: counted, said, and kept out of the sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wavescope.audit.launches import NULL, IntColumn

# Dependent launches overlap their predecessor on purpose: by up to 3.7 us in a public trace of a
# B200.  A kernel that runs further past its successor's start has a wrong end.
MAX_OVERLAP_NS = 10_000
MAX_KERNEL_NS = 86_400 * 10**9  # a kernel that runs for a day is a wrong number


def counted(number: int, one: str, many: str) -> str:
    """'1 kernel has', '2,000 kernels have'."""
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def clip(
    lane: IntColumn, start_ns: IntColumn, duration_ns: IntColumn, exempt: NDArray[np.bool_]
) -> tuple[IntColumn, list[str]]:
    """The durations, cut where a kernel cannot have run that long, and what was found.

    `lane` numbers the streams.  Kernels of one stream follow each other; where one runs
    more than MAX_OVERLAP_NS past the next one's start, its duration ends there.  Those of
    `exempt` (a graph's branches may share a stream) are left alone.
    """
    timed = np.flatnonzero((duration_ns != NULL) & (start_ns != NULL))
    order = timed[np.lexsort((start_ns[timed], lane[timed]))]
    first, second = order[:-1], order[1:]
    over = start_ns[first] + duration_ns[first] - start_ns[second]
    over[(lane[first] != lane[second]) | exempt[first]] = 0
    notes = []
    legal = over[(over > 0) & (over <= MAX_OVERLAP_NS)]
    if len(legal):
        what = counted(len(legal), "kernel overlaps", "kernels overlap")
        notes.append(
            f"{what} the next one on the same stream, by up to {legal.max() / 1000:.3f} us: dependent launches"
        )
    wrong = over > MAX_OVERLAP_NS
    if wrong.any():
        duration_ns = duration_ns.copy()
        duration_ns[first[wrong]] -= over[wrong]
        notes.append(
            f"{counted(int(wrong.sum()), 'kernel ends', 'kernels end')} more than {MAX_OVERLAP_NS // 1000} us after "
            f"the next one on the same stream began, which cannot be; cut there, "
            f"{over[wrong].sum() / 1e6:,.3f} ms taken off"
        )
    return duration_ns, notes


def times(start_ns: IntColumn, duration_ns: IntColumn, windows: list[tuple[int, int]]) -> list[str]:
    """Sentences on launches without a believable time, and on those outside the profiling windows."""
    notes = []
    missing = int(((duration_ns == NULL) | (start_ns == NULL)).sum())
    if missing:
        what = counted(missing, "kernel has", "kernels have")
        notes.append(f"{what} no believable time (missing, negative or above a day); not in any sum of time")
    zero = int((duration_ns == 0).sum())
    if zero:
        notes.append(f"{counted(zero, 'kernel has', 'kernels have')} a duration of 0; they add nothing to the sums")
    if windows:
        begin, end = min(window[0] for window in windows), max(window[1] for window in windows)
        outside = int((((start_ns < begin) | (start_ns > end)) & (start_ns != NULL)).sum())
        if outside:
            notes.append(f"{counted(outside, 'kernel begins', 'kernels begin')} outside the profiling window")
    return notes


def order_of_launch(start_ns: IntColumn, call_ns: NDArray[np.integer]) -> list[str]:
    """A sentence on kernels that began before the call that launched them (NULL: no such call known)."""
    early = int(((call_ns != NULL) & (start_ns != NULL) & (start_ns < call_ns)).sum())
    if not early:
        return []
    what = counted(early, "kernel begins", "kernels begin")
    return [f"{what} before the call that launched it: host and GPU clocks disagree, compare no times across them"]


def resolution(start_ns: IntColumn, duration_ns: IntColumn) -> list[str]:
    """A sentence where every time is a whole number of microseconds."""
    if len(start_ns) < 10 or (start_ns % 1000).any() or (duration_ns[duration_ns != NULL] % 1000).any():
        return []
    return ["times are whole microseconds, so each duration is off by up to 1 us"]


def lanes(*columns: IntColumn) -> IntColumn:
    """A number for each distinct row of `columns`."""
    lane = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        _, inverse = np.unique(values, return_inverse=True)
        lane = lane * (int(inverse.max(initial=0)) + 1) + inverse
    return lane
