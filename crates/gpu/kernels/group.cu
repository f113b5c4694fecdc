// Packets grouped into flows: those of a chunk by hashing, those of several chunks by sorting.
//
// Word w of the key of record i is keys[w * stride + i]. Records of equal keys are a flow. A wide
// part has ten words side by side; `wide_of` gives the slot of a record's wide part, plus one.
//
// A hash table finds equal keys: whoever comes first with a key *leads*, and the others find its
// number there. Keys are compared in full, so that the hash only determines the speed. It has a
// secret: a sender of crafted packets cannot choose keys that meet in the table.

#include "threads.cuh"

static const u32 KEY_WORDS = 6;
static const u32 WIDE_WORDS = 10;
// The word of a key whose high half is the number of the wide part, from 1.
static const u32 WIDE_WORD = 2;
static const u32 NONE = 0xFFFFFFFFu;
static const u64 LOW_HALF = 0xFFFFFFFFull;

// What a packet has for itself, digit by digit; null where it is not kept.
struct Own {
    u8 *flags;
    u8 *length;
    u16 *window;
    u16 *len_high;
    u16 *len_low;
};

DEVICE Own own_of(u8 *flags, u8 *length, u16 *window, u16 *len_high, u16 *len_low) {
    Own own;
    own.flags = flags;
    own.length = length;
    own.window = window;
    own.len_high = len_high;
    own.len_low = len_low;
    return own;
}

// Copies what one packet has for itself to the place of another.
DEVICE void copy_own(const Own &to, u32 at, const Own &from, u32 source) {
    if (to.flags) to.flags[at] = from.flags[source];
    if (to.length) to.length[at] = from.length[source];
    if (to.window) to.window[at] = from.window[source];
    if (to.len_high) to.len_high[at] = from.len_high[source];
    if (to.len_low) to.len_low[at] = from.len_low[source];
}

// Packets that the host has decoded. For each the record and its excess, the words of the key and
// of the wide part, and what it has for itself: SENT_WORDS words.
static const u32 SENT_WORDS = 19;

// Puts them among the others. counts[1] is the number of slots of wide parts.
KERNEL group_place(const u64 *sent, u32 count, u32 stride, u64 *keys, u32 *wide_of, u64 *wides,
                   u32 *excess, u8 *own_flags, u8 *own_length, u16 *own_window, u16 *own_len_high,
                   u16 *own_len_low, u32 *counts) {
    u32 at = thread_number();
    if (at >= count) return;
    sent += (u64)at * SENT_WORDS;
    u32 record = (u32)sent[0];
    excess[record] = (u32)(sent[0] >> 32);
    for (u32 word = 0; word < KEY_WORDS; word++) keys[word * stride + record] = sent[1 + word];
    sent += 1 + KEY_WORDS;
    u64 any = 0;
    for (u32 word = 0; word < WIDE_WORDS; word++) any |= sent[word];
    u32 slot = 0;
    if (any != 0) {
        slot = atomicAdd(&counts[1], 1u) + 1;
        for (u32 word = 0; word < WIDE_WORDS; word++)
            wides[(slot - 1) * WIDE_WORDS + word] = sent[word];
    }
    wide_of[record] = slot;
    u64 own = sent[WIDE_WORDS];
    if (own_flags) own_flags[record] = (u8)own;
    if (own_length) own_length[record] = (u8)(own >> 16);
    if (own_window) own_window[record] = (u16)(own >> 32);
    if (own_len_high) own_len_high[record] = (u16)(own >> 48);
    if (own_len_low) own_len_low[record] = (u16)sent[WIDE_WORDS + 1];
}

