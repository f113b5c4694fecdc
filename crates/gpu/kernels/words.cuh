// From runs to words: counted first, then written where the counts before them end.
//
// A rule says how many words a run gives, and writes them:
//
//     static u32 count(const uint2 *runs, u32 len, u32 at);
//     static void write(const uint2 *runs, u32 len, u32 at, u32 *target);

#include "run.cuh"

static const u32 RUN_THREADS = 256;
static const u32 RUN_ROUNDS = 8;
static const u32 RUN_WARP_TILE = 32 * RUN_ROUNDS;
static const u32 RUN_TILE = RUN_THREADS * RUN_ROUNDS;

// The first run of the warp at hand.
DEVICE u32 warp_first_run() { return blockIdx.x * RUN_TILE + warp_id() * RUN_WARP_TILE; }

// Adds up the words of each tile of runs.
template <class Rule> DEVICE void count_words(const uint2 *runs, const u32 *count, u32 *sums) {
    __shared__ u32 room[32];
    u32 len = *count;
    u32 sum = 0;
    if (blockIdx.x * RUN_TILE < len) {
        u32 at = warp_first_run() + lane_id();
        for (u32 round = 0; round < RUN_ROUNDS; round++, at += 32)
            if (at < len) sum += Rule::count(runs, len, at);
    }
    u32 total;
    block_sum_before(sum, room, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Writes the words of each tile of runs, and where the words of each key start. `firsts`, if it is
// not null, gets a bit set for the first word of each key.
template <class Rule>
DEVICE void write_words(const uint2 *runs, const u32 *count, const u32 *sums, const u32 *total,
                        const u32 *key_runs, const u32 *keys_count, u32 *target, u32 *key_words,
                        u32 *firsts) {
    __shared__ u32 warp_sums[32];
    u32 len = *count;
    if (blockIdx.x == 0 && threadIdx.x == 0) key_words[*keys_count] = *total;
    if (blockIdx.x * RUN_TILE >= len) return;
    u32 at = warp_first_run() + lane_id();
    u32 places[RUN_ROUNDS];
    u32 sum = 0;
    for (u32 round = 0; round < RUN_ROUNDS; round++) {
        u32 run = at + 32 * round;
        u32 words = run < len ? Rule::count(runs, len, run) : 0;
        u32 to_here = warp_sum_to(words);
        places[round] = sum + to_here - words;
        sum += __shfl_sync(ALL_LANES, to_here, 31);
    }
    if (lane_id() == 0) warp_sums[warp_id()] = sum;
    __syncthreads();
    u32 before = sums[blockIdx.x];
    for (u32 warp = 0; warp < warp_id(); warp++) before += warp_sums[warp];
    for (u32 round = 0; round < RUN_ROUNDS; round++, at += 32) {
        if (at >= len) break;
        u32 place = before + places[round];
        Rule::write(runs, len, at, target + place);
        if (runs[at].x & FIRST_OF_KEY) {
            key_words[place_of(key_runs, *keys_count, at)] = place;
            if (firsts) atomicOr(&firsts[place / 32], 1u << (place & 31));
        }
    }
}
