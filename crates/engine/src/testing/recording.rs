//! Unfinished recordings of any bytes: searched, completed, indexed, and searched again.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::archive::{Archive, Ingest, Input};
use crate::capture::CaptureReader;
use crate::query::{Query, filter::Filter};

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tapdex-recording-{}-{number}", std::process::id());
        // Memory, where there is such a folder: this runs many times.
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
    let query = Query::new(Filter::parse("", 0).expect("no filter"), None, None);
    let (segments, _) = archive.segments().expect("a folder that can be listed");
    segments.iter().map(|segment| query.count(segment).expect("it is not damaged").count).sum()
}

/// Any bytes as a recording that was not finished: its whole packets are found, before it is
/// completed, after that, and when it is indexed.
pub fn fuzz_recording(bytes: &[u8]) {
    let folder = Folder::new();
    let archive = Archive::create(&folder.0, None, None).expect("a new archive");
    let recording = archive.new_recording(0, 0).expect("a new recording");
    fs::write(recording.unfinished_path(), bytes).expect("room for it");
    let mut packets = 0_u64;
    if let Ok(mut reader) = CaptureReader::open(bytes) {
        while reader.next().is_ok_and(|record| record.is_some()) {
            packets += 1;
        }
    }
    assert_eq!(found(&archive), packets, "unfinished");
    let (recovered, failed) = archive.seal_unfinished().expect("nobody holds it");
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(recovered.len(), 1);
    assert!(!recording.unfinished_path().exists());
    let there = fs::read(recording.sealed_path()).unwrap_or_default();
    assert!(bytes.starts_with(&there), "nothing but its end may be gone");
    assert_eq!(recording.is_sealed(), recovered[0].packets > 0);
    assert_eq!(found(&archive), packets, "complete");
    assert!(archive.seal_unfinished().expect("nobody holds it").0.is_empty());
    if recording.is_sealed() {
        let input = Input::File(recording.sealed_path());
        let report = Ingest::new(&archive).threads(1).run(&[input]).expect("an archive");
        // What is no capture at all is not indexed.
        assert!(report.files[0].error.is_none() || packets == 0, "{report:?}");
        assert_eq!(found(&archive), packets, "indexed");
    }
}