// Moves what has been decoded so far to larger memory.
KERNEL group_move(const u64 *keys, u32 stride, const u32 *wide_of, const u64 *wides,
                  const u32 *excess, u8 *own_flags, u8 *own_length, u16 *own_window,
                  u16 *own_len_high, u16 *own_len_low, const u32 *refused, const u32 *counts,
                  u32 records, u64 *new_keys, u32 new_stride, u32 *new_wide_of, u64 *new_wides,
                  u32 *new_excess, u8 *new_flags, u8 *new_length, u16 *new_window,
                  u16 *new_len_high, u16 *new_len_low, u32 *new_refused) {
    u32 at = thread_number();
    if (at >= records) return;
    for (u32 word = 0; word < KEY_WORDS; word++)
        new_keys[word * new_stride + at] = keys[word * stride + at];
    new_wide_of[at] = wide_of[at];
    new_excess[at] = excess[at];
    copy_own(own_of(new_flags, new_length, new_window, new_len_high, new_len_low), at,
             own_of(own_flags, own_length, own_window, own_len_high, own_len_low), at);
    if (at < counts[0]) new_refused[at] = refused[at];
    if (at < counts[1])
        for (u32 word = 0; word < WIDE_WORDS; word++)
            new_wides[at * WIDE_WORDS + word] = wides[at * WIDE_WORDS + word];
}

// Tells the host which records were refused: how many, the number of slots, and the records.
KERNEL group_refused(const u32 *counts, const u32 *refused, u32 records, volatile u32 *host) {
    u32 at = thread_number();
    if (at < 2) host[at] = counts[at];
    if (at < records && at < counts[0]) host[2 + at] = refused[at];
    __threadfence_system();
}

// The figures of a chunk, by their places: the bits that are set in any key, and those that are not
// set in all of them; the same of wide parts; how many packets are odd; a bit for each digit of
// packets that is not always 0.
static const u32 BITS = 0;
static const u32 MISSING = 6;
static const u32 WIDE_BITS = 12;
static const u32 WIDE_MISSING = 22;
static const u32 ODD = 32;
static const u32 OWN = 33;

// Where a key says that a packet's headers are odd: word 0, this bit.
static const u32 ODD_BIT = 32;

DEVICE u64 warp_or(u64 bits) {
    for (u32 step = 16; step > 0; step /= 2) bits |= __shfl_xor_sync(ALL_LANES, bits, step);
    return bits;
}

DEVICE void note_bits(u64 *figures, u32 place, u64 bits) {
    bits = warp_or(bits);
    if (lane_id() == 0 && bits != 0) atomicOr(&figures[place], bits);
}

// In the table: nobody is here.
static const u64 FREE = ~0ull;

// Computes the figures, which are 0 at first, and clears the table and the sums. Each thread takes
// several records.
KERNEL group_prepare(const u64 *keys, u32 stride, u32 records, const u32 *wide_of,
                     const u64 *wides, u32 has_wide, const u8 *own_flags, const u8 *own_length,
                     const u16 *own_window, const u16 *own_len_high, const u16 *own_len_low,
                     u64 *figures, u64 *table, u32 table_len, u32 *packets, u64 *excess) {
    u32 step = gridDim.x * blockDim.x;
    for (u32 at = thread_number(); at < table_len; at += step) table[at] = FREE;
    u64 bits[KEY_WORDS] = {};
    u64 missing[KEY_WORDS] = {};
    u32 odd = 0;
    u32 own = 0;
    for (u32 record = thread_number(); record < records; record += step) {
        packets[record] = 0;
        excess[record] = 0;
#pragma unroll
        for (u32 word = 0; word < KEY_WORDS; word++) {
            u64 key = keys[word * stride + record];
            bits[word] |= key;
            missing[word] |= ~key;
            if (word == 0) odd += (u32)(key >> ODD_BIT) & 1;
        }
        if (own_flags && own_flags[record] != 0) own |= 1;
        if (own_length && own_length[record] != 0) own |= 2;
        if (own_window && own_window[record] != 0) own |= 4;
        if (own_len_high && own_len_high[record] != 0) own |= 8;
        if (own_len_low && own_len_low[record] != 0) own |= 16;
    }
#pragma unroll
    for (u32 word = 0; word < KEY_WORDS; word++) {
        note_bits(figures, BITS + word, bits[word]);
        note_bits(figures, MISSING + word, missing[word]);
    }
    note_bits(figures, OWN, own);
    u32 sum = warp_sum_to(odd);
    if (lane_id() == 31 && sum != 0) atomicAdd(&figures[ODD], (u64)sum);
    if (!has_wide) return;
    u64 wide_bits[WIDE_WORDS] = {};
    u64 wide_missing[WIDE_WORDS] = {};
    for (u32 record = thread_number(); record < records; record += step) {
        u32 slot = wide_of[record];
        if (slot == 0) continue;
        const u64 *wide = wides + (u64)(slot - 1) * WIDE_WORDS;
#pragma unroll
        for (u32 word = 0; word < WIDE_WORDS; word++) {
            wide_bits[word] |= wide[word];
            wide_missing[word] |= ~wide[word];
        }
    }
#pragma unroll
    for (u32 word = 0; word < WIDE_WORDS; word++) {
        note_bits(figures, WIDE_BITS + word, wide_bits[word]);
        note_bits(figures, WIDE_MISSING + word, wide_missing[word]);
    }
}

