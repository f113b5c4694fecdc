//! Set operations: cursors made of cursors, and the union and intersection of many.

use crate::cast::low16;
use crate::chunk::{self, Bits, CHUNK_ROWS, Chunk, Loaded, Room};
use crate::chunks::{Chunks, count_chunks};
use crate::simd::BitOp;

/// Two bitsets as they are; anything else is combined in the room given.
#[inline]
fn parts<'a>(op: BitOp, a: Chunk<'a>, b: Chunk<'a>, room: &'a mut Room) -> Loaded<'a> {
    if let (Chunk::Bits { bits: x, len: x_len }, Chunk::Bits { bits: y, len: y_len }) = (a, b) {
        let len_min = match op {
            BitOp::And => (x_len + y_len).saturating_sub(CHUNK_ROWS),
            BitOp::Or => x_len.max(y_len),
            BitOp::Xor => x_len.abs_diff(y_len),
            BitOp::AndNot => x_len.saturating_sub(y_len),
        };
        return Loaded::Pair { op, a: x, b: y, len_min };
    }
    let buffer = room.get();
    buffer.combine(op, a, b);
    Loaded::Chunk(buffer.chunk())
}

/// The ids in both sets; made by [`Chunks::and`].
#[derive(Debug)]
pub struct And<A, B> {
    a: A,
    b: B,
    room: Room,
}

impl<A: Chunks, B: Chunks> And<A, B> {
    pub(crate) fn new(a: A, b: B) -> Self {
        Self { a, b, room: Room::default() }
    }
}

impl<A: Chunks, B: Chunks> Chunks for And<A, B> {
    #[inline]
    fn seek(&mut self, key: u32) -> Option<u32> {
        let mut key = self.a.seek(key)?;
        loop {
            let other = self.b.seek(key)?;
            if other == key {
                return Some(key);
            }
            key = self.a.seek(other)?;
            if key == other {
                return Some(key);
            }
        }
    }

    #[inline]
    fn load(&mut self) -> Chunk<'_> {
        let buffer = self.room.get();
        buffer.combine(BitOp::And, self.a.load(), self.b.load());
        buffer.chunk()
    }

    #[inline]
    fn load_parts(&mut self) -> Loaded<'_> {
        parts(BitOp::And, self.a.load(), self.b.load(), &mut self.room)
    }

    #[inline]
    fn chunk_len(&mut self) -> u32 {
        chunk::and_count(self.a.load(), self.b.load())
    }

    fn count(mut self) -> u64 {
        if let (Some(a), Some(b)) = (self.a.as_roaring(), self.b.as_roaring()) {
            return a.and_count(b);
        }
        count_chunks(&mut self)
    }

    fn release(&mut self) {
        self.a.release();
        self.b.release();
        self.room.release();
    }

    fn chunks_max(&self) -> usize {
        self.a.chunks_max().min(self.b.chunks_max())
    }

    fn keys_end(&self) -> u32 {
        self.a.keys_end().min(self.b.keys_end())
    }
}

/// Two cursors, either of which may have a chunk at the current key.
#[derive(Debug)]
struct Either<A, B> {
    a: A,
    b: B,
    keys: (Option<u32>, Option<u32>),
    room: Room,
}

/// Which of the two has a chunk at the key at hand.
enum Side {
    Left,
    Right,
    Both,
}

impl<A: Chunks, B: Chunks> Either<A, B> {
    fn new(a: A, b: B) -> Self {
        Self { a, b, keys: (Some(0), Some(0)), room: Room::default() }
    }

