//! `tapdex index`: captures into an archive.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use tapdex_engine::archive::{
    Archive, ArchiveError, CodecChoice, FileReport, Ingest, Input, Progress as Done,
};
use tapdex_engine::capture;
use tapdex_engine::fields::{Field, FieldSet};
use tapdex_gpu::flow::SegmentIndexer;
use tapdex_record::units;

use super::ask::{DEFAULT_ARCHIVE, check_folder};
use super::device::DeviceArg;
use super::progress::QuietArg;
use super::{Incomplete, Interrupted, chain, counted, interrupt, note};

/// Add captures to an archive, so that they can be searched.
///
/// Indexes the packets of pcap and pcapng files. The files stay where they are and are not changed.
/// Captures that are compressed with gzip or zstd, or come from standard input (-), are copied into
/// the archive first.
///
///     tapdex gen -c 10000 -w a.pcap
///     tapdex index a.pcap
///     tapdex search 'udp port 53'
///     gzip -k a.pcap
///     tapdex index a.pcap.gz -o other --codec plwah
///
/// Captures that are indexed and unchanged are skipped, so you can run the same command again to
/// add new ones. After Ctrl-C, finished segments are kept, and the next run continues from there.
///
/// A damaged capture is indexed up to the damage, which is reported, and the exit code is 3.
///
/// With --codec auto, each column of the index has the form that suits it: lists, packed numbers or
/// bitmaps, whichever is small and fast to search. With a codec, all columns are bitmaps of that
/// codec. archive.toml remembers it.
///
/// With --sums, the index stores a checksum for about every 32 packets, so that any command that
/// reads packets notices if they have changed. The archive remembers this until --sums=no.
/// Recordings of tapdex record always have checksums.
///
/// With --fields, more fields are indexed, so that filters and top can answer them without reading
/// packets; the index gets larger. The archive remembers this until --fields none.
///
/// With --device cuda and --codec auto, a GPU decodes the headers of packets, finds their flows and
/// sorts them. Rare headers are left to the CPU; the summary says how many. With another codec, it
/// sorts segments and builds their bitmaps. The index is the same, byte for byte. If the GPU fails,
/// the CPU continues. --device auto means the CPU.
///
/// All threads take in a capture together, and the index does not depend on their number.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Captures: pcap or pcapng, plain or compressed with gzip or zstd; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Archive; created if it does not exist.
    #[arg(
        short,
        long = "output",
        visible_short_alias = 'r',
        value_name = "DIR",
        env = "TAPDEX_ARCHIVE",
        default_value = DEFAULT_ARCHIVE
    )]
    output: PathBuf,
    /// Codec of the bitmaps: auto, or a name from tapdex codec list; hipes:W sets its parameter.
    #[arg(long, value_parser = parse_codec)]
    codec: Option<CodecChoice>,
    /// Store checksums of packets.
    #[arg(
        long,
        value_name = "WHETHER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes"
    )]
    sums: Option<SumsArg>,
    /// More fields to index, separated by commas: ip.ttl, ip.dscp, tcp.window, frame.len; or none.
    #[arg(long, value_name = "FIELDS", value_parser = parse_fields)]
    fields: Option<FieldSet>,
    #[command(flatten)]
    device: DeviceArg,
    /// Number of threads; 0 means one per core.
    #[arg(short = 'j', long, value_name = "N", default_value = "0")]
    threads: usize,
    /// Memory for packets that wait to be indexed, such as 2G; a segment of 4 million packets
    /// always fits. Default: a quarter of the machine's. The index does not depend on it.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, verbatim_doc_comment)]
    memory: Option<u64>,
    /// Largest size of a compressed capture when decompressed, such as 20G. Default: 100 times its
    /// compressed size, but at least 256 MiB. Never more than 90 % of the free disk space.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, verbatim_doc_comment)]
    unpack_max: Option<u64>,
    /// Index captures again even if they are unchanged.
    #[arg(long)]
    force: bool,
    /// Name for the capture from standard input.
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    name: String,
    #[command(flatten)]
    quiet: QuietArg,
}

/// Whether to store checksums of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SumsArg {
    /// For all packets.
    Yes,
    /// Only for recordings.
    No,
}

pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    units::parse_size(text).map_err(|error| error.to_string())
}

fn parse_codec(text: &str) -> Result<CodecChoice, String> {
    CodecChoice::parse(text).ok_or_else(|| {
        let names = tapdex_bitmap::ALL_CODECS.map(|codec| codec.name().to_owned());
        format!("expected auto or one of {}", names.join(", "))
    })
}

