//! `tapdex bench ingest`: how fast this machine takes captures in, step by step, and its limits.

use std::fs::File;
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::time::{ClockId, clock_gettime};
use tapdex_engine::archive::{Archive, Ingest, IngestReport, Input};
use tapdex_engine::capture::{CaptureReader, FileFormat, Layout};
use tapdex_engine::packet::{self, Headers};
use tapdex_engine::traffic::Profile;
use tapdex_gpu::choice::DeviceChoice;
use tapdex_gpu::device::Device;
use tapdex_gpu::flow::SegmentIndexer;
use tapdex_gpu::measure::Bus;
use tapdex_report::{Report, Sheet};

use crate::cmd::progress::Progress;
use crate::cmd::temporary::Folder;
use crate::cmd::{device, note};

/// Copies that are measured; the fastest one is the limit of the bus.
const BUS_RUNS: usize = 10;
/// Bytes that are copied to measure memory, by each thread.
const COPIED: usize = 64 << 20;
/// The archive that a capture is taken into.
const ARCHIVE: &str = "archive";
/// Bytes that are read at a time to measure the page cache.
const READ: usize = 1 << 20;

/// Measure how fast this machine takes captures in, step by step, and what limits it.
///
/// Takes the capture in with each number of threads, on each device, and prints packets and bits
/// per second, the processor's time for a packet, and what the threads spend their time on. Before
/// that, measures steps alone: copying memory, reading the capture from the page cache, finding its
/// packets, and decoding them. Without a capture, generates one.
///
///     tapdex bench ingest --packets 1000000
///     tapdex bench ingest --mean-len 64 --threads 1,8,16 --device cpu,cuda --folder /dev/shm
///
/// Files lie in a temporary folder, in --folder if that is given. The fastest of --runs counts.
///
/// With --out, the tables are also written as Markdown and CSV: tables.md, ingest-*.csv.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Capture to take in.
    #[arg(value_name = "FILE", conflicts_with_all = ["packets", "mean_len", "flood"])]
    file: Option<PathBuf>,
    /// Packets of the capture that is generated.
    #[arg(long, value_name = "N", default_value_t = 8_000_000)]
    packets: u64,
    /// Mean length of its frames in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    mean_len: u32,
    /// Share of packets that belong to floods of random sources.
    #[arg(long, value_name = "SHARE")]
    flood: Option<f64>,
    /// Numbers of threads. Default: 1, 2, 4 and so on, up to one per core.
    #[arg(long, value_name = "N,..", value_delimiter = ',')]
    threads: Vec<NonZeroUsize>,
    /// Devices: cpu, cuda, or both.
    #[arg(
        long,
        value_name = "DEVICE,..",
        value_delimiter = ',',
        default_value = "cpu",
        value_parser = device::parse
    )]
    device: Vec<DeviceChoice>,
    /// Number of runs; the fastest counts.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    runs: u16,
    /// Folder for the capture and the index, such as one in memory.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Folder for tables; created if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let devices = args.device.iter().map(|&choice| open(choice)).collect::<Result<Vec<_>, _>>()?;
    let progress = Progress::new();
    let folder = Folder::new("bench", args.folder.as_deref())?;
    let path = match &args.file {
        Some(path) => path.clone(),
        None => {
            progress.stage("generating a capture");
            generate(&folder, args, &progress)?
        }
    };
    let threads = match args.threads.is_empty() {
        true => powers_up_to(std::thread::available_parallelism().map_or(1, usize::from)),
        false => args.threads.iter().map(|&threads| threads.get()).collect(),
    };
    progress.stage("finding packets");
    let most = threads.iter().copied().max().unwrap_or(1);
    let capture = Capture::open(&path, most)?;
    let mut report = Report::new(out, args.out.as_deref())?;
    report.table(&machine(&capture, args, &devices), None)?;
    progress.stage("measuring steps");
    report.table(&alone(&capture, &threads, args.runs)?, None)?;
    if let Some(sheet) = limits(&devices)? {
        report.table(&sheet, None)?;
    }
    let mut rates = Sheet::new("ingest-whole", "From the capture to the index", WHOLE);
    let mut shares = Sheet::new("ingest-shares", "Shares of the threads' time, in %", SHARES);
    for (choice, device) in &devices {
        for &threads in &threads {
            progress.stage(&format!("{choice}, {threads} threads"));
            let runs = (0..args.runs).map(|_| take_in(&folder, &path, threads, device.as_ref()));
            let runs = runs.collect::<anyhow::Result<Vec<_>>>()?;
            let fastest = runs.iter().min_by_key(|run| run.elapsed);
            let Some(run) = fastest else { continue };
            rates.row(run.rates(choice, threads));
            shares.row(run.shares(choice, threads));
        }
    }
    report.table(&rates, None)?;
    report.table(&shares, None)?;
    let files = report.finish()?;
    drop(progress);
    if let Some(folder) = &args.out {
        note(&format!("wrote {files} files into {}", folder.display()));
    }
    Ok(())
}

