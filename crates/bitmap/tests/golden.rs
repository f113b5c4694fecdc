//! One set, one byte string, for ever: the encoded bytes of a fixed set in every codec.
//!
//! The files were written once, by an encoder that shares no code with this crate. They are not
//! made again: a new version of a format gets a new file and keeps the old one readable.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::path::Path;

use tapdex_bitmap::{ALL_CODECS, Bitmap};

const ROWS: u32 = 200_000;

/// Something of everything: single ids, runs, literals nearly empty and nearly full, short and
/// long gaps, both sides of a chunk's edge, and chunks for arrays, bitsets and runs.
fn golden_set() -> Vec<u32> {
    let mut ids: Vec<u32> = Vec::new();
    ids.extend((44..=80).chain(168..=171));
    ids.extend((1_000..9_000).step_by(97));
    ids.extend(10_000..12_345);
    ids.extend((20_000..22_000).filter(|id| id % 62 != 40));
    ids.extend((30_000..30_600).step_by(3));
    ids.extend(65_500..65_600);
    ids.extend(131_071..=131_072);
    ids.extend((150_000..190_000).step_by(2));
    ids.push(199_999);
    ids
}

#[test]
fn every_codec_writes_and_reads_its_golden_file() {
    let ids = golden_set();
    for codec in ALL_CODECS {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{codec}.v1.bin"));
        let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let mut bytes = Vec::new();
        codec.encode(&ids, &mut bytes);
        assert!(bytes == golden, "{codec} does not write the bytes of {path:?}");
        let set = Bitmap::open(codec, &golden, ROWS).unwrap();
        assert!(set.ids().eq(ids.iter().copied()), "{codec} does not read {path:?}");
    }
}
