"""The kernels' loop and partial sums on a small GPU of fibers: right in any order of CTAs, and faults show."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from fixup_faults import FAULTS, Fault
from fixup_host import (
    Case,
    answers,
    cases_of,
    compile_objects,
    compile_program,
    include_with,
    irregular_cases,
    many_parts,
    reducing_cases,
    schedule_of,
    spare_ctas,
)

from wavescope.schedule import SCHEDULES, SPLIT_SCHEDULES, ScheduleName
from wavescope.trace import Reduction

REDUCTIONS: tuple[Reduction, ...] = ("ordered", "atomic")
RUNS = [*(("ordered", name) for name in SCHEDULES), *(("atomic", name) for name in SPLIT_SCHEDULES)]
Programs = dict[Reduction, Path]


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return compile_objects(tmp_path_factory.mktemp("fixup_host"))


@pytest.fixture(scope="session")
def programs(objects: list[Path]) -> Programs:
    return {reduction: compile_program(objects, reduction, objects[0].parent / reduction) for reduction in REDUCTIONS}


def all_right(program: Path, cases: list[Case]) -> None:
    found = answers(program, cases)
    assert found[-1].startswith("ok"), f"{found[-1]}: {cases[len(found) - 1]}"
    assert len(found) == len(cases)


@pytest.mark.parametrize(("reduction", "name"), RUNS)
def test_every_tile_is_right_in_any_order(programs: Programs, reduction: Reduction, name: ScheduleName) -> None:
    all_right(programs[reduction], cases_of(name))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_many_parts_add_small_pieces(programs: Programs, reduction: Reduction) -> None:
    all_right(programs[reduction], many_parts())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_spare_ctas_add_all_partial_sums(programs: Programs, reduction: Reduction) -> None:
    all_right(programs[reduction], reducing_cases())


def test_tiles_of_unequal_k_take_what_the_table_says(objects: list[Path], tmp_path: Path) -> None:
    cases = irregular_cases()
    all_right(compile_program(objects, "ordered", tmp_path / "right", irregular=True), cases)
    include = include_with(tmp_path, "loop.cuh", ("work[unit.index], unit.index", "work[0], unit.index"))
    found = answers(compile_program(objects, "ordered", tmp_path / "wrong", include, irregular=True), cases)
    assert found[-1].startswith("launch 1: not each k_iter once of tile")


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


def test_spare_ctas_give_the_same_bits_as_shares(programs: Programs) -> None:
    schedule = schedule_of("tailsplit", (3, 2), 11, 5, 2)  # 1 tile in 2 parts, then 5 whole tiles on 5 CTAs
    assert schedule.reducers == spare_ctas(schedule) == 3
    who = [replace(schedule, reducers=reducers) for reducers in range(4)]
    cases = [Case(it, resident, 2, seed=seed) for it in who for resident in (2, 5) for seed in range(4)]
    found = answers(programs["ordered"], cases)
    assert len(found) == len(cases)
    assert len(set(found)) == 1


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_spare_ctas_need_no_number_of_places(programs: Programs, reduction: Reduction) -> None:
    schedule = schedule_of("tailsplit", (5, 1), 6, 4, 3)  # 1 tile in 3 parts, then 4 whole tiles on 4 CTAs
    assert schedule.reducers == 1
    all_right(programs[reduction], [Case(schedule, resident, 2, seed=s) for resident in range(1, 5) for s in range(9)])


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_shares_need_a_place_for_each_part(programs: Programs, reduction: Reduction) -> None:
    schedule = replace(schedule_of("tailsplit", (5, 1), 6, 4, 3), reducers=0)
    all_right(programs[reduction], [Case(schedule, resident, 2, seed=s) for resident in (3, 4) for s in range(9)])
    for resident in (1, 2):  # each of them waits for the part of CTA 2, which never gets a place
        assert answers(programs[reduction], [Case(schedule, resident)]) == ["launch 1: a CTA gave up waiting"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_planted_fault_is_found(objects: list[Path], tmp_path: Path, fault: Fault) -> None:
    include = include_with(tmp_path, fault.header, (fault.old, fault.new), *fault.others)
    program = compile_program(objects, fault.reduction, tmp_path / "program", include, fault.schedule)
    found = answers(program, fault.cases())[-1]
    assert re.fullmatch(rf"launch \d: .*({fault.says}).*", found), found
