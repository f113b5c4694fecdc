//! Any bytes, opened as secompax: an error, or a set that encodes to these bytes again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(codec) = "secompax".parse() {
        tapdex_bitmap::testing::fuzz_decode(codec, data);
    }
});
