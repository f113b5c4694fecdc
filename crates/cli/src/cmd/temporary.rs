//! A folder that a command makes for itself.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::interrupt;

/// A folder that is removed in the end, also by Ctrl-C, unless it is to be kept.
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Makes a folder that is removed in the end, in the one for temporary files or in `parent`.
    pub(super) fn new(name: &str, parent: Option<&Path>) -> anyhow::Result<Self> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        Self::create(parent.join(format!("tapdex-{name}-{}", std::process::id())), false)
    }

    /// Makes a folder that is kept.
    pub(super) fn kept(path: &Path) -> anyhow::Result<Self> {
        Self::create(path.to_owned(), true)
    }

    fn create(path: PathBuf, keep: bool) -> anyhow::Result<Self> {
        std::fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let doomed = path.clone();
        interrupt::handle(move || {
            if !keep {
                drop(std::fs::remove_dir_all(&doomed));
            }
            interrupt::end();
        });
        Ok(Self { path, keep })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new file in it, and where that is.
    pub(super) fn file(&self, name: &str) -> anyhow::Result<(PathBuf, File)> {
        let path = self.path.join(name);
        let file = File::create_new(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok((path, file))
    }

    /// Removes a folder within it.
    pub(super) fn remove(&self, name: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        std::fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // It lies where nobody keeps anything.
            drop(std::fs::remove_dir_all(&self.path));
        }
    }
}
