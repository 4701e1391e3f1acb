// The loop of every GEMM kernel: next unit, multiply, store, record.  A kernel brings the
// two verbs; scheduling and probing stand here once.
#pragma once

#include "schedule.cuh"
#include "trace.cuh"

namespace wavescope {

// multiply(unit) leaves the tile in registers, store(unit) writes it out.
// counter: tickets of SCHEDULE DYNAMIC, 0 at the launch, and left 0.
// records: two a unit (mac, epilogue), then one a CTA.
template <int SCHEDULE_ID, typename Multiply, typename Store>
__device__ __forceinline__ void run_units(const TileGrid& grid, int* counter, Record* records, Multiply multiply,
                                          Store store) {
    __shared__ int next_ticket;
    Unit unit;
    int ticket = 0;
#if PROBE
    const bool probing = threadIdx.x == 0;
    Record* const cta_record = records + 2ll * num_units(grid) + blockIdx.x;
    if (probing) record_begin(cta_record, stamp());
#endif
    for (int round = 0;; ++round) {
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
        Record* const record = records + 2ll * unit.index;
        if (probing) record_begin(record, stamp());
#endif
        multiply(unit);
#if PROBE
        if (probing) {
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
        if (probing)
            record_end(record + 1, KIND_EPILOGUE, stamp(), blockIdx.x, unit.index, unit.tile_m, unit.tile_n,
                       unit.k_begin, unit.k_end);
#endif
    }
#if PROBE
    if (probing) record_end(cta_record, KIND_CTA, stamp(), blockIdx.x, ~0u, ~0u, ~0u, ~0u, ~0u);
#endif
}

}  // namespace wavescope
