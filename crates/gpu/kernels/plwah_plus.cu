// PLWAH+: a short fill pairs with a literal of few odd rows, before or after it.

#include "threads.cuh"
#include "merge.cuh"

struct PlwahPlus {
    static const u32 SPAN = 2;
    static const u32 LITERAL_FIRST = 1u << 30;
    static const u32 ONES_SHIFT = 29;
    static const u32 NEARLY_FULL = 1u << 28;
    static const u32 POSITIONS = 4;
    static const u32 FIRST_POSITION_SHIFT = 23;
    static const u32 COUNT_MAX = 255;

    // The pair word of a literal, without the fill; 0 if it has too many odd rows.
    static DEVICE_METHOD u32 pair_of(u32 literal) {
        u32 rows = __popc(literal);
        bool sparse = rows <= POSITIONS;
        if (!sparse && rows < GROUP_ROWS - POSITIONS) return 0;
        u32 odd = sparse ? literal : literal ^ FULL;
        u32 pair = FILL | (sparse ? 0 : NEARLY_FULL);
        for (u32 place = 0; place < POSITIONS && odd != 0; place++) {
            u32 position = __clz(odd);
            pair |= position << (FIRST_POSITION_SHIFT - 5 * place);
            odd ^= FILL >> position;
        }
        return pair;
    }

    static DEVICE_METHOD u32 alone(u32 item) {
        if (!(item & FILL)) return item;
        return FILL | (item >> 30 & 1) << ONES_SHIFT | (item & COUNT);
    }

    // Literals as their pair word, with a bit that no fill has; fills as their word, or 0 if they
    // are too long to pair.
    static DEVICE_METHOD u32 digest(u32 item) {
        if (!(item & FILL)) return pair_of(item) & ~FILL;
        return (item & COUNT) <= COUNT_MAX ? alone(item) : 0;
    }

    static DEVICE_METHOD u32 join(u32 a, u32 b, u32) {
        if (a == 0 || b == 0 || ((a ^ b) & FILL) == 0) return 0;
        return a | b | (a & FILL ? 0 : LITERAL_FIRST);
    }

    static DEVICE_METHOD u32 extra(u32) { return 0; }
};

KERNEL plwah_plus_count(const u32 *items, const u32 *count, const u32 *firsts, Step *steps,
                        u32 *extras) {
    merge_count<PlwahPlus, false>(items, count, firsts, steps, extras);
}

KERNEL plwah_plus_write(const u32 *items, const u32 *count, const u32 *firsts, const uint2 *starts,
                        const u32 *total, const u32 *key_items, const u32 *keys_count, u32 *target,
                        u32 *key_words) {
    merge_write<PlwahPlus, false>(items, count, firsts, starts, total, key_items, keys_count,
                                  target, key_words);
}
