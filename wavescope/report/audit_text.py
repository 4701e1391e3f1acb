"""The audit for a terminal: plain lines that fit a width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from wavescope.audit.difference import Difference
from wavescope.audit.examine import Audit
from wavescope.audit.groups import Group
from wavescope.audit.totals import Totals
from wavescope.report import figures
from wavescope.report.layout import Column, Page, heading, labelled, paragraph, table

# Kernels shown where the user does not say.
SHOWN = 10
# Indent of the lines under a kernel's numbers.
_UNDER = 6


def lines(page: Page, audit: Audit, advice: Sequence[str], top: int = SHOWN) -> list[Text]:
    """The whole audit, one Text a line, none wider than the page."""
    sections = [
        _header(page, audit),
        _causes(page, audit.totals),
        _ranking(page, audit, top),
        _notes(page, audit),
        _advice(page, advice),
    ]
    return _joined(sections)


def difference_lines(page: Page, found: Difference, top: int = SHOWN) -> list[Text]:
    """An audit against another: totals, then what changed most."""
    return _joined([_difference_totals(page, found), _changes(page, found, top)])


def _joined(sections: Sequence[list[Text]]) -> list[Text]:
    body = [line for section in sections if section for line in (*section, Text())]
    return body[:-1]


def _header(page: Page, audit: Audit) -> list[Text]:
    total = audit.totals
    result = [heading(page, "wavescope audit", "estimated")]
    for profile, sums in zip(audit.profiles, audit.per_profile, strict=True):
        launches = profile.launches
        name = Path(launches.path).name
        text = f"{name}: {launches.kind}, {figures.grouped(len(launches))} kernels, {figures.time(sums.total_ns)}"
        result += labelled(page, "profile", _plain(text if len(audit.profiles) == 1 else f"{text}, {_lost(sums)}"))
    devices = {
        (device.name or "unknown GPU", device.sms) for profile in audit.profiles for device in profile.launches.devices
    }
    for name, sms in sorted(devices, key=str):
        result += labelled(page, "device", _plain(f"{name}, {f'{sms} SMs' if sms else 'number of SMs not known'}"))
    shared = (
        f", {figures.time(total.busy_ns)} with at least one running"
        if 0 < total.busy_ns < 0.999 * total.total_ns
        else ""
    )
    result += labelled(page, "kernel time", f"{figures.time(total.total_ns)} in all{shared}", style="bold")
    known = total.assessed_ns / total.total_ns if total.total_ns else 0.0
    result += labelled(page, "assessed", f"{figures.percent(known)} of it; {_verdicts(total)}")
    result += labelled(page, "lost", _lost(total), style="bold")
    return result


def _lost(total: Totals) -> str:
    if not total.assessed_ns:
        return "not known: no kernel could be assessed"
    low, high = total.lost_low_ns / total.total_ns, total.lost_high_ns / total.total_ns
    return f"{figures.percent(low)} to {figures.percent(high)} of kernel time to waves (estimated)"


def _verdicts(total: Totals) -> str:
    return "; ".join(f"{verdict} {figures.grouped(count)}" for verdict, (count, _) in total.verdicts.items())


def _causes(page: Page, total: Totals) -> list[Text]:
    """Where SM time goes that does no work."""
    if not total.assessed_ns:
        return []
    rows = [
        ("quantization", total.quantization_ns, "partial last rounds of blocks or tiles"),
        ("too few blocks", total.few_blocks_ns, "under one round: SMs without a block"),
        ("clusters", total.clusters_ns, "SMs out of reach for their clusters"),
        ("padding", total.padding_ns, "tiles outside the problem, where known"),
    ]
    unit = figures.unit_for(max(ns for _, ns, _ in rows), at_least=10)
    result = [heading(page, "Where SM time is lost: least, if equal units take equal times", "estimated")]
    for name, ns, meaning in rows:
        time = f"{unit.number(ns, 2)} {unit.name}"
        text = f"{time:>12}  {figures.percent(ns / total.total_ns):>6}  {meaning}"
        result += labelled(page, name, text, label_width=16)
    if total.beside_ns:
        text = f"{unit.number(total.beside_ns, 2)} {unit.name}"
        share = figures.percent(total.beside_ns / total.total_ns)
        result += labelled(page, "beside others", f"{text:>12}  {share:>6}  time of kernels that shared the GPU", 16)
    return result


def _ranking(page: Page, audit: Audit, top: int) -> list[Text]:
    shown = audit.groups[:top]
    what = "Operators" if audit.by == "operator" else "Kernels"
    result = [heading(page, f"{what} by time lost to waves", "estimated")]
    if not shown:
        return []
    total = audit.totals.total_ns or 1.0
    unit = figures.unit_for(max(group.total_ns for group in shown), at_least=10)
    columns = [
        Column("#", [str(number + 1) for number in range(len(shown))]),
        Column(f"time {unit.name}", [unit.number(group.total_ns, 2) for group in shown]),
        Column("share", [figures.percent(group.total_ns / total) for group in shown]),
        Column("calls", [figures.grouped(group.count) for group in shown], drop=2),
        Column(f"lost {unit.name}", [_lost_cell(group, unit) for group in shown]),
        Column("waves", [_decimals(group.assessment.waves) for group in shown], drop=3),
        Column("rounds", [_decimals(group.assessment.sm_rounds) for group in shown]),
        Column("fill", [_share(group.fill) for group in shown]),
        Column("active", [_share(group.activity) for group in shown], drop=1),
    ]
    if any(not math.isnan(group.measured) for group in shown):
        columns.append(Column("measured", [_share(group.measured) for group in shown]))
    numbers = table(page, columns)
    result.append(numbers[0])
    for line, group in zip(numbers[1:], shown, strict=True):
        result += [line, *_under(page, group)]
    left = len(audit.groups) - len(shown)
    if left:
        result += paragraph(page, f"{page.glyphs.ellipsis} {figures.grouped(left)} more; --top N shows them", "dim")
    return result


def _lost_cell(group: Group, unit: figures.TimeUnit) -> str:
    if not group.assessment.is_assessed:
        return "-"
    low, high = unit.number(group.lost_low_ns, 2), unit.number(group.lost_high_ns, 2)
    return low if low == high else f"{low}-{high}"


def _decimals(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else figures.percent(value)


def _under(page: Page, group: Group) -> list[Text]:
    """What stands under a kernel's numbers: its name, its problem, and why it fills as it does."""
    problem = f"  {group.assessment.gemm}" if group.assessment.gemm else ""
    room = page.width - _UNDER - len(problem)
    result = [Text(" " * _UNDER + _cut(page, _named(group), room) + problem)]
    return result + paragraph(page, _plain(_why(group)), "dim", indent=_UNDER)


