//! `tapdex repair`: rebuilds damaged indexes from the packets.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tapdex_engine::archive::{Archive, ArchiveError, Progress as Done, Repair};

use super::ask::ArchiveArg;
use super::progress::QuietArg;
use super::{Incomplete, Interrupted, chain, counted, interrupt, note};

/// Rebuild damaged indexes.
///
/// Checks all indexes, and rebuilds those that are damaged or whose packets have changed. A damaged
/// index is replaced when the new one is complete. Also removes temporary files of killed
/// processes, and restores archive.toml if it is missing or damaged:
///
///     tapdex repair
///     tapdex repair -r archive
///     tapdex repair -r archive captures/a.pcap more-captures
///
/// A badly damaged index does not say which capture it belongs to. repair then looks for the
/// capture among those of the other segments, in their folders, beside the archive, and in the
/// files and folders given as arguments. If it is not found, the index stays as it is, and the exit
/// code is 3.
///
/// Damaged captures cannot be repaired; they are indexed up to the damage. If the checksum of
/// packets differs, they are listed, and their index stays as it is, so that searches keep
/// reporting the damage; the exit code is 3.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    archive: ArchiveArg,
    /// Captures, or folders of captures, that damaged indexes may belong to.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check only what is needed to open the indexes.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    quiet: QuietArg,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (archive, mended) = Archive::mend(args.archive.folder()?)?;
    if let Some(done) = mended {
        note(&done);
    }
    // Without a handler the process ends at once, and the next run cleans up.
    interrupt::handle(|| STOP.store(true, Ordering::Relaxed));
    let progress = args.quiet.progress();
    let checked = |done: usize, all: usize| {
        let text = |_| format!("{done} of {all} indexes checked");
        progress.show_of(done as u64, all as u64, text);
    };
    let is_indexing = AtomicBool::new(false);
    let indexed = |done: Done| {
        if !is_indexing.swap(true, Ordering::Relaxed) {
            progress.stage("indexing again");
        }
        let text = |_| format!("{} packets indexed", done.packets);
        progress.show_of(done.bytes, done.bytes_total, text);
    };
    let repair = Repair::new(&archive).extra(&args.files).quick(args.quick).stop(&STOP);
    let result = repair.checked(&checked).progress(&indexed).run();
    drop(progress);
    let report = match result {
        Err(ArchiveError::Interrupted) => {
            note("interrupted; finished segments are kept: run the command again to continue");
            return Err(Interrupted.into());
        }
        result => result?,
    };
    for recovered in &report.recovered {
        note(&super::record::recovered_text(recovered));
    }
    for (_, message) in &report.problems {
        note(message);
    }
    for file in &report.captures {
        let path = file.path.display();
        match (&file.error, &file.damage) {
            (Some(error), _) => note(&chain(error)),
            (None, Some(damage)) => {
                note(&format!(
                    "{path}: indexed {} packets up to the damage: {damage}",
                    file.packets
                ));
            }
            (None, None) => note(&format!("{path}: indexed again, {} packets", file.packets)),
        }
    }
    for path in &report.removed {
        note(&format!("removed {}", path.display()));
    }
    for (path, message) in &report.left {
        note(&format!("{}: not repaired: {message}", path.display()));
    }
    let segments = counted(report.segments as u64, "segment");
    let captures = report.captures.iter().filter(|file| file.error.is_none()).count();
    match report.problems.len() {
        0 => args.quiet.note(&format!("{segments}, none damaged")),
        damaged => note(&format!(
            "{segments}, {damaged} damaged; {} indexed again",
            counted(captures as u64, "capture")
        )),
    }
    match report.left.len() {
        0 => Ok(()),
        1 => Err(Incomplete("1 segment could not be repaired".into()).into()),
        n => Err(Incomplete(format!("{n} segments could not be repaired")).into()),
    }
}
