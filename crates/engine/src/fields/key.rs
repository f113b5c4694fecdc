//! The key of a flow: what its packets have in common.
//!
//! A key is a list of words, in the order that flows are sorted by. IPv6 and inner packets, which
//! few packets have, are in a second table, and the key has their number there.
//! [`FIELDS`](super::FIELDS) says where each field is.
//!
//! ```text
//! 0  interface 16 | encap 8 | odd 8 | EtherType 16 | fragment 8 | protocol 8
//! 1  source 32 | destination 32
//! 2  number of the wide part 32 | source port 16 | destination port 16
//! 3  source MAC 48 | VLAN id 16
//! 4  destination MAC 48 | inner VLAN id 16
//! 5  transport 8 | ICMP type 8 | ICMP code 8 | time to live 8 | DSCP 8 | MPLS label 20 | 0 3
//!    | direction 1
//! ```
//!
//! The ends of a conversation are in order: the source is that of the packets of direction 0, and
//! in direction 1 it is the destination. So the two flows of a conversation differ in the last bit
//! only, and are neighbours when flows are sorted.

use super::{FIELDS, Field, FieldSet, Home};
use crate::index::Width;

/// The key of a flow.
pub(crate) type Narrow = [u64; 6];

/// The word that holds the direction, in its lowest bit.
pub(crate) const DIRECTION_WORD: usize = 5;

/// The key of what few packets have: IPv6 addresses, tunnel, inner packet.
///
/// ```text
/// 0, 1  IPv6 source      4  tunnel 8 | 0 24 | tunnel id 32      5, 6  inner source
/// 2, 3  IPv6 destination 9  inner EtherType 16 | transport 8    7, 8  inner destination
///                           | 0 8 | source port 16 | destination port 16
/// ```
pub(crate) type Wide = [u64; 10];

/// Words of [`Narrow`] that have something of both ends: a half each, and a quarter each, the
/// lowest.
const IPV4_WORD: usize = 1;
const PORTS_WORD: usize = 2;
/// Those that have the MAC address of an end, and its bits.
const MAC_WORDS: [usize; 2] = [3, 4];
const MAC_BITS: u64 = !0 << 16;
/// Words of [`Wide`] that have a half of a source address; that of the destination is two behind.
const SOURCE_WORDS: [usize; 4] = [0, 1, 5, 6];
/// The word that has the ports of the inner packet, as [`PORTS_WORD`] has those of the outer one.
const INNER_PORTS_WORD: usize = 9;

/// Two ports, one behind the other, in the low half of a word: the word with these swapped.
#[inline(always)]
fn swap_ports(word: u64) -> u64 {
    word & !0xFFFF_FFFF | word << 16 & 0xFFFF_0000 | word >> 16 & 0xFFFF
}

/// Puts the ends of a conversation in order, and returns whether they were not: then the direction
/// of the key becomes 1. The end with the lower IPv4 address comes first, or of equal ones that
/// with the lower IPv6 address, port or MAC address. A key whose ends are in order stays as it is.
#[inline(always)]
pub(crate) fn order_ends(narrow: &mut Narrow, wide: Option<&mut Wide>) -> bool {
    let ipv4 = narrow[IPV4_WORD];
    let turned = ipv4.rotate_left(32);
    let is_second = if ipv4 != turned {
        ipv4 > turned
    } else {
        match &wide {
            Some([a, b, c, d, ..]) if (a, b) != (c, d) => (a, b) > (c, d),
            _ => {
                let ports = narrow[PORTS_WORD];
                let macs = MAC_WORDS.map(|word| narrow[word] & MAC_BITS);
                (ports >> 16 & 0xFFFF, macs[0]) > (ports & 0xFFFF, macs[1])
            }
        }
    };
    // No branch for what every packet has: either direction is as frequent.
    let chosen = u64::from(is_second).wrapping_neg();
    narrow[IPV4_WORD] ^= (ipv4 ^ turned) & chosen;
    narrow[PORTS_WORD] ^= (narrow[PORTS_WORD] ^ swap_ports(narrow[PORTS_WORD])) & chosen;
    let differ = (narrow[MAC_WORDS[0]] ^ narrow[MAC_WORDS[1]]) & MAC_BITS & chosen;
    MAC_WORDS.into_iter().for_each(|word| narrow[word] ^= differ);
    narrow[DIRECTION_WORD] |= u64::from(is_second);
    if let Some(wide) = wide.filter(|_| is_second) {
        SOURCE_WORDS.into_iter().for_each(|word| wide.swap(word, word + 2));
        wide[INNER_PORTS_WORD] = swap_ports(wide[INNER_PORTS_WORD]);
    }
    is_second
}

/// The low half.
#[inline(always)]
pub(super) fn low(value: u128) -> u64 {
    u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0)
}

/// The high half.
#[inline(always)]
pub(super) fn high(value: u128) -> u64 {
    low(value >> 64)
}

/// A digit of a value.
#[inline(always)]
pub(super) fn digit(value: u128, shift: u32, width: Width) -> u16 {
    let [low, high, ..] = (value >> shift).to_le_bytes();
    match width {
        Width::Byte => low.into(),
        Width::Short => u16::from_le_bytes([low, high]),
    }
}

/// The bits of a key that belong to these fields and to no others, and those of the number of the
/// wide part.
pub(crate) fn mask(keep: FieldSet) -> Narrow {
    let mut mask = [u64::MAX; 6];
    for spec in FIELDS.iter().filter(|spec| !keep.contains(spec.field)) {
        if let Home::Narrow(..) = spec.home {
            spec.home_masks().for_each(|(word, bits)| mask[word] &= !bits);
        }
    }
    mask
}

/// Whether the headers of a flow are odd.
pub(crate) fn is_odd(key: &Narrow) -> bool {
    match Field::Odd.spec().home {
        Home::Narrow(word, shift) => key[word] >> shift & 1 == 1,
        Home::Wide(..) | Home::Packet => false,
    }
}