// Mixes two words into one.
DEVICE u64 fold(u64 a, u64 b) { return a * b ^ __umul64hi(a, b); }

DEVICE u64 turned(u64 word, u32 by) { return word << by | word >> (64 - by); }

template <u32 LEN> DEVICE u64 hash_of(const u64 *key, u64 secret) {
    u64 hash = secret;
#pragma unroll
    for (u32 i = 0; i < LEN; i += 2)
        hash ^= fold(key[i] ^ turned(secret, 5 * i + 3), key[i + 1] ^ turned(secret, 5 * i + 8));
    return fold(hash, 0x9E3779B97F4A7C15ull);
}

// A key of LEN words, and where the others are: those of one key lie `step` words apart, the first
// words of two keys that are neighbours `next` words.
template <u32 LEN> struct Key {
    u64 words[LEN];
    const u64 *all;
    u32 step;
    u32 next;

    DEVICE_METHOD void read(u32 number) {
#pragma unroll
        for (u32 i = 0; i < LEN; i++) words[i] = all[(u64)number * next + (u64)i * step];
    }

    DEVICE_METHOD bool is_that_of(u32 number) const {
        u64 differ = 0;
#pragma unroll
        for (u32 i = 0; i < LEN; i++)
            differ |= all[(u64)number * next + (u64)i * step] ^ words[i];
        return differ == 0;
    }
};

// The number that leads those of this key: this one, if it comes first. An entry of the table is
// half of the hash and a number; at most half of the entries are taken.
template <u32 LEN>
DEVICE u32 leader_of_key(u64 *table, u32 mask, const Key<LEN> &key, u32 number, u64 secret) {
    u64 hash = hash_of<LEN>(key.words, secret);
    u64 entry = (hash & ~LOW_HALF) | number;
    for (u32 at = (u32)hash & mask;; at = (at + 1) & mask) {
        u64 found = table[at];
        if (found == FREE) {
            found = atomicCAS(&table[at], FREE, entry);
            if (found == FREE) return number;
        }
        if (found >> 32 == hash >> 32 && key.is_that_of((u32)found)) return (u32)found;
    }
}

// Gives each of those that lead a number, from 0 on.
DEVICE void number_leaders(bool leads, u32 which, u32 *number_of, u32 *leaders, u32 *count) {
    u32 all = __ballot_sync(ALL_LANES, leads);
    u32 first = 0;
    if (lane_id() == 0 && all != 0) first = atomicAdd(count, (u32)__popc(all));
    first = __shfl_sync(ALL_LANES, first, 0);
    if (!leads) return;
    u32 number = first + __popc(all & lanes_below());
    number_of[which] = number;
    leaders[number] = which;
}

