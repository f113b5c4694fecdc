//! Drafts: answers are the same with them and without them, whatever becomes of them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tapdex_engine::archive::Drafter;
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::Follow;
use tapdex_engine::query::bpf::Program;
use tapdex_engine::storage::Disk;

use super::*;

/// Links of the interfaces, in the order in which they appear: Ethernet, IP without a link, Linux
/// cooked.
const LINKS: [u16; 4] = [1, 101, 1, 113];

/// A recording with interfaces that appear in the middle of it, and packets that come late.
struct Whole {
    written: Written,
    /// The link of each packet.
    links: Vec<LinkType>,
    /// Where the block of each interface is.
    interfaces: Vec<Range<usize>>,
}

impl Whole {
    fn new(packets: usize, seed: u64) -> Self {
        let mut bytes = Vec::new();
        blocks::section(&mut bytes, "a recording");
        let mut interfaces = Vec::new();
        let add = |bytes: &mut Vec<u8>, interfaces: &mut Vec<Range<usize>>| {
            let link = LINKS[interfaces.len()];
            let start = bytes.len();
            let name = format!("made{}", interfaces.len());
            let interface = Interface { name, ..Interface::new(link, 1_000_000_000) };
            blocks::interface(bytes, &interface, "");
            interfaces.push(start..bytes.len());
        };
        add(&mut bytes, &mut interfaces);
        let made = Written::new(packets as u64, seed).packets;
        let mut written =
            Written { ends: vec![bytes.len()], bytes, packets: Vec::new(), places: Vec::new() };
        let mut links = Vec::new();
        for (n, (time, wire_len, data)) in made.iter().enumerate() {
            if n * LINKS.len() / packets > interfaces.len() - 1 {
                add(&mut written.bytes, &mut interfaces);
                written.ends.push(written.bytes.len());
            }
            // Some wait in a queue while others are written.
            let time = if n % 97 == 96 { made[n - 90].0 + 1 } else { *time };
            let is_ip = [&[8, 0][..], &[0x86, 0xDD]].contains(&&data[12..14]);
            let interface = if is_ip { n % interfaces.len() } else { n % interfaces.len() / 2 * 2 };
            let head: Vec<u8> = match LINKS[interface] {
                101 => Vec::new(),
                113 => [&[0, 0, 0, 1, 0, 6], &data[6..14], &data[12..14]].concat(),
                _ => data[..14].to_vec(),
            };
            let wire_len = wire_len - 14 + u32::try_from(head.len()).unwrap();
            let data = [&head, &data[14..]].concat();
            let start = written.bytes.len();
            let number = u32::try_from(interface).unwrap();
            blocks::packet(&mut written.bytes, number, time, wire_len, &data);
            written.places.push(start..written.bytes.len());
            written.ends.push(written.bytes.len());
            written.packets.push((time, wire_len, data));
            links.push(LinkType(LINKS[interface]));
        }
        assert_eq!(interfaces.len(), LINKS.len());
        Self { written, links, interfaces }
    }

    /// What a plain look at the first of its packets finds.
    fn plain(&self, packets: usize, question: &Question) -> Vec<Packet> {
        let (filter, from, to) = question;
        // What libpcap has no filter for on a link is found on the others.
        let program = |&link: &u16| Program::compile(filter, LinkType(link), false).ok();
        let programs: Vec<Option<Program>> = LINKS.iter().map(program).collect();
        let matches = |(packet, link): &(&Packet, &LinkType)| {
            let (time, wire_len, data) = packet;
            let program = LINKS.iter().position(|&other| other == link.0);
            let program = programs[program.unwrap()].as_ref();
            from.is_none_or(|from| *time >= from)
                && to.is_none_or(|to| *time < to)
                && program.is_some_and(|program| program.matches(data, *wire_len))
        };
        let all = self.written.packets.iter().zip(&self.links).take(packets);
        sorted(all.filter(matches).map(|(packet, _)| packet.clone()).collect())
    }

    /// Every filter at some times: those of these packets, as the first and the last.
    fn questions(&self, numbers: &[usize]) -> Vec<Question> {
        let time = |n: usize| Some(self.written.packets[n].0);
        let mut times = vec![(None, None)];
        for pair in numbers.windows(2) {
            times.push((time(pair[0]), time(pair[1])));
        }
        let [first, .., last] = numbers else { panic!("at least two") };
        times.extend([(time(*first), None), (None, time(*last)), (time(*last), time(*last))]);
        times.push((time(*first), time(*first).map(|ns| ns + 1)));
        let all = FILTERS.iter().flat_map(|f| times.iter().map(|&(from, to)| (*f, from, to)));
        all.collect()
    }
}

