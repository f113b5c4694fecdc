//! Archives that somebody else has made, and what they must not lead to: whatever links, FIFOs,
//! devices, folders and notes there are in an archive, no command changes anything outside of it,
//! waits for ever, takes all memory or crashes.
//!
//! `TAPDEX_FORGED` says how many archives are forged, `TAPDEX_SEED` which ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io};

use tapdex_bitmap::sample::Random;
use tapdex_engine::testing::forge_note;

/// Archives that are forged unless somebody asks for more.
const FORGED: u64 = 12;
const SEED: u64 = 15;
/// No command takes as long, on however busy a machine: one that does waits for something.
const PATIENCE: Duration = Duration::from_secs(300);
/// KiB of address space: an archive may have many small files, not one without an end.
const MEMORY_KIB: u64 = 6 << 20;

/// What there is in a folder, to the last bit of it that a program could change.
type Snapshot = BTreeMap<PathBuf, (Vec<u64>, Vec<u8>)>;

fn snapshot(folder: &Path) -> Snapshot {
    let mut seen = Snapshot::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let data = path.symlink_metadata().unwrap();
        let facts = [
            u64::from(data.mode()),
            u64::from(data.uid()),
            u64::from(data.gid()),
            data.ino(),
            u64::try_from(data.mtime()).unwrap(),
            u64::try_from(data.mtime_nsec()).unwrap(),
        ];
        let kind = data.file_type();
        let content = if kind.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            vec![]
        } else if kind.is_file() {
            fs::read(&path).unwrap()
        } else if kind.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            vec![]
        };
        seen.insert(path, (facts.to_vec(), content));
    }
    seen
}

/// A folder to work in: `archive`, and beside it what must stay as it is.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What must stay as it is.
    fn watched(&self) -> [Snapshot; 2] {
        ["watched", "captures"].map(|name| snapshot(&self.path(name)))
    }

    /// Runs a command; its exit code, and what it said.
    fn run(&self, words: &str, input: Option<&Path>) -> (Option<i32>, String) {
        let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_tapdex")]);
        let said = self.path("said");
        let err = fs::File::create(&said).unwrap();
        let input = input.map_or(Stdio::null(), |path| fs::File::open(path).unwrap().into());
        command.args(words.split_whitespace()).current_dir(&self.folder);
        command.env_remove("TAPDEX_ARCHIVE").env("RAYON_NUM_THREADS", "2");
        command.stdin(input).stdout(Stdio::null()).stderr(err);
        let mut child = command.spawn().unwrap();
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > PATIENCE {
                child.kill().unwrap();
                child.wait().unwrap();
                return (None, "it does not end".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        (status.code(), String::from_utf8_lossy(&fs::read(said).unwrap()).into_owned())
    }
}

/// An archive with everything that one can have, and what lies beside it.
fn template(folder: &Path) -> Place {
    let place = Place { folder: folder.to_owned() };
    for name in ["captures", "watched", "watched/sub", "watched/empty", "out"] {
        fs::create_dir_all(place.path(name)).unwrap();
    }
    let done = |words: &str, input: Option<&Path>| {
        let (code, said) = place.run(words, input);
        assert_eq!(code, Some(0), "{words}: {said}");
    };
    done("gen -c 300 -w captures/a.pcap", None);
    done("gen -c 200 --seed 2 -w captures/b.pcap", None);
    done("gen -c 100 --seed 3 -w captures/c.pcap", None);
    done("gen -c 50 --seed 4 -w watched/precious.pcap", None);
    for path in ["captures/b.pcap", "watched/precious.pcap"] {
        let packed = Command::new("gzip").args(["-k", path]).current_dir(folder).status();
        assert!(packed.unwrap().success());
    }
    let c = place.path("captures/c.pcap");
    done("index -q -j 2 -o archive captures/a.pcap captures/b.pcap.gz", None);
    done("index -q -j 2 -o archive - --name tap", Some(&c));
    done("record -q -w archive -i -", Some(&c));
    // A recording that was not finished, and drafts of it.
    let archive = place.path("archive");
    let sealed = names(&archive.join("packets"), "rec-", ".pcapng").remove(0);
    let bytes = fs::read(archive.join("packets").join(&sealed)).unwrap();
    let other = "rec-0000000007-20200101T000000Z.pcapng";
    fs::write(archive.join("packets").join(format!(".{other}.part")), &bytes[..bytes.len() - 99])
        .unwrap();
    fs::create_dir_all(archive.join("drafts")).unwrap();
    let index = names(&archive.join("segments"), "rec-", ".tdx").remove(0);
    let index = archive.join("segments").join(index);
    fs::copy(index, archive.join(format!("drafts/{other}-0000.tdx"))).unwrap();
    // What somebody holds dear: among it what looks like a recording that can be cut.
    fs::write(place.path("watched/precious.txt"), "precious").unwrap();
    fs::write(place.path("watched/sub/deep.txt"), "deep").unwrap();
    fs::write(place.path("watched/cut.pcapng"), &bytes[..bytes.len() - 99]).unwrap();
    fs::write(place.path("watched/zeros"), [0; 10_000]).unwrap();
    fs::write(place.path("watched/none"), "").unwrap();
    let segment = names(&archive.join("segments"), "a.pcap", ".tdx").remove(0);
    fs::copy(archive.join("segments").join(segment), place.path("watched/index.tdx")).unwrap();
    place
}

fn names(folder: &Path, start: &str, end: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let all = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<String> = all.filter(|n| n.starts_with(start) && n.ends_with(end)).collect();
    found.sort();
    found
}

fn pick<'a, T: ?Sized>(random: &mut Random, all: &[&'a T]) -> &'a T {
    all[random.below(u32::try_from(all.len()).unwrap()) as usize]
}

