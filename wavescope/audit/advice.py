"""Advice: what could be tried for the kernels that lose most, as bounds and never as promises."""

from __future__ import annotations

import math
from collections.abc import Callable

from wavescope.audit.assess import Verdict
from wavescope.audit.examine import Audit
from wavescope.audit.groups import Beside, Group

# Kernels that are spoken of, and the share of all kernel time below which a loss is not worth it.
MOST = 3
_SMALL_SHARE = 0.001
_LARGE_SHARE = 0.1
# A part of a split along k has at least so many steps of the tile, or its prologue is all it does.
_SHORTEST_SPLIT = 8
_BOUND = (
    "filling the rounds could save at most {saved} of its time, {loss}, at unchanged cost of a unit and unchanged clock"
)
_ROOM = (
    "at most {saved} of its time, {loss}, could be saved by more blocks or used by other work beside it, if nothing "
    "but idle SMs limits it"
)


def advice(audit: Audit, most: int = MOST) -> tuple[str, ...]:
    """One or two sentences for each of the first groups; empty where nothing is worth a try."""
    total = audit.totals.total_ns
    if not total:
        return ()
    worth = [
        group
        for group in audit.groups[:most]
        if group.assessment.is_assessed and group.lost_low_ns / total >= _SMALL_SHARE
    ]
    crowded = [group for group in audit.groups if group.beside and group.beside.total_ns >= _SMALL_SHARE * total]
    crowded.sort(key=lambda group: -_extra_ns(group))
    sharing = [_beside(group, group.beside) for group in crowded[:1] if group.beside]
    return (*(_of(group, total) for group in worth), *sharing, *_unknown(audit))


def _unknown(audit: Audit) -> list[str]:
    """How to see into persistent kernels, where they are much of the time and their tiles are not known."""
    count, time = audit.totals.verdicts.get("persistent, tiles unknown", (0, 0.0))
    if time < _LARGE_SHARE * audit.totals.total_ns or not count:
        return []
    launches = "1 launch" if count == 1 else f"{count:,} launches"
    return [
        f"{time / audit.totals.total_ns:.0%} of all kernel time is in {launches} of persistent kernels whose tiles "
        "cannot be counted. A PyTorch trace recorded with record_shapes=True has the shapes, without CUDA graph "
        "replay; Nsight Compute's counters show the idle part without them (--counters)."
    ]


def _of(group: Group, total_ns: float) -> str:
    what, bound = _WORDS[group.assessment.verdict](group)
    loss = f"{group.lost_low_ns / total_ns:.1%} of all kernel time"
    return f"{title(group)}: {what}; {bound.format(saved=f'{1 - group.fill:.1%}', loss=loss)}.{_waiting(group)}"


def title(group: Group) -> str:
    """The kernel's name, cut, and its problem where known."""
    name = group.name if len(group.name) <= 50 else group.name[:48] + ".."
    return f"{name} {group.assessment.gemm}" if group.assessment.gemm else name


def _hidden_tiles(group: Group) -> tuple[str, str]:
    cut = group.assessment.tiling
    if cut is None:
        return "its rounds are not full", _BOUND
    clusters = math.prod(group.grid) // cut.group
    last = (cut.groups - 1) % clusters + 1
    room = (clusters - last) * cut.group
    return (
        f"the last of {group.assessment.rounds} rounds occupies {last * cut.group} of {clusters * cut.group} blocks, "
        f"{room} more tiles of this size would cost no time; try a shape or a tile that fills it",
        _BOUND,
    )


def _few_blocks(group: Group) -> tuple[str, str]:
    entry = group.assessment
    blocks = math.prod(group.grid)
    sms = entry.capacity.sms if entry.capacity else 0
    if blocks >= sms:
        return f"its {blocks} blocks are less than one wave, though every SM has some", _BOUND
    return f"too few blocks, {blocks} for {sms} SMs; there is no tail to remove, only room{_more_units(group)}", _ROOM


