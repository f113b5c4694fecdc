// PLWAH: a fill takes in the literal after it if that differs from it in one row.

#include "threads.cuh"
#include "merge.cuh"

struct Plwah {
    static const u32 SPAN = 2;
    static const u32 POSITION_SHIFT = 25;

    static DEVICE_METHOD u32 digest(u32 item) { return item; }

    static DEVICE_METHOD u32 join(u32 fill, u32 literal, u32) {
        u32 odd = literal ^ (fill & ONES ? FULL : 0);
        bool joins = (fill & FILL) && !(literal & FILL) && __popc(odd) == 1;
        return joins ? fill | __clz(odd) << POSITION_SHIFT : 0;
    }

    static DEVICE_METHOD u32 alone(u32 item) { return item; }
    static DEVICE_METHOD u32 extra(u32) { return 0; }
};

KERNEL plwah_count(const u32 *items, const u32 *count, const u32 *firsts, Step *steps,
                   u32 *extras) {
    merge_count<Plwah, false>(items, count, firsts, steps, extras);
}

KERNEL plwah_write(const u32 *items, const u32 *count, const u32 *firsts, const uint2 *starts,
                   const u32 *total, const u32 *key_items, const u32 *keys_count, u32 *target,
                   u32 *key_words) {
    merge_write<Plwah, false>(items, count, firsts, starts, total, key_items, keys_count, target,
                              key_words);
}
