// The row map: the record of each row, as steps from record to record, in a prefix code
// (crates/engine/src/index/v2/rowmap.rs has the layout).
//
// Records are in the order of their flows. `ranks` gives the place of each record's flow among
// those of the segment, `order` the record of each row. Steps are counted first, by context and
// symbol; the host makes a code of that. Then blocks are measured, and written where they stay. A
// thread has a block.

#include "threads.cuh"

static const u32 KEY_WORDS = 6;
static const u32 DIRECTION_WORD = 5;

static const u32 BLOCK_ROWS = 256;
static const u32 GROUP_BLOCKS = 32;
static const u32 CONTEXTS = 8;
static const u32 SYMBOLS = 66;

// Where a step is; behind a step, it depends on the bits of that.
static const u32 AT_CONVERSATION = 0;
static const u32 AT_SECOND_FLOW = 1;
static const u32 AT_SECOND_RECORD = 2;
static const u32 BEHIND = 3;

DEVICE u32 behind(u32 bits) { return bits == 0 ? BEHIND : min(4 + bits / 4, CONTEXTS - 1); }

// Marks by 1 the flows that start a conversation; behind the last one is a 0. Word w of flow i is
// words[w * len + i], and there are `*flows` of them.
KERNEL rowmap_heads(const u64 *words, u32 len, const u32 *flows, u32 *heads) {
    u32 at = thread_number();
    if (at > len) return;
    bool is_answer = false;
    if (at > 0 && at < *flows) {
        u64 differ = 0;
        for (u32 word = 0; word < KEY_WORDS; word++) {
            u64 mine = words[(u64)word * len + at];
            u64 turned = mine ^ (word == DIRECTION_WORD);
            if (word == DIRECTION_WORD) is_answer = mine & 1;
            differ |= turned ^ words[(u64)word * len + at - 1];
        }
        is_answer = is_answer && differ == 0;
    }
    heads[at] = at < *flows && !is_answer;
}

// Numbers the flows: two for each conversation, whether there are two or not. `heads` are the
// marks, summed up.
KERNEL rowmap_numbers(const u64 *words, u32 len, const u32 *flows, const u32 *heads,
                      u32 *numbers) {
    u32 at = thread_number();
    if (at >= len || at >= *flows) return;
    u32 direction = (u32)words[(u64)DIRECTION_WORD * len + at] & 1;
    numbers[at] = 2 * (heads[at + 1] - 1) + direction;
}

// The rows of a segment.
struct Rows {
    const u32 *order;
    const u32 *ranks;
    const u32 *numbers;
    u32 rows;
};

// Passes the steps of a block to `each`: the context, the symbol, the distance less one, and its
// number of bits.
template <class Each> DEVICE void walk(const Rows &all, u32 block, Each &each) {
    u32 row = block * BLOCK_ROWS;
    u32 end = min(row + BLOCK_ROWS, all.rows);
    u32 record = all.order[row];
    u32 rank = all.ranks[record];
    u32 number = all.numbers[rank];
    bool is_first = row == 0 || all.ranks[all.order[row - 1]] != rank;
    u32 context = is_first ? AT_SECOND_RECORD : BEHIND;
    // The first record of the conversation at hand, or of the block.
    u32 anchor = record;
    u32 before = record;
    each.first(record);
    for (row += 1; row < end; row++) {
        record = all.order[row];
        u32 next = all.ranks[record];
        u32 from = before;
        if (next != rank) {
            u32 flow = all.numbers[next];
            bool is_second = flow == number + 1 && (flow & 1) == 1;
            context = is_second ? AT_SECOND_FLOW : AT_CONVERSATION;
            from = anchor;
            rank = next;
            number = flow;
        }
        u32 is_back = record < from;
        u32 distance = (is_back ? from - record : record - from) - 1;
        u32 bits = 32 - (u32)__clz((int)distance);
        each.step(context, 2 * bits + is_back, distance, bits);
        if (context == AT_CONVERSATION) anchor = record;
        context = context < AT_SECOND_RECORD ? AT_SECOND_RECORD : behind(bits);
        before = record;
    }
}

DEVICE Rows rows_of(const u32 *order, const u32 *ranks, const u32 *numbers, u32 rows) {
    Rows all;
    all.order = order;
    all.ranks = ranks;
    all.numbers = numbers;
    all.rows = rows;
    return all;
}

struct Count {
    u32 *counts;

