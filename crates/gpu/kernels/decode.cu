// Frames to what the index keeps of them: the key of each packet's flow, and what the packet has
// for itself. crates/engine/src/fields.rs has the layout of keys.
//
// 1. `decode` finds the headers (decode.cuh).
// 2. `narrow_key` packs them; the wide part is packed while it is found.
// 3. `order_ends` puts the ends of the conversation in order.
// 4. The threads of a warp take places for the frames that are refused, and for wide parts.
// 5. Each thread writes what its packet has.
//
// A thread has one frame. What it finds stays in registers: no index is computed.

#include "decode.cuh"

static const u32 KEY_WORDS = 6;
static const u32 IPV4_WORD = 1;
static const u32 PORTS_WORD = 2;
static const u32 SRC_WORD = 3;
static const u32 DST_WORD = 4;
static const u32 DIRECTION_WORD = 5;

DEVICE void narrow_key(const Headers &headers, u32 interface, bool is_odd, u64 *key) {
    key[0] = (u64)interface << 48 | (u64)headers.encap << 40 | (u64)is_odd << 32 |
             headers.eth_type << 16 | headers.fragment << 8 | headers.proto;
    key[IPV4_WORD] = (u64)headers.ip_src << 32 | headers.ip_dst;
    key[PORTS_WORD] = headers.port_src << 16 | headers.port_dst;
    key[SRC_WORD] = headers.eth_src << 16 | headers.vlan;
    key[DST_WORD] = headers.eth_dst << 16 | headers.vlan_inner;
    key[DIRECTION_WORD] = (u64)headers.l4 << 56 | (u64)headers.icmp_type << 48 |
                          (u64)headers.icmp_code << 40 | (u64)headers.ttl << 32 |
                          headers.dscp << 24 | headers.mpls << 4;
}

// Two ports, one behind the other, in the low half of a word: the word with these swapped.
DEVICE u64 swap_ports(u64 word) {
    return (word & 0xFFFFFFFF00000000ull) | (word << 16 & 0xFFFF0000u) | (word >> 16 & 0xFFFF);
}

DEVICE void swap(u64 &a, u64 &b) {
    u64 old = a;
    a = b;
    b = old;
}

// Puts the ends of a conversation in order. If they were not, the direction becomes 1.
DEVICE void order_ends(u64 *key, u64 *wide) {
    u64 ipv4 = key[IPV4_WORD];
    u64 turned = ipv4 << 32 | ipv4 >> 32;
    u64 mac_src = key[SRC_WORD] >> 16, mac_dst = key[DST_WORD] >> 16;
    u64 port_src = key[PORTS_WORD] >> 16 & 0xFFFF, port_dst = key[PORTS_WORD] & 0xFFFF;
    bool is_second;
    if (ipv4 != turned) is_second = ipv4 > turned;
    else if (wide[0] != wide[2]) is_second = wide[0] > wide[2];
    else if (wide[1] != wide[3]) is_second = wide[1] > wide[3];
    else if (port_src != port_dst) is_second = port_src > port_dst;
    else is_second = mac_src > mac_dst;
    if (!is_second) return;
    key[IPV4_WORD] = turned;
    key[PORTS_WORD] = swap_ports(key[PORTS_WORD]);
    key[SRC_WORD] = mac_dst << 16 | (key[SRC_WORD] & 0xFFFF);
    key[DST_WORD] = mac_src << 16 | (key[DST_WORD] & 0xFFFF);
    key[DIRECTION_WORD] |= 1;
    swap(wide[WIDE_IP6_SRC], wide[WIDE_IP6_DST]);
    swap(wide[WIDE_IP6_SRC + 1], wide[WIDE_IP6_DST + 1]);
    swap(wide[WIDE_INNER_SRC], wide[WIDE_INNER_DST]);
    swap(wide[WIDE_INNER_SRC + 1], wide[WIDE_INNER_DST + 1]);
    wide[WIDE_INNER] = swap_ports(wide[WIDE_INNER]);
}

