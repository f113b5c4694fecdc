//! The FIFO that Wireshark reads.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tapdex_engine::query::Control;

/// Bytes that are written without waiting for more.
const BUFFER_LEN: usize = 64 << 10;
/// How long fewer bytes wait for more, and how long a reader may be gone unnoticed.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How often to look for a reader.
const EVERY: Duration = Duration::from_millis(10);
/// How long Wireshark may take to read.
const READER_TIME: Duration = Duration::from_secs(60);

/// A FIFO with a reader. When the reader goes away, the search is cancelled, even if there is
/// nothing to write at that time.
#[derive(Debug)]
pub(super) struct Fifo(Arc<Mutex<BufWriter<File>>>);

fn lock(writer: &Mutex<BufWriter<File>>) -> MutexGuard<'_, BufWriter<File>> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fifo {
    /// Opens a FIFO, as soon as it has a reader; nothing if it was cancelled before.
    pub(super) fn open(path: &Path, control: &Control) -> anyhow::Result<Option<Self>> {
        let cannot = || format!("cannot write to {}", path.display());
        let Some(file) = reader(path, control).with_context(cannot)? else { return Ok(None) };
        let watched = file.try_clone().with_context(cannot)?;
        let writer = Arc::new(Mutex::new(BufWriter::with_capacity(BUFFER_LEN, file)));
        let (shared, control) = (Arc::downgrade(&writer), control.clone());
        let watch = move || {
            loop {
                let mut asked = [PollFd::new(&watched, PollFlags::empty())];
                let answered = poll(&mut asked, Some(&PATIENCE));
                let is_gone = answered.is_ok() && !asked[0].revents().is_empty();
                let Some(writer) = shared.upgrade() else { return };
                if is_gone || lock(&writer).flush().is_err() {
                    control.cancel();
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("fifo".to_owned()).spawn(watch);
        thread.context("cannot start a thread")?;
        Ok(Some(Self(writer)))
    }
}

/// Opens a FIFO for writing. Nothing else is opened: whatever it is, it is not Wireshark's.
fn reader(path: &Path, control: &Control) -> anyhow::Result<Option<File>> {
    let kind = FileType::from_raw_mode(rustix::fs::stat(path).map_err(io::Error::from)?.st_mode);
    ensure!(kind == FileType::Fifo, "it is no FIFO");
    let started = Instant::now();
    // Waits for a reader, but not in the call, so that a signal ends it.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NXIO) if control.is_cancelled() => return Ok(None),
            Err(Errno::NXIO) if started.elapsed() > READER_TIME => bail!("nobody reads it"),
            Err(Errno::NXIO) => std::thread::sleep(EVERY),
            opened => break opened.map_err(io::Error::from)?,
        }
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    ensure!(kind == FileType::Fifo, "it is no FIFO");
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(Some(File::from(file)))
}

impl Write for Fifo {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        lock(&self.0).flush()
    }
}
