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

// A launch's records: one a CTA, then these of each unit.
enum Part { PART_MAC = 0, PART_EPILOGUE = 1, PART_WAIT = 2, PART_FIXUP = 3 };
__device__ __forceinline__ constexpr int records_of_unit(int schedule) { return splits_tiles(schedule) ? 4 : 2; }

#if PROBE
// Asked anew each time, so that the main loop keeps no register for it.
__device__ __forceinline__ bool is_recorder() {
    unsigned int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread == 0;
}

// Likewise computed anew.
template <int SCHEDULE_ID>
__device__ __forceinline__ Record* record_of(Record* records, const Unit& unit, Part part) {
    return records + gridDim.x + static_cast<long long>(records_of_unit(SCHEDULE_ID)) * opaque(unit.index) + part;
}

template <int SCHEDULE_ID>
__device__ __forceinline__ void end_at(Record* records, const Unit& unit, Part part, Kind kind, const Stamp& now) {
    record_end(record_of<SCHEDULE_ID>(records, unit, part), kind, now, blockIdx.x, unit.index, unit.tile_m,
               unit.tile_n, unit.k_begin, unit.k_end);
}
#endif

template <int SCHEDULE_ID>
__device__ __forceinline__ void begin_span(Record* records, const Unit& unit, Part part) {
#if PROBE
    if (is_recorder()) record_begin(record_of<SCHEDULE_ID>(records, unit, part), stamp());
#endif
}

template <int SCHEDULE_ID>
__device__ __forceinline__ void end_span(Record* records, const Unit& unit, Part part, Kind kind) {
#if PROBE
    if (is_recorder()) end_at<SCHEDULE_ID>(records, unit, part, kind, stamp());
#endif
}

// One span ends as the next begins.
template <int SCHEDULE_ID>
__device__ __forceinline__ void change_span(Record* records, const Unit& unit, Part from, Kind kind, Part to) {
#if PROBE
    if (is_recorder()) {
        const Stamp now = stamp();
        end_at<SCHEDULE_ID>(records, unit, from, kind, now);
        record_begin(record_of<SCHEDULE_ID>(records, unit, to), now);
    }
#endif
}

// The partial sums of a unit that shares its tile meet; true where it then holds the tile's
// sum and must store it.  Begins within the mac span, and ends within the epilogue's where true.
template <int SCHEDULE_ID, typename Sums, int FLOATS>
__device__ __forceinline__ bool meet(const Sums& sums, float (&acc)[FLOATS], const Unit& unit, const Sharing& mine,
                                     Record* records, int* shared_word) {
    if constexpr (is_cooperative(SCHEDULE_ID)) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP);
        sums.template leave<REDUCTION == ATOMIC>(acc, mine.first_slot + (REDUCTION == ATOMIC ? 0 : mine.rank));
        end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP);
        return false;
    }
    if constexpr (REDUCTION == ATOMIC) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP);
        const bool complete = sums.merge(acc, mine, shared_word);
        if (complete)
            change_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, PART_EPILOGUE);
        else
            end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP);
        return complete;
    }
    if (mine.rank > 0) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP);
        sums.template leave<false>(acc, mine.first_slot + mine.rank);
        sums.raise(mine.first_slot + mine.rank);
        end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP);
        return false;
    }
    change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_WAIT);
    sums.wait(mine.first_slot + 1, mine.peers - 1);
    change_span<SCHEDULE_ID>(records, unit, PART_WAIT, KIND_WAIT, PART_FIXUP);
    sums.add(acc, mine.first_slot + 1, mine.peers - 1);
    change_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, PART_EPILOGUE);
    return true;
}

// grid_of() tells the TileGrid; begin(unit) starts what multiply(unit) needs first, which
// leaves the tile in acc; store(unit) writes it out, store_piece(unit, part, warp, sums)
// sixteen floats of each thread of one warp.  EARLY: a unit is begun before the one before
// it is stored.
// counter: tickets of SCHEDULE DYNAMIC, 0 at the launch, and left 0.
// work: with WORK 1, what each unit is, by its index.
// records: one a CTA, then records_of_unit() a unit.
template <int SCHEDULE_ID, int THREADS, bool EARLY, int FLOATS, typename Grid, typename Begin, typename Multiply, typename Store,
          typename StorePiece>
