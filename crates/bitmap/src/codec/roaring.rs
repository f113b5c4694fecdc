//! Roaring: the public, portable format of 32-bit Roaring bitmaps.
//!
//! A container holds the ids of one chunk of 65,536 rows; chunks without an id have none.
//!
//! ```text
//! no runs    [u32: 12346][u32: containers]
//! with runs  [u16: 12347][u16: containers - 1][1 bit a container, is it runs, padded to bytes]
//! then       [u16: key][u16: ids - 1] a container
//!            [u32: offset from the first byte] a container, unless there are runs and at most 3
//! array      [u16: id] ascending, up to 4,096 of them
//! bitset     [u64; 1024], more than 4,096 ids
//! runs       [u16: runs] then [u16: first][u16: length - 1] ascending
//! ```
//!
//! We write a container as runs if that is strictly smaller, and read every valid form: any Roaring
//! library reads what we write, and we read what it writes.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let mut bytes = vec![];
//! Codec::Roaring.encode(&[7, 9], &mut bytes);
//! assert_eq!(bytes, [0x3A, 0x30, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 16, 0, 0, 0, 7, 0, 9, 0]);
//! ```
//!
//! Wins nearly everywhere on speed: containers are found by their key, and bitsets are used in
//! place. Loses on single long runs and on very sparse ids, where the 8 bytes of a container's
//! header outweigh its content. Source: Lemire et al., "Roaring bitmaps: implementation of an
//! optimized software library", 2018, and the published format specification.

use std::cmp::Ordering;

use crate::cast::{len32, low16};
use crate::chunk::{
    ARRAY_MAX, Bits, Chunk, Ids16, WORDS, and_count, id_of, run_bounds, run_of, set_bit, set_range,
};
use crate::chunks::Chunks;
use crate::codec::{BitmapCodec, Codec, Encoder, Explained};
use crate::error::DecodeError;
use crate::runs::{ChunkRuns, count_chunks, count_ids, for_each_chunk, run_len, spread};
use crate::simd::words::{BATCH, Items, ROOM, chunk_starts, count_steps, push_halves};
use crate::simd::{self, BitOp};

const COOKIE: u32 = 12346;
const COOKIE_RUNS: u32 = 12347;
/// With fewer containers than this, a stream with runs has no offsets.
const OFFSETS_FROM: usize = 4;
const BITSET_BYTES: usize = 8 * WORDS;
const CONTAINERS_MAX: u32 = 1 << 16;

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Roaring;

/// Bytes of a container of this many ids as an array or a bitset.
fn plain_bytes(ids: u32) -> usize {
    if ids as usize <= ARRAY_MAX { 2 * ids as usize } else { BITSET_BYTES }
}

/// Bytes of the smallest container for these numbers of ids and runs, and whether it consists of
/// runs.
pub(crate) fn container_bytes(ids: u32, runs: u32) -> (usize, bool) {
    let plain = plain_bytes(ids);
    let as_runs = 2 + 4 * runs as usize;
    (plain.min(as_runs), as_runs < plain)
}

/// The most runs with which a container is strictly smaller than that many bytes.
fn runs_max(bytes: usize) -> u32 {
    len32(bytes.saturating_sub(3) / 4)
}

/// Bytes before the first container.
pub(crate) fn header_bytes(containers: usize, has_runs: bool) -> usize {
    match (has_runs, containers) {
        (false, n) => 8 + 8 * n,
        (true, n @ OFFSETS_FROM..) => 4 + n.div_ceil(8) + 8 * n,
        (true, n) => 4 + n.div_ceil(8) + 4 * n,
    }
}

/// Puts a set into containers; see [`Encoder`].
///
/// The containers are written after room for a header of `chunks_max` containers, and moved at the
/// end if there were fewer, or if only a container after the first consists of runs.
#[derive(Debug)]
pub struct RoaringEncoder<'t> {
    target: &'t mut Vec<u8>,
    start: usize,
    room: usize,
    chunks_max: usize,
    /// For each container, its key, its number of ids, and whether it consists of runs.
    containers: Vec<(u16, u16, bool)>,
    /// Where each container starts, counted from the first.
    offsets: Vec<u32>,
    /// Ids of the last chunk, which may get more.
    open: Vec<u32>,
}

