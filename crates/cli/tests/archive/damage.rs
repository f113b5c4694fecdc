//! Damage: that it is noticed, named and repaired.

use super::*;

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x55;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_index_is_named_and_made_again() {
    let place = indexed();
    let filters = ["udp port 53", "net 10.0.0.0/8 and tcp", "greater 1000"];
    let expected = filters.map(|filter| place.count(filter));
    // At its end nothing can be read, in the middle one thing cannot.
    let files = place.index_files();
    for (file, part) in [(0, None), (1, None), (0, Some(3)), (1, Some(2))] {
        let len = usize::try_from(std::fs::metadata(&files[file]).unwrap().len()).unwrap();
        let from_end = part.map_or(8, |part| len / part);
        flip(&files[file], len - from_end);
        let name = files[file].file_name().unwrap().to_str().unwrap();
        let verified = place.words("verify");
        assert_eq!(verified.code, Some(3), "{}", verified.err);
        assert!(verified.out.contains(name), "{}", verified.out);
        if from_end == 8 {
            let ended = place.words("search --count udp port 53");
            assert!(ended.err.contains(name) && ended.err.contains("incomplete"), "{ended:?}");
            let found: u64 = ended.out.trim_end().parse().unwrap();
            assert!(ended.code == Some(3) && found < expected[0] && found > 0, "{ended:?}");
            let info = place.words("info");
            assert!(info.code == Some(3) && info.out.contains(name), "{info:?}");
        }
        let said = place.words("repair").failed(0);
        assert!(said.contains("indexed again"), "{said}");
        assert_eq!(filters.map(|filter| place.count(filter)), expected);
        assert_eq!(place.index_files(), files);
        place.words("verify").done();
    }
    assert!(place.words("repair").err.contains("none damaged"));
}

#[test]
fn packets_that_have_changed_are_noticed_and_indexed_again() {
    let place = indexed();
    let mut bytes = std::fs::read(place.path("a.pcap")).unwrap();
    // In the middle, so that neither end of the file changes: the time of a packet, its length
    // on the wire, a byte of its MAC address.
    let all = packets(&place.path("a.pcap"));
    let offset: usize = 24 + all[..10_000].iter().map(|p| 16 + p.2.len()).sum::<usize>();
    for (at, wrong) in [(3, "not where or when"), (14, "other headers"), (16, "other headers")] {
        bytes[offset + at] ^= 1;
        std::fs::write(place.path("a.pcap"), &bytes).unwrap();
        place.words("verify --quick").done();
        let verified = place.words("verify");
        assert!(verified.out.contains("packet 10000 of"), "{verified:?}");
        assert!(verified.out.contains(wrong), "{verified:?}");
        assert_eq!(verified.code, Some(3));
        place.words("repair").done();
        place.words("verify").done();
    }
    // Another file altogether.
    place.words("gen -c 500 --seed 3 -w a.pcap --force").done();
    place.words("verify --quick").failed(3);
    place.words("repair").done();
    place.words("verify").done();
    assert_eq!(place.count(""), 10_500);
}

#[test]
fn what_cannot_be_told_is_left_until_it_is_named() {
    let place = Place::new();
    std::fs::create_dir(place.path("captures")).unwrap();
    place.words("gen -c 1000 -w captures/a.pcap").done();
    place.words("index captures/a.pcap").done();
    let index = place.index_files().remove(0);
    std::fs::write(&index, "nothing of it is left").unwrap();
    let said = place.words("repair").failed(3);
    assert!(said.contains("not known; name it"), "{said}");
    assert_eq!(std::fs::read(&index).unwrap(), b"nothing of it is left");
    place.words("repair captures").done();
    assert_eq!((place.count(""), place.index_files()), (1_000, vec![index.clone()]));
    // After everything was moved, the capture has the name but not the path.
    std::fs::write(&index, "nothing of it is left").unwrap();
    std::fs::rename(place.path("captures"), place.path("moved")).unwrap();
    place.words("repair moved").done();
    assert_eq!((place.count(""), place.index_files().len()), (1_000, 1));
    // The capture is gone.
    std::fs::remove_file(place.path("moved/a.pcap")).unwrap();
    let said = place.words("repair").failed(3);
    assert!(said.contains("are not there"), "{said}");
    assert_eq!(place.index_files().len(), 1);
}

