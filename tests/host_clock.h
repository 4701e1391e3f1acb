// Vector clocks: which accesses of other threads a thread knows to have happened before.
#pragma once

#include <algorithm>
#include <vector>

#include "host_gpu.h"

namespace host_gpu {

// For each thread of the launch, up to which time its accesses are known.
using Clock = std::vector<unsigned int>;

inline void join(Clock& clock, const Clock& other) {
    for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

struct Past {  // an access that happened
    int thread;
    Access access;
    unsigned int time;
};

// The accesses of one place that later ones must be ordered after.
class History {
  public:
    // One that conflicts with this access of a thread, and is unknown to it; nullptr where there is none.
    const Past* conflict(int thread, Access access, const Clock& clock) const {
        for (const Past& past : pasts)
            if ((access == WRITE || access != past.access) && past.thread != thread && past.time > clock[past.thread])
                return &past;
        return nullptr;
    }

    void add(int thread, Access access, const Clock& clock) {
        if (access == WRITE) pasts.clear();  // who comes after it comes after those before it
        pasts.push_back(Past{thread, access, clock[thread]});
    }

  private:
    std::vector<Past> pasts;
};

}  // namespace host_gpu
