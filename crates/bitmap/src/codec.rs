//! The table of codecs, their interface, and the one place that picks one by name.

use crate::chunk::{Bits, CHUNK_ROWS, Chunk, Ids16, WORDS, id_of};
use crate::chunks::Chunks;
use crate::error::{DecodeError, UnknownCodec};
use crate::runs::are_apart;
use crate::simd::words::BATCH;
use crate::simd::{self, BitOp};

pub mod compax;
pub mod compax2;
pub mod hipes;
pub mod masc;
pub mod plwah;
pub mod plwah_plus;
pub mod roaring;
pub mod secompax;
pub(crate) mod triples;
pub mod wah;

/// How a set of row ids becomes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// [Word-aligned hybrid](wah).
    Wah,
    /// [Position-list WAH](plwah).
    Plwah,
    /// [PLWAH with pairs in either order](plwah_plus).
    PlwahPlus,
    /// [Four codes of fills and literals](compax).
    Compax,
    /// [COMPAX with fills of ones](compax2).
    Compax2,
    /// [COMPAX with nearly-full literals](secompax).
    Secompax,
    /// [Runs of any length, with carried ones](masc).
    Masc,
    /// [Plain bitsets of the chunks that hold an id](hipes).
    Hipes(hipes::Width),
    /// [Arrays, bitsets and runs, in the public format](roaring).
    Roaring,
}

/// The number that stands for a codec in files. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CodecId {
    /// See [`Codec::Wah`].
    Wah = 1,
    /// See [`Codec::Plwah`].
    Plwah = 2,
    /// See [`Codec::PlwahPlus`].
    PlwahPlus = 3,
    /// See [`Codec::Compax`].
    Compax = 4,
    /// See [`Codec::Compax2`].
    Compax2 = 5,
    /// See [`Codec::Secompax`].
    Secompax = 6,
    /// See [`Codec::Masc`].
    Masc = 7,
    /// See [`Codec::Hipes`].
    Hipes = 8,
    /// See [`Codec::Roaring`].
    Roaring = 9,
}

/// Every codec, in order of [`CodecId`], with its default parameters.
pub const ALL_CODECS: [Codec; 9] = [
    Codec::Wah,
    Codec::Plwah,
    Codec::PlwahPlus,
    Codec::Compax,
    Codec::Compax2,
    Codec::Secompax,
    Codec::Masc,
    Codec::Hipes(hipes::Width::DEFAULT),
    Codec::Roaring,
];

/// Runs an expression with `$name` bound to the [`BitmapCodec`] that a [`Codec`] stands for.
macro_rules! with_codec {
    ($codec:expr, $name:ident => $body:expr) => {
        match $codec {
            $crate::Codec::Wah => with_codec!(@ $name, $crate::codec::wah::Wah, $body),
            $crate::Codec::Plwah => with_codec!(@ $name, $crate::codec::plwah::Plwah, $body),
            $crate::Codec::PlwahPlus => {
                with_codec!(@ $name, $crate::codec::plwah_plus::PlwahPlus, $body)
            }
            $crate::Codec::Compax => with_codec!(@ $name, $crate::codec::compax::Compax, $body),
            $crate::Codec::Compax2 => with_codec!(@ $name, $crate::codec::compax2::Compax2, $body),
            $crate::Codec::Secompax => {
                with_codec!(@ $name, $crate::codec::secompax::Secompax, $body)
            }
            $crate::Codec::Masc => with_codec!(@ $name, $crate::codec::masc::Masc, $body),
            $crate::Codec::Hipes(w) => with_codec!(@ $name, $crate::codec::hipes::Hipes(w), $body),
            $crate::Codec::Roaring => with_codec!(@ $name, $crate::codec::roaring::Roaring, $body),
        }
    };
    (@ $name:ident, $value:expr, $body:expr) => {{
        let $name = $value;
        $body
    }};
}
pub(crate) use with_codec;

impl Codec {
    /// The number that stands for the codec in files.
    pub fn id(self) -> CodecId {
        match self {
            Codec::Wah => CodecId::Wah,
            Codec::Plwah => CodecId::Plwah,
            Codec::PlwahPlus => CodecId::PlwahPlus,
            Codec::Compax => CodecId::Compax,
            Codec::Compax2 => CodecId::Compax2,
            Codec::Secompax => CodecId::Secompax,
            Codec::Masc => CodecId::Masc,
            Codec::Hipes(_) => CodecId::Hipes,
            Codec::Roaring => CodecId::Roaring,
        }
    }

