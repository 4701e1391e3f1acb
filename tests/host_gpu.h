// A small GPU for the host compiler: what kernels/include takes from CUDA and from
// memory.cuh, over fibers in random order (host_gpu.cpp, host_memory.cpp).  Memory is as on
// a GPU in this: what another thread wrote may be read only after a barrier, or after the
// acquire of a flag that was released after the write.  An access without such an order is
// a fault whenever it happens, even where the value would have been right.
#pragma once

#include <cstring>

#define __device__
#define __forceinline__ inline
#define __shared__ static
#define threadIdx (host_gpu::thread_index())
#define blockIdx (host_gpu::block_index())
#define gridDim (host_gpu::grid_size())

struct float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }

void __syncthreads();
int atomicAdd(int* counter, int value);
int atomicExch(int* counter, int value);

namespace host_gpu {

struct Index {
    unsigned int x;
};
Index thread_index();
Index block_index();
Index grid_size();

// One launch.  places: how many CTAs may be resident.  As many as there are, and they run
// in any order; fewer, and they come in the order of their numbers, one for each that ends.
// error: not 0 once the kernel has given up; from then on anything may be read.
struct Launch {
    int num_ctas, threads, places;
    unsigned long long seed;
    void (*kernel)(void*);
    void* arguments;
    float4* partials;
    int num_partials;
    unsigned int* sync;
    int num_sync;
    const unsigned int* error;
};

// Runs it to its end; returns what went wrong, or nothing.
const char* run(const Launch& launch);

// Ends the launch from within one of its threads.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

enum Access { READ, WRITE, ADD };

// The bytes that a variable of shared memory has in the CTA that runs.
void* shared(const void* variable, int bytes, Access access);

}  // namespace host_gpu

namespace wavescope {

float4 load_l2(const float4* from);
void store_l2(float4* to, const float4& value);
void add_l2(float4* to, const float4& value);
void release(unsigned int* flag, unsigned int value);
unsigned int acquire(const unsigned int* flag);
unsigned int relaxed(const unsigned int* word);
unsigned int count_up(unsigned int* counter, unsigned int last);
void count(unsigned int* counter, unsigned int last);
void warp_barrier();
inline int team() { return 0; }
inline int worker() { return threadIdx.x; }
void team_barrier();
unsigned long long now_ns();

template <typename T>
class Shared {
  public:
    Shared& operator=(const T& value) {
        std::memcpy(host_gpu::shared(this, sizeof(T), host_gpu::WRITE), &value, sizeof(T));
        return *this;
    }
    operator T() const {
        T value;
        std::memcpy(&value, host_gpu::shared(this, sizeof(T), host_gpu::READ), sizeof(T));
        return value;
    }
};

}  // namespace wavescope
