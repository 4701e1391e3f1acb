// Who computes what.  Integer arithmetic on arguments only (no blockIdx, no memory), so
// that the host compiler takes it too; the tests compare it with wavescope/schedule.py.
#pragma once

#if defined(__CUDACC__)
#define WS_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define WS_HOST_DEVICE inline
#endif

namespace wavescope {

enum ScheduleKind { FIXED = 0, PERSISTENT = 1, DYNAMIC = 2 };

// A problem cut into tiles.  raster_group: tile rows walked together, column by column
// (1 = row by row, tiles_m = column by column).
struct TileGrid {
    int tiles_m, tiles_n, k_iters, raster_group;
};

// One unit: a tile, or a k-range [k_begin, k_end) of one, in k_iters.
struct Unit {
    int index, tile_m, tile_n, k_begin, k_end;
};

WS_HOST_DEVICE int num_units(const TileGrid& grid) { return grid.tiles_m * grid.tiles_n; }

// The index of the unit a CTA takes in its round-th turn; `ticket` is what the shared
// counter gave it, and counts only under DYNAMIC.
WS_HOST_DEVICE int unit_index(int schedule, int cta, int round, int num_ctas, int ticket) {
    if (schedule == DYNAMIC) return ticket;
    return cta + round * num_ctas;
}

WS_HOST_DEVICE Unit unit_at(const TileGrid& grid, int index) {
    const int band = grid.raster_group * grid.tiles_n;  // tiles in a full group of rows
    const int first_m = index / band * grid.raster_group;
    const int rows_left = grid.tiles_m - first_m;
    const int rows = rows_left < grid.raster_group ? rows_left : grid.raster_group;
    const int within = index % band;
    return Unit{index, first_m + within % rows, within / rows, 0, grid.k_iters};
}

// The one verb of the kernels' loop: false when the CTA has no further unit.
WS_HOST_DEVICE bool next_unit(int schedule, const TileGrid& grid, int cta, int round,
                              int num_ctas, int ticket, Unit* unit) {
    const int index = unit_index(schedule, cta, round, num_ctas, ticket);
    // index < 0: cta + round * num_ctas passed 2^31
    if (index < 0 || index >= num_units(grid) || (schedule == FIXED && round > 0)) return false;
    *unit = unit_at(grid, index);
    return true;
}

}  // namespace wavescope
