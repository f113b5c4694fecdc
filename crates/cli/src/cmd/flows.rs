//! `tapdex flows`: the conversations that packets belong to.

use std::borrow::Cow;
use std::io::Write;
use std::time::Instant;

use anyhow::Context;
use tapdex_engine::packet::{protocol, tcp_flags};
use tapdex_engine::query::{Endpoint, Flow, FlowOrder, Flows};
use tapdex_engine::time::format_time;
use tapdex_report::table::{self, Align};

use super::ask::{QuestionArgs, finish, note_unseen, searched, write_missing};
use super::progress::Progress;
use super::search::summary;
use super::{CANNOT_WRITE, counted, csv, json, note};

/// Show the conversations that matching packets belong to.
///
/// One line per conversation: its client and server, the protocol, packets and bytes in each
/// direction, the duration, how a TCP connection ended, and the Community ID, by which Zeek,
/// Suricata and other tools call the same conversation:
///
///     tapdex flows
///     tapdex flows -n 3 --sort packets 'udp port 53'
///     tapdex flows -r archive --from -1h --json 'net 10.0.0.0/8'
///     tapdex flows --whole 'tcp[tcpflags] & tcp-rst != 0'
///
/// Packets belong to the same conversation if their addresses, protocol, ports and VLAN are the
/// same, in either direction. Messages of ICMP and their answers are a conversation, too. The
/// client is the end that sent a SYN, or else the first packet. Bytes are those of whole frames on
/// the wire. Only packets that match are counted, and only they decide who the client is and the
/// state. With --whole, all packets of these conversations from the requested times count, if there
/// are at most 10000.
///
/// States of TCP connections are those of Zeek, told from the flags that each end has sent:
///
///     S0      the client asked, the server did not answer
///     S1      established, not closed
///     SF      established, and closed by both ends
///     S2, S3  established, and closed by the client only, by the server only
///     REJ     the server refused
///     RSTO    the client aborted; RSTOS0 before the server answered
///     RSTR    the server aborted; RSTRH if the client's SYN is missing
///     SH      the client closed, the server did not answer; SHR the other way round
///     OTH     none of these: often, the start is missing
///
/// Packets without an IP header, or with one behind MPLS labels, three VLAN tags or on a link that
/// is not decoded, are in no conversation; standard error tells how many there are. Packets in
/// tunnels belong to the conversation of the tunnel. Later fragments have no ports, and are a
/// conversation of their own.
///
/// Reports if packets from the requested times may be missing, and then exits with 3; see search.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    /// Number of conversations to show; 0 shows all.
    #[arg(short = 'n', value_name = "N", default_value_t = 10)]
    most: usize,
    /// Which conversations come first.
    #[arg(long, value_name = "ORDER", default_value = "bytes")]
    sort: SortArg,
    /// Also count the other packets of the conversations.
    #[arg(long)]
    whole: bool,
    /// Print one JSON object per line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
}

/// What conversations are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SortArg {
    /// Most bytes first.
    Bytes,
    /// Most packets first.
    Packets,
    /// Longest first.
    Duration,
    /// Earliest first.
    Start,
}

impl From<SortArg> for FlowOrder {
    fn from(sort: SortArg) -> Self {
        match sort {
            SortArg::Bytes => Self::Bytes,
            SortArg::Packets => Self::Packets,
            SortArg::Duration => Self::Duration,
            SortArg::Start => Self::Start,
        }
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = Instant::now();
    let query = args.question.query()?;
    let progress = Progress::new();
    progress.stage("searching");
    // Other orders need the times of all packets.
    let by_size = matches!(args.sort, SortArg::Bytes | SortArg::Packets) && !args.whole;
    let mut answers = match by_size {
        true => args.question.rows_of_flows(&query)?,
        false => args.question.records(&query)?,
    };
    let found = answers.count();
    progress.stage(&format!("summing up {}", counted(found, "packet")));
    let most = if args.most == 0 { usize::MAX } else { args.most };
    let flows = match args.whole {
        true => searched(answers.whole_flows(&query, args.sort.into(), most))?,
        false => searched(answers.flows(args.sort.into(), most))?,
    };
    drop(progress);
    print(args, &flows, out)?;
    if args.json {
        write_missing(&answers, out)?;
    }
    out.flush().context(CANNOT_WRITE)?;
    note_unseen(&answers, &query);
    if flows.other_packets > 0 {
        let packets = counted(flows.other_packets, "packet");
        note(&format!("{packets} in no conversation: no IP header was found"));
    }
    let shown = flows.flows.len();
    note(&format!(
        "{} of {} shown; all: {}, {}",
        shown,
        counted(flows.len as u64, "conversation"),
        counted(flows.packets, "packet"),
        counted(flows.bytes, "byte"),
    ));
    summary(&answers, found, None, started.elapsed().as_secs_f64());
    finish(&answers, args.question.allow)
}

/// The name of what IP carries.
fn protocol_name(number: u8) -> Cow<'static, str> {
    protocol::name(number).map_or_else(|| number.to_string().into(), Cow::Borrowed)
}

