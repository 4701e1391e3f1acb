"""Split tiles on the virtual device: the Stream-K paper's four SMs worked out by hand, one cycle a nanosecond."""

from collections import Counter
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.synthetic import DEVICE
from tests.test_simulate import COSTLY, FREE, rows, spans_of
from wavescope.analyze import analyze
from wavescope.calibration_row import Calibration
from wavescope.errors import IntegrityError
from wavescope.integrity import check
from wavescope.jobs import independent_jobs
from wavescope.launch_costs import recorded_launch
from wavescope.list_schedule import JobCosts
from wavescope.problem import Problem, Tile
from wavescope.schedule import Schedule, decompose
from wavescope.shared_schedule import occupy_shared
from wavescope.sharing import epilogue_speeds, main_loop_speeds
from wavescope.simulate import past_l2, simulate
from wavescope.sm_profiles import sm_profiles
from wavescope.trace import NULL, Kind, Reduction, Trace
from wavescope.units import units_of
from wavescope.variant import Variant

TILE = Tile(128, 128, 4)
SMALL, MEDIUM = Problem(384, 384, 128), Problem(896, 384, 128)  # 9 and 21 tiles of 32 k_iters
# 32 a k_iter, 64 to leave a partial sum, 96 to add one, 160 to add a share, 96 for a tile that a spare CTA adds,
# 128 to store a tile.
COSTS = replace(
    FREE,
    cycles_per_k_iter=32.0,
    partial_cycles=64.0,
    add_cycles=96.0,
    share_cycles=160.0,
    spare_cycles=96.0,
    epilogue_cycles=128.0,
)


def run(
    schedule: Schedule,
    calibration: Calibration = COSTS,
    sms: int = 4,
    ctas_per_sm: int = 1,
    reduction: Reduction = "ordered",
    seed: int = 0,
) -> Trace:
    trace = simulate(
        schedule,
        replace(DEVICE, sms=sms, max_clock_mhz=2000.0),
        kernel="toy",
        block=128,
        registers=64,
        shared_bytes=1024,
        ctas_per_sm=ctas_per_sm,
        seed=seed,
        calibration=calibration,
        reduction=reduction,
    )
    check(trace, schedule)
    return trace


@pytest.mark.parametrize("name", ["fixed", "splitk", "streamk", "hybrid", "tailsplit"])
def test_who_stores_a_tile_is_read_from_the_trace(name: str) -> None:
    # 31 k_iters: none of the cuts is one that the other end of its tile could have
    schedule = decompose(
        name, Problem(896, 384, 124), TILE, 4, parts={"splitk": 3, "streamk": 4, "tailsplit": 3}.get(name)
    )
    trace = run(schedule)
    assert units_of(trace.spans).stores_tile.tolist() == schedule.stores_tile.tolist()
    seen = Counter[tuple[float, bool]]()
    for profile in sm_profiles(recorded_launch(trace, trace.launches[0])):
        for k_iters, stores in zip(chain(*profile.k_iters), chain(*profile.stores), strict=True):
            seen[k_iters, stores] += profile.sms
    assert seen == Counter(zip(schedule.k_iters.tolist(), schedule.stores_tile.tolist(), strict=True))


def of_kind(trace: Trace, kind: Kind) -> list[tuple[int, ...]]:
    return rows(spans_of(trace, kind), "unit", "cta", "begin_ns", "end_ns")


