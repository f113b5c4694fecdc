//! `tapdex repair`: damaged indexes are made again from the packets.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tapdex_engine::archive::{Archive, ArchiveError, Progress as Done, Repair};

use super::ask::ArchiveArg;
use super::progress::QuietArg;
use super::{Incomplete, Interrupted, chain, counted, interrupt, note};

/// Index again what is damaged.
///
/// Checks all indexes, and makes those again that are damaged or whose packets have changed. The
/// damaged file is replaced when the other one is complete. Also removes what killed processes have
/// left behind, and writes archive.toml again if it is missing or damaged:
///
///     tapdex repair
///     tapdex repair -r archive
///     tapdex repair -r archive captures/a.pcap more-captures
///
/// An index that is damaged badly does not say which capture it was made of. That is looked for
/// among those of the other segments, in the folders of those, beside the archive, and in the files
/// and folders that are named. If it is not found, the index stays as it is, and the exit code is
/// 3.
///
/// A capture that is damaged itself cannot be repaired; it is indexed up to the damage. Packets
/// that have another checksum than when they were indexed are named, and their index stays as it
/// is, so that the damage is not forgotten; the exit code is 3.
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
    let (archive, mended) = Archive::mend(&args.archive.archive)?;
    if let Some(done) = mended {
        note(&done);
    }
    // Without a handler the process ends at once, and the next run clears up.
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
            note("interrupted; what was finished is kept, run it again to go on");
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
                note(&format!("{path}: indexed {} packets, then: {damage}", file.packets));
            }
            (None, None) => note(&format!("{path}: indexed again, {} packets", file.packets)),
        }
    }
    for path in &report.removed {
        note(&format!("removed {}", path.display()));
    }
    for (path, message) in &report.left {
        note(&format!("{}: left as it is: {message}", path.display()));
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
