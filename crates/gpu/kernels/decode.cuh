// From the bytes of a frame to its headers, with the results of crates/engine/src/packet/decode.rs.
// The functions have the names that they have there; see there what makes a frame odd.
//
// 1. `link_header` decodes what stands before the network header. It leaves the type of the network
//    header in the headers, and in `at` where that header starts.
// 2. `network_header` decodes it and the transport header, and notes where a tunnel may start.
// 3. `enter` finds out whether there is a tunnel, and decodes the packet inside.
//
// All functions are inlined, so the large ones are called in one place only: all links lead to one
// call of `network_header`, and all tunnels to one call of `inner_network`.
//
// Before a header is read, `has` compares its end with the end of the frame. The device has only
// the first FRAME_BYTES bytes of a frame. If a header ends behind them, but was captured, `has`
// marks the frame as refused, and returns false as if the header were missing. What is found after
// that means nothing.
//
// Bytes are loaded as aligned words, and `__byte_perm` turns two of these into a number. A header
// of several words is loaded at once, so that all of its loads are in flight together.

#include "threads.cuh"

// What the device has of a frame, at most.
static const u32 FRAME_BYTES = 128;

static const u32 LINK_NULL = 0;
static const u32 LINK_ETHERNET = 1;
static const u32 LINK_RAW = 101;
static const u32 LINK_LOOP = 108;
static const u32 LINK_LINUX_SLL = 113;
static const u32 LINK_IPV4 = 228;
static const u32 LINK_IPV6 = 229;
static const u32 LINK_LINUX_SLL2 = 276;

static const u32 ETHERTYPE_IPV4 = 0x0800;
static const u32 ETHERTYPE_ARP = 0x0806;
static const u32 ETHERTYPE_RARP = 0x8035;
static const u32 ETHERTYPE_IPV6 = 0x86DD;
static const u32 ETHERTYPE_MPLS = 0x8847;
static const u32 ETHERTYPE_TAG = 0x8100;
static const u32 ETHERTYPE_TAG_AD = 0x88A8;
static const u32 ETHERTYPE_TAG_OLD = 0x9100;
static const u32 ETHERTYPE_BRIDGED = 0x6558;
static const u32 LENGTH_MAX = 1500;
static const u32 COOKED_802_2 = 4;

static const u32 PROTOCOL_ICMP = 1;
static const u32 PROTOCOL_IPV4 = 4;
static const u32 PROTOCOL_TCP = 6;
static const u32 PROTOCOL_UDP = 17;
static const u32 PROTOCOL_IPV6 = 41;
static const u32 PROTOCOL_FRAGMENT = 44;
static const u32 PROTOCOL_GRE = 47;
static const u32 PROTOCOL_AUTHENTICATION = 51;
static const u32 PROTOCOL_ICMP6 = 58;
static const u32 PROTOCOL_SCTP = 132;

static const u32 PORT_VXLAN = 4789;
static const u32 PORT_GTP = 2152;
static const u32 GTP_PACKET = 255;

static const u32 ENCAP_NONE = 0;
static const u32 ENCAP_TAG = 1;
static const u32 ENCAP_TWO_TAGS = 2;
static const u32 ENCAP_MANY_TAGS = 3;
static const u32 ENCAP_MPLS = 4;
static const u32 ENCAP_TAGS_MPLS = 5;

static const u32 FRAGMENT_WHOLE = 0;
static const u32 FRAGMENT_FIRST = 1;
static const u32 FRAGMENT_LATER = 2;

static const u32 TUNNEL_IP = 1;
static const u32 TUNNEL_GRE = 2;
static const u32 TUNNEL_VXLAN = 3;
static const u32 TUNNEL_GTP = 4;

// Words of the wide part of a key; those of an address of 128 bits are two.
static const u32 WIDE_WORDS = 10;
static const u32 WIDE_IP6_SRC = 0;
static const u32 WIDE_IP6_DST = 2;
static const u32 WIDE_TUNNEL = 4;
static const u32 WIDE_INNER_SRC = 5;
static const u32 WIDE_INNER_DST = 7;
static const u32 WIDE_INNER = 9;

