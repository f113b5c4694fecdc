//! Segments that stay open between questions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::{ArchiveError, Segment};
use crate::storage::{Metadata, Storage, Whose};

/// Open segments, by their index files. Opening one takes many times longer than checking that its
/// file is unchanged.
#[derive(Debug, Default)]
pub(super) struct KeptSegments {
    by_path: Mutex<HashMap<PathBuf, Kept>>,
}

#[derive(Debug)]
struct Kept {
    /// What its index file was when it was opened.
    file: Metadata,
    segment: Arc<Segment>,
    /// The file is among those that were asked for last.
    is_wanted: bool,
}

impl KeptSegments {
    /// The segments of some index files; opens those that are not open yet. All others are closed,
    /// unless somebody still holds them.
    pub(super) fn open(
        &self,
        storage: &Arc<dyn Storage>,
        paths: &[PathBuf],
    ) -> Vec<Result<Arc<Segment>, ArchiveError>> {
        let mut kept = self.by_path.lock().unwrap_or_else(PoisonError::into_inner);
        kept.values_mut().for_each(|kept| kept.is_wanted = false);
        let mut opened = Vec::with_capacity(paths.len());
        for path in paths {
            // Read before the file is opened: if it is replaced in between, the next check notices.
            let file = storage.metadata(path, Whose::Own).ok();
            if let Some(kept) = kept.get_mut(path).filter(|kept| Some(kept.file) == file) {
                kept.is_wanted = true;
                opened.push(Ok(Arc::clone(&kept.segment)));
                continue;
            }
            let segment = Segment::open(storage, path).map(Arc::new);
            if let (Some(file), Ok(segment)) = (file, &segment) {
                let segment = Arc::clone(segment);
                kept.insert(path.clone(), Kept { file, segment, is_wanted: true });
            }
            opened.push(segment);
        }
        kept.retain(|_, kept| kept.is_wanted);
        opened
    }

    /// Closes all segments that nobody holds.
    pub(super) fn close(&self) {
        self.by_path.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
