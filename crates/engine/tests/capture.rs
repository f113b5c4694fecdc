//! Captures, against libpcap itself: files that are sound, cut at every byte, and with every bit
//! flipped. Then what is written, and what is packed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "capture/files.rs"]
mod files;
#[path = "capture/oracle.rs"]
mod oracle;

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use files::{MICRO, MODIFIED, NANO, Pcap, Pcapng, frame};
use oracle::{check, is_refusal, libpcap, libpcap_file, read};
use tapdex_engine::capture::{
    self, CaptureError, CaptureReader, CaptureWriter, Compression, FileFormat, Interface,
    decompress,
};

/// Checks the file as it is, cut at every byte, and with every bit flipped.
fn check_damaged(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    check(bytes, folder.path());
    for len in 0..bytes.len() {
        check(&bytes[..len], folder.path());
    }
    let mut bytes = bytes.to_vec();
    for bit in 0..8 * bytes.len() {
        bytes[bit / 8] ^= 1 << (bit % 8);
        check(&bytes, folder.path());
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn pcap_of_all_magic_numbers_and_orders() {
    for magic in [MICRO, NANO, MODIFIED] {
        for big in [false, true] {
            let file = Pcap::sample(magic, big);
            let ours = read(&file.bytes());
            assert_eq!((ours.packets.len(), ours.error), (4, None));
            check_damaged(&file.bytes());
        }
    }
}

#[test]
fn pcap_of_all_versions() {
    let folder = tempfile::tempdir().unwrap();
    let (mut read_ones, mut all) = (Vec::new(), 0);
    for version in [0, 1, 2, 3, 542, 543, 544].into_iter().flat_map(|a| (0..6).map(move |b| (a, b)))
    {
        let mut file = Pcap { version, ..Pcap::new(MICRO, version.1 % 2 == 1) };
        // Read with the lengths in either order, there are bytes enough.
        for i in 0..20 {
            file.push(i, i, 16, 16 + 32 * (i % 2), frame(16, i));
            file.push(i, i, 48, 16, frame(16, i));
        }
        check(&file.bytes(), folder.path());
        let count = read(&file.bytes()).packets.len();
        all += count;
        if count > 0 {
            read_ones.push(version);
        }
    }
    assert_eq!(read_ones, [(2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (543, 0)]);
    assert!(all >= 40, "{all}");
}

#[test]
fn pcap_lengths_beyond_the_snapshot_length() {
    let folder = tempfile::tempdir().unwrap();
    for magic in [MICRO, MODIFIED] {
        for link in [1, 101, 231, 249, 279, 12, 14, 0x1400_0001, 0x0001_0001, 0xFFFF_FFFF] {
            for snaplen in [0, 1, 16, 65_535, 262_144, 300_000, 0x7FFF_FFFF, 0x8000_0000, u32::MAX]
            {
                for len in [0, 1, 16, 17, 30, 31, 262_144, 262_145, 1 << 20, (1 << 20) + 1] {
                    let mut file = Pcap { snaplen, link, ..Pcap::new(magic, false) };
                    file.push(1, 2, 20, 20, frame(20, 1));
                    file.push(3, 4, len, 99, vec![7; len as usize]);
                    file.push(5, 6, 20, 20, frame(20, 2));
                    let bytes = file.bytes();
                    if len < 100 {
                        check(&bytes, folder.path());
                        continue;
                    }
                    let (ours, theirs) = (read(&bytes), libpcap(&bytes, folder.path()));
                    let theirs_lens = theirs.0.iter().map(|packet| packet.3.len());
                    assert!(ours.packets.iter().map(|packet| packet.2.len()).eq(theirs_lens));
                    assert_eq!(ours.error.is_some(), theirs.1.is_some());
                }
            }
        }
    }
}

#[test]
fn link_types_have_one_number() {
    let link = |link| {
        let bytes = Pcap { link, ..Pcap::sample(MICRO, true) }.bytes();
        read(&bytes).layout.unwrap().interfaces[0].link
    };
    let numbers = [1, 12, 14, 101, 276, 0x3400_0001, 0x0001_0001].map(link);
    assert_eq!(numbers, [1, 101, 101, 101, 276, 1, u16::MAX]);
    let mut file = Pcapng::new(false);
    file.interface(12, 0, &[]);
    assert_eq!(read(&file.0.bytes).layout.unwrap().interfaces[0].link, 101);
}

#[test]
fn times_of_pcap_do_not_end_in_2038() {
    for (magic, tick) in [(MICRO, 1000), (NANO, 1)] {
        for big in [false, true] {
            let mut file = Pcap::new(magic, big);
            for (seconds, ticks) in [(u32::MAX, 5), (1 << 31, 0), (5, u32::MAX), (7, 2_000_000_000)]
            {
                file.push(seconds, ticks, 0, 0, Vec::new());
            }
            let times = file
                .records
                .iter()
                .map(|record| u64::from(record.0) * 1_000_000_000 + u64::from(record.1) * tick);
            assert!(read(&file.bytes()).packets.iter().map(|packet| packet.0).eq(times));
            check(&file.bytes(), tempfile::tempdir().unwrap().path());
        }
    }
}

#[test]
fn pcapng_with_equal_interfaces() {
    for big in [false, true] {
        let bytes = Pcapng::sample(big, false).0.bytes;
        let ours = read(&bytes);
        assert_eq!((ours.packets.len(), ours.error), (7, None));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(libpcap(&bytes, folder.path()).0.len(), 7);
        let layout = ours.layout.unwrap();
        assert_eq!(layout.sections.len(), 2);
        assert_eq!(layout.sections[1].first_interface, 2);
        assert_eq!(layout.interfaces.len(), 4);
        assert_eq!(layout.interfaces[0].name, "eth0");
        assert_eq!(layout.interfaces[0].description, "first");
        let numbers = |i: usize| (layout.interfaces[i].ticks, layout.interfaces[i].offset_s);
        assert_eq!((numbers(0), numbers(2)), ((1_000_000_000, 0), (1 << 20, 60)));
        check_damaged(&bytes);
    }
}

#[test]
fn pcapng_with_various_interfaces() {
    for big in [false, true] {
        let bytes = Pcapng::sample(big, true).0.bytes;
        let folder = tempfile::tempdir().unwrap();
        assert!(check(&bytes, folder.path()), "libpcap refuses it");
        assert_eq!(read(&bytes).packets.len(), 7);
        check_damaged(&bytes);
    }
}

#[test]
fn sections_in_both_orders() {
    let folder = tempfile::tempdir().unwrap();
    for (first, second) in [(false, true), (true, false)] {
        let parts = [first, second, first].map(|big| Pcapng::sample(big, false).0.bytes);
        let whole = parts.concat();
        let alone = parts.iter().flat_map(|part| {
            check(part, folder.path());
            read(part).packets
        });
        let ours = read(&whole);
        assert_eq!(ours.error, None);
        assert_eq!(ours.packets.len(), 21);
        assert!(ours.packets.into_iter().eq(alone));
        let layout = ours.layout.unwrap();
        let orders = layout.sections.iter().map(|section| section.big_endian);
        assert!(orders.eq([first, first, second, second, first, first]));
        let swapped = (0..12).map(|interface| layout.is_swapped(interface));
        assert!(swapped.eq((0..12).map(|i| if i / 4 == 1 { second } else { first })));
        tapdex_engine::testing::fuzz_pcap_read(&whole);
    }
}

#[test]
fn clocks_of_pcapng() {
    let folder = tempfile::tempdir().unwrap();
    let times =
        [0, 1, 999, 1_000_000_001, 1_700_000_000_123_456_789, 1 << 63, u64::MAX - 5, u64::MAX];
    let resolutions = (0..=21).chain(0x80..=0xC1).chain([0x7F, 0xFF]);
    let mut sound = 0;
    for resolution in resolutions {
        for offset in [None, Some(0), Some(5), Some(-5), Some(i64::MIN), Some(i64::MAX)] {
            for big in [false, true] {
                let mut file = Pcapng::new(big);
                let offset_bytes = offset.map(|offset: i64| {
                    let mut bytes = offset.to_le_bytes();
                    if big {
                        bytes.reverse();
                    }
                    bytes
                });
                let resolution = [resolution];
                let mut options: Vec<(u16, &[u8])> = vec![(9, &resolution)];
                options.extend(offset_bytes.as_ref().map(|bytes| (14, &bytes[..])));
                file.interface(1, 0, &options);
                for time in times {
                    file.enhanced(0, time, 60, &frame(3, 3));
                    file.old(0, time, 60, &frame(3, 3));
                }
                check(&file.0.bytes, folder.path());
                sound += usize::from(read(&file.0.bytes).packets.len() == 2 * times.len());
            }
        }
    }
    assert_eq!(sound, (20 + 64) * 6 * 2);
}

#[test]
fn odd_blocks_of_pcapng() {
    let folder = tempfile::tempdir().unwrap();
    let with = |edit: &dyn Fn(&mut Pcapng)| {
        for big in [false, true] {
            let mut file = Pcapng::new(big);
            edit(&mut file);
            file.enhanced(0, 1, 2, &frame(2, 2));
            check(&file.0.bytes, folder.path());
        }
    };
    // Options that are cut off, too long, doubled, or behind the end.
    for options in [
        &[(9, &[6, 6][..])][..],
        &[(9, &[6]), (9, &[6])],
        &[(14, &[0; 7])],
        &[(14, &[0; 8]), (14, &[0; 8])],
        &[(0, &[1, 2, 3])],
        &[(0, &[]), (9, &[99])],
        &[(2, &[0xFF, b'x'])],
    ] {
        with(&|file| file.interface(1, 96, options));
    }
    for tail in [&[0; 1][..], &[0; 4], &[2, 0, 2, 0], &[9, 9], &[0, 9, 0, 1, 3, 0, 0, 0]] {
        with(&|file| {
            file.block(1, |body| {
                body.bytes.extend([0, 0, 0, 0, 0, 0, 0, 0]);
                body.bytes.extend(tail);
            });
        });
    }
    // Blocks that are too short for what they are.
    for kind in [1, 2, 3, 6, 0x0A0D_0D0A, 77] {
        for len in [0, 4, 8, 12, 16, 20] {
            with(&|file| {
                file.interface(1, 0, &[]);
                file.enhanced(0, 1, 2, &frame(2, 2));
                file.block(kind, |body| body.bytes.resize(len, 0));
            });
        }
    }
    // Section headers of other versions, before and behind the first interface.
    for version in [(0, 0), (1, 0), (1, 2), (1, 1), (2, 0)] {
        with(&|file| {
            file.section(version.0, version.1, &[]);
            file.interface(1, 0, &[]);
        });
        with(&|file| {
            file.interface(1, 0, &[]);
            file.enhanced(0, 1, 2, &frame(2, 2));
            file.section(version.0, version.1, &[0; 4]);
            file.interface(1, 0, &[]);
        });
        for big in [false, true] {
            let mut file = Pcapng(files::Bytes::new(big));
            file.section(version.0, version.1, &[1, 2, 3, 4, 5]);
            file.interface(1, 0, &[]);
            file.enhanced(0, 1, 2, &frame(2, 2));
            check(&file.0.bytes, folder.path());
        }
    }
    with(&|_| {});
    with(&|file| file.simple(3, &[1, 2, 3]));
    // Simple packets are cut by the snapshot length; others must not be longer.
    for snaplen in [1, 3, 4, 5, 0x7FFF_FFFF, u32::MAX] {
        with(&|file| {
            file.interface(1, snaplen, &[]);
            file.simple(4, &[1, 2, 3, 4]);
            file.simple(40, &[1, 2, 3, 4]);
            file.enhanced(0, 1, 4, &[1, 2, 3, 4]);
        });
    }
    // The longest block; of D-Bus, a longer one.
    for (link, len, count) in [(1, 16 << 20, 1), (1, (16 << 20) + 4, 0), (231, (16 << 20) + 4, 1)] {
        let mut file = Pcapng::new(false);
        file.interface(link, 0, &[]);
        file.block(9, |body| body.bytes.resize(len - 12, 0));
        file.enhanced(0, 1, 2, &frame(2, 2));
        let theirs = libpcap(&file.0.bytes, folder.path());
        assert_eq!((read(&file.0.bytes).packets.len(), theirs.0.len()), (count, count));
    }
    // A first section header whose length is no multiple of four.
    let mut bytes = Pcapng::sample(false, false).0.bytes;
    bytes[4] += 3;
    bytes.splice(28..28, [1, 2, 3]);
    check(&bytes, folder.path());
    assert_eq!(read(&bytes).packets.len(), 7);
}

/// Numbers from a seed.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn headers_in_the_order_of_another_machine() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = 88_172_645_463_325_252;
    for link in [113, 117, 189, 220, 239, 276] {
        for big in [false, true] {
            let mut file = Pcap { link, ..Pcap::new(NANO, big) };
            let mut block_file = Pcapng::new(big);
            block_file.interface(u16::try_from(link).unwrap(), 0, &[]);
            for i in 0..400_u32 {
                let mut len = u32::try_from(random(&mut state) % 140).unwrap();
                let mut data = frame(len, i);
                let byte = |state: &mut u64, most: u8| random(state).to_le_bytes()[1] % most;
                let mut set = |at: usize, bytes: &[u8]| {
                    if let Some(field) = data.get_mut(at..at + bytes.len()) {
                        field.copy_from_slice(bytes);
                    }
                };
                let number = |number: u32| {
                    let mut bytes = number.to_le_bytes();
                    if big {
                        bytes.reverse();
                    }
                    bytes
                };
                let mut wire_len = len + u32::from(byte(&mut state, 3)) * 20;
                match link {
                    113 => set(14, &[0, 11 + byte(&mut state, 4)]),
                    276 => set(0, &[0, 11 + byte(&mut state, 4)]),
                    117 => set(0, &[40 + byte(&mut state, 30)]),
                    239 => {
                        set(1, &[0]);
                        let mut at = 4;
                        while at < 140 {
                            let len = u16::from(byte(&mut state, 24));
                            let len = if big { len.swap_bytes() } else { len };
                            set(at, &len.to_le_bytes());
                            at += usize::from(byte(&mut state, 6) + 1) * 4;
                        }
                    }
                    _ => {
                        let count = u32::from(byte(&mut state, 5));
                        set(8, &[b'C', byte(&mut state, 2), 0x80, 1]);
                        set(15, &[byte(&mut state, 2)]);
                        set(32, &number(10));
                        set(60, &number(count));
                        for part in 0..5 {
                            set(68 + 16 * part, &number(u32::from(byte(&mut state, 90))));
                            set(72 + 16 * part, &number(u32::from(byte(&mut state, 90))));
                        }
                        if i % 2 == 0 {
                            wire_len = 64 + 16 * count + 10;
                            len = len.min(wire_len + u32::from(byte(&mut state, 9)));
                            data.truncate(len as usize);
                        }
                    }
                }
                block_file.enhanced(0, i.into(), wire_len, &data);
                file.push(1, i, len, wire_len, data);
            }
            let changed = read(&file.bytes())
                .packets
                .iter()
                .zip(&file.records)
                .filter(|((_, wire_len, data), record)| *data != record.4 || *wire_len != record.3)
                .count();
            assert_eq!(changed > 20, big || link == 220, "link {link}: {changed}");
            check(&file.bytes(), folder.path());
            check(&block_file.0.bytes, folder.path());
        }
    }
}

/// Counts what is asked of it.
struct Counted<'a> {
    inner: Cursor<&'a [u8]>,
    reads: Vec<usize>,
}

impl Read for Counted<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.reads.push(target.len());
        self.inner.read(target)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}

