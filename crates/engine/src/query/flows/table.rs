//! Conversations summed up from the index, without their packets.
//!
//! The index knows the packets of each flow and their bytes. So a flow that was found whole is
//! summed up there; of one that was found in part, and of those that the columns do not tell apart,
//! the packets are read. When it is known which conversations are shown, their flags are looked up,
//! and their first and last packets are read for the times.

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use rayon::slice::ParallelSlice;

use super::{Key, Sent, Tallies, Tally};
use crate::archive::{ArchiveError, Column, FieldColumn, Segment, UnreadPackets};
use crate::capture::Record;
use crate::error::IndexError;
use crate::fields::{FIELDS, Field};
use crate::index::{FlowValues, MARK_RECORDS, Mark};
use crate::packet::{ETHERTYPE_IPV6, Fragment, Headers, protocol};
use crate::query::control::Control;
use crate::query::whole_flows::{Volumes, WholeFlow, split};

/// Flows that a thread sums up at a time.
const FLOWS_AT_A_TIME: usize = 1 << 14;
/// Runs of rows of each end of a flow that have all its packets of a mark.
const MARK_ROWS: u32 = MARK_RECORDS;

/// The fields that tell conversations apart.
const KEY_FIELDS: [Field; 15] = [
    Field::EthType,
    Field::Odd,
    Field::IpProto,
    Field::L4,
    Field::Fragment,
    Field::IcmpType,
    Field::IcmpCode,
    Field::Vlan,
    Field::VlanInner,
    Field::IpSrc,
    Field::IpDst,
    Field::PortSrc,
    Field::PortDst,
    Field::Ip6Src,
    Field::Ip6Dst,
];

/// The headers that the packets of each flow have in common.
struct FlowHeaders<'a> {
    /// Values of [`KEY_FIELDS`]; `None` if they are all 0.
    values: [Option<FlowValues<'a>>; KEY_FIELDS.len()],
}

impl<'a> FlowHeaders<'a> {
    /// Those of a segment; `None` if it does not know all fields.
    fn open(segment: &'a Segment) -> Result<Option<Self>, IndexError> {
        let columns = segment.columns();
        if KEY_FIELDS.iter().any(|&field| columns.get(field) == Column::Unknown) {
            return Ok(None);
        }
        // The destinations are in the columns of the sources.
        let is_destination = |field: Field| {
            FIELDS.iter().any(|spec| spec.other_end().is_some_and(|other| other.field == field))
        };
        let read = |&field: &Field| -> Result<Option<Option<FlowValues<'a>>>, IndexError> {
            match columns.read(field)? {
                None => Ok(Some(None)),
                Some(_) if is_destination(field) => Ok(Some(None)),
                Some(FieldColumn::Values(column)) => Ok(column.of_flows()?.map(Some)),
                Some(FieldColumn::Digits(_)) => Ok(None),
            }
        };
        // Threads take longer to start than a few flows take to be read.
        let is_large = segment.note().flows > FLOWS_AT_A_TIME as u64;
        let all: Vec<_> = match is_large {
            true => KEY_FIELDS.par_iter().map(read).collect::<Result<_, _>>()?,
            false => KEY_FIELDS.iter().map(read).collect::<Result<_, _>>()?,
        };
        let mut values = [const { None }; KEY_FIELDS.len()];
        for (at, (found, field)) in all.into_iter().zip(KEY_FIELDS).enumerate() {
            let Some(found) = found else { return Ok(None) };
            // Each destination comes behind its source.
            values[at] = match is_destination(field) {
                true => {
                    let source: Option<&FlowValues<'_>> = values[at - 1].as_ref();
                    source.and_then(FlowValues::of_destination)
                }
                false => found,
            };
        }
        Ok(Some(Self { values }))
    }

    /// Fills in those of a flow. Returns whether they tell its conversation.
    fn read(&self, flow: u32, target: &mut Headers) -> bool {
        fn short<T: TryFrom<u128> + Default>(value: u128) -> T {
            T::try_from(value).unwrap_or_default()
        }
        let [
            eth_type,
            odd,
            proto,
            l4,
            fragment,
            icmp_type,
            icmp_code,
            vlan,
            vlan_inner,
            ip_src,
            ip_dst,
            port_src,
            port_dst,
            ip6_src,
            ip6_dst,
        ] = self.values.each_ref().map(|of| of.as_ref().map_or(0, |values| values.get(flow)));
        target.eth_type = short(eth_type);
        target.odd = odd != 0;
        (target.proto, target.l4) = (short(proto), short(l4));
        target.fragment = Fragment::of_number(fragment).unwrap_or_default();
        (target.icmp_type, target.icmp_code) = (short(icmp_type), short(icmp_code));
        (target.vlan, target.vlan_inner) = (short(vlan), short(vlan_inner));
        (target.ip_src, target.ip_dst) = (short(ip_src), short(ip_dst));
        (target.port_src, target.port_dst) = (short(port_src), short(port_dst));
        (target.ip6_src, target.ip6_dst) = (ip6_src, ip6_dst);
        target.wide = (ip6_src, ip6_dst) != (0, 0);
        // Without addresses, the header may be cut off.
        target.wide || target.eth_type != ETHERTYPE_IPV6
    }
}

