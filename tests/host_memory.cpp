// Memory that threads of the small GPU share.  Vector clocks tell whether accesses are
// ordered: barriers and flags let threads know what others did before.
#include "host_machine.h"

namespace host_gpu {
namespace {

// Faults an access that is not ordered after another thread's access it conflicts with.
void remember(History& history, Access access, const char* what) {
    static const char* const words[] = {"read", "write", "add"};
    const int fiber = machine->running;
    const Past* const past = *machine->launch.error == 0 ? history.conflict(fiber, access, me().clock) : nullptr;
    if (past != nullptr)
        fail("race on %s: %s by thread %d of CTA %d, %s by thread %d of CTA %d", what, words[past->access],
             thread_of(past->thread), cta_of(past->thread), words[access], thread_of(fiber), cta_of(fiber));
    history.add(fiber, access, me().clock);
}

void touch_partial(const float4* at, Access access) {
    perhaps_let_others_go_on();
    const long long index = at - machine->launch.partials;
    if (index < 0 || index >= machine->launch.num_partials) fail("partial sum %lld is outside the workspace", index);
    remember(machine->partials[index], access, "a partial sum");
}

Clock& flag_clock(const unsigned int* flag) {
    perhaps_let_others_go_on();
    const long long index = flag - machine->launch.sync;
    if (index < 0 || index >= machine->launch.num_sync) fail("flag %lld is outside the workspace", index);
    return machine->flags[index];
}

void flags_changed() {
    ++machine->changes;
    wake_waiting();
}

unsigned int count_on(unsigned int* counter, unsigned int last) {
    const unsigned int before = *counter;
    *counter = before >= last ? 0 : before + 1;
    flags_changed();
    return before;
}

// Until all `threads` threads from `first` on are there; then each knows what the others did.
void meet(Barrier& barrier, int first, int threads) {
    if (barrier.ended > 0) fail("a thread waits at a barrier that another has passed by");
    if (++barrier.waiting < threads) return leave_as(AT_BARRIER);
    Clock all = me().clock;
    for (int fiber = first; fiber < first + threads; ++fiber) join(all, machine->fibers[fiber].clock);
    for (int fiber = first; fiber < first + threads; ++fiber) {
        machine->fibers[fiber].clock = all;
        ++machine->fibers[fiber].clock[fiber];
        if (fiber != machine->running) wake(fiber);
    }
    barrier.waiting = 0;
    leave_as(READY);
}

}  // namespace

void* shared(const void* variable, int bytes, Access access) {
    perhaps_let_others_go_on();
    Variable& found = machine->ctas[cta_of(machine->running)].shared[variable];
    if (access == READ && found.bytes.empty()) fail("race on shared memory: read before it was written");
    found.bytes.resize(bytes);
    remember(found.history, access, "shared memory");
    return found.bytes.data();
}

}  // namespace host_gpu

using namespace host_gpu;

namespace wavescope {

float4 load_l2(const float4* from) {
    touch_partial(from, READ);
    return *from;
}

void store_l2(float4* to, const float4& value) {
    touch_partial(to, WRITE);
    *to = value;
}

void add_l2(float4* to, const float4& value) {
    touch_partial(to, ADD);
    to->x += value.x, to->y += value.y, to->z += value.z, to->w += value.w;
}

void release(unsigned int* flag, unsigned int value) {
    flag_clock(flag) = me().clock;
    ++me().clock[machine->running];
    *flag = value;
    flags_changed();
}

unsigned int acquire(const unsigned int* flag) {
    join(me().clock, flag_clock(flag));
    me().seen = machine->changes;
    return *flag;
}

unsigned int relaxed(const unsigned int* word) {
    flag_clock(word);  // not read: this orders nothing
    return *word;
}

unsigned int count_up(unsigned int* counter, unsigned int last) {
    Clock& clock = flag_clock(counter);
    join(me().clock, clock);
    clock = me().clock;
    ++me().clock[machine->running];
    return count_on(counter, last);
}

void count(unsigned int* counter, unsigned int last) {
    flag_clock(counter);  // not read nor written: this orders nothing
    count_on(counter, last);
}

void warp_barrier() {
    const int warp = thread_of(machine->running) / WARP;
    meet(machine->ctas[cta_of(machine->running)].of_warps[warp], machine->running / WARP * WARP, WARP);
}

void team_barrier() {
    const int cta = cta_of(machine->running), threads = machine->launch.threads;
    meet(machine->ctas[cta].barrier, cta * threads, threads);
}

// Only who waits for a flag asks for the time: it may as well wait until a flag changes, or nobody else can go on.
unsigned long long now_ns() {
    if (me().seen == machine->changes) leave_as(WAITING);
    return machine->now_ns;
}

}  // namespace wavescope

void __syncthreads() { wavescope::team_barrier(); }

int atomicAdd(int* counter, int value) {
    perhaps_let_others_go_on();
    return (*counter += value) - value;
}

int atomicExch(int* counter, int value) {
    perhaps_let_others_go_on();
    const int before = *counter;
    *counter = value;
    return before;
}