/// A filter, and the times of packets that are wanted.
type Question = (&'static str, Option<u64>, Option<u64>);

/// The same packets in an order that does not depend on how equal times are ordered.
fn sorted(mut packets: Vec<Packet>) -> Vec<Packet> {
    packets.sort();
    packets
}

fn ask(archive: &Archive, &(filter, from, to): &Question) -> Vec<Packet> {
    let found = search(archive, &query(filter, from, to));
    assert!(found.is_sorted_by_key(|packet| packet.0));
    sorted(found)
}

/// A recording that is being written, and its drafts.
struct Growing {
    folder: tempfile::TempDir,
    archive: Archive,
    recording: Recording,
    whole: Whole,
    len: usize,
}

impl Growing {
    fn new(whole: Whole) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(&folder.path().join("archive"));
        let recording = whole.written.leave(&archive, 0);
        Self { folder, archive, recording, whole, len: 0 }
    }

    /// One of so many packets with drafts of the first so many each, and a rest of half a packet
    /// more.
    fn with_drafts(packets: usize, seed: u64, ends: &[usize]) -> Self {
        let mut growing = Self::new(Whole::new(packets, seed));
        growing.draft_at(ends);
        let last = growing.whole.written.places.last().unwrap().clone();
        growing.set_len(last.start.midpoint(last.end));
        growing
    }

    /// Makes drafts as the recording grows, behind each of these packets.
    fn draft_at(&mut self, ends: &[usize]) {
        let archive = self.archive.clone();
        self.set_len(self.whole.written.places[0].start);
        let mut drafter = Drafter::new(&archive, &self.recording).unwrap().unwrap();
        let mut before = 0;
        for &end in ends {
            self.set_len(self.whole.written.places[end - 1].end);
            assert_eq!(drafter.write(&Disk).unwrap(), (end - before) as u64);
            before = end;
        }
    }

    /// As it is after so many bytes of it were written.
    fn set_len(&mut self, len: usize) {
        use std::io::Write;
        let path = self.recording.unfinished_path();
        let mut file = File::options().append(true).open(path).unwrap();
        match len.checked_sub(self.len) {
            Some(_) => file.write_all(&self.whole.written.bytes[self.len..len]).unwrap(),
            None => file.set_len(len as u64).unwrap(),
        }
        self.len = len;
    }

    fn packets(&self) -> usize {
        self.whole.written.whole(self.len)
    }

    fn drafts(&self) -> PathBuf {
        self.archive.folder().join("drafts")
    }

    fn draft(&self, part: u32) -> PathBuf {
        self.drafts().join(format!("{}-{part:04}.tdx", self.recording.name()))
    }

    /// Names of what is among the drafts.
    fn names(&self) -> Vec<String> {
        let entries = self.drafts().read_dir().into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// How many drafts are used, and how many packets they have.
    fn used(&self) -> (usize, u64) {
        let (segments, failed) = self.archive.segments().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(segments.iter().all(|s| s.is_draft()));
        let used = segments.iter().filter(|segment| !segment.is_in_memory());
        (used.clone().count(), used.map(|segment| segment.note().records).sum())
    }

    /// Answers are those of a plain look at the packets.
    #[track_caller]
    fn check(&self, questions: &[Question], what: &str) {
        for question in questions {
            let found = ask(&self.archive, question);
            let plain = self.whole.plain(self.packets(), question);
            assert_eq!(found.len(), plain.len(), "{what}: {question:?}");
            assert!(found == plain, "{what}: {question:?}");
        }
    }

    /// Answers are the same with drafts, without them, and by a plain look.
    #[track_caller]
    fn check_both(&self, questions: &[Question], what: &str) {
        self.check(questions, what);
        let away = self.folder.path().join("away");
        let had = fs::rename(self.drafts(), &away).is_ok();
        assert_eq!(self.used(), (0, 0));
        self.check(questions, &format!("{what}, without drafts"));
        if had {
            fs::rename(&away, self.drafts()).unwrap();
        }
    }
}

/// Few questions that are about all packets.
const SOME: [Question; 4] = [
    ("", None, None),
    ("tcp", None, None),
    ("greater 200", None, None),
    ("ip[8] < 60 or ip6", None, None),
];

#[test]
fn answers_are_the_same_with_drafts() {
    let mut growing = Growing::new(Whole::new(3_000, 21));
    let archive = growing.archive.clone();
    let recording = growing.recording.clone();
    let Written { places, .. } = &growing.whole.written;
    let place = |n: usize| places[n].clone();
    let interfaces = growing.whole.interfaces.clone();
    // How long the recording is, whether there is to be a draft of it then.
    let steps = [
        (place(0).start, true), // no packet
        (place(0).start + 3, true),
        (place(0).end, true), // one
        (place(0).end, true), // nothing new
        (place(1).start + 30, true),
        (place(1).end, true),
        (place(600).start + 1, true), // one that is cut, and goes on later
        (place(600).end - 1, true),
        (place(600).end, true),
        (interfaces[1].start + 10, true), // an interface that is cut
        (interfaces[1].end, true),        // one without packets
        (interfaces[1].end + 20, true),
        (place(1_200).end, false),
        (interfaces[2].start, true),
        (interfaces[2].end, false),
        (place(1_600).end, true), // in the middle of a draft
        (place(2_900).end + 17, true),
        (place(2_990).end, false),
    ];
    let questions = growing.whole.questions(&[0, 1, 599, 600, 700, 1_600, 2_400, 2_901, 2_999]);
    let mut drafter = None;
    let mut drafts = 0;
    growing.set_len(0);
    assert!(Drafter::new(&archive, &recording).unwrap().is_none());
    for (n, &(len, is_draft)) in steps.iter().enumerate() {
        growing.set_len(len);
        let drafter =
            drafter.get_or_insert_with(|| Drafter::new(&archive, &recording).unwrap().unwrap());
        assert_eq!(drafter.recording(), &recording);
        let whole = growing.packets() as u64;
        if is_draft {
            let before = drafter.reached().1;
            assert_eq!(drafter.write(&Disk).unwrap(), whole - before, "{n}");
            drafts += usize::from(whole > before);
            assert_eq!(drafter.reached().1, whole);
            assert_eq!(growing.used(), (drafts, whole));
        }
        assert_eq!(growing.names().len(), drafts);
        growing.check_both(&SOME, &format!("step {n}"));
    }
    assert_eq!(drafts, 8);
    growing.check_both(&questions, "in the end");
    // Segments without packets of a time are those in memory only.
    let late = growing.whole.written.packets[2_990].0;
    let (segments, _) =
        archive.segments_from(TimeRange { from_ns: late + 1, to_ns: None }).unwrap();
    assert!(segments.len() == drafts && !segments.iter().any(|s| s.is_in_memory()));
    // Who knows of the packets is found in each part, too.
    let (segments, _) = archive.segments().unwrap();
    for segment in &segments {
        assert_eq!(segment.compare(&mut |_| true).unwrap(), Compared::default());
    }
    // A second one starts from the beginning, and writes over what is there.
    let mut second = Drafter::new(&archive, &recording).unwrap().unwrap();
    assert_eq!(second.write(&Disk).unwrap(), growing.packets() as u64);
    assert_eq!((growing.names().len(), growing.used().0), (drafts, 1));
    growing.check(&questions, "one of all and old ones");
}

#[test]
fn a_draft_ends_when_it_has_enough() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let packets = (1 << 18) + 5_000;
    let written = Written::new(packets, 22);
    let recording = written.leave(&archive, written.bytes.len() - 1);
    let mut drafter = Drafter::new(&archive, &recording).unwrap().unwrap();
    assert_eq!(drafter.write(&Disk).unwrap(), 1 << 18);
    assert_eq!(drafter.reached().0, written.places[(1 << 18) - 1].end as u64);
    let found = all(&archive);
    assert!(found == written.packets);
    assert_eq!(drafter.write(&Disk).unwrap(), 5_000);
    assert_eq!(drafter.write(&Disk).unwrap(), 0);
    assert!(all(&archive) == found);
    // Times around the place where the second one starts.
    let time = |n: usize| Some(written.packets[n].0);
    let middle = 1 << 18;
    let around = search(&archive, &query("", time(middle - 3), time(middle + 4)));
    assert!(around == written.packets[middle - 3..middle + 4]);
    assert!(search(&archive, &query("tcp", time(middle), time(middle))).is_empty());
}

