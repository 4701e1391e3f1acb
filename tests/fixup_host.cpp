// Runs the kernels' loop on the small GPU of host_gpu.h.  Reads one case a line: schedule,
// TileGrid, CTAs, parts, split_tiles, reducers, slots, places, launches, launches before, seed,
// and how many TileWork follow (none: every tile takes all k_iters), then those.
// Answers "ok" and a digest of all C, or what went wrong, and then ends.
#include "fixup_host.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace wavescope;
using namespace host_run;

namespace {

struct Case {
    int schedule;
    TileGrid grid;
    int num_ctas, parts, split_tiles, reducers, num_slots, places, launches;
    unsigned int launches_before;
    unsigned long long seed;
    int rows;
};

// What the threads of one unit multiplied.
struct Product {
    int k_end = 0, threads = 0;
    std::vector<float> sums;
};

struct Run {
    Case its;
    std::vector<TileWork> work;
    std::vector<int> k_iters;  // of each tile, row by row
    int launch, counter;  // launches done, tickets drawn
    std::vector<float4> partials;
    std::vector<unsigned int> sync;
    std::vector<float> c;  // [tile][thread][float]
    std::vector<int> stores;
    std::map<std::pair<int, int>, Product> products;  // by tile and k_begin
};
Run run;

// What one k_iter adds to one float: another number for all that could be mistaken for one another.
// ordered: the last bits tell in which order such numbers were added.  atomic: integers, whose sums are exact.
float value(int tile, int k_iter, int thread, int f) {
    unsigned int bits = run.launch * 0x9e3779b1u + tile * 0x85ebca77u + k_iter * 0xc2b2ae3du + thread * 0x27d4eb2fu + f;
    bits = (bits ^ bits >> 15) * 0x2c1b3c6du;
    bits = (bits ^ bits >> 12) * 0x297a2d39u;
    const float integer = static_cast<float>(static_cast<int>((bits ^ bits >> 15) % 2001) - 1000);
    return reduction == ORDERED ? integer / 7 : integer;
}

int tile_of(const Unit& unit) {
    const TileGrid& grid = run.its.grid;
    if (unit.tile_m < 0 || unit.tile_m >= grid.tiles_m || unit.tile_n < 0 || unit.tile_n >= grid.tiles_n)
        host_gpu::fail("there is no tile %d, %d", unit.tile_m, unit.tile_n);
    return unit.tile_m * grid.tiles_n + unit.tile_n;
}

// What the tile must hold: its products added in the order of k, or from the last to the first where tiles are walked
// that way.  Empty where they do not cover k once.
std::vector<float> sum_of(int tile) {
    std::vector<const Product*> products;
    int k_iter = 0;
    for (auto at = run.products.lower_bound({tile, 0}); at != run.products.end() && at->first.first == tile; ++at) {
        const Product& product = at->second;
        if (at->first.second != k_iter || product.threads != THREADS) return {};
        k_iter = product.k_end;
        products.push_back(&product);
    }
    if (k_iter != run.k_iters[tile]) return {};
    if (run.its.schedule == STREAMK || run.its.schedule == HYBRID) std::reverse(products.begin(), products.end());
    std::vector<float> sums = products[0]->sums;
    for (size_t next = 1; next < products.size(); ++next)
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += products[next]->sums[i];
    return sums;
}

// What is wrong after a launch.
std::string fault() {
    for (int tile = 0; tile < num_tiles(run.its.grid); ++tile) {
        const std::string of_tile = " of tile " + std::to_string(tile);
        const std::vector<float> wanted = sum_of(tile);
        if (wanted.empty()) return "not each k_iter once" + of_tile;
        for (int i = 0; i < THREADS * FLOATS; ++i) {
            const size_t at = tile * THREADS * FLOATS + i;
            const std::string of_float = " float " + std::to_string(i) + of_tile;
            if (run.stores[at] != 1) return std::to_string(run.stores[at]) + " stores of" + of_float;
            if (run.c[at] != wanted[i]) return "wrong sum in" + of_float;
        }
    }
    if (run.counter != 0) return "the counter of tickets is left at " + std::to_string(run.counter);
    if (reduction == ORDERED) return "";
    for (int slot = 0; slot < run.its.num_slots; ++slot)
        if (run.sync[SYNC_FLAGS + run.its.num_slots + slot] != 0) return "a count of arrivals is left";
    for (const float4& v : run.partials)
        if (v.x != 0 || v.y != 0 || v.z != 0 || v.w != 0) return "a partial sum is left";
    return "";
}

// As many launches as were before leave this in the workspace.
void set_up() {
    const Case& its = run.its;
    run.counter = 0;
    run.work.resize(its.rows);
    run.k_iters.assign(num_tiles(its.grid), its.grid.k_iters);
    for (TileWork& row : run.work) {
        if (std::scanf("%d %d", &row.tile, &row.k_end) != 2) host_gpu::fail("a row is missing");
        run.k_iters[tile_of(whole_tile(its.grid, row.tile, 0))] = row.k_end;
    }
    run.partials.assign(static_cast<size_t>(its.num_slots) * THREADS * FLOATS / 4, float4{});
    run.sync.assign(SYNC_FLAGS + 2 * its.num_slots, 0);
    run.sync[SYNC_ENDED] = its.launches_before * its.num_ctas;
    for (int slot = 0; slot < its.num_slots; ++slot) run.sync[SYNC_FLAGS + slot] = its.launches_before;
}

std::string launch() {
    const Case& its = run.its;
    run.c.assign(static_cast<size_t>(num_tiles(its.grid)) * THREADS * FLOATS, -1);
    run.stores.assign(run.c.size(), 0);
    run.products.clear();
    Arguments arguments{its.grid, its.parts, its.split_tiles, its.reducers, &run.counter,
                        Workspace{run.partials.data(), run.sync.data(), its.num_slots}, run.work.data()};
    const char* const stopped = host_gpu::run(host_gpu::Launch{
        its.num_ctas, THREADS, its.places, its.seed + run.launch, kernel_of(its.schedule), &arguments,
        run.partials.data(), static_cast<int>(run.partials.size()), run.sync.data(),
        static_cast<int>(run.sync.size()), &run.sync[SYNC_ERROR]});
    if (*stopped != 0) return stopped;
    return run.sync[SYNC_ERROR] != 0 ? "a CTA gave up waiting" : fault();
}

unsigned long long digest(unsigned long long sofar, const std::vector<float>& floats) {  // FNV-1a
    for (const float& v : floats) {
        unsigned int bits;
        std::memcpy(&bits, &v, sizeof bits);
        sofar = (sofar ^ bits) * 0x100000001b3ull;
    }
    return sofar;
}

}  // namespace

