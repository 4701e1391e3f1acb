// Who computes what.  Integer arithmetic on arguments only (no blockIdx, no memory), so
// that the host compiler takes it too; the tests compare it with wavescope/schedule.py.
#pragma once

#if defined(__CUDACC__)
#define WS_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define WS_HOST_DEVICE inline
#endif

namespace wavescope {

enum ScheduleKind { FIXED = 0, PERSISTENT = 1, DYNAMIC = 2, SPLITK = 3, STREAMK = 4, HYBRID = 5, TAILSPLIT = 6 };

// The schedules that may cut tiles along k.
WS_HOST_DEVICE constexpr bool splits_tiles(int schedule) { return schedule >= SPLITK; }

// All units of a cut tile add a share of the partial sums, instead of one that adds all.
WS_HOST_DEVICE constexpr bool is_cooperative(int schedule) { return schedule == TAILSPLIT; }

// A problem cut into tiles.  raster_group: tile rows walked together, column by column
// (1 = row by row, tiles_m = column by column).
struct TileGrid {
    int tiles_m, tiles_n, k_iters, raster_group;
};

// What the host chose: the first split_tiles tiles are cut, into `parts` each or into one
// share for each CTA.  TAILSPLIT: the last `reducers` CTAs, which have no part, add all
// partial sums; 0: those who have the parts do.
struct Plan {
    TileGrid grid;
    int num_ctas, parts, split_tiles, reducers;
};

// Tiles that are cut by TAILSPLIT and whose parts run side by side, all at the same k, so that neighbours share
// their reads: as many as half of the CTAs compute.  No more CTAs than these wait for one another, unless one tile has more.
WS_HOST_DEVICE int tiles_together(const Plan& plan) {
    const int tiles = plan.num_ctas / 2 / plan.parts;
    return tiles > 1 ? tiles : 1;
}

// One unit: a tile, or a k-range [k_begin, k_end) of one, in k_iters; `tile` is its number
// in raster order.
struct Unit {
    int index, tile, tile_m, tile_n, k_begin, k_end;
};

// `peers` units share a tile; their partial sums have the slots first_slot, first_slot + 1,
// ... of the workspace, a unit's own is first_slot + rank.
struct Sharing {
    int first_slot, rank, peers;
};

WS_HOST_DEVICE int num_tiles(const TileGrid& grid) { return grid.tiles_m * grid.tiles_n; }

// Where a share of `total` begins: equal shares, the first ones longer by one.
WS_HOST_DEVICE int share_begin(int total, int shares, int index) {
    const int longer = total % shares;
    return index * (total / shares) + (index < longer ? index : longer);
}

// The share that holds `at`: inverse of share_begin; total >= shares.
WS_HOST_DEVICE int share_of(int total, int shares, int at) {
    const int length = total / shares, longer = total % shares;
    const int within = longer * (length + 1);
    return at < within ? at / (length + 1) : longer + (at - within) / length;
}

// All of the tile that is number `tile` in raster order.
WS_HOST_DEVICE Unit whole_tile(const TileGrid& grid, int tile, int index) {
    const int band = grid.raster_group * grid.tiles_n;  // tiles in a full group of rows
    const int first_m = tile / band * grid.raster_group;
    const int rows_left = grid.tiles_m - first_m;
    const int rows = rows_left < grid.raster_group ? rows_left : grid.raster_group;
    const int within = tile % band;
    return Unit{index, tile, first_m + within % rows, within / rows, 0, grid.k_iters};
}

// What irregular work makes of a unit: its tile's number in raster order, and its k_iters.
struct alignas(8) TileWork {
    int tile, k_end;
};

WS_HOST_DEVICE Unit unit_of_work(const TileGrid& grid, const TileWork& work, int index) {
    Unit unit = whole_tile(grid, work.tile, index);
    unit.k_end = work.k_end;
    return unit;
}

// Part `part` of the `parts` of a tile.
WS_HOST_DEVICE Unit part_of_tile(const Plan& plan, int tile, int part, int index) {
    Unit unit = whole_tile(plan.grid, tile, index);
    unit.k_begin = share_begin(plan.grid.k_iters, plan.parts, part);
    unit.k_end = share_begin(plan.grid.k_iters, plan.parts, part + 1);
    return unit;
}

// The round-th piece of a CTA's share of all k_iters of the cut tiles; `pieces`: how many
// there are.  Shares are dealt from the last CTA to the first, and a CTA ends with the tile
// that others have begun for it: it waits for CTAs of smaller index only.  Tiles are walked
// from their last k_iter to the first, so that all CTAs begin at k 0, or where their share of
// a tile begins: side by side they then go through k together, and share their reads.
WS_HOST_DEVICE bool piece_of_share(const Plan& plan, int cta, int round, int* pieces, Unit* unit) {
    const int k_iters = plan.grid.k_iters, total = plan.split_tiles * k_iters, share = plan.num_ctas - 1 - cta;
    const int begin = share_begin(total, plan.num_ctas, share), end = share_begin(total, plan.num_ctas, share + 1);
    const int first_tile = begin / k_iters;
    *pieces = (end - 1) / k_iters - first_tile + 1;
    if (round >= *pieces) return false;
    const int tile = first_tile + round, tile_begin = tile * k_iters, tile_end = tile_begin + k_iters;
    const int first = (begin > tile_begin ? begin : tile_begin) - tile_begin;
    const int last = (end < tile_end ? end : tile_end) - tile_begin;
    *unit = whole_tile(plan.grid, tile, tile + share);
    unit->k_begin = k_iters - last, unit->k_end = k_iters - first;
    return true;
}

// Who shares the tile of a CTA's unit.
WS_HOST_DEVICE Sharing sharing_of(int schedule, const Plan& plan, int cta, const Unit& unit) {
    if (!splits_tiles(schedule) || unit.tile >= plan.split_tiles) return Sharing{0, 0, 1};
    const int first_slot = unit.tile * plan.parts;
    if (schedule == TAILSPLIT) return Sharing{first_slot, unit.index - first_slot, plan.parts};
    if (schedule == SPLITK) return Sharing{first_slot, plan.parts - 1 - cta / num_tiles(plan.grid), plan.parts};
    const int k_iters = plan.grid.k_iters;
    const int total = plan.split_tiles * k_iters, tile_begin = unit.tile * k_iters;
    const int first = share_of(total, plan.num_ctas, tile_begin);
    const int last = share_of(total, plan.num_ctas, tile_begin + k_iters - 1);
    return Sharing{first, plan.num_ctas - 1 - cta - first, last - first + 1};
}

// TAILSPLIT: the index of the unit with which a CTA without a part begins, a whole tile.
WS_HOST_DEVICE int first_whole_index(const Plan& plan, int cta) { return plan.split_tiles * plan.parts + cta; }

// The one verb of the kernels' loop: the round-th unit of a CTA, false when it has no
// further one.  `ticket` is what the shared counter gave it, and counts only under DYNAMIC.
WS_HOST_DEVICE bool next_unit(int schedule, const Plan& plan, int cta, int round, int ticket, Unit* unit) {
    const int tiles = num_tiles(plan.grid);
    if (schedule == SPLITK) {
        if (round > 0) return false;
        *unit = part_of_tile(plan, cta % tiles, plan.parts - 1 - cta / tiles, cta);  // who waits comes last
        return true;
    }
    int done = 0, first_index = 0;  // of the whole tiles after the cut ones
    if ((schedule == STREAMK || schedule == HYBRID) && plan.split_tiles > 0) {
        if (piece_of_share(plan, cta, round, &done, unit)) return true;
        first_index = plan.split_tiles + plan.num_ctas;
    }
    if (schedule == TAILSPLIT && plan.split_tiles > 0) {
        const int parts = plan.split_tiles * plan.parts;  // no more than CTAs
        if (round == 0 && cta < parts) {
            const int together = tiles_together(plan), first = cta / (together * plan.parts) * together;
            const int left = plan.split_tiles - first, tiles = left < together ? left : together;
            const int within = cta - first * plan.parts, tile = first + within % tiles, part = within / tiles;
            *unit = part_of_tile(plan, tile, part, tile * plan.parts + part);
            return true;
        }
        done = cta < parts ? 1 : 0;
        first_index = parts;
    }
    const int whole = schedule == DYNAMIC ? ticket : cta + (round - done) * plan.num_ctas;
    const int cut = splits_tiles(schedule) ? plan.split_tiles : 0;
    // whole < 0: cta + round * num_ctas passed 2^31
    if (whole < 0 || whole >= tiles - cut || (schedule == FIXED && round > 0)) return false;
    *unit = whole_tile(plan.grid, cut + whole, first_index + whole);
    return true;
}

}  // namespace wavescope