/// Something is done to the drafts, after which the first so many are of use.
#[track_caller]
fn spoil(growing: &Growing, ends: &[usize], used: usize, what: &str, act: impl FnOnce()) {
    let saved = growing.folder.path().join("saved");
    fs::create_dir(&saved).unwrap();
    for name in growing.names() {
        fs::copy(growing.drafts().join(&name), saved.join(&name)).unwrap();
    }
    act();
    let packets = used.checked_sub(1).map_or(0, |last| ends[last]);
    assert_eq!(growing.used(), (used, packets as u64), "{what}");
    growing.check(&SOME, what);
    fs::remove_dir_all(growing.drafts()).unwrap();
    fs::rename(&saved, growing.drafts()).unwrap();
}

#[test]
fn what_becomes_of_drafts_changes_no_answer() {
    let ends = [1, 150, 400, 401, 900];
    let growing = Growing::with_drafts(1_000, 23, &ends);
    let all = ends.len();
    assert_eq!(growing.used(), (all, 900));
    growing.check_both(&SOME, "as they were made");
    for (n, part) in (0..).zip(0..5_u32) {
        let path = growing.draft(part);
        let bytes = fs::read(&path).unwrap();
        spoil(&growing, &ends, n, "one is missing", || fs::remove_file(&path).unwrap());
        for len in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            spoil(&growing, &ends, n, "one is cut", || fs::write(&path, &bytes[..len]).unwrap());
        }
        spoil(&growing, &ends, n, "one is longer", || {
            fs::write(&path, [&bytes[..], &[0; 8]].concat()).unwrap();
        });
        spoil(&growing, &ends, n, "one is a folder", || {
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
        });
        spoil(&growing, &ends, n, "one leads nowhere", || {
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink("nowhere", &path).unwrap();
        });
        for other in (0..5).filter(|&other| other != part) {
            let (first, second) = (part.min(other), part.max(other));
            spoil(&growing, &ends, first as usize, "two are exchanged", || {
                let [a, b] = [first, second].map(|part| fs::read(growing.draft(part)).unwrap());
                fs::write(growing.draft(first), b).unwrap();
                fs::write(growing.draft(second), a).unwrap();
            });
            spoil(&growing, &ends, other as usize, "one is there twice", || {
                fs::copy(&path, growing.draft(other)).unwrap();
            });
        }
    }
    // Another number or name behind the last one.
    spoil(&growing, &ends, all, "one too many", || {
        fs::copy(growing.draft(4), growing.draft(5)).unwrap();
        fs::write(growing.draft(7), "no index").unwrap();
    });
    spoil(&growing, &ends, all, "names that are none", || {
        for name in [&b"\xFF\xFE"[..], b"-.tdx", b".", b"..tdx", b"rec-.pcapng-0000.tdx"] {
            drop(fs::write(growing.drafts().join(OsStr::from_bytes(name)), "no index"));
        }
        fs::create_dir(growing.drafts().join("lost+found")).unwrap();
    });
}

