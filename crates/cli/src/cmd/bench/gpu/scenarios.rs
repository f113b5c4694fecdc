//! Sets of ids, as in the paper that HiPES is from.

use tapdex_gpu::sets::scenarios::{Measured, SCENARIOS, SEED, measure_scenario, measure_widths};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use super::Plan;
use crate::cmd::progress::Progress;

const HEADINGS: [&str; 9] = [
    "scenario",
    "codec",
    "MB/s",
    "least",
    "most",
    "one at a time",
    "kernels alone",
    "ratio",
    "published MB/s",
];

/// Steps of the measurement.
pub(super) const STEPS: usize = SCENARIOS.len() + SWEPT.len();

pub(super) fn measure(
    plan: &Plan<'_>,
    report: &mut Report<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let title = "Sets of ids: the scenarios that HiPES was published with";
    let mut sheet = Sheet::new("gpu-scenarios", title, &HEADINGS);
    sheet.remarks.push(format!("Ids from seed {SEED}; MB/s of input, several sets in flight."));
    let mut bars = Bars {
        title: title.to_owned(),
        unit: "MB/s of input from host to host, the median".to_owned(),
        mark: Some("published".to_owned()),
        bars: vec![],
    };
    for scenario in SCENARIOS {
        progress.step(&format!("scenario {}", scenario.name));
        let result = measure_scenario(plan.device, scenario, plan.runs)?;
        let published = scenario.published;
        let mut row = |codec: &str, measured: &Measured, published: f64| {
            let rate = |rate: f64| format!("{rate:.0}");
            sheet.row(vec![
                scenario.name.to_owned(),
                codec.to_owned(),
                rate(measured.pipelined.median),
                rate(measured.pipelined.min),
                rate(measured.pipelined.max),
                rate(measured.single.median),
                rate(measured.device.median),
                format!("{:.2}", measured.ratio),
                rate(published),
            ]);
            bars.bars.push(Bar {
                label: format!("{} {codec}", scenario.name),
                value: measured.pipelined.median,
                mark: Some(published),
            });
        };
        row("hipes", &result.direct, published.hipes);
        row("hipes as published", &result.published, published.hipes);
        row("wah", &result.wah, published.wah);
    }
    report.table(&sheet, Some(&Plot::Bars(bars)))?;
    widths(plan, report, progress)
}

/// The scenarios whose chunks are made larger and smaller.
const SWEPT: [&str; 2] = ["S2", "S4"];

fn widths(plan: &Plan<'_>, report: &mut Report<'_>, progress: &Progress) -> anyhow::Result<()> {
    for scenario in SCENARIOS.into_iter().filter(|scenario| SWEPT.contains(&scenario.name)) {
        let name = scenario.name;
        progress.step(&format!("scenario {name}, chunks of all sizes"));
        let title = format!("HiPES, chunks of 2^w rows, {name}: MB/s");
        let headings = ["w", "directly", "one at a time", "as published", "one at a time", "ratio"];
        let mut sheet = Sheet::new(&format!("gpu-widths-{name}"), &title, &headings);
        let mut bars = Bars {
            title,
            unit: "MB/s of input from host to host, directly, the median".to_owned(),
            mark: Some("the way it was published".to_owned()),
            bars: vec![],
        };
        for result in measure_widths(plan.device, scenario, plan.runs)? {
            let (direct, published) = (&result.direct, &result.published);
            let rate = |rate: f64| format!("{rate:.0}");
            sheet.row(vec![
                result.width.get().to_string(),
                rate(direct.pipelined.median),
                rate(direct.single.median),
                rate(published.pipelined.median),
                rate(published.single.median),
                format!("{:.3}", direct.ratio),
            ]);
            bars.bars.push(Bar {
                label: format!("w = {}", result.width.get()),
                value: direct.pipelined.median,
                mark: Some(published.pipelined.median),
            });
        }
        report.table(&sheet, Some(&Plot::Bars(bars)))?;
    }
    Ok(())
}
