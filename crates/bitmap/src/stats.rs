//! The size of a set in every codec, from one pass over its ids, and the choice of the smallest.

use crate::cast::{len32, size};
use crate::codec::hipes::Width;
use crate::codec::masc::RunEncoder;
use crate::codec::roaring::{container_bytes, header_bytes};
use crate::codec::{ALL_CODECS, Codec, Encoder};
use crate::codec::{compax, compax2, plwah, plwah_plus, secompax, wah};
use crate::groups::{Batch, GroupCodec, GroupSink, Grouper, WordCount};
use crate::runs::{are_apart, for_each_chunk, push_runs};

/// How many bytes a set takes in each codec, exactly.
///
/// ```
/// # use tapdex_bitmap::{Codec, Sizes};
/// let ids: Vec<u32> = (1_000..9_000).collect();
/// let sizes = Sizes::of(&ids);
/// assert_eq!(sizes.of_codec(Codec::Masc), Some(8)); // a run of zeros, a run of ones
/// assert_eq!(sizes.smallest(), Codec::Masc);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sizes([u64; ALL_CODECS.len()]);

/// Passes every fill and literal on to the sinks of all codecs that are made of them.
struct All<A, B, C, D, E, F>(A, B, C, D, E, F);

impl<A, B, C, D, E, F> GroupSink for All<A, B, C, D, E, F>
where
    A: GroupSink,
    B: GroupSink,
    C: GroupSink,
    D: GroupSink,
    E: GroupSink,
    F: GroupSink,
{
    fn fill(&mut self, ones: bool, count: u32) {
        self.0.fill(ones, count);
        self.1.fill(ones, count);
        self.2.fill(ones, count);
        self.3.fill(ones, count);
        self.4.fill(ones, count);
        self.5.fill(ones, count);
    }

    fn literal(&mut self, payload: u32) {
        self.0.literal(payload);
        self.1.literal(payload);
        self.2.literal(payload);
        self.3.literal(payload);
        self.4.literal(payload);
        self.5.literal(payload);
    }

    fn literals(&mut self, batch: &mut Batch) {
        self.0.literals(batch);
        self.1.literals(batch);
        self.2.literals(batch);
        // The COMPAX family moves the items to make room for what it held back.
        let (gaps, payloads) = (batch.gaps, batch.payloads);
        self.3.literals(batch);
        (batch.gaps, batch.payloads) = (gaps, payloads);
        self.4.literals(batch);
        (batch.gaps, batch.payloads) = (gaps, payloads);
        self.5.literals(batch);
    }

    fn finish(&mut self) {
        self.0.finish();
        self.1.finish();
        self.2.finish();
        self.3.finish();
        self.4.finish();
        self.5.finish();
    }
}

/// The groups of all codecs that are made of them, counted.
type AllGroups<'w> = Grouper<
    All<
        <wah::Wah as GroupCodec>::Sink<&'w mut WordCount>,
        <plwah::Plwah as GroupCodec>::Sink<&'w mut WordCount>,
        <plwah_plus::PlwahPlus as GroupCodec>::Sink<&'w mut WordCount>,
        <compax::Compax as GroupCodec>::Sink<&'w mut WordCount>,
        <compax2::Compax2 as GroupCodec>::Sink<&'w mut WordCount>,
        <secompax::Secompax as GroupCodec>::Sink<&'w mut WordCount>,
    >,
>;

/// The words of MASC, counted.
type MascCount<'w> = RunEncoder<&'w mut WordCount>;

/// The containers of Roaring, counted; HiPES has as many chunks.
#[derive(Default)]
struct Containers {
    count: usize,
    bytes: u64,
    has_runs: bool,
}

impl Containers {
    #[inline(always)]
    fn container(&mut self, ids: u32, runs: u32) {
        let (bytes, is_runs) = container_bytes(ids, runs);
        self.count += 1;
        self.bytes += bytes as u64;
        self.has_runs |= is_runs;
    }
}

impl Sizes {
    /// The sizes of a set. The ids ascend strictly and are below 2^32 - 1.
    pub fn of(ids: &[u32]) -> Self {
        Self::count(|groups, masc, roaring| {
            for chunk in ids.chunk_by(|a, b| a >> 16 == b >> 16) {
                groups.ids(chunk);
                masc.ids(chunk);
                let breaks = chunk.iter().zip(&chunk[1..]).map(|(a, b)| u32::from(b - a != 1));
                roaring.container(len32(chunk.len()), 1 + breaks.sum::<u32>());
            }
        })
    }

