//! `tapdex-bench growth`: indexing and searching as a capture grows.

mod capture;

use std::cell::Cell;

use std::process::Command;

use anyhow::ensure;
use tapdex_bench::Seconds;
use tapdex_bench::page::{self, Head, Target};
use tapdex_engine::archive::CodecChoice;
use tapdex_report::{Line, Lines, Plot, Report, Sheet};

use crate::archive::captures::{Capture, Folder, Setting};
use crate::archive::census::{Question, questions};
use crate::archive::indexing::{Job, index_into, take_turns};
use crate::archive::process;
use crate::archive::searching::{Side, archive_path};
use capture::{Growing, sizes_that_fit};

const MILLION: u64 = 1_000_000;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Millions of packets of each capture; a smaller one is the start of the larger ones.
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,20,50,100,200")]
    packets: Vec<u64>,
    /// Timed rounds of indexing; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The same for captures of more than 20 million packets.
    #[arg(long, default_value_t = 3)]
    large_rounds: usize,
    /// Timed rounds of every search.
    #[arg(long, default_value_t = 15)]
    search_rounds: usize,
    /// Millions of packets up to which tcpdump has to find the same; above, what was found when
    /// the packets were made up counts alone.
    #[arg(long, default_value_t = 20)]
    tcpdump_up_to: u64,
    #[command(flatten)]
    setting: Setting,
    #[command(flatten)]
    target: Target,
}

/// Packets of a capture that is large.
const LARGE: u64 = 20 * MILLION;
/// The questions that find few packets, and those that find many.
const SELECTIVE: [&str; 5] =
    ["a five-tuple", "a rare host", "an absent host", "two hosts and a port", "DNS of a host"];
const BROAD: [&str; 4] = ["a protocol", "flags", "a port", "a network"];
/// How much the cost of a packet may differ between sizes.
const FLAT: f64 = 1.25;

/// What was measured of a size.
struct Size {
    packets: u64,
    file_bytes: u64,
    index_bytes: u64,
    segments: u32,
    /// To index, on all cores and on one thread.
    index: [Seconds; 2],
    /// The most memory of `tapdex index`.
    peak_bytes: u64,
    searches: Vec<Search>,
}

/// What a question found, and how long that took.
struct Search {
    found: u64,
    /// In this process, and as a process.
    times: [Seconds; 2],
}

impl Size {
    fn millions(&self) -> f64 {
        self.packets as f64 / MILLION as f64
    }

    fn ns_a_packet(&self, way: usize) -> f64 {
        1e9 * self.index[way].median / self.packets as f64
    }

    fn bytes_a_packet(&self) -> f64 {
        self.index_bytes as f64 / self.packets as f64
    }

