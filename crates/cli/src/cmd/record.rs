//! `tapdex record`: captures packets into an archive.

mod confined;
mod log;
mod serving;
mod settings;
mod shown;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use anyhow::{Context, bail, ensure};
use tapdex_engine::archive::{Archive, ArchiveError, Recovered};
use tapdex_engine::map_large_blocks;
use tapdex_gpu::flow::SegmentIndexer;
use tapdex_record::control::Control;
use tapdex_record::live::Live;
use tapdex_record::metrics::{Listening, MetricsServer};
use tapdex_record::notify;
use tapdex_record::privileges::{Account, give, restrict_new_files};
use tapdex_record::recorder::Recorder;
use tapdex_record::reporter::Event;
use tapdex_record::signals;
use tapdex_record::source::{PacketSource, list_interfaces};

use super::ask::line;
use super::serve::{Access, bind};
use super::{Incomplete, counted};
use log::{LogFormat, LogLevel};
use serving::Serving;
use settings::Settings;

/// Record packets from interfaces into an archive, and index them meanwhile.
///
/// Packets are written to disk as pcapng files, which Wireshark can open. They can be searched
/// within a second or two, while the recorder runs:
///
///     tapdex record -i eth0 -w archive
///     tapdex search -r archive --from -1m 'host 10.1.2.3'
///     tapdex record -i eth0 -i eth1 -f 'not port 22' --limit 80% --max-age 30d
///     tcpdump -i eth0 -w - | tapdex record -i -
///     tapdex record -i tcp://10.0.0.5:57012 --metrics 127.0.0.1:9740
///     tapdex record --config /etc/tapdex/record.toml
///     tapdex record -i eth0 -w archive --serve 127.0.0.1:8417
///
/// A recording is closed and the next one started after 1 GiB or 15 minutes, or as --rotate says.
/// When the disk is 90 % full, or the --limit is reached, the oldest recordings are removed with
/// their indexes. Recordings of earlier runs count. Captures that tapdex index added are never
/// removed.
///
/// Lost packets are counted where they are lost: by the interface, in the kernel's ring (larger
/// with --buffer), or in the queue to the disk (larger with --queue). Indexing loses no packets: if
/// it falls behind, it catches up later. The counts are shown while the recorder runs, at the end,
/// by tapdex info, and to Prometheus with --metrics.
///
/// With --serve, the recorder answers questions about its archive itself, as tapdex serve would:
/// who may ask, and what they may see, is in the folder --state.
///
/// Ctrl-C and SIGTERM end it: all packets received so far are written and indexed, and the exit
/// code is 0. A second signal leaves indexing for later. SIGHUP starts the next recording. After a
/// crash, the next start completes the unfinished recording.
///
/// Capturing needs root or CAP_NET_RAW; without either, the exit code is 5. With --user, the
/// recorder gives up root once the interfaces are open. From then on it can reach only its archive
/// and its sockets, if the kernel has seccomp and Landlock. --check-sandbox tests that, and exits
/// with 3 if a restriction does not hold.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Interface to capture on, or any; may be given several times. - reads a capture from standard
    /// input, tcp://HOST:PORT from a server (pcap-over-IP).
    #[arg(short = 'i', long = "interface", value_name = "NAME", verbatim_doc_comment)]
    interfaces: Vec<String>,
    /// Archive to record into; created if it does not exist [default: tapdex-archive].
    #[arg(short = 'w', long = "archive", value_name = "DIR", env = "TAPDEX_ARCHIVE")]
    archive: Option<PathBuf>,
    /// Capture only packets that match this tcpdump filter.
    #[arg(short = 'f', long, value_name = "FILTER")]
    filter: Option<String>,
    /// Bytes to store of each packet; 0 means all [default: 0].
    #[arg(short = 's', long, value_name = "BYTES")]
    snaplen: Option<u32>,
    /// Do not put interfaces into promiscuous mode.
    #[arg(short = 'p', long)]
    no_promiscuous: bool,
    /// Size of the kernel's ring for each interface [default: 64MiB].
    #[arg(short = 'B', long, value_name = "SIZE")]
    buffer: Option<String>,
    /// Size of the queue of packets that wait for the disk [default: 64MiB].
    #[arg(long, value_name = "SIZE")]
    queue: Option<String>,
    /// When to start the next recording: size, time or packets, whichever comes first
    /// [default: 1GiB,15min,4194304packets].
    #[arg(long, value_name = "LIMITS")]
    rotate: Option<String>,
    /// How much to keep: a size, or a percentage of used disk space; may be given twice
    /// [default: 90%].
    #[arg(long, value_name = "LIMIT")]
    limit: Vec<String>,
    /// Remove recordings older than this: 36h, 30d.
    #[arg(long, value_name = "TIME")]
    max_age: Option<String>,
    /// Keep at most this many recordings.
    #[arg(long, value_name = "N")]
    max_segments: Option<u64>,
    /// Switch to this user once the interfaces are open.
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
    /// Serve metrics for Prometheus at this address: 127.0.0.1:9740.
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// Answer questions over HTTP at this address, such as 127.0.0.1:8417, as tapdex serve does.
    #[arg(long, value_name = "ADDRESS")]
    serve: Option<String>,
    #[command(flatten)]
    access: Access,
    /// Read settings from a TOML file; options override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Device that builds indexes: cpu, cuda, cuda:N [default: cpu].
    #[arg(long, value_name = "DEVICE", env = "TAPDEX_DEVICE")]
    device: Option<String>,
    /// Threads that build indexes [default: 1].
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,
    /// Stop after this many packets.
    #[arg(short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count_max: Option<u64>,
    /// Stop after this time: 90s, 1h.
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Do not restrict the recorder to its archive and sockets.
    #[arg(long, conflicts_with = "check_sandbox")]
    no_sandbox: bool,
    /// Show what a recorder with these options could do, and exit.
    #[arg(long)]
    check_sandbox: bool,
    /// List the interfaces and exit.
    #[arg(short = 'D', long)]
    list_interfaces: bool,
    /// Report only problems: no progress, no summary.
    #[arg(short, long)]
    quiet: bool,
    /// How messages are written to standard error: text for people, json for journals, an object on
    /// each line [default: text].
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, verbatim_doc_comment)]
    log_format: Option<LogFormat>,
    /// Which messages are written: error, warn, info, debug; each includes those before it
    /// [default: info].
    #[arg(long, value_name = "LEVEL", hide_possible_values = true, conflicts_with = "quiet")]
    log_level: Option<LogLevel>,
    /// A filter in the place where tcpdump expects it.
    #[arg(hide = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.list_interfaces {
        for name in list_interfaces() {
            line(out, format_args!("{name}"))?;
        }
        return Ok(());
    }
    if let Some(first) = args.words.first() {
        let words = args.words.join(" ");
        bail!("unexpected argument {first:?}; give a capture filter with -f: -f '{words}'");
    }
    let settings = Settings::new(args);
    let log = match &settings {
        Ok(settings) => settings.log,
        Err(_) => settings::log(args, None, None),
    };
    log.start();
    settings.and_then(|settings| record(args, &settings, out)).map_err(|error| log.end(error))
}

