//! Figure 5: speed by the number of values, and the ratios that the paper draws from it.

use std::sync::Arc;
use std::time::Duration;

use tapdex_bench::builders::{self, Contestant};
use tapdex_bench::race;
use tapdex_bitmap::Codec;
use tapdex_gpu::device::Device;
use tapdex_gpu::measure::peer;
use tapdex_report::{Bar, Bars, Line, Lines, Plot, Report, Sheet};

use super::{Args, CASES, CODECS, Case, FIRST, LAST, cell, check, gpu, rate};

/// Section 4 of the paper: PLWAH on its GPU at 256 values, M records/s.
const GPU_FIRST: f64 = 185.0;
/// Section 4: how many times slower its GPU is at 65,536 values.
const GPU_FALL: f64 = 1.13;
/// Section 4: how many times slower its CPU is at 65,536 values.
pub const CPU_FALL: f64 = 4.5;
/// Section 4: how many times faster its GPU is than its CPU, at most.
const GPU_OVER_CPU: f64 = 20.0;
/// Section 2: the size of PLWAH, with one position, over that of WAH.
const PLWAH_OVER_WAH: f64 = 0.5;

/// Builders that are names in the tables.
const ONLINE: &str = "online WAH";
const ONLINE_REUSED: &str = "online WAH, memory reused";

fn ours(codec: Codec, threads: &str) -> String {
    format!("ours, {codec}, {threads}")
}

fn on_gpu(codec: Codec) -> String {
    format!("ours, {codec}, GPU")
}

fn in_thrust(codec: &str) -> String {
    format!("Thrust, {codec}, GPU")
}

/// What was measured of one builder on one column.
#[derive(Debug, Clone)]
struct Measured {
    builder: String,
    case: Case,
    /// M records/s; the peer gives a median only.
    median: f64,
    range: Option<(f64, f64)>,
    /// Bytes of the index a record.
    bytes: f64,
}

/// The rows of the table, in order, whether they were measured or not.
fn builders() -> Vec<String> {
    let mut names = vec![ONLINE.to_owned(), ONLINE_REUSED.to_owned()];
    names.extend(CODECS.map(|codec| ours(codec, "one thread")));
    names.extend(CODECS.map(|codec| ours(codec, "all threads")));
    names.extend([Codec::Wah, Codec::Plwah].map(on_gpu));
    names.extend(["wah", "plwah"].map(in_thrust));
    names
}

pub fn measure(
    args: &Args,
    threads: usize,
    device: Option<&Arc<dyn Device>>,
    theirs: &[peer::Line],
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for case in CASES {
        eprintln!("figure 5: {}", case.name());
        all.extend(measure_case(args, case, threads, device)?);
    }
    all.extend(theirs.iter().filter(|line| line.records == args.records).filter_map(of_peer));
    report.table(&speeds(args, &all, device.is_some()), Some(&plot(args, &all)))?;
    report.table(&rounds(&all), None)?;
    report.table(&ratios(&all), Some(&ratio_plot(&all)))?;
    Ok(())
}

fn measure_case(
    args: &Args,
    case: Case,
    threads: usize,
    device: Option<&Arc<dyn Device>>,
) -> anyhow::Result<Vec<Measured>> {
    let column = case.column(args.records, args.seed);
    let column = column.digits();
    check(column, threads)?;
    let on_device = device.map(|device| gpu::Column::new(device, column)).transpose()?;
    let mut contestants: Vec<Contestant<'_>> =
        Vec::from([false, true].map(|reuse| builders::online_wah(column, reuse)));
    for (count, name) in [(1, "one thread"), (threads, "all threads")] {
        for codec in CODECS {
            let contestant = builders::ours(column, codec, count)?;
            contestants.push(Contestant { name: ours(codec, name), ..contestant });
        }
    }
    let mut on_gpus = Vec::new();
    if let Some(column) = &on_device {
        for codec in [Codec::Wah, Codec::Plwah] {
            let one = column.contestant(codec)?;
            let (name, bytes, job) = (on_gpu(codec), one.bytes, one.job());
            contestants.push(Contestant { name, bytes, job });
            on_gpus.push(one);
        }
    }
    let mut jobs: Vec<_> = contestants.iter_mut().map(|one| &mut one.job).collect();
    let seconds = race(args.rounds, Duration::ZERO, &mut jobs);
    on_gpus.iter().try_for_each(gpu::Contestant::check)?;
    let measured = contestants.iter().zip(seconds).map(|(one, time)| Measured {
        builder: one.name.clone(),
        case,
        median: rate(args.records, time.median),
        range: Some((rate(args.records, time.max), rate(args.records, time.min))),
        bytes: one.bytes as f64 / args.records as f64,
    });
    Ok(measured.collect())
}

