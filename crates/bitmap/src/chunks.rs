//! A set seen chunk by chunk: the one mechanism behind every codec and every set operation.

use crate::cast::low16;
use crate::chunk::{Bits, Chunk, ChunkBuf, KEYS_END, Loaded};
use crate::codec::roaring::RoaringCursor;
use crate::codec::{BitmapCodec, Codec, Encoder, with_codec};
use crate::ops::{And, AndNot, Complement, Or, Xor};

/// A cursor over the chunks of a set, in ascending order of their keys.
///
/// Chunk `k` covers rows `65,536 * k` up to the next chunk. [`Bitmap::chunks`](crate::Bitmap) gives
/// the cursor of an encoded bitmap; `and`, `or` and the others join two cursors to a new one, so
/// whole expressions are evaluated chunk after chunk, with room for one chunk per cursor. The last
/// step is [`count`](Chunks::count), [`ids`](Chunks::ids) or [`encode`](Chunks::encode).
///
/// ```
/// # use tapdex_bitmap::{Bitmap, Chunks, Codec};
/// let mut wah = vec![];
/// Codec::Wah.encode(&[1, 3, 70_000], &mut wah);
/// let mut masc = vec![];
/// Codec::Masc.encode(&[2, 3, 70_000, 80_000], &mut masc);
///
/// let left = Bitmap::open(Codec::Wah, &wah, 100_000)?;
/// let right = Bitmap::open(Codec::Masc, &masc, 100_000)?;
/// assert_eq!(left.chunks().and(right.chunks()).ids().collect::<Vec<_>>(), [3, 70_000]);
/// assert_eq!(left.chunks().or(right.chunks()).count(), 5);
/// # Ok::<(), tapdex_bitmap::DecodeError>(())
/// ```
///
/// # Contract
///
/// A cursor only moves forward: [`seek`](Chunks::seek) with the key it is at, or a smaller one,
/// does not move it. After `seek` returned `Some(key)`, at most one of [`load`](Chunks::load),
/// [`load_parts`](Chunks::load_parts), [`chunk_len`](Chunks::chunk_len) and
/// [`or_into`](Chunks::or_into) is called, once, then perhaps [`release`](Chunks::release), and
/// then `seek` with a greater key.
pub trait Chunks {
    /// Moves to the first chunk whose key is at least `key` and that may hold an id, and returns
    /// its key; `None` when there is none. The chunk may turn out to be empty.
    fn seek(&mut self, key: u32) -> Option<u32>;

    /// The chunk under the cursor.
    fn load(&mut self) -> Chunk<'_>;

    /// The chunk under the cursor, or the parts that it is made from.
    fn load_parts(&mut self) -> Loaded<'_> {
        Loaded::Chunk(self.load())
    }

    /// How many ids the chunk under the cursor holds.
    fn chunk_len(&mut self) -> u32 {
        self.load().len()
    }

    /// Adds the ids of the chunk under the cursor to a bitset.
    fn or_into(&mut self, target: &mut Bits) {
        self.load().or_into(target);
    }

    /// Gives back the room that was taken for the chunk under the cursor. Callers with many cursors
    /// that look at one after the other call it, so that all of them need only the room of one.
    fn release(&mut self) {}

    /// The cursor itself, if it is over a Roaring bitmap: pairs of those have faster ways.
    fn as_roaring(&self) -> Option<&RoaringCursor<'_>> {
        None
    }

    /// The most chunks that are still to come.
    fn chunks_max(&self) -> usize;

    /// A key that is greater than those of all chunks.
    fn keys_end(&self) -> u32;

    /// The ids that are in both sets.
    fn and<B: Chunks>(self, other: B) -> And<Self, B>
    where
        Self: Sized,
    {
        And::new(self, other)
    }

    /// The ids that are in one of the sets or in both.
    fn or<B: Chunks>(self, other: B) -> Or<Self, B>
    where
        Self: Sized,
    {
        Or::new(self, other)
    }

    /// The ids that are in exactly one of the sets.
    fn xor<B: Chunks>(self, other: B) -> Xor<Self, B>
    where
        Self: Sized,
    {
        Xor::new(self, other)
    }

    /// The ids of this set that are not in the other.
    fn and_not<B: Chunks>(self, other: B) -> AndNot<Self, B>
    where
        Self: Sized,
    {
        AndNot::new(self, other)
    }

    /// The ids below `rows` that are not in this set.
    fn complement(self, rows: u32) -> Complement<Self>
    where
        Self: Sized,
    {
        Complement::new(self, rows)
    }

    /// How many ids are left. Set operations count without building their result.
    fn count(mut self) -> u64
    where
        Self: Sized,
    {
        count_chunks(&mut self)
    }

    /// The ids that are left, ascending; one chunk of them is in memory at a time.
    fn ids(self) -> Ids<Self>
    where
        Self: Sized,
    {
        Ids::new(self)
    }

    /// Appends the ids that are left.
    fn push_ids(mut self, target: &mut Vec<u32>)
    where
        Self: Sized,
    {
        let mut from = 0;
        while let Some(key) = self.seek(from) {
            self.load().push_ids(key, target);
            from = key + 1;
        }
    }

    /// Appends the set, encoded in `codec`.
    fn encode(mut self, codec: Codec, target: &mut Vec<u8>)
    where
        Self: Sized,
    {
        let chunks_max = self.chunks_max();
        with_codec!(codec, codec => {
            let mut encoder = codec.encoder(target, chunks_max);
            let mut from = 0;
            while let Some(key) = self.seek(from) {
                match self.load_parts() {
                    Loaded::Chunk(chunk) => encoder.chunk(key, chunk),
                    Loaded::Pair { op, a, b, len_min } => encoder.pair(key, op, a, b, len_min),
                }
                from = key + 1;
            }
            encoder.finish();
        });
    }
}

