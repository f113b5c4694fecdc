//! The subcommands, one file each, and what they share.

use std::io::{self, Write};

pub(crate) mod codec;
mod table;

pub(crate) const CANNOT_READ: &str = "cannot read standard input";
pub(crate) const CANNOT_WRITE: &str = "cannot write standard output";

/// Tells the user something on standard error; standard output is for data.
pub(crate) fn note(text: &str) {
    // Nobody is left to be told when this fails, and the work itself can go on.
    drop(writeln!(io::stderr(), "tapdex: {text}"));
}