/// A line of the peer, if it is on one of our columns.
fn of_peer(line: &peer::Line) -> Option<Measured> {
    let is_same = |case: &&Case| (case.values as u64, case.bits) == (line.values, line.bits);
    Some(Measured {
        builder: in_thrust(&line.codec),
        case: *CASES.iter().find(is_same)?,
        median: rate(line.records, line.ms / 1e3),
        range: None,
        bytes: 4.0 * line.words,
    })
}

fn find<'a>(all: &'a [Measured], builder: &str, case: Case) -> Option<&'a Measured> {
    all.iter().find(|one| one.builder == builder && one.case == case)
}

fn speed(all: &[Measured], builder: &str, case: Case) -> Option<f64> {
    find(all, builder, case).map(|one| one.median)
}

/// What the paper says of a builder at the first case and at the last.
fn published(builder: &str) -> [Option<f64>; 2] {
    let gpu = [GPU_FIRST, GPU_FIRST / GPU_FALL];
    let cpu = gpu[1] / GPU_OVER_CPU;
    if [on_gpu(Codec::Plwah), in_thrust("plwah")].iter().any(|name| name == builder) {
        gpu.map(Some)
    } else if builder == ONLINE {
        [Some(cpu * CPU_FALL), Some(cpu)]
    } else {
        [None; 2]
    }
}

fn speeds(args: &Args, all: &[Measured], has_gpu: bool) -> Sheet {
    let title = format!("Figure 5: M records/s by the number of values, {} records", args.records);
    let names = CASES.map(Case::name);
    let [first, last] = [FIRST, LAST].map(|case| format!("published, {}", case.name()));
    let mut headings = vec!["builder"];
    headings.extend(names.iter().map(String::as_str));
    headings.extend([first.as_str(), last.as_str()]);
    let mut sheet = Sheet::new("figure5", &title, &headings);
    for builder in builders() {
        let mut cells = vec![builder.clone()];
        cells.extend(CASES.map(|case| cell(speed(all, &builder, case), 1)));
        cells.extend(published(&builder).map(|rate| cell(rate, 1)));
        sheet.row(cells);
    }
    if !has_gpu {
        sheet.remarks.push(gpu::MISSING.to_owned());
    }
    sheet.remarks.push(format!(
        "Published of the GPU: {GPU_FIRST} M records/s, and {GPU_FALL} times less. Published of \
         the CPU: not as numbers; what is shown follows from its fall of {CPU_FALL} times and from \
         \"up to {GPU_OVER_CPU}-fold\", if the GPU is ahead the most where there are the most \
         values."
    ));
    sheet
}

