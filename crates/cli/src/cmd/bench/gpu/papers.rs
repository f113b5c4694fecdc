//! The experiments of IMC'13 and of GPU-MASC.

use std::path::Path;

use tapdex_gpu::measure::papers::{self, MascPair, OneColumn};
use tapdex_gpu::measure::peer;
use tapdex_gpu::measure::{Columns, TUPLE, median};

use super::Plan;
use crate::cmd::progress::Progress;
use tapdex_engine::index::Width;
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

/// Rows of the columns that MASC is measured on: few enough for one core.
const MASC_ROWS: usize = 1 << 22;
/// The figures of IMC'13 for 256 and for 65,536 values, on a card of 2013, in records a second.
const PUBLISHED: [(u64, f64); 2] = [(256, 185e6), (65_536, 185e6 / 1.13)];
/// The paper's figures for MASC: packets a second times bytes, on its GPU and on its CPU.
const PUBLISHED_MASC: [f64; 2] = [492_491.0 * 14.0, 492_491.0 * 14.0 / 19.5];

/// Steps of the measurement, without that of a peer.
pub(super) const STEPS: usize = 2;

pub(super) fn measure(
    plan: &Plan<'_>,
    peer: Option<&Path>,
    report: &mut Report<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    progress.step("IMC'13: columns of more and more values");
    let records = papers::RECORDS.min(plan.rows);
    let ours = papers::cardinalities(plan.device, records, plan.runs, plan.seed)?;
    let theirs = match peer {
        Some(peer) => {
            progress.step(&format!("IMC'13: {}", peer.display()));
            peer::run(peer)?
        }
        None => vec![],
    };
    figure5(&ours, &theirs, records, report)?;
    figure6(&ours, &theirs, records, report)?;
    whole_columns(&theirs, report)?;
    progress.step("MASC");
    let rows = MASC_ROWS.min(plan.rows);
    let (device, seed) = (plan.device, plan.seed);
    let mut pairs = Vec::new();
    for columns in [
        Columns::uniform(device, Width::Byte, TUPLE, rows, 256, seed)?,
        Columns::flows(device, Width::Byte, rows, seed)?,
    ] {
        pairs.extend(papers::masc(device, &columns, plan.runs)?);
    }
    masc(&pairs, rows, report)
}

fn giga(records: usize, seconds: f64) -> f64 {
    records as f64 / seconds / 1e9
}

fn figure5(
    ours: &[OneColumn],
    theirs: &[peer::Line],
    records: usize,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let title = format!("IMC'13, figure 5: {records} records of 16 bits, G records/s");
    let headings = ["codec", "values", "alone", "in a row", "in Thrust", "published", "bytes"];
    let mut sheet = Sheet::new("gpu-imc13-figure5", &title, &headings);
    let mut bars = Bars {
        title,
        unit: "G records/s from host to host, one column alone".to_owned(),
        mark: Some("IMC'13 in Thrust on the same card".to_owned()),
        bars: vec![],
    };
    for column in ours {
        let name = column.codec.name();
        let alone = giga(records, median(&mut column.seconds.clone()));
        let peer = theirs.iter().find(|line| {
            (line.codec.as_str(), line.values, line.records) == (name, column.values, records)
                && line.bits == 16
        });
        let peer = peer.map(|line| giga(line.records, line.ms / 1e3));
        let published = PUBLISHED.iter().find(|(values, _)| *values == column.values);
        let published = published.filter(|_| name == "plwah").map(|(_, rate)| rate / 1e9);
        let shown = |rate: Option<f64>, digits: usize| match rate {
            Some(rate) => format!("{rate:.digits$}"),
            None => "-".to_owned(),
        };
        sheet.row(vec![
            name.to_owned(),
            column.values.to_string(),
            format!("{alone:.2}"),
            format!("{:.2}", column.in_a_row / 1e9),
            shown(peer, 2),
            shown(published, 3),
            format!("{:.2}", column.bytes as f64 / records as f64),
        ]);
        let label = format!("{name}, {}", column.values);
        bars.bars.push(Bar { label, value: alone, mark: peer });
    }
    sheet.remarks.push("alone: one column, its copies and kernels one after the other".into());
    sheet.remarks.push("in a row: ten columns, copies and kernels side by side".into());
    Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
}

