// The CUDA occupancy calculator behind one C call for a whole batch (see test_occupancy.py).
#include <cuda_occupancy.h>

// devices: 8 ints each: cc major, cc minor, registers, shared memory, shared memory a CTA (opt-in),
// shared memory reserved a CTA, threads, SMs; the first six but cc per SM.
// cases: 5 ints each: device, threads, registers, shared bytes, barriers.
// results: 6 ints each: CTAs, then the limits by shared memory, registers, warps, CTAs, barriers.
extern "C" int occupancy_batch(const int* devices, const int* cases, int* results, int num_cases) {
    for (int i = 0; i < num_cases; ++i) {
        const int* kernel = cases + 5 * i;
        const int* device = devices + 8 * kernel[0];

        cudaOccDeviceProp properties;
        properties.computeMajor = device[0];
        properties.computeMinor = device[1];
        properties.maxThreadsPerBlock = 1024;
        properties.maxThreadsPerMultiprocessor = device[6];
        properties.regsPerBlock = 65536;
        properties.regsPerMultiprocessor = device[2];
        properties.warpSize = 32;
        properties.sharedMemPerBlock = 48 * 1024;
        properties.sharedMemPerMultiprocessor = device[3];
        properties.numSms = device[7];
        properties.sharedMemPerBlockOptin = device[4];
        properties.reservedSharedMemPerBlock = device[5];

        cudaOccFuncAttributes attributes;
        attributes.maxThreadsPerBlock = 1024;
        attributes.numRegs = kernel[2];
        attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        attributes.maxDynamicSharedSizeBytes = kernel[3];
        attributes.numBlockBarriers = kernel[4];

        const cudaOccDeviceState state;
        cudaOccResult result;
        const cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(
            &result, &properties, &attributes, &state, kernel[1], kernel[3]);
        if (error != CUDA_OCC_SUCCESS) return i + 1;

        int* out = results + 6 * i;
        out[0] = result.activeBlocksPerMultiprocessor;
        out[1] = result.blockLimitSharedMem;
        out[2] = result.blockLimitRegs;
        out[3] = result.blockLimitWarps;
        out[4] = result.blockLimitBlocks;
        out[5] = result.blockLimitBarriers;
    }
    return 0;
}