/// VLAN ids, outer first; empty without.
fn vlan(flow: &Flow) -> String {
    match flow.vlans {
        [0, 0] => String::new(),
        [outer, 0] => outer.to_string(),
        [outer, inner] => format!("{outer}.{inner}"),
    }
}

/// An end, with its port as in tcpdump.
fn end_text(end: &Endpoint) -> String {
    match end.port {
        Some(port) => format!("{}.{port}", end.address),
        None => end.address.to_string(),
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A conversation for programs.
fn record(flow: &Flow) -> json::Flow {
    json::Flow {
        start: json::Time(flow.first_ns),
        duration: json::Rounded(seconds(flow.duration_ns())),
        protocol: protocol_name(flow.protocol),
        client: flow.client.address.to_string(),
        client_port: flow.client.port,
        server: flow.server.address.to_string(),
        server_port: flow.server.port,
        icmp_type: flow.icmp_type,
        vlan: vlan(flow),
        client_packets: flow.from_client.packets,
        server_packets: flow.from_server.packets,
        client_bytes: flow.from_client.bytes,
        server_bytes: flow.from_server.bytes,
        client_flags: tcp_flags(flow.from_client.tcp_flags),
        server_flags: tcp_flags(flow.from_server.tcp_flags),
        state: flow.state().unwrap_or_default(),
        community_id: flow.community_id().to_string(),
    }
}

/// The names of the columns of CSV: those of JSON.
const COLUMNS: [&str; 17] = [
    "start",
    "duration",
    "protocol",
    "client",
    "client_port",
    "server",
    "server_port",
    "icmp_type",
    "vlan",
    "client_packets",
    "server_packets",
    "client_bytes",
    "server_bytes",
    "client_flags",
    "server_flags",
    "state",
    "community_id",
];

fn print(args: &Args, flows: &Flows, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.json {
        return flows.flows.iter().try_for_each(|flow| json::line(out, &record(flow)));
    }
    if args.csv {
        csv::line(out, &COLUMNS.as_slice())?;
        for flow in &flows.flows {
            let f = record(flow);
            let who = (f.start, &f.duration.0, &f.protocol, &f.client, f.client_port, &f.server);
            let what = (f.server_port, f.icmp_type, &f.vlan, f.client_packets, f.server_packets);
            let bytes = (f.client_bytes, f.server_bytes, &f.client_flags, &f.server_flags);
            csv::line(out, &(who, what, bytes, f.state, &f.community_id))?;
        }
        return Ok(());
    }
    let headings = [
        ("start", Align::Left),
        ("seconds", Align::Right),
        ("protocol", Align::Left),
        ("client", Align::Left),
        ("server", Align::Left),
        ("packets >", Align::Right),
        ("<", Align::Right),
        ("bytes >", Align::Right),
        ("<", Align::Right),
        ("state", Align::Left),
        ("vlan", Align::Left),
        ("community id", Align::Left),
    ];
    let row = |flow: &Flow| {
        let kind = flow.icmp_type.map_or(String::new(), |kind| format!(" {kind}"));
        let sent = [&flow.from_client, &flow.from_server];
        let mut row = vec![
            format_time(flow.first_ns),
            seconds(flow.duration_ns()),
            format!("{}{kind}", protocol_name(flow.protocol)),
            end_text(&flow.client),
            end_text(&flow.server),
        ];
        row.extend(sent.map(|sent| sent.packets.to_string()));
        row.extend(sent.map(|sent| sent.bytes.to_string()));
        row.extend([
            flow.state().unwrap_or_default().to_owned(),
            vlan(flow),
            flow.community_id().to_string(),
        ]);
        row
    };
    table::write(out, &headings, || flows.flows.iter().map(row)).context(CANNOT_WRITE)
}
