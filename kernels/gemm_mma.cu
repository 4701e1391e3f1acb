// C[m, n] = A[m, k] x B on tensor cores, sm_80 and later: mma.sync fed by cp.async, or through registers.
// B is stored [n, k] (layout tn) or [k, n] (nn).
//
// -D: TILE_M TILE_N TILE_K  WARPS_M WARPS_N  STAGES  MIN_CTAS (CTAs an SM must hold)
//     DTYPE (0 bf16, 1 fp16)  LAYOUT (0 tn, 1 nn)  SCHEDULE (schedule.cuh)
//     REDUCTION (fixup.cuh)  WORK (1: tiles of unequal k, as `work` says)  PROBE (trace.cuh)
//     ASYNC (0: copies to shared memory through registers, each of which a thread waits for)
// Rows of A, B and C start at multiples of 16 bytes; elements beyond m, n, k are neither
// read nor written.
#include "loop.cuh"
#include "output.cuh"

using namespace wavescope;

constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int FRAGMENTS_M = WARP_M / 16, FRAGMENTS_N = WARP_N / 8;  // mma is 16 x 8 x 16
constexpr int STEPS = TILE_K / 16;
constexpr int FLOATS = FRAGMENTS_M * FRAGMENTS_N * 4;  // accumulators of a thread
constexpr bool TN = LAYOUT == 0;

// How an operand's tile lies in a stage: rows of 16-byte chunks, swizzled.  All threads
// together copy ROWS_PER_PASS rows at once.
template <int ROWS_, int COLUMNS>
struct Panel {
    static constexpr int ROWS = ROWS_, ROW_BYTES = COLUMNS * 2, BYTES = ROWS * ROW_BYTES;
    static constexpr int CHUNKS = ROW_BYTES / 16;
    static constexpr int ROWS_PER_PASS = THREADS / CHUNKS, PASSES = ROWS / ROWS_PER_PASS;
    static_assert(THREADS % CHUNKS == 0 && ROWS % ROWS_PER_PASS == 0, "whole passes");
    static_assert(ROWS_PER_PASS % 8 == 0, "the swizzle repeats every 8 rows, so passes share it");
};
using PanelA = Panel<TILE_M, TILE_K>;
template <bool IS_TN>
struct PanelOfB : Panel<TILE_N, TILE_K> {};
template <>
struct PanelOfB<false> : Panel<TILE_K, TILE_N> {};
using PanelB = PanelOfB<TN>;
constexpr int BYTES_STAGE = PanelA::BYTES + PanelB::BYTES;

static_assert(TILE_M % (WARPS_M * 16) == 0, "a warp takes whole mma rows");
static_assert(TILE_N % (WARPS_N * 32) == 0, "the epilogue transposes four mma columns at a time");
static_assert(STAGES >= 2 && STEPS >= 2, "one step of a stage overlaps the next stage's copies");

struct Operands {
    const char *a, *b;
    int m, n, k, lda, ldb;
};

// What a thread copies of an operand: one chunk of every ROWS_PER_PASS-th row of its panel.
struct Copier {
    const char *a, *b;          // the first chunks, at the k_iter to copy next
    unsigned int to_a, to_b;    // their places in a stage
    int whole_end;              // k_iters before this one lie inside A, B and k; none do at the edge of C
};

// Where a thread's first chunk lies: row of the panel, and element within the row.
template <typename P>
__device__ __forceinline__ int first_row() {
    return threadIdx.x / P::CHUNKS;
}
template <typename P>
__device__ __forceinline__ int first_element() {
    return threadIdx.x % P::CHUNKS * 8;
}

template <typename P>
__device__ __forceinline__ const char* first_chunk(const char* matrix, long long row, long long element, int pitch) {
    return matrix + ((row + first_row<P>()) * pitch + element + first_element<P>()) * 2;
}

template <typename P>
__device__ __forceinline__ unsigned int place() {
    return opaque(static_cast<int>(swizzled<P::ROW_BYTES>(first_row<P>(), first_element<P>() / 8)));
}

__device__ __forceinline__ Copier copier(const Operands& o, const Unit& unit) {
    const long long m = static_cast<long long>(unit.tile_m) * TILE_M, n = static_cast<long long>(unit.tile_n) * TILE_N;
    const long long k = static_cast<long long>(unit.k_begin) * TILE_K;
    const bool inside = m + TILE_M <= o.m && n + TILE_N <= o.n;
    return Copier{opaque(first_chunk<PanelA>(o.a, m, k, o.lda)),
                  opaque(TN ? first_chunk<PanelB>(o.b, n, k, o.ldb) : first_chunk<PanelB>(o.b, k, n, o.ldb)),
                  place<PanelA>(), PanelA::BYTES + place<PanelB>(), inside ? min(o.k / TILE_K, unit.k_end) : 0};
}

