#include "threads.cuh"

// Sets of ids, in any order and with repeats, to HiPES chunks and to WAH words.
//
// The direct way: every id sets its bit in a bitmap of all rows and the flag of its chunk; the
// flagged chunks are listed and copied out next to each other, and cleared at the same time, so
// that bitmap and flags are empty again for the next set.
//
// The published way (HiPES): flags of chunks, maps between chunks and their places, ids tagged with
// the place of their chunk, counted and scattered into bins, one block a chunk for the bits.
//
// GPU-WAH (Andrzejewski and Wrembel): the bitmap is cut into groups of 31 rows; a group that ends a
// run counts one word; sums over the groups before give the places of the words.

// Words of a set's status. The total at a part is the number of chunks listed before that part.
static const u32 PAST = 0;    // 1: an id is not below the rows
static const u32 LATE = 1;    // 1: an id came after its chunk was written
static const u32 ROWS_END = 2; // the highest id plus one
static const u32 TOTALS = 4;

static const u32 NONE = 0xFFFFFFFFu;
static const u32 FULL = 0x7FFFFFFFu;
static const u32 FILL = 0x80000000u;

// Flag words that a block lists, counts that it adds up: 8 a thread.
static const u32 TILE_EACH = 8;
// Rows of 32 groups that a warp encodes.
static const u32 UNIT_ROWS = 16;

struct alignas(16) Four {
    u32 at[4];
};

// Up to four ids from `at` on; missing ones, and those past the rows, are NONE.
DEVICE u32 load_four(const u32 *ids, u32 at, u32 count, u32 rows, Four *four) {
    u32 past = 0;
    if (at + 4 <= count) {
        *four = *(const Four *)(ids + at);
    } else {
        for (u32 i = 0; i < 4; i++) four->at[i] = at + i < count ? ids[at + i] : NONE;
    }
    for (u32 i = 0; i < 4; i++) {
        if (four->at[i] < rows) continue;
        past |= at + i < count;
        four->at[i] = NONE;
    }
    return past;
}

// If there are few flags, each block gathers its own and joins them at the end, so that not all
// threads of the device compete for the same few words.
static const u32 SEEN_WORDS = 2048;

struct Flags {
    u32 *all;
    // The block's own, or null if there are too many.
    u32 *seen;
    u32 words;

    // All threads of the block call it, and `join` at the end.
    DEVICE_METHOD void open(u32 *flags, u32 *room, u32 rows, u32 width) {
        all = flags;
        words = rows == 0 ? 0 : ((rows - 1) >> width) / 32 + 1;
        seen = words <= SEEN_WORDS ? room : 0;
        if (seen == 0) return;
        for (u32 i = threadIdx.x; i < words; i += blockDim.x) seen[i] = 0;
        __syncthreads();
    }

    // The flag is read first, since most ids find it set. The flags of all blocks are read past the
    // first-level cache, where they would stay unset for long.
    DEVICE_METHOD void set(u32 chunk) {
        u32 bit = 1u << (chunk & 31);
        if (seen != 0) {
            if ((*(volatile u32 *)&seen[chunk >> 5] & bit) == 0) atomicOr(&seen[chunk >> 5], bit);
        } else if ((__ldcg(&all[chunk >> 5]) & bit) == 0) {
            atomicOr(&all[chunk >> 5], bit);
        }
    }

    DEVICE_METHOD void join() {
        if (seen == 0) return;
        __syncthreads();
        for (u32 i = threadIdx.x; i < words; i += blockDim.x)
            if (seen[i] != 0) atomicOr(&all[i], seen[i]);
    }
};

// Ors the masks of neighbouring lanes that have the same word into that of the last of them, and
// empties the others. Sorted and clustered ids then need fewer atomics.
DEVICE u32 merge_lanes(u32 word, u32 mask) {
    u32 lane = lane_id();
    u32 before = __shfl_up_sync(ALL_LANES, word, 1);
    if (!__any_sync(ALL_LANES, lane > 0 && before == word && mask != 0)) return mask;
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other_word = __shfl_up_sync(ALL_LANES, word, step);
        u32 other_mask = __shfl_up_sync(ALL_LANES, mask, step);
        if (lane >= step && other_word == word) mask |= other_mask;
    }
    u32 after = __shfl_down_sync(ALL_LANES, word, 1);
    return lane < 31 && after == word ? 0 : mask;
}