impl<'t> RoaringEncoder<'t> {
    fn new(target: &'t mut Vec<u8>, chunks_max: usize) -> Self {
        let start = target.len();
        let containers = Vec::with_capacity(chunks_max);
        let offsets = Vec::with_capacity(chunks_max);
        Self { target, start, room: 0, chunks_max, containers, offsets, open: Vec::new() }
    }

    #[inline(always)]
    fn begin(&mut self, key: u32, ids: u32, is_runs: bool) {
        if self.containers.is_empty() {
            self.room = header_bytes(self.chunks_max, is_runs);
            self.target.resize(self.start + self.room, 0);
        }
        self.offsets.push(len32(self.target.len() - self.start - self.room));
        self.containers.push((low16(key), low16(ids - 1), is_runs));
    }

    /// Writes the ids of one whole chunk.
    fn whole_chunk(&mut self, ids: &[u32]) {
        let Some(&first) = ids.first() else { return };
        let (key, len) = (first >> 16, len32(ids.len()));
        let pairs = ids.iter().zip(&ids[1..]);
        let runs = 1 + pairs.map(|(a, b)| u32::from(b - a != 1)).sum::<u32>();
        let (bytes, is_runs) = container_bytes(len, runs);
        self.begin(key, len, is_runs);
        if is_runs {
            self.target.reserve(bytes);
            self.target.extend_from_slice(&low16(runs).to_le_bytes());
            let mut rest = ids;
            while let Some(&first) = rest.first() {
                let len = run_len(rest);
                let first = first & 0xFFFF;
                self.target.extend_from_slice(&run_of(first, first + len32(len) - 1));
                rest = &rest[len..];
            }
        } else if ids.len() <= ARRAY_MAX {
            let start = self.target.len();
            self.target.resize(start + bytes, 0);
            let slots = self.target[start..].as_chunks_mut::<2>().0;
            for (slot, &id) in slots.iter_mut().zip(ids) {
                *slot = low16(id).to_le_bytes();
            }
        } else {
            let start = self.target.len();
            self.target.resize(start + bytes, 0);
            if let Ok(bits) = <&mut Bits>::try_from(self.target[start..].as_chunks_mut().0) {
                ids.iter().for_each(|&id| set_bit(bits, id & 0xFFFF));
            }
        }
    }

    /// Writes the runs of one whole chunk.
    #[inline(always)]
    fn whole_runs(&mut self, chunk: ChunkRuns<'_>) {
        let (ids, runs) = (chunk.ids(), chunk.runs());
        let (bytes, is_runs) = container_bytes(ids, runs);
        self.begin(chunk.key(), ids, is_runs);
        if is_runs {
            self.target.extend_from_slice(&low16(runs).to_le_bytes());
        }
        let start = self.target.len();
        self.target.resize(start + bytes - if is_runs { 2 } else { 0 }, 0);
        let room = &mut self.target[start..];
        if is_runs {
            for (slot, (first, last)) in room.as_chunks_mut().0.iter_mut().zip(chunk.iter()) {
                *slot = run_of(first, last);
            }
        } else if ids as usize <= ARRAY_MAX {
            let slots = room.as_chunks_mut::<2>().0;
            if ids == runs {
                for (slot, (id, _)) in slots.iter_mut().zip(chunk.iter()) {
                    *slot = low16(id).to_le_bytes();
                }
                return;
            }
            let mut slots = slots.iter_mut();
            for (first, last) in chunk.iter() {
                for (id, slot) in (first..=last).zip(&mut slots) {
                    *slot = low16(id).to_le_bytes();
                }
            }
        } else if let Ok(bits) = <&mut Bits>::try_from(room.as_chunks_mut().0) {
            if ids == runs {
                chunk.iter().for_each(|(id, _)| set_bit(bits, id));
            } else {
                chunk.iter().for_each(|(first, last)| set_range(bits, first, last));
            }
        }
    }

