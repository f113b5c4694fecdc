//! Table 2: the eight scenarios in HiPES with w = 16 and in GPU-WAH, and what else there is.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tapdex_bench::contest::{croaring_bytes, roaring_bytes};
use tapdex_bench::race;
use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes::Width;
use tapdex_gpu::device::Device;
use tapdex_gpu::sets::scenarios::{Measured as OnDevice, Scenario, Spread, measure_scenario};
use tapdex_report::{Bar, Bars, Line, Lines, Plot, Report, Sheet};

use super::bitmap_wah::BitmapWah;
use super::{Args, MEGABYTE, check, differs, ratio, speed};
use crate::imc13::{cell, gpu};

/// Our codecs that are measured.
const CODECS: [Codec; 4] = [Codec::Hipes(Width::DEFAULT), Codec::Wah, Codec::Plwah, Codec::Roaring];
/// WAH as GPU-WAH builds it, on one core.
const BITMAP_WAH: &str = "wah, through a bitmap";
/// The rows of a GPU.
const ON_GPU: [&str; 4] =
    ["hipes, GPU", "hipes, GPU, sets in flight", "hipes as published, GPU", "wah, GPU"];
/// Table 2 of the paper: what follows the plus or minus, by scenario, of HiPES and of GPU-WAH.
const PUBLISHED_SPREADS: [(&str, f64, f64); 8] = [
    ("S1", 25.37, 2.20),
    ("S2", 72.90, 9.93),
    ("S3", 4.79, 0.27),
    ("S4", 44.62, 2.22),
    ("S5", 26.61, 2.61),
    ("S6", 118.03, 11.41),
    ("S7", 7.90, 0.19),
    ("S8", 41.61, 1.18),
];

/// What was measured of one contestant on one scenario.
#[derive(Debug, Clone)]
struct Measured {
    name: String,
    /// Megabytes of ids a second: median, slowest and fastest; none where there is no GPU.
    speed: Option<[f64; 3]>,
    ratio: Option<f64>,
}

impl Measured {
    fn median(&self) -> Option<f64> {
        self.speed.map(|[median, ..]| median)
    }
}

/// A scenario, and all contestants.
struct Result {
    scenario: Scenario,
    all: Vec<Measured>,
}

impl Result {
    fn find(&self, name: &str) -> Option<&Measured> {
        self.all.iter().find(|one| one.name == name)
    }

    /// How many times as fast one is as another.
    fn over(&self, a: &str, b: &str) -> Option<f64> {
        Some(self.find(a)?.median()? / self.find(b)?.median()?)
    }
}

pub fn measure(
    args: &Args,
    scenarios: &[Scenario],
    device: Option<&Arc<dyn Device>>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let mut results = Vec::new();
    for &scenario in scenarios {
        eprintln!("table 2: {}", scenario.name);
        let mut all = on_cpu(args, &scenario)?;
        all.extend(on_gpu(args, scenario, device)?);
        results.push(Result { scenario, all });
    }
    report.table(&speeds(&results, device.is_some()), Some(&speed_plot(&results)))?;
    report.table(&ratios(&results), Some(&ratio_plot(&results)))?;
    report.table(&over_wah(&results), Some(&over_wah_plot(&results)))?;
    Ok(())
}

/// What was encoded last; dropped off the clock if it is not used again.
type Product = Option<Vec<u8>>;