#[test]
fn jumps_read_little_and_scans_much() {
    let mut file = Pcap::new(MICRO, false);
    (0..100_000).for_each(|i| file.push(i, 0, 84, 84, frame(84, i)));
    let bytes = file.bytes();
    let layout = CaptureReader::open(&bytes[..]).unwrap().layout().clone();
    let counted = Counted { inner: Cursor::new(&bytes), reads: Vec::new() };
    let at = |i: u64| 24 + 100 * i;
    let mut reader = CaptureReader::resume(counted, layout, at(70_000)).unwrap();
    let second = |reader: &mut CaptureReader<Counted<'_>>| {
        reader.next().unwrap().unwrap().time_ns / 1_000_000_000
    };
    assert_eq!(second(&mut reader), 70_000);
    assert_eq!(reader.source().reads, [16 << 10]);
    for i in [70_100, 70_003, 70_000, 70_162] {
        reader.seek(at(i)).unwrap();
        assert_eq!((second(&mut reader), reader.position()), (i, at(i + 1)));
    }
    assert_eq!(reader.source().reads.len(), 1, "all that is in the buffer");
    for i in [5, 99_999, 40_000] {
        reader.seek(at(i)).unwrap();
        assert_eq!(second(&mut reader), i);
    }
    assert_eq!(reader.source().reads[1..], [16 << 10; 3]);
    (40_001..100_000).for_each(|i| assert_eq!(second(&mut reader), i));
    assert!(reader.next().unwrap().is_none());
    let reads = &reader.source().reads[4..];
    assert!(reads.is_sorted_by_key(|len| len.next_power_of_two()), "{reads:?}");
    assert_eq!(reads.last().unwrap().next_power_of_two(), 128 << 10);
    // After an error there is nothing more, and after a jump there is.
    reader.seek(at(10) + 3).unwrap();
    while reader.next().is_ok_and(|record| record.is_some()) {}
    assert!(reader.next().unwrap().is_none());
    reader.seek(at(11)).unwrap();
    assert_eq!(second(&mut reader), 11);
}

