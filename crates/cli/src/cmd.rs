//! The subcommands, one file each, and what they share.

use std::io::{self, Write};
use std::path::Path;

pub(crate) use tapdex_engine::chain;

use tapdex_engine::archive::Segment;

pub(crate) mod bench;
pub(crate) mod codec;
pub(crate) mod completion;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod extract;
pub(crate) mod r#gen;
pub(crate) mod hist;
pub(crate) mod index;
pub(crate) mod index_file;
pub(crate) mod info;
pub(crate) mod man;
pub(crate) mod record;
pub(crate) mod repair;
pub(crate) mod replay;
pub(crate) mod search;
pub(crate) mod top;
pub(crate) mod verify;

mod ask;
mod device;
mod filter_file;
mod follow;
mod interrupt;
pub(crate) mod json;
mod missing;
pub(crate) mod output;
mod packet_line;
pub(crate) mod progress;

pub(crate) const CANNOT_READ: &str = "cannot read standard input";
pub(crate) const CANNOT_WRITE: &str = "cannot write standard output";

/// The end of a command that found damage: what it had to say is in its output.
#[derive(Debug)]
pub(crate) struct Damaged(pub(crate) String);

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damaged {}

/// The end of a command that could not look at everything; the rest is in its output.
#[derive(Debug)]
pub(crate) struct Incomplete(pub(crate) String);

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "incomplete: {}", self.0)
    }
}

impl std::error::Error for Incomplete {}

/// The end of a command that was told to stop.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The end of a command that found nothing and was asked to say so.
#[derive(Debug)]
pub(crate) struct Nothing;

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no packet matches")
    }
}

impl std::error::Error for Nothing {}

/// Marks an error that was told already.
#[derive(Debug)]
pub(crate) struct Logged;

impl std::fmt::Display for Logged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("told already")
    }
}

/// A number and what it counts: 1 packet, 2 packets.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// An object of JSON, from names and values that are JSON already.
pub(crate) fn json_object(members: &[(&str, String)]) -> String {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

/// A path for people: from the current folder if it lies below that, and without detours.
pub(crate) fn shown_path(path: &Path) -> String {
    // It may not be there yet, but its folder is.
    let folder = path.parent().zip(path.file_name());
    let real = path
        .canonicalize()
        .ok()
        .or_else(|| folder.and_then(|(folder, name)| Some(folder.canonicalize().ok()?.join(name))));
    let Some(real) = real else { return path.display().to_string() };
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).ok();
    let below = here.as_deref().and_then(|here| real.strip_prefix(here).ok());
    below.unwrap_or(&real).display().to_string()
}

/// The file with a segment's packets for people, by the name that it has when it is complete.
pub(crate) fn shown_packets(segment: &Segment) -> String {
    match segment.is_draft() {
        true => shown_path(&segment.note().source.absolute_path()),
        false => shown_path(&segment.packet_path()),
    }
}

/// Tells the user something on standard error; standard output is for data. What it says may come
/// from captures and names of files: only lines that are indented are lines of their own.
pub(crate) fn note(text: &str) {
    write_note(&escaped_note(text));
}

/// The line that [`note`] writes.
pub(crate) fn escaped_note(text: &str) -> String {
    let lines: Vec<String> = text.split("\n  ").map(escaped).collect();
    format!("tapdex: {}\n", lines.join("\n  "))
}

/// The same for text that nobody else has a part in, of any number of lines.
pub(crate) fn note_lines(text: &str) {
    let lines: Vec<String> = text.split('\n').map(escaped).collect();
    write_note(&format!("tapdex: {}\n", lines.join("\n")));
}

fn write_note(lines: &str) {
    // Nobody is left to be told when this fails, and the work itself can go on.
    // In one piece, or other output on the same terminal comes between.
    progress::beside(|| {
        drop(io::stderr().write_all(lines.as_bytes()));
    });
}

/// Text for a terminal on one line: control characters are escaped.
pub(crate) fn escaped(text: &str) -> String {
    tapdex_report::table::escaped(text)
}

/// Text of the input for a message: fit for a terminal and not too long.
pub(crate) fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 40;
    let start = &text[..text.len().min(SHOWN_BYTES_MAX)];
    let dots = if start.len() < text.len() { ".." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(start).escape_debug())
}
