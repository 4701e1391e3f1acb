// C[m, n] = A[m, k] x B[n, k]^T in fp32 on the ordinary cores, sm_70 and later.
//
// -D: TILE_M TILE_N TILE_K  MIN_CTAS (CTAs an SM must hold)  SCHEDULE (schedule.cuh)
//     PROBE (trace.cuh)
// A thread computes 8 x 8 elements, a warp 64 x 32.  Tiles lie k-major in shared memory,
// two of them: while one is multiplied, the next is on its way through registers.
#include "loop.cuh"

using namespace wavescope;

constexpr int WARP_M = 64, WARP_N = 32;
constexpr int WARPS_N = TILE_N / WARP_N;
constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;
constexpr int CHUNKS = TILE_K / 4;  // float4s of a row
constexpr int ROWS_PER_PASS = THREADS / CHUNKS;
constexpr int PASSES_A = TILE_M / ROWS_PER_PASS, PASSES_B = TILE_N / ROWS_PER_PASS;
constexpr int PITCH_A = TILE_M + 4, PITCH_B = TILE_N + 4;  // + 4: transposed stores meet fewer banks

static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0, "whole warp tiles");
static_assert(TILE_M % ROWS_PER_PASS == 0 && TILE_N % ROWS_PER_PASS == 0, "whole passes");

struct Stage {
    float a[TILE_K][PITCH_A];
    float b[TILE_K][PITCH_B];
};

// One thread's share of the next k_iter, on its way from global to shared memory.
struct InFlight {
    float4 a[PASSES_A], b[PASSES_B];
};

__device__ __forceinline__ float4 load4(const float* matrix, long long row, int rows, int pitch, int at, int k) {
    if (row >= rows || at >= k) return make_float4(0.f, 0.f, 0.f, 0.f);
    float4 v = *reinterpret_cast<const float4*>(matrix + row * pitch + at);
    if (at + 1 >= k) v.y = 0.f;
    if (at + 2 >= k) v.z = 0.f;
    if (at + 3 >= k) v.w = 0.f;
    return v;
}

__device__ __forceinline__ void fetch(InFlight& next, const float* a, const float* b, int m, int n, int k, int lda,
                                      int ldb, const Unit& unit, int k_iter) {
    const int row = threadIdx.x / CHUNKS, at = k_iter * TILE_K + threadIdx.x % CHUNKS * 4;
    const long long row_a = static_cast<long long>(unit.tile_m) * TILE_M + row;
    const long long row_b = static_cast<long long>(unit.tile_n) * TILE_N + row;
#pragma unroll
    for (int p = 0; p < PASSES_A; ++p) next.a[p] = load4(a, row_a + p * ROWS_PER_PASS, m, lda, at, k);
#pragma unroll
    for (int p = 0; p < PASSES_B; ++p) next.b[p] = load4(b, row_b + p * ROWS_PER_PASS, n, ldb, at, k);
}

__device__ __forceinline__ void put(Stage& stage, const InFlight& next) {
    const int row = threadIdx.x / CHUNKS, at = threadIdx.x % CHUNKS * 4;
#pragma unroll
    for (int p = 0; p < PASSES_A; ++p) {
        const float v[4] = {next.a[p].x, next.a[p].y, next.a[p].z, next.a[p].w};
#pragma unroll
        for (int e = 0; e < 4; ++e) stage.a[at + e][row + p * ROWS_PER_PASS] = v[e];
    }
#pragma unroll
    for (int p = 0; p < PASSES_B; ++p) {
        const float v[4] = {next.b[p].x, next.b[p].y, next.b[p].z, next.b[p].w};
#pragma unroll
        for (int e = 0; e < 4; ++e) stage.b[at + e][row + p * ROWS_PER_PASS] = v[e];
    }
}

// The thread's corner in its tile: rows r..r+3 and r+32..r+35, columns c..c+3 and c+16..c+19.
__device__ __forceinline__ int corner_m() { return threadIdx.x / 32 / WARPS_N * WARP_M + threadIdx.x % 32 / 4 * 4; }
__device__ __forceinline__ int corner_n() { return threadIdx.x / 32 % WARPS_N * WARP_N + threadIdx.x % 4 * 4; }

__device__ __forceinline__ void load8(float (&v)[8], const float* row, int at, int apart) {
    const float4 low = *reinterpret_cast<const float4*>(row + at);
    const float4 high = *reinterpret_cast<const float4*>(row + at + apart);
    v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
    v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
}

__device__ __forceinline__ void multiply_stage(float (&acc)[8][8], const Stage& stage) {
#pragma unroll
    for (int step = 0; step < TILE_K; ++step) {
        float a[8], b[8];
        load8(a, stage.a[step], corner_m(), 32);
        load8(b, stage.b[step], corner_n(), 16);
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
}

__device__ __forceinline__ void store_tile(const float (&acc)[8][8], float* c, int m, int n, int ldc,
                                           const Unit& unit) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int row = unit.tile_m * TILE_M + corner_m() + i % 4 + i / 4 * 32;
        if (row >= m) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = unit.tile_n * TILE_N + corner_n() + half * 16;
            float* to = c + static_cast<long long>(row) * ldc + column;
            if (column + 4 <= n) {
                *reinterpret_cast<float4*>(to) =
                    make_float4(acc[i][half * 4], acc[i][half * 4 + 1], acc[i][half * 4 + 2], acc[i][half * 4 + 3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (column + e < n) to[e] = acc[i][half * 4 + e];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
gemm_simt(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int lda,
          int ldb, int ldc, int raster_group, int* counter, Record* records) {
    extern __shared__ __align__(16) unsigned char memory[];
    Stage* const stages = reinterpret_cast<Stage*>(memory);
    float acc[8][8];
    run_units<SCHEDULE>(
        [&] {
            return TileGrid{(opaque(m) + TILE_M - 1) / TILE_M, (opaque(n) + TILE_N - 1) / TILE_N,
                            (opaque(k) + TILE_K - 1) / TILE_K, raster_group};
        },
        counter, records,
        [&](const Unit& unit) {
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) acc[i][j] = 0.f;
            InFlight next;
            fetch(next, a, b, m, n, k, lda, ldb, unit, unit.k_begin);
            put(stages[0], next);
            __syncthreads();
            for (int k_iter = unit.k_begin; k_iter < unit.k_end; ++k_iter) {
                const int reading = (k_iter - unit.k_begin) % 2;
                const bool more = k_iter + 1 < unit.k_end;
                if (more) fetch(next, a, b, m, n, k, lda, ldb, unit, k_iter + 1);
                multiply_stage(acc, stages[reading]);
                if (more) put(stages[1 - reading], next);
                __syncthreads();
            }
        },
        [&](const Unit& unit) { store_tile(acc, c, m, n, ldc, unit); });
}
