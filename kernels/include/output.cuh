// Accumulators of each thread of a warp, as mma.sync and wgmma leave them, out to C: sixteen,
// four blocks of 8 columns and 16 rows, in 16-byte stores; or four, one block, in pairs.
#pragma once

#include "fixup.cuh"
#include "mma.cuh"

namespace wavescope {

struct Output {
    unsigned short* c;
    int m, n, ldc;
};

// Eight elements of a row, those inside C.
__device__ __forceinline__ void store_eight(const Output& o, int row, int column, const unsigned int (&v)[4]) {
    if (row >= o.m || column >= o.n) return;
    unsigned short* to = o.c + static_cast<long long>(row) * o.ldc + column;
    if (column + 8 <= o.n) {
        *reinterpret_cast<uint4*>(to) = make_uint4(v[0], v[1], v[2], v[3]);
    } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
            if (column + e < o.n) to[e] = static_cast<unsigned short>(v[e / 2] >> e % 2 * 16);
    }
}

// Two elements of a row, of which the first is even.
__device__ __forceinline__ void store_pair(const Output& o, int row, int column, unsigned int pair) {
    if (row >= o.m || column >= o.n) return;
    unsigned short* to = o.c + static_cast<long long>(row) * o.ldc + column;
    if (column + 2 <= o.n)
        *reinterpret_cast<unsigned int*>(to) = pair;
    else
        *to = static_cast<unsigned short>(pair);
}

// first_m, first_n: where the warp's 16 rows and 32 columns begin.
template <int DTYPE_ID>
__device__ __forceinline__ void store_piece(const Output& o, int first_m, int first_n, const float (&acc)[PIECE]) {
    const int lane = threadIdx.x % 32, quad_lane = lane % 4;
    const int column = first_n + quad_lane * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // an accumulator holds rows r and r + 8
        const int row = first_m + lane / 4 + half * 8;
        unsigned int v[4];
#pragma unroll
        for (int t = 0; t < 4; ++t) v[t] = pack_pair<DTYPE_ID>(acc[t * 4 + half * 2], acc[t * 4 + half * 2 + 1]);
        transpose_quad(v, quad_lane);  // now eight neighbouring columns of one row
        store_eight(o, row, column, v);
    }
}

// Four accumulators of each thread: 8 columns.
template <int DTYPE_ID>
__device__ __forceinline__ void store_piece(const Output& o, int first_m, int first_n, const float (&acc)[SMALL_PIECE]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half)
        store_pair(o, first_m + lane / 4 + half * 8, first_n + lane % 4 * 2, pack_pair<DTYPE_ID>(acc[half * 2], acc[half * 2 + 1]));
}

// The same of C's transpose: the warp's 16 rows are columns of C from first_n on, its 32 columns are rows from first_m on.
template <int DTYPE_ID>
__device__ __forceinline__ void store_turned_piece(const Output& o, int first_m, int first_n, const float (&acc)[PIECE]) {
    const int lane = threadIdx.x % 32, quad_lane = lane % 4;
    const int row = first_m + quad_lane * 8 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // eight columns of C each
        const int column = first_n + half * 8;
        unsigned int v[4];
#pragma unroll
        for (int t = 0; t < 4; ++t) v[t] = transposed(pack_pair<DTYPE_ID>(acc[t * 4 + half * 2], acc[t * 4 + half * 2 + 1]));
        transpose_quad(v, quad_lane);  // now eight neighbouring columns of one row
        store_eight(o, row, column, v);
    }
}

template <int DTYPE_ID>
__device__ __forceinline__ void store_turned_piece(const Output& o, int first_m, int first_n,
                                                   const float (&acc)[SMALL_PIECE]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half)
        store_pair(o, first_m + lane / 4, first_n + half * 8 + lane % 4 * 2,
                   transposed(pack_pair<DTYPE_ID>(acc[half * 2], acc[half * 2 + 1])));
}

}  // namespace wavescope
