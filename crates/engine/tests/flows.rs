//! Conversations summed up from the index are those that the packets say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use tapdex_bitmap::sample::Random;
use tapdex_engine::archive::{Archive, Ingest, Input};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields::NAMES;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{FlowOrder, Flows, Query};
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};

const SECOND: u64 = 1_000_000_000;
const START_NS: u64 = 1_790_000_000 * SECOND;
const ORDERS: [FlowOrder; 4] =
    [FlowOrder::Bytes, FlowOrder::Packets, FlowOrder::Duration, FlowOrder::Start];

/// Filters that match whole flows, parts of them, and packets that have to be read.
const FILTERS: [&str; 14] = [
    "",
    "tcp",
    "ip",
    "ip6",
    "icmp or icmp6",
    "udp port 53",
    "src port 443",
    "not tcp port 443",
    "vlan",
    "tcp[tcpflags] & tcp-syn != 0",
    "len > 90",
    "udp or tcp[tcpflags] & tcp-push != 0",
    "tcp and ether[33] & 3 = 1 or udp",
    "net 10.0.0.0/9",
];

/// How the times of a capture go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Rising,
    /// Neighbours change places.
    Shaken,
    /// Times go back now and then, and many are the same.
    Jumping,
    /// All times are the same.
    Still,
}

/// A capture of all kinds of packets on three interfaces; some frames are cut short.
fn write_capture(path: &Path, packets: u64, seed: u64, clock: Clock) {
    let file = BufWriter::new(File::create(path).unwrap());
    // Two of Ethernet, and one of raw IP.
    let interfaces = [1, 1, 101].map(|link| Interface::new(link, SECOND));
    let mut writer = CaptureWriter::new(file, FileFormat::Pcapng, &interfaces, "").unwrap();
    let mut traffic = Traffic::new(&Profile {
        packets,
        seed,
        start_ns: START_NS + seed / 2 * SECOND,
        ipv6_share: 0.3,
        vlan_share: 0.2,
        tunnel_share: 0.1,
        other_share: 0.2,
        concurrent_flows: 40,
        ..Profile::default()
    });
    let mut random = Random::new(seed);
    while let Some(packet) = traffic.next() {
        let time_ns = match clock {
            Clock::Rising => packet.time_ns,
            Clock::Still => START_NS,
            Clock::Shaken => packet.time_ns + u64::from(random.below(300_000)),
            Clock::Jumping => match random.below(20) {
                0 => START_NS + u64::from(random.below(1_000)) * 1_000_000,
                _ => packet.time_ns / 1_000_000 * 1_000_000,
            },
        };
        let mut data = packet.data.to_vec();
        let kept = match random.below(12) {
            0 => random.below(70) as usize,
            _ => data.len(),
        };
        // The addresses of IPv6 are not known if the frame is cut before them, or they are 0.
        if data.get(12..14) == Some(&[0x86, 0xDD]) && random.below(15) == 0 {
            data[22..54].fill(0);
        }
        let is_ip = matches!(data.get(12..14), Some([0x08, 0x00] | [0x86, 0xDD]));
        let (interface, head) = match random.below(10) {
            0 if is_ip => (2, 14),
            1..4 => (1, 0),
            _ => (0, 0),
        };
        let data = &data[head..kept.max(head).min(data.len())];
        let wire_len = packet.wire_len - u32::try_from(head).unwrap();
        writer.packet(interface, time_ns, wire_len, data).unwrap();
    }
    drop(writer.finish().unwrap());
}

fn archive(folder: &Path, captures: u64, packets: u64, part: usize, clock: Clock) -> Archive {
    let archive = Archive::create(&folder.join("archive"), None).unwrap();
    for n in 0..captures {
        let path = folder.join(format!("{n}.pcapng"));
        write_capture(&path, packets, n, clock);
        let report = Ingest::new(&archive).records_max(part).run(&[Input::File(path)]).unwrap();
        assert!(report.files[0].error.is_none());
    }
    archive
}

/// Conversations by the index, and by reading all packets; and whether there were rows.
fn both(archive: &Archive, query: &Query, order: FlowOrder, most: usize) -> ([Flows; 2], bool) {
    let search = archive.search(query).unwrap();
    let (mut rows, mut records) = (search.rows_of_flows().unwrap(), search.records().unwrap());
    assert_eq!(rows.count(), records.count());
    assert_eq!(rows.is_complete(), records.is_complete());
    let has_rows = rows.segments.iter().any(|(_, answer)| !answer.rows.is_empty());
    for (_, answer) in &records.segments {
        assert!(answer.rows.is_empty() && answer.records.len() as u64 == answer.count);
    }
    let flows = [&mut rows, &mut records].map(|answers| answers.flows(order, most).unwrap());
    assert_eq!(rows.gaps.len(), records.gaps.len());
    (flows, has_rows)
}

