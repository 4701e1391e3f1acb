// Register-only loop of mma.sync m16n8k16 bf16: the rate the tensor cores give it.
extern "C" __global__ void rate(unsigned long long* cycles, float* sink, int iterations) {
    float d[CHAINS][4] = {};
    unsigned int a[4] = {threadIdx.x, 1, 2, 3}, b[2] = {4, threadIdx.x};
    __syncthreads();
    unsigned long long begin, end;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin)::"memory");
    for (int i = 0; i < iterations; ++i)
#pragma unroll
        for (int c = 0; c < CHAINS; ++c)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    __syncthreads();
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(end)::"memory");
    float sum = 0.f;
    for (int c = 0; c < CHAINS; ++c) sum += d[c][0] + d[c][1] + d[c][2] + d[c][3];
    sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;
}
