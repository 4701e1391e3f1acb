// C[m, n] = A[m, k] x B on Hopper's tensor cores (sm_90a): one warp copies boxes of A and B
// into a ring of stages (TMA), warpgroups multiply them (wgmma), and results leave through
// shared memory (TMA).  B is stored [n, k] (layout tn) or [k, n] (nn).
//
// Two teams take the tiles of a CTA in turn, so that one multiplies while the other stores
// its tile or meets other CTAs' partial sums; or one team of several warpgroups takes all.
// Without specialisation no warp copies: the team's first thread starts the copies of a
// unit's k_iters, STAGES - 1 of them ahead, and none before the unit is its turn.
//
// A pair of CTAs has neighbouring tiles in every round.  Where they lie in one column of C,
// each copies its A and half of B, and sends that half to both.  Their stages go in step: one
// is free when the warps of both have left it, whether B was shared or not.  Where the
// number of tiles is odd, one CTA has a last round alone, and stands in for the other.
//
// The tensor cores' rows come in blocks of 64, their columns in eights.  Their rows are those of
// C; or its columns, where the tile is TURNED, so that either side can be any multiple of 8.
//
// -D: TILE_M TILE_N TILE_K  TEAMS  GROUPS (warpgroups of a team, next to one another along the
//     tensor cores' rows)  STAGES  TURNED  STORE_BUFFERS (of each warp, or each warpgroup if TURNED)  DTYPE (0 bf16, 1 fp16)
//     LAYOUT (0 tn, 1 nn)  SCHEDULE (schedule.cuh)  REDUCTION (fixup.cuh)
//     WORK (1: tiles of unequal k, as `work` says)  PROBE (trace.cuh)
//     HAS_ADDERS (1: three warps beside the copier add a CTA's share of partial sums)
//     SPECIALISED (0: no warp of its own copies; one team, FIXED or PERSISTENT)
//     CLUSTER (2: pairs of CTAs; FIXED or PERSISTENT, an even grid)
// map_a, map_b, map_c: A, B and C as the driver encodes them, in boxes of what is copied or
// stored at once (tensor_maps.py).  Rows start at multiples of 16 bytes; elements beyond m, n, k are
// neither read nor written.
#ifndef SPECIALISED
#define SPECIALISED 1
#endif

#ifndef CLUSTER
#define CLUSTER 1
#endif

#ifndef TURNED
#define TURNED 0
#endif

constexpr int WARPGROUP = 128;
#define WORKERS (GROUPS * 128)  // of a team

#include "hopper.cuh"
#include "loop.cuh"
#include "output.cuh"

using namespace wavescope;

constexpr int MULTIPLIERS = TEAMS * WORKERS;
constexpr int THREADS =
    MULTIPLIERS + (SPECIALISED ? WARPGROUP : 0);      // the last warpgroup: one warp copies, three may add partial sums