#[test]
fn our_copies_are_enough_to_repair() {
    let place = Place::new();
    place.sh("tapdex gen -c 1000 -w a.pcap && gzip a.pcap && tapdex index a.pcap.gz").done();
    let files = place.index_files();
    for gone in [false, true] {
        if gone {
            std::fs::remove_file(place.path("a.pcap.gz")).unwrap();
        }
        std::fs::write(&files[0], "nothing of it is left").unwrap();
        place.words("repair").done();
        assert_eq!((place.count(""), place.index_files()), (1_000, files.clone()));
    }
}

#[test]
fn what_was_left_behind_is_removed() {
    let place = indexed();
    let left = place.path("tapdex-archive/segments/.x.tdx.tmp");
    std::fs::write(&left, "half an index").unwrap();
    let said = place.words("repair").failed(0);
    assert!(said.contains("removed ") && !left.exists(), "{said}");
}

#[test]
fn a_capture_that_has_grown_or_gone_is_not_passed_over_in_silence() {
    let place = Place::new();
    place.words("gen -c 2000 -w a.pcap").done();
    place.words("index a.pcap").done();
    place.words("gen -c 3000 -w more.pcap --seed 2").done();
    place.sh("tail -c +25 more.pcap >> a.pcap").done();
    let said = place.words("search --count tcp").failed(3);
    assert!(said.contains("a.pcap: the file has changed"), "{said}");
    place.words("index a.pcap").done();
    assert_eq!(place.count(""), 5000);
    std::fs::remove_file(place.path("a.pcap")).unwrap();
    let said = place.words("search --count tcp").failed(3);
    assert!(said.contains("a.pcap: the packets are not there"), "{said}");
}

#[test]
fn a_capture_under_another_name_is_not_counted_twice() {
    let place = Place::new();
    place.words("gen -c 2000 -w a.pcap").done();
    place.words("index a.pcap").done();
    place.sh("mv a.pcap b.pcap").done();
    place.words("index b.pcap").done();
    assert_eq!(place.count(""), 2000);
    assert_eq!(place.index_files().len(), 1);
}

#[test]
fn what_is_wrong_with_a_compressed_stream_is_said() {
    let place = Place::new();
    place.words("gen -c 2000 -w a.pcap").done();
    place.sh("gzip -k a.pcap").done();
    let path = place.path("a.pcap.gz");
    let whole = std::fs::read(&path).unwrap();
    // The checksum at the end, and then the end itself.
    flip(&path, whole.len() - 6);
    let said = place.words("index a.pcap.gz").failed(3);
    assert!(
        said.contains("indexed 2000 packets up to the damage:") && said.contains("damaged"),
        "{said}"
    );
    let count = || place.words("search --count --allow-incomplete").done();
    assert_eq!(count(), "2000\n");
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let said = place.words("index a.pcap.gz").failed(3);
    assert!(said.contains("cut off") || said.contains("then:"), "{said}");
    assert!(count().trim_end().parse::<u64>().unwrap() < 2000);
    place.words("search --count").failed(3);
    std::fs::write(&path, &whole).unwrap();
    place.words("index a.pcap.gz").done();
    assert_eq!(place.count(""), 2000);
    let copies = place.path("tapdex-archive/packets").read_dir().unwrap();
    assert_eq!(copies.count(), 1, "old copies are removed");
}

#[test]
fn a_copy_without_an_index_is_found_and_indexed() {
    let place = Place::new();
    place.words("gen -c 2000 -w a.pcap").done();
    place.sh("tapdex index - < a.pcap").done();
    std::fs::remove_file(&place.index_files()[0]).unwrap();
    let said = place.words("search --count tcp").failed(3);
    assert!(said.contains("is not indexed"), "{said}");
    place.words("repair").done();
    assert_eq!(place.count(""), 2000);
    // What is no capture is not kept.
    place.sh("head -c 100000 /dev/zero | tapdex index -").failed(3);
    assert_eq!(place.count(""), 2000);
}

#[test]
fn the_packets_of_the_archive_are_not_written_over() {
    let place = Place::new();
    place.words("gen -c 2000 -w a.pcap").done();
    place.words("index a.pcap").done();
    let before = std::fs::read(place.path("a.pcap")).unwrap();
    let said = place.words("extract -w a.pcap --force tcp").failed(2);
    assert!(said.contains("has packets of the archive"), "{said}");
    assert_eq!(std::fs::read(place.path("a.pcap")).unwrap(), before);
    // A file that is there is not replaced by a part of the answer.
    std::fs::write(place.path("old.pcapng"), "precious").unwrap();
    std::fs::remove_file(place.path("a.pcap")).unwrap();
    place.words("extract -w old.pcapng --force tcp").failed(3);
    assert_eq!(std::fs::read(place.path("old.pcapng")).unwrap(), b"precious");
}

