//! Bytes as a recording that was not finished: drafts of it, searched, completed, indexed.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tapdex_engine::testing::fuzz_recording(data));
