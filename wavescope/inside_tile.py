"""Where the cycles inside tiles go, for launches that measured how long their units waited.

All in SM cycles of clock64, from mac spans with n k_iters each, of length c: where teams of a
CTA take turns, and one's operands come while the other multiplies, c begins where the spans
that began before have ended, so that the sum of all c is the SMs' mac time.  The pipe takes
t = 2 * tile_m * tile_n * tile_k / rate cycles a k_iter (rates.kernel_flop_per_clock).
A unit's c is, exactly, the sum of

pipe      n * t: what the tensor pipe needs at the rate of the kernel's instruction.
fill      in a CTA's first unit, the waits for operands beyond those of later units: s - n * r,
          with s its operand_stall and r the median of s / n over all units that are not their
          CTA's first; no more than c - n * t, and not below 0.  Where every unit is its CTA's
          first, the fill cannot be told from later waits, and stands in operands; where mac
          spans begin as the first operands come (teams in turn), it lies before them.
operands  the other waits for operands, as far as they can have left the pipe idle: s - fill, but
          no more than c - n * t - fill.  (A wait is hidden while products are in flight.)
rest      c less all these: idle cycles of the pipe that no wait for operands explains.  Below 0
          where the warpgroup that records is done before the others, or begins after them (see
          _skew and AHEAD; its error holds what is below 0 for that).

Products in flight when the last operands have come are pipe, so the pipe drains within mac.
What follows the mac span is not inside the tile, and part of other factors:

epilogue  cycles of the unit's epilogue spans in which no unit of its SM multiplies.
drain     in a CTA's last unit, from the end of the CTA's last span to the end of the CTA: the
          stores on their way, and the exit.

room      beside all that, the cycles in which the copying warp waited for room (room_stall).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wavescope.device import Device
from wavescope.rates import kernel_flop_per_clock
from wavescope.states import SmStates, count_before, dense_index, order_within, uncovered
from wavescope.trace import NULL, IntColumn, Kind, Launch, Spans
from wavescope.units import Units, in_unit
from wavescope.wave_report import INSIDE_MAC, INSIDE_PARTS, InsideTile, UnitCycles

# Waits in less than this share of the mac cycles are few; from the other share on they are most of the time.
FEW, MOST = 0.05, 0.5
# k_iters by which another warpgroup of a team may have begun a unit before the one that records: as many as
# stages.  H200, 2026-11, gemm_sm90 128x256x64: units of 64 k_iters seemed up to 1,670 cycles (3.3 of its share
# of a k_iter) shorter than their products take.
AHEAD = 4
STAMP_CYCLES = 64  # by which the two stamps of a span together may be late; H200, 2026-11: up to 40 in whole tiles
SIDE_BY_SIDE = 1.6  # mac spans together, over the time with any of them: beyond, units do not take turns
WARPGROUP = 128  # threads; one warpgroup of a CTA copies, the others multiply, and the first of them records

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]


def inside_tile(
    spans: Spans, units: Units, states: SmStates, launch: Launch, device: Device
) -> tuple[InsideTile | None, tuple[str, ...]]:
    """The split, or None where waits were not measured; and a sentence where they were, and it cannot be made."""
    waits, room, tile = units.operand_stall, units.room_stall, launch.tile
    if waits is None or room is None or states.state_cycles is None or tile is None or launch.problem is None:
        return None, ()
    rate = kernel_flop_per_clock(launch.kernel, device, launch.problem.dtype)
    if rate is None:
        return None, ()
    macs = spans.select(np.flatnonzero((spans.kind == Kind.MAC) & in_unit(spans)))
    mac_cycles = int(states.state_cycles[:, Kind.MAC].sum())
    if mac_cycles == 0 or (macs.end_clock - macs.begin_clock).sum() > SIDE_BY_SIDE * mac_cycles:
        return None, (
            "The factor 'inside tile' is not split: units of one SM multiply at the same time, so the waits of one "
            "are hidden behind the products of another.",
        )
    teams = len(np.unique(macs.lane))
    macs = replace(macs, begin_clock=uncovered(macs.sm, macs.begin_clock, macs.end_clock))
    in_mac = _sums(units, macs, macs.end_clock - macs.begin_clock)
    per_k_iter = 2 * tile.m * tile.n * tile.k / rate
    pipe = units.k_iters * per_k_iter
    idle = np.maximum(in_mac - pipe, 0)
    expected, uncertain = _fill(units, waits)
    fill = np.minimum(expected, idle)
    operands = np.minimum(waits - fill, idle - fill)
    limited = waits > idle  # by the idle cycles, which the end of the mac span bounds
    skew = per_k_iter * _skew(launch, teams)
    short = pipe - in_mac
    errors = {
        "operands": math.hypot(uncertain, skew * np.count_nonzero(limited)),
        "fill": uncertain,
        "rest": skew * np.count_nonzero(~limited) + float(np.clip(short, 0, AHEAD * skew + STAMP_CYCLES).sum()),
    }
    columns = {
        "pipe": pipe,
        "operands": operands,
        "fill": fill,
        "rest": in_mac - pipe - operands - fill,
        "epilogue": _epilogues(spans, macs, units),
        "drain": _drains(spans, units),
        "room": room.astype(np.float64),
    }
    first, last = _ends(units)
    of_ctas = {"fill": first, "drain": last}
    parts = {
        name: _quantiles(columns[name], of_ctas.get(name, np.True_), errors.get(name, 0.0)) for name in INSIDE_PARTS
    }
    fill_known = not bool(first.all())
    limit, sentence = _limit(parts, fill_known)
    at_sm = np.searchsorted(states.sm_ids, units.sm)
    per_sm = [np.bincount(at_sm, weights=columns[name], minlength=len(states.sm_ids)) for name in INSIDE_PARTS]
    return (
        InsideTile(
            units=len(units),
            pipe_per_k_iter=per_k_iter,
            parts=parts,
            fill_known=fill_known,
            limit=limit,
            sentence=sentence,
            per_sm=np.stack(per_sm, axis=1),
        ),
        (),
    )


def _quantiles(cycles: FloatArray, units: Mask | np.bool_, error: float) -> UnitCycles:
    """The sum over all units, and the quantiles of those marked."""
    median, high = np.quantile(cycles[np.broadcast_to(units, cycles.shape)], [0.5, 0.95])
    return UnitCycles(float(cycles.sum()), float(median), float(high), float(error))


def _sums(units: Units, spans: Spans, cycles: IntColumn) -> FloatArray:
    """Each unit's sum over its spans."""
    at = np.searchsorted(units.unit, spans.unit)  # units come in ascending order
    return np.bincount(at, weights=cycles, minlength=len(units)).astype(np.float64)