fn on_cpu(args: &Args, scenario: &Scenario) -> anyhow::Result<Vec<Measured>> {
    let ids = &scenario.ids();
    let mut names: Vec<String> = CODECS.map(|codec| codec.name().to_owned()).into();
    let mut sizes = Vec::new();
    let mut jobs: Vec<Box<dyn FnMut() -> Product + '_>> = Vec::new();
    for codec in CODECS {
        let mut target = Vec::new();
        codec.encode(ids, &mut target);
        check(codec, &target, ids, scenario.rows)?;
        sizes.push(target.len());
        jobs.push(Box::new(move || {
            target.clear();
            codec.encode(ids, &mut target);
            None
        }));
    }
    let mut wah = BitmapWah::default();
    wah.encode(ids, scenario.rows);
    check(Codec::Wah, &wah.target, ids, scenario.rows)?;
    names.push(BITMAP_WAH.to_owned());
    sizes.push(wah.target.len());
    jobs.push(Box::new(move || {
        wah.encode(ids, scenario.rows);
        None
    }));
    for (name, encode) in [
        ("croaring crate", croaring_bytes as fn(&[u32]) -> Vec<u8>),
        ("roaring crate", roaring_bytes),
    ] {
        let bytes = encode(ids);
        check(Codec::Roaring, &bytes, ids, scenario.rows)?;
        names.push(name.to_owned());
        sizes.push(bytes.len());
        jobs.push(Box::new(move || Some(encode(ids))));
    }
    let seconds = race(args.rounds, Duration::ZERO, &mut jobs);
    let each = names.into_iter().zip(sizes).zip(seconds);
    let measured = each.map(|((name, bytes), time)| Measured {
        name,
        speed: Some([time.median, time.max, time.min].map(|seconds| speed(ids.len(), seconds))),
        ratio: Some(ratio(ids.len(), bytes)),
    });
    Ok(measured.collect())
}

fn on_gpu(
    args: &Args,
    scenario: Scenario,
    device: Option<&Arc<dyn Device>>,
) -> anyhow::Result<Vec<Measured>> {
    let Some(device) = device else {
        let none = |name: &str| Measured { name: name.to_owned(), speed: None, ratio: None };
        return Ok(ON_GPU.map(none).into());
    };
    // Every output is compared with the CPU's there.
    let found = measure_scenario(device, scenario, args.rounds)?;
    let parts: [(&OnDevice, Spread); 4] = [
        (&found.direct, found.direct.single),
        (&found.direct, found.direct.pipelined),
        (&found.published, found.published.single),
        (&found.wah, found.wah.single),
    ];
    ensure!(parts.len() == ON_GPU.len(), "a name for each");
    let measured = ON_GPU.iter().zip(parts).map(|(name, (one, spread))| Measured {
        name: (*name).to_owned(),
        speed: Some(in_megabytes(&spread)),
        ratio: Some(one.ratio),
    });
    Ok(measured.collect())
}

/// Megabytes of 10^6 bytes as megabytes of 2^20: median, least and most.
pub fn in_megabytes(spread: &Spread) -> [f64; 3] {
    [spread.median, spread.min, spread.max].map(|rate| rate * 1e6 / MEGABYTE)
}

/// Published speed, plus or minus, and ratio of a contestant; only of those that the paper has.
fn published(scenario: &Scenario, name: &str) -> Option<(f64, f64, f64)> {
    let (_, hipes, wah) = PUBLISHED_SPREADS.into_iter().find(|one| one.0 == scenario.name)?;
    let published = scenario.published;
    if name.starts_with("hipes") {
        Some((published.hipes, hipes, published.hipes_ratio))
    } else if name.starts_with("wah") {
        Some((published.wah, wah, published.wah_ratio))
    } else {
        None
    }
}

fn speeds(results: &[Result], has_gpu: bool) -> Sheet {
    let title = "Table 2: MB/s of ids that are encoded, one core and GPU";
    let headings =
        ["scenario", "encoder", "MB/s", "slowest", "fastest", "published, GPU", "plus or minus"];
    let mut sheet = Sheet::new("table2-speed", title, &headings);
    for Result { scenario, all } in results {
        for one in all {
            let mut cells = vec![scenario.name.to_owned(), one.name.clone()];
            cells.extend([0, 1, 2].map(|at| cell(one.speed.map(|speed| speed[at]), 0)));
            let then = published(scenario, &one.name);
            cells.push(cell(then.map(|one| one.0), 2));
            cells.push(cell(then.map(|one| one.1), 2));
            sheet.row(cells);
        }
    }
    if !has_gpu {
        sheet.remarks.push(gpu::MISSING.to_owned());
    }
    sheet.remarks.push(
        "Published figures are of an RTX 2060, copies included. GPU rows are from host to host, \
         copies included, one set at a time unless said otherwise; \"as published\" is the paper's \
         way to build, the others set bits in one bitmap. The crates take memory anew for each set."
            .to_owned(),
    );
    if let [Some(s1), Some(s3)] = ["S1", "S3"].map(|name| named(results, name)) {
        let fall = |name: &str| Some(s1.find(name)?.median()? / s3.find(name)?.median()?);
        let then = s1.scenario.published.wah / s3.scenario.published.wah;
        sheet.remarks.push(format!(
            "As many ids in ten times the rows, S1 over S3: GPU-WAH published {then:.1} times \
             slower; wah on one core {} times, through a bitmap of all rows {} times, on this \
             GPU {} times.",
            cell(fall("wah"), 1),
            cell(fall(BITMAP_WAH), 1),
            cell(fall("wah, GPU"), 1),
        ));
    }
    sheet
}

