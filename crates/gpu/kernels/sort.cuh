// A stable sort of a tile of elements by a byte of each, in shared memory.
//
// Every warp counts the elements of its part of the tile by bucket; the counts become places, and
// then every warp goes through its part again and puts each element where it belongs. Between tiles
// the counts of all tiles, summed up bucket by bucket, say where a tile's buckets go.

static const u32 TILE = 8192;
static const u32 THREADS = 256;
static const u32 WARPS = THREADS / 32;
static const u32 WARP_TILE = TILE / WARPS;
static const u32 BUCKETS = 256;

// What the threads of a block share while they sort a tile.
template <class Digit> struct Sorting {
    Digit digits[TILE];
    u16 sorted[TILE];
    // For each warp, two buckets in a word: how many there are, then where the next one goes.
    u32 counts[WARPS * BUCKETS / 2];
    // For each bucket, where the tile's elements go, less their place in `sorted`.
    u32 targets[BUCKETS];
    u32 room[32];
};

template <class Shared> DEVICE void clear_counts(Shared &shared) {
    for (u32 i = threadIdx.x; i < WARPS * BUCKETS / 2; i += THREADS) shared.counts[i] = 0;
}

// Counts an element of the warp's part of the tile.
template <class Shared> DEVICE void count_one(Shared &shared, u32 bucket) {
    atomicAdd(&shared.counts[(warp_id() * BUCKETS + bucket) / 2], 1u << (16 * (bucket & 1)));
}

// Turns the counts of the warps into places in the sorted tile, bucket after bucket, and finds
// where the buckets of the tile go; returns how many elements the tile has.
template <class Shared> DEVICE u32 place_buckets(Shared &shared, const u32 *offsets, u32 tiles) {
    u32 bucket = threadIdx.x;
    u32 shift = 16 * (bucket & 1);
    u32 sum = 0;
    u32 held[WARPS];
    for (u32 warp = 0; warp < WARPS; warp++) {
        held[warp] = sum;
        sum += shared.counts[(warp * BUCKETS + bucket) / 2] >> shift & 0xFFFF;
    }
    u32 total;
    u32 before = block_sum_before(sum, shared.room, &total);
    shared.targets[bucket] = offsets[(u64)bucket * tiles + blockIdx.x] - before;
    for (u32 warp = 0; warp < WARPS; warp++) {
        // Both halves of a word are written by neighbours of a warp, one after the other.
        u32 mine = (held[warp] + before) << shift;
        u32 other = __shfl_xor_sync(ALL_LANES, mine, 1);
        if (shift == 0) shared.counts[(warp * BUCKETS + bucket) / 2] = mine | other;
    }
    __syncthreads();
    return total;
}

// The place in the sorted tile of the element of each lane that `takes` part.
template <class Shared> DEVICE u32 next_place(Shared &shared, bool takes, u32 bucket) {
    u32 same = __match_any_sync(ALL_LANES, takes ? bucket : BUCKETS);
    u32 shift = 16 * (bucket & 1);
    u32 *counts = &shared.counts[(warp_id() * BUCKETS + bucket) / 2];
    u32 leader = __ffs(same) - 1;
    u32 next = 0;
    // Lanes with the other bucket of the word may add at the same time.
    if (takes && lane_id() == leader)
        next = atomicAdd(counts, (u32)__popc(same) << shift) >> shift & 0xFFFF;
    __syncwarp();
    return __shfl_sync(ALL_LANES, next, leader) + __popc(same & lanes_below());
}