// As the kernels' main loops: operands into shared memory, a barrier, and other threads read them.
void host_run::multiply(float (&acc)[FLOATS], const Unit& unit) {
    static Shared<int> operands[THREADS];
    const int thread = threadIdx.x, tile = tile_of(unit);
    operands[thread] = thread;
    team_barrier();
    const int other = operands[(thread + 1) % THREADS];
    Product& product = run.products[{tile, unit.k_begin}];
    product.sums.resize(THREADS * FLOATS);
    product.k_end = unit.k_end;
    ++product.threads;
    for (int f = 0; f < FLOATS; ++f) {
        acc[f] = 0;
        for (int k_iter = unit.k_begin; k_iter < unit.k_end; ++k_iter) acc[f] += value(tile, k_iter, other, f);
        product.sums[thread * FLOATS + f] = acc[f];
    }
}

void host_run::store_part(const Unit& unit, int part, int warp, const float* sums, int size) {
    if (part < 0 || part >= FLOATS / size || warp < 0 || warp >= THREADS / 32)
        host_gpu::fail("a tile has no part %d of warp %d", part, warp);
    const int thread = warp * 32 + threadIdx.x % 32;
    const size_t at = (static_cast<size_t>(tile_of(unit)) * THREADS + thread) * FLOATS + part * size;
    for (int i = 0; i < size; ++i) run.c[at + i] = sums[i], ++run.stores[at + i];
}

int main() {
    Case& its = run.its;
    while (std::scanf("%d %d %d %d %d %d %d %d %d %d %d %d %u %llu %d", &its.schedule, &its.grid.tiles_m,
                      &its.grid.tiles_n, &its.grid.k_iters, &its.grid.raster_group, &its.num_ctas, &its.parts,
                      &its.split_tiles, &its.reducers, &its.num_slots, &its.places, &its.launches,
                      &its.launches_before, &its.seed, &its.rows) == 15) {
        set_up();
        unsigned long long sofar = 0xcbf29ce484222325ull;
        for (run.launch = 0; run.launch < its.launches; ++run.launch) {
            const std::string wrong = launch();
            if (!wrong.empty()) {
                std::printf("launch %d: %s\n", run.launch + 1, wrong.c_str());
                return 0;
            }
            sofar = digest(sofar, run.c);
        }
        std::printf("ok %016llx\n", sofar);
    }
}
