//! Opening and verifying a file takes no more memory than the file has bytes, whatever it says.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::path::Path;

use peak_alloc::PeakAlloc;
use tapdex_engine::index::Index;
use tapdex_engine::testing::{Table, mend};

// The only test of this file: others in the same process would be counted with it.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A chunk that a cursor unpacks, messages and the like: what does not grow with the file.
const FIXED: usize = 12 << 10;

/// Opens and verifies bytes, and returns how much memory that took at its peak.
fn peak(bytes: Vec<u8>) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    if let Ok(index) = Index::from_bytes(bytes) {
        drop(index.verify(&mut |_| {}));
    }
    MEMORY.peak_usage() - before
}

#[test]
fn memory_is_bounded_by_the_file() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/index.v1.tdx");
    for file in [std::fs::read(golden).unwrap(), Table::sample(11, 40).to_bytes()] {
        for at in 0..file.len() {
            for forged in [[0xFF; 8], [0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0], [0; 8]] {
                for len in [1, 2, 4, 8] {
                    let mut bytes = file.clone();
                    let end = (at + len).min(file.len());
                    bytes[at..end].copy_from_slice(&forged[..end - at]);
                    mend(&mut bytes);
                    let most = FIXED + bytes.len();
                    let found = peak(bytes);
                    assert!(found <= most, "offset {at}, {len} bytes: {found} of {most}");
                }
            }
        }
    }
}
