//! `tapdex codec stats`: the size of a set in every codec.

use std::io::{self, BufRead, Write};

use anyhow::Context;
use tapdex_bitmap::{ALL_CODECS, Codec, Sizes};
use tapdex_report::table::{self, Align};

use super::ids;
use crate::cmd::CANNOT_WRITE;
use crate::cmd::json::{self, Rounded};

/// Compare the size of a set in all codecs.
///
/// Reads one id or range per line, ascending, and prints the size of the set in each codec. The
/// smallest, which --codec auto uses, is marked with *:
///
///     printf '44-80\n168-171\n' | tapdex codec stats --rows 217
///     tapdex codec sample --family zipf-runs | tapdex codec stats --json
///
/// Without --rows, the rows end at the last id. With --json, prints an object for the set, then one
/// for each codec, one per line. Values that would need a division by zero are - or, with --json,
/// null.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Number of rows, up to 4294967295; all ids must be smaller.
    #[arg(long, value_name = "N")]
    rows: Option<u32>,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// A codec's line: its name, the bytes, bits an id, bytes to one byte of WAH, and whether it is
/// the smallest.
struct Line {
    name: &'static str,
    bytes: u64,
    bits_per_id: Option<f64>,
    ratio_to_wah: Option<f64>,
    smallest: bool,
}

pub(super) fn run(args: &Args, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<()> {
    let ids = ids::read(input, args.rows)?;
    let rows = args.rows.unwrap_or_else(|| ids.last().map_or(0, |&last| last + 1));
    let density = ratio(ids.len() as u64, rows.into());
    let lines = lines(&ids);
    if args.json {
        return write_json(ids.len(), rows, density, &lines, out);
    }
    write_table(ids.len(), rows, density, &lines, out).context(CANNOT_WRITE)
}

fn lines(ids: &[u32]) -> Vec<Line> {
    let sizes = Sizes::of(ids);
    let wah_bytes = sizes.of_codec(Codec::Wah).unwrap_or(0);
    let smallest = sizes.smallest();
    let line = |codec: Codec| {
        let bytes = sizes.of_codec(codec)?;
        Some(Line {
            name: codec.name(),
            bytes,
            bits_per_id: ratio(8 * bytes, ids.len() as u64),
            ratio_to_wah: ratio(bytes, wah_bytes),
            smallest: codec == smallest,
        })
    };
    ALL_CODECS.into_iter().filter_map(line).collect()
}

fn ratio(a: u64, b: u64) -> Option<f64> {
    (b != 0).then(|| a as f64 / b as f64)
}

/// Four significant digits, however small the number is.
fn four_digits(number: f64) -> String {
    format!("{number:.3e}").parse::<f64>().unwrap_or(number).to_string()
}

fn two_decimals(number: f64) -> String {
    format!("{number:.2}")
}

fn write_table(
    ids: usize,
    rows: u32,
    density: Option<f64>,
    lines: &[Line],
    out: &mut dyn Write,
) -> io::Result<()> {
    let or_dash = |number: Option<String>| number.unwrap_or("-".to_owned());
    writeln!(out, "ids {ids}, rows {rows}, density {}", or_dash(density.map(four_digits)))?;
    let headings = [
        ("codec", Align::Left),
        ("bytes", Align::Right),
        ("bits per id", Align::Right),
        ("ratio to wah", Align::Right),
        ("", Align::Left),
    ];
    let rows = || {
        lines.iter().map(|line| {
            vec![
                line.name.to_owned(),
                line.bytes.to_string(),
                or_dash(line.bits_per_id.map(two_decimals)),
                or_dash(line.ratio_to_wah.map(two_decimals)),
                if line.smallest { "*" } else { "" }.to_owned(),
            ]
        })
    };
    table::write(out, &headings, rows)
}

fn write_json(
    ids: usize,
    rows: u32,
    density: Option<f64>,
    lines: &[Line],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let density = density.map(four_digits).map(Rounded);
    json::line(out, &json::Ids { ids, rows, density })?;
    for &Line { name, bytes, bits_per_id, ratio_to_wah, smallest } in lines {
        let line = json::InCodec {
            codec: name,
            bytes,
            bits_per_id: bits_per_id.map(two_decimals).map(Rounded),
            ratio_to_wah: ratio_to_wah.map(two_decimals).map(Rounded),
            smallest,
        };
        json::line(out, &line)?;
    }
    Ok(())
}
