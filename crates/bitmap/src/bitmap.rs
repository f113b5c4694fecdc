//! An encoded set that has been checked.

use crate::chunk::{Bits, Chunk};
use crate::chunks::{Chunks, Ids};
use crate::codec::{BitmapCodec, Codec, compax, compax2, hipes, masc, plwah, plwah_plus, roaring};
use crate::codec::{secompax, wah, with_codec};
use crate::error::DecodeError;
use crate::groups::GroupCursor;

const _: () = assert!(size_of::<Bitmap<'_>>() <= 3 * size_of::<usize>());

/// The encoded bytes of a set, together with the codec and the row count that give them meaning.
///
/// [`open`](Bitmap::open) checks every byte once; after that nothing can fail. It is three words in
/// size, owns nothing, and reads the set in place.
///
/// ```
/// # use tapdex_bitmap::{Bitmap, Codec};
/// let mut bytes = vec![];
/// Codec::Plwah.encode(&[3, 1_000, 1_001], &mut bytes);
/// let set = Bitmap::open(Codec::Plwah, &bytes, 2_000)?;
/// assert_eq!(set.cardinality(), 3);
/// assert!(set.contains(1_000) && !set.contains(999));
/// assert_eq!((set.rank(1_000), set.select(2)), (2, Some(1_001)));
/// assert_eq!(set.ids().collect::<Vec<_>>(), [3, 1_000, 1_001]);
/// # Ok::<(), tapdex_bitmap::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Bitmap<'a> {
    codec: Codec,
    rows: u32,
    bytes: &'a [u8],
}

impl<'a> Bitmap<'a> {
    /// Checks that the bytes are a set of ids below `rows` in the form that `codec` writes.
    ///
    /// Takes time linear in the bytes and allocates nothing.
    pub fn open(codec: Codec, bytes: &'a [u8], rows: u32) -> Result<Self, DecodeError> {
        with_codec!(codec, codec => codec.check(bytes, rows))?;
        Ok(Self { codec, rows, bytes })
    }

    /// A bitmap whose bytes are known to be good, without checking them again.
    ///
    /// For bytes that [`open`](Bitmap::open) accepted before with the same codec and rows; with
    /// others, answers are wrong or it panics. Takes no time.
    pub fn reopen(codec: Codec, bytes: &'a [u8], rows: u32) -> Self {
        debug_assert!(
            with_codec!(codec, codec => codec.check(bytes, rows)).is_ok(),
            "open did not accept these bytes"
        );
        Self { codec, rows, bytes }
    }

    /// The codec it was opened with.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The row count it was opened with; all ids are below it.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The encoded bytes.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How many ids are in the set: read off the headers by roaring, off the words by the others.
    pub fn cardinality(&self) -> u64 {
        with_codec!(self.codec, codec => codec.cardinality(self.bytes, self.rows))
    }

    /// Whether an id is in the set. Roaring and HiPES jump to its chunk, the others scan words.
    pub fn contains(&self, id: u32) -> bool {
        with_codec!(self.codec, codec => codec.contains(self.bytes, self.rows, id))
    }

    /// How many ids of the set are at most `id`.
    pub fn rank(&self, id: u32) -> u64 {
        with_codec!(self.codec, codec => codec.rank(self.bytes, self.rows, id))
    }

    /// The id that has `n` smaller ids in the set.
    pub fn select(&self, n: u64) -> Option<u32> {
        with_codec!(self.codec, codec => codec.select(self.bytes, self.rows, n))
    }

    /// The ids, ascending.
    pub fn ids(&self) -> Ids<Cursor<'a>> {
        self.chunks().ids()
    }
}

/// Declares the cursor of any codec as an enum of the cursors of each.
macro_rules! cursor {
    ($($name:ident($ty:ty)),* $(,)?) => {
        /// The chunks of a bitmap of any codec; made by [`Bitmap::chunks`].
        #[derive(Debug)]
        #[expect(missing_docs, reason = "one for each codec, named like it")]
        pub enum Cursor<'a> {
            $($name($ty),)*
        }

        impl Chunks for Cursor<'_> {
            #[inline]
            fn seek(&mut self, key: u32) -> Option<u32> {
                match self { $(Self::$name(cursor) => cursor.seek(key),)* }
            }
            #[inline]
            fn load(&mut self) -> Chunk<'_> {
                match self { $(Self::$name(cursor) => cursor.load(),)* }
            }
            #[inline]
            fn chunk_len(&mut self) -> u32 {
                match self { $(Self::$name(cursor) => cursor.chunk_len(),)* }
            }
            #[inline]
            fn or_into(&mut self, target: &mut Bits) {
                match self { $(Self::$name(cursor) => cursor.or_into(target),)* }
            }
            fn release(&mut self) {
                match self { $(Self::$name(cursor) => cursor.release(),)* }
            }
            fn as_roaring(&self) -> Option<&roaring::RoaringCursor<'_>> {
                match self { $(Self::$name(cursor) => cursor.as_roaring(),)* }
            }
            fn chunks_max(&self) -> usize {
                match self { $(Self::$name(cursor) => cursor.chunks_max(),)* }
            }
            fn keys_end(&self) -> u32 {
                match self { $(Self::$name(cursor) => cursor.keys_end(),)* }
            }
        }

        $(impl<'a> From<$ty> for Cursor<'a> {
            fn from(cursor: $ty) -> Self {
                Self::$name(cursor)
            }
        })*
    };
}

cursor! {
    Wah(GroupCursor<'a, wah::Wah>),
    Plwah(GroupCursor<'a, plwah::Plwah>),
    PlwahPlus(GroupCursor<'a, plwah_plus::PlwahPlus>),
    Compax(GroupCursor<'a, compax::Compax>),
    Compax2(GroupCursor<'a, compax2::Compax2>),
    Secompax(GroupCursor<'a, secompax::Secompax>),
    Masc(masc::RunCursor<'a>),
    Hipes(hipes::HipesCursor<'a>),
    Roaring(roaring::RoaringCursor<'a>),
}

impl<'a> Bitmap<'a> {
    /// A cursor over the chunks of the set: the way into set algebra.
    pub fn chunks(&self) -> Cursor<'a> {
        with_codec!(self.codec, codec => codec.cursor(self.bytes, self.rows).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::ALL_CODECS;

    #[test]
    fn reopened_bytes_are_the_same_set() {
        let ids: Vec<u32> = (0..3_000).step_by(7).chain(70_000..70_100).collect();
        for codec in ALL_CODECS {
            let mut bytes = vec![];
            codec.encode(&ids, &mut bytes);
            let opened = Bitmap::open(codec, &bytes, 80_000).unwrap();
            let again = Bitmap::reopen(codec, opened.as_bytes(), opened.rows());
            assert_eq!((again.codec(), again.rows()), (codec, 80_000));
            assert!(again.ids().eq(ids.iter().copied()), "{codec}");
            assert_eq!(again.cardinality(), opened.cardinality());
        }
    }
}
