"""Difference: two audits of the same program side by side, kernel by kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from wavescope.audit.examine import Audit
from wavescope.audit.groups import Group
from wavescope.audit.totals import Totals


@dataclass(frozen=True)
class Change:
    """What one piece of work (operator and shapes, else the kernel's name) takes in both; 0 where it is missing.

    `kernel` and `before_kernel` are the names that took most time; `lost_ns` is the least
    time lost to waves.  So a slower kernel can be told from a worse fill.
    """

    kernel: str
    before_kernel: str
    operator: str | None
    problem: str
    count: int
    before_count: int
    total_ns: float
    before_total_ns: float
    lost_ns: float
    before_lost_ns: float

    @property
    def change_ns(self) -> float:
        """Time now less time before."""
        return self.total_ns - self.before_total_ns

    @property
    def same_kernel(self) -> bool:
        """True where the same kernel does most of the work in both."""
        return self.kernel == self.before_kernel


@dataclass(frozen=True)
class Difference:
    """`changes`, the largest first, of an audit against another."""

    totals: Totals
    before: Totals
    changes: tuple[Change, ...]


def difference(now: Audit, before: Audit) -> Difference:
    """What changed from `before` to `now`."""
    new, old = _by_work(now.groups), _by_work(before.groups)
    changes = [_change(new.get(work, []), old.get(work, [])) for work in dict.fromkeys([*new, *old])]
    changes.sort(key=lambda change: (-abs(change.change_ns), change.kernel or change.before_kernel))
    return Difference(now.totals, before.totals, tuple(changes))


def _by_work(groups: Sequence[Group]) -> dict[object, list[Group]]:
    found: defaultdict[object, list[Group]] = defaultdict(list)
    for group in groups:
        has_shapes = group.operator is not None and group.shapes is not None
        found[(group.operator, group.shapes) if has_shapes else group.name].append(group)
    return found


def _change(new: list[Group], old: list[Group]) -> Change:
    def total(groups: list[Group], name: str) -> float:
        return float(sum(getattr(group, name) for group in groups))

    def kernel(groups: list[Group]) -> str:
        return max(groups, key=lambda group: group.total_ns).name if groups else ""

    some = (new or old)[0]
    gemm = next((group.assessment.gemm for group in (*new, *old) if group.assessment.gemm), None)
    return Change(
        kernel=kernel(new),
        before_kernel=kernel(old),
        operator=some.operator,
        problem=str(gemm or ""),
        count=int(total(new, "count")),
        before_count=int(total(old, "count")),
        total_ns=total(new, "total_ns"),
        before_total_ns=total(old, "total_ns"),
        lost_ns=total(new, "lost_low_ns"),
        before_lost_ns=total(old, "lost_low_ns"),
    )
