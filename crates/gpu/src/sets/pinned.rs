//! Pinned input words and output bytes, which the device copies by itself.

use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Device, DeviceError};
use crate::memory::Pinned;

/// Ids, or the words of a bitmap, in memory that the device copies from by itself. Made by
/// [`SetBuilder::input`](super::SetBuilder::input).
#[derive(Debug)]
pub struct PinnedWords {
    bytes: Pinned,
    len: usize,
}

impl PinnedWords {
    /// This many words, all 0.
    pub(super) fn new(device: &Arc<dyn Device>, len: usize) -> Result<Self, DeviceError> {
        Ok(Self { bytes: Pinned::new(device, 4 * len)?, len })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The word at a place, if there is one.
    pub fn get(&self, at: usize) -> Option<u32> {
        self.bytes.as_chunks().0.get(at).map(|&word| u32::from_le_bytes(word))
    }

    /// Writes words from a place on. Words that do not fit are left out.
    pub fn put(&mut self, at: usize, words: &[u32]) {
        let places = self.bytes.as_chunks_mut().0.iter_mut().skip(at);
        for (place, word) in places.zip(words) {
            *place = word.to_le_bytes();
        }
    }

    /// The words as bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Pinned buffers that wait to be used again: pinning costs more than filling.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Mutex<Vec<Pinned>>,
}

/// The most buffers that a pool keeps.
const KEPT_MAX: usize = 8;
/// Buffers have a multiple of this many bytes.
const GRAIN_BYTES: usize = 1 << 20;

impl Pool {
    /// A buffer with room for this many bytes: the smallest that fits, or a new one.
    pub(super) fn take(
        &self,
        device: &Arc<dyn Device>,
        bytes: usize,
    ) -> Result<Pinned, DeviceError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = free.iter().enumerate().filter(|(_, one)| one.len() >= bytes);
        if let Some((at, _)) = fitting.min_by_key(|(_, one)| one.len()) {
            return Ok(free.swap_remove(at));
        }
        drop(free);
        Pinned::new(device, bytes.max(1).next_multiple_of(GRAIN_BYTES))
    }

    /// Keeps a buffer that the device no longer uses. If there are too many, the smallest is
    /// dropped.
    fn give_back(&self, buffer: Pinned) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer);
        if free.len() > KEPT_MAX
            && let Some((at, _)) = free.iter().enumerate().min_by_key(|(_, one)| one.len())
        {
            free.swap_remove(at);
        }
    }
}

/// An encoded set, in pinned memory that goes back to its builder when this is dropped.
#[derive(Debug)]
pub struct Encoded {
    /// Always there, except while it is dropped.
    buffer: Option<Pinned>,
    len: usize,
    pool: Arc<Pool>,
}

impl Encoded {
    /// The first `len` bytes of a buffer, which the device has written.
    pub(super) fn new(buffer: Pinned, len: usize, pool: &Arc<Pool>) -> Self {
        Self { buffer: Some(buffer), len, pool: Arc::clone(pool) }
    }
}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().and_then(|bytes| bytes.get(..self.len)).unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Encoded {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(buffer);
        }
    }
}
