// The loop of every GEMM kernel: next unit, multiply, meet, store, record.  A kernel brings
// the verbs that know its tile; scheduling, partial sums and probing stand here once.
#pragma once

#include "fixup.cuh"
#include "schedule.cuh"
#include "trace.cuh"

#ifndef REDUCTION
#define REDUCTION 0
#endif
#ifndef WORK
#define WORK 0
#endif

namespace wavescope {

#if defined(__CUDACC__)
// The value, of which the compiler no longer knows the origin: it can neither carry it from
// one turn of the loop to the next, nor work it out again inside the main loop.
__device__ __forceinline__ int opaque(int value) {
    asm volatile("" : "+r"(value));
    return value;
}
__device__ __forceinline__ const char* opaque(const char* value) {
    asm volatile("" : "+l"(value));
    return value;
}
#endif

// Cycles in which those who multiply a unit waited for its operands, and those who copy them
// for room to copy to.  The first stand in the record of the mac span, the others in that of
// the span after it.
struct Stalls {
    unsigned int operands, room;
};

// A launch's records: one a CTA, then these of each unit.
enum Part { PART_MAC = 0, PART_EPILOGUE = 1, PART_WAIT = 2, PART_FIXUP = 3 };
__device__ __forceinline__ constexpr int records_of_unit(int schedule) { return splits_tiles(schedule) ? 4 : 2; }

constexpr unsigned int OF_TEAM = ~0u;  // a recorder: the first thread of each team

#if PROBE
// Asked anew each time, so that the main loop keeps no register for it.
__device__ __forceinline__ bool is_recorder(unsigned int recorder = OF_TEAM) {
    unsigned int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
#if TEAMS > 1
    if (recorder == OF_TEAM) return thread % WORKERS == 0;
#endif
    return thread == (recorder == OF_TEAM ? 0 : recorder);
}

// Likewise computed anew.
template <int SCHEDULE_ID>
__device__ __forceinline__ Record* record_of(Record* records, const Unit& unit, Part part) {
    return records + gridDim.x + static_cast<long long>(records_of_unit(SCHEDULE_ID)) * opaque(unit.index) + part;
}

__device__ __forceinline__ SpanOf span_of(const Unit& unit) {
    const unsigned int name = unit.tile_m < 0 ? ~0u : unit.index;  // spans of no unit
    return SpanOf{blockIdx.x, name, static_cast<unsigned int>(unit.tile_m), static_cast<unsigned int>(unit.tile_n),
                  static_cast<unsigned int>(unit.k_begin), static_cast<unsigned int>(unit.k_end)};
}

template <int SCHEDULE_ID>
__device__ __forceinline__ void end_at(Record* records, const Unit& unit, Part part, Kind kind, const Stamp& now,
                                       unsigned int stall = 0, unsigned int recorder = OF_TEAM) {
    Record* const record = record_of<SCHEDULE_ID>(records, unit, part);
    record_end(record, now);
    record_name(record, kind, span_of(unit), recorder == OF_TEAM ? team() : TEAMS, stall);
}
#endif

template <int SCHEDULE_ID>
__device__ __forceinline__ void begin_span(Record* records, const Unit& unit, Part part, unsigned int recorder = OF_TEAM) {
#if PROBE
    if (is_recorder(recorder)) record_begin(record_of<SCHEDULE_ID>(records, unit, part), stamp());
#endif
}

template <int SCHEDULE_ID>
__device__ __forceinline__ void end_span(Record* records, const Unit& unit, Part part, Kind kind,
                                         unsigned int stall = 0, unsigned int recorder = OF_TEAM) {
#if PROBE
    if (is_recorder(recorder)) end_at<SCHEDULE_ID>(records, unit, part, kind, stamp(), stall, recorder);
#endif
}

// One span ends as the next begins.
template <int SCHEDULE_ID>
__device__ __forceinline__ void change_span(Record* records, const Unit& unit, Part from, Kind kind, Part to,
                                            unsigned int stall = 0, unsigned int recorder = OF_TEAM) {
#if PROBE
    if (is_recorder(recorder)) {
        const Stamp now = stamp();
        end_at<SCHEDULE_ID>(records, unit, from, kind, now, stall, recorder);
        record_begin(record_of<SCHEDULE_ID>(records, unit, to), now);
    }
#endif
}

#if PROBE
__device__ __forceinline__ void end_cta(Record* records, const Stamp& now) {
    record_end(records + blockIdx.x, now);
    record_name(records + blockIdx.x, KIND_CTA, SpanOf{blockIdx.x, ~0u, ~0u, ~0u, ~0u, ~0u}, 0, 0);
}
#endif

// What a whole tile leaves, once it is stored: before, fences of the store would wait for the records.  The epilogue's end
// is the CTA's where it is all that the CTA does: one look at the clocks for both.
template <int SCHEDULE_ID, bool IS_NAMED, bool IS_LAST>
__device__ __forceinline__ void end_whole_unit(Record* records, const Unit& unit, const Stamp& multiplied,
                                               const Stalls& stalls) {
#if PROBE
    if (is_recorder()) {
        const Stamp now = stamp();
        if constexpr (IS_NAMED) {
            Record* const record = record_of<SCHEDULE_ID>(records, unit, PART_MAC);
            record_end(record, multiplied);
            record_begin(record + PART_EPILOGUE, multiplied);
            record_end(record + PART_EPILOGUE, now);
            record[PART_MAC].stall_clock = stalls.operands;
        } else {
            end_at<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, multiplied, stalls.operands);
            record_begin(record_of<SCHEDULE_ID>(records, unit, PART_EPILOGUE), multiplied);
            end_at<SCHEDULE_ID>(records, unit, PART_EPILOGUE, KIND_EPILOGUE, now, stalls.room);
        }
        if (IS_LAST) end_cta(records, now);
    }
#endif
}