def _cut(page: Page, text: str, room: int) -> str:
    """Text on one line of `room` cells."""
    plain = _plain(text)
    if len(plain) <= room:
        return plain
    return plain[: room - len(page.glyphs.ellipsis)].rstrip() + page.glyphs.ellipsis


def _plain(text: str) -> str:
    """Text of a profile without characters that would move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def _named(group: Group) -> str:
    if group.kernels > 1:
        return f"{group.operator}: {group.kernels} kernels, most time in {group.name}"
    return group.name


def _why(group: Group) -> str:
    entry = group.assessment
    blocks = math.prod(group.grid) if min(group.grid) > 0 else 0
    parts = [f"{entry.verdict}{f' ({entry.reason})' if entry.reason else ''}"]
    cut, name, room = entry.tiling, entry.decoded, entry.capacity
    if cut and name:
        split = f", k in {cut.split_k} parts" if cut.split_k > 1 else ""
        guessed = "" if cut.split_is_known else " (inferred)"
        clusters = f" in clusters of {cut.group}" if cut.group > 1 else ""
        parts.append(f"{cut.tiles} tiles of {name.tile_m}x{name.tile_n}{split}{guessed} on {blocks} blocks{clusters}")
    elif blocks:
        parts.append(f"{figures.grouped(blocks)} block{'s' if blocks > 1 else ''} of {math.prod(group.block)} threads")
    if room and room.ctas_per_sm and room.ctas_per_sm > 1:
        parts.append(f"{room.ctas_per_sm} fit on an SM")
    if group.plateaus:
        parts.append("measured: " + ", then ".join(str(step) for step in group.plateaus))
    if group.beside:
        parts.append(f"{group.beside.count} beside {group.beside.name[:40]}, held {group.beside.sms:.0f} SMs")
    return "; ".join(parts)


def _notes(page: Page, audit: Audit) -> list[Text]:
    if not audit.notes:
        return []
    result = [heading(page, "Data quality")]
    for note in audit.notes:
        result += _bullet(page, note)
    return result


def _advice(page: Page, advice: Sequence[str]) -> list[Text]:
    if not advice:
        return []
    result = [heading(page, "What could be tried: bounds, not promises; measure before and after")]
    for sentence in advice:
        result += _bullet(page, sentence)
    return result


def _bullet(page: Page, text: str) -> list[Text]:
    return labelled(page, "-", _plain(text), label_width=2)


def _difference_totals(page: Page, found: Difference) -> list[Text]:
    now, before = found.totals, found.before
    result = [heading(page, "wavescope audit against another profile", "estimated")]
    change = (now.total_ns - before.total_ns) / before.total_ns if before.total_ns else 0.0
    text = f"{figures.time(now.total_ns)}, before {figures.time(before.total_ns)} ({figures.signed_percent(change)})"
    result += labelled(page, "kernel time", text, style="bold")
    lost = f"{figures.time(now.lost_low_ns)} to waves at least, before {figures.time(before.lost_low_ns)}"
    result += labelled(page, "lost", lost)
    return result


def _changes(page: Page, found: Difference, top: int) -> list[Text]:
    shown = found.changes[:top]
    if not shown:
        return []
    unit = figures.unit_for(max(max(change.total_ns, change.before_total_ns) for change in shown), at_least=10)
    columns = [
        Column("#", [str(number + 1) for number in range(len(shown))]),
        Column(f"time {unit.name}", [unit.number(change.total_ns, 2) for change in shown]),
        Column("before", [unit.number(change.before_total_ns, 2) for change in shown]),
        Column("change", [f"{change.change_ns / unit.ns:+.2f}" for change in shown]),
        Column("calls", [f"{change.count}" for change in shown], drop=2),
        Column("before", [f"{change.before_count}" for change in shown], drop=2),
        Column("lost", [unit.number(change.lost_ns, 2) for change in shown]),
        Column("before", [unit.number(change.before_lost_ns, 2) for change in shown]),
    ]
    numbers = table(page, columns)
    result = [heading(page, "What changed most"), numbers[0]]
    for line, change in zip(numbers[1:], shown, strict=True):
        result.append(line)
        work = f"{change.operator} {change.problem}".strip() if change.operator else ""
        names = [change.kernel or "not there now"]
        if not change.same_kernel:
            names.append(f"before: {change.before_kernel or 'not there'}")
        for text in [*([work] if work else []), *names]:
            result.append(Text(" " * _UNDER + _cut(page, text, page.width - _UNDER)))
    return result
