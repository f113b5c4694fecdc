//! Compiled kernels, kept on disk between runs.
//!
//! Compiling takes long, and its result depends on few things: the source, the options, the
//! compiler and the card. A [`Key`] is a hash over these; a file is found by its key, so that a
//! change of any of them leads to a new compilation, and several versions can coexist. They are
//! kept in
//!
//! 1. the folder that `TAPDEX_CACHE` names,
//! 2. or `tapdex` in the one that `XDG_CACHE_HOME` names,
//! 3. or `~/.cache/tapdex`.
//!
//! The folder can be deleted at any time. A file that is missing, unreadable or damaged is ignored;
//! what cannot be written is not kept. None of this is an error: it costs the time of a
//! compilation.
//!
//! A file is the word `tapdexK1`, the key (16 bytes), a checksum of the kernels (8 bytes), both
//! little-endian, and the kernels.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"tapdexK1";
const HEAD_LEN: usize = 8 + 16 + 8;
/// Compiled kernels are far smaller than this.
const FILE_LEN_MAX: u64 = 64 << 20;

/// The key of compiled kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key([u64; 2]);

impl Key {
    /// The key of all these parts, in this order.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        Self([0, 1].map(|seed| {
            parts.iter().fold(fnv(seed, &[]), |hash, part| {
                // The length keeps ("ab", "c") apart from ("a", "bc").
                fnv_on(fnv_on(hash, &len_bytes(part)), part)
            })
        }))
    }

    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }
}

fn len_bytes(part: &[u8]) -> [u8; 8] {
    u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes()
}

/// FNV-1a, 64 bits; seed 0 is the function as published.
fn fnv(seed: u64, bytes: &[u8]) -> u64 {
    fnv_on(0xCBF2_9CE4_8422_2325 ^ seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), bytes)
}

fn fnv_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// A folder of compiled kernels, or none.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// The user's.
    pub(crate) fn of_user() -> Self {
        Self { folder: folder(|name| std::env::var_os(name)) }
    }

    /// The cache in this folder, which is created when something is to be kept.
    #[cfg(test)]
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: Some(folder.to_owned()) }
    }

    /// The kernels under this key.
    pub(crate) fn get(&self, stem: &str, key: Key) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(stem, key)?).ok()?;
        file.take(FILE_LEN_MAX).read_to_end(&mut bytes).ok()?;
        let (head, kernels) = bytes.split_at_checked(HEAD_LEN)?;
        (head == head_of(key, kernels)).then(|| kernels.to_vec())
    }

    /// Keeps kernels, if possible.
    pub(crate) fn put(&self, stem: &str, key: Key, kernels: &[u8]) {
        let Some(path) = self.path(stem, key) else { return };
        let Some(folder) = path.parent() else { return };
        if fs::create_dir_all(folder).is_err() {
            return;
        }
        // Other processes may read or write the same file now: it appears complete, or not at all.
        let aside = aside(&path);
        let done = write_new(&aside, key, kernels).and_then(|()| fs::rename(&aside, &path));
        if done.is_err() {
            let _ = fs::remove_file(&aside);
        }
    }

    fn path(&self, stem: &str, key: Key) -> Option<PathBuf> {
        let [high, low] = key.0;
        Some(self.folder.as_ref()?.join(format!("{stem}-{high:016x}{low:016x}.kernels")))
    }
}

fn head_of(key: Key, kernels: &[u8]) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(MAGIC);
    head[8..24].copy_from_slice(&key.bytes());
    head[24..].copy_from_slice(&fnv(0, kernels).to_le_bytes());
    head
}

/// A name beside a file that no other process or thread uses.
fn aside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    path.with_extension(format!("{}-{count}.new", std::process::id()))
}

fn write_new(path: &Path, key: Key, kernels: &[u8]) -> std::io::Result<()> {
    // An existing name, such as a link, is not followed.
    let mut file = File::create_new(path)?;
    file.write_all(&head_of(key, kernels))?;
    file.write_all(kernels)
}

/// Where the user's compiled kernels are, by the environment; an empty value counts as unset.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // By the XDG rules, a relative path there has to be ignored.
    set("TAPDEX_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").filter(|at| at.is_absolute()).map(|at| at.join("tapdex")))
        .or_else(|| set("HOME").map(|at| at.join(".cache/tapdex")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn fnv_is_as_published() {
        assert_eq!(fnv(0, b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv(0, b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(fnv(0, b"foobar"), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn every_part_counts() {
        let key = Key::of(&[b"ab", b"c"]);
        for other in [&[&b"a"[..], b"bc"][..], &[b"ab", b"d"], &[b"c", b"ab"], &[b"ab", b"c", b""]]
        {
            let other = Key::of(other);
            assert!(key.0[0] != other.0[0] && key.0[1] != other.0[1]);
        }
        assert_ne!(key.0[0], key.0[1]);
    }

    #[test]
    fn what_is_kept_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("made/at/need"));
        let (key, other) = (Key::of(&[b"one"]), Key::of(&[b"two"]));
        assert_eq!(cache.get("wah", key), None);
        cache.put("wah", key, b"kernels");
        assert_eq!(cache.get("wah", key).unwrap(), b"kernels");
        assert_eq!(cache.get("wah", other), None);
        assert_eq!(cache.get("masc", key), None);
        cache.put("wah", key, b"");
        assert_eq!(cache.get("wah", key).unwrap(), b"");
        // Nothing is left aside.
        assert_eq!(files(&folder.path().join("made/at/need")).len(), 1);
    }

    #[test]
    fn a_damaged_file_is_none_and_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, key) = (Cache::at(folder.path()), Key::of(&[b"key"]));
        cache.put("wah", key, b"kernels");
        let path = files(folder.path()).remove(0);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, flipped).unwrap();
            assert_eq!(cache.get("wah", key), None, "byte {at} flipped");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.get("wah", key), None, "cut at {at}");
        }
        cache.put("wah", key, b"kernels");
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn another_keys_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, key, other) = (Cache::at(folder.path()), Key::of(&[b"1"]), Key::of(&[b"2"]));
        cache.put("wah", key, b"kernels");
        fs::rename(files(folder.path()).remove(0), cache.path("wah", other).unwrap()).unwrap();
        assert_eq!(cache.get("wah", other), None);
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let key = Key::of(&[b"key"]);
        for cache in [Cache::at(&file.path().join("below")), Cache { folder: None }] {
            cache.put("wah", key, b"kernels");
            assert_eq!(cache.get("wah", key), None);
        }
        // The file's place is taken by a folder: it can be neither read nor replaced.
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        fs::create_dir(cache.path("wah", key).unwrap()).unwrap();
        cache.put("wah", key, b"kernels");
        assert_eq!(cache.get("wah", key), None);
        assert_eq!(files(folder.path()).len(), 1);
    }

    #[test]
    fn the_environment_says_where() {
        let of = |pairs: &[(&str, &str)]| {
            folder(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.into()))
        };
        let (own, xdg, home) = (("TAPDEX_CACHE", "/t"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h"));
        assert_eq!(of(&[own, xdg, home]).unwrap(), Path::new("/t"));
        assert_eq!(of(&[("TAPDEX_CACHE", ""), xdg, home]).unwrap(), Path::new("/x/tapdex"));
        let relative = ("XDG_CACHE_HOME", "x");
        assert_eq!(of(&[relative, home]).unwrap(), Path::new("/h/.cache/tapdex"));
        assert_eq!(of(&[]), None);
    }
}
