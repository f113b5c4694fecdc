//! The seam to a device that does the index step.
//!
//! A device can do two things, and does each as the CPU would, byte for byte:
//!
//! - A [`PacketDevice`] turns frames into [chunks](DeviceChunk) of packets whose flows it has
//!   found, and sorts the packets of several chunks into a segment.
//! - A [`SegmentDevice`] sorts a segment whose flows the CPU has found, and builds its bitmaps, if
//!   all columns are to be bitmaps of a codec.

use tapdex_bitmap::{Codec, PastCache, past_cache};

use crate::error::IndexError;
use crate::fields::{self, FIELDS, FieldSet, Home, Packet, Spec, length_excess};
use crate::index::{self, ColumnIndex, Digits, Width};

/// Words of a flow's key: flows are sorted by them, the first word before the others.
pub const KEY_WORDS: usize = 6;
/// Words of the wide part of a key, which few flows have.
pub const WIDE_WORDS: usize = 10;
pub use crate::fields::OWN_DIGITS;
pub use crate::index::{Sorted, StepCode};

/// Does the index step of a segment in flow order: sorts, and builds the columns.
///
/// If it fails, with whatever error, the segment is indexed on the CPU instead, and the result is
/// the same, byte for byte.
pub trait SegmentDevice: Send + std::fmt::Debug {
    /// Sorts the flows of a segment by their keys, and its records by flow, those of a flow in
    /// order of arrival. The device keeps what the columns are built from.
    fn sort(&mut self, segment: &SegmentKeys<'_>) -> Result<SegmentOrder, SegmentFailed>;

    /// Builds columns of the segment that was sorted last, and passes each to `done`, in order.
    fn columns(
        &mut self,
        columns: &[(SegmentColumn<'_>, Codec)],
        done: &mut dyn FnMut(&ColumnIndex) -> Result<(), IndexError>,
    ) -> Result<(), SegmentFailed>;

    /// The same device, for frames; `None` if it does not take any.
    fn packets(&self) -> Option<std::sync::Arc<dyn PacketDevice>> {
        None
    }
}

/// What a segment is sorted by.
#[derive(Debug, Clone)]
pub struct SegmentKeys<'a> {
    /// For each word of a key, that word of every flow. A flow is there once for each chunk that
    /// has it, in the order of the chunks.
    pub words: [&'a [u64]; KEY_WORDS],
    /// The flow of each record, in order of arrival.
    pub flow_of: &'a [u32],
    /// What belongs to single records rather than to flows: lists of digits, each with the digit of
    /// every record, in order of arrival. The list of a field that is not kept is empty, and no
    /// column is built from it.
    pub own: Vec<Digits<'a>>,
}

/// The order of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentOrder {
    /// The flows in order of their keys.
    pub flows: Vec<u32>,
    /// The row that each of them starts at.
    pub starts: Vec<u32>,
    /// The records in order of their flows.
    pub records: Vec<u32>,
}

/// A column of a segment in flow order.
#[derive(Debug, Clone, Copy)]
pub enum SegmentColumn<'a> {
    /// The bits of a word of each flow's key, from `shift` up.
    Key {
        /// Which word.
        word: usize,
        /// Where the digit starts in it.
        shift: u32,
        /// How many bits the digit has.
        width: Width,
    },
    /// What belongs to single records: the list with this number in [`SegmentKeys::own`].
    Own(usize),
    /// Digits of runs, and the row that each run starts at.
    Runs(&'a [u16], &'a [u32]),
    /// A digit of each entry of a column that has other entries than rows: conversations, or their
    /// ends.
    Entries(&'a [u16]),
}

/// Bytes of a frame that a device gets, at most. If a frame is longer, and its headers do not end
/// there, the device refuses it.
pub const FRAME_BYTES: usize = 128;
/// Frames that are sent together, at most.
pub const BATCH_FRAMES: usize = 1 << 14;
/// The most frames of a chunk.
pub const CHUNK_FRAMES_MAX: usize = 1 << 18;
/// Where the bytes of frames start: at multiples of this, behind the heads of the batch.
pub const FRAME_ALIGN: usize = 16;

/// Turns frames into chunks of packets, and sorts those of several chunks.
///
/// Threads work on chunks of their own at the same time. If anything fails, the CPU reads the
/// packets again, and does all of it.
pub trait PacketDevice: Send + Sync + std::fmt::Debug {
    /// Room for frames, empty. Waits for room that is being copied from.
    fn frames(&self) -> Result<Frames, SegmentFailed>;

    /// Begins a chunk.
    fn begin(&self, kept: &Kept) -> Result<Box<dyn DeviceChunk>, SegmentFailed>;

    /// Sorts the packets of chunks that were finished, and that follow each other: the flows of all
    /// chunks by their keys, and the packets by flow, those of a flow in order of arrival. Encodes
    /// what the index has of that order, and sorts the entries of some columns of flows by value.
    /// The result replaces that of another segment, whose memory is used again.
    fn sort(
        &self,
        chunks: &[&dyn DeviceChunk],
        columns: &[FlowColumn],
        target: &mut SortedPackets,
    ) -> Result<(), SegmentFailed>;
}

/// Packets on a device that follow each other. Its memory is given back when it is dropped.
pub trait DeviceChunk: Send + Sync + std::fmt::Debug {
    /// Decodes frames, which follow those before. Returns at once.
    fn add(&mut self, frames: Frames) -> Result<(), SegmentFailed>;

    /// The frames that the device's decoder does not do, by their numbers in the chunk, ascending;
    /// all frames are there.
    fn refused(&mut self) -> Result<Vec<u32>, SegmentFailed>;

    /// Takes the keys of the frames that were refused, in the order of
    /// [`refused`](Self::refused), and finds the flows.
    fn finish(&mut self, refused: &[PacketKey]) -> Result<ChunkFigures, SegmentFailed>;

    /// Its number on the device.
    fn number(&self) -> u64;
}

/// Memory of the host that a device copies from.
pub trait HostMemory: Send + Sync + std::fmt::Debug {
    /// Its bytes.
    fn bytes(&self) -> &[u8];
    /// Its bytes, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl HostMemory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// Frames on their way to a device: a head for each, and as many of its bytes as are sent.
///
/// ```text
/// heads: for each frame where its bytes start, u32
///                       how many were captured, u32
///                       how many it had on the wire, u32
///                       link type, u16 << 16 | interface, u16: the value of the field
/// bytes: from 16 * BATCH_FRAMES on, each frame at a multiple of FRAME_ALIGN
/// ```
#[derive(Debug)]
pub struct Frames {
    memory: Box<dyn HostMemory>,
    len: usize,
    used: usize,
}

/// Bytes of the head of a frame.
pub const HEAD_BYTES: usize = 16;

impl Frames {
    /// Bytes of memory that it takes.
    pub const BYTES: usize = BATCH_FRAMES * (HEAD_BYTES + FRAME_BYTES);

    /// No frames, in memory of at least [`BYTES`](Self::BYTES) bytes.
    pub fn new(memory: Box<dyn HostMemory>) -> Self {
        Self { memory, len: 0, used: 0 }
    }

    /// The memory, to be used again.
    pub fn into_memory(self) -> Box<dyn HostMemory> {
        self.memory
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether there is no room for another one.
    pub fn is_full(&self) -> bool {
        self.len == BATCH_FRAMES
    }

    /// Their heads.
    pub fn heads(&self) -> &[u8] {
        self.memory.bytes().get(..HEAD_BYTES * self.len).unwrap_or_default()
    }

    /// Their bytes, from which `start` of a head counts.
    pub fn data(&self) -> &[u8] {
        let data = self.memory.bytes().get(HEAD_BYTES * BATCH_FRAMES..).unwrap_or_default();
        data.get(..self.used).unwrap_or_default()
    }

    /// Heads and bytes together, if nothing lies between them.
    pub fn heads_and_data(&self) -> Option<&[u8]> {
        let data_end = HEAD_BYTES * BATCH_FRAMES + self.used;
        self.memory.bytes().get(..data_end).filter(|_| self.is_full())
    }

    /// Adds a frame; there is room for it.
    pub fn push(&mut self, source: (u16, u16), wire_len: u32, data: &[u8]) {
        self.write(|writer| writer.push(source, wire_len, data));
    }

    /// Adds frames.
    #[inline(always)]
    pub fn write<R>(&mut self, add: impl FnOnce(&mut FrameWriter<'_>) -> R) -> R {
        let Self { memory, len, used } = self;
        let (heads, bytes) = memory.bytes_mut().split_at_mut(HEAD_BYTES * BATCH_FRAMES);
        let (heads, _) = heads.as_chunks_mut();
        past_cache(|past_cache| add(&mut FrameWriter { past_cache, heads, bytes, len, used }))
    }
}

/// Adds frames to others.
#[derive(Debug)]
pub struct FrameWriter<'f> {
    /// Only the device reads the frames, so they need not come into the cache.
    past_cache: &'f PastCache,
    heads: &'f mut [[u8; HEAD_BYTES]],
    bytes: &'f mut [u8],
    len: &'f mut usize,
    used: &'f mut usize,
}

impl FrameWriter<'_> {
    /// Whether there is no room for another one.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        *self.len == BATCH_FRAMES
    }

    /// Adds a frame, from the interface of this link type and number; there is room for it.
    #[inline(always)]
    pub fn push(&mut self, (link, interface): (u16, u16), wire_len: u32, data: &[u8]) {
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let source = u32::from(link) << 16 | u32::from(interface);
        let words = [word(*self.used), word(data.len()), wire_len, source];
        if let Some(place) = self.heads.get_mut(*self.len) {
            let mut head = [0; HEAD_BYTES];
            let (places, _) = head.as_chunks_mut::<4>();
            places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
            self.past_cache.write(&head, place);
        }
        let kept = &data[..data.len().min(FRAME_BYTES)];
        let end = *self.used + kept.len().next_multiple_of(FRAME_ALIGN);
        if let Some(place) = self.bytes.get_mut(*self.used..end) {
            copy(self.past_cache, kept, place.as_chunks_mut().0);
        }
        *self.used = end;
        *self.len += 1;
    }
}

/// Copies a frame, and fills its last piece up with zeros.
#[inline(always)]
fn copy(past_cache: &PastCache, frame: &[u8], to: &mut [[u8; FRAME_ALIGN]]) {
    let (pieces, rest) = frame.as_chunks::<FRAME_ALIGN>();
    to.iter_mut().zip(pieces).for_each(|(place, piece)| past_cache.write(piece, place));
    let (false, Some(place)) = (rest.is_empty(), to.last_mut()) else { return };
    let last = match frame.last_chunk::<FRAME_ALIGN>() {
        // Shifted in one step: a loop, or a call, over so few bytes takes longer.
        Some(last) => u128::from_le_bytes(*last) >> (8 * (FRAME_ALIGN - rest.len())),
        None => rest.iter().rev().fold(0, |bits, &byte| bits << 8 | u128::from(byte)),
    };
    past_cache.write(&last.to_le_bytes(), place);
}

/// What is kept of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The bits of keys that are kept.
    pub mask: [u64; KEY_WORDS],
    /// Which digits of single packets are kept.
    pub own: [bool; OWN_DIGITS],
}

/// What a packet is to the index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketKey {
    /// The key of its flow, its ends in order; without the number of the wide part.
    pub narrow: [u64; KEY_WORDS],
    /// The wide part of the key; 0 if it has none.
    pub wide: [u64; WIDE_WORDS],
    /// What it has for itself, digit by digit.
    pub own: [u16; OWN_DIGITS],
    /// What its length is above the least of its class.
    pub excess: u32,
}

