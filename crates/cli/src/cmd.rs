//! The subcommands, one file each, and shared code.

use std::io::{self, Write};
use std::path::Path;

pub(crate) use tapdex_answers::counted;
pub(crate) use tapdex_engine::chain;

use tapdex_engine::archive::Segment;

pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod codec;
pub(crate) mod completion;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod extcap;
pub(crate) mod extract;
pub(crate) mod flows;
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
pub(crate) mod serve;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod upgrade;
pub(crate) mod verify;

mod ask;
mod csv;
mod device;
mod filter_file;
mod follow;
mod interrupt;
pub(crate) mod json;
mod missing;
pub(crate) mod output;
pub(crate) mod progress;
mod temporary;

pub(crate) const CANNOT_READ: &str = "cannot read standard input";
pub(crate) const CANNOT_WRITE: &str = "cannot write standard output";

/// A command found damage and has printed the details.
#[derive(Debug)]
pub(crate) struct Damaged(pub(crate) String);

impl std::fmt::Display for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damaged {}

/// A command could not read everything and has printed the details.
#[derive(Debug)]
pub(crate) struct Incomplete(pub(crate) String);

impl std::fmt::Display for Incomplete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "incomplete: {}", self.0)
    }
}

impl std::error::Error for Incomplete {}

/// A command was interrupted.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// No packet matches, and the user asked for an exit code.
#[derive(Debug)]
pub(crate) struct Nothing;

impl std::fmt::Display for Nothing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no packet matches")
    }
}

impl std::error::Error for Nothing {}

/// Marks an error that was reported already.
#[derive(Debug)]
pub(crate) struct Logged;

impl std::fmt::Display for Logged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("told already")
    }
}

/// A path for messages: canonical, and relative to the current folder if it is below it.
pub(crate) fn shown_path(path: &Path) -> String {
    // The file may not exist yet, but its folder does.
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

/// The path of a segment's capture for messages, with the name it has once it is complete.
pub(crate) fn shown_packets(segment: &Segment) -> String {
    match segment.is_draft() {
        true => shown_path(&segment.note().source.absolute_path()),
        false => shown_path(&segment.packet_path()),
    }
}

/// Prints a message on standard error; standard output is for data. The text may contain file names
/// and bytes of captures, so control characters are escaped, except line ends before an indent.
pub(crate) fn note(text: &str) {
    write_note(&escaped_note(text));
}

/// The line that [`note`] writes.
pub(crate) fn escaped_note(text: &str) -> String {
    let lines: Vec<String> = text.split("\n  ").map(escaped).collect();
    format!("tapdex: {}\n", lines.join("\n  "))
}

/// The same for our own text with any number of lines.
pub(crate) fn note_lines(text: &str) {
    let lines: Vec<String> = text.split('\n').map(escaped).collect();
    write_note(&format!("tapdex: {}\n", lines.join("\n")));
}

fn write_note(lines: &str) {
    // If this fails there is nobody left to tell, and the work can go on. Written in one call, so
    // that no other output comes between.
    progress::beside(|| {
        drop(io::stderr().write_all(lines.as_bytes()));
    });
}

/// Text on one line, with control characters escaped.
pub(crate) fn escaped(text: &str) -> String {
    tapdex_report::table::escaped(text)
}

/// Input text for a message: escaped and shortened.
pub(crate) fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 40;
    let start = &text[..text.len().min(SHOWN_BYTES_MAX)];
    let dots = if start.len() < text.len() { ".." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(start).escape_debug())
}
