// The threads of a launch as fibers, one of them running at a time.  Whenever one touches
// memory that others see, chance may let another go on.
#include "host_clock.h"

#include <ucontext.h>

#include <cstdarg>
#include <cstdio>
#include <map>
#include <memory>

namespace host_gpu {
namespace {

constexpr int STACK_BYTES = 64 * 1024;
constexpr unsigned long long IDLE_STEP_NS = 300000000;  // so far the time goes on when all wait for flags
constexpr int MAX_IDLE_STEPS = 1000, MAX_SWITCHES = 5000000;

struct Variable {  // of one CTA's shared memory
    std::vector<char> bytes;
    History history;
};

struct Cta {
    int at_barrier = 0, ended = 0, priority = 0;
    std::map<const void*, Variable> shared;
};

enum State { READY, AT_BARRIER, WAITING, ENDED };

struct Fiber {
    ucontext_t context;
    State state = READY;
    Clock clock;
    unsigned int seen = 0;  // changes of flags when this thread last looked at one
};

struct Machine {
    Launch launch;
    unsigned long long random;
    int switch_one_in, tries;
    std::vector<Cta> ctas;
    std::vector<Fiber> fibers;
    std::vector<int> ready;
    std::vector<History> partials;
    std::vector<Clock> flags;  // what the last release of each word of `sync` lets others know
    int running = 0, next_cta = 0, idle_steps = 0;
    unsigned int changes = 1;  // of flags
    unsigned long long now_ns = 1000;
    ucontext_t scheduler;
    bool failed = false;
};

Machine* machine;
char message[300];
std::unique_ptr<char[]> stacks;
size_t num_stacks = 0;

unsigned int chance(unsigned int below) {  // splitmix64
    unsigned long long z = machine->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return static_cast<unsigned int>((z ^ z >> 31) >> 32) % below;
}

Fiber& me() { return machine->fibers[machine->running]; }
int cta_of(int fiber) { return fiber / machine->launch.threads; }
int thread_of(int fiber) { return fiber % machine->launch.threads; }
int priority_of(int fiber) { return machine->ctas[cta_of(fiber)].priority; }

void leave_as(State state) {
    me().state = state;
    if (state == READY) machine->ready.push_back(machine->running);
    swapcontext(&me().context, &machine->scheduler);
}

void wake(int fiber) {
    machine->fibers[fiber].state = READY;
    machine->ready.push_back(fiber);
}

void wake_waiting() {
    for (size_t i = 0; i < machine->fibers.size(); ++i)
        if (machine->fibers[i].state == WAITING) wake(static_cast<int>(i));
}

void perhaps_let_others_go_on() {
    if (chance(machine->switch_one_in) == 0) leave_as(READY);
}

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

void start_cta() {
    const int first = machine->next_cta++ * machine->launch.threads;
    for (int fiber = first; fiber < first + machine->launch.threads; ++fiber) machine->ready.push_back(fiber);
}

void thread_body() {
    machine->launch.kernel(machine->launch.arguments);
    Cta& cta = machine->ctas[cta_of(machine->running)];
    if (cta.at_barrier > 0) fail("a thread has ended while others wait at a barrier for it");
    if (++cta.ended == machine->launch.threads && machine->next_cta < machine->launch.num_ctas) start_cta();
    leave_as(ENDED);
}

// The ready thread that goes on: of a few taken at random, one of the CTA with the highest priority.
int next_fiber() {
    size_t best = chance(static_cast<unsigned int>(machine->ready.size()));
    for (int i = 1; i < machine->tries; ++i) {
        const size_t other = chance(static_cast<unsigned int>(machine->ready.size()));
        if (priority_of(machine->ready[other]) > priority_of(machine->ready[best])) best = other;
    }
    const int fiber = machine->ready[best];
    machine->ready[best] = machine->ready.back();
    machine->ready.pop_back();
    return fiber;
}

void set_up(Machine& all, const Launch& launch) {
    const size_t num_fibers = static_cast<size_t>(launch.num_ctas) * launch.threads;
    all.launch = launch;
    all.random = launch.seed;
    const int switches[] = {2, 8, 60}, tries[] = {1, 3, 60};  // from any order at all to one CTA after the other
    all.switch_one_in = switches[chance(3)];
    all.tries = tries[chance(3)];
    all.ctas.resize(launch.num_ctas);
    for (Cta& cta : all.ctas) cta.priority = chance(1u << 30);
    all.fibers.resize(num_fibers);
    all.partials.resize(launch.num_partials);
    all.flags.assign(launch.num_sync, Clock(num_fibers));
    if (num_stacks < num_fibers) stacks.reset(new char[num_fibers * STACK_BYTES]), num_stacks = num_fibers;
    for (size_t i = 0; i < num_fibers; ++i) {
        Fiber& fiber = all.fibers[i];
        fiber.clock.resize(num_fibers);
        fiber.clock[i] = 1;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = &stacks[i * STACK_BYTES];
        fiber.context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&fiber.context, thread_body, 0);
    }
    while (all.next_cta < std::min(launch.places, launch.num_ctas)) start_cta();
}

// One thread goes on, or the time does; false when nothing is left to do.
bool step() {
    if (machine->ready.empty()) {
        wake_waiting();
        if (machine->ready.empty()) return false;
        machine->now_ns += IDLE_STEP_NS;
        if (++machine->idle_steps > MAX_IDLE_STEPS) return false;
    }
    machine->running = next_fiber();
    swapcontext(&machine->scheduler, &me().context);
    return !machine->failed;
}

}  // namespace

const char* run(const Launch& launch) {
    Machine all;
    machine = &all;
    set_up(all, launch);
    int switches = 0;
    while (step())
        if (++switches > MAX_SWITCHES) return "the launch does not end";
    if (all.failed) return message;
    if (all.idle_steps > MAX_IDLE_STEPS) return "threads wait for ever for a flag";
    for (const Cta& cta : all.ctas)
        if (cta.ended != launch.threads) return "threads wait at a barrier that others never reach";
    return "";
}

void fail(const char* format, ...) {
    va_list values;
    va_start(values, format);
    std::vsnprintf(message, sizeof message, format, values);
    va_end(values);
    machine->failed = true;
    setcontext(&machine->scheduler);
    __builtin_unreachable();
}

Index thread_index() { return Index{static_cast<unsigned int>(thread_of(machine->running))}; }
Index block_index() { return Index{static_cast<unsigned int>(cta_of(machine->running))}; }
Index grid_size() { return Index{static_cast<unsigned int>(machine->launch.num_ctas)}; }

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

void cta_barrier() {
    const int threads = machine->launch.threads, first = cta_of(machine->running) * threads;
    Cta& cta = machine->ctas[cta_of(machine->running)];
    if (cta.ended > 0) fail("a thread waits at a barrier that another has passed by");
    if (++cta.at_barrier < threads) return leave_as(AT_BARRIER);
    Clock all = me().clock;
    for (int fiber = first; fiber < first + threads; ++fiber) join(all, machine->fibers[fiber].clock);
    for (int fiber = first; fiber < first + threads; ++fiber) {
        machine->fibers[fiber].clock = all;
        ++machine->fibers[fiber].clock[fiber];
        if (fiber != machine->running) wake(fiber);
    }
    cta.at_barrier = 0;
    leave_as(READY);
}

// Only who waits for a flag asks for the time: it may as well wait until a flag changes, or nobody else can go on.
unsigned long long now_ns() {
    if (me().seen == machine->changes) leave_as(WAITING);
    return machine->now_ns;
}

}  // namespace wavescope

void __syncthreads() { wavescope::cta_barrier(); }

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
