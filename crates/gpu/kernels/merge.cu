// Shared by the merging codecs: from the steps of the tiles to where each tile starts.
//
// Tiles are taken in groups, one block each: first the step of every group is found, then every
// block combines the groups before its own and its own tiles.

#include "threads.cuh"
#include "merge.cuh"

static const u32 GROUP_TILES = 256;

// The extra words of an item count in every state.
struct GroupStep {
    Step step;
    u32 extra;
};

DEVICE GroupStep then(const GroupStep &a, const GroupStep &b) {
    GroupStep both;
    both.step.states = then(a.step.states, b.step.states);
    for (u32 state = 0; state < 3; state++) {
        u32 between = state_left(a.step.states, state);
        u32 words = between == 0   ? b.step.words[0]
                    : between == 1 ? b.step.words[1]
                                   : b.step.words[2];
        both.step.words[state] = a.step.words[state] + words;
    }
    both.extra = a.extra + b.extra;
    return both;
}

DEVICE GroupStep no_step() {
    GroupStep none = {{STAY, {0, 0, 0}}, 0};
    return none;
}

DEVICE GroupStep lane_up(const GroupStep &step, u32 distance) {
    GroupStep other;
    other.step.states = __shfl_up_sync(ALL_LANES, step.step.states, distance);
    for (u32 state = 0; state < 3; state++)
        other.step.words[state] = __shfl_up_sync(ALL_LANES, step.step.words[state], distance);
    other.extra = __shfl_up_sync(ALL_LANES, step.extra, distance);
    return other;
}

// The step of the threads before this one; `all` is that of the whole block.
DEVICE GroupStep block_steps_before(const GroupStep &step, GroupStep *room, GroupStep *all) {
    GroupStep to_here = step;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        GroupStep other = lane_up(to_here, distance);
        if (lane_id() >= distance) to_here = then(other, to_here);
    }
    __syncthreads();
    if (lane_id() == 31) room[warp_id()] = to_here;
    __syncthreads();
    GroupStep before = no_step();
    *all = no_step();
    for (u32 warp = 0; warp < GROUP_TILES / 32; warp++) {
        if (warp == warp_id()) before = *all;
        *all = then(*all, room[warp]);
    }
    GroupStep in_warp = lane_up(to_here, 1);
    return lane_id() == 0 ? before : then(before, in_warp);
}

// The step of a tile; an empty one after the last item.
DEVICE GroupStep tile_step(const Step *steps, const u32 *extras, u32 tile, u32 tiles) {
    if (tile >= tiles) return no_step();
    GroupStep step = {steps[tile], extras[tile]};
    return step;
}

DEVICE u32 tiles_of(u32 items) { return (items + MERGE_TILE - 1) / MERGE_TILE; }

// Finds the step of each group of tiles.
KERNEL merge_groups(const Step *steps, const u32 *extras, const u32 *count, GroupStep *groups) {
    __shared__ GroupStep room[32];
    u32 tile = blockIdx.x * GROUP_TILES + threadIdx.x;
    GroupStep all;
    block_steps_before(tile_step(steps, extras, tile, tiles_of(*count)), room, &all);
    if (threadIdx.x == 0) groups[blockIdx.x] = all;
}

// For each tile the state in which it is entered and where its words go; and how many words there
// are. The first tile is entered with nothing left to be taken.
KERNEL merge_tiles(const Step *steps, const u32 *extras, const u32 *count,
                   const GroupStep *groups, uint2 *starts, u32 *total) {
    __shared__ GroupStep room[32];
    GroupStep before = no_step();
    for (u32 first = 0; first < blockIdx.x; first += GROUP_TILES) {
        u32 group = first + threadIdx.x;
        GroupStep all;
        block_steps_before(group < blockIdx.x ? groups[group] : no_step(), room, &all);
        before = then(before, all);
    }
    u32 tiles = tiles_of(*count);
    u32 tile = blockIdx.x * GROUP_TILES + threadIdx.x;
    GroupStep all;
    GroupStep mine = block_steps_before(tile_step(steps, extras, tile, tiles), room, &all);
    mine = then(before, mine);
    if (tile < tiles)
        starts[tile] = make_uint2(state_left(mine.step.states, 0), mine.step.words[0] + mine.extra);
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        all = then(before, all);
        *total = all.step.words[0] + all.extra;
    }
}
