// The kernels' loop on the host.
//
// -D: REDUCTION (fixup.cuh)  WORK (loop.cuh)  ONLY (one schedule of schedule.cuh; without it all)
#include <iterator>

#include "fixup_host.h"

#include "loop.cuh"

using namespace wavescope;

namespace {

template <int SCHEDULE_ID>
void kernel(void* at) {
    using namespace host_run;
    const Arguments& given = *static_cast<const Arguments*>(at);
    float acc[FLOATS];
    run_units<SCHEDULE_ID, THREADS>(
        [&] { return given.grid; }, given.parts, given.split_tiles, given.reducers, given.counter, given.space, nullptr,
        acc,
        [&](const Unit& unit) { return multiply(acc, unit), Stalls{}; },
        [&](const Unit& unit) {
            for (int part = 0; part < FLOATS / PIECE; ++part)
                store_part(unit, part, threadIdx.x / 32, &acc[part * PIECE], PIECE);
        },
        [&](const Unit& unit, int part, int warp, const auto& sums) {
            store_part(unit, part, warp, sums, static_cast<int>(std::size(sums)));
        },
        given.work);
}

}  // namespace

const ReductionKind host_run::reduction = static_cast<ReductionKind>(REDUCTION);

void (*host_run::kernel_of(int schedule))(void*) {
#if defined(ONLY)
    return schedule == ONLY ? kernel<ONLY> : nullptr;
#else
    switch (schedule) {
        case FIXED: return kernel<FIXED>;
        case PERSISTENT: return kernel<PERSISTENT>;
        case DYNAMIC: return kernel<DYNAMIC>;
#if !WORK
        case SPLITK: return kernel<SPLITK>;
        case STREAMK: return kernel<STREAMK>;
        case HYBRID: return kernel<HYBRID>;
        case TAILSPLIT: return kernel<TAILSPLIT>;
#endif
    }
    return nullptr;
#endif
}
