// Loop of wgmma m64n128k16 bf16 over operands that lie in shared memory: the rate sm_90's
// tensor cores give it.  One warpgroup; `cycles` of CTA b at [b].
extern "C" __global__ void __launch_bounds__(128) rate(unsigned long long* cycles, float* sink, int iterations) {
    __shared__ __align__(1024) unsigned short operands[(64 + 128) * 64];
    for (int i = threadIdx.x; i < (64 + 128) * 64; i += blockDim.x)
        operands[i] = static_cast<unsigned short>(0x3f80 + (i * 40503 >> 4 & 0x7f));  // bf16 between 1 and 2
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    // rows of 128 bytes, swizzled, eight of them 1024 bytes apart
    const unsigned int base = static_cast<unsigned int>(__cvta_generic_to_shared(operands));
    const unsigned long long layout = 1ull << 62 | 64ull << 32 | 1ull << 16;
    const unsigned long long a = layout | (base & 0x3ffff) >> 4;
    const unsigned long long b = layout | (base + 64 * 128 & 0x3ffff) >> 4;
    float d[64] = {};
    unsigned long long begin, end;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
    for (int i = 0; i < iterations; ++i) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < 4; ++step)
            asm volatile(
                "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, "
                "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "
                "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "
                "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                "%64, %65, 1, 1, 1, 0, 0;"
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
                  "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
                  "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
                  "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
                  "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
                  "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
                  "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
                  "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                : "l"(a + 2 * step), "l"(b + 2 * step)
                : "memory");
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(end)::"memory");
    float sum = 0.f;
    for (int i = 0; i < 64; ++i) sum += d[i];
    sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;
}