    fn flush_open(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.whole_chunk(&open);
    }

    fn runs(&mut self, chunk: Chunk<'_>, runs: u32) {
        self.target.extend_from_slice(&low16(runs).to_le_bytes());
        let start = self.target.len();
        self.target.resize(start + 4 * runs as usize, 0);
        let mut slots = self.target[start..].as_chunks_mut().0.iter_mut();
        chunk.for_each_run(|first, last| {
            if let Some(slot) = slots.next() {
                *slot = run_of(first, last);
            }
        });
    }
}

impl Encoder for RoaringEncoder<'_> {
    fn ids(&mut self, ids: &[u32]) {
        let mut rest = ids;
        if let (Some(&open), Some(&first)) = (self.open.first(), ids.first())
            && open >> 16 != first >> 16
        {
            self.flush_open();
        }
        while let (Some(first), Some(last)) = (rest.first(), rest.last()) {
            let key = first >> 16;
            if last >> 16 == key {
                // More ids of this chunk may come with the next call.
                self.open.extend_from_slice(rest);
                return;
            }
            let here = rest.partition_point(|&id| id >> 16 <= key);
            if self.open.is_empty() {
                self.whole_chunk(&rest[..here]);
            } else {
                self.open.extend_from_slice(&rest[..here]);
                self.flush_open();
            }
            rest = &rest[here..];
        }
    }

    fn chunk(&mut self, key: u32, chunk: Chunk<'_>) {
        let len = chunk.len();
        if len == 0 {
            return;
        }
        match chunk {
            Chunk::Array(ids) => {
                let runs = simd::count_runs_array(ids);
                let (_, is_runs) = container_bytes(len, runs);
                self.begin(key, len, is_runs);
                if is_runs {
                    self.runs(chunk, runs);
                } else {
                    self.target.extend_from_slice(ids.as_flattened());
                }
            }
            Chunk::Bits { bits, .. } => {
                let bytes = plain_bytes(len);
                let runs = simd::runs_up_to(bits, runs_max(bytes));
                self.begin(key, len, runs.is_some());
                if let Some(runs) = runs {
                    self.runs(chunk, runs);
                } else if len as usize <= ARRAY_MAX {
                    let start = self.target.len();
                    self.target.resize(start + bytes + 2 * simd::SLACK, 0);
                    simd::bits_to_ids16(bits, self.target[start..].as_chunks_mut().0);
                    self.target.truncate(start + bytes);
                } else {
                    self.target.extend_from_slice(bits.as_flattened());
                }
            }
            Chunk::Runs(list) => {
                let runs = len32(list.len());
                let (bytes, is_runs) = container_bytes(len, runs);
                self.begin(key, len, is_runs);
                if is_runs {
                    self.target.extend_from_slice(&low16(runs).to_le_bytes());
                    self.target.extend_from_slice(list.as_flattened());
                } else if len as usize <= ARRAY_MAX {
                    self.target.reserve(bytes);
                    chunk.for_each_run(|first, last| {
                        let ids = (first..=last).map(|id| low16(id).to_le_bytes());
                        ids.for_each(|id| self.target.extend_from_slice(&id));
                    });
                } else {
                    let start = self.target.len();
                    self.target.resize(start + bytes, 0);
                    if let Ok(bits) = <&mut Bits>::try_from(self.target[start..].as_chunks_mut().0)
                    {
                        chunk.or_into(bits);
                    }
                }
            }
        }
    }

    fn array(&mut self, key: u32, ids: &Ids16) {
        if ids.len() <= ARRAY_MAX {
            return self.chunk(key, Chunk::Array(ids));
        }
        let mut bits: Bits = [[0; 8]; WORDS];
        ids.iter().for_each(|&id| set_bit(&mut bits, id_of(id)));
        self.chunk(key, Chunk::Bits { bits: &bits, len: len32(ids.len()) });
    }

    fn pair(&mut self, key: u32, op: BitOp, a: &Bits, b: &Bits, len_min: u32) {
        if (len_min as usize) <= ARRAY_MAX {
            let mut bits: Bits = [[0; 8]; WORDS];
            let len = simd::zip(op, a, b, &mut bits);
            return self.chunk(key, Chunk::Bits { bits: &bits, len });
        }
        // It will almost always be a bitset, so it is combined directly in its place.
        self.begin(key, len_min, false);
        let start = self.target.len();
        let len = simd::push_zip(op, a, b, self.target);
        let bits: &[[u8; 8]] = self.target[start..].as_chunks().0;
        let Some(bits) = bits.first_chunk::<WORDS>() else { return };
        if simd::runs_up_to(bits, runs_max(BITSET_BYTES)).is_none() {
            if let Some(container) = self.containers.last_mut() {
                container.1 = low16(len - 1);
            }
            return;
        }
        let bits = *bits;
        self.target.truncate(start);
        self.containers.pop();
        self.offsets.pop();
        self.chunk(key, Chunk::Bits { bits: &bits, len });
    }

    fn finish(mut self) {
        self.flush_open();
        let has_runs = self.containers.iter().any(|container| container.2);
        let (n, payload) = (self.containers.len(), self.start + self.room);
        let header = header_bytes(n, has_runs);
        if header != self.room {
            let end = self.target.len();
            self.target.resize(end.max(end + header - self.room), 0);
            self.target.copy_within(payload..end, self.start + header);
            self.target.truncate(end + header - self.room);
        }
        let (out, _) = self.target[self.start..].split_at_mut(header);
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if has_runs {
            put(&(COOKIE_RUNS | (len32(n) - 1) << 16).to_le_bytes());
            for eight in self.containers.chunks(8) {
                let flags = eight.iter().rev().fold(0, |flags, c| flags << 1 | u8::from(c.2));
                put(&[flags]);
            }
        } else {
            put(&COOKIE.to_le_bytes());
            put(&len32(n).to_le_bytes());
        }
        for (key, ids, _) in &self.containers {
            put(&key.to_le_bytes());
            put(&ids.to_le_bytes());
        }
        if !has_runs || n >= OFFSETS_FROM {
            for offset in &self.offsets {
                put(&(len32(header) + offset).to_le_bytes());
            }
        }
    }
}

