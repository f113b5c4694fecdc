//! Writes small index files into a folder, those of made-up tables, as a start for the target
//! `index_open`. The first byte of a seed says how the file is mended.

use std::path::Path;

use tapdex_engine::testing::Table;

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
    for (n, bytes) in small.enumerate() {
        for how in [0, 1, 3] {
            let mut seed = vec![how];
            seed.extend(&bytes);
            std::fs::write(folder.join(format!("seed-{n}-{how}")), seed)?;
        }
    }
    Ok(())
}