#[track_caller]
fn assert_same(archive: &Archive, query: &Query, what: &str) -> usize {
    let mut with_rows = 0;
    for order in ORDERS {
        let is_by_size = matches!(order, FlowOrder::Bytes | FlowOrder::Packets);
        let most: &[usize] = if is_by_size { &[0, 1, 3, 40, usize::MAX] } else { &[10] };
        for &most in most {
            let ([ours, expected], has_rows) = both(archive, query, order, most);
            let pairs = || ours.flows.iter().zip(&expected.flows);
            if let Some((ours, expected)) = pairs().find(|(a, b)| a != b) {
                panic!("{what} {order:?} {most}:\n{ours:?}\n{expected:?}");
            }
            assert_eq!(ours, expected, "{what} {order:?} {most}");
            with_rows += usize::from(has_rows);
        }
    }
    with_rows
}

#[test]
fn the_index_sums_up_what_packets_say() {
    for clock in [Clock::Rising, Clock::Shaken, Clock::Jumping, Clock::Still] {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(folder.path(), 2, 3_000, 1_100, clock);
        let mut with_rows = 0;
        for text in FILTERS {
            let query = Query::new(Filter::parse(text, 0).unwrap(), TimeRange::ALL);
            with_rows += assert_same(&archive, &query, &format!("{clock:?} '{text}'"));
        }
        assert!(with_rows > 100, "{with_rows}");
    }
}

#[test]
fn segments_that_are_partly_in_time_are_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 4, 3_000, 700, Clock::Rising);
    let spans = [(0, 1), (1, 40), (5, 1_005), (30, 2_000)];
    let mut with_rows = 0;
    for (from_ms, to_ms) in spans {
        let at = |ms: u64| START_NS + ms * 1_000_000;
        let times = TimeRange { from_ns: at(from_ms), to_ns: Some(at(to_ms)) };
        for text in ["", "tcp", "tcp[tcpflags] & tcp-syn != 0"] {
            let query = Query::new(Filter::parse(text, 0).unwrap(), times);
            with_rows += assert_same(&archive, &query, &format!("{from_ms} {to_ms} '{text}'"));
        }
    }
    assert!(with_rows > 0);
}

/// Long flows, of which only the ends are read.
#[test]
fn long_flows_have_their_first_and_last_times() {
    for clock in [Clock::Rising, Clock::Shaken, Clock::Jumping] {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("a.pcap");
        let file = BufWriter::new(File::create(&capture).unwrap());
        let ethernet = Interface::new(1, SECOND);
        let mut writer = CaptureWriter::new(file, FileFormat::Pcap, &[ethernet], "").unwrap();
        let mut random = Random::new(7);
        for n in 0..20_000_u64 {
            // Four conversations of UDP in both directions.
            let (port, back) = (1_000 + random.below(4), random.below(3) == 0);
            let mut frame = [0; 60];
            frame[12] = 8;
            frame[14] = 0x45;
            frame[17] = 46;
            frame[23] = 17;
            let [low, high, ..] = port.to_le_bytes();
            let ends = [[10, 0, 0, 1, 0, 53], [10, 0, 0, 2, high, low]];
            for (end, which) in [usize::from(back), usize::from(!back)].into_iter().enumerate() {
                frame[26 + 4 * end..30 + 4 * end].copy_from_slice(&ends[which][..4]);
                frame[34 + 2 * end..36 + 2 * end].copy_from_slice(&ends[which][4..]);
            }
            let time_ns = START_NS
                + match clock {
                    Clock::Jumping => u64::from(random.below(1 << 30)),
                    Clock::Shaken => n * 1_000 + u64::from(random.below(20_000)),
                    Clock::Rising | Clock::Still => n / 3 * 3_000,
                };
            writer.packet(0, time_ns, 60 + random.below(1_400), &frame).unwrap();
        }
        drop(writer.finish().unwrap());
        let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        Ingest::new(&archive).run(&[Input::File(capture)]).unwrap();
        for text in ["", "port 1001", "src host 10.0.0.1", "udp port 1000 or len > 1000"] {
            let query = Query::new(Filter::parse(text, 0).unwrap(), TimeRange::ALL);
            let with_rows = assert_same(&archive, &query, &format!("{clock:?} '{text}'"));
            assert!(with_rows > 0);
        }
    }
}

/// Answers that have rows can be asked for other things, too.
#[test]
fn rows_become_records_where_those_are_needed() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 2, 2_000, 900, Clock::Rising);
    let query = Query::new(Filter::parse("tcp", 0).unwrap(), TimeRange::ALL);
    let search = archive.search(&query).unwrap();
    let (start, span) = (START_NS, SECOND / 100);
    let over_time = |mut answers: tapdex_engine::query::Answers| {
        assert!(answers.count() > 500);
        answers.over_time(start, span, 300).unwrap().counts
    };
    let counts = over_time(search.records().unwrap());
    assert_eq!(over_time(search.rows_of_flows().unwrap()), counts);
    assert_eq!(over_time(search.rows().unwrap()), counts);
    let syn = Query::new(Filter::parse("tcp[tcpflags] & tcp-syn != 0", 0).unwrap(), TimeRange::ALL);
    for query in [&query, &syn] {
        let search = archive.search(query).unwrap();
        let [mut rows, mut records] = [search.rows_of_flows().unwrap(), search.records().unwrap()];
        let whole = [&mut rows, &mut records]
            .map(|answers| answers.whole_flows(query, FlowOrder::Bytes, 20).unwrap());
        assert_eq!(whole[0], whole[1]);
    }
}

