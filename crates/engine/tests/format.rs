//! A reader that was written from `docs/format.md` alone reads what we write.
//!
//! `format/reader.py` knows nothing of our code. What it finds in segments is compared with what
//! the packets say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tapdex_bitmap::Codec;
use tapdex_engine::archive::{Archive, CodecChoice, Ingest, Input};
use tapdex_engine::capture::{self, CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields::{FIELDS, FieldSet, Packet, length_class, length_class_start};
use tapdex_engine::index::{Index, MARK_RECORDS};
use tapdex_engine::packet::{Headers, decode};
use tapdex_engine::testing::segment::check_lookups;
use tapdex_engine::traffic::{Profile, Traffic};

const CODECS: [CodecChoice; 4] = [
    CodecChoice::Auto,
    CodecChoice::Fixed(Codec::Roaring),
    CodecChoice::Fixed(Codec::Wah),
    CodecChoice::Fixed(Codec::Masc),
];

/// A line of the reader: numbers by name.
type Line = BTreeMap<String, u128>;

/// Runs the reader.
fn run(index: &Path, packets: Option<&Path>) -> Output {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format/reader.py");
    let mut command = Command::new("python3");
    let output = command.arg("-B").arg(reader).arg(index).args(packets).output();
    output.unwrap_or_else(|error| panic!("python3, which scripts/setup installs: {error}"))
}

/// What the reader prints about a file.
fn read(index: &Path, packets: Option<&Path>) -> Vec<Line> {
    let output = run(index, packets);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let number = |pair: &str| {
        let (name, number) = pair.split_once(": ").unwrap();
        (name.trim_matches('"').to_owned(), number.parse().unwrap())
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| line.trim_matches(['{', '}']).split(", ").map(number).collect();
    text.lines().map(line).collect()
}

/// A packet of a capture, as our own decoder sees it.
struct Seen {
    offset: u64,
    time_ns: u64,
    wire_len: u32,
    /// In the order of `FIELDS`.
    values: Vec<u128>,
}

fn packets(path: &Path) -> Vec<Seen> {
    let mut reader = capture::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let mut headers = Headers::default();
        decode(record.link, record.swapped, record.data, &mut headers);
        let packet = Packet::new(&record, &headers);
        all.push(Seen {
            offset: record.offset,
            time_ns: record.time_ns,
            wire_len: record.wire_len,
            values: FIELDS.iter().map(|spec| spec.field.value(&packet)).collect(),
        });
    }
    all
}

/// What flows have to have, by what the packets of each say.
#[derive(Default)]
struct Flow {
    packets: u128,
    bytes: u128,
    excess: u128,
}

/// Compares the lines of a segment with its packets.
fn check(lines: &[Line], seen: &[Seen], what: &str) {
    let of = |name: &'static str| lines.iter().filter(move |line| line.contains_key(name));
    assert_eq!(of("record").count(), seen.len(), "{what}");
    let mut flows: BTreeMap<u128, Flow> = BTreeMap::new();
    for ((record, line), packet) in (0..).zip(of("record")).zip(seen) {
        assert_eq!(line["record"], record, "{what}");
        for (spec, &value) in FIELDS.iter().zip(&packet.values) {
            // A field that is 0 in all packets has no column.
            let found = line.get(spec.name).copied().unwrap_or(0);
            assert_eq!(found, value, "{what}, record {record}: {}", spec.name);
        }
        let known = |name: &str| FIELDS.iter().any(|spec| spec.name == name);
        let others = line.keys().filter(|name| !known(name)).count();
        assert_eq!(others, ["record", "row", "flow"].len(), "{what}: {line:?}");
        let flow = flows.entry(line["flow"]).or_default();
        let least = length_class_start(length_class(packet.wire_len));
        flow.packets += 1;
        flow.bytes += u128::from(packet.wire_len);
        flow.excess += u128::from(u64::from(packet.wire_len) - least);
    }
    let mut found = 0;
    for line in of("packets") {
        let flow = flows.remove(&line["flow"]).unwrap_or_default();
        found += usize::from(flow.packets > 0);
        let expected = (flow.packets, flow.excess, flow.bytes);
        let numbers = (line["packets"], line["excess"], line["bytes"]);
        assert_eq!(numbers, expected, "{what}, flow {}", line["flow"]);
    }
    assert!(flows.is_empty() && (found > 0 || seen.is_empty()), "{what}");
    let marks = seen.chunks(MARK_RECORDS as usize);
    assert_eq!(of("mark").count(), marks.len(), "{what}");
    for (line, packets) in of("mark").zip(marks) {
        let times = || packets.iter().map(|packet| u128::from(packet.time_ns));
        let numbers = (line["offset"], line["time_min"], line["time_max"]);
        let (least, most) = (times().min().unwrap(), times().max().unwrap());
        assert_eq!(numbers, (packets[0].offset.into(), least, most), "{what}");
    }
}

/// An Ethernet frame with an IPv4 packet behind some tags or labels.
fn frame(before: &[u8], service: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(20 + payload.len()).unwrap();
    let header = [0x45, service, 0, len, 0, 0, 0, 0, 64, protocol, 0, 0];
    let addresses = [10, 0, 0, 1, 10, 0, 0, 2];
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], before, &header, &addresses, payload].concat()
}

