//! Segments of older versions, written anew.

use std::fs::{self, File};
use std::io::Read;

use super::*;

/// A folder with the archive `archive`, whose segments have version 1, and its capture. Returns the
/// index files.
fn of_version_1(place: &Place) -> Vec<PathBuf> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/golden/v1");
    let segments = place.path("archive/segments");
    fs::create_dir_all(&segments).unwrap();
    fs::copy(golden.join("packets.pcap"), place.path("packets.pcap")).unwrap();
    fs::write(place.path("archive/archive.toml"), "version = 1\ncodec = \"auto\"\n").unwrap();
    // The same packets in two segments, as if they were of two captures.
    let mut files = Vec::new();
    for (name, capture) in [("flow-auto", "a.pcap"), ("arrival-auto", "b.pcap")] {
        let folder = golden.join(name).join("segments").read_dir().unwrap();
        for entry in folder {
            let path = segments.join(format!("{capture}-0000.tdx"));
            let source = File::open(entry.unwrap().path()).unwrap();
            let mut bytes = Vec::new();
            capture::decompress(source).unwrap().read_to_end(&mut bytes).unwrap();
            fs::write(&path, bytes).unwrap();
            files.push(path);
        }
    }
    files
}

#[test]
fn segments_of_version_1_are_written_anew() {
    let place = Place::new();
    let files = of_version_1(&place);
    let len = || files.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    let before = len();
    let counted = |filter: &str| place.words(&format!("search -r archive --count {filter}")).done();
    let filters = ["tcp", "udp port 53", "ip6", "vlan", "greater 500"];
    let expected = filters.map(counted);
    let kilobytes = |bytes: u64| format!("{:.1} kB", bytes as f64 / 1e3);

    let said = place.words("upgrade -r archive").failed(0);
    let sizes = format!("{} -> {}", kilobytes(before), kilobytes(len()));
    assert_eq!(said, format!("tapdex: 2 segments, 2 upgraded: {sizes}\n"));
    assert!(len() < before);
    assert_eq!(filters.map(counted), expected);
    place.words("verify -r archive").done();

    let said = place.words("upgrade -r archive").failed(0);
    assert_eq!(said, "tapdex: 2 segments, none upgraded\n");
    assert_eq!(place.words("upgrade -q -r archive").failed(0), "");
    // Captures are not indexed again because of it.
    assert!(files.iter().all(|path| path.exists()));
}

#[test]
fn a_damaged_segment_is_named_and_the_others_are_upgraded() {
    let place = Place::new();
    let files = of_version_1(&place);
    let mut damaged = fs::read(&files[0]).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x10;
    fs::write(&files[0], &damaged).unwrap();
    let said = place.words("upgrade -r archive").failed(3);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    let start = "tapdex: archive/segments/a.pcap-0000.tdx: not upgraded: ";
    assert!(lines[0].strip_prefix(start).is_some_and(|why| !why.is_empty()), "{said}");
    assert!(lines[1].starts_with("tapdex: 2 segments, 1 upgraded: "), "{said}");
    assert_eq!(lines[2], "tapdex: incomplete: 1 segment could not be upgraded");
    assert_eq!(fs::read(&files[0]).unwrap(), damaged);
    // What is wrong is said even if nothing else is.
    let said = place.words("upgrade -q -r archive").failed(3);
    assert_eq!(said.lines().collect::<Vec<_>>(), [lines[0], lines[2]]);
}

#[test]
fn there_has_to_be_an_archive() {
    let place = Place::new();
    let said = place.words("upgrade -r nothing").failed(2);
    assert!(said.contains("nothing is not an archive"), "{said}");
}