impl<C: Chunks + ?Sized> Chunks for Box<C> {
    fn seek(&mut self, key: u32) -> Option<u32> {
        (**self).seek(key)
    }
    fn load(&mut self) -> Chunk<'_> {
        (**self).load()
    }
    fn load_parts(&mut self) -> Loaded<'_> {
        (**self).load_parts()
    }
    fn chunk_len(&mut self) -> u32 {
        (**self).chunk_len()
    }
    fn or_into(&mut self, target: &mut Bits) {
        (**self).or_into(target);
    }
    fn release(&mut self) {
        (**self).release();
    }
    fn as_roaring(&self) -> Option<&RoaringCursor<'_>> {
        (**self).as_roaring()
    }
    fn chunks_max(&self) -> usize {
        (**self).chunks_max()
    }
    fn keys_end(&self) -> u32 {
        (**self).keys_end()
    }
}

/// The ids of a set, ascending; made by [`Chunks::ids`].
#[derive(Debug)]
pub struct Ids<C> {
    chunks: C,
    /// The key after the one in `buffer`; past the last chunk when there is none left.
    from: u32,
    base: u32,
    buffer: ChunkBuf,
    /// Next index of an array or of the runs, or the next word of a bitset.
    at: usize,
    /// The rest of the current run (next and last id), or of the current word.
    run: Option<(u32, u32)>,
    word: u64,
}

impl<C: Chunks> Ids<C> {
    fn new(chunks: C) -> Self {
        let buffer = ChunkBuf::default();
        Self { chunks, from: 0, base: 0, buffer, at: 0, run: None, word: 0 }
    }

    /// The next id of the chunk at hand, counted from its first row.
    #[inline]
    fn next_in_chunk(&mut self) -> Option<u32> {
        if let Some((next, last)) = self.run {
            self.run = (next < last).then_some((next + 1, last));
            return Some(next);
        }
        match self.buffer.chunk() {
            Chunk::Array(ids) => {
                let id = ids.get(self.at)?;
                self.at += 1;
                Some(u16::from_le_bytes(*id).into())
            }
            Chunk::Bits { bits, .. } => {
                while self.word == 0 {
                    self.word = u64::from_le_bytes(*bits.get(self.at)?);
                    self.at += 1;
                }
                let bit = self.word.trailing_zeros();
                self.word &= self.word - 1;
                Some(64 * (crate::cast::len32(self.at) - 1) + bit)
            }
            Chunk::Runs(runs) => {
                let (first, last) = crate::chunk::run_bounds(*runs.get(self.at)?);
                self.at += 1;
                self.run = (first < last).then_some((first + 1, last));
                Some(first)
            }
        }
    }
}

impl<C: Chunks> Iterator for Ids<C> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(id) = self.next_in_chunk() {
                return Some(self.base | id);
            }
            if self.from >= KEYS_END {
                return None;
            }
            let Some(key) = self.chunks.seek(self.from) else {
                self.from = KEYS_END;
                return None;
            };
            self.buffer.copy_from(self.chunks.load());
            (self.from, self.base, self.at) = (key + 1, key << 16, 0);
        }
    }
}

/// How many ids the chunks to come hold.
pub(crate) fn count_chunks(chunks: &mut impl Chunks) -> u64 {
    let (mut count, mut from) = (0, 0);
    while let Some(key) = chunks.seek(from) {
        count += u64::from(chunks.chunk_len());
        from = key + 1;
    }
    count
}

/// Whether the id is in the set; moves the cursor to its chunk.
pub(crate) fn contains(mut chunks: impl Chunks, id: u32) -> bool {
    chunks.seek(id >> 16) == Some(id >> 16) && chunks.load().contains(low16(id))
}

/// How many ids are at most `id`.
pub(crate) fn rank(mut chunks: impl Chunks, id: u32) -> u64 {
    let (mut count, mut from) = (0, 0);
    while let Some(key) = chunks.seek(from) {
        match key.cmp(&(id >> 16)) {
            std::cmp::Ordering::Less => count += u64::from(chunks.chunk_len()),
            std::cmp::Ordering::Equal => return count + u64::from(chunks.load().rank(low16(id))),
            std::cmp::Ordering::Greater => break,
        }
        from = key + 1;
    }
    count
}

/// The id that has `n` smaller ids in the set.
pub(crate) fn select(mut chunks: impl Chunks, n: u64) -> Option<u32> {
    let (mut left, mut from) = (n, 0);
    while let Some(key) = chunks.seek(from) {
        let chunk = chunks.load();
        let len = u64::from(chunk.len());
        if left < len {
            let id = chunk.select(u32::try_from(left).ok()?)?;
            return Some(key << 16 | u32::from(id));
        }
        left -= len;
        from = key + 1;
    }
    None
}
