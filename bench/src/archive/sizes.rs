//! How large the indexes of captures are.

use std::collections::BTreeMap;

use tapdex_bitmap::Codec;
use tapdex_engine::archive::{Archive, CodecChoice};
use tapdex_engine::index::SectionKind;

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
    // Names of fields in the order of the schema, then what belongs to no field.
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut codecs: BTreeMap<String, Vec<Codec>> = BTreeMap::new();
    let mut all = 0;
    for segment in &segments {
        let index = segment.index();
        let mut owners = Vec::new();
        for field in &index.schema().fields {
            owners.extend(field.columns.iter().map(|_| field.name.clone()));
            let known = codecs.entry(field.name.clone()).or_default();
            for column in &field.columns {
                if !known.contains(&column.codec) {
                    known.push(column.codec);
                }
            }
        }
        let mut rest = index.len_bytes();
        all += rest;
        let mut add = |name: &str, bytes: u64| match parts.iter_mut().find(|part| part.0 == name) {
            Some(part) => part.1 += bytes,
            None => parts.push((name.to_owned(), bytes)),
        };
        for section in index.sections() {
            let bytes = section.len_bytes + section.checksum_bytes;
            rest -= bytes;
            let owner = section.column.and_then(|column| owners.get(column));
            add(owner.map_or(section.name(), |name| name), bytes);
        }
        add("header, directory, footer, padding", rest);
    }
    // Sections of no field come last.
    let fields = |name: &str| codecs.contains_key(name);
    parts.sort_by_key(|(name, _)| !fields(name));
    println!("\nThe index of {}, codec auto; keys, offsets and", capture.name);
    println!("checksums are counted with what they belong to:\n");
    println!("| part | codecs | bytes | bytes a packet | percent |\n|---|---|---:|---:|---:|");
    let line = |name: &str, codecs: &str, bytes: u64| {
        let a_packet = bytes as f64 / capture.packets as f64;
        let percent = 100.0 * bytes as f64 / all as f64;
        println!("| {name} | {codecs} | {bytes} | {a_packet:.3} | {percent:.1} |");
    };
    for (name, bytes) in &parts {
        let codecs: Vec<&str> =
            codecs.get(name).into_iter().flatten().map(|codec| codec.name()).collect();
        line(name, &codecs.join(", "), *bytes);
    }
    let of_fields = parts.iter().filter(|part| fields(&part.0)).map(|part| part.1).sum();
    line("**all fields**", "", of_fields);
    line("**all**", "", all);
    let of_kind = |kind: SectionKind| parts.iter().any(|part| part.0 == kind.name());
    anyhow::ensure!(of_kind(SectionKind::RowMap), "the index has no row map");
    Ok(())
}
