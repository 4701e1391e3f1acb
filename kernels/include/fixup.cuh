// How the partial sums of a tile that several CTAs share meet.
//
// ordered, one owner: units of rank > 0 leave their sums in the workspace and raise a flag;
//     the unit of rank 0 waits for all flags, adds in the order of k (streamk, hybrid: from
//     the last k to the first) and stores the tile.
// ordered, cooperative: all units leave their sums and raise flags; when a CTA has done its
//     whole tiles, it waits for the flags of those that share its tile and adds a share of
//     all sums, in the order of k, which it stores.
//     Or CTAs that had no part and so are done earlier add all of them.
// atomic, one owner: all units add to one slot; who comes last takes the sum out, and leaves
//     zeros.  atomic, cooperative: they add to one slot, and each takes a share out.
//
// Flags hold the number of the launch, so nothing is cleared between launches.
#pragma once

#include "memory.cuh"
#include "schedule.cuh"

#ifndef WS_DEVICE
#define WS_DEVICE __device__ __forceinline__
#endif

namespace wavescope {

enum ReductionKind { ORDERED = 0, ATOMIC = 1 };

constexpr unsigned long long SPIN_LIMIT_NS = 2000000000ull;  // then the launch counts as failed
constexpr int SYNC_ENDED = 0, SYNC_ERROR = 1, SYNC_FLAGS = 2;  // words of `sync`; after the flags, arrivals

// partials: num_slots tiles, FLOATS of each thread, four by four, next to those of its
// neighbours.  sync: SYNC_FLAGS + 2 * num_slots words, 0 before the first launch.
struct Workspace {
    float4* partials;
    unsigned int* sync;
    int num_slots;
};

// The number of this launch: 1 for the first, and another than any that flags still hold.  Who asks early does not wait
// for the answer later; no CTA counts itself as ended before it has asked for the last time.
WS_DEVICE unsigned int launch_number(const Workspace& space, int num_ctas) {
    return relaxed(space.sync + SYNC_ENDED) / num_ctas + 1;
}

// A warp's sixteen floats of each thread: what one warp adds and stores at a time.  Or four, where half of the warps
// would have no piece of sixteen.
constexpr int PIECE = 16, SMALL_PIECE = 4;

template <int FLOATS, int THREADS>
struct Fixup {
    static_assert(FLOATS % PIECE == 0 && THREADS % 32 == 0, "whole pieces of whole warps");
    static constexpr int FOURS = FLOATS / 4, WARPS = THREADS / 32, PIECES = FLOATS / PIECE * WARPS;

    Workspace space;
    int thread, num_ctas;
    unsigned int number;  // of this launch (launch_number)

    WS_DEVICE float4* slot(int index) const { return space.partials + static_cast<long long>(index) * FOURS * THREADS; }

    // The last thing a CTA does.
    WS_DEVICE void end() const {
        if (thread == 0) count(space.sync + SYNC_ENDED, 0xffffffffu / num_ctas * num_ctas - 1);
    }

    // acc, into a slot, or onto what others add there.  Others may read it once its flag is up.
    template <bool ADD>
    WS_DEVICE void leave(const float (&acc)[FLOATS], int index) const {
        float4* const to = slot(index) + thread;
#pragma unroll
        for (int f = 0; f < FOURS; ++f) {
            const float4 v = make_float4(acc[4 * f], acc[4 * f + 1], acc[4 * f + 2], acc[4 * f + 3]);
            if constexpr (ADD)
                add_l2(to + f * THREADS, v);
            else
                store_l2(to + f * THREADS, v);
        }
        team_barrier();
    }

    // After leave(): what was left in the slot, or for it, may be read.
    WS_DEVICE void raise(int index) const {
        if (thread == 0) release(space.sync + SYNC_FLAGS + index, number);
    }

    // Until the sums of `count` slots are there, the first one being `first`.
    WS_DEVICE void wait(int first, int count) const {
        for (int index = thread; index < count; index += THREADS) spin(space.sync + SYNC_FLAGS + first + index);
        team_barrier();
    }

    // The same for each warp by itself.
    WS_DEVICE void wait_as_warp(int first, int count) const {
        for (int index = thread % 32; index < count; index += 32) spin(space.sync + SYNC_FLAGS + first + index);
        warp_barrier();
    }

    WS_DEVICE void spin(const unsigned int* flag) const {
        unsigned int* const error = space.sync + SYNC_ERROR;
        for (unsigned long long begin = 0; acquire(flag) != number;) {
            const unsigned long long now = now_ns();
            if (begin == 0) begin = now;
            if (now - begin < SPIN_LIMIT_NS / 100) continue;
            if (now - begin > SPIN_LIMIT_NS) release(error, 1);
            if (acquire(error) != 0) return;  // another gave up: the launch has failed
        }
    }

    // acc += the sums of `count` slots, one after the other.
    WS_DEVICE void add(float (&acc)[FLOATS], int first, int count) const {
        for (int index = 0; index < count; ++index) {
            const float4* const from = slot(first + index) + thread;
#pragma unroll
            for (int f = 0; f < FOURS; ++f) {
                const float4 v = load_l2(from + f * THREADS);
                acc[4 * f] += v.x, acc[4 * f + 1] += v.y, acc[4 * f + 2] += v.z, acc[4 * f + 3] += v.w;
            }
        }
    }