/// MPLS, two VLAN tags, a code of ICMP and of services, VXLAN with an id.
fn rare() -> impl Iterator<Item = Vec<u8>> {
    let ports = [0, 53, 0x12, 0xB5, 0, 8, 0, 0];
    let inner = frame(&[8, 0], 0, 17, &ports);
    let vxlan = [&ports, &[8, 0, 0, 0, 0, 0, 77, 0][..], &inner].concat();
    let tags = [0x88, 0xA8, 0, 5, 0x81, 0, 0, 6, 8, 0];
    let frames = [
        frame(&[0x88, 0x47, 0, 1, 0x21, 64], 0, 17, &ports),
        frame(&tags, 0, 17, &ports),
        frame(&[8, 0], 0xB8, 1, &[3, 1, 0, 0, 0, 0, 0, 0]),
        frame(&[8, 0], 0, 17, &vxlan),
    ];
    frames.into_iter()
}

/// A folder with a capture.
struct Place {
    folder: tempfile::TempDir,
    capture: PathBuf,
}

impl Place {
    /// Frames of an interface each, with their lengths on the wire.
    fn new(frames: impl Iterator<Item = (u32, u64, u32, Vec<u8>)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("a.pcapng");
        let interfaces = [Interface::new(1, 1_000_000_000), Interface::new(1, 1_000_000_000)];
        let mut writer =
            CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &interfaces, "").unwrap();
        for (interface, time_ns, wire_len, data) in frames {
            writer.packet(interface, time_ns, wire_len, &data).unwrap();
        }
        std::fs::write(&capture, writer.finish().unwrap()).unwrap();
        Self { folder, capture }
    }

    /// Traffic, and frames that it does not have; some are cut anywhere.
    fn traffic(profile: &Profile) -> Self {
        let mut traffic = Traffic::new(profile);
        let mut number = 0_usize;
        let frames = std::iter::from_fn(|| {
            let packet = traffic.next()?;
            number += 1;
            let kept = if number.is_multiple_of(7) { number * 31 % 90 } else { packet.data.len() };
            let data = packet.data[..kept.min(packet.data.len())].to_vec();
            Some((u32::from(number.is_multiple_of(5)), packet.time_ns, packet.wire_len, data))
        });
        Self::new(frames.chain(rare().map(|frame| (0, profile.start_ns, 200, frame))))
    }

    /// Checks the segments of an archive, all of them together; returns how many columns had each
    /// form.
    fn check(&self, codec: CodecChoice, records_max: usize) -> BTreeMap<String, usize> {
        let folder = self.folder.path().join(codec.to_string());
        let mut archive = Archive::create(&folder, Some(codec)).unwrap();
        archive.keep_sums(true).unwrap();
        archive.keep_fields(FieldSet::ALL).unwrap();
        let ingest = Ingest::new(&archive).threads(1).records_max(records_max);
        let report = ingest.run(&[Input::File(self.capture.clone())]).unwrap();
        assert!(report.files[0].error.is_none(), "{report:?}");
        let seen = packets(&self.capture);
        let mut rest = &seen[..];
        let mut forms = BTreeMap::new();
        for path in archive.index_files().unwrap() {
            let index = Index::open(&path).unwrap();
            assert_eq!(index.version(), 2);
            let verified = index.verify(&mut |_| {});
            assert!(verified.is_sound(), "{codec}: {verified:?}");
            check_lookups(&index, &[53]).unwrap();
            let (some, others) = rest.split_at(index.rows() as usize);
            check(&read(&path, Some(&self.capture)), some, &codec.to_string());
            rest = others;
            for column in &index.flow_schema().unwrap().columns {
                *forms.entry(column.form.to_string()).or_default() += 1;
            }
        }
        assert!(rest.is_empty() && !forms.is_empty());
        forms
    }
}

