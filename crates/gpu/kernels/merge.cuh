// Merging the words of WAH into pairs or triples, greedily from the left, in parallel.
//
// What happens to a word depends on the words before it: one that was taken into a pair or triple
// is not written itself. This is an automaton whose state is the number of words still to be taken.
// For each of the three states that a share of words may be entered in, it is left in some state
// and writes some number of words: a *step*. Steps are composed over threads, tiles and the whole
// column, and then every thread knows in which state it starts and where its words go.
//
// Items are read ten at a time: after the last one there is room for as many.
//
// A rule says which words merge:
//
//     static const u32 SPAN;                 // how many words, 2 or 3
//     static u32 digest(u32 item);           // what `join` has to know of an item
//     static u32 join(u32 a, u32 b, u32 c);  // of digests: the merged word, or 0
//     static u32 alone(u32 item);            // the word of an item alone
//     static u32 extra(u32 item);            // how many words more than one it takes alone

#include "groups.cuh"
#include "run.cuh"

static const u32 MERGE_THREADS = 256;
static const u32 MERGE_EACH = 8;
static const u32 MERGE_TILE = MERGE_THREADS * MERGE_EACH;

// Two bits for each state entered: the state left.
typedef u32 States;
static const States STAY = 0x24;

DEVICE u32 state_left(States states, u32 entered) { return states >> (2 * entered) & 3; }

DEVICE States then(States a, States b) {
    return state_left(b, a & 3) | state_left(b, a >> 2 & 3) << 2 | state_left(b, a >> 4 & 3) << 4;
}

// A step of many words: the states left, and the words written, by the state entered.
struct Step {
    States states;
    u32 words[3];
};

// The items of a thread, and the two after them.
template <class Rule> struct Share {
    u32 items[MERGE_EACH];
    u32 digests[MERGE_EACH + 2];
    // One bit for each item: whether it exists, and whether it begins a pair or triple unless it is
    // taken.
    u32 there;
    u32 joins;
    // Bits of items that are the first of their key.
    u32 firsts;

    DEVICE_METHOD void load(const u32 *all, const u32 *all_firsts, u32 len, u32 at) {
        there = joins = firsts = 0;
        if (at >= len) return;
        u32 left = len - at;
        there = left >= MERGE_EACH ? (1u << MERGE_EACH) - 1 : (1u << left) - 1;
        u32 shift = at & 31;
        firsts = all_firsts[at / 32] >> shift;
        if (shift == 24) firsts |= all_firsts[at / 32 + 1] << 8;
        // Full-width reads: there is room after the last item, and what is there is not used.
        uint4 low = *(const uint4 *)(all + at);
        uint4 high = *(const uint4 *)(all + at + 4);
        uint2 next = *(const uint2 *)(all + at + 8);
        u32 read[MERGE_EACH + 2] = {low.x,  low.y,  low.z,  low.w,  high.x,
                                    high.y, high.z, high.w, next.x, next.y};
        for (u32 i = 0; i < MERGE_EACH + 2; i++) {
            if (i < MERGE_EACH) items[i] = read[i];
            digests[i] = Rule::digest(read[i]);
        }
        // The last items cannot begin one if the column ends first.
        u32 after = left >= 32 ? ALL_LANES : (1u << left) - 1;
        u32 goes_on = (after & ~firsts) >> 1;
        if (Rule::SPAN == 3) goes_on &= (after & ~firsts) >> 2;
        for (u32 i = 0; i < MERGE_EACH; i++) {
            bool is_one = Rule::join(digests[i], digests[i + 1], digests[i + 2]) != 0;
            joins |= (u32)is_one << i;
        }
        joins &= goes_on & there;
    }

    // The items that are written if the share is entered in some state, which is replaced by the
    // one it is left in.
    DEVICE_METHOD u32 written(u32 *state) const {
        u32 found = 0;
        u32 left = *state;
        for (u32 i = 0; i < MERGE_EACH; i++) {
            bool is_free = left == 0;
            found |= (u32)is_free << i;
            left = is_free ? (joins >> i & 1) * (Rule::SPAN - 1) : left - 1;
        }
        *state = left;
        return found & there;
    }

    // Words beyond one each; items that have any never merge.
    DEVICE_METHOD u32 extra() const {
        u32 sum = 0;
        for (u32 i = 0; i < MERGE_EACH; i++)
            if (there >> i & 1) sum += Rule::extra(items[i]);
        return sum;
    }
};

// What a share writes and leaves, by the state it is entered in.
struct Outcomes {
    u32 written[3];
    States states;
};

template <class Rule> DEVICE Outcomes outcomes(const Share<Rule> &share) {
    Outcomes all;
    all.states = 0;
    for (u32 state = 0; state < 3; state++) {
        u32 left = state;
        all.written[state] = share.written(&left);
        all.states |= left << (2 * state);
    }
    return all;
}