    /// The codec that a number and a parameter in a file stand for; `None` if there is none.
    ///
    /// ```
    /// # use tapdex_bitmap::Codec;
    /// assert_eq!(Codec::from_id(1, 0), Some(Codec::Wah));
    /// assert_eq!(Codec::from_id(8, 16).map(Codec::parameter), Some(16));
    /// assert_eq!(Codec::from_id(1, 3), None); // WAH has no parameter
    /// ```
    pub fn from_id(id: u8, parameter: u8) -> Option<Self> {
        let codec = ALL_CODECS.into_iter().find(|codec| codec.id() as u8 == id)?;
        match codec {
            Codec::Hipes(_) => hipes::Width::new(parameter).map(Codec::Hipes),
            _ => (parameter == 0).then_some(codec),
        }
    }

    /// The parameter that a file stores with the number: HiPES's `w`, 0 for the others.
    pub fn parameter(self) -> u8 {
        match self {
            Codec::Hipes(width) => width.get(),
            _ => 0,
        }
    }

    /// The name by which people ask for it; also the stem of its page and of its golden file.
    pub fn name(self) -> &'static str {
        match self {
            Codec::Wah => "wah",
            Codec::Plwah => "plwah",
            Codec::PlwahPlus => "plwah-plus",
            Codec::Compax => "compax",
            Codec::Compax2 => "compax2",
            Codec::Secompax => "secompax",
            Codec::Masc => "masc",
            Codec::Hipes(_) => "hipes",
            Codec::Roaring => "roaring",
        }
    }

    /// What it is, in one line.
    pub fn summary(self) -> &'static str {
        match self {
            Codec::Wah => "fills of 31-row groups and literals",
            Codec::Plwah => "WAH; a fill takes in a literal that differs from it in one row",
            Codec::PlwahPlus => "WAH; a short fill pairs with a literal of up to four odd rows",
            Codec::Compax => "fills of zeros; two literals or two fills share a word",
            Codec::Compax2 => "COMPAX with fills of ones",
            Codec::Secompax => "COMPAX2 that also merges nearly full literals",
            Codec::Masc => "runs of any length; a run of zeros carries up to 30 ones",
            Codec::Hipes(_) => "plain bitsets of 2^w rows, those that hold an id",
            Codec::Roaring => "arrays, bitsets or runs of 65,536 rows, the public format",
        }
    }

    /// Appends the encoded set. The ids ascend strictly and are below 2^32 - 1.
    pub fn encode(self, ids: &[u32], target: &mut Vec<u8>) {
        with_codec!(self, codec => codec.encode(ids, target));
    }

    /// Appends the encoded set of the ids in some runs, each given as its first and its last id.
    ///
    /// The runs ascend and lie apart, with an id between them that is in neither; all ids are below
    /// 2^32 - 1. The bytes are those of [`encode`](Self::encode) for the same ids, and the cost
    /// depends on the number of runs: their lengths matter only as far as the bytes grow with them.
    ///
    /// ```
    /// # use tapdex_bitmap::Codec;
    /// let (mut from_runs, mut from_ids) = (vec![], vec![]);
    /// Codec::Plwah.encode_runs(&[(3, 3), (1_000, 1_999_999)], &mut from_runs);
    /// let ids: Vec<u32> = [3].into_iter().chain(1_000..2_000_000).collect();
    /// Codec::Plwah.encode(&ids, &mut from_ids);
    /// assert_eq!(from_runs, from_ids);
    /// ```
    pub fn encode_runs(self, runs: &[(u32, u32)], target: &mut Vec<u8>) {
        debug_assert!(are_apart(runs), "runs must ascend and lie apart");
        with_codec!(self, codec => codec.encode_runs(runs, target));
    }

    /// Appends the encoded set of ids that come in ascending pieces, all below `rows`.
    pub fn encode_pieces(
        self,
        pieces: impl IntoIterator<Item: AsRef<[u32]>>,
        rows: u32,
        target: &mut Vec<u8>,
    ) {
        with_codec!(self, codec => {
            let mut encoder = codec.encoder(target, rows.div_ceil(CHUNK_ROWS) as usize);
            let mut end = 0;
            for ids in pieces {
                let ids = ids.as_ref();
                debug_assert!(ids.is_sorted_by(|a, b| a < b), "ids must strictly ascend");
                debug_assert!(ids.first().is_none_or(|&id| id >= end), "so must the pieces");
                end = ids.last().map_or(end, |&id| id + 1);
                encoder.ids(ids);
            }
            debug_assert!(end <= rows, "ids must be below the row count");
            encoder.finish();
        });
    }

    /// Appends the encoded set of ids that come chunk by chunk, all below `rows`: the key of each
    /// chunk and the low halves of its ids, any number of them.
    ///
    /// ```
    /// # use tapdex_bitmap::Codec;
    /// let (mut from_arrays, mut from_ids) = (vec![], vec![]);
    /// let arrays = [(0, &[7_u16.to_le_bytes()][..]), (2, &[9_u16.to_le_bytes()])];
    /// Codec::Roaring.encode_arrays(arrays, 200_000, &mut from_arrays);
    /// Codec::Roaring.encode(&[7, 2 * 65_536 + 9], &mut from_ids);
    /// assert_eq!(from_arrays, from_ids);
    /// ```
    pub fn encode_arrays<'i>(
        self,
        arrays: impl IntoIterator<Item = (u32, &'i Ids16)>,
        rows: u32,
        target: &mut Vec<u8>,
    ) {
        with_codec!(self, codec => {
            let mut encoder = codec.encoder(target, rows.div_ceil(CHUNK_ROWS) as usize);
            let mut key_min = 0;
            for (key, ids) in arrays {
                debug_assert!(ids.is_sorted_by(|&a, &b| id_of(a) < id_of(b)), "ids must ascend");
                debug_assert!(key >= key_min && key < rows.div_ceil(CHUNK_ROWS), "so must chunks");
                key_min = key + 1;
                encoder.array(key, ids);
            }
            encoder.finish();
        });
    }

    /// Appends the ids of an encoded set, all of them below `rows`, or nothing after an error.
    ///
    /// [`Bitmap::open`](crate::Bitmap::open) gives more ways to look at it.
    pub fn decode(
        self,
        source: &[u8],
        rows: u32,
        target: &mut Vec<u32>,
    ) -> Result<(), DecodeError> {
        with_codec!(self, codec => {
            codec.check(source, rows)?;
            codec.cursor(source, rows).push_ids(target);
        });
        Ok(())
    }

    /// What each word or part of the bytes means, for people; the bytes need not be valid.
    pub fn explain(self, source: &[u8]) -> Vec<Explained> {
        with_codec!(self, codec => codec.explain(source))
    }
}