impl Kept {
    /// What is kept of packets if these fields are.
    pub fn of(fields: FieldSet) -> Self {
        let own = FIELDS.iter().filter(|spec| !spec.is_of_flow());
        let mut own = own.flat_map(|spec| spec.own_digits().map(|_| fields.contains(spec.field)));
        let own = std::array::from_fn(|_| own.next().unwrap_or(false));
        Self { mask: fields::mask(fields), own }
    }
}

impl PacketKey {
    /// That of a packet, whose headers are here.
    #[inline(always)]
    pub fn of(packet: &Packet<'_>, kept: &Kept) -> Self {
        let mut narrow = fields::narrow(packet);
        let mut wide = [0; WIDE_WORDS];
        if packet.headers.wide {
            wide = fields::wide(packet);
            fields::order_ends(&mut narrow, Some(&mut wide));
        } else {
            fields::order_ends(&mut narrow, None);
        }
        narrow.iter_mut().zip(kept.mask).for_each(|(word, mask)| *word &= mask);
        Self { narrow, wide, own: fields::own(packet), excess: length_excess(packet.wire_len) }
    }
}

/// What is known of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkFigures {
    /// How many flows it has.
    pub flows: u32,
    /// How many wide parts of flows.
    pub wide: u32,
    /// The bits that are set in any key, and in any wide part.
    pub bits: [u64; KEY_WORDS],
    /// Those in any wide part.
    pub wide_bits: [u64; WIDE_WORDS],
    /// Which of the digits of single packets are not 0 in all of them.
    pub own: [bool; OWN_DIGITS],
    /// Packets whose headers are odd.
    pub odd: u64,
}

