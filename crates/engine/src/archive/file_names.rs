//! The names of the files of an archive, and which capture they belong to.

use std::path::{Path, PathBuf};

use crate::storage::{Storage, Whose};

/// A name for what is made from a file: its own name, and a number that tells apart files of the
/// same name.
pub(super) fn segment_name(path: &Path) -> String {
    const NAME_MAX: usize = 80;
    use std::os::unix::ffi::OsStrExt;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.trim_start_matches('.').chars().map(plain).take(NAME_MAX).collect();
    // FNV-1a.
    let hash = path.as_os_str().as_bytes().iter().fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    format!("{name}-{hash:016x}")
}

/// A name for our copy of a compressed capture. Each version of the capture has its own copy: that
/// of the last version stays until this one is indexed.
pub(super) fn copy_name(storage: &dyn Storage, origin: &Path) -> String {
    let metadata = storage.metadata(origin, Whose::Named).ok();
    let version = metadata.map(|data| format!("{}-{}", data.len, data.modified_ns));
    let name = origin.file_name().unwrap_or_default();
    segment_name(&origin.join(version.unwrap_or_default()).join(name))
}

/// The prefix that the names of all index files of a capture share.
pub(super) fn capture_name(index_file: &Path) -> &str {
    let stem = index_file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.rsplit_once('-').map_or(stem, |(name, _)| name)
}

/// The relative path from a folder to a file; both are given as absolute paths.
pub(super) fn relative(folder: &Path, file: &Path) -> PathBuf {
    let (mut from, mut to) = (folder.components().peekable(), file.components().peekable());
    while let (Some(a), Some(b)) = (from.peek(), to.peek())
        && a == b
    {
        from.next();
        to.next();
    }
    from.map(|_| std::path::Component::ParentDir).chain(to).collect()
}
