// Keep one SM busy for `duration_ns`: launches queue behind it, and start without gaps.
extern "C" __global__ void spin(unsigned long long duration_ns) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    } while (now - begin < duration_ns);
}
