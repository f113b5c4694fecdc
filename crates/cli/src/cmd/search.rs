//! `tapdex search`: the packets that match a filter, one per line.

use std::io::{self, Write};
use std::time::Instant;

use anyhow::Context;
use tapdex_answers::ask::{Answer, Ask, Count as Counted};
use tapdex_answers::lines::{Count, Packet};
use tapdex_client::nodes::Nodes;
use tapdex_engine::query::{Answers, Fresh, Query};

use super::ask::{
    Places, PlacesArg, QuestionArgs, answered, finish, notes, searched, summary, write_missing,
};
use super::follow::{self, Follower};
use super::{CANNOT_WRITE, Nothing, counted, csv, json, missing, note, shown_packets, shown_path};

/// The headings of CSV; the last one only if several places are searched.
const CSV_HEADINGS: [&str; 14] = [
    "time", "src", "dst", "protocol", "src_port", "dst_port", "length", "captured", "vlan",
    "flags", "file", "number", "offset", "node",
];
/// Those of a single place.
const CSV_HEADINGS_OF_ONE: usize = 13;

/// Find the packets that match a filter, and print a line for each.
///
/// Filters are those of tcpdump, and find the same packets. The indexes answer them; packets are
/// read only to be shown, or if a filter needs something that no index has:
///
///     tapdex search 'host 10.1.2.3 and tcp port 443'
///     tapdex search -r archive --from -15m 'udp port 53 and not net 10.0.0.0/8'
///     tapdex search --count 'tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn'
///     tapdex search --json -c 10 'ip.addr == 10.0.0.0/8 && tcp.port in {80, 443}'
///     tapdex search --follow --from now 'icmp'
///     tapdex search -r archive -r https://sensor1:8443 'host 10.1.2.3'
///
/// A filter with field names of Wireshark is recognised by these names. Packets are printed in
/// order of time. Exits with 0, even if none matches (1 with --fail-if-empty or -q).
///
/// If packets from the requested times may be missing, this is reported and the exit code is 3, or
/// 0 with --allow-incomplete. They may have been lost while recording, removed by retention or
/// never recorded, or be in captures that are truncated, damaged or unreadable. With --json, the
/// last lines report it, too: {"incomplete":{"cause":"lost","packets":5,..}}.
///
/// Packets that tapdex record has just written are found, too. With --follow, packets are printed
/// as they are recorded, those of an interface in order of arrival; Ctrl-C ends it, and the exit
/// code is 0.
///
/// -r may be given several times, with folders and addresses of tapdex serve: all are searched at
/// the same time, as one archive. One that does not answer is named, and the exit code is 3. A
/// token for a server is in TAPDEX_TOKEN, in a file, or in ~/.config/tapdex/credentials.toml.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    places: PlacesArg,
    #[command(flatten)]
    question: QuestionArgs,
    /// Print only how many packets match.
    #[arg(long, conflicts_with_all = ["csv", "count_max"])]
    count: bool,
    /// Then continue with packets as they are recorded, until Ctrl-C; --from now skips older
    /// packets.
    #[arg(long, conflicts_with_all = ["count", "quiet", "fail_if_empty"])]
    follow: bool,
    /// Print one JSON object per line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
    /// Stop after this many packets.
    #[arg(short = 'c', value_name = "N")]
    count_max: Option<u64>,
    /// Exit with 1 if no packet matches.
    #[arg(long)]
    fail_if_empty: bool,
    /// Print the archive that has the packet in front of each line. JSON and CSV have it anyway, if
    /// several are searched.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    nodes: bool,
    /// Print nothing; exit with 0 if a packet matches, with 1 if none does.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = Instant::now();
    let mut query = args.question.query()?;
    if args.quiet {
        query = query.with_notice(|_| {});
    }
    if args.follow {
        follow::watch();
    }
    let archive = match args.places.open()? {
        Places::Nodes(nodes) => return run_all(args, &nodes, &query, out),
        Places::Folder(_) if args.nodes && !args.count && !args.quiet => {
            return run_all(args, &args.places.nodes()?, &query, out);
        }
        Places::Folder(archive) => archive,
    };
    let ask = Ask::new(&archive, &query);
    if args.count || args.quiet {
        return count(args, &searched(ask.count())?, out);
    }
    let mut shown = Shown::default();
    let mut answers = print(args, &ask, &mut shown, out)?;
    let mut missed = 0;
    if args.follow && !shown.stopped {
        let file = (String::new(), String::new());
        let mut printer = Printer { args, out, shown: &mut shown, file };
        printer.pause()?;
        missed = follow::run(&archive, &query, &answers, &mut printer)?;
        answers.look_again(&archive);
    }
    let answer = ask.answer((), &answers, started);
    if args.json {
        write_missing(&answer.incomplete, out)?;
    }
    out.flush().context(CANNOT_WRITE)?;
    if shown.stopped && shown.may_have_more && !args.follow {
        note(&format!("stopped after {}; more may match", counted(shown.packets, "packet")));
    }
    notes(&answer.notes);
    summary(&answer, shown.packets, Some(shown.bytes));
    missing::report(&answer.incomplete, args.question.allow)?;
    follow::finish(missed)?;
    if shown.packets == 0 && answers.count() == 0 && args.fail_if_empty {
        return Err(Nothing.into());
    }
    Ok(())
}

