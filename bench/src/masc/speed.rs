//! Figures 34 and 35: sizes and speed on a core and on a GPU.

use std::sync::Arc;
use std::time::Duration;

use tapdex_bench::tuples::{self, BYTES, NAMES, Order, Tuple};
use tapdex_bench::{race, windows};
use tapdex_engine::index::{Digits, Width};
use tapdex_gpu::choice::DeviceChoice;
use tapdex_gpu::device::Device;
use tapdex_gpu::measure::Columns;
use tapdex_gpu::measure::papers::{masc, masc_on_core};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use crate::imc13::gpu;

/// Packets that are encoded, few enough for one core.
const PACKETS: usize = 1 << 21;
/// Milliseconds that 3,968 packets of 14 bytes take in the paper, on its CPU and its GPU.
const PUBLISHED_MS: [f64; 2] = [157.3, 8.057];
const PUBLISHED_BYTES: f64 = 14.0;

/// Who encodes, which columns, whether in windows, and bytes of columns a second.
struct Rate {
    who: String,
    data: &'static str,
    in_windows: bool,
    records: f64,
}

pub fn measure(
    mut tuples: Vec<Tuple>,
    rounds: usize,
    seed: u64,
    choice: DeviceChoice,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    tuples::sort(&mut tuples, Order::Hash);
    tuples.truncate(PACKETS);
    let columns: Vec<Vec<u8>> = (0..BYTES).map(|byte| tuples::column(&tuples, byte)).collect();
    room(&columns, report)?;
    let mut rates = on_core(&columns, rounds);
    let device = gpu::open(choice)?;
    if let Some(device) = &device {
        rates.extend(on_gpu(device, tuples.len(), rounds, seed)?);
    }
    speed(&rates, device.is_some(), report)
}

/// Figure 34: the room of each byte, in windows and whole. That a GPU gives the same is checked
/// where its speed is measured.
fn room(columns: &[Vec<u8>], report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "Figure 34: room of MASC, calibrated, hash order, bytes a packet";
    let mut sheet = Sheet::new("masc-figure34", title, &["byte", "windows", "whole columns"]);
    let (unit, mark) = ("bytes a packet, in windows", "whole columns");
    let mut bars = Bars {
        title: title.to_owned(),
        unit: unit.to_owned(),
        mark: Some(mark.to_owned()),
        bars: vec![],
    };
    for (name, column) in NAMES.iter().zip(columns) {
        let bytes = |in_windows: bool| {
            masc_on_core(Digits::Bytes(column), in_windows) as f64 / column.len() as f64
        };
        let (windows, whole) = (bytes(true), bytes(false));
        sheet.row(vec![(*name).to_owned(), format!("{windows:.3}"), format!("{whole:.3}")]);
        bars.bars.push(Bar { label: (*name).to_owned(), value: windows, mark: Some(whole) });
    }
    Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
}

fn on_core(columns: &[Vec<u8>], rounds: usize) -> Vec<Rate> {
    let encode = |in_windows: bool| {
        move || -> u64 {
            columns.iter().map(|column| masc_on_core(Digits::Bytes(column), in_windows)).sum()
        }
    };
    let mut jobs = [encode(true), encode(false)];
    let times = race(rounds, Duration::ZERO, &mut jobs);
    let records: usize = columns.iter().map(Vec::len).sum();
    let rate = |(in_windows, seconds): (bool, f64)| Rate {
        who: "one core".to_owned(),
        data: "calibrated, hash order",
        in_windows,
        records: records as f64 / seconds,
    };
    [true, false].into_iter().zip(times.iter().map(|time| time.median)).map(rate).collect()
}

/// Of flows that are made up in pinned memory, on the GPU and on a core; fails where they give
/// different sizes.
fn on_gpu(
    device: &Arc<dyn Device>,
    packets: usize,
    rounds: usize,
    seed: u64,
) -> anyhow::Result<Vec<Rate>> {
    let columns = Columns::flows(device, Width::Byte, packets, seed)?;
    let rate = |who: String, in_windows: bool, records: f64| Rate {
        who,
        data: "other flows, flow order",
        in_windows,
        records,
    };
    let mut rates = Vec::new();
    for pair in masc(device, &columns, rounds)? {
        let (on_gpu, on_core) = pair.rates();
        rates.push(rate("one core".to_owned(), pair.in_windows, on_core));
        rates.push(rate(device.facts().name.clone(), pair.in_windows, on_gpu));
    }
    Ok(rates)
}

fn speed(rates: &[Rate], on_gpu: bool, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "Figure 35: encoding in MASC, all bytes of the five-tuple";
    let headings = [
        "who",
        "data",
        "form",
        "M records/s",
        "thousand packets/s",
        "ms for 3,968 packets of 13 bytes",
    ];
    let mut sheet = Sheet::new("masc-figure35", title, &headings).of_words();
    let published = ["published, CPU", "published, GPU"].into_iter().zip(PUBLISHED_MS);
    let published = published.map(|(who, ms)| Rate {
        who: who.to_owned(),
        data: "the paper's trace",
        in_windows: true,
        records: windows::ROWS as f64 * PUBLISHED_BYTES / ms * 1e3,
    });
    let published: Vec<Rate> = published.collect();
    let mut bars = Bars {
        title: title.to_owned(),
        unit: "thousand packets of 13 bytes a second".to_owned(),
        mark: None,
        bars: vec![],
    };
    for rate in rates.iter().chain(&published) {
        let packets = rate.records / BYTES as f64;
        let form = if rate.in_windows { "windows" } else { "whole columns" };
        sheet.row(vec![
            rate.who.clone(),
            rate.data.to_owned(),
            form.to_owned(),
            format!("{:.2}", rate.records / 1e6),
            format!("{:.1}", packets / 1e3),
            format!("{:.3}", 1e3 * windows::ROWS as f64 / packets),
        ]);
        let label = format!("{}, {}, {form}", rate.who, rate.data);
        bars.bars.push(Bar { label, value: packets / 1e3, mark: None });
    }
    sheet.remarks.push(
        "on a core, windows are encoded from lists of rows, whole columns by the index builder"
            .to_owned(),
    );
    if !on_gpu {
        sheet.remarks.push("no GPU was found".to_owned());
    }
    Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
}
