// C[m, n] = A[m, k] x B[n, k]^T on tensor cores, sm_80 and later: mma.sync fed by cp.async.
//
// -D: TILE_M TILE_N TILE_K  WARPS_M WARPS_N  STAGES  MIN_CTAS (CTAs an SM must hold)
//     DTYPE (0 bf16, 1 fp16)  SCHEDULE (schedule.cuh)  PROBE (trace.cuh)
// Rows of A, B and C start at multiples of 16 bytes; elements beyond m, n, k are neither
// read nor written.
#include "loop.cuh"
#include "mma.cuh"

using namespace wavescope;

constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int FRAGMENTS_M = WARP_M / 16, FRAGMENTS_N = WARP_N / 8;  // mma is 16 x 8 x 16
constexpr int STEPS = TILE_K / 16;
constexpr int ROW_BYTES = TILE_K * 2;
constexpr int CHUNKS = ROW_BYTES / 16;              // 16-byte chunks of a row
constexpr int ROWS_PER_PASS = THREADS / CHUNKS;     // rows that all threads copy at once
constexpr int PASSES_A = TILE_M / ROWS_PER_PASS, PASSES_B = TILE_N / ROWS_PER_PASS;
constexpr int BYTES_A = TILE_M * ROW_BYTES, BYTES_STAGE = (TILE_M + TILE_N) * ROW_BYTES;

static_assert(TILE_M % (WARPS_M * 16) == 0, "a warp takes whole mma rows");
static_assert(TILE_N % (WARPS_N * 32) == 0, "the epilogue transposes four mma columns at a time");
static_assert(TILE_M % ROWS_PER_PASS == 0 && TILE_N % ROWS_PER_PASS == 0, "whole passes");
static_assert(ROWS_PER_PASS % 8 == 0, "the swizzle repeats every 8 rows, so passes share it");
static_assert(STAGES >= 2 && STEPS >= 2, "one step of a stage overlaps the next stage's copies");

struct Operands {
    const char *a, *b;
    int m, n, k, lda, ldb;
};

// What a thread copies: one 16-byte column of A and B, every ROWS_PER_PASS-th row.
struct Copier {
    const char *a, *b;       // its first chunks, at the k_iter to copy next
    int whole_iters;         // k_iters before this one take whole chunks of every row; 0 at the edge of C
    unsigned int to;         // offset in a stage
};

__device__ __forceinline__ Copier copier(const Operands& o, const Unit& unit) {
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const long long first_a = static_cast<long long>(unit.tile_m) * TILE_M + row;
    const long long first_b = static_cast<long long>(unit.tile_n) * TILE_N + row;
    const long long k_bytes = 2ll * unit.k_begin * TILE_K;
    const bool inside = (unit.tile_m + 1) * TILE_M <= o.m && (unit.tile_n + 1) * TILE_N <= o.n;
    return Copier{opaque(o.a + (first_a * o.lda + chunk * 8) * 2 + k_bytes),
                  opaque(o.b + (first_b * o.ldb + chunk * 8) * 2 + k_bytes), inside ? o.k / TILE_K : 0,
                  static_cast<unsigned int>(opaque(static_cast<int>(swizzled<ROW_BYTES>(row, chunk))))};
}

// Passes [first, last) of A and B together, into the stage at `stage`.
__device__ __forceinline__ void copy_whole(const Copier& c, const Operands& o, unsigned int stage, int first,
                                           int last) {
#pragma unroll
    for (int p = first; p < last; ++p) {
        const bool is_a = p < PASSES_A;
        const int pass = is_a ? p : p - PASSES_A;
        // 32 x 32 bits + 64: one instruction, where a 64-bit stride would take several
        const char* const from = (is_a ? c.a : c.b) + static_cast<unsigned long long>(2u * (is_a ? o.lda : o.ldb)) *
                                                          static_cast<unsigned int>(pass * ROWS_PER_PASS);
        copy16(stage + (is_a ? 0 : BYTES_A) + c.to + pass * ROWS_PER_PASS * ROW_BYTES, from);
    }
}

