//! Bytes as a capture: read at once, in pieces, and from the middle.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tapdex_engine::testing::fuzz_pcap_read(data));
