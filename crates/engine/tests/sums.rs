//! Bits of packet files that were flipped: every one is found by whoever reads it, and costs the
//! packets of its piece and no others.
//!
//! `TAPDEX_FLIPS=3000` flips as many.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapdex_bitmap::sample::Random;
use tapdex_engine::archive::{
    Archive, ArchiveError, Compared, Ingest, Input, Repair, Segment, Unread,
};
use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface, blocks};
use tapdex_engine::index::{BLOCK_LEN, Index, SectionKind};
use tapdex_engine::packet::Headers;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Query, Search};
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};

const SECOND: u64 = 1_000_000_000;
const START_NS: u64 = 1_790_000_000 * SECOND;

fn traffic(packets: u64, seed: u64, start_s: u64, mean_len: u32) -> Traffic {
    let start_ns = START_NS + start_s * SECOND;
    let mean_len = Some(mean_len);
    Traffic::new(&Profile { packets, seed, start_ns, mean_len, ..Profile::default() })
}

/// What a recorder writes: two interfaces, of which one comes late, and statistics in between.
fn recorded(packets: u64, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let interface = Interface::new(1, SECOND);
    blocks::section(&mut bytes, "a recording");
    blocks::interface(&mut bytes, &interface, "");
    let mut traffic = traffic(packets, seed, 0, 100);
    let mut number = 0;
    while let Some(packet) = traffic.next() {
        if number == packets / 2 {
            blocks::interface(&mut bytes, &interface, "tcp");
        }
        let of = u32::from(number >= packets / 2 && number % 3 == 0);
        blocks::packet(&mut bytes, of, packet.time_ns, packet.wire_len, packet.data);
        number += 1;
        if number % 64 == 0 || number == packets {
            blocks::statistics(&mut bytes, 0, &blocks::Statistics::default());
        }
    }
    bytes
}

fn pcap(packets: u64, seed: u64) -> Vec<u8> {
    let interface = Interface::new(1, SECOND);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[interface], "").unwrap();
    let mut traffic = traffic(packets, seed, 7_200, 100);
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
    }
    writer.finish().unwrap()
}

/// Frames so long that a piece does not fit into the buffer.
fn long_frames() -> Vec<u8> {
    let interface = Interface::new(1, SECOND);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[interface], "").unwrap();
    let mut random = Random::new(5);
    for number in 0..70_u64 {
        let len = 20_000 + random.below(30_000);
        let data: Vec<u8> = (0..len).map(|_| random.number().to_le_bytes()[0]).collect();
        writer.packet(0, START_NS + number * SECOND, len, &data).unwrap();
    }
    writer.finish().unwrap()
}

/// A folder with an archive of captures and recordings, all of which have checksums.
struct Place {
    folder: tempfile::TempDir,
    archive: Archive,
    files: Vec<PathBuf>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        let mut files = Vec::new();
        // Recordings need not be asked for it.
        for (n, records_max) in [(0, 4_096), (1, 300)] {
            fs::create_dir_all(archive.packets_folder()).unwrap();
            let recording = archive.new_recording(START_NS, 0).unwrap();
            fs::write(recording.sealed_path(), recorded(700, n)).unwrap();
            files.push(recording.sealed_path());
            index(&archive, &recording.sealed_path(), records_max);
        }
        archive.keep_sums(true).unwrap();
        let sections = [recorded(300, 10), recorded(250, 11)].concat();
        let captures =
            [("a.pcap", pcap(700, 4)), ("b.pcapng", sections), ("c.pcap", long_frames())];
        for (name, bytes) in captures {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            index(&archive, &path, if name == "b.pcapng" { 200 } else { 4_096 });
            files.push(path);
        }
        Self { folder, archive, files }
    }

    fn segments(&self) -> Vec<Arc<Segment>> {
        let (segments, failed) = self.archive.segments().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        segments
    }
}