// Finds equal wide parts. One that is 0 is none, and nobody leads it.
KERNEL group_wides(const u32 *wide_of, u32 records, const u64 *wides, u64 secret, u64 *table,
                   u32 mask, u32 *leader_of, u32 *number_of, u32 *leaders, u32 *count) {
    u32 record = thread_number();
    u32 slot = record < records ? wide_of[record] : 0;
    bool leads = false;
    if (slot != 0) {
        slot -= 1;
        Key<WIDE_WORDS> key;
        key.all = wides;
        key.step = 1;
        key.next = WIDE_WORDS;
        key.read(slot);
        u64 any = 0;
        for (u32 word = 0; word < WIDE_WORDS; word++) any |= key.words[word];
        u32 leader = NONE;
        if (any != 0) leader = leader_of_key(table, mask, key, slot, secret);
        leader_of[slot] = leader;
        leads = leader == slot;
    }
    number_leaders(leads, slot, number_of, leaders, count);
}

// Puts the numbers of wide parts, from 1, into the keys.
KERNEL group_join(const u32 *wide_of, u32 records, const u32 *leader_of, const u32 *number_of,
                  u32 stride, u64 *keys) {
    u32 record = thread_number();
    if (record >= records || wide_of[record] == 0) return;
    u32 leader = leader_of[wide_of[record] - 1];
    if (leader == NONE) return;
    keys[WIDE_WORD * stride + record] |= (u64)(number_of[leader] + 1) << 32;
}

// Finds equal keys: `leader_of` gets the first record of each record's flow.
KERNEL group_flows(const u64 *keys, u32 stride, u32 records, u64 secret, u64 *table, u32 mask,
                   u32 *leader_of, u32 *number_of, u32 *leaders, u32 *count) {
    u32 record = thread_number();
    bool leads = false;
    if (record < records) {
        Key<KEY_WORDS> key;
        key.all = keys;
        key.step = stride;
        key.next = 1;
        key.read(record);
        u32 leader = leader_of_key(table, mask, key, record, secret);
        leader_of[record] = leader;
        leads = leader == record;
    }
    number_leaders(leads, record, number_of, leaders, count);
}

// The sum of `value` over those lanes that are `peers` of each other, in the first of them. All
// lanes call it.
DEVICE u64 sum_of_peers(u32 peers, u64 value) {
    u32 behind = peers & ~lanes_below() & ~(1u << lane_id());
    u32 place = __popc(peers & lanes_below());
    while (__any_sync(ALL_LANES, behind != 0)) {
        u32 next = __ffs(behind);
        u64 other = __shfl_sync(ALL_LANES, value, next ? next - 1 : 0);
        if (next) value += other;
        // Every second one has been added to the one before it.
        behind &= ~__ballot_sync(ALL_LANES, place & 1);
        place /= 2;
    }
    return value;
}

// Replaces leaders by the numbers of flows, and adds up packets and excess. Lanes of one flow add
// together: a flow may have all packets.
KERNEL group_count(u32 *flow_of, const u32 *number_of, u32 records, const u32 *excess_of,
                   u32 *packets, u64 *excess) {
    u32 record = thread_number();
    u32 flow = NONE;
    u64 sum = 0;
    if (record < records) {
        flow = number_of[flow_of[record]];
        flow_of[record] = flow;
        sum = excess_of[record];
    }
    u32 peers = __match_any_sync(ALL_LANES, flow);
    sum = sum_of_peers(peers, sum);
    if (flow == NONE || (peers & lanes_below()) != 0) return;
    atomicAdd(&packets[flow], (u32)__popc(peers));
    if (sum != 0) atomicAdd(&excess[flow], sum);
}

