//! Segments of version 1 are written anew as version 2, without reading packets: what comes out is
//! what indexing the capture again gives.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};

use tapdex_engine::archive::{
    Archive, ArchiveError, Compared, Ingest, Input, Segment, Upgrade, UpgradeReport,
};
use tapdex_engine::beneath::Rights;
use tapdex_engine::fields::{Field, FieldSet};
use tapdex_engine::index::{Index, SectionKind};
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::storage::temporary_path;
use tapdex_engine::testing::{FaultyDisk, Operation, filters};
use tapdex_engine::time::TimeRange;

const NAMES: [&str; 6] =
    ["flow-auto", "flow-plwah", "flow-sums", "arrival-auto", "arrival-compax2", "arrival-masc"];
const NOW_NS: u64 = 1_700_000_000_000_000_000;
const SEEDS: u64 = 20;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// The index file of an archive of version 1: its name and its bytes.
fn old_index(name: &str) -> (String, Vec<u8>) {
    let mut files = golden().join(name).join("segments").read_dir().unwrap();
    let path = files.next().unwrap().unwrap().path();
    let bytes = zstd::stream::decode_all(fs::File::open(&path).unwrap()).unwrap();
    (path.file_stem().unwrap().to_str().unwrap().to_owned(), bytes)
}

/// A copy of an archive of version 1, its capture, and its index file.
struct Copied {
    folder: tempfile::TempDir,
    archive: Archive,
    index: PathBuf,
}

impl Copied {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive");
        fs::create_dir_all(path.join("segments")).unwrap();
        fs::copy(golden().join("packets.pcap"), folder.path().join("packets.pcap")).unwrap();
        fs::copy(golden().join(name).join("archive.toml"), path.join("archive.toml")).unwrap();
        let (file_name, bytes) = old_index(name);
        let index = path.join("segments").join(file_name);
        fs::write(&index, bytes).unwrap();
        Self { archive: Archive::open(&path).unwrap(), folder, index }
    }

    fn segment(&self) -> Segment {
        Segment::open(self.archive.storage(), &self.index).unwrap()
    }

    fn names(&self) -> Vec<PathBuf> {
        let files = self.index.parent().unwrap().read_dir().unwrap();
        files.map(|entry| entry.unwrap().path()).collect()
    }
}

fn upgrade(archive: &Archive) -> UpgradeReport {
    let report = Upgrade::new(archive).run().unwrap();
    assert!(report.failed.is_empty(), "{:?}", report.failed);
    report
}

/// What a segment answers to many filters: the packets, or that it refuses.
fn answers(segment: &Segment) -> BTreeMap<String, Option<Vec<u32>>> {
    let made = (0..150).map(filters::generate);
    let texts = filters::written().into_iter().chain(filters::of_other_links()).chain(made);
    let ask = |text: &String| {
        let query = Query::new(Filter::parse(text, NOW_NS).ok()?, TimeRange::ALL);
        Some(query.records(segment).ok()?.records)
    };
    texts.map(|text| (text.clone(), ask(&text))).collect()
}

/// The sections of an index file: kind, column and bytes.
fn sections(bytes: &[u8]) -> Vec<(SectionKind, Option<usize>, Vec<u8>)> {
    let index = Index::from_bytes(bytes.to_vec()).unwrap();
    let section = |at: u64, len: u64| {
        let at = usize::try_from(at).unwrap();
        bytes[at..at + usize::try_from(len).unwrap()].to_vec()
    };
    let all = index.sections();
    all.map(|one| (one.kind.unwrap(), one.column, section(one.offset, one.len_bytes))).collect()
}

