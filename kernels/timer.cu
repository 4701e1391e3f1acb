// What the clocks of this device do: `count` moments at which globaltimer moved on.
// pairs: globaltimer, clock64 at each; ends after `limit` reads in any case.
extern "C" __global__ void timer(unsigned long long* pairs, int count, int limit) {
    unsigned long long last, now, clock;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(last)::"memory");
    int taken = 0;
    for (int read = 0; read < limit && taken < count; ++read) {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
        asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock)::"memory");
        if (now == last) continue;
        pairs[2 * taken] = now;
        pairs[2 * taken + 1] = clock;
        last = now;
        ++taken;
    }
}
