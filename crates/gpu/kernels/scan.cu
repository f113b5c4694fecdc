// Running sums over an array of numbers, in three steps that only have to run in order.
//
// The array has `len` numbers, or one more than `*count` if `count` is not null, which then is less
// than `len`.

#include "threads.cuh"

static const u32 SCAN_THREADS = 256;
static const u32 SCAN_EACH = 8;
static const u32 SCAN_TILE = SCAN_THREADS * SCAN_EACH;
static const u32 SUMS_THREADS = 1024;
// Odd, so that threads read different banks.
static const u32 SUMS_EACH = 7;

DEVICE u32 scanned(u32 len, const u32 *count) { return count ? *count + 1 : len; }

// Adds up each tile of `values`.
KERNEL scan_tiles(const u32 *values, u32 len, const u32 *count, u32 *sums) {
    __shared__ u32 room[32];
    len = scanned(len, count);
    u32 first = blockIdx.x * SCAN_TILE + threadIdx.x;
    u32 sum = 0;
    for (u32 i = 0; i < SCAN_EACH; i++) {
        u32 at = first + i * SCAN_THREADS;
        if (at < len) sum += values[at];
    }
    u32 total;
    block_sum_before(sum, room, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Replaces each sum by that of the ones before, and writes the sum of all. One block.
KERNEL scan_sums(u32 *sums, u32 len, u32 *total) {
    __shared__ u32 room[32];
    // Read and written by neighbours, added up in pieces.
    __shared__ u32 held[SUMS_THREADS * SUMS_EACH];
    u32 before = 0;
    for (u32 first = 0; first < len; first += SUMS_THREADS * SUMS_EACH) {
        for (u32 i = threadIdx.x; i < SUMS_THREADS * SUMS_EACH; i += SUMS_THREADS)
            held[i] = first + i < len ? sums[first + i] : 0;
        __syncthreads();
        u32 sum = 0;
        u32 *mine = held + threadIdx.x * SUMS_EACH;
        for (u32 i = 0; i < SUMS_EACH; i++) sum += mine[i];
        u32 all;
        u32 place = before + block_sum_before(sum, room, &all);
        for (u32 i = 0; i < SUMS_EACH; i++) {
            u32 next = place + mine[i];
            mine[i] = place;
            place = next;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < SUMS_THREADS * SUMS_EACH; i += SUMS_THREADS)
            if (first + i < len) sums[first + i] = held[i];
        before += all;
        __syncthreads();
    }
    if (threadIdx.x == 0) *total = before;
}

// Replaces each value by the sum of the ones before.
KERNEL scan_apply(u32 *values, u32 len, const u32 *count, const u32 *sums) {
    __shared__ u32 room[32];
    len = scanned(len, count);
    if (blockIdx.x * SCAN_TILE >= len) return;
    u32 first = blockIdx.x * SCAN_TILE + threadIdx.x * SCAN_EACH;
    u32 held[SCAN_EACH];
    u32 sum = 0;
    for (u32 i = 0; i < SCAN_EACH; i++) {
        held[i] = first + i < len ? values[first + i] : 0;
        sum += held[i];
    }
    u32 total;
    u32 before = sums[blockIdx.x] + block_sum_before(sum, room, &total);
    for (u32 i = 0; i < SCAN_EACH; i++) {
        if (first + i < len) values[first + i] = before;
        before += held[i];
    }
}

// Copies numbers to the host, without the copy engines.
KERNEL scan_publish(const u32 *numbers, u32 len, volatile u32 *host) {
    if (threadIdx.x < len) host[threadIdx.x] = numbers[threadIdx.x];
    __threadfence_system();
}
