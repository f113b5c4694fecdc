//! However many threads take a capture in, the archive is the same, byte for byte; and wherever
//! windows and segments end, searches find the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tapdex_engine::archive::{Archive, CodecChoice, Ingest, IngestReport, Input};
use tapdex_engine::capture::blocks::Statistics;
use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface};
use tapdex_engine::query::{Query, SearchError, filter::Filter};
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};

const THREADS: [usize; 4] = [1, 2, 3, 16];
const NANO: u64 = 1_000_000_000;

/// What lies in the folder of segments, by name.
type Files = BTreeMap<OsString, Vec<u8>>;

/// Made-up packets, as a capture.
fn made(format: FileFormat, profile: &Profile) -> Vec<u8> {
    let interface = Interface::new(1, NANO);
    let mut writer = CaptureWriter::new(Vec::new(), format, &[interface], "").unwrap();
    let mut traffic = Traffic::new(profile);
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
    }
    writer.finish().unwrap()
}

fn profile(packets: u64, seed: u64) -> Profile {
    Profile { packets, seed, ipv6_share: 0.2, tunnel_share: 0.05, ..Profile::default() }
}

/// How captures are taken in.
#[derive(Clone, Copy)]
struct Settings {
    threads: usize,
    window: u64,
    records_max: usize,
    memory: Option<u64>,
}

impl Settings {
    fn new(threads: usize, window: u64) -> Self {
        Self { threads, window, records_max: 1 << 20, memory: None }
    }

    fn of(self, archive: &Archive) -> Ingest<'_> {
        let ingest = Ingest::new(archive).threads(self.threads).window(self.window);
        ingest.records_max(self.records_max).memory(self.memory)
    }
}

/// A folder with captures and archives of them.
struct Place {
    folder: tempfile::TempDir,
    captures: Vec<PathBuf>,
}

impl Place {
    fn new(captures: &[Vec<u8>]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |(number, bytes): (usize, &Vec<u8>)| {
            let path = folder.path().join(format!("{number}.cap"));
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let captures = captures.iter().enumerate().map(write).collect();
        Self { folder, captures }
    }

    fn archive(&self, name: &str, settings: Settings) -> Archive {
        let folder = self.folder.path().join(name);
        let mut archive = Archive::create(&folder, Some(CodecChoice::Auto)).unwrap();
        archive.keep_sums(true).unwrap();
        self.run(&settings.of(&archive));
        archive
    }

    fn run(&self, ingest: &Ingest<'_>) -> IngestReport {
        let inputs: Vec<Input> = self.captures.iter().cloned().map(Input::File).collect();
        let report = ingest.run(&inputs).unwrap();
        assert!(report.files.iter().all(|file| file.error.is_none()), "{report:?}");
        report
    }

    /// Takes the captures in with all numbers of threads; returns an archive of them.
    fn same_for_all_threads(&self, what: &str, window: u64, records_max: usize) -> Archive {
        let archives = THREADS.map(|threads| {
            let settings = Settings { records_max, ..Settings::new(threads, window) };
            self.archive(&format!("{window}-{records_max}-{threads}"), settings)
        });
        let all = archives.each_ref().map(|archive| files(archive.folder()));
        for (found, threads) in all.iter().zip(THREADS).skip(1) {
            assert!(found.keys().eq(all[0].keys()), "{what}, {threads} threads: other segments");
            let differs = found.iter().zip(&all[0]).find(|(a, b)| a.1 != b.1);
            assert!(differs.is_none(), "{what}, {threads} threads: {:?}", differs.unwrap().0.0);
        }
        archives.into_iter().next().unwrap()
    }
}

fn files(archive: &Path) -> Files {
    let entries = archive.join("segments").read_dir().unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_owned(), std::fs::read(&path).unwrap())
        })
        .collect()
}

/// A packet: its time, its length and its bytes.
type Packet = (u64, u32, Vec<u8>);

/// What a search finds; an error if libpcap refuses the filter for the link of the packets.
fn found(archive: &Archive, filter: &str) -> Result<Vec<Packet>, SearchError> {
    let query = Query::new(Filter::parse(filter, 0).unwrap(), TimeRange::ALL);
    let search = archive.search(&query)?;
    let mut packets = search.packets();
    let mut all = Vec::new();
    while let Some(packet) = packets.next()? {
        let record = &packet.record;
        all.push((record.time_ns, record.wire_len, record.data.to_vec()));
    }
    packets.finish()?;
    all.sort_unstable();
    Ok(all)
}

