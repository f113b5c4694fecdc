// COMPAX: fills of zeros; a literal between two fills, or a fill between two literals, in a word.

#include "threads.cuh"
#include "triples.cuh"

struct Compax {
    static const u32 SPAN = 3;

    static DEVICE_METHOD u32 digest(u32 item) { return triple_digest(item, false, false); }

    static DEVICE_METHOD u32 join(u32 a, u32 b, u32 c) {
        if (is_fill_first(a, b, c))
            return 2u << 29 | place_in(b) << 27 | groups_in(a) << 16 | byte_in(b) << 8 |
                   groups_in(c);
        if (is_literal_first(a, b, c))
            return 1u << 29 | place_in(a) << 27 | place_in(c) << 25 | byte_in(a) << 16 |
                   groups_in(b) << 8 | byte_in(c);
        return 0;
    }

    static DEVICE_METHOD u32 alone(u32 item) {
        if ((item & (FILL | ONES)) == (FILL | ONES)) return LITERAL | FULL;
        return item & FILL ? item & COUNT : LITERAL | item;
    }

    // Full groups are literals, one word each.
    static DEVICE_METHOD u32 extra(u32 item) {
        return (item & (FILL | ONES)) == (FILL | ONES) ? (item & COUNT) - 1 : 0;
    }
};

KERNEL compax_count(const u32 *items, const u32 *count, const u32 *firsts, Step *steps,
                    u32 *extras) {
    merge_count<Compax, true>(items, count, firsts, steps, extras);
}

KERNEL compax_write(const u32 *items, const u32 *count, const u32 *firsts, const uint2 *starts,
                    const u32 *total, const u32 *key_items, const u32 *keys_count, u32 *target,
                    u32 *key_words) {
    merge_write<Compax, true>(items, count, firsts, starts, total, key_items, keys_count, target,
                              key_words);
}
