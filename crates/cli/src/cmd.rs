//! The subcommands, one file each, and what they share.

use std::io::{self, Write};

pub(crate) mod codec;
pub(crate) mod index_file;
mod interrupt;
mod progress;
mod table;

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

/// Tells the user something on standard error; standard output is for data.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told when this fails, and the work itself can go on.
    // In one piece, or other output on the same terminal comes between.
    drop(io::stderr().write_all(format!("tapdex: {text}\n").as_bytes()));
}

/// Text of the input for a message: fit for a terminal and not too long.
pub(crate) fn shown(text: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 40;
    let start = &text[..text.len().min(SHOWN_BYTES_MAX)];
    let dots = if start.len() < text.len() { ".." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(start).escape_debug())
}