def test_basic_stream_k_of_nine_tiles() -> None:
    # 72 k_iters a CTA, dealt from the last: CTA 3 has tiles 0, 1 and 8 of tile 2; CTA 2 the other 24,
    # tile 3 and 16 of tile 4; CTA 1 the other 16, tile 5 and 24 of tile 6; CTA 0 the other 8, 7 and 8
    trace = run(decompose("streamk", SMALL, TILE, 4, parts=4))
    assert of_kind(trace, Kind.MAC) == [
        (0, 3, 0, 1024),
        (1, 3, 1152, 2176),
        (2, 3, 2304, 2560),
        (3, 2, 0, 768),
        (4, 2, 832, 1856),
        (5, 2, 1984, 2496),
        (6, 1, 0, 512),
        (7, 1, 576, 1600),
        (8, 1, 1728, 2496),
        (9, 0, 0, 256),
        (10, 0, 320, 1344),
        (11, 0, 1472, 2496),
    ]
    # units 3, 6 and 9 leave their partial sums; 2, 5 and 8 find them there, and add one each
    assert of_kind(trace, Kind.WAIT) == [(2, 3, 2560, 2560), (5, 2, 2496, 2496), (8, 1, 2496, 2496)]
    assert of_kind(trace, Kind.FIXUP) == [
        (2, 3, 2560, 2656),
        (3, 2, 768, 832),
        (5, 2, 2496, 2592),
        (6, 1, 512, 576),
        (8, 1, 2496, 2592),
        (9, 0, 256, 320),
    ]
    assert [unit for unit, *_ in of_kind(trace, Kind.EPILOGUE)] == [0, 1, 2, 4, 5, 7, 8, 10, 11]
    assert rows(spans_of(trace, Kind.CTA), "cta", "begin_ns", "end_ns") == [
        (0, 0, 2624),
        (1, 0, 2720),
        (2, 0, 2720),
        (3, 0, 2784),
    ]


def test_hybrid_of_21_tiles() -> None:
    # one tile shared, 8 k_iters each: 256, and 64 to leave it; CTA 3 waits until 320, adds three: 608,
    # stores: 736; then five whole tiles each, 1152 a tile
    trace = run(decompose("hybrid", MEDIUM, TILE, 4, parts=1))
    assert of_kind(trace, Kind.WAIT) == [(0, 3, 256, 320)]
    assert of_kind(trace, Kind.FIXUP) == [(0, 3, 320, 608), (1, 2, 256, 320), (2, 1, 256, 320), (3, 0, 256, 320)]
    assert of_kind(trace, Kind.EPILOGUE)[0] == (0, 3, 608, 736)
    # whole tiles have the ids from 5 on: 1 tile shared by 4 CTAs takes 0 to 4, of which 4 is not used
    assert of_kind(trace, Kind.MAC)[4:6] == [(5, 0, 320, 1344), (6, 1, 320, 1344)]
    ends = rows(spans_of(trace, Kind.CTA), "cta", "end_ns")
    assert ends == [(0, 6080), (1, 6080), (2, 6080), (3, 6496)]


def test_two_tile_hybrid_of_21_tiles() -> None:
    # 40 k_iters a CTA: CTA 3 has tile 0 and 8 of tile 1, CTA 2 the other 24 and 16 of tile 2, CTA 1 the other
    # 16 and 24 of tile 3, CTA 0 the other 8 and tile 4.  CTA 3: 1024 + 128, 256, add 96, store 128: 1632;
    # then 16 whole tiles, 4 each: 1632 + 4 * 1152
    trace = run(decompose("hybrid", MEDIUM, TILE, 4, parts=2))
    assert of_kind(trace, Kind.WAIT) == [(1, 3, 1408, 1408), (3, 2, 1344, 1344), (5, 1, 1344, 1344)]
    assert of_kind(trace, Kind.MAC)[8] == (9, 0, 1472, 2496)  # 256 + 64, 1024 + 128
    assert rows(spans_of(trace, Kind.CTA), "cta", "end_ns")[3] == (3, 6240)