/// Values by packets and by bytes: from rows of the index, and from packets that were found one by
/// one, which are read for their bytes.
#[test]
fn values_are_those_of_packets() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 2, 1_500, 1_000, Clock::Rising);
    let late = TimeRange { from_ns: START_NS + SECOND / 50, to_ns: None };
    let filters = [
        ("", TimeRange::ALL),
        ("ip", TimeRange::ALL),
        ("tcp or vlan", TimeRange::ALL),
        ("udp or icmp or arp", late),
        // Flows in part, and packets that are read.
        ("tcp[tcpflags] & tcp-push != 0 or udp", TimeRange::ALL),
        ("greater 200", TimeRange::ALL),
        ("udp port 53 or tcp[20:2] = 0x4745", TimeRange::ALL),
    ];
    let mut without_reading = 0;
    for (filter, times) in filters {
        let query = Query::new(Filter::parse(filter, 0).unwrap(), times);
        let search = archive.search(&query).unwrap();
        for name in NAMES.iter().filter(|name| !name.top.is_empty()) {
            let (mut rows, mut records) = (search.rows().unwrap(), search.records().unwrap());
            let what = format!("{filter}: {}", name.top[0]);
            assert_eq!(rows.count(), records.count(), "{what}");
            let most = usize::MAX;
            assert_eq!(rows.top(name, most).unwrap(), records.top(name, most).unwrap(), "{what}");
            let [ours, read] =
                [&mut rows, &mut records].map(|answers| answers.top_by_bytes(name, most).unwrap());
            assert_eq!((ours.values, ours.total), (read.values, read.total), "{what}");
            assert_eq!(read.packets_read, records.count(), "{what}");
            without_reading += usize::from(ours.total > 0 && ours.packets_read == 0);
            assert_eq!(rows.gaps.len(), records.gaps.len(), "{what}");
        }
    }
    assert!(without_reading > 60, "{without_reading}");
}

/// Without its packets, the index still knows the conversations, and about when they were.
#[test]
fn missing_packets_cost_exact_times_only() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 1, 3_000, 3_000, Clock::Rising);
    let query = Query::new(Filter::parse("tcp", 0).unwrap(), TimeRange::ALL);
    let search = archive.search(&query).unwrap();
    let whole = search.rows_of_flows().unwrap().flows(FlowOrder::Bytes, 40).unwrap();
    let mut answers = search.rows_of_flows().unwrap();
    fs::remove_file(folder.path().join("0.pcapng")).unwrap();
    let flows = answers.flows(FlowOrder::Bytes, 40).unwrap();
    assert!(!answers.is_complete());
    assert_eq!(flows.flows.len(), 40);
    let mut compared = 0;
    for flow in &flows.flows {
        let known = whole.flows.iter().find(|known| known.community_id() == flow.community_id());
        // Some packets of a conversation may have to be read.
        let Some(known) = known.filter(|known| known.packets() == flow.packets()) else { continue };
        compared += 1;
        assert_eq!(known.bytes(), flow.bytes());
        assert_eq!(known.from_client.tcp_flags, flow.from_client.tcp_flags);
        assert!(flow.first_ns <= known.first_ns && flow.last_ns >= known.last_ns);
        assert!(flow.last_ns - flow.first_ns < 10 * SECOND);
    }
    assert!(compared > 5, "{compared}");
}

/// Segments of version 1 do not sum up flows: their packets are read.
#[test]
fn archives_of_version_1_are_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    for name in ["flow-auto", "arrival-masc"] {
        let folder = tempfile::tempdir().unwrap();
        let segments = folder.path().join(name).join("segments");
        fs::create_dir_all(&segments).unwrap();
        fs::copy(golden.join("packets.pcap"), folder.path().join("packets.pcap")).unwrap();
        let settings = folder.path().join(name).join("archive.toml");
        fs::copy(golden.join(name).join("archive.toml"), settings).unwrap();
        for entry in golden.join(name).join("segments").read_dir().unwrap() {
            let path = entry.unwrap().path();
            let plain = zstd::decode_all(File::open(&path).unwrap()).unwrap();
            fs::write(segments.join(path.file_stem().unwrap()), plain).unwrap();
        }
        let archive = Archive::open(&folder.path().join(name)).unwrap();
        for text in ["", "tcp", "udp port 53"] {
            let query = Query::new(Filter::parse(text, 0).unwrap(), TimeRange::ALL);
            assert_eq!(assert_same(&archive, &query, &format!("{name} '{text}'")), 0);
            let ([flows, _], _) = both(&archive, &query, FlowOrder::Bytes, 1);
            assert!(!text.is_empty() || flows.packets > 100);
        }
    }
}
