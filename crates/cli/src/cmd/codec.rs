//! `tapdex codec`: encodes and decodes sets of ids.

mod explain;
pub(super) mod form;
pub(super) mod ids;
mod sample;
mod stats;
mod words;

use std::io::{BufRead, Write};
use std::str::FromStr;

use anyhow::Context;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use tapdex_bitmap::{ALL_CODECS, Codec, UnknownCodec, encode_auto};
use tapdex_report::table::{self, Align};

use super::{CANNOT_READ, CANNOT_WRITE, note};

/// Try out the codecs: sets of row ids as compressed bitmaps.
///
/// A set is text with one id or range per line, such as 7 or 44-80, in ascending order; blank lines
/// and comments after # are ignored. An encoded set is text with one little-endian 32-bit word per
/// line, in hex, or bytes with --raw. All commands read standard input and write standard output:
///
///     printf '44-80\n168-171\n' | tapdex codec encode --codec masc --rows 217
///     printf '0000002D C0000026 48000059' | tapdex codec decode --codec masc --rows 217
///     printf '0000002D C0000026 48000059' | tapdex codec explain --codec masc
///     tapdex codec sample --family uniform --density 0.001 | tapdex codec stats
///
/// docs/codecs/ has a page for each codec: its layout, its rules and worked examples.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the codecs: number in files, name, summary, page.
    #[command(verbatim_doc_comment)]
    List,
    Encode(EncodeArgs),
    Decode(DecodeArgs),
    Explain(explain::Args),
    Stats(stats::Args),
    Sample(sample::Args),
}

/// Encode a set of ids.
///
/// Reads one id or range per line, ascending, and prints the words of the encoded set in hex:
///
///     printf '44-80\n168-171\n' | tapdex codec encode --codec wah --rows 217
///     printf '31-32\n127\n' | tapdex codec encode --codec hipes --rows 128 --w 7
///     tapdex codec sample | tapdex codec encode --codec roaring --rows 1000000 --raw > set
///
/// If the bytes are not whole words, as can happen with roaring, the last line has two digits for
/// each remaining byte, also as a little-endian number: the bytes 01 02 03 are 030201.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct EncodeArgs {
    /// Codec to use; auto uses the smallest and names it on standard error.
    #[arg(long, value_name = "NAME", value_parser = choice_parser(AUTO_HELP))]
    codec: Choice,
    /// Number of rows, up to 4294967295; all ids must be smaller.
    #[arg(long, value_name = "N")]
    rows: u32,
    #[command(flatten)]
    options: form::Options,
    /// Write bytes instead of hex words.
    #[arg(long)]
    raw: bool,
}

/// Decode a set of ids.
///
/// Reads hex words, separated by spaces or line ends, and prints the ids as ranges:
///
///     printf '40000380 80000002 001FFFFF 78000000' | tapdex codec decode --codec wah --rows 128
///     printf '50000FF7 C0000008' | tapdex codec decode --codec masc --rows 8000 --windowed
///     tapdex codec decode --codec roaring --rows 1000000 --raw < set
///
/// A word may start with 0x. The last one may have 2, 4 or 6 digits, for the bytes after the last
/// whole word. The words contain neither the codec nor --rows nor --w: give those that they were
/// encoded with. Words that the encoder would not write are rejected.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct DecodeArgs {
    /// Codec of the words.
    #[arg(long, value_name = "NAME", value_parser = codec_parser())]
    codec: Codec,
    /// Number of rows, up to 4294967295; a larger id is an error.
    #[arg(long, value_name = "N")]
    rows: u32,
    #[command(flatten)]
    options: form::Options,
    /// Read bytes instead of hex words.
    #[arg(long)]
    raw: bool,
}

/// A codec that was named, or `auto` for the smallest.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    Auto,
    One(Codec),
}

impl FromStr for Choice {
    type Err = UnknownCodec;