/// Where the value of a column is in the keys of flows, and how many bits it has: at most 64 of a
/// word, or all of a word of the wide part and all of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPlace {
    /// In the wide part.
    pub is_wide: bool,
    /// The word.
    pub word: usize,
    /// Where in the word the value starts.
    pub shift: u32,
    /// How many bits it has.
    pub bits: u32,
}

/// A column that conversations have values in, or their ends.
///
/// The entries of a column are the conversations; of a column with both ends, first the sources of
/// all of them, and then the destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowColumn {
    /// Where the value is; if the column is of both ends, that of the source.
    pub first: KeyPlace,
    /// That of the destination.
    pub second: Option<KeyPlace>,
}

impl FlowColumn {
    /// That of a field; `None` if it is not one of flows.
    pub(crate) fn of(spec: &Spec) -> Option<Self> {
        let place = |spec: &Spec| {
            let bits = spec.home_bits();
            match spec.home {
                Home::Narrow(word, shift) => Some(KeyPlace { is_wide: false, word, shift, bits }),
                Home::Wide(word, shift) => Some(KeyPlace { is_wide: true, word, shift, bits }),
                Home::Packet => None,
            }
        };
        Some(Self { first: place(spec)?, second: spec.other_end().and_then(place) })
    }

    /// All that there are.
    pub fn all() -> Vec<Self> {
        FIELDS.iter().filter(|spec| !spec.is_second_end()).filter_map(Self::of).collect()
    }
}