/// What a reader of the captures finds.
fn read(captures: &[Vec<u8>]) -> Vec<Packet> {
    let mut all = Vec::new();
    for bytes in captures {
        let mut reader = CaptureReader::open(&bytes[..]).unwrap();
        while let Ok(Some(record)) = reader.next() {
            all.push((record.time_ns, record.wire_len, record.data.to_vec()));
        }
    }
    all.sort_unstable();
    all
}

/// Checks captures in windows of several sizes.
fn check(what: &str, captures: &[Vec<u8>]) {
    let place = Place::new(captures);
    let expected = read(captures);
    let filters = ["tcp", "udp port 53", "host 203.0.113.3", "greater 700"];
    let mut first: Option<Vec<Option<usize>>> = None;
    for (window, records_max) in [(1 << 14, 1 << 20), (100_000, 1_000), (1 << 30, 1 << 20)] {
        let archive = place.same_for_all_threads(what, window, records_max);
        let (segments, failed) = archive.segments().unwrap();
        assert!(failed.is_empty(), "{what}: {failed:?}");
        for segment in &segments {
            let verified = segment.index().verify(&mut |_| {});
            assert!(verified.problems.is_empty(), "{what}: {verified:?}");
        }
        let all = found(&archive, "").unwrap();
        assert!(all == expected, "{what}: {} packets of {}", all.len(), expected.len());
        let count = |filter: &&str| found(&archive, filter).ok().map(|all| all.len());
        let counts: Vec<Option<usize>> = filters.iter().map(count).collect();
        assert_eq!(*first.get_or_insert_with(|| counts.clone()), counts, "{what}");
    }
}

#[test]
fn made_up_traffic() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let mixed = made(format, &profile(6_000, 1));
        let small = made(format, &Profile { mean_len: Some(64), ..profile(20_000, 2) });
        check(&format!("{format:?}"), std::slice::from_ref(&mixed));
        check(&format!("{format:?}, small frames"), std::slice::from_ref(&small));
        // More captures than some numbers of threads, and fewer than others.
        let few = made(format, &profile(50, 3));
        check(&format!("{format:?}, several"), &[few, mixed, small]);
    }
}

#[test]
fn a_flood_and_a_single_flow() {
    let flood = Profile { mean_len: Some(64), flood_share: 1.0, ..profile(20_000, 4) };
    check("flood", &[made(FileFormat::Pcap, &flood)]);
    let interface = Interface::new(1, NANO);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[interface], "").unwrap();
    let mut traffic = Traffic::new(&profile(1, 5));
    let packet = traffic.next().unwrap();
    for number in 0..20_000 {
        writer.packet(0, packet.time_ns + number, packet.wire_len, packet.data).unwrap();
    }
    check("one flow", &[writer.finish().unwrap()]);
}

/// A capture whose packets are pieces of another capture, from which no reader can tell that they
/// are not records, unless it comes from the start of the file.
fn nested(outer: FileFormat, inner: &[u8], piece: usize) -> Vec<u8> {
    let interface = Interface::new(1, NANO);
    let mut writer = CaptureWriter::new(Vec::new(), outer, &[interface], "").unwrap();
    for (number, piece) in (0..).zip(inner.chunks(piece)) {
        let time = 1_700_000_000 * NANO + number;
        writer.packet(0, time, u32::try_from(piece.len()).unwrap(), piece).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn captures_that_contain_captures() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let inner = made(format, &Profile { mean_len: Some(64), ..profile(12_000, 6) });
        // Pieces that end anywhere, that end with their records, and longer than a guess looks.
        for piece in [1_500, 60_000, 200_000] {
            let outer = nested(format, &inner, piece);
            check(&format!("{format:?} in pieces of {piece}"), std::slice::from_ref(&outer));
            let twice = nested(format, &outer, 9_000);
            check(&format!("{format:?} twice, {piece}"), &[twice]);
        }
    }
}

#[test]
fn several_sections_and_interfaces() {
    // Sections one after the other, each with interfaces of its own, in either byte order.
    let mut all = Vec::new();
    for seed in 0..6 {
        all.extend(made(FileFormat::Pcapng, &profile(1_500, 10 + seed)));
    }
    check("sections", &[all]);
    let interfaces: Vec<Interface> = (0..300).map(|_| Interface::new(1, NANO)).collect();
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &interfaces, "").unwrap();
    let mut traffic = Traffic::new(&profile(6_000, 20));
    let mut number = 0;
    while let Some(packet) = traffic.next() {
        writer.packet(number % 300, packet.time_ns, packet.wire_len, packet.data).unwrap();
        number += 1;
    }
    check("interfaces", &[writer.finish().unwrap()]);
}

