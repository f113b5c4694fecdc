//! Compressed sets of row ids, and set operations on their encoded bytes.
//!
//! A bitmap index says, for every value of a column, in which rows it occurs. Each of those sets of
//! rows is encoded, and a query is set algebra on the encoded bytes. This crate is that layer: a
//! sorted list of `u32` ids becomes bytes in one of nine codecs, and bytes are counted, searched,
//! joined and turned into other bytes without being expanded in memory first. It depends on nothing
//! but the standard library and `thiserror`, does no I/O and starts no threads.
//!
//! # In short
//!
//! ```
//! use tapdex_bitmap::{Bitmap, Chunks, Codec, encode_auto};
//!
//! // Encode: in a codec of your choice, or in whichever gives the fewest bytes.
//! let (mut web, mut night) = (vec![], vec![]);
//! Codec::Plwah.encode(&[3, 1_000, 1_001, 70_000], &mut web);
//! let codec = encode_auto(&(900..80_000).collect::<Vec<u32>>(), &mut night);
//!
//! // Open: every byte is checked once, against the row count; after that nothing can fail.
//! let rows = 100_000;
//! let web = Bitmap::open(Codec::Plwah, &web, rows)?;
//! let night = Bitmap::open(codec, &night, rows)?;
//! assert!(web.contains(1_000) && night.cardinality() == 79_100);
//!
//! // Compute: any codecs together; the result is counted, iterated, or encoded in any codec.
//! assert_eq!(web.chunks().and(night.chunks()).count(), 3);
//! let mut result = vec![];
//! web.chunks().and_not(night.chunks()).encode(Codec::Wah, &mut result);
//! assert_eq!(Bitmap::open(Codec::Wah, &result, rows)?.ids().collect::<Vec<_>>(), [3]);
//! # Ok::<(), tapdex_bitmap::DecodeError>(())
//! ```
//!
//! # The codecs
//!
//! | codec | made of | strong on | weak on |
//! |---|---|---|---|
//! | [`wah`](codec::wah) | fills and literals of 31 rows | long runs | lone ids |
//! | [`plwah`](codec::plwah) | WAH, fills name an odd row | runs and lone ids | short runs |
//! | [`plwah-plus`](codec::plwah_plus) | WAH, fills pair with literals | small gaps | large gaps |
//! | [`compax`](codec::compax) | WAH of zeros, three in a word | lone ids close by | runs of ones |
//! | [`compax2`](codec::compax2) | COMPAX with fills of ones | lone ids close by | large gaps |
//! | [`secompax`](codec::secompax) | COMPAX2, nearly full literals too | ragged runs | large gaps |
//! | [`masc`](codec::masc) | runs of any length | runs of any length | dense random ids |
//! | [`hipes`](codec::hipes) | bitsets of 2^w rows | dense ids, look-ups | sparse ids |
//! | [`roaring`](codec::roaring) | arrays, bitsets, runs | speed, look-ups | few ids, far apart |
//!
//! Each has one canonical form: equal sets are equal bytes, and bytes that the encoder cannot have
//! written are refused. (Roaring is the exception: its public format has several forms of a set. We
//! write one and read them all.) Words are little-endian. The row count is not in the bytes; the
//! owner of the bitmaps stores it once for all of them.
//!
//! # How it works
//!
//! A cursor shows a set in [chunks](chunk) of 65,536 rows, each as an array, a bitset or runs;
//! [`Chunks`] is that view, [`ops`] joins cursors to cursors, and one kernel per pair of forms does
//! the work, with AVX2 or AVX-512 where the machine has it. So a codec only has to convert its
//! bytes to chunks and back, and every codec can be combined with every other. Codecs made of
//! 31-row groups share even that: see [`groups`].
//!
//! # To add a codec
//!
//! 1. Write `src/codec/NAME.rs`: its layout as the module's documentation, its type, and
//!    [`BitmapCodec`](codec::BitmapCodec) for it, or [`GroupCodec`](groups::GroupCodec) if it is
//!    made of groups.
//! 2. Give it an arm in [`Codec`], [`CodecId`], [`ALL_CODECS`] and the `with_codec!` match, and a
//!    line in the cursor enum of `bitmap.rs`. The compiler names what is missing.
//! 3. Add `tests/golden/NAME.v1.bin`, written by something that does not share its code.
//! 4. Write `docs/codecs/NAME.md`. The tests run the commands in it.
//! 5. For GPUs, write its kernels, `crates/gpu/kernels/NAME.cu`, list the file in
//!    `crates/gpu/src/sources.rs`, and give it an arm in `crates/gpu/src/column.rs`: `docs/gpu.md`
//!    says which.
//! 6. Run `cargo test`: the harness in `testing` and the parity tests of `crates/gpu` pick it up
//!    from the list.

pub mod chunk;
pub mod codec;
pub mod groups;
pub mod ops;
pub mod sample;
#[cfg(feature = "testing")]
pub mod testing;

mod bitmap;
mod cast;
mod chunks;
mod error;
mod memory;
mod runs;
mod simd;
mod stats;

pub use bitmap::{Bitmap, Cursor};
pub use chunks::{Chunks, Ids};
pub use codec::{ALL_CODECS, Codec, CodecId};
pub use error::{DecodeError, UnknownCodec};
pub use memory::{BitSet, RunSet};
pub use ops::{intersection, union};
pub use simd::{BitOp, PastCache, Work, past_cache, prefetch, run};
pub use stats::{Sizes, encode_auto};
