// The threads of a launch as fibers, one of them running at a time.  Whenever one touches
// memory that others see, chance may let another go on.
#include "host_machine.h"

#include <cstdarg>
#include <cstdio>
#include <memory>

namespace host_gpu {
namespace {

constexpr int STACK_BYTES = 64 * 1024;
constexpr unsigned long long IDLE_STEP_NS = 300000000;  // so far the time goes on when all wait for flags
constexpr int MAX_IDLE_STEPS = 1000, MAX_SWITCHES = 5000000;

char message[300];
std::unique_ptr<char[]> stacks;
size_t num_stacks = 0;

unsigned int chance(unsigned int below) {  // splitmix64
    unsigned long long z = machine->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return static_cast<unsigned int>((z ^ z >> 31) >> 32) % below;
}

void start_cta() {
    const int first = machine->next_cta++ * machine->launch.threads;
    for (int fiber = first; fiber < first + machine->launch.threads; ++fiber) machine->ready.push_back(fiber);
}

void thread_body() {
    machine->launch.kernel(machine->launch.arguments);
    Cta& cta = machine->ctas[cta_of(machine->running)];
    Barrier& of_warp = cta.of_warps[thread_of(machine->running) / WARP];
    if (cta.barrier.waiting + of_warp.waiting > 0) fail("a thread has ended while others wait at a barrier for it");
    ++of_warp.ended;
    if (++cta.barrier.ended == machine->launch.threads && machine->next_cta < machine->launch.num_ctas) start_cta();
    leave_as(ENDED);
}

// The ready thread that goes on: of a few taken at random, one with the highest priority.
int next_fiber() {
    size_t best = chance(static_cast<unsigned int>(machine->ready.size()));
    for (int i = 1; i < machine->tries; ++i) {
        const size_t other = chance(static_cast<unsigned int>(machine->ready.size()));
        const Fiber &found = machine->fibers[machine->ready[other]], &kept = machine->fibers[machine->ready[best]];
        if (found.priority > kept.priority) best = other;
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
    const int switches[] = {2, 8, 60}, tries[] = {1, 3, 60};  // from any order at all to one after the other
    const int alike[] = {launch.threads, WARP, 1};            // threads of one priority: CTA, warp or thread
    all.switch_one_in = switches[chance(3)];
    all.tries = tries[chance(3)];
    const size_t num_alike = alike[chance(3)];
    all.ctas.resize(launch.num_ctas);
    for (Cta& cta : all.ctas) cta.of_warps.resize(launch.threads / WARP);
    all.fibers.resize(num_fibers);
    all.partials.resize(launch.num_partials);
    all.flags.assign(launch.num_sync, Clock(num_fibers));
    if (num_stacks < num_fibers) stacks.reset(new char[num_fibers * STACK_BYTES]), num_stacks = num_fibers;
    for (size_t i = 0; i < num_fibers; ++i) {
        Fiber& fiber = all.fibers[i];
        fiber.clock.resize(num_fibers);
        fiber.clock[i] = 1;
        fiber.priority = i % num_alike == 0 ? chance(1u << 30) : all.fibers[i - 1].priority;
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

Machine* machine;

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
        if (cta.barrier.ended != launch.threads) return "threads wait at a barrier that others never reach";
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

}  // namespace host_gpu