// Raises the end of the rows to the highest of the block.
DEVICE void note_end(u32 end, u32 *status) {
    __shared__ u32 highest;
    if (threadIdx.x == 0) highest = 0;
    __syncthreads();
    for (u32 by = 16; by > 0; by /= 2) {
        u32 other = __shfl_down_sync(ALL_LANES, end, by);
        if (other > end) end = other;
    }
    if (lane_id() == 0) atomicMax(&highest, end);
    __syncthreads();
    if (threadIdx.x == 0) atomicMax(&status[ROWS_END], highest);
}

// Sets the bits of ids, and the flags of their chunks. Chunks before `chunk_first` have been
// written. If there are no flags, the highest id is noted instead.
KERNEL sets_mark(const u32 *ids, u32 count, u32 rows, u32 chunk_first, u32 width, u32 *bits,
                 u32 *flags, u32 *status) {
    __shared__ u32 room[SEEN_WORDS];
    Flags chunks;
    if (flags != 0) chunks.open(flags, room, rows, width);
    u32 past = 0, late = 0, end = 0;
    u32 step = gridDim.x * blockDim.x * 4;
    for (u32 base = blockIdx.x * blockDim.x * 4; base < count; base += step) {
        Four four;
        past |= load_four(ids, base + threadIdx.x * 4, count, rows, &four);
        u32 word = NONE, mask = 0;
        for (u32 i = 0; i < 4; i++) {
            u32 id = four.at[i];
            if (id == NONE) continue;
            late |= (id >> width) < chunk_first;
            if (end <= id) end = id + 1;
            if (id >> 5 != word) {
                if (mask != 0) {
                    atomicOr(&bits[word], mask);
                    if (flags != 0) chunks.set(word >> (width - 5));
                }
                word = id >> 5;
                mask = 0;
            }
            mask |= 1u << (id & 31);
        }
        mask = merge_lanes(word, mask);
        if (mask != 0) {
            atomicOr(&bits[word], mask);
            if (flags != 0) chunks.set(word >> (width - 5));
        }
    }
    if (past) status[PAST] = 1;
    if (late) status[LATE] = 1;
    if (flags == 0) {
        note_end(end, status);
    } else {
        chunks.join();
    }
}

// The flags of 32 chunks, those from `chunk_end` on left out.
DEVICE u32 flags_before(const u32 *flags, u32 words, u32 chunk_end, u32 at) {
    if (at >= words || at * 32 >= chunk_end) return 0;
    u32 left = chunk_end - at * 32;
    return left >= 32 ? flags[at] : flags[at] & ((1u << left) - 1);
}

// Counts the flagged chunks of a tile.
KERNEL sets_count(const u32 *flags, u32 words, u32 chunk_end, u32 *sums) {
    __shared__ u32 room[32];
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * TILE_EACH;
    u32 count = 0, total;
    for (u32 i = 0; i < TILE_EACH; i++) {
        count += __popc(flags_before(flags, words, chunk_end, at + i));
    }
    block_sum_before(count, room, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Lists the flagged chunks in order, notes the place of each if `places` is given, and clears the
// flags. `sums` are those of the tiles; one tile needs none.
KERNEL sets_list(u32 *flags, u32 words, u32 chunk_end, const u32 *sums, u32 part, u32 *list,
                 u32 *places, u32 *status) {
    __shared__ u32 room[32];
    if (status[LATE]) return;
    u32 own = 0, tiles_before, total;
    for (u32 i = threadIdx.x; i < blockIdx.x; i += blockDim.x) own += sums[i];
    block_sum_before(own, room, &tiles_before);
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * TILE_EACH;
    u32 count = 0;
    for (u32 i = 0; i < TILE_EACH; i++) {
        count += __popc(flags_before(flags, words, chunk_end, at + i));
    }
    u32 start = status[TOTALS + part] + tiles_before;
    u32 place = start + block_sum_before(count, room, &total);
    for (u32 i = 0; i < TILE_EACH; i++) {
        u32 left = flags_before(flags, words, chunk_end, at + i);
        if (left == 0) continue;
        flags[at + i] &= ~left;
        for (; left != 0; left &= left - 1, place++) {
            u32 chunk = (at + i) * 32 + __ffs(left) - 1;
            list[place] = chunk;
            if (places != 0) places[chunk] = place;
        }
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) status[TOTALS + part + 1] = start + total;
}

// Copies the chunks of a part to where they belong, each after its header, and clears them.
KERNEL sets_gather(u32 *bits, const u32 *list, u32 width, u32 part, u32 *out, const u32 *status) {
    if (status[LATE]) return;
    u32 first = status[TOTALS + part];
    u32 shift = width - 5, mask = (1u << shift) - 1;
    u32 words = (status[TOTALS + part + 1] - first) << shift;
    u32 step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        u32 place = first + (i >> shift), word = i & mask, chunk = list[place];
        u32 *from = bits + ((u64)chunk << shift) + word;
        u32 *to = out + (u64)place * (mask + 2);
        u32 value = *from;
        if (value != 0) *from = 0;
        if (word == 0) *to = chunk;
        to[1 + word] = value;
    }
}

// The published way. Pass 0: the flags of the chunks.
KERNEL sets_chunks(const u32 *ids, u32 count, u32 rows, u32 width, u32 *flags, u32 *status) {
    __shared__ u32 room[SEEN_WORDS];
    Flags chunks;
    chunks.open(flags, room, rows, width);
    u32 past = 0;
    u32 step = gridDim.x * blockDim.x * 4;
    for (u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * 4; at < count; at += step) {
        Four four;
        past |= load_four(ids, at, count, rows, &four);
        for (u32 i = 0; i < 4; i++) {
            if (four.at[i] != NONE) chunks.set(four.at[i] >> width);
        }
    }
    if (past) status[PAST] = 1;
    chunks.join();
}

// Pass 2: every id gets the place of its chunk and its row in it.
KERNEL sets_tag(const u32 *ids, u32 count, u32 rows, u32 width, const u32 *places, u32 *tags,
                u32 *positions) {
    u32 step = gridDim.x * blockDim.x;
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        u32 id = ids[i];
        tags[i] = id < rows ? places[id >> width] : NONE;
        positions[i] = id & ((1u << width) - 1);
    }
}

