//! Indexes recordings that are complete, one after the other.
//!
//! The indexer reads files, not the queue: however far it is behind, no packet waits for it.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tapdex_engine::archive::device::SegmentDevice;
use tapdex_engine::archive::{Ingest, Input};
use tapdex_engine::storage::{Disk, Storage, StorageFile};

use crate::recorder::Shared;

/// Others come first: the kernel gives this thread what they leave.
const NICE: i32 = 10;

/// Indexes until the sealer has ended and all is done, or we are to stop at once.
pub(crate) fn run(shared: &Shared<'_>, device: Option<&Mutex<dyn SegmentDevice>>) {
    // Without it, it competes with the capture; that shows in the losses.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    let storage = Guarded { shared };
    while let Some(recording) = shared.next_to_index() {
        if !shared.keeper().has(recording.name()) {
            shared.indexed_one();
            continue;
        }
        let started = Instant::now();
        let mut ingest = Ingest::new(shared.archive)
            .threads(shared.index_threads)
            .storage(&storage)
            .stop(&shared.abandon);
        if let Some(device) = device {
            ingest = ingest.device(device);
        }
        let result = ingest.run(&[Input::File(recording.sealed_path())]);
        let failed = match result {
            Ok(mut report) => {
                if let Some(trouble) = report.device.trouble {
                    shared.trouble(format!("the device failed, the CPU went on: {trouble}"));
                }
                let file = report.files.pop().unwrap_or_default();
                shared.counters.indexed_packets.fetch_add(file.packets, Ordering::Relaxed);
                shared.counters.index_bytes.fetch_add(file.index_bytes, Ordering::Relaxed);
                file.error
            }
            Err(error) => Some(error),
        };
        let mut keeper = shared.keeper();
        keeper.indexed(&recording);
        keeper.trim();
        let is_there = keeper.has(recording.name());
        drop(keeper);
        match failed {
            None => {
                shared.counters.indexed.fetch_add(1, Ordering::Relaxed);
                shared.build_seconds.observe(started.elapsed().as_secs_f64());
            }
            Some(_) if !is_there || shared.abandon.load(Ordering::Relaxed) => {}
            Some(error) => {
                let path = recording.sealed_path();
                let what = format!(
                    "{} is not indexed yet; searches read all of it, and it is tried again: ",
                    path.display()
                );
                shared.complain(&what, &error);
                shared.index_again();
                continue;
            }
        }
        shared.indexed_one();
    }
}

/// The disk, on which an index appears only if its packets are still there.
#[derive(Debug)]
struct Guarded<'s, 'a> {
    shared: &'s Shared<'a>,
}

impl Storage for Guarded<'_, '_> {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        Disk.create(path)
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        // Retention removes index and packets under the same lock.
        let keeper = self.shared.keeper();
        let recording = self.shared.archive.recording_of(target);
        if !recording.is_some_and(|recording| keeper.has(recording.name())) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Disk.rename(source, target)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        Disk.sync_folder(folder)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }
}