// A frame, and whether it is refused. It starts at a multiple of four bytes.
struct Frame {
    const u32 *words;
    // Bytes that were captured, and how many of these are here.
    u32 captured;
    u32 here;
    bool refused;

    // Whether a header of `len` bytes at `at` was captured and is here.
    DEVICE_METHOD bool has(u32 at, u32 len) {
        if (at + len <= here) return true;
        refused |= at + len <= captured;
        return false;
    }

    // Whether the frame goes on up to `at`, or further.
    DEVICE_METHOD bool reaches(u32 at) const { return at <= captured; }

    // Numbers of 8, 16 and 32 bits of a header that is here.
    DEVICE_METHOD u32 byte(u32 at) const { return __ldg(words + at / 4) >> at % 4 * 8 & 0xFF; }
    DEVICE_METHOD u32 half(u32 at) const {
        u32 low = __ldg(words + at / 4), high = __ldg(words + (at + 1) / 4);
        return __byte_perm(low, high, 0x0001 + 0x0011 * (at % 4)) & 0xFFFF;
    }
    DEVICE_METHOD u32 word(u32 at) const {
        u32 found[1];
        load(at, found);
        return found[0];
    }

    // The numbers of 32 bits that a header starts with. Nothing behind them is loaded.
    template <u32 LEN> DEVICE_METHOD void load(u32 at, u32 (&found)[LEN]) const {
        const u32 *from = words + at / 4;
        u32 last = (at % 4 + 4 * LEN - 1) / 4;
        u32 low = __ldg(from);
#pragma unroll
        for (u32 i = 0; i < LEN; i++) {
            u32 high = __ldg(from + (i + 1 < LEN ? i + 1 : last));
            found[i] = __byte_perm(low, high, 0x0123 + 0x1111 * (at % 4));
            low = high;
        }
    }
};

// What is found. All of it is 0 at first.
struct Headers {
    u64 eth_dst, eth_src;
    u32 encap, eth_type, vlan, vlan_inner, mpls;
    u32 ip_src, ip_dst, proto, l4, fragment, ttl, dscp;
    u32 port_src, port_dst, icmp_type, icmp_code, tcp_flags, tcp_window;
    // Where the header of a tunnel is, if there is one; 0 if there cannot be one.
    u32 tunnel_at;
    u64 wide[WIDE_WORDS];
};

DEVICE bool is_tag(u32 eth_type) {
    return eth_type == ETHERTYPE_TAG || eth_type == ETHERTYPE_TAG_AD ||
           eth_type == ETHERTYPE_TAG_OLD;
}

DEVICE bool has_ports(u32 l4) {
    return l4 == PROTOCOL_TCP || l4 == PROTOCOL_UDP || l4 == PROTOCOL_SCTP;
}

// From here on, `false` means an odd frame, as `None` does in decode.rs. What was found before that
// stays in the headers.

// Whether an 802.2 frame is neither AppleTalk nor its ARP.
DEVICE bool without_snap(Frame &frame, u32 at) {
    if (!frame.has(at, 8)) return false;
    u32 header[2];
    frame.load(at, header);
    bool is_appletalk = header[0] == 0xAAAA0308 && header[1] == 0x0007809B;
    bool is_its_arp = header[0] == 0xAAAA0300 && header[1] == 0x000080F3;
    return !is_appletalk && !is_its_arp;
}

// One tag or two, behind the type of the first one. Leaves the type behind them in the headers.
DEVICE bool tags(Frame &frame, u32 &at, Headers &headers) {
    headers.encap = ENCAP_TAG;
    if (!frame.has(at, 4)) return false;
    u32 tag = frame.word(at);
    at += 4;
    headers.vlan = tag >> 16 & 0xFFF;
    if (is_tag(tag & 0xFFFF)) {
        headers.encap = ENCAP_TWO_TAGS;
        if (!frame.has(at, 4)) return false;
        tag = frame.word(at);
        at += 4;
        headers.vlan_inner = tag >> 16 & 0xFFF;
    }
    headers.eth_type = tag & 0xFFFF;
    return true;
}