def test_split_k_hands_out_the_owners_last() -> None:
    # two tiles in three parts of 11, 11 and 10 k_iters: the last parts first
    trace = run(decompose("splitk", Problem(128, 256, 128), TILE, 4, parts=3))
    assert of_kind(trace, Kind.MAC) == [
        (0, 0, 0, 320),
        (1, 1, 0, 320),
        (2, 2, 0, 352),
        (3, 3, 0, 352),
        (4, 4, 384, 736),  # on SM 0, when the part that was there is left
        (5, 5, 384, 736),
    ]
    assert of_kind(trace, Kind.WAIT) == [(4, 4, 736, 736), (5, 5, 736, 736)]
    assert of_kind(trace, Kind.FIXUP)[4:] == [(4, 4, 736, 928), (5, 5, 736, 928)]  # two each
    assert of_kind(trace, Kind.EPILOGUE) == [(4, 4, 928, 1056), (5, 5, 928, 1056)]
    # eight k_iters in two: both begin at once, and the owner waits for the other to be written
    trace = run(decompose("splitk", Problem(128, 128, 32), TILE, 4, parts=2))
    assert of_kind(trace, Kind.WAIT) == [(1, 1, 128, 192)]
    assert of_kind(trace, Kind.EPILOGUE) == [(1, 1, 288, 416)]


def by_shares(problem: Problem, parts: int) -> Schedule:
    """Tail split where the parts' own CTAs add a share each."""
    return replace(decompose("tailsplit", problem, TILE, 4, parts=parts), reducers=0)


def test_tail_split_adds_shares_after_the_whole_tiles() -> None:
    # one tile of 21 in parts of 11, 11 and 10 k_iters; five whole tiles a CTA: 352 + 64 + 5760 = 6176, and
    # CTA 2 at 6144, when all parts have long been there
    trace = run(by_shares(MEDIUM, 3))
    assert of_kind(trace, Kind.WAIT) == [(0, 0, 6176, 6176), (1, 1, 6176, 6176), (2, 2, 6144, 6144)]
    assert of_kind(trace, Kind.FIXUP) == [
        (0, 0, 352, 416),
        (0, 0, 6176, 6336),
        (1, 1, 352, 416),
        (1, 1, 6176, 6336),
        (2, 2, 320, 384),
        (2, 2, 6144, 6304),
    ]
    assert len(of_kind(trace, Kind.EPILOGUE)) == 20
    assert rows(spans_of(trace, Kind.CTA), "cta", "end_ns") == [(0, 6336), (1, 6336), (2, 6304), (3, 5760)]
    # one tile is all there is: the parts wait for one another
    trace = run(by_shares(Problem(128, 128, 128), 3))
    assert of_kind(trace, Kind.WAIT) == [(0, 0, 416, 416), (1, 1, 416, 416), (2, 2, 384, 416)]


def test_spare_ctas_add_all_partial_sums() -> None:
    # one tile of 21 in three parts, and CTA 3, without one, is done with its five tiles at 5760
    schedule = decompose("tailsplit", MEDIUM, TILE, 4, parts=3, model=COSTS.grid_model)
    assert schedule.reducers == 1
    trace = run(schedule)
    assert of_kind(trace, Kind.WAIT) == [(NULL, 3, 5760, 5760)]
    assert of_kind(trace, Kind.FIXUP) == [(NULL, 3, 5760, 5856), (0, 0, 352, 416), (1, 1, 352, 416), (2, 2, 320, 384)]
    fixups = spans_of(trace, Kind.FIXUP)
    assert fixups.k_begin[fixups.unit == NULL].tolist() == fixups.tile_m[fixups.unit == NULL].tolist() == [NULL]
    assert rows(spans_of(trace, Kind.CTA), "cta", "end_ns") == [(0, 6176), (1, 6176), (2, 6144), (3, 5856)]
    assert trace.launches[0].reducers == 1
    # two tiles left over on six SMs, in two parts each: CTAs 4 and 5 have none; each adds a tile
    schedule = replace(decompose("tailsplit", Problem(256, 896, 128), TILE, 6, parts=2), reducers=2)
    assert (schedule.split_tiles, schedule.num_ctas) == (2, 6)
    trace = run(schedule, sms=6)
    # twelve whole tiles, two a CTA: 2304; the parts were left at 576
    assert of_kind(trace, Kind.FIXUP)[:2] == [(NULL, 4, 2304, 2400), (NULL, 5, 2304, 2400)]


