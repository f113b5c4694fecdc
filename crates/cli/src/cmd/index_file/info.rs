//! `tapdex index-file info`: the contents of an index file, and the size of its parts.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use tapdex_engine::IndexError;
use tapdex_engine::index::{Field, Index, SectionKind};
use tapdex_report::table::{self, Align};

use crate::cmd::CANNOT_WRITE;
use crate::cmd::json::{self, Rounded};

/// Show the contents of an index file, and the size of its parts.
///
/// The first table has a line for each field, followed by its columns from the most significant
/// digit. The second table has the sections of the file; rest is everything else: schema,
/// checksums, directory, padding.
///
///     tapdex index-file info flows.tdx
///     tapdex index-file info flows.tdx --json
///
/// With --json, prints an object for the file, then one for each field, each column, and each kind
/// of section, one per line.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Index file.
    #[arg(value_name = "INDEX")]
    path: PathBuf,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// A column's place and size.
struct ColumnInfo<'a> {
    field: &'a Field,
    digit: usize,
    keys: u64,
    bytes: u64,
}

/// What is shown about a file.
struct Info<'a> {
    index: &'a Index,
    /// The first and the last time.
    times: Option<(u64, u64)>,
    columns: Vec<ColumnInfo<'a>>,
    /// Bytes of each kind of section, and of all else.
    sections: Vec<(&'static str, u64)>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let index = Index::open(&args.path)?;
    let info = Info::new(&index)?;
    if args.json {
        return info.write_json(out);
    }
    info.write_tables(out).context(CANNOT_WRITE)
}

impl<'a> Info<'a> {
    fn new(index: &'a Index) -> Result<Self, IndexError> {
        let mut columns = Vec::new();
        for field in &index.schema().fields {
            let digits = 0..field.columns.len();
            columns.extend(digits.map(|digit| ColumnInfo { field, digit, keys: 0, bytes: 0 }));
        }
        let kinds = [
            SectionKind::Keys,
            SectionKind::Offsets,
            SectionKind::Bitmaps,
            SectionKind::RowMap,
            SectionKind::Times,
            SectionKind::Marks,
            SectionKind::Note,
            SectionKind::Sums,
        ];
        let mut bytes_of = kinds.map(|kind| (kind.name(), 0));
        let mut rest = index.len_bytes();
        for section in index.sections() {
            if let Some(column) = section.column.and_then(|column| columns.get_mut(column)) {
                column.bytes += section.len_bytes;
                if section.kind == Some(SectionKind::Keys) {
                    column.keys = section.len_bytes / 2;
                }
            }
            if let Some(kind) = kinds.iter().position(|&kind| section.kind == Some(kind)) {
                bytes_of[kind].1 += section.len_bytes;
                rest -= section.len_bytes;
            }
        }
        // Tables have neither marks nor a note nor checksums of packets.
        let is_shown = |&(n, _): &(usize, (&str, u64))| n < 5 || bytes_of[n].1 > 0;
        let shown = bytes_of.into_iter().enumerate().filter(is_shown);
        let mut sections: Vec<_> = shown.map(|(_, section)| section).collect();
        sections.push(("rest", rest));
        Ok(Self { index, times: times(index)?, columns, sections })
    }

    /// The columns, field by field.
    fn fields(&self) -> impl Iterator<Item = &[ColumnInfo<'a>]> {
        self.columns.chunk_by(|_, next| next.digit > 0)
    }

    fn bytes_a_row(&self, bytes: u64) -> Option<String> {
        let rows = self.index.rows();
        (rows > 0).then(|| format!("{:.3}", bytes as f64 / f64::from(rows)))
    }

    fn percent(&self, bytes: u64) -> String {
        format!("{:.1}", 100.0 * bytes as f64 / self.index.len_bytes() as f64)
    }

