//! `tapdex demo`: compares the index with a plain scan on generated traffic, or serves it.

mod story;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tapdex_answers::missing::missing as missing_of;
use tapdex_engine::archive::{Archive, Ingest, Input};
use tapdex_engine::capture::{self, FileFormat};
use tapdex_engine::packet::{ETHERTYPE_IPV4, Encap, Headers, LinkType, decode, protocol};
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::{Filter, Syntax};
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};
use tapdex_report::table::{self, Align};

use super::ask::{line, searched};
use super::missing::{self, AllowArg};
use super::progress::Progress;
use super::temporary::Folder;
use super::{CANNOT_WRITE, Damaged, note};

/// Generate traffic, index it, and compare searches with tcpdump.
///
/// Writes a capture, indexes it, and runs five filters with the index and with tcpdump -r, or with
/// our own scan if tcpdump is not installed. Prints the times, and whether both found the same
/// number of packets; exits with 3 if not.
///
///     tapdex demo --packets 50000
///
/// The capture is written to the temporary folder and needs about 700 bytes per packet. With --keep
/// DIR, the capture and the archive are written to that folder and kept.
///
/// With --serve, the traffic is of one hour, with a scan, a flood and an exfiltration in it, and
/// instead of comparing anything, it is served. Open the address that is printed in a browser:
///
///     tapdex demo --serve
///
/// Ctrl-C ends it, and removes what was written.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Number of packets to generate.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    packets: u64,
    /// Keep the capture and the archive in this folder, which must not exist yet.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Serve the traffic, to be looked at in a browser.
    #[arg(long)]
    serve: bool,
    /// Address to serve at; port 0 is any free one.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8417", requires = "serve")]
    listen: SocketAddr,
}

/// A filter, and what both found in which time.
struct Compared {
    filter: String,
    found: u64,
    took: Duration,
    scan_found: u64,
    scan_took: Duration,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(args.packets > 0, "--packets 0: expected at least one packet");
    let folder = match &args.keep {
        Some(path) => Folder::kept(path)?,
        None => Folder::new("demo", None)?,
    };
    if args.serve {
        return serve(args, &folder, out);
    }
    let progress = Progress::new();
    let profile = Profile { packets: args.packets, ..Profile::default() };
    let (path, mut file) = folder.file("demo.pcap")?;
    let started = Instant::now();
    let bytes = super::r#gen::write(&profile, FileFormat::Pcap, &mut file, &progress)
        .with_context(|| {
            format!("cannot write {}; fewer --packets need less space", path.display())
        })?;
    drop(file);
    let seconds = started.elapsed().as_secs_f64();
    let packets = args.packets;
    say(out, &format!("generated {packets} packets, {bytes} bytes, in {seconds:.2} s"))?;

    progress.stage("indexing");
    let started = Instant::now();
    let archive = Archive::create(&folder.path().join("archive"), None)?;
    let report = Ingest::new(&archive).run(&[Input::File(path.clone())])?;
    let seconds = started.elapsed().as_secs_f64().max(1e-9);
    let mut index_bytes = 0;
    for file in report.files {
        index_bytes += file.index_bytes;
        if let Some(error) = file.error {
            return Err(error.into());
        }
    }
    say(
        out,
        &format!(
            "indexed   in {seconds:.2} s: {:.2} M packets/s, {:.2} bytes of index per packet, \
             {:.2} % of the capture",
            packets as f64 / seconds / 1e6,
            index_bytes as f64 / packets as f64,
            100.0 * index_bytes as f64 / bytes as f64,
        ),
    )?;
    let tcpdump = has_tcpdump();
    let mut compared = Vec::new();
    for filter in filters(&profile) {
        progress.stage(&format!("searching: {filter}"));
        compared.push(compare(&archive, &path, filter, tcpdump)?);
    }
    drop(progress);
    let scan = if tcpdump { "tcpdump ms" } else { "scan ms" };
    print(out, scan, &compared)?;
    let wrong = compared.iter().filter(|c| c.found != c.scan_found).count();
    if args.keep.is_some() {
        let archive = archive.folder().display();
        note(&format!("kept: try tapdex search -r {archive} -c 10 'udp port 53'"));
    }
    if wrong > 0 {
        return Err(Damaged(format!("{wrong} of 5 answers differ")).into());
    }
    let scan = if tcpdump { "tcpdump" } else { "the scan" };
    say(out, &format!("tapdex and {scan} found the same number of packets every time"))
}

/// Makes up an hour of traffic, and serves it until Ctrl-C.
fn serve(args: &Args, folder: &Folder, out: &mut dyn Write) -> anyhow::Result<()> {
    let progress = Progress::new();
    let (path, mut file) = folder.file("demo.pcapng")?;
    story::write(args.packets, &mut file, &progress)
        .with_context(|| format!("cannot write {}", path.display()))?;
    drop(file);
    progress.stage("indexing");
    let archive = Archive::create(&folder.path().join("archive"), None)?;
    let report = Ingest::new(&archive).run(&[Input::File(path)])?;
    if let Some(error) = report.files.into_iter().find_map(|file| file.error) {
        return Err(error.into());
    }
    drop(progress);
    let state = folder.path().join("state");
    super::serve::run_demo(archive.folder(), &state, args.listen, out)
}

