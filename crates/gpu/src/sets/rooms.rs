//! The device memory that sets are encoded in, and the kernels that do it.
//!
//! Everything here goes to [`Stream::Compute`], so that one set after the other can use the same
//! memory. Memory that copies use is in a [`Slot`], one for each set in flight.

use std::sync::Arc;

use crate::device::{Address, Arg, Device, DeviceError, Event, Launch, Stream, record};
use crate::memory::{Buffer, Pinned};

/// Words of a status before the totals; see `kernels/sets.cu`.
pub(crate) const TOTALS: usize = 4;
/// The most parts that a set is written in.
pub(super) const PARTS_MAX: usize = 64;
const STATUS_BYTES: usize = 4 * (TOTALS + PARTS_MAX + 1);

pub(crate) const THREADS: u32 = 256;
/// Threads of a kernel that runs in one block.
const ONE_BLOCK_THREADS: u32 = 1024;
/// Flag words, or counts, that a block takes.
pub(crate) const TILE: u32 = 8 * THREADS;
/// Groups that a warp encodes.
pub(crate) const UNIT_GROUPS: u64 = 512;
/// The most blocks for each processor.
const BLOCKS_EACH: u32 = 16;
/// In the published way, chunks of more bytes than this are built in global memory.
const SHARED_MAX: u32 = 48 << 10;

/// Device memory that grows when more is needed.
#[derive(Debug, Default)]
pub(super) struct Room(Buffer);

impl Room {
    /// Makes room for this many bytes; `true` if the memory is new, and the old content lost.
    pub(super) fn reserve(
        &mut self,
        device: &Arc<dyn Device>,
        bytes: u64,
    ) -> Result<bool, DeviceError> {
        let bytes = usize::try_from(bytes.max(16))
            .map_err(|_| DeviceError::OutOfMemory { bytes: usize::MAX })?;
        self.0.grow(device, bytes)
    }

    /// Where it starts; 0 if there is none.
    pub(super) fn address(&self) -> Address {
        self.0.address()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// What belongs to one set in flight.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The ids or the bitmap.
    pub(super) input: Room,
    /// The encoded set.
    pub(super) output: Room,
    status: Room,
    /// The status after each part, on the host.
    statuses: Vec<Pinned>,
    /// The staging area for input that is not pinned.
    pub(super) staging: Option<super::PinnedWords>,
}

/// The status of a set after a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Status {
    /// An id is not below the rows.
    pub(super) past: bool,
    /// An id came after its chunk was written.
    pub(super) late: bool,
    /// What has been written: chunks, or words.
    pub(super) total: u32,
}

impl Slot {
    /// The status after a part, which has been waited for.
    pub(super) fn status(&self, part: usize) -> Status {
        let word = |at: usize| {
            let words = self.statuses.get(part).map(|bytes| bytes.as_chunks().0);
            words.and_then(|words| words.get(at)).map_or(0, |&word| u32::from_le_bytes(word))
        };
        Status { past: word(0) != 0, late: word(1) != 0, total: word(TOTALS + part + 1) }
    }
}

/// What the kernels need to know about a HiPES set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// All ids are below this.
    pub(super) rows: u32,
    /// Rows of a chunk, as a power of two.
    pub(super) width: u32,
    /// How many ids there are.
    pub(super) len: u32,
}

impl Shape {
    /// Chunks that the rows take.
    pub(super) fn chunks(self) -> u32 {
        self.rows.checked_sub(1).map_or(0, |last| (last >> self.width) + 1)
    }

    /// Chunks that the ids can take.
    pub(super) fn chunks_max(self) -> u32 {
        self.chunks().min(self.len)
    }

    /// Bytes of the bits of all chunks.
    pub(super) fn bitmap_bytes(self) -> u64 {
        u64::from(self.chunks()) << (self.width - 3)
    }

    /// Words of the flags of all chunks.
    fn flag_words(self) -> u32 {
        self.chunks().div_ceil(32)
    }
}