fn index(archive: &Archive, path: &Path, records_max: usize) {
    let ingest = Ingest::new(archive).threads(1).records_max(records_max);
    let report = ingest.run(&[Input::File(path.to_owned())]).unwrap();
    assert!(report.files[0].error.is_none() && report.files[0].damage.is_none(), "{report:?}");
}

fn flip(path: &Path, at: u64, bit: u32) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
}

/// The segments of one packet file, in order.
fn parts_of(segments: &[Arc<Segment>], path: &Path) -> Vec<Arc<Segment>> {
    let path = path.canonicalize().unwrap();
    let is_of = |segment: &&Arc<Segment>| segment.packet_path().canonicalize().unwrap() == path;
    let mut parts: Vec<Arc<Segment>> = segments.iter().filter(is_of).cloned().collect();
    parts.sort_by_key(|segment| segment.note().source.part);
    parts
}

/// The packets of some segments, by number in the file, and which are said not to be read.
fn read(parts: &[Arc<Segment>]) -> (Vec<(u64, Vec<u8>)>, Vec<Unread>) {
    let query = Query::new(Filter::parse("", 0).unwrap(), TimeRange::ALL);
    let search = Search::of(&query, parts.to_vec());
    let mut found = search.packets();
    let mut packets = Vec::new();
    while let Some(found) = found.next().unwrap() {
        packets.push((found.number_in_file() - 1, found.record.data.to_vec()));
    }
    packets.sort();
    let gaps = found.finish().unwrap().gaps;
    (packets, gaps.iter().filter_map(|gap| gap.error.as_deref()).map(unread).collect())
}

fn unread(error: &ArchiveError) -> Unread {
    match error {
        ArchiveError::Unread(unread) => unread.clone(),
        other => panic!("{other:?}"),
    }
}