/// With fewer runs than this for each id that follows its neighbour, runs are not expanded to ids.
const RUNS_PER_NEIGHBOUR: usize = 8;

/// Appends a set of few ids a chunk, all of whose containers are arrays; false, and nothing
/// appended, for any other set.
///
/// If there are about as many chunks as ids, going from chunk to chunk costs a mispredicted branch
/// for each. Here the header is made a batch of ids at a time, and the arrays are the low halves of
/// all ids.
fn encode_arrays(ids: &[u32], target: &mut Vec<u8>) -> bool {
    const IDS_PER_CHUNK_MAX: usize = 16;
    let (steps, neighbours) = count_steps(ids);
    let containers = steps as usize + 1;
    // A container of runs holds at least three pairs of neighbours.
    if ids.len() / containers > IDS_PER_CHUNK_MAX || neighbours >= 3 {
        return false;
    }
    let (start, header) = (target.len(), header_bytes(containers, false));
    target.reserve(header + 2 * ids.len());
    target.extend_from_slice(&COOKIE.to_le_bytes());
    target.extend_from_slice(&len32(containers).to_le_bytes());
    target.resize(start + header, 0);
    let (keys, offsets) = target[start + 8..].as_chunks_mut::<4>().0.split_at_mut(containers);
    let (mut batch_keys, mut batch_starts): (Items, Items) = ([0; ROOM], [0; ROOM]);
    let (mut filled, mut before) = (0, u32::MAX);
    for (index, batch) in ids.chunks(BATCH).enumerate() {
        let len = chunk_starts(batch, before, &mut batch_keys, &mut batch_starts);
        let base = len32(header + 2 * BATCH * index);
        for (slot, &key) in keys[filled..filled + len].iter_mut().zip(&batch_keys) {
            *slot = key.to_le_bytes();
        }
        for (slot, &start) in offsets[filled..filled + len].iter_mut().zip(&batch_starts) {
            *slot = (base + 2 * start).to_le_bytes();
        }
        filled += len;
        before = batch[batch.len() - 1] >> 16;
    }
    // A container ends where the next one starts.
    let mut most = 0;
    let mut put_len = |key: &mut [u8; 4], start: [u8; 4], end: u32| {
        let len = (end - u32::from_le_bytes(start)) / 2;
        *key = (u32::from_le_bytes(*key) | (len - 1) << 16).to_le_bytes();
        most = most.max(len);
    };
    for ((key, &start), &end) in keys.iter_mut().zip(&*offsets).zip(&offsets[1..]) {
        put_len(key, start, u32::from_le_bytes(end));
    }
    if let (Some(key), Some(&start)) = (keys.last_mut(), offsets.last()) {
        put_len(key, start, len32(header + 2 * ids.len()));
    }
    if most as usize > ARRAY_MAX {
        target.truncate(start);
        return false;
    }
    push_halves(ids, target);
    true
}