fn record(args: &Args, settings: &Settings, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.check_sandbox {
        return confined::check(settings, out);
    }
    ensure!(
        !settings.sources.is_empty(),
        "no interface: give one with -i; tapdex record -D lists them"
    );
    for (at, name) in settings.sources.iter().enumerate() {
        ensure!(!settings.sources[..at].contains(name), "{name} is given twice");
    }
    if let Some(account) = &settings.user {
        account.check()?;
    }
    // Recordings are readable by the user and the group only.
    restrict_new_files();
    let mut sources = Vec::new();
    for name in &settings.sources {
        sources.push(PacketSource::open(name, &settings.capture)?);
    }
    let archive = open_archive(settings)?;
    let listening = settings.metrics.map(listen).transpose()?;
    let asked = settings.serve.map(bind).transpose()?;
    // Before there are threads, which would keep their privileges.
    confined::give_up_privileges(settings)?;
    // As the user who answers: the state folder has to be theirs.
    let opened = settings.serve.map(|at| settings.access.open(at, Some(&settings.archive)));
    let opened = opened.transpose()?;
    let device = settings.device.open()?;
    let state = opened.as_ref().map(|opened| opened.state.path());
    confined::enter(settings, state, device.opened().is_some(), args.quiet);
    let control = Arc::new(Control::default());
    signals::watch(&control).context("cannot wait for signals")?;
    let live = Arc::new(Live::default());
    let server = listening.map(|listening| serve(listening, &live)).transpose()?;
    if let Some(server) = &server {
        let address = server.local_addr();
        tracing::info!(%address, "metrics at http://{address}/metrics");
    }
    let indexer = device.opened().map(|device| Mutex::new(SegmentIndexer::new(device)));
    let recorder = Recorder::new(&archive, sources, settings.record.clone())?;
    say_start(settings, &recorder);
    live.count(recorder.build_seconds());
    let serving = match asked.zip(opened) {
        Some((listener, opened)) => {
            map_large_blocks();
            let archive = Archive::open(&settings.archive)?;
            Some(Serving::start(listener, opened, archive, Arc::clone(&live))?)
        }
        None => None,
    };
    // Tells whoever started us, if it wants to know.
    drop(notify::ready());
    let is_text = settings.log.format == LogFormat::Text;
    let screen = std::io::stderr().is_terminal() && !args.quiet && is_text;
    let mut shown = shown::Shown::new(screen);
    let device = indexer.as_ref().map(|indexer| indexer as &Mutex<_>);
    let started = std::time::Instant::now();
    let status = recorder.run(&control, device, &mut |event| match event {
        Event::Message(message) => shown.message(&message),
        Event::Status(status) => {
            shown.status(status, args.quiet);
            live.set(status);
            if settings.is_enough(started.elapsed()) {
                control.stop.store(true, Ordering::Relaxed);
            }
        }
    });
    drop(notify::stopping());
    drop(serving);
    drop(server);
    shown.clear();
    tracing::info!(
        packets = status.run.packets,
        bytes = status.run.wire_bytes,
        lost = status.run.lost.sum(),
        recordings = status.sealed,
        not_indexed = status.waiting,
        removed = status.run.removed_segments,
        "{}",
        shown::summary(&status, archive.folder())
    );
    if let Some(broken) = status.sources.iter().find(|source| source.broken) {
        return Err(Incomplete(format!("{} could not be read completely", broken.name)).into());
    }
    Ok(())
}