fn plot(args: &Args, all: &[Measured]) -> Plot {
    let line = |builder: &String| {
        let cases = CASES.iter().filter(|case| case.bits == 16);
        let points =
            cases.filter_map(|&case| Some((case.values as f64, speed(all, builder, case)?)));
        let label = builder.replace(" threads", "").replace(" thread", "");
        Line { label: label.replace("memory ", ""), points_only: false, points: points.collect() }
    };
    // No more than there are colours.
    let hidden = [
        ours(Codec::Roaring, "one thread"),
        ours(Codec::Roaring, "all threads"),
        ours(Codec::Wah, "all threads"),
        in_thrust("wah"),
    ];
    let names = builders().into_iter().filter(|name| !hidden.contains(name));
    let names: Vec<String> = names.collect();
    let lines = names.iter().map(line).filter(|line| !line.points.is_empty());
    let mut lines: Vec<Line> = lines.collect();
    for (label, builder) in
        [("published, GPU", on_gpu(Codec::Plwah)), ("published, CPU", ONLINE.to_owned())]
    {
        let cases = [FIRST, LAST].into_iter().zip(published(&builder));
        let points = cases.filter_map(|(case, rate)| Some((case.values as f64, rate?))).collect();
        lines.push(Line { label: label.to_owned(), points_only: true, points });
    }
    Plot::Lines(Lines {
        title: format!("Building an index of {} records of 16 bits", args.records),
        x: "values".to_owned(),
        y: "M records/s".to_owned(),
        log_x: true,
        log_y: true,
        lines,
    })
}

fn rounds(all: &[Measured]) -> Sheet {
    let headings = ["builder", "column", "M records/s", "slowest", "fastest", "bytes a record"];
    let mut sheet = Sheet::new("figure5-rounds", "Figure 5: the spread of the rounds", &headings);
    for one in all {
        sheet.row(vec![
            one.builder.clone(),
            one.case.name(),
            cell(Some(one.median), 1),
            cell(one.range.map(|range| range.0), 1),
            cell(one.range.map(|range| range.1), 1),
            cell(Some(one.bytes), 2),
        ]);
    }
    sheet
}

/// A line of the table of ratios.
struct Ratio {
    what: String,
    /// For the plot, of those that were published.
    short: &'static str,
    published: Option<f64>,
    measured: Option<f64>,
}

fn ratios(all: &[Measured]) -> Sheet {
    let title = "What the paper concludes from figure 5, published and measured";
    let headings = ["ratio", "published", "measured", "differs, %"];
    let mut sheet = Sheet::new("ratios", title, &headings);
    for Ratio { what, published, measured, .. } in ratio_list(all) {
        let differs = published.zip(measured).map(|(then, now)| 100.0 * (now / then - 1.0));
        let differs = differs.map_or("-".to_owned(), |percent| format!("{percent:+.0}"));
        sheet.row(vec![what, cell(published, 2), cell(measured, 2), differs]);
    }
    sheet.remarks.push(format!(
        "A fall is the speed at {} over that at {}. Where a builder is compared with online \
         WAH at its best, that is the largest of the ratios over all numbers of values.",
        FIRST.name(),
        LAST.name()
    ));
    sheet
}

/// Those ratios that were published, each over what was.
fn ratio_plot(all: &[Measured]) -> Plot {
    let bars = ratio_list(all).into_iter().filter_map(|one| {
        let value = one.measured? / one.published?;
        Some(Bar { label: one.short.to_owned(), value, mark: Some(1.0) })
    });
    Plot::Bars(Bars {
        title: "Ratios of figure 5, measured over published".to_owned(),
        unit: "times what was published".to_owned(),
        mark: Some("as published".to_owned()),
        bars: bars.collect(),
    })
}

