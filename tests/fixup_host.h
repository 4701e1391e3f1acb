// Between the two halves of the host's run of the kernels' loop: fixup_kernel.cpp, the loop,
// compiled anew for each planted fault, and fixup_host.cpp, its verbs and what must come out.
#pragma once

#include "host_gpu.h"

#include "fixup.cuh"

namespace host_run {

// Of a tile's pieces, a warp that adds a share finds one, two or three: what it takes two at a time, and alone.
constexpr int THREADS = 64, FLOATS = 80;

struct Arguments {
    wavescope::TileGrid grid;
    int parts, split_tiles, reducers;
    int* counter;
    wavescope::Workspace space;
    const wavescope::TileWork* work;
};

// A kernel of one schedule, on Arguments; nullptr if there is none.
void (*kernel_of(int schedule))(void*);

// How its partial sums meet.
extern const wavescope::ReductionKind reduction;

// The verbs that a kernel brings to the loop.
void multiply(float (&acc)[FLOATS], const wavescope::Unit& unit);
void store_part(const wavescope::Unit& unit, int part, int warp, const float* sums, int size);

}  // namespace host_run