fn say(out: &mut dyn Write, text: &str) -> anyhow::Result<()> {
    line(out, format_args!("{text}"))?;
    out.flush().context(CANNOT_WRITE)
}

/// Five filters that match something.
fn filters(profile: &Profile) -> [String; 5] {
    // Two hosts that talk to each other over TCP, somewhere in the middle.
    let mut traffic = Traffic::new(&Profile { packets: profile.packets, ..profile.clone() });
    let mut headers = Headers::default();
    let mut pair = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 443);
    let mut seen = 0_u64;
    while let Some(packet) = traffic.next() {
        seen += 1;
        if seen < profile.packets / 2 && seen < 100_000 {
            continue;
        }
        decode(LinkType::ETHERNET, false, packet.data, &mut headers);
        if (headers.eth_type, headers.l4) == (ETHERTYPE_IPV4, protocol::TCP)
            && headers.encap == Encap::None
        {
            let port = headers.port_src.min(headers.port_dst);
            pair = (headers.ip_src.into(), headers.ip_dst.into(), port);
            break;
        }
    }
    let (a, b, port) = pair;
    [
        format!("host {a} and host {b} and tcp port {port}"),
        "udp port 53 and not net 10.0.0.0/8".to_owned(),
        "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn".to_owned(),
        "vlan 32 and ip6 and tcp port 443".to_owned(),
        "icmp6 or arp or sctp".to_owned(),
    ]
}

fn compare(
    archive: &Archive,
    path: &Path,
    filter: String,
    tcpdump: bool,
) -> anyhow::Result<Compared> {
    let started = Instant::now();
    let parsed = Filter::parse_as(Syntax::Pcap, &filter, 0);
    let parsed = parsed.map_err(|error| anyhow::anyhow!(error.render(&filter)))?;
    let query = Query::new(parsed, TimeRange::ALL);
    let answers = searched(archive.search(&query)?.count())?;
    let (found, took) = (answers.count(), started.elapsed());
    missing::report(&missing_of(&answers.gaps), AllowArg::default())?;
    let started = Instant::now();
    let scan_found = if tcpdump { ask_tcpdump(path, &filter)? } else { scan(path, &query)? };
    Ok(Compared { filter, found, took, scan_found, scan_took: started.elapsed() })
}

fn has_tcpdump() -> bool {
    let mut command = Command::new("tcpdump");
    let output = command.arg("--version").stdin(Stdio::null()).output();
    // Older versions cannot count.
    output.is_ok_and(|output| {
        let text = [output.stdout, output.stderr].concat();
        output.status.success() && String::from_utf8_lossy(&text).contains("tcpdump version 4.99")
    })
}

/// What tcpdump counts.
fn ask_tcpdump(path: &Path, filter: &str) -> anyhow::Result<u64> {
    let mut command = Command::new("tcpdump");
    let command = command.args(["--count", "-nn", "-r"]).arg(path).arg(filter);
    let output = command.stdin(Stdio::null()).output().context("cannot run tcpdump")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let count = text.split_whitespace().next().and_then(|word| word.parse().ok());
    count.with_context(|| {
        format!("tcpdump printed no count: {}", String::from_utf8_lossy(&output.stderr))
    })
}

/// The count of a scan of all packets.
fn scan(path: &Path, query: &Query) -> anyhow::Result<u64> {
    let mut reader = capture::open(path)?;
    let mut headers = Headers::default();
    let mut found = 0;
    while let Some(record) = reader.next()? {
        let matches = query.scan(&record, &mut headers)?;
        found += u64::from(matches);
    }
    Ok(found)
}

fn print(out: &mut dyn Write, scan: &str, compared: &[Compared]) -> anyhow::Result<()> {
    line(out, format_args!(""))?;
    let headings = [
        ("filter", Align::Left),
        ("packets", Align::Right),
        ("tapdex ms", Align::Right),
        (scan, Align::Right),
        ("times faster", Align::Right),
        ("", Align::Left),
    ];
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let rows = || {
        compared.iter().map(|c| {
            vec![
                c.filter.clone(),
                c.found.to_string(),
                format!("{:.2}", ms(c.took)),
                format!("{:.1}", ms(c.scan_took)),
                format!("{:.0}", ms(c.scan_took) / ms(c.took).max(1e-6)),
                match c.found == c.scan_found {
                    true => String::new(),
                    false => format!("differs: the scan found {}", c.scan_found),
                },
            ]
        })
    };
    table::write(out, &headings, rows).context(CANNOT_WRITE)?;
    line(out, format_args!(""))
}