fn figure6(
    ours: &[OneColumn],
    theirs: &[peer::Line],
    records: usize,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let title = format!("IMC'13, figure 6: milliseconds of each step, {records} records");
    let headings = ["codec", "values", "copy in", "sort, measure", "write", "copy out"];
    let mut sheet = Sheet::new("gpu-imc13-figure6", &title, &headings);
    let ms = |seconds: f64| format!("{:.3}", 1e3 * seconds);
    for column in ours {
        let steps = &column.steps;
        sheet.row(vec![
            column.codec.name().to_owned(),
            column.values.to_string(),
            ms(steps.copy_in),
            ms(steps.measure),
            ms(steps.write),
            ms(steps.copy_out),
        ]);
    }
    report.table(&sheet, None)?;
    if theirs.is_empty() {
        return Ok(());
    }
    let title = "IMC'13, figure 6: milliseconds of each step, as its authors built it, in Thrust";
    let headings = [&["codec", "values"][..], &peer::STEPS].concat();
    let mut sheet = Sheet::new("gpu-imc13-figure6-thrust", title, &headings);
    for line in theirs.iter().filter(|line| line.records == records) {
        let mut cells = vec![line.codec.clone(), line.values.to_string()];
        cells.extend(line.steps.iter().map(|ms| format!("{ms:.3}")));
        sheet.row(cells);
    }
    Ok(report.table(&sheet, None)?)
}

/// The peer on columns as long as those of the other tables.
fn whole_columns(theirs: &[peer::Line], report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "IMC'13 as its authors built it, in Thrust, on long columns";
    let headings = ["codec", "bits", "records", "values", "words a record", "G records/s"];
    let mut sheet = Sheet::new("gpu-imc13-thrust", title, &headings);
    for line in theirs.iter().filter(|line| line.records != papers::RECORDS) {
        sheet.row(vec![
            line.codec.clone(),
            line.bits.to_string(),
            line.records.to_string(),
            line.values.to_string(),
            format!("{:.3}", line.words),
            format!("{:.2}", giga(line.records, line.ms / 1e3)),
        ]);
    }
    if sheet.is_empty() {
        return Ok(());
    }
    Ok(report.table(&sheet, None)?)
}

fn masc(pairs: &[MascPair], rows: usize, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = format!("GPU-MASC: {TUPLE} byte columns of {rows} rows, M records/s");
    let headings = ["data", "GPU", "one core", "times", "bytes a record"];
    let mut sheet = Sheet::new("gpu-masc", &title, &headings);
    let mut bars = Bars {
        title,
        unit: "M records/s on the GPU, from host to host".to_owned(),
        mark: Some("one core of the host".to_owned()),
        bars: vec![],
    };
    for pair in pairs {
        let (device, core) = pair.rates();
        let form = if pair.in_windows { "windows" } else { "whole" };
        let label = format!("{}, {form}", pair.data);
        sheet.row(vec![
            label.clone(),
            format!("{:.0}", device / 1e6),
            format!("{:.1}", core / 1e6),
            format!("{:.0}", device / core),
            format!("{:.3}", pair.bytes as f64 / pair.records as f64),
        ]);
        bars.bars.push(Bar { label, value: device / 1e6, mark: Some(core / 1e6) });
    }
    let [gpu, cpu] = PUBLISHED_MASC;
    sheet.row(vec![
        "published, windows".to_owned(),
        format!("{:.1}", gpu / 1e6),
        format!("{:.2}", cpu / 1e6),
        format!("{:.1}", gpu / cpu),
        "-".to_owned(),
    ]);
    Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
}
