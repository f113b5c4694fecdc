//! Links libpcap into our programs, if its static library is there and needs no other library.
//!
//! Debian's shared libpcap loads more libraries, for sources of packets that nobody records here,
//! and every command waits for them. `TAPDEX_LIBPCAP=shared` links the shared library all the same,
//! as does `LIBPCAP_LIBDIR`, which the pcap crate knows, too.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(libpcap_inside)");
    for variable in ["TAPDEX_LIBPCAP", "LIBPCAP_LIBDIR", "CC"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let is_shared = env::var("TAPDEX_LIBPCAP").is_ok_and(|which| which == "shared")
        || env::var_os("LIBPCAP_LIBDIR").is_some()
        || env::var_os("HOST") != env::var_os("TARGET");
    if !is_shared && let Some(folder) = static_library() {
        println!("cargo::rustc-cfg=libpcap_inside");
        // The pcap crate asks for "pcap", and this folder has but the static library.
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
}

/// A folder with the static library and nothing else, if programs can be linked with that.
fn static_library() -> Option<PathBuf> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let found = Command::new(&compiler).arg("-print-file-name=libpcap.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(found.stdout).ok()?.trim());
    // A name without a folder says that there is none.
    if !path.is_absolute() {
        return None;
    }
    println!("cargo::rerun-if-changed={}", path.display());
    let target = PathBuf::from(env::var_os("OUT_DIR")?);
    let folder = target.join("libpcap");
    fs::create_dir_all(&folder).ok()?;
    fs::copy(&path, folder.join("libpcap.a")).ok()?;
    links(&compiler, &target, &folder).then_some(folder)
}

/// Whether a program links that has the two functions of `src/libpcap.rs`.
fn links(compiler: &str, target: &Path, folder: &Path) -> bool {
    let source = target.join("probe.c");
    let text = "int dbus_create(void) { return 0; }
int dbus_findalldevs(void) { return 0; }
int pcap_findalldevs(void **, char *);
int main(void) { return pcap_findalldevs(0, 0); }
";
    let linked = fs::write(&source, text).and_then(|()| {
        Command::new(compiler)
            .arg(&source)
            .arg("-o")
            .arg(target.join("probe"))
            .arg("-L")
            .arg(folder)
            .arg("-lpcap")
            .output()
    });
    linked.is_ok_and(|linked| linked.status.success())
}