    fn from_str(name: &str) -> Result<Self, UnknownCodec> {
        match name {
            "auto" => Ok(Choice::Auto),
            name => name.parse().map(Choice::One),
        }
    }
}

const AUTO_HELP: &str = "the smallest of them";

fn possible_value(codec: Codec) -> PossibleValue {
    PossibleValue::new(codec.name()).help(codec.summary())
}

/// Takes the name of a codec; help and errors list them all.
fn codec_parser() -> impl TypedValueParser<Value = Codec> {
    PossibleValuesParser::new(ALL_CODECS.map(possible_value)).try_map(|name| name.parse::<Codec>())
}

pub(super) fn choice_parser(auto_help: &'static str) -> impl TypedValueParser<Value = Choice> {
    let auto = PossibleValue::new("auto").help(auto_help);
    let values = ALL_CODECS.map(possible_value).into_iter().chain([auto]);
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Choice>())
}

/// Runs the command; `out` is standard output, or a buffer in tests.
pub(crate) fn run(args: &Args, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        Command::List => list(out),
        Command::Encode(args) => encode(args, input, out),
        Command::Decode(args) => decode(args, input, out),
        Command::Explain(args) => explain::run(args, input, out),
        Command::Stats(args) => stats::run(args, input, out),
        Command::Sample(args) => sample::run(args, out),
    }
}

fn list(out: &mut dyn Write) -> anyhow::Result<()> {
    let headings = [
        ("id", Align::Right),
        ("name", Align::Left),
        ("summary", Align::Left),
        ("page", Align::Left),
    ];
    let rows = || {
        ALL_CODECS.into_iter().map(|codec| {
            let name = codec.name().to_owned();
            let page = format!("docs/codecs/{name}.md");
            vec![(codec.id() as u8).to_string(), name, codec.summary().to_owned(), page]
        })
    };
    table::write(out, &headings, rows).context(CANNOT_WRITE)
}

fn encode(args: &EncodeArgs, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<()> {
    // Checked before the input is read: nobody should type ids only to learn about a wrong flag.
    let form = match args.codec {
        Choice::Auto => {
            args.options.check(None)?;
            None
        }
        Choice::One(codec) => Some(args.options.form(codec)?),
    };
    let ids = ids::read(input, Some(args.rows))?;
    let mut bytes = Vec::new();
    match form {
        Some(form) => form.encode(&ids, &mut bytes),
        None => {
            let codec = encode_auto(&ids, &mut bytes);
            note(&format!("used {codec}, {} bytes", bytes.len()));
        }
    }
    let written = if args.raw { out.write_all(&bytes) } else { words::write(&bytes, out) };
    written.context(CANNOT_WRITE)
}

fn decode(args: &DecodeArgs, input: &mut dyn BufRead, out: &mut dyn Write) -> anyhow::Result<()> {
    let form = args.options.form(args.codec)?;
    let bytes = read_encoded(args.raw, input)?;
    match form.chunks(&bytes, args.rows) {
        Ok(chunks) => ids::write_chunks(chunks, out).context(CANNOT_WRITE),
        Err(error) => Err(form::refusal(form, &bytes, args.rows, &error)),
    }
}

/// The encoded bytes, given as they are or as hex words.
fn read_encoded(raw: bool, input: &mut dyn BufRead) -> anyhow::Result<Vec<u8>> {
    if !raw {
        return words::read(input);
    }
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).context(CANNOT_READ)?;
    Ok(bytes)
}

/// Reads input line by line into one buffer.
struct Lines<'i> {
    input: &'i mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
}

impl<'i> Lines<'i> {
    fn new(input: &'i mut dyn BufRead) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// The next line and its number, from 1; `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<(u64, &[u8])>> {
        self.line.clear();
        let len = self.input.read_until(b'\n', &mut self.line).context(CANNOT_READ)?;
        self.number += 1;
        Ok((len > 0).then_some((self.number, &self.line)))
    }
}