/// Groups to encode as WAH.
#[derive(Debug, Clone, Copy)]
pub(super) struct Groups {
    /// Where the bitmap is and how many words it has.
    pub(super) bitmap: (Address, u32),
    /// How many groups there can be.
    pub(super) max: u64,
    /// Whether they end with the highest id that was marked; otherwise all groups are encoded.
    pub(super) marked: bool,
    /// Whether to write them as the papers do.
    pub(super) published: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Rooms {
    pub(super) device: Arc<dyn Device>,
    /// A bit for each row, and a flag for each chunk. All 0 between two sets, unless there was a
    /// failure.
    bits: Room,
    flags: Room,
    /// Whether they are all 0.
    pub(super) clean: bool,
    list: Room,
    sums: Room,
    places: Room,
    tags: Room,
    positions: Room,
    bins: Room,
    counts: Room,
    ends: Room,
    /// The phases of a set that is measured.
    pub(super) phases: Option<Vec<(&'static str, Event)>>,
}

impl Rooms {
    pub(super) fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device,
            bits: Room::default(),
            flags: Room::default(),
            clean: false,
            list: Room::default(),
            sums: Room::default(),
            places: Room::default(),
            tags: Room::default(),
            positions: Room::default(),
            bins: Room::default(),
            counts: Room::default(),
            ends: Room::default(),
            phases: None,
        }
    }

    /// Makes room for bits and flags, and clears them if they may not be clear.
    pub(super) fn reserve_bits(&mut self, bitmap: u64, chunks: u32) -> Result<(), DeviceError> {
        let flags = 4 * u64::from(chunks.div_ceil(32));
        let new = self.bits.reserve(&self.device, bitmap)?;
        let new = self.flags.reserve(&self.device, flags)? || new;
        if new || !self.clean {
            self.clear_all()?;
        }
        self.clean = true;
        Ok(())
    }

    /// Clears bits and flags.
    fn clear_all(&self) -> Result<(), DeviceError> {
        for room in [&self.bits, &self.flags] {
            if room.len() > 0 {
                self.device.fill(Stream::Compute, room.address(), 0, room.len())?;
            }
        }
        Ok(())
    }

    /// Resets a slot's status for a new set.
    pub(super) fn reset(&self, slot: &mut Slot, parts: usize) -> Result<(), DeviceError> {
        slot.status.reserve(&self.device, STATUS_BYTES as u64)?;
        while slot.statuses.len() < parts {
            slot.statuses.push(Pinned::new(&self.device, STATUS_BYTES)?);
        }
        self.device.fill(Stream::Compute, slot.status.address(), 0, STATUS_BYTES)
    }

    /// Copies the status after a part out.
    pub(super) fn report(&self, slot: &Slot, part: usize) -> Result<(), DeviceError> {
        let Some(target) = slot.statuses.get(part) else { return Ok(()) };
        let from = slot.status.address();
        self.device.copy_out(Stream::Compute, from, target.address(), STATUS_BYTES)
    }

    /// Notes the end of a phase, if the set is measured.
    pub(super) fn phase(&mut self, name: &'static str) -> Result<(), DeviceError> {
        if let Some(phases) = &mut self.phases {
            phases.push((name, record(&self.device, Stream::Compute)?));
        }
        Ok(())
    }

    /// Sets the bits of a slice of the ids, and the flags of their chunks if wanted. Chunks before
    /// `chunk_first` have been written.
    pub(super) fn mark(
        &self,
        slot: &Slot,
        shape: Shape,
        slice: (usize, u32),
        chunk_first: u32,
        flagged: bool,
    ) -> Result<(), DeviceError> {
        let flags = if flagged { self.flags.address() } else { 0 };
        self.launch(
            "sets_mark",
            self.blocks(slice.1.div_ceil(4 * THREADS)),
            &[
                Arg::Wide(slot.input.address() + 4 * slice.0 as u64),
                Arg::Narrow(slice.1),
                Arg::Narrow(shape.rows),
                Arg::Narrow(chunk_first),
                Arg::Narrow(shape.width),
                Arg::Wide(self.bits.address()),
                Arg::Wide(flags),
                Arg::Wide(slot.status.address()),
            ],
        )
    }

    /// Lists the flagged chunks before an end as a part of the set, with their places if wanted.
    pub(super) fn list(
        &mut self,
        slot: &Slot,
        shape: Shape,
        part: u32,
        chunk_end: u32,
        placed: bool,
    ) -> Result<(), DeviceError> {
        let words = shape.flag_words();
        let tiles = words.div_ceil(TILE);
        self.list.reserve(&self.device, 4 * u64::from(shape.chunks_max()))?;
        self.sums.reserve(&self.device, 4 * u64::from(tiles))?;
        if placed {
            self.places.reserve(&self.device, 4 * u64::from(shape.chunks()))?;
        }
        let (flags, sums) = (self.flags.address(), self.sums.address());
        if tiles > 1 {
            let args = [flags.into(), words.into(), chunk_end.into(), sums.into()];
            self.launch("sets_count", tiles, &args)?;
        }
        self.launch(
            "sets_list",
            tiles,
            &[
                flags.into(),
                words.into(),
                chunk_end.into(),
                sums.into(),
                part.into(),
                self.list.address().into(),
                if placed { self.places.address() } else { 0 }.into(),
                slot.status.address().into(),
            ],
        )
    }