DEVICE bool ethernet(Frame &frame, u32 &at, Headers &headers) {
    if (!frame.has(0, 14)) return false;
    u32 words[3];
    frame.load(0, words);
    headers.eth_dst = (u64)words[0] << 16 | words[1] >> 16;
    headers.eth_src = (u64)(words[1] & 0xFFFF) << 32 | words[2];
    u32 eth_type = frame.half(12);
    at = 14;
    if (is_tag(eth_type)) {
        // If the tags are cut off, the headers have no type.
        if (!tags(frame, at, headers)) return false;
        eth_type = headers.eth_type;
        if (is_tag(eth_type)) {
            headers.encap = ENCAP_MANY_TAGS;
            return false;
        }
    }
    headers.eth_type = eth_type;
    if (eth_type <= LENGTH_MAX) return without_snap(frame, at);
    if (eth_type == ETHERTYPE_MPLS) {
        bool two_tags = headers.encap == ENCAP_TWO_TAGS;
        headers.encap = headers.encap == ENCAP_NONE ? ENCAP_MPLS : ENCAP_TAGS_MPLS;
        if (!frame.has(at, 4)) return false;
        headers.mpls = frame.word(at) >> 12;
        return !two_tags;
    }
    return true;
}

DEVICE bool cooked(Frame &frame, u32 &at, Headers &headers) {
    if (!frame.has(0, 16)) return false;
    u32 words[4];
    frame.load(0, words);
    if (words[1] >> 16 == 6)
        headers.eth_src = (u64)(words[1] & 0xFFFF) << 32 | words[2];
    headers.eth_type = words[3] & 0xFFFF;
    at = 16;
    return headers.eth_type != COOKED_802_2 || without_snap(frame, at);
}

DEVICE bool cooked2(Frame &frame, u32 &at, Headers &headers) {
    if (!frame.has(0, 20)) return false;
    u32 words[5];
    frame.load(0, words);
    if ((words[2] & 0xFF) == 6) headers.eth_src = (u64)words[3] << 16 | words[4] >> 16;
    headers.eth_type = words[0] >> 16;
    at = 20;
    return true;
}

DEVICE bool raw(Frame &frame, u32 &at, Headers &headers) {
    if (!frame.has(0, 1)) return false;
    u32 version = frame.byte(0) >> 4;
    headers.eth_type = version == 4 ? ETHERTYPE_IPV4 : version == 6 ? ETHERTYPE_IPV6 : 0;
    at = 0;
    return true;
}

// The loopback of OpenBSD, whose numbers are big-endian.
DEVICE bool loopback(Frame &frame, u32 &at, Headers &headers) {
    if (!frame.has(0, 4)) return false;
    u32 family = frame.word(0);
    bool is_ipv6 = family == 24 || family == 28 || family == 30;
    headers.eth_type = family == 2 ? ETHERTYPE_IPV4 : is_ipv6 ? ETHERTYPE_IPV6 : 0;
    at = 4;
    return true;
}

// What stands before the network header, whose type is 0 if the link has nothing of the kind.
DEVICE bool link_header(Frame &frame, u32 link, u32 &at, Headers &headers) {
    at = 0;
    switch (link) {
    case LINK_ETHERNET: return ethernet(frame, at, headers);
    case LINK_LINUX_SLL: return cooked(frame, at, headers);
    case LINK_LINUX_SLL2: return cooked2(frame, at, headers);
    case LINK_RAW: return raw(frame, at, headers);
    case LINK_LOOP: return loopback(frame, at, headers);
    case LINK_IPV4: headers.eth_type = ETHERTYPE_IPV4; return true;
    case LINK_IPV6: headers.eth_type = ETHERTYPE_IPV6; return true;
    // The order of its bytes is that of the machine that captured, which is not known here.
    case LINK_NULL: frame.refused = true; return false;
    default: return false;
    }
}

