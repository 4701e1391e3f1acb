// C[m, n] = A[m, k] x B in fp32 on the ordinary cores, sm_70 and later.  B is stored
// [n, k] (layout tn) or [k, n] (nn).
//
// -D: TILE_M TILE_N TILE_K  WARPS_M WARPS_N  MIN_CTAS (CTAs an SM must hold)
//     LAYOUT (0 tn, 1 nn)  SCHEDULE (schedule.cuh)  PROBE (trace.cuh)
// Tiles lie k-major in shared memory, two of them: while one is multiplied, the next is on
// its way through registers.
#include "loop.cuh"

using namespace wavescope;

constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int THREAD_M = WARP_M / 8, THREAD_N = WARP_N / 4;  // a warp is 8 x 4 threads
// The loop must fit the instruction cache (H200, 2026-11, 4096^3: all 16 steps unrolled take
// 12 % longer than 8), and leave ptxas free to read ahead.
constexpr int UNROLL = 8;
static_assert(THREAD_M % 4 == 0 && THREAD_N % 4 == 0, "shared memory is read 16 bytes at a time");

// One operand's tile in shared memory, [k][SIZE].  K_MAJOR: it is stored so in global
// memory too; else rows run along k, and are transposed on the way.
template <int SIZE, bool K_MAJOR>
struct Panel {
    static constexpr int PITCH = SIZE + 4;  // + 4: transposed stores meet fewer banks
    static constexpr int ROW = K_MAJOR ? SIZE : TILE_K, CHUNKS = ROW / 4;
    static constexpr int ROWS_PER_PASS = THREADS / CHUNKS, PASSES = (K_MAJOR ? TILE_K : SIZE) / ROWS_PER_PASS;
    static_assert(THREADS % CHUNKS == 0 && PASSES * ROWS_PER_PASS == (K_MAJOR ? TILE_K : SIZE), "whole passes");

    float at[TILE_K][PITCH];

    // One thread's share of a k_iter, read from global memory; 0 outside the matrix of rows x columns.
    static __device__ __forceinline__ void fetch(float4 (&next)[PASSES], const float* matrix, long long first_row,
                                                 int first_column, int rows, int columns, int pitch) {
        const int column = first_column + threadIdx.x % CHUNKS * 4;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const long long row = first_row + threadIdx.x / CHUNKS + p * ROWS_PER_PASS;
            next[p] = make_float4(0.f, 0.f, 0.f, 0.f);
            if (row >= rows || column >= columns) continue;
            next[p] = *reinterpret_cast<const float4*>(matrix + row * pitch + column);
            if (column + 1 >= columns) next[p].y = 0.f;
            if (column + 2 >= columns) next[p].z = 0.f;
            if (column + 3 >= columns) next[p].w = 0.f;
        }
    }

    __device__ __forceinline__ void put(const float4 (&next)[PASSES]) {
        const int row = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 4;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            if constexpr (K_MAJOR) {
                *reinterpret_cast<float4*>(&at[row + p * ROWS_PER_PASS][column]) = next[p];
            } else {
                at[column][row + p * ROWS_PER_PASS] = next[p].x;
                at[column + 1][row + p * ROWS_PER_PASS] = next[p].y;
                at[column + 2][row + p * ROWS_PER_PASS] = next[p].z;
                at[column + 3][row + p * ROWS_PER_PASS] = next[p].w;
            }
        }
    }
};
using PanelA = Panel<TILE_M, false>;
using PanelB = Panel<TILE_N, LAYOUT == 1>;

struct Stage {
    PanelA a;
    PanelB b;
};

struct Operands {
    const float *a, *b;
    int m, n, k, lda, ldb;
};

struct InFlight {
    float4 a[PanelA::PASSES], b[PanelB::PASSES];
};

__device__ __forceinline__ void fetch(InFlight& next, const Operands& o, const Unit& unit, int k_iter) {
    const int k = k_iter * TILE_K, n = unit.tile_n * TILE_N;
    PanelA::fetch(next.a, o.a, static_cast<long long>(unit.tile_m) * TILE_M, k, o.m, o.k, o.lda);
    if constexpr (LAYOUT == 1)
        PanelB::fetch(next.b, o.b, k, n, o.k, o.n, o.ldb);
    else
        PanelB::fetch(next.b, o.b, n, k, o.n, o.k, o.ldb);
}

// The thread's first element in its tile; it has rows r..r+3 and the same 32 further on, and
// columns c..c+3 and the same 16 further on, as often as fit its warp's part.
__device__ __forceinline__ int corner_m() { return threadIdx.x / 32 / WARPS_N * WARP_M + threadIdx.x % 32 / 4 * 4; }
__device__ __forceinline__ int corner_n() { return threadIdx.x / 32 % WARPS_N * WARP_N + threadIdx.x % 4 * 4; }

template <int COUNT, int APART>
__device__ __forceinline__ void load(float (&v)[COUNT], const float* from) {
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(from + i * APART);
        v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
    }
}

__device__ __forceinline__ void multiply_stage(float (&acc)[THREAD_M][THREAD_N], const Stage& stage) {
#pragma unroll UNROLL
    for (int step = 0; step < TILE_K; ++step) {
        float a[THREAD_M], b[THREAD_N];
        load<THREAD_M, 32>(a, &stage.a.at[step][corner_m()]);
        load<THREAD_N, 16>(b, &stage.b.at[step][corner_n()]);
#pragma unroll
        for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_N; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
}

__device__ __forceinline__ void store_tile(const float (&acc)[THREAD_M][THREAD_N], float* c, int m, int n, int ldc,
                                           const Unit& unit) {
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
        const int row = unit.tile_m * TILE_M + corner_m() + i % 4 + i / 4 * 32;
        if (row >= m) continue;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const int column = unit.tile_n * TILE_N + corner_n() + j * 4;
            float* to = c + static_cast<long long>(row) * ldc + column;
            if (column + 4 <= n) {
                *reinterpret_cast<float4*>(to) = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (column + e < n) to[e] = acc[i][j + e];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
gemm_simt(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int lda,
          int ldb, int ldc, int raster_group, int* counter, Record* records) {
    extern __shared__ __align__(16) unsigned char memory[];
    Stage* const stages = reinterpret_cast<Stage*>(memory);
    const Operands o{a, b, m, n, k, lda, ldb};
    float acc[THREAD_M][THREAD_N];
    run_units<SCHEDULE>(
        [&] {
            return TileGrid{(opaque(m) + TILE_M - 1) / TILE_M, (opaque(n) + TILE_N - 1) / TILE_N,
                            (opaque(k) + TILE_K - 1) / TILE_K, raster_group};
        },
        counter, records,
        [&](const Unit& unit) {
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_N; ++j) acc[i][j] = 0.f;
            InFlight next;
            fetch(next, o, unit, unit.k_begin);
            stages[0].a.put(next.a);
            stages[0].b.put(next.b);
            __syncthreads();
            for (int k_iter = unit.k_begin; k_iter < unit.k_end; ++k_iter) {
                const int reading = (k_iter - unit.k_begin) % 2;
                const bool more = k_iter + 1 < unit.k_end;
                if (more) fetch(next, o, unit, k_iter + 1);
                multiply_stage(acc, stages[reading]);
                if (more) {
                    stages[1 - reading].a.put(next.a);
                    stages[1 - reading].b.put(next.b);
                }
                __syncthreads();
            }
        },
        [&](const Unit& unit) { store_tile(acc, c, m, n, ldc, unit); });
}