constexpr int COPIER = SPECIALISED ? MULTIPLIERS : 0;  // the thread that copies
constexpr int ADDERS = 3;
constexpr bool TN = LAYOUT == 0;
constexpr int ROWS = TURNED ? TILE_N : TILE_M, COLUMNS = TURNED ? TILE_M : TILE_N;
constexpr int GROUP_ROWS = ROWS / GROUPS, BLOCKS = GROUP_ROWS / 64;  // wgmma is 64 x COLUMNS x 16
// Accumulators of a thread: those of a block, to which nothing is added up to whole pieces (fixup.cuh).
constexpr int SUMS = COLUMNS / 2, PIECES_BLOCK = (COLUMNS + 31) / 32, FLOATS = BLOCKS * PIECES_BLOCK * 16;
using Sums = float[BLOCKS][PIECES_BLOCK * 16];
constexpr int STEPS = TILE_K / 16;
constexpr int BOXES_B = TN ? CLUSTER : (TILE_N + 63) / 64;  // one for each of a pair; of 64 columns where rows run along n
constexpr int BYTES_A = TILE_M * TILE_K * 2, BYTES_B = TN ? TILE_N * TILE_K * 2 : BOXES_B * 64 * TILE_K * 2;
constexpr int BYTES_STAGE = BYTES_A + BYTES_B;
constexpr bool IN_STEP = CLUSTER > 1 && !WORK;  // tiles of unequal k are not copied for two
constexpr int COLUMNS_B = 64, BYTES_BOX_B = COLUMNS_B * TILE_K * 2;
// What is stored at once, always with 64 columns of C side by side: a warp's 16 rows, or 32 columns of a warpgroup's
// block where the tile is turned.
constexpr int BOX_C = TURNED ? 32 : 64, BYTES_BOX_C = BOX_C * (TURNED ? 64 : 16) * 2;
constexpr bool ADD_SHARES = is_cooperative(SCHEDULE) && HAS_ADDERS;
[[maybe_unused]] constexpr bool NAMES_RECORDS = SPECIALISED && !splits_tiles(SCHEDULE);
constexpr bool ANNOUNCES = SCHEDULE == DYNAMIC || TEAMS > 1;  // the copier says whose turn it is

static_assert(TILE_K == 64, "a row of a stage is one swizzled line of 128 bytes");
static_assert(ROWS % (64 * GROUPS) == 0 && COLUMNS % 8 == 0 && COLUMNS >= BOX_C, "what wgmma takes, and a box of C");
static_assert(TILE_M <= 256 && TILE_N <= 256, "one box of A, and of B");
static_assert(SPECIALISED || (TEAMS == 1 && (SCHEDULE == FIXED || SCHEDULE == PERSISTENT)), "who else would draw");
static_assert(CLUSTER == 1 || CLUSTER == 2, "pairs");
static_assert(CLUSTER == 1 || (SPECIALISED && TEAMS == 1 && (SCHEDULE == FIXED || SCHEDULE == PERSISTENT)),
              "both of a pair know each other's units");
static_assert(BOXES_B % CLUSTER == 0 && TILE_N % (8 * CLUSTER) == 0, "halves of B, of whole swizzled boxes");
static_assert(TN || !TURNED || GROUP_ROWS % COLUMNS_B == 0, "whole boxes of B are blocks of rows");
static_assert(STAGES >= 2 && STORE_BUFFERS >= 1, "a stage is read while the next one comes");

// Registers of a thread, from the pool that __launch_bounds__ sets for all warpgroups together.
constexpr int MULTIPLYING_GROUPS = TEAMS * GROUPS;
constexpr int COPIER_REGISTERS = MULTIPLYING_GROUPS == 3 ? (ADD_SHARES ? 56 : 32) : ADD_SHARES ? 72 : 40;
constexpr int MULTIPLIER_REGISTERS = MULTIPLYING_GROUPS == 3 ? (ADD_SHARES ? 152 : 160) : ADD_SHARES ? 216 : 232;

// Barriers of the CTA (hopper.cuh, meet_at): 0 all, then each team's (memory.cuh), that of all teams, each warpgroup's.
constexpr int ALL_TEAMS = 1 + TEAMS, WARPGROUPS = ALL_TEAMS + 1;

// What the copying warp and those who multiply say to each other.
struct Ring {
    unsigned long long full[TEAMS][STAGES], empty[STAGES];
    unsigned long long announced[2], taken[2];  // turns: of even and of odd rounds
    int ticket[2], stage[2];                    // number of the shared counter; the unit's first stage
    unsigned long long part_left, share_added;  // for those who add a share of partial sums meanwhile
    unsigned int waited[STAGES];  // cycles the copier waited in the unit that ends with this stage
    unsigned int* error;          // the workspace's word for a launch that failed
};
__shared__ Ring ring;

// Where one of them stands in the ring, and the parity of the phase of each stage's barrier that it waits for next.
// A team's own barriers move on with its own units only: it sees no phase that it has not waited for.
struct Place {
    int stage;
    unsigned int parities;
};

