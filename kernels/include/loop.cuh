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
__device__ __forceinline__ bool meet(const Sums& sums, float (&acc)[FLOATS], const Unit& unit, Record* records,
                                     int* shared_word) {
    if constexpr (REDUCTION == ATOMIC) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP);
        const bool complete = sums.merge(acc, unit, shared_word);
        if (complete)
            change_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, PART_EPILOGUE);
        else
            end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP);
        return complete;
    }
    if (is_cooperative(SCHEDULE_ID) || unit.rank > 0) {
        change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_FIXUP);
        sums.leave(acc, unit.first_slot + unit.rank);
        end_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP);
        return false;
    }
    change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_WAIT);
    sums.wait(unit.first_slot + 1, unit.peers - 1);
    change_span<SCHEDULE_ID>(records, unit, PART_WAIT, KIND_WAIT, PART_FIXUP);
    sums.add(acc, unit.first_slot + 1, unit.peers - 1);
    change_span<SCHEDULE_ID>(records, unit, PART_FIXUP, KIND_FIXUP, PART_EPILOGUE);
    return true;
}

// grid_of() tells the TileGrid; multiply(unit) leaves the tile in acc; store(unit) writes it
// out, store_piece(unit, part, warp, sums) sixteen floats of each thread of one warp.
// counter: tickets of SCHEDULE DYNAMIC, 0 at the launch, and left 0.
// work: with WORK 1, what each unit is, by its index.
// records: one a CTA, then records_of_unit() a unit.
template <int SCHEDULE_ID, int THREADS, int FLOATS, typename Grid, typename Multiply, typename Store, typename StorePiece>
__device__ __forceinline__ void run_units(Grid grid_of, int parts, int split_tiles, int* counter,
                                          const TileWork* work, const Workspace& space, Record* records,
                                          float (&acc)[FLOATS], Multiply multiply, Store store,
                                          StorePiece store_piece) {
    constexpr bool SPLITS = splits_tiles(SCHEDULE_ID);
    static_assert(!WORK || !SPLITS, "only whole tiles have k_iters of their own");
    __shared__ int shared_word;
    __shared__ Unit kept;
    const auto plan_of = [&] { return Plan{grid_of(), static_cast<int>(gridDim.x), parts, split_tiles}; };
    const auto sums = [&] {
        return Fixup<FLOATS, THREADS>{space, static_cast<int>(threadIdx.x), static_cast<int>(gridDim.x)};
    };
    const auto finish = [&](const Unit& unit) {
        if (SPLITS && unit.peers > 1) {
            if (!meet<SCHEDULE_ID>(sums(), acc, unit, records, &shared_word)) return;
        } else {
            change_span<SCHEDULE_ID>(records, unit, PART_MAC, KIND_MAC, PART_EPILOGUE);
        }
        store(unit);
        // the next unit overwrites shared memory that slower warps still read; the probe waits for the last warp
        if (SCHEDULE_ID != FIXED || PROBE) __syncthreads();
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
        if (SPLITS && threadIdx.x == 0) kept = unit;
        multiply(unit);
        if constexpr (SPLITS) {
            const Unit multiplied = kept;  // the main loop has barriers, and no registers for what comes after it
            finish(multiplied);
        } else {
            finish(unit);
        }
    }
    if constexpr (is_cooperative(SCHEDULE_ID)) {
        for (int round = 0;; ++round) {  // the parts that this CTA left behind come first
            if (!next_unit(SCHEDULE_ID, plan_of(), blockIdx.x, round, 0, &unit) || unit.peers == 1) break;
            begin_span<SCHEDULE_ID>(records, unit, PART_WAIT);
            sums().wait(unit.first_slot, unit.peers);
            change_span<SCHEDULE_ID>(records, unit, PART_WAIT, KIND_WAIT, PART_EPILOGUE);
            sums().add_share(unit, [&](int part, int warp, const float(&v)[PIECE]) { store_piece(unit, part, warp, v); });
            if (PROBE) __syncthreads();
            end_span<SCHEDULE_ID>(records, unit, PART_EPILOGUE, KIND_FIXUP);
        }
    }
    if (SPLITS && REDUCTION == ORDERED) sums().end();
#if PROBE
    if (is_recorder())
        record_end(records + blockIdx.x, KIND_CTA, stamp(), blockIdx.x, ~0u, ~0u, ~0u, ~0u, ~0u);
#endif
}

}  // namespace wavescope
