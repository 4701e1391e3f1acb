// What only sm_90a has: bulk tensor copies, barriers that count their bytes, and the
// tensor cores' asynchronous instructions.  No headers: NVRTC has none.
#pragma once

#include "mma.cuh"

namespace wavescope {

// CUtensorMap of cuda.h: what the driver encodes for one matrix.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

// ---- barriers in shared memory (mbarrier): they complete a phase when all have arrived
// and all bytes that were announced have come

__device__ __forceinline__ void barrier_init(unsigned int barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Before anyone, the copy engine included, uses what was initialised.
__device__ __forceinline__ void barriers_are_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(unsigned int barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the same barrier of another CTA of the cluster.  Without .release.cluster: that
// would be a fence of the whole GPU in every k_iter, and wgmma's reads are over as it is.
__device__ __forceinline__ void arrive_at(unsigned int barrier, unsigned int cta_of_cluster) {
    asm volatile(
        "{\n.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
        "r"(cta_of_cluster)
        : "memory");
}

// All threads of a cluster wait for one another.  Of what they did before, only barriers that were made ready are sure to
// be seen by the others after: a release would be a fence of the whole GPU.
__device__ __forceinline__ void meet_cluster() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void arrive_expecting(unsigned int barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether the phase of that parity is over; suspends the thread for a while if not.
__device__ __forceinline__ bool try_wait(unsigned int barrier, unsigned int parity) {
    unsigned int over;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
    return over != 0;
}

// The same without suspending.
__device__ __forceinline__ bool test_wait(unsigned int barrier, unsigned int parity) {
    unsigned int over;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(over)
        : "r"(barrier), "r"(parity)
        : "memory");
    return over != 0;
}

// ---- copies of boxes between global and shared memory (TMA); x runs along a row.
// Elements outside the matrix come as 0, and are not written.

__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void copy_box(unsigned int to, const TensorMap& map, int x, int y, unsigned int barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

// To the same place of every CTA of the cluster that `ctas` has a bit for, and their barriers.
__device__ __forceinline__ void copy_box_to(unsigned short ctas, unsigned int to, const TensorMap& map, int x, int y,
                                            unsigned int barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"(ctas)
        : "memory");
}

__device__ __forceinline__ void store_box(const TensorMap& map, int x, int y, unsigned int from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map), "r"(from),
                 "r"(x), "r"(y)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but PENDING of this thread's stores have read shared memory.
template <int PENDING>
__device__ __forceinline__ void wait_boxes_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Until all of this thread's stores are done.
__device__ __forceinline__ void wait_boxes_stored() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// What this thread wrote to shared memory is there for the copy engine.
__device__ __forceinline__ void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices(unsigned int to_shared, const unsigned int (&v)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to_shared), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void store_transposed(unsigned int to_shared, const unsigned int (&v)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to_shared), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

// ---- warpgroups

template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Barrier `id` (1 to 15; 0 is __syncthreads) of `threads` threads of the CTA.
__device__ __forceinline__ void meet_at(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- wgmma: a warpgroup's 64 rows times N columns, 16 deep, from shared memory

// Tiles in shared memory have rows of 128 bytes with the copy engine's 128-byte swizzle.
// along_k: the rows run along k, eight of them every 1024 bytes.  Else they run along n,
// 64 columns of all TILE_K rows make one box, and the next 64 columns are `box_bytes` on.
__device__ __forceinline__ unsigned long long operand(unsigned int at, bool along_k, int box_bytes) {
    const unsigned long long leading = along_k ? 1 : box_bytes >> 4, stride = 1024 >> 4, swizzle_128 = 1;
    return (at >> 4 & 0x3fffull) | leading << 16 | stride << 32 | swizzle_128 << 62;
}

// Before the first product that reads or writes registers which other instructions wrote or read.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Operands of the instructions below: 4, 8 and 32 accumulators, read and written or only written.
#define WS_4(how, d, i) how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3])
#define WS_8(how, d, i) WS_4(how, d, i), WS_4(how, d, i + 4)
#define WS_32(how, d, i) WS_8(how, d, i), WS_8(how, d, i + 8), WS_8(how, d, i + 16), WS_8(how, d, i + 24)

// Their names in an instruction for N columns: half as many as there are columns.
#define WS_NAMES_96 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define WS_NAMES_104 WS_NAMES_96 ", %48, %49, %50, %51"
#define WS_NAMES_112 WS_NAMES_104 ", %52, %53, %54, %55"
#define WS_NAMES_120 WS_NAMES_112 ", %56, %57, %58, %59"
#define WS_NAMES_128 WS_NAMES_120 ", %60, %61, %62, %63"
#define WS_NAMES_136 WS_NAMES_128 ", %64, %65, %66, %67"
#define WS_NAMES_144 WS_NAMES_136 ", %68, %69, %70, %71"
#define WS_NAMES_152 WS_NAMES_144 ", %72, %73, %74, %75"
#define WS_NAMES_160 WS_NAMES_152 ", %76, %77, %78, %79"
#define WS_NAMES_168 WS_NAMES_160 ", %80, %81, %82, %83"
#define WS_NAMES_176 WS_NAMES_168 ", %84, %85, %86, %87"
#define WS_NAMES_184 WS_NAMES_176 ", %88, %89, %90, %91"
#define WS_NAMES_192 WS_NAMES_184 ", %92, %93, %94, %95"
#define WS_NAMES_200 WS_NAMES_192 ", %96, %97, %98, %99"
#define WS_NAMES_208 WS_NAMES_200 ", %100, %101, %102, %103"
#define WS_NAMES_216 WS_NAMES_208 ", %104, %105, %106, %107"
#define WS_NAMES_224 WS_NAMES_216 ", %108, %109, %110, %111"
#define WS_NAMES_232 WS_NAMES_224 ", %112, %113, %114, %115"
#define WS_NAMES_240 WS_NAMES_232 ", %116, %117, %118, %119"
#define WS_NAMES_248 WS_NAMES_240 ", %120, %121, %122, %123"
#define WS_NAMES_256 WS_NAMES_248 ", %124, %125, %126, %127"

// The accumulators themselves.
#define WS_SUMS_96(how, d) WS_32(how, d, 0), WS_8(how, d, 32), WS_8(how, d, 40)
#define WS_SUMS_104(how, d) WS_SUMS_96(how, d), WS_4(how, d, 48)
#define WS_SUMS_112(how, d) WS_SUMS_104(how, d), WS_4(how, d, 52)
#define WS_SUMS_120(how, d) WS_SUMS_112(how, d), WS_4(how, d, 56)
#define WS_SUMS_128(how, d) WS_SUMS_120(how, d), WS_4(how, d, 60)
#define WS_SUMS_136(how, d) WS_SUMS_128(how, d), WS_4(how, d, 64)
#define WS_SUMS_144(how, d) WS_SUMS_136(how, d), WS_4(how, d, 68)
#define WS_SUMS_152(how, d) WS_SUMS_144(how, d), WS_4(how, d, 72)
#define WS_SUMS_160(how, d) WS_SUMS_152(how, d), WS_4(how, d, 76)
#define WS_SUMS_168(how, d) WS_SUMS_160(how, d), WS_4(how, d, 80)
#define WS_SUMS_176(how, d) WS_SUMS_168(how, d), WS_4(how, d, 84)
#define WS_SUMS_184(how, d) WS_SUMS_176(how, d), WS_4(how, d, 88)
#define WS_SUMS_192(how, d) WS_SUMS_184(how, d), WS_4(how, d, 92)
#define WS_SUMS_200(how, d) WS_SUMS_192(how, d), WS_4(how, d, 96)
#define WS_SUMS_208(how, d) WS_SUMS_200(how, d), WS_4(how, d, 100)
#define WS_SUMS_216(how, d) WS_SUMS_208(how, d), WS_4(how, d, 104)
#define WS_SUMS_224(how, d) WS_SUMS_216(how, d), WS_4(how, d, 108)
#define WS_SUMS_232(how, d) WS_SUMS_224(how, d), WS_4(how, d, 112)
#define WS_SUMS_240(how, d) WS_SUMS_232(how, d), WS_4(how, d, 116)
#define WS_SUMS_248(how, d) WS_SUMS_240(how, d), WS_4(how, d, 120)
#define WS_SUMS_256(how, d) WS_SUMS_248(how, d), WS_4(how, d, 124)

// d = a x b (ADD 0), or d += a x b (1).  A, B, A_TURNED, B_TURNED: the names of the operands after N / 2 accumulators; the
// instruction asks of each operand whether it is transposed, which is: not along k.
#define WS_WGMMA(N, TYPE, ADD, A, B, A_TURNED, B_TURNED, HOW)                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" WS_NAMES_##N "}, " A   \
                 ", " B ", p, 1, 1, " A_TURNED ", " B_TURNED ";\n}"                                         \
                 : WS_SUMS_##N(HOW, d)                                                                     \
                 : "l"(a), "l"(b), "n"(!A_ALONG_K), "n"(!B_ALONG_K))

#define WS_MULTIPLY(N, A, B, A_TURNED, B_TURNED)                                                                 \
    template <int DTYPE_ID, bool A_ALONG_K, bool B_ALONG_K, bool ADD>                                            \
    __device__ __forceinline__ void multiply(float (&d)[N / 2], unsigned long long a, unsigned long long b) {    \
        if constexpr (ADD && DTYPE_ID == BF16)                                                                   \
            WS_WGMMA(N, "bf16", "1", A, B, A_TURNED, B_TURNED, "+f");                                            \
        else if constexpr (ADD)                                                                                  \
            WS_WGMMA(N, "f16", "1", A, B, A_TURNED, B_TURNED, "+f");                                             \
        else if constexpr (DTYPE_ID == BF16)                                                                     \
            WS_WGMMA(N, "bf16", "0", A, B, A_TURNED, B_TURNED, "=f");                                            \
        else                                                                                                     \
            WS_WGMMA(N, "f16", "0", A, B, A_TURNED, B_TURNED, "=f");                                             \
    }

WS_MULTIPLY(96, "%48", "%49", "%50", "%51")
WS_MULTIPLY(104, "%52", "%53", "%54", "%55")
WS_MULTIPLY(112, "%56", "%57", "%58", "%59")
WS_MULTIPLY(120, "%60", "%61", "%62", "%63")
WS_MULTIPLY(128, "%64", "%65", "%66", "%67")
WS_MULTIPLY(136, "%68", "%69", "%70", "%71")
WS_MULTIPLY(144, "%72", "%73", "%74", "%75")
WS_MULTIPLY(152, "%76", "%77", "%78", "%79")
WS_MULTIPLY(160, "%80", "%81", "%82", "%83")
WS_MULTIPLY(168, "%84", "%85", "%86", "%87")
WS_MULTIPLY(176, "%88", "%89", "%90", "%91")
WS_MULTIPLY(184, "%92", "%93", "%94", "%95")
WS_MULTIPLY(192, "%96", "%97", "%98", "%99")
WS_MULTIPLY(200, "%100", "%101", "%102", "%103")
WS_MULTIPLY(208, "%104", "%105", "%106", "%107")
WS_MULTIPLY(216, "%108", "%109", "%110", "%111")
WS_MULTIPLY(224, "%112", "%113", "%114", "%115")
WS_MULTIPLY(232, "%116", "%117", "%118", "%119")
WS_MULTIPLY(240, "%120", "%121", "%122", "%123")
WS_MULTIPLY(248, "%124", "%125", "%126", "%127")
WS_MULTIPLY(256, "%128", "%129", "%130", "%131")

}  // namespace wavescope