def _skew(launch: Launch, teams: int) -> float:
    """How much of a k_iter's products others of a team may still do when the recording warpgroup is done, at most.

    Warpgroups share the pipe, and each does its own rows.
    """
    if launch.block == NULL:
        return 1.0
    return 1 - 1 / max(1, (launch.block // WARPGROUP - 1) // teams)


def _ends(units: Units) -> tuple[Mask, Mask]:
    """True for the unit each CTA began with, and for the one it began last."""
    order = order_within(units.cta, units.begin_ns)
    changes = units.cta[order][1:] != units.cta[order][:-1]
    first, last = np.empty(len(units), np.bool_), np.empty(len(units), np.bool_)
    first[order], last[order] = np.append(True, changes), np.append(changes, True)
    return first, last


def _fill(units: Units, waits: IntColumn) -> tuple[FloatArray, float]:
    """Waits of CTAs' first units beyond the later units' rate, and the error of their sum.

    The error is that of half the interquartile range of the later units' rates.
    """
    first, per_k_iter = _ends(units)[0], waits / np.maximum(units.k_iters, 1)
    if first.all():
        return np.zeros(len(units)), 0.0
    low, rate, high = np.quantile(per_k_iter[~first], [0.25, 0.5, 0.75])
    beyond = np.where(first, np.maximum(waits - units.k_iters * rate, 0), 0)
    return beyond, float((high - low) / 2 * np.sqrt((units.k_iters[first] ** 2).sum()))


def _epilogues(spans: Spans, macs: Spans, units: Units) -> FloatArray:
    """Cycles of each unit's epilogue spans with no mac on the SM."""
    mine = spans.select(np.flatnonzero((spans.kind == Kind.EPILOGUE) & in_unit(spans)))
    covered = _mac_before(macs, mine.sm, mine.end_clock) - _mac_before(macs, mine.sm, mine.begin_clock)
    return _sums(units, mine, mine.end_clock - mine.begin_clock - covered)


def _mac_before(macs: Spans, sm: IntColumn, clock: IntColumn) -> IntColumn:
    """Cycles of mac on an SM before a moment of its clock, up to one number for each SM; macs do not overlap."""
    order = order_within(macs.sm, macs.begin_clock)
    mac_sm, begin, end = macs.sm[order], macs.begin_clock[order], macs.end_clock[order]
    before = np.append(0, np.cumsum(end - begin))
    last = count_before(mac_sm, begin, sm, clock) - 1  # the last mac that began before then, maybe another SM's
    running = np.where((last >= 0) & (mac_sm[last] == sm), np.maximum(end[last] - clock, 0), 0)
    return before[last + 1] - running


def _drains(spans: Spans, units: Units) -> FloatArray:
    """Cycles from the last span's end to the CTA's, in the last unit of each CTA."""
    ctas = spans.select(np.flatnonzero(spans.kind == Kind.CTA))
    cta_ids, of_cta = dense_index(np.concatenate([ctas.cta, spans.cta]))
    cta_end, of_span = np.zeros(len(cta_ids), np.int64), of_cta[len(ctas) :]
    cta_end[of_cta[: len(ctas)]] = ctas.end_clock
    last_end = np.full(len(cta_ids), np.iinfo(np.int64).min)
    inner = spans.kind > Kind.CTA
    np.maximum.at(last_end, of_span[inner], spans.end_clock[inner])
    last_unit = np.flatnonzero(_ends(units)[1])
    at = np.searchsorted(cta_ids, units.cta[last_unit])
    drains = np.zeros(len(units))
    drains[last_unit] = np.maximum(cta_end[at] - last_end[at], 0)
    return drains


def _limit(parts: dict[str, UnitCycles], fill_known: bool) -> tuple[str, str]:
    """What holds the units up, in a word and in a sentence."""
    mac = sum(parts[name].total for name in INSIDE_MAC)
    pipe, late, fill, rest, room = (parts[name].total / mac for name in ("pipe", "operands", "fill", "rest", "room"))
    late_words = f"the pipe idles for want of operands in {late:.1%} of the mac cycles"
    room_words = f"the copying warp waits for room in {room:.0%}"
    if late >= FEW:
        if not fill_known:
            late_words += ", the pipeline's fill among them (each CTA has one unit)"
        if room < FEW:
            why = "stages stand free, and copies do not fill them in time"
            return "memory", f"Memory-bound: {late_words}, and {room_words}: {why}."
        if fill_known or room < MOST:
            why = "more bytes on their way or operands nearer by would help"
            return "latency", f"Memory-bound: {late_words} though the ring is full ({room_words}); {why}."
        why = "a longer k or several units a CTA would tell"
        return "fill or latency", f"Bound by memory or by the pipeline's fill: {late_words}, and {room_words}; {why}."
    if room >= MOST and max(fill, rest) < FEW:
        return "tensor", f"Tensor-bound: {room_words} of the mac cycles, and the pipe idles in {1 - pipe:.1%} of them."
    if room >= MOST and rest > fill and not parts["rest"].refused:
        return "issue", (
            f"Bound by the warps that multiply: {late_words} and works in {pipe:.1%}, while {room_words}: operands "
            "are there before they are used."
        )
    whole = sum(part.total for name, part in parts.items() if name != "room")
    lost = [name for name in ("operands", "fill", "rest", "epilogue", "drain") if not parts[name].refused]
    name = max(lost, key=lambda part: parts[part].total)
    return "none", (
        f"Neither memory nor the tensor pipe alone: {late_words}, and {room_words}; the largest loss is {name}, "
        f"{parts[name].total / whole:.1%} of the units' cycles."
    )