// The same at an edge of A, B or k, all passes.
__device__ __forceinline__ void copy_edge(const Copier& c, const Operands& o, const Unit& unit, unsigned int stage,
                                          int k_iter) {
    const int left = o.k - k_iter * TILE_K - threadIdx.x % CHUNKS * 8;
    const int bytes = left >= 8 ? 16 : left > 0 ? left * 2 : 0;
#pragma unroll
    for (int p = 0; p < PASSES_A + PASSES_B; ++p) {
        const bool is_a = p < PASSES_A;
        const int pass = is_a ? p : p - PASSES_A;
        const int row = threadIdx.x / CHUNKS + pass * ROWS_PER_PASS;
        const bool inside = is_a ? unit.tile_m * TILE_M + row < o.m : unit.tile_n * TILE_N + row < o.n;
        // a row outside the matrix takes no byte: its address is formed, but not read
        copy16_filled(stage + (is_a ? 0 : BYTES_A) + c.to + pass * ROWS_PER_PASS * ROW_BYTES,
                      is_a ? c.a + 2ll * o.lda * pass * ROWS_PER_PASS : c.b + 2ll * o.ldb * pass * ROWS_PER_PASS,
                      inside ? bytes : 0);
    }
}

__device__ __forceinline__ void next_k_iter(Copier& c) {
    c.a += 2 * TILE_K;
    c.b += 2 * TILE_K;
}

// The fragments of one 16-deep step, from one stage.
struct Fragments {
    unsigned int a[FRAGMENTS_M][4];
    unsigned int b[FRAGMENTS_N / 2][4];  // two mma columns each
};

__device__ __forceinline__ void load_fragments(Fragments& f, unsigned int a, unsigned int b, int step) {
    // a step's two chunks differ from chunk 0's in bits 5 and 6 only; sixteen rows further is a plain addition
    a ^= step << 5;
    b ^= step << 5;
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; ++i) load_matrices(f.a[i], a + i * 16 * ROW_BYTES);
#pragma unroll
    for (int j = 0; j < FRAGMENTS_N / 2; ++j) load_matrices(f.b[j], b + j * 16 * ROW_BYTES);
}

__device__ __forceinline__ void multiply(float (&acc)[FRAGMENTS_M][FRAGMENTS_N][4], const Fragments& f) {
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; ++j)
            mma<DTYPE>(acc[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
}

// Shared-memory addresses of the ring of stages, and the fragments read ahead.
struct Pipeline {
    unsigned int first, end;        // the ring
    unsigned int reading, writing;  // stages
    unsigned int a_at, b_at;        // this lane's fragments within a stage
    Fragments fragments[2];
};

__device__ __forceinline__ unsigned int next_stage(const Pipeline& p, unsigned int stage) {
    return stage + BYTES_STAGE == p.end ? p.first : stage + BYTES_STAGE;
}

// One k_iter: multiply the stage that is read, and copy the one STAGES - 1 further on.
// WHOLE: that one lies inside A, B and k; else it may lie at an edge, or not exist.
template <bool WHOLE>
__device__ __forceinline__ void turn(float (&acc)[FRAGMENTS_M][FRAGMENTS_N][4], Pipeline& p, Copier& c,
                                     const Operands& o, const Unit& unit, int k_iter) {
    const int ahead = k_iter + STAGES - 1;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        if (step == STEPS - 1) {
            wait_copies<STAGES - 2>();
            __syncthreads();  // the next stage has arrived; nobody reads this one any more
            p.reading = next_stage(p, p.reading);
        }
        load_fragments(p.fragments[(step + 1) % 2], p.reading + p.a_at, p.reading + p.b_at, (step + 1) % STEPS);
        if (step < STEPS - 1) {
            constexpr int passes = PASSES_A + PASSES_B, parts = STEPS - 1;
            if constexpr (WHOLE) {
                copy_whole(c, o, p.writing, passes * step / parts, passes * (step + 1) / parts);
            } else {
                if (step == 0 && ahead < unit.k_end) copy_edge(c, o, unit, p.writing, ahead);
            }
            if (step == STEPS - 2) {
                next_k_iter(c);
                commit_copies();
                p.writing = next_stage(p, p.writing);
            }
        }
        multiply(acc, p.fragments[step % 2]);
    }
}

