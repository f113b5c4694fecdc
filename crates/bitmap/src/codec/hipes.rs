//! HiPES: the plain bitsets of those chunks of 2^w rows that hold an id.
//!
//! ```text
//! chunk    [u32: c, the id over 2^w][2^w / 32 words of u32: bit p % 32 of word p / 32 is
//!          set <=> id c * 2^w + p is in the set]
//! ```
//!
//! All of a chunk is written, empty words included; a chunk without an id is not. Chunks ascend.
//! There is no directory: every chunk has the same size, so the n-th is found by multiplying. `w`
//! is from 7 to 29, 16 by default; like the row count it is not in the bytes.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let ids: Vec<u32> = (0..=10).chain([131_075, 2_228_227]).collect();
//! let mut bytes = vec![];
//! "hipes".parse::<Codec>()?.encode(&ids, &mut bytes);
//! assert_eq!(bytes.len(), 3 * 8_196); // chunks 0, 2 and 34
//! assert_eq!(bytes[8_196..8_204], [2, 0, 0, 0, 8, 0, 0, 0]);
//! # Ok::<(), tapdex_bitmap::UnknownCodec>(())
//! ```
//!
//! Wins on dense ids, and on speed: an id is one bit set, a look-up one bit read. Loses by orders
//! of magnitude on sparse ones: a lone id costs 8,196 bytes at `w` = 16.
//! Source: the GPU chunk-bitmap paper (HiPES) and its artifact.

use crate::cast::len32;
use crate::chunk::{Bits, CHUNK_ROWS, Chunk, Room, WORDS, id_of};
use crate::chunks::Chunks;
use crate::codec::{BitmapCodec, Codec, Encoder, Explained};
use crate::error::DecodeError;
use crate::runs::{TakeRuns, push_runs};
use crate::simd;

/// The rows of a chunk as a power of two, from 7 to 29.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Width(u8);

impl Width {
    /// The paper's choice.
    pub const DEFAULT: Width = Width(16);

    /// `w`, if it is from 7 to 29.
    pub fn new(w: u8) -> Option<Self> {
        (7..=29).contains(&w).then_some(Self(w))
    }

    /// The exponent.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Bytes of a chunk's bitset.
    fn payload_bytes(self) -> usize {
        1 << (self.0 - 3)
    }

    /// Bytes of an encoded chunk, header and bitset.
    pub fn chunk_bytes(self) -> usize {
        HEADER_BYTES + self.payload_bytes()
    }
}

const HEADER_BYTES: usize = 4;

/// Chunks of at most this width are cleared many at a time.
const SMALL_MAX: u8 = 10;

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Hipes(pub Width);

/// Puts a set into chunks; see [`Encoder`].
#[derive(Debug)]
pub struct HipesEncoder<'t> {
    width: Width,
    target: &'t mut Vec<u8>,
    /// The chunk at hand and where its bitset starts; `None` before the first.
    open: Option<(u32, usize)>,
}

impl HipesEncoder<'_> {
    /// Where the bitset of the chunk starts: the current chunk, or a new one after it.
    #[inline(always)]
    fn chunk_start(&mut self, id: u32) -> usize {
        match self.open {
            Some((open, start)) if open == id => start,
            _ => {
                self.target.extend_from_slice(&id.to_le_bytes());
                let start = self.target.len();
                self.target.resize(start + self.width.payload_bytes(), 0);
                self.open = Some((id, start));
                start
            }
        }
    }

    #[inline(always)]
    fn id(&mut self, id: u32) {
        let start = self.chunk_start(id >> self.width.0);
        let position = id & ((1 << self.width.0) - 1);
        self.target[start + (position >> 3) as usize] |= 1 << (position & 7);
    }
}