    fn ms(&self, question: usize, way: usize) -> f64 {
        1e3 * self.searches[question].times[way].median
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.target.check()?;
    let rounds = [args.rounds, args.large_rounds, args.search_rounds];
    ensure!(rounds.iter().all(|&rounds| rounds > 0), "no rounds: nothing would be timed");
    ensure!(args.packets.iter().all(|&millions| millions > 0), "--packets 0: nothing to index");
    process::ensure_programs(&args.setting.tapdex, false)?;
    let folder = Folder::new(args.setting.folder.as_deref())?;
    let mut wanted: Vec<u64> =
        args.packets.iter().map(|millions| millions.saturating_mul(MILLION)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let fit = sizes_that_fit(&folder, &wanted)?;
    let (questions, sizes) = measure(args, &folder, &fit)?;

    let list: Vec<String> = args.packets.iter().map(u64::to_string).collect();
    let command = format!(
        "growth --packets {} --rounds {} --large-rounds {} --search-rounds {} --seed {}",
        list.join(","),
        args.rounds,
        args.large_rounds,
        args.search_rounds,
        args.setting.seed
    );
    let largest = sizes.last().map_or(0, |size| size.file_bytes + size.index_bytes);
    let facts = [
        ("capture", format!("made up from seed {}, frames of 64 bytes", args.setting.seed)),
        ("page cache", page_cache(largest)),
        (
            "rounds",
            format!(
                "indexing {}, above 20 M packets {}; searching {}; medians",
                args.rounds, args.large_rounds, args.search_rounds
            ),
        ),
        (
            "checked",
            format!(
                "every count against libpcap's filter code on every packet as it is made up, and \
                 up to {} M packets against tcpdump --count",
                args.tcpdump_up_to
            ),
        ),
        ("left out", left_out(&wanted, &fit)),
    ];
    let title = "Indexing and searching as a capture grows";
    let head = Head { name: "growth", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        verdicts(report, &questions, &sizes)?;
        indexing(report, &sizes)?;
        index_sizes(report, &sizes)?;
        let few = 0..SELECTIVE.len();
        let all = few.start..questions.len();
        let many = few.end..all.end;
        for (way, how) in [(0, "in process"), (1, "as a process")] {
            searching(report, &questions, &sizes, ("selective", few.clone()), (way, how))?;
            searching(report, &questions, &sizes, ("broad", many.clone()), (way, how))?;
        }
        steps(report, &questions, &sizes)?;
        every_search(report, &questions, &sizes)
    })
}

/// What says whether the page cache can have everything.
fn page_cache(bytes: u64) -> String {
    let memory = page::memory_bytes().unwrap_or(0);
    let gigabytes = |bytes: u64| bytes as f64 / 1e9;
    // Some is needed for programs.
    let is_enough = bytes < memory / 10 * 9;
    format!(
        "the largest capture and its index have {:.1} GB, the memory {:.1} GB: {}; every capture \
         was read once before it was indexed",
        gigabytes(bytes),
        gigabytes(memory),
        if is_enough { "it has room for both" } else { "times are also those of the disk" }
    )
}

fn left_out(wanted: &[u64], fit: &[u64]) -> String {
    let missing = wanted.iter().filter(|size| !fit.contains(size));
    let missing: Vec<String> = missing.map(|size| format!("{} M", size / MILLION)).collect();
    match missing.is_empty() {
        true => "nothing".to_owned(),
        false => format!("{}: the disk has no room", missing.join(", ")),
    }
}

/// Lets a capture grow from size to size, and measures each.
fn measure(
    args: &Args,
    folder: &Folder,
    sizes: &[u64],
) -> anyhow::Result<(Vec<Question>, Vec<Size>)> {
    let scratch = folder.scratch();
    std::fs::create_dir_all(scratch.path())?;
    let path = scratch.path().join("growing.pcap");
    let most = sizes.last().copied().unwrap_or(0);
    let mut growing = Growing::new(&path, most, args.setting.seed)?;
    let (mut asked, mut measured) = (Vec::new(), Vec::new());
    for &packets in sizes {
        eprintln!("making up {packets} packets");
        let capture = growing.grow(packets)?;
        if asked.is_empty() {
            asked = chosen(questions(&capture)?)?;
            let filters: Vec<&str> = asked.iter().map(|question| &question.pcap[..]).collect();
            growing.count(&filters)?;
        }
        measured.push(measure_size(args, folder, &capture, &asked, &growing.counts())?);
    }
    Ok((asked, measured))
}

/// The questions that are asked, selective ones first.
fn chosen(all: Vec<Question>) -> anyhow::Result<Vec<Question>> {
    let mut chosen = Vec::new();
    for what in SELECTIVE.into_iter().chain(BROAD) {
        chosen.extend(all.iter().find(|question| question.what == what).cloned());
    }
    ensure!(chosen.len() == SELECTIVE.len() + BROAD.len(), "a question is missing");
    Ok(chosen)
}

fn measure_size(
    args: &Args,
    folder: &Folder,
    capture: &Capture,
    questions: &[Question],
    counts: &[u64],
) -> anyhow::Result<Size> {
    eprintln!("indexing {}", capture.name);
    let is_large = capture.packets > LARGE;
    // The capture is warm; a large one needs no round for that.
    let rounds = if is_large { 1..args.large_rounds + 1 } else { 0..args.rounds + 1 };
    let sizes = Cell::new(None);
    let index = |threads| {
        let scratch = folder.scratch();
        let report = index_into(scratch.path(), capture, CodecChoice::Auto, threads)?;
        if threads == 0 {
            sizes.set(Some((report.index_bytes, report.segments)));
        }
        Ok(scratch)
    };
    let jobs = [0, 1].map(|threads| Job {
        rounds: rounds.clone(),
        call: Box::new(move || index(threads)) as Box<dyn FnMut() -> _>,
    });
    let times = take_turns(&mut { jobs })?;
    let (index_bytes, segments) = sizes.get().unwrap_or_default();

    let scratch = folder.scratch();
    let mut command = Command::new(&args.setting.tapdex);
    command.args(["index", "--quiet", "-o"]).arg(scratch.path()).arg(&capture.path);
    let peak = process::peak(&mut command)?;
    drop(scratch);

    let side = Side::new(folder, &args.setting.tapdex, capture)?;
    let mut searches = Vec::new();
    for (question, &found) in questions.iter().zip(counts) {
        eprintln!("searching {}: {}", capture.name, question.pcap);
        // What all have to find.
        side.found.set(Some(found));
        if capture.packets <= args.tcpdump_up_to * MILLION {
            side.tcpdump_count(question)?;
        }
        let rounds = 0..args.search_rounds + 1;
        let mut jobs: [Job<'_, ()>; 2] = [
            Job { rounds: rounds.clone(), call: Box::new(|| side.count_here(question)) },
            Job { rounds, call: Box::new(|| side.count(question)) },
        ];
        let times = take_turns(&mut jobs)?;
        searches.push(Search { found, times: [times[0], times[1]] });
    }
    std::fs::remove_dir_all(archive_path(folder, capture))?;
    Ok(Size {
        packets: capture.packets,
        file_bytes: capture.file_bytes,
        index_bytes,
        segments,
        index: [times[0], times[1]],
        peak_bytes: peak.resident,
        searches,
    })
}

fn line(label: &str, points: impl Iterator<Item = (f64, f64)>) -> Line {
    Line { label: label.to_owned(), points_only: false, points: points.collect() }
}

/// How far apart the least and the most of some numbers are.
fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(0.0, f64::max) / values.fold(f64::INFINITY, f64::min)
}

