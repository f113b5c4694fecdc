//! A script in the user's folder for extcaps, through which Wireshark finds tapdex.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use rustix::fs::Mode;
use tapdex_client::http::Server;
use tapdex_engine::beneath::{Dir, Root, open_named, read_text};
use tapdex_engine::storage::write_file;

use crate::cmd::{note, shown_path};

/// The name of the script.
const NAME: &str = "tapdex";
/// A line of every script that we have written.
const MARK: &str = "# Written by tapdex extcap --install, removed by tapdex extcap --uninstall.";
/// No script of ours is longer.
const SCRIPT_LEN_MAX: u64 = 64 << 10;

/// Installs the script.
pub(super) fn install(folder: Option<&Path>, archive: Option<&Path>) -> anyhow::Result<()> {
    let tapdex = std::env::current_exe().context("cannot find out where tapdex is")?;
    // Wireshark starts it in a folder of its own choice.
    let absolute = |place: &Path| match place.to_str().is_some_and(Server::is_address) {
        true => Ok(place.to_owned()),
        false => std::path::absolute(place),
    };
    let archive = archive.map(absolute).transpose()?;
    let script = script(&tapdex, archive.as_deref());
    for folder in folders(folder)? {
        let path = folder.join(NAME);
        let cannot = || format!("cannot write {}", path.display());
        ensure!(
            path.symlink_metadata().is_err() || is_ours(&path),
            "{} is not of tapdex; it is left as it is",
            path.display()
        );
        Root::create(&folder).with_context(cannot)?;
        write_file(&path, &script).with_context(cannot)?;
        let file = open_named(&path).with_context(cannot)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o755)).with_context(cannot)?;
        note(&format!("installed {}", shown_path(&path)));
    }
    Ok(())
}

/// Removes it, wherever it may have been installed.
pub(super) fn uninstall(folder: Option<&Path>) -> anyhow::Result<()> {
    let mut all = folders(folder)?;
    if folder.is_none() {
        // Wireshark may have been updated since.
        all.extend(usual());
        all.sort();
        all.dedup();
    }
    let mut removed = 0_u64;
    for folder in all {
        let path = folder.join(NAME);
        if path.symlink_metadata().is_err() {
            continue;
        }
        ensure!(is_ours(&path), "{} is not of tapdex; it is left as it is", path.display());
        let dir = Dir::open(&folder);
        dir.and_then(|dir| dir.remove(OsStr::new(NAME)))
            .with_context(|| format!("cannot remove {}", path.display()))?;
        note(&format!("removed {}", shown_path(&path)));
        removed += 1;
    }
    if removed == 0 {
        note("it is not installed");
    }
    Ok(())
}

/// The folders that it goes into: the one that was named, or that of this user's Wireshark. Without
/// a Wireshark that can be asked, those of all versions.
fn folders(named: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(folder) = named {
        return Ok(vec![folder.to_owned()]);
    }
    if let Some(folder) = told() {
        return Ok(vec![folder]);
    }
    let all = usual();
    if all.is_empty() {
        bail!("there is no HOME; give the folder for extcaps with --dir");
    }
    Ok(all)
}

/// What tshark says. Wireshark 4.0 has no name for the folder, which is below that of its settings.
fn told() -> Option<PathBuf> {
    let mut tshark = Command::new("tshark");
    let tshark = tshark.args(["-G", "folders"]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = tshark.output().ok().filter(|output| output.status.success())?;
    folder_of(&String::from_utf8(output.stdout).ok()?)
}

fn folder_of(told: &str) -> Option<PathBuf> {
    let of = |name: &str| {
        let mut lines = told.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
        found.map(|(_, path)| PathBuf::from(path.trim())).filter(|path| path.is_absolute())
    };
    of("personal extcap path").or_else(|| Some(of("personal configuration")?.join("extcap")))
}

/// Where the folder is in Wireshark from 4.2 on, and in 4.0.
fn usual() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = set("HOME");
    let settings = set("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config")));
    let new = home.as_ref().map(|home| home.join(".local/lib/wireshark/extcap"));
    let old = settings.map(|folder| folder.join("wireshark/extcap"));
    new.into_iter().chain(old).collect()
}

fn is_ours(path: &Path) -> bool {
    let text = open_named(path).and_then(|file| read_text(file, SCRIPT_LEN_MAX));
    text.is_ok_and(|text| text.lines().any(|line| line == MARK))
}

fn script(tapdex: &Path, archive: Option<&Path>) -> Vec<u8> {
    let mut script = format!("#!/bin/sh\n{MARK}\n").into_bytes();
    if let Some(archive) = archive {
        script.extend_from_slice(b"TAPDEX_ARCHIVE=");
        script.extend(quoted(archive));
        script.extend_from_slice(b"\nexport TAPDEX_ARCHIVE\n");
    }
    script.extend_from_slice(b"exec ");
    script.extend(quoted(tapdex));
    script.extend_from_slice(b" extcap \"$@\"\n");
    script
}

/// A word of the shell that is this path, whatever is in it.
fn quoted(path: &Path) -> Vec<u8> {
    let mut word = vec![b'\''];
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'\'' => word.extend_from_slice(b"'\\''"),
            byte => word.push(byte),
        }
    }
    word.push(b'\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tshark_says_where_extcaps_belong() {
        let old = "Temp:\t/tmp\nPersonal configuration:\t/home/a/.config/wireshark\n\
                   Extcap path:         \t/usr/lib/wireshark/extcap\n";
        assert_eq!(folder_of(old), Some("/home/a/.config/wireshark/extcap".into()));
        let new = format!("{old}Personal Extcap path:\t/home/a/.local/lib/wireshark/extcap\n");
        assert_eq!(folder_of(&new), Some("/home/a/.local/lib/wireshark/extcap".into()));
        assert_eq!(folder_of("Personal configuration:\twireshark\n"), None);
        assert_eq!(folder_of(""), None);
    }

    #[test]
    fn paths_are_words_of_the_shell() {
        for path in ["/a b/$c", "/it's/`x`", "/new\nline/\"", "/-n *?[!"] {
            let mut line = b"printf %s ".to_vec();
            line.extend(quoted(Path::new(path)));
            let line = OsStr::from_bytes(&line).to_owned();
            let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
            assert_eq!(output.stdout, path.as_bytes());
        }
    }
}
