//! Encodes a set of row numbers in every codec, prints how long each is, and computes with them.
//! Run it with `cargo run --example encode_set`.

use std::error::Error;

use tapdex_bitmap::{ALL_CODECS, Bitmap, Chunks, Codec};

/// Every seventh row and a long run, of a million rows. Returns the length in each codec.
pub fn run() -> Result<Vec<(Codec, usize)>, Box<dyn Error>> {
    const ROWS: u32 = 1_000_000;
    let set: Vec<u32> =
        (0..ROWS).filter(|row| row % 7 == 0 || (5_000..90_000).contains(row)).collect();
    let mut lengths = Vec::new();
    for codec in ALL_CODECS {
        let mut bytes = Vec::new();
        codec.encode(&set, &mut bytes);
        // Bytes are checked once. After that nothing can fail.
        let bitmap = Bitmap::open(codec, &bytes, ROWS)?;
        assert!(bitmap.chunks().ids().eq(set.iter().copied()));
        // Sets of any two codecs can be combined.
        let mut run = Vec::new();
        Codec::Roaring.encode(&(5_000..90_000).collect::<Vec<u32>>(), &mut run);
        let run = Bitmap::open(Codec::Roaring, &run, ROWS)?;
        let rest = bitmap.chunks().and_not(run.chunks()).count();
        println!("{:>10}  {:>7} bytes, {rest} rows without the run", codec.name(), bytes.len());
        lengths.push((codec, bytes.len()));
    }
    Ok(lengths)
}

fn main() -> Result<(), Box<dyn Error>> {
    run().map(drop)
}
