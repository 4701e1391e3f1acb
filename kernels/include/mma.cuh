// The instructions of a tensor-core tile on sm_80 and later, and the swizzle that keeps
// their shared-memory accesses free of bank conflicts.  No headers: NVRTC has none.
#pragma once

#ifndef ASYNC
#define ASYNC 1
#endif

namespace wavescope {

__device__ __forceinline__ unsigned int shared_address(const void* pointer) {
    return static_cast<unsigned int>(__cvta_generic_to_shared(pointer));
}

#if ASYNC

__device__ __forceinline__ void copy16(unsigned int to_shared, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to_shared), "l"(from) : "memory");
}

// 16 bytes, of which only the first `bytes` are read; the others become 0.
__device__ __forceinline__ void copy16_filled(unsigned int to_shared, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#else  // the same through registers: a copy is over when the thread goes on

// Neither volatile nor in order with stores: operands do not change, so that the loads of several copies may be under way.
__device__ __forceinline__ uint4 load16(const void* from) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
    return v;
}

__device__ __forceinline__ void store16_shared(unsigned int to_shared, const uint4& v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to_shared), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ __forceinline__ void copy16(unsigned int to_shared, const void* from) {
    store16_shared(to_shared, load16(from));
}

// The low `bytes` of a word (an even number), 0 in place of the others.
__device__ __forceinline__ unsigned int low_bytes(unsigned int word, int bytes) {
    return bytes >= 4 ? word : bytes == 2 ? word & 0xffffu : 0u;
}

// Rows are as long as whole chunks: what lies between their elements and their ends is read, and dropped.
__device__ __forceinline__ void copy16_filled(unsigned int to_shared, const void* from, int bytes) {
    uint4 v = make_uint4(0u, 0u, 0u, 0u);
    if (bytes > 0) v = load16(from);
    store16_shared(to_shared, make_uint4(low_bytes(v.x, bytes), low_bytes(v.y, bytes - 4), low_bytes(v.z, bytes - 8),
                                         low_bytes(v.w, bytes - 12)));
}

__device__ __forceinline__ void commit_copies() {}

template <int PENDING>
__device__ __forceinline__ void wait_copies() {}

#endif

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(unsigned int (&out)[4], unsigned int from_shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from_shared)
                 : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void load_transposed(unsigned int (&out)[4], unsigned int from_shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from_shared)
                 : "memory");
}

enum Dtype { BF16 = 0, FP16 = 1 };

// d[16x8] += a[16x16] x b[16x8], fp32 accumulation
template <int DTYPE_ID>
__device__ __forceinline__ void mma(float (&d)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    if constexpr (DTYPE_ID == BF16) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// Two floats rounded to nearest even, the first in the low half.
template <int DTYPE_ID>
__device__ __forceinline__ unsigned int pack_pair(float low, float high) {
    unsigned int packed;
    if constexpr (DTYPE_ID == BF16) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    }
    return packed;
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of ROW_BYTES rows: chunks of
// eight neighbouring rows fall into eight different groups of four banks.
template <int ROW_BYTES>
__device__ __forceinline__ unsigned int swizzled(int row, int chunk) {
    static_assert(ROW_BYTES == 64 || ROW_BYTES % 128 == 0, "rows of half a line, or of whole lines of 32 banks");
    const int turn = ROW_BYTES == 64 ? row >> 1 & 3 : row & 7;
    return row * ROW_BYTES + ((chunk ^ turn) << 4);
}

// A warp's 8x8 matrix of 16-bit elements (thread l has two neighbouring ones of row l / 4), transposed.
__device__ __forceinline__ unsigned int transposed(unsigned int pair) {
    unsigned int other;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
    return other;
}

// A 4x4 transpose over the four threads of a quad: afterwards v[j] of thread q is what
// thread j had in v[q].
__device__ __forceinline__ void transpose_quad(unsigned int (&v)[4], int quad_lane) {
#pragma unroll
    for (int bit = 1; bit <= 2; bit *= 2) {
        const bool upper = quad_lane & bit;
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            const int low = bit == 1 ? 2 * pair : pair;  // elements that differ in `bit` only
            const int high = low + bit;
            const unsigned int other = __shfl_xor_sync(0xffffffffu, upper ? v[low] : v[high], bit);
            v[low] = upper ? other : v[low];
            v[high] = upper ? v[high] : other;
        }
    }
}

}  // namespace wavescope
