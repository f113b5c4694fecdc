//! Parts of an index that threads finish in any order: every packet is found once, whatever is
//! there, and nothing goes before all of it is there.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use tapdex_engine::archive::Drafter;
use tapdex_engine::beneath::Rights;
use tapdex_engine::query::Follow;
use tapdex_engine::storage::{AppendFile, Disk, Publish};

use super::*;

/// Packets of a recording, and of a part of it: three parts.
const PACKETS: usize = 250;
const PART: usize = 100;

/// What takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A disk on which parts get their names in a given order, and where somebody looks at the archive
/// in between.
struct Ordered<F> {
    order: Vec<usize>,
    done: Mutex<usize>,
    changed: Condvar,
    look: F,
}

impl<F> std::fmt::Debug for Ordered<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ordered").field("order", &self.order).finish_non_exhaustive()
    }
}

impl<F: Fn(usize)> Ordered<F> {
    /// Somebody looks when so many parts are there.
    fn new(order: &[usize], look: F) -> Self {
        let (done, changed) = (Mutex::new(0), Condvar::new());
        Self { order: order.to_vec(), done, changed, look }
    }
}

/// The number of the part that an index file is about.
fn part(path: &Path) -> usize {
    let stem = path.file_stem().unwrap().to_str().unwrap();
    stem.rsplit_once('-').unwrap().1.parse().unwrap()
}

impl<F: Fn(usize) + Send + Sync> Publish for Ordered<F> {
    fn create(&self, path: &Path, rights: Rights) -> std::io::Result<Box<dyn AppendFile>> {
        Disk.create(path, rights)
    }

    fn rename(&self, source: &Path, target: &Path) -> std::io::Result<()> {
        let part = part(target);
        let done = self.done.lock().unwrap();
        let is_early = |done: &mut usize| self.order.get(*done).is_some_and(|next| *next != part);
        let waited = self.changed.wait_timeout_while(done, PATIENCE, is_early).unwrap();
        let (mut done, late) = waited;
        assert!(!late.timed_out(), "part {part} waits for ever");
        (self.look)(*done);
        Disk.rename(source, target)?;
        *done += 1;
        (self.look)(*done);
        drop(done);
        self.changed.notify_all();
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> std::io::Result<()> {
        Disk.sync_folder(folder)
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        Disk.remove(path)
    }
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A recording that is complete and has drafts.
struct Drafted {
    folder: tempfile::TempDir,
    archive: Archive,
    recording: Recording,
    written: Written,
}

impl Drafted {
    fn new(with_drafts: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(folder.path());
        let written = Written::new(PACKETS as u64, 60);
        let recording = written.put(&archive);
        if with_drafts {
            let mut drafter = Drafter::new(&archive, &recording).unwrap().unwrap();
            assert_eq!(drafter.write(&Disk).unwrap(), PACKETS as u64);
        }
        Self { folder, archive, recording, written }
    }

    fn drafts(&self) -> usize {
        self.folder.path().join("drafts").read_dir().into_iter().flatten().count()
    }

    /// Indexes the recording in parts, which get their names in this order.
    fn index(&self, order: &[usize], look: impl Fn(usize) + Sync + Send) {
        let storage = Ordered::new(order, look);
        let ingest =
            Ingest::new(&self.archive).threads(order.len()).records_max(PART).storage(&storage);
        let report = ingest.run(&[Input::File(self.recording.sealed_path())]).unwrap();
        assert!(report.files[0].error.is_none(), "{report:?}");
    }

    /// Every packet is found, and once.
    #[track_caller]
    fn check(&self, what: &str) {
        assert!(all(&self.archive) == self.written.packets, "{what}");
        let question = query("", None, None);
        let (segments, _) = self.archive.segments().unwrap();
        let mut follow = Follow::after(&self.archive, &question, &segments);
        follow.poll(&mut |fresh| panic!("{what}: {} again", fresh.number)).unwrap();
    }
}

/// The parts that are there without a gap before them.
fn whole(parts: &[usize]) -> usize {
    (0..).take_while(|part| parts.contains(part)).count()
}

#[test]
fn drafts_go_with_the_part_that_is_finished_last() {
    for (n, order) in ORDERS.iter().enumerate() {
        let drafted = Drafted::new(true);
        drafted.index(order, |done| {
            assert_eq!(drafted.drafts(), 1, "{order:?}, {done} are there");
            assert_eq!(drafted.recording.is_indexed(), done == 3, "{order:?}, {done} are there");
            drafted.archive.remove_drafts().unwrap();
            assert_eq!(drafted.drafts(), usize::from(done < 3), "{order:?}, {done} are there");
            // The last look must find what a look by the indexer finds.
            if done == 3 && n % 2 == 0 {
                let mut drafter =
                    Drafter::new(&drafted.archive, &drafted.recording).unwrap().unwrap();
                assert_eq!(drafter.write(&Disk).unwrap(), PACKETS as u64);
            }
        });
        assert_eq!(drafted.drafts(), 0, "{order:?}");
        drafted.check("all are there");
    }
}

#[test]
fn a_search_beside_the_indexer_finds_every_packet_once() {
    for with_drafts in [true, false] {
        for order in &ORDERS {
            let drafted = Drafted::new(with_drafts);
            drafted.index(order, |done| {
                let what = format!("{done} of {order:?}, drafts: {with_drafts}");
                drafted.check(&what);
                let (segments, _) = drafted.archive.segments().unwrap();
                let indexed = segments.iter().filter(|segment| !segment.is_draft()).count();
                assert_eq!(indexed, whole(&order[..done]), "{what}");
                let unindexed = drafted.archive.unindexed_recordings().unwrap();
                assert_eq!(unindexed, u64::from(done < 3), "{what}");
            });
            drafted.check("all are there");
        }
    }
}

/// Where the index of a part is.
fn index_path(drafted: &Drafted, part: u32) -> PathBuf {
    drafted.recording.index_path(part)
}

#[test]
fn a_part_that_is_missing_is_indexed_again() {
    for parts in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2]] {
        let drafted = Drafted::new(false);
        drafted.index(&[0, 1, 2], |_| ());
        for &part in parts {
            fs::remove_file(index_path(&drafted, part)).unwrap();
        }
        drafted.check(&format!("without {parts:?}"));
        assert_eq!(drafted.archive.unindexed_recordings().unwrap(), 1);
        index(&drafted.archive, &drafted.recording, PART);
        assert!(drafted.recording.is_indexed());
        drafted.check("all are there");
    }
}

