// SECOMPAX: COMPAX2 that also merges nearly full literals, and fills of different values.

#include "threads.cuh"
#include "triples.cuh"

struct Secompax {
    static const u32 SPAN = 3;
    static const u32 BETWEEN_MAX = 127;

    static DEVICE_METHOD u32 digest(u32 item) { return triple_digest(item, true, true); }

    static DEVICE_METHOD u32 join(u32 a, u32 b, u32 c) {
        if (is_fill_first(a, b, c))
            return 3u << 29 | ones_in(a) << 28 | nearly_of(b) << 27 | ones_in(c) << 26 |
                   place_in(b) << 24 | groups_in(a) << 16 | byte_in(b) << 8 | groups_in(c);
        if (is_literal_first(a, b, c) && groups_in(b) <= BETWEEN_MAX) {
            u32 code = (nearly_of(a) == nearly_of(c) ? 2 : 4) + nearly_of(a);
            return code << 28 | place_in(a) << 26 | place_in(c) << 24 | ones_in(b) << 23 |
                   groups_in(b) << 16 | byte_in(a) << 8 | byte_in(c);
        }
        return 0;
    }

    static DEVICE_METHOD u32 alone(u32 item) {
        if (!(item & FILL)) return LITERAL | item;
        return (item & ONES ? 1u << 28 : 0) | (item & COUNT);
    }

    static DEVICE_METHOD u32 extra(u32) { return 0; }
};

KERNEL secompax_count(const u32 *items, const u32 *count, const u32 *firsts, Step *steps,
                      u32 *extras) {
    merge_count<Secompax, false>(items, count, firsts, steps, extras);
}

KERNEL secompax_write(const u32 *items, const u32 *count, const u32 *firsts, const uint2 *starts,
                      const u32 *total, const u32 *key_items, const u32 *keys_count, u32 *target,
                      u32 *key_words) {
    merge_write<Secompax, false>(items, count, firsts, starts, total, key_items, keys_count, target,
                                 key_words);
}
