//! Figures 2 and 3: speed and ratio as the chunks get larger.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use tapdex_bench::{Seconds, race};
use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes::Width;
use tapdex_gpu::device::Device;
use tapdex_gpu::sets::scenarios::{Scenario, Spread, WidthResult, measure_widths};
use tapdex_report::{Line, Lines, Plot, Report, Sheet};

use super::scenarios::in_megabytes;
use super::seeds::PUBLISHED_S5;
use super::{Args, check, ratio, speed};
use crate::imc13::{cell, gpu};

/// Section 5.2 of the paper: what it says of the speed of the dense scenarios, from a width on.
const PUBLISHED_SPEED: [(u8, &str); 4] = [
    (7, "below about 5000"),
    (14, "7678 to 8129"),
    (19, "S2 above 8000, S6 about 6000"),
    (22, "-"),
];
/// Section 5.2: what it says of the ratio of the dense scenarios, from a width on.
const PUBLISHED_RATIO: [(u8, &str); 3] = [(7, "-"), (15, "about 3.2"), (26, "falls sharply")];

fn all_widths() -> Vec<Width> {
    (7..=29).filter_map(Width::new).collect()
}

/// Rounds of each width.
pub fn rounds(args: &Args) -> usize {
    args.rounds.min(3)
}

/// What a list says of a width.
fn published(list: &[(u8, &'static str)], width: Width) -> String {
    let said = list.iter().rev().find(|(from, _)| *from <= width.get());
    said.map_or("-", |(_, words)| words).to_owned()
}

/// A scenario at every width, in the order of [`all_widths`].
struct Swept {
    name: &'static str,
    ids: usize,
    times: Vec<Seconds>,
    ratios: Vec<f64>,
}

impl Swept {
    fn speed(&self, at: usize) -> f64 {
        speed(self.ids, self.times[at].median)
    }
}

fn on_cpu(scenario: &Scenario, rounds: usize) -> anyhow::Result<Swept> {
    let ids = scenario.ids();
    // The widths take turns in the same memory.
    let target = RefCell::new(Vec::new());
    let mut ratios = Vec::new();
    let mut jobs: Vec<Box<dyn FnMut() + '_>> = Vec::new();
    for width in all_widths() {
        let codec = Codec::Hipes(width);
        let (ids, target) = (&ids, &target);
        let encode = move || {
            let mut target = target.borrow_mut();
            target.clear();
            codec.encode(ids, &mut target);
        };
        encode();
        check(codec, &target.borrow(), ids, scenario.rows)?;
        ratios.push(ratio(ids.len(), target.borrow().len()));
        jobs.push(Box::new(encode));
    }
    let times = race(rounds, Duration::ZERO, &mut jobs);
    Ok(Swept { name: scenario.name, ids: ids.len(), times, ratios })
}

pub fn measure(
    args: &Args,
    scenarios: &[Scenario],
    device: Option<&Arc<dyn Device>>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let mut swept = Vec::new();
    for scenario in scenarios {
        eprintln!("figures 2 and 3: {}", scenario.name);
        swept.push(on_cpu(scenario, rounds(args))?);
    }
    figure2(&swept, device.is_some(), report)?;
    if let Some(device) = device {
        on_gpu(args, scenarios, device, report)?;
    }
    figure3(&swept, report)
}

fn headings<'a>(names: &[&'a str], behind: &[&'a str]) -> Vec<&'a str> {
    [&["w"][..], names, behind].concat()
}

fn plot(title: &str, y: &str, lines: Vec<Line>) -> Plot {
    Plot::Lines(Lines {
        title: title.to_owned(),
        x: "w: chunks of 2^w rows".to_owned(),
        y: y.to_owned(),
        log_x: false,
        log_y: true,
        lines,
    })
}

fn line(name: &str, value: impl Fn(usize) -> f64) -> Line {
    let widths = all_widths().into_iter().enumerate();
    let points = widths.map(|(at, width)| (f64::from(width.get()), value(at))).collect();
    Line { label: name.to_owned(), points_only: false, points }
}

fn figure2(swept: &[Swept], has_gpu: bool, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "Figure 2 on one core: MB/s of ids that HiPES encodes";
    let names: Vec<&str> = swept.iter().map(|one| one.name).collect();
    let behind = ["widest spread, %", "published, GPU, S2 and S6"];
    let mut sheet = Sheet::new("figure2-cpu", title, &headings(&names, &behind));
    for (at, width) in all_widths().into_iter().enumerate() {
        let mut cells = vec![width.get().to_string()];
        cells.extend(swept.iter().map(|one| format!("{:.0}", one.speed(at))));
        let spreads = swept.iter().map(|one| {
            let time = one.times[at];
            100.0 * (time.max - time.min) / time.median
        });
        cells.push(format!("{:.0}", spreads.fold(0.0, f64::max)));
        cells.push(published(&PUBLISHED_SPEED, width));
        sheet.row(cells);
    }
    sheet.remarks.push(
        "Widest spread: the slowest round less the fastest, of the median, in the scenario where \
         it is widest."
            .to_owned(),
    );
    if !has_gpu {
        let why = gpu::MISSING.trim_start_matches("-: ");
        sheet.remarks.push(format!("There is no such table of the GPU: {why}"));
    }
    let lines = swept.iter().map(|one| line(one.name, |at| one.speed(at))).collect();
    Ok(report.table(&sheet, Some(&plot(title, "MB/s of ids", lines)))?)
}

fn figure3(swept: &[Swept], report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "Figure 3: bytes of the ids over bytes of HiPES";
    let names: Vec<&str> = swept.iter().map(|one| one.name).collect();
    let behind = ["published, S2 and S6", "published, S5"];
    let mut sheet = Sheet::new("figure3", title, &headings(&names, &behind));
    for (at, width) in all_widths().into_iter().enumerate() {
        let mut cells = vec![width.get().to_string()];
        cells.extend(swept.iter().map(|one| format!("{:.3}", one.ratios[at])));
        cells.push(published(&PUBLISHED_RATIO, width));
        cells.push(cell((width.get() == 7).then_some(PUBLISHED_S5), 2));
        sheet.row(cells);
    }
    sheet.remarks.push("The GPU writes the same bytes.".to_owned());
    let lines = swept.iter().map(|one| line(one.name, |at| one.ratios[at])).collect();
    let y = "ratio; above 1 it is smaller than the ids";
    Ok(report.table(&sheet, Some(&plot(title, y, lines)))?)
}

fn on_gpu(
    args: &Args,
    scenarios: &[Scenario],
    device: &Arc<dyn Device>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let mut swept: Vec<(&str, Vec<WidthResult>)> = Vec::new();
    for &scenario in scenarios {
        eprintln!("figure 2, GPU: {}", scenario.name);
        swept.push((scenario.name, measure_widths(device, scenario, rounds(args))?));
    }
    gpu_tables(&swept, report)
}

fn gpu_tables(swept: &[(&str, Vec<WidthResult>)], report: &mut Report<'_>) -> anyhow::Result<()> {
    type Way = fn(&WidthResult) -> Spread;
    let ways: [(&str, &str, Way); 2] = [
        ("figure2-gpu", "as published, one set at a time", |one| one.published.single),
        ("figure2-gpu-direct", "directly, sets in flight", |one| one.direct.pipelined),
    ];
    for (name, words, way) in ways {
        let title = format!("Figure 2 on the GPU, {words}: MB/s of ids that HiPES encodes");
        let names: Vec<&str> = swept.iter().map(|one| one.0).collect();
        let behind = ["widest spread, %", "published, S2 and S6"];
        let mut sheet = Sheet::new(name, &title, &headings(&names, &behind));
        let find = |results: &[WidthResult], width: Width| -> Option<[f64; 3]> {
            results.iter().find(|one| one.width == width).map(|one| in_megabytes(&way(one)))
        };
        for width in all_widths() {
            let mut cells = vec![width.get().to_string()];
            let found = swept.iter().map(|one| find(&one.1, width));
            let found: Vec<Option<[f64; 3]>> = found.collect();
            cells.extend(found.iter().map(|one| cell(one.map(|[median, ..]| median), 0)));
            let spreads = found.iter().flatten();
            let spreads = spreads.map(|[median, min, max]| 100.0 * (max - min) / median);
            cells.push(format!("{:.0}", spreads.fold(0.0, f64::max)));
            cells.push(published(&PUBLISHED_SPEED, width));
            sheet.row(cells);
        }
        let lines = swept.iter().map(|(name, results)| {
            line(name, |at| {
                let found = find(results, all_widths()[at]);
                found.map_or(f64::NAN, |[median, ..]| median)
            })
        });
        report.table(&sheet, Some(&plot(&title, "MB/s of ids", lines.collect())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_gpu::sets::scenarios::{Measured, SCENARIOS};

    #[test]
    fn what_was_published_holds_from_a_width_on() {
        let at = |list, w| published(list, Width::new(w).unwrap());
        assert_eq!(at(&PUBLISHED_SPEED[..], 13), "below about 5000");
        assert_eq!(at(&PUBLISHED_SPEED[..], 14), "7678 to 8129");
        assert_eq!(at(&PUBLISHED_SPEED[..], 29), "-");
        assert_eq!(at(&PUBLISHED_RATIO[..], 25), "about 3.2");
        assert_eq!(at(&PUBLISHED_RATIO[..], 26), "falls sharply");
    }

    #[test]
    fn ratios_fall_when_chunks_outgrow_the_rows() {
        let mut scenario = SCENARIOS[1];
        (scenario.ids, scenario.rows) = (10_000, 100_000);
        let swept = on_cpu(&scenario, 1).unwrap();
        assert_eq!((swept.times.len(), swept.ratios.len()), (23, 23));
        // Two chunks of 8,196 bytes at w = 16; a single one, ever larger, from w = 17 on.
        assert!((swept.ratios[9] - 40_000.0 / 16_392.0).abs() < 1e-9, "{:?}", swept.ratios);
        assert!(swept.ratios[10..].is_sorted_by(|a, b| a > b), "{:?}", swept.ratios);
    }

    #[test]
    fn widths_that_the_gpu_left_out_are_strokes() {
        let rate = |median: f64| Spread { median, min: 0.9 * median, max: 1.1 * median };
        let measured = Measured {
            single: rate(1.048576),
            pipelined: rate(2.097152),
            device: rate(1.0),
            phases: vec![],
            bytes: 1,
            ratio: 1.0,
        };
        let (scenario, width) = (SCENARIOS[0], Width::DEFAULT);
        let (direct, published) = (measured.clone(), measured);
        let swept = [("S1", vec![WidthResult { scenario, width, direct, published }])];
        let mut out = vec![];
        let mut report = Report::new(&mut out, None).unwrap();
        gpu_tables(&swept, &mut report).unwrap();
        report.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let row = |w: u8| {
            let mut found = text.lines().filter(move |line| line.starts_with(&format!("{w} ")));
            found.next().unwrap().split_whitespace().take(3).collect::<Vec<_>>()
        };
        assert_eq!(row(16), ["16", "1", "20"]);
        assert_eq!(row(17), ["17", "-", "0"]);
    }
}