fn parse_fields(text: &str) -> Result<FieldSet, String> {
    let extra = FieldSet::ALL.extra();
    if text == "none" {
        return Ok(FieldSet::default());
    }
    let field = |name: &str| Field::of_name(name).filter(|&field| extra.contains(field));
    text.split(',').map(field).collect::<Option<FieldSet>>().ok_or_else(|| {
        let names: Vec<&str> = extra.iter().map(Field::name).collect();
        format!("expected none, or a comma-separated list of {}", names.join(", "))
    })
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let stdin = args.files.iter().filter(|path| path.as_os_str() == "-").count();
    ensure!(stdin <= 1, "standard input (-) can be given only once");
    check_folder(&args.output)?;
    let device = args.device.open()?;
    if let Err(ArchiveError::NoArchive { .. }) = Archive::open(&args.output)
        && let Some(error) = unusable(&args.files)
    {
        // Do not create an archive for nothing.
        return Err(error.into());
    }
    let mut archive = Archive::create(&args.output, args.codec)?;
    if let Some(fields) = args.fields {
        archive.keep_fields(fields)?;
    }
    if let Some(sums) = args.sums {
        archive.keep_sums(sums == SumsArg::Yes)?;
    }
    let indexer = device.opened().map(|device| Mutex::new(SegmentIndexer::new(device)));
    let inputs: Vec<Input> = args
        .files
        .iter()
        .map(|path| match path.as_os_str() == "-" {
            true => Input::Stdin(args.name.clone()),
            false => Input::File(path.clone()),
        })
        .collect();
    static STOP: AtomicBool = AtomicBool::new(false);
    // Without a handler the process ends at once, and the next run cleans up.
    interrupt::handle(|| {
        // The second time, for example while a stream is silent: the next run cleans up.
        if STOP.swap(true, Ordering::Relaxed) {
            interrupt::end();
        }
    });
    let progress = args.quiet.progress();
    let show = |done: Done| {
        let text = |elapsed: Duration| {
            let rate = done.packets as f64 / elapsed.as_secs_f64().max(1e-3);
            format!("{} packets, {:.2} M/s", done.packets, rate / 1e6)
        };
        match done.bytes > 0 && done.bytes_total > 0 {
            true => progress.show_of(done.bytes, done.bytes_total, text),
            false => progress.show(text),
        }
    };
    let mut ingest = Ingest::new(&archive).threads(args.threads).force(args.force);
    ingest = ingest.unpack_max(args.unpack_max).memory(args.memory);
    if let Some(indexer) = &indexer {
        ingest = ingest.device(indexer);
    }
    let result = ingest.stop(&STOP).progress(&show).run(&inputs);
    let seconds = progress.elapsed().as_secs_f64();
    drop(progress);
    let mut report = match result {
        Err(ArchiveError::Interrupted) => {
            note("interrupted; finished segments are kept: run the command again to continue");
            return Err(Interrupted.into());
        }
        result => result?,
    };
    if let Some(trouble) = &report.device.trouble {
        let segments = counted(report.device.segments_on_cpu, "segment");
        note(&format!("the device failed; {segments} indexed on the CPU instead: {trouble}"));
    }
    // For a single capture, its own error is the error; otherwise the others are indexed.
    if let [file] = report.files.as_mut_slice()
        && let Some(error) = file.error.take()
    {
        return Err(error.into());
    }
    let mut wrong = 0;
    for file in &report.files {
        let path = file.path.display();
        if let Some(error) = &file.error {
            // Most errors name the file themselves.
            let (text, path) = (chain(error), path.to_string());
            note(&if text.contains(&path) { text } else { format!("{path}: {text}") });
            wrong += 1;
        } else if let Some(damage) = &file.damage {
            note(&format!("{path}: indexed {} packets up to the damage: {damage}", file.packets));
            wrong += 1;
        }
    }
    if !args.quiet.quiet {
        let used = device.shown(report.device.refused);
        note(&format!("{}{used}", summary(&report.files, &args.output, seconds)));
    }
    match wrong {
        0 => Ok(()),
        1 => Err(Incomplete("1 capture was not indexed completely".into()).into()),
        n => Err(Incomplete(format!("{n} captures were not indexed completely")).into()),
    }
}

/// The error of the first capture, if none of them can be read. Streams are not tried: they can be
/// read only once.
fn unusable(files: &[PathBuf]) -> Option<ArchiveError> {
    let mut first = None;
    for path in files {
        let error = match path.metadata() {
            Err(source) if path.as_os_str() != "-" => {
                ArchiveError::Io { what: "open", path: path.clone(), source }
            }
            Ok(data) if data.is_file() => match capture::open(path) {
                Ok(_) => return None,
                Err(source) => ArchiveError::Capture { path: path.clone(), source },
            },
            Ok(data) if data.is_dir() => {
                let source = std::io::ErrorKind::IsADirectory.into();
                ArchiveError::Io { what: "read", path: path.clone(), source }
            }
            _ => return None,
        };
        first.get_or_insert(error);
    }
    first
}

fn summary(files: &[FileReport], output: &std::path::Path, seconds: f64) -> String {
    let sum = |of: fn(&FileReport) -> u64| files.iter().map(of).sum::<u64>();
    let (packets, bytes) = (sum(|file| file.packets), sum(|file| file.index_bytes));
    let wire = sum(|file| file.wire_bytes);
    let skipped = files.iter().filter(|file| file.skipped).count();
    let indexed = files.iter().filter(|file| file.segments > 0).count();
    let mut text =
        format!("indexed {packets} packets of {indexed} files into {}", output.display());
    if packets > 0 {
        let rate = packets as f64 / seconds.max(1e-9) / 1e6;
        let bits = 8.0 * wire as f64 / seconds.max(1e-9) / 1e9;
        let a_packet = bytes as f64 / packets as f64;
        text.push_str(&format!(
            ": {bytes} bytes of index, {a_packet:.2} per packet; {seconds:.2} s, \
             {rate:.2} M packets/s, {bits:.2} Gb/s"
        ));
    }
    if skipped > 0 {
        text.push_str(&format!("; {skipped} unchanged"));
    }
    text
}