fn named<'a>(results: &'a [Result], name: &str) -> Option<&'a Result> {
    results.iter().find(|one| one.scenario.name == name)
}

/// The number of a scenario, for a scale.
fn place(scenario: &Scenario) -> f64 {
    scenario.name.trim_start_matches('S').parse().unwrap_or(0.0)
}

fn speed_plot(results: &[Result]) -> Plot {
    let names: Vec<String> =
        results.first().map_or(vec![], |one| one.all.iter().map(|one| one.name.clone()).collect());
    let line = |name: &String| {
        let points = results
            .iter()
            .filter_map(|one| Some((place(&one.scenario), one.find(name)?.median()?)));
        // There is little room beside a plot.
        let label = name.replace("hipes as", "as").replace("through a", "by");
        Line { label, points_only: true, points: points.collect() }
    };
    // No more than there are colours.
    let hidden = [ON_GPU[1], "plwah", "roaring crate"];
    let lines: Vec<Line> = names
        .iter()
        .filter(|name| !hidden.contains(&name.as_str()))
        .map(line)
        .filter(|line| !line.points.is_empty())
        .collect();
    let published = |scenario: &Scenario, codec: &str| Some(published(scenario, codec)?.0);
    plot("Table 2: encoding ids", "MB/s of ids", results, lines, published)
}

/// Lines over the scenarios, and those that are published.
fn plot(
    title: &str,
    y: &str,
    results: &[Result],
    mut lines: Vec<Line>,
    published: impl Fn(&Scenario, &str) -> Option<f64>,
) -> Plot {
    for (label, codec) in [("published, HiPES", "hipes"), ("published, GPU-WAH", "wah")] {
        let points = results
            .iter()
            .filter_map(|one| Some((place(&one.scenario), published(&one.scenario, codec)?)));
        lines.push(Line { label: label.to_owned(), points_only: true, points: points.collect() });
    }
    Plot::Lines(Lines {
        title: title.to_owned(),
        x: "scenario, S1 to S8".to_owned(),
        y: y.to_owned(),
        log_x: false,
        log_y: true,
        lines,
    })
}

fn ratios(results: &[Result]) -> Sheet {
    let title = "Table 2: bytes of the ids over bytes of the output";
    let headings = [
        "scenario",
        "hipes",
        "published",
        "differs, %",
        "wah",
        "published",
        "differs, %",
        "plwah",
        "roaring",
        "croaring crate",
        "roaring crate",
    ];
    let mut sheet = Sheet::new("table2-ratio", title, &headings);
    for result in results {
        let ratio = |name: &str| result.find(name).and_then(|one| one.ratio);
        let mut cells = vec![result.scenario.name.to_owned()];
        for name in ["hipes", "wah"] {
            let then = published(&result.scenario, name).map(|one| one.2);
            let percent = then.zip(ratio(name)).map(|(then, now)| differs(then, now));
            cells.extend([cell(ratio(name), 3), cell(then, 2), percent.unwrap_or("-".to_owned())]);
        }
        let others = ["plwah", "roaring", "croaring crate", "roaring crate"];
        cells.extend(others.map(|name| cell(ratio(name), 3)));
        sheet.row(cells);
    }
    sheet.remarks.push("same: rounded to the digits that were published.".to_owned());
    sheet
}

fn ratio_plot(results: &[Result]) -> Plot {
    let line = |name: &str| {
        let points =
            results.iter().filter_map(|one| Some((place(&one.scenario), one.find(name)?.ratio?)));
        Line { label: name.to_owned(), points_only: true, points: points.collect() }
    };
    let lines: Vec<Line> = ["hipes", "wah", "plwah", "roaring"].map(line).into();
    let title = "Table 2: bytes of the ids over bytes of the output";
    let published = |scenario: &Scenario, codec: &str| Some(published(scenario, codec)?.2);
    plot(title, "ratio; above 1 it is smaller than the ids", results, lines, published)
}