fn traces() -> Option<PathBuf> {
    std::env::var_os("TAPDEX_TRACES").map(PathBuf::from)
}

#[test]
fn captures_of_others() {
    let Some(folder) = traces() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let table = std::fs::read_to_string(folder.join("zoo-expected.tsv")).unwrap();
    let mut files = 0;
    for line in table.lines().skip(1) {
        let cells = line.split('\t').collect::<Vec<_>>();
        let path = folder.join(cells[0]);
        let bytes = std::fs::read(&path).unwrap();
        let refused = check(&bytes, scratch.path());
        let count = read(&bytes).packets.len();
        assert_eq!(libpcap_file(&path).0.len().to_string(), cells[3], "{}", cells[0]);
        assert_eq!(count.to_string(), cells[if refused { 5 } else { 3 }], "{}", cells[0]);
        assert_eq!(is_refusal(cells[4]), refused);
        files += 1;
    }
    assert!(files > 200, "{files}");
}

/// Two interfaces and a few packets.
fn interfaces(link: u16, ticks: u64) -> [Interface; 2] {
    let first = Interface {
        name: "eth0".into(),
        description: "uplink".into(),
        snaplen: 96,
        ..Interface::new(1, 1_000_000)
    };
    [first, Interface { snaplen: 96, ..Interface::new(link, ticks) }]
}