#[test]
fn an_upgraded_segment_is_what_indexing_again_gives() {
    for name in NAMES {
        let copied = Copied::new(name);
        let old = copied.segment();
        assert_eq!(old.index().version(), 1, "{name}");
        let (before, old_len) = (answers(&old), old.index().len_bytes());
        assert!(before.values().flatten().filter(|found| !found.is_empty()).count() > 100);
        let modified_ns = old.note().source.modified_ns;
        let knows_lengths = old.columns().knows(Field::FrameLen);
        assert_eq!(knows_lengths, copied.archive.settings().fields.contains(Field::FrameLen));
        let known = |segment: &Segment| {
            FieldSet::ALL.iter().map(|field| segment.columns().get(field)).collect::<Vec<_>>()
        };
        let known_before = known(&old);
        drop(old);

        let report = upgrade(&copied.archive);
        let new_len = fs::metadata(&copied.index).unwrap().len();
        assert_eq!((report.segments, report.upgraded), (1, 1), "{name}");
        assert_eq!((report.bytes_before, report.bytes_after), (old_len, new_len), "{name}");
        assert!(new_len < old_len, "{name}: {old_len} bytes became {new_len}");

        let new = copied.segment();
        assert_eq!(new.index().version(), 2, "{name}");
        let verified = new.index().verify(&mut |_| {});
        assert!(verified.problems.is_empty(), "{name}: {:?}", verified.problems);
        assert_eq!(new.compare(&mut |_| true).unwrap(), Compared::default(), "{name}");
        assert_eq!(known(&new), known_before, "{name}");
        for (text, found) in answers(&new) {
            assert_eq!(found, before[&text], "{name}: {text}");
        }
        drop(new);

        // Indexed again from the packets, with the settings of the archive.
        let upgraded = fs::read(&copied.index).unwrap();
        let capture = copied.folder.path().join("packets.pcap");
        let file = fs::File::options().write(true).open(&capture).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_nanos(modified_ns)).unwrap();
        fs::remove_file(&copied.index).unwrap();
        let ingest = Ingest::new(&copied.archive).threads(1);
        let report = ingest.run(&[Input::File(capture)]).unwrap();
        assert!(report.files[0].error.is_none(), "{report:?}");
        let indexed = fs::read(&copied.names()[0]).unwrap();
        let (mut upgraded, mut indexed) = (sections(&upgraded), sections(&indexed));
        // Of the notes only the place where the capture was differs.
        for all in [&mut upgraded, &mut indexed] {
            let (.., note) = all.iter_mut().find(|one| one.0 == SectionKind::Note).unwrap();
            let text = String::from_utf8(std::mem::take(note)).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("absolute = "));
            *note = lines.flat_map(|line| format!("{line}\n").into_bytes()).collect();
        }
        if !knows_lengths {
            let before = indexed.len();
            indexed.retain(|one| one.0 != SectionKind::Volumes);
            assert_eq!(indexed.len() + 1, before);
        }
        assert_eq!(upgraded.len(), indexed.len(), "{name}");
        for (upgraded, indexed) in upgraded.iter().zip(&indexed) {
            let place = format!("{name}: {:?} {:?}", indexed.0, indexed.1);
            if indexed.0 == SectionKind::Note {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                assert_eq!(text(&upgraded.2), text(&indexed.2), "{place}");
            }
            assert!(upgraded == indexed, "{place}");
        }
    }
}

#[test]
fn segments_of_the_version_that_is_written_now_are_left_alone() {
    let copied = Copied::new("flow-sums");
    upgrade(&copied.archive);
    let before = fs::metadata(&copied.index).unwrap();
    let report = upgrade(&copied.archive);
    assert_eq!((report.segments, report.upgraded), (1, 0));
    assert_eq!((report.bytes_before, report.bytes_after), (0, 0));
    let after = fs::metadata(&copied.index).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
}

