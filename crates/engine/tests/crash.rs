//! Whenever the machine stops while an index is written, the name leads to the old file or to the
//! whole new one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::io::ErrorKind;
use std::path::Path;

use tapdex_engine::IndexError;
use tapdex_engine::beneath::Rights;
use tapdex_engine::index::Index;
use tapdex_engine::storage::temporary_path;
use tapdex_engine::testing::{FaultyDisk, Table, check_index};

const SEEDS: u64 = 40;

fn path() -> &'static Path {
    Path::new("folder/a.tdx")
}

/// A disk with an old index on it, or with none.
fn disk(old: Option<&[u8]>) -> FaultyDisk {
    let disk = FaultyDisk::new();
    if let Some(old) = old {
        disk.put(path(), old);
    }
    disk
}

#[test]
fn a_crash_after_any_operation_leaves_the_old_file_or_the_new_one() {
    let (before, table) = (Table::sample(1, 30), Table::sample(8, 45));
    let (old, new) = (before.to_bytes(), table.to_bytes());
    for old in [Some(old.as_slice()), None] {
        let whole = disk(old);
        table.write(&whole, path()).unwrap();
        let (mut seen_old, mut seen_new) = (0, 0);
        for operations in 0..=whole.operations() {
            let disk = disk(old);
            disk.crash_after(operations);
            let written = table.write(&disk, path());
            assert_eq!(written.is_ok(), operations == whole.operations(), "{written:?}");
            for seed in 0..SEEDS {
                let disk = disk.reboot(seed);
                let found = disk.read(path());
                match found.as_deref() {
                    found if found == old => seen_old += 1,
                    Some(found) if found == new => seen_new += 1,
                    _ => panic!("a crash after {operations} operations, seed {seed}"),
                }
                assert!(written.is_err() || found.as_deref() == Some(&new), "what is done stays");
                // And the next build succeeds, whatever was left.
                table.write(&disk, path()).unwrap();
                assert_eq!(disk.read(path()).as_deref(), Some(new.as_slice()));
                assert!(disk.read(&temporary_path(path())).is_none());
            }
        }
        assert!(seen_old > SEEDS && seen_new > SEEDS, "{seen_old} {seen_new}: both must occur");
    }
    check_index(&Index::from_bytes(new).unwrap(), &table, 1);
}

#[test]
fn a_failed_operation_leaves_nothing_behind() {
    // One operation fails, and those after it succeed: the temporary file is removed at once.
    let (old, table) = (Table::sample(1, 30).to_bytes(), Table::sample(8, 45));
    let (new, whole) = (table.to_bytes(), disk(Some(&old)));
    table.write(&whole, path()).unwrap();
    for operation in 0..whole.operations() {
        let disk = disk(Some(&old));
        disk.fail_after(operation);
        let error = table.write(&disk, path()).unwrap_err();
        assert_eq!(disk.paths(), [path()], "operation {operation}");
        // The last one syncs the folder: the file is there by then, but may not outlast a crash.
        let last = operation + 1 == whole.operations();
        match error {
            IndexError::NotDurable { path: at, .. } => assert!(last && at == path()),
            error => assert!(matches!(error, IndexError::Io { .. }) && !last, "{error}"),
        }
        assert_eq!(disk.read(path()).unwrap(), if last { &new } else { &old }.as_slice());
    }
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let (old, table) = (Table::sample(1, 30).to_bytes(), Table::sample(8, 45));
    let new = table.to_bytes();
    for room in 0..=new.len() as u64 {
        let disk = disk(Some(&old));
        disk.full_after(room);
        let result = table.write(&disk, path());
        assert_eq!(disk.paths(), [path()], "room for {room} bytes");
        if room == new.len() as u64 {
            result.unwrap();
            assert_eq!(disk.read(path()).unwrap(), new);
            continue;
        }
        match result.unwrap_err() {
            IndexError::Io { source, path: at, .. } => {
                assert_eq!(source.kind(), ErrorKind::StorageFull);
                assert_eq!(at, temporary_path(path()));
            }
            error => panic!("room for {room} bytes: {error}"),
        }
        assert_eq!(disk.read(path()).unwrap(), old);
    }
}

#[test]
fn the_faulty_disk_forgets_what_was_not_synced() {
    // A writer that leaves out either sync must be found out by the tests above.
    use tapdex_engine::storage::Publish;
    let temporary = temporary_path(path());
    for (sync, sync_folder) in [(false, true), (true, false)] {
        let disk = disk(Some(b"old"));
        let mut file = disk.create(&temporary, Rights::USUAL).unwrap();
        file.append(b"newer").unwrap();
        if sync {
            file.sync().unwrap();
        }
        disk.rename(&temporary, path()).unwrap();
        if sync_folder {
            disk.sync_folder(Path::new("folder")).unwrap();
        }
        let found = (0..SEEDS).map(|seed| disk.reboot(seed).read(path()).unwrap());
        let wrong = found.filter(|bytes| bytes != b"newer").count();
        assert!(wrong > 0, "sync {sync}, folder {sync_folder}");
    }
}