__device__ __forceinline__ void run_units(Grid grid_of, int parts, int split_tiles, int* counter,
                                          const TileWork* work, const Workspace& space, Record* records,
                                          float (&acc)[FLOATS], Begin begin, Multiply multiply, Store store,
                                          StorePiece store_piece) {
    constexpr bool SPLITS = splits_tiles(SCHEDULE_ID), ONE_UNIT = SCHEDULE_ID == FIXED || SCHEDULE_ID == SPLITK;
    static_assert(!WORK || !SPLITS, "only whole tiles have k_iters of their own");
    __shared__ int shared_word;
    __shared__ Unit kept;
    __shared__ Sharing kept_sharing;
    const auto plan_of = [&] { return Plan{grid_of(), static_cast<int>(gridDim.x), parts, split_tiles}; };
    const auto sums = [&] {
        return Fixup<FLOATS, THREADS>{space, static_cast<int>(threadIdx.x), static_cast<int>(gridDim.x)};
    };
    // The round-th unit of this CTA; all threads ask together.
    const auto next = [&](int round, Unit* unit) {
        const Plan plan = plan_of();
        int ticket = 0;
        if constexpr (SCHEDULE_ID == DYNAMIC) {
            if (threadIdx.x == 0) {
                shared_word = atomicAdd(counter, 1);
                // every CTA draws one ticket too many; who draws the last of all leaves 0 behind
                if (shared_word == num_tiles(plan.grid) + static_cast<int>(gridDim.x) - 1) atomicExch(counter, 0);
            }
            __syncthreads();
            ticket = shared_word;
        }
        if (!next_unit(SCHEDULE_ID, plan, blockIdx.x, round, ticket, unit)) return false;
        if (WORK) *unit = unit_of_work(plan.grid, work[unit->index], unit->index);
        return true;
    };
    const auto finish = [&](const Unit& unit, const Sharing& mine) {
        if (SPLITS && mine.peers > 1) {
            if (!meet<SCHEDULE_ID>(sums(), acc, unit, mine, records, &shared_word)) return;
        } else {
            change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_EPILOGUE);
        }
        store(unit);
        if (PROBE) __syncthreads();  // the span ends with the last warp
        end_span<SCHEDULE_ID>(records, unit, PART_EPILOGUE, KIND_EPILOGUE);
    };
#if PROBE
    if (is_recorder()) record_begin(records + blockIdx.x, stamp());
#endif
    Unit unit;
    bool more = next(0, &unit);
    if (more) {
        begin_span<SCHEDULE_ID>(records, unit, PART_MAC);
        begin(unit);
    }
    for (int round = 1; more; ++round) {
        if (!ONE_UNIT && round > 1) begin_span<SCHEDULE_ID>(records, unit, PART_MAC);
        // The main loop has barriers, and no registers for what comes after it; only one warp works out who shares.
        if (SPLITS && threadIdx.x == 0) {
            kept = unit;
            kept_sharing = sharing_of(SCHEDULE_ID, plan_of(), blockIdx.x, unit);
        }
        multiply(unit);
        Unit multiplied = unit;
        Sharing mine{0, 0, 1};
        if constexpr (SPLITS) {
            multiplied = kept;
            mine = kept_sharing;
        }
        if constexpr (EARLY && !ONE_UNIT) {
            __syncthreads();  // all warps are done with shared memory
            more = next(round, &unit);
            if (more) begin(unit);
        }
        finish(multiplied, mine);
        if constexpr (!EARLY && !ONE_UNIT) {
            __syncthreads();
            more = next(round, &unit);
            if (more) begin(unit);
        }
        if constexpr (ONE_UNIT) break;
    }
    if constexpr (is_cooperative(SCHEDULE_ID)) {
        // Parts of tiles are a CTA's first units.  A CTA that waits for a part of the next round waits for one
        // of smaller index, so the waiting ends.
        for (int round = 0; blockIdx.x + round * gridDim.x < parts * split_tiles; ++round) {
            const Plan plan = plan_of();
            next_unit(SCHEDULE_ID, plan, blockIdx.x, round, 0, &unit);
            const Sharing mine = sharing_of(SCHEDULE_ID, plan, blockIdx.x, unit);
            begin_span<SCHEDULE_ID>(records, unit, PART_WAIT);
            sums().raise(mine.first_slot + mine.rank);
            sums().wait(mine.first_slot, mine.peers);
            change_span<SCHEDULE_ID>(records, unit, PART_WAIT, KIND_WAIT, PART_EPILOGUE);
            sums().template add_share<REDUCTION == ATOMIC>(
                mine, REDUCTION == ATOMIC ? 1 : mine.peers,
                [&](int part, int warp, const float(&v)[PIECE]) { store_piece(unit, part, warp, v); });
            if (PROBE) __syncthreads();
            end_span<SCHEDULE_ID>(records, unit, PART_EPILOGUE, KIND_FIXUP);
        }
    }
    if (SPLITS && (REDUCTION == ORDERED || is_cooperative(SCHEDULE_ID))) sums().end();
#if PROBE
    if (is_recorder())
        record_end(records + blockIdx.x, KIND_CTA, stamp(), blockIdx.x, ~0u, ~0u, ~0u, ~0u, ~0u);
#endif
}

}  // namespace wavescope