const PRECIOUS: [&str; 9] = [
    "precious.txt",
    "precious.pcap",
    "precious.pcap.gz",
    "cut.pcapng",
    "zeros",
    "none",
    "index.tdx",
    "sub/deep.txt",
    "new-file",
];

/// Forges archives of one template.
struct Forger<'a> {
    place: &'a Place,
    random: Random,
    /// What was done.
    told: Vec<String>,
}

impl Forger<'_> {
    fn archive(&self, name: &str) -> PathBuf {
        self.place.path("archive").join(name)
    }

    fn pick<'s, T: ?Sized>(&mut self, all: &[&'s T]) -> &'s T {
        pick(&mut self.random, all)
    }

    /// A name that some command expects a file under.
    fn name(&mut self) -> String {
        let folder = self.pick(&["", "segments/", "packets/", "drafts/"]);
        let there = names(&self.archive(folder), "", "");
        let plain = |name: &String| !["segments", "packets", "drafts"].contains(&name.as_str());
        let there: Vec<&String> = there.iter().filter(|name| plain(name)).collect();
        let new = match folder {
            "" => self.pick(&[
                "archive.toml",
                ".archive.toml.tmp",
                "missing.toml",
                ".missing.toml.tmp",
                "recording.toml",
                ".recording.toml.tmp",
                ".recording.lock",
            ]),
            "segments/" => self.pick(&["x-0011223344556677-0000.tdx", ".x.tdx.tmp"]),
            "packets/" => self.pick(&[
                "x-0011223344556677.pcap",
                ".x.pcap.tmp",
                "rec-0000000009-20200101T000000Z.pcapng",
                ".rec-0000000008-20200101T000000Z.pcapng.part",
            ]),
            _ => self.pick(&["rec-0000000007-20200101T000000Z.pcapng-0001.tdx", ".y.tdx.tmp"]),
        };
        let name = match (self.random.below(4), there.is_empty()) {
            (0, _) | (_, true) => new.to_owned(),
            // Where the next process would write.
            (1, _) => format!(".{}.tmp", self.pick(&there).trim_start_matches('.')),
            _ => self.pick(&there).clone(),
        };
        format!("{folder}{name}")
    }

    fn precious(&mut self) -> &'static str {
        self.pick(&PRECIOUS)
    }

    /// Puts something else in the place of a file.
    fn replace(&mut self) -> io::Result<()> {
        let name = self.name();
        let path = self.archive(&name);
        let (kind, precious) = (self.random.below(14), self.precious());
        let target = self.place.path("watched").join(precious);
        self.told.push(format!("{name}: kind {kind}, {precious}"));
        match path.symlink_metadata() {
            Ok(data) if data.is_dir() => fs::remove_dir_all(&path)?,
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
        let special = CString::new(path.as_os_str().as_bytes())?;
        match kind {
            0..=2 => symlink(target, &path),
            3 => {
                let up = if name.contains('/') { "../../watched" } else { "../watched" };
                symlink(Path::new(up).join(precious), &path)
            }
            4 | 5 => fs::hard_link(&target, &path).or_else(|_| fs::write(&path, "")),
            6 => Ok(rustix::fs::mknodat(
                rustix::fs::CWD,
                special.as_c_str(),
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )?),
            7 => std::os::unix::net::UnixListener::bind(&path).map(drop).or(Ok(())),
            8 => fs::create_dir(&path),
            9 => fs::create_dir(&path).and_then(|()| fs::write(path.join("inside"), "inside")),
            10 if self.random.below(2) == 0 => {
                let zero = rustix::fs::makedev(1, 5);
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                let kind = rustix::fs::FileType::CharacterDevice;
                let made =
                    rustix::fs::mknodat(rustix::fs::CWD, special.as_c_str(), kind, mode, zero);
                // Only root can make a device.
                made.or_else(|_| fs::write(&path, "").map_err(|_| rustix::io::Errno::IO))?;
                Ok(())
            }
            10 => symlink(self.pick(&["/dev/zero", "/dev/tty", "/proc/kmsg", "."]), &path),
            11 => fs::File::create(&path).and_then(|file| file.set_len(1 << 28)),
            12 => fs::write(&path, vec![b'['; 1 << 20]),
            _ => symlink(self.place.path("watched"), &path),
        }
    }

    /// Puts a link in the place of a folder.
    fn replace_folder(&mut self) -> io::Result<()> {
        let name = self.pick(&["segments", "packets", "drafts"]);
        let path = self.archive(name);
        let kind = self.random.below(5);
        self.told.push(format!("folder {name}: kind {kind}"));
        if path.is_symlink() || !path.is_dir() {
            return Ok(());
        }
        let elsewhere = self.place.path("watched").join(name);
        fs::rename(&path, &elsewhere)?;
        match kind {
            // With all that was in it.
            0..=2 => symlink(elsewhere, path),
            3 => symlink(self.place.path("watched"), path),
            _ => fs::write(path, "no folder"),
        }
    }

    /// Has notes name other files.
    fn forge_notes(&mut self) -> io::Result<()> {
        let folder = self.pick(&["segments", "segments", "segments", "drafts"]);
        let there = names(&self.archive(folder), "", ".tdx");
        let Some(name) = there.get(self.random.below(8) as usize % there.len().max(1)) else {
            return Ok(());
        };
        let path = self.archive(folder).join(name);
        if !path.symlink_metadata()?.is_file() {
            return Ok(());
        }
        let bytes = fs::read(&path)?;
        let precious = self.precious();
        let near = format!("../../watched/{precious}");
        let far = self.place.path("watched").join(precious).display().to_string();
        let captures = ["../../captures/a.pcap", "../../captures/b.pcap.gz"];
        let mut lines = vec![];
        for key in ["path", "absolute", "origin"] {
            let value = match self.random.below(9) {
                0 | 1 => near.clone(),
                2 | 3 => far.clone(),
                4 => format!("..%2f..%2fwatched%2f{precious}"),
                5 => format!("../packets/../../watched/{precious}"),
                6 => self.pick(&["", ".", "..", "/", "%00", "/dev/zero", "a%00b"]).to_owned(),
                7 => format!("../packets/{}", "x/../".repeat(300)),
                _ => continue,
            };
            lines.push((key, format!("{value:?}")));
        }
        // As if it were of a capture that is indexed, from when that was another.
        if self.random.below(2) == 0 {
            lines.retain(|(key, _)| *key != "origin");
            lines.push(("origin", format!("{:?}", self.pick(&captures))));
        }
        for key in ["len", "modified_ns", "part", "start", "end", "records_before"] {
            if self.random.below(4) == 0 {
                lines.push((key, self.random.below(1_000).to_string()));
            }
        }
        self.told.push(format!("{folder}/{name}: {lines:?}"));
        let forged = forge_note(&bytes, |note| {
            let mut source = false;
            let mut forged: Vec<String> = vec![];
            for line in note.lines() {
                let key = line.split(" = ").next().unwrap_or_default();
                let is_other = source && lines.iter().any(|(other, _)| *other == key);
                if !is_other {
                    forged.push(line.to_owned());
                }
                if line.starts_with('[') {
                    source = line == "[source]";
                }
                if line == "[source]" {
                    forged.extend(lines.iter().map(|(key, value)| format!("{key} = {value}")));
                }
            }
            forged.join("\n")
        });
        let forged = forged.unwrap_or(bytes);
        // Under its own name, or one that its capture would not have now.
        let renamed = format!("z-{:016x}-0000.tdx", self.random.below(1 << 30));
        let keep = self.random.below(3) == 0;
        fs::write(if keep { path.clone() } else { path.with_file_name(renamed) }, forged)?;
        if !keep && self.random.below(2) == 0 {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn forge(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            let done = match self.random.below(8) {
                0 => self.replace_folder(),
                1..=3 => self.forge_notes(),
                _ => self.replace(),
            };
            // One trick may be in the way of another.
            if let Err(error) = done {
                self.told.push(error.to_string());
            }
        }
    }
}

/// What is tried on each archive, in this order.
const COMMANDS: [&str; 13] = [
    "info -r archive",
    "search -r archive --count tcp",
    "search -r archive greater 100",
    "extract -r archive --force -w out/x.pcapng tcp",
    "verify -r archive --quick",
    "verify -r archive",
    "upgrade -r archive",
    "repair -r archive --quick",
    "repair -r archive",
    "index -q -j 2 -o archive captures/a.pcap captures/b.pcap.gz",
    "index -q -j 2 -o archive --force captures/a.pcap captures/b.pcap.gz",
    "record -q -w archive -i -",
    "repair -r archive captures",
];

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn no_forged_archive_changes_what_is_outside() {
    let (count, seed) = (number("TAPDEX_FORGED", FORGED), number("TAPDEX_SEED", SEED));
    println!("{count} archives from seed {seed}: TAPDEX_FORGED, TAPDEX_SEED");
    let scratch = tempfile::tempdir().unwrap();
    let template = template(&scratch.path().join("template"));
    let (mut runs, mut codes) = (0_u64, BTreeMap::<i32, u64>::new());
    for n in 0..count {
        let folder = scratch.path().join("forged");
        let place = Place { folder: folder.clone() };
        let copied = Command::new("cp").arg("-a").arg(&template.folder).arg(&folder).status();
        assert!(copied.unwrap().success());
        let mut forger = Forger {
            place: &place,
            random: Random::new(seed.wrapping_add(n)),
            told: vec![format!("TAPDEX_FORGED=1 TAPDEX_SEED={}", seed.wrapping_add(n))],
        };
        forger.forge();
        let told = forger.told.join("\n");
        let before = place.watched();
        for command in COMMANDS {
            let input = command.starts_with("record").then(|| place.path("captures/c.pcap"));
            let (code, said) = place.run(command, input.as_deref());
            runs += 1;
            let Some(code) = code.filter(|code| (0..=5).contains(code)) else {
                panic!("{told}\n{command}: {code:?}\n{said}");
            };
            *codes.entry(code).or_default() += 1;
            let after = place.watched();
            for (before, after) in before.iter().zip(&after) {
                let changed: Vec<_> = before
                    .keys()
                    .chain(after.keys())
                    .filter(|path| before.get(*path) != after.get(*path))
                    .collect();
                assert!(changed.is_empty(), "{told}\n{command} changed {changed:?}\n{said}");
            }
        }
        let beside = names(&folder, "", "");
        assert_eq!(beside, ["archive", "captures", "out", "said", "watched"], "{told}");
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("{count} archives, {runs} commands, by exit code: {codes:?}");
}
