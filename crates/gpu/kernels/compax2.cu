// COMPAX2: COMPAX with fills of ones.

#include "threads.cuh"
#include "triples.cuh"

struct Compax2 {
    static const u32 SPAN = 3;

    static DEVICE_METHOD u32 digest(u32 item) { return triple_digest(item, true, false); }

    static DEVICE_METHOD u32 join(u32 a, u32 b, u32 c) {
        if (is_fill_first(a, b, c) && ones_in(a) == ones_in(c))
            return 2u << 29 | (ones_in(a) * 3) << 27 | place_in(b) << 25 | groups_in(a) << 16 |
                   byte_in(b) << 8 | groups_in(c);
        if (is_literal_first(a, b, c))
            return 1u << 29 | ones_in(b) << 28 | place_in(a) << 26 | place_in(c) << 24 |
                   byte_in(a) << 16 | groups_in(b) << 8 | byte_in(c);
        return 0;
    }

    static DEVICE_METHOD u32 alone(u32 item) {
        if (!(item & FILL)) return LITERAL | item;
        return (item & ONES ? 3u << 29 : 0) | (item & COUNT);
    }

    static DEVICE_METHOD u32 extra(u32) { return 0; }
};

KERNEL compax2_count(const u32 *items, const u32 *count, const u32 *firsts, Step *steps,
                     u32 *extras) {
    merge_count<Compax2, false>(items, count, firsts, steps, extras);
}

KERNEL compax2_write(const u32 *items, const u32 *count, const u32 *firsts, const uint2 *starts,
                     const u32 *total, const u32 *key_items, const u32 *keys_count, u32 *target,
                     u32 *key_words) {
    merge_write<Compax2, false>(items, count, firsts, starts, total, key_items, keys_count, target,
                                key_words);
}
