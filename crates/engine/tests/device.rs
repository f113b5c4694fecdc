//! Whatever a device does or fails to do, the archive is the one that the CPU makes, byte for byte.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::archive::{
    Archive, ArchiveError, CodecChoice, DeviceReport, Ingest, IngestReport, Input, Repair,
};
use tapdex_engine::capture::blocks::Statistics;
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields::FieldSet;
use tapdex_engine::storage::temporary_path;
use tapdex_engine::testing::{Fault, PacketFault, PlainDevice, PlainPackets};
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

/// What a device for frames makes of a capture in windows of so many bytes.
fn from_frames(
    place: &Place,
    threads: usize,
    window: u64,
    packets: PlainPackets,
) -> (Files, DeviceReport, Arc<PlainPackets>) {
    let archive = place.archive("frames", AUTO);
    let packets = Arc::new(packets);
    let device = Mutex::new(PlainDevice::for_frames(Arc::clone(&packets)));
    let ingest = Ingest::new(&archive).records_max(RECORDS).threads(threads).window(window);
    let report = place.run(&ingest.force(true).device(&device));
    assert_eq!(packets.chunks(), 0, "memory that was not given back");
    (files(&archive), report.device, packets)
}

/// What the CPU makes of it.
fn in_windows(place: &Place, window: u64) -> Files {
    let archive = place.archive("cpu", AUTO);
    place.run(&Ingest::new(&archive).records_max(RECORDS).window(window).force(true));
    files(&archive)
}

#[test]
fn a_device_for_frames_makes_the_same_files() {
    let place = Place::mixed();
    for window in [1 << 16, 1 << 20] {
        let expected = in_windows(&place, window);
        let count = expected.len() as u64;
        for (threads, refuse_every) in [(1, 0), (1, 1), (3, 0), (3, 7)] {
            let packets = PlainPackets::refusing(refuse_every);
            let (found, report, packets) = from_frames(&place, threads, window, packets);
            assert!(found == expected, "{threads} threads, {refuse_every}: the files differ");
            let all = (count, 0, None);
            assert_eq!((report.segments, report.segments_on_cpu, report.trouble), all);
            assert_eq!(packets.sorted.load(Relaxed), count);
            // Frames of which not all bytes are sent are refused by this one.
            let range = if refuse_every == 1 { 6_000..=6_000 } else { 1_000..=5_999 };
            assert!(threads > 1 || range.contains(&report.refused), "{}", report.refused);
        }
    }
}

#[test]
fn frames_of_several_links_make_the_same_files() {
    let place = Place::mixed();
    let source = std::fs::read(&place.capture).unwrap();
    let mut reader = tapdex_engine::capture::CaptureReader::open(&source[..]).unwrap();
    // Ethernet, BSD loopback, raw IP, and a link that is not decoded.
    let links = [1, 0, 101, 147].map(|link| Interface::new(link, 1_000_000_000));
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &links, "").unwrap();
    let mut number = 0;
    while let Some(record) = reader.next().unwrap() {
        let interface = number % 4;
        let data = if interface == 2 { &record.data[14..] } else { record.data };
        writer.packet(interface, record.time_ns, record.wire_len, data).unwrap();
        number += 1;
    }
    std::fs::write(&place.capture, writer.finish().unwrap()).unwrap();
    let expected = in_windows(&place, 1 << 18);
    let (found, report, _) = from_frames(&place, 2, 1 << 18, PlainPackets::default());
    assert!(found == expected, "the files differ");
    assert!(report.segments > 0 && report.trouble.is_none(), "{report:?}");
}

impl Place {
    /// The same packets as pcapng, with statistics among them and many behind the last one.
    fn with_statistics(self) -> Self {
        let source = std::fs::read(&self.capture).unwrap();
        let mut reader = tapdex_engine::capture::CaptureReader::open(&source[..]).unwrap();
        let interface = Interface::new(1, 1_000_000_000);
        let mut writer =
            CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &[interface], "").unwrap();
        let (mut packets, mut told) = (0, Statistics::default());
        while let Some(record) = reader.next().unwrap() {
            writer.packet(0, record.time_ns, record.wire_len, record.data).unwrap();
            packets += 1;
            told = Statistics { end_ns: record.time_ns, received: packets, ..told };
            if packets % 700 == 0 {
                writer.statistics(0, &told).unwrap();
            }
        }
        (0..300).for_each(|_| writer.statistics(0, &told).unwrap());
        std::fs::write(&self.capture, writer.finish().unwrap()).unwrap();
        self
    }
}

#[test]
fn nothing_is_lost_when_a_device_for_frames_fails() {
    frames_survive_all_faults(&Place::mixed(), 1 << 20);
}

#[test]
fn nothing_is_lost_either_if_other_blocks_follow_the_last_packet() {
    let place = Place::mixed().with_statistics();
    frames_survive_all_faults(&place, 1 << 20);
    // Windows in which no packet starts.
    let expected = in_windows(&place, 1 << 13);
    let (found, report, _) = from_frames(&place, 3, 1 << 13, PlainPackets::default());
    assert!(found == expected, "the files differ");
    assert_eq!((report.segments_on_cpu, report.trouble), (0, None));
}

fn frames_survive_all_faults(place: &Place, window: u64) {
    let expected = in_windows(place, window);
    let count = expected.len() as u64;
    for fault in [
        PacketFault::Frames,
        PacketFault::Begin,
        PacketFault::Add,
        PacketFault::Refused,
        PacketFault::RefusesTooMuch,
        PacketFault::Finish,
        PacketFault::TooManyFlows,
        PacketFault::Sort,
        PacketFault::RowMapCut,
        PacketFault::TooManyPackets,
        PacketFault::ValuesTurned,
        PacketFault::StrangeEntry,
        PacketFault::NoDigits,
    ] {
        for (from, times) in [(0, 1), (1, 1), (2, 2), (0, u64::MAX), (3, u64::MAX - 3)] {
            for threads in [1, 3] {
                let packets = PlainPackets::with_fault(fault, from, times);
                let (found, report, _) = from_frames(place, threads, window, packets);
                let what = format!("{fault:?} from {from}, {times} times: {report:?}");
                assert!(found == expected, "{what}: the files differ");
                assert!(report.trouble.is_some(), "{what}");
                let (on_device, on_cpu) = (report.segments, report.segments_on_cpu);
                assert_eq!(on_device + on_cpu, count, "{what}");
                assert!(on_cpu > 0 && (times > 1 || on_device > 0), "{what}");
            }
        }
    }
}

#[test]
fn bitmaps_of_a_codec_are_built_where_the_segment_was_sorted() {
    let place = Place::mixed();
    let codec = CodecChoice::Fixed(Codec::Wah);
    let expected = place.on_cpu(codec, RECORDS);
    let packets = Arc::new(PlainPackets::default());
    let device = PlainDevice::for_frames(Arc::clone(&packets));
    let (found, report, device) = place.on_device(codec, RECORDS, 2, device);
    assert!(found == expected, "the files differ");
    assert_eq!((report.segments, device.sorted), (8, 8));
    assert_eq!(packets.sorted.load(Relaxed), 0);
}