/// The names of all codecs, for messages.
pub(crate) fn names() -> String {
    ALL_CODECS.map(Codec::name).join(", ")
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Codec {
    type Err = UnknownCodec;

    /// The codec of that name, with its default parameters.
    fn from_str(name: &str) -> Result<Self, UnknownCodec> {
        let found = ALL_CODECS.into_iter().find(|codec| codec.name() == name);
        found.ok_or_else(|| UnknownCodec { name: name.to_owned() })
    }
}

/// The interface of a codec; everything else is built on it.
///
/// `check` and `explain` are called on bytes from anywhere. The other functions are called only on
/// bytes that `check` accepted; on others they may return wrong results, or panic.
/// [`Bitmap`](crate::Bitmap) ensures that.
pub trait BitmapCodec: Copy {
    /// Its encoder.
    type Encoder<'t>: Encoder;
    /// Its cursor.
    type Cursor<'a>: Chunks;

    /// The codec's place in the table.
    fn codec(&self) -> Codec;

    /// An encoder that appends to `target`. When it is fed chunks, there are at most `chunks_max`.
    fn encoder<'t>(&self, target: &'t mut Vec<u8>, chunks_max: usize) -> Self::Encoder<'t>;

    /// Whether the bytes are what the encoder writes for a set of ids below `rows`.
    fn check(&self, source: &[u8], rows: u32) -> Result<(), DecodeError>;

    /// A cursor over the chunks of the set.
    fn cursor<'a>(&self, source: &'a [u8], rows: u32) -> Self::Cursor<'a>;

    /// How many ids there are.
    fn cardinality(&self, source: &[u8], rows: u32) -> u64 {
        self.cursor(source, rows).count()
    }

    /// Whether an id is in the set.
    fn contains(&self, source: &[u8], rows: u32, id: u32) -> bool {
        crate::chunks::contains(self.cursor(source, rows), id)
    }

    /// How many ids are at most `id`.
    fn rank(&self, source: &[u8], rows: u32, id: u32) -> u64 {
        crate::chunks::rank(self.cursor(source, rows), id)
    }

    /// The id that has `n` smaller ids in the set.
    fn select(&self, source: &[u8], rows: u32, n: u64) -> Option<u32> {
        crate::chunks::select(self.cursor(source, rows), n)
    }

    /// What each word or part of the bytes means, for people.
    fn explain(&self, source: &[u8]) -> Vec<Explained>;

    /// Appends the encoded set. The ids ascend strictly and are below 2^32 - 1.
    fn encode(&self, ids: &[u32], target: &mut Vec<u8>) {
        debug_assert!(ids.is_sorted_by(|a, b| a < b), "ids must strictly ascend");
        debug_assert!(ids.last() != Some(&u32::MAX), "the largest row count is 2^32 - 1");
        if !self.encode_at_once(ids, target) {
            let mut encoder = self.encoder(target, chunks_max(ids));
            encoder.ids(ids);
            encoder.finish();
        }
    }

    /// Appends the encoded set of the ids in runs, like [`Codec::encode_runs`].
    fn encode_runs(&self, runs: &[(u32, u32)], target: &mut Vec<u8>);

    /// Appends the encoded set if there is a faster way for it than piece by piece; otherwise
    /// appends nothing and returns `false`.
    fn encode_at_once(&self, _ids: &[u32], _target: &mut Vec<u8>) -> bool {
        false
    }
}