// The partial sums of a unit that shares its tile meet; true where it then holds the tile's
// sum and must store it.  Begins within the mac span, and ends within the epilogue's where true.
template <int SCHEDULE_ID, typename Sums, int FLOATS>
__device__ __forceinline__ bool meet(const Sums& sums, float (&acc)[FLOATS], const Unit& unit, const Sharing& mine,
                                     const Stalls& stalls, Record* records, Shared<int>* shared_word) {
    if constexpr (is_cooperative(SCHEDULE_ID)) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP, stalls.operands);
        sums.template leave<REDUCTION == ATOMIC>(acc, mine.first_slot + (REDUCTION == ATOMIC ? 0 : mine.rank));
        sums.raise(mine.first_slot + mine.rank);
        end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, stalls.room);
        return false;
    }
    if constexpr (REDUCTION == ATOMIC) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP, stalls.operands);
        const bool complete = sums.merge(acc, mine, shared_word);
        if (complete)
            change_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, PART_EPILOGUE, stalls.room);
        else
            end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, stalls.room);
        return complete;
    }
    if (mine.rank > 0) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP, stalls.operands);
        sums.template leave<false>(acc, mine.first_slot + mine.rank);
        sums.raise(mine.first_slot + mine.rank);
        end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, stalls.room);
        return false;
    }
    change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_WAIT, stalls.operands);
    sums.wait(mine.first_slot + 1, mine.peers - 1);
    change_span<SCHEDULE_ID>(records, unit, PART_WAIT, KIND_WAIT, PART_FIXUP, stalls.room);
    sums.add(acc, mine.first_slot + 1, mine.peers - 1);
    change_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, PART_EPILOGUE);
    return true;
}

// What a CTA without a part does at the end: its share of all partial sums.  Its spans have
// the places of its first unit, a whole tile, but belong to no unit.
template <int SCHEDULE_ID, int READS, typename Sums, typename StorePiece>
__device__ __forceinline__ void reduce(const Sums& sums, const Plan& plan, int reducer, Record* records,
                                       StorePiece store_piece) {
    Unit first{first_whole_index(plan, blockIdx.x), 0, 0, 0, 0, 0}, unit;
    begin_span<SCHEDULE_ID>(records, first, PART_WAIT);
    begin_span<SCHEDULE_ID>(records, first, PART_FIXUP);  // stands where the recorder's warp has nothing to add
    const Unit nobodys{first.index, ~0, ~0, ~0, ~0, ~0};
    unit.tile = -1;
    sums.template add_all<REDUCTION == ATOMIC, READS>(
        plan.split_tiles, plan.parts, reducer, plan.reducers,
        [&] { change_span<SCHEDULE_ID>(records, nobodys, PART_WAIT, KIND_WAIT, PART_FIXUP); },
        [&](int tile, int part, int warp, const auto& v) {
            if (unit.tile != tile) unit = whole_tile(plan.grid, tile, 0);
            store_piece(unit, part, warp, v);
        });
    if (PROBE) team_barrier();  // the span ends with the last warp
    end_span<SCHEDULE_ID>(records, nobodys, PART_FIXUP, KIND_FIXUP);
}

