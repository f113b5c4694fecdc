//! Bytes as a request to the API: understood or refused, and never beyond the role.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    tapdex_server::http::fuzz_request(data);
});
