//! Building the index of one column, beside the crates.

use std::time::Duration;

use anyhow::{Context, ensure};
use tapdex_bench::builders::{self, Contestant};
use tapdex_bench::column::{Column, Shape};
use tapdex_bench::race;
use tapdex_bitmap::{Bitmap, Chunks, Codec};
use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use super::{Args, digits, ratio};

const CODECS: [Codec; 3] = [Codec::Roaring, Codec::Plwah, Codec::Masc];
const SHAPES: [(&str, Shape); 3] =
    [("uniform", Shape::Uniform), ("zipf", Shape::Zipf), ("runs", Shape::Runs)];
const VALUES: [usize; 2] = [256, 65_536];

/// Fills in the table of builders.
pub fn report(args: &Args, report: &mut Report<'_>) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "building",
        "Building the index of one column, one thread",
        &[
            "column",
            "builder",
            "M records/s",
            "slowest",
            "fastest",
            "times roaring crate",
            "times croaring crate",
            "bytes a record",
            "with runs",
        ],
    );
    let mut bars = Vec::new();
    for (name, shape) in SHAPES {
        for values in VALUES {
            eprintln!("building {name}, {values} values");
            let column = Column::new(shape, args.rows, values, args.seed);
            let label = format!("{name}, {values}");
            measure(args, &label, column.digits(), &mut sheet, &mut bars)?;
        }
    }
    sheet.remarks.push(format!(
        "{} rows. All hold the same rows for every value, which is checked. The roaring crate gets \
         each row pushed; the croaring crate gets the rows of a value at once, sorted by counting, \
         which is timed.",
        args.rows
    ));
    sheet.remarks.push(
        "*with runs*: bytes after the crate was asked for run containers, which is not timed. Our \
         roaring codec writes them where they are smaller."
            .to_owned(),
    );
    let plot = Plot::Bars(Bars {
        title: sheet.title.clone(),
        unit: "M records/s".to_owned(),
        mark: None,
        bars,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

fn measure(
    args: &Args,
    label: &str,
    column: Digits<'_>,
    sheet: &mut Sheet,
    bars: &mut Vec<Bar>,
) -> anyhow::Result<()> {
    let mut contestants = Vec::new();
    for codec in CODECS {
        contestants.push(builders::ours(column, codec, 1)?);
    }
    contestants.extend([builders::roaring(column), builders::croaring(column)]);
    let (rust, c) = (contestants.len() - 2, contestants.len() - 1);
    let (_, after) = contestants.split_at_mut(rust);
    let with_runs = check(column, after)?;
    let mut jobs: Vec<_> = contestants.iter_mut().map(|one| &mut one.job).collect();
    let seconds = race(args.rounds, Duration::ZERO, &mut jobs);
    for (index, Contestant { name, bytes, .. }) in contestants.iter().enumerate() {
        let time = seconds[index];
        let rate = |seconds: f64| args.rows as f64 / seconds / 1e6;
        let a_record = |bytes: usize| format!("{:.2}", bytes as f64 / args.rows as f64);
        let runs = index.checked_sub(rust).map(|peer| with_runs[peer]);
        sheet.row(vec![
            label.to_owned(),
            name.clone(),
            digits(rate(time.median)),
            digits(rate(time.max)),
            digits(rate(time.min)),
            digits(ratio(seconds[rust], time)),
            digits(ratio(seconds[c], time)),
            a_record(*bytes),
            runs.map_or("-".to_owned(), a_record),
        ]);
        // Short enough for the plot.
        let label = label.replace("65536", "64k").replace("uniform,", "unif.").replace(',', "");
        let owner = if index < rust { "our " } else { "" };
        let label = format!("{label} {owner}{}", name.trim_end_matches(" crate"));
        bars.push(Bar { label, value: rate(time.median), mark: None });
    }
    Ok(())
}

/// Whether everybody has the same rows for every value; bytes of the crates' sets with runs.
fn check(column: Digits<'_>, peers: &mut [Contestant<'_>]) -> anyhow::Result<[usize; 2]> {
    let [rust, c] = peers else { anyhow::bail!("two peers take part") };
    let mut rust = (rust.job)()
        .downcast::<Vec<roaring::RoaringBitmap>>()
        .ok()
        .context("the roaring crate's builder gives something else")?;
    let mut c = (c.job)()
        .downcast::<Vec<croaring::Bitmap>>()
        .ok()
        .context("the croaring crate's builder gives something else")?;
    let rows = u32::try_from(column.rows())?;
    let mut index = ColumnIndex::default();
    for codec in CODECS {
        CpuBuilder::new(1).build(column, codec, &mut index)?;
        let bytes = index.bitmaps();
        let mut ids = Vec::new();
        for (place, &key) in index.keys.iter().enumerate() {
            let [from, to] = [place, place + 1].map(|place| index.offsets[place] as usize);
            ids.clear();
            Bitmap::open(codec, &bytes[from..to], rows)?.chunks().push_ids(&mut ids);
            let key = usize::from(key);
            let is_same = ids.iter().copied().eq(&rust[key]) && ids == c[key].to_vec();
            ensure!(is_same, "the crates and {} differ in value {key}", codec.name());
        }
        // Each row has one value, so that no rows are left for values that are not there.
        let all: u64 = rust.iter().map(roaring::RoaringBitmap::len).sum();
        ensure!(all == u64::from(rows), "the roaring crate has {all} rows of {rows}");
    }
    let mut bytes = [0; 2];
    for set in rust.iter_mut().filter(|set| !set.is_empty()) {
        set.optimize();
        bytes[0] += set.serialized_size();
    }
    for set in c.iter_mut().filter(|set| !set.is_empty()) {
        set.run_optimize();
        bytes[1] += set.get_serialized_size_in_bytes::<croaring::Portable>();
    }
    Ok(bytes)
}