DEVICE u32 written_from(const Outcomes &all, u32 state) {
    return state == 0 ? all.written[0] : state == 1 ? all.written[1] : all.written[2];
}

// The states of all threads before this one; `all` are those of the whole block.
DEVICE States block_states_before(States states, States *room, States *all) {
    States to_here = states;
    for (u32 distance = 1; distance < 32; distance *= 2) {
        States other = __shfl_up_sync(ALL_LANES, to_here, distance);
        if (lane_id() >= distance) to_here = then(other, to_here);
    }
    if (lane_id() == 31) room[warp_id()] = to_here;
    __syncthreads();
    States before = STAY;
    *all = STAY;
    for (u32 warp = 0; warp < MERGE_THREADS / 32; warp++) {
        if (warp == warp_id()) before = *all;
        *all = then(*all, room[warp]);
    }
    States in_warp = __shfl_up_sync(ALL_LANES, to_here, 1);
    return lane_id() == 0 ? before : then(before, in_warp);
}

// Finds the step of each tile, and the words that it writes beyond one for each item.
template <class Rule, bool HAS_EXTRA>
DEVICE void merge_count(const u32 *items, const u32 *count, const u32 *firsts, Step *steps,
                        u32 *extras) {
    __shared__ States room[32];
    __shared__ u32 sums[32];
    u32 len = *count;
    u32 base = blockIdx.x * MERGE_TILE;
    if (base >= len) return;
    Share<Rule> share;
    share.load(items, firsts, len, base + threadIdx.x * MERGE_EACH);
    Outcomes all = outcomes(share);
    States left;
    States before = block_states_before(all.states, room, &left);
    // Three sums at once: those of a warp have nine bits each.
    u32 packed = 0;
    for (u32 state = 0; state < 3; state++)
        packed |= (u32)__popc(written_from(all, state_left(before, state))) << (10 * state);
    packed = warp_sum_to(packed);
    if (lane_id() == 31) sums[warp_id()] = packed;
    u32 extra = 0;
    if (HAS_EXTRA) {
        __shared__ u32 extra_sums[32];
        block_sum_before(share.extra(), extra_sums, &extra);
    } else {
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    Step step = {left, {0, 0, 0}};
    for (u32 warp = 0; warp < MERGE_THREADS / 32; warp++)
        for (u32 state = 0; state < 3; state++)
            step.words[state] += sums[warp] >> (10 * state) & 0x3FF;
    steps[blockIdx.x] = step;
    extras[blockIdx.x] = extra;
}

// Writes the words of each tile, and where those of each key start. `starts` has the state in which
// each tile is entered and where its words go.
template <class Rule, bool HAS_EXTRA>
DEVICE void merge_write(const u32 *items, const u32 *count, const u32 *firsts, const uint2 *starts,
                        const u32 *total, const u32 *key_items, const u32 *keys_count,
                        u32 *target, u32 *key_words) {
    __shared__ States room[32];
    __shared__ u32 sums[32];
    __shared__ u32 held[MERGE_TILE];
    u32 len = *count;
    u32 base = blockIdx.x * MERGE_TILE;
    if (blockIdx.x == 0 && threadIdx.x == 0) key_words[*keys_count] = *total;
    if (base >= len) return;
    u32 at = base + threadIdx.x * MERGE_EACH;
    Share<Rule> share;
    share.load(items, firsts, len, at);
    States left;
    States before = block_states_before(outcomes(share).states, room, &left);
    uint2 start = starts[blockIdx.x];
    u32 state = state_left(before, start.x);
    u32 written = share.written(&state);
    u32 words;
    u32 place = block_sum_before(__popc(written) + (HAS_EXTRA ? share.extra() : 0), sums, &words);
    for (u32 i = 0; i < MERGE_EACH; i++) {
        if (!(written >> i & 1)) continue;
        u32 word = Rule::alone(share.items[i]);
        if (share.joins >> i & 1)
            word = Rule::join(share.digests[i], share.digests[i + 1], share.digests[i + 2]);
        if (share.firsts >> i & 1)
            key_words[place_of(key_items, *keys_count, at + i)] = start.y + place;
        if (HAS_EXTRA) {
            // The words of an item that has several are there already: all bits are set.
            if (Rule::extra(share.items[i]) == 0) target[start.y + place] = word;
            place += 1 + Rule::extra(share.items[i]);
        } else {
            held[place++] = word;
        }
    }
    if (HAS_EXTRA) return;
    __syncthreads();
    for (u32 i = threadIdx.x; i < words; i += MERGE_THREADS) target[start.y + i] = held[i];
}
