"""Random small launches for property tests, and what a clock that visits every nanosecond finds in them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.synthetic import Span
from wavescope.trace import Kind

SM_IDS = (0, 1, 5, 17, 130)  # not contiguous, as under MIG
INSIDE = (Kind.WAIT, Kind.EPILOGUE, Kind.FIXUP, Kind.MAC)
# Larger first: what an SM counts as doing where spans overlap.
PRIORITY = (
    (Kind.MAC, "mac"),
    (Kind.FIXUP, "fixup"),
    (Kind.EPILOGUE, "epilogue"),
    (Kind.WAIT, "wait"),
    (Kind.CTA, "resident"),
)


@st.composite
def launches(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Spans of a launch, and the device's SM count.

    Up to four CTAs on an SM, side by side or after one another; spans of all kinds that
    overlap at will inside their CTA; spans without length; SMs that never get a CTA.
    """
    used = draw(st.lists(st.sampled_from(SM_IDS), min_size=1, max_size=len(SM_IDS), unique=True))
    rows: list[Span] = []
    for sm in used:
        for _ in range(draw(st.integers(1, 4))):
            begin, length = draw(st.integers(3, 30)), draw(st.integers(0, 20))
            cta = len({row.cta for row in rows})
            rows.append(Span(Kind.CTA, cta, sm, begin, begin + length))
            for kind in draw(st.lists(st.sampled_from(INSIDE), max_size=4)):
                first = begin + draw(st.integers(0, length))
                last = draw(st.integers(first, begin + length))
                rows.append(Span(kind, cta, sm, first, last, unit=cta, tile_m=0, tile_n=0, k_begin=0, k_end=1))
    if max(row.end for row in rows) == min(row.begin for row in rows):  # a launch needs a duration
        rows.append(Span(Kind.CTA, len({row.cta for row in rows}), used[0], 40, 41))
    return rows, len(used) + draw(st.integers(0, 2))


def visited(rows: list[Span]) -> dict[int, dict[str, int]]:
    """Nanoseconds of each state on each SM that has spans, found one nanosecond at a time."""
    ctas = [row for row in rows if row.kind == Kind.CTA]
    t0, t1 = min(row.begin for row in ctas), max(row.end for row in ctas)
    found = {}
    for sm in sorted({row.sm for row in rows}):
        mine = [row for row in rows if row.sm == sm]
        first = min(row.begin for row in mine)
        last = max(row.end for row in mine)
        spent = dict.fromkeys([name for _, name in PRIORITY] + ["turnaround", "ramp", "tail"], 0)
        for now in range(t0, t1):
            spent[_state(mine, now, first, last)] += 1
        found[sm] = spent
    return found


def _state(rows: list[Span], now: int, first: int, last: int) -> str:
    for kind, name in PRIORITY:
        if any(row.kind == kind and row.begin <= now < row.end for row in rows):
            return name
    if now < first:
        return "ramp"
    return "tail" if now >= last else "turnaround"
