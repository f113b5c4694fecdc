//! Puts the page into the server: the files that `web/build.mjs` has made, if it was run. Without
//! them, the server has a page that says how to get it.

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = root.join("../../web/dist");
    // What is not there cannot be watched. Where nothing can be written, nobody builds a page.
    if fs::create_dir_all(&dist).is_ok() {
        println!("cargo::rerun-if-changed={}", dist.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut names: Vec<String> = match fs::read_dir(&dist) {
        Ok(entries) => entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| dist.join(format!("{name}.gz")).is_file())
            .collect(),
        Err(_) => Vec::new(),
    };
    names.sort();
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let mut code = String::from("&[\n");
    for name in &names {
        // Copies: the next bundle may be made while this is compiled.
        let copied = |ending: &str| {
            let name = format!("{name}{ending}");
            fs::copy(dist.join(&name), out.join(&name)).map(|_| out.join(&name))
        };
        let (plain, packed) = (copied("")?, copied(".gz")?);
        let kind = kind(name);
        let line = format!(
            "File {{ name: {name:?}, kind: {kind:?}, plain: include_bytes!({plain:?}), \
             packed: include_bytes!({packed:?}) }},"
        );
        writeln!(code, "{line}").map_err(io::Error::other)?;
    }
    code.push(']');
    fs::write(out.join("page.rs"), code)
}

/// The kind of a file, by its name.
fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}