__device__ __forceinline__ unsigned int parity(const Place& at) { return at.parities >> at.stage & 1; }

__device__ __forceinline__ void advance(Place& at) {
    at.parities ^= 1u << at.stage;
    if (++at.stage == STAGES) at.stage = 0;
}

// Until the phase is over.  A launch that waits in vain fails, and does not hang.  (Not by a trap: with one the
// assembler takes no more registers than the launch bounds leave, whatever setmaxnreg says.)
__device__ __forceinline__ void wait_for(unsigned int barrier, unsigned int parity) {
    for (int tries = 0; !try_wait(barrier, parity); ++tries)
        if (tries == 1 << 25) {
            *static_cast<volatile unsigned int*>(ring.error) = 1;
            return;
        }
}

// The same; the cycles it took, where they are recorded.
__device__ __forceinline__ unsigned int timed_wait(unsigned int barrier, unsigned int parity) {
#if PROBE
    if (test_wait(barrier, parity)) return 0;
    unsigned int begin, end;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(begin)::"memory");
    wait_for(barrier, parity);
    asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
    return end - begin;
#else
    wait_for(barrier, parity);
    return 0;
#endif
}

// Barriers of a stage, from the address of the Ring.
__device__ __forceinline__ unsigned int full(unsigned int ring_at, int of_team, int stage) {
    return ring_at + (of_team * STAGES + stage) * 8;
}
__device__ __forceinline__ unsigned int empty(unsigned int ring_at, int stage) {
    return ring_at + (TEAMS * STAGES + stage) * 8;
}

// A team learns from the copier where the unit of a round is in the ring, and its ticket.  One thread of each warp reads
// for all of it: who arrives is who has read.
__device__ __forceinline__ int take_turn(int round, Place& at) {
    const int turn = round % 2;
    int ticket = 0, stage = 0;
    wait_for(shared_address(&ring.announced[turn]), round / 2 & 1);
    if (threadIdx.x % 32 == 0) {
        ticket = *static_cast<volatile int*>(&ring.ticket[turn]);
        stage = *static_cast<volatile int*>(&ring.stage[turn]);
        arrive(shared_address(&ring.taken[turn]));
    }
    at.stage = __shfl_sync(~0u, stage, 0);
    return __shfl_sync(~0u, ticket, 0);
}

__device__ __forceinline__ void announce(int round, int ticket, const Place& at) {
    const int turn = round % 2;
    wait_for(shared_address(&ring.taken[turn]), (round / 2 & 1) ^ 1);
    *static_cast<volatile int*>(&ring.ticket[turn]) = ticket;
    *static_cast<volatile int*>(&ring.stage[turn]) = at.stage;
    arrive(shared_address(&ring.announced[turn]));
}

struct Helpers {
    static constexpr bool ADD_SHARES = ::ADD_SHARES, NAME_RECORDS = SPECIALISED, TEAM_COPIES = false;
    static constexpr int READS = MULTIPLYING_GROUPS == 3 ? 16 : 32;
    static constexpr bool END_WITH_UNIT = CLUSTER == 1;
    Place* at;

    // The copier has drawn the number while the round before was multiplied.
    __device__ __forceinline__ int draw(int round, int*, const Plan&, int*) const {
        return take_turn(round, *at);
    }
    __device__ __forceinline__ void part_is_left() const {
        if (ADD_SHARES && threadIdx.x % 32 == 0) arrive(shared_address(&ring.part_left));
    }
    __device__ __forceinline__ void wait() const {
        wait_boxes_stored();
        if (CLUSTER > 1) meet_cluster();
        if (ADD_SHARES) wait_for(shared_address(&ring.share_added), 0);
        if (TEAMS > 1 && (splits_tiles(SCHEDULE) || PROBE)) meet_at(ALL_TEAMS, MULTIPLIERS);
    }
};