    DEVICE_METHOD void first(u32) {}
    DEVICE_METHOD void step(u32 context, u32 symbol, u32, u32) {
        atomicAdd(&counts[context * SYMBOLS + symbol], 1u);
    }
};

// Counts how often each context has each symbol; the counts are 0 at first.
KERNEL rowmap_count(const u32 *order, const u32 *ranks, const u32 *numbers, u32 rows,
                    u32 *counts) {
    __shared__ u32 room[CONTEXTS * SYMBOLS];
    for (u32 at = threadIdx.x; at < CONTEXTS * SYMBOLS; at += blockDim.x) room[at] = 0;
    __syncthreads();
    u32 block = thread_number();
    Count count;
    count.counts = room;
    if ((u64)block * BLOCK_ROWS < rows) walk(rows_of(order, ranks, numbers, rows), block, count);
    __syncthreads();
    for (u32 at = threadIdx.x; at < CONTEXTS * SYMBOLS; at += blockDim.x)
        if (room[at] != 0) atomicAdd(&counts[at], room[at]);
}

// Bits of what a step has behind its code.
DEVICE u32 low_bits_of(u32 bits) { return bits == 0 ? 0 : bits - 1; }

struct Measure {
    const u16 *codes;
    u32 record_bits;
    u32 bits;

    DEVICE_METHOD void first(u32) { bits = record_bits; }
    DEVICE_METHOD void step(u32 context, u32 symbol, u32, u32 distance_bits) {
        bits += (codes[context * SYMBOLS + symbol] & 15) + low_bits_of(distance_bits);
    }
};

// The bytes of each block, and a 0 behind the last one. `codes` has the code of each symbol above
// four bits that say how long it is.
KERNEL rowmap_measure(const u32 *order, const u32 *ranks, const u32 *numbers, u32 rows,
                      const u16 *codes, u32 record_bits, u32 blocks, u32 *lens) {
    u32 block = thread_number();
    if (block > blocks) return;
    u32 bytes = 0;
    if (block < blocks) {
        Measure measure;
        measure.codes = codes;
        measure.record_bits = record_bits;
        walk(rows_of(order, ranks, numbers, rows), block, measure);
        bytes = (measure.bits + 7) / 8;
    }
    lens[block] = bytes;
}

struct Write {
    const u16 *codes;
    u32 record_bits;
    u8 *target;
    // Bits that are not written yet, less than eight.
    u64 rest;
    u32 rest_bits;

    // At most 56 bits.
    DEVICE_METHOD void put(u64 bits, u32 count) {
        rest |= bits << rest_bits;
        rest_bits += count;
        while (rest_bits >= 8) {
            *target++ = (u8)rest;
            rest >>= 8;
            rest_bits -= 8;
        }
    }
    DEVICE_METHOD void first(u32 record) { put(record, record_bits); }
    DEVICE_METHOD void step(u32 context, u32 symbol, u32 distance, u32 distance_bits) {
        u32 code = codes[context * SYMBOLS + symbol];
        u32 low_bits = low_bits_of(distance_bits);
        u64 low = distance & ((1u << low_bits) - 1);
        put(code >> 4 | low << (code & 15), (code & 15) + low_bits);
    }
    DEVICE_METHOD void end() {
        if (rest_bits > 0) *target = (u8)rest;
    }
};

// Writes where blocks start, and the blocks: `lens`, summed up. Each group of blocks has a place of
// 32 bits, each block one of 16 bits behind that.
KERNEL rowmap_write(const u32 *order, const u32 *ranks, const u32 *numbers, u32 rows,
                    const u16 *codes, u32 record_bits, u32 blocks, const u32 *starts, u8 *target) {
    u32 block = thread_number();
    if (block >= blocks) return;
    u32 groups = (blocks + GROUP_BLOCKS - 1) / GROUP_BLOCKS;
    u32 group = block / GROUP_BLOCKS;
    u32 start = starts[block];
    u32 group_start = starts[group * GROUP_BLOCKS];
    if (block % GROUP_BLOCKS == 0) ((u32 *)target)[group] = start;
    target += 4 * groups;
    ((u16 *)target)[block] = (u16)(start - group_start);
    Write write;
    write.codes = codes;
    write.record_bits = record_bits;
    write.target = target + 2 * (u64)blocks + start;
    write.rest = 0;
    write.rest_bits = 0;
    walk(rows_of(order, ranks, numbers, rows), block, write);
    write.end();
}