// A unit's own share of the partial sums of its tile, by `workers` warps of which this is number `worker`, after they
// have seen all flags.  Its spans stand where the unit has none yet; thread `recorder` is one of the warps'.
template <int SCHEDULE_ID, int AT_ONCE, int READS, typename Sums, typename Wait, typename StorePiece>
__device__ __forceinline__ void add_own_share(const Sums& sums, const Unit& unit, const Sharing& mine, int worker,
                                              int workers, Wait wait_for_all, Record* records, unsigned int recorder,
                                              StorePiece store_piece) {
    begin_span<SCHEDULE_ID>(records, unit, PART_WAIT, recorder);
    wait_for_all();
    change_span<SCHEDULE_ID>(records, unit, PART_WAIT, KIND_WAIT, PART_EPILOGUE, 0, recorder);
    sums.template add_share<REDUCTION == ATOMIC, AT_ONCE, READS>(
        mine, REDUCTION == ATOMIC ? 1 : mine.peers, worker, workers,
        [&](int part, int warp, const auto& v) { store_piece(unit, part, warp, v); });
}

// Whether a CTA has a part of a tile, and adds a share of its partial sums itself.
__device__ __forceinline__ bool adds_own_share(const Plan& plan) {
    return plan.reducers == 0 && static_cast<int>(blockIdx.x) < plan.parts * plan.split_tiles;
}

// Whether a whole tile comes after the part.
__device__ __forceinline__ bool has_whole_tile(int schedule, const Plan& plan) {
    Unit unit;
    return next_unit(schedule, plan, blockIdx.x, 1, 0, &unit);
}

// What other threads of a CTA do for a team: here there are none.
struct Alone {
    // They add the CTA's share of a tile's partial sums while the others are at a whole tile.
    static constexpr bool ADD_SHARES = false;
    // 16-byte loads of partial sums for which a thread of a team has registers, its accumulators' among them.
    static constexpr int READS = 32;
    // They name the records of whole tiles (record_name), where no tile is split; the team writes times and Stalls::operands.
    static constexpr bool NAME_RECORDS = false;
    // The team itself writes operands to shared memory.
    static constexpr bool TEAM_COPIES = true;
    // A CTA ends with its last unit, if it has one: nothing that the probe would have to see comes after it.
    static constexpr bool END_WITH_UNIT = true;

    // Called by a team: the next number of the shared counter,
    __device__ __forceinline__ int draw(int round, int* counter, const Plan& plan, Shared<int>* shared_word) const {
        if (worker() == 0) {
            *shared_word = atomicAdd(counter, 1);
            // every CTA draws one ticket too many; who draws the last of all leaves 0 behind
            if (*shared_word == num_tiles(plan.grid) + static_cast<int>(gridDim.x) - 1) atomicExch(counter, 0);
        }
        team_barrier();
        return *shared_word;
    }
    // when the CTA's part is left and its flag raised,
    __device__ __forceinline__ void part_is_left() const {}
    // and at the end, until all others have done their work.
    __device__ __forceinline__ void wait() const {}
};

// grid_of() tells the TileGrid; multiply(unit) leaves the tile in acc; store(unit) writes it
// out, store_piece(unit, part, warp, sums) sixteen or four floats of each thread of one warp, the part-th so many.
// counter: tickets of SCHEDULE DYNAMIC, 0 at the launch, and left 0.
// work: with WORK 1, what each unit is, by its index.
// multiply() returns its Stalls.  helpers: see Alone.
// Several teams take a CTA's units in turn, each by itself.
// records: one a CTA, then records_of_unit() a unit.
template <int SCHEDULE_ID, int THREADS, typename Helpers = Alone, int FLOATS, typename Grid, typename Multiply,
          typename Store, typename StorePiece>