// The transport header, whose protocol was found; `icmp` is the number of ICMP here.
DEVICE bool transport(Frame &frame, u32 at, u32 icmp, Headers &headers) {
    u32 l4 = headers.l4;
    if (has_ports(l4)) {
        if (!frame.has(at, 4)) return false;
        u32 ports = frame.word(at);
        headers.port_src = ports >> 16;
        headers.port_dst = ports & 0xFFFF;
        if (l4 == PROTOCOL_TCP) {
            if (frame.has(at, 14)) headers.tcp_flags = frame.byte(at + 13);
            if (frame.has(at, 16)) headers.tcp_window = frame.half(at + 14);
        } else if (l4 == PROTOCOL_UDP) {
            headers.tunnel_at = at;
        }
    } else if (l4 == icmp) {
        if (!frame.has(at, 2)) return false;
        u32 both = frame.half(at);
        headers.icmp_type = both >> 8;
        headers.icmp_code = both & 0xFF;
    } else {
        headers.tunnel_at = at;
    }
    return true;
}

DEVICE bool ipv4(Frame &frame, u32 at, Headers &headers) {
    if (!frame.has(at, 20)) return false;
    u32 words[5];
    frame.load(at, words);
    headers.dscp = words[0] >> 18 & 0x3F;
    headers.ttl = words[2] >> 24;
    headers.proto = words[2] >> 16 & 0xFF;
    headers.l4 = headers.proto;
    headers.ip_src = words[3];
    headers.ip_dst = words[4];
    u32 len_bytes = (words[0] >> 24 & 15) * 4;
    if (len_bytes < 20) return false;
    if (words[1] & 0x1FFF) {
        headers.fragment = FRAGMENT_LATER;
        return true;
    }
    if (words[1] & 0x2000) headers.fragment = FRAGMENT_FIRST;
    at += len_bytes;
    if (!transport(frame, at, PROTOCOL_ICMP, headers)) return false;
    // Programs look at the flags.
    return headers.proto != PROTOCOL_TCP || frame.has(at, 14);
}

// Skips the extension headers of IPv6, and returns the protocol behind them. Stops before a header
// that is cut off.
DEVICE u32 behind_extensions(Frame &frame, u32 proto, u32 &at, u32 &fragment) {
    fragment = FRAGMENT_WHOLE;
    while (true) {
        bool is_extension = proto == 0 || proto == 43 || proto == PROTOCOL_FRAGMENT ||
                            proto == PROTOCOL_AUTHENTICATION || proto == 60 || proto == 135 ||
                            proto == 139 || proto == 140;
        if (!is_extension || !frame.has(at, 4)) return proto;
        u32 header = frame.word(at);
        u32 next = header >> 24, len = header >> 16 & 0xFF;
        if (proto == PROTOCOL_FRAGMENT) {
            // What is needed of it is there, so it is not cut off.
            proto = next;
            at += 8;
            if (header & 0xFFF8) {
                fragment = FRAGMENT_LATER;
                return proto;
            }
            if (header & 1) fragment = FRAGMENT_FIRST;
            continue;
        }
        // Authentication counts words of four bytes.
        u32 behind = at + (proto == PROTOCOL_AUTHENTICATION ? 4 * (len + 2) : 8 * (len + 1));
        if (!frame.reaches(behind)) return proto;
        proto = next;
        at = behind;
    }
}

DEVICE bool ipv6(Frame &frame, u32 at, Headers &headers) {
    if (!frame.has(at, 40)) return false;
    u32 words[10];
    frame.load(at, words);
    headers.dscp = words[0] >> 22 & 0x3F;
    headers.ttl = words[1] & 0xFF;
    headers.proto = words[1] >> 8 & 0xFF;
    headers.wide[WIDE_IP6_SRC] = (u64)words[2] << 32 | words[3];
    headers.wide[WIDE_IP6_SRC + 1] = (u64)words[4] << 32 | words[5];
    headers.wide[WIDE_IP6_DST] = (u64)words[6] << 32 | words[7];
    headers.wide[WIDE_IP6_DST + 1] = (u64)words[8] << 32 | words[9];
    u32 payload = at + 40;
    u32 behind = payload;
    headers.l4 = behind_extensions(frame, headers.proto, behind, headers.fragment);
    bool is_whole = headers.fragment == FRAGMENT_LATER ||
                    transport(frame, behind, PROTOCOL_ICMP6, headers);
    // Programs look at the first byte of a fragment header that comes first: it must name the
    // protocol. They do not look behind extension headers, so headers there may be cut off.
    if (headers.proto == PROTOCOL_FRAGMENT)
        return frame.has(payload, 1) && frame.byte(payload) == headers.l4;
    return is_whole || behind != payload;
}

