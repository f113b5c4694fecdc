//! `tapdex search`: the packets that match a filter, a line each.

use std::io::Write;

use anyhow::Context;
use tapdex_engine::query::in_time_order;

use super::ask::{Answers, How, QuestionArgs, report_failed};
use super::packet_line::{CSV_HEADINGS, PacketLine};
use super::{CANNOT_WRITE, Nothing, note, shown_path};

/// Find the packets that match a filter, and print a line for each.
///
/// The filter is what tcpdump takes, with the same answer; it is asked of the indexes, and packets
/// are read only to be shown, or where a filter asks what no index has:
///
///     tapdex search 'host 10.1.2.3 and tcp port 443'
///     tapdex search -r archive --from -15m 'udp port 53 and not net 10.0.0.0/8'
///     tapdex search --count 'tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn'
///     tapdex search --json -c 10 'ip.addr == 10.0.0.0/8 && tcp.port in {80, 443}'
///
/// Filters with field names of Wireshark are recognised by those. Packets come in the order of
/// their times. Exits with 0, also if none matches (1 with --fail-if-empty or -q); with 3 if a
/// segment could not be asked, which is named, and the answer is incomplete.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    /// Print only how many packets match.
    #[arg(long, conflicts_with_all = ["json", "csv", "count_max"])]
    count: bool,
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
    let query = args.question.query()?;
    let how = if args.count || args.quiet { How::Count } else { How::Records };
    let answers = args.question.ask(&query, how)?;
    let mut failed = Vec::new();
    let (mut printed, mut bytes) = (0, None);
    if args.quiet {
    } else if args.count {
        writeln!(out, "{}", answers.count()).context(CANNOT_WRITE)?;
        printed = answers.count();
    } else {
        let mut sum = 0;
        (printed, failed) = print(args, &answers, out, &mut sum)?;
        bytes = Some(sum);
    }
    out.flush().context(CANNOT_WRITE)?;
    if !args.quiet {
        answers.note_tagged(&query);
        summary(&answers, printed, bytes, started.elapsed().as_secs_f64());
    }
    answers.finish()?;
    report_failed(&failed)?;
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
        true => found.iter().map(|(segment, _)| shown_path(&segment.packet_path())).collect(),
        false => vec![String::new(); found.len()],
    };
    let most = args.count_max.unwrap_or(u64::MAX);
    let (mut printed, mut written) = (0, Ok(()));
    if most == 0 {
        return Ok((0, Vec::new()));
    }
    let failed = in_time_order(&found, &mut |packet| {
        let before = found[packet.source].0.note().source.records_before;
        let number = before + u64::from(packet.number) + 1;
        let line = PacketLine::new(&files[packet.source], number, packet.record);
        let text = match (args.json, args.csv) {
            (true, _) => line.json(),
            (_, true) => line.csv(),
            _ => line.text(),
        };
        written = writeln!(out, "{text}");
        printed += 1;
        *bytes += u64::from(packet.record.wire_len);
        Ok(written.is_ok() && printed < most)
    })?;
    written.context(CANNOT_WRITE)?;
    Ok((printed, failed))
}

/// What was found, on one line.
pub(super) fn summary(answers: &Answers, packets: u64, bytes: Option<u64>, seconds: f64) {
    let (read, all) = answers.segments_read();
    let bytes = bytes.map_or(String::new(), |bytes| format!(" {bytes} bytes,"));
    note(&format!("matched {packets} packets,{bytes} {read}/{all} segments read, {seconds:.3} s"));
}