def _more_units(group: Group) -> str:
    """How a matrix product could have more units; other kernels have no tile to change."""
    entry = group.assessment
    cut, name, gemm = entry.tiling, entry.decoded, entry.gemm
    if cut is None or name is None or gemm is None or entry.capacity is None:
        return ""
    per_split = cut.groups * cut.group // cut.split_k
    longest = max(1, gemm.k // (_SHORTEST_SPLIT * (name.tile_k or 1)))
    split = _filling_split(per_split, entry.capacity.sms, longest)
    if split <= cut.split_k:
        return " for smaller tiles"
    return f" for smaller tiles or k in {split} parts ({per_split * split} blocks)"


def _filling_split(tiles: int, sms: int, most: int) -> int:
    """The smallest number of parts along k, up to `most`, that fills one or two rounds of SMs best."""
    candidates = range(1, min(most, max(1, 2 * sms // max(1, tiles))) + 1)

    def fill(split: int) -> float:
        return tiles * split / (sms * -(-tiles * split // sms))

    return max(candidates, key=lambda split: (round(fill(split), 3), -split))


def _tail(group: Group) -> tuple[str, str]:
    entry = group.assessment
    sms = entry.capacity.reachable_sms if entry.capacity else 0
    blocks = math.prod(group.grid)
    last = (blocks - 1) % sms + 1 if sms else blocks
    idle = f"leave {sms - last} of them without one in the last of {entry.rounds} rounds"
    return f"{blocks} blocks on {sms} SMs {idle}; try another tile or block size", _BOUND


def _clusters(group: Group) -> tuple[str, str]:
    room = group.assessment.capacity
    if room is None or room.reachable_sms >= room.sms:
        return _tail(group)
    cluster = group.assessment.tiling.group if group.assessment.tiling else 0
    size = f" of {cluster}" if cluster > 1 else ""
    return f"clusters{size} reach {room.reachable_sms} of {room.sms} SMs; smaller ones may reach more", _BOUND


_WORDS: dict[Verdict, Callable[[Group], tuple[str, str]]] = {
    "persistent, hidden tiles": _hidden_tiles,
    "too few blocks": _few_blocks,
    "tail-bound": _tail,
    "many waves": _tail,
    "full waves": _clusters,
}


def _waiting(group: Group) -> str:
    """A warning where the arithmetic is a small part of the time."""
    math_ns = group.assessment.math_ns * group.count
    share = math_ns / (group.total_ns * group.fill) if group.total_ns and group.fill else math.nan
    if math.isnan(share) or share >= 0.5:
        return ""
    return (
        f" Its tensor cores need only {share:.0%} of that time (estimated): where it waits for memory, filling SMs "
        "brings nothing."
    )


def _extra_ns(group: Group) -> float:
    """Time that the waves a neighbour adds can take at most."""
    beside = group.beside
    if beside is None or math.isnan(beside.waves) or math.isnan(group.assessment.waves):
        return 0.0
    return beside.total_ns * (1 - math.ceil(group.assessment.waves) / math.ceil(beside.waves))


def _beside(group: Group, beside: Beside) -> str:
    room, waves = group.assessment.capacity, group.assessment.waves
    sms = room.sms if room else 0
    left = f"{sms - beside.sms:.0f} of {sms} SMs are left"
    name = beside.name if len(beside.name) <= 50 else beside.name[:48] + ".."
    head = f"{title(group)}: {beside.count} of {group.count} launches run beside {name}; {left}"
    more = math.ceil(beside.waves) - math.ceil(waves) if not math.isnan(beside.waves) else 0
    if more < 1:
        return f"{head}."
    factor = math.ceil(beside.waves) / math.ceil(waves)
    return (
        f"{head}, its blocks then need {math.ceil(beside.waves)} waves instead of {math.ceil(waves)}: up to "
        f"{factor:.1f} times the time; a smaller grid for it, or fewer SMs for the other, avoids the extra wave."
    )