/// The most chunks that the ids can be in.
fn chunks_max(ids: &[u32]) -> usize {
    ids.last().map_or(0, |&id| (id >> 16) as usize + 1).min(ids.len())
}

/// Takes a set piece by piece, ascending, either as ids or as chunks, and appends its bytes.
pub trait Encoder {
    /// Adds ascending ids, all above those added before.
    fn ids(&mut self, ids: &[u32]);
    /// Adds a chunk, its key above those added before.
    fn chunk(&mut self, key: u32, chunk: Chunk<'_>);
    /// Adds the low halves of the ids of a chunk, any number of them, its key above those added
    /// before.
    #[inline(always)]
    fn array(&mut self, key: u32, ids: &Ids16) {
        let mut wide = [0; BATCH];
        for ids in ids.chunks(BATCH) {
            for (wide, &id) in wide.iter_mut().zip(ids) {
                *wide = key << 16 | id_of(id);
            }
            self.ids(&wide[..ids.len()]);
        }
    }
    /// Adds a chunk that is `op` of two bitsets, with at least `len_min` ids.
    fn pair(&mut self, key: u32, op: BitOp, a: &Bits, b: &Bits, _len_min: u32) {
        let mut bits: Bits = [[0; 8]; WORDS];
        let len = simd::zip(op, a, b, &mut bits);
        self.chunk(key, Chunk::Bits { bits: &bits, len });
    }
    /// Writes what was held back. Without it the bytes are not complete.
    fn finish(self);
}

/// What one word, or one part of a header or container, means.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explained {
    /// Its offset.
    pub offset: usize,
    /// How many bytes it has.
    pub width: usize,
    /// The first and the last row it covers.
    pub rows: Option<(u64, u64)>,
    /// What it is.
    pub kind: &'static str,
    /// Its fields.
    pub fields: Vec<(&'static str, u64)>,
}

impl Explained {
    /// A word of some kind, with its fields and nothing else yet.
    pub(crate) fn new(kind: &'static str, fields: &[(&'static str, u32)]) -> Self {
        let fields = fields.iter().map(|&(name, value)| (name, value.into())).collect();
        Self { kind, fields, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_parameter_stand_for_one_codec() {
        let mut found = vec![];
        for (id, parameter) in (0..=255).flat_map(|id| (0..=255).map(move |p| (id, p))) {
            if let Some(codec) = Codec::from_id(id, parameter) {
                assert_eq!((codec.id() as u8, codec.parameter()), (id, parameter));
                found.push(codec);
            }
        }
        assert!(ALL_CODECS.iter().all(|codec| found.contains(codec)));
        // Eight codecs without a parameter, and HiPES with w from 7 to 29.
        assert_eq!(found.len(), 8 + 23);
    }
}