    /// Copies the listed chunks of a part to the output, and clears them.
    pub(super) fn gather(&self, slot: &Slot, shape: Shape, part: u32) -> Result<(), DeviceError> {
        self.launch(
            "sets_gather",
            self.blocks_of_chunks(shape),
            &[
                self.bits.address().into(),
                self.list.address().into(),
                shape.width.into(),
                part.into(),
                slot.output.address().into(),
                slot.status.address().into(),
            ],
        )
    }

    /// Pass 0 of the published way, for a slice of the ids.
    pub(super) fn flag(
        &self,
        slot: &Slot,
        shape: Shape,
        slice: (usize, u32),
    ) -> Result<(), DeviceError> {
        self.launch(
            "sets_chunks",
            self.blocks(slice.1.div_ceil(4 * THREADS)),
            &[
                Arg::Wide(slot.input.address() + 4 * slice.0 as u64),
                Arg::Narrow(slice.1),
                Arg::Narrow(shape.rows),
                Arg::Narrow(shape.width),
                Arg::Wide(self.flags.address()),
                Arg::Wide(slot.status.address()),
            ],
        )
    }

    /// Passes 2 to 4 of the published way; the chunks are listed and their places known.
    pub(super) fn bin_and_build(&mut self, slot: &Slot, shape: Shape) -> Result<(), DeviceError> {
        let ids = 4 * u64::from(shape.len);
        self.tags.reserve(&self.device, ids)?;
        self.positions.reserve(&self.device, ids)?;
        let (tags, positions) = (self.tags.address(), self.positions.address());
        let blocks = self.blocks(shape.len.div_ceil(THREADS));
        self.launch(
            "sets_tag",
            blocks,
            &[
                slot.input.address().into(),
                shape.len.into(),
                shape.rows.into(),
                shape.width.into(),
                self.places.address().into(),
                tags.into(),
                positions.into(),
            ],
        )?;
        self.phase("tag")?;
        let payload_bytes = 1_u32 << (shape.width - 3);
        if payload_bytes > SHARED_MAX.min(self.device.facts().shared_max) {
            self.build_in_place(slot, shape, blocks)
        } else {
            self.bin(shape, blocks)?;
            self.build(slot, shape, payload_bytes)
        }
    }

    /// Pass 4 if a chunk does not fit into shared memory. Bins would not help, so there are none.
    fn build_in_place(
        &mut self,
        slot: &Slot,
        shape: Shape,
        blocks: u32,
    ) -> Result<(), DeviceError> {
        let (list, status) = (self.list.address(), slot.status.address());
        let out = slot.output.address();
        let args = [list.into(), shape.width.into(), out.into(), status.into()];
        self.launch("sets_blank", self.blocks_of_chunks(shape), &args)?;
        let args = [
            self.tags.address().into(),
            self.positions.address().into(),
            shape.len.into(),
            shape.width.into(),
            out.into(),
        ];
        self.launch("sets_or", blocks, &args)?;
        self.phase("build in global memory")
    }

    /// Pass 3: the rows in their chunks, bin by bin; `counts` is where the bins end.
    fn bin(&mut self, shape: Shape, blocks: u32) -> Result<(), DeviceError> {
        let (device, bins) = (&self.device, shape.chunks_max());
        let (tiles, counts_bytes) = (bins.div_ceil(TILE), 4 * bins as usize);
        self.bins.reserve(device, 4 * u64::from(shape.len))?;
        self.counts.reserve(device, 4 * u64::from(bins))?;
        self.sums.reserve(device, 4 * u64::from(tiles))?;
        let (counts, sums) = (self.counts.address(), self.sums.address());
        let (tags, positions) = (self.tags.address(), self.positions.address());
        device.fill(Stream::Compute, counts, 0, counts_bytes)?;
        let args = [tags.into(), shape.len.into(), counts.into()];
        self.launch("sets_histogram", blocks, &args)?;
        self.phase("histogram")?;
        self.launch("sets_sums", tiles, &[counts.into(), bins.into(), sums.into()])?;
        self.launch_one("sets_sums_before", &[sums.into(), tiles.into()])?;
        self.launch("sets_values_before", tiles, &[counts.into(), bins.into(), sums.into()])?;
        self.phase("scan")?;
        let args = [
            tags.into(),
            positions.into(),
            shape.len.into(),
            counts.into(),
            self.bins.address().into(),
        ];
        self.launch("sets_scatter", blocks, &args)?;
        self.phase("scatter")
    }