DEVICE bool arp(Frame &frame, u32 at, Headers &headers) {
    if (!frame.has(at, 28)) return false;
    // The addresses are where Ethernet has them, whatever the length fields say.
    headers.ip_src = frame.word(at + 14);
    headers.ip_dst = frame.word(at + 24);
    return true;
}

// The network header, by the type before it.
DEVICE bool network_header(Frame &frame, u32 at, Headers &headers) {
    switch (headers.eth_type) {
    case ETHERTYPE_IPV4: return ipv4(frame, at, headers);
    case ETHERTYPE_IPV6: return ipv6(frame, at, headers);
    case ETHERTYPE_ARP:
    case ETHERTYPE_RARP: return arp(frame, at, headers);
    default: return true;
    }
}

// A tunnel, and what it carries: an Ethernet frame, or a packet of some type.
struct Tunnel {
    u32 kind, id;
    u32 eth_type;
    u32 at;
};

// From here on, `false` means that there is no tunnel, or no packet inside.

DEVICE bool gre(Frame &frame, u32 at, Tunnel &tunnel) {
    if (!frame.has(at, 4)) return false;
    u32 header = frame.word(at);
    // Version 1 is for PPP, and routing was never used.
    if (header & 0x40070000) return false;
    at += 4;
    if (header & 0x80000000) {
        at += 4;
        if (!frame.reaches(at)) return false;
    }
    u32 id = 0;
    if (header & 0x20000000) {
        if (!frame.has(at, 4)) return false;
        id = frame.word(at);
        at += 4;
    }
    if (header & 0x10000000) {
        at += 4;
        if (!frame.reaches(at)) return false;
    }
    tunnel = Tunnel{TUNNEL_GRE, id, header & 0xFFFF, at};
    return true;
}

DEVICE bool vxlan(Frame &frame, u32 at, Tunnel &tunnel) {
    if (!frame.has(at, 16)) return false;
    // The flag for a valid id.
    if (!(frame.byte(at + 8) & 8)) return false;
    tunnel = Tunnel{TUNNEL_VXLAN, frame.word(at + 12) >> 8, ETHERTYPE_BRIDGED, at + 16};
    return true;
}

DEVICE bool gtp(Frame &frame, u32 at, Tunnel &tunnel) {
    if (!frame.has(at, 16)) return false;
    u32 header[2];
    frame.load(at + 8, header);
    u32 flags = header[0] >> 24, message = header[0] >> 16 & 0xFF, id = header[1];
    // Version 1, and not GTP'.
    if ((flags & 0xF0) != 0x30 || message != GTP_PACKET) return false;
    at += 16;
    if (flags & 7) {
        if (!frame.has(at, 4)) return false;
        u32 next = flags & 4 ? frame.byte(at + 3) : 0;
        at += 4;
        while (next != 0) {
            if (!frame.has(at, 1)) return false;
            u32 len_bytes = 4 * frame.byte(at);
            // A length of 0 would go on for ever.
            if (len_bytes == 0 || !frame.has(at + len_bytes - 1, 1)) return false;
            next = frame.byte(at + len_bytes - 1);
            at += len_bytes;
        }
    }
    u32 version = frame.has(at, 1) ? frame.byte(at) >> 4 : 0;
    u32 eth_type = version == 4 ? ETHERTYPE_IPV4 : version == 6 ? ETHERTYPE_IPV6 : 0;
    tunnel = Tunnel{TUNNEL_GTP, id, eth_type, at};
    return true;
}