/// How a search grew from one size to another.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    time: f64,
    segments: f64,
}

impl Step {
    fn new(from: &Size, to: &Size, question: usize, way: usize) -> Self {
        Self {
            time: to.ms(question, way) / from.ms(question, way),
            segments: f64::from(to.segments) / f64::from(from.segments),
        }
    }

    /// Whether the time grew no faster than the segments.
    fn is_good(self) -> bool {
        self.time <= self.segments
    }
}

/// What was to be shown, and whether it was.
fn verdicts(report: &mut Report<'_>, questions: &[Question], sizes: &[Size]) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return Ok(()) };
    let mut sheet =
        Sheet::new("verdicts", "What was to be shown", &["what", "measured", "goal", "is"])
            .of_words();
    let said = |is_met: bool| if is_met { "met" } else { "missed" }.to_owned();
    for (way, name) in [(0, "all cores"), (1, "one thread")] {
        let apart = spread(sizes.iter().map(|size| size.ns_a_packet(way)));
        let grown = last.ns_a_packet(way) / first.ns_a_packet(way);
        sheet.row(vec![
            format!("time to index a packet, {name}: most to least of all sizes"),
            format!("{apart:.2} times"),
            format!("at most {FLAT} times"),
            said(apart <= FLAT),
        ]);
        sheet.row(vec![
            format!("time to index a packet, {name}: largest to smallest size"),
            format!("{grown:.2} times"),
            format!("at most {FLAT} times"),
            said(grown <= FLAT),
        ]);
    }
    let apart = spread(sizes.iter().map(Size::bytes_a_packet));
    sheet.row(vec![
        "bytes of index a packet: most to least of all sizes".to_owned(),
        format!("{apart:.2} times"),
        format!("at most {FLAT} times"),
        said(apart <= FLAT),
    ]);
    for (way, name) in [(0, "in process"), (1, "as a process")] {
        for (number, question) in questions.iter().enumerate().take(SELECTIVE.len()) {
            let step = Step::new(first, last, number, way);
            sheet.row(vec![
                format!("{}, {name}: from the smallest to the largest size", question.what),
                format!("{:.1} times the time", step.time),
                format!("at most {:.1} times, as the segments", step.segments),
                said(step.is_good()),
            ]);
        }
        // What is below one full segment grows within it.
        if let Some(full) = sizes.iter().find(|size| size.segments > 1) {
            let steps = (0..SELECTIVE.len()).map(|question| Step::new(full, last, question, way));
            let most = steps.fold(Step { time: 0.0, segments: 1.0 }, |most, step| {
                if step.time > most.time { step } else { most }
            });
            sheet.row(vec![
                format!(
                    "selective questions, {name}: from {} M, the first size with a full segment, \
                     to the largest",
                    full.packets / MILLION
                ),
                format!("up to {:.1} times the time", most.time),
                format!("at most {:.1} times, as the segments", most.segments),
                said(most.is_good()),
            ]);
        }
        let steps = all_steps(sizes, way);
        let good = steps.iter().filter(|(_, step)| step.is_good()).count();
        let worst = steps
            .iter()
            .max_by(|a, b| (a.1.time / a.1.segments).total_cmp(&(b.1.time / b.1.segments)));
        let worst = worst.map_or(String::new(), |((question, to), step)| {
            format!(
                "; the worst, {} to {} M packets, {:.2} times at {:.2} times the segments",
                questions[*question].what,
                sizes[*to].packets / MILLION,
                step.time,
                step.segments
            )
        });
        sheet.row(vec![
            format!("selective questions, {name}: from each size to the next"),
            format!("{good} of {} steps no faster than the segments{worst}", steps.len()),
            "all".to_owned(),
            said(good == steps.len()),
        ]);
    }
    report.table(&sheet, None)?;
    Ok(())
}

