//! Whatever a device does or fails to do, the archive is the one that the CPU makes, byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::archive::{
    Archive, ArchiveError, CodecChoice, DeviceReport, Ingest, IngestReport, Input, Repair,
};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields::FieldSet;
use tapdex_engine::storage::temporary_path;
use tapdex_engine::testing::{Fault, PlainDevice};
use tapdex_engine::traffic::{Profile, Traffic};

/// What lies in the folder of segments, by name.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A folder with a capture.
struct Place {
    folder: tempfile::TempDir,
    capture: PathBuf,
}

impl Place {
    fn new(profile: &Profile) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("a.pcap");
        let interface = Interface::new(1, 1_000_000_000);
        let mut writer =
            CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[interface], "").unwrap();
        let mut traffic = Traffic::new(profile);
        while let Some(packet) = traffic.next() {
            writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
        }
        std::fs::write(&capture, writer.finish().unwrap()).unwrap();
        Self { folder, capture }
    }

    /// Some thousand packets of all kinds.
    fn mixed() -> Self {
        let profile = Profile { packets: 6_000, ipv6_share: 0.3, ..Profile::default() };
        Self::new(&Profile { tunnel_share: 0.1, ..profile })
    }

    fn archive(&self, name: &str, codec: CodecChoice) -> Archive {
        let folder = self.folder.path().join(name);
        let mut archive = Archive::create(&folder, Some(codec)).unwrap();
        archive.keep_sums(true).unwrap();
        archive.keep_fields(FieldSet::ALL).unwrap();
        archive
    }

    fn run(&self, ingest: &Ingest<'_>) -> IngestReport {
        let report = ingest.run(&[Input::File(self.capture.clone())]).unwrap();
        assert!(report.files[0].error.is_none(), "{report:?}");
        report
    }

    /// What the CPU makes of the capture.
    fn on_cpu(&self, codec: CodecChoice, records_max: usize) -> Files {
        let archive = self.archive("cpu", codec);
        let report = self.run(&Ingest::new(&archive).records_max(records_max).force(true));
        assert_eq!(report.device, DeviceReport::default());
        files(&archive)
    }

    /// What a device makes of it, and the device.
    fn on_device(
        &self,
        codec: CodecChoice,
        records_max: usize,
        threads: usize,
        device: PlainDevice,
    ) -> (Files, DeviceReport, PlainDevice) {
        let archive = self.archive("device", codec);
        let device = Mutex::new(device);
        let ingest = Ingest::new(&archive).records_max(records_max).threads(threads).force(true);
        let report = self.run(&ingest.device(&device));
        let device = device.into_inner().unwrap_or_else(PoisonError::into_inner);
        (files(&archive), report.device, device)
    }
}

fn files(archive: &Archive) -> Files {
    let entries = archive.folder().join("segments").read_dir().unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| (name(&path), std::fs::read(&path).unwrap())).collect()
}

fn name(path: &Path) -> PathBuf {
    path.file_name().unwrap().into()
}

const AUTO: CodecChoice = CodecChoice::Auto;
/// Packets of a segment: the capture of `mixed` has eight of them.
const RECORDS: usize = 800;

#[test]
fn a_device_makes_the_same_files() {
    let place = Place::mixed();
    let codecs = ALL_CODECS.into_iter().map(CodecChoice::Fixed).chain([CodecChoice::Auto]);
    for codec in codecs {
        let expected = place.on_cpu(codec, RECORDS);
        for threads in [1, 3] {
            let (found, report, device) =
                place.on_device(codec, RECORDS, threads, PlainDevice::default());
            assert_eq!(found.len(), 8);
            assert!(found == expected, "{codec}, {threads} threads: the files differ");
            let all = DeviceReport { segments: 8, ..DeviceReport::default() };
            assert_eq!((report, device.sorted), (all, 8), "{codec}");
            // Bitmaps are what a device builds; `auto` has other forms, too.
            match codec {
                CodecChoice::Auto => assert_eq!(device.columns, 0),
                CodecChoice::Fixed(_) => assert!(device.columns > 8 * 15, "{}", device.columns),
            }
        }
    }
}