/// A flow of a conversation.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// The number of the conversation.
    number: u32,
    /// Which end has sent it.
    sender: usize,
    rows: (u32, u32),
}

/// Some flows, summed up. The numbers of their conversations are places in the list.
#[derive(Debug, Default)]
struct Sums {
    conversations: Vec<(Key, [Sent; 2])>,
    members: Vec<Member>,
    other_packets: u64,
    /// Rows of flows whose packets have to be read.
    unknown: Vec<(u32, u32)>,
}

/// The flows of a segment that were found whole.
#[derive(Debug)]
pub(super) struct Table {
    place: usize,
    sums: Sums,
}

impl Table {
    /// Sums up the flows of runs of rows. Also returns the rows whose packets have to be read.
    pub(super) fn of_rows(
        place: usize,
        segment: &Segment,
        rows: &[(u32, u32)],
    ) -> Result<(Self, Vec<(u32, u32)>), IndexError> {
        let index = segment.index();
        let empty = Self { place, sums: Sums::default() };
        let knows = |field| segment.columns().knows(field);
        if !knows(Field::Length) || !knows(Field::TcpFlags) {
            return Ok((empty, rows.to_vec()));
        }
        let (headers, volumes) = (FlowHeaders::open(segment)?, Volumes::open(segment)?);
        let (Some(headers), Some(volumes)) = (headers, volumes) else {
            return Ok((empty, rows.to_vec()));
        };
        let (whole, mut parts) = split(rows, &index.flow_starts()?);
        let sum = |some: &[WholeFlow]| sum_flows(&headers, &volumes, some);
        let all: Vec<Sums> = match whole.len() > FLOWS_AT_A_TIME {
            true => whole.par_chunks(FLOWS_AT_A_TIME).map(sum).collect::<Result<_, _>>()?,
            false => vec![sum(&whole)?],
        };
        let mut sums = Sums::default();
        for some in all {
            let before = u32::try_from(sums.conversations.len()).unwrap_or(u32::MAX);
            let moved = |member: Member| Member { number: before + member.number, ..member };
            sums.conversations.extend(some.conversations);
            sums.members.extend(some.members.into_iter().map(moved));
            sums.other_packets += some.other_packets;
            parts.extend(some.unknown);
        }
        parts.sort_unstable();
        Ok((Self { place, sums }, parts))
    }

    /// Adds its conversations to others, and takes over their numbers.
    pub(super) fn add_to(&mut self, tallies: &mut Tallies) {
        tallies.other_packets += self.sums.other_packets;
        let mut numbers = Vec::with_capacity(self.sums.conversations.len());
        for (key, sent) in std::mem::take(&mut self.sums.conversations) {
            numbers.push(tallies.merge_one(key, &Tally { sent, ..Tally::default() }));
        }
        for member in &mut self.sums.members {
            member.number = numbers.get(member.number as usize).copied().unwrap_or(u32::MAX);
        }
    }

