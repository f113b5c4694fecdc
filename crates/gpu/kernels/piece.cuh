// Runs cut at the ends of chunks, and the containers that hold those of one key and chunk.

#include "run.cuh"

// A part of a run that lies in one chunk.
struct Piece {
    u32 start;
    u32 end;
    // The container it is in, counted from the first of the column.
    u32 container;
    // Rows in all pieces before it.
    u32 rows_before;
};

struct Container {
    // Its first piece.
    u32 piece;
    u32 rows_before;
    u32 chunk;
    // The place of its key among those that occur.
    u32 key;
};

// Sets the bits from `from` to `to`, both included, which are 0 before. Other threads may set bits
// of the same words at the same time, but not the same bits. The lanes of a warp call it together,
// lanes without bits with `from` above `to`; they share the work of long ranges.
DEVICE void set_bits(u32 *words, u64 from, u64 to) {
    u64 first = from / 32;
    u64 last = to / 32;
    u32 head = ALL_LANES << (from & 31);
    u32 tail = ALL_LANES >> (31 - (to & 31));
    bool is_any = from <= to;
    if (is_any && first == last) {
        atomicOr(&words[first], head & tail);
    } else if (is_any) {
        atomicOr(&words[first], head);
        atomicOr(&words[last], tail);
    }
    u64 between = is_any && first < last ? last - first - 1 : 0;
    u32 busy = __ballot_sync(ALL_LANES, between != 0);
    while (busy != 0) {
        u32 lane = __ffs(busy) - 1;
        busy &= busy - 1;
        u64 start = __shfl_sync(ALL_LANES, first, lane) + 1;
        u64 len = __shfl_sync(ALL_LANES, between, lane);
        for (u64 i = lane_id(); i < len; i += 32) words[start + i] = ALL_LANES;
    }
}