impl HipesEncoder<'_> {
    /// Adds ids of small chunks: room for one chunk per id is cleared for many ids at once, and
    /// unused room is given back.
    fn ids_of_small_chunks(&mut self, ids: &[u32]) {
        const BATCH: usize = 64;
        let (width, size) = (self.width.0, self.width.chunk_bytes());
        for ids in ids.chunks(BATCH) {
            // The chunk at hand comes first, or the room for it if there is none.
            let (mut open, first) = match self.open {
                Some((open, start)) => (open, start - HEADER_BYTES),
                None => (ids[0] >> width, self.target.len()),
            };
            self.target.resize(self.target.len() + (ids.len() + 1) * size, 0);
            let chunks = &mut self.target[first..];
            let mut at = 0;
            for &id in ids {
                let chunk = id >> width;
                at += if chunk == open { 0 } else { size };
                open = chunk;
                let place = &mut chunks[at..at + size];
                place[..HEADER_BYTES].copy_from_slice(&chunk.to_le_bytes());
                let position = id & ((1 << width) - 1);
                place[HEADER_BYTES + (position >> 3) as usize] |= 1 << (position & 7);
            }
            self.target.truncate(first + at + size);
            self.open = Some((open, first + at + HEADER_BYTES));
        }
    }
}

impl Encoder for HipesEncoder<'_> {
    fn ids(&mut self, ids: &[u32]) {
        if self.width.0 <= SMALL_MAX {
            return self.ids_of_small_chunks(ids);
        }
        let mut rest = ids;
        while let Some(&first) = rest.first() {
            let chunk = first >> self.width.0;
            let start = self.chunk_start(chunk);
            let base = chunk << self.width.0;
            let payload = &mut self.target[start..];
            let mut taken = 0;
            for &id in rest {
                let position = id.wrapping_sub(base);
                let Some(byte) = payload.get_mut((position >> 3) as usize) else { break };
                *byte |= 1 << (position & 7);
                taken += 1;
            }
            rest = &rest[taken..];
        }
    }

    fn chunk(&mut self, key: u32, chunk: Chunk<'_>) {
        let base = key << 16;
        let mut from_runs: Bits;
        let bits = match chunk {
            Chunk::Array(ids) => return ids.iter().for_each(|&id| self.id(base | id_of(id))),
            Chunk::Bits { bits, .. } => bits,
            Chunk::Runs(_) => {
                from_runs = [[0; 8]; WORDS];
                chunk.or_into(&mut from_runs);
                &from_runs
            }
        };
        let part_bytes = self.width.payload_bytes().min(8 * WORDS);
        for (index, part) in bits.as_flattened().chunks(part_bytes).enumerate() {
            if part.iter().any(|&byte| byte != 0) {
                let first = base + 8 * len32(index * part_bytes);
                let start = self.chunk_start(first >> self.width.0);
                let position = (first & ((1 << self.width.0) - 1)) >> 3;
                let start = start + position as usize;
                self.target[start..start + part.len()].copy_from_slice(part);
            }
        }
    }

    fn finish(self) {}
}

impl HipesEncoder<'_> {
    /// Adds the rows `first..=last`, above those added before.
    #[inline(always)]
    fn run(&mut self, first: u32, last: u32) {
        let mask = (1 << self.width.0) - 1;
        for chunk in first >> self.width.0..=last >> self.width.0 {
            let base = chunk << self.width.0;
            let (from, to) = (first.max(base) - base, last.min(base | mask) - base);
            let start = self.chunk_start(chunk);
            let (head, tail) = ((from >> 3) as usize, (to >> 3) as usize);
            let bytes = &mut self.target[start + head..=start + tail];
            let (head_mask, tail_mask) = (0xFF << (from & 7), 0xFF >> (7 - (to & 7)));
            match bytes {
                [byte] => *byte |= head_mask & tail_mask,
                [first, between @ .., last] => {
                    *first |= head_mask;
                    between.fill(0xFF);
                    *last |= tail_mask;
                }
                [] => {}
            }
        }
    }
}

impl TakeRuns for HipesEncoder<'_> {
    #[inline(always)]
    fn take_ids(&mut self, ids: &[u32]) {
        self.ids(ids);
    }

    fn take_runs(&mut self, runs: &[(u32, u32)]) {
        runs.iter().for_each(|&(first, last)| self.run(first, last));
    }
}