// The tunnel's own header.
DEVICE bool tunnel_header(Frame &frame, const Headers &headers, Tunnel &tunnel) {
    u32 at = headers.tunnel_at;
    switch (headers.l4) {
    case PROTOCOL_UDP:
        // Most datagrams are ruled out here.
        if (headers.port_dst == PORT_VXLAN) return vxlan(frame, at, tunnel);
        if (headers.port_dst == PORT_GTP || headers.port_src == PORT_GTP)
            return gtp(frame, at, tunnel);
        return false;
    case PROTOCOL_IPV4: tunnel = Tunnel{TUNNEL_IP, 0, ETHERTYPE_IPV4, at}; return true;
    case PROTOCOL_IPV6: tunnel = Tunnel{TUNNEL_IP, 0, ETHERTYPE_IPV6, at}; return true;
    case PROTOCOL_GRE: return gre(frame, at, tunnel);
    default: return false;
    }
}

// The link header of an Ethernet frame in a tunnel, with at most two tags.
DEVICE bool bridged(Frame &frame, u32 &at, u32 &eth_type) {
    if (!frame.has(at, 14)) return false;
    eth_type = frame.half(at + 12);
    at += 14;
    for (u32 tag = 0; tag < 2 && is_tag(eth_type); tag++) {
        if (!frame.has(at, 4)) return false;
        eth_type = frame.half(at + 2);
        at += 4;
    }
    return true;
}

// The packet inside, whose version must be the one that was announced.
DEVICE bool inner_network(Frame &frame, u32 at, u32 eth_type, u64 *wide) {
    u32 l4;
    // Where the ports are; 0 if there are none.
    u32 behind;
    if (eth_type == ETHERTYPE_IPV4) {
        if (!frame.has(at, 20)) return false;
        u32 words[5];
        frame.load(at, words);
        if (words[0] >> 28 != 4) return false;
        wide[WIDE_INNER_SRC + 1] = words[3];
        wide[WIDE_INNER_DST + 1] = words[4];
        l4 = words[2] >> 16 & 0xFF;
        u32 len_bytes = (words[0] >> 24 & 15) * 4;
        behind = len_bytes < 20 || words[1] & 0x1FFF ? 0 : at + len_bytes;
    } else if (eth_type == ETHERTYPE_IPV6) {
        if (!frame.has(at, 40)) return false;
        u32 words[10];
        frame.load(at, words);
        if (words[0] >> 28 != 6) return false;
        wide[WIDE_INNER_SRC] = (u64)words[2] << 32 | words[3];
        wide[WIDE_INNER_SRC + 1] = (u64)words[4] << 32 | words[5];
        wide[WIDE_INNER_DST] = (u64)words[6] << 32 | words[7];
        wide[WIDE_INNER_DST + 1] = (u64)words[8] << 32 | words[9];
        behind = at + 40;
        u32 fragment;
        l4 = behind_extensions(frame, words[1] >> 8 & 0xFF, behind, fragment);
        if (fragment == FRAGMENT_LATER) behind = 0;
    } else {
        return false;
    }
    u32 ports = behind != 0 && has_ports(l4) && frame.has(behind, 4) ? frame.word(behind) : 0;
    wide[WIDE_INNER] = (u64)eth_type << 48 | (u64)l4 << 40 | ports;
    return true;
}

// The tunnel, if there is one, and the packet inside, as far as it is there.
DEVICE void enter(Frame &frame, Headers &headers) {
    Tunnel tunnel;
    if (!tunnel_header(frame, headers, tunnel)) return;
    u32 at = tunnel.at, eth_type = tunnel.eth_type;
    bool is_there = eth_type != ETHERTYPE_BRIDGED || bridged(frame, at, eth_type);
    is_there = is_there && inner_network(frame, at, eth_type, headers.wide);
    // IP in IP has no header of its own: without a packet there is no tunnel.
    if (is_there || tunnel.kind != TUNNEL_IP)
        headers.wide[WIDE_TUNNEL] = (u64)tunnel.kind << 56 | tunnel.id;
}

// Decodes the headers of a frame. Returns false if it is odd; nothing holds if it is refused.
DEVICE bool decode(Frame &frame, u32 link, Headers &headers) {
    u32 at;
    bool is_even = link_header(frame, link, at, headers) && network_header(frame, at, headers);
    if (headers.tunnel_at != 0) enter(frame, headers);
    return is_even;
}