// Passes [first, last) of a panel.
template <typename P>
__device__ __forceinline__ void copy_whole(unsigned int to, const char* from, int pitch, int first, int last) {
#pragma unroll
    for (int pass = first; pass < last; ++pass)
        // 32 x 32 bits + 64: one instruction, where a 64-bit stride would take several
        copy16(to + pass * P::ROWS_PER_PASS * P::ROW_BYTES,
               from + static_cast<unsigned long long>(2u * pitch) * static_cast<unsigned int>(pass * P::ROWS_PER_PASS));
}

// All passes of a panel of which only `rows` rows and `elements` of a row lie inside the matrix.
template <typename P>
__device__ __forceinline__ void copy_edge(unsigned int to, const char* from, int pitch, int rows, int elements) {
    const int left = elements - first_element<P>();
    const int bytes = left >= 8 ? 16 : left > 0 ? left * 2 : 0;
#pragma unroll
    for (int pass = 0; pass < P::PASSES; ++pass)
        // a row outside takes no byte: its address is formed, but not read
        copy16_filled(to + pass * P::ROWS_PER_PASS * P::ROW_BYTES, from + 2ll * pitch * pass * P::ROWS_PER_PASS,
                      first_row<P>() + pass * P::ROWS_PER_PASS < rows ? bytes : 0);
}

// Part `part` of `parts` of the copies of a k_iter inside A, B and k.
__device__ __forceinline__ void copy_part(const Copier& c, const Operands& o, unsigned int stage, int part, int parts) {
    constexpr int passes_a = PanelA::PASSES, passes = passes_a + PanelB::PASSES;
    const int first = passes * part / parts, last = passes * (part + 1) / parts;
    copy_whole<PanelA>(stage + c.to_a, c.a, o.lda, min(first, passes_a), min(last, passes_a));
    copy_whole<PanelB>(stage + c.to_b, c.b, o.ldb, max(first - passes_a, 0), max(last - passes_a, 0));
}

__device__ __forceinline__ void copy_all(const Copier& c, const Operands& o, const Unit& unit, unsigned int stage,
                                         int k_iter) {
    const int m = o.m - unit.tile_m * TILE_M, n = o.n - unit.tile_n * TILE_N, k = o.k - k_iter * TILE_K;
    copy_edge<PanelA>(stage + c.to_a, c.a, o.lda, m, k);
    copy_edge<PanelB>(stage + c.to_b, c.b, o.ldb, TN ? n : k, TN ? k : n);
}

__device__ __forceinline__ void next_k_iter(Copier& c, const Operands& o) {
    c.a += 2 * TILE_K;
    c.b += TN ? 2 * TILE_K : 2ll * TILE_K * o.ldb;
}

// The fragments of one 16-deep step, from one stage.
struct Fragments {
    unsigned int a[FRAGMENTS_M][4];
    unsigned int b[FRAGMENTS_N / 2][4];  // two mma columns each
};

__device__ __forceinline__ void load_fragments(Fragments& f, unsigned int a, unsigned int b, int step) {
    // a step's two chunks differ from chunk 0's in bits 5 and 6 only; sixteen rows further is a plain addition
    a ^= step << 5;
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; ++i) load_matrices(f.a[i], a + i * 16 * PanelA::ROW_BYTES);
#pragma unroll
    for (int j = 0; j < FRAGMENTS_N / 2; ++j) {
        if constexpr (TN)
            load_matrices(f.b[j], (b ^ step << 5) + j * 16 * PanelB::ROW_BYTES);
        else  // rows run along k here: what was the step is now the pair of columns, and the other way round
            load_transposed(f.b[j], (b ^ j << 5) + step * 16 * PanelB::ROW_BYTES);
    }
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
            if constexpr (WHOLE) {
                copy_part(c, o, p.writing, step, STEPS - 1);
            } else {
                if (step == 0 && ahead < unit.k_end) copy_all(c, o, unit, p.writing, ahead);
            }
            if (step == STEPS - 2) {
                next_k_iter(c, o);
                commit_copies();
                p.writing = next_stage(p, p.writing);
            }
        }
        multiply(acc, p.fragments[step % 2]);
    }
}