/// Parts of two runs that cut the recording in different places.
#[test]
fn parts_that_do_not_follow_each_other_are_not_taken_for_an_index() {
    let drafted = Drafted::new(false);
    index(&drafted.archive, &drafted.recording, 60);
    let first = fs::read(index_path(&drafted, 0)).unwrap();
    let ingest = Ingest::new(&drafted.archive).records_max(PART).force(true);
    ingest.run(&[Input::File(drafted.recording.sealed_path())]).unwrap();
    fs::write(index_path(&drafted, 0), first).unwrap();
    assert!(!drafted.recording.is_indexed());
    drafted.check("the first is shorter than what the second follows");
    index(&drafted.archive, &drafted.recording, PART);
    assert!(drafted.recording.is_indexed());
    let (segments, _) = drafted.archive.segments().unwrap();
    assert!(segments.len() == 3 && !segments.iter().any(|s| s.is_draft()));
    drafted.check("all are there");
}

/// The same of a capture that is no recording: it is not passed over as if it were indexed.
#[test]
fn parts_of_a_capture_that_do_not_follow_each_other_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(&folder.path().join("archive"));
    let written = Written::new(PACKETS as u64, 61);
    let capture = folder.path().join("a.pcapng");
    fs::write(&capture, &written.bytes).unwrap();
    let index = |records: usize, force: bool| {
        let ingest = Ingest::new(&archive).records_max(records).force(force);
        ingest.run(&[Input::File(capture.clone())]).unwrap()
    };
    index(60, false);
    let path = archive.index_files().unwrap().remove(0);
    let first = fs::read(&path).unwrap();
    index(PART, true);
    fs::write(&path, first).unwrap();
    let (_, failed) = archive.segments().unwrap();
    let [failed] = &failed[..] else { panic!("{failed:?}") };
    assert!(matches!(**failed, ArchiveError::MissingPart { .. }), "{failed}");
    let report = index(PART, false);
    assert!(!report.files[0].skipped);
    assert!(all(&archive) == written.packets);
}
