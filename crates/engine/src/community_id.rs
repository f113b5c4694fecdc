//! Community ID, version 1: a name of a conversation that other tools give it, too.
//!
//! Zeek, Suricata, Arkime and others print the same text for the same conversation, so a line of
//! their logs leads to its packets. It is the SHA-1 of addresses, protocol and ports, the lesser
//! endpoint first, in Base64:
//!
//! ```text
//! seed (2) | address (4 or 16) | address | protocol (1) | 0 (1) | port (2) | port (2)
//! ```
//!
//! Protocols without ports end after the zero. ICMP has the type in place of one port; the other is
//! the type of the answer, or the code if there is no answer. All numbers are big-endian.
//!
//! ```
//! use tapdex_engine::community_id::{CommunityId, Ports};
//!
//! let ends = ["128.232.110.120".parse()?, "66.35.250.204".parse()?];
//! let id = CommunityId::new(ends, 6, Ports::Of([34855, 80]));
//! assert_eq!(id.to_string(), "1:LQU9qZlK+B5F3KDmev6m5PMibrg=");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(clippy::big_endian_bytes, reason = "the specification has it so")]

use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Fragment, Headers, protocol};

/// The seed of all our IDs: the one that other tools use if they are not told otherwise.
const SEED: u16 = 0;

/// The ports of a packet, the sender's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ports {
    /// The protocol has none.
    None,
    /// Ports, or types of ICMP that answer each other.
    Of([u16; 2]),
    /// Type and code of an ICMP message that has no answer. Its two directions differ.
    OneWay([u16; 2]),
}

/// Types of ICMP, each with the type of its answer.
const ANSWERS: [(u8, u8); 5] = [(8, 0), (10, 9), (13, 14), (15, 16), (17, 18)];
/// The same for ICMPv6.
const ANSWERS_6: [(u8, u8); 6] =
    [(128, 129), (130, 131), (133, 134), (135, 136), (139, 140), (144, 145)];

impl Ports {
    /// The ports of a packet. There are none if its headers are cut off before them.
    pub fn of(headers: &Headers) -> Self {
        // Behind extension headers of IPv6, frames that are cut off are not odd.
        let may_be_cut = headers.odd || headers.l4 != headers.proto;
        let is_cut = |numbers: [u16; 2]| may_be_cut && numbers == [0, 0];
        match (headers.l4, headers.eth_type) {
            (icmp @ protocol::ICMP, ETHERTYPE_IPV4) | (icmp @ protocol::ICMP6, ETHERTYPE_IPV6) => {
                let (kind, code) = (headers.icmp_type, headers.icmp_code);
                match headers.fragment == Fragment::Later || is_cut([kind.into(), code.into()]) {
                    true => Self::None,
                    false => Self::of_icmp(icmp, kind, code),
                }
            }
            _ => {
                let ports = [headers.port_src, headers.port_dst];
                let has_ports = headers.has_ports() && !is_cut(ports);
                if has_ports { Self::Of(ports) } else { Self::None }
            }
        }
    }

    /// What stands in the place of ports for a message of ICMP or, given its number, ICMPv6.
    pub fn of_icmp(icmp: u8, kind: u8, code: u8) -> Self {
        let answers: &[(u8, u8)] = if icmp == protocol::ICMP6 { &ANSWERS_6 } else { &ANSWERS };
        let other = answers.iter().find_map(|&(asks, answers)| match kind {
            _ if kind == asks => Some(answers),
            _ if kind == answers => Some(asks),
            _ => None,
        });
        match other {
            Some(other) => Self::Of([kind.into(), other.into()]),
            None => Self::OneWay([kind.into(), code.into()]),
        }
    }
}

/// A Community ID: the same for both directions of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CommunityId([u8; 20]);

/// The start of its text: the version.
const VERSION: &str = "1:";

impl CommunityId {
    /// The ID of a packet, by its addresses and ports, the sender's first. Both addresses are of
    /// the same version of IP.
    pub fn new(addresses: [IpAddr; 2], protocol: u8, ports: Ports) -> Self {
        let mut ends = match ports {
            Ports::None => addresses.map(|address| (address, 0)),
            Ports::Of([src, dst]) | Ports::OneWay([src, dst]) => {
                [(addresses[0], src), (addresses[1], dst)]
            }
        };
        if !matches!(ports, Ports::OneWay(_)) {
            ends.sort_unstable();
        }
        let mut hash = Sha1::new();
        hash.update(SEED.to_be_bytes());
        for (address, _) in ends {
            match address {
                IpAddr::V4(address) => hash.update(address.octets()),
                IpAddr::V6(address) => hash.update(address.octets()),
            }
        }
        hash.update([protocol, 0]);
        if ports != Ports::None {
            ends.iter().for_each(|(_, port)| hash.update(port.to_be_bytes()));
        }
        Self(hash.finalize().into())
    }

    /// The ID of a packet; `None` if it is not IP.
    pub fn of(headers: &Headers) -> Option<Self> {
        Some(Self::new(headers.addresses()?, headers.l4, Ports::of(headers)))
    }
}

impl Display for CommunityId {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{VERSION}{}", STANDARD.encode(self.0))
    }
}

/// A text that is not a Community ID of version 1: `1:` and 28 letters of Base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a Community ID, such as 1:LQU9qZlK+B5F3KDmev6m5PMibrg=")]
pub struct NotCommunityId;

impl FromStr for CommunityId {
    type Err = NotCommunityId;

    fn from_str(text: &str) -> Result<Self, NotCommunityId> {
        let digits = text.strip_prefix(VERSION).ok_or(NotCommunityId)?;
        let bytes = STANDARD.decode(digits).map_err(|_| NotCommunityId)?;
        bytes.try_into().map(Self).map_err(|_| NotCommunityId)
    }
}

#[cfg(test)]
mod tests;
