//! Answers that lack something: that they say what, and only where it matters.

use super::*;
use tapdex_engine::archive::{Archive, Covered, Held};
use tapdex_engine::capture::Interface;
use tapdex_engine::capture::blocks::{self, Statistics};

const START: u64 = 1_790_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// Writes a packet a second, a hundred of them, and between them what was lost: from a second to
/// another, so many packets.
fn write_lossy(path: &Path, losses: &[(u64, u64, u64)]) {
    let mut bytes = Vec::new();
    blocks::section(&mut bytes, "");
    blocks::interface(&mut bytes, &Interface::new(1, 1_000_000_000), "");
    for second in 0..100 {
        blocks::packet(&mut bytes, 0, START + second * SECOND, 60, &[0; 60]);
        for &(from, to, packets) in losses.iter().filter(|(_, to, _)| *to == second) {
            let counts = Statistics {
                start_ns: START + from * SECOND,
                end_ns: START + to * SECOND,
                received: packets,
                lost_by_interface: packets / 10,
                lost_by_kernel: packets - packets / 10,
                delivered: 0,
            };
            blocks::statistics(&mut bytes, 0, &counts);
        }
    }
    std::fs::write(path, bytes).unwrap();
}

/// Seconds of the packets above, as a time for --from and --to.
fn at(second: u64) -> String {
    let ns = START + second * SECOND;
    format!("{}.{:09}", ns / SECOND, ns % SECOND)
}

impl Place {
    /// Asks with every command about some seconds: what each says, and its exit code.
    fn ask_all(&self, from: u64, to: u64, more: &str) -> Vec<Ended> {
        let (from, to) = (at(from), at(to));
        let ask = |words: &str| self.words(&format!("{words} --from {from} --to {to} {more}"));
        [
            "search",
            "search --count",
            "search --json",
            "search --count --json",
            "extract --force -w out.pcapng",
            "top port",
            "top port --json",
            "hist",
            "hist --json",
            "explain --json",
        ]
        .map(ask)
        .into()
    }
}