def test_spare_ctas_wait_for_their_first_tile() -> None:
    # made up: nothing but parts, on CTAs 0 and 1, and a spare CTA of one short unit
    schedule = replace(decompose("tailsplit", Problem(128, 128 * 4, 128), TILE, 3, parts=2), reducers=1)
    assert (schedule.split_tiles, schedule.num_ctas) == (1, 3)
    short = schedule.k_end.copy()
    short[2:] = 1  # whole tiles of one k_iter: 32 + 128
    trace = simulate(
        replace(schedule, k_end=short),
        replace(DEVICE, sms=3, max_clock_mhz=2000.0),
        kernel="toy",
        block=1,
        registers=1,
        shared_bytes=0,
        ctas_per_sm=1,
        calibration=COSTS,
    )
    # parts of 16 k_iters are left at 512 + 64
    assert of_kind(trace, Kind.WAIT) == [(NULL, 2, 160, 576)]
    assert of_kind(trace, Kind.FIXUP)[0] == (NULL, 2, 576, 672)


def test_who_comes_last_to_a_common_sum_stores_the_tile() -> None:
    # tile 2 of nine: CTA 2 has added its 24 k_iters at 832; CTA 3 comes at 2560, adds (64), reads (96), stores
    trace = run(decompose("streamk", SMALL, TILE, 4, parts=4), reduction="atomic")
    assert of_kind(trace, Kind.WAIT) == []
    assert of_kind(trace, Kind.FIXUP)[:2] == [(2, 3, 2560, 2720), (3, 2, 768, 832)]
    assert (2, 3, 2720, 2848) in of_kind(trace, Kind.EPILOGUE)
    assert trace.launches[0].reduction == "atomic"
    # shares of one sum instead of three: a third of 160, by the timer 32
    trace = run(by_shares(MEDIUM, 3), reduction="atomic")
    assert (2, 2, 6144, 6176) in of_kind(trace, Kind.FIXUP)
    trace = run(replace(by_shares(MEDIUM, 3), reducers=1), reduction="atomic")
    assert (NULL, 3, 5760, 5856) in of_kind(trace, Kind.FIXUP)


def test_the_first_unit_of_a_cta_may_come_last() -> None:
    # one tile of 8 k_iters, the SM of CTA 0 begins 320 later than that of the owner, CTA 1
    schedule = decompose("streamk", Problem(128, 128, 32), TILE, 2, parts=2)
    late = replace(COSTS, ramp_ns=320.0)
    trace = simulate(
        replace(schedule, cta=1 - schedule.cta),
        replace(DEVICE, sms=2, max_clock_mhz=2000.0),
        kernel="toy",
        block=1,
        registers=1,
        shared_bytes=0,
        ctas_per_sm=1,
        calibration=late,
        reduction="atomic",
    )
    # unit 1 (rank 1): 320 + 128, adds and reads
    assert of_kind(trace, Kind.FIXUP) == [(0, 0, 128, 192), (1, 1, 448, 608)]
    assert of_kind(trace, Kind.EPILOGUE) == [(1, 1, 608, 736)]


def test_shares_at_different_k_are_slower() -> None:
    slower = replace(COSTS, stream_slowdown=0.5)
    macs = spans_of(run(decompose("hybrid", MEDIUM, TILE, 4, parts=2), slower), Kind.MAC)
    per_k_iter = (macs.end_clock - macs.begin_clock) / (macs.k_end - macs.k_begin)
    shared = macs.unit < 9
    assert set(per_k_iter[shared].tolist()) == {48}
    assert set(per_k_iter[~shared].tolist()) == {32}
    # eight k_iters each are a quarter of a tile: all at the same place in it
    macs = spans_of(run(decompose("hybrid", MEDIUM, TILE, 4, parts=1), slower), Kind.MAC)
    assert set(((macs.end_clock - macs.begin_clock) / (macs.k_end - macs.k_begin)).tolist()) == {32}
    macs = spans_of(run(decompose("tailsplit", MEDIUM, TILE, 4, parts=3), slower), Kind.MAC)
    assert set(((macs.end_clock - macs.begin_clock) / (macs.k_end - macs.k_begin)).tolist()) == {32}


