//! From packets to the conversations that they belong to.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::filter::{Filter, FilterError, Syntax};
use super::question::Query;
use super::search::{Answers, SearchError};
use crate::archive::{ArchiveError, Gap, UnreadPackets};
use crate::capture::Record;
use crate::packet::{Headers, decode, protocol};

/// The most conversations that can be asked for.
pub const CONVERSATIONS_MAX: usize = 10_000;
/// Conversations that are searched for at a time.
const BATCH_LEN: usize = 200;

/// Two endpoints and their protocol; the lesser endpoint comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Conversation {
    protocol: u8,
    ports: bool,
    ends: [(IpAddr, u16); 2],
}

impl Conversation {
    fn of(headers: &Headers) -> Option<Self> {
        let [a, b] = headers.addresses()?;
        let ports = headers.has_ports();
        let mut ends = match ports {
            true => [(a, headers.port_src), (b, headers.port_dst)],
            false => [(a, 0), (b, 0)],
        };
        ends.sort_unstable();
        Some(Self { protocol: headers.l4, ports, ends })
    }

    /// The filter that finds it, in Wireshark's language, which looks behind VLAN tags.
    fn filter(&self) -> String {
        let [a, b] = self.ends;
        format!("{} or {}", self.one_way(a, b), self.one_way(b, a))
    }

    fn one_way(&self, src: (IpAddr, u16), dst: (IpAddr, u16)) -> String {
        let wide = src.0.is_ipv6();
        let (ip, next) = if wide { ("ipv6", "nxt") } else { ("ip", "proto") };
        let mut text = format!("({ip}.src == {} and {ip}.dst == {}", src.0, dst.0);
        let name = match self.protocol {
            protocol::TCP => "tcp",
            protocol::UDP => "udp",
            protocol::SCTP => "sctp",
            protocol::ICMP6 if wide => "icmpv6",
            _ => "",
        };
        match (self.ports, name) {
            (true, name) => text.push_str(&format!(
                " and {name}.srcport == {} and {name}.dstport == {}",
                src.1, dst.1
            )),
            (false, "icmpv6") => text.push_str(" and icmpv6"),
            _ => text.push_str(&format!(" and {ip}.{next} == {}", self.protocol)),
        }
        text.push(')');
        text
    }
}

impl Answers {
    /// Adds all other packets of the conversations that the packets found by [`Search::records`]
    /// belong to, from the times of the query.
    ///
    /// It is an error if there are more than [`CONVERSATIONS_MAX`].
    ///
    /// [`Search::records`]: super::Search::records
    pub fn add_conversations(&mut self, query: &Query) -> Result<(), SearchError> {
        self.rows_to_records();
        let mut unread = UnreadPackets::default();
        let conversations = self.conversations(&mut unread)?;
        let mut failed: Vec<Option<ArchiveError>> = self.segments.iter().map(|_| None).collect();
        for batch in conversations.chunks(BATCH_LEN) {
            let filter = filter_of(batch).map_err(SearchError::Conversations)?;
            let query = Query::new(filter, query.times());
            for ((segment, answer), failed) in self.segments.iter_mut().zip(&mut failed) {
                if self.control.is_cancelled() {
                    return Err(SearchError::Cancelled);
                }
                match query.records(segment) {
                    Ok(more) => {
                        answer.pruned_by_time &= more.pruned_by_time;
                        answer.pruned_by_keys &= more.pruned_by_keys;
                        answer.records.extend(more.records);
                        unread.extend(more.unread);
                    }
                    Err(error) => *failed = Some(error),
                }
            }
        }
        let mut gaps = Vec::new();
        for ((segment, answer), failed) in self.segments.iter_mut().zip(failed) {
            answer.records.sort_unstable();
            answer.records.dedup();
            answer.count = answer.records.len() as u64;
            gaps.extend(failed.map(|failed| Gap::of_lost(segment, failed)));
        }
        self.add_gaps(gaps);
        self.add_unread(unread);
        Ok(())
    }

    /// The conversations of the packets that were found.
    fn conversations(
        &mut self,
        unread: &mut UnreadPackets,
    ) -> Result<Vec<Conversation>, SearchError> {
        let mut conversations = BTreeSet::new();
        let mut gaps = Vec::new();
        for (segment, records) in self.found() {
            let mut headers = Headers::default();
            let mut each = |_, record: &Record<'_>| {
                decode(record.link, record.swapped, record.data, &mut headers);
                conversations.extend(Conversation::of(&headers));
                Ok(conversations.len() <= CONVERSATIONS_MAX && !self.control.is_cancelled())
            };
            let packets = segment.packets();
            match packets.and_then(|mut p| p.for_each(records.iter().copied(), &mut each)) {
                Ok(some) => unread.extend(some),
                // Only the conversations of this segment are unknown.
                Err(error) => gaps.push(Gap::of_lost(segment, error)),
            }
            if self.control.is_cancelled() {
                return Err(SearchError::Cancelled);
            }
            if conversations.len() > CONVERSATIONS_MAX {
                return Err(SearchError::TooManyConversations { most: CONVERSATIONS_MAX });
            }
        }
        self.add_gaps(gaps);
        Ok(conversations.into_iter().collect())
    }
}

/// The filter that finds some conversations.
fn filter_of(conversations: &[Conversation]) -> Result<Filter, FilterError> {
    let text: Vec<String> = conversations.iter().map(Conversation::filter).collect();
    Filter::parse_as(Syntax::Wireshark, &text.join(" or "), 0)
}
