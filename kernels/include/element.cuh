// 16- and 32-bit element types by number, converted through fp32, for the kernels that
// make and check operands.
#pragma once

namespace wavescope {

enum ElementType { ELEMENT_BF16 = 0, ELEMENT_FP16 = 1, ELEMENT_FP32 = 2 };

__device__ __forceinline__ float to_float(const void* elements, long long at, int type) {
    if (type == ELEMENT_FP32) return static_cast<const float*>(elements)[at];
    const unsigned short bits = static_cast<const unsigned short*>(elements)[at];
    if (type == ELEMENT_BF16) return __uint_as_float(static_cast<unsigned int>(bits) << 16);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

// Rounded to nearest even; integer arithmetic for bf16, so that sm_70 has it too.
__device__ __forceinline__ unsigned int to_bits(float value, int type) {
    const unsigned int bits = __float_as_uint(value);
    if (type == ELEMENT_FP32) return bits;
    if (type == ELEMENT_BF16) return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

__device__ __forceinline__ void store_bits(void* elements, long long at, unsigned int bits, int type) {
    if (type == ELEMENT_FP32)
        static_cast<unsigned int*>(elements)[at] = bits;
    else
        static_cast<unsigned short*>(elements)[at] = static_cast<unsigned short>(bits);
}

}  // namespace wavescope
