// Columns of conversations, or of their ends: their entries sorted by value.
//
// Word w of the key of flow i is words[w * stride + i], in the order of the keys. `numbers` gives
// each flow a number: two for each conversation, whether there are two flows or not.

#include "threads.cuh"

static const u32 WIDE_WORDS = 10;
// The word of a key whose high half is the number of the wide part, from 1.
static const u32 WIDE_WORD = 2;

// The packets and the excess of flows, by their numbers, and a flow of each conversation. What is
// written to is 0 at first.
KERNEL columns_conversations(const u32 *numbers, const u32 *flows, u32 len, const u32 *packets,
                             const u64 *excess, u32 *all_packets, u64 *all_excess, u32 *firsts) {
    u32 at = thread_number();
    if (at >= len || at >= *flows) return;
    u32 number = numbers[at];
    all_packets[number] = packets[at];
    all_excess[number] = excess[at];
    // What columns have is the same in both flows: the first one tells.
    if (at == 0 || numbers[at - 1] / 2 != number / 2) firsts[number / 2] = at;
}

// The values of an end in each conversation, from the narrow part of keys.
KERNEL columns_narrow(const u64 *words, u32 stride, const u32 *firsts, u32 count, u32 word,
                      u32 shift, u64 mask, u64 *values) {
    u32 at = thread_number();
    if (at >= count) return;
    values[at] = words[(u64)word * stride + firsts[at]] >> shift & mask;
}

// The same from the wide part, which not all have: `wides` are these in order, each of WIDE_WORDS.
KERNEL columns_wide(const u64 *words, u32 stride, const u32 *firsts, u32 count, const u64 *wides,
                    u32 word, u32 shift, u64 mask, u64 *values) {
    u32 at = thread_number();
    if (at >= count) return;
    u64 wide = words[(u64)WIDE_WORD * stride + firsts[at]] >> 32;
    u64 bits = wide == 0 ? 0 : wides[(wide - 1) * WIDE_WORDS + word];
    values[at] = bits >> shift & mask;
}

// The values that differ, and where their entries start: `order` are the entries by value, `places`
// the marks of those that differ from the one before, summed up. Word w of entry i is
// words[w * len + i], that of value i values[w * len + i]. `ids` gets the place of each entry's
// value among those that differ.
KERNEL columns_values(const u64 *words, u32 word_count, const u32 *order, u32 len,
                      const u32 *places, u64 *values, u32 *starts, u32 *ids) {
    u32 at = thread_number();
    if (at >= len) return;
    u32 rank = places[at];
    ids[order[at]] = places[at + 1] - 1;
    if (places[at + 1] == rank) return;
    starts[rank] = at;
    for (u32 word = 0; word < word_count; word++)
        values[(u64)word * len + rank] = words[(u64)word * len + order[at]];
}
