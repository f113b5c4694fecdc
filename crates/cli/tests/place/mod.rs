//! A folder in which commands are run, for the tests that share it.

#![allow(unreachable_pub, reason = "a module of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub const TAPDEX: &str = env!("CARGO_BIN_EXE_tapdex");

/// A folder with captures and perhaps an archive.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Runs a line of the shell in it; what that prints.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        let line = line.replace("tapdex ", &format!("{TAPDEX} "));
        let mut command = Command::new("sh");
        let output = command.args(["-c", &line]).current_dir(self.folder()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}
