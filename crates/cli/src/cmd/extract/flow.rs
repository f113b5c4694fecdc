//! From packets to the conversations that they belong to.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::ensure;
use tapdex_engine::archive::{Gap, UnreadPackets};
use tapdex_engine::capture::Record;
use tapdex_engine::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Fragment, Headers, decode, protocol};
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::{Filter, Syntax};

use crate::cmd::ask::Answers;

/// More than so many conversations are too many to ask for.
const CONVERSATIONS_MAX: usize = 10_000;
/// So many are asked for at a time.
const BATCH_LEN: usize = 200;

/// Two ends and what they speak; the lesser end comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Conversation {
    wide: bool,
    protocol: u8,
    ports: bool,
    ends: [(u128, u16); 2],
}

impl Conversation {
    fn of(headers: &Headers) -> Option<Self> {
        let (wide, addresses) = match headers.eth_type {
            ETHERTYPE_IPV4 => (false, [headers.ip_src.into(), headers.ip_dst.into()]),
            ETHERTYPE_IPV6 if headers.wide => (true, [headers.ip6_src, headers.ip6_dst]),
            _ => return None,
        };
        let ports = [protocol::TCP, protocol::UDP, protocol::SCTP].contains(&headers.l4)
            && headers.fragment != Fragment::Later;
        let [a, b]: [u128; 2] = addresses;
        let mut ends = match ports {
            true => [(a, headers.port_src), (b, headers.port_dst)],
            false => [(a, 0), (b, 0)],
        };
        ends.sort_unstable();
        Some(Self { wide, protocol: headers.l4, ports, ends })
    }

    /// The filter that finds it, in the language that looks behind VLAN tags.
    fn filter(&self) -> String {
        let [a, b] = self.ends;
        format!("{} or {}", self.one_way(a, b), self.one_way(b, a))
    }

    fn one_way(&self, src: (u128, u16), dst: (u128, u16)) -> String {
        let address = |address: u128| match self.wide {
            true => Ipv6Addr::from(address).to_string(),
            false => Ipv4Addr::from(u32::try_from(address).unwrap_or(0)).to_string(),
        };
        let (ip, next) = if self.wide { ("ipv6", "nxt") } else { ("ip", "proto") };
        let mut text =
            format!("({ip}.src == {} and {ip}.dst == {}", address(src.0), address(dst.0));
        let name = match self.protocol {
            protocol::TCP => "tcp",
            protocol::UDP => "udp",
            protocol::SCTP => "sctp",
            protocol::ICMP6 if self.wide => "icmpv6",
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

/// Adds to the packets of an answer all others of the same conversations.
pub(super) fn extend(answers: &mut Answers, query: &Query) -> anyhow::Result<()> {
    let mut conversations = BTreeSet::new();
    let mut too_many = false;
    let mut unread = UnreadPackets::default();
    let mut gaps = Vec::new();
    for (segment, records) in answers.found() {
        let mut headers = Headers::default();
        let mut each = |_, record: &Record<'_>| {
            decode(record.link, record.swapped, record.data, &mut headers);
            conversations.extend(Conversation::of(&headers));
            too_many = conversations.len() > CONVERSATIONS_MAX;
            Ok(!too_many)
        };
        let packets = segment.packets();
        match packets.and_then(|mut p| p.for_each(records.iter().copied(), &mut each)) {
            Ok(some) => unread.extend(some),
            // Retention has removed it in the meantime.
            Err(_) if segment.is_gone() => {}
            // Its conversations are not known, those of the others are.
            Err(error) => gaps.push(Gap::of_segment(segment, error)),
        }
        ensure!(
            !too_many,
            "packets of more than {CONVERSATIONS_MAX} conversations match: narrow the filter, or \
             the times with --from and --to"
        );
    }
    let conversations: Vec<Conversation> = conversations.into_iter().collect();
    let (from, to) = query.times();
    let mut wrong: Vec<_> = answers.segments.iter().map(|_| None).collect();
    for batch in conversations.chunks(BATCH_LEN) {
        let text: Vec<String> = batch.iter().map(Conversation::filter).collect();
        let text = text.join(" or ");
        let filter = Filter::parse_as(Syntax::Wireshark, &text, 0);
        let filter = filter.map_err(|error| anyhow::anyhow!(error.render(&text)))?;
        let query = Query::new(filter, Some(from.into()), to.map(i128::from));
        for ((segment, answer), wrong) in answers.segments.iter_mut().zip(&mut wrong) {
            match query.records(segment) {
                Ok(more) => {
                    answer.pruned_by_time &= more.pruned_by_time;
                    answer.pruned_by_keys &= more.pruned_by_keys;
                    answer.records.extend(more.records);
                    unread.extend(more.unread);
                }
                Err(_) if segment.is_gone() => {}
                Err(error) => *wrong = Some(error),
            }
        }
    }
    for ((segment, answer), wrong) in answers.segments.iter_mut().zip(wrong) {
        answer.records.sort_unstable();
        answer.records.dedup();
        answer.count = answer.records.len() as u64;
        gaps.extend(wrong.map(|wrong| Gap::of_segment(segment, wrong)));
    }
    answers.gaps.extend(gaps);
    answers.fail(unread.into_errors());
    Ok(())
}
