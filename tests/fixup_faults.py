"""Faults planted into the kernels' headers, and what a run on the host says of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fixup_host import Case, cases_of, many_parts, reducing_cases, schedule_of

from wavescope.schedule import ScheduleName
from wavescope.trace import Reduction


@dataclass(frozen=True)
class Fault:
    """A change of a header (and others to go with it), where it does harm, and what the run then says."""

    reduction: Reduction
    schedule: ScheduleName
    cases: Callable[[], list[Case]]
    what: str
    header: str
    old: str
    new: str
    says: str
    others: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> str:
        return self.what.replace(" ", "-")


def ordered(
    schedule: ScheduleName, what: str, header: str, old: str, new: str, says: str, *others: tuple[str, str]
) -> Fault:
    return Fault("ordered", schedule, partial(cases_of, schedule), what, header, old, new, says, others)


def atomic(schedule: ScheduleName, what: str, header: str, old: str, new: str, says: str) -> Fault:
    return Fault("atomic", schedule, partial(cases_of, schedule), what, header, old, new, says)


def reducing(what: str, header: str, old: str, new: str, says: str, reduction: Reduction = "ordered") -> Fault:
    """Where CTAs without a part add all partial sums."""
    return Fault(reduction, "tailsplit", reducing_cases, what, header, old, new, says)


def more_flags_than_threads() -> list[Case]:
    return [Case(schedule_of("streamk", (1, 1), 70, 70, 70), 70, 2)]


RACE = "race on a partial sum: "
SHARED = "race on shared memory: "
GAVE_UP = "a CTA gave up waiting"
LEFT = "a partial sum is left"
# fmt: off
BARRIERS = [
    ordered("streamk", "flag raised before all threads left their sums", "fixup.cuh",
            "team_barrier();\n    }\n\n    // After leave()", "}\n\n    // After leave()", "race on"),
    ordered("streamk", "flag raised before the barrier", "fixup.cuh",
            "team_barrier();\n    }\n\n    // After leave()",
            "raise(index);\n        team_barrier();\n    }\n\n    // After leave()", RACE),
    ordered("tailsplit", "flag of a part raised before the barrier", "fixup.cuh",
            "team_barrier();\n    }\n\n    // After leave()",
            "raise(index);\n        team_barrier();\n    }\n\n    // After leave()", RACE),
    atomic("tailsplit", "flag of an added part raised before it was added", "loop.cuh",
           "sums.template leave<REDUCTION == ATOMIC>(",
           "sums.raise(mine.first_slot + mine.rank);\n        sums.template leave<REDUCTION == ATOMIC>(", RACE),
    ordered("streamk", "sums read before the flags were seen", "fixup.cuh",
            "first + index);\n        team_barrier();", "first + index);", RACE),
    ordered("tailsplit", "shares read before the flags were seen", "fixup.cuh",
            "first + index);\n        team_barrier();", "first + index);", RACE),
    atomic("streamk", "arrival counted before all threads added", "fixup.cuh",
           "team_barrier();\n    }\n\n    // After leave()", "}\n\n    // After leave()", RACE),
    atomic("streamk", "last arrival read before it was written", "fixup.cuh",
           "team_barrier();\n        if (!*is_last)", "if (!*is_last)", SHARED),
    atomic("splitk", "barrier for one thread only", "fixup.cuh",
           "team_barrier();\n        if (!*is_last)", "if (thread == 0) team_barrier();\n        if (!*is_last)",
           "barrier|race"),
    reducing("all read before the flags were seen", "fixup.cuh", "warp_barrier();", "", RACE),
    reducing("all taken before the flags were seen", "fixup.cuh", "warp_barrier();", "", RACE, "atomic"),
    reducing("barrier for lanes that had a flag only", "fixup.cuh",
             "warp_barrier();", "if (thread % 32 < count) warp_barrier();", "barrier|race"),
    ordered("hybrid", "operands overwritten while others read them", "loop.cuh",
            "if (KEEPS || (Helpers::TEAM_COPIES && (SCHEDULE_ID != FIXED || PROBE))) team_barrier();", "", SHARED),
    ordered("dynamic", "ticket read before it was drawn", "loop.cuh",
            "team_barrier();\n        return *shared_word;", "return *shared_word;", SHARED),
    ordered("splitk", "unit read before it was kept", "loop.cuh",
            "const Stalls stalls = multiply(unit);\n        if constexpr (KEEPS) {\n            const Unit multiplied = kept;",
            "const Unit multiplied = kept;\n        const Stalls stalls = multiply(unit);\n        if constexpr (KEEPS) {",
            SHARED),
    ordered("splitk", "sharing read before it was kept", "loop.cuh",
            "const Stalls stalls = multiply(unit);\n        if constexpr (KEEPS) {\n"
            "            const Unit multiplied = kept;\n            const Sharing mine = SPLITS ? static_cast<Sharing>(kept_sharing) : Sharing{0, 0, 1};",
            "const Sharing mine = SPLITS ? static_cast<Sharing>(kept_sharing) : Sharing{0, 0, 1};\n        const Stalls stalls = multiply(unit);\n        if constexpr (KEEPS) {\n"
            "            const Unit multiplied = kept;", SHARED),
]
FLAGS = [
    ordered("streamk", "no wait for flags", "fixup.cuh",
            "index += THREADS) spin(space.sync + SYNC_FLAGS + first + index);", "index += THREADS) ;", RACE),
    ordered("tailsplit", "no wait for the last flag", "loop.cuh",
            "sums().wait(mine.first_slot, mine.peers);", "sums().wait(mine.first_slot, mine.peers - 1);", RACE),
    Fault("ordered", "streamk", more_flags_than_threads, "one flag a thread only", "fixup.cuh",
          "index < count; index += THREADS)", "index < count && index < THREADS; index += THREADS)", RACE),
    reducing("no wait in adding all", "fixup.cuh", "wait_as_warp(first_slot, peers);", "", RACE),
    reducing("no wait in taking all", "fixup.cuh", "wait_as_warp(first_slot, peers);", "", RACE, "atomic"),
    reducing("no wait for the last flag in adding all", "fixup.cuh", "index < count; index += 32",
             "index < count - 1; index += 32", RACE),
    reducing("wait for the flags of the first tile only", "fixup.cuh", "if (tile != seen) {", "if (seen < 0) {", RACE),
    ordered("splitk", "owner waits for its own flag", "loop.cuh",
            "sums.wait(mine.first_slot + 1, mine.peers - 1);", "sums.wait(mine.first_slot, mine.peers);", GAVE_UP),
    ordered("streamk", "every launch has the same number", "fixup.cuh",
            "relaxed(space.sync + SYNC_ENDED) / num_ctas + 1", "1", f"{RACE}|{GAVE_UP}"),
    ordered("streamk", "launch's number asked for by the second team only", "loop.cuh",
            "round == team()) number", "round == 1) number", f"{RACE}|{GAVE_UP}|{SHARED}"),
    ordered("splitk", "ends are not counted", "loop.cuh",
            "(REDUCTION == ORDERED || is_cooperative(SCHEDULE_ID))) sums().end();", "false) ;", RACE),
    atomic("tailsplit", "ends are not counted where shares are taken", "loop.cuh",
           "(REDUCTION == ORDERED || is_cooperative(SCHEDULE_ID))) sums().end();",
           "REDUCTION == ORDERED) sums().end();", RACE),
    ordered("streamk", "launch numbers start anew within a launch", "fixup.cuh",
            "0xffffffffu / num_ctas * num_ctas - 1", "0xffffffffu", f"{RACE}|{GAVE_UP}"),
]
SUMS = [
    ordered("splitk", "last sum left out", "fixup.cuh",
            "index < count; ++index) {\n            const float4*",
            "index < count - 1; ++index) {\n            const float4*",
            "wrong sum"),
    ordered("splitk", "sums added from the last to the first", "fixup.cuh",
            "slot(first + index) + thread", "slot(first + count - 1 - index) + thread", "wrong sum"),
    ordered("splitk", "sums left in another's slot", "loop.cuh",
            "leave<false>(acc, mine.first_slot + mine.rank);", "leave<false>(acc, mine.first_slot);",
            f"wrong sum|{RACE}"),
    ordered("tailsplit", "shares begin one too far", "fixup.cuh",
            "piece = mine.rank * workers", "piece = (mine.rank + 1) * workers", "0 stores of"),
    ordered("tailsplit", "shares overlap", "fixup.cuh",
            "apart = mine.peers * workers", "apart = workers", "2 stores of"),
    ordered("tailsplit", "pairs of pieces overlap", "fixup.cuh",
            "piece += AT_ONCE * apart", "piece += apart", "2 stores of"),
    ordered("tailsplit", "piece without a second one left out", "fixup.cuh",
            "for (; piece < PIECES; piece += apart)\n", "if (piece < 0)\n", "0 stores of"),
    Fault("ordered", "tailsplit", many_parts, "small pieces overlap", "fixup.cuh",
          "(PIECE / SMALL_PIECE); piece += apart", "(PIECE / SMALL_PIECE); piece += apart - 1", "2 stores of"),
    Fault("ordered", "tailsplit", many_parts, "small pieces left out", "fixup.cuh",
          "piece < PIECES * (PIECE / SMALL_PIECE)", "piece < PIECES * (PIECE / SMALL_PIECE) - 1", "0 stores of"),
    Fault("ordered", "tailsplit", many_parts, "the rest of the slots left out", "fixup.cuh",
          "if constexpr (AT_ONCE > 1) add_slots", "if constexpr (AT_ONCE > 4) add_slots", "wrong sum"),
    ordered("tailsplit", "share of the wrong slot", "fixup.cuh",
            "from[i] += FOURS * THREADS;", "from[i] += THREADS;", "wrong sum|race"),
    atomic("streamk", "no zeros left for the next launch", "fixup.cuh",
           "store_l2(sum + f * THREADS, make_float4(0.f, 0.f, 0.f, 0.f));", "", LEFT),
    atomic("tailsplit", "no zeros left of shares", "loop.cuh",
           "add_share<REDUCTION == ATOMIC, AT_ONCE, READS>", "add_share<false, AT_ONCE, READS>", LEFT),
    reducing("no zeros left of all", "loop.cuh", "add_all<REDUCTION == ATOMIC, READS>", "add_all<false, READS>", LEFT, "atomic"),
    atomic("splitk", "count of arrivals goes one too far", "fixup.cuh",
           "count_up(arrivals, mine.peers - 1)", "count_up(arrivals, mine.peers)", "a count of arrivals is left"),
    reducing("runs begin early", "fixup.cuh", "int item = share_begin(total, warps, warp), count;",
             "int item = share_begin(total, warps, warp > 0 ? warp - 1 : 0), count;", "2 stores of"),
    reducing("runs overlap in taking all", "fixup.cuh", "int item = share_begin(total, warps, warp), count;",
             "int item = share_begin(total, warps, warp > 0 ? warp - 1 : 0), count;", RACE, "atomic"),
    reducing("runs end early", "fixup.cuh", "share_begin(total, warps, warp + 1);",
             "share_begin(total, warps, warp + 1) - 1;", "0 stores of"),
    reducing("second piece added twice", "fixup.cuh", "item += count", "++item", "2 stores of"),
    reducing("piece after a single one left out", "fixup.cuh", "item += count", "item += 2", "0 stores of"),
    reducing("pairs reach into the next tile", "fixup.cuh", "item + 1 < end && (item + 1) % PIECES != 0",
             "item + 1 < end", "a tile has no part|race"),
    reducing("all of one tile stored in another", "loop.cuh",
             "if (unit.tile != tile) unit =", "if (unit.tile < 0) unit =", "2 stores of"),
]
SCHEDULES_OF_CTAS = [
    ordered("splitk", "owners come first", "schedule.cuh",
            "plan.parts - 1 - cta / tiles", "cta / tiles", GAVE_UP,
            ("plan.parts - 1 - cta / num_tiles(plan.grid)", "cta / num_tiles(plan.grid)")),
    ordered("streamk", "CTAs wait for later ones", "schedule.cuh",
            "share = plan.num_ctas - 1 - cta;", "share = cta;", GAVE_UP,
            ("plan.num_ctas - 1 - cta - first,", "cta - first,")),
    ordered("dynamic", "tickets are not given back", "loop.cuh",
            "atomicExch(counter, 0);", ";", "the counter of tickets"),
    reducing("the first CTAs add all", "loop.cuh",
             "reducer = static_cast<int>(blockIdx.x + reducers) - static_cast<int>(gridDim.x);",
             "reducer = static_cast<int>(blockIdx.x) < reducers ? static_cast<int>(blockIdx.x) : -1;", GAVE_UP),
    reducing("reducers begin one CTA too late", "loop.cuh",
             "- static_cast<int>(gridDim.x);", "- static_cast<int>(gridDim.x) - 1;", "0 stores of"),
    reducing("reducers begin one CTA too early", "loop.cuh",
             "- static_cast<int>(gridDim.x);", "- static_cast<int>(gridDim.x) + 1;", "outside the workspace"),
    reducing("shares added beside all", "loop.cuh", "return plan.reducers == 0 && ", "return ", f"2 stores of|{GAVE_UP}"),
]
# fmt: on
FAULTS = [*BARRIERS, *FLAGS, *SUMS, *SCHEDULES_OF_CTAS]
