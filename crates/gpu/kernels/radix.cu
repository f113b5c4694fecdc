// Numbers in the order of what they stand for.
//
// A sort takes eight bits at a time, the lowest first, and is stable: it moves a list of numbers,
// and each pass looks up the bits of each number.

#include "threads.cuh"
#include "sort.cuh"

// Numbers of a tile that is sorted, those of a warp, and those of a thread.
static const u32 NUMBERS_TILE = 4096;
static const u32 NUMBERS_WARP = NUMBERS_TILE / WARPS;
static const u32 NUMBERS_EACH = NUMBERS_WARP / 32;

// Numbers from 0 on.
KERNEL radix_numbers(u32 *order, u32 len) {
    u32 at = thread_number();
    if (at < len) order[at] = at;
}

template <class Word> DEVICE u32 bucket_of(const Word *words, u32 shift, u32 number) {
    return (u32)(words[number] >> shift) & (BUCKETS - 1);
}

// Counts the numbers of each tile by eight bits of their words. `counted` is shared.
template <class Word>
DEVICE void count_tile(u32 *counted, const Word *words, u32 shift, const u32 *order, u32 len,
                       u32 tiles, u32 *counts) {
    counted[threadIdx.x] = 0;
    __syncthreads();
    u32 base = blockIdx.x * NUMBERS_TILE;
    for (u32 i = threadIdx.x; i < NUMBERS_TILE && base + i < len; i += THREADS)
        atomicAdd(&counted[bucket_of(words, shift, order[base + i])], 1u);
    __syncthreads();
    counts[(u64)threadIdx.x * tiles + blockIdx.x] = counted[threadIdx.x];
}

KERNEL radix_count_u64(const u64 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
                       u32 *counts) {
    __shared__ u32 counted[BUCKETS];
    count_tile(counted, words, shift, order, len, tiles, counts);
}

KERNEL radix_count_u32(const u32 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
                       u32 *counts) {
    __shared__ u32 counted[BUCKETS];
    count_tile(counted, words, shift, order, len, tiles, counts);
}

// What the threads of a block share while they sort the numbers of a tile.
struct SortingNumbers {
    u32 numbers[NUMBERS_TILE];
    u8 buckets[NUMBERS_TILE];
    u32 counts[WARPS * BUCKETS / 2];
    u32 targets[BUCKETS];
    u32 room[32];
};

// Sorts the numbers by eight bits of their words; `offsets` are the counts, summed up.
template <class Word>
DEVICE void scatter_tile(SortingNumbers &shared, const Word *words, u32 shift, const u32 *order,
                         u32 len, u32 tiles, const u32 *offsets, u32 *order_out) {
    clear_counts(shared);
    __syncthreads();
    // Many reads in flight: first all numbers, then all words.
    u32 numbers[NUMBERS_EACH];
    u32 buckets[NUMBERS_EACH];
    u32 start = blockIdx.x * NUMBERS_TILE + warp_id() * NUMBERS_WARP + lane_id();
#pragma unroll
    for (u32 k = 0; k < NUMBERS_EACH; k++)
        numbers[k] = start + 32 * k < len ? order[start + 32 * k] : 0;
#pragma unroll
    for (u32 k = 0; k < NUMBERS_EACH; k++) buckets[k] = bucket_of(words, shift, numbers[k]);
#pragma unroll
    for (u32 k = 0; k < NUMBERS_EACH; k++)
        if (start + 32 * k < len) count_one(shared, buckets[k]);
    __syncthreads();
    u32 total = place_buckets(shared, offsets, tiles);
#pragma unroll
    for (u32 k = 0; k < NUMBERS_EACH; k++) {
        bool takes = start + 32 * k < len;
        u32 place = next_place(shared, takes, buckets[k]);
        if (!takes) continue;
        shared.numbers[place] = numbers[k];
        shared.buckets[place] = (u8)buckets[k];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < total; i += THREADS)
        order_out[shared.targets[shared.buckets[i]] + i] = shared.numbers[i];
}

KERNEL radix_scatter_u64(const u64 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
                         const u32 *offsets, u32 *order_out) {
    __shared__ SortingNumbers shared;
    scatter_tile(shared, words, shift, order, len, tiles, offsets, order_out);
}

KERNEL radix_scatter_u32(const u32 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
                         const u32 *offsets, u32 *order_out) {
    __shared__ SortingNumbers shared;
    scatter_tile(shared, words, shift, order, len, tiles, offsets, order_out);
}
