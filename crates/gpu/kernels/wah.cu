// Word-aligned hybrid, and the items that the other codecs of 31-row groups are merged from.
//
// A run gives up to four words: the empty groups before it, the group it starts in, the groups it
// fills, the group it ends in. A group that several runs share is written by the first of them.

#include "threads.cuh"
#include "words.cuh"
#include "groups.cuh"

// The groups that a run touches.
struct Touched {
    u32 gap;
    u32 full;
    u32 head;
    u32 tail;
    bool has_head;
    bool has_tail;
};

DEVICE Touched touched(const uint2 *runs, u32 at) {
    Run run = run_at(runs, at);
    Touched found;
    found.head = run.start / GROUP_ROWS;
    found.tail = run.end / GROUP_ROWS;
    bool starts_inside = run.start != found.head * GROUP_ROWS;
    bool ends_inside = run.end != found.tail * GROUP_ROWS + GROUP_ROWS - 1;
    bool one_group = found.head == found.tail;
    // The group after the last one that the run before touches.
    u32 behind = run.is_first ? 0 : runs[at - 1].y / GROUP_ROWS + 1;
    bool is_shared = behind > found.head;
    bool partial_head = starts_inside || (one_group && ends_inside);
    found.has_tail = ends_inside && !one_group;
    found.full = found.tail + 1 - found.head - partial_head - found.has_tail;
    found.gap = is_shared ? 0 : found.head - behind;
    found.has_head = partial_head && !is_shared;
    return found;
}

// The rows that a run has in a group, the first row in bit 30.
DEVICE u32 rows_in(u32 start, u32 end, u32 group) {
    u32 base = group * GROUP_ROWS;
    u32 from = start > base ? start - base : 0;
    u32 to = end - base < GROUP_ROWS ? end - base + 1 : GROUP_ROWS;
    return (FULL >> from) & ~(FULL >> to);
}

// The rows of a group in which this run is the first.
DEVICE u32 literal_of(const uint2 *runs, u32 len, u32 at, u32 group) {
    Run run = run_at(runs, at);
    u32 rows = rows_in(run.start, run.end, group);
    for (at++; at < len; at++) {
        run = run_at(runs, at);
        if (run.is_first || run.start / GROUP_ROWS != group) break;
        rows |= rows_in(run.start, run.end, group);
    }
    return rows;
}

struct Wah {
    static DEVICE_METHOD u32 count(const uint2 *runs, u32, u32 at) {
        Touched found = touched(runs, at);
        return (found.gap != 0) + found.has_head + (found.full != 0) + found.has_tail;
    }

    static DEVICE_METHOD void write(const uint2 *runs, u32 len, u32 at, u32 *target) {
        Touched found = touched(runs, at);
        if (found.gap != 0) *target++ = FILL | found.gap;
        if (found.has_head) *target++ = literal_of(runs, len, at, found.head);
        if (found.full != 0) *target++ = FILL | ONES | found.full;
        if (found.has_tail) *target = literal_of(runs, len, at, found.tail);
    }
};

KERNEL wah_count(const uint2 *runs, const u32 *count, u32 *sums) {
    count_words<Wah>(runs, count, sums);
}

KERNEL wah_write(const uint2 *runs, const u32 *count, const u32 *sums, const u32 *total,
                 const u32 *key_runs, const u32 *keys_count, u32 *target, u32 *key_words,
                 u32 *firsts) {
    write_words<Wah>(runs, count, sums, total, key_runs, keys_count, target, key_words, firsts);
}