__device__ __forceinline__ int draw_ticket(int* counter, const Plan& plan) {
    const int ticket = atomicAdd(counter, 1);
    // every CTA draws one ticket too many; who draws the last of all leaves 0 behind
    if (ticket == num_tiles(plan.grid) + static_cast<int>(gridDim.x) - 1) atomicExch(counter, 0);
    return ticket;
}

#if PROBE
__device__ __forceinline__ void name_records(Record* records, const Unit& unit, int of_team, unsigned int waited) {
    Record* const record = record_of<SCHEDULE>(records, unit, PART_MAC);
    record_name(record, KIND_MAC, span_of(unit), of_team);
    record_name(record + PART_EPILOGUE, KIND_EPILOGUE, span_of(unit), of_team, waited);
}
#endif

// The unit that the other CTA of a pair has in the same round, if it has one.
__device__ __forceinline__ bool unit_of_peer(const TileGrid& grid, const Unit& unit, Unit* peers) {
    const int index = unit.index ^ 1;  // the grid is even, and the first CTA of a pair has the even tile
    *peers = whole_tile(grid, index, index);
    return index < num_tiles(grid);
}

// Half `half` of a k_iter's B (all of it without a pair), for this CTA or for both.
template <bool FOR_BOTH>
__device__ __forceinline__ void copy_half(const TensorMap& map_b, int half, int k, int n, unsigned int arrived,
                                          unsigned int to) {
    constexpr int BOXES = BOXES_B / CLUSTER, BYTES_BOX = BYTES_B / BOXES_B;
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
        const int at = half * BOXES + box, along_n = n + at * (TN ? TILE_N / CLUSTER : COLUMNS_B);
        const int x = TN ? k : along_n, y = TN ? along_n : k;
        if constexpr (FOR_BOTH)
            copy_box_to((1 << CLUSTER) - 1, to + at * BYTES_BOX, map_b, x, y, arrived);
        else
            copy_box(to + at * BYTES_BOX, map_b, x, y, arrived);
    }
}

// The operands of a k_iter, into a free stage; `is_shared`: half of B comes from the other CTA of the pair.
__device__ __forceinline__ void copy_stage(const TensorMap& map_a, const TensorMap& map_b, const Unit& unit, int k_iter,
                                           unsigned int arrived, unsigned int to, bool is_shared) {
    const int m = unit.tile_m * TILE_M, n = unit.tile_n * TILE_N, k = k_iter * TILE_K;
    arrive_expecting(arrived, BYTES_STAGE);
    copy_box(to, map_a, k, m, arrived);
    if (IN_STEP && is_shared) {
        copy_half<true>(map_b, blockIdx.x % CLUSTER, k, n, arrived, to + BYTES_A);
    } else {
#pragma unroll
        for (int half = 0; half < CLUSTER; ++half) copy_half<false>(map_b, half, k, n, arrived, to + BYTES_A);
    }
}

// One thread: all boxes of all units of the CTA, as stages become free.
__device__ __forceinline__ void copy_units(const Plan& plan, const TensorMap& map_a, const TensorMap& map_b,
                                           unsigned int ring_at, unsigned int stages, int* counter,
                                           const TileWork* work, Record* records) {
    Place at{0, ~0u};  // every stage is empty
    Unit unit;
    for (int round = 0, ticket = 0;; ++round) {
        if (SCHEDULE == DYNAMIC) ticket = draw_ticket(counter, plan);
        const bool is_over = !next_unit(SCHEDULE, plan, blockIdx.x, round, ticket, &unit);
        if (ANNOUNCES && (SCHEDULE == DYNAMIC || !is_over)) announce(round, ticket, at);
        if (is_over) {
            if (SCHEDULE == DYNAMIC && TEAMS > 1) announce(round + 1, ticket, at);  // the other team ends as well
            break;
        }
        if (WORK) unit = unit_of_work(plan.grid, work[unit.index], unit.index);
        Unit peers;
        const bool is_shared = IN_STEP && unit_of_peer(plan.grid, unit, &peers) && peers.tile_n == unit.tile_n;
        unsigned int waited = 0;
#pragma unroll 1
        for (int k_iter = unit.k_begin; k_iter < unit.k_end; ++k_iter) {
            waited += timed_wait(empty(ring_at, at.stage), parity(at));
#if PROBE
            if (!NAMES_RECORDS && k_iter == unit.k_end - 1)
                *static_cast<volatile unsigned int*>(&ring.waited[at.stage]) = waited;
#endif
            copy_stage(map_a, map_b, unit, k_iter, full(ring_at, round % TEAMS, at.stage),
                       stages + at.stage * BYTES_STAGE, is_shared);
            advance(at);
        }
#if PROBE
        if (NAMES_RECORDS) name_records(records, unit, round % TEAMS, waited);
#endif
    }
    // All warps of the pair have arrived at this CTA's barriers, and what was sent to it was read: it may go.
    for (int stage = 0; IN_STEP && stage < STAGES; ++stage) {
        wait_for(empty(ring_at, at.stage), parity(at));
        advance(at);
    }
}

