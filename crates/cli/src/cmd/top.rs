//! `tapdex top`: the most frequent values of a field.

mod fields;

use std::io::Write;

use anyhow::Context;
use tapdex_answers::ask::Ask;
use tapdex_answers::lines::{By, TopValue, TopValues};
use tapdex_engine::fields::Name;
use tapdex_engine::query::Value;
use tapdex_report::table::{self, Align};

use super::ask::{Places, PlacesArg, QuestionArgs, answered, finish, searched, write_missing};
use super::{CANNOT_WRITE, counted, csv, escaped, json, note, shown_path};
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
///     tapdex top port -r archive -r tapdex-archive
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
/// Reports if packets from the requested times may be missing, and then exits with 3; see search,
/// also for -r with addresses of servers and for several of them.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Field, as above.
    #[arg(value_name = "FIELD", value_parser = NameParser, hide_possible_values = true)]
    field: &'static Name,
    #[command(flatten)]
    places: PlacesArg,
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

impl From<ByArg> for By {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Packets => Self::Packets,
            ByArg::Bytes => Self::Bytes,
        }
    }
}

/// Columns of the longest bar.
const BAR_LEN: u64 = 30;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let query = args.question.query()?;
    let (names, by, most) = ([args.field], args.by.into(), args.most);
    let answer = match args.places.open()? {
        Places::Folder(archive) => {
            searched(Ask::new(&archive, &query).top(&names, by, most, shown))?
        }
        Places::Nodes(nodes) => answered(nodes.ask(&query).top(&names, by, most))?,
    };
    for values in &answer.value.top {
        print(args, values, out)?;
    }
    if args.json {
        write_missing(&answer.incomplete, out)?;
    }
    out.flush().context(CANNOT_WRITE)?;
    let read = answer.value.packets_read;
    if read > 0 && args.by == ByArg::Packets {
        let packets = counted(read, "packet");
        note(&format!("{packets} read: their segments do not know the field"));
    }
    finish(&answer, args.question.allow)
}

/// A value for people.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::UnnamedInterface { capture, number } => {
            format!("{number} of {}", shown_path(capture))
        }
        value => value.to_string(),
    }
}

fn print(args: &Args, top: &TopValues, out: &mut dyn Write) -> anyhow::Result<()> {
    let heading = By::from(args.by).heading();
    if args.json {
        return top.values.iter().try_for_each(|value| json::line(out, value));
    }
    if args.csv {
        csv::line(out, &["value", heading, "share"])?;
        for value in &top.values {
            let share = format!("{:.6}", value.share.0);
            csv::line(out, &(escaped(&value.value), value.number(), share))?;
        }
        return Ok(());
    }
    let most = top.values.first().map_or(1, TopValue::number).max(1);
    let headings = [
        ("value", Align::Left),
        (heading, Align::Right),
        ("percent", Align::Right),
        ("", Align::Left),
    ];
    let row = |value: String, number: u64, bar: String| {
        let percent = 100.0 * number as f64 / top.total.max(1) as f64;
        vec![value, number.to_string(), format!("{percent:.2}"), bar]
    };
    let mut rows = Vec::new();
    for value in &top.values {
        let bar = u128::from(value.number()) * u128::from(BAR_LEN);
        let bar = usize::try_from(bar.div_ceil(most.into())).unwrap_or(0);
        rows.push(row(value.value.clone(), value.number(), "#".repeat(bar)));
    }
    let others = top.distinct.saturating_sub(top.values.len() as u64);
    if others > 0 {
        let shown: u64 = top.values.iter().map(TopValue::number).sum();
        rows.push(row(format!("({others} others)"), top.total - shown, String::new()));
    }
    table::write(out, &headings, || rows.iter().cloned()).context(CANNOT_WRITE)
}