fn mixed(packets: u64) -> Profile {
    let profile = Profile { packets, snap_len: 120, ipv6_share: 0.3, ..Profile::default() };
    Profile { vlan_share: 0.2, tunnel_share: 0.2, other_share: 0.2, ..profile }
}

#[test]
fn the_other_reader_finds_every_field_of_every_packet() {
    let place = Place::traffic(&mixed(700));
    let seen = packets(&place.capture);
    let is_zero = |at: usize| seen.iter().all(|packet| packet.values[at] == 0);
    let zero = (0..).zip(&FIELDS).filter(|(at, _)| is_zero(*at)).map(|(_, spec)| spec.name);
    assert_eq!(zero.collect::<Vec<_>>(), [""; 0]);
    for codec in CODECS {
        let forms = place.check(codec, 500);
        match codec {
            CodecChoice::Auto => {
                assert!(forms.contains_key("lists") && forms.contains_key("packed"), "{forms:?}");
            }
            CodecChoice::Fixed(codec) => {
                assert_eq!(forms.keys().collect::<Vec<_>>(), [&codec.to_string()]);
            }
        }
    }
}

/// More than a group of blocks, of packed numbers and of the row map.
#[test]
fn many_packets_are_found_as_well() {
    let profile = Profile { mean_len: Some(64), concurrent_flows: 100_000, ..mixed(9_000) };
    Place::traffic(&Profile { scan_share: 0.6, ..profile }).check(CodecChoice::Auto, 1 << 20);
}

/// Ports that are most of those that there can be, and one that many packets have.
#[test]
fn most_ports_are_found_as_well() {
    let ports =
        (0..9_000_u16).map(|port| (port * 7, if port % 11 == 3 { 53 } else { port % 1_000 }));
    let frames = ports.map(|(a, b)| {
        let [a, b] = [a, b].map(u16::to_be_bytes);
        (0, 1, 60, frame(&[8, 0], 0, 17, &[a[0], a[1], b[0], b[1], 0, 8, 0, 0]))
    });
    let place = Place::new(frames);
    place.check(CodecChoice::Auto, 1 << 20);
    let port = FIELDS.iter().position(|spec| spec.name == "port.src").unwrap();
    let ports: BTreeSet<u128> = packets(&place.capture).iter().map(|p| p.values[port]).collect();
    assert!(ports.len() > 8_192, "{}", ports.len());
}

/// Conversations of which each has frames of one length: runs, and bytes beyond 32 bits.
#[test]
fn runs_of_lengths_are_found_as_well() {
    let frame = |host: u8| frame(&[8, 0], 0, 17, &[0, 53, 0x80, host, 0, 8, 0, 0]);
    let lengths = [(2, 60), (3, 1_000), (4, u32::MAX), (5, 61)];
    let frames = lengths.into_iter().flat_map(|(host, len)| {
        (0..300).map(move |i| (0, u64::from(host) * 1_000_000_000 + i, len, frame(host)))
    });
    let place = Place::new(frames);
    for codec in CODECS {
        let forms = place.check(codec, 1 << 20);
        assert!(codec != CodecChoice::Auto || forms["masc"] >= 2, "{forms:?}");
    }
}

/// Times that go back and forth by more than 63 bits have room for.
#[test]
fn any_times_are_found() {
    let times = [0, u64::MAX, 1, u64::MAX / 2, u64::MAX / 2 + 2, 1_000_000_007];
    let frames = (0..140 * 32).map(|i| (0, times[i / 32 % 6], 60, vec![0; 60]));
    Place::new(frames).check(CodecChoice::Auto, 1 << 20);
}

#[test]
fn an_empty_segment_is_read() {
    Place::new(std::iter::empty()).check(CodecChoice::Auto, 1 << 20);
}