    /// The sizes of the set of the ids in some runs, in the form that
    /// [`encode_runs`](Codec::encode_runs) needs.
    ///
    /// ```
    /// # use tapdex_bitmap::Sizes;
    /// assert_eq!(Sizes::of_runs(&[(3, 4), (9, 9)]), Sizes::of(&[3, 4, 9]));
    /// ```
    pub fn of_runs(runs: &[(u32, u32)]) -> Self {
        debug_assert!(are_apart(runs), "runs must ascend and lie apart");
        Self::count(|groups, masc, roaring| {
            push_runs(runs, groups);
            masc.runs(runs);
            for_each_chunk(runs, |chunk| roaring.container(chunk.ids(), chunk.runs()));
        })
    }

    /// The sizes of the set that `feed` passes to all encoders.
    #[inline(always)]
    fn count(feed: impl FnOnce(&mut AllGroups<'_>, &mut MascCount<'_>, &mut Containers)) -> Self {
        let mut words = [WordCount::default(); 6];
        let mut masc = WordCount::default();
        let mut roaring = Containers::default();
        {
            let [a, b, c, d, e, f] = &mut words;
            let mut groups = Grouper::new(All(
                wah::Wah::sink(a),
                plwah::Plwah::sink(b),
                plwah_plus::PlwahPlus::sink(c),
                compax::Compax::sink(d),
                compax2::Compax2::sink(e),
                secompax::Secompax::sink(f),
            ));
            let mut runs = RunEncoder::counting(&mut masc);
            feed(&mut groups, &mut runs, &mut roaring);
            groups.finish();
            runs.finish();
        }
        let hipes = roaring.count as u64 * Width::DEFAULT.chunk_bytes() as u64;
        let roaring = header_bytes(roaring.count, roaring.has_runs) as u64 + roaring.bytes;
        Self(ALL_CODECS.map(|codec| match codec {
            Codec::Wah => 4 * words[0].0,
            Codec::Plwah => 4 * words[1].0,
            Codec::PlwahPlus => 4 * words[2].0,
            Codec::Compax => 4 * words[3].0,
            Codec::Compax2 => 4 * words[4].0,
            Codec::Secompax => 4 * words[5].0,
            Codec::Masc => 4 * masc.0,
            Codec::Hipes(_) => hipes,
            Codec::Roaring => roaring,
        }))
    }

    /// The bytes of the set in that codec; `None` for a `w` of HiPES other than the default.
    pub fn of_codec(&self, codec: Codec) -> Option<u64> {
        ALL_CODECS.iter().position(|&other| other == codec).map(|index| self.0[index])
    }

    /// Adds the sizes of another set, to find the codec that is best for both.
    pub fn add(&mut self, other: &Self) {
        for (bytes, more) in self.0.iter_mut().zip(other.0) {
            *bytes += more;
        }
    }

    /// The codec that needs the fewest bytes; if several do, the one with the lowest id.
    pub fn smallest(&self) -> Codec {
        let by_size =
            ALL_CODECS.into_iter().zip(self.0).min_by_key(|&(codec, bytes)| (bytes, codec.id()));
        by_size.map_or(Codec::Wah, |(codec, _)| codec)
    }
}

/// Appends the set in the codec that needs the fewest bytes, and returns that codec.
///
/// ```
/// # use tapdex_bitmap::{Bitmap, encode_auto};
/// let mut bytes = vec![];
/// let codec = encode_auto(&[1, 2, 3, 500_000], &mut bytes);
/// assert_eq!(Bitmap::open(codec, &bytes, 500_001)?.cardinality(), 4);
/// # Ok::<(), tapdex_bitmap::DecodeError>(())
/// ```
pub fn encode_auto(ids: &[u32], target: &mut Vec<u8>) -> Codec {
    let sizes = Sizes::of(ids);
    let codec = sizes.smallest();
    target.reserve(sizes.of_codec(codec).map_or(0, size));
    codec.encode(ids, target);
    codec
}