// `also_in`: the CTA of the pair whose barrier each warp also arrives at: the other one, or its own, which then stands in
// for the other.
__device__ __forceinline__ void release_stage(unsigned int ring_at, int stage, unsigned int also_in) {
    if (threadIdx.x % 32 == 0) {
        arrive(empty(ring_at, stage));
        if (IN_STEP) arrive_at(empty(ring_at, stage), also_in);
    }
}

// The products of a k_iter, into acc or onto it.
template <bool FIRST>
__device__ __forceinline__ void multiply_stage(Sums& acc, unsigned int stage) {
    // 64 rows of either operand take as many bytes, whether they run along k or are a box of 64 columns
    constexpr int BYTES_64 = 64 * TILE_K * 2, STEP_A = 32, STEP_B = TN ? 32 : 16 * COLUMNS_B * 2;
    constexpr bool ROWS_ALONG_K = !TURNED || TN, COLUMNS_ALONG_K = TURNED || TN;
    const unsigned int my_rows = worker() / WARPGROUP * BLOCKS * BYTES_64;
    const unsigned long long rows = operand(stage + (TURNED ? BYTES_A : 0) + my_rows, ROWS_ALONG_K, BYTES_BOX_B);
    const unsigned long long columns = operand(stage + (TURNED ? 0 : BYTES_A), COLUMNS_ALONG_K, BYTES_BOX_B);
    products_begin();
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) {
            float(&sums)[SUMS] = reinterpret_cast<float(&)[SUMS]>(acc[i]);
            const unsigned long long of_rows = rows + (step * (TURNED ? STEP_B : STEP_A) + i * BYTES_64 >> 4);
            const unsigned long long of_columns = columns + (step * (TURNED ? STEP_A : STEP_B) >> 4);
            if (FIRST && step == 0)
                multiply<DTYPE, ROWS_ALONG_K, COLUMNS_ALONG_K, false>(sums, of_rows, of_columns);
            else
                multiply<DTYPE, ROWS_ALONG_K, COLUMNS_ALONG_K, true>(sums, of_rows, of_columns);
        }
    products_commit();
}

// The first thread of a team without a copier: starts the copies of the unit's next k_iter, if it has one, into the next
// stage, once all warps have left it.
struct Ahead {
    const TensorMap &map_a, &map_b;
    Place at;    // the next stage
    int k_iter;  // the next k_iter

    __device__ __forceinline__ unsigned int copy_next(const Unit& unit, unsigned int ring_at, unsigned int stages) {
        if (k_iter >= unit.k_end) return 0;
        const unsigned int waited = timed_wait(empty(ring_at, at.stage), parity(at));
        copy_stage(map_a, map_b, unit, k_iter, full(ring_at, 0, at.stage), stages + at.stage * BYTES_STAGE, false);
        advance(at);
        ++k_iter;
        return waited;
    }
};

