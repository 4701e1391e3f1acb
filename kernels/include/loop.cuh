// The loop of every GEMM kernel: next unit, multiply, store, record.  A kernel brings the
// two verbs; scheduling and probing stand here once.
#pragma once

#include "schedule.cuh"
#include "trace.cuh"

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

#if PROBE
// Asked anew each time, so that the main loop keeps no register for it.
__device__ __forceinline__ bool is_recorder() {
    unsigned int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread == 0;
}

// The unit's first record; likewise computed anew.
__device__ __forceinline__ Record* record_of(Record* records, const Unit& unit) {
    return records + 2ll * opaque(unit.index);
}
#endif

// grid_of() tells the TileGrid, multiply(unit) leaves the tile in registers, store(unit) writes it out.
// counter: tickets of SCHEDULE DYNAMIC, 0 at the launch, and left 0.
// records: two a unit (mac, epilogue), then one a CTA.
template <int SCHEDULE_ID, typename Grid, typename Multiply, typename Store>
__device__ __forceinline__ void run_units(Grid grid_of, int* counter, Record* records, Multiply multiply,
                                          Store store) {
    __shared__ int next_ticket;
    Unit unit;
    int ticket = 0;
#if PROBE
    if (is_recorder()) record_begin(records + 2ll * num_units(grid_of()) + blockIdx.x, stamp());
#endif
    for (int round = 0;; ++round) {
        const TileGrid grid = grid_of();
        if constexpr (SCHEDULE_ID == DYNAMIC) {
            if (threadIdx.x == 0) {
                next_ticket = atomicAdd(counter, 1);
                // every CTA draws one ticket too many; who draws the last of all leaves 0 behind
                if (next_ticket == num_units(grid) + static_cast<int>(gridDim.x) - 1) atomicExch(counter, 0);
            }
            __syncthreads();
            ticket = next_ticket;
        }
        if (!next_unit(SCHEDULE_ID, grid, blockIdx.x, round, gridDim.x, ticket, &unit)) break;
#if PROBE
        if (is_recorder()) record_begin(record_of(records, unit), stamp());
#endif
        multiply(unit);
#if PROBE
        if (is_recorder()) {
            Record* const record = record_of(records, unit);
            const Stamp now = stamp();
            record_end(record, KIND_MAC, now, blockIdx.x, unit.index, unit.tile_m, unit.tile_n, unit.k_begin,
                       unit.k_end);
            record_begin(record + 1, now);
        }
#endif
        store(unit);
        // the next unit overwrites shared memory that slower warps still read; the probe waits for the last warp
        if (SCHEDULE_ID != FIXED || PROBE) __syncthreads();
#if PROBE
        if (is_recorder())
            record_end(record_of(records, unit) + 1, KIND_EPILOGUE, stamp(), blockIdx.x, unit.index, unit.tile_m,
                       unit.tile_n, unit.k_begin, unit.k_end);
#endif
    }
#if PROBE
    if (is_recorder())
        record_end(records + 2ll * num_units(grid_of()) + blockIdx.x, KIND_CTA, stamp(), blockIdx.x, ~0u, ~0u, ~0u,
                   ~0u, ~0u);
#endif
}

}  // namespace wavescope