/// The parts of a stream before its containers.
#[derive(Debug, Clone, Copy)]
struct Header<'a> {
    /// A bit a container; none when there are no runs.
    run_flags: &'a [u8],
    /// Key and number of ids less one.
    keys: &'a [[u8; 4]],
    /// Where each container starts; none when there are few and some are runs.
    offsets: &'a [[u8; 4]],
    len_bytes: usize,
}

/// The first `len` bytes of what is left at `offset`, or how many are missing.
fn take(source: &[u8], offset: usize, len: usize) -> Result<&[u8], DecodeError> {
    let missing = (offset + len).saturating_sub(source.len());
    source.get(offset..offset + len).ok_or(DecodeError::Truncated { offset, missing })
}

fn u16_at(source: &[u8], offset: usize) -> Result<u32, DecodeError> {
    let bytes = take(source, offset, 2)?;
    Ok(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

impl<'a> Header<'a> {
    fn parse(source: &'a [u8]) -> Result<Self, DecodeError> {
        let (low, high) = (u16_at(source, 0)?, u16_at(source, 2)?);
        let (containers, flags_at, flags_len) = if low == COOKIE_RUNS {
            (high + 1, 4, high as usize / 8 + 1)
        } else {
            let got = low | high << 16;
            if got != COOKIE {
                return Err(DecodeError::BadField {
                    what: "cookie",
                    offset: 0,
                    expected: COOKIE,
                    got,
                });
            }
            (u16_at(source, 4)? | u16_at(source, 6)? << 16, 8, 0)
        };
        if containers > CONTAINERS_MAX {
            return Err(DecodeError::BadField {
                what: "number of containers",
                offset: 4,
                expected: CONTAINERS_MAX,
                got: containers,
            });
        }
        let n = containers as usize;
        let run_flags = take(source, flags_at, flags_len)?;
        let keys_at = flags_at + flags_len;
        let keys = take(source, keys_at, 4 * n)?.as_chunks().0;
        let offsets_len = if flags_len == 0 || n >= OFFSETS_FROM { n } else { 0 };
        let offsets = take(source, keys_at + 4 * n, 4 * offsets_len)?.as_chunks().0;
        let len_bytes = keys_at + 4 * (n + offsets_len);
        Ok(Self { run_flags, keys, offsets, len_bytes })
    }

    #[inline(always)]
    fn key(&self, index: usize) -> u32 {
        id_of([self.keys[index][0], self.keys[index][1]])
    }

    #[inline(always)]
    fn len(&self, index: usize) -> u32 {
        id_of([self.keys[index][2], self.keys[index][3]]) + 1
    }

    #[inline(always)]
    fn is_runs(&self, index: usize) -> bool {
        self.run_flags.get(index / 8).is_some_and(|flags| flags >> (index % 8) & 1 != 0)
    }

    /// The container that starts at `offset`.
    #[inline(always)]
    fn container(
        &self,
        source: &'a [u8],
        index: usize,
        offset: usize,
    ) -> Result<(Chunk<'a>, usize), DecodeError> {
        if self.is_runs(index) {
            let runs = u16_at(source, offset)? as usize;
            let bytes = take(source, offset + 2, 4 * runs)?;
            return Ok((Chunk::Runs(bytes.as_chunks().0), 2 + 4 * runs));
        }
        let len = self.len(index);
        if len as usize <= ARRAY_MAX {
            let bytes = take(source, offset, 2 * len as usize)?;
            return Ok((Chunk::Array(bytes.as_chunks().0), bytes.len()));
        }
        let bytes = take(source, offset, BITSET_BYTES)?;
        let bits = bytes.as_chunks().0.try_into();
        let bits = bits.map_err(|_| DecodeError::Truncated { offset, missing: 0 })?;
        Ok((Chunk::Bits { bits, len }, BITSET_BYTES))
    }

    /// Where a container starts, when there are offsets; otherwise by walking the few before it.
    #[inline(always)]
    fn offset(&self, source: &'a [u8], index: usize) -> usize {
        if let Some(&offset) = self.offsets.get(index) {
            return u32::from_le_bytes(offset) as usize;
        }
        let mut offset = self.len_bytes;
        for before in 0..index {
            offset += self.container(source, before, offset).map_or(0, |(_, len)| len);
        }
        offset
    }
}

/// Checks what is in one container.
fn check_container(chunk: Chunk<'_>, offset: usize, len: u32) -> Result<(), DecodeError> {
    let ids = match chunk {
        Chunk::Array(ids) => {
            // Without a branch in the loop, so that it runs on vectors; the place comes after.
            let pairs = || ids.iter().zip(ids.iter().skip(1)).map(|(&a, &b)| (id_of(a), id_of(b)));
            if pairs().fold(false, |bad, (a, b)| bad | (a >= b))
                && let Some((index, (previous, got))) =
                    pairs().enumerate().find(|(_, (a, b))| a >= b)
            {
                let offset = offset + 2 * (index + 1);
                return Err(DecodeError::NotAscending { what: "id", offset, previous, got });
            }
            len
        }
        Chunk::Bits { bits, .. } => simd::count(bits),
        Chunk::Runs([]) => return Err(DecodeError::Empty { what: "container", offset }),
        Chunk::Runs(runs) => {
            let mut previous = None;
            let mut ids = 0;
            for (index, &run) in runs.iter().enumerate() {
                let offset = offset + 2 + 4 * index;
                let (first, last) = run_bounds(run);
                if let Some(previous) = previous
                    && first <= previous + 1
                {
                    let what = "run";
                    return Err(DecodeError::NotAscending { what, offset, previous, got: first });
                }
                if last > 0xFFFF {
                    let what = "last id of a run";
                    return Err(DecodeError::BadField {
                        what,
                        offset,
                        expected: 0xFFFF,
                        got: last,
                    });
                }
                previous = Some(last);
                ids += last - first + 1;
            }
            ids
        }
    };
    if ids != len {
        let what = "number of ids in a container";
        return Err(DecodeError::BadField { what, offset, expected: len, got: ids });
    }
    Ok(())
}

impl BitmapCodec for Roaring {
    type Encoder<'t> = RoaringEncoder<'t>;
    type Cursor<'a> = RoaringCursor<'a>;

    fn codec(&self) -> Codec {
        Codec::Roaring
    }

    fn encoder<'t>(&self, target: &'t mut Vec<u8>, chunks_max: usize) -> RoaringEncoder<'t> {
        RoaringEncoder::new(target, chunks_max)
    }

    fn encode_runs(&self, runs: &[(u32, u32)], target: &mut Vec<u8>) {
        let ids = count_ids(runs);
        // Hardly more ids than runs: they are encoded faster than the runs.
        if ids - runs.len() <= runs.len() / RUNS_PER_NEIGHBOUR {
            return self.encode(&spread(runs, ids), target);
        }
        let mut encoder = RoaringEncoder::new(target, count_chunks(runs));
        for_each_chunk(runs, |chunk| encoder.whole_runs(chunk));
        encoder.finish();
    }

    fn encode_at_once(&self, ids: &[u32], target: &mut Vec<u8>) -> bool {
        !ids.is_empty() && encode_arrays(ids, target)
    }

    fn check(&self, source: &[u8], rows: u32) -> Result<(), DecodeError> {
        let header = Header::parse(source)?;
        let mut offset = header.len_bytes;
        let mut previous = None;
        for index in 0..header.keys.len() {
            let key = header.key(index);
            if let Some(previous) = previous
                && key <= previous
            {
                let what = "container key";
                let n = header.keys.len();
                let offset = header.len_bytes - 4 * (n + header.offsets.len()) + 4 * index;
                return Err(DecodeError::NotAscending { what, offset, previous, got: key });
            }
            previous = Some(key);
            if let Some(&said) = header.offsets.get(index)
                && u32::from_le_bytes(said) as usize != offset
            {
                return Err(DecodeError::BadField {
                    what: "offset of a container",
                    offset: header.len_bytes - 4 * (header.keys.len() - index),
                    expected: len32(offset),
                    got: u32::from_le_bytes(said),
                });
            }
            let (chunk, len) = header.container(source, index, offset)?;
            check_container(chunk, offset, header.len(index))?;
            let last = chunk.select(header.len(index) - 1).unwrap_or(0);
            if key << 16 | u32::from(last) >= rows {
                return Err(DecodeError::PastEnd { offset, rows });
            }
            offset += len;
        }
        if offset < source.len() {
            return Err(DecodeError::Trailing { offset });
        }
        Ok(())
    }

    fn cursor<'a>(&self, source: &'a [u8], _: u32) -> RoaringCursor<'a> {
        let none = Header { run_flags: &[], keys: &[], offsets: &[], len_bytes: 0 };
        RoaringCursor { header: Header::parse(source).unwrap_or(none), source, at: 0 }
    }

    fn cardinality(&self, source: &[u8], rows: u32) -> u64 {
        let header = self.cursor(source, rows).header;
        (0..header.keys.len()).map(|index| u64::from(header.len(index))).sum()
    }

    fn select(&self, source: &[u8], rows: u32, n: u64) -> Option<u32> {
        let mut cursor = self.cursor(source, rows);
        let mut left = n;
        for index in 0..cursor.header.keys.len() {
            let len = u64::from(cursor.header.len(index));
            if left < len {
                cursor.at = index;
                let id = cursor.load().select(u32::try_from(left).ok()?)?;
                return Some(cursor.header.key(index) << 16 | u32::from(id));
            }
            left -= len;
        }
        None
    }

    fn explain(&self, source: &[u8]) -> Vec<Explained> {
        explain(source)
    }
}

