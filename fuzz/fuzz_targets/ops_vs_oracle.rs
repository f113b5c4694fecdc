//! Set algebra on any two sets in any two codecs, against the oracle and the roaring crate.
#![no_main]

use roaring::RoaringBitmap;
use tapdex_bitmap::{Bitmap, Chunks, Codec};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((a, b, rows)) = tapdex_bitmap::testing::fuzz_algebra(data) else { return };
    let peers = [&a, &b].map(|ids| ids.iter().collect::<RoaringBitmap>());
    let encoded = [&a, &b].map(|ids| {
        let mut bytes = Vec::new();
        Codec::Roaring.encode(ids, &mut bytes);
        bytes
    });
    let [x, y] = encoded.each_ref().map(|bytes| match Bitmap::open(Codec::Roaring, bytes, rows) {
        Ok(set) => set,
        Err(error) => panic!("{error}"),
    });
    assert!(x.chunks().and(y.chunks()).ids().eq(&peers[0] & &peers[1]));
    assert!(x.chunks().or(y.chunks()).ids().eq(&peers[0] | &peers[1]));
    assert!(x.chunks().xor(y.chunks()).ids().eq(&peers[0] ^ &peers[1]));
    assert!(x.chunks().and_not(y.chunks()).ids().eq(&peers[0] - &peers[1]));
});
