//! `tapdex extract`: the packets that match a filter, as a capture.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use tapdex_engine::archive::{Archive, ArchiveError, Cause, Column, Gap, Segment};
use tapdex_engine::beneath::{Rights, open_named};
use tapdex_engine::capture::blocks::Statistics;
use tapdex_engine::capture::{CaptureError, CaptureWriter, FileFormat, Interface, Layout, Record};
use tapdex_engine::fields::Field;
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Answers, Fresh, Query, count_values, rows_of};
use tapdex_engine::time::{TimeRange, format_time};

use super::ask::{QuestionArgs, check_target, finish, note_left_out, note_unseen, searched};
use super::follow::{self, Follower};
use super::output::{self, FormatArg, Output, capture_error};
use super::progress::Progress;
use super::search::summary;
use super::{CANNOT_WRITE, Nothing, note};

/// Write the packets that match a filter as a capture.
///
/// Packets are written in order of time, from all captures of the archive, with their interfaces:
///
///     tapdex extract 'host 10.1.2.3 and tcp port 443' -w https.pcapng
///     tapdex extract -r archive --from -15m 'udp port 53' -w - | tcpdump -nn -r -
///     tapdex extract --flow 'tcp[tcpflags] & tcp-rst != 0' -w resets.pcap
///     tapdex extract --follow --from now 'port 53' -w - | wireshark -k -i -
///
/// The file is pcapng unless its name ends in .pcap or -F says otherwise; a pcap file can have only
/// one link type. A pcapng file also says how many packets of each interface the archive has from
/// the requested times, and how many were lost then. The file gets its name when it is complete;
/// Ctrl-C leaves nothing behind. If no packet matches, it is a capture without packets, and the
/// exit code is 0 (1 with --fail-if-empty).
///
/// With --flow, all packets of a conversation are written if one of its packets matches: all
/// packets between the same addresses and ports, in both directions, with or without VLAN tags. For
/// packets without ports, such as ICMP, these are the packets between the same addresses with the
/// same protocol. --from and --to apply to them, too.
///
/// With --follow, packets are written as tapdex record receives them, until Ctrl-C; the file is
/// then complete, and the exit code is 0. A second Ctrl-C leaves nothing behind.
///
/// If packets from the requested times may be missing, this is reported, the others are written,
/// and the exit code is 3, or 0 with --allow-incomplete.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    /// Capture to write; - is standard output.
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    write: PathBuf,
    /// Format of the capture.
    #[arg(short = 'F', long, value_enum)]
    format: Option<FormatArg>,
    /// Stop after this many packets.
    #[arg(short = 'c', value_name = "N")]
    count_max: Option<u64>,
    /// Stop before the packets exceed this many bytes.
    #[arg(long, value_name = "N")]
    limit_bytes: Option<u64>,
    /// Write the whole conversations of the packets that match.
    #[arg(long)]
    flow: bool,
    /// Then continue with packets as they are recorded, until Ctrl-C; --from now skips older
    /// packets.
    #[arg(long, conflicts_with_all = ["flow", "fail_if_empty"])]
    follow: bool,
    /// Exit with 1 if no packet matches.
    #[arg(long)]
    fail_if_empty: bool,
    /// Replace FILE if it exists.
    #[arg(long)]
    force: bool,
}