/// Prints how many packets match, or nothing at all.
fn count(args: &Args, answer: &Answer<Counted>, out: &mut dyn Write) -> anyhow::Result<()> {
    let count = answer.value.count;
    if args.quiet {
        missing::report(&answer.incomplete, args.question.allow)?;
    } else {
        match args.json {
            true => {
                let (incomplete, nodes) = (answer.incomplete.clone(), answer.nodes.clone());
                json::line(out, &Count { count, incomplete, nodes })?;
            }
            false => writeln!(out, "{count}").context(CANNOT_WRITE)?,
        }
        out.flush().context(CANNOT_WRITE)?;
        finish(answer, args.question.allow)?;
    }
    if count == 0 && (args.quiet || args.fail_if_empty) {
        return Err(Nothing.into());
    }
    Ok(())
}

/// What was printed.
#[derive(Default)]
struct Shown {
    packets: u64,
    bytes: u64,
    /// The limit was reached.
    stopped: bool,
    /// More packets may match.
    may_have_more: bool,
}

impl Shown {
    fn add(&mut self, args: &Args, wire_len: u32) {
        self.packets += 1;
        self.bytes += u64::from(wire_len);
        self.stopped = args.count_max.is_some_and(|most| self.packets >= most);
    }
}

/// Prints the packets as they are found.
fn print(
    args: &Args,
    ask: &Ask<'_>,
    shown: &mut Shown,
    out: &mut dyn Write,
) -> anyhow::Result<Answers> {
    let most = args.count_max.unwrap_or(u64::MAX);
    let search = searched(ask.search())?.with_limit(most);
    let mut packets = search.packets();
    // The path of each segment's packets, once it is needed.
    let mut files: Vec<Option<String>> = Vec::new();
    let mut has_heading = !args.csv;
    while let Some(packet) = searched(packets.next())? {
        if follow::is_stopped() {
            break;
        }
        if !std::mem::replace(&mut has_heading, true) {
            write_heading(false, out)?;
        }
        let file = match args.json || args.csv {
            true => {
                files.resize(files.len().max(packet.source + 1), None);
                files[packet.source].get_or_insert_with(|| shown_packets(packet.segment))
            }
            false => "",
        };
        let line = Packet::new(file, packet.number_in_file(), packet.record);
        write(args, &line, out)?;
        shown.add(args, packet.record.wire_len);
    }
    shown.stopped |= most == 0;
    shown.may_have_more = packets.may_have_more();
    let answers = searched(packets.finish())?;
    if !has_heading {
        write_heading(false, out)?;
    }
    Ok(answers)
}