// Adds the lanes with a tag to that tag's number, a run of equal neighbours with one atomic, and
// returns the number before this lane.
DEVICE u32 add_runs(u32 *numbers, u32 tag) {
    u32 lane = lane_id();
    u32 before = __shfl_up_sync(ALL_LANES, tag, 1);
    u32 heads = __ballot_sync(ALL_LANES, lane == 0 || before != tag);
    u32 head = 31 - __clz(heads & (lanes_below() | 1u << lane));
    u32 above = head == 31 ? 0 : heads >> (head + 1);
    u32 len = above != 0 ? (u32)__ffs(above) : 32 - head;
    u32 start = 0;
    if (lane == head && tag != NONE) start = atomicAdd(&numbers[tag], len);
    return __shfl_sync(ALL_LANES, start, head) + lane - head;
}

// Pass 3: how many ids a chunk has.
KERNEL sets_histogram(const u32 *tags, u32 count, u32 *counts) {
    u32 step = gridDim.x * blockDim.x;
    for (u64 base = blockIdx.x * blockDim.x; base < count; base += step) {
        u64 i = base + threadIdx.x;
        add_runs(counts, i < count ? tags[i] : NONE);
    }
}

// Pass 3, middle: the sums of the tiles of `values`.
KERNEL sets_sums(const u32 *values, u32 len, u32 *sums) {
    __shared__ u32 room[32];
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * TILE_EACH;
    u32 own = 0, total;
    for (u32 i = 0; i < TILE_EACH; i++) own += at + i < len ? values[at + i] : 0;
    block_sum_before(own, room, &total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Replaces numbers by the sum of those before, in one block.
KERNEL sets_sums_before(u32 *sums, u32 len) {
    __shared__ u32 room[32];
    u32 carry = 0;
    for (u32 base = 0; base < len; base += blockDim.x * TILE_EACH) {
        u32 at = base + threadIdx.x * TILE_EACH;
        u32 own = 0, total;
        for (u32 i = 0; i < TILE_EACH; i++) own += at + i < len ? sums[at + i] : 0;
        u32 before = carry + block_sum_before(own, room, &total);
        for (u32 i = 0; i < TILE_EACH && at + i < len; i++) {
            u32 value = sums[at + i];
            sums[at + i] = before;
            before += value;
        }
        carry += total;
    }
}

// Replaces the values by the sum of those before, with the sums before the tiles.
KERNEL sets_values_before(u32 *values, u32 len, const u32 *sums) {
    __shared__ u32 room[32];
    u32 at = (blockIdx.x * blockDim.x + threadIdx.x) * TILE_EACH;
    u32 own = 0, total;
    for (u32 i = 0; i < TILE_EACH; i++) own += at + i < len ? values[at + i] : 0;
    u32 before = sums[blockIdx.x] + block_sum_before(own, room, &total);
    for (u32 i = 0; i < TILE_EACH && at + i < len; i++) {
        u32 value = values[at + i];
        values[at + i] = before;
        before += value;
    }
}

// Pass 3, end: the rows go to the bins. `cursors` begin at the starts of the bins and finish at
// their ends, where the next bins start.
KERNEL sets_scatter(const u32 *tags, const u32 *positions, u32 count, u32 *cursors, u32 *bins) {
    u32 step = gridDim.x * blockDim.x;
    for (u64 base = blockIdx.x * blockDim.x; base < count; base += step) {
        u64 i = base + threadIdx.x;
        u32 tag = i < count ? tags[i] : NONE;
        u32 at = add_runs(cursors, tag);
        if (tag != NONE) bins[at] = positions[i];
    }
}

// Pass 4: a block sets the bits of a chunk in shared memory and writes header and bits.
KERNEL sets_build(const u32 *bins, const u32 *ends, const u32 *list, u32 width, u32 *out,
                  const u32 *status) {
    SHARED_BYTES(room);
    u32 *bits = (u32 *)room;
    u32 words = 1u << (width - 5), chunks = status[TOTALS + 1];
    for (u32 place = blockIdx.x; place < chunks; place += gridDim.x) {
        for (u32 i = threadIdx.x; i < words; i += blockDim.x) bits[i] = 0;
        __syncthreads();
        u32 from = place == 0 ? 0 : ends[place - 1], end = ends[place];
        for (u32 i = from + threadIdx.x; i < end; i += blockDim.x) {
            atomicOr(&bits[bins[i] >> 5], 1u << (bins[i] & 31));
        }
        __syncthreads();
        u32 *to = out + (u64)place * (words + 1);
        if (threadIdx.x == 0) *to = list[place];
        for (u32 i = threadIdx.x; i < words; i += blockDim.x) to[1 + i] = bits[i];
        __syncthreads();
    }
}

// Pass 4 for chunks that do not fit shared memory: headers and empty bits first,
KERNEL sets_blank(const u32 *list, u32 width, u32 *out, const u32 *status) {
    u32 shift = width - 5, mask = (1u << shift) - 1;
    u32 words = status[TOTALS + 1] << shift;
    u32 step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) {
        u32 place = i >> shift, word = i & mask;
        u32 *to = out + (u64)place * (mask + 2);
        if (word == 0) *to = list[place];
        to[1 + word] = 0;
    }
}

// then every id sets its bit where it belongs.
KERNEL sets_or(const u32 *tags, const u32 *positions, u32 count, u32 width, u32 *out) {
    u32 words = 1u << (width - 5);
    u32 step = gridDim.x * blockDim.x;
    for (u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        if (tags[i] == NONE) continue;
        u32 *to = out + (u64)tags[i] * (words + 1) + 1;
        atomicOr(&to[positions[i] >> 5], 1u << (positions[i] & 31));
    }
}

// The number of groups: as given, or as many as the highest id needs.
DEVICE u32 group_count(u32 groups, const u32 *status) {
    if (groups != 0) return groups;
    u32 end = status[ROWS_END];
    return end == 0 ? 0 : (end - 1) / 31 + 1;
}

// 32 groups are 31 words: lane i has the upper i bits of its group in word i and the rest in the
// word before. Lane 31 loads the first word of the next row, to see how that begins. Returns which
// lanes end a run: a literal, the last of equal fills, the last group of all.
DEVICE u32 row_ends(const u32 *bits, u32 words, u32 groups, u32 row, u32 *group) {
    u32 lane = lane_id();
    u32 at = row * 31 + lane;
    u32 word = at < words ? bits[at] : 0;
    u32 below = __shfl_up_sync(ALL_LANES, word, 1);
    u32 own = (lane == 0 ? word : below >> (32 - lane) | word << lane) & FULL;
    u32 next = __shfl_down_sync(ALL_LANES, own, 1);
    if (lane == 31) next = word & FULL;
    u32 index = row * 32 + lane;
    bool fill = own == 0 || own == FULL;
    *group = own;
    return __ballot_sync(ALL_LANES,
                         index < groups && (!fill || own != next || index + 1 == groups));
}

// Counts the words of a unit, and notes how many groups come after its last run.
KERNEL sets_wah_count(const u32 *bits, u32 words, u32 groups_or_0, u32 *counts, u32 *ends,
                      const u32 *status) {
    u32 groups = group_count(groups_or_0, status);
    u32 units = (groups + 32 * UNIT_ROWS - 1) / (32 * UNIT_ROWS);
    u32 step = gridDim.x * blockDim.x >> 5;
    for (u32 unit = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; unit < units; unit += step) {
        u32 count = 0, end = 0, group;
        for (u32 i = 0; i < UNIT_ROWS; i++) {
            u32 row = unit * UNIT_ROWS + i;
            u32 found = row_ends(bits, words, groups, row, &group);
            count += __popc(found);
            if (found != 0) end = row * 32 + 32 - __clz(found);
        }
        if (lane_id() == 0) {
            counts[unit] = count;
            ends[unit] = end;
        }
    }
}

// The highest of `value` over the lanes up to this one.
DEVICE u32 warp_max_to(u32 value) {
    for (u32 step = 1; step < 32; step *= 2) {
        u32 other = __shfl_up_sync(ALL_LANES, value, step);
        if (lane_id() >= step && other > value) value = other;
    }
    return value;
}

// The highest of `value` over the threads before this one, 0 if there is none; `total` is that
// over all of the block.
DEVICE u32 block_max_before(u32 value, u32 *room, u32 *total) {
    u32 inclusive = warp_max_to(value);
    __syncthreads();
    if (lane_id() == 31) room[warp_id()] = inclusive;
    __syncthreads();
    u32 tops = warp_max_to(lane_id() < blockDim.x >> 5 ? room[lane_id()] : 0);
    *total = __shfl_sync(ALL_LANES, tops, 31);
    u32 warps = __shfl_sync(ALL_LANES, tops, (warp_id() + 31) & 31);
    u32 lanes = __shfl_up_sync(ALL_LANES, inclusive, 1);
    if (warp_id() == 0) warps = 0;
    if (lane_id() == 0) lanes = 0;
    return warps > lanes ? warps : lanes;
}

// Replaces the counts by their sum over the units before, and the ends by the highest before, in
// one block.
KERNEL sets_wah_before(u32 groups_or_0, u32 *counts, u32 *ends, const u32 *status) {
    __shared__ u32 room[32];
    u32 groups = group_count(groups_or_0, status);
    u32 units = (groups + 32 * UNIT_ROWS - 1) / (32 * UNIT_ROWS);
    u32 count_carry = 0, end_carry = 0;
    for (u32 base = 0; base < units; base += blockDim.x * TILE_EACH) {
        u32 at = base + threadIdx.x * TILE_EACH;
        u32 count = 0, end = 0, count_total, end_total;
        for (u32 i = 0; i < TILE_EACH && at + i < units; i++) {
            count += counts[at + i];
            if (ends[at + i] > end) end = ends[at + i];
        }
        count = count_carry + block_sum_before(count, room, &count_total);
        end = block_max_before(end, room, &end_total);
        if (end_carry > end) end = end_carry;
        for (u32 i = 0; i < TILE_EACH && at + i < units; i++) {
            u32 own_count = counts[at + i], own_end = ends[at + i];
            counts[at + i] = count;
            ends[at + i] = end;
            count += own_count;
            if (own_end > end) end = own_end;
        }
        count_carry += count_total;
        if (end_total > end_carry) end_carry = end_total;
    }
}

// Writes the words of a unit. `published` rows go from the lowest bit up and an empty fill may end
// the words; otherwise they go from bit 30 down and it is left out.
KERNEL sets_wah_write(const u32 *bits, u32 words, u32 groups_or_0, const u32 *counts,
                      const u32 *ends, u32 published, u32 *out, u32 *status) {
    u32 groups = group_count(groups_or_0, status);
    u32 units = (groups + 32 * UNIT_ROWS - 1) / (32 * UNIT_ROWS);
    u32 step = gridDim.x * blockDim.x >> 5, lane = lane_id();
    for (u32 unit = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; unit < units; unit += step) {
        u32 count = counts[unit], end = ends[unit], group;
        for (u32 i = 0; i < UNIT_ROWS; i++) {
            u32 row = unit * UNIT_ROWS + i;
            u32 found = row_ends(bits, words, groups, row, &group);
            u32 before = found & lanes_below();
            u32 index = row * 32 + lane;
            if (found >> lane & 1) {
                u32 start = before != 0 ? row * 32 + 32 - __clz(before) : end;
                bool fill = group == 0 || group == FULL;
                bool last = index + 1 == groups;
                bool dropped = last && group == 0 && !published;
                u32 place = count + __popc(before);
                u32 literal = published ? group : __brev(group) >> 1;
                u32 run = FILL | (group & 0x40000000u) | (index + 1 - start);
                if (!dropped) out[place] = fill ? run : literal;
                if (last) status[TOTALS + 1] = place + !dropped;
            }
            count += __popc(found);
            if (found != 0) end = row * 32 + 32 - __clz(found);
        }
    }
}

// Clears the bitmap up to the highest id.
KERNEL sets_clear(u32 *bits, const u32 *status) {
    u32 end = status[ROWS_END];
    u32 words = end == 0 ? 0 : ((end - 1) >> 5) + 1;
    u32 step = gridDim.x * blockDim.x;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) bits[i] = 0;
}
