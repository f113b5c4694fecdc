//! The device's decoder of frames by itself, for tests.
//!
//! [`FrameDecoder`] launches the kernel of `kernels/decode.cu`, and returns what it made of each
//! frame. It must be what [`PacketKey::of`] says, or the frame must be refused.

use std::sync::Arc;

use tapdex_engine::archive::device::{
    Frames, HEAD_BYTES, KEY_WORDS, Kept, OWN_DIGITS, PacketKey, WIDE_WORDS,
};

use crate::column::{THREADS, args, blocks, u32_of};
use crate::device::{Address, Arg, Device, DeviceError, Launch, Stream, record};
use crate::memory::{Memory, Pinned, bytes_of};

/// Bytes of each digit of single packets.
const OWN_BYTES: [usize; OWN_DIGITS] = [1, 1, 2, 2, 2];

/// Room behind the bytes of frames.
const BEHIND_BYTES: usize = 16;

/// Decodes frames on a device.
#[derive(Debug)]
pub struct FrameDecoder {
    device: Arc<dyn Device>,
    heads: Option<Memory>,
    data: Option<Memory>,
    lists: Vec<List>,
}

/// What the device made of frames.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decoded {
    /// What each frame is to the index; none for those that were refused. Digits that are not kept
    /// are 0.
    pub keys: Vec<Option<PacketKey>>,
    /// The numbers of the frames that were refused, in any order.
    pub refused: Vec<u32>,
    /// How many wide parts were written.
    pub wides: u32,
}

/// A list that the kernel writes, and its copy here. Both are exactly as long as the list, so that
/// nothing can be written behind it unseen.
#[derive(Debug)]
struct List {
    memory: Memory,
    copy: Pinned,
}

