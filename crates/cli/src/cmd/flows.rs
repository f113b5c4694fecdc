//! `tapdex flows`: the conversations that packets belong to.

use std::io::Write;

use anyhow::Context;
use tapdex_answers::ask::{Ask, Flows};
use tapdex_answers::lines::Flow;
use tapdex_engine::query::FlowOrder;
use tapdex_engine::time::format_time;
use tapdex_report::table::{self, Align};

use super::ask::{Places, PlacesArg, QuestionArgs, answered, finish, searched, write_missing};
use super::progress::Progress;
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
/// conversation of their own. What two archives have seen is two conversations.
///
/// Reports if packets from the requested times may be missing, and then exits with 3; see search,
/// also for -r with addresses of servers and for several of them.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    places: PlacesArg,
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
    let query = args.question.query()?;
    let progress = Progress::new();
    progress.stage("searching");
    let places = args.places.open()?;
    let most = if args.most == 0 { usize::MAX } else { args.most };
    let found = |packets| progress.stage(&format!("summing up {}", counted(packets, "packet")));
    let order = args.sort.into();
    let answer = match &places {
        Places::Folder(archive) => {
            searched(Ask::new(archive, &query).flows(order, most, args.whole, found))?
        }
        Places::Nodes(nodes) => answered(nodes.ask(&query).flows(order, most, args.whole))?,
    };
    drop(progress);
    print(args, &answer.value.flows, out)?;
    if args.json {
        write_missing(&answer.incomplete, out)?;
    }
    out.flush().context(CANNOT_WRITE)?;
    let Flows { flows, conversations, packets, bytes, other_packets } = &answer.value;
    if *other_packets > 0 {
        let packets = counted(*other_packets, "packet");
        note(&format!("{packets} in no conversation: no IP header was found"));
    }
    note(&format!(
        "{} of {} shown; all: {}, {}",
        flows.len(),
        counted(*conversations, "conversation"),
        counted(*packets, "packet"),
        counted(*bytes, "byte"),
    ));
    finish(&answer, args.question.allow)
}

/// An end, with its port as in tcpdump.
fn end_text(address: &str, port: Option<u16>) -> String {
    match port {
        Some(port) => format!("{address}.{port}"),
        None => address.to_owned(),
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

fn print(args: &Args, flows: &[Flow], out: &mut dyn Write) -> anyhow::Result<()> {
    if args.json {
        return flows.iter().try_for_each(|flow| json::line(out, flow));
    }
    if args.csv {
        csv::line(out, &COLUMNS.as_slice())?;
        for f in flows {
            let who = (f.start, f.duration, &f.protocol, &f.client, f.client_port, &f.server);
            let what = (f.server_port, f.icmp_type, &f.vlan, f.client_packets, f.server_packets);
            let bytes = (f.client_bytes, f.server_bytes, &f.client_flags, &f.server_flags);
            csv::line(out, &(who, what, bytes, &f.state, &f.community_id))?;
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
        vec![
            format_time(flow.start.0),
            flow.duration.to_string(),
            format!("{}{kind}", flow.protocol),
            end_text(&flow.client, flow.client_port),
            end_text(&flow.server, flow.server_port),
            flow.client_packets.to_string(),
            flow.server_packets.to_string(),
            flow.client_bytes.to_string(),
            flow.server_bytes.to_string(),
            flow.state.to_string(),
            flow.vlan.clone(),
            flow.community_id.clone(),
        ]
    };
    table::write(out, &headings, || flows.iter().map(row)).context(CANNOT_WRITE)
}
