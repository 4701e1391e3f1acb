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
    const unsigned int name = unit.tile_m < 0 ? ~0u : unit.index;  // spans of no unit
    record_end(record_of<SCHEDULE_ID>(records, unit, part), kind, now, blockIdx.x, name, unit.tile_m, unit.tile_n,
               unit.k_begin, unit.k_end);
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

#if PROBE
__device__ __forceinline__ void end_cta(Record* records, const Stamp& now) {
    record_end(records + blockIdx.x, KIND_CTA, now, blockIdx.x, ~0u, ~0u, ~0u, ~0u, ~0u);
}
#endif

// The epilogue's end is the CTA's where it is all that the CTA does: one look at the clocks for both.
__device__ __forceinline__ void end_unit_and_cta(Record* records, const Unit& unit) {
#if PROBE
    if (is_recorder()) {
        const Stamp now = stamp();
        end_at<FIXED>(records, unit, PART_EPILOGUE, KIND_EPILOGUE, now);
        end_cta(records, now);
    }
#endif
}

// The partial sums of a unit that shares its tile meet; true where it then holds the tile's
// sum and must store it.  Begins within the mac span, and ends within the epilogue's where true.
template <int SCHEDULE_ID, typename Sums, int FLOATS>
__device__ __forceinline__ bool meet(const Sums& sums, float (&acc)[FLOATS], const Unit& unit, const Sharing& mine,
                                     Record* records, Shared<int>* shared_word) {
    if constexpr (is_cooperative(SCHEDULE_ID)) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP);
        sums.template leave<REDUCTION == ATOMIC>(acc, mine.first_slot + (REDUCTION == ATOMIC ? 0 : mine.rank));
        sums.raise(mine.first_slot + mine.rank);
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

// What a CTA without a part does at the end: its share of all partial sums.  Its spans have
// the places of its first unit, a whole tile, but belong to no unit.
template <int SCHEDULE_ID, typename Sums, typename StorePiece>
__device__ __forceinline__ void reduce(const Sums& sums, const Plan& plan, int reducer, Record* records,
                                       StorePiece store_piece) {
    Unit first, unit;
    next_unit(SCHEDULE_ID, plan, blockIdx.x, 0, 0, &first);
    begin_span<SCHEDULE_ID>(records, first, PART_WAIT);
    begin_span<SCHEDULE_ID>(records, first, PART_FIXUP);  // stands where the recorder's warp has nothing to add
    const Unit nobodys{first.index, ~0, ~0, ~0, ~0, ~0};
    unit.tile = -1;
    sums.template add_all<REDUCTION == ATOMIC>(
        plan.split_tiles, plan.parts, reducer, plan.reducers,
        [&] { change_span<SCHEDULE_ID>(records, nobodys, PART_WAIT, KIND_WAIT, PART_FIXUP); },
        [&](int tile, int part, int warp, const float(&v)[PIECE]) {
            if (unit.tile != tile) unit = whole_tile(plan.grid, tile, 0);
            store_piece(unit, part, warp, v);
        });
    __syncthreads();  // no warp may still ask for the launch's number when the CTA counts itself as ended
    end_span<SCHEDULE_ID>(records, nobodys, PART_FIXUP, KIND_FIXUP);
}

