// Shared by the codecs of triples: the digest of an item.
//
//     [7: 0][1: fill value][8: groups][3: 0][1: nearly full][1: dirty][1: short][2: place][8: byte]
//
// A *dirty* literal has one byte that is neither all zeros nor, if it is nearly full, all ones. A
// *short* fill has at most 255 groups.

#include "merge.cuh"

static const u32 SHORT = 1u << 10;
static const u32 DIRTY = 1u << 11;
static const u32 NEARLY = 1u << 12;
// A literal alone; a fill of zeros alone is its count.
static const u32 LITERAL = 1u << 31;

DEVICE u32 byte_mask(u32 place) { return (0xFFu << (8 * place)) & FULL; }

// The byte with the highest odd bit.
DEVICE u32 odd_place(u32 odd) { return (31 - __clz(odd | 1)) / 8; }

DEVICE u32 triple_digest(u32 item, bool with_ones, bool with_nearly) {
    if (item & FILL) {
        u32 groups = item & COUNT;
        u32 ones = item >> 30 & 1;
        bool is_short = groups <= 255 && (with_ones || !ones);
        return ones << 24 | (groups & 0xFF) << 16 | (is_short ? SHORT : 0);
    }
    u32 place = odd_place(item);
    u32 found = (item & ~byte_mask(place)) == 0 ? DIRTY : 0;
    if (with_nearly && found == 0) {
        u32 odd = item ^ FULL;
        u32 odd_at = odd_place(odd);
        if ((odd & ~byte_mask(odd_at)) == 0) {
            place = odd_at;
            found = DIRTY | NEARLY;
        }
    }
    return found | place << 8 | (item >> (8 * place) & 0xFF);
}

DEVICE bool is_dirty(u32 digest) { return (digest & DIRTY) != 0; }
DEVICE bool is_short(u32 digest) { return (digest & SHORT) != 0; }
DEVICE u32 nearly_of(u32 digest) { return digest >> 12 & 1; }
DEVICE u32 place_in(u32 digest) { return digest >> 8 & 3; }
DEVICE u32 byte_in(u32 digest) { return digest & 0xFF; }
DEVICE u32 groups_in(u32 digest) { return digest >> 16 & 0xFF; }
DEVICE u32 ones_in(u32 digest) { return digest >> 24 & 1; }

DEVICE bool is_fill_first(u32 a, u32 b, u32 c) { return is_short(a) && is_dirty(b) && is_short(c); }
DEVICE bool is_literal_first(u32 a, u32 b, u32 c) {
    return is_dirty(a) && is_short(b) && is_dirty(c);
}
