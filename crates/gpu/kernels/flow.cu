// The flows of a segment in the order of their keys, and its records in the order of their flows.
//
// A key is six words of 64 bits. Both are sorted by radix.cu. Bits that all flows have in common
// are left out, so that few passes are left.

#include "threads.cuh"

static const u32 WORDS_TILE = 2048;

// In `starts`: no record belongs to that flow.
static const u32 NONE = 0xFFFFFFFFu;

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