#[test]
fn lost_packets_are_told_where_they_were_lost_and_nowhere_else() {
    let place = Place::new();
    write_lossy(&place.path("a.pcapng"), &[(20, 21, 46_000), (22, 23, 503), (80, 81, 7)]);
    place.words("index a.pcapng").done();
    for (from, to) in [(0, 20), (24, 80), (82, 100)] {
        for ended in place.ask_all(from, to, "") {
            assert!(ended.code == Some(0) && !ended.err.contains("lost"), "{ended:?}");
            assert!(!ended.out.contains(r#""cause""#), "{ended:?}");
        }
    }
    for (from, to, lost) in [(15, 30, 46_503), (20, 22, 46_000), (22, 80, 503), (0, 100, 46_510)] {
        let text = format!("{lost} packets lost while recording");
        for (n, ended) in place.ask_all(from, to, "").into_iter().enumerate() {
            assert!(ended.code == Some(3) && ended.err.contains(&text), "{lost} {ended:?}");
            let json = format!(r#"{{"cause":"lost","packets":{lost},"bytes":null,"from":"#);
            let is_json = [2, 3, 6, 8, 9].contains(&n);
            assert_eq!(ended.out.contains(&json), is_json, "{ended:?}");
        }
        for ended in place.ask_all(from, to, "--allow-incomplete") {
            assert!(ended.code == Some(0) && ended.err.contains(&text), "{lost} {ended:?}");
        }
    }
    // What is taken out says so, and it is known again when it is indexed.
    place.words("extract --force --allow-incomplete -w out.pcapng").done();
    let bytes = std::fs::read(place.path("out.pcapng")).unwrap();
    let mut reader = capture::CaptureReader::open(&bytes[..]).unwrap();
    reader.gather_statistics();
    while reader.next().unwrap().is_some() {}
    let [told] = reader.take_statistics()[..] else { panic!("not one block") };
    assert_eq!((told.received, told.delivered, told.lost()), (46_610, 100, 46_510));
    place.words("index -q -o again out.pcapng").done();
    let said = place.words("search -r again --count").failed(3);
    assert!(said.contains("46510 packets lost while recording"), "{said}");
    let text = "46510 packets lost while recording, in 3 intervals between";
    for command in ["info", "verify", "verify --quick"] {
        let ended = place.words(command);
        assert!(ended.code == Some(3) && ended.out.contains(text), "{ended:?}");
        assert!(!ended.out.contains("sound:"), "{ended:?}");
        let ended = place.words(&format!("{command} --allow-incomplete"));
        assert!(ended.code == Some(0) && ended.out.contains(text), "{ended:?}");
    }
    let json = place.words("info --json --allow-incomplete").done();
    assert!(json.contains(r#""incomplete":[{"cause":"lost","packets":46510,"#), "{json}");
}

#[test]
fn statistics_that_count_on_are_not_counted_twice() {
    let place = Place::new();
    // As others write them: from the start of the capture, over and over.
    write_lossy(&place.path("a.pcapng"), &[(0, 10, 5), (0, 50, 5), (0, 90, 12)]);
    place.words("index a.pcapng").done();
    let said = place.words("search --count").failed(3);
    assert!(said.contains("12 packets lost while recording, in 2 intervals"), "{said}");
    let (from, to) = (at(11), at(50));
    place.words(&format!("search --count --from {from} --to {to}")).done();
}

#[test]
fn a_capture_that_was_cut_short_is_complete_up_to_there() {
    let place = Place::new();
    write_lossy(&place.path("whole.pcapng"), &[]);
    let bytes = std::fs::read(place.path("whole.pcapng")).unwrap();
    std::fs::write(place.path("a.pcapng"), &bytes[..bytes.len() - 10]).unwrap();
    place.words("index a.pcapng").failed(3);
    for ended in place.ask_all(0, 60, "") {
        assert!(ended.code == Some(0), "{ended:?}");
    }
    for (n, ended) in place.ask_all(50, 200, "").into_iter().enumerate() {
        assert!(ended.code == Some(3) && ended.err.contains("82 bytes not indexed"), "{ended:?}");
        let json = r#"{"cause":"cut_short","packets":null,"bytes":82,"#;
        assert_eq!(ended.out.contains(json), [2, 3, 6, 8, 9].contains(&n), "{ended:?}");
    }
    for command in ["info", "verify", "verify --quick"] {
        let ended = place.words(command);
        assert!(ended.code == Some(3) && ended.out.contains("is cut off"), "{ended:?}");
    }
    // Damage in the middle.
    let mut damaged = bytes.clone();
    let middle = bytes.len() / 2;
    damaged[middle..middle + 200].fill(0xFF);
    std::fs::write(place.path("a.pcapng"), damaged).unwrap();
    place.words("index a.pcapng").failed(3);
    let ended = place.words("search --count --json");
    assert!(ended.out.contains(r#""cause":"damaged""#), "{ended:?}");
    assert_eq!((ended.code, place.words("verify --quick").code), (Some(3), Some(3)));
}

#[test]
fn what_retention_has_removed_is_remembered() {
    let place = Place::new();
    write_lossy(&place.path("a.pcapng"), &[]);
    place.words("index a.pcapng").done();
    let archive = Archive::open(&place.path("tapdex-archive")).unwrap();
    let removed = |name: &str, from: u64, to: u64, packets| {
        let times = Covered { from_ns: START + from * SECOND, to_ns: START + to * SECOND };
        let held = Held { times, packets: Some(packets), covered: None, losses: Vec::new() };
        archive.remember_removed(name, &held).unwrap();
    };
    removed("one", 10, 20, 1000);
    removed("two", 20, 30, 200);
    // Interrupted, and done again.
    removed("two", 20, 30, 200);
    for ended in place.ask_all(31, 100, "") {
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    for ended in place.ask_all(5, 100, "") {
        assert!(ended.code == Some(3), "{ended:?}");
        assert!(ended.err.contains("1200 packets removed by retention, from"), "{ended:?}");
    }
    for command in ["info", "verify", "verify --quick"] {
        let ended = place.words(command);
        assert!(ended.code == Some(3) && ended.out.contains("1200 packets removed"), "{ended:?}");
    }
    // It does not grow for ever.
    for n in 0..500_u64 {
        removed(&n.to_string(), 100 * n, 100 * n + 1, 1);
    }
    let len = std::fs::metadata(place.path("tapdex-archive/missing.toml")).unwrap().len();
    assert!(len < 20_000, "{len}");
    let said = place.words("search --count").failed(3);
    assert!(said.contains("1700 packets removed by retention"), "{said}");
    std::fs::write(place.path("tapdex-archive/missing.toml"), "version = 1\nremoved = 7").unwrap();
    let said = place.words("search --count").failed(3);
    assert!(said.contains("missing.toml"), "{said}");
}

#[test]
fn a_missing_part_is_noticed_by_all() {
    let place = Place::new();
    write_lossy(&place.path("a.pcapng"), &[]);
    let archive = Archive::create(&place.path("tapdex-archive"), None).unwrap();
    let input = tapdex_engine::archive::Input::File(place.path("a.pcapng"));
    tapdex_engine::archive::Ingest::new(&archive).records_max(20).run(&[input]).unwrap();
    let files = place.index_files();
    assert_eq!(files.len(), 5);
    for file in &files {
        let bytes = std::fs::read(file).unwrap();
        std::fs::remove_file(file).unwrap();
        let is_last = Some(file) == files.last();
        let text = if is_last { "is not indexed to its end" } else { "; 20 packets missing" };
        let found =
            [place.words("search --count"), place.words("search --count --allow-incomplete")];
        assert!(found.iter().all(|ended| ended.err.contains(text)), "{found:?}");
        assert_eq!(found.map(|ended| ended.code), [Some(3), Some(0)]);
        for command in ["info", "verify", "verify --quick"] {
            let ended = place.words(command);
            assert!(ended.code == Some(3) && ended.out.contains(text), "{command} {ended:?}");
        }
        // Damaged instead of missing.
        std::fs::write(file, "no index").unwrap();
        let said = place.words("search --count").failed(3);
        assert!(is_last || said.contains("; 20 packets missing"), "{said}");
        assert_eq!(place.words("verify --quick").code, Some(3));
        std::fs::write(file, bytes).unwrap();
        place.words("verify").done();
        assert!(place.words("info").done().contains("missing            nothing"));
    }
}

#[test]
fn each_interface_has_its_own_count() {
    let place = Place::new();
    let mut bytes = Vec::new();
    blocks::section(&mut bytes, "");
    for n in 0..3 {
        let interface = Interface { name: format!("eth{n}"), ..Interface::new(1, 1_000_000_000) };
        blocks::interface(&mut bytes, &interface, "");
    }
    // One after the other from each, and two more of the last.
    for n in 0..62_u64 {
        let interface = if n < 60 { (n % 3) as u32 } else { 2 };
        blocks::packet(&mut bytes, interface, START + n * SECOND, 60, &[7; 60]);
    }
    std::fs::write(place.path("a.pcapng"), bytes).unwrap();
    place.words("index -q a.pcapng").done();
    for (times, expected) in
        [("", [20, 20, 22]), ("--from 1790000030 --to 1790000061", [10, 10, 11])]
    {
        place.words(&format!("extract --force {times} -w out.pcapng")).done();
        let bytes = std::fs::read(place.path("out.pcapng")).unwrap();
        let mut reader = capture::CaptureReader::open(&bytes[..]).unwrap();
        reader.gather_statistics();
        while reader.next().unwrap().is_some() {}
        let told = reader.take_statistics();
        assert_eq!(told.iter().map(|one| one.received).collect::<Vec<_>>(), expected, "{times}");
    }
}

#[test]
fn times_of_a_filter_that_exclude_each_other_are_an_error() {
    let place = Place::new();
    place.words("gen -c 10 -w a.pcap").done();
    place.words("index -q a.pcap").done();
    let filter = "frame.time_epoch >= 20 and frame.time_epoch < 10";
    let said = place.run(&["search", "--count", filter]).failed(2);
    assert!(said.contains("no packet is from 1970-01-01"), "{said}");
}

#[test]
fn statistics_that_count_on_do_so_over_parts_and_interruptions() {
    let place = Place::new();
    write_lossy(&place.path("a.pcapng"), &[(0, 10, 5), (0, 50, 5), (0, 90, 12)]);
    let archive = Archive::create(&place.path("tapdex-archive"), None).unwrap();
    let index = || {
        let input = tapdex_engine::archive::Input::File(place.path("a.pcapng"));
        tapdex_engine::archive::Ingest::new(&archive).records_max(20).run(&[input]).unwrap();
        assert_eq!(place.index_files().len(), 5);
    };
    index();
    for kept in (1..5).rev() {
        for file in &place.index_files()[kept..] {
            std::fs::remove_file(file).unwrap();
        }
        index();
        let said = place.words("search --count").failed(3);
        assert!(said.contains("12 packets lost while recording, in 2 intervals"), "{kept}: {said}");
    }
}

#[test]
fn losses_without_a_start_may_be_from_any_part_before() {
    let place = Place::new();
    let mut bytes = Vec::new();
    blocks::section(&mut bytes, "");
    blocks::interface(&mut bytes, &Interface::new(1, 1_000_000_000), "");
    for second in 0..100 {
        blocks::packet(&mut bytes, 0, START + second * SECOND, 60, &[0; 60]);
    }
    let end_ns = START + 99 * SECOND;
    let counts = Statistics { end_ns, lost_by_kernel: 12, ..Statistics::default() };
    blocks::statistics(&mut bytes, 0, &counts);
    std::fs::write(place.path("a.pcapng"), bytes).unwrap();
    for records_max in [1_000, 20] {
        let archive = Archive::create(&place.path("tapdex-archive"), None).unwrap();
        let input = tapdex_engine::archive::Input::File(place.path("a.pcapng"));
        let ingest = tapdex_engine::archive::Ingest::new(&archive).records_max(records_max);
        ingest.force(true).run(&[input]).unwrap();
        for (from, to) in [(0, 10), (30, 40), (95, 100)] {
            let words = format!("search --count --from {} --to {}", at(from), at(to));
            let said = place.words(&words).failed(3);
            assert!(said.contains("12 packets lost while recording, from"), "{said}");
            assert!(!said.contains("1970"), "{said}");
        }
        place.words(&format!("search --count --to {}", at(0))).done();
    }
}

#[test]
fn an_extract_without_packets_tells_of_losses() {
    let place = Place::new();
    write_lossy(&place.path("a.pcapng"), &[(20, 21, 46_000)]);
    place.words("index a.pcapng").done();
    place.words("extract --allow-incomplete -w out.pcapng greater 1000").done();
    let bytes = std::fs::read(place.path("out.pcapng")).unwrap();
    let mut reader = capture::CaptureReader::open(&bytes[..]).unwrap();
    reader.gather_statistics();
    assert!(reader.next().unwrap().is_none());
    let [told] = reader.take_statistics()[..] else { panic!("not one block") };
    assert_eq!((told.received, told.delivered, told.lost()), (46_100, 0, 46_000));
}

#[test]
fn a_complete_recording_without_an_index_is_not_taken_for_sound() {
    let place = Place::new();
    write_lossy(&place.path("whole.pcapng"), &[]);
    let bytes = std::fs::read(place.path("whole.pcapng")).unwrap();
    Archive::create(&place.path("tapdex-archive"), None).unwrap();
    std::fs::create_dir(place.path("tapdex-archive/packets")).unwrap();
    let path = place.path("tapdex-archive/packets/rec-0000000001-20260921T000000Z.pcapng");
    let middle = bytes.len() / 2;
    let mut damaged = bytes.clone();
    damaged[middle..middle + 200].fill(0xFF);
    for (what, bytes) in [
        ("cut in the middle", &bytes[..middle]),
        ("cut in its head", &bytes[..40]),
        ("empty", &[]),
        ("damaged", &damaged[..]),
    ] {
        std::fs::write(&path, bytes).unwrap();
        for ended in place.ask_all(90, 95, "") {
            assert_eq!(ended.code, Some(3), "{what}: {ended:?}");
            assert!(!ended.err.contains("0 bytes not indexed"), "{what}: {ended:?}");
        }
        for command in ["info", "verify", "verify --quick"] {
            let ended = place.words(command);
            assert_eq!(ended.code, Some(3), "{what}: {command}: {ended:?}");
            assert!(!ended.out.contains("nothing known"), "{what}: {ended:?}");
        }
    }
    std::fs::write(&path, bytes).unwrap();
    for ended in place.ask_all(90, 95, "") {
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    place.words("verify").done();
}

#[test]
fn conversations_of_a_damaged_segment_are_missed() {
    let place = Place::new();
    place.words("gen -c 30000 -w a.pcap").done();
    place.words("gen -c 30000 --seed 2 -w b.pcap").done();
    place.words("index a.pcap b.pcap").done();
    let file = place.index_files().remove(1);
    let bytes = std::fs::read(&file).unwrap();
    // Damage that a question about the protocol does not meet, and one about addresses does.
    let mut met = 0;
    for at in (0..bytes.len()).step_by(bytes.len() / 60) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let is_met = |filter: &str| place.words(&format!("search --count {filter}")).code;
        if is_met("icmp") != Some(0) || is_met("net 0.0.0.0/1 or net 128.0.0.0/1") != Some(3) {
            continue;
        }
        met += 1;
        let ended = place.words("extract --flow --force -w out.pcapng icmp");
        if ended.code == Some(0) {
            continue; // a column that no question met
        }
        assert!(ended.code == Some(3) && ended.err.contains("b.pcap"), "{at}: {ended:?}");
        let ended = place.words("extract --flow --force --allow-incomplete -w out.pcapng icmp");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        // What the others have is there.
        assert!(!super::packets(&place.path("out.pcapng")).is_empty());
        return;
    }
    panic!("no damage was met, of {met} that might have been");
}
