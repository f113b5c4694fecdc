//! Conversations: who talked to whom, how much each sent, and how it ended.

mod table;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::answer::{Answer, records_of_rows};
use super::control::Control;
use super::question::Query;
use super::search::{Answers, SearchError};
use crate::archive::{ArchiveError, Gap, Segment, UnreadPackets};
use crate::capture::Record;
use crate::community_id::{CommunityId, Ports};
use crate::packet::{Headers, decode, protocol};
use table::{Rest, Table};

/// The most conversations that can be summed up. All are kept in memory, a few hundred bytes each.
pub const FLOWS_MAX: usize = 1 << 22;
/// Segments that are read at a time. Each has at most a million flows, and so conversations.
const SEGMENTS_AT_A_TIME: usize = 8;
const _: () = assert!(size_of::<(Key, Tally)>() <= 160);

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// One end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Its port, if the protocol has ports.
    pub port: Option<u16>,
}

/// What one end of a conversation has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// All TCP flags that were set in any of them.
    pub tcp_flags: u8,
    /// One of them was a SYN without ACK.
    pub asked: bool,
    /// One of them was a SYN with ACK.
    pub accepted: bool,
}

impl Sent {
    fn add(&mut self, headers: &Headers, bytes: u32) {
        let flags = if headers.l4 == protocol::TCP { headers.tcp_flags } else { 0 };
        self.packets += 1;
        self.bytes += u64::from(bytes);
        self.add_flags(flags);
    }

    /// Adds the flags of a packet.
    fn add_flags(&mut self, flags: u8) {
        self.tcp_flags |= flags;
        self.asked |= flags & (SYN | ACK) == SYN;
        self.accepted |= flags & (SYN | ACK) == SYN | ACK;
    }

    fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.tcp_flags |= other.tcp_flags;
        self.asked |= other.asked;
        self.accepted |= other.accepted;
    }
}

/// A conversation: the packets between two endpoints, in both directions.
///
/// The client is the end that sent a SYN, or got a SYN with ACK, or else sent the first packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The end that started it.
    pub client: Endpoint,
    /// The other end.
    pub server: Endpoint,
    /// The protocol that IP carries, by its number.
    pub protocol: u8,
    /// For ICMP and ICMPv6: the type of the client's messages.
    pub icmp_type: Option<u8>,
    /// The VLAN ids of one or two tags; 0 for none.
    pub vlans: [u16; 2],
    /// The time of the first packet.
    pub first_ns: u64,
    /// The time of the last packet.
    pub last_ns: u64,
    /// What the client has sent.
    pub from_client: Sent,
    /// What the server has sent.
    pub from_server: Sent,
    ports: Ports,
}

impl Flow {
    /// Packets of both directions.
    pub fn packets(&self) -> u64 {
        self.from_client.packets + self.from_server.packets
    }

    /// Bytes of both directions.
    pub fn bytes(&self) -> u64 {
        self.from_client.bytes + self.from_server.bytes
    }

    /// The time from the first packet to the last.
    pub fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }

    /// Its Community ID, version 1.
    pub fn community_id(&self) -> CommunityId {
        let addresses = [self.client.address, self.server.address];
        CommunityId::new(addresses, self.protocol, self.ports)
    }

    /// How a TCP connection went, in the letters of Zeek's `conn_state`; `None` for others.
    ///
    /// It is told from the flags that each end has sent, whatever their order.
    pub fn state(&self) -> Option<&'static str> {
        (self.protocol == protocol::TCP).then(|| state(&self.from_client, &self.from_server))
    }
}

/// The state of a TCP connection, by what each end has sent.
fn state(client: &Sent, server: &Sent) -> &'static str {
    let has = |end: &Sent, flag: u8| end.tcp_flags & flag != 0;
    // An end that was not seen to take part in the handshake.
    let [no_client, no_server] = [!client.asked, !server.accepted];
    let is_over = |end: &Sent| has(end, FIN) || has(end, RST);
    if has(server, RST) {
        return match () {
            () if client.asked && no_server && !has(client, FIN) => "REJ",
            () if is_over(client) => "RSTR",
            () if no_client => "RSTRH",
            () => "RSTR",
        };
    }
    match (has(client, FIN), has(server, FIN)) {
        _ if has(client, RST) && no_server && !has(server, FIN) => "RSTOS0",
        _ if has(client, RST) => "RSTO",
        (true, true) => "SF",
        (true, false) if no_server => "SH",
        (true, false) => "S2",
        (false, true) if no_client => "SHR",
        (false, true) => "S3",
        (false, false) if client.asked && server.packets == 0 => "S0",
        (false, false) if client.asked && server.accepted => "S1",
        (false, false) => "OTH",
    }
}

