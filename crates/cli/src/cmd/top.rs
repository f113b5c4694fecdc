//! `tapdex top`: the most frequent values of a field.

mod fields;

use std::io::Write;
use std::time::Instant;

use anyhow::Context;
use tapdex_engine::fields::Name;
use tapdex_engine::query::{Top, Value};
use tapdex_report::table::{self, Align};

use super::ask::{QuestionArgs, finish, line, note_unseen, write_missing};
use super::index_file::json;
use super::search::summary;
use super::{CANNOT_WRITE, counted, csv, escaped, note, shown_path};
use fields::NameParser;

/// Show the most frequent values of a field among the packets that match.
///
/// Values are counted in the index; packets are read only if the filter needs it, or if a segment
/// does not have the field because it is older or index --fields did not name it. By bytes (on the
/// wire), the index sums up flows that match as a whole, and the packets of others are read, as are
/// all if the field is one that packets of a flow differ in, such as tcp.flags.
///
///     tapdex top src
///     tapdex top port.dst -n 5 'tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn'
///     tapdex top ip.src -r archive --from -1h --json 'udp port 53'
///     tapdex top addr --by bytes
///
/// Fields of both versions of IP:
///
///     src, dst, addr             addresses of one end, of both
///     port.src, port.dst, port   ports of TCP, UDP and SCTP
///     proto                      what IP carries, or what the frame carries if that is not IP
///
/// Fields of one kind of packets:
///
///     ip.src, ip.dst, ip.addr, ip6.src, ip6.dst, ip6.addr, ip.proto, l4, fragment
///     ip.ttl, ip.dscp, tcp.srcport, tcp.dstport, tcp.port, udp.srcport, udp.dstport, udp.port
///     sctp.srcport, sctp.dstport, sctp.port, tcp.flags, tcp.window
///     icmp.type, icmp.code, icmp6.type, icmp6.code
///     eth.src, eth.dst, mac, eth.type, vlan, vlan.inner, mpls, encap, arp.src, arp.dst
///     tunnel, tunnel.id, inner.type, inner.src, inner.dst, inner.l4, inner.port.src,
///     inner.port.dst, iface, length, frame.len
///
/// A packet that does not have the field is not counted. Fields of both ends (addr, port, mac)
/// count each end. The share is of all ends, or packets, that were counted.
///
/// Reports if packets from the requested times may be missing, and then exits with 3; see search.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Field, as above.
    #[arg(value_name = "FIELD", value_parser = NameParser, hide_possible_values = true)]
    field: &'static Name,
    #[command(flatten)]
    question: QuestionArgs,
    /// Number of values to show.
    #[arg(short = 'n', value_name = "N", default_value_t = 10)]
    most: usize,
    /// What counts.
    #[arg(long, value_name = "WHAT", default_value = "packets")]
    by: ByArg,
    /// Print one JSON object per line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
}

/// What values are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ByArg {
    /// The packets that have the value.
    Packets,
    /// The bytes of these packets on the wire.
    Bytes,
}

impl ByArg {
    /// The heading of the numbers.
    fn heading(self) -> &'static str {
        match self {
            Self::Packets => "count",
            Self::Bytes => "bytes",
        }
    }
}

/// Columns of the longest bar.
const BAR_LEN: u64 = 30;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = Instant::now();
    let query = args.question.query()?;
    let mut answers = args.question.rows(&query)?;
    let top = match args.by {
        ByArg::Packets => answers.top(args.field, args.most)?,
        ByArg::Bytes => answers.top_by_bytes(args.field, args.most)?,
    };
    print(args, &top, out)?;
    if args.json {
        write_missing(&answers, out)?;
    }
    out.flush().context(CANNOT_WRITE)?;
    note_unseen(&answers, &query);
    if top.packets_read > 0 && args.by == ByArg::Packets {
        let packets = counted(top.packets_read, "packet");
        note(&format!("{packets} read: their segments do not know the field"));
    }
    summary(&answers, answers.count(), None, started.elapsed().as_secs_f64());
    finish(&answers, args.question.allow)
}

/// A value for people.
fn shown(value: &Value) -> String {
    match value {
        Value::UnnamedInterface { capture, number } => {
            format!("{number} of {}", shown_path(capture))
        }
        value => value.to_string(),
    }
}

fn print(args: &Args, top: &Top, out: &mut dyn Write) -> anyhow::Result<()> {
    let Top { values: counts, distinct: values, total, .. } = top;
    let (values, total) = (*values, *total);
    let share = |count: u64| count as f64 / total.max(1) as f64;
    if args.json {
        for (value, count) in counts {
            let (text, share) = (json::string(&shown(value)), share(*count));
            let name = args.by.heading();
            line(out, format_args!(r#"{{"value":{text},"{name}":{count},"share":{share:.6}}}"#))?;
        }
        return Ok(());
    }
    if args.csv {
        csv::line(out, &["value", args.by.heading(), "share"])?;
        for (value, count) in counts {
            let share = format!("{:.6}", share(*count));
            csv::line(out, &(escaped(&shown(value)), count, share))?;
        }
        return Ok(());
    }
    let most = counts.first().map_or(1, |(_, count)| *count).max(1);
    let headings = [
        ("value", Align::Left),
        (args.by.heading(), Align::Right),
        ("percent", Align::Right),
        ("", Align::Left),
    ];
    let row = |value: String, count: u64, bar: String| {
        vec![value, count.to_string(), format!("{:.2}", 100.0 * share(count)), bar]
    };
    let mut rows = Vec::new();
    for (value, count) in counts {
        let bar = u128::from(*count) * u128::from(BAR_LEN);
        let bar = usize::try_from(bar.div_ceil(most.into())).unwrap_or(0);
        rows.push(row(shown(value), *count, "#".repeat(bar)));
    }
    if values > counts.len() {
        let shown: u64 = counts.iter().map(|(_, count)| count).sum();
        let others = format!("({} others)", values - counts.len());
        rows.push(row(others, total - shown, String::new()));
    }
    table::write(out, &headings, || rows.iter().cloned()).context(CANNOT_WRITE)
}