#[test]
fn codecs_of_many_flows_are_chosen_as_on_the_cpu() {
    // More flows and more rows than are looked at.
    let profile = Profile { packets: 100_000, scan_share: 0.9, ..Profile::default() };
    let place = Place::new(&profile);
    let expected = place.on_cpu(AUTO, 1 << 20);
    let (found, report, _) = place.on_device(AUTO, 1 << 20, 1, PlainDevice::default());
    assert!(found == expected, "the files differ");
    assert_eq!((found.len(), report.segments), (1, 1));
    let archive = place.archive("device", AUTO);
    let (segments, failed) = archive.segments().unwrap();
    assert!(failed.is_empty() && segments[0].note().flows > 80_000, "{failed:?}");
}

#[test]
fn nothing_is_lost_when_the_device_fails() {
    let place = Place::mixed();
    let codec = CodecChoice::Fixed(Codec::Plwah);
    let expected = place.on_cpu(codec, RECORDS);
    for fault in [
        Fault::Sort,
        Fault::Columns(0),
        Fault::Columns(1),
        Fault::Columns(17),
        Fault::TooFewColumns(3),
        Fault::BadFlow,
        Fault::SameRecord,
    ] {
        for every in [0, 1, 2, 3] {
            let device = PlainDevice::with_fault(fault, every);
            let (found, report, device) = place.on_device(codec, RECORDS, 1, device);
            assert!(found == expected, "{fault:?}: the files differ");
            assert!(report.trouble.is_some(), "{fault:?}");
            // It is not asked again after it has failed three times in a row.
            let counts = (report.segments, report.segments_on_cpu, device.sorted);
            let right = match every {
                0 | 1 => (0, 8, 3),
                2 => (4, 4, 8),
                _ => (6, 2, 8),
            };
            assert_eq!(counts, right, "{fault:?}, every {every}: {report:?}");
        }
    }
}

#[test]
fn a_capture_without_packets_is_not_for_the_device() {
    let place = Place::new(&Profile { packets: 0, ..Profile::default() });
    let expected = place.on_cpu(AUTO, RECORDS);
    let (found, report, device) = place.on_device(AUTO, RECORDS, 1, PlainDevice::default());
    assert!(found == expected && found.len() == 1);
    assert_eq!((report, device.sorted), (DeviceReport::default(), 0));
}

#[test]
fn a_disk_that_fails_is_no_fault_of_the_device() {
    let place = Place::mixed();
    let names = place.on_cpu(AUTO, RECORDS).into_keys();
    let archive = place.archive("device", AUTO);
    // A folder where the file of the third segment is to be written.
    let blocked = archive.folder().join("segments").join(names.into_iter().nth(2).unwrap());
    std::fs::create_dir(temporary_path(&blocked)).unwrap();
    let device = Mutex::new(PlainDevice::default());
    let ingest = Ingest::new(&archive).records_max(RECORDS).threads(1).device(&device);
    let report = ingest.run(&[Input::File(place.capture.clone())]).unwrap();
    let Some(ArchiveError::Index { path, .. }) = &report.files[0].error else {
        panic!("{report:?}");
    };
    assert_eq!(*path, blocked);
    assert_eq!((report.device.segments_on_cpu, report.device.trouble), (0, None));
}

#[test]
fn what_a_device_has_made_is_sound() {
    let place = Place::mixed();
    let device = PlainDevice::with_fault(Fault::Columns(5), 2);
    let codec = CodecChoice::Fixed(Codec::Compax2);
    place.on_device(codec, RECORDS, 2, device);
    let archive = place.archive("device", codec);
    let report = Repair::new(&archive).run().unwrap();
    assert!(report.segments == 8 && report.problems.is_empty(), "{report:?}");
}