// grid_of() tells the TileGrid; multiply(unit) leaves the tile in acc; store(unit) writes it
// out, store_piece(unit, part, warp, sums) sixteen floats of each thread of one warp.
// counter: tickets of SCHEDULE DYNAMIC, 0 at the launch, and left 0.
// work: with WORK 1, what each unit is, by its index.
// records: one a CTA, then records_of_unit() a unit.
template <int SCHEDULE_ID, int THREADS, int FLOATS, typename Grid, typename Multiply, typename Store, typename StorePiece>
__device__ __forceinline__ void run_units(Grid grid_of, int parts, int split_tiles, int reducers, int* counter,
                                          const Workspace& space, Record* records, float (&acc)[FLOATS],
                                          Multiply multiply, Store store, StorePiece store_piece,
                                          const TileWork* work = nullptr) {
    constexpr bool SPLITS = splits_tiles(SCHEDULE_ID);
    static_assert(!WORK || !SPLITS, "only whole tiles have k_iters of their own");
    __shared__ Shared<int> shared_word;
    __shared__ Shared<Unit> kept;
    __shared__ Shared<Sharing> kept_sharing;
    const auto plan_of = [&] { return Plan{grid_of(), static_cast<int>(gridDim.x), parts, split_tiles, reducers}; };
    const auto sums = [&] {
        return Fixup<FLOATS, THREADS>{space, static_cast<int>(threadIdx.x), static_cast<int>(gridDim.x)};
    };
    const auto finish = [&](const Unit& unit, const Sharing& mine) {
        if (SPLITS && mine.peers > 1) {
            if (!meet<SCHEDULE_ID>(sums(), acc, unit, mine, records, &shared_word)) return;
        } else {
            change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_EPILOGUE);
        }
        store(unit);
        // the next unit overwrites shared memory that slower warps still read; the probe waits for the last warp
        if (SCHEDULE_ID != FIXED || PROBE) __syncthreads();
        if constexpr (SCHEDULE_ID == FIXED)
            end_unit_and_cta(records, unit);
        else
            end_span<SCHEDULE_ID>(records, unit, PART_EPILOGUE, KIND_EPILOGUE);
    };
    Unit unit;
    int ticket = 0;
#if PROBE
    if (is_recorder()) record_begin(records + blockIdx.x, stamp());
#endif
    for (int round = 0;; ++round) {
        const Plan plan = plan_of();
        if constexpr (SCHEDULE_ID == DYNAMIC) {
            if (threadIdx.x == 0) {
                shared_word = atomicAdd(counter, 1);
                // every CTA draws one ticket too many; who draws the last of all leaves 0 behind
                if (shared_word == num_tiles(plan.grid) + static_cast<int>(gridDim.x) - 1) atomicExch(counter, 0);
            }
            __syncthreads();
            ticket = shared_word;
        }
        if (!next_unit(SCHEDULE_ID, plan, blockIdx.x, round, ticket, &unit)) break;
        if (WORK) unit = unit_of_work(plan.grid, work[unit.index], unit.index);
        begin_span<SCHEDULE_ID>(records, unit, PART_MAC);
        // The main loop has barriers, and no registers for what comes after it; only one warp works out who shares.
        if (SPLITS && threadIdx.x == 0) {
            kept = unit;
            kept_sharing = sharing_of(SCHEDULE_ID, plan, blockIdx.x, unit);
        }
        multiply(unit);
        if constexpr (SPLITS) {
            const Unit multiplied = kept;
            const Sharing mine = kept_sharing;
            finish(multiplied, mine);
        } else {
            finish(unit, Sharing{0, 0, 1});
        }
    }
    if constexpr (is_cooperative(SCHEDULE_ID)) {
        const Plan plan = plan_of();
        const int reducer = static_cast<int>(blockIdx.x + reducers) - static_cast<int>(gridDim.x);
        if (reducers > 0 && reducer >= 0) reduce<SCHEDULE_ID>(sums(), plan, reducer, records, store_piece);
        // A part of a tile is a CTA's first unit, and the only one that is a part.
        if (reducers == 0 && static_cast<int>(blockIdx.x) < parts * split_tiles) {
            next_unit(SCHEDULE_ID, plan, blockIdx.x, 0, 0, &unit);
            const Sharing mine = sharing_of(SCHEDULE_ID, plan, blockIdx.x, unit);
            begin_span<SCHEDULE_ID>(records, unit, PART_WAIT);
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
    // An SM frees registers warp by warp: the next CTA could begin while one warp of this one is still to end.
    if (SPLITS) cta_barrier();
    if (SCHEDULE_ID != FIXED && is_recorder()) end_cta(records, stamp());
#endif
}

}  // namespace wavescope
