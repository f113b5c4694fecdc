//! `tapdex search`: the packets that match a filter, a line each.

use std::io::Write;

use anyhow::Context;
use tapdex_engine::query::{Fresh, in_time_order};

use super::ask::{Answers, How, QuestionArgs};
use super::follow::{self, Follower};
use super::missing::json_list;
use super::packet_line::{CSV_HEADINGS, PacketLine};
use super::{CANNOT_WRITE, Nothing, counted, note, shown_packets, shown_path};

/// Find the packets that match a filter, and print a line for each.
///
/// The filter is what tcpdump takes, with the same answer; it is asked of the indexes, and packets
/// are read only to be shown, or where a filter asks what no index has:
///
///     tapdex search 'host 10.1.2.3 and tcp port 443'
///     tapdex search -r archive --from -15m 'udp port 53 and not net 10.0.0.0/8'
///     tapdex search --count 'tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn'
///     tapdex search --json -c 10 'ip.addr == 10.0.0.0/8 && tcp.port in {80, 443}'
///     tapdex search --follow --from now 'icmp'
///
/// Filters with field names of Wireshark are recognised by those. Packets come in the order of
/// their times. Exits with 0, also if none matches (1 with --fail-if-empty or -q).
///
/// When packets from the times asked about may be missing, what is missing is said and the exit
/// code is 3, or 0 with --allow-incomplete: packets that were lost while recording, removed by
/// retention, or not recorded, captures that were cut short or damaged, and what cannot be read.
/// With --json it is said in the last lines, too: {"incomplete":{"cause":"lost","packets":5,..}}.
///
/// What tapdex record has written in the last moments is found, too. With --follow, packets are
/// printed as they are recorded, those of an interface in order of arrival; Ctrl-C ends it, and the
/// exit code is 0.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    /// Print only how many packets match.
    #[arg(long, conflicts_with_all = ["csv", "count_max"])]
    count: bool,
    /// Then go on with what is being recorded, until Ctrl-C; --from now leaves out the rest.
    #[arg(long, conflicts_with_all = ["count", "quiet", "fail_if_empty"])]
    follow: bool,
    /// Print a JSON object a line.
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
    /// Print nothing; exit with 0 if a packet matches, with 1 if none does.
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    let mut query = args.question.query()?;
    if args.quiet {
        query = query.with_notice(|_| {});
    }
    let how = if args.count || args.quiet { How::Count } else { How::Records };
    if args.follow {
        follow::watch();
    }
    let archive = args.question.open()?;
    let mut answers = Answers::ask(&archive, &query, how)?;
    if !args.quiet {
        answers.note_left_out(&query);
    }
    let (mut printed, mut bytes, mut missed) = (0, None, 0);
    if args.quiet {
    } else if args.count {
        match args.json {
            true => {
                let (count, missing) = (answers.count(), json_list(&answers.missing()));
                writeln!(out, r#"{{"count":{count},"incomplete":{missing}}}"#)
            }
            false => writeln!(out, "{}", answers.count()),
        }
        .context(CANNOT_WRITE)?;
        printed = answers.count();
    } else {
        let mut sum = 0;
        let failed;
        (printed, failed) = print(args, &answers, out, &mut sum)?;
        answers.fail(failed);
        if args.follow && args.count_max.is_none_or(|most| printed < most) {
            let mut printer = Printer {
                args,
                out,
                printed: &mut printed,
                bytes: &mut sum,
                file: (String::new(), String::new()),
            };
            printer.pause()?;
            missed = follow::run(&archive, &query, &answers, &mut printer)?;
            answers.look_again(&archive, &query);
        }
        bytes = Some(sum);
        if args.json {
            answers.write_missing(out)?;
        }
    }
    out.flush().context(CANNOT_WRITE)?;
    let all = answers.count();
    if !args.quiet {
        if !args.follow && args.count_max == Some(printed) && printed < all {
            note(&format!("{printed} shown of {all} that match"));
        }
        answers.note_unseen(&query);
        summary(&answers, printed, bytes, started.elapsed().as_secs_f64());
    }
    answers.finish(args.question.allow)?;
    follow::finish(missed)?;
    if answers.count() == 0 && (args.quiet || args.fail_if_empty) {
        return Err(Nothing.into());
    }
    Ok(())
}

/// Prints the packets; how many, and what went wrong.
fn print(
    args: &Args,
    answers: &Answers,
    out: &mut dyn Write,
    bytes: &mut u64,
) -> anyhow::Result<(u64, Vec<tapdex_engine::archive::ArchiveError>)> {
    if args.csv {
        writeln!(out, "{CSV_HEADINGS}").context(CANNOT_WRITE)?;
    }
    let found = answers.found();
    let files: Vec<String> = match args.json || args.csv {
        true => found.iter().map(|(segment, _)| shown_packets(segment)).collect(),
        false => vec![String::new(); found.len()],
    };
    let most = args.count_max.unwrap_or(u64::MAX);
    let (mut printed, mut written) = (0, Ok(()));
    if most == 0 {
        return Ok((0, Vec::new()));
    }
    let failed = in_time_order(&found, &mut |packet| {
        if follow::is_stopped() {
            return Ok(false);
        }
        let before = found[packet.source].0.note().source.records_before;
        let number = before + u64::from(packet.number) + 1;
        let line = PacketLine::new(&files[packet.source], number, packet.record);
        written = writeln!(out, "{}", shown(args, &line));
        printed += 1;
        *bytes += u64::from(packet.record.wire_len);
        Ok(written.is_ok() && printed < most)
    })?;
    written.context(CANNOT_WRITE)?;
    Ok((printed, failed))
}

/// A packet in the form that was asked for.
fn shown(args: &Args, line: &PacketLine<'_>) -> String {
    match (args.json, args.csv) {
        (true, _) => line.json(),
        (_, true) => line.csv(),
        _ => line.text(),
    }
}

/// Prints packets as they come.
struct Printer<'a> {
    args: &'a Args,
    out: &'a mut dyn Write,
    printed: &'a mut u64,
    bytes: &'a mut u64,
    /// The recording that the last packet was in, and its path.
    file: (String, String),
}

impl Follower for Printer<'_> {
    fn packet(&mut self, fresh: &Fresh<'_>) -> anyhow::Result<bool> {
        if (self.args.json || self.args.csv) && self.file.0 != fresh.recording.name() {
            let path = shown_path(&fresh.recording.sealed_path());
            self.file = (fresh.recording.name().to_owned(), path);
        }
        let line = PacketLine::new(&self.file.1, fresh.number + 1, fresh.record);
        writeln!(self.out, "{}", shown(self.args, &line)).context(CANNOT_WRITE)?;
        *self.printed += 1;
        *self.bytes += u64::from(fresh.record.wire_len);
        Ok(self.args.count_max.is_none_or(|most| *self.printed < most))
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        self.out.flush().context(CANNOT_WRITE)
    }

    fn is_on_stdout(&self) -> bool {
        true
    }
}

/// What was found, on one line.
pub(super) fn summary(answers: &Answers, packets: u64, bytes: Option<u64>, seconds: f64) {
    let (read, all) = answers.segments_read();
    let bytes = bytes.map_or(String::new(), |bytes| format!(" {bytes} bytes,"));
    let packets = counted(packets, "packet");
    note(&format!("matched {packets},{bytes} {read}/{all} segments read, {seconds:.3} s"));
}