type Opened = (DeviceChoice, Option<Arc<dyn Device>>);

fn open(choice: DeviceChoice) -> anyhow::Result<Opened> {
    match choice {
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok((choice, None)),
        DeviceChoice::Cuda(_) => Ok((choice, Some(device::open_gpu(choice)?))),
    }
}

/// The powers of two up to a number, and that number.
fn powers_up_to(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |power| power.checked_mul(2));
    powers.take_while(|&power| power < most).chain([most]).collect()
}

/// Writes a capture of made-up packets.
fn generate(folder: &Folder, args: &Args, progress: &Progress) -> anyhow::Result<PathBuf> {
    let usual = Profile::default();
    let flood_share = args.flood.unwrap_or(usual.flood_share);
    ensure!((0.0..=1.0).contains(&flood_share), "--flood {flood_share}: expected 0 to 1");
    ensure!(args.packets > 0, "--packets 0: expected at least one packet");
    let mean_len = Some(args.mean_len);
    let profile = Profile { packets: args.packets, mean_len, flood_share, ..usual };
    let (path, mut file) = folder.file("made-up.pcap")?;
    crate::cmd::r#gen::write(&profile, FileFormat::Pcap, &mut file, progress)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Takes a capture into a new archive.
fn take_in(
    folder: &Folder,
    path: &Path,
    threads: usize,
    device: Option<&Arc<dyn Device>>,
) -> anyhow::Result<Run> {
    let archive = Archive::create(&folder.path().join(ARCHIVE), None)?;
    let indexer = device.map(|device| Mutex::new(SegmentIndexer::new(Arc::clone(device))));
    let mut ingest = Ingest::new(&archive).threads(threads);
    if let Some(indexer) = &indexer {
        ingest = ingest.device(indexer);
    }
    let (start, processor) = (Instant::now(), processor_time());
    let mut report = ingest.run(&[Input::File(path.to_owned())])?;
    let elapsed = start.elapsed();
    let processor = processor_time().saturating_sub(processor);
    drop(archive);
    folder.remove(ARCHIVE)?;
    if let Some(error) = report.files.iter_mut().find_map(|file| file.error.take()) {
        return Err(error.into());
    }
    if let Some(trouble) = &report.device.trouble {
        note(&format!("the device failed: {trouble}"));
    }
    Ok(Run { elapsed, processor, report })
}

/// The time that all threads of this process have run.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// A capture that was taken in.
struct Run {
    elapsed: Duration,
    processor: Duration,
    report: IngestReport,
}

const WHOLE: &[&str] = &[
    "device",
    "threads",
    "M packets/s",
    "Gb/s",
    "ns of processor a packet",
    "bytes a packet",
    "refused",
];
const SHARES: &[&str] =
    &["device", "threads", "read", "device waits", "sort", "encode", "write", "idle"];

impl Run {
    fn rates(&self, choice: &DeviceChoice, threads: usize) -> Vec<String> {
        let sum = |of: fn(&tapdex_engine::archive::FileReport) -> u64| {
            self.report.files.iter().map(of).sum::<u64>() as f64
        };
        let packets = sum(|file| file.packets).max(1.0);
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        vec![
            choice.to_string(),
            threads.to_string(),
            format!("{:.2}", packets / seconds / 1e6),
            format!("{:.2}", 8.0 * sum(|file| file.wire_bytes) / seconds / 1e9),
            format!("{:.1}", self.processor.as_secs_f64() * 1e9 / packets),
            format!("{:.2}", sum(|file| file.index_bytes) / packets),
            self.report.device.refused.to_string(),
        ]
    }

    fn shares(&self, choice: &DeviceChoice, threads: usize) -> Vec<String> {
        let all: Duration = self.report.steps.iter().map(|(_, time)| *time).sum();
        let share = |time: Duration| 100.0 * time.as_secs_f64() / all.as_secs_f64().max(1e-9);
        let shares = self.report.steps.iter().map(|(_, time)| format!("{:.1}", share(*time)));
        [choice.to_string(), threads.to_string()].into_iter().chain(shares).collect()
    }
}

/// A capture, cut into parts that threads read by themselves.
struct Capture {
    path: PathBuf,
    bytes: u64,
    packets: u64,
    layout: Layout,
    /// Where packets start, evenly spaced, and the packets from there to the next one.
    parts: Vec<(u64, u64)>,
}

impl Capture {
    fn open(path: &Path, parts: usize) -> anyhow::Result<Self> {
        let file = || File::open(path).with_context(|| format!("{}", path.display()));
        let bytes = file()?.metadata()?.len();
        let mut reader = CaptureReader::open(file()?)?;
        let part_len = bytes.div_ceil(64 * parts as u64).max(1);
        let (mut all, mut packets): (Vec<(u64, u64)>, _) = (Vec::new(), 0);
        loop {
            let start = reader.position();
            if reader.next()?.is_none() {
                break;
            }
            if all.last().is_none_or(|&(first, _)| start >= first + part_len) {
                all.push((start, 0));
            }
            if let Some((_, count)) = all.last_mut() {
                *count += 1;
            }
            packets += 1;
        }
        ensure!(packets > 0, "{} has no packets", path.display());
        Ok(Self {
            path: path.to_owned(),
            bytes,
            packets,
            layout: reader.layout().clone(),
            parts: all,
        })
    }

    /// Reads the file with several threads; none looks at what it reads.
    fn read(&self, threads: usize) -> anyhow::Result<()> {
        let file = File::open(&self.path)?;
        each(threads, |thread| {
            let mut buffer = vec![0; READ];
            let blocks = self.bytes.div_ceil(READ as u64);
            for block in (thread as u64..blocks).step_by(threads) {
                if file.read_at(&mut buffer, block * READ as u64)? == 0 {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Finds all packets with several threads, and decodes them if wanted.
    fn packets(&self, threads: usize, decode: bool) -> anyhow::Result<()> {
        each(threads, |thread| {
            let of_thread = self.parts.len().div_ceil(threads);
            let mut parts = self.parts.chunks(of_thread).skip(thread).take(1).flatten().peekable();
            let Some(&&(start, _)) = parts.peek() else { return Ok(()) };
            let file = File::open(&self.path)?;
            let mut reader = CaptureReader::resume(file, self.layout.clone(), start)?;
            let (mut headers, mut ports) = (Headers::default(), 0_u64);
            for _ in 0..parts.map(|part| part.1).sum::<u64>() {
                let Some(record) = reader.next()? else { break };
                if decode {
                    packet::decode(record.link, record.swapped, record.data, &mut headers);
                    ports += u64::from(headers.port_src);
                } else {
                    ports += u64::from(record.wire_len);
                }
            }
            std::hint::black_box(ports);
            Ok(())
        })
    }
}

/// Runs threads that have a number each.
fn each(threads: usize, work: impl Fn(usize) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
            thread.join().map_err(|_| anyhow::anyhow!("a thread has ended early"))?
        };
        all.into_iter().try_for_each(ended)
    })
}

/// The least time of some runs.
fn fastest(runs: u16, work: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        work()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least.max(1e-9))
}

/// What is measured, and on what.
fn machine(capture: &Capture, args: &Args, devices: &[Opened]) -> Sheet {
    let mut sheet = Sheet::new("ingest-machine", "What is measured", &["what", "value"]).of_words();
    let mut row = |what: &str, value: String| sheet.row(vec![what.to_owned(), value]);
    if let Some(cpu) = super::processor() {
        row("processor", cpu);
    }
    for (choice, device) in devices {
        if let Some(device) = device {
            row(&choice.to_string(), device.facts().name.clone());
        }
    }
    row("tapdex", env!("CARGO_PKG_VERSION").to_owned());
    row("packets", capture.packets.to_string());
    row("bytes a packet in the capture", (capture.bytes / capture.packets).to_string());
    row("runs", format!("{}, the fastest counts", args.runs));
    sheet
}

/// Steps alone, with each number of threads.
fn alone(capture: &Capture, threads: &[usize], runs: u16) -> anyhow::Result<Sheet> {
    let headings = ["step", "threads", "GB/s", "M packets/s"];
    let mut sheet = Sheet::new("ingest-alone", "Steps alone", &headings);
    let mut row = |step: &str, threads: usize, bytes: f64, seconds: f64, of_packets: bool| {
        let packets = capture.packets as f64 / seconds / 1e6;
        let packets = if of_packets { format!("{packets:.1}") } else { String::new() };
        let gigabytes = format!("{:.2}", bytes / seconds / 1e9);
        sheet.row(vec![step.to_owned(), threads.to_string(), gigabytes, packets]);
    };
    for &threads in threads {
        let buffers: Vec<Mutex<[Vec<u8>; 2]>> =
            (0..threads).map(|_| Mutex::new([vec![1; COPIED], vec![2; COPIED]])).collect();
        let seconds = fastest(runs, || {
            each(threads, |thread| {
                let mut buffers =
                    buffers[thread].lock().map_err(|_| anyhow::anyhow!("poisoned"))?;
                let [from, to] = &mut *buffers;
                to.copy_from_slice(from);
                Ok(())
            })
        })?;
        row("copy memory", threads, (threads * COPIED) as f64, seconds, false);
    }
    let bytes = capture.bytes as f64;
    for &threads in threads {
        let seconds = fastest(runs, || capture.read(threads))?;
        row("read from the page cache", threads, bytes, seconds, true);
    }
    for (step, decode) in [("find packets", false), ("find and decode packets", true)] {
        for &threads in threads {
            let seconds = fastest(runs, || capture.packets(threads, decode))?;
            row(step, threads, bytes, seconds, true);
        }
    }
    Ok(sheet)
}

/// What the bus of a GPU can do.
fn limits(devices: &[Opened]) -> anyhow::Result<Option<Sheet>> {
    let Some(device) = devices.iter().find_map(|(_, device)| device.as_ref()) else {
        return Ok(None);
    };
    let bus = Bus::measure(device, BUS_RUNS)?;
    let mut sheet = Sheet::new("ingest-bus", "The bus", &["direction", "GB/s"]);
    for (direction, rate) in
        [("to the GPU", bus.to_device), ("from it", bus.from_device), ("both, each", bus.both_ways)]
    {
        sheet.row(vec![direction.to_owned(), format!("{:.1}", rate / 1e9)]);
    }
    Ok(Some(sheet))
}
