//! How large the indexes of captures are.

use tapdex_engine::archive::{Archive, CodecChoice};
use tapdex_engine::index::Share;

use super::captures::{Capture, Folder};
use super::indexing::index_into;

/// The codecs, in the order of the tables. With HiPES's usual w of 16 a lone id takes 8 KB.
const CODECS: [&str; 10] = [
    "auto",
    "roaring",
    "masc",
    "plwah",
    "plwah-plus",
    "compax",
    "compax2",
    "secompax",
    "wah",
    "hipes:7",
];

/// Prints the size of an index by codec and capture.
pub fn tables(folder: &Folder, captures: &[Capture]) -> anyhow::Result<()> {
    println!("\nBytes of index a packet, and percent of the captured bytes:\n");
    let names: Vec<&str> = captures.iter().map(|capture| &capture.name[..]).collect();
    println!("| codec | {} |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(captures.len()));
    for codec in CODECS.into_iter().filter_map(CodecChoice::parse) {
        let mut line = format!("| {codec} |");
        for capture in captures {
            eprintln!("sizes: {codec}, {}", capture.name);
            let scratch = folder.scratch();
            let report = index_into(scratch.path(), capture, codec, 0)?;
            let bytes = report.index_bytes as f64;
            let percent = 100.0 * bytes / capture.captured_bytes as f64;
            line += &format!(" {:.2} ({percent:.2} %) |", bytes / capture.packets as f64);
        }
        println!("{line}");
    }
    Ok(())
}

/// Prints what the parts of a capture's index take.
pub fn sections(folder: &Folder, capture: &Capture) -> anyhow::Result<()> {
    let scratch = folder.scratch();
    index_into(scratch.path(), capture, CodecChoice::Auto, 0)?;
    let (segments, failed) = Archive::open(scratch.path())?.segments()?;
    if let Some(error) = failed.into_iter().next() {
        return Err(error.into());
    }
    // Fields with the forms of their columns, then what belongs to no field.
    let mut parts: Vec<Share> = Vec::new();
    for share in segments.iter().flat_map(|segment| segment.index().shares()) {
        match parts.iter_mut().find(|part| (&part.name, part.form) == (&share.name, share.form)) {
            Some(part) => part.bytes += share.bytes,
            None => parts.push(share),
        }
    }
    let all: u64 = parts.iter().map(|part| part.bytes).sum();
    println!("\nThe index of {}, codec auto; checksums are in the rest:\n", capture.name);
    println!("| part | form | bytes | bytes a packet | percent |\n|---|---|---:|---:|---:|");
    let line = |name: &str, form: &str, bytes: u64| {
        let a_packet = bytes as f64 / capture.packets as f64;
        let percent = 100.0 * bytes as f64 / all as f64;
        println!("| {name} | {form} | {bytes} | {a_packet:.3} | {percent:.1} |");
    };
    for part in &parts {
        let form = part.form.map(|form| form.to_string()).unwrap_or_default();
        line(&part.name, &form, part.bytes);
    }
    let of_fields = parts.iter().filter(|part| part.form.is_some()).map(|part| part.bytes).sum();
    line("**all fields**", "", of_fields);
    line("**all**", "", all);
    anyhow::ensure!(of_fields > 0 && of_fields < all, "the index has no fields");
    Ok(())
}
