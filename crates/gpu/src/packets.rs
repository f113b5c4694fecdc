//! Packets on the device: frames decoded, grouped into flows, and sorted.
//!
//! [`GpuPackets`] gets the frames of a chunk in batches. Each batch is copied to the device and
//! decoded there (`decode.cu`). The host does those that the decoder refuses. Then the chunk's
//! packets are grouped by the key of their flow in a hash table (`group.cu`), and only the flows
//! are kept, with the number of each packet's flow and what packets have for themselves. Chunks
//! that follow each other are sorted together as a segment.
//!
//! Threads build chunks at the same time; the device does the work of one after that of another.
//! No thread waits for it but to learn what was refused, how many flows there are, and the result
//! of a sort.
//!
//! ```text
//! frames --copy in--> keys --hash table--> flows of a chunk
//!            flows of all chunks --radix sort--> flows and records in order --copy out--> host
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tapdex_engine::archive::device::{
    BATCH_FRAMES, DeviceChunk, FlowColumn, Frames, KEY_WORDS, Kept, OWN_DIGITS, PacketDevice,
    SegmentFailed, SortedPackets,
};
use tapdex_engine::fields::FIELDS;
use tapdex_engine::index::Width;

use crate::column::{THREADS, blocks};
use crate::device::{Arg, Device, DeviceError, Stream, record};
use crate::memory::{Memory, bytes_of};
use crate::radix::launch;
use chunk::{Chunk, Finished};
use pool::{Pool, Sending, lock};

mod chunk;
mod columns;
mod pool;
pub(crate) mod rows;
mod sort;

/// The most records of chunks that are sorted together.
pub const RECORDS_MAX: usize = 1 << 22;

/// Words of the figures of a chunk in `group.cu`, and their places.
pub(crate) mod figures {
    pub(crate) const BITS: usize = 0;
    pub(crate) const MISSING: usize = 6;
    pub(crate) const WIDE_BITS: usize = 12;
    pub(crate) const WIDE_MISSING: usize = 22;
    pub(crate) const ODD: usize = 32;
    pub(crate) const OWN: usize = 33;
    pub(crate) const LEN: usize = 34;
}
/// Words of a chunk in the table of those that are sorted together.
pub(crate) const CHUNK_WORDS: usize = 16;
/// Words of a packet that the host has decoded.
pub(crate) const SENT_WORDS: usize = 19;

/// Bytes that small memory is cut from.
const SLAB_BYTES: usize = 64 << 20;
/// Frames of a chunk that there is room for at first.
const FRAMES_FIRST: usize = BATCH_FRAMES;
/// Sets of fields whose masks are kept on the device.
const MASKS_MAX: usize = 16;

/// A device that decodes, groups and sorts packets.
///
/// Memory is used again by later chunks. If it runs out, what is idle is freed, and the device
/// tries once more; if that fails as well, the call returns the error, and later calls may succeed.
/// A device that is lost is not used again.
#[derive(Debug)]
pub struct GpuPackets {
    shared: Arc<Shared>,
}

/// What all chunks of a device share.
#[derive(Debug)]
struct Shared {
    device: Arc<dyn Device>,
    pool: Arc<Pool>,
    sending: Sending,
    /// Held while work is handed to the device, which threads would wait for in the driver if they
    /// did it at the same time, call by call.
    handing: Mutex<()>,
    masks: Mutex<Vec<([u64; KEY_WORDS], Arc<Memory>)>>,
    /// The chunks that can be sorted, by their numbers.
    finished: Mutex<HashMap<u64, Arc<Finished>>>,
    /// Whose sort the device does.
    turn: Mutex<()>,
    /// What hashes depend on, so that nobody can send packets whose keys meet in the table.
    secret: u64,
    /// How many frames there is to be room for at first.
    frames_first: AtomicUsize,
    widths: [Width; OWN_DIGITS],
    /// Whether a digit is all that its field has.
    is_single: [bool; OWN_DIGITS],
    lost: OnceLock<DeviceError>,
}

/// Numbers of chunks, of all devices.
static CHUNKS: AtomicU64 = AtomicU64::new(0);

