//! Bytes as a filter: understood or refused, and understood again from its own text.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tapdex_engine::testing::filters::fuzz_filter_parse(data);
});