impl FrameDecoder {
    /// A decoder on a device.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, heads: None, data: None, lists: Vec::new() }
    }

    /// Decodes the frames of some batches, which become records one after the other.
    pub fn decode(&mut self, batches: &[Frames], kept: &Kept) -> Result<Decoded, DeviceError> {
        let len: usize = batches.iter().map(Frames::len).sum();
        self.reserve(batches, len)?;
        let stream = Stream::Compute;
        // What is not written is told apart from most of what is.
        for list in &self.lists {
            self.device.fill(stream, list.memory.address(), 0xA7, list.memory.len())?;
        }
        let at = self.places();
        self.device.fill(stream, at[COUNTS], 0, 8)?;
        self.device.copy_in(stream, bytes_of(&kept.mask), at[MASK])?;
        let mut first = 0;
        for frames in batches {
            self.launch(frames, (first, len), kept)?;
            first += frames.len();
        }
        for list in &self.lists {
            let (from, to) = (list.memory.address(), list.copy.address());
            self.device.copy_out(stream, from, to, list.memory.len())?;
        }
        record(&self.device, stream)?.wait()?;
        Ok(self.decoded(len, kept))
    }

    /// Makes room for what the kernel reads and writes. Memory that has the right size is kept.
    fn reserve(&mut self, batches: &[Frames], len: usize) -> Result<(), DeviceError> {
        let device = &self.device;
        let most = |bytes: fn(&Frames) -> usize| batches.iter().map(bytes).max().unwrap_or(0);
        let room = |memory: &mut Option<Memory>, bytes| {
            if memory.as_ref().is_none_or(|memory| memory.len() < bytes) {
                *memory = Some(Memory::new(device, bytes)?);
            }
            Ok(())
        };
        room(&mut self.heads, most(|frames| frames.heads().len()))?;
        room(&mut self.data, most(|frames| frames.data().len()) + BEHIND_BYTES)?;
        let sizes = sizes(len);
        if self.lists.iter().map(|list| list.memory.len()).ne(sizes) {
            self.lists.clear();
            for bytes in sizes {
                let (memory, copy) = (Memory::new(device, bytes)?, Pinned::new(device, bytes)?);
                self.lists.push(List { memory, copy });
            }
        }
        Ok(())
    }

    fn places(&self) -> [Address; LISTS] {
        std::array::from_fn(|list| self.lists.get(list).map_or(0, |list| list.memory.address()))
    }

    /// Copies frames in, and decodes them as the records from `first` on.
    fn launch(
        &self,
        frames: &Frames,
        (first, stride): (usize, usize),
        kept: &Kept,
    ) -> Result<(), DeviceError> {
        let address = |memory: &Option<Memory>| memory.as_ref().map_or(0, Memory::address);
        let (heads, data) = (address(&self.heads), address(&self.data));
        self.device.copy_in(Stream::Compute, frames.heads(), heads)?;
        self.device.copy_in(Stream::Compute, frames.data(), data)?;
        let at = self.places();
        let own: [Address; OWN_DIGITS] =
            std::array::from_fn(|digit| if kept.own[digit] { at[OWN + digit] } else { 0 });
        let args = args![
            heads,
            data,
            u32_of(frames.len()),
            u32_of(first),
            u32_of(stride),
            at[MASK],
            at[KEYS],
            at[WIDE_OF],
            at[WIDES],
            at[EXCESS],
            own[0],
            own[1],
            own[2],
            own[3],
            own[4],
            at[REFUSED],
            at[COUNTS],
        ];
        let launch = Launch {
            stem: "decode",
            kernel: "decode_frames",
            blocks: blocks(frames.len(), THREADS as usize),
            threads: THREADS,
            shared: 0,
        };
        self.device.launch(Stream::Compute, launch, args)
    }

    /// What the lists hold.
    fn decoded(&self, len: usize, kept: &Kept) -> Decoded {
        let number = |list: usize, at: usize, width: usize| {
            let bytes = self.lists.get(list).map_or(&[][..], |list| &list.copy);
            let bytes = bytes.get(at * width..(at + 1) * width).unwrap_or_default();
            bytes.iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let short = |list, at, width| u16::try_from(number(list, at, width)).unwrap_or(u16::MAX);
        let word = |list, at| u32::try_from(number(list, at, 4)).unwrap_or(u32::MAX);
        let key = |record: usize| {
            let wide = word(WIDE_OF, record).checked_sub(1);
            let part = |slot: u32, word| number(WIDES, slot as usize * WIDE_WORDS + word, 8);
            PacketKey {
                narrow: std::array::from_fn(|word| number(KEYS, word * len + record, 8)),
                wide: std::array::from_fn(|word| wide.map_or(0, |slot| part(slot, word))),
                own: std::array::from_fn(|digit| match kept.own[digit] {
                    true => short(OWN + digit, record, OWN_BYTES[digit]),
                    false => 0,
                }),
                excess: word(EXCESS, record),
            }
        };
        let mut keys: Vec<_> = (0..len).map(|record| Some(key(record))).collect();
        let refused: Vec<u32> = (0..word(COUNTS, 0) as usize).map(|at| word(REFUSED, at)).collect();
        for &record in &refused {
            if let Some(place) = keys.get_mut(record as usize) {
                *place = None;
            }
        }
        Decoded { keys, refused, wides: word(COUNTS, 1) }
    }
}

// The lists by their numbers.
const MASK: usize = 0;
const KEYS: usize = 1;
const WIDE_OF: usize = 2;
const WIDES: usize = 3;
const EXCESS: usize = 4;
const REFUSED: usize = 5;
const COUNTS: usize = 6;
const OWN: usize = 7;
const LISTS: usize = OWN + OWN_DIGITS;

/// The bytes of each list for so many frames.
fn sizes(len: usize) -> [usize; LISTS] {
    let mut sizes = [0; LISTS];
    sizes[MASK] = 8 * KEY_WORDS;
    sizes[KEYS] = 8 * KEY_WORDS * len;
    sizes[WIDE_OF] = 4 * len;
    sizes[WIDES] = 8 * WIDE_WORDS * len;
    sizes[EXCESS] = 4 * len;
    sizes[REFUSED] = 4 * len;
    sizes[COUNTS] = 8;
    sizes[OWN..].iter_mut().zip(OWN_BYTES).for_each(|(size, bytes)| *size = bytes * len);
    sizes
}

/// The kernel reads the head of a frame as four words.
const _: () = assert!(HEAD_BYTES == 16);