/// Where a byte that was flipped is found, if it is.
fn found_by(unread: &[Unread], at: u64) -> Option<&Unread> {
    match unread {
        [] => None,
        [one] if one.bytes().contains(&at) => Some(one),
        other => panic!("byte {at}: {other:?}"),
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let flips = std::env::var("TAPDEX_FLIPS").map_or(250, |flips| flips.parse::<u32>().unwrap());
    let seed = std::env::var("TAPDEX_SEED").map_or(15, |seed| seed.parse::<u64>().unwrap());
    println!("TAPDEX_SEED={seed} TAPDEX_FLIPS={flips}");
    let place = Place::new();
    let segments = place.segments();
    assert_eq!(segments.len(), 1 + 3 + 1 + 3 + 1);
    let mut random = Random::new(seed);
    // Columns cannot tell: all packets are read.
    let query = Query::new(Filter::parse("ether[33] & 3 = 1", 0).unwrap(), TimeRange::ALL);
    let whole: Vec<_> = place.files.iter().map(|path| read(&parts_of(&segments, path)).0).collect();
    let matching = |packets: &[(u64, Vec<u8>)]| -> Vec<u64> {
        let matches = |data: &[u8]| data.get(33).is_some_and(|byte| byte & 3 == 1);
        packets.iter().filter(|(_, data)| matches(data)).map(|(number, _)| *number).collect()
    };
    let (mut by_verify, mut by_reading, mut in_heads) = (0, 0, 0);
    for n in 0..flips {
        let which = random.below(u32::try_from(place.files.len()).unwrap()) as usize;
        let (path, whole) = (&place.files[which], &whole[which]);
        let len = fs::metadata(path).unwrap().len();
        // The first and the last bytes as well.
        let at = match n % 10 {
            0 => u64::from(random.below(200)),
            1 => len - 1 - u64::from(random.below(200)),
            _ => random.number() % len,
        };
        let bit = random.below(8);
        flip(path, at, bit);
        let parts = parts_of(&segments, path);
        let compared = parts.iter().flat_map(|part| {
            let compared = part.compare(&mut |_| true).unwrap();
            assert_eq!(compared.difference, None, "{}: byte {at}", path.display());
            compared.unread.into_errors().into_iter().map(|error| unread(&error))
        });
        let compared: Vec<Unread> = compared.collect();
        let damage = found_by(&compared, at);
        let damage = damage.unwrap_or_else(|| panic!("{}: byte {at}", path.display()));
        by_verify += 1;

        let lost = damage.packets();
        let left: Vec<_> =
            whole.iter().filter(|(number, _)| !lost.contains(number)).cloned().collect();
        let (packets, said) = read(&parts);
        assert!(packets == left, "{}: byte {at}", path.display());
        if lost.is_empty() {
            // Before the first packet of a part: nobody reads that but verify.
            assert_eq!(said, []);
            in_heads += 1;
        } else {
            assert_eq!(found_by(&said, at), Some(damage));
            by_reading += 1;
        }
        let mut numbers = Vec::new();
        let mut not_read = Vec::new();
        for part in &parts {
            let answer = query.records(part).unwrap();
            assert_eq!(answer.count, query.count(part).unwrap().count);
            let before = part.note().source.records_before;
            numbers.extend(answer.records.iter().map(|&record| before + u64::from(record)));
            not_read.extend(answer.unread.into_errors().iter().map(unread));
        }
        assert_eq!(numbers, matching(&left), "{}: byte {at}", path.display());
        assert_eq!(found_by(&not_read, at), (!lost.is_empty()).then_some(damage));
        flip(path, at, bit);
    }
    println!(
        "{flips} flips: {by_verify} found by verify; {by_reading} by all that read, {in_heads} \
         before the first packet of a part"
    );
    assert_eq!(by_verify, flips);
    assert!(by_reading > in_heads && in_heads > 0);
    for segment in &segments {
        assert_eq!(segment.compare(&mut |_| true).unwrap(), Compared::default());
    }
}

#[test]
fn sums_are_those_of_the_bytes() {
    let place = Place::new();
    for path in &place.files {
        let bytes = fs::read(path).unwrap();
        let segments = place.segments();
        let mut end = 0;
        for part in parts_of(&segments, path) {
            let pieces = part.index().pieces().unwrap().unwrap();
            assert_eq!(pieces.len(), part.index().rows().div_ceil(32));
            let all = (0..pieces.len()).map(|i| pieces.get(i).unwrap());
            for piece in std::iter::once(pieces.head().unwrap()).chain(all) {
                assert_eq!(piece.bytes.start, end);
                end = piece.bytes.end;
                let range = usize::try_from(piece.bytes.start).unwrap()
                    ..usize::try_from(piece.bytes.end).unwrap();
                assert_eq!(piece.sum, plain_crc32c(&bytes[range]), "{}", path.display());
            }
        }
        assert_eq!(end, bytes.len() as u64, "{}: nothing is left out", path.display());
    }
}

/// CRC-32C, bit by bit.
fn plain_crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x82F6_3B78 } else { 0 }
        })
    })
}

/// Where the marks of an index start; the checksums of the packets follow them.
fn marks_start(bytes: &[u8]) -> u64 {
    let index = Index::from_bytes(bytes.to_vec()).unwrap();
    index.sections().find(|section| section.kind == Some(SectionKind::Marks)).unwrap().offset
}