/// Opens the archive, or makes one that belongs to the user who records.
fn open_archive(settings: &Settings) -> anyhow::Result<Archive> {
    let folder = &settings.archive;
    ensure!(!folder.is_file(), "{} is a file, but an archive is a folder", folder.display());
    let is_new = matches!(Archive::open(folder), Err(ArchiveError::NoArchive { .. }));
    if let Some(account) = settings.user.as_ref().filter(|_| is_new) {
        // Only a new or empty folder is given away.
        let is_empty = folder.read_dir().map_or(true, |mut entries| entries.next().is_none());
        ensure!(
            is_empty,
            "{} contains other files and is not an archive: use another folder, or create an \
             archive there first that belongs to {}",
            folder.display(),
            account.name()
        );
        let archive = Archive::create(folder, None)?;
        give(folder, account)?;
        return Ok(archive);
    }
    Ok(Archive::create(folder, None)?)
}

fn say_start(settings: &Settings, recorder: &Recorder<'_>) {
    for recovered in recorder.recovered() {
        let (file, packets) = (recovered.path.display(), recovered.packets);
        let bytes_cut = recovered.bytes_cut;
        tracing::info!(%file, packets, bytes_cut, "{}", recovered_text(recovered));
    }
    let waiting = recorder.waiting();
    if waiting > 0 {
        let text = counted(waiting, "earlier recording");
        tracing::info!(recordings = waiting, "{text} to be indexed");
    }
    let names: Vec<String> = settings.sources.iter().map(ToString::to_string).collect();
    let (names, archive) = (names.join(", "), settings.archive.display());
    tracing::info!(interfaces = names, %archive, "recording {names} into {archive}");
}

/// The message about a recording that was left unfinished.
pub(super) fn recovered_text(recovered: &Recovered) -> String {
    let path = recovered.path.display();
    match recovered.packets {
        0 => format!("{path}: removed, it contained no packets"),
        packets => format!(
            "{path}: completed after a crash: {}; {} after them cut off",
            counted(packets, "packet"),
            counted(recovered.bytes_cut, "byte")
        ),
    }
}

fn listen(address: std::net::SocketAddr) -> anyhow::Result<Listening> {
    Listening::at(address).with_context(|| format!("cannot listen on {address}"))
}

fn serve(listening: Listening, live: &Arc<Live>) -> anyhow::Result<MetricsServer> {
    let (text, ready) = (Arc::clone(live), Arc::clone(live));
    let answer = move || text.exposition();
    let is_ready = move || ready.is_ready();
    MetricsServer::serve(listening, Arc::new(answer), Arc::new(is_ready))
        .context("cannot start a thread for metrics")
}

/// The account, by its name.
fn account(name: &str) -> anyhow::Result<Account> {
    Ok(Account::find(name)?)
}
