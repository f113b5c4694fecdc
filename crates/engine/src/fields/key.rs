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
//! 5  transport 8 | ICMP type 8 | ICMP code 8 | time to live 8 | DSCP 8 | MPLS label 24
//! ```

use super::{FIELDS, Field, FieldSet, Home, Place};
use crate::index::Width;

/// The key of a flow.
pub(crate) type Narrow = [u64; 6];

/// The key of what few packets have: IPv6 addresses, tunnel, inner packet.
///
/// ```text
/// 0, 1  IPv6 source      4  tunnel 8 | 0 24 | tunnel id 32      5, 6  inner source
/// 2, 3  IPv6 destination 9  inner EtherType 16 | transport 8    7, 8  inner destination
///                           | 0 8 | source port 16 | destination port 16
/// ```
pub(crate) type Wide = [u64; 10];

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
        for place in spec.places() {
            if let Place::Narrow(word, shift) = place {
                mask[word] &= !(((1 << spec.width.bits()) - 1) << shift);
            }
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