def test_shares_at_different_k_that_read_past_the_l2_are_remarked_upon() -> None:
    schedule = decompose("hybrid", MEDIUM, TILE, 4, parts=2)
    need = MEDIUM.read_bytes
    assert need == 2 * 128 * (MEDIUM.m + MEDIUM.n) == 327_680
    said = past_l2(schedule, replace(DEVICE, l2_bytes=need - 1))
    assert said.startswith("A and B are 0.328 MB, more than the L2 of 0.328 MB: CTAs at different k")
    assert past_l2(schedule, replace(DEVICE, l2_bytes=need)) == ""
    for in_step in (decompose("hybrid", MEDIUM, TILE, 4, parts=1), decompose("tailsplit", MEDIUM, TILE, 4, parts=3)):
        assert past_l2(in_step, replace(DEVICE, l2_bytes=0)) == ""


def test_two_ctas_of_one_sm_meet() -> None:
    # 8 k_iters shared by both, 4 each: 128; CTA 0 then has the SM to itself for its partial sum, 64 at twice
    # the speed: 160; CTA 1 adds 96 in 48, by the timer 192 (208), and stores 128 in 64: 272
    schedule = decompose("streamk", Problem(128, 128, 32), TILE, 2, parts=2)
    trace = run(schedule, replace(COSTS, ctas_per_sm=2), sms=1, ctas_per_sm=2)
    assert of_kind(trace, Kind.MAC) == [(0, 1, 0, 128), (1, 0, 0, 128)]
    assert of_kind(trace, Kind.WAIT) == [(0, 1, 128, 160)]
    assert of_kind(trace, Kind.FIXUP) == [(0, 1, 160, 192), (1, 0, 128, 160)]
    assert of_kind(trace, Kind.EPILOGUE) == [(0, 1, 192, 256)]


def test_owners_wait_for_ctas_of_another_sm() -> None:
    # CTAs 0 and 2 on SM 0, 1 and 3 on SM 1.  Two tiles of 10 k_iters in halves: 160 all; SM 0 then holds both
    # that leave their sums, until 224, and SM 1 both owners
    schedule = decompose("streamk", Problem(128, 256, 40), TILE, 4, parts=4)
    trace = run(schedule, replace(COSTS, ctas_per_sm=2), sms=2, ctas_per_sm=2)
    assert of_kind(trace, Kind.MAC) == [(0, 3, 0, 160), (1, 2, 0, 160), (3, 1, 0, 160), (4, 0, 0, 160)]
    assert of_kind(trace, Kind.WAIT) == [(0, 3, 160, 224), (3, 1, 160, 224)]
    assert of_kind(trace, Kind.FIXUP) == [(0, 3, 224, 320), (1, 2, 160, 224), (3, 1, 224, 320), (4, 0, 160, 224)]


def test_an_owner_adds_when_the_last_part_is_there() -> None:
    # one tile of 12 k_iters in shares of 3: 96 all.  Beside the owner, CTA 3, CTA 1 leaves its sum alone, until
    # 128; CTAs 0 and 2 together, until 160.  Three to add, alone: 144, by the timer until 288; storing 64 until 368
    schedule = decompose("streamk", Problem(128, 128, 48), TILE, 4, parts=4)
    trace = run(schedule, replace(COSTS, ctas_per_sm=2), sms=2, ctas_per_sm=2)
    assert of_kind(trace, Kind.WAIT) == [(0, 3, 96, 160)]
    assert of_kind(trace, Kind.FIXUP) == [(0, 3, 160, 288), (1, 2, 96, 160), (2, 1, 96, 128), (3, 0, 96, 160)]
    assert of_kind(trace, Kind.EPILOGUE) == [(0, 3, 288, 352)]