const TIME: u64 = 1_700_000_000_123_456_789;

fn write(format: FileFormat, interfaces: &[Interface], comment: &str) -> Vec<u8> {
    let mut writer = CaptureWriter::new(Vec::new(), format, interfaces, comment).unwrap();
    for i in 0..9 {
        let number = i % u32::try_from(interfaces.len()).unwrap();
        writer.packet(number, TIME + u64::from(i), 100 + i, &frame(i, i)).unwrap();
    }
    let written = writer.written();
    let bytes = writer.finish().unwrap();
    assert_eq!(written, bytes.len() as u64);
    bytes
}

/// Runs a program on a file, if it is installed.
fn run(program: &str, arguments: &[&str], path: &Path) -> Option<String> {
    let output = Command::new(program).args(arguments).arg(path).output().ok()?;
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for (format, ticks, unit) in [
        (FileFormat::Pcapng, 1_000_000, 1),
        (FileFormat::Pcap, 1_000_000, 1000),
        (FileFormat::Pcap, 1_000_001, 1),
    ] {
        let bytes = write(format, &interfaces(1, ticks), "asked for");
        check(&bytes, folder.path());
        let ours = read(&bytes);
        let written = (0..9).map(|i| (TIME + u64::from(i), 100 + i, frame(i, i)));
        let expected = written.map(|(time, len, data)| (time / unit * unit, len, data));
        assert!(ours.packets.into_iter().eq(expected));
        let layout = ours.layout.unwrap();
        assert!(layout.interfaces.iter().all(|interface| interface.snaplen == 96));
        let path = folder.path().join("written");
        std::fs::write(&path, &bytes).unwrap();
        if let Some(text) = run("capinfos", &["-M"], &path) {
            assert!(
                text.lines()
                    .any(|line| line.starts_with("Number of packets:") && line.ends_with('9'))
            );
            let commented = text.contains("asked for") && text.contains("tapdex ");
            assert_eq!(commented, format == FileFormat::Pcapng, "{text}");
        }
        let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-r"];
        if let Some(text) = run("tshark", &fields, &path) {
            let fraction = (TIME + 8) % 1_000_000_000 / unit * unit;
            let last = format!("1700000000.{fraction:09}\t108");
            assert_eq!(text.lines().last(), Some(&*last));
        }
        if format == FileFormat::Pcapng {
            assert_eq!(layout.interfaces[0].name, "eth0");
            assert_eq!(layout.interfaces[0].description, "uplink");
            assert_eq!(layout.interfaces.len(), 2);
        }
    }
}