__device__ __forceinline__ void main_loop(float (&acc)[FRAGMENTS_M][FRAGMENTS_N][4], const Operands& o,
                                          const Unit& unit, unsigned int shared) {
    // Worked out for each unit: kept for the next one, it would take registers that adding partial sums needs.
    const unsigned int thread = splits_tiles(SCHEDULE) ? opaque(threadIdx.x) : threadIdx.x;
    const int lane = thread % 32, warp = thread / 32;
    const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    Pipeline p;
    p.first = p.reading = shared;
    p.end = shared + STAGES * BYTES_STAGE;
    p.writing = shared + (STAGES - 1) * BYTES_STAGE;
    // lanes 0-15 name rows 0-15 of the low 8 k's, lanes 16-31 the same rows of the high 8
    p.a_at = swizzled<PanelA::ROW_BYTES>(warp_m + lane % 16, lane / 16);
    // tn: lanes 0-7 name columns 0-7 at the low 8 k's, 8-15 the same at the high 8, 16-31 columns 8-15
    // nn: lanes 0-15 name k's 0-15 of columns 0-7, lanes 16-31 the same k's of columns 8-15
    p.b_at = PanelA::BYTES +
             (TN ? swizzled<PanelB::ROW_BYTES>(warp_n + lane % 8 + lane / 16 * 8, lane / 8 % 2)
                 : swizzled<PanelB::ROW_BYTES>(lane % 16, warp_n / 8 + lane / 16));
#pragma unroll
    for (int i = 0; i < FRAGMENTS_M; ++i)
#pragma unroll
        for (int j = 0; j < FRAGMENTS_N; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.f;

    Copier c = copier(o, unit);
    for (int s = 0; s < STAGES - 1; ++s) {
        if (unit.k_begin + s < unit.k_end) copy_all(c, o, unit, shared + s * BYTES_STAGE, unit.k_begin + s);
        next_k_iter(c, o);
        commit_copies();
    }
    wait_copies<STAGES - 2>();
    __syncthreads();
    load_fragments(p.fragments[0], p.reading + p.a_at, p.reading + p.b_at, 0);
    int k_iter = unit.k_begin;
    for (; k_iter + STAGES - 1 < c.whole_end; ++k_iter) turn<true>(acc, p, c, o, unit, k_iter);
    for (; k_iter < unit.k_end; ++k_iter) turn<false>(acc, p, c, o, unit, k_iter);
    wait_copies<0>();
}

// The part-th SIZE neighbouring accumulators of each thread of a warp: SIZE / 4 mma columns of 16 rows.
template <int SIZE>
__device__ __forceinline__ void store_part(const Output& o, const Unit& unit, int part, int warp,
                                           const float (&acc)[SIZE]) {
    constexpr int PIECES_N = FRAGMENTS_N * 4 / SIZE;
    store_piece<DTYPE>(o, unit.tile_m * TILE_M + warp / WARPS_N * WARP_M + part / PIECES_N * 16,
                       unit.tile_n * TILE_N + warp % WARPS_N * WARP_N + part % PIECES_N * (2 * SIZE), acc);
}

__device__ __forceinline__ void store_tile(const Output& o, const Unit& unit, const float (&acc)[FLOATS]) {
#pragma unroll
    for (int piece = 0; piece < FLOATS / PIECE; ++piece)
        store_part(o, unit, piece, threadIdx.x / 32, reinterpret_cast<const float(&)[PIECE]>(acc[piece * PIECE]));
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
gemm_mma(const char* __restrict__ a, const char* __restrict__ b, unsigned short* __restrict__ c, int m, int n, int k,
         int lda, int ldb, int ldc, int raster_group, int parts, int split_tiles, int reducers, int* counter, float4* partials,
         unsigned int* sync, int num_slots, Record* records, const TileWork* __restrict__ work) {
    extern __shared__ __align__(128) unsigned char memory[];
    float acc[FRAGMENTS_M][FRAGMENTS_N][4];
    float(&flat)[FLOATS] = reinterpret_cast<float(&)[FLOATS]>(acc);
    run_units<SCHEDULE, THREADS>(
        [&] {
            return TileGrid{(opaque(m) + TILE_M - 1) / TILE_M, (opaque(n) + TILE_N - 1) / TILE_N,
                            (opaque(k) + TILE_K - 1) / TILE_K, raster_group};
        },
        parts, split_tiles, reducers, counter, Workspace{partials, sync, num_slots}, records, flat,
        [&](const Unit& unit) {
            main_loop(acc, Operands{a, b, m, n, k, lda, ldb}, unit, shared_address(memory));
            return Stalls{};
        },
        [&](const Unit& unit) { store_tile(Output{c, m, n, ldc}, unit, flat); },
        [&](const Unit& unit, int part, int warp, const auto& sums) {
            store_part(Output{c, m, n, ldc}, unit, part, warp, sums);
        },
        work);
}