    /// What is not known yet about those conversations that were chosen, by their numbers: flags
    /// and times. Times that cannot be read are those of the mark or, if the index is damaged, of
    /// the segment.
    pub(super) fn rest_of(
        &self,
        segment: &Segment,
        tallies: &Tallies,
        is_chosen: &[bool],
        control: &Control,
    ) -> Rest {
        let is_chosen = |member: &&Member| is_chosen.get(member.number as usize) == Some(&true);
        let members: Vec<Member> = self.sums.members.iter().filter(is_chosen).copied().collect();
        let nothing = |member: &Member| (member.number, Tally::default());
        let mut rest = Rest {
            tallies: members.iter().map(nothing).collect(),
            unread: Ok(UnreadPackets::default()),
        };
        if members.is_empty() {
            return rest;
        }
        let read = add_flags(segment, tallies, &members, &mut rest.tallies)
            .and_then(|()| self.read_times(segment, &members, control, &mut rest));
        if let Err(error) = read {
            rest.unread = Err(ArchiveError::index(segment.path())(error));
            let note = segment.note();
            for (member, (_, known)) in members.iter().zip(&mut rest.tallies) {
                let first = (note.time_min, self.place, 0, member.sender);
                known.merge(&Tally { first, last_ns: note.time_max, ..Tally::default() });
            }
        }
        rest
    }

    /// Reads the first and the last packets of members.
    fn read_times(
        &self,
        segment: &Segment,
        members: &[Member],
        control: &Control,
        rest: &mut Rest,
    ) -> Result<(), IndexError> {
        let marks: Vec<Mark> = match segment.index().marks()? {
            Some(marks) => marks.iter().collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let wanted = first_and_last(segment, members, &marks)?;
        let mut was_read = vec![false; wanted.len()];
        let mut next = 0;
        let mut add = |at: usize, first_ns: u64, last_ns: u64| {
            let (record, member) = wanted[at];
            let sender = members[member as usize].sender;
            let first = (first_ns, self.place, record, sender);
            let known = &mut rest.tallies[member as usize].1;
            known.merge(&Tally { first, last_ns, ..Tally::default() });
        };
        let mut each = |number: u32, record: &Record<'_>| {
            while wanted.get(next).is_some_and(|&(record, _)| record < number) {
                next += 1;
            }
            if wanted.get(next).is_some_and(|&(record, _)| record == number) {
                was_read[next] = true;
                add(next, record.time_ns, record.time_ns);
            }
            Ok(!control.is_cancelled())
        };
        let records = wanted.iter().map(|&(record, _)| record);
        rest.unread =
            segment.packets().and_then(|mut packets| packets.for_each(records, &mut each));
        let note = segment.note();
        for (at, _) in was_read.iter().enumerate().filter(|(_, was_read)| !**was_read) {
            let mark = marks.get((wanted[at].0 / MARK_RECORDS) as usize);
            let (first_ns, last_ns) =
                mark.map_or((note.time_min, note.time_max), |m| (m.time_min, m.time_max));
            add(at, first_ns, last_ns);
        }
        Ok(())
    }
}

/// What is known about conversations only after some packets were read.
pub(super) struct Rest {
    /// By the number of the conversation.
    pub(super) tallies: Vec<(u32, Tally)>,
    pub(super) unread: Result<UnreadPackets, ArchiveError>,
}