/// Damage in the head of a draft changes no answer; damage behind it is said by who reads it, and
/// repair removes the draft.
#[test]
fn damage_in_a_draft_is_not_taken_for_packets() {
    let ends = [150, 400, 900];
    let growing = Growing::with_drafts(1_000, 24, &ends);
    let path = growing.draft(1);
    let bytes = fs::read(&path).unwrap();
    let questions = SOME.map(|(filter, from, to)| query(filter, from, to));
    let expected = SOME.map(|question| growing.whole.plain(growing.packets(), &question).len());
    // The end, which is read first, and some of all others.
    let heads = (0..64).chain(bytes.len() - 200..bytes.len());
    let places: BTreeSet<usize> = heads.chain((0..bytes.len()).step_by(101)).collect();
    let (mut left_out, mut said) = (0, 0);
    for &at in &places {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).unwrap();
        let (segments, failed) = growing.archive.segments().unwrap();
        assert!(failed.is_empty(), "byte {at}: {failed:?}");
        // It and those behind it are left out, or it is the only one that cannot answer.
        let drafts = segments.iter().filter(|segment| !segment.is_in_memory()).count();
        assert!(drafts == 1 || drafts == 3, "byte {at}");
        left_out += usize::from(drafts == 1);
        for (question, &expected) in questions.iter().zip(&expected) {
            let (mut count, mut missing) = (0, 0);
            for segment in &segments {
                match question.count(segment) {
                    Ok(answer) => count += answer.count,
                    Err(ArchiveError::Index { path: damaged, .. }) if damaged == path => {
                        missing += segment.note().records;
                    }
                    Err(error) => panic!("byte {at}: {error}"),
                }
            }
            said += usize::from(missing > 0);
            assert!(missing == 0 || drafts == 3, "byte {at}");
            assert!(count <= expected as u64 && expected as u64 <= count + missing, "byte {at}");
            assert!(missing > 0 || count == expected as u64, "byte {at}");
        }
    }
    assert!(left_out > 200 && said > 0, "{left_out}, {said}");
    // Nobody completes what somebody writes.
    let writer = File::options().write(true).open(growing.recording.unfinished_path()).unwrap();
    writer.lock().unwrap();
    let report = Repair::new(&growing.archive).run().unwrap();
    assert_eq!(report.removed, [path]);
    assert_eq!((growing.names().len(), growing.used()), (2, (1, 150)));
    growing.check(&SOME, "repaired");
}