#[test]
fn packets_are_not_needed_and_rights_stay() {
    for mode in [0o600, 0o640] {
        let copied = Copied::new("arrival-masc");
        fs::remove_file(copied.folder.path().join("packets.pcap")).unwrap();
        fs::set_permissions(&copied.index, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(upgrade(&copied.archive).upgraded, 1);
        let rights = fs::metadata(&copied.index).unwrap().permissions();
        assert_eq!(rights.mode() & 0o777, mode);
        assert!(copied.segment().index().has_pieces());
    }
}

/// An archive in memory with the segments of some of those of version 1, under names of their own.
fn in_memory(disk: &FaultyDisk, names: &[&str]) -> Vec<(PathBuf, Vec<u8>)> {
    disk.put(Path::new("a/archive.toml"), b"version = 1\ncodec = \"auto\"\n");
    let mut files = Vec::new();
    for name in names {
        let path = Path::new("a/segments").join(format!("{name}.pcap-0000.tdx"));
        let (_, bytes) = old_index(name);
        disk.put(&path, &bytes);
        files.push((path, bytes));
    }
    files.sort();
    files
}

fn archive_on(disk: &FaultyDisk) -> Archive {
    Archive::open_on(disk.storage(), Path::new("a")).unwrap()
}

fn is_temporary(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().ends_with(".tmp")
}

#[test]
fn a_damaged_segment_is_named_and_left() {
    let names = ["flow-auto", "arrival-compax2", "flow-plwah"];
    let whole = FaultyDisk::new();
    let files = in_memory(&whole, &names);
    upgrade(&archive_on(&whole));
    let (path, bytes) = &files[1];
    let step = bytes.len() / 40;
    let cut = bytes[..bytes.len() - 100].to_vec();
    let flipped = (0..40).map(|n| {
        let mut damaged = bytes.clone();
        damaged[n * step + n] ^= 1 << (n % 8);
        damaged
    });
    for damaged in flipped.chain([cut, Vec::new(), b"no index at all".to_vec()]) {
        let disk = FaultyDisk::new();
        in_memory(&disk, &names);
        disk.put(path, &damaged);
        let report = Upgrade::new(&archive_on(&disk)).run().unwrap();
        assert_eq!((report.segments, report.upgraded), (3, 2));
        assert_eq!(report.failed.len(), 1);
        let (named, why) = &report.failed[0];
        assert!(named == path && !why.is_empty(), "{named:?} {why}");
        for (other, _) in &files {
            let expected = if other == path { Some(damaged.clone()) } else { whole.read(other) };
            assert!(disk.read(other) == expected, "{other:?}");
        }
    }
}

#[test]
fn a_crash_after_any_operation_leaves_the_old_file_or_the_new_one() {
    let names = ["flow-sums", "arrival-auto"];
    let whole = FaultyDisk::new();
    let files = in_memory(&whole, &names);
    upgrade(&archive_on(&whole));
    let new: Vec<Vec<u8>> = files.iter().map(|(path, _)| whole.read(path).unwrap()).collect();
    let (mut seen_old, mut seen_new) = (0, 0);
    for operations in 0..=whole.operations() {
        let disk = FaultyDisk::new();
        in_memory(&disk, &names);
        disk.crash_after(operations);
        let done = Upgrade::new(&archive_on(&disk)).run();
        assert_eq!(done.is_ok(), operations == whole.operations(), "{done:?}");
        for seed in 0..SEEDS {
            let disk = disk.reboot(seed);
            for ((path, old), new) in files.iter().zip(&new) {
                match disk.read(path).unwrap() {
                    found if found == *old => seen_old += 1,
                    found if found == *new => seen_new += 1,
                    _ => panic!("a crash after {operations} operations, seed {seed}: {path:?}"),
                }
                assert!(
                    done.is_err() || disk.read(path).as_ref() == Some(new),
                    "what is done stays"
                );
            }
            // And the next run goes on, whatever was left.
            if seed % 5 == 0 {
                upgrade(&archive_on(&disk));
                for ((path, _), new) in files.iter().zip(&new) {
                    assert!(disk.read(path).as_ref() == Some(new));
                }
            }
        }
    }
    assert!(seen_old > SEEDS && seen_new > SEEDS, "{seen_old} {seen_new}: both must occur");
}

#[test]
fn a_failed_operation_or_a_full_disk_leaves_nothing_behind() {
    let names = ["flow-sums", "arrival-auto"];
    let whole = FaultyDisk::new();
    let files = in_memory(&whole, &names);
    let bytes = upgrade(&archive_on(&whole)).bytes_after;
    let check = |disk: &FaultyDisk, done: Result<UpgradeReport, ArchiveError>| {
        assert!(!disk.paths().iter().any(|path| is_temporary(path)), "{:?}", disk.paths());
        for (path, old) in &files {
            let found = disk.read(path);
            assert!(found.as_ref() == Some(old) || found == whole.read(path));
        }
        let error = done.unwrap_err();
        let ArchiveError::Io { source, .. } = error else { panic!("{error}") };
        source.kind()
    };
    for operation in 0..whole.operations() {
        let disk = FaultyDisk::new();
        in_memory(&disk, &names);
        disk.fail_after(operation);
        let done = Upgrade::new(&archive_on(&disk)).run();
        check(&disk, done);
    }
    for room in [0, 1, bytes / 3, bytes / 2, bytes - 1] {
        let disk = FaultyDisk::new();
        in_memory(&disk, &names);
        disk.full_after(room);
        let done = Upgrade::new(&archive_on(&disk)).run();
        assert_eq!(check(&disk, done), ErrorKind::StorageFull, "room for {room} bytes");
    }
}

#[test]
fn a_segment_that_another_process_writes_is_left_to_it() {
    let copied = Copied::new("flow-auto");
    let old = fs::read(&copied.index).unwrap();
    let storage = copied.archive.storage();
    let held = storage.create(&temporary_path(&copied.index), Rights::USUAL).unwrap();
    let report = Upgrade::new(&copied.archive).run().unwrap();
    assert_eq!((report.upgraded, report.failed.len()), (0, 1));
    assert_eq!(report.failed[0].1, "another process writes it");
    assert!(fs::read(&copied.index).unwrap() == old);
    drop(held);
    assert_eq!(upgrade(&copied.archive).upgraded, 1);
}

/// Whatever was done to the name while the new file was made is not undone.
#[test]
fn what_others_did_in_the_meantime_stays() {
    type Change = fn(&Path) -> io::Result<()>;
    let other = |path: &Path| {
        let beside = path.with_file_name("other");
        fs::write(&beside, b"written by another process")?;
        fs::rename(beside, path)
    };
    let changes: [(Change, bool); 2] = [(other, true), (|path| fs::remove_file(path), false)];
    for operation in [Operation::Create, Operation::Sync] {
        for (change, is_there) in changes {
            let copied = Copied::new("flow-auto");
            let disk = FaultyDisk::over(&copied.archive);
            let gate = disk.on(operation).named(".tdx").times(1).waits();
            let archive = Archive::open_on(disk.storage(), copied.archive.folder()).unwrap();
            let report = std::thread::scope(|scope| {
                let running = scope.spawn(|| Upgrade::new(&archive).run().unwrap());
                while gate.waiting() == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                change(&copied.index).unwrap();
                gate.open();
                running.join().unwrap()
            });
            assert_eq!(report.upgraded, 0, "{operation:?}");
            let found = fs::read(&copied.index).ok();
            let expected = is_there.then(|| b"written by another process".to_vec());
            assert_eq!(found, expected, "{operation:?}");
            // What is there now is no index.
            assert_eq!(report.failed.len(), usize::from(is_there), "{:?}", report.failed);
            assert!(!copied.names().iter().any(|path| is_temporary(path)));
        }
    }
}

/// A recording that retention removes at the same time is gone with its index; one whose packets
/// were not there before is upgraded like any other.
#[test]
fn there_is_no_index_of_a_recording_that_was_removed() {
    for is_there in [true, false] {
        let copied = Copied::new("flow-sums");
        let index = copied.index.with_file_name("rec-00000001-20260105T080000Z.pcapng-0000.tdx");
        fs::rename(&copied.index, &index).unwrap();
        let packets = copied.folder.path().join("packets.pcap");
        if !is_there {
            fs::remove_file(&packets).unwrap();
        }
        let disk = FaultyDisk::over(&copied.archive);
        let gate = disk.on(Operation::Sync).named(".tdx").times(1).waits();
        let archive = Archive::open_on(disk.storage(), copied.archive.folder()).unwrap();
        let report = std::thread::scope(|scope| {
            let running = scope.spawn(|| Upgrade::new(&archive).run().unwrap());
            while gate.waiting() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            if is_there {
                fs::remove_file(&packets).unwrap();
            }
            gate.open();
            running.join().unwrap()
        });
        assert!(report.failed.is_empty(), "{:?}", report.failed);
        assert_eq!((report.upgraded, index.exists()), (usize::from(!is_there), !is_there));
    }
}

#[test]
fn a_stop_leaves_whole_files() {
    let disk = FaultyDisk::new();
    let files = in_memory(&disk, &["flow-auto", "flow-sums", "arrival-auto"]);
    let archive = archive_on(&disk);
    let stop = AtomicBool::new(false);
    let progress = |done: usize, all: usize| {
        assert_eq!(all, 3);
        stop.store(done == 1, std::sync::atomic::Ordering::Relaxed);
    };
    let stopped = Upgrade::new(&archive).stop(&stop).progress(&progress).run();
    assert!(matches!(stopped, Err(ArchiveError::Interrupted)), "{stopped:?}");
    let changed = files.iter().filter(|(path, old)| disk.read(path).as_ref() != Some(old));
    assert_eq!(changed.count(), 1);
    assert_eq!(disk.paths().len(), 4);
    assert_eq!(upgrade(&archive).upgraded, 2);
}