fn over_wah(results: &[Result]) -> Sheet {
    let title = "Table 2: the speed of HiPES over that of WAH";
    let headings = [
        "scenario",
        "one core",
        "one core, wah through a bitmap",
        "GPU",
        "GPU, as published",
        "published",
    ];
    let mut sheet = Sheet::new("table2-over-wah", title, &headings);
    for result in results {
        let published = result.scenario.published;
        sheet.row(vec![
            result.scenario.name.to_owned(),
            cell(result.over("hipes", "wah"), 2),
            cell(result.over("hipes", BITMAP_WAH), 2),
            cell(result.over(ON_GPU[0], ON_GPU[3]), 2),
            cell(result.over(ON_GPU[2], ON_GPU[3]), 2),
            cell(Some(published.hipes / published.wah), 2),
        ]);
    }
    sheet
}

fn over_wah_plot(results: &[Result]) -> Plot {
    let mut bars = vec![];
    for result in results {
        let published = result.scenario.published;
        for (place, a, b) in [
            ("one core", "hipes", "wah"),
            ("bitmap", "hipes", BITMAP_WAH),
            ("GPU", ON_GPU[0], ON_GPU[3]),
        ] {
            if let Some(value) = result.over(a, b) {
                let label = format!("{}, {place}", result.scenario.name);
                bars.push(Bar { label, value, mark: Some(published.hipes / published.wah) });
            }
        }
    }
    Plot::Bars(Bars {
        title: "The speed of HiPES over that of WAH".to_owned(),
        unit: "times; bitmap: one core, WAH through a bitmap of all rows".to_owned(),
        mark: Some("published, GPU".to_owned()),
        bars,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_gpu::sets::scenarios::SCENARIOS;

    #[test]
    fn published_figures_are_those_of_the_codec() {
        let s6 = SCENARIOS[5];
        assert_eq!(published(&s6, "hipes, GPU"), Some((7797.72, 118.03, 3.20)));
        assert_eq!(published(&s6, "wah"), Some((1012.51, 11.41, 5.09)));
        assert_eq!(published(&s6, "plwah"), None);
        let names = SCENARIOS.map(|one| one.name);
        assert_eq!(names, PUBLISHED_SPREADS.map(|one| one.0));
    }

    #[test]
    fn without_a_gpu_its_rows_are_empty() {
        let mut scenario = SCENARIOS[0];
        (scenario.ids, scenario.rows) = (1_000, 100_000);
        let args = Args {
            target: Default::default(),
            scenario: vec![],
            rounds: 1,
            seeds: 1,
            device: tapdex_gpu::choice::DeviceChoice::Cpu,
        };
        let mut all = on_cpu(&args, &scenario).unwrap();
        all.extend(on_gpu(&args, scenario, None).unwrap());
        let results = [Result { scenario, all }];
        let text = speeds(&results, false).csv().unwrap();
        assert!(text.contains("S1,\"wah, GPU\",-,-,-,142.07,2.20"), "{text}");
        assert!(ratios(&results).csv().unwrap().starts_with("scenario,hipes"));
        // 2 chunks for 1,000 ids.
        let found = results[0].find("hipes").and_then(|one| one.ratio).unwrap();
        assert!((found - 4_000.0 / (2.0 * 8_196.0)).abs() < 1e-9);
    }

    #[test]
    fn the_host_as_a_device_has_its_rows() {
        let device: Arc<dyn Device> = tapdex_gpu::host::HostDevice::new(1).unwrap();
        let mut scenario = SCENARIOS[4];
        (scenario.ids, scenario.rows) = (1_000, 100_000);
        let args = Args {
            target: Default::default(),
            scenario: vec![],
            rounds: 1,
            seeds: 1,
            device: tapdex_gpu::choice::DeviceChoice::Cpu,
        };
        let all = on_gpu(&args, scenario, Some(&device)).unwrap();
        assert!(all.iter().all(|one| one.median().unwrap() > 0.0), "{all:?}");
        assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ON_GPU);
    }
}
