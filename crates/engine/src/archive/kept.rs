//! Segments that stay open between questions.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{ArchiveError, Segment};

/// Open segments, by their index files. To open one takes many times longer than to see that its
/// file is still the same.
#[derive(Debug, Default)]
pub(super) struct KeptSegments {
    by_path: Mutex<HashMap<PathBuf, Kept>>,
}

#[derive(Debug)]
struct Kept {
    identity: Identity,
    segment: Arc<Segment>,
    /// The file is among those that were asked for last.
    is_wanted: bool,
}

/// Tells a file from another one of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let data = path.symlink_metadata().ok()?;
        let changed = (data.ctime(), data.ctime_nsec());
        Some(Self { device: data.dev(), inode: data.ino(), len: data.len(), changed })
    }
}

impl KeptSegments {
    /// The segments of some index files, each opened unless it is open. Others are closed, unless
    /// somebody still holds them.
    pub(super) fn open(&self, paths: &[PathBuf]) -> Vec<Result<Arc<Segment>, ArchiveError>> {
        let mut kept = self.by_path.lock().unwrap_or_else(PoisonError::into_inner);
        kept.values_mut().for_each(|kept| kept.is_wanted = false);
        let mut opened = Vec::with_capacity(paths.len());
        for path in paths {
            // Looked at before the file is opened: if another takes its place in between, the next
            // look tells.
            let identity = Identity::of(path);
            if let Some(kept) = kept.get_mut(path).filter(|kept| Some(kept.identity) == identity) {
                kept.is_wanted = true;
                opened.push(Ok(Arc::clone(&kept.segment)));
                continue;
            }
            let segment = Segment::open(path).map(Arc::new);
            if let (Some(identity), Ok(segment)) = (identity, &segment) {
                let segment = Arc::clone(segment);
                kept.insert(path.clone(), Kept { identity, segment, is_wanted: true });
            }
            opened.push(segment);
        }
        kept.retain(|_, kept| kept.is_wanted);
        opened
    }
}