// The products of a unit, into acc; `ahead` counts where no warp copies.
__device__ __forceinline__ Stalls multiply_unit(Sums& acc, const Unit& unit, unsigned int ring_at, unsigned int stages,
                                                Place& at, Ahead& ahead, unsigned int also_in) {
    Stalls stalls{};
    const bool copies = !SPECIALISED && threadIdx.x == COPIER;
    if (copies) {
        ahead.k_iter = unit.k_begin;
#pragma unroll 1
        for (int stage = 0; stage < STAGES; ++stage) stalls.room += ahead.copy_next(unit, ring_at, stages);
    }
    if (!SPECIALISED) __syncwarp();
    if (WORK && unit.k_begin >= unit.k_end) {
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
            for (int f = 0; f < SUMS; ++f) acc[i][f] = 0.f;
        return stalls;
    }
    stalls.operands += timed_wait(full(ring_at, team(), at.stage), parity(at));
    multiply_stage<true>(acc, stages + at.stage * BYTES_STAGE);
    int before = at.stage;
    advance(at);
#pragma unroll 1
    for (int k_iter = unit.k_begin + 1; k_iter < unit.k_end; ++k_iter) {
        stalls.operands += timed_wait(full(ring_at, team(), at.stage), parity(at));
        multiply_stage<false>(acc, stages + at.stage * BYTES_STAGE);
        products_wait<1>();
        release_stage(ring_at, before, also_in);
        if (copies) stalls.room += ahead.copy_next(unit, ring_at, stages);  // into the stage just released
        if (!SPECIALISED) __syncwarp();
        before = at.stage;
        advance(at);
    }
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int f = 0; f < SUMS; ++f) asm volatile("" : "+f"(acc[i][f])::"memory");
#if PROBE
    if (SPECIALISED && !NAMES_RECORDS && is_recorder())
        stalls.room = *static_cast<volatile unsigned int*>(&ring.waited[before]);
    __syncwarp();
#endif
    release_stage(ring_at, before, also_in);
    return stalls;
}

// Where the 16 rows of warp `warp` in block `block` begin, along the tensor cores' rows.
__device__ __forceinline__ int first_row(const Unit& unit, int warp, int block) {
    return (TURNED ? unit.tile_n : unit.tile_m) * ROWS + warp / 4 * GROUP_ROWS + block * 64 + warp % 4 * 16;
}

// The tile: each warp its own 16 rows, some columns at a time, swizzled as the copy engine expects; or each warpgroup.
// The last of them reach back over some that are stored already.
__device__ __forceinline__ void store_tile(const TensorMap& map_c, const Unit& unit, unsigned int buffers, int& next,
                                           const Sums& acc) {
    const int warp = worker() / 32, lane = threadIdx.x % 32;
    const int first_column = (TURNED ? unit.tile_m : unit.tile_n) * COLUMNS;
    const int whose = threadIdx.x / (TURNED ? WARPGROUP : 32);
    const bool stores = TURNED ? threadIdx.x % WARPGROUP == 0 : lane == 0;
    const auto meet_others = [&] {
        if constexpr (TURNED)
            meet_at(WARPGROUPS + whose, WARPGROUP);
        else
            __syncwarp();
    };
    buffers += whose * STORE_BUFFERS * BYTES_BOX_C;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
#pragma unroll
        for (int j = 0; j < (COLUMNS + BOX_C - 1) / BOX_C; ++j) {
            const int column = j * BOX_C < COLUMNS - BOX_C ? j * BOX_C : COLUMNS - BOX_C;
            const unsigned int buffer = buffers + next * BYTES_BOX_C;
            if (++next == STORE_BUFFERS) next = 0;
            if (stores) wait_boxes_read<STORE_BUFFERS - 1>();
            meet_others();
#pragma unroll
            for (int chunk = 0; chunk < BOX_C / 16; ++chunk) {
                const float* const from = &acc[i][column / 2 + chunk * 8];
                const unsigned int v[4] = {pack_pair<DTYPE>(from[0], from[1]), pack_pair<DTYPE>(from[2], from[3]),
                                           pack_pair<DTYPE>(from[4], from[5]), pack_pair<DTYPE>(from[6], from[7])};
                if constexpr (TURNED)
                    store_transposed(buffer + swizzled<128>(chunk * 16 + lane / 16 * 8 + lane % 8,
                                                            warp % 4 * 2 + lane / 8 % 2), v);
                else
                    store_matrices(buffer + swizzled<128>(lane % 16, chunk * 2 + lane / 16), v);
            }
            show_to_copies();
            meet_others();
            if (stores) {
                const int row = first_row(unit, warp, i), to = first_column + column;
                store_box(map_c, TURNED ? row : to, TURNED ? to : row, buffer);
            }
        }
    }
}

