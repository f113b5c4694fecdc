//! Bytes as a frame of any link: what is decoded against plain loads.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tapdex_engine::testing::fuzz_decode_frame(data));
