//! `tapdex gen`: generates traffic.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use tapdex_engine::beneath::Rights;
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::traffic::{Profile, Traffic};

use super::CANNOT_WRITE;
use super::output::{self, FormatArg, Output, capture_error};
use super::progress::{Progress, QuietArg};

/// Generate traffic and write it to a capture.
///
/// Writes Ethernet frames with TCP, UDP, DNS, ICMP, ARP and other protocols, VLAN tags, tunnels,
/// scans and floods, with correct checksums. Most flows are short, a few are long. Addresses are
/// private or reserved for documentation. The same options give the same bytes on every machine:
///
///     tapdex gen -c 10000 -w made.pcap
///     tapdex gen -c 10000 --seed 2 --vlan 0 --ipv6 0.5 -w other.pcapng
///     tapdex gen -c 1000 -w - | tcpdump -nn -c 5 -r -
///     tapdex gen -c 1000 --rate 100 --mean-len 64 -w slow.pcap
///
/// Shares are fractions of all packets, from 0 to 1, and hold in the long run. The file is pcapng
/// unless its name ends in .pcap or -F says otherwise. Times start in 2026 and have nanoseconds.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Capture to write; - is standard output.
    #[arg(short = 'w', long = "write", value_name = "FILE", default_value = "-")]
    write: PathBuf,
    /// Format of the capture.
    #[arg(short = 'F', long, value_enum)]
    format: Option<FormatArg>,
    /// Number of packets.
    #[arg(short = 'c', long, value_name = "N", default_value_t = Profile::default().packets)]
    packets: u64,
    /// Seed of the random numbers.
    #[arg(long, value_name = "N", default_value_t = Profile::default().seed)]
    seed: u64,
    /// Mean length of a frame in bytes [default: a mix with a mean of 700].
    #[arg(long, value_name = "BYTES")]
    mean_len: Option<u32>,
    /// Bytes to keep of each frame.
    #[arg(
        short = 's',
        long,
        value_name = "BYTES",
        default_value_t = Profile::default().snap_len,
        value_parser = clap::value_parser!(u32).range(1..=65_535)
    )]
    snaplen: u32,
    /// Share of packets with IPv6.
    #[arg(long, value_name = "SHARE", default_value_t = Profile::default().ipv6_share)]
    ipv6: f64,
    /// Share of packets with a VLAN tag.
    #[arg(long, value_name = "SHARE", default_value_t = Profile::default().vlan_share)]
    vlan: f64,
    /// Share of packets in a tunnel.
    #[arg(long, value_name = "SHARE", default_value_t = Profile::default().tunnel_share)]
    tunnel: f64,
    /// Share of packets that belong to scans.
    #[arg(long, value_name = "SHARE", default_value_t = Profile::default().scan_share)]
    scan: f64,
    /// Share of packets that belong to floods.
    #[arg(long, value_name = "SHARE", default_value_t = Profile::default().flood_share)]
    flood: f64,
    /// Share of DNS, ICMP, ARP, LLDP, SCTP and fragments.
    #[arg(long, value_name = "SHARE", default_value_t = Profile::default().other_share)]
    other: f64,
    /// Approximate number of concurrent flows.
    #[arg(long, value_name = "N", default_value_t = Profile::default().concurrent_flows)]
    flows: u32,
    /// Packets per second.
    #[arg(long, value_name = "N", default_value_t = Profile::default().rate)]
    rate: u64,
    /// Replace FILE if it exists.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    quiet: QuietArg,
}

impl Args {
    fn profile(&self) -> anyhow::Result<Profile> {
        let shares = [
            ("--ipv6", self.ipv6),
            ("--vlan", self.vlan),
            ("--tunnel", self.tunnel),
            ("--scan", self.scan),
            ("--flood", self.flood),
            ("--other", self.other),
        ];
        for (name, share) in shares {
            ensure!((0.0..=1.0).contains(&share), "{name} {share}: expected 0 to 1");
        }
        ensure!(self.rate > 0, "--rate 0: expected at least one packet per second");
        Ok(Profile {
            seed: self.seed,
            packets: self.packets,
            mean_len: self.mean_len,
            snap_len: self.snaplen,
            ipv6_share: self.ipv6,
            vlan_share: self.vlan,
            tunnel_share: self.tunnel,
            scan_share: self.scan,
            flood_share: self.flood,
            other_share: self.other,
            concurrent_flows: self.flows,
            rate: self.rate,
            ..Profile::default()
        })
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let profile = args.profile()?;
    let mut output = Output::open(&args.write, args.force, Rights::USUAL, out)?;
    let progress = args.quiet.progress();
    let format = output::format(args.format, &args.write);
    let bytes = write(&profile, format, &mut output, &progress)?;
    output.finish()?;
    let seconds = progress.elapsed().as_secs_f64();
    drop(progress);
    let (packets, path) = (profile.packets, args.write.display());
    args.quiet.note(&format!("wrote {packets} packets, {bytes} bytes to {path}, {seconds:.2} s"));
    Ok(())
}

/// Writes all packets; returns the size of the capture in bytes.
pub(super) fn write(
    profile: &Profile,
    format: FileFormat,
    output: &mut dyn Write,
    progress: &Progress,
) -> anyhow::Result<u64> {
    /// Packets between two checks of the clock.
    const STEP: u64 = 1 << 12;
    let target = BufWriter::with_capacity(1 << 18, output);
    let interface = Interface {
        name: "gen0".into(),
        snaplen: profile.snap_len,
        ..Interface::new(1, 1_000_000_000)
    };
    let mut writer = CaptureWriter::new(target, format, &[interface], "made up by tapdex gen")?;
    let mut traffic = Traffic::new(profile);
    let mut done = 0_u64;
    while let Some(packet) = traffic.next() {
        let written = writer.packet(0, packet.time_ns, packet.wire_len, packet.data);
        written.map_err(capture_error)?;
        done += 1;
        if done.is_multiple_of(STEP) {
            progress.show_of(done, profile.packets, |_| format!("{done} packets written"));
        }
    }
    let bytes = writer.written();
    drop(writer.finish().context(CANNOT_WRITE)?);
    Ok(bytes)
}
