//! Captures from a folder that `TAPDEX_TRACES` names.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::compare::{Asked, Tally, asked, compare, index, index_all, plain};
use crate::oracle::Truth;

pub(crate) fn traces(folder: &str) -> Vec<PathBuf> {
    let Some(traces) = std::env::var_os("TAPDEX_TRACES") else { return vec![] };
    let entries = std::fs::read_dir(Path::new(&traces).join(folder)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_none_or(|extension| extension != "tsv"));
    paths.sort();
    paths
}

/// Small captures, with every codec.
#[test]
fn zoo() {
    let paths = [traces("zoo"), traces("zoo-derived")].concat();
    if paths.is_empty() {
        return;
    }
    let tally = Tally::default();
    for path in &paths {
        let truth = Truth::read(path);
        let records_max = (truth.packets.len() / 2).clamp(20, 1000);
        compare(&truth, &index_all(path, records_max), &asked(&truth, 60), &tally);
    }
    tally.finish("zoo", 300 * 5 * paths.len() as u64, 30_000);
}

/// Large ones: two codecs with all filters, the others with some.
#[test]
fn large() {
    let paths = traces("large");
    if paths.is_empty() {
        return;
    }
    let tally = Tally::default();
    for path in &paths {
        let started = Instant::now();
        let folder = tempfile::tempdir().unwrap();
        let truth = Truth::read(&plain(path, folder.path()));
        let all = asked(&truth, 150);
        let some: Vec<Asked> =
            all.iter().step_by(4).map(|asked| Asked::new(asked.text.clone())).collect();
        for records_max in [1 << 22, 50_000] {
            let indexed = ["auto", "roaring"].map(|codec| index(path, codec, records_max));
            compare(&truth, &indexed, &all, &tally);
            let indexed = ["plwah", "masc", "hipes"].map(|codec| index(path, codec, records_max));
            compare(&truth, &indexed, &some, &tally);
        }
        println!("{path:?}: {} packets, {:?}", truth.packets.len(), started.elapsed());
    }
    tally.finish("large", 300 * 4 * paths.len() as u64, 5_000);
}