// Piece `part`, of SIZE accumulators a thread, of warp `warp`.
template <int SIZE>
__device__ __forceinline__ void store_part(const Output& o, const Unit& unit, int part, int warp,
                                           const float (&acc)[SIZE]) {
    constexpr int PIECES = PIECES_BLOCK * PIECE / SIZE;  // of a block
    const int row = first_row(unit, warp, part / PIECES), of_tile = TURNED ? unit.tile_m : unit.tile_n;
    const int column = of_tile * COLUMNS + part % PIECES * (2 * SIZE), end = (of_tile + 1) * COLUMNS;
    Output tile = o;  // the last piece of a block may reach beyond the tile
    if (COLUMNS % 32 != 0) (TURNED ? tile.m : tile.n) = min(TURNED ? o.m : o.n, end);
    if constexpr (TURNED)
        store_turned_piece<DTYPE>(tile, column, row, acc);
    else
        store_piece<DTYPE>(tile, row, column, acc);
}

// Three warps: the CTA's share of the partial sums, while the others are at a whole tile.
__device__ __forceinline__ void add_share_meanwhile(const Plan& plan, const Workspace& space, Record* records,
                                                    const Output& output) {
    constexpr int RECORDER = COPIER + 32;
    const int worker = (threadIdx.x - RECORDER) / 32;
    if (adds_own_share(plan) && has_whole_tile(SCHEDULE, plan)) {
        Unit unit;
        next_unit(SCHEDULE, plan, blockIdx.x, 0, 0, &unit);
        const Sharing mine = sharing_of(SCHEDULE, plan, blockIdx.x, unit);
        const int num_ctas = static_cast<int>(gridDim.x);
        const Fixup<FLOATS, WORKERS> sums{space, static_cast<int>(threadIdx.x), num_ctas, launch_number(space, num_ctas)};
        wait_for(shared_address(&ring.part_left), 0);
        add_own_share<SCHEDULE, 1, Helpers::READS / 2>(
            sums, unit, mine, worker, ADDERS, [&] { sums.wait_as_warp(mine.first_slot, mine.peers); }, records, RECORDER,
            [&](const Unit& whole, int part, int warp, const auto& v) { store_part(output, whole, part, warp, v); });
        __syncwarp();
        end_span<SCHEDULE>(records, unit, PART_EPILOGUE, KIND_FIXUP, 0, RECORDER);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(shared_address(&ring.share_added));
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
gemm_sm90(const char*, const char*, unsigned short* __restrict__ c, int m, int n, int k, int, int, int ldc,
          int raster_group, int parts, int split_tiles, int reducers, int* counter, float4* partials, unsigned int* sync,
          int num_slots, Record* records, const TileWork* __restrict__ work, const __grid_constant__ TensorMap map_a,
          const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_c) {
    extern __shared__ unsigned char memory[];
    const auto grid_of = [&] {
        return TileGrid{(opaque(m) + TILE_M - 1) / TILE_M, (opaque(n) + TILE_N - 1) / TILE_N,
                        (opaque(k) + TILE_K - 1) / TILE_K, raster_group};
    };
    // the swizzle looks at addresses
    const unsigned int ring_at = opaque(static_cast<int>(shared_address(&ring)));
    const unsigned int stages = opaque(static_cast<int>(shared_address(memory) + 1023 & ~1023u));
    const Workspace space{partials, sync, num_slots};
    const Output output{c, m, n, ldc};
    if (threadIdx.x == COPIER) {
        prefetch_map(map_a);
        prefetch_map(map_b);
        prefetch_map(map_c);
        ring.error = sync + SYNC_ERROR;
        for (int stage = 0; stage < STAGES; ++stage) {
            for (int of_team = 0; of_team < TEAMS; ++of_team) barrier_init(full(ring_at, of_team, stage), 1);
            barrier_init(empty(ring_at, stage), WORKERS / 32 * (IN_STEP ? CLUSTER : 1));
        }
        for (int turn = 0; turn < 2; ++turn) {
            barrier_init(shared_address(&ring.announced[turn]), 1);
            barrier_init(shared_address(&ring.taken[turn]), WORKERS / 32);
        }
        barrier_init(shared_address(&ring.part_left), WORKERS / 32);
        barrier_init(shared_address(&ring.share_added), ADDERS);
        barriers_are_ready();
    }
    if constexpr (CLUSTER > 1)
        meet_cluster();  // the other CTA of the pair may arrive now, and send
    else
        __syncthreads();
    if (SPECIALISED && threadIdx.x >= MULTIPLIERS) {
        if constexpr (MULTIPLYING_GROUPS > 1) give_registers<COPIER_REGISTERS>();
        const Plan plan{grid_of(), static_cast<int>(gridDim.x), parts, split_tiles, reducers};
        if (threadIdx.x == COPIER)
            copy_units(plan, map_a, map_b, ring_at, stages, counter, work, records);
        else if (ADD_SHARES && threadIdx.x >= COPIER + 32)
            add_share_meanwhile(plan, space, records, output);
        if (CLUSTER > 1) meet_cluster();  // the CTA has lived as long as its copier
        return;
    }
    if constexpr (SPECIALISED && MULTIPLYING_GROUPS > 1) take_registers<MULTIPLIER_REGISTERS>();
    Sums acc;
    if constexpr (COLUMNS % 32 != 0) {
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
            for (int f = SUMS; f < PIECES_BLOCK * 16; ++f) acc[i][f] = 0.f;
    }
    float(&flat)[FLOATS] = reinterpret_cast<float(&)[FLOATS]>(acc);
    Place at{0, 0};
    Ahead ahead{map_a, map_b, Place{0, ~0u}, 0};  // every stage is empty
    int buffer = 0, round = team();
    run_units<SCHEDULE, WORKERS, Helpers>(
        grid_of, parts, split_tiles, reducers, counter, space, records, flat,
        [&](const Unit& unit) {
            if constexpr (TEAMS > 1) {
                if (SCHEDULE != DYNAMIC) take_turn(round, at);
                round += TEAMS;
                if (unit.k_begin < unit.k_end) wait_for(full(ring_at, team(), at.stage), parity(at));  // the team's turn has come
                begin_span<SCHEDULE>(records, unit, PART_MAC);
            }
            unsigned int also_in = 0;
            if constexpr (IN_STEP) {
                Unit peers;
                also_in = blockIdx.x % CLUSTER ^ (unit_of_peer(grid_of(), unit, &peers) ? 1 : 0);
            }
            const Stalls stalls = multiply_unit(acc, unit, ring_at, stages, at, ahead, also_in);
            if (splits_tiles(SCHEDULE) || TEAMS > 1) team_barrier();  // the loop has left there what comes next
            return stalls;
        },
        [&](const Unit& unit) { store_tile(map_c, unit, stages + STAGES * BYTES_STAGE, buffer, acc); },
        [&](const Unit& unit, int part, int warp, const auto& sums) { store_part(output, unit, part, warp, sums); },
        work, Helpers{&at});
}