#[test]
fn packets_that_have_changed_are_named_by_whatever_reads_them() {
    let place = Place::new();
    place.words("gen -c 2000 -w s.pcap").failed(0);
    place.words("index s.pcap --sums").failed(0);
    assert!(!place.words("verify").done().contains("without a checksum"));
    let copy = place.path("sound.pcap");
    std::fs::copy(place.path("s.pcap"), &copy).unwrap();
    flip(&place.path("s.pcap"), 500_000);
    let is_named = |text: &str| text.contains("s.pcap: bytes ") && text.contains("with 32 packets");
    let verified = place.words("verify");
    assert!(verified.code == Some(3) && is_named(&verified.out), "{verified:?}");
    // Columns answer as they did.
    assert_eq!(place.words("search --count tcp").code, Some(0));
    let reading = [
        vec!["search", "--count", "ether[60] & 1 = 1"],
        vec!["search"],
        vec!["search", "--json"],
        vec!["extract", "-w", "some.pcap"],
    ];
    for args in reading {
        let ended = place.run(&args);
        assert!(ended.code == Some(3) && is_named(&ended.err), "{args:?}: {ended:?}");
    }
    assert_eq!(tcpdump(&[place.path("some.pcap")], ""), 2_000 - 32);
    let repaired = place.words("repair");
    assert!(repaired.code == Some(3) && repaired.err.contains("not repaired"), "{repaired:?}");
    assert_eq!(place.words("verify").code, Some(3));
    std::fs::copy(copy, place.path("s.pcap")).unwrap();
    place.words("verify").done();
}

#[test]
fn a_capture_that_unpacks_to_too_much_is_refused() {
    let place = Place::new();
    place.words("gen -c 1000 -w a.pcap").failed(0);
    place.sh("gzip -k a.pcap; (cat a.pcap; head -c 300000000 /dev/zero) | gzip -1 > bomb.pcap.gz");
    let refused = place.words("index bomb.pcap.gz a.pcap.gz");
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.err.contains("bomb.pcap.gz") && refused.err.contains("--unpack-max"));
    // Nothing of it is left, and the other is there.
    let copies = std::fs::read_dir(place.path("tapdex-archive/packets")).unwrap();
    assert_eq!(copies.count(), 1);
    assert_eq!(place.count(""), 1_000);
    let small = place.words("index a.pcap.gz -o small --unpack-max 10K");
    assert!(small.err.contains("more than 10") && small.code == Some(2), "{small:?}");
    assert!(
        std::fs::read_dir(place.path("small/packets")).is_ok_and(|mut all| all.next().is_none())
    );
    place.words("index a.pcap.gz -o small --unpack-max 10M").failed(0);
}

#[test]
fn many_captures_need_few_open_files() {
    const CAPTURES: u32 = 200;
    /// Holds for all packets that have so many bytes, which the columns do not know.
    const ANY_LONG: &str = "ether[40] & 1 = 1 or not ether[40] & 1 = 1";
    let place = Place::new();
    // All of the same times, so that each packet comes from another file than the last.
    for n in 0..CAPTURES {
        let args = ["gen", "-c", "40", "--seed", &n.to_string(), "-w", &format!("{n}.pcap")];
        place.run(&args).failed(0);
    }
    let index = place.sh("ulimit -n 64; exec tapdex index *.pcap");
    assert_eq!(index.code, Some(0), "{index:?}");
    let all = u64::from(CAPTURES) * 40;
    for command in [
        "extract -w all.pcap",
        "search",
        &format!("search --count '{ANY_LONG}'"),
        "top ip.src",
        "hist",
        "info",
        "verify",
    ] {
        let ended = place.sh(&format!("ulimit -n 64; exec tapdex {command}"));
        assert_eq!(ended.code, Some(0), "{command}: {}", ended.err);
        if command.contains("search --count") {
            let expected = tcpdump(&[place.path("all.pcap")], ANY_LONG);
            assert_eq!(ended.out.trim_end().parse::<u64>().unwrap(), expected);
        }
    }
    assert_eq!(tcpdump(&[place.path("all.pcap")], ""), all);
}