def test_a_cta_that_waits_leaves_its_sm_to_the_others() -> None:
    # Speeds: one at work 2, two 1 each.  SM 0: job 0 loops for 50 and leaves its sum by 75.  SM 1: jobs 1 and 2 loop
    # until 60; job 1 waits, job 2 of 300 has 240 left, at 2: 210 at 75, when job 1 adds, 40 at 1: until 115, and
    # stores, 20: until 135; job 2 loops alone all the while: 210 / 2 after 75
    jobs = replace(
        independent_jobs(3, 3),
        tile=np.array([0, 0, -1]),
        leaves=np.array([True, False, False]),
        needs=np.array([0, 1, 0]),
    )
    nothing = np.zeros(3)
    costs = JobCosts(
        handover=nothing,
        before=nothing,
        mac=np.array([100.0, 60.0, 300.0]),
        leave=np.array([50.0, 0.0, 0.0]),
        add=np.array([0.0, 40.0, 0.0]),
        store=np.array([0.0, 20.0, 0.0]),
        after=nothing,
    )
    speeds = main_loop_speeds(2, 2, 1.0, 0.0), epilogue_speeds(2, 2)
    found = occupy_shared(costs, jobs, np.array([0, 1, 1]), np.zeros(2), np.ones(2), *speeds)
    assert found.mac_end.tolist() == [50, 60, 180]
    assert found.left.tolist() == [75, 60, 180]
    assert found.met.tolist() == [75, 75, 180]
    assert found.added.tolist() == [75, 115, 180]
    assert found.stored.tolist() == [75, 135, 180]


def test_waiting_for_what_nobody_leaves_is_refused() -> None:
    jobs = replace(independent_jobs(1, 1), tile=np.array([0]), needs=np.array([1]))
    nothing = np.zeros(1)
    costs = JobCosts(nothing, nothing, nothing + 32, nothing, nothing, nothing, nothing)
    with pytest.raises(IntegrityError, match="wait for partial sums that nobody leaves"):
        occupy_shared(
            costs,
            jobs,
            np.zeros(1, np.int64),
            nothing,
            np.ones(1),
            main_loop_speeds(1, 1, 1.0, 0.0),
            epilogue_speeds(1, 1),
        )


def test_notes_say_what_is_not_known() -> None:
    schedule = decompose("streamk", SMALL, TILE, 4, parts=4)
    unknown = replace(
        COSTS,
        source="x; not to be told from these launches: stream_slowdown; estimated from the tile's size: add_cycles",
    )
    notes = " ".join(run(schedule, unknown, reduction="atomic").launches[0].notes)
    assert "what partial sums cost is estimated from the tile's size" in notes
    assert "by how much was not recorded" in notes
    assert "adding to a common sum is taken to cost what leaving a partial sum does (estimated)" in notes
    notes = " ".join(run(schedule).launches[0].notes)
    assert "estimated" not in notes
    assert "not recorded" not in notes