__device__ __forceinline__ void run_units(Grid grid_of, int parts, int split_tiles, int reducers, int* counter,
                                          const Workspace& space, Record* records, float (&acc)[FLOATS],
                                          Multiply multiply, Store store, StorePiece store_piece,
                                          const TileWork* work = nullptr, Helpers helpers = Helpers{}) {
    constexpr bool SPLITS = splits_tiles(SCHEDULE_ID), KEEPS = SPLITS || TEAMS > 1;
    constexpr bool ENDS_WITH_UNIT = SCHEDULE_ID == FIXED && Helpers::END_WITH_UNIT;
    static_assert(!WORK || !SPLITS, "only whole tiles have k_iters of their own");
    __shared__ Shared<int> shared_words[TEAMS];
    __shared__ Shared<Unit> kept_units[TEAMS];
    __shared__ Shared<Sharing> kept_sharings[TEAMS];
    __shared__ Shared<unsigned int> numbers[TEAMS];  // of the launch
    Shared<int>& shared_word = shared_words[team()];
    Shared<Unit>& kept = kept_units[team()];
    Shared<Sharing>& kept_sharing = kept_sharings[team()];
    Shared<unsigned int>& number = numbers[team()];
    const auto plan_of = [&] { return Plan{grid_of(), static_cast<int>(gridDim.x), parts, split_tiles, reducers}; };
    const auto sums = [&] {
        return Fixup<FLOATS, THREADS>{space, worker(), static_cast<int>(gridDim.x), number};
    };
    const auto add_share = [&](const Unit& unit, const Sharing& mine) {
        add_own_share<SCHEDULE_ID, 2, Helpers::READS>(
            sums(), unit, mine, worker() / 32, THREADS / 32, [&] { sums().wait(mine.first_slot, mine.peers); }, records,
            OF_TEAM, store_piece);
        if (PROBE) team_barrier();
        end_span<SCHEDULE_ID>(records, unit, PART_EPILOGUE, KIND_FIXUP);
    };
    const auto finish = [&](const Unit& unit, const Sharing& mine, const Stalls& stalls) {
        if (SPLITS && mine.peers > 1) {
            if (!meet<SCHEDULE_ID>(sums(), acc, unit, mine, stalls, records, &shared_word)) {
                if constexpr (is_cooperative(SCHEDULE_ID)) {
                    helpers.part_is_left();
                    if (TEAMS > 1 && reducers == 0) add_share(unit, mine);  // another team multiplies meanwhile
                }
                return;
            }
        }
        Stamp multiplied{};
#if PROBE
        if (is_recorder()) multiplied = stamp();
#endif
        store(unit);
        // the next unit overwrites shared memory that slower warps still read; the probe waits for the last warp
        if (KEEPS || (Helpers::TEAM_COPIES && (SCHEDULE_ID != FIXED || PROBE))) team_barrier();
        if (SPLITS && mine.peers > 1)
            end_span<SCHEDULE_ID>(records, unit, PART_EPILOGUE, KIND_EPILOGUE, stalls.room);
        else
            end_whole_unit<SCHEDULE_ID, Helpers::NAME_RECORDS && !SPLITS, ENDS_WITH_UNIT>(records, unit, multiplied, stalls);
    };
    Unit unit;
    int ticket = 0;
#if PROBE
    if (is_recorder(0)) record_begin(records + blockIdx.x, stamp());
#endif
    for (int round = team();; round += TEAMS) {
        const Plan plan = plan_of();
        if constexpr (SCHEDULE_ID == DYNAMIC) ticket = helpers.draw(round, counter, plan, &shared_word);
        if (!next_unit(SCHEDULE_ID, plan, blockIdx.x, round, ticket, &unit)) break;
        if (WORK) unit = unit_of_work(plan.grid, work[unit.index], unit.index);
        if (TEAMS == 1) begin_span<SCHEDULE_ID>(records, unit, PART_MAC);  // else when it is the team's turn
        // The main loop has barriers, and no registers for what comes after it; only one warp works out who shares.
        if (KEEPS && worker() == 0) {
            kept = unit;
            if (SPLITS) kept_sharing = sharing_of(SCHEDULE_ID, plan, blockIdx.x, unit);
            if (SPLITS && round == team()) number = launch_number(space, gridDim.x);  // while the first operands come
        }
        const Stalls stalls = multiply(unit);
        if constexpr (KEEPS) {
            const Unit multiplied = kept;
            const Sharing mine = SPLITS ? static_cast<Sharing>(kept_sharing) : Sharing{0, 0, 1};
            finish(multiplied, mine, stalls);
        } else {
            finish(unit, Sharing{0, 0, 1}, stalls);
        }
        if constexpr (SCHEDULE_ID == SPLITK) break;  // a CTA has one unit
    }
    if constexpr (is_cooperative(SCHEDULE_ID)) {
        const Plan plan = plan_of();
        const int reducer = static_cast<int>(blockIdx.x + reducers) - static_cast<int>(gridDim.x);
        if (reducers > 0 && reducer >= 0 && team() == 0) reduce<SCHEDULE_ID, Helpers::READS>(sums(), plan, reducer, records, store_piece);
        // A part of a tile is a CTA's first unit, and the only one that is a part.
        if (TEAMS == 1 && adds_own_share(plan) && !(Helpers::ADD_SHARES && has_whole_tile(SCHEDULE_ID, plan))) {
            next_unit(SCHEDULE_ID, plan, blockIdx.x, 0, 0, &unit);
            add_share(unit, sharing_of(SCHEDULE_ID, plan, blockIdx.x, unit));
        }
    }
    helpers.wait();
    if (SPLITS && team() == 0 && (REDUCTION == ORDERED || is_cooperative(SCHEDULE_ID))) sums().end();
#if PROBE
    // An SM frees registers warp by warp: the next CTA could begin while one warp of this one is still to end.
    if (SPLITS) team_barrier();
    if (!ENDS_WITH_UNIT && is_recorder(0)) end_cta(records, stamp());
#endif
}

}  // namespace wavescope