    #[inline]
    fn seek(&mut self, key: u32) -> Option<u32> {
        self.keys = (self.a.seek(key), self.b.seek(key));
        match self.keys {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn side(&self) -> Side {
        match self.keys {
            (Some(a), Some(b)) if a == b => Side::Both,
            (Some(a), Some(b)) if a < b => Side::Left,
            (Some(_), None) => Side::Left,
            _ => Side::Right,
        }
    }
}

/// A set operation whose result may hold ids of either side.
macro_rules! either {
    ($(#[$doc:meta])* $name:ident, $op:expr, counted $factor:literal times) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<A, B>(Either<A, B>);

        impl<A: Chunks, B: Chunks> $name<A, B> {
            pub(crate) fn new(a: A, b: B) -> Self {
                Self(Either::new(a, b))
            }
        }

        impl<A: Chunks, B: Chunks> Chunks for $name<A, B> {
            #[inline]
            fn seek(&mut self, key: u32) -> Option<u32> {
                self.0.seek(key)
            }

            #[inline]
            fn load(&mut self) -> Chunk<'_> {
                match self.0.side() {
                    Side::Left => self.0.a.load(),
                    Side::Right => self.0.b.load(),
                    Side::Both => {
                        let buffer = self.0.room.get();
                        buffer.combine($op, self.0.a.load(), self.0.b.load());
                        buffer.chunk()
                    }
                }
            }

            #[inline]
            fn load_parts(&mut self) -> Loaded<'_> {
                match self.0.side() {
                    Side::Left => self.0.a.load_parts(),
                    Side::Right => self.0.b.load_parts(),
                    Side::Both => {
                        parts($op, self.0.a.load(), self.0.b.load(), &mut self.0.room)
                    }
                }
            }

            #[inline]
            fn chunk_len(&mut self) -> u32 {
                match self.0.side() {
                    Side::Left => self.0.a.chunk_len(),
                    Side::Right => self.0.b.chunk_len(),
                    Side::Both => {
                        let (a, b) = (self.0.a.load(), self.0.b.load());
                        a.len() + b.len() - $factor * chunk::and_count(a, b)
                    }
                }
            }

            fn release(&mut self) {
                self.0.a.release();
                self.0.b.release();
                self.0.room.release();
            }

            fn chunks_max(&self) -> usize {
                let sum = self.0.a.chunks_max() + self.0.b.chunks_max();
                sum.min(self.keys_end() as usize)
            }

            fn keys_end(&self) -> u32 {
                self.0.a.keys_end().max(self.0.b.keys_end())
            }
        }
    };
}

either! {
    /// The ids in either set; made by [`Chunks::or`].
    Or, BitOp::Or, counted 1 times
}

either! {
    /// The ids in exactly one of the sets; made by [`Chunks::xor`].
    Xor, BitOp::Xor, counted 2 times
}

/// The ids of one set that are not in the other; made by [`Chunks::and_not`].
#[derive(Debug)]
pub struct AndNot<A, B> {
    a: A,
    b: B,
    /// Whether the right side has a chunk at the key at hand.
    both: bool,
    room: Room,
}

impl<A: Chunks, B: Chunks> AndNot<A, B> {
    pub(crate) fn new(a: A, b: B) -> Self {
        Self { a, b, both: false, room: Room::default() }
    }
}

impl<A: Chunks, B: Chunks> Chunks for AndNot<A, B> {
    #[inline]
    fn seek(&mut self, key: u32) -> Option<u32> {
        let key = self.a.seek(key)?;
        self.both = self.b.seek(key) == Some(key);
        Some(key)
    }

    #[inline]
    fn load(&mut self) -> Chunk<'_> {
        if !self.both {
            return self.a.load();
        }
        let buffer = self.room.get();
        buffer.combine(BitOp::AndNot, self.a.load(), self.b.load());
        buffer.chunk()
    }

    #[inline]
    fn load_parts(&mut self) -> Loaded<'_> {
        if !self.both {
            return self.a.load_parts();
        }
        parts(BitOp::AndNot, self.a.load(), self.b.load(), &mut self.room)
    }

    #[inline]
    fn chunk_len(&mut self) -> u32 {
        if !self.both {
            return self.a.chunk_len();
        }
        let (a, b) = (self.a.load(), self.b.load());
        a.len() - chunk::and_count(a, b)
    }

    fn release(&mut self) {
        self.a.release();
        self.b.release();
        self.room.release();
    }

    fn chunks_max(&self) -> usize {
        self.a.chunks_max()
    }

    fn keys_end(&self) -> u32 {
        self.a.keys_end()
    }
}

/// The ids below a row count that are not in a set; made by [`Chunks::complement`].
#[derive(Debug)]
pub struct Complement<A> {
    a: A,
    rows: u32,
    key: u32,
    both: bool,
    room: Room,
}

impl<A: Chunks> Complement<A> {
    pub(crate) fn new(a: A, rows: u32) -> Self {
        Self { a, rows, key: 0, both: false, room: Room::default() }
    }

    /// The last row of the chunk at hand, counted from its first.
    fn last(&self) -> u32 {
        (self.rows - 1 - (self.key << 16)).min(CHUNK_ROWS - 1)
    }
}

impl<A: Chunks> Chunks for Complement<A> {
    #[inline]
    fn seek(&mut self, key: u32) -> Option<u32> {
        self.key = self.key.max(key);
        self.both = self.a.seek(self.key) == Some(self.key);
        (self.key < self.keys_end()).then_some(self.key)
    }

    fn load(&mut self) -> Chunk<'_> {
        let last = self.last();
        let a = if self.both { self.a.load() } else { Chunk::Array(&[]) };
        let buffer = self.room.get();
        buffer.complement(a, last);
        buffer.chunk()
    }

    fn chunk_len(&mut self) -> u32 {
        let last = self.last();
        last + 1 - if self.both { self.a.load().rank(low16(last)) } else { 0 }
    }

    fn release(&mut self) {
        self.a.release();
        self.room.release();
    }

    fn chunks_max(&self) -> usize {
        self.keys_end() as usize
    }

    fn keys_end(&self) -> u32 {
        self.rows.div_ceil(CHUNK_ROWS)
    }
}