#[test]
fn drafts_of_another_recording_are_not_used() {
    let ends = [150, 400, 900];
    let growing = Growing::with_drafts(1_000, 25, &ends);
    let other = Growing::with_drafts(1_000, 26, &ends);
    assert_eq!(growing.recording.name(), other.recording.name());
    // All of them, the first, or one behind those that are right.
    for foreign in [0..3_u32, 0..1, 1..2, 2..3, 1..3] {
        let used = foreign.start as usize;
        spoil(&growing, &ends, used, "of another", || {
            for part in foreign {
                fs::copy(other.draft(part), growing.draft(part)).unwrap();
            }
        });
    }
    // One that has the same packets at first.
    let mut fork = Whole::new(1_000, 25);
    let from = Whole::new(1_000, 26);
    let at = fork.written.places[300].start;
    fork.written.bytes.truncate(at);
    fork.written.packets.truncate(300);
    fork.written.places.truncate(300);
    fork.links.truncate(300);
    fork.interfaces.truncate(2);
    for n in 300..1_000 {
        let start = fork.written.bytes.len();
        let (time, wire_len, data) = &from.written.packets[n];
        let id = if from.links[n].0 == 101 { 1 } else { 0 };
        if from.links[n].0 == 113 {
            continue;
        }
        blocks::packet(&mut fork.written.bytes, id, *time, *wire_len, data);
        fork.written.places.push(start..fork.written.bytes.len());
        fork.written.packets.push((*time, *wire_len, data.clone()));
        fork.links.push(from.links[n]);
    }
    let mut fork = Growing::new(fork);
    fork.set_len(fork.whole.written.bytes.len());
    assert!(fork.packets() > 800);
    fs::create_dir(fork.drafts()).unwrap();
    for part in 0..3 {
        fs::copy(growing.draft(part), fork.draft(part)).unwrap();
    }
    assert_eq!(fork.used(), (1, 150));
    fork.check(&SOME, "a fork");
}

#[test]
fn a_recording_may_be_shorter_than_its_drafts() {
    let ends = [1, 150, 400, 900];
    let mut growing = Growing::with_drafts(1_000, 27, &ends);
    let places = growing.whole.written.places.clone();
    let head = places[0].start;
    let mut lens = vec![places[950].end, places[899].end, places[899].end - 1, places[500].end];
    lens.extend([places[400].start, places[400].start - 1, places[399].start, places[149].end]);
    lens.extend([places[149].end - 1, places[0].end, places[0].end - 1, head]);
    for len in lens {
        growing.set_len(len);
        let used = ends.iter().filter(|&&end| places[end - 1].end <= len).count();
        assert_eq!(growing.used().0, used, "{len}");
        growing.check(&SOME, &format!("{len} bytes"));
    }
    for len in [head - 1, 40, 3, 0] {
        growing.set_len(len);
        let (segments, failed) = growing.archive.segments().unwrap();
        assert_eq!((segments.len(), failed.len()), (0, 0), "{len}");
    }
    // It grows again, by the same bytes: they are of use again.
    growing.set_len(places[999].end);
    assert_eq!(growing.used().0, 4);
    // And by others.
    growing.set_len(places[300].start);
    let other = Written::new(500, 28);
    let from = other.places[0].start;
    let path = growing.recording.unfinished_path();
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(&other.bytes[from..other.places[499].end]);
    fs::write(&path, bytes).unwrap();
    assert_eq!(growing.used().0, 2);
    let expected = [&growing.whole.written.packets[..300], &other.packets].concat();
    assert!(ask(&growing.archive, &("", None, None)) == sorted(expected));
}

/// What is behind the last whole packet may be cut off, and something else written in its place.
#[test]
fn a_recording_may_go_on_otherwise() {
    let first = Written::new(200, 29);
    let second = Written::new(300, 30);
    let cut = first.places[150].clone();
    // With a packet of another length, and of the same.
    let same = second.places.iter().position(|place| place.len() == cut.len()).unwrap();
    let other = second.places.iter().position(|place| place.len() != cut.len()).unwrap();
    for half in [4, 8, 20, 28, 40, 70] {
        for from in [same, other] {
            let folder = tempfile::tempdir().unwrap();
            let archive = archive(folder.path());
            let recording = first.leave(&archive, cut.start + half);
            let mut drafter = Drafter::new(&archive, &recording).unwrap().unwrap();
            assert_eq!(drafter.write(&Disk).unwrap(), 150);
            let tail = &second.bytes[second.places[from].start..second.places[299].end];
            let bytes = [&first.bytes[..cut.start], tail].concat();
            fs::write(recording.unfinished_path(), bytes).unwrap();
            drop(drafter.write(&Disk));
            let expected = [&first.packets[..150], &second.packets[from..]].concat();
            assert!(sorted(all(&archive)) == sorted(expected), "{half} bytes");
            for segment in archive.segments().unwrap().0 {
                assert_eq!(
                    segment.compare(&mut |_| true).unwrap(),
                    Compared::default(),
                    "{half} bytes"
                );
            }
        }
    }
}

