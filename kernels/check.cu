// Compare C with a reference computed here, in fp32 on the ordinary cores: no tensor core,
// no schedule, nothing in common with the kernels under test but the element type.
#include "element.cuh"

using namespace wavescope;

constexpr int BLOCK = 64, DEPTH = 16, THREADS = 256;  // a CTA checks 64 x 64 elements, a thread 4 x 4

struct Verdict {
    unsigned long long wrong;  // elements
    unsigned long long first;  // row * n + column of the first wrong one, ~0 without
    unsigned int worst;        // largest |C - reference| as float bits (NaN: +inf)
    unsigned int padding;
};

// layout: 0 tn (B stored [n, k]), 1 nn ([k, n]).  tolerance_relative and tolerance_absolute 0: C must be the correctly rounded reference.
// first_block: this launch's first row of CTAs, so that a launch stays short.
// k_ends: how much of k each CTA's elements sum over, row by row of CTAs of all launches; null: all of it.
extern "C" __global__ void __launch_bounds__(THREADS)
check(const void* a, const void* b, const void* c, int m, int n, int k, int lda, int ldb, int ldc, int type,
      int layout, float tolerance_relative, float tolerance_absolute, int first_block, const int* k_ends, Verdict* verdict) {
    __shared__ float tile_a[DEPTH][BLOCK + 1], tile_b[DEPTH][BLOCK + 1];
    const long long first_m = static_cast<long long>(first_block + blockIdx.y) * BLOCK;
    const long long first_n = static_cast<long long>(blockIdx.x) * BLOCK;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int k_end = k_ends ? k_ends[static_cast<long long>(first_block + blockIdx.y) * gridDim.x + blockIdx.x] : k;
    float reference[4][4] = {};
    for (int k_begin = 0; k_begin < k_end; k_begin += DEPTH) {
        for (int i = threadIdx.x; i < BLOCK * DEPTH; i += THREADS) {
            const int row = i / DEPTH, at = i % DEPTH;
            const bool inside = k_begin + at < k_end;
            tile_a[at][row] =
                inside && first_m + row < m ? to_float(a, (first_m + row) * lda + k_begin + at, type) : 0.f;
            tile_b[at][row] =
                inside && first_n + row < n
                    ? to_float(b, layout == 0 ? (first_n + row) * ldb + k_begin + at
                                              : static_cast<long long>(k_begin + at) * ldb + first_n + row, type)
                    : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int at = 0; at < DEPTH; ++at)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    reference[i][j] = fmaf(tile_a[at][y + 16 * i], tile_b[at][x + 16 * j], reference[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const long long row = first_m + y + 16 * i, column = first_n + x + 16 * j;
            if (row >= m || column >= n) continue;
            const float got = to_float(c, row * ldc + column, type), want = reference[i][j];
            const bool exact = tolerance_relative == 0.f && tolerance_absolute == 0.f;
            const bool same = to_bits(got, type) == to_bits(want, type) || (got == 0.f && want == 0.f);
            const float off = exact && same ? 0.f : fabsf(got - want);
            // a NaN in C compares false, and so counts as wrong
            const bool right = exact ? same : off <= tolerance_relative * fabsf(want) + tolerance_absolute;
            atomicMax(&verdict->worst, off == off ? __float_as_uint(off) : 0x7f800000u);
            if (!right) {
                atomicAdd(&verdict->wrong, 1ull);
                atomicMin(&verdict->first, static_cast<unsigned long long>(row) * n + column);
            }
        }
}
