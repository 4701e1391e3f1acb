"""What the clocks, the dispatch, co-residency and the spread of a launch say, in plain sentences.

Pure functions of the findings; nothing is claimed that its error or a test does not allow.
"""

from __future__ import annotations

from wavescope.clocks import Clocks
from wavescope.co_residency import CoResidency
from wavescope.dispatch import Dispatch
from wavescope.spread import Factor, Measured, Spread

NOT_GUARANTEED = "Observed in this launch; CUDA guarantees none of it."
SHOWN_SMS = 16  # of the order of SMs
EVEN = 1.02  # lengths up to this ratio count as even
NAMES = {"cycles": "cycles", "ns": "time"}


def of_clocks(clocks: Clocks) -> tuple[str, ...]:
    """How fast the SMs ran, whether that moved, and which of them share a clock."""
    said = [f"The SM clock is {clocks.mean.value / clocks.max_mhz:.1%} of its maximum over the CTAs' lifetimes."]
    domains = clocks.domains
    if domains.reason:
        said.append(f"Clock domains cannot be told: {domains.reason}.")
    elif len(domains) == 1:
        said.append("All SMs share one clock.")
    else:
        sizes = ", ".join(str(len(domains.members(index))) for index in range(len(domains)))
        said.append(
            f"{len(domains)} clock domains of {sizes} SMs: inside each, clock64 agrees within "
            f"{max(domains.spread_cycles):.0f} cycles (known to {domains.tolerance_cycles:.0f}), between them it "
            f"differs by {domains.gap_cycles:.0f} or more. They are clock domains, not GPCs: what a cluster may use, "
            "only the driver knows."
        )
    difference = clocks.domain_difference
    if difference and not difference.refused:
        said.append(f"The fastest domain's clock is {difference.value:.1%} above the slowest's.")
    elif difference:
        said.append("No difference between the domains' clocks that the timer could show.")
    return tuple(said)


def of_dispatch(found: Dispatch) -> tuple[str, ...]:
    """What the hardware's block scheduler did."""
    first = ", ".join(map(str, found.order[:SHOWN_SMS]))
    more = f" and {len(found.order) - SHOWN_SMS} more" if len(found.order) > SHOWN_SMS else ""
    said = [f"CTAs 0, 1, 2, ... went to SMs {first}{more}."]
    if found.pair_share is not None:
        pairs = "all" if found.pair_share == 1 else f"{found.pair_share:.0%} of"
        said.append(
            f"SMs 2j and 2j + 1 (a TPC's, if ids are dealt that way) get theirs one after the other: {pairs} pairs."
        )
    if found.domain_runs is not None and found.domains > 1:
        said.append(
            f"The order enters a clock domain {found.domain_runs} times, with {found.domains} domains: "
            + ("one domain after the other." if found.domain_runs <= found.domains + 1 else "it moves between them.")
        )
    if found.ctas > found.sms:
        spread = (
            "one each, before any gets a second" if found.distinct_first == found.sms else "some get several at once"
        )
        said.append(f"The first {found.sms} CTAs go to {found.distinct_first} SMs: {spread}.")
    said.append(
        "CTAs begin in the order of their index."
        if found.ahead_ns.value <= found.ahead_ns.error
        else f"CTAs begin in the order of their index, but for {found.ahead_ns.value:.0f} ns at most."
    )
    turn = found.all_turnarounds
    if turn:
        cycles = f" = {turn.cycles[1]:.0f} cycles ({turn.cycles[0]:.0f} to {turn.cycles[2]:.0f})" if turn.cycles else ""
        said.append(
            f"A place is taken again {turn.ns[1]:.0f} ns after it was left (median of {turn.count}; "
            f"{turn.ns[0]:.0f} to {turn.ns[2]:.0f}){cycles}."
        )
    if found.early_share is not None:
        said.append(
            f"There is no barrier: {found.early_share:.0%} of the CTAs of later waves begin before the last one of the "
            "wave before has ended."
            if found.early_share > 0
            else "No CTA of a later wave begins before the wave before has ended: these CTAs are of equal length."
        )
    return (*said, NOT_GUARANTEED)