/// All steps of selective questions: the question and the size it leads to.
fn all_steps(sizes: &[Size], way: usize) -> Vec<((usize, usize), Step)> {
    let mut steps = Vec::new();
    for question in 0..SELECTIVE.len() {
        for (number, pair) in sizes.windows(2).enumerate() {
            steps.push(((question, number + 1), Step::new(&pair[0], &pair[1], question, way)));
        }
    }
    steps
}

/// How long it takes to index.
fn indexing(report: &mut Report<'_>, sizes: &[Size]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "indexing",
        "Indexing, codec auto",
        &[
            "M packets",
            "capture, GB",
            "segments",
            "seconds, all cores",
            "from",
            "to",
            "M packets/s",
            "ns a packet",
            "seconds, one thread",
            "from",
            "to",
            "M packets/s",
            "ns a packet",
        ],
    );
    for size in sizes {
        let mut row = vec![
            format!("{:.0}", size.millions()),
            format!("{:.2}", size.file_bytes as f64 / 1e9),
            size.segments.to_string(),
        ];
        for (way, time) in size.index.iter().enumerate() {
            row.extend([time.median, time.min, time.max].map(|seconds| format!("{seconds:.3}")));
            row.push(format!("{:.2}", size.millions() / time.median));
            row.push(format!("{:.1}", size.ns_a_packet(way)));
        }
        sheet.row(row);
    }
    let curve =
        |way, name| line(name, sizes.iter().map(|s| (s.packets as f64, s.ns_a_packet(way))));
    let plot = Plot::Lines(Lines {
        title: "Time to index a packet".to_owned(),
        x: "packets".to_owned(),
        y: "ns a packet".to_owned(),
        log_x: true,
        log_y: false,
        lines: vec![curve(0, "all cores"), curve(1, "one thread")],
    });
    report.table(&sheet, Some(&plot))?;
    Ok(())
}

/// How large the index is, and the memory that it takes.
fn index_sizes(report: &mut Report<'_>, sizes: &[Size]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "sizes",
        "Size of the index, and memory of `tapdex index`",
        &[
            "M packets",
            "segments",
            "M packets a segment",
            "index, MB",
            "bytes a packet",
            "percent of the capture",
            "peak memory, MB",
        ],
    );
    for size in sizes {
        sheet.row(vec![
            format!("{:.0}", size.millions()),
            size.segments.to_string(),
            format!("{:.2}", size.millions() / f64::from(size.segments)),
            format!("{:.1}", size.index_bytes as f64 / 1e6),
            format!("{:.3}", size.bytes_a_packet()),
            format!("{:.2}", 100.0 * size.index_bytes as f64 / size.file_bytes as f64),
            format!("{:.0}", size.peak_bytes as f64 / 1e6),
        ]);
    }
    let points = sizes.iter().map(|size| (size.packets as f64, size.bytes_a_packet()));
    let plot = Plot::Lines(Lines {
        title: "Bytes of index a packet".to_owned(),
        x: "packets".to_owned(),
        y: "bytes a packet".to_owned(),
        log_x: true,
        log_y: false,
        lines: vec![line("index", points)],
    });
    report.table(&sheet, Some(&plot))?;
    Ok(())
}

/// How long some questions take, by size.
fn searching(
    report: &mut Report<'_>,
    questions: &[Question],
    sizes: &[Size],
    (kind, range): (&str, std::ops::Range<usize>),
    (way, how): (usize, &str),
) -> anyhow::Result<()> {
    let mut headings = vec!["M packets", "segments"];
    headings.extend(questions[range.clone()].iter().map(|question| question.what));
    let file = format!("{kind}-{}", if way == 0 { "in-process" } else { "process" });
    let title = format!("Milliseconds to count what {kind} questions find, {how}");
    let mut sheet = Sheet::new(&file, &title, &headings);
    for size in sizes {
        let mut row = vec![format!("{:.0}", size.millions()), size.segments.to_string()];
        row.extend(range.clone().map(|question| format!("{:.3}", size.ms(question, way))));
        sheet.row(row);
    }
    let mut lines: Vec<Line> = range
        .clone()
        .map(|question| {
            let points = sizes.iter().map(|size| (size.packets as f64, size.ms(question, way)));
            line(questions[question].what, points)
        })
        .collect();
    if let Some(first) = sizes.first() {
        let each = first.ms(range.start, way) / f64::from(first.segments);
        let points = sizes.iter().map(|s| (s.packets as f64, each * f64::from(s.segments)));
        lines.push(line("as the segments", points));
    }
    for question in questions[range].iter().filter(|_| way == 0) {
        sheet.remarks.push(format!("{}: `{}`", question.what, question.pcap));
    }
    let (x, y) = ("packets".to_owned(), "ms".to_owned());
    let plot = Plot::Lines(Lines { title, x, y, log_x: true, log_y: true, lines });
    report.table(&sheet, Some(&plot))?;
    Ok(())
}

