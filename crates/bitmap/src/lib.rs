//! Compressed sets of row ids, and computing with them as they lie.
//!
//! placeholder

pub mod chunk;
pub mod codec;
pub mod groups;
pub mod ops;

mod bitmap;
mod cast;
mod chunks;
mod error;
mod runs;
pub mod sample;
mod simd;
mod stats;
#[cfg(feature = "testing")]
pub mod testing;

pub use bitmap::{Bitmap, Cursor};
pub use chunks::{Chunks, Ids};
pub use codec::{ALL_CODECS, Codec, CodecId};
pub use error::{DecodeError, UnknownCodec};
pub use ops::{intersection, union};
pub use simd::BitOp;
pub use stats::{Sizes, encode_auto};
