// What the two halves of the small GPU share: host_gpu.cpp, which thread goes on, and
// host_memory.cpp, what threads do to memory and who may.
#pragma once

#include <ucontext.h>

#include <map>

#include "host_clock.h"

namespace host_gpu {

constexpr int WARP = 32;

struct Variable {  // of one CTA's shared memory
    std::vector<char> bytes;
    History history;
};

struct Barrier {
    int waiting = 0, ended = 0;  // threads at it, and those that will not come any more
};

struct Cta {
    Barrier barrier;
    std::vector<Barrier> of_warps;
    std::map<const void*, Variable> shared;
};

enum State { READY, AT_BARRIER, WAITING, ENDED };

struct Fiber {
    ucontext_t context;
    State state = READY;
    unsigned int priority;
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

// The launch that runs.
extern Machine* machine;

inline Fiber& me() { return machine->fibers[machine->running]; }
inline int cta_of(int fiber) { return fiber / machine->launch.threads; }
inline int thread_of(int fiber) { return fiber % machine->launch.threads; }

// The thread that runs lets others go on, until it is READY again and its turn comes.
void leave_as(State state);
void perhaps_let_others_go_on();

// Threads get READY: one, or all that wait for a flag.
void wake(int fiber);
void wake_waiting();

}  // namespace host_gpu