#[test]
fn interfaces_and_statistics_in_the_middle() {
    // A capture that goes on with another interface, and statistics that fill whole windows.
    let part = |seed| made(FileFormat::Pcapng, &profile(3_000, seed));
    let (first, second) = (part(21), part(22));
    let more = [Interface::new(1, NANO), Interface::new(1, 1_000_000)];
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &more, "").unwrap();
    (0..3_000).for_each(|_| writer.statistics(1, &Statistics::default()).unwrap());
    let header = writer.finish().unwrap();
    let section_len =
        usize::try_from(u32::from_le_bytes(header[4..8].try_into().unwrap())).unwrap();
    // Without its section's header, what is left belongs to the section before.
    let blocks = &header[section_len..];
    check("in the middle", &[[&first[..], blocks, &first[..], blocks].concat()]);
    check("among packets", &[[&first[..], blocks, packets_of(&second), blocks].concat()]);
}

/// The packet blocks of a capture that [`made`] has made.
fn packets_of(pcapng: &[u8]) -> &[u8] {
    let mut reader = CaptureReader::open(pcapng).unwrap();
    let first = reader.next().unwrap().unwrap().offset;
    &pcapng[usize::try_from(first).unwrap()..]
}

#[test]
fn captures_that_are_cut_or_damaged() {
    for format in [FileFormat::Pcap, FileFormat::Pcapng] {
        let whole = made(format, &profile(3_000, 30));
        for share in [3, 5, 9] {
            let at = whole.len() / 10 * share + share;
            check(&format!("{format:?} cut at {at}"), &[whole[..at].to_vec()]);
            let mut damaged = whole.clone();
            damaged[at..at + 400].fill(0xFF);
            let zeroed = [&whole[..at], &vec![0; 300_000][..], &whole[at..]].concat();
            check(&format!("{format:?} damaged at {at}"), &[damaged]);
            check(&format!("{format:?} with zeros at {at}"), &[zeroed]);
        }
    }
}

/// Writes a file as if at that time, which notes have.
fn write_at(path: &Path, bytes: &[u8], seconds: u64) {
    std::fs::write(path, bytes).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn a_capture_that_grows_is_taken_in_again_from_where_it_ended() {
    let whole = made(FileFormat::Pcap, &profile(6_000, 40));
    let place = Place::new(&[whole[..whole.len() / 2].to_vec()]);
    let mut grown = Vec::new();
    for threads in THREADS {
        write_at(&place.captures[0], &whole[..whole.len() / 2], 1);
        let settings = Settings::new(threads, 1 << 16);
        let archive = place.archive(&format!("grows-{threads}"), settings);
        write_at(&place.captures[0], &whole, 2);
        place.run(&settings.of(&archive));
        assert!(
            found(&archive, "").unwrap() == read(std::slice::from_ref(&whole)),
            "{threads} threads"
        );
        grown.push(files(archive.folder()));
    }
    assert!(grown.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn little_memory_is_enough() {
    let captures = [7, 8, 9].map(|seed| made(FileFormat::Pcap, &profile(4_000, seed)));
    let place = Place::new(&captures);
    let settings = Settings::new(3, 4_096);
    let little = place.archive("little", Settings { memory: Some(1), ..settings });
    let plenty = place.archive("plenty", settings);
    assert!(files(little.folder()) == files(plenty.folder()));
}

/// With `TAPDEX_TRACES`: real captures, whole and one behind the other.
#[test]
fn traces() {
    let Some(folder) = std::env::var_os("TAPDEX_TRACES").map(PathBuf::from) else { return };
    let mut joined: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut count = 0;
    for part in ["zoo", "zoo-derived"] {
        let Ok(entries) = folder.join(part).read_dir() else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let Ok(reader) = CaptureReader::open(&bytes[..]) else { continue };
            let is_pcapng = reader.layout().pcapng;
            check(&path.display().to_string(), std::slice::from_ref(&bytes));
            count += 1;
            // Captures of the same form: sections behind each other, or records.
            let key = if is_pcapng { Vec::new() } else { bytes[..24].to_vec() };
            let skip = if is_pcapng { 0 } else { 24 };
            let all = joined.entry(key).or_insert_with_key(|key| key.clone());
            all.extend(&bytes[skip..]);
        }
    }
    for all in joined.into_values() {
        check("captures behind each other", &[all]);
    }
    assert!(count > 100, "{count} captures");
}
