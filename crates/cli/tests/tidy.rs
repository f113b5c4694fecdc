//! Rules of the tree that a compiler does not know.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tapdex_bitmap::{ALL_CODECS, Codec};

/// What is built or found, not written.
const NOT_OURS: [&str; 10] = [
    "target",
    ".git",
    "bench/target",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
    "fuzz/coverage",
    "web/node_modules",
    "web/dist",
    "web/artefacts",
];

const COLUMNS_MAX: usize = 100;

/// Written by people in other characters than ASCII, for a reason.
const NOT_ASCII: [&str; 1] = [
    "crates/bitmap/src/codec/plwah.rs", // the name of an author
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The paths, from the root, and texts of the files of the tree that are wanted by their path.
fn files(wanted: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let root = root();
    let mut found = vec![];
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
            if NOT_OURS.contains(&name.as_str()) {
                continue;
            }
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && wanted(&name) {
                let text = std::fs::read_to_string(&path);
                found.push((name, text.unwrap_or_else(|error| panic!("{path:?}: {error}"))));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no files: was the tree moved?");
    found
}

fn is_rust(name: &str) -> bool {
    name.ends_with(".rs")
}

fn is_kernel(name: &str) -> bool {
    [".cu", ".cuh", ".hpp"].iter().any(|ending| name.ends_with(ending))
}

fn is_page(name: &str) -> bool {
    name.ends_with(".md")
}

/// Fails with all that is wrong, each on a line, and the way out.
fn assert_none(wrong: Vec<String>, way_out: &str) {
    assert!(wrong.is_empty(), "{way_out}:\n{}", wrong.join("\n"));
}

/// Where the files of a codec are missing.
fn missing(path: impl Fn(Codec) -> String) -> Vec<String> {
    let paths = ALL_CODECS.into_iter().map(path);
    paths.filter(|path| !root().join(path).is_file()).collect()
}

#[test]
fn every_codec_has_a_page() {
    let wrong = missing(|codec| format!("docs/codecs/{codec}.md"));
    assert_none(wrong, "a codec needs a page with its layout, its rules and an example");
}

#[test]
fn every_codec_has_a_source_file_of_its_name() {
    let stem = |codec: Codec| codec.name().replace('-', "_");
    let wrong = missing(|codec| format!("crates/bitmap/src/codec/{}.rs", stem(codec)));
    assert_none(wrong, "a codec is one file with the name it has in ALL_CODECS, - as _");
}

#[test]
fn every_codec_has_a_golden_file() {
    let wrong = missing(|codec| format!("crates/bitmap/tests/golden/{codec}.v1.bin"));
    assert_none(wrong, "a codec needs a golden file, written once and never again");
}

#[test]
fn every_codec_has_kernels_of_its_name() {
    let stem = |codec: Codec| codec.name().replace('-', "_");
    let wrong = missing(|codec| format!("crates/gpu/kernels/{}.cu", stem(codec)));
    assert_none(wrong, "a codec has its kernels in one file with the name it has, - as _");
}

/// The fuzz targets that are files.
fn fuzz_targets() -> BTreeSet<String> {
    let files = files(|name| name.starts_with("fuzz/fuzz_targets/"));
    let stem = |(name, _): (String, String)| {
        let stem = Path::new(&name).file_stem().unwrap();
        stem.to_str().unwrap().to_owned()
    };
    files.into_iter().map(stem).collect()
}

/// The texts behind `mark` on the lines of a file of the tree.
fn behind(path: &str, mark: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let found = text.lines().filter_map(|line| line.trim().strip_prefix(mark));
    found.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[test]
fn fuzz_targets_are_declared_and_tried() {
    let is_same = |path: &str, found: BTreeSet<String>| {
        let targets = fuzz_targets();
        let wrong = targets.symmetric_difference(&found);
        let way_out = format!("{path} has to name the files in fuzz/fuzz_targets, and no others");
        assert_none(wrong.cloned().collect(), &way_out);
    };
    let manifest = "fuzz/Cargo.toml";
    let declared = behind(manifest, "name = \"");
    is_same(manifest, declared.into_iter().filter(|name| name != "tapdex-fuzz").collect());
    let stem = |path: String| path.strip_suffix(".rs").unwrap_or("no source").to_owned();
    let paths = behind(manifest, "path = \"fuzz_targets/");
    is_same(manifest, paths.into_iter().map(stem).collect());
    is_same("fuzz/tests/targets.rs", behind("fuzz/tests/targets.rs", "\""));
}

#[test]
fn every_codec_has_a_fuzz_target() {
    let stem = |codec: Codec| codec.name().replace('-', "_");
    let wrong = missing(|codec| format!("fuzz/fuzz_targets/decode_{}.rs", stem(codec)));
    assert_none(wrong, "whoever decodes bytes has a fuzz target");
}

#[test]
fn fuzz_targets_are_explained() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let section = page.split("\n## `fuzz`").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let explained: BTreeSet<String> =
        rows.map(|row| row.split('`').next().unwrap().to_owned()).collect();
    let codecs: BTreeSet<String> = ALL_CODECS
        .into_iter()
        .map(|codec| format!("decode_{}", codec.name().replace('-', "_")))
        .collect();
    let name = |target: String| match codecs.contains(&target) {
        true => "decode_NAME".to_owned(),
        false => target,
    };
    let targets: BTreeSet<String> = fuzz_targets().into_iter().map(name).collect();
    let wrong = targets.symmetric_difference(&explained);
    assert_none(wrong.cloned().collect(), "the table of targets in ARCHITECTURE.md is not true");
}

/// Where the compiler takes our word.
const PROMISES: [&str; 8] = [
    "crates/bitmap/src/simd/",
    "crates/engine/src/libpcap.rs",
    "crates/engine/src/mmap.rs",
    "crates/gpu/src/cuda.rs",
    "crates/gpu/src/cuda/",
    "crates/gpu/src/host.rs",
    "crates/gpu/src/host/",
    "crates/gpu/src/memory.rs",
];

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    // Put together here, or this file would break its own rule.
    let word = ["un", "safe"].concat();
    let mut wrong = vec![];
    for (name, text) in files(is_rust) {
        if PROMISES.iter().any(|allowed| name.starts_with(allowed)) {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            // `unsafe_code` and the like are names of lints, which is another matter.
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.any(|found| found == word) {
                wrong.push(format!("{name}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert_none(wrong, &format!("only {} may hold such code", PROMISES.join(" and ")));
}

/// What changes files and folders.
const CHANGES: [&str; 18] = [
    "fs::write(",
    "fs::rename(",
    "fs::copy(",
    "remove_file(",
    "remove_dir(",
    "remove_dir_all(",
    "create_dir(",
    "create_dir_all(",
    "DirBuilder",
    "File::create",
    "File::options(",
    "OpenOptions",
    ".set_len(",
    "hard_link(",
    "symlink(",
    "set_permissions(",
    "unlinkat(",
    "renameat(",
];

/// Who may do that: the module that never leaves a folder, and those who write what users have
/// named, none of which is in an archive.
const CHANGERS: [&str; 5] = [
    "crates/engine/src/beneath.rs",
    "crates/cli/src/cmd/man.rs",       // a folder of pages
    "crates/cli/src/cmd/output.rs",    // a device, in the place of a file
    "crates/cli/src/cmd/temporary.rs", // a folder that it makes and removes
    "crates/cli/src/cmd/interrupt.rs", // the unfinished file of output.rs
];

#[test]
fn files_are_changed_in_one_place() {
    let crates =
        ["crates/engine/src/", "crates/record/src/", "crates/cli/src/", "crates/server/src/"];
    let is_wanted = |name: &str| {
        let ours = crates.iter().any(|folder| name.starts_with(folder));
        let tests = name.contains("/testing") || name.ends_with("/tests.rs");
        ours && is_rust(name) && !tests && !CHANGERS.contains(&name)
    };
    let mut wrong = vec![];
    for (name, text) in files(is_wanted) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for (index, line) in code.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if !is_comment && CHANGES.iter().any(|change| line.contains(change)) {
                wrong.push(format!("{name}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert_none(wrong, "files are changed by crates/engine/src/beneath.rs alone");
}

#[test]
fn what_an_archive_names_is_opened_as_a_regular_file() {
    let folders = [
        "crates/engine/src/archive",
        "crates/engine/src/mmap",
        "crates/record/src/",
        "crates/server/src/",
    ];
    let is_wanted = |name: &str| is_rust(name) && folders.iter().any(|f| name.starts_with(f));
    let mut wrong = vec![];
    for (name, text) in files(is_wanted) {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for (index, line) in code.lines().enumerate() {
            let opens = ["File::open(", "fs::read("].iter().any(|way| line.contains(way));
            // A stream that the user has named, and what the sandbox tries.
            let known = line.contains("File::open(stream)") || name.ends_with("/sandbox.rs");
            if opens && !known && !name.ends_with("/tests.rs") {
                wrong.push(format!("{name}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    assert_none(wrong, "a FIFO has no end: open_own or open_named of crates/engine/src/beneath.rs");
}

/// The crates that a manifest depends on, those for tests left out.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(manifest)).unwrap();
    let mut found = BTreeSet::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let kind = section.rsplit('.').next().unwrap();
            inside = matches!(kind, "dependencies" | "build-dependencies");
            if let Some((_, name)) = section.split_once("dependencies.")
                && !section.contains("dev-dependencies")
            {
                found.insert(name.to_owned());
            }
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap();
            found.insert(name.trim_matches('"').to_owned());
        }
    }
    found
}

#[test]
fn crates_depend_only_on_what_they_may() {
    for (manifest, allowed) in [
        (
            "crates/answers/Cargo.toml",
            &["serde", "serde_json", "tapdex-engine", "tapdex-record", "thiserror"][..],
        ),
        ("crates/bitmap/Cargo.toml", &["thiserror"]),
        (
            "crates/engine/Cargo.toml",
            &[
                "base64",
                "crc32c",
                "flate2",
                "jiff",
                "memmap2",
                "pcap",
                "rayon",
                "rustix",
                "serde",
                "sha1",
                "tapdex-bitmap",
                "thiserror",
                "toml",
                "zstd",
            ],
        ),
        (
            "crates/gpu/Cargo.toml",
            &["cudarc", "libloading", "tapdex-bitmap", "tapdex-engine", "tempfile", "thiserror"],
        ),
        (
            "crates/cli/Cargo.toml",
            &[
                "anyhow",
                "clap",
                "clap_complete",
                "clap_mangen",
                "csv",
                "ctrlc",
                "indicatif",
                "nix",
                "rustix",
                "serde",
                "serde_json",
                "tapdex-answers",
                "tapdex-bitmap",
                "tapdex-client",
                "tapdex-engine",
                "tapdex-gpu",
                "tapdex-record",
                "tapdex-report",
                "tapdex-server",
                "tokio",
                "toml",
                "tracing",
                "tracing-subscriber",
            ],
        ),
        (
            "crates/client/Cargo.toml",
            &[
                "rustls",
                "rustls-native-certs",
                "serde",
                "serde_json",
                "sha2",
                "tapdex-answers",
                "tapdex-engine",
                "thiserror",
                "toml",
                "ureq",
            ],
        ),
        (
            "crates/record/Cargo.toml",
            &[
                "landlock",
                "nix",
                "pcap",
                "rustix",
                "seccompiler",
                "serde",
                "tapdex-engine",
                "thiserror",
                "toml",
            ],
        ),
        ("crates/report/Cargo.toml", &["csv", "unicode-width"]),
        (
            "crates/server/Cargo.toml",
            &[
                "axum",
                "form_urlencoded",
                "getrandom",
                "http-body",
                "http-body-util",
                "hyper",
                "hyper-util",
                "percent-encoding",
                "rayon",
                "rcgen",
                "rustix",
                "rustls",
                "serde",
                "serde_json",
                "sha2",
                "subtle",
                "tapdex-answers",
                "tapdex-client",
                "tapdex-engine",
                "tapdex-record",
                "thiserror",
                "tokio",
                "tokio-rustls",
                "toml",
                "tower-service",
                "x509-parser",
            ],
        ),
    ] {
        let found = dependencies(manifest).into_iter();
        let wrong: Vec<String> = found.filter(|name| !allowed.contains(&name.as_str())).collect();
        let way_out = format!("{manifest}: the core stays pure, and arrows point one way");
        assert_none(wrong, &way_out);
    }
}

/// The lines of a page, and whether each is inside a fenced block.
fn page_lines(text: &str) -> impl Iterator<Item = (usize, bool, &str)> {
    let mut inside = false;
    text.lines().enumerate().map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        (index + 1, inside || fence, line)
    })
}

#[test]
fn lines_are_not_too_long() {
    let too_long = |line: &str| line.chars().count() > COLUMNS_MAX;
    let mut wrong = vec![];
    for (name, text) in files(|name| is_rust(name) || is_kernel(name)) {
        let lines = text.lines().enumerate().filter(|(_, line)| too_long(line));
        wrong.extend(lines.map(|(index, _)| format!("{name}:{}", index + 1)));
    }
    // What a program writes has lines as long as its tables.
    for (name, text) in files(|name| is_page(name) && !name.ends_with("/tables.md")) {
        let mut console = false;
        for (number, inside, line) in page_lines(&text) {
            console = inside && (console || line.trim_start() == "```console");
            // What a command prints can no more be broken than a table or an address.
            let printed = console && !line.starts_with("$ ") && !line.starts_with("> ");
            let fixed = printed || line.starts_with('|') || line.contains("://");
            if too_long(line) && !fixed {
                wrong.push(format!("{name}:{number}"));
            }
        }
    }
    assert_none(wrong, "these lines have more than 100 columns; break them");
}

/// The targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut wrong = vec![];
    for (name, text) in files(is_page) {
        let folder = root().join(&name);
        let folder = folder.parent().unwrap();
        for (number, inside, line) in page_lines(&text) {
            for link in links(line) {
                let file = link.split('#').next().unwrap();
                let elsewhere = link.contains("://") || link.starts_with("mailto:");
                if !inside && !elsewhere && !file.is_empty() && !folder.join(file).exists() {
                    wrong.push(format!("{name}:{number}: {link}"));
                }
            }
        }
    }
    assert_none(wrong, "these links lead nowhere; they start from the folder of their page");
}

#[test]
fn sources_are_ascii() {
    let endings = [".rs", ".toml", ".sh", ".py", ".yml", ".yaml"];
    let is_source = |name: &str| {
        let ends = || is_kernel(name) || endings.iter().any(|ending| name.ends_with(ending));
        name.starts_with("scripts/") || ends()
    };
    let mut wrong = vec![];
    for (name, text) in files(is_source) {
        if is_page(&name) || NOT_ASCII.contains(&name.as_str()) {
            continue;
        }
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_ascii());
        wrong.extend(lines.map(|(index, line)| format!("{name}:{}: {line}", index + 1)));
    }
    assert_none(wrong, "write these in ASCII, or name the file in NOT_ASCII with the reason");
}
