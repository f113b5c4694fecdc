//! Archives whose packets a device has taken in are those of the CPU, byte for byte.
//!
//! Runs on the kernels compiled for this machine's CPU, or with `TAPDEX_DEVICE=cuda` on a GPU,
//! where the captures are larger unless `TAPDEX_PARITY=small`. With `TAPDEX_TRACES`, a folder of
//! captures, those are taken in as well.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tapdex_engine::archive::{Archive, CodecChoice, DeviceReport, Ingest, Input};
use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields::FieldSet;
use tapdex_engine::traffic::{Profile, Traffic};
use tapdex_gpu::device::Device;
use tapdex_gpu::flow::SegmentIndexer;
use tapdex_gpu::host::HostDevice;
use tapdex_gpu::testing::{is_large, on_gpu};

/// The index files of an archive, by name.
type Files = BTreeMap<OsString, Vec<u8>>;

fn device() -> Arc<dyn Device> {
    tapdex_gpu::testing::device(1).unwrap()
}

/// Writes a capture of made-up packets.
fn write(path: &Path, format: FileFormat, profile: &Profile) {
    let file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let interfaces = [Interface::new(1, 1_000_000_000)];
    let mut writer = CaptureWriter::new(file, format, &interfaces, "").unwrap();
    let mut traffic = Traffic::new(profile);
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
    }
    writer.finish().unwrap();
}

/// How captures are taken in.
#[derive(Debug, Clone, Copy)]
struct Manner {
    threads: usize,
    window: Option<u64>,
    records_max: usize,
    fields: FieldSet,
}

impl Default for Manner {
    fn default() -> Self {
        let fields = FieldSet::default();
        Self { threads: 1, window: None, records_max: 1 << 22, fields }
    }
}

fn take_in(
    folder: &Path,
    captures: &[PathBuf],
    manner: Manner,
    device: Option<&Arc<dyn Device>>,
) -> (Files, DeviceReport) {
    drop(std::fs::remove_dir_all(folder));
    let mut archive = Archive::create(folder, Some(CodecChoice::Auto)).unwrap();
    archive.keep_fields(manner.fields).unwrap();
    let mut ingest = Ingest::new(&archive).threads(manner.threads).records_max(manner.records_max);
    if let Some(window) = manner.window {
        ingest = ingest.window(window);
    }
    let indexer = device.map(|device| Mutex::new(SegmentIndexer::new(Arc::clone(device))));
    if let Some(indexer) = &indexer {
        ingest = ingest.device(indexer);
    }
    let inputs: Vec<Input> = captures.iter().cloned().map(Input::File).collect();
    let report = ingest.run(&inputs).unwrap();
    assert!(report.files.iter().all(|file| file.error.is_none()), "{report:?}");
    let entries = folder.join("segments").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| (path.file_name().unwrap().into(), std::fs::read(&path).unwrap());
    (entries.map(read).collect(), report.device)
}

/// Takes captures in on the device and on the CPU; returns what the device did.
fn compare(what: &str, captures: &[PathBuf], manner: Manner) -> DeviceReport {
    let room = tempfile::tempdir().unwrap();
    let folder = room.path().join("archive");
    let (expected, _) = take_in(&folder, captures, manner, None);
    let (found, report) = take_in(&folder, captures, manner, Some(&device()));
    assert!(found.keys().eq(expected.keys()), "{what}: other segments");
    let differs = found.iter().zip(&expected).find(|(a, b)| a.1 != b.1);
    assert!(differs.is_none(), "{what}: {:?} differs", differs.unwrap().0.0);
    let troubles = (report.segments_on_cpu, &report.trouble);
    assert_eq!(troubles, (0, &None), "{what}");
    report
}