fn ratio_list(all: &[Measured]) -> Vec<Ratio> {
    let over =
        |a: &str, at: Case, b: &str, then: Case| Some(speed(all, a, at)? / speed(all, b, then)?);
    let plwah = ours(Codec::Plwah, "one thread");
    let (gpu_wah, gpu_plwah) = (on_gpu(Codec::Wah), on_gpu(Codec::Plwah));
    let thrust = in_thrust("plwah");
    let all_threads = ours(Codec::Plwah, "all threads");
    let fall = |builder: &str, short, published| Ratio {
        what: format!("fall of {builder}"),
        short,
        published,
        measured: over(builder, FIRST, builder, LAST),
    };
    let best = |builder: &str, short, published| Ratio {
        what: format!("{builder} over online WAH, at its best"),
        short,
        published,
        measured: CASES
            .into_iter()
            .filter(|case| case.bits == 16)
            .filter_map(|case| over(builder, case, ONLINE, case))
            .max_by(f64::total_cmp),
    };
    let at = |a: &str, b: &str, case: Case| Ratio {
        what: format!("{a} over {b}, {}", case.name()),
        short: "",
        published: None,
        measured: over(a, case, b, case),
    };
    let bytes = |builder: &str| find(all, builder, LAST).map(|one| one.bytes);
    let wah = ours(Codec::Wah, "one thread");
    vec![
        fall(ONLINE, "fall, online", Some(CPU_FALL)),
        Ratio {
            what: format!("fall of {ONLINE}, from {}", CASES[0].name()),
            short: "fall, from 8 bits",
            published: Some(CPU_FALL),
            measured: over(ONLINE, CASES[0], ONLINE, LAST),
        },
        fall(ONLINE_REUSED, "fall, reused", Some(CPU_FALL)),
        fall(&plwah, "", None),
        fall(&gpu_plwah, "fall, GPU", Some(GPU_FALL)),
        fall(&thrust, "fall, Thrust", Some(GPU_FALL)),
        best(&gpu_plwah, "GPU over online", Some(GPU_OVER_CPU)),
        best(&thrust, "Thrust over online", Some(GPU_OVER_CPU)),
        at(&gpu_plwah, &thrust, LAST),
        at(&gpu_plwah, &gpu_wah, LAST),
        best(&plwah, "", None),
        at(&plwah, ONLINE, FIRST),
        at(&all_threads, &plwah, LAST),
        Ratio {
            what: format!("bytes of PLWAH over those of WAH, {}", LAST.name()),
            short: "bytes, PLWAH/WAH",
            published: Some(PLWAH_OVER_WAH),
            measured: bytes(&plwah).zip(bytes(&wah)).map(|(plwah, wah)| plwah / wah),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(builder: &str, case: Case, median: f64) -> Measured {
        Measured { builder: builder.to_owned(), case, median, range: None, bytes: 4.0 }
    }

    #[test]
    fn ratios_are_of_the_builders_that_they_name() {
        let plwah = ours(Codec::Plwah, "one thread");
        let all = [
            measured(ONLINE, FIRST, 90.0),
            measured(ONLINE, LAST, 20.0),
            measured(&plwah, FIRST, 270.0),
            measured(&plwah, LAST, 200.0),
        ];
        let list = ratio_list(&all);
        let value = |what: &str| list.iter().find(|one| one.what == what).unwrap().measured;
        assert_eq!(value("fall of online WAH"), Some(4.5));
        assert_eq!(value("ours, plwah, one thread over online WAH, at its best"), Some(10.0));
        assert_eq!(value("ours, plwah, one thread over online WAH, 256 values"), Some(3.0));
        assert_eq!(value("fall of ours, plwah, GPU"), None);
        assert!(speeds_have_a_row_for_each(&all));
    }

    fn speeds_have_a_row_for_each(all: &[Measured]) -> bool {
        all.iter().all(|one| builders().contains(&one.builder))
    }

    #[test]
    fn the_published_cpu_follows_from_the_gpu() {
        let [first, last] = published(ONLINE).map(Option::unwrap);
        assert!((first / last - CPU_FALL).abs() < 1e-9);
        assert!((GPU_FIRST / GPU_FALL / last - GPU_OVER_CPU).abs() < 1e-9);
        assert_eq!(published(ONLINE_REUSED), [None; 2]);
    }

    #[test]
    fn lines_of_the_peer_find_their_column() {
        let mut line = peer::Line {
            codec: "plwah".to_owned(),
            bits: 16,
            records: 20_000_000,
            values: 256,
            words: 1.0,
            ms: 4.0,
            steps: [0.5; 8],
        };
        let found = of_peer(&line).unwrap();
        assert!(builders().contains(&found.builder) && found.case == FIRST);
        assert!((found.median - 5_000.0).abs() < 1e-6, "{found:?}");
        line.values = 257;
        assert!(of_peer(&line).is_none());
    }
}
