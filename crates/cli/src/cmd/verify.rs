//! `tapdex verify`: checks an archive.

use std::io::Write;

use anyhow::Context;
use tapdex_answers::missing::missing as missing_of;
use tapdex_engine::archive::{Archive, ArchiveError, Compared, Segment};
use tapdex_engine::time::TimeRange;

use super::ask::{ArchiveArg, line};
use super::missing::{self, AllowArg};
use super::progress::{Progress, QuietArg};
use super::{CANNOT_WRITE, Damaged, chain, counted};

/// Check an archive and list what is wrong with it.
///
/// Checks all checksums of every segment, and that each row is in exactly one bitmap of each
/// column. Then reads all packets and compares them with the index: checksums, positions, times,
/// and the fields of their headers. Packets of captures that were indexed without --sums have no
/// checksums; they are counted.
///
///     tapdex verify
///     tapdex verify -r archive --quick
///
/// Prints one problem per line, and exits with 3 if there are any. tapdex repair rebuilds damaged
/// indexes, but cannot restore packets. Also prints which packets searches would report as missing,
/// whether lost, removed or cut off. If only those are wrong, --allow-incomplete makes the exit
/// code 0. With --quick, only what is needed to open an index is checked, and the first and last
/// bytes of its capture.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    archive: ArchiveArg,
    #[command(flatten)]
    allow: AllowArg,
    /// Check only what is needed to open the indexes, and the ends of the packet files.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    quiet: QuietArg,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let archive = Archive::open(args.archive.folder()?)?;
    let files = archive.index_files()?;
    let progress = args.quiet.progress();
    // The work on a segment is about proportional to the size of its index.
    let sizes: Vec<u64> = files.iter().map(|path| path.metadata().map_or(0, |m| m.len())).collect();
    let mut work = Work { progress: &progress, done: 0, total: sizes.iter().sum() };
    let mut told: Vec<String> = Vec::new();
    let (mut packets, mut bytes, mut problems, mut damaged) = (0, 0, 0_u64, 0_u64);
    let mut unsummed = 0;
    for (n, (path, size)) in files.iter().zip(sizes).enumerate() {
        let mut wrong = Vec::new();
        match Segment::open(archive.storage(), path) {
            Ok(segment) => {
                let place = format!("segment {} of {}", n + 1, files.len());
                work.progress.show_of(work.done, work.total, |_| place.clone());
                bytes += segment.index().len_bytes();
                packets += segment.note().records;
                if !segment.index().has_pieces() {
                    unsummed += segment.note().records;
                }
                check(&segment, args.quick, &work, &place, &mut wrong);
            }
            Err(error) => wrong.push(chain(&error)),
        }
        work.done += size;
        if !archive.storage().exists(path) {
            // A recorder has made room in the meantime.
            continue;
        }
        for wrong in &wrong {
            line(out, format_args!("{wrong}"))?;
        }
        problems += wrong.len() as u64;
        told.extend(wrong.iter().cloned());
        damaged += u64::from(!wrong.is_empty());
    }
    drop(progress);
    // Finds what is missing from all times. No packet is from the times given here, so that nothing
    // is indexed in memory.
    let mut gaps = archive.survey(TimeRange::NONE)?.gaps;
    // What cannot be opened was reported above, unless it was not looked at.
    let is_told = |error: &ArchiveError| match error {
        ArchiveError::Index { .. } | ArchiveError::BadNote { .. } => true,
        ArchiveError::BadPackets { path, .. } => {
            told.iter().any(|t| t.contains(&*path.to_string_lossy()))
        }
        _ => false,
    };
    gaps.retain(|gap| !gap.error.as_deref().is_some_and(is_told));
    for gap in &gaps {
        problems += u64::from(gap.error.is_some());
    }
    let incomplete = missing_of(&gaps);
    for one in &incomplete {
        line(out, format_args!("{}", one.text()))?;
    }
    let left = archive.unindexed_recordings()?;
    if left > 0 {
        let recordings = counted(left, "recording");
        args.quiet.note(&format!("{recordings} not indexed yet; searches read them anyway"));
    }
    if problems == 0 {
        let segments = counted(files.len() as u64, "segment");
        let sound = match incomplete.is_empty() {
            true => "sound",
            false => "sound, but incomplete as listed above",
        };
        let sums = match unsummed {
            0 => String::new(),
            n => format!("; {} without a checksum", counted(n, "packet")),
        };
        if !args.quiet.quiet {
            line(
                out,
                format_args!(
                    "{sound}: {segments}, {packets} packets, {bytes} bytes of index{sums}"
                ),
            )?;
        }
        out.flush().context(CANNOT_WRITE)?;
        return missing::end(&incomplete, args.allow);
    }
    out.flush().context(CANNOT_WRITE)?;
    let (problems, all) = (counted(problems, "problem"), files.len());
    let text = format!("{problems} in {damaged} of {all} segments; tapdex repair rebuilds indexes");
    Err(Damaged(text).into())
}

/// How much of the work is done.
struct Work<'a> {
    progress: &'a Progress,
    /// Bytes of the indexes that are done, and of all.
    done: u64,
    total: u64,
}

/// Packets between two checks of the clock.
const STEP: u32 = 1 << 14;

/// Collects what is wrong with a segment.
fn check(segment: &Segment, quick: bool, work: &Work<'_>, place: &str, wrong: &mut Vec<String>) {
    let index = segment.path().display();
    if !quick {
        let verified = segment.index().verify(&mut |_| {});
        wrong.extend(verified.problems.iter().map(|p| format!("{index}: {}", chain(p))));
        if verified.problems_more > 0 {
            wrong.push(format!("{index}: {} more", verified.problems_more));
        }
    }
    if quick {
        wrong.extend(segment.check_ends().err().map(|error| chain(&error)));
        return;
    }
    let records = segment.note().records;
    let compared = segment.compare(&mut |number| {
        if number.is_multiple_of(STEP) {
            let len_bytes = segment.index().len_bytes();
            let done = work.done + len_bytes / records.max(1) * u64::from(number);
            let text = |_| format!("{place}, packet {number} of {records}");
            work.progress.show_of(done, work.total, text);
        }
        true
    });
    match compared {
        Ok(Compared { unread, difference }) => {
            wrong.extend(unread.iter().map(ToString::to_string));
            wrong.extend(difference);
        }
        Err(error) => wrong.push(chain(&error)),
    }
}
