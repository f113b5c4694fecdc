//! Bytes as an index file: opened, verified and searched.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tapdex_engine::testing::fuzz_index_open(data));