impl BitmapCodec for Hipes {
    type Encoder<'t> = HipesEncoder<'t>;
    type Cursor<'a> = HipesCursor<'a>;

    fn codec(&self) -> Codec {
        Codec::Hipes(self.0)
    }

    fn encoder<'t>(&self, target: &'t mut Vec<u8>, _: usize) -> HipesEncoder<'t> {
        HipesEncoder { width: self.0, target, open: None }
    }

    fn encode_runs(&self, runs: &[(u32, u32)], target: &mut Vec<u8>) {
        push_runs(runs, &mut HipesEncoder { width: self.0, target, open: None });
    }

    fn check(&self, source: &[u8], rows: u32) -> Result<(), DecodeError> {
        let size = self.0.chunk_bytes();
        let over = source.len() % size;
        if over != 0 {
            let offset = source.len() - over;
            return Err(DecodeError::Truncated { offset, missing: size - over });
        }
        let mut previous = None;
        for (index, chunk) in source.chunks_exact(size).enumerate() {
            let offset = index * size;
            let (header, payload) = chunk.split_at(HEADER_BYTES);
            let got = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            if let Some(previous) = previous
                && got <= previous
            {
                return Err(DecodeError::NotAscending { what: "chunk", offset, previous, got });
            }
            let Some(last) = payload.iter().rposition(|&byte| byte != 0) else {
                return Err(DecodeError::Empty { what: "chunk", offset });
            };
            let bit = 8 * last as u64 + 7 - u64::from(payload[last].leading_zeros());
            if (u64::from(got) << self.0.0) + bit >= u64::from(rows) {
                return Err(DecodeError::PastEnd { offset, rows });
            }
            previous = Some(got);
        }
        Ok(())
    }

    fn cursor<'a>(&self, source: &'a [u8], _: u32) -> HipesCursor<'a> {
        HipesCursor { width: self.0, source, at: 0, key: 0, room: Room::default() }
    }

    fn cardinality(&self, source: &[u8], _: u32) -> u64 {
        let payloads =
            source.chunks_exact(self.0.chunk_bytes()).map(|chunk| &chunk[HEADER_BYTES..]);
        payloads.map(|bytes| u64::from(simd::count(bytes.as_chunks().0))).sum()
    }

    fn explain(&self, source: &[u8]) -> Vec<Explained> {
        let mut lines = Vec::new();
        let rows = 1 << self.0.0;
        for (index, chunk) in source.chunks_exact(self.0.chunk_bytes()).enumerate() {
            let offset = index * self.0.chunk_bytes();
            let words = chunk.as_chunks::<4>().0;
            let id = u64::from(u32::from_le_bytes(words[0]));
            let base = id * rows;
            lines.push(Explained {
                offset,
                width: 4,
                rows: Some((base, base + rows - 1)),
                kind: "chunk",
                fields: vec![("id", id), ("words", words.len() as u64 - 1)],
            });
            for (place, &word) in words.iter().enumerate().skip(1) {
                let word = u32::from_le_bytes(word);
                if word == 0 {
                    continue;
                }
                let first = base + 32 * (place as u64 - 1);
                lines.push(Explained {
                    offset: offset + 4 * place,
                    width: 4,
                    rows: Some((first, first + 31)),
                    kind: "bits",
                    fields: vec![("rows", word.count_ones().into())],
                });
            }
        }
        lines
    }
}

/// The chunks of a HiPES bitmap; made by [`Bitmap::chunks`](crate::Bitmap::chunks).
#[derive(Debug)]
pub struct HipesCursor<'a> {
    width: Width,
    source: &'a [u8],
    /// The first HiPES chunk that is not behind the cursor.
    at: usize,
    /// The chunk of 65,536 rows that `seek` found.
    key: u32,
    room: Room,
}

impl<'a> HipesCursor<'a> {
    fn stored(&self) -> usize {
        self.source.len() / self.width.chunk_bytes()
    }