#[test]
fn drafts_may_be_no_folder() {
    let mut growing = Growing::new(Whole::new(500, 31));
    growing.set_len(growing.whole.written.places[400].end + 9);
    fs::write(growing.drafts(), "a file").unwrap();
    growing.check(&SOME, "a file");
    let archive = growing.archive.clone();
    let mut drafter = Drafter::new(&archive, &growing.recording).unwrap().unwrap();
    for _ in 0..2 {
        assert!(drafter.write(&Disk).is_err());
        assert_eq!(drafter.reached().1, 0);
    }
    growing.check(&SOME, "a file");
    assert_eq!(fs::read(growing.drafts()).unwrap(), b"a file");
    // When it is gone, all goes on.
    fs::remove_file(growing.drafts()).unwrap();
    assert_eq!(drafter.write(&Disk).unwrap(), 401);
    growing.check_both(&SOME, "a folder");
}

/// Repairs an archive that has something else among its drafts.
fn repair_beside(put: impl FnOnce(&Path)) -> Growing {
    let mut growing = Growing::new(Whole::new(500, 32));
    growing.set_len(growing.whole.written.places[400].end + 9);
    put(&growing.drafts());
    let report = Repair::new(&growing.archive).run().unwrap();
    assert_eq!((report.recovered.len(), report.captures.len()), (1, 1), "{report:?}");
    assert!(growing.recording.is_sealed());
    let (segments, failed) = growing.archive.segments().unwrap();
    assert!(failed.is_empty() && !segments.iter().any(|s| s.is_draft()));
    growing.check(&SOME, "repaired");
    growing
}

#[test]
fn repair_does_its_work_beside_a_file_instead_of_drafts() {
    let repaired = repair_beside(|drafts| fs::write(drafts, "a file").unwrap());
    assert_eq!(fs::read(repaired.drafts()).unwrap(), b"a file");
}

#[test]
fn repair_does_its_work_beside_folders_among_drafts() {
    // As there are on a disk of its own. They keep no draft from being removed.
    let repaired = repair_beside(|drafts| {
        for folder in ["lost+found/a", "zzz-0000.tdx/a"] {
            fs::create_dir_all(drafts.join(folder)).unwrap();
        }
        fs::write(drafts.join("rec-0000000000-x.pcapng-0000.tdx"), "of one that is gone").unwrap();
    });
    assert_eq!(repaired.names(), ["lost+found", "zzz-0000.tdx"]);
}

#[test]
fn drafts_are_found_from_everywhere() {
    let ends = [150, 400, 900];
    let growing = Growing::with_drafts(1_000, 33, &ends);
    let expected = growing.whole.plain(growing.packets(), &SOME[3]);
    let look = |path: &Path| {
        let archive = Archive::open(path).unwrap();
        let (segments, _) = archive.segments().unwrap();
        assert_eq!(segments.iter().filter(|segment| !segment.is_in_memory()).count(), 3);
        assert!(ask(&archive, &SOME[3]) == expected, "{}", path.display());
    };
    let from_here = |path: &Path| {
        let here = std::env::current_dir().unwrap();
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        up.join(path.strip_prefix("/").unwrap())
    };
    let folder = growing.folder.path().to_owned();
    let place = growing.archive.folder().to_owned();
    look(&place);
    look(&from_here(&place));
    look(&place.join("packets/..").join("."));
    let link = folder.join("link");
    std::os::unix::fs::symlink(&place, &link).unwrap();
    look(&link);
    look(&from_here(&link));
    // Moved, and drafts that were made through a relative path.
    let moved = folder.join("deep/er");
    fs::create_dir(folder.join("deep")).unwrap();
    fs::rename(&place, &moved).unwrap();
    look(&moved);
    look(&from_here(&moved));
    fs::remove_dir_all(moved.join("drafts")).unwrap();
    let archive = Archive::open(&from_here(&moved)).unwrap();
    let recording = archive.recordings().unwrap().pop().unwrap();
    for &end in &ends {
        let whole = &growing.whole.written;
        fs::write(recording.unfinished_path(), &whole.bytes[..whole.places[end - 1].end]).unwrap();
        // Each time another one, as recorders that come and go: the last one has all.
        let mut drafter = Drafter::new(&archive, &recording).unwrap().unwrap();
        assert_eq!(drafter.write(&Disk).unwrap(), end as u64);
    }
    fs::write(recording.unfinished_path(), &growing.whole.written.bytes[..growing.len]).unwrap();
    let back = folder.join("archive");
    fs::rename(&moved, &back).unwrap();
    let archive = Archive::open(&back).unwrap();
    let (segments, _) = archive.segments().unwrap();
    assert_eq!(segments.len(), 2);
    assert!(ask(&archive, &SOME[3]) == expected);
}

