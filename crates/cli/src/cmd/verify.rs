//! `tapdex verify`: is an archive what it was when it was written?

use std::io::Write;

use anyhow::Context;
use tapdex_engine::archive::{Archive, Segment};

use super::ask::{ArchiveArg, line};
use super::progress::Progress;
use super::{CANNOT_WRITE, Damaged, chain, counted, note, shown_path};

/// Check an archive and list what is wrong with it.
///
/// Of every segment all checksums are compared, and that each row is in one bitmap of a column.
/// Then its packets are read from the first to the last: they have to be where the index says, at
/// the times that it says, and every column has to have what their headers have.
///
///     tapdex verify
///     tapdex verify -r archive --quick
///
/// Prints a problem a line and exits with 3 if there is any; tapdex repair then indexes again what
/// is damaged. With --quick only the first and the last bytes of packets are compared, and of the
/// indexes what is needed to open them.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    archive: ArchiveArg,
    /// Do not read everything.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let archive = Archive::open(&args.archive.archive)?;
    let files = archive.index_files()?;
    let mut progress = Progress::new();
    let (mut packets, mut bytes, mut problems, mut damaged) = (0, 0, 0_u64, 0_u64);
    for (n, path) in files.iter().enumerate() {
        let mut wrong = Vec::new();
        match Segment::open(path) {
            Ok(segment) => {
                progress.show(|_| format!("segment {} of {}", n + 1, files.len()));
                bytes += segment.index().len_bytes();
                packets += segment.note().records;
                check(&segment, args.quick, &mut progress, &mut wrong);
                let damage = &segment.note().source.damage;
                if !damage.is_empty() {
                    // Not a problem of the archive: it has what could be read.
                    let path = shown_path(&segment.packet_path());
                    note(&format!("{path}: indexed up to the damage: {damage}"));
                }
            }
            Err(error) => wrong.push(chain(&error)),
        }
        if !path.exists() {
            // A recorder has made room in the meantime.
            continue;
        }
        for wrong in &wrong {
            line(out, format_args!("{wrong}"))?;
        }
        problems += wrong.len() as u64;
        damaged += u64::from(!wrong.is_empty());
    }
    drop(progress);
    let left = archive.unindexed_recordings()?;
    if left > 0 {
        let recordings = counted(left, "recording");
        note(&format!("{recordings} not indexed yet; every search does that itself"));
    }
    if problems == 0 {
        let segments = counted(files.len() as u64, "segment");
        line(out, format_args!("sound: {segments}, {packets} packets, {bytes} bytes of index"))?;
        return out.flush().context(CANNOT_WRITE);
    }
    out.flush().context(CANNOT_WRITE)?;
    let (problems, all) = (counted(problems, "problem"), files.len());
    let text =
        format!("{problems} in {damaged} of {all} segments; tapdex repair indexes them again");
    Err(Damaged(text).into())
}

/// Packets between two looks at the clock.
const STEP: u32 = 1 << 14;

/// Collects what is wrong with a segment.
fn check(segment: &Segment, quick: bool, progress: &mut Progress, wrong: &mut Vec<String>) {
    let index = segment.path().display();
    if !quick {
        let verified = segment.index().verify(&mut |_| {});
        wrong.extend(verified.problems.iter().map(|p| format!("{index}: {}", chain(p))));
        if verified.problems_more > 0 {
            wrong.push(format!("{index}: {} more", verified.problems_more));
        }
    }
    if quick {
        wrong.extend(segment.packets().err().map(|error| chain(&error)));
        return;
    }
    let records = segment.note().records;
    let compared = segment.compare(&mut |number| {
        if number.is_multiple_of(STEP) {
            progress.show(|_| format!("packet {number} of {records}"));
        }
        true
    });
    match compared {
        Ok(difference) => wrong.extend(difference),
        Err(error) => wrong.push(chain(&error)),
    }
}
