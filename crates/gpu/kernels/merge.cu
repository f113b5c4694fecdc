// What the merging codecs share: from the steps of the tiles to where each tile starts.

#include "common.cuh"
#include "merge.cuh"

// A step over many tiles.
struct LongStep {
    u32 states;
    u32 words[3];
};

DEVICE LongStep lengthened(Step step) {
    LongStep all;
    all.states = (u32)step & 0x3F;
    for (u32 state = 0; state < 3; state++) all.words[state] = step_words(step, state);
    return all;
}

DEVICE LongStep then(const LongStep &a, const LongStep &b) {
    LongStep both;
    both.states = 0;
    for (u32 state = 0; state < 3; state++) {
        u32 between = a.states >> (2 * state) & 3;
        both.states |= (b.states >> (2 * between) & 3) << (2 * state);
        u32 words = between == 0 ? b.words[0] : between == 1 ? b.words[1] : b.words[2];
        both.words[state] = a.words[state] + words;
    }
    return both;
}

DEVICE LongStep lane_up(const LongStep &step, u32 distance) {
    LongStep other;
    other.states = __shfl_up_sync(ALL_LANES, step.states, distance);
    for (u32 state = 0; state < 3; state++)
        other.words[state] = __shfl_up_sync(ALL_LANES, step.words[state], distance);
    return other;
}

// For each tile the state in which it is entered and where its words go; and how many words there
// are. One block.
KERNEL merge_tiles(const Step *steps, const u32 *extras, u32 tiles, uint2 *starts, u32 *total) {
    __shared__ LongStep room[32];
    __shared__ u32 sums[32];
    u32 each = (tiles + blockDim.x - 1) / blockDim.x;
    u32 first = threadIdx.x * each;
    LongStep step = lengthened(STAY);
    u32 extra = 0;
    for (u32 i = first; i < first + each && i < tiles; i++) {
        step = then(step, lengthened(steps[i]));
        extra += extras[i];
    }
    LongStep to_here = step;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        LongStep other = lane_up(to_here, distance);
        if (lane_id() >= distance) to_here = then(other, to_here);
    }
    if (lane_id() == 31) room[warp_id()] = to_here;
    u32 all_extra;
    u32 place = block_sum_before(extra, sums, &all_extra);
    LongStep before = lengthened(STAY);
    LongStep all = before;
    for (u32 warp = 0; warp < blockDim.x / 32; warp++) {
        if (warp == warp_id()) before = all;
        all = then(all, room[warp]);
    }
    LongStep in_warp = lane_up(to_here, 1);
    if (lane_id() != 0) before = then(before, in_warp);
    // All is entered with nothing to be taken.
    u32 state = before.states & 3;
    place += before.words[0];
    for (u32 i = first; i < first + each && i < tiles; i++) {
        starts[i] = make_uint2(state, place);
        place += step_words(steps[i], state) + extras[i];
        state = step_state(steps[i], state);
    }
    if (threadIdx.x == 0) *total = all.words[0] + all_extra;
}
