//! A shortcut from the bytes of a frame to its flow, for frames of the usual kind.
//!
//! Most frames are TCP or UDP in IPv4 in Ethernet, without anything in between, and most belong to
//! a flow that had a packet shortly before. A few words of such a frame have all that the key of
//! its flow is made of. So the flow is looked up by these words, and the frame is decoded only if
//! they are not found. What frames look like is still known to the decoder alone: this file only
//! knows which bytes it looks at.

#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

use std::hash::{BuildHasher, RandomState};

use tapdex_bitmap::prefetch;

use crate::archive::flows::hash;
use crate::capture::Record;
use crate::fields::{Field, FieldSet};
use crate::packet::decode::is_tunnel_port;
use crate::packet::{ETHERTYPE_IPV4, Headers, LinkType, protocol};

/// Flows that are remembered: few enough to stay in the cache of a core.
const PLACES: usize = 1 << 13;

/// The bytes that the key of a flow is made of.
type Words = [u64; 4];

/// Places in a frame: of the EtherType, and in the IPv4 header behind it.
const TYPE: usize = 12;
const IP: usize = 14;
const TRANSPORT: usize = IP + 20;
/// Bytes of a frame that are looked at: with a header of UDP, and with one of TCP up to the window.
const UDP_LEN: usize = TRANSPORT + 8;
const TCP_LEN: usize = TRANSPORT + 16;

/// The flows of frames that were seen, by their bytes.
#[derive(Debug)]
pub(super) struct Shortcut {
    places: Vec<Place>,
    /// The chunk at hand: places of others do not count.
    chunk: u32,
    secret: u64,
    /// The bits that the fields that are kept depend on.
    mask: Words,
}

/// A flow, where its words lead to: a line of the cache.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Place {
    words: Words,
    flow: u32,
    chunk: u32,
}

/// A frame of the usual kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usual {
    words: Words,
    place: usize,
    head: [u8; TCP_LEN],
    head_len: usize,
}

impl Default for Usual {
    fn default() -> Self {
        Self { words: Words::default(), place: 0, head: [0; TCP_LEN], head_len: 0 }
    }
}

impl Usual {
    /// Its first bytes. What is behind them has no part in the key of the flow.
    pub(super) fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    /// Sets what belongs to the packet rather than to its flow.
    #[inline(always)]
    pub(super) fn own(&self, target: &mut Headers) {
        let is_tcp = self.head_len == TCP_LEN;
        let [flags, high, low] = [13, 14, 15].map(|at| self.head[TRANSPORT + at]);
        target.tcp_flags = if is_tcp { flags } else { 0 };
        target.tcp_window = if is_tcp { u16::from_be_bytes([high, low]) } else { 0 };
    }
}

impl Shortcut {
    pub(super) fn new(keep: FieldSet) -> Self {
        let of = |field: Field| if keep.contains(field) { 0xFF } else { 0 };
        let mask = [
            u64::MAX,
            u64::MAX ^ 0xFF << 56 | of(Field::IpDscp) << 56,
            u64::MAX,
            u64::MAX ^ 0xFF << 40 | of(Field::IpTtl) << 40,
        ];
        let secret = RandomState::new().hash_one(PLACES);
        Self { places: vec![Place::default(); PLACES], chunk: 0, secret, mask }
    }

    /// Forgets all flows.
    pub(super) fn clear(&mut self) {
        self.chunk = match self.chunk.checked_add(1) {
            Some(next) => next,
            None => {
                self.places.fill(Place::default());
                1
            }
        };
    }

    /// Takes in a frame, if it is of the usual kind; returns whether it is.
    #[inline(always)]
    pub(super) fn take(&self, record: &Record<'_>, usual: &mut Usual) -> bool {
        let Some(head) = record.data.first_chunk::<UDP_LEN>() else { return false };
        let short = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let long = |at: usize| head[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let word = |at: usize| head[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        let (proto, ports) = (head[IP + 9], word(TRANSPORT));
        let is_usual = record.link == LinkType::ETHERNET
            && short(TYPE) == ETHERTYPE_IPV4
            && head[IP] & 15 == 5
            && short(IP + 6) & 0x3FFF == 0;
        if !is_usual {
            return false;
        }
        usual.head[..UDP_LEN].copy_from_slice(head);
        match (proto, record.data.first_chunk::<TCP_LEN>()) {
            (protocol::TCP, Some(head)) => {
                usual.head[UDP_LEN..].copy_from_slice(&head[UDP_LEN..]);
                usual.head_len = TCP_LEN;
            }
            (protocol::UDP, _) if !may_be_tunnel(ports) => usual.head_len = UDP_LEN,
            _ => return false,
        }
        let interface = u64::from(u16::try_from(record.interface).unwrap_or(u16::MAX));
        let rest = u64::from(ports)
            | u64::from(proto) << 32
            | u64::from(head[IP + 8]) << 40
            | interface << 48;
        usual.words = [long(0), long(8) & self.mask[1], long(IP + 12), rest & self.mask[3]];
        let place = hash(&usual.words, self.secret) % PLACES as u64;
        usual.place = usize::try_from(place).unwrap_or(0);
        prefetch(&self.places, usual.place);
        true
    }

    /// The flow of a frame, if it is known.
    #[inline(always)]
    pub(super) fn find(&self, usual: &Usual) -> Option<u32> {
        let place = self.places.get(usual.place)?;
        // One branch for all of it.
        let differ = place.words.iter().zip(&usual.words).fold(0, |all, (a, b)| all | (a ^ b));
        (differ | u64::from(place.chunk ^ self.chunk) == 0).then_some(place.flow)
    }

    /// Remembers the flow of a frame, in place of another one.
    pub(super) fn remember(&mut self, usual: &Usual, flow: u32) {
        let place = Place { words: usual.words, flow, chunk: self.chunk };
        if let Some(old) = self.places.get_mut(usual.place) {
            *old = place;
        }
    }
}

/// Whether the ports of a UDP datagram, as they lie in it, may be those of a tunnel.
#[inline(always)]
fn may_be_tunnel(ports: u32) -> bool {
    let [a, b, c, d] = ports.to_le_bytes();
    [[a, b], [c, d]].into_iter().any(|port| is_tunnel_port(u16::from_be_bytes(port)))
}