#[test]
fn repair_does_not_take_damage_for_sound() {
    let mut place = Place::new();
    let long = place.folder.path().join("d.pcap");
    fs::write(&long, pcap(3_000, 5)).unwrap();
    index(&place.archive, &long, 4_096);
    place.files.push(long);
    let tdx: Vec<PathBuf> = place.archive.index_files().unwrap();
    let before: Vec<Vec<u8>> = tdx.iter().map(|path| fs::read(path).unwrap()).collect();
    let is_unchanged = |at: usize| fs::read(&tdx[at]).unwrap() == before[at];
    let mut both_damaged = 0;
    for path in &place.files {
        let segments = place.segments();
        let at = fs::metadata(path).unwrap().len() / 2;
        flip(path, at, 3);
        let report = Repair::new(&place.archive).run().unwrap();
        assert_eq!((report.left.len(), report.captures.len()), (1, 0), "{report:?}");
        assert!(report.problems[0].1.contains("another checksum"), "{report:?}");
        assert!((0..tdx.len()).all(is_unchanged));
        // Nor where an index of the same file is damaged as well, unless the damage is in the same
        // block as the checksums of the packets: then they cannot be compared.
        let index = report.left[0].0.clone();
        let number = tdx.iter().position(|path| *path == index).unwrap();
        flip(&index, 100, 0);
        if marks_start(&before[number]) >= BLOCK_LEN {
            let report = Repair::new(&place.archive).run().unwrap();
            assert!(report.captures.is_empty() && report.left.len() == 1, "{report:?}");
            assert!(!is_unchanged(number));
            both_damaged += 1;
        }
        // With the packets as they were the index can be made again, and is the same.
        flip(path, at, 3);
        drop(segments);
        let report = Repair::new(&place.archive).run().unwrap();
        assert!(report.left.is_empty() && report.captures.len() == 1, "{report:?}");
        for segment in place.segments() {
            assert_eq!(segment.compare(&mut |_| true).unwrap(), Compared::default());
            assert!(segment.index().has_pieces());
        }
        for (path, bytes) in tdx.iter().zip(&before) {
            // The others of the file have been made again with other limits.
            let _ = fs::remove_file(path);
            fs::write(path, bytes).unwrap();
        }
    }
    assert!(both_damaged > 0);
    drop(place.folder);
}

#[test]
fn a_packed_capture_is_unpacked_again() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let mut archive = Archive::create(&folder.path().join("archive"), None).unwrap();
    archive.keep_sums(true).unwrap();
    let packed = folder.path().join("a.pcap.gz");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&pcap(200, 3)).unwrap();
    fs::write(&packed, gzip.finish().unwrap()).unwrap();
    index(&archive, &packed, 4_096);
    let copy = archive.segments().unwrap().0[0].packet_path();
    flip(&copy, 5_000, 0);
    let report = Repair::new(&archive).run().unwrap();
    assert!(report.left.is_empty() && report.captures.len() == 1, "{report:?}");
    assert!(fs::read(&copy).unwrap() == pcap(200, 3));
    assert_eq!(
        archive.segments().unwrap().0[0].compare(&mut |_| true).unwrap(),
        Compared::default()
    );
}

#[test]
fn captures_have_sums_only_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (home, path) = (folder.path().join("archive"), folder.path().join("a.pcap"));
    fs::write(&path, pcap(100, 1)).unwrap();
    let mut archive = Archive::create(&home, None).unwrap();
    let settings = || fs::read_to_string(home.join("archive.toml")).unwrap();
    index(&archive, &path, 4_096);
    assert!(!archive.segments().unwrap().0[0].index().has_pieces());
    assert!(!settings().contains("sums"));
    archive.keep_sums(true).unwrap();
    // Kept for whoever opens it next.
    let archive = Archive::open(&home).unwrap();
    assert!(archive.settings().sums && settings().contains("sums = true"));
    Ingest::new(&archive).force(true).run(&[Input::File(path.clone())]).unwrap();
    assert!(archive.segments().unwrap().0[0].index().has_pieces());
    let mut again = Archive::create(&home, None).unwrap();
    assert!(again.settings().sums);
    again.keep_sums(false).unwrap();
    assert!(!Archive::open(&home).unwrap().settings().sums);
    // A file that was cut is short of its last pieces, and of no others.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let (segments, failed) = archive.segments().unwrap();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let (packets, said) = read(&segments[..1]);
    assert!(packets.len() >= 32 && packets.len().is_multiple_of(32));
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].bytes().end, bytes.len() as u64);
    assert_eq!(said[0].packets(), packets.len() as u64..100);
    let mut reader = CaptureReader::open(&bytes[..]).unwrap();
    let mut headers = Headers::default();
    let query = Query::new(Filter::parse("", 0).unwrap(), TimeRange::ALL);
    for (_, data) in packets {
        let record = reader.next().unwrap().unwrap();
        assert!(query.scan(&record, &mut headers).unwrap() && record.data == data);
    }
}