#[test]
fn folders_of_an_archive_may_be_links() {
    for name in ["packets", "segments", "drafts"] {
        for with_drafts in [true, false] {
            let growing = Growing::with_drafts(1_000, 33, &[150, 400, 900]);
            if !with_drafts {
                fs::remove_file(growing.draft(0)).unwrap();
            }
            let (place, disk) = (growing.archive.folder().join(name), tempfile::tempdir().unwrap());
            fs::rename(&place, disk.path().join("there")).unwrap();
            std::os::unix::fs::symlink(disk.path().join("there"), &place).unwrap();
            let (segments, _) = growing.archive.segments().unwrap();
            let gone = segments.iter().filter(|segment| segment.is_gone()).count();
            assert_eq!(gone, 0, "{name}, {with_drafts}");
            growing.check(&SOME, name);
        }
    }
}

/// Reads the packets of segments that were opened before.
fn read(segments: &[Arc<Segment>], filter: &str) -> Vec<Packet> {
    sorted(search_in(segments, &query(filter, None, None)))
}

#[test]
fn what_happens_during_a_search_changes_no_answer() {
    let mut growing = Growing::with_drafts(1_000, 34, &[150, 400, 900]);
    let (segments, failed) = growing.archive.segments().unwrap();
    assert!(failed.is_empty() && segments.len() == 4);
    let expected = SOME.map(|question| growing.whole.plain(growing.packets(), &question));
    let check = |what: &str| {
        assert!(!segments.iter().any(|s| s.is_gone()), "{what}");
        for (question, expected) in SOME.iter().zip(&expected) {
            assert!(read(&segments, question.0) == *expected, "{what}: {question:?}");
        }
    };
    check("it is as it was");
    growing.set_len(growing.whole.written.places[999].end);
    check("it grew");
    sealed(&growing.archive);
    check("it was completed");
    index(&growing.archive, &growing.recording, 300);
    assert_eq!(growing.names(), [""; 0]);
    check("it was indexed");
    assert_eq!(growing.archive.index_files().unwrap().len(), 4);
    growing.check(&SOME, "a new search");
}

#[test]
fn drafts_may_be_removed_during_a_search() {
    let growing = Growing::with_drafts(1_000, 39, &[150, 400, 900]);
    let (segments, _) = growing.archive.segments().unwrap();
    let expected = growing.whole.plain(growing.packets(), &SOME[3]);
    for part in 0..3 {
        fs::remove_file(growing.draft(part)).unwrap();
        assert!(read(&segments, SOME[3].0) == expected);
    }
    // By somebody who removes the folder, too.
    fs::remove_dir(growing.drafts()).unwrap();
    assert!(!segments.iter().any(|s| s.is_gone()));
    assert!(read(&segments, SOME[3].0) == expected);
}

#[test]
fn a_recording_that_is_removed_is_left_out() {
    let growing = Growing::with_drafts(1_000, 35, &[150, 400, 900]);
    let (segments, _) = growing.archive.segments().unwrap();
    fs::remove_file(growing.recording.unfinished_path()).unwrap();
    growing.archive.remove_drafts().unwrap();
    assert_eq!(growing.names(), [""; 0]);
    assert!(segments.iter().all(|s| s.is_gone()));
    assert!(all(&growing.archive).is_empty());
}

/// Retention removes packets first, and then the drafts.
#[test]
fn a_recording_that_is_being_removed_is_left_out() {
    let growing = Growing::with_drafts(1_000, 35, &[150, 400, 900]);
    let (segments, _) = growing.archive.segments().unwrap();
    fs::remove_file(growing.recording.unfinished_path()).unwrap();
    assert!(all(&growing.archive).is_empty());
    assert!(segments.iter().all(|s| s.is_gone()));
}