/// What conversations are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowOrder {
    /// Most bytes first.
    Bytes,
    /// Most packets first.
    Packets,
    /// Longest first.
    Duration,
    /// Earliest first.
    Start,
}

/// Conversations that were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flows {
    /// The first ones in the order that was asked for.
    pub flows: Vec<Flow>,
    /// How many there are; some may have been left out.
    pub len: usize,
    /// Packets of all of them.
    pub packets: u64,
    /// Bytes of all of them, on the wire.
    pub bytes: u64,
    /// Packets without an IP header that is decoded, and so in none of them.
    pub other_packets: u64,
}

/// What packets of a conversation have in common; the lesser end comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    ends: [(IpAddr, u16); 2],
    protocol: u8,
    /// Whether the ends have ports, and whether these are a type and a code of ICMP.
    ports: PortKind,
    vlans: [u16; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum PortKind {
    None,
    Ports,
    OneWay,
}

impl Key {
    /// The conversation of a packet, and which of the ends has sent it.
    fn of(headers: &Headers) -> Option<(Self, usize)> {
        let [src, dst] = headers.addresses()?;
        let (kind, [port_src, port_dst]) = match Ports::of(headers) {
            Ports::None => (PortKind::None, [0; 2]),
            Ports::Of(ports) => (PortKind::Ports, ports),
            Ports::OneWay(ports) => (PortKind::OneWay, ports),
        };
        let mut ends = [(src, port_src), (dst, port_dst)];
        let sender = usize::from(kind != PortKind::OneWay && ends[1] < ends[0]);
        if sender == 1 {
            ends.swap(0, 1);
        }
        let vlans = [headers.vlan, headers.vlan_inner];
        Some((Self { ends, protocol: headers.l4, ports: kind, vlans }, sender))
    }

    fn endpoint(&self, end: usize) -> Endpoint {
        let (address, port) = self.ends[end];
        let is_port = self.ports == PortKind::Ports && !self.is_icmp();
        Endpoint { address, port: is_port.then_some(port) }
    }

    fn is_icmp(&self) -> bool {
        matches!(self.protocol, protocol::ICMP | protocol::ICMP6)
    }
}

/// What is known about a conversation so far.
#[derive(Debug, Clone, Copy)]
struct Tally {
    /// The time of the first packet, its place among all packets, and which end has sent it.
    first: (u64, usize, u32, usize),
    last_ns: u64,
    /// By the ends of the key.
    sent: [Sent; 2],
}

/// Nothing.
impl Default for Tally {
    fn default() -> Self {
        let first = (u64::MAX, usize::MAX, u32::MAX, 0);
        Self { first, last_ns: 0, sent: [Sent::default(); 2] }
    }
}

impl Tally {
    /// What they are sorted by, if that can be told without times.
    fn size(&self, order: FlowOrder) -> Option<u64> {
        let sum = |of: fn(&Sent) -> u64| Some(self.sent.iter().map(of).sum());
        match order {
            FlowOrder::Bytes => sum(|sent| sent.bytes),
            FlowOrder::Packets => sum(|sent| sent.packets),
            FlowOrder::Duration | FlowOrder::Start => None,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.sent.iter_mut().zip(&other.sent).for_each(|(sent, other)| sent.merge(other));
    }

    fn duration_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first.0)
    }

    /// Which end has started the conversation.
    fn client(&self) -> usize {
        let [a, b] = &self.sent;
        match (a.asked, b.asked, a.accepted, b.accepted) {
            (true, false, ..) | (false, false, false, true) => 0,
            (false, true, ..) | (false, false, true, false) => 1,
            _ => self.first.3,
        }
    }
}

