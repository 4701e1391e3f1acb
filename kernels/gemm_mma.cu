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

// What a thread copies: one chunk column, the same rows of every pass.
struct Copier {
    const char *a, *b;  // its first element of A and B, at k = 0
    unsigned int pitch_a, pitch_b;  // bytes from one row to the next
    unsigned int rows_a, rows_b;  // bit p: pass p lies inside the matrix
    int k_left;  // elements of k from this thread's chunk on, at k = 0
    unsigned int to;  // offset in a stage
};

__device__ __forceinline__ Copier copier(const char* a, const char* b, int m, int n, int k, int lda, int ldb,
                                         const Unit& unit) {
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const long long first_a = static_cast<long long>(unit.tile_m) * TILE_M + row;
    const long long first_b = static_cast<long long>(unit.tile_n) * TILE_N + row;
    Copier c;
    c.a = a + (first_a * lda + chunk * 8) * 2;
    c.b = b + (first_b * ldb + chunk * 8) * 2;
    c.pitch_a = 2u * lda;
    c.pitch_b = 2u * ldb;
    c.rows_a = c.rows_b = 0;
#pragma unroll
    for (int p = 0; p < PASSES_A; ++p) c.rows_a |= (first_a + p * ROWS_PER_PASS < m) << p;
#pragma unroll
    for (int p = 0; p < PASSES_B; ++p) c.rows_b |= (first_b + p * ROWS_PER_PASS < n) << p;
    c.k_left = k - chunk * 8;
    c.to = swizzled<ROW_BYTES>(row, chunk);
    return c;
}

// Passes [first, last) of A and B together, for one k_iter, into the stage at `stage`.
// A row outside the matrix takes no byte: its address is formed, but not read.
__device__ __forceinline__ void copy_passes(const Copier& c, unsigned int stage, int k_iter, int first, int last) {
    const int left = c.k_left - k_iter * TILE_K;
    const int bytes = left >= 8 ? 16 : left > 0 ? left * 2 : 0;
    const char* const a = c.a + 2ll * TILE_K * k_iter;
    const char* const b = c.b + 2ll * TILE_K * k_iter;
#pragma unroll
    for (int p = 0; p < PASSES_A + PASSES_B; ++p) {
        if (p < first || p >= last) continue;
        const bool is_a = p < PASSES_A;
        const int pass = is_a ? p : p - PASSES_A;
        const bool inside = (is_a ? c.rows_a : c.rows_b) >> pass & 1;
        // 32 x 32 bits + 64: one instruction, where a 64-bit stride would take several
        const char* const from = (is_a ? a : b) + static_cast<unsigned long long>(is_a ? c.pitch_a : c.pitch_b) *
                                                      static_cast<unsigned int>(pass * ROWS_PER_PASS);
        copy16(stage + (is_a ? 0 : BYTES_A) + c.to + pass * ROWS_PER_PASS * ROW_BYTES, from, inside ? bytes : 0);
    }
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

__device__ __forceinline__ void main_loop(float (&acc)[FRAGMENTS_M][FRAGMENTS_N][4], const Copier& c, const Unit& unit,
                                          unsigned int shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    // lanes 0-15 name rows 0-15 of the low 8 k's, lanes 16-31 the same rows of the high 8
    const unsigned int a_at = swizzled<ROW_BYTES>(warp_m + lane % 16, lane / 16);
    // lanes 0-7 rows 0-7 low k, 8-15 rows 0-7 high k, 16-31 the same for rows 8-15
    const unsigned int b_at = BYTES_A + swizzled<ROW_BYTES>(warp_n + lane % 8 + lane / 16 * 8, lane / 8 % 2);

#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.f;

    const int iters = unit.k_end - unit.k_begin;
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < iters)
            copy_passes(c, shared + s * BYTES_STAGE, unit.k_begin + s, 0, PASSES_A + PASSES_B);
        commit_copies();
    }
    wait_copies<STAGES - 2>();
    __syncthreads();

    unsigned int reading = shared, writing = shared + (STAGES - 1) * BYTES_STAGE;
    const unsigned int end = shared + STAGES * BYTES_STAGE;
    Fragments fragments[2];
    load_fragments(fragments[0], reading + a_at, reading + b_at, 0);
    for (int iter = 0; iter < iters; ++iter) {
        const bool copies = iter + STAGES - 1 < iters;
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            if (step == STEPS - 1) {
                wait_copies<STAGES - 2>();
                __syncthreads();  // the next stage has arrived; nobody reads this one any more
                reading += BYTES_STAGE;
                if (reading == end) reading = shared;
            }
            load_fragments(fragments[(step + 1) % 2], reading + a_at, reading + b_at, (step + 1) % STEPS);
            if (step < STEPS - 1) {
                constexpr int passes = PASSES_A + PASSES_B, parts = STEPS - 1;
                if (copies)
                    copy_passes(c, writing, unit.k_begin + iter + STAGES - 1, passes * step / parts,
                                passes * (step + 1) / parts);
                if (step == STEPS - 2) {
                    commit_copies();
                    writing += BYTES_STAGE;
                    if (writing == end) writing = shared;
                }
            }
            multiply(acc, fragments[step % 2]);
        }
    }
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
            return TileGrid{(anew(m) + TILE_M - 1) / TILE_M, (anew(n) + TILE_N - 1) / TILE_N,
                            (anew(k) + TILE_K - 1) / TILE_K, raster_group};
        },
        counter, records,
        [&](const Unit& unit) {
            main_loop(acc, copier(a, b, m, n, k, lda, ldb, unit), unit, shared_address(memory));
        },
        [&](const Unit& unit) { store_tile(acc, c, m, n, ldc, unit); });
}
