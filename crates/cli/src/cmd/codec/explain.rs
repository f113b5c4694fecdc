//! `tapdex codec explain`: shows the meaning of each word.

use std::io::{BufRead, Write};

use anyhow::Context;
use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::Explained;
use tapdex_bitmap::codec::masc::Windowed;
use tapdex_report::table::{self, Align};

use super::form::{self, Form};
use super::{codec_parser, read_encoded, words};
use crate::cmd::CANNOT_WRITE;

/// Show the meaning of each encoded word.
///
/// Reads hex words like decode and prints a line for each word or part: its offset in bytes, its
/// value, the rows it covers, its kind and its fields:
///
///     printf '80000001 0003FFFF 7FFFF000' | tapdex codec explain --codec wah
///     printf '42000005 00000FF9 00001000 42000042' | tapdex codec explain --codec masc --windowed
///
/// Invalid words are shown, too. With --rows, the words are also checked: errors are printed on
/// standard error, and the line of the error is marked with >. With --windowed, each word is shown
/// with its entry in the query table, or - if the stream is not valid. Parts of more than 8 bytes
/// are shown as .. and words of hipes without a row are left out.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Codec of the words.
    #[arg(long, value_name = "NAME", value_parser = codec_parser())]
    codec: Codec,
    /// Number of rows, up to 4294967295; checks the words.
    #[arg(long, value_name = "N")]
    rows: Option<u32>,
    #[command(flatten)]
    options: form::Options,
    /// Read bytes instead of hex words.
    #[arg(long)]
    raw: bool,
}

pub(super) fn run(args: &Args, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<()> {
    let form = args.options.form(args.codec)?;
    let bytes = read_encoded(args.raw, input)?;
    let refused = args.rows.and_then(|rows| Some((rows, form.chunks(&bytes, rows).err()?)));
    let marked = refused.as_ref().map(|(_, error)| error.offset());
    write(form, &bytes, marked, out).context(CANNOT_WRITE)?;
    match refused {
        Some((rows, error)) => Err(form::refusal(form, &bytes, rows, &error)),
        None => Ok(()),
    }
}

/// Writes the table. With `marked`, the line of that offset has a mark.
fn write(
    form: Form,
    bytes: &[u8],
    marked: Option<usize>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let mut lines = form.codec().explain(bytes);
    lines.extend(rest(form.codec(), &lines, bytes.len()));
    let windowed = match form {
        Form::Windowed => Some(Windowed::open(bytes, u32::MAX).ok()),
        Form::Whole(_) => None,
    };

    let mut headings = vec![("offset", Align::Right), ("word", Align::Left)];
    if marked.is_some() {
        headings.insert(0, ("", Align::Left));
    }
    if windowed.is_some() {
        headings.push(("entry", Align::Left));
    }
    headings.extend([("rows", Align::Left), ("kind", Align::Left), ("fields", Align::Left)]);

    let rows = || {
        lines.iter().enumerate().map(|(index, line)| {
            let mut cells = Vec::with_capacity(headings.len());
            if let Some(place) = marked {
                let here = line.offset..line.offset + line.width;
                cells.push(if here.contains(&place) { ">" } else { "" }.to_owned());
            }
            cells.push(line.offset.to_string());
            cells.push(word(line, bytes));
            if let Some(windowed) = &windowed {
                let entry = windowed.as_ref().and_then(|windowed| windowed.table().get(index));
                cells.push(entry.map_or("-".to_owned(), |entry| format!("{entry:04X}")));
            }
            cells.push(match line.rows {
                Some((first, last)) if first == last => first.to_string(),
                Some((first, last)) => format!("{first}-{last}"),
                None => "-".to_owned(),
            });
            cells.push(line.kind.to_owned());
            let fields = line.fields.iter().map(|(name, value)| format!("{name} {value}"));
            cells.push(fields.collect::<Vec<_>>().join(", "));
            cells
        })
    };
    table::write(out, &headings, rows)
}

/// The bytes of a line as a number.
fn word(line: &Explained, bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 8;
    match bytes.get(line.offset..line.offset + line.width) {
        Some([]) => "-".to_owned(),
        Some(shown) if shown.len() <= SHOWN_BYTES_MAX => words::hex(shown),
        _ => "..".to_owned(),
    }
}

/// A line for bytes at the end that the codec could not interpret.
fn rest(codec: Codec, lines: &[Explained], len_bytes: usize) -> Option<Explained> {
    let offset = match codec {
        // The last words of a chunk have no line if they are empty, so lines do not show where a
        // chunk ends.
        Codec::Hipes(width) => len_bytes / width.chunk_bytes() * width.chunk_bytes(),
        _ => lines.last().map_or(0, |line| line.offset + line.width),
    };
    let width = len_bytes.checked_sub(offset).filter(|&width| width > 0)?;
    let fields = vec![("bytes", width as u64)];
    Some(Explained { offset, width, kind: "rest", fields, ..Explained::default() })
}
