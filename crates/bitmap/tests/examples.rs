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
    // A bit a row would take 125,000 bytes.
    assert!(lengths.iter().all(|(_, len)| (1..300_000).contains(len)));
}
