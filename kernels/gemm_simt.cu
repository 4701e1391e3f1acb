// C[m, n] = A[m, k] x B in fp32 on the ordinary cores, sm_70 and later.  B is stored
// [n, k] (layout tn) or [k, n] (nn).  Operands and C of 16 bits (sm_80 and later) become
// fp32 on the way to shared memory, and are rounded when they are stored.
//
// -D: TILE_M TILE_N TILE_K  WARPS_M WARPS_N  MIN_CTAS (CTAs an SM must hold)
//     DTYPE (0 bf16, 1 fp16, 2 fp32)  LAYOUT (0 tn, 1 nn)  SCHEDULE (schedule.cuh)  REDUCTION (fixup.cuh)
//     WORK (1: tiles of unequal k, as `work` says)  PROBE (trace.cuh)
// Tiles lie k-major in shared memory, two of them: while one is multiplied, the next is on
// its way through registers.
#include "element.cuh"
#include "loop.cuh"
#include "mma.cuh"

using namespace wavescope;

constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int THREAD_M = WARP_M / 8, THREAD_N = WARP_N / 4;  // a warp is 8 x 4 threads
constexpr int FLOATS = THREAD_M * THREAD_N;                  // accumulators of a thread
static_assert(THREAD_M % 4 == 0 && THREAD_N % 4 == 0, "shared memory is read 16 bytes at a time");

// Four elements as they are in global memory.
constexpr int ELEMENT_BYTES = DTYPE == ELEMENT_FP32 ? 4 : 2;
template <int BYTES>
struct FourOf {
    using Type = float4;
};
template <>
struct FourOf<2> {
    using Type = uint2;
};
using Four = FourOf<ELEMENT_BYTES>::Type;

// volatile: the load stays at the head of the k_iter, and has all of it to arrive.
__device__ __forceinline__ float4 load_four(const char* from, float4) {
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
    return v;
}
__device__ __forceinline__ uint2 load_four(const char* from, uint2) {
    uint2 v;
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
}

// 0 in place of those from `columns` on; the first is inside, and is that of `column`.
__device__ __forceinline__ void drop_outside(float4& v, int column, int columns) {
    if (column + 1 >= columns) v.y = 0.f;
    if (column + 2 >= columns) v.z = 0.f;
    if (column + 3 >= columns) v.w = 0.f;
}
__device__ __forceinline__ void drop_outside(uint2& v, int column, int columns) {
    if (column + 1 >= columns) v.x &= 0xffffu;
    if (column + 2 >= columns) v.y = 0u;
    if (column + 3 >= columns) v.y &= 0xffffu;
}

__device__ __forceinline__ float4 as_floats(float4 v) { return v; }
__device__ __forceinline__ float4 as_floats(uint2 v) {
    return make_float4(to_float(&v, 0, DTYPE), to_float(&v, 1, DTYPE), to_float(&v, 2, DTYPE), to_float(&v, 3, DTYPE));
}

// One operand's tile in shared memory, [k][SIZE].  K_MAJOR: it is stored so in global
// memory too; else rows run along k, and are transposed on the way.
template <int SIZE, bool K_MAJOR>
struct Panel {
    static constexpr int PITCH = SIZE + 4;  // + 4: transposed stores meet fewer banks
    static constexpr int ROW = K_MAJOR ? SIZE : TILE_K, CHUNKS = ROW / 4;
    static constexpr int ROWS_PER_PASS = THREADS / CHUNKS, PASSES = (K_MAJOR ? TILE_K : SIZE) / ROWS_PER_PASS;
    static_assert(THREADS % CHUNKS == 0 && PASSES * ROWS_PER_PASS == (K_MAJOR ? TILE_K : SIZE), "whole passes");

    float at[TILE_K][PITCH];

    // One thread's share of a k_iter that lies inside the matrix; `from` is its first chunk.
    static __device__ __forceinline__ void fetch_whole(Four (&next)[PASSES], const char* from, int pitch) {
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            next[p] = load_four(from + static_cast<unsigned long long>(1u * ELEMENT_BYTES * pitch) *
                                           static_cast<unsigned int>(p * ROWS_PER_PASS),
                                Four{});
    }

    static __device__ __forceinline__ const char* first_chunk(const char* matrix, long long row, long long column,
                                                              int pitch) {
        return opaque(matrix + ((row + threadIdx.x / CHUNKS) * pitch + column + threadIdx.x % CHUNKS * 4) * ELEMENT_BYTES);
    }