def of_co_residency(found: CoResidency) -> tuple[str, ...]:
    """What a unit costs beside others."""
    said = [
        f"While an SM is not idle it holds {found.mean_resident:.2f} CTAs on average, of {found.ctas_per_sm} that fit."
    ]
    known = [crowd for crowd in found.crowds if crowd.throughput is not None]
    if len(known) >= 2:
        most, gain = known[-1], known[-1].throughput or 1.0
        said.append(
            f"Units on an SM with {most.resident} CTAs take {most.resident / gain:.2f} times the cycles of units alone "
            f"on theirs, so the SM does {gain:.2f} times as much."
        )
    else:
        said.append("Too few units ran alone on an SM to compare with.")
    ranks = [rank for rank in found.ranks if rank.cycles]
    if len(ranks) > 1 and ranks[0].older == 0:
        first, last = ranks[0].cycles or 1.0, ranks[-1].cycles or 1.0
        said.append(
            f"On a full SM, units that begin beside {ranks[-1].older} older CTAs take {last / first:.2f} times the "
            "cycles of units whose CTA is the oldest"
            + (": an SM is not shared evenly." if last > EVEN * first else ".")
        )
    said.append(
        "SMs hold fewer CTAs at the ends of a launch, or where there are no more: launches forced to 1, 2, ... CTAs "
        "per SM compare better."
    )
    return tuple(said)


def of_spread(found: Spread) -> tuple[str, ...]:
    """Which factors unit lengths go with, and that none does."""
    if found.reason:
        return (f"Not asked: {found.reason}.",)
    said = [sentence for measured in found.measured for sentence in _of_measure(measured)]
    said += _clock_or_work(found)
    if any(factor.explains for measured in found.measured for factor in measured.factors):
        said.append(
            "Factors overlap (the first wave binds SMs to tiles): one that explains says where slow units are, not why."
        )
    return tuple(said)


def _of_measure(measured: Measured) -> list[str]:
    claimed = sorted((one for one in measured.factors if one.explains), key=lambda one: -_beyond_chance(one))
    name = NAMES[measured.measure]
    if not measured.factors:
        return [f"No factor to try on the spread of the units' {name}."]
    if not claimed:
        tried = ", ".join(one.name for one in measured.factors)
        lowest = min(one.adjusted_p for one in measured.factors)
        return [f"No factor explains the spread of the units' {name} ({tried}): p {lowest:.2g} at the lowest."]
    return [_claim(one, name) for one in claimed]


def _beyond_chance(one: Factor) -> float:
    return one.effect.eta_squared - one.effect.by_chance


def _claim(one: Factor, name: str) -> str:
    within = "" if one.within == "nothing" else f" within {one.within}"
    ends = ""
    if one.difference is not None:
        ends = f"; {one.slowest} takes {one.difference:.1%} more than {one.fastest}"
    return (
        f"By {one.name}: {one.effect.eta_squared:.0%} of the variance of the units' {name}{within} "
        f"({one.effect.by_chance:.0%} by chance, p {one.adjusted_p:.2g}){ends}."
    )


def _clock_or_work(found: Spread) -> list[str]:
    """Clock domains in time against the same in cycles."""
    by_measure = {
        measured.measure: next((one for one in measured.factors if one.name == "clock domain"), None)
        for measured in found.measured
    }
    time, cycles = by_measure.get("ns"), by_measure.get("cycles")
    if not time or not cycles or not time.explains:
        return []
    if not cycles.explains:
        return [
            f"Domains differ in time and not in cycles (p {cycles.adjusted_p:.2g}): that is their clock, not the work."
        ]
    return ["Domains differ in cycles too: their clock is not all of it."]