    /// The id and the bitset of a HiPES chunk.
    #[inline(always)]
    fn chunk(&self, index: usize) -> (u32, &'a [u8]) {
        let size = self.width.chunk_bytes();
        let (header, payload) =
            self.source[index * size..(index + 1) * size].split_at(HEADER_BYTES);
        (u32::from_le_bytes([header[0], header[1], header[2], header[3]]), payload)
    }

    /// The key of the chunk of 65,536 rows that a HiPES chunk starts in.
    fn first_key(&self, id: u32) -> u64 {
        (u64::from(id) << self.width.0) >> 16
    }

    /// The key of the last one it reaches into.
    fn last_key(&self, id: u32) -> u64 {
        ((u64::from(id) + 1) << self.width.0).saturating_sub(1) >> 16
    }

    /// The part of a HiPES chunk at hand that is the whole chunk under the cursor; for `w` >= 16.
    fn whole(&self) -> Option<&'a Bits> {
        let (id, payload) = self.chunk(self.at);
        let index = u64::from(self.key) - self.first_key(id);
        let start = usize::try_from(index).ok()? * 8 * WORDS;
        payload.get(start..start + 8 * WORDS)?.as_chunks().0.try_into().ok()
    }

    /// Passes the words of the chunks under the cursor to `each`; for `w` < 16.
    fn for_parts(&self, mut each: impl FnMut(u32, u32)) {
        for index in self.at..self.stored() {
            let (id, payload) = self.chunk(index);
            if self.first_key(id) != u64::from(self.key) {
                return;
            }
            let base = (id << self.width.0) & (CHUNK_ROWS - 1);
            for (offset, &word) in (base..).step_by(32).zip(payload.as_chunks().0) {
                let word = u32::from_le_bytes(word);
                if word != 0 {
                    each(offset, word);
                }
            }
        }
    }
}

impl Chunks for HipesCursor<'_> {
    fn seek(&mut self, key: u32) -> Option<u32> {
        let wanted = u64::from(key.max(self.key));
        let (mut low, mut high) = (self.at, self.stored());
        if low < high && self.last_key(self.chunk(low).0) < wanted {
            // The next chunk is tried first: a scan moves by one, a jump does a binary search.
            low += 1;
            if low < high && self.last_key(self.chunk(low).0) >= wanted {
                high = low;
            }
        } else {
            high = low;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.last_key(self.chunk(middle).0) < wanted {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.at = low;
        if low >= self.stored() {
            return None;
        }
        let key = self.first_key(self.chunk(low).0).max(wanted);
        self.key = u32::try_from(key).ok()?;
        Some(self.key)
    }

    fn load(&mut self) -> Chunk<'_> {
        if self.width.0 >= 16 {
            return match self.whole() {
                Some(bits) => Chunk::Bits { bits, len: simd::count(bits) },
                None => Chunk::Array(&[]),
            };
        }
        let mut room = std::mem::take(&mut self.room);
        let buffer = room.get();
        buffer.clear();
        self.for_parts(|base, word| buffer.push_word(base, word));
        self.room = room;
        self.room.get().chunk()
    }

    fn release(&mut self) {
        self.room.release();
    }

    fn or_into(&mut self, target: &mut Bits) {
        if self.width.0 >= 16 {
            if let Some(bits) = self.whole() {
                Chunk::Bits { bits, len: 0 }.or_into(target);
            }
            return;
        }
        self.for_parts(|base, word| crate::chunk::or_word(target, base, word));
    }

    fn chunks_max(&self) -> usize {
        let keys = 1_usize << self.width.0.saturating_sub(16);
        (self.stored() - self.at).saturating_mul(keys).min(self.keys_end() as usize)
    }

    fn keys_end(&self) -> u32 {
        let last = self.stored().checked_sub(1).map(|last| self.last_key(self.chunk(last).0) + 1);
        last.and_then(|key| u32::try_from(key).ok()).unwrap_or(0).min(CHUNK_ROWS)
    }
}