    // The same at an edge: 0 outside the matrix of rows x columns.
    static __device__ __forceinline__ void fetch(Four (&next)[PASSES], const char* matrix, long long first_row,
                                                 int first_column, int rows, int columns, int pitch) {
        const int column = first_column + threadIdx.x % CHUNKS * 4;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const long long row = first_row + threadIdx.x / CHUNKS + p * ROWS_PER_PASS;
            next[p] = Four{};
            if (row >= rows || column >= columns) continue;
            next[p] = *reinterpret_cast<const Four*>(matrix + (row * pitch + column) * ELEMENT_BYTES);
            drop_outside(next[p], column, columns);
        }
    }

    __device__ __forceinline__ void put(const Four (&next)[PASSES]) {
        const int row = threadIdx.x / CHUNKS, column = threadIdx.x % CHUNKS * 4;
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const float4 four = as_floats(next[p]);
            if constexpr (K_MAJOR) {
                *reinterpret_cast<float4*>(&at[row + p * ROWS_PER_PASS][column]) = four;
            } else {
                at[column][row + p * ROWS_PER_PASS] = four.x;
                at[column + 1][row + p * ROWS_PER_PASS] = four.y;
                at[column + 2][row + p * ROWS_PER_PASS] = four.z;
                at[column + 3][row + p * ROWS_PER_PASS] = four.w;
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
    const char *a, *b;
    int m, n, k, lda, ldb;
};

struct InFlight {
    Four a[PanelA::PASSES], b[PanelB::PASSES];
};

// Where a thread's first chunks lie at the k_iter to fetch next; those before whole_end lie
// inside A, B and k, and none do at the edge of C.
struct Cursor {
    const char *a, *b;
    int whole_end;
};

__device__ __forceinline__ Cursor cursor(const Operands& o, const Unit& unit) {
    const long long m = static_cast<long long>(unit.tile_m) * TILE_M, n = static_cast<long long>(unit.tile_n) * TILE_N;
    const long long k = static_cast<long long>(unit.k_begin) * TILE_K;
    const bool inside = m + TILE_M <= o.m && n + TILE_N <= o.n;
    return Cursor{PanelA::first_chunk(o.a, m, k, o.lda),
                  LAYOUT == 1 ? PanelB::first_chunk(o.b, k, n, o.ldb) : PanelB::first_chunk(o.b, n, k, o.ldb),
                  inside ? min(o.k / TILE_K, unit.k_end) : 0};
}

__device__ __forceinline__ void advance(Cursor& c, const Operands& o) {
    c.a += ELEMENT_BYTES * TILE_K;
    c.b += LAYOUT == 1 ? 1ll * ELEMENT_BYTES * TILE_K * o.ldb : ELEMENT_BYTES * TILE_K;
}

template <bool WHOLE>
__device__ __forceinline__ void fetch(InFlight& next, const Cursor& c, const Operands& o, const Unit& unit,
                                      int k_iter) {
    if constexpr (WHOLE) {
        PanelA::fetch_whole(next.a, c.a, o.lda);
        PanelB::fetch_whole(next.b, c.b, o.ldb);
    } else {
        const int k = k_iter * TILE_K, n = unit.tile_n * TILE_N;
        PanelA::fetch(next.a, o.a, static_cast<long long>(unit.tile_m) * TILE_M, k, o.m, o.k, o.lda);
        if constexpr (LAYOUT == 1)
            PanelB::fetch(next.b, o.b, k, n, o.k, o.n, o.ldb);
        else
            PanelB::fetch(next.b, o.b, n, k, o.n, o.k, o.ldb);
    }
}

// The thread's first element in its tile; it has rows r..r+3 and the same 32 further on, and
// columns c..c+3 and the same 16 further on, as often as fit its warp's part.
__device__ __forceinline__ int corner_m(int warp) { return warp / WARPS_N * WARP_M + threadIdx.x % 32 / 4 * 4; }
__device__ __forceinline__ int corner_n(int warp) { return warp % WARPS_N * WARP_N + threadIdx.x % 4 * 4; }

template <int COUNT, int APART>
__device__ __forceinline__ void load(float (&v)[COUNT], const float* from) {
#pragma unroll
    for (int i = 0; i < COUNT / 4; ++i) {
        const float4 four = *reinterpret_cast<const float4*>(from + i * APART);
        v[4 * i] = four.x, v[4 * i + 1] = four.y, v[4 * i + 2] = four.z, v[4 * i + 3] = four.w;
    }
}

__device__ __forceinline__ void multiply_stage(float (&acc)[THREAD_M][THREAD_N], const Stage& stage) {
#pragma unroll
    for (int step = 0; step < TILE_K; ++step) {
        float a[THREAD_M], b[THREAD_N];
        load<THREAD_M, 32>(a, &stage.a.at[step][corner_m(threadIdx.x / 32)]);
        load<THREAD_N, 16>(b, &stage.b.at[step][corner_n(threadIdx.x / 32)]);
#pragma unroll
        for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_N; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
}

// One k_iter: multiply its stage, and bring in the next.  WHOLE: that one lies inside A, B
// and k; else it may lie at an edge, or not exist.
template <bool WHOLE>
__device__ __forceinline__ void turn(float (&acc)[THREAD_M][THREAD_N], Stage* stages, Cursor& c, const Operands& o,
                                     const Unit& unit, int k_iter) {
    const int reading = k_iter % 2;
    const bool more = WHOLE || k_iter + 1 < unit.k_end;
    InFlight next;
    if (more) fetch<WHOLE>(next, c, o, unit, k_iter + 1);
    advance(c, o);
    multiply_stage(acc, stages[reading]);
    if (more) {
        stages[1 - reading].a.put(next.a);
        stages[1 - reading].b.put(next.b);
    }
    __syncthreads();
}

struct Output {
    char* c;
    int m, n, ldc;
};

__device__ __forceinline__ void store_one(char* to, float v) {
    if constexpr (DTYPE == ELEMENT_FP32)
        *reinterpret_cast<float*>(to) = v;
    else
        *reinterpret_cast<unsigned short*>(to) = static_cast<unsigned short>(pack_pair<DTYPE>(v, 0.f));
}

// Four floats as four neighbouring elements.
__device__ __forceinline__ void store_four(char* to, const float* v) {
    if constexpr (DTYPE == ELEMENT_FP32)
        *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
    else
        *reinterpret_cast<uint2*>(to) = make_uint2(pack_pair<DTYPE>(v[0], v[1]), pack_pair<DTYPE>(v[2], v[3]));
}

static_assert(THREAD_N % SMALL_PIECE == 0 && PIECE % THREAD_N == 0, "a piece is part of a row, or whole rows");

// The part-th SIZE neighbouring accumulators of what each thread of a warp holds, row by row.
template <int SIZE>
__device__ __forceinline__ void store_part(const Output& o, const Unit& unit, int part, int warp,
                                           const float (&acc)[SIZE]) {
    const int first_m = unit.tile_m * TILE_M + corner_m(warp), first_n = unit.tile_n * TILE_N + corner_n(warp);
    constexpr int WIDTH = SIZE < THREAD_N ? SIZE : THREAD_N;  // of a row
#pragma unroll
    for (int within = 0; within < SIZE; within += WIDTH) {
        const int at = part * SIZE + within, i = at / THREAD_N, row = first_m + i % 4 + i / 4 * 32;
        if (row >= o.m) continue;
#pragma unroll
        for (int j = 0; j < WIDTH; j += 4) {
            const float* const v = &acc[within + j];
            const int column = first_n + (at % THREAD_N + j) * 4;
            char* to = o.c + (static_cast<long long>(row) * o.ldc + column) * ELEMENT_BYTES;
            if (column + 4 <= o.n) {
                store_four(to, v);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (column + e < o.n) store_one(to + e * ELEMENT_BYTES, v[e]);
            }
        }
    }
}

__device__ __forceinline__ void store_tile(const Output& o, const Unit& unit, const float (&acc)[FLOATS]) {
#pragma unroll
    for (int part = 0; part < FLOATS / PIECE; ++part)
        store_part(o, unit, part, threadIdx.x / 32, reinterpret_cast<const float(&)[PIECE]>(acc[part * PIECE]));
}

struct FewRegisters : Alone {  // 128, where two CTAs of 256 threads share an SM
    static constexpr int READS = 16;
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_CTAS)
gemm_simt(const char* __restrict__ a, const char* __restrict__ b, char* __restrict__ c, int m, int n, int k, int lda,
          int ldb, int ldc, int raster_group, int parts, int split_tiles, int reducers, int* counter, float4* partials,
          unsigned int* sync, int num_slots, Record* records, const TileWork* __restrict__ work) {
    extern __shared__ __align__(16) unsigned char memory[];
    Stage* const stages = reinterpret_cast<Stage*>(memory);
    const Operands o{a, b, m, n, k, lda, ldb};
    float acc[THREAD_M][THREAD_N];
    float(&flat)[FLOATS] = reinterpret_cast<float(&)[FLOATS]>(acc);
    run_units<SCHEDULE, THREADS, FewRegisters>(
        [&] {
            return TileGrid{(opaque(m) + TILE_M - 1) / TILE_M, (opaque(n) + TILE_N - 1) / TILE_N,
                            (opaque(k) + TILE_K - 1) / TILE_K, raster_group};
        },
        parts, split_tiles, reducers, counter, Workspace{partials, sync, num_slots}, records, flat,
        [&](const Unit& unit) {
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_N; ++j) acc[i][j] = 0.f;
            Cursor c = cursor(o, unit);
            InFlight first;
            fetch<false>(first, c, o, unit, unit.k_begin);
            stages[unit.k_begin % 2].a.put(first.a);
            stages[unit.k_begin % 2].b.put(first.b);
            advance(c, o);
            __syncthreads();
            int k_iter = unit.k_begin;
            for (; k_iter + 1 < c.whole_end; ++k_iter) turn<true>(acc, stages, c, o, unit, k_iter);
            for (; k_iter < unit.k_end; ++k_iter) turn<false>(acc, stages, c, o, unit, k_iter);
            return Stalls{};
        },
        [&](const Unit& unit) { store_tile(Output{c, m, n, ldc}, unit, flat); },
        [&](const Unit& unit, int part, int warp, const auto& sums) {
            store_part(Output{c, m, n, ldc}, unit, part, warp, sums);
        },
        work);
}
