// The flows of a segment in the order of their keys, and its records in the order of their flows.
//
// A key is six words of 64 bits. Both sorts take eight bits at a time, the lowest first, and are
// stable: they move a list of numbers, and each pass looks up the bits of each number. Bits that
// all flows have in common are left out, so that few passes are left.

#include "threads.cuh"
#include "sort.cuh"

static const u32 WORDS_TILE = 2048;

// Numbers of a tile that is sorted, those of a warp, and those of a thread.
static const u32 NUMBERS_TILE = 4096;
static const u32 NUMBERS_WARP = NUMBERS_TILE / WARPS;
static const u32 NUMBERS_EACH = NUMBERS_WARP / 32;

// In `starts`: no record belongs to that flow.
static const u32 NONE = 0xFFFFFFFFu;

DEVICE u32 thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Finds the bits in which the words of flows differ from those of the first flow. `words` has the
// first words of all flows, then all second words, and so on; `tiles` blocks go over one of them.
// `differ` is 0 at first.
KERNEL flow_bits(const u64 *words, u32 flows, u32 tiles, u64 *differ) {
    u32 word = blockIdx.x / tiles;
    u32 base = blockIdx.x % tiles * WORDS_TILE;
    words += (u64)word * flows;
    u64 found = 0;
    for (u32 at = base + threadIdx.x; at < base + WORDS_TILE && at < flows; at += blockDim.x)
        found |= words[at] ^ words[0];
    for (u32 step = 16; step > 0; step /= 2) found |= __shfl_xor_sync(ALL_LANES, found, step);
    if (lane_id() == 0 && found != 0) atomicOr(&differ[word], found);
}

// Numbers from 0 on.
KERNEL flow_numbers(u32 *order, u32 len) {
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

KERNEL flow_count_u64(const u64 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
                      u32 *counts) {
    __shared__ u32 counted[BUCKETS];
    count_tile(counted, words, shift, order, len, tiles, counts);
}

KERNEL flow_count_u32(const u32 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
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

KERNEL flow_scatter_u64(const u64 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
                        const u32 *offsets, u32 *order_out) {
    __shared__ SortingNumbers shared;
    scatter_tile(shared, words, shift, order, len, tiles, offsets, order_out);
}

KERNEL flow_scatter_u32(const u32 *words, u32 shift, const u32 *order, u32 len, u32 tiles,
                        const u32 *offsets, u32 *order_out) {
    __shared__ SortingNumbers shared;
    scatter_tile(shared, words, shift, order, len, tiles, offsets, order_out);
}

// The place of each flow in the order.
KERNEL flow_ranks(const u32 *order, u32 flows, u32 *ranks) {
    u32 at = thread_number();
    if (at < flows) ranks[order[at]] = at;
}

// The place of each record's flow. `odd` counts records whose flow does not exist.
KERNEL flow_keys(const u32 *flow_of, u32 rows, const u32 *ranks, u32 flows, u32 *keys, u32 *odd) {
    u32 record = thread_number();
    if (record >= rows) return;
    u32 flow = flow_of[record];
    if (flow >= flows) atomicAdd(odd, 1u);
    keys[record] = flow < flows ? ranks[flow] : 0;
}

// Where the rows of each flow start. `starts` is NONE at first.
KERNEL flow_rows(const u32 *order, u32 rows, const u32 *keys, u32 *starts) {
    u32 row = thread_number();
    if (row >= rows) return;
    u32 key = keys[order[row]];
    if (row == 0 || keys[order[row - 1]] != key) starts[key] = row;
}

// What belongs to single records, in row order.
KERNEL flow_own_u8(const u32 *order, u32 rows, const u8 *own, u8 *row_own) {
    u32 row = thread_number();
    if (row < rows) row_own[row] = own[order[row]];
}

KERNEL flow_own_u16(const u32 *order, u32 rows, const u16 *own, u16 *row_own) {
    u32 row = thread_number();
    if (row < rows) row_own[row] = own[order[row]];
}

// Counts the flows that have no record.
KERNEL flow_check(const u32 *starts, u32 flows, u32 *odd) {
    u32 flow = thread_number();
    if (flow < flows && starts[flow] == NONE) atomicAdd(odd, 1u);
}

// A digit of each flow, in order.
KERNEL flow_digits_u8(const u64 *words, u32 shift, const u32 *order, u32 flows, u8 *digits) {
    u32 at = thread_number();
    if (at < flows) digits[at] = (u8)(words[order[at]] >> shift);
}

KERNEL flow_digits_u16(const u64 *words, u32 shift, const u32 *order, u32 flows, u16 *digits) {
    u32 at = thread_number();
    if (at < flows) digits[at] = (u16)(words[order[at]] >> shift);
}
