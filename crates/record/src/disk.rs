//! Where packets are written, so that tests can put a slow or a full disk in its place.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;

use nix::sys::uio::pwritev;
use tapdex_engine::beneath::{self, Rights, Root};

/// What there is on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that are in use.
    pub used: u64,
    /// Bytes that we may still use.
    pub free: u64,
}

impl Space {
    /// Percent that is in use, as `df` has it.
    pub fn percent(&self) -> f64 {
        100.0 * self.used as f64 / (self.used + self.free).max(1) as f64
    }
}

/// A disk for recordings.
pub trait Disk: Debug + Send + Sync {
    /// Creates a file of an archive that must not be there yet, and locks it.
    fn create(&self, root: &Root, path: &Path) -> io::Result<Box<dyn PacketFile>>;
    /// What there is on the disk that a folder is on.
    fn space(&self, folder: &Path) -> io::Result<Space>;
}

/// A file that is being written.
pub trait PacketFile: Debug + Send + Sync {
    /// Writes bytes at an offset; how many of them.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Sees to it that what was written outlasts a loss of power.
    fn sync(&self) -> io::Result<()>;
    /// Cuts off what is behind an offset. A file that is shorter stays as it is.
    fn cut(&self, len: u64) -> io::Result<()>;
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSystem;

impl Disk for FileSystem {
    fn create(&self, root: &Root, path: &Path) -> io::Result<Box<dyn PacketFile>> {
        Ok(Box::new(PlainFile(root.create_new(path, Rights::GROUP)?)))
    }

    fn space(&self, folder: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(folder)?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize);
        Ok(Space { used, free: stat.f_bavail.saturating_mul(stat.f_frsize) })
    }
}

#[derive(Debug)]
struct PlainFile(File);

impl PacketFile for PlainFile {
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(pwritev(&self.0, parts, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        beneath::cut(&self.0, len)
    }
}
