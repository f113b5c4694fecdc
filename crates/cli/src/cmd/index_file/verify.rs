//! `tapdex index-file verify`: checks an index file.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use tapdex_engine::index::Index;

use crate::cmd::progress::QuietArg;
use crate::cmd::{CANNOT_WRITE, Damaged, chain};

/// Check a whole index file and list what is wrong with it.
///
/// Checks all checksums, that keys and offsets ascend, that each bitmap is valid, that each row is
/// in exactly one bitmap of each column, and that the row map and times are complete:
///
///     tapdex index-file verify flows.tdx
///
/// Prints one problem per line, at most a hundred, and exits with 3 if there are any. A damaged
/// file cannot be repaired; build it again.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Index file.
    #[arg(value_name = "INDEX")]
    path: PathBuf,
    #[command(flatten)]
    quiet: QuietArg,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let index = Index::open(&args.path)?;
    let progress = args.quiet.progress();
    let (mut done, total) = (0, index.len_bytes());
    let verified = index.verify(&mut |section| {
        done += section.len_bytes;
        progress.show_of(done, total, |_| format!("{done} of {total} bytes checked"));
    });
    drop(progress);
    for problem in &verified.problems {
        writeln!(out, "{}", chain(problem)).context(CANNOT_WRITE)?;
    }
    if verified.problems_more > 0 {
        writeln!(out, "{} more", verified.problems_more).context(CANNOT_WRITE)?;
    }
    if verified.is_sound() {
        let (sections, bitmaps) = (verified.sections, verified.bitmaps);
        if !args.quiet.quiet {
            writeln!(out, "sound: {sections} sections, {bitmaps} bitmaps, {total} bytes")
                .context(CANNOT_WRITE)?;
        }
        return Ok(());
    }
    let count = verified.problems.len() as u64 + verified.problems_more;
    let problems = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
    Err(Damaged(format!("{} is damaged: {problems}", args.path.display())).into())
}