/// Sums up whole flows.
fn sum_flows(
    of_flows: &FlowHeaders<'_>,
    volumes: &Volumes<'_>,
    flows: &[WholeFlow],
) -> Result<Sums, IndexError> {
    let mut sums = Sums::default();
    let mut headers = Headers::default();
    for (one, bytes) in flows.iter().zip(volumes.bytes(flows)?) {
        let packets = u64::from(one.rows.1 - one.rows.0) + 1;
        if !of_flows.read(one.flow, &mut headers) {
            sums.unknown.push(one.rows);
            continue;
        }
        let Some((key, sender)) = Key::of(&headers) else {
            sums.other_packets += packets;
            continue;
        };
        let mut sent = [Sent::default(); 2];
        sent[sender] = Sent { packets, bytes, ..Sent::default() };
        // Conversations that differ in what does not matter here are neighbours.
        match sums.conversations.last_mut().filter(|(known, _)| *known == key) {
            Some((_, known)) => known.iter_mut().zip(&sent).for_each(|(a, b)| a.merge(b)),
            None => sums.conversations.push((key, sent)),
        }
        let number = u32::try_from(sums.conversations.len() - 1).unwrap_or(u32::MAX);
        sums.members.push(Member { number, sender, rows: one.rows });
    }
    Ok(sums)
}

/// Adds the flags of TCP that members have.
fn add_flags(
    segment: &Segment,
    tallies: &Tallies,
    members: &[Member],
    target: &mut [(u32, Tally)],
) -> Result<(), IndexError> {
    let flags = segment.index().flow_field(Field::TcpFlags.name())?;
    let flags = flags.map_or(Ok(None), |flags| flags.of_rows())?;
    let Some(flags) = flags else { return Ok(()) };
    let is_tcp = |&(_, member): &(usize, &Member)| tallies.protocol(member.number) == protocol::TCP;
    let tcp: Vec<(usize, &Member)> = members.iter().enumerate().filter(is_tcp).collect();
    let runs: Vec<(u32, u32)> = tcp.iter().map(|(_, member)| member.rows).collect();
    flags.ids_of(&runs, &mut |place, ids| {
        let (at, member) = tcp[place];
        let sent = &mut target[at].1.sent[member.sender];
        let mut before = u32::MAX;
        for &id in ids {
            // Mostly the same.
            if id != before {
                let flags = flags.values.get(id as usize).copied().unwrap_or(0);
                sent.add_flags(u8::try_from(flags).unwrap_or(0));
                before = id;
            }
        }
    })
}

/// The records that may be the first or the last of a member by time, ascending, each with the
/// place of its member.
fn first_and_last(
    segment: &Segment,
    members: &[Member],
    marks: &[Mark],
) -> Result<Vec<(u32, u32)>, IndexError> {
    // The records of a flow ascend. If times do so, too, the first and the last packet of a flow
    // are in the marks of its first and its last record.
    let in_order = marks.is_sorted_by(|a, b| a.time_max <= b.time_min);
    let mut rows = Vec::new();
    let mut lens = Vec::with_capacity(members.len());
    for &Member { rows: (first, last), .. } in members {
        let before = rows.len();
        if in_order && last - first >= 2 * MARK_ROWS {
            rows.extend(first..first + MARK_ROWS);
            rows.extend(last - MARK_ROWS + 1..=last);
        } else {
            rows.extend(first..=last);
        }
        lens.push(rows.len() - before);
    }
    let mut records = Vec::with_capacity(rows.len());
    match segment.index().row_map()? {
        Some(row_map) => row_map.records(&rows, &mut records)?,
        None => records = rows,
    }
    let mut wanted = Vec::new();
    let mut rest = records.as_slice();
    for (member, len) in (0..).zip(lens) {
        let (some, others) = rest.split_at(len.min(rest.len()));
        rest = others;
        let mark = |&record: &u32| marks.get((record / MARK_RECORDS) as usize);
        // The first packet is not later than this, and the last one not earlier.
        let first_max = some.iter().filter_map(mark).map(|mark| mark.time_max).min();
        let last_min = some.iter().filter_map(mark).map(|mark| mark.time_min).max();
        let may_be_end = |record: &&u32| {
            mark(record).is_none_or(|mark| {
                first_max.is_none_or(|max| mark.time_min <= max)
                    || last_min.is_none_or(|min| mark.time_max >= min)
            })
        };
        wanted.extend(some.iter().filter(may_be_end).map(|&record| (record, member)));
    }
    wanted.sort_unstable();
    Ok(wanted)
}