// Copies what is kept of a chunk into memory of its size: word w of flow i goes to
// flow_words[w * flows + i].
KERNEL group_keep(const u64 *keys, u32 stride, const u32 *leaders, u32 flows, const u32 *packets,
                  const u64 *excess, const u64 *wides, const u32 *wide_leaders, u32 wide_parts,
                  const u32 *flow_of, u32 records, u8 *own_flags, u8 *own_length, u16 *own_window,
                  u16 *own_len_high, u16 *own_len_low, u64 *flow_words, u32 *flow_packets,
                  u64 *flow_excess, u64 *flow_wides, u32 *record_flows, u8 *kept_flags,
                  u8 *kept_length, u16 *kept_window, u16 *kept_len_high, u16 *kept_len_low) {
    u32 at = thread_number();
    if (at < flows) {
        u32 leader = leaders[at];
#pragma unroll
        for (u32 word = 0; word < KEY_WORDS; word++)
            flow_words[word * flows + at] = keys[word * stride + leader];
        flow_packets[at] = packets[at];
        flow_excess[at] = excess[at];
    }
    if (at < wide_parts) {
        u32 leader = wide_leaders[at];
#pragma unroll
        for (u32 word = 0; word < WIDE_WORDS; word++)
            flow_wides[at * WIDE_WORDS + word] = wides[leader * WIDE_WORDS + word];
    }
    if (at >= records) return;
    record_flows[at] = flow_of[at];
    copy_own(own_of(kept_flags, kept_length, kept_window, kept_len_high, kept_len_low), at,
             own_of(own_flags, own_length, own_window, own_len_high, own_len_low), at);
}

// The chunks that are sorted together, each with CHUNK_WORDS words: how many records, flows and
// wide parts the chunks before it have, its number of flows, and where it is.
static const u32 CHUNK_WORDS = 16;
static const u32 FIRST_RECORD = 0;
static const u32 FIRST_FLOW = 1;
static const u32 FIRST_WIDE = 2;
static const u32 FLOWS = 3;
static const u32 AT_WORDS = 4;
static const u32 AT_PACKETS = 5;
static const u32 AT_EXCESS = 6;
static const u32 AT_WIDES = 7;
static const u32 AT_FLOW_OF = 8;
static const u32 AT_OWN = 9;

// The chunk of a record, a flow or a wide part: the last one that starts up to there.
DEVICE const u64 *chunk_of(const u64 *chunks, u32 count, u32 first, u32 number) {
    u32 low = 0;
    while (count > 1) {
        u32 half = count / 2;
        if (chunks[(u64)(low + half) * CHUNK_WORDS + first] <= number) low += half;
        count -= half;
    }
    return chunks + (u64)low * CHUNK_WORDS;
}

// The wide parts of all chunks: word w of part i is words[w * len + i].
KERNEL group_wide_words(const u64 *chunks, u32 count, u32 len, u64 *words) {
    u32 at = thread_number();
    if (at >= len) return;
    const u64 *chunk = chunk_of(chunks, count, FIRST_WIDE, at);
    const u64 *wide = (const u64 *)chunk[AT_WIDES] + (at - chunk[FIRST_WIDE]) * WIDE_WORDS;
    for (u32 word = 0; word < WIDE_WORDS; word++) words[(u64)word * len + at] = wide[word];
}

// The keys of the flows of all chunks, with the rank of a wide part in the place of its number.
KERNEL group_flow_words(const u64 *chunks, u32 count, u32 len, const u32 *wide_ranks,
                        u64 *words) {
    u32 at = thread_number();
    if (at >= len) return;
    const u64 *chunk = chunk_of(chunks, count, FIRST_FLOW, at);
    u64 flow = at - chunk[FIRST_FLOW];
    const u64 *key = (const u64 *)chunk[AT_WORDS] + flow;
    for (u32 word = 0; word < KEY_WORDS; word++) {
        u64 bits = key[word * chunk[FLOWS]];
        if (word == WIDE_WORD && bits >> 32 != 0) {
            u64 rank = wide_ranks[chunk[FIRST_WIDE] + (bits >> 32) - 1] + 1;
            bits = rank << 32 | (bits & LOW_HALF);
        }
        words[(u64)word * len + at] = bits;
    }
}