impl GpuPackets {
    /// Packets on a device.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self::with_slabs(device, SLAB_BYTES)
    }

    /// The same, cutting small memory from pieces of so many bytes; with 0, each is allocated by
    /// itself, so that a device that checks memory sees what is written beside it.
    pub fn with_slabs(device: Arc<dyn Device>, slab_bytes: usize) -> Self {
        let shared = Shared {
            pool: Pool::new(Arc::clone(&device), slab_bytes),
            device,
            sending: Sending::default(),
            handing: Mutex::default(),
            masks: Mutex::default(),
            finished: Mutex::default(),
            turn: Mutex::default(),
            secret: RandomState::new().hash_one(CHUNK_WORDS),
            frames_first: AtomicUsize::new(FRAMES_FIRST),
            widths: own_digits().map(|(width, _)| width),
            is_single: own_digits().map(|(_, is_single)| is_single),
            lost: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Frees the memory that nobody uses now.
    pub fn release(&self) {
        self.shared.pool.clear();
    }
}

impl PacketDevice for GpuPackets {
    fn frames(&self) -> Result<Frames, SegmentFailed> {
        let shared = &*self.shared;
        shared.tried(|| {
            shared.sending.make_way()?;
            Ok(Frames::new(Box::new(shared.pool.room()?)))
        })
    }

    fn begin(&self, kept: &Kept) -> Result<Box<dyn DeviceChunk>, SegmentFailed> {
        let number = CHUNKS.fetch_add(1, Ordering::Relaxed);
        let chunk = self.shared.tried(|| Chunk::new(&self.shared, number, kept))?;
        Ok(Box::new(chunk))
    }

    fn sort(
        &self,
        chunks: &[&dyn DeviceChunk],
        columns: &[FlowColumn],
        target: &mut SortedPackets,
    ) -> Result<(), SegmentFailed> {
        let chunks = self.shared.finished(chunks)?;
        self.shared.tried(|| self.shared.sort(&chunks, columns, target))
    }
}

impl Shared {
    /// The result of something that the device does, if it is not lost.
    fn tried<T>(&self, what: impl FnOnce() -> Result<T, Failed>) -> Result<T, SegmentFailed> {
        if let Some(error) = self.lost.get() {
            return Err(SegmentFailed::Device(error.clone().into()));
        }
        what().map_err(|failed| match failed {
            Failed::Device(error) => {
                if !matches!(error, DeviceError::OutOfMemory { .. }) {
                    self.lose(&error);
                }
                SegmentFailed::Device(error.into())
            }
            Failed::Refused(why) => SegmentFailed::Device(why.into()),
        })
    }

    /// The device is not used any more.
    fn lose(&self, error: &DeviceError) {
        // Another thread may have seen another error before.
        let _ = self.lost.set(error.clone());
        self.sending.clear();
        self.pool.close();
        lock(&self.masks).clear();
    }

    fn launch(
        &self,
        stem: &'static str,
        kernel: &'static str,
        items: usize,
        args: &[Arg],
    ) -> Result<(), DeviceError> {
        let grid = (blocks(items, THREADS as usize), THREADS);
        launch(&*self.device, stem, kernel, grid, args)
    }

    /// Where the device has this mask.
    fn mask(&self, mask: &[u64; KEY_WORDS]) -> Result<Arc<Memory>, DeviceError> {
        let mut masks = lock(&self.masks);
        if let Some((_, memory)) = masks.iter().find(|(known, _)| known == mask) {
            return Ok(Arc::clone(memory));
        }
        if masks.len() == MASKS_MAX {
            masks.retain(|(_, memory)| Arc::strong_count(memory) > 1);
        }
        let memory = self.pool.own(size_of_val(mask))?;
        self.device.copy_in(Stream::In, bytes_of(mask), memory.address())?;
        self.device.wait_in(Stream::Compute, record(&self.device, Stream::In)?.handle)?;
        let memory = Arc::new(memory);
        masks.push((*mask, Arc::clone(&memory)));
        Ok(memory)
    }

    /// The chunks behind numbers, empty ones left out.
    fn finished(&self, chunks: &[&dyn DeviceChunk]) -> Result<Vec<Arc<Finished>>, SegmentFailed> {
        let refuse = |why: BadPackets| SegmentFailed::Device(why.into());
        let known = lock(&self.finished);
        let mut found: Vec<Arc<Finished>> = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let number = chunk.number();
            let chunk = known.get(&number).ok_or_else(|| refuse(BadPackets::NotHere { number }))?;
            found.push(Arc::clone(chunk));
        }
        drop(known);
        let kept = found.first().map(|chunk| chunk.kept);
        if found.iter().any(|chunk| Some(chunk.kept) != kept) {
            return Err(refuse(BadPackets::Kept));
        }
        let records: usize = found.iter().map(|chunk| chunk.records).sum();
        if records > RECORDS_MAX {
            return Err(refuse(BadPackets::TooMany { records, most: RECORDS_MAX }));
        }
        Ok(found)
    }
}

/// The widths of what packets have for themselves, and whether each is all that its field has.
fn own_digits() -> [(Width, bool); OWN_DIGITS] {
    let fields = FIELDS.iter().filter(|spec| !spec.is_of_flow());
    let mut digits =
        fields.flat_map(|spec| (0..spec.digits).map(|_| (spec.width, spec.digits == 1)));
    std::array::from_fn(|_| digits.next().unwrap_or((Width::Short, false)))
}

/// Why packets are not sorted.
#[derive(Debug)]
enum Failed {
    Device(DeviceError),
    Refused(BadPackets),
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Self {
        Failed::Device(error)
    }
}

impl From<BadPackets> for Failed {
    fn from(why: BadPackets) -> Self {
        Failed::Refused(why)
    }
}

/// What is wrong with packets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum BadPackets {
    #[error("{records} packets, of at most {most}")]
    TooMany { records: usize, most: usize },
    #[error("{heads} heads and {bytes} bytes of {frames} frames")]
    Frames { frames: usize, heads: usize, bytes: usize },
    #[error("a chunk that is finished, or has failed, takes no more packets")]
    Closed,
    #[error("keys of {given} packets, where {expected} were refused")]
    Keys { given: usize, expected: usize },
    #[error("chunk {number} is not finished, or not on this device")]
    NotHere { number: u64 },
    #[error("chunks that keep different fields")]
    Kept,
    #[error("{chunks} chunks are too many to sort together")]
    TooManyChunks { chunks: usize },
    #[error("what the device counted cannot be")]
    Disorder,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernels have them in this order, with these widths.
    #[test]
    fn digits_of_packets_are_as_wide_as_in_kernels() {
        use Width::{Byte, Short};
        let widths = own_digits().map(|(width, _)| width);
        assert_eq!(widths, [Byte, Byte, Short, Short, Short]);
        let is_single = own_digits().map(|(_, is_single)| is_single);
        assert_eq!(is_single, [true, true, true, false, false]);
    }
}
