//! `tapdex upgrade`: writes segments of older versions anew.

use std::sync::atomic::{AtomicBool, Ordering};

use tapdex_engine::archive::{Archive, ArchiveError, Upgrade};

use super::ask::ArchiveArg;
use super::progress::QuietArg;
use super::{Incomplete, Interrupted, counted, interrupt, note};

/// Rewrite indexes of older versions.
///
/// Older versions of tapdex wrote larger indexes. They can be searched as they are. upgrade writes
/// them as index would write them now. It reads only indexes, so the captures need not be there:
///
///     tapdex upgrade
///     tapdex upgrade -r archive
///
/// An index is replaced when the new one is complete. After Ctrl-C or a crash each index is the old
/// one or the new one; run the command again to continue. Searches, index and record can run at the
/// same time. Older versions of tapdex cannot read the new indexes. Run it as the user who records
/// or indexes: the new files belong to whoever runs it.
///
/// The new index has the fields that the old one has. If frame.len is not one of them, flows still
/// reads packets to sum up their bytes; index --force changes that. A damaged index is named and
/// stays as it is, and the exit code is 3: tapdex repair rebuilds it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    archive: ArchiveArg,
    #[command(flatten)]
    quiet: QuietArg,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let archive = Archive::open(args.archive.folder()?)?;
    // Without a handler the process ends at once, and the next run cleans up.
    interrupt::handle(|| STOP.store(true, Ordering::Relaxed));
    let progress = args.quiet.progress();
    let done = |done: usize, all: usize| {
        progress.show_of(done as u64, all as u64, |_| format!("{done} of {all} segments"));
    };
    let result = Upgrade::new(&archive).stop(&STOP).progress(&done).run();
    drop(progress);
    let report = match result {
        Err(ArchiveError::Interrupted) => {
            note("interrupted; finished segments are kept: run the command again to continue");
            return Err(Interrupted.into());
        }
        result => result?,
    };
    for (path, why) in &report.failed {
        note(&format!("{}: not upgraded: {why}", path.display()));
    }
    let segments = counted(report.segments as u64, "segment");
    args.quiet.note(&match report.upgraded {
        0 => format!("{segments}, none upgraded"),
        upgraded => format!(
            "{segments}, {upgraded} upgraded: {} -> {}",
            size(report.bytes_before),
            size(report.bytes_after)
        ),
    });
    match report.failed.len() {
        0 => Ok(()),
        n => {
            let what = counted(n as u64, "segment");
            Err(Incomplete(format!("{what} could not be upgraded")).into())
        }
    }
}

/// A number of bytes, to two digits or more.
fn size(bytes: u64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let number = bytes as f64;
    match units.into_iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", number / unit),
        None => counted(bytes, "byte"),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_a_unit() {
        let sizes = [0, 1, 999, 1_000, 4_123_456, 2_050_000_000].map(size);
        assert_eq!(sizes, ["0 bytes", "1 byte", "999 bytes", "1.0 kB", "4.1 MB", "2.0 GB"]);
    }
}
