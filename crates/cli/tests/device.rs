//! Devices on the command line. All of this holds on machines with a GPU and without.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use tapdex_engine::archive::{Archive, Ingest, Input};
use tapdex_gpu::flow::SegmentIndexer;
use tapdex_gpu::host::HostDevice;

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

/// A folder to work in.
struct Place(tempfile::TempDir);

impl Place {
    /// With a capture and a table in it.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.run("gen -c 20000 --ipv6 0.3 -w a.pcap", &[]).done();
        let rows = (0..5_000_u32).map(|row| format!("{},{}\n", row * row % 7_001, row % 9));
        let table = format!("port,kind\n{}", rows.collect::<String>());
        std::fs::write(place.0.path().join("a.csv"), table).unwrap();
        place
    }

    fn run(&self, args: &str, env: &[(&str, &str)]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapdex"));
        command.args(args.split_whitespace()).current_dir(self.0.path());
        command.env_remove("TAPDEX_ARCHIVE").env_remove("TAPDEX_DEVICE");
        let output = command.envs(env.iter().copied()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn names(&self) -> Vec<String> {
        let entries = self.0.path().read_dir().unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The index files of an archive, by name.
    fn segments(&self, archive: &str) -> Vec<(String, Vec<u8>)> {
        let folder = self.0.path().join(archive).join("segments");
        let mut files: Vec<_> = folder
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (name(&path), std::fs::read(path).unwrap()))
            .collect();
        files.sort();
        assert!(!files.is_empty());
        files
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl Ended {
    /// What a run said that went well.
    #[track_caller]
    fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.err
    }

    /// What a run said that ended with this code and printed nothing.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        self.err
    }
}

/// With this the driver, where there is one, finds no card.
const NO_CARD: [(&str, &str); 1] = [("CUDA_VISIBLE_DEVICES", "")];

/// Whether a message says what is missing and what to do about it.
#[track_caller]
fn names_a_way_out(message: &str) {
    assert!(message.starts_with("tapdex: --device cuda:"), "{message}");
    assert!(message.contains(": no CUDA device: ") && message.lines().count() == 1, "{message}");
    let ways = ["install", "nvidia-smi", "there is no device 4096"];
    assert!(ways.iter().any(|way| message.contains(way)), "{message}");
}

#[test]
fn an_archive_is_the_same_on_every_device() {
    let place = Place::new();
    for codec in ["auto", "compax"] {
        let index = |folder: &str, device: &str| {
            let options = format!("--codec {codec} {device} --force");
            place.run(&format!("index a.pcap -o {folder} {options}"), &[]).done()
        };
        let said = index("cpu", "--device cpu");
        assert!(!said.contains("device"), "who asks for the CPU knows: {said}");
        let said = index("auto", "");
        assert!(!said.contains("device") && said.lines().count() == 1, "{said}");
        assert!(place.segments("cpu") == place.segments("auto"), "{codec}");
    }
}

#[test]
fn kernels_make_the_archive_that_the_cpu_makes() {
    let place = Place::new();
    place.run("gen -c 3000 --ipv6 0.3 -w b.pcap", &[]).done();
    place.run("index b.pcap -o cpu --device cpu", &[]).done();
    let lost = HostDevice::new(2).unwrap();
    lost.lose_at(60);
    for (device, on_device) in [(HostDevice::new(1).unwrap(), 1), (lost, 0)] {
        let folder = format!("device-{on_device}");
        let archive = Archive::create(&place.0.path().join(&folder), None).unwrap();
        let indexer = Mutex::new(SegmentIndexer::new(device));
        let inputs = [Input::File(place.0.path().join("b.pcap"))];
        let report = Ingest::new(&archive).device(&indexer).run(&inputs).unwrap();
        let found = (report.device.segments, report.device.segments_on_cpu);
        assert_eq!(found, (on_device, 1 - on_device), "{report:?}");
        assert!(place.segments(&folder) == place.segments("cpu"), "the files differ");
    }
}

#[test]
fn an_index_file_is_the_same_on_every_device() {
    let place = Place::new();
    let read = |name: &str| std::fs::read(place.0.path().join(name)).unwrap();
    let options = "a.csv --sort-by kind --codec roaring";
    let said = place.run(&format!("index-file build {options} -o a.tdx --device cpu"), &[]).done();
    assert!(!said.contains("device"), "{said}");
    let said = place.run(&format!("index-file build {options} -o b.tdx"), &[]).done();
    assert!(!said.contains("device") && said.lines().count() == 1, "{said}");
    assert!(read("a.tdx") == read("b.tdx"));
}

#[test]
fn a_gpu_that_is_not_there_ends_it_before_anything_is_done() {
    let place = Place::new();
    let before = place.names();
    for command in ["index a.pcap", "index-file build a.csv -o a.tdx", "bench gpu --out folder"] {
        for (args, env) in [
            (format!("{command} --device cuda"), &NO_CARD[..]),
            (format!("{command} --device cuda:0"), &NO_CARD[..]),
            (format!("{command} --device cuda:4096"), &[]),
        ] {
            names_a_way_out(&place.run(&args, env).failed(2));
        }
    }
    names_a_way_out(&place.run("bench gpu", &NO_CARD).failed(2));
    let by_variable = [("CUDA_VISIBLE_DEVICES", ""), ("TAPDEX_DEVICE", "cuda")];
    names_a_way_out(&place.run("index a.pcap", &by_variable).failed(2));
    assert_eq!(place.names(), before);
}

#[test]
fn the_variable_gives_way_to_the_option() {
    let place = Place::new();
    let cuda = [("CUDA_VISIBLE_DEVICES", ""), ("TAPDEX_DEVICE", "cuda")];
    let said = place.run("index a.pcap --device cpu", &cuda).done();
    assert!(!said.contains("device"), "{said}");
    let cpu = [("TAPDEX_DEVICE", "cpu")];
    let said = place.run("index-file build a.csv -o a.tdx", &cpu).done();
    assert!(!said.contains("device"), "{said}");
}

#[test]
fn words_that_name_no_device_are_refused() {
    let place = Place::new();
    for command in ["index a.pcap", "index-file build a.csv -o a.tdx", "bench gpu"] {
        for word in ["gpu", "cuda:x", "cuda:-1", "CPU"] {
            let said = place.run(&format!("{command} --device {word}"), &[]).failed(2);
            let expected = format!(
                "tapdex: invalid value '{word}' for '--device <DEVICE>': expected auto, cpu, cuda, \
                 or cuda:N with N from 0\n"
            );
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}

#[test]
fn the_benchmark_of_a_gpu_needs_one() {
    let place = Place::new();
    for device in ["cpu", "auto"] {
        let said = place.run(&format!("bench gpu --device {device}"), &NO_CARD).failed(2);
        let expected = format!("tapdex: --device {device}: expected a GPU, such as cuda\n");
        assert_eq!(said, expected);
    }
    for (option, expected) in [
        ("--rows 0", "1..=134217728"),
        ("--rows 134217729", "1..=134217728"),
        ("--runs 0", "1..=65535"),
        ("--only uniform,roarin", "expected one of columns, segment,"),
    ] {
        let said = place.run(&format!("bench gpu {option}"), &NO_CARD).failed(2);
        assert!(said.contains(expected), "{said}");
    }
    let said = place.run("bench", &[]).failed(2);
    assert!(said.contains("gpu"), "{said}");
}

#[test]
fn help_names_the_devices() {
    let place = Place::new();
    for command in ["index", "index-file build", "bench gpu"] {
        let help = place.run(&format!("{command} --help"), &[]);
        assert_eq!(help.out, place.run(&format!("help {command}"), &[]).out);
        assert!(help.out.contains("--device <DEVICE>"), "{}", help.out);
        assert!(help.out.contains("cuda:N"), "{}", help.out);
        let has_variable = help.out.contains("TAPDEX_DEVICE");
        assert_eq!(has_variable, command != "bench gpu", "{}", help.out);
    }
}