#[test]
fn several_link_types_need_pcapng() {
    let folder = tempfile::tempdir().unwrap();
    let different = interfaces(101, 1_000_000);
    let error = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &different, "").unwrap_err();
    assert!(matches!(error, CaptureError::Unwritable { got: 101, .. }), "{error}");
    assert!(error.advice().contains("pcapng"));
    let bytes = write(FileFormat::Pcapng, &different, "");
    assert!(check(&bytes, folder.path()), "libpcap refuses it");
    let ours = read(&bytes);
    let links = ours.layout.unwrap().interfaces.into_iter().map(|interface| interface.link);
    assert!(links.eq([1, 101]));
    assert_eq!((ours.packets.len(), ours.error), (9, None));
}

#[test]
fn interfaces_come_later() {
    let [first, second] = interfaces(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &[], "").unwrap();
    assert!(writer.packet(0, TIME, 0, &[]).is_err(), "there is no interface");
    assert_eq!(writer.add_interface(&first).unwrap(), 0);
    writer.packet(0, TIME, 0, &[]).unwrap();
    assert_eq!(writer.add_interface(&second).unwrap(), 1);
    writer.packet(1, TIME, 0, &[]).unwrap();
    let ours = read(&writer.finish().unwrap());
    assert_eq!((ours.packets.len(), ours.error), (2, None));

    let mut writer =
        CaptureWriter::new(Vec::new(), FileFormat::Pcap, std::slice::from_ref(&first), "").unwrap();
    writer.packet(0, TIME, 0, &[]).unwrap();
    assert!(writer.add_interface(&second).is_err(), "the header says microseconds");
    assert!(writer.add_interface(&Interface { snaplen: 97, ..first.clone() }).is_err());
    assert_eq!(writer.add_interface(&first).unwrap(), 1);
    writer.packet(1, TIME, 0, &[]).unwrap();
    assert_eq!(read(&writer.finish().unwrap()).packets.len(), 2);
}

