// Fill a padded matrix: small integers (sums stay exact), or normal random numbers.  The
// value depends on seed and position alone, so a fill is the same on every device.
#include "element.cuh"

using namespace wavescope;

// Source: Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014
__device__ __forceinline__ unsigned long long split_mix(unsigned long long x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// integers != 0: uniform in {-2, ..., 2}; else standard normal (Box-Muller).  Elements from
// columns on are NaN: a kernel that reads them spoils its result.
extern "C" __global__ void operands(void* matrix, long long rows, int columns, int pitch, int type, int integers,
                                    unsigned long long seed) {
    const long long count = rows * pitch, stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; at < count; at += stride) {
        const unsigned long long bits = split_mix(seed ^ split_mix(at));
        float value;
        if (at % pitch >= columns) {
            value = __uint_as_float(0x7fc00000u);
        } else if (integers) {
            value = static_cast<float>(static_cast<int>((bits >> 32) % 5) - 2);
        } else {
            const float u = (static_cast<unsigned int>(bits >> 40) + 1) * 0x1p-24f;  // (0, 1]
            const float v = static_cast<unsigned int>(bits & 0xffffffu) * 0x1p-24f;
            value = sqrtf(-2.f * logf(u)) * cosf(6.2831853f * v);
        }
        store_bits(matrix, at, value != value && type != ELEMENT_FP32 ? 0x7fffu : to_bits(value, type), type);
    }
}