// Marks by 1 the keys that differ from the one before, in order; behind the last one is a 0.
KERNEL group_heads(const u64 *words, u32 word_count, const u32 *order, u32 len, u32 *heads) {
    u32 at = thread_number();
    if (at > len) return;
    u64 differ = at == 0;
    if (at > 0 && at < len) {
        u32 mine = order[at];
        u32 before = order[at - 1];
        for (u32 word = 0; word < word_count; word++)
            differ |= words[(u64)word * len + mine] ^ words[(u64)word * len + before];
    }
    heads[at] = differ != 0;
}

// The rank of each key among those that differ, and the first one of each rank; `places` are the
// marks, summed up.
KERNEL group_ranks(const u32 *order, u32 len, const u32 *places, u32 *ranks, u32 *firsts) {
    u32 at = thread_number();
    if (at >= len) return;
    u32 rank = places[at + 1] - 1;
    ranks[order[at]] = rank;
    if (places[at] == rank) firsts[rank] = order[at];
}

// The wide parts that differ, in order.
KERNEL group_wide_out(const u64 *words, u32 len, const u32 *firsts, const u32 *ranks_len,
                      u64 *out) {
    u32 at = thread_number();
    if (at >= len || at >= *ranks_len) return;
    for (u32 word = 0; word < WIDE_WORDS; word++)
        out[(u64)at * WIDE_WORDS + word] = words[(u64)word * len + firsts[at]];
}

// The flows that differ, in order: word w of flow i is out[w * len + i]. The packets of a flow's
// parts in all chunks are added up; sums are 0 at first.
KERNEL group_flow_out(const u64 *chunks, u32 count, const u64 *words, u32 len, const u32 *firsts,
                      const u32 *ranks, const u32 *ranks_len, u64 *out, u32 *packets,
                      u64 *excess) {
    u32 at = thread_number();
    if (at >= len) return;
    if (at < *ranks_len)
        for (u32 word = 0; word < KEY_WORDS; word++)
            out[(u64)word * len + at] = words[(u64)word * len + firsts[at]];
    const u64 *chunk = chunk_of(chunks, count, FIRST_FLOW, at);
    u64 flow = at - chunk[FIRST_FLOW];
    atomicAdd(&packets[ranks[at]], ((const u32 *)chunk[AT_PACKETS])[flow]);
    atomicAdd(&excess[ranks[at]], ((const u64 *)chunk[AT_EXCESS])[flow]);
}

// The rank of each record's flow.
KERNEL group_record_keys(const u64 *chunks, u32 count, u32 records, const u32 *ranks, u32 *keys) {
    u32 record = thread_number();
    if (record >= records) return;
    const u64 *chunk = chunk_of(chunks, count, FIRST_RECORD, record);
    u32 flow = ((const u32 *)chunk[AT_FLOW_OF])[record - chunk[FIRST_RECORD]];
    keys[record] = ranks[chunk[FIRST_FLOW] + flow];
}

// What records have for themselves, in their order.
KERNEL group_rows(const u64 *chunks, u32 count, const u32 *order, u32 records, u8 *own_flags,
                  u8 *own_length, u16 *own_window, u16 *own_len_high, u16 *own_len_low) {
    u32 row = thread_number();
    if (row >= records) return;
    u32 record = order[row];
    const u64 *chunk = chunk_of(chunks, count, FIRST_RECORD, record);
    const u64 *own = chunk + AT_OWN;
    copy_own(own_of(own_flags, own_length, own_window, own_len_high, own_len_low), row,
             own_of((u8 *)own[0], (u8 *)own[1], (u16 *)own[2], (u16 *)own[3], (u16 *)own[4]),
             (u32)(record - chunk[FIRST_RECORD]));
}
