//! Unfinished recordings of any bytes: searched, completed, indexed, and searched again.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::archive::{Archive, Drafter, Ingest, Input};
use crate::capture::CaptureReader;
use crate::query::{Query, filter::Filter};
use crate::storage::Disk;
use crate::time::TimeRange;

/// A folder that is removed in the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tapdex-recording-{}-{number}", std::process::id());
        // In memory, if there is such a folder: this runs many times.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let folder = parent.join(name);
        fs::create_dir_all(folder.join("packets")).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// How many packets a search for all finds.
fn found(archive: &Archive) -> u64 {
    let query = Query::new(Filter::parse("", 0).expect("no filter"), TimeRange::ALL);
    let (segments, _) = archive.segments().expect("a folder that can be listed");
    segments.iter().map(|segment| query.count(segment).expect("it is not damaged").count).sum()
}

/// How many whole packets some bytes have.
fn whole(bytes: &[u8]) -> u64 {
    let mut packets = 0;
    if let Ok(mut reader) = CaptureReader::open(bytes) {
        while reader.next().is_ok_and(|record| record.is_some()) {
            packets += 1;
        }
    }
    packets
}

/// Writes a recording as it grows, with a draft of its first bytes: the last byte says of how many.
/// If that byte is even, there is a second draft, of all bytes.
fn write_with_drafts(archive: &Archive, bytes: &[u8]) {
    let recording = archive.recordings().expect("a folder").pop().expect("a recording");
    let last = bytes.last().copied().unwrap_or(0);
    let first = &bytes[..bytes.len() * usize::from(last) / 255];
    fs::write(recording.unfinished_path(), first).expect("room for it");
    let drafter = Drafter::new(archive, &recording);
    let mut drafts = drafter.ok().flatten();
    if let Some(drafter) = &mut drafts {
        // Numbers that do not fit into a note make a useless draft, which is still written.
        let written = drafter.write(&Disk).expect("room for it");
        assert_eq!(written, whole(first), "a draft");
    }
    assert_eq!(found(archive), whole(first), "a draft, and nothing else");
    fs::write(recording.unfinished_path(), bytes).expect("room for it");
    if let Some(drafter) = drafts.as_mut().filter(|_| last.is_multiple_of(2)) {
        let written = drafter.write(&Disk).expect("room for it");
        assert_eq!(written + whole(first), whole(bytes), "two drafts");
        assert_eq!(drafter.reached().1, whole(bytes));
    }
}

/// Any bytes as an unfinished recording: its whole packets are found before it is completed, after
/// that, and once it is indexed, with and without drafts.
pub fn fuzz_recording(bytes: &[u8]) {
    let folder = Folder::new();
    let archive = Archive::create(&folder.0, None).expect("a new archive");
    let recording = archive.new_recording(0, 0).expect("a new recording");
    fs::write(recording.unfinished_path(), []).expect("room for it");
    let packets = whole(bytes);
    write_with_drafts(&archive, bytes);
    assert_eq!(found(&archive), packets, "unfinished, with drafts");
    let drafts = folder.0.join("drafts");
    let away = folder.0.join("away");
    let had = fs::rename(&drafts, &away).is_ok();
    assert_eq!(found(&archive), packets, "unfinished");
    if had {
        fs::rename(&away, &drafts).expect("the same folder");
    }
    let (recovered, failed) =
        archive.seal_unfinished(&AtomicBool::new(false)).expect("nobody holds it");
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(recovered.len(), 1);
    assert!(!recording.unfinished_path().exists());
    let there = fs::read(recording.sealed_path()).unwrap_or_default();
    assert!(bytes.starts_with(&there), "nothing but its end may be gone");
    assert_eq!(recording.is_sealed(), recovered[0].packets > 0);
    assert_eq!(found(&archive), packets, "complete");
    assert!(
        archive.seal_unfinished(&AtomicBool::new(false)).expect("nobody holds it").0.is_empty()
    );
    if recording.is_sealed() {
        let input = Input::File(recording.sealed_path());
        let report = Ingest::new(&archive).threads(1).run(&[input]).expect("an archive");
        // A file that is not a capture is not indexed.
        assert!(report.files[0].error.is_none() || packets == 0, "{report:?}");
        assert_eq!(found(&archive), packets, "indexed");
    }
    archive.remove_drafts().expect("a folder of ours");
    let left = drafts.read_dir().map_or(0, Iterator::count);
    // A file that is not a capture is not indexed, and has no drafts.
    assert_eq!(left, 0, "drafts are left");
}