impl From<(Key, Tally)> for Flow {
    fn from((key, tally): (Key, Tally)) -> Self {
        let client = tally.client();
        let server = 1 - client;
        let ports = [key.ends[client].1, key.ends[server].1];
        Self {
            client: key.endpoint(client),
            server: key.endpoint(server),
            protocol: key.protocol,
            icmp_type: (key.is_icmp() && key.ports != PortKind::None)
                .then(|| u8::try_from(ports[0]).unwrap_or(0)),
            vlans: key.vlans,
            first_ns: tally.first.0,
            last_ns: tally.last_ns,
            from_client: tally.sent[client],
            from_server: tally.sent[server],
            ports: match key.ports {
                PortKind::None => Ports::None,
                PortKind::Ports => Ports::Of(ports),
                PortKind::OneWay => Ports::OneWay(ports),
            },
        }
    }
}

/// The conversations of some packets.
#[derive(Debug, Default)]
struct Tallies {
    /// The numbers of conversations.
    numbers: HashMap<Key, u32>,
    /// By their numbers.
    all: Vec<(Key, Tally)>,
    other_packets: u64,
    unread: UnreadPackets,
}

impl Tallies {
    fn read(
        place: usize,
        segment: &Segment,
        records: &[u32],
        control: &Control,
    ) -> Result<Self, ArchiveError> {
        let mut tallies = Self::default();
        let mut headers = Headers::default();
        let mut each = |number: u32, record: &Record<'_>| {
            decode(record.link, record.swapped, record.data, &mut headers);
            tallies.add(place, number, record, &headers);
            Ok(tallies.all.len() <= FLOWS_MAX && !control.is_cancelled())
        };
        let unread = segment.packets()?.for_each(records.iter().copied(), &mut each)?;
        tallies.unread = unread;
        Ok(tallies)
    }

    fn add(&mut self, place: usize, number: u32, record: &Record<'_>, headers: &Headers) {
        let Some((key, sender)) = Key::of(headers) else {
            self.other_packets += 1;
            return;
        };
        let time_ns = record.time_ns;
        let mut tally = Tally {
            first: (time_ns, place, number, sender),
            last_ns: time_ns,
            sent: [Sent::default(); 2],
        };
        tally.sent[sender].add(headers, record.wire_len);
        self.merge_one(key, &tally);
    }

    /// Adds what is known about a conversation, and returns its number.
    fn merge_one(&mut self, key: Key, tally: &Tally) -> u32 {
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(key).or_insert(next);
        match self.all.get_mut(number as usize) {
            Some((_, known)) => known.merge(tally),
            None => self.all.push((key, *tally)),
        }
        number
    }

    /// The protocol of a conversation.
    fn protocol(&self, number: u32) -> u8 {
        self.all.get(number as usize).map_or(0, |(key, _)| key.protocol)
    }

    /// Which conversations may be among the first `most` in an order that needs no times.
    fn may_be_first(&self, order: FlowOrder, most: usize) -> Vec<bool> {
        let size = |(_, tally): &(Key, Tally)| tally.size(order);
        let mut sizes: Vec<Option<u64>> = self.all.iter().map(size).collect();
        let least = match most.checked_sub(1) {
            None => return vec![false; self.all.len()],
            Some(last) if last < sizes.len() => {
                *sizes.select_nth_unstable_by_key(last, |&size| Reverse(size)).1
            }
            Some(_) => None,
        };
        self.all.iter().map(|tally| size(tally) >= least).collect()
    }

    fn into_flows(self, order: FlowOrder, most: usize) -> Flows {
        let Self { all, other_packets, .. } = self;
        let sums = all.iter().flat_map(|(_, tally)| &tally.sent);
        let (packets, bytes) = sums
            .fold((0, 0), |(packets, bytes), sent| (packets + sent.packets, bytes + sent.bytes));
        let len = all.len();
        let flows = first_in_order(all, order, most);
        Flows { flows, len, packets, bytes, other_packets }
    }

    fn merge(&mut self, other: Self) {
        self.other_packets += other.other_packets;
        self.unread.extend(other.unread);
        for (key, tally) in other.all {
            self.merge_one(key, &tally);
        }
    }
}

/// A segment in which packets were found, and its place among the segments.
type FoundIn<'a> = (usize, &'a Arc<Segment>, &'a Answer);