/// A column, sorted by value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortedColumn {
    /// The entries.
    pub sorted: Sorted,
    /// How many bytes the packed form has of the places of entries' values among those that differ.
    pub packed_bytes: u64,
}

/// The packets of a segment in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SortedPackets {
    /// How many flows there are.
    pub flows: u64,
    /// How many packets the flows have: two for each conversation, in the order of their keys, of
    /// which one may have none.
    pub packets: Vec<u32>,
    /// The excess of each.
    pub excess: Vec<u64>,
    /// The columns of flows that were asked for.
    pub columns: Vec<SortedColumn>,
    /// The order of the records, which are counted through all chunks, as the index has it: from
    /// the head of the [code](StepCode) of its steps to the last block.
    pub row_map: Vec<u8>,
    /// What the records have for themselves, in that order. Empty if it is not kept.
    pub own: [OwnDigits; OWN_DIGITS],
}

/// A digit of each packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnDigits {
    /// A byte of each.
    Bytes(Vec<u8>),
    /// Two bytes of each.
    Shorts(Vec<u16>),
    /// A column of one digit that is [best packed](PackedDigits::suffices).
    Packed(PackedDigits),
}

/// A digit of each packet, in the packed form of columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedDigits {
    /// The digits that occur, ascending.
    pub values: Vec<u16>,
    /// The places of the packets' digits among these, as packed numbers.
    pub bytes: Vec<u8>,
}

impl PackedDigits {
    /// Numbers of a packed block.
    pub const BLOCK: usize = index::PACKED_BLOCK;
    /// Blocks whose starts are counted from the same place.
    pub const GROUP_BLOCKS: usize = index::PACKED_GROUP;

    /// The packed form of digits, and how many runs of the same digit they have.
    #[cfg(feature = "testing")]
    pub fn pack(digits: &[u16]) -> (Self, usize) {
        let (values, bytes, runs) = index::pack_digits(digits, |&digit| digit);
        let values = values.into_iter().filter_map(|value| u16::try_from(value).ok());
        (Self { values: values.collect(), bytes }, runs)
    }

    /// Whether so many packed bytes are better than bitmaps, whatever these are like, of so many
    /// values that have so many runs. If not, the digits themselves are needed.
    pub fn suffices(bytes: usize, values: usize, runs: usize) -> bool {
        index::packed_suffices(bytes, values, runs)
    }
}

impl OwnDigits {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(list) => list.is_empty(),
            Self::Shorts(list) => list.is_empty(),
            Self::Packed(packed) => packed.bytes.is_empty(),
        }
    }
}

impl Default for OwnDigits {
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

/// Why a device did not index a segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentFailed {
    /// The device failed.
    #[error("{0}")]
    Device(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What the device returned is not in order.
    #[error("what the device sorted is not in order")]
    Disorder,
    /// The index could not be written.
    #[error(transparent)]
    Index(#[from] IndexError),
}