__device__ __forceinline__ void main_loop(float (&acc)[FRAGMENTS_M][FRAGMENTS_N][4], const Operands& o,
                                          const Unit& unit, unsigned int shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    Pipeline p;
    p.first = p.reading = shared;
    p.end = shared + STAGES * BYTES_STAGE;
    p.writing = shared + (STAGES - 1) * BYTES_STAGE;
    // lanes 0-15 name rows 0-15 of the low 8 k's, lanes 16-31 the same rows of the high 8
    p.a_at = swizzled<ROW_BYTES>(warp_m + lane % 16, lane / 16);
    // lanes 0-7 rows 0-7 low k, 8-15 rows 0-7 high k, 16-31 the same for rows 8-15
    p.b_at = BYTES_A + swizzled<ROW_BYTES>(warp_n + lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.f;

    Copier c = copier(o, unit);
    for (int s = 0; s < STAGES - 1; ++s) {
        if (unit.k_begin + s < unit.k_end) copy_edge(c, o, unit, shared + s * BYTES_STAGE, unit.k_begin + s);
        next_k_iter(c);
        commit_copies();
    }
    wait_copies<STAGES - 2>();
    __syncthreads();
    load_fragments(p.fragments[0], p.reading + p.a_at, p.reading + p.b_at, 0);
    int k_iter = unit.k_begin;
    const int whole_end = min(c.whole_iters, unit.k_end) - (STAGES - 1);
    for (; k_iter < whole_end; ++k_iter) turn<true>(acc, p, c, o, unit, k_iter);
    for (; k_iter < unit.k_end; ++k_iter) turn<false>(acc, p, c, o, unit, k_iter);
    wait_copies<0>();
}

__device__ __forceinline__ void store_tile(const float (&acc)[FRAGMENTS_M][FRAGMENTS_N][4], unsigned short* c, int m,
                                           int n, int ldc, const Unit& unit) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad_lane = lane % 4;
    const int first_m = unit.tile_m * TILE_M + warp / WARPS_N * WARP_M + lane / 4;
    const int first_n = unit.tile_n * TILE_N + warp % WARPS_N * WARP_N + quad_lane * 8;
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // an accumulator holds rows r and r + 8
            const int row = first_m + i * 16 + half * 8;
#pragma unroll
            for (int j = 0; j < FRAGMENTS_N; j += 4) {
                unsigned int v[4];
#pragma unroll
                for (int t = 0; t < 4; ++t)
                    v[t] = pack_pair<DTYPE>(acc[i][j + t][half * 2], acc[i][j + t][half * 2 + 1]);
                transpose_quad(v, quad_lane);  // now eight neighbouring columns of one row
                const int column = first_n + j * 8;
                if (row >= m || column >= n) continue;
                unsigned short* to = c + static_cast<long long>(row) * ldc + column;
                if (column + 8 <= n) {
                    *reinterpret_cast<uint4*>(to) = make_uint4(v[0], v[1], v[2], v[3]);
                } else {
#pragma unroll
                    for (int e = 0; e < 8; ++e)
                        if (column + e < n) to[e] = static_cast<unsigned short>(v[e / 2] >> e % 2 * 16);
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
gemm_mma(const char* __restrict__ a, const char* __restrict__ b, unsigned short* __restrict__ c, int m, int n, int k,
         int lda, int ldb, int ldc, int raster_group, int* counter, Record* records) {
    extern __shared__ __align__(128) unsigned char memory[];
    float acc[FRAGMENTS_M][FRAGMENTS_N][4];
    run_units<SCHEDULE>(
        [&] {
            return TileGrid{(opaque(m) + TILE_M - 1) / TILE_M, (opaque(n) + TILE_N - 1) / TILE_N,
                            (opaque(k) + TILE_K - 1) / TILE_K, raster_group};
        },
        counter, records,
        [&](const Unit& unit) {
            main_loop(acc, Operands{a, b, m, n, k, lda, ldb}, unit, shared_address(memory));
        },
        [&](const Unit& unit) { store_tile(acc, c, m, n, ldc, unit); });
}