    /// Pass 4 in shared memory.
    fn build(&mut self, slot: &Slot, shape: Shape, payload_bytes: u32) -> Result<(), DeviceError> {
        let threads = (payload_bytes / 4).next_multiple_of(32).min(THREADS);
        // Small chunks take few threads, so more blocks run at once.
        let blocks = self.device.facts().processors.max(1) * BLOCKS_EACH * (THREADS / threads);
        let launch = Launch {
            stem: "sets",
            kernel: "sets_build",
            blocks: blocks.min(shape.chunks_max()),
            threads,
            shared: payload_bytes,
        };
        let args = [
            self.bins.address().into(),
            self.counts.address().into(),
            self.list.address().into(),
            shape.width.into(),
            slot.output.address().into(),
            slot.status.address().into(),
        ];
        self.device.launch(Stream::Compute, launch, &args)?;
        self.phase("build in shared memory")
    }

    /// The bitmap that ids are marked in, as words to encode.
    pub(super) fn marked_bitmap(&self, rows: u32) -> (Address, u32) {
        (self.bits.address(), rows.div_ceil(32))
    }

    /// Encodes groups as WAH.
    pub(super) fn wah(&mut self, slot: &Slot, groups: Groups) -> Result<(), DeviceError> {
        let units = groups.max.div_ceil(UNIT_GROUPS);
        self.counts.reserve(&self.device, 4 * units)?;
        self.ends.reserve(&self.device, 4 * units)?;
        let (counts, ends) = (self.counts.address(), self.ends.address());
        // There are fewer than 2^28 groups, so units and groups fit a word.
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let known = if groups.marked { 0 } else { narrow(groups.max) };
        let blocks = self.blocks(narrow(units.div_ceil(u64::from(THREADS / 32))));
        let (bitmap, words) = groups.bitmap;
        let status = slot.status.address();
        let args =
            [bitmap.into(), words.into(), known.into(), counts.into(), ends.into(), status.into()];
        self.launch("sets_wah_count", blocks, &args)?;
        self.phase("classify and count")?;
        let args = [known.into(), counts.into(), ends.into(), status.into()];
        self.launch_one("sets_wah_before", &args)?;
        self.phase("scan")?;
        let args = [
            bitmap.into(),
            words.into(),
            known.into(),
            counts.into(),
            ends.into(),
            u32::from(groups.published).into(),
            slot.output.address().into(),
            status.into(),
        ];
        self.launch("sets_wah_write", blocks, &args)?;
        self.phase("write")
    }

    /// Clears the bits up to the highest id that was marked.
    pub(super) fn clear_marked(&self, slot: &Slot, rows: u32) -> Result<(), DeviceError> {
        let blocks = self.blocks(rows.div_ceil(32).div_ceil(THREADS));
        let args = [self.bits.address().into(), slot.status.address().into()];
        self.launch("sets_clear", blocks, &args)
    }

    fn launch(&self, kernel: &'static str, blocks: u32, args: &[Arg]) -> Result<(), DeviceError> {
        let launch = Launch { stem: "sets", kernel, blocks, threads: THREADS, shared: 0 };
        self.device.launch(Stream::Compute, launch, args)
    }

    fn launch_one(&self, kernel: &'static str, args: &[Arg]) -> Result<(), DeviceError> {
        let threads = ONE_BLOCK_THREADS;
        let launch = Launch { stem: "sets", kernel, blocks: 1, threads, shared: 0 };
        self.device.launch(Stream::Compute, launch, args)
    }

    /// This many blocks, or as many as keep the device busy.
    fn blocks(&self, wanted: u32) -> u32 {
        wanted.clamp(1, self.device.facts().processors.max(1).saturating_mul(BLOCKS_EACH))
    }

    /// Blocks for one thread per word of the most chunks possible.
    fn blocks_of_chunks(&self, shape: Shape) -> u32 {
        let words = u64::from(shape.chunks_max()) << (shape.width - 5);
        self.blocks(u32::try_from(words.div_ceil(u64::from(THREADS))).unwrap_or(u32::MAX))
    }
}
