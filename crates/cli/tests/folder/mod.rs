//! A folder in which `tapdex index-file` is run, for the tests that share it.

#![allow(dead_code, unreachable_pub, reason = "not every test needs all of it")]

use std::path::PathBuf;

/// A folder for the files of a test.
pub struct Folder(pub tempfile::TempDir);

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// The output of a run that went well.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    #[track_caller]
    pub fn prints(self, expected: &str) {
        assert_eq!(self.done(), expected);
    }

    /// The run was refused with that message and printed nothing.
    #[track_caller]
    pub fn failed(self, code: i32, message: &str) {
        assert_eq!(self.err, format!("tapdex: {message}\n"));
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""));
    }
}

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// The names of all files, hidden ones too.
    pub fn names(&self) -> Vec<String> {
        let entries = self.0.path().read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    pub fn run(&self, args: &str) -> Ended {
        self.run_with(args, "")
    }

    /// Runs `tapdex index-file` in the folder.
    pub fn run_with(&self, args: &str, input: impl Into<Vec<u8>>) -> Ended {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_tapdex"));
        let command = command.arg("index-file").args(args.split_whitespace());
        let output = command.current_dir(self.0.path()).write_stdin(input).output().unwrap();
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The rows that `get` prints.
    #[track_caller]
    pub fn rows(&self, args: &str) -> Vec<u32> {
        let out = self.run(&format!("get {args}")).done();
        out.lines().map(|line| line.parse().unwrap()).collect()
    }
}
