//! The examples, run.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

#[path = "../examples/encode_set.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod encode_set;

use tapdex_bitmap::ALL_CODECS;

#[test]
fn encode_set_has_every_codec() {
    let lengths = encode_set::run().unwrap();
    assert!(lengths.iter().map(|(codec, _)| *codec).eq(ALL_CODECS));
    // Four bytes a row of the set, of which there are 215,715, would be a plain list.
    assert!(lengths.iter().all(|(_, len)| (1..4 * 215_715).contains(len)), "{lengths:?}");
    // A bit a row of the table would be a plain bitmap.
    assert!(lengths.iter().any(|(_, len)| *len < 130_000), "{lengths:?}");
}