#[test]
fn archives_are_the_same() {
    let room = tempfile::tempdir().unwrap();
    let path = |name: &str| vec![room.path().join(name)];
    let packets = if is_large() { 3_000_000 } else { 6_000 };
    let mixed = Profile { packets, ipv6_share: 0.2, tunnel_share: 0.1, ..Profile::default() };
    let small = Profile { mean_len: Some(64), seed: 2, ..mixed.clone() };
    let flood = Profile { flood_share: 1.0, seed: 3, ..small.clone() };
    for (name, profile) in [("mixed", &mixed), ("small", &small), ("flood", &flood)] {
        for format in [FileFormat::Pcap, FileFormat::Pcapng] {
            let captures = path(name);
            write(&captures[0], format, profile);
            let manner = Manner { threads: 4, ..Manner::default() };
            let report = compare(&format!("{name}, {format:?}"), &captures, manner);
            assert!(report.segments > 0 && report.refused * 10 < packets, "{report:?}");
            let small = Manner { window: Some(packets * 16), ..manner };
            let records_max = usize::try_from(packets).unwrap() / 5;
            let small = Manner { records_max, ..small };
            compare(&format!("{name}, {format:?}, small segments"), &captures, small);
            let all = Manner { fields: FieldSet::ALL, ..small };
            compare(&format!("{name}, {format:?}, all fields"), &captures, all);
        }
    }
}

#[test]
fn several_captures_on_several_threads() {
    let room = tempfile::tempdir().unwrap();
    let packets = if is_large() { 500_000 } else { 1_500 };
    let captures: Vec<PathBuf> = (0..5)
        .map(|seed| {
            let path = room.path().join(format!("{seed}.pcap"));
            write(&path, FileFormat::Pcap, &Profile { packets, seed, ..Profile::default() });
            path
        })
        .collect();
    for threads in [1, 3, 8] {
        let manner = Manner { threads, ..Manner::default() };
        assert_eq!(compare("several", &captures, manner).segments, 5);
    }
}

#[test]
fn a_device_that_runs_out_of_memory_or_is_lost() {
    if on_gpu() {
        return;
    }
    let room = tempfile::tempdir().unwrap();
    let captures = vec![room.path().join("a.pcap")];
    write(&captures[0], FileFormat::Pcap, &Profile { packets: 1_200, ..Profile::default() });
    let manner = Manner { window: Some(200_000), records_max: 500, ..Manner::default() };
    let folder = room.path().join("archive");
    let (expected, _) = take_in(&folder, &captures, manner, None);
    let run = |what: &str, device: Arc<HostDevice>| {
        let device: Arc<dyn Device> = device;
        let (found, report) = take_in(&folder, &captures, manner, Some(&device));
        assert!(found == expected, "{what}: the files differ");
        let all = report.segments + report.segments_on_cpu;
        assert_eq!(all, expected.len() as u64, "{what}: {report:?}");
        report
    };
    let whole = HostDevice::from_env(1).unwrap();
    run("sound", Arc::clone(&whole));
    let (calls, allocations) = (whole.calls(), whole.allocations());
    assert!(calls > 50 && allocations > 20, "{calls} calls, {allocations} allocations");
    let mut troubles = 0;
    for part in 0..30 {
        let device = HostDevice::from_env(1).unwrap();
        device.lose_at_call(calls * part / 30 + part % 3);
        let report = run(&format!("lost, {part}"), device);
        assert!(report.segments_on_cpu > 0 && report.trouble.is_some(), "{part}: {report:?}");
        let device = HostDevice::from_env(1).unwrap();
        device.fail_allocations(1 + allocations * part / 31, 2);
        // Some can be done without.
        troubles += u32::from(run(&format!("out of memory, {part}"), device).trouble.is_some());
    }
    assert!(troubles > 15, "{troubles} of 30");
}

/// With `TAPDEX_TRACES`: real captures, on a GPU all of them, otherwise those that are small.
#[test]
fn traces() {
    let Some(folder) = std::env::var_os("TAPDEX_TRACES").map(PathBuf::from) else { return };
    let mut count = 0;
    for part in ["zoo", "zoo-derived", "large"] {
        let Ok(entries) = folder.join(part).read_dir() else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let Ok(bytes) = std::fs::read(&path) else { continue };
            if CaptureReader::open(&bytes[..]).is_err() || !on_gpu() && bytes.len() > 300_000 {
                continue;
            }
            let manner = Manner { fields: FieldSet::ALL, ..Manner::default() };
            compare(&path.display().to_string(), &[path], manner);
            count += 1;
        }
    }
    assert!(count > 50, "{count} captures");
}