/// Whoever may read all captures that packets are taken from may read the new one.
fn rights(args: &Args, answers: &Answers) -> Rights {
    let of = |segment: &Segment| {
        let file = open_named(&segment.packet_path());
        file.and_then(|file| Rights::of(&file)).unwrap_or(Rights::OWNER)
    };
    let sources = answers.segments.iter().filter(|(_, answer)| answer.count > 0);
    let rights = sources.map(|(segment, _)| of(segment)).fold(Rights::USUAL, Rights::and);
    // For recordings that are still to come.
    if args.follow { rights.and(Rights::GROUP) } else { rights }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = Instant::now();
    let query = args.question.query()?;
    if args.follow {
        // Before the file is opened, so that Ctrl-C completes it.
        follow::watch();
    }
    let mut output = Output::open(&args.write, args.force, Rights::OWNER, out)?;
    let mut progress = Progress::new();
    progress.show(|_| "searching".to_owned());
    let archive = args.question.open()?;
    let mut answers = searched(archive.search(&query)?.records())?;
    note_left_out(&answers, &query);
    check_target(&answers, &args.write)?;
    let found = answers.count();
    if args.flow && found > 0 {
        searched(answers.add_conversations(&query))?;
    }
    output.share(rights(args, &answers))?;
    let mut written = write(args, &archive, &query, &answers, &mut output, &mut progress)?;
    answers.add_gaps(std::mem::take(&mut written.gaps));
    if args.follow {
        answers.look_again(&archive);
    }
    let has_failed = answers.gaps.iter().any(|gap| gap.error.is_some());
    if args.write.is_file() && has_failed && !args.question.allow.allow_incomplete {
        // An existing file may be worth more than a part of the answer.
        drop(output);
        note(&format!("{} is left as it was", args.write.display()));
    } else {
        output.finish()?;
    }
    drop(progress);
    note_unseen(&answers, &query);
    if written.stopped {
        let more = match args.flow || args.follow {
            true => "more packets match".to_owned(),
            false => format!("{} written of {found} that match", written.packets),
        };
        note(&format!("stopped at the limit; {more}"));
    }
    let seconds = started.elapsed().as_secs_f64();
    summary(&answers, written.packets, Some(written.bytes), seconds);
    finish(&answers, args.question.allow)?;
    follow::finish(written.missed)?;
    if found == 0 && args.fail_if_empty {
        return Err(Nothing.into());
    }
    Ok(())
}

/// What was written.
struct Written {
    packets: u64,
    bytes: u64,
    stopped: bool,
    gaps: Vec<Gap>,
    /// Recordings that were not read to their end.
    missed: usize,
}

fn write(
    args: &Args,
    archive: &Archive,
    query: &Query,
    answers: &Answers,
    output: &mut Output<'_>,
    progress: &mut Progress,
) -> anyhow::Result<Written> {
    let format = output::format(args.format, &args.write);
    let target = BufWriter::with_capacity(1 << 16, output);
    let mut extract = Extract {
        writer: CaptureWriter::new(target, format, &[], &comment(args, query))?,
        format,
        interfaces: Vec::new(),
        numbers: HashMap::new(),
        written: Vec::new(),
        // Nothing is known about later interfaces.
        merged: if args.follow { (1_000_000_000, 0) } else { merged(answers) },
        packets: 0,
        bytes: 0,
        captured: 0,
        stopped: false,
    };
    let gaps = extract.write_all(args, answers, progress)?;
    let mut missed = 0;
    if args.follow && !extract.stopped {
        let mut following = Following { args, extract: &mut extract };
        following.pause()?;
        missed = follow::run(archive, query, answers, &mut following)?;
    }
    if extract.interfaces.is_empty() {
        // Readers expect an interface, even if there are no packets.
        let first = answers.segments.first();
        let interface = first.and_then(|(s, _)| s.note().layout.interfaces.first());
        let interface = interface.map_or(Interface::new(1, 1_000_000_000), Interface::clone);
        extract.writer.add_interface(&interface)?;
        extract.interfaces.push(interface);
        extract.written.push(0);
    }
    if format == FileFormat::Pcapng && !args.follow {
        extract.write_statistics(query, answers)?;
    }
    let Extract { writer, packets, bytes, stopped, .. } = extract;
    drop(writer.finish().context(CANNOT_WRITE)?);
    Ok(Written { packets, bytes, stopped, gaps, missed })
}

/// The query, for whoever finds the file.
fn comment(args: &Args, query: &Query) -> String {
    const TEXT_MAX: usize = 4_000;
    let mut text: String = query.text().chars().take(TEXT_MAX).collect();
    match query.text().len() {
        0 => text.push_str("all packets"),
        len if len > text.len() => text.push_str(&format!(" ... ({len} bytes)")),
        _ => {}
    }
    let mut comment = format!("filter: {text}");
    let TimeRange { from_ns, to_ns } = query.times();
    if from_ns > 0 {
        comment.push_str(&format!("; from {}", format_time(from_ns)));
    }
    if let Some(to) = to_ns {
        comment.push_str(&format!("; to {}", format_time(to)));
    }
    if args.flow {
        comment.push_str("; whole conversations");
    }
    comment
}