    fn write_tables(&self, out: &mut dyn Write) -> io::Result<()> {
        let (rows, order) = (self.index.rows(), self.index.row_order().name());
        writeln!(out, "rows {rows}, order {order}, format version {}", self.index.version())?;
        if let Some((first, last)) = self.times {
            writeln!(out, "times {first} to {last}")?;
        }
        writeln!(out)?;
        let numbers = |bytes| {
            let a_row = self.bytes_a_row(bytes).unwrap_or("-".to_owned());
            [bytes.to_string(), a_row, self.percent(bytes)]
        };
        let mut lines: Vec<Vec<String>> = Vec::new();
        let column_line = |name: String, column: &ColumnInfo<'_>| {
            let spec = column.field.columns[column.digit];
            let codec = match spec.codec.parameter() {
                0 => spec.codec.to_string(),
                w => format!("{} w {w}", spec.codec),
            };
            let line = [name, spec.width.bits().to_string(), codec, column.keys.to_string()];
            line.into_iter().chain(numbers(column.bytes)).collect()
        };
        for columns in self.fields() {
            let name = shown_whole(&columns[0].field.name);
            if let [only] = columns {
                lines.push(column_line(name, only));
                continue;
            }
            let bytes = columns.iter().map(|column| column.bytes).sum();
            let head = [name, columns[0].field.bits().to_string(), String::new(), String::new()];
            lines.push(head.into_iter().chain(numbers(bytes)).collect());
            let digits = columns.iter().map(|c| column_line(format!("  digit {}", c.digit), c));
            lines.extend(digits);
        }
        let headings = [
            ("field", Align::Left),
            ("bits", Align::Right),
            ("codec", Align::Left),
            ("keys", Align::Right),
            ("bytes", Align::Right),
            ("bytes a row", Align::Right),
            ("percent", Align::Right),
        ];
        table::write(out, &headings, || lines.iter().cloned())?;
        writeln!(out)?;
        let total = ("total", self.index.len_bytes());
        let line = |&(name, bytes): &(&str, u64)| {
            [name.to_owned()].into_iter().chain(numbers(bytes)).collect()
        };
        let lines: Vec<Vec<String>> = self.sections.iter().chain([&total]).map(line).collect();
        let headings = [
            ("section", Align::Left),
            ("bytes", Align::Right),
            ("bytes a row", Align::Right),
            ("percent", Align::Right),
        ];
        table::write(out, &headings, || lines.iter().cloned())
    }

    fn write_json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let index = self.index;
        let head = json::IndexFile {
            rows: index.rows(),
            order: index.row_order().name(),
            version: index.version(),
            bytes: index.len_bytes(),
            times: self.times.map(|(first, last)| json::Times { first, last }),
        };
        json::line(out, &head)?;
        let size = |bytes| json::Size {
            bytes,
            bytes_per_row: self.bytes_a_row(bytes).map(Rounded),
            percent: Rounded(self.percent(bytes)),
        };
        for columns in self.fields() {
            let line = json::TableField {
                field: &columns[0].field.name,
                bits: columns[0].field.bits(),
                columns: columns.len(),
                size: size(columns.iter().map(|column| column.bytes).sum()),
            };
            json::line(out, &line)?;
        }
        for column in &self.columns {
            let spec = column.field.columns[column.digit];
            let line = json::TableColumn {
                field: &column.field.name,
                digit: column.digit,
                bits: spec.width.bits(),
                codec: spec.codec.name(),
                w: Some(spec.codec.parameter()).filter(|&w| w > 0),
                keys: column.keys,
                size: size(column.bytes),
            };
            json::line(out, &line)?;
        }
        for &(section, bytes) in &self.sections {
            json::line(out, &json::Section { section, size: size(bytes) })?;
        }
        Ok(())
    }
}

/// A name in full, safe for a terminal.
fn shown_whole(name: &str) -> String {
    name.escape_debug().to_string()
}

/// The first and the last time, if there are any.
fn times(index: &Index) -> Result<Option<(u64, u64)>, IndexError> {
    let Some(times) = index.times()?.filter(|times| !times.is_empty()) else {
        return Ok(None);
    };
    if times.is_ascending() {
        return Ok(Some((times.get(0)?, times.get(times.len() - 1)?)));
    }
    let mut range = (u64::MAX, 0);
    for time in times.iter() {
        let time = time?;
        range = (range.0.min(time), range.1.max(time));
    }
    Ok(Some(range))
}