#[test]
fn the_other_reader_refuses_damage() {
    let place = Place::traffic(&mixed(100));
    place.check(CodecChoice::Auto, 1 << 20);
    let folder = place.folder.path().join("auto");
    let path = Archive::open(&folder).unwrap().index_files().unwrap().remove(0);
    let good = std::fs::read(&path).unwrap();
    // Header, a section, the checksums or the directory, the footer.
    for at in [3, 20, 200, good.len() - 60, good.len() - 45, good.len() - 30, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(&path, &bad).unwrap();
        assert!(!run(&path, None).status.success(), "a flipped bit at {at}");
    }
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert!(!run(&path, None).status.success(), "a file that was cut off");
    std::fs::write(&path, &good).unwrap();
    let mut packets = std::fs::read(&place.capture).unwrap();
    *packets.last_mut().unwrap() ^= 1;
    std::fs::write(&place.capture, packets).unwrap();
    assert!(!run(&path, Some(&place.capture)).status.success(), "damaged packets");
}

/// What comes before the note in the index of the example's five packets.
fn example_before_note() -> Vec<u8> {
    let hosts = [(1, 1), (2, 9)];
    // Microseconds, who sends, ports of the sender and of the other, TCP flags or none, length.
    let packets = [
        (0, 0, [33_000, 53], None, 70),
        (5, 0, [40_000, 443], Some(2), 60),
        (9, 1, [443, 40_000], Some(18), 60),
        (12, 1, [53, 33_000], None, 120),
        (15, 0, [40_000, 443], Some(16), 60),
    ];
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("tiny.pcap");
    let interfaces = [Interface::new(1, 1_000_000)];
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &interfaces, "").unwrap();
    for (time_us, from, ports, flags, len) in packets {
        let [(source_mac, source), (target_mac, target)] = [hosts[from], hosts[1 - from]];
        let mut frame = vec![2, 0, 0, 0, 0, target_mac, 2, 0, 0, 0, 0, source_mac, 8, 0];
        let protocol = if flags.is_some() { 6 } else { 17 };
        frame.extend([0x45, 0, 0, u8::try_from(len - 14).unwrap(), 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, source, 10, 0, 0, target]);
        frame.extend(ports.iter().flat_map(|port: &u16| port.to_be_bytes()));
        frame.resize(len, 0);
        if let Some(flags) = flags {
            (frame[46], frame[47]) = (0x50, flags);
        }
        let time_ns = 1_767_600_000_000_000_000 + time_us * 1_000;
        writer.packet(0, time_ns, u32::try_from(len).unwrap(), &frame).unwrap();
    }
    std::fs::write(&capture, writer.finish().unwrap()).unwrap();
    let archive = Archive::create(&folder.path().join("tiny"), None).unwrap();
    Ingest::new(&archive).threads(1).run(&[Input::File(capture)]).unwrap();
    let mut bytes = std::fs::read(&archive.index_files().unwrap()[0]).unwrap();
    bytes.truncate(note_start(&bytes));
    bytes
}

fn note_start(bytes: &[u8]) -> usize {
    bytes.windows(10).position(|some| some == b"version = ").unwrap()
}

/// The file that the page takes apart.
#[test]
fn the_example_of_the_page_is_a_file() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, example) = page.split_once("## Example").unwrap();
    let mut bytes = Vec::new();
    // A line of bytes: where they are, two blanks, the bytes, and what they mean.
    for line in example.lines() {
        let mut parts = line.split("  ").filter(|part| !part.is_empty());
        let at = parts.next().filter(|at| at.len() == 4);
        let Some(at) = at.and_then(|at| usize::from_str_radix(at, 16).ok()) else { continue };
        assert_eq!(at, bytes.len(), "{line}");
        let digits = parts.next().unwrap().split(' ');
        bytes.extend(digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()));
    }
    let written = example_before_note();
    assert!(bytes[..note_start(&bytes)] == written, "other bytes are written: {written:02X?}");
    let index = Index::from_bytes(bytes.clone()).unwrap();
    assert!(index.verify(&mut |_| {}).is_sound());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("example.tdx");
    std::fs::write(&path, bytes).unwrap();
    let names = ["record", "row", "flow", "port.src", "port.dst", "tcp.flags", "length"];
    let lines = read(&path, None);
    let records = lines.iter().filter(|line| line.contains_key("record"));
    let cells = records.map(|line| names.map(|name| line[name].to_string()).join(" | "));
    let rows: Vec<String> = cells.map(|cells| format!("| {cells} |")).collect();
    assert_eq!(rows.len(), 5);
    let printed = String::from_utf8(run(&path, None).stdout).unwrap();
    let others = printed.lines().filter(|line| !line.contains("record"));
    for said in rows.iter().map(String::as_str).chain(others) {
        assert!(example.lines().any(|line| line == said), "the page does not say: {said}");
    }
}
