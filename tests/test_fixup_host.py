"""The kernels' loop and partial sums on a small GPU of fibers: right in any order of CTAs, and faults show."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from fixup_host import Case, answers, compile_objects, compile_program, draw, include_with, schedule_of

from wavescope.schedule import SCHEDULES, ScheduleName
from wavescope.trace import Reduction

ATOMIC: tuple[ScheduleName, ...] = ("splitk", "streamk", "hybrid")
RUNS = [*(("ordered", name) for name in SCHEDULES), *(("atomic", name) for name in ATOMIC)]
Programs = dict[Reduction, Path]


def cases_of(name: ScheduleName) -> list[Case]:
    rng = Random(7)
    return [draw(rng, (name,)) for _ in range(25)]


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return compile_objects(tmp_path_factory.mktemp("fixup_host"))


@pytest.fixture(scope="session")
def programs(objects: list[Path]) -> Programs:
    reductions: tuple[Reduction, ...] = ("ordered", "atomic")
    return {reduction: compile_program(objects, reduction, objects[0].parent / reduction) for reduction in reductions}


@pytest.mark.parametrize(("reduction", "name"), RUNS)
def test_every_tile_is_right_in_any_order(programs: Programs, reduction: Reduction, name: ScheduleName) -> None:
    cases = cases_of(name)
    found = answers(programs[reduction], cases)
    assert found[-1].startswith("ok"), f"{found[-1]}: {cases[len(found) - 1]}"
    assert len(found) == len(cases)


@pytest.mark.parametrize("name", ["splitk", "streamk", "hybrid", "tailsplit"])
def test_ordered_sums_have_the_same_bits_every_time(programs: Programs, name: ScheduleName) -> None:
    schedule = schedule_of(name, (3, 2), 11, 4, 2)
    cases = [Case(schedule, resident, 2, seed=seed) for seed in range(8) for resident in (4, schedule.num_ctas)]
    found = answers(programs["ordered"], cases)
    assert len(found) == len(cases)
    assert len(set(found)) == 1


def test_the_order_of_the_sum_shows_in_its_bits(programs: Programs) -> None:
    # else the test before this one could not fail
    cases = [Case(schedule_of("splitk", (2, 2), 12, 4, parts), 4) for parts in (1, 2, 3, 4)]
    assert len(set(answers(programs["ordered"], cases))) == 4


@pytest.mark.parametrize("resident", [1, 70])
def test_more_flags_to_wait_for_than_threads(programs: Programs, resident: int) -> None:
    many = Case(schedule_of("streamk", (1, 1), 70, 70, 70), resident, 2)
    assert many.schedule.peers.max() == 70  # on 64 threads
    assert answers(programs["ordered"], [many])[0].startswith("ok")


def test_ctas_that_cannot_meet_give_up(programs: Programs) -> None:
    # 3 tiles in 3 parts, dealt round 4 CTAs: each waits for a tile of which CTA 3 has a part
    schedule = schedule_of("tailsplit", (3, 1), 6, 4, 3)
    assert schedule.cta.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert answers(programs["ordered"], [Case(schedule, 4)])[0].startswith("ok")
    assert answers(programs["ordered"], [Case(schedule, 3)]) == ["launch 1: a CTA gave up waiting"]


@dataclass(frozen=True)
class Fault:
    """A change of the headers, a schedule under which it does harm, and what the run then says."""

    what: str
    header: str
    old: str
    new: str
    reduction: Reduction
    schedule: ScheduleName
    says: str
    cases: Callable[[ScheduleName], list[Case]] = cases_of

    @property
    def id(self) -> str:
        return self.what.replace(" ", "-")


def ordered(schedule: ScheduleName, what: str, header: str, old: str, new: str, says: str) -> Fault:
    return Fault(what, header, old, new, "ordered", schedule, says)


def atomic(schedule: ScheduleName, what: str, old: str, new: str, says: str) -> Fault:
    return Fault(what, "fixup.cuh", old, new, "atomic", schedule, says)


RACE = "race on a partial sum: "
SHARED = "race on shared memory: "
GAVE_UP = "a CTA gave up waiting"
# fmt: off
FAULTS = [
    # barriers
    ordered("streamk", "flag raised before all threads left their sums", "fixup.cuh",
            "cta_barrier();\n        if (thread == 0) release(", "if (thread == 0) release(", "race on"),
    ordered("streamk", "flag raised before the barrier", "fixup.cuh",
            "cta_barrier();\n        if (thread == 0) release(space.sync + SYNC_FLAGS + index, launch_number());",
            "if (thread == 0) release(space.sync + SYNC_FLAGS + index, launch_number());\n        cta_barrier();",
            RACE),
    ordered("streamk", "sums read before the flags were seen", "fixup.cuh",
            "launch_number());\n        cta_barrier();", "launch_number());", RACE),
    ordered("tailsplit", "shares read before the flags were seen", "fixup.cuh",
            "launch_number());\n        cta_barrier();", "launch_number());", RACE),
    atomic("streamk", "arrival counted before all threads added",
           "cta_barrier();\n        if (thread == 0) {", "if (thread == 0) {", RACE),
    atomic("streamk", "last arrival read before it was written",
           "cta_barrier();\n        if (!*is_last)", "if (!*is_last)", SHARED),
    atomic("splitk", "barrier for one thread only",
           "cta_barrier();\n        if (!*is_last)", "if (thread == 0) cta_barrier();\n        if (!*is_last)",
           "barrier|race"),
    ordered("hybrid", "operands overwritten while others read them", "loop.cuh",
            "if (SCHEDULE_ID != FIXED || PROBE) __syncthreads();", "", SHARED),
    ordered("dynamic", "ticket read before it was drawn", "loop.cuh",
            "__syncthreads();\n            ticket", "ticket", SHARED),
    ordered("splitk", "unit read before it was kept", "loop.cuh",
            "multiply(unit);\n        if constexpr (SPLITS) {\n            const Unit multiplied = kept;",
            "const Unit multiplied = kept;\n        multiply(unit);\n        if constexpr (SPLITS) {", SHARED),
    # flags
    ordered("streamk", "no wait for flags", "fixup.cuh",
            "spin(space.sync + SYNC_FLAGS + first + index, launch_number());", ";", RACE),
    ordered("tailsplit", "no wait for the last flag", "loop.cuh",
            "sums().wait(unit.first_slot, unit.peers);", "sums().wait(unit.first_slot, unit.peers - 1);", RACE),
    Fault("one flag a thread only", "fixup.cuh",
          "index < count; index += THREADS)", "index < count && index < THREADS; index += THREADS)",
          "ordered", "streamk", RACE, lambda name: [Case(schedule_of(name, (1, 1), 70, 70, 70), 70, 2)]),
    ordered("splitk", "owner waits for its own flag", "loop.cuh",
            "sums.wait(unit.first_slot + 1, unit.peers - 1);", "sums.wait(unit.first_slot, unit.peers);", GAVE_UP),
    ordered("streamk", "every launch has the same number", "fixup.cuh",
            "acquire(space.sync + SYNC_ENDED) / num_ctas + 1", "1", f"{RACE}|{GAVE_UP}"),
    ordered("splitk", "ends are not counted", "loop.cuh",
            "if (SPLITS && REDUCTION == ORDERED) sums().end();", "", RACE),
    ordered("streamk", "launch numbers start anew within a launch", "fixup.cuh",
            "0xffffffffu / num_ctas * num_ctas - 1", "0xffffffffu", f"{RACE}|{GAVE_UP}"),
    # sums
    ordered("splitk", "last sum left out", "fixup.cuh",
            "index < count; ++index) {\n            const float4*",
            "index < count - 1; ++index) {\n            const float4*",
            "wrong sum"),
    ordered("splitk", "sums added from the last to the first", "fixup.cuh",
            "slot(first + index) + thread", "slot(first + count - 1 - index) + thread", "wrong sum"),
    ordered("splitk", "sums left in another's slot", "loop.cuh",
            "leave(acc, unit.first_slot + unit.rank);", "leave(acc, unit.first_slot);", f"{RACE}|{GAVE_UP}"),
    ordered("tailsplit", "shares begin one too far", "fixup.cuh",
            "piece = unit.rank * WARPS", "piece = (unit.rank + 1) * WARPS", "0 stores of"),
    ordered("tailsplit", "shares overlap", "fixup.cuh",
            "piece += unit.peers * WARPS", "piece += WARPS", "2 stores of"),
    ordered("tailsplit", "share of the wrong slot", "fixup.cuh",
            "++peer, from += FOURS * THREADS", "++peer, from += THREADS", "wrong sum|race"),
    atomic("streamk", "no zeros left for the next launch",
           "store_l2(sum + f * THREADS, make_float4(0.f, 0.f, 0.f, 0.f));", "", "a partial sum is left"),
    atomic("splitk", "count of arrivals goes one too far",
           "count_up(arrivals, unit.peers - 1)", "count_up(arrivals, unit.peers)", "a count of arrivals is left"),
    # schedules
    ordered("splitk", "owners come first", "schedule.cuh",
            "plan.parts - 1 - cta / tiles", "cta / tiles", GAVE_UP),
    ordered("streamk", "CTAs wait for later ones", "schedule.cuh",
            "share = plan.num_ctas - 1 - cta;", "share = cta;", GAVE_UP),
    ordered("dynamic", "tickets are not given back", "loop.cuh",
            "atomicExch(counter, 0);", ";", "the counter of tickets"),
]
# fmt: on


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_planted_fault_is_found(objects: list[Path], tmp_path: Path, fault: Fault) -> None:
    include = include_with(tmp_path, fault.header, fault.old, fault.new)
    program = compile_program(objects, fault.reduction, tmp_path / "program", include, fault.schedule)
    found = answers(program, fault.cases(fault.schedule))[-1]
    assert re.fullmatch(rf"launch \d: .*({fault.says}).*", found), found