#[test]
fn follow_goes_on_behind_drafts() {
    let ends = [1, 150, 400, 700];
    let mut growing = Growing::with_drafts(1_000, 36, &ends);
    let Written { places, bytes, .. } = &growing.whole.written;
    let interfaces = &growing.whole.interfaces;
    let end = bytes.len();
    let mut lens = vec![places[699].end, places[699].end + 1, places[749].end, places[799].end];
    lens.extend([places[900].start + 50, interfaces[3].start, interfaces[3].end]);
    lens.extend([interfaces[3].end - 5, interfaces[3].end + 11, end - 1, end]);
    let question = query("", None, None);
    for with_drafts in [true, false] {
        for &len in &lens {
            growing.set_len(len);
            if !with_drafts {
                drop(fs::remove_dir_all(growing.drafts()));
            }
            let archive = growing.archive.clone();
            let (segments, _) = archive.segments().unwrap();
            let answered: u64 = segments.iter().map(|segment| segment.note().records).sum();
            assert_eq!(answered, growing.packets() as u64);
            let mut follow = Follow::after(&archive, &question, &segments);
            drop(segments);
            let mut numbers = Vec::new();
            let packets = growing.whole.written.packets.clone();
            let mut poll = |follow: &mut Follow<'_>| {
                let polled = follow.poll(&mut |fresh| {
                    let n = usize::try_from(fresh.number).unwrap();
                    let record = fresh.record;
                    let packet = (record.time_ns, record.wire_len, record.data.to_vec());
                    assert!(packet == packets[n], "{n}, from {len}");
                    numbers.push(fresh.number);
                    Ok(true)
                });
                polled.unwrap();
            };
            growing.set_len(len.midpoint(end));
            poll(&mut follow);
            growing.set_len(end);
            poll(&mut follow);
            poll(&mut follow);
            assert!(follow.missed().is_empty(), "{:?}", follow.missed());
            assert_eq!(numbers, Vec::from_iter(answered..1_000), "from {len}");
        }
    }
}

#[test]
fn drafts_that_nobody_needs_go() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written: Vec<Written> = (0..5).map(|n| Written::new(200, 40 + n)).collect();
    let recordings: Vec<Recording> = written.iter().map(|one| one.put(&archive)).collect();
    let open = written[0].leave(&archive, written[0].places[150].end);
    let draft = |recording: &Recording| {
        let mut drafter = Drafter::new(&archive, recording).unwrap().unwrap();
        drafter.write(&Disk).unwrap()
    };
    let names = || {
        let entries = folder.path().join("drafts").read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let name = |recording: &Recording| format!("{}-0000.tdx", recording.name());
    for recording in &recordings {
        assert_eq!(draft(recording), 200);
    }
    assert_eq!(draft(&open), 151);
    // A writer that was killed has left these.
    let hidden = |recording: &Recording| format!(".{}-0001.tdx.tmp", recording.name());
    for recording in [&recordings[1], &recordings[3], &open] {
        fs::write(folder.path().join("drafts").join(hidden(recording)), "a part").unwrap();
    }
    assert_eq!(names().len(), 9);
    // All are needed but those of one that is gone.
    fs::remove_file(recordings[0].sealed_path()).unwrap();
    archive.remove_drafts().unwrap();
    assert_eq!(names().len(), 8);
    assert!(!names().contains(&name(&recordings[0])));
    // Indexing one removes its drafts, and no others.
    index(&archive, &recordings[1], 90);
    let left = [&recordings[2], &recordings[3], &recordings[4], &open];
    let mut expected: Vec<String> = left.map(name).into();
    expected.extend([&recordings[3], &open].map(hidden));
    expected.sort();
    assert_eq!(names(), expected);
    // What was removed by somebody, and one that somebody writes.
    let found = all(&archive);
    assert_eq!(found.len(), 4 * 200 + 151);
    let writer = File::options().write(true).open(open.unfinished_path()).unwrap();
    writer.lock().unwrap();
    fs::remove_file(recordings[2].sealed_path()).unwrap();
    let report = Repair::new(&archive).run().unwrap();
    assert_eq!((report.captures.len(), report.left.len()), (2, 0), "{report:?}");
    assert_eq!(names(), [name(&open)]);
    assert_eq!(all(&archive).len(), 3 * 200 + 151);
    drop(writer);
    Repair::new(&archive).run().unwrap();
    assert_eq!(names(), [""; 0]);
    assert_eq!(all(&archive).len(), 3 * 200 + 151);
}

#[test]
fn repair_leaves_no_draft_of_a_recording_that_it_removes() {
    // Packets that were not synced are gone after a loss of power, drafts were synced.
    let mut growing = Growing::with_drafts(1_000, 37, &[150, 400]);
    growing.set_len(10);
    let report = Repair::new(&growing.archive).run().unwrap();
    assert_eq!((report.recovered.len(), report.recovered[0].packets), (1, 0));
    assert!(growing.archive.recordings().unwrap().is_empty());
    assert_eq!(growing.names(), [""; 0]);
}

#[test]
fn a_draft_does_not_make_an_archive_again() {
    let mut growing = Growing::new(Whole::new(500, 38));
    growing.set_len(growing.whole.written.places[400].end);
    let archive = growing.archive.clone();
    let mut drafter = Drafter::new(&archive, &growing.recording).unwrap().unwrap();
    assert_eq!(drafter.write(&Disk).unwrap(), 401);
    growing.set_len(growing.whole.written.places[450].end);
    // The file is still open.
    fs::remove_dir_all(archive.folder()).unwrap();
    assert!(drafter.write(&Disk).is_err());
    assert!(!archive.folder().exists());
}