/// How selective searches grow from each size to the next.
fn steps(report: &mut Report<'_>, questions: &[Question], sizes: &[Size]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "steps",
        "From each size to the next: how many times the packets, segments and milliseconds",
        &[
            "question",
            "from, M",
            "to, M",
            "packets",
            "segments",
            "in process",
            "no faster",
            "as a process",
            "no faster",
        ],
    );
    let here = all_steps(sizes, 0);
    for (((question, to), step), (_, process)) in here.into_iter().zip(all_steps(sizes, 1)) {
        let (from, to) = (&sizes[to - 1], &sizes[to]);
        let said = |step: Step| if step.is_good() { "yes" } else { "no" }.to_owned();
        sheet.row(vec![
            questions[question].what.to_owned(),
            format!("{:.0}", from.millions()),
            format!("{:.0}", to.millions()),
            format!("{:.2}", to.packets as f64 / from.packets as f64),
            format!("{:.2}", step.segments),
            format!("{:.2}", step.time),
            said(step),
            format!("{:.2}", process.time),
            said(process),
        ]);
    }
    sheet.remarks.push("No faster: the time grew no more than the segments did.".to_owned());
    report.table(&sheet, None)?;
    Ok(())
}

/// All that was measured of searches.
fn every_search(
    report: &mut Report<'_>,
    questions: &[Question],
    sizes: &[Size],
) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "searches",
        "Every search: milliseconds, and microseconds a segment",
        &[
            "question",
            "M packets",
            "segments",
            "packets found",
            "in process",
            "from",
            "to",
            "us a segment",
            "as a process",
            "from",
            "to",
            "us a segment",
        ],
    );
    for (number, question) in questions.iter().enumerate() {
        for size in sizes {
            let search = &size.searches[number];
            let mut row = vec![
                question.what.to_owned(),
                format!("{:.0}", size.millions()),
                size.segments.to_string(),
                search.found.to_string(),
            ];
            for time in search.times {
                let all = [time.median, time.min, time.max];
                row.extend(all.map(|seconds| format!("{:.3}", 1e3 * seconds)));
                row.push(format!("{:.1}", 1e6 * time.median / f64::from(size.segments)));
            }
            sheet.row(row);
        }
    }
    report.table(&sheet, None)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(segments: u32, seconds: f64) -> Size {
        let time = |seconds| Seconds { median: seconds, min: seconds, max: seconds };
        let search = || Search { found: 1, times: [time(seconds), time(seconds)] };
        Size {
            packets: MILLION,
            file_bytes: 1,
            index_bytes: 1,
            segments,
            index: [time(seconds), time(1.0)],
            peak_bytes: 1,
            searches: SELECTIVE.map(|_| search()).into(),
        }
    }

    #[test]
    fn steps_are_compared_with_the_segments() {
        let sizes = [size(1, 2.0), size(2, 3.0), size(4, 7.5)];
        let steps = all_steps(&sizes, 0);
        assert_eq!(steps.len(), 2 * SELECTIVE.len());
        assert_eq!(steps[0], ((0, 1), Step { time: 1.5, segments: 2.0 }));
        assert!(steps[0].1.is_good() && !steps[1].1.is_good());
        assert!(Step::new(&sizes[0], &sizes[2], 0, 1).is_good());
        assert_eq!(spread(sizes.iter().map(|size| size.ns_a_packet(0))), 3.75);
    }

    #[test]
    fn what_is_left_out_is_said() {
        assert_eq!(left_out(&[MILLION, 2 * MILLION], &[MILLION]), "2 M: the disk has no room");
        assert_eq!(left_out(&[MILLION], &[MILLION]), "nothing");
        assert!(page_cache(u64::MAX).contains("disk") && page_cache(1).contains("room"));
    }
}
