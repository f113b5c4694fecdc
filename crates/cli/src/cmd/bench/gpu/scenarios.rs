//! Sets of ids, as in the paper that HiPES is from.

use tapdex_gpu::sets::scenarios::{Measured, SCENARIOS, SEED, measure_scenario};

use super::Plan;
use crate::cmd::bench::bars::{Bar, Bars};
use crate::cmd::bench::report::Report;
use crate::cmd::bench::sheet::Sheet;
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

pub(super) fn measure(
    plan: &Plan<'_>,
    report: &mut Report<'_>,
    progress: &mut Progress,
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
        progress.show(|_| format!("scenario {}", scenario.name));
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
    report.table(&sheet, Some(&bars))
}