fn explain(source: &[u8]) -> Vec<Explained> {
    let Ok(header) = Header::parse(source) else {
        return vec![Explained {
            width: source.len(),
            kind: "not a header",
            ..Explained::default()
        }];
    };
    let n = header.keys.len();
    let mut lines = Vec::new();
    let mut line = |offset, width, rows, kind, fields| {
        lines.push(Explained { offset, width, rows, kind, fields });
    };
    if header.run_flags.is_empty() {
        line(0, 4, None, "cookie, no runs", vec![]);
        line(4, 4, None, "containers", vec![("count", n as u64)]);
    } else {
        line(0, 4, None, "cookie, runs", vec![("containers", n as u64)]);
        for (offset, flags) in (4..).zip(header.run_flags) {
            line(offset, 1, None, "run flags", vec![("containers", flags.count_ones().into())]);
        }
    }
    let keys_at = header.len_bytes - 4 * (n + header.offsets.len());
    for index in 0..n {
        let (key, len) = (u64::from(header.key(index)), u64::from(header.len(index)));
        let rows = Some((key << 16, key << 16 | 0xFFFF));
        line(keys_at + 4 * index, 4, rows, "key", vec![("key", key), ("ids", len)]);
    }
    for (index, &offset) in header.offsets.iter().enumerate() {
        let fields = vec![("container", index as u64), ("at", u32::from_le_bytes(offset).into())];
        line(header.len_bytes - 4 * (n - index), 4, None, "offset", fields);
    }
    let mut offset = header.len_bytes;
    for index in 0..n {
        let Ok((chunk, len)) = header.container(source, index, offset) else { break };
        let base = u64::from(header.key(index)) << 16;
        let first = chunk.select(0).map(u64::from);
        let last = chunk.len().checked_sub(1).and_then(|n| chunk.select(n)).map(u64::from);
        let rows = first.zip(last).map(|(first, last)| (base | first, base | last));
        let (kind, fields) = match chunk {
            Chunk::Array(ids) => ("array", vec![("ids", ids.len() as u64)]),
            Chunk::Bits { len, .. } => ("bitset", vec![("ids", len.into())]),
            Chunk::Runs(runs) => {
                ("runs", vec![("runs", runs.len() as u64), ("ids", chunk.len().into())])
            }
        };
        line(offset, len, rows, kind, fields);
        offset += len;
    }
    lines
}