#[test]
fn nothing_is_written_that_nobody_reads() {
    let long = Interface { snaplen: 1 << 30, ..Interface::new(1, 1_000_000) };
    for (format, most) in [(FileFormat::Pcap, 262_144), (FileFormat::Pcapng, (16 << 20) - 32)] {
        let mut writer =
            CaptureWriter::new(Vec::new(), format, std::slice::from_ref(&long), "").unwrap();
        assert!(writer.packet(0, 0, 0, &vec![0; most + 1]).is_err());
        writer.packet(0, 0, 0, &vec![0; most]).unwrap();
        let ours = read(&writer.finish().unwrap());
        assert_eq!((ours.packets.len(), ours.packets[0].2.len(), ours.error), (1, most, None));
    }
    let short = Interface { snaplen: 10, ..long };
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[short], "").unwrap();
    assert!(writer.packet(0, 0, 0, &[0; 11]).is_err());
    assert!(writer.packet(0, (1 << 32) * 1_000_000_000, 0, &[]).is_err(), "after 2106");
    // A file without packets has a header all the same.
    let ours = read(&writer.finish().unwrap());
    assert_eq!((ours.packets.len(), ours.error), (0, None));
    // Texts longer than an option are cut, between characters; a reader keeps the start of names.
    let name = "\u{e9}".repeat(40_000);
    let named = Interface { name: name.clone(), ..Interface::new(1, 1) };
    let ours = read(&write(FileFormat::Pcapng, &[named], &name));
    assert_eq!(ours.layout.unwrap().interfaces[0].name, name[..100]);
    assert_eq!(ours.packets.len(), 9);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn packed_captures() {
    let mut file = Pcap::new(NANO, false);
    let mut state = 1;
    for i in 0..3000 {
        let noise = (0..70).map(|_| random(&mut state).to_le_bytes()[2]).collect();
        file.push(i, i, 70, 70, noise);
    }
    let plain = file.bytes();
    let (left, right) = plain.split_at(100_001);
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let skipped = [&[0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&plain)].concat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packed");
    for (compression, packed) in [
        (Compression::None, plain.clone()),
        (Compression::Gzip, gzip(&plain)),
        (Compression::Gzip, [gzip(left), gzip(right)].concat()),
        (Compression::Zstd, zstd(&plain)),
        (Compression::Zstd, [zstd(left), zstd(right)].concat()),
        (Compression::Zstd, skipped),
    ] {
        assert_eq!(decompress(&packed[..]).unwrap().compression(), compression);
        std::fs::write(&path, &packed).unwrap();
        let mut reader = capture::open(&path).unwrap();
        assert_eq!(reader.source().compression(), compression);
        let mut count = 0;
        while reader.next().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 3000);
        for len in (0..packed.len()).rev().step_by(packed.len() / 50) {
            // All that the stream still holds comes, and only then the error.
            let mut unpacked = Vec::new();
            let mut source = decompress(&packed[..len]).unwrap();
            let rest = io::copy(&mut source, &mut unpacked);
            assert!(plain.starts_with(&unpacked));
            assert!(compression == Compression::None || len < 300_000 || unpacked.len() > len / 2);
            let whole = unpacked.len().saturating_sub(24) / 86;
            let Ok(mut reader) = CaptureReader::open(decompress(&packed[..len]).unwrap()) else {
                assert!(whole == 0);
                continue;
            };
            let mut count = 0;
            let ended = loop {
                match reader.next() {
                    Ok(Some(_)) => count += 1,
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            assert_eq!(count, whole);
            match (rest, ended) {
                (Err(_), Err(error @ CaptureError::Io { .. })) => {
                    let source = std::error::Error::source(&error).unwrap().to_string();
                    assert!(source.contains(&compression.to_string()), "{source}");
                    assert!(source.contains("cut off"), "{source}");
                    assert!(!error.is_io() && error.advice().contains("copy"));
                }
                // Cut between two frames, or not packed: a shorter file.
                (Ok(_), Err(CaptureError::Truncated { .. })) => {}
                (Ok(_), Ok(())) => assert_eq!((unpacked.len() - 24) % 86, 0),
                (rest, ended) => panic!("{rest:?} {ended:?}"),
            }
        }
    }
    // Damage in the middle is named too.
    let mut packed = gzip(&plain);
    let middle = packed.len() / 2;
    packed[middle..middle + 50].fill(0xFF);
    let mut reader = CaptureReader::open(decompress(&packed[..]).unwrap()).unwrap();
    let error = std::iter::from_fn(|| reader.next().map(|record| record.map(drop)).transpose())
        .find_map(Result::err)
        .unwrap();
    assert!(!error.is_io(), "{error}");
}

#[test]
fn errors_name_the_place() {
    let mut bytes = Pcap::sample(MICRO, false).bytes();
    let text = |bytes: &[u8]| read(bytes).error.unwrap();
    let last = bytes.len() - 33 - 16;
    assert_eq!(
        text(&bytes[..bytes.len() - 1]),
        format!("a record at offset {last} is cut off: 48 bytes are left, expected 49")
    );
    bytes[last + 8..last + 12].copy_from_slice(&[0xFF; 4]);
    assert_eq!(
        text(&bytes),
        format!("captured length at offset {last} is 4294967295, expected at most 262144")
    );
    assert_eq!(
        text(b"PK\x03\x04 and so on"),
        "not a pcap or pcapng file: it starts with [50, 4B, 03, 04], expected a magic number"
    );
}

#[test]
fn interfaces_have_a_bound() {
    let mut file = Pcapng::new(false);
    for _ in 0..=65_535 {
        file.interface(1, 0, &[]);
    }
    let ours = read(&file.0.bytes);
    assert!(ours.error.unwrap().contains("number of interfaces"));
    assert_eq!(ours.layout.unwrap().interfaces.len(), 65_535);
}
