//! How fast captures are indexed.

use std::fs::{self, File};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::ensure;
use tapdex_bench::Seconds;
use tapdex_bitmap::Codec;
use tapdex_engine::archive::{Archive, CodecChoice, FileReport, Ingest, Input};
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::packet::{Headers, decode};

use super::captures::{Capture, Folder, Scratch};

/// Something that is timed once a round.
pub struct Job<'a, T> {
    /// The rounds in which it takes part, from this on to the last but one; round 0 is not timed.
    pub rounds: std::ops::Range<usize>,
    pub call: Box<dyn FnMut() -> anyhow::Result<T> + 'a>,
}

/// Lets jobs take turns, round after round, as [`tapdex_bench::race`] does; but a call is long
/// enough to be timed alone, and may fail. What it returns is dropped off the clock.
pub fn take_turns<T>(jobs: &mut [Job<'_, T>]) -> anyhow::Result<Vec<Seconds>> {
    in_turns(jobs, |call| {
        let start = Instant::now();
        let product = black_box(call()?);
        let seconds = start.elapsed().as_secs_f64();
        drop(product);
        Ok(seconds)
    })
}

/// The same, where `clock` makes a call and says how many seconds it took.
pub fn in_turns<T>(
    jobs: &mut [Job<'_, T>],
    mut clock: impl FnMut(&mut dyn FnMut() -> anyhow::Result<T>) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Seconds>> {
    let mut times = vec![Vec::new(); jobs.len()];
    let rounds = jobs.iter().map(|job| job.rounds.end).max().unwrap_or(0);
    for round in 0..rounds {
        for (job, times) in jobs.iter_mut().zip(&mut times) {
            if job.rounds.contains(&round) {
                let seconds = clock(&mut *job.call)?;
                // The first round warms caches.
                if round > 0 {
                    times.push(seconds);
                }
            }
        }
    }
    Ok(times.into_iter().map(summary).collect())
}

/// Median and spread of rounds, of which there is at least one.
pub fn summary(mut times: Vec<f64>) -> Seconds {
    times.sort_by(f64::total_cmp);
    Seconds { median: times[times.len() / 2], min: times[0], max: times[times.len() - 1] }
}

/// Indexes a capture into an archive of its own, which takes the place of what was there. 0
/// threads are one for each core.
pub fn index_into(
    target: &Path,
    capture: &Capture,
    codec: CodecChoice,
    threads: usize,
) -> anyhow::Result<FileReport> {
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    let archive = Archive::create(target, Some(codec))?;
    let ingest = Ingest::new(&archive).threads(threads);
    let mut report = ingest.run(&[Input::File(capture.path.clone())])?;
    let mut file = report.files.remove(0);
    if let Some(error) = file.error.take() {
        return Err(error.into());
    }
    ensure!(
        file.packets == capture.packets,
        "{}: {} packets of {} were indexed",
        capture.name,
        file.packets,
        capture.packets
    );
    Ok(file)
}

/// Walks through a capture; hands back nothing to be removed.
fn walk(capture: &Capture, decodes: bool) -> anyhow::Result<Option<Scratch>> {
    let mut reader = CaptureReader::open(File::open(&capture.path)?)?;
    let mut headers = Headers::default();
    let (mut packets, mut sum) = (0, 0_u64);
    while let Some(record) = reader.next()? {
        packets += 1;
        if decodes {
            decode(record.link, record.swapped, record.data, &mut headers);
            black_box(&headers);
        } else {
            sum = sum.wrapping_add(record.time_ns ^ u64::from(record.wire_len));
        }
    }
    black_box(sum);
    ensure!(packets == capture.packets, "{}: {packets} packets were read", capture.name);
    Ok(None)
}

/// Prints how fast a capture is read, decoded and indexed; with `variants`, also with other codecs.
pub fn rates(
    folder: &Folder,
    capture: &Capture,
    rounds: usize,
    variants: bool,
) -> anyhow::Result<()> {
    eprintln!("indexing {}", capture.name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let auto = CodecChoice::Auto;
    let mut ways = vec![("index, one thread".to_owned(), auto, 1)];
    if cores > 1 {
        ways.push((format!("index, {cores} threads"), auto, cores));
    }
    let lasting = ways.len();
    if variants {
        for codec in [Codec::Roaring, Codec::Plwah] {
            let name = format!("index, one thread, {codec}");
            ways.push((name, CodecChoice::Fixed(codec), 1));
        }
    }
    let mut sizes = vec![None; ways.len()];
    let mut jobs = Vec::new();
    for decodes in [false, true] {
        let call = Box::new(move || walk(capture, decodes));
        jobs.push(Job { rounds: 0..rounds + 1, call });
    }
    for (number, ((_, codec, threads), size)) in ways.iter().zip(&mut sizes).enumerate() {
        let call = move || {
            let scratch = folder.scratch();
            let report = index_into(scratch.path(), capture, *codec, *threads)?;
            *size = Some(report.index_bytes);
            Ok(Some(scratch))
        };
        let rounds = if number < lasting { 0..rounds + 1 } else { 1..2 };
        jobs.push(Job { rounds, call: Box::new(call) });
    }
    let times = take_turns(&mut jobs)?;
    drop(jobs);

    println!("\n### {}: {} packets\n", capture.name, capture.packets);
    println!("| what | M packets/s | best | Gb/s | best | ns a packet | bytes of index a packet |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let packets = capture.packets as f64;
    let gigabits = 8.0 * capture.wire_bytes as f64 / 1e9;
    let names = ["read, one thread".to_owned(), "read and decode, one thread".to_owned()];
    let names = names.into_iter().chain(ways.into_iter().map(|way| way.0));
    let sizes = [None, None].into_iter().chain(sizes);
    for ((name, time), size) in names.zip(times).zip(sizes) {
        let size =
            size.map_or("-".to_owned(), |bytes: u64| format!("{:.2}", bytes as f64 / packets));
        println!(
            "| {name} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {size} |",
            packets / time.median / 1e6,
            packets / time.min / 1e6,
            gigabits / time.median,
            gigabits / time.min,
            1e9 * time.median / packets
        );
    }
    Ok(())
}