@settings(max_examples=150, deadline=None)
@given(
    m=st.integers(1, 6),
    n=st.integers(1, 6),
    k=st.integers(1, 40),
    cut=st.sampled_from([0, 24]),
    text=st.sampled_from(["splitk", "streamk", "hybrid", "tailsplit"]),
    parts=st.one_of(st.none(), st.integers(1, 9)),
    atomic=st.booleans(),
    sms=st.integers(1, 5),
    ctas_per_sm=st.integers(1, 3),
    calibrated_with=st.integers(1, 3),
    noise=st.sampled_from([0.0, 0.05]),
    seed=st.integers(0, 2**32),
)
def test_every_split_trace_can_be_true(
    m: int,
    n: int,
    k: int,
    cut: int,
    text: str,
    parts: int | None,
    atomic: bool,
    sms: int,
    ctas_per_sm: int,
    calibrated_with: int,
    noise: float,
    seed: int,
) -> None:
    places = sms * ctas_per_sm
    if parts is not None:
        at_once = min(k, places // (m * n % places)) if m * n % places else 9
        parts = min(parts, {"splitk": k, "streamk": places, "hybrid": 2, "tailsplit": at_once}[text])
    calibration = replace(
        COSTLY,
        ctas_per_sm=calibrated_with,
        partial_cycles=640.0,
        add_cycles=960.0,
        share_cycles=720.0,
        spare_cycles=240.0,
        stream_slowdown=0.2,
        edge_slowdown=0.1,
        sharing=0.7,
        seniority=0.3,
        noise=noise,
        clock_spread=noise,
        idle_clock_mhz=1300.0,
    )
    variant = Variant(text, parts, reduction="atomic" if atomic else "ordered")
    schedule = variant.decompose(Problem(128 * m - cut, 128 * n, 4 * k), TILE, places, calibration.grid_model)
    trace = run(schedule, calibration, sms, ctas_per_sm, variant.reduction, seed)
    budget = analyze(trace).budget
    assert budget.residual_ns == 0
    assert sum(term.value for term in budget.terms.values()) == budget.total_ns
    check_meetings(trace, schedule)


def check_meetings(trace: Trace, schedule: Schedule) -> None:
    """Who adds partial sums has waited until they were written, and no longer."""
    begin, end = {}, {}
    for kind in Kind:
        spans = spans_of(trace, kind)
        order = np.argsort(spans.begin_ns, kind="stable")
        for unit, first, last in zip(spans.unit[order], spans.begin_ns[order], spans.end_ns[order], strict=True):
            begin.setdefault((kind, unit), first)  # of a unit's first such span
            end.setdefault((kind, unit), last)
    atomic = trace.launches[0].reduction == "atomic"
    of_tile = {
        slot: np.flatnonzero((schedule.first_slot == slot) & (schedule.peers > 1)) for slot in schedule.first_slot
    }
    stored = {unit for kind, unit in end if kind == Kind.EPILOGUE}
    for at in np.flatnonzero(schedule.peers > 1):
        unit, peers = schedule.unit[at], schedule.unit[of_tile[schedule.first_slot[at]]]
        assert len(peers) == schedule.peers[at]
        if schedule.is_cooperative and not schedule.reducers:
            others = max(end[Kind.FIXUP, peer] for peer in peers)
            assert end[Kind.WAIT, unit] == max(begin[Kind.WAIT, unit], others)
            assert unit not in stored
        elif schedule.is_cooperative:
            assert (Kind.WAIT, unit) not in end
        elif atomic:
            assert len(stored & set(peers)) == 1
            assert (Kind.WAIT, unit) not in end
        elif schedule.rank[at] == 0:
            others = max(end[Kind.FIXUP, peer] for peer in peers if peer != unit)
            assert end[Kind.WAIT, unit] == max(begin[Kind.WAIT, unit], others)
            assert unit in stored
        else:
            assert unit not in stored
    nobodys = spans_of(trace, Kind.WAIT)
    nobodys = nobodys.select(nobodys.unit == NULL)
    expected = range(schedule.num_ctas - schedule.reducers, schedule.num_ctas) if schedule.num_slots else []
    assert sorted(nobodys.cta.tolist()) == list(expected)
    for cta, first, last in zip(nobodys.cta, nobodys.begin_ns, nobodys.end_ns, strict=True):
        tile = (cta - expected[0]) * schedule.split_tiles // schedule.reducers
        parts = schedule.unit[schedule.first_slot == tile * schedule.parts][: schedule.parts]
        assert last == max(first, *(end[Kind.FIXUP, part] for part in parts))