    // A unit's share of the tile: every peers-th piece, summed over `slots` slots and stored, by
    // `workers` warps of which this is number `worker`, each AT_ONCE pieces at a time; CLEAR: zeros remain.
    // READS: 16-byte loads that a thread has registers for, all under way at once.
    // store(piece of the accumulators, warp whose piece it is, the sums)
    template <bool CLEAR, int AT_ONCE, int READS, typename Store>
    WS_DEVICE void add_share(const Sharing& mine, int slots, int worker, int workers, Store store) const {
        const int apart = mine.peers * workers;
        int piece = mine.rank * workers + worker;
        if constexpr (AT_ONCE > 1) {  // those who take single pieces work beside a whole tile, and have the time
            if (2 * PIECES <= apart) {
                for (; piece < PIECES * (PIECE / SMALL_PIECE); piece += apart)
                    add_pieces<1, SMALL_PIECE, CLEAR, READS>(mine.first_slot, slots, piece, apart, store);
                return;
            }
            for (; piece + (AT_ONCE - 1) * apart < PIECES; piece += AT_ONCE * apart)
                add_pieces<AT_ONCE, PIECE, CLEAR, READS>(mine.first_slot, slots, piece, apart, store);
        }
        for (; piece < PIECES; piece += apart)
            add_pieces<1, PIECE, CLEAR, READS>(mine.first_slot, slots, piece, apart, store);
    }

    // All pieces of `tiles` tiles, `peers` slots each, dealt to the warps of `reducers` CTAs of which this is number
    // `reducer`.  first_is_there() is called once, when the first flags were seen.
    // store(tile, piece of the accumulators, warp whose piece it is, the sums)
    template <bool CLEAR, int READS, typename FirstIsThere, typename Store>
    WS_DEVICE void add_all(int tiles, int peers, int reducer, int reducers, FirstIsThere first_is_there,
                           Store store) const {
        const int total = tiles * PIECES, warps = reducers * WARPS, warp = reducer * WARPS + thread / 32;
        const int end = share_begin(total, warps, warp + 1);
        int seen = -1;  // the tile whose flags are known to be up
        for (int item = share_begin(total, warps, warp), count; item < end; item += count) {
            const int tile = item / PIECES, first_slot = tile * peers, slots = CLEAR ? 1 : peers;
            if (tile != seen) {
                wait_as_warp(first_slot, peers);
                if (seen < 0) first_is_there();
                seen = tile;
            }
            const auto store_here = [&](int part, int of_warp, const auto& sums) { store(tile, part, of_warp, sums); };
            count = item + 1 < end && (item + 1) % PIECES != 0 ? 2 : 1;
            if (count == 2)
                add_pieces<2, PIECE, CLEAR, READS>(first_slot, slots, item % PIECES, 1, store_here);
            else
                add_pieces<1, PIECE, CLEAR, READS>(first_slot, slots, item % PIECES, 1, store_here);
        }
    }

    // COUNT pieces of SIZE floats, slot by slot, with as many as READS loads under way at once.
    template <int COUNT, int SIZE, bool CLEAR, int READS, typename Store>
    WS_DEVICE void add_pieces(int first_slot, int slots, int first, int apart, Store store) const {
        float sums[COUNT][SIZE] = {};
        float4* from[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const int piece = first + i * apart;
            from[i] = slot(first_slot) + piece / WARPS * (SIZE / 4) * THREADS + piece % WARPS * 32 + thread % 32;
        }
        add_slots<READS * 4 / (COUNT * SIZE), CLEAR>(sums, from, slots);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) store((first + i * apart) / WARPS, (first + i * apart) % WARPS, sums[i]);
    }

    // sums += `slots` slots, so many at a time; of the rest half as many, and so on.
    template <int AT_ONCE, bool CLEAR, int COUNT, int SIZE>
    WS_DEVICE void add_slots(float (&sums)[COUNT][SIZE], float4* (&from)[COUNT], int slots) const {
#pragma unroll 1
        for (; slots >= AT_ONCE; slots -= AT_ONCE) {
#pragma unroll
            for (int s = 0; s < AT_ONCE; ++s) {
#pragma unroll
                for (int i = 0; i < COUNT; ++i) {
#pragma unroll
                    for (int f = 0; f < SIZE / 4; ++f) {
                        const float4 v = load_l2(from[i] + f * THREADS);
                        float* const sum = &sums[i][4 * f];
                        sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
                        if constexpr (CLEAR) store_l2(from[i] + f * THREADS, make_float4(0.f, 0.f, 0.f, 0.f));
                    }
                    from[i] += FOURS * THREADS;
                }
            }
        }
        if constexpr (AT_ONCE > 1) add_slots<AT_ONCE / 2, CLEAR>(sums, from, slots);
    }

    // The sum so far and acc, in the tile's first slot; true for the CTA that finds the sum complete, in acc.
    // is_last: a word of shared memory.
    WS_DEVICE bool merge(float (&acc)[FLOATS], const Sharing& mine, Shared<int>* is_last) const {
        float4* const sum = slot(mine.first_slot) + thread;
        leave<true>(acc, mine.first_slot);
        if (thread == 0) {
            unsigned int* const arrivals = space.sync + SYNC_FLAGS + space.num_slots + mine.first_slot;
            *is_last = count_up(arrivals, mine.peers - 1) == static_cast<unsigned int>(mine.peers - 1);
        }
        team_barrier();
        if (!*is_last) return false;
#pragma unroll
        for (int f = 0; f < FOURS; ++f) {
            const float4 v = load_l2(sum + f * THREADS);
            acc[4 * f] = v.x, acc[4 * f + 1] = v.y, acc[4 * f + 2] = v.z, acc[4 * f + 3] = v.w;
            store_l2(sum + f * THREADS, make_float4(0.f, 0.f, 0.f, 0.f));
        }
        return true;
    }
};

}  // namespace wavescope