/// What the header of a pcap file has to allow for: the finest clock and the longest frames.
fn merged(answers: &Answers) -> (u64, u32) {
    let (mut ticks, mut snaplen) = (0, Some(0));
    for (segment, _) in answers.found() {
        for interface in &segment.note().layout.interfaces {
            ticks = interface.ticks.max(ticks);
            snaplen = match (snaplen, interface.snaplen) {
                (None, _) | (_, 0) => None,
                (Some(most), snaplen) => Some(snaplen.max(most)),
            };
        }
    }
    (ticks, snaplen.unwrap_or(0))
}

/// A capture that packets are written to.
struct Extract<W: Write> {
    writer: CaptureWriter<W>,
    format: FileFormat,
    /// The interfaces that packets came from; the index is the number in the file.
    interfaces: Vec<Interface>,
    /// The same, by what they are.
    numbers: HashMap<Interface, u32>,
    /// Packets of each.
    written: Vec<u64>,
    merged: (u64, u32),
    packets: u64,
    /// On the wire.
    bytes: u64,
    captured: u64,
    stopped: bool,
}

impl<W: Write> Extract<W> {
    fn write_all(
        &mut self,
        args: &Args,
        answers: &Answers,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Gap>> {
        // Numbers in the file of each segment's interfaces, once they are known.
        let mut numbers: Vec<Vec<Option<u32>>> = Vec::new();
        let all = answers.count();
        let mut packets = answers.packets();
        while let Some(packet) = searched(packets.next())? {
            let record = packet.record;
            if follow::is_stopped() || !self.has_room(args, &record) {
                break;
            }
            let layout = &packet.segment.note().layout;
            numbers.resize(numbers.len().max(packet.source + 1), Vec::new());
            let numbers = &mut numbers[packet.source];
            numbers.resize(layout.interfaces.len(), None);
            self.write(layout, &record, numbers.get_mut(record.interface as usize))?;
            progress.show(|_| format!("{} of {all} packets written", self.packets));
        }
        Ok(packets.into_gaps())
    }

    /// Writes how many packets the archive has from each interface and from the requested times,
    /// matching or not, and how many were lost then. It is not known which interface lost them.
    fn write_statistics(&mut self, query: &Query, answers: &Answers) -> anyhow::Result<()> {
        let TimeRange { from_ns: from, to_ns: to } = query.times();
        let all = Query::new(Filter::parse("", 0)?, query.times());
        let mut counts =
            vec![Statistics { start_ns: u64::MAX, ..Default::default() }; self.interfaces.len()];
        let mut places = HashMap::new();
        for (place, interface) in self.interfaces.iter().enumerate() {
            places.entry(same(interface)).or_insert(place);
        }
        for (segment, _) in answers.segments.iter().filter(|(_, a)| !a.pruned_by_time) {
            let note = segment.note();
            // Damage has been reported where packets were read.
            let received = received(segment, &all).unwrap_or_default();
            for (n, interface) in (0_u128..).zip(&note.layout.interfaces) {
                let place = places.get(&same(interface));
                let Some(counts) = place.and_then(|&place| counts.get_mut(place)) else { continue };
                counts.received += received.get(&n).copied().unwrap_or(0);
                counts.start_ns = counts.start_ns.min(note.time_min.max(from));
                let last = to.map_or(note.time_max, |to| note.time_max.min(to.saturating_sub(1)));
                counts.end_ns = counts.end_ns.max(last);
            }
        }
        if let Some(first) = counts.first_mut() {
            for gap in answers.gaps.iter().filter(|gap| gap.cause == Cause::Lost) {
                let lost = gap.packets.unwrap_or(0);
                first.lost_by_kernel = first.lost_by_kernel.saturating_add(lost);
                first.received = first.received.saturating_add(lost);
                first.start_ns = first.start_ns.min(gap.from_ns);
                first.end_ns = first.end_ns.max(gap.to_ns);
            }
        }
        for ((number, mut counts), written) in (0..).zip(counts).zip(&self.written) {
            if counts.end_ns == 0 {
                // There is nothing from these times.
                continue;
            }
            counts.delivered = *written;
            counts.start_ns = counts.start_ns.min(counts.end_ns);
            self.writer.statistics(number, &counts).map_err(capture_error)?;
        }
        Ok(())
    }

    /// Whether a packet is within the limits.
    fn has_room(&mut self, args: &Args, record: &Record<'_>) -> bool {
        let captured = self.captured.saturating_add(record.data.len() as u64);
        self.stopped = self.packets == args.count_max.unwrap_or(u64::MAX)
            || captured > args.limit_bytes.unwrap_or(u64::MAX);
        !self.stopped
    }

    fn write(
        &mut self,
        layout: &Layout,
        record: &Record<'_>,
        known: Option<&mut Option<u32>>,
    ) -> anyhow::Result<()> {
        let number = match &known {
            Some(Some(number)) => *number,
            _ => self.interface(layout, record)?,
        };
        if let Some(known) = known {
            *known = Some(number);
        }
        let written: Result<(), CaptureError> =
            self.writer.packet(number, record.time_ns, record.wire_len, &record.data());
        written.map_err(capture_error)?;
        if let Some(written) = self.written.get_mut(number as usize) {
            *written += 1;
        }
        self.packets += 1;
        self.bytes += u64::from(record.wire_len);
        self.captured += record.data.len() as u64;
        Ok(())
    }

    /// The number of a packet's interface in the file.
    fn interface(&mut self, layout: &Layout, record: &Record<'_>) -> anyhow::Result<u32> {
        let there = layout.interfaces.get(record.interface as usize);
        let mut interface = there.map_or(Interface::new(record.link.0, 1), Interface::clone);
        (interface.ticks, interface.offset_s) = (1_000_000_000, 0);
        if self.format == FileFormat::Pcap {
            (interface.ticks, interface.snaplen) = self.merged;
            (interface.name, interface.description) = (String::new(), String::new());
            if let Some(first) = self.interfaces.first().filter(|i| i.link != interface.link) {
                let [first, other] = [first.link, interface.link].map(LinkType);
                bail!(
                    "a pcap file has one link type, and packets of {first} and of {other} match; \
                       -F pcapng has room for both"
                );
            }
        }
        if let Some(&number) = self.numbers.get(&interface) {
            return Ok(number);
        }
        let number = self.writer.add_interface(&interface).map_err(capture_error)?;
        self.numbers.insert(interface.clone(), number);
        self.interfaces.push(interface);
        self.written.push(0);
        Ok(number)
    }
}

/// What an interface of the new file has in common with one of the archive; their clocks may
/// differ.
fn same(interface: &Interface) -> (u16, u32, &str, &str) {
    let Interface { link, snaplen, name, description, .. } = interface;
    (*link, *snaplen, name, description)
}

/// How many packets a segment has from each of its interfaces, of those that match.
fn received(segment: &Segment, query: &Query) -> Result<HashMap<u128, u64>, ArchiveError> {
    let (note, times) = (segment.note(), query.times());
    let mut counts = HashMap::new();
    if note.layout.interfaces.len() == 1 {
        counts.insert(0, query.count(segment)?.count);
        return Ok(counts);
    }
    let is_inside = times.contains(note.time_min) && times.contains(note.time_max);
    if is_inside && segment.columns().get(Field::Interface) != Column::Unknown {
        count_values(segment, Field::Interface, None, &mut counts)?;
        return Ok(counts);
    }
    let records = query.records(segment)?.records;
    let rows = rows_of(segment, &records)?;
    count_values(segment, Field::Interface, rows.as_deref(), &mut counts)?;
    Ok(counts)
}

/// Writes packets as they are recorded.
struct Following<'a, W: Write> {
    args: &'a Args,
    extract: &'a mut Extract<W>,
}

impl<W: Write> Follower for Following<'_, W> {
    fn packet(&mut self, fresh: &Fresh<'_>) -> anyhow::Result<bool> {
        if !self.extract.has_room(self.args, &fresh.record) {
            return Ok(false);
        }
        self.extract.write(fresh.layout, &fresh.record, None)?;
        Ok(true)
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        self.extract.writer.flush().context(CANNOT_WRITE)
    }

    fn is_on_stdout(&self) -> bool {
        self.args.write.as_os_str() == "-"
    }
}
