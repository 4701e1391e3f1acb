// Memory that CTAs share: partial sums in L2, flags, counters.  fixup.cuh and loop.cuh are
// also run on the host, which brings its own versions of these (tests/host_gpu.h).
#pragma once

#ifndef TEAMS
#define TEAMS 1
#endif

namespace wavescope {

#if defined(__CUDACC__)

// A variable in shared memory; the host's version watches who reads and writes it between which barriers.
template <typename T>
using Shared = T;

// Partial sums go from one SM to another: past L1, which the reader's SM might have stale.
__device__ __forceinline__ float4 load_l2(const float4* from) { return __ldcg(from); }
__device__ __forceinline__ void store_l2(float4* to, const float4& value) { __stcg(to, value); }

__device__ __forceinline__ void add_l2(float4* to, const float4& value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(value.x), "f"(value.y),
                 "f"(value.z), "f"(value.w)
                 : "memory");
#else
    float* const floats = reinterpret_cast<float*>(to);
    atomicAdd(floats, value.x);
    atomicAdd(floats + 1, value.y);
    atomicAdd(floats + 2, value.z);
    atomicAdd(floats + 3, value.w);
#endif
}

// The value, without an order to anything else.
__device__ __forceinline__ unsigned int relaxed(const unsigned int* word) {
    unsigned int value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word));
    return value;
}

// What this thread did before, and others of its CTA before a barrier, is seen by whoever acquires the value.
__device__ __forceinline__ void release(unsigned int* flag, unsigned int value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned int acquire(const unsigned int* flag) {
    unsigned int value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

// Counts to `last`, then begins at 0 again; returns what it was.
__device__ __forceinline__ unsigned int count_up(unsigned int* counter, unsigned int last) {
    __threadfence();
    const unsigned int before = atomicInc(counter, last);
    __threadfence();
    return before;
}

// The same without an order to anything else, and without an answer to wait for.
__device__ __forceinline__ void count(unsigned int* counter, unsigned int last) { atomicInc(counter, last); }

__device__ __forceinline__ void warp_barrier() { __syncwarp(); }

// A team: the threads that multiply a tile together.  All threads of the CTA, where the kernel
// does not say that they are the first TEAMS times WORKERS of them.
#if defined(WORKERS)
__device__ __forceinline__ int team() { return TEAMS == 1 ? 0 : threadIdx.x / WORKERS; }
__device__ __forceinline__ int worker() { return TEAMS == 1 ? threadIdx.x : threadIdx.x % WORKERS; }
__device__ __forceinline__ void team_barrier() {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + team()), "n"(WORKERS) : "memory");
}
#else
__device__ __forceinline__ int team() { return 0; }
__device__ __forceinline__ int worker() { return threadIdx.x; }
__device__ __forceinline__ void team_barrier() { __syncthreads(); }
#endif

__device__ __forceinline__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

#endif

}  // namespace wavescope
