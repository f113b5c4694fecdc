//! `tapdex extract`: the packets that match a filter, as a capture.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use tapdex_answers::ask::{Answer, Ask};
use tapdex_answers::capture::{Extract, ExtractError, Header, Limits, comment};
use tapdex_answers::deliver::{Delivered, Delivery};
use tapdex_client::ClientError;
use tapdex_client::nodes::Nodes;
use tapdex_engine::archive::{Archive, Gap, Segment};
use tapdex_engine::beneath::{Rights, open_named};
use tapdex_engine::query::{Answers, Fresh, Query};

use super::ask::{
    Places, PlacesArg, QuestionArgs, answered, check_target, notes, searched, summary,
};
use super::follow::{self, Follower};
use super::output::{self, FormatArg, Output, capture_error};
use super::progress::Progress;
use super::{CANNOT_WRITE, Nothing, missing, note};

/// Write the packets that match a filter as a capture.
///
/// Packets are written in order of time, from all captures of the archive, with their interfaces:
///
///     tapdex extract 'host 10.1.2.3 and tcp port 443' -w https.pcapng
///     tapdex extract -r archive --from -15m 'udp port 53' -w - | tcpdump -nn -r -
///     tapdex extract --flow 'tcp[tcpflags] & tcp-rst != 0' -w resets.pcap
///     tapdex extract --follow --from now 'port 53' -w - | wireshark -k -i -
///     tapdex extract -r archive -r https://sensor1:8443 'host 10.1.2.3' -w host.pcapng
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
///
/// -r may be given several times, with folders and addresses of servers; see search. The capture
/// does not say then how many packets of each interface they have.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    places: PlacesArg,
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
    let archive = match args.places.open()? {
        Places::Folder(archive) => archive,
        Places::Nodes(nodes) => return run_all(args, &nodes, &query, output, progress),
    };
    let ask = Ask::new(&archive, &query);
    let mut answers = searched(searched(ask.search())?.records())?;
    check_target(answers.segments.iter().map(|(segment, _)| &**segment), &args.write)?;
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
    let answer = ask.answer((), &answers, started);
    notes(&answer.notes);
    if written.stopped {
        let more = match args.flow || args.follow {
            true => "more packets match".to_owned(),
            false => format!("{} written of {found} that match", written.packets),
        };
        note(&format!("stopped at the limit; {more}"));
    }
    summary(&answer, written.packets, Some(written.bytes));
    missing::report(&answer.incomplete, args.question.allow)?;
    follow::finish(written.missed)?;
    if found == 0 && args.fail_if_empty {
        return Err(Nothing.into());
    }
    Ok(())
}

/// The same for servers and several places.
fn run_all(
    args: &Args,
    nodes: &Nodes,
    query: &Query,
    mut output: Output<'_>,
    progress: Progress,
) -> anyhow::Result<()> {
    for archive in nodes.archives() {
        let segments = searched(archive.search(query))?;
        check_target(segments.segments().iter().map(|segment| &**segment), &args.write)?;
    }
    let delivery = Delivery {
        format: output::format(args.format, &args.write),
        limits: Limits { packets: args.count_max, bytes: args.limit_bytes },
        whole_conversations: args.flow,
        follow: args.follow,
        statistics: true,
    };
    let is_on_stdout = args.write.as_os_str() == "-";
    let is_gone = || is_on_stdout && args.follow && !follow::has_reader();
    let stop = || follow::is_stopped() || is_gone();
    let target = BufWriter::with_capacity(1 << 16, &mut output);
    let answer: Answer<Delivered> = match nodes.ask(query).capture(&delivery, target, &stop) {
        Err(ClientError::Extract(error)) => return Err(extract_error(error)),
        answer => answered(answer)?,
    };
    let has_failed = answer.nodes.iter().any(|share| share.error.is_some());
    if args.write.is_file() && has_failed && !args.question.allow.allow_incomplete {
        // An existing file may be worth more than a part of the answer.
        drop(output);
        note(&format!("{} is left as it was", args.write.display()));
    } else {
        output.finish()?;
    }
    drop(progress);
    notes(&answer.notes);
    if answer.value.stopped {
        note("stopped at the limit; more packets match");
    }
    summary(&answer, answer.value.packets, Some(answer.value.bytes));
    missing::report(&answer.incomplete, args.question.allow)?;
    if answer.value.packets == 0 && args.fail_if_empty {
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
    // Nothing is known about later interfaces.
    let header = match args.follow {
        true => Header::ANY,
        false => Header::of(answers.found().map(|(segment, _)| &**segment)),
    };
    let limits = Limits { packets: args.count_max, bytes: args.limit_bytes };
    let comment = comment(query, args.flow);
    let mut extract = Extract::new(target, format, header, &comment, limits)?;
    let all = answers.count();
    let mut packets = answers.packets();
    while let Some(packet) = searched(packets.next())? {
        if follow::is_stopped() || !extract.found(&packet).map_err(extract_error)? {
            break;
        }
        progress.show(|_| format!("{} of {all} packets written", extract.packets()));
    }
    let gaps = packets.into_gaps();
    let mut missed = 0;
    if args.follow && !extract.is_stopped() {
        let mut following = Following { args, extract: &mut extract };
        following.pause()?;
        missed = follow::run(archive, query, answers, &mut following)?;
    }
    extract.ensure_interface(answers.segments.iter().map(|(segment, _)| &**segment))?;
    if !args.follow {
        let asked = answers.segments.iter().filter(|(_, answer)| !answer.pruned_by_time);
        let asked = asked.map(|(segment, _)| &**segment);
        extract.write_statistics(query, asked, &answers.gaps).map_err(extract_error)?;
    }
    let (packets, bytes) = (extract.packets(), extract.bytes());
    let stopped = extract.is_stopped();
    drop(extract.finish().context(CANNOT_WRITE)?);
    Ok(Written { packets, bytes, stopped, gaps, missed })
}

/// Writes packets as they are recorded.
struct Following<'a, W: Write> {
    args: &'a Args,
    extract: &'a mut Extract<W>,
}

impl<W: Write> Follower for Following<'_, W> {
    fn packet(&mut self, fresh: &Fresh<'_>) -> anyhow::Result<bool> {
        self.extract.fresh(fresh).map_err(extract_error)
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        self.extract.flush().context(CANNOT_WRITE)
    }

    fn is_on_stdout(&self) -> bool {
        self.args.write.as_os_str() == "-"
    }
}

/// An error with what to do about it.
fn extract_error(error: ExtractError) -> anyhow::Error {
    match error {
        ExtractError::Capture(error) => capture_error(error),
        error => error.into(),
    }
}