/// How many containers have a key below `key`, found in steps that double.
fn jump(keys: &[[u8; 4]], key: u32) -> usize {
    let is_below = |container: &[u8; 4]| id_of([container[0], container[1]]) < key;
    let mut step = 1;
    while keys.get(step).is_some_and(is_below) {
        step *= 2;
    }
    step / 2 + keys[step / 2..keys.len().min(step + 1)].partition_point(is_below)
}

/// The chunks of a Roaring bitmap; made by [`Bitmap::chunks`](crate::Bitmap::chunks).
#[derive(Debug)]
pub struct RoaringCursor<'a> {
    header: Header<'a>,
    source: &'a [u8],
    /// The container under the cursor.
    at: usize,
}

impl<'a> RoaringCursor<'a> {
    #[inline(always)]
    fn container(&self, index: usize) -> Chunk<'a> {
        let offset = self.header.offset(self.source, index);
        let found = self.header.container(self.source, index, offset);
        found.map_or(Chunk::Array(&[]), |(chunk, _)| chunk)
    }

    /// How many ids are in both; one tight loop, since for small containers most of the cost is in
    /// finding them.
    pub(crate) fn and_count(&self, other: &RoaringCursor<'_>) -> u64 {
        let (mut i, mut j) = (self.at, other.at);
        let mut count = 0;
        while i < self.header.keys.len() && j < other.header.keys.len() {
            match self.header.key(i).cmp(&other.header.key(j)) {
                Ordering::Less => i += 1,
                Ordering::Greater => j += 1,
                Ordering::Equal => {
                    count += u64::from(and_count(self.container(i), other.container(j)));
                    (i, j) = (i + 1, j + 1);
                }
            }
        }
        count
    }
}

impl Chunks for RoaringCursor<'_> {
    #[inline]
    fn seek(&mut self, key: u32) -> Option<u32> {
        let keys = self.header.keys;
        if self.at < keys.len() && self.header.key(self.at) < key {
            self.at += 1;
            if self.at < keys.len() && self.header.key(self.at) < key {
                self.at += jump(&keys[self.at..], key);
            }
        }
        (self.at < keys.len()).then(|| self.header.key(self.at))
    }

    #[inline]
    fn load(&mut self) -> Chunk<'_> {
        self.container(self.at)
    }

    fn as_roaring(&self) -> Option<&RoaringCursor<'_>> {
        Some(self)
    }

    #[inline]
    fn chunk_len(&mut self) -> u32 {
        self.header.len(self.at)
    }

    fn chunks_max(&self) -> usize {
        self.header.keys.len() - self.at
    }

    fn keys_end(&self) -> u32 {
        self.header.keys.len().checked_sub(1).map_or(0, |last| self.header.key(last) + 1)
    }
}