/// The same for servers and several places.
fn run_all(args: &Args, nodes: &Nodes, query: &Query, out: &mut dyn Write) -> anyhow::Result<()> {
    let ask = nodes.ask(query);
    if args.count || args.quiet {
        return count(args, &answered(ask.count())?, out);
    }
    let mut heading = args.csv.then_some(nodes.len() > 1);
    let only = nodes.names().next().filter(|_| nodes.len() == 1).unwrap_or_default();
    let mut failed = None;
    let mut each = |packet: Option<Packet<'_>>| {
        if let (Some(has_node), Some(packet)) = (heading.take(), &packet) {
            // A server may have asked others.
            failed = write_heading(has_node || !packet.node.is_empty(), out).err();
            if failed.is_some() {
                return Ok(false);
            }
        }
        let done = match &packet {
            Some(packet) if args.nodes => {
                let node = if packet.node.is_empty() { only } else { &packet.node };
                writeln!(out, "{node}  {}", packet.text()).context(CANNOT_WRITE)
            }
            Some(packet) => write(args, packet, out),
            None if follow::has_reader() => out.flush().context(CANNOT_WRITE),
            None => {
                let gone = io::Error::from(io::ErrorKind::BrokenPipe);
                Err(gone).context(CANNOT_WRITE)
            }
        };
        failed = done.err();
        Ok(failed.is_none())
    };
    let answer = ask.packets(args.count_max, args.follow, &mut each, &follow::is_stopped);
    if let Some(error) = failed {
        return Err(error);
    }
    let answer = answered(answer)?;
    if let Some(has_node) = heading {
        write_heading(has_node, out)?;
    }
    if args.json {
        write_missing(&answer.incomplete, out)?;
    }
    out.flush().context(CANNOT_WRITE)?;
    let delivered = answer.value;
    if delivered.stopped && !args.follow {
        note(&format!("stopped after {}; more may match", counted(delivered.packets, "packet")));
    }
    notes(&answer.notes);
    summary(&answer, delivered.packets, Some(delivered.bytes));
    missing::report(&answer.incomplete, args.question.allow)?;
    if delivered.packets == 0 && answer.matched == 0 && args.fail_if_empty {
        return Err(Nothing.into());
    }
    Ok(())
}

/// Writes a packet in the form that was asked for.
fn write(args: &Args, line: &Packet<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    match (args.json, args.csv) {
        (true, _) => json::line(out, line),
        (_, true) => write_csv(line, out),
        _ => writeln!(out, "{}", line.text()).context(CANNOT_WRITE),
    }
}

/// The first line of CSV.
fn write_heading(has_node: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let len = if has_node { CSV_HEADINGS.len() } else { CSV_HEADINGS_OF_ONE };
    csv::line(out, &CSV_HEADINGS.get(..len))
}

/// For spreadsheets: a value for each of the [`CSV_HEADINGS`].
fn write_csv(line: &Packet<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let (who, ports) = ((&line.src, &line.dst, &line.protocol), (line.src_port, line.dst_port));
    let what = (line.length, line.captured, &line.vlan, &line.flags);
    let place = (super::escaped(&line.file), line.number, line.offset);
    match line.node.is_empty() {
        true => csv::line(out, &(line.time, who, ports, what, place)),
        false => csv::line(out, &(line.time, who, ports, what, place, &line.node)),
    }
}

/// Prints packets as they come.
struct Printer<'a> {
    args: &'a Args,
    out: &'a mut dyn Write,
    shown: &'a mut Shown,
    /// The recording that the last packet was in, and its path.
    file: (String, String),
}

impl Follower for Printer<'_> {
    fn packet(&mut self, fresh: &Fresh<'_>) -> anyhow::Result<bool> {
        if (self.args.json || self.args.csv) && self.file.0 != fresh.recording.name() {
            let path = shown_path(&fresh.recording.sealed_path());
            self.file = (fresh.recording.name().to_owned(), path);
        }
        let line = Packet::new(&self.file.1, fresh.number + 1, fresh.record);
        write(self.args, &line, self.out)?;
        self.shown.add(self.args, fresh.record.wire_len);
        Ok(!self.shown.stopped)
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        self.out.flush().context(CANNOT_WRITE)
    }

    fn is_on_stdout(&self) -> bool {
        true
    }
}