/// The ids in any of many sets, gathered chunk by chunk into one bitset.
///
/// A CIDR block is such a union: of up to 128 byte columns.
#[derive(Debug)]
pub struct Union<C> {
    sets: Vec<C>,
    keys: Vec<Option<u32>>,
    key: u32,
    room: Room,
    /// The set whose chunk was returned as it is, and that may still hold room for it.
    shown: Option<usize>,
}

/// The ids in any of the sets.
///
/// ```
/// # use tapdex_bitmap::{Bitmap, Chunks, Codec, union};
/// let mut bytes = vec![];
/// Codec::Roaring.encode(&[5, 6], &mut bytes);
/// let set = Bitmap::open(Codec::Roaring, &bytes, 10)?;
/// assert_eq!(union([set, set, set].map(|set| set.chunks())).count(), 2);
/// # Ok::<(), tapdex_bitmap::DecodeError>(())
/// ```
pub fn union<C: Chunks>(sets: impl IntoIterator<Item = C>) -> Union<C> {
    let sets: Vec<C> = sets.into_iter().collect();
    let keys = vec![Some(0); sets.len()];
    Union { sets, keys, key: 0, room: Room::default(), shown: None }
}

impl<C: Chunks> Chunks for Union<C> {
    fn seek(&mut self, key: u32) -> Option<u32> {
        if let Some(shown) = self.shown.take() {
            self.sets[shown].release();
        }
        for (set, at) in self.sets.iter_mut().zip(&mut self.keys) {
            // The others are already further on.
            if at.is_some_and(|at| at <= key) {
                *at = set.seek(key);
            }
        }
        self.key = self.keys.iter().filter_map(|&at| at).min()?;
        Some(self.key)
    }

    fn load(&mut self) -> Chunk<'_> {
        let mut here = (0..self.sets.len()).filter(|&i| self.keys[i] == Some(self.key));
        let (first, more) = (here.next(), here.next());
        if let (Some(only), None) = (first, more) {
            self.shown = Some(only);
            return self.sets[only].load();
        }
        let (sets, keys, key) = (&mut self.sets, &self.keys, self.key);
        let buffer = self.room.get();
        buffer.gather(|bits| gather(sets, keys, key, bits));
        buffer.chunk()
    }

    fn or_into(&mut self, target: &mut Bits) {
        gather(&mut self.sets, &self.keys, self.key, target);
    }

    fn release(&mut self) {
        self.sets.iter_mut().for_each(Chunks::release);
        self.room.release();
    }

    fn chunks_max(&self) -> usize {
        let sum: usize = self.sets.iter().map(Chunks::chunks_max).sum();
        sum.min(self.keys_end() as usize)
    }

    fn keys_end(&self) -> u32 {
        self.sets.iter().map(Chunks::keys_end).max().unwrap_or(0)
    }
}

fn gather<C: Chunks>(sets: &mut [C], keys: &[Option<u32>], key: u32, target: &mut Bits) {
    for (set, _) in sets.iter_mut().zip(keys).filter(|(_, at)| **at == Some(key)) {
        set.or_into(target);
        set.release();
    }
}

/// The ids in all of many sets.
#[derive(Debug)]
pub struct Intersection<C> {
    sets: Vec<C>,
    rooms: [Room; 2],
}

/// The ids in all of the sets; none if there are no sets.
///
/// Put the most selective set first: the others are only asked about chunks it has.
pub fn intersection<C: Chunks>(sets: impl IntoIterator<Item = C>) -> Intersection<C> {
    Intersection { sets: sets.into_iter().collect(), rooms: Default::default() }
}

impl<C: Chunks> Chunks for Intersection<C> {
    fn seek(&mut self, key: u32) -> Option<u32> {
        let (mut key, mut agree, mut at) = (key, 0, 0);
        if self.sets.is_empty() {
            return None;
        }
        while agree < self.sets.len() {
            let found = self.sets[at].seek(key)?;
            agree = if found == key { agree + 1 } else { 1 };
            key = found;
            at = (at + 1) % self.sets.len();
        }
        Some(key)
    }

    fn load(&mut self) -> Chunk<'_> {
        let [result, scratch] = self.rooms.each_mut().map(Room::get);
        match self.sets.as_mut_slice() {
            [] => Chunk::Array(&[]),
            [only] => only.load(),
            [first, second, rest @ ..] => {
                result.combine(BitOp::And, first.load(), second.load());
                for set in rest {
                    if result.chunk().is_empty() {
                        break;
                    }
                    scratch.combine(BitOp::And, result.chunk(), set.load());
                    std::mem::swap(result, scratch);
                }
                result.chunk()
            }
        }
    }

    fn release(&mut self) {
        self.sets.iter_mut().for_each(Chunks::release);
        self.rooms.iter_mut().for_each(Room::release);
    }

    fn chunks_max(&self) -> usize {
        self.sets.iter().map(Chunks::chunks_max).min().unwrap_or(0)
    }

    fn keys_end(&self) -> u32 {
        self.sets.iter().map(Chunks::keys_end).min().unwrap_or(0)
    }
}