/// Sums up the conversations of a segment: flows that were found whole in its index, others from
/// their packets, unless these cannot be read.
fn sum_up(
    (place, segment, answer): FoundIn<'_>,
    control: &Control,
) -> (Option<Table>, Result<Tallies, ArchiveError>) {
    let mut records = Cow::Borrowed(&answer.records);
    let mut table = None;
    if !answer.rows.is_empty() {
        let found = Table::of_rows(place, segment, &answer.rows)
            .map_err(|error| ArchiveError::index(segment.path())(error))
            .and_then(|(found, parts)| Ok((found, records_of_rows(segment, &parts)?)));
        match found {
            Ok((found, more)) => {
                table = Some(found);
                records.to_mut().extend(more);
                records.to_mut().sort_unstable();
            }
            Err(error) => return (None, Err(error)),
        }
    }
    match records.is_empty() {
        true => (table, Ok(Tallies::default())),
        false => (table, Tallies::read(place, segment, &records, control)),
    }
}

/// What the indexes of some segments say about conversations.
type Tables = Vec<(Arc<Segment>, Table)>;

impl Answers {
    /// The conversations of the packets that [`Search::rows`] or [`Search::records`] has found: the
    /// first `most` of them in an order, and sums of all.
    ///
    /// Only the packets that were found count, also for who the client is and for the state;
    /// [`whole_flows`](Self::whole_flows) has the others of the conversations as well. After
    /// [`Search::rows`], the index sums conversations up by bytes and packets, and few packets are
    /// read. What has to be read and cannot be is left out, or only its times if the index has the
    /// rest; it becomes a [`Gap`]. It is an error if there are more than [`FLOWS_MAX`].
    ///
    /// [`Search::rows`]: super::Search::rows
    /// [`Search::records`]: super::Search::records
    pub fn flows(&mut self, order: FlowOrder, most: usize) -> Result<Flows, SearchError> {
        // Other orders need the times of all.
        if matches!(order, FlowOrder::Duration | FlowOrder::Start) {
            self.rows_to_records();
        }
        let (mut tallies, tables) = self.tallies()?;
        self.add_rest(&mut tallies, &tables, order, most)?;
        Ok(tallies.into_flows(order, most))
    }

    /// The same with all packets of these conversations, from the times of the query. It is an
    /// error if there are more than [`CONVERSATIONS_MAX`](super::CONVERSATIONS_MAX), unless all
    /// packets were found anyway.
    pub fn whole_flows(
        &mut self,
        query: &Query,
        order: FlowOrder,
        most: usize,
    ) -> Result<Flows, SearchError> {
        if query.filter().expr().is_none() {
            return self.flows(order, most);
        }
        self.rows_to_records();
        let (found, _) = self.tallies()?;
        self.add_conversations(query)?;
        let (mut whole, _) = self.tallies()?;
        // What was added does not tell VLANs and types of ICMP apart.
        whole.all.retain(|(key, _)| found.numbers.contains_key(key));
        whole.other_packets = found.other_packets;
        Ok(whole.into_flows(order, most))
    }

    fn tallies(&mut self) -> Result<(Tallies, Tables), SearchError> {
        let (mut tallies, mut tables) = (Tallies::default(), Vec::new());
        let mut gaps = Vec::new();
        let found = (0..).zip(&self.segments).map(|(place, (segment, a))| (place, segment, a));
        let has_any = |(_, _, a): &FoundIn<'_>| !a.records.is_empty() || !a.rows.is_empty();
        let found: Vec<FoundIn<'_>> = found.filter(has_any).collect();
        for some in found.chunks(SEGMENTS_AT_A_TIME) {
            let sum_up = |&found: &FoundIn<'_>| sum_up(found, &self.control);
            // Threads take longer to start than a few packets take to be read.
            let parts: Vec<_> = match some.len() {
                1 => some.iter().map(sum_up).collect(),
                _ => some.par_iter().map(sum_up).collect(),
            };
            if self.control.is_cancelled() {
                return Err(SearchError::Cancelled);
            }
            for (&(_, segment, _), (table, read)) in some.iter().zip(parts) {
                if let Some(mut table) = table {
                    table.add_to(&mut tallies);
                    tables.push((Arc::clone(segment), table));
                }
                match read {
                    Ok(read) => tallies.merge(read),
                    Err(error) => gaps.push(Gap::of_lost(segment, error)),
                }
            }
            if tallies.all.len() > FLOWS_MAX {
                return Err(SearchError::TooManyConversations { most: FLOWS_MAX });
            }
        }
        self.add_gaps(gaps);
        self.add_unread(std::mem::take(&mut tallies.unread));
        Ok((tallies, tables))
    }

