//! Reports what is missing from an answer.

use tapdex_answers::missing::{Missing, sum};

use super::{Incomplete, note};

/// Whether an answer may lack something.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct AllowArg {
    /// Exit with 0 even if packets are missing; they are still reported.
    #[arg(long)]
    pub(crate) allow_incomplete: bool,
}

/// Reports what is missing; returns an error if the answer is incomplete and that is not allowed.
pub(crate) fn report(missing: &[Missing], allow: AllowArg) -> anyhow::Result<()> {
    for one in missing {
        note(&one.text());
    }
    end(missing, allow)
}

/// An error if packets are missing and that is not allowed.
pub(crate) fn end(missing: &[Missing], allow: AllowArg) -> anyhow::Result<()> {
    match missing.is_empty() || allow.allow_incomplete {
        true => Ok(()),
        false => Err(Incomplete(sum(missing)).into()),
    }
}
