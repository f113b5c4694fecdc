//! Writes small index files into a folder, those of made-up tables and of segments of made-up
//! traffic, as a start for the target `index_open`. The first byte of a seed says how the
//! file is mended.

use std::path::Path;

use tapdex_engine::archive::CodecChoice;
use tapdex_engine::testing::segment::{segment_of, varied};
use tapdex_engine::testing::{Table, forge_note};

/// Longer files only slow the fuzzer down.
const LEN_MAX: usize = 1_600;
const TABLES: usize = 40;

fn main() -> std::io::Result<()> {
    let Some(folder) = std::env::args().nth(1) else {
        return Err(std::io::Error::other("name the folder of the corpus"));
    };
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let rows = [0, 1, 3, 40, 200];
    let tables = (0..).map(|seed| Table::sample(seed, rows[seed as usize % rows.len()]).to_bytes());
    let small = tables.filter(|bytes| bytes.len() <= LEN_MAX).take(TABLES);
    let choices = ["auto", "masc", "roaring", "wah"].map(CodecChoice::parse);
    let segments = (0..).zip(choices.into_iter().flatten()).flat_map(|(seed, choice)| {
        // The note is most of what is written of a few packets.
        [1, 4, 30].map(|packets| {
            let mut profile = varied(packets, seed);
            (profile.scan_share, profile.flood_share) = (0.2, 0.2);
            let bytes = segment_of(&profile, choice);
            forge_note(&bytes, |_| String::new()).unwrap_or(bytes)
        })
    });
    for (n, bytes) in small.chain(segments).enumerate() {
        for how in [0, 1, 3] {
            let mut seed = vec![how];
            seed.extend(&bytes);
            std::fs::write(folder.join(format!("seed-{n}-{how}")), seed)?;
        }
    }
    Ok(())
}