// The class of a length: four between a length and its double; those below 16 are one.
DEVICE u32 length_class(u32 len) {
    if (len < 16) return 0;
    u32 octave = 31 - (u32)__clz((int)len);
    return (octave - 4) * 4 + (len >> (octave - 2) & 3) + 1;
}

// What a length is above the least of its class.
DEVICE u32 length_excess(u32 len) {
    if (len < 16) return len;
    u32 octave = 31 - (u32)__clz((int)len);
    return len & ((1u << (octave - 2)) - 1);
}

// A place for each lane that takes one; `count` is how many were taken before. All lanes call it.
DEVICE u32 take_place(bool takes, u32 *count) {
    u32 taking = __ballot_sync(ALL_LANES, takes);
    if (taking == 0) return 0;
    u32 first = 0;
    if (lane_id() == 0) first = atomicAdd(count, (u32)__popc(taking));
    first = __shfl_sync(ALL_LANES, first, 0);
    return first + (u32)__popc(taking & lanes_below());
}

// Decodes `count` frames. `heads` has four words for each: where its bytes start in `data`, how
// many were captured, how many it had on the wire, link type << 16 | interface. Of its bytes the
// first FRAME_BYTES are there, from a multiple of 16 on; `heads` is aligned to 16 bytes, too.
//
// Frame i is record first + i of a chunk, and there is room for `stride` records. For each record:
//
// - `keys`: the first words of all keys, then all second ones, and so on; only the bits in `mask`.
// - `wide_of`: where its wide part is in `wides`, from 1; 0 if it has none.
// - `excess`, and the lists named `own_`: what it has for itself. A list that is null is not kept.
//
// Frames that are refused are listed in `refused`, and what else is written for them means nothing,
// but for `wide_of`, which is 0. `counts` has how many are refused, and how many wide parts there
// are; both go on from what they are.
KERNEL decode_frames(const u32 *heads, const u8 *data, u32 count, u32 first, u32 stride,
                     const u64 *mask, u64 *keys, u32 *wide_of, u64 *wides, u32 *excess,
                     u8 *own_flags, u8 *own_length, u16 *own_window, u16 *own_len_high,
                     u16 *own_len_low, u32 *refused, u32 *counts) {
    u32 number = blockIdx.x * blockDim.x + threadIdx.x;
    bool is_frame = number < count;
    u32 record = first + number;
    Headers headers = {};
    u64 key[KEY_WORDS];
    bool is_refused = false, is_wide = false;
    u32 wire_len = 0;
    if (is_frame) {
        uint4 head = ((const uint4 *)heads)[number];
        wire_len = head.z;
        Frame frame = {(const u32 *)(data + head.x), head.y, min(head.y, FRAME_BYTES), false};
        bool is_odd = !decode(frame, head.w >> 16, headers);
        is_refused = frame.refused;
        narrow_key(headers, head.w & 0xFFFF, is_odd, key);
        order_ends(key, headers.wide);
        u64 any = 0;
#pragma unroll
        for (u32 word = 0; word < WIDE_WORDS; word++) any |= headers.wide[word];
        is_wide = any != 0 && !is_refused;
    }
    u32 refused_place = take_place(is_refused, &counts[0]);
    u32 slot = take_place(is_wide, &counts[1]);
    if (!is_frame) return;
    wide_of[record] = is_wide ? slot + 1 : 0;
    if (is_refused) {
        refused[refused_place] = record;
        return;
    }
    if (is_wide) {
#pragma unroll
        for (u32 word = 0; word < WIDE_WORDS; word++)
            wides[(u64)slot * WIDE_WORDS + word] = headers.wide[word];
    }
#pragma unroll
    for (u32 word = 0; word < KEY_WORDS; word++)
        keys[(u64)word * stride + record] = key[word] & __ldg(mask + word);
    excess[record] = length_excess(wire_len);
    if (own_flags) own_flags[record] = (u8)headers.tcp_flags;
    if (own_length) own_length[record] = (u8)length_class(wire_len);
    if (own_window) own_window[record] = (u16)headers.tcp_window;
    if (own_len_high) own_len_high[record] = (u16)(wire_len >> 16);
    if (own_len_low) own_len_low[record] = (u16)wire_len;
}