    /// Adds what tables lack, of the conversations that may be among the first ones.
    fn add_rest(
        &mut self,
        tallies: &mut Tallies,
        tables: &[(Arc<Segment>, Table)],
        order: FlowOrder,
        most: usize,
    ) -> Result<(), SearchError> {
        if tables.is_empty() {
            return Ok(());
        }
        let chosen = tallies.may_be_first(order, most);
        let rest_of = |(segment, table): &(Arc<Segment>, Table)| {
            table.rest_of(segment, tallies, &chosen, &self.control)
        };
        let parts: Vec<_> = match tables.len() {
            1 => tables.iter().map(rest_of).collect(),
            _ => tables.par_iter().map(rest_of).collect(),
        };
        if self.control.is_cancelled() {
            return Err(SearchError::Cancelled);
        }
        for ((segment, _), Rest { tallies: rest, unread }) in tables.iter().zip(parts) {
            for (number, more) in rest {
                if let Some((_, known)) = tallies.all.get_mut(number as usize) {
                    known.merge(&more);
                }
            }
            match unread {
                Ok(unread) => self.add_unread(unread),
                Err(error) => self.add_gaps([Gap::of_lost(segment, error)]),
            }
        }
        Ok(())
    }
}

/// The first conversations in an order; of equal ones, the earlier.
fn first_in_order(mut all: Vec<(Key, Tally)>, order: FlowOrder, most: usize) -> Vec<Flow> {
    let rank = |(key, tally): &(Key, Tally)| {
        let duration = if order == FlowOrder::Duration { tally.duration_ns() } else { 0 };
        (Reverse(tally.size(order).unwrap_or(duration)), tally.first.0, *key)
    };
    if most < all.len() {
        all.select_nth_unstable_by_key(most, rank);
        all.truncate(most);
    }
    all.sort_unstable_by_key(rank);
    all.into_iter().map(Flow::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(flags: &[u8]) -> Sent {
        let mut sent = Sent::default();
        for &tcp_flags in flags {
            let headers = Headers { l4: protocol::TCP, tcp_flags, ..Headers::default() };
            sent.add(&headers, 60);
        }
        sent
    }

    /// The descriptions in Zeek's documentation of `conn_state`, as flags.
    #[test]
    fn states_are_those_of_zeek() {
        let cases: [(&str, &[u8], &[u8]); 20] = [
            ("S0", &[SYN], &[]),
            ("S0", &[SYN, SYN], &[]),
            ("S1", &[SYN, ACK], &[SYN | ACK, ACK]),
            ("SF", &[SYN, ACK, FIN | ACK], &[SYN | ACK, FIN | ACK]),
            ("REJ", &[SYN], &[RST | ACK]),
            ("REJ", &[SYN, RST], &[RST | ACK]),
            ("RSTR", &[SYN, FIN], &[RST]),
            ("RSTR", &[SYN, ACK, RST], &[SYN | ACK, RST]),
            ("S2", &[SYN, ACK, FIN | ACK], &[SYN | ACK, ACK]),
            ("S3", &[SYN, ACK], &[SYN | ACK, FIN | ACK]),
            ("RSTO", &[SYN, ACK, RST], &[SYN | ACK, ACK]),
            ("RSTO", &[SYN, ACK, RST], &[SYN | ACK, FIN | ACK]),
            ("RSTR", &[SYN, ACK], &[SYN | ACK, RST]),
            ("RSTR", &[SYN, ACK, FIN | ACK], &[SYN | ACK, RST]),
            ("RSTOS0", &[SYN, RST], &[]),
            ("RSTRH", &[], &[SYN | ACK, RST]),
            ("SH", &[SYN, FIN], &[]),
            ("SHR", &[], &[SYN | ACK, FIN | ACK]),
            ("OTH", &[ACK], &[ACK]),
            ("OTH", &[], &[SYN | ACK]),
        ];
        for (expected, client, server) in cases {
            assert_eq!(state(&sent(client), &sent(server)), expected, "{client:?} {server:?}");
        }
    }
}
