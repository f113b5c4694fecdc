//! The audit log: what is in it, and what is found out about one that was changed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod place;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use place::{NOW, Place, SECOND, far};
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tapdex_engine::time::TimeRange;
use tapdex_server::audit::{Audit, AuditError, Entry, Question, Report, Why, verify, verify_with};
use tapdex_server::door::{Door, WhenEmpty};
use tapdex_server::state::State;

const LOG: &str = "audit.jsonl";
const HEAD: &str = "audit.head";

impl Place {
    fn audit(&self) -> Audit {
        Audit::open(&self.state, NOW).unwrap()
    }

    /// A log of so many lines.
    fn logged(lines: u64) -> Self {
        let place = Self::new();
        let audit = place.audit();
        for n in 1..=lines {
            assert_eq!(audit.append(&entry(n), NOW + n * SECOND).unwrap(), n);
        }
        place
    }

    fn log(&self) -> PathBuf {
        self.path(LOG)
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.log()).unwrap().lines().map(str::to_owned).collect()
    }

    fn set_lines(&self, lines: &[String]) {
        fs::write(self.log(), lines.concat_lines()).unwrap();
    }

    fn report(&self) -> Report {
        verify(&self.log()).unwrap()
    }

    #[track_caller]
    fn sound(&self) -> Report {
        let report = self.report();
        assert_eq!(report.wrong, None);
        report
    }

    /// On which line something is wrong, and what; no line if it is the end.
    #[track_caller]
    fn wrong(&self) -> (Option<u64>, Why) {
        let wrong = self.report().wrong.unwrap();
        (wrong.line, wrong.why)
    }
}

trait Lines {
    fn concat_lines(&self) -> String;
}

impl Lines for [String] {
    fn concat_lines(&self) -> String {
        self.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn entry(n: u64) -> Entry {
    let question = Question { filter: format!("port {n}"), ..Question::default() };
    let times = TimeRange { from_ns: NOW, to_ns: None };
    Entry {
        who: "soc".to_owned(),
        question: Some(question.forced(&format!("(net 10.0.0.0/8) and (port {n})"), times)),
        packets: Some(n),
        ..Entry::stranger(far(), "extract", "done")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line with the hash that belongs to its text, as somebody makes it who knows how.
fn rehashed(line: &str) -> String {
    let (text, _) = line.rsplit_once(",\"hash\":").unwrap();
    format!("{text},\"hash\":\"{}\"}}", hex(&Sha256::digest(text)))
}

#[test]
fn a_line_says_who_asked_what_and_what_was_given() {
    let place = Place::new();
    place.write("roles.toml", "[role.dmz]\nmay = 'extract'\n");
    let (id, token) = place.add("soc", "dmz");
    let door = Door::open(&place.state, WhenEmpty::Locked).unwrap();
    let identity = door.admit(Some(&token), None, far(), NOW).unwrap();
    let times = TimeRange { from_ns: NOW - SECOND, to_ns: Some(NOW) };
    let question = Question {
        filter: "port 53".to_owned(),
        from: Some("-1h".to_owned()),
        ..Question::default()
    };
    let audit = place.audit();
    audit.append(&Entry::new(&identity, "extract", "started"), NOW).unwrap();
    let done = Entry {
        question: Some(question.forced("(net 10.2.0.0/16) and (port 53)", times)),
        reason: Some("ticket 17".to_owned()),
        packets: Some(12),
        bytes: Some(3_456),
        sha256: Some("ab".repeat(32)),
        complete: Some(true),
        ..Entry::new(&identity, "extract", "done")
    };
    audit.append(&done, NOW + SECOND).unwrap();
    let lines = place.lines();
    let value: Value = serde_json::from_str(&lines[1]).unwrap();
    let expected = serde_json::json!({
        "seq": 2, "time": "2027-01-15T08:00:01.000000000Z",
        "who": "soc", "token": id.to_string(), "role": "dmz", "from": "10.0.0.9:5000",
        "what": "extract",
        "question": {
            "filter": "port 53", "from": "-1h",
            "forced_filter": "(net 10.2.0.0/16) and (port 53)",
            "forced_from": "2027-01-15T07:59:59.000000000Z",
            "forced_to": "2027-01-15T08:00:00.000000000Z",
        },
        "reason": "ticket 17", "packets": 12, "bytes": 3456, "sha256": "ab".repeat(32),
        "complete": true, "outcome": "done",
        "prev": serde_json::from_str::<Value>(&lines[0]).unwrap()["hash"],
        "hash": value["hash"],
    });
    assert_eq!(value, expected);
    assert_eq!(audit.last(), (2, value["hash"].as_str().unwrap().to_owned()));
    // The scheme of the documentation, by another implementation.
    for line in &lines {
        assert_eq!(&rehashed(line), line);
    }
    assert!(lines[0].ends_with(&format!(
        "{}\"}}",
        &rehashed(&lines[0])[lines[0].len() - 66..lines[0].len() - 2]
    )));
    assert!(lines[0].contains(&format!("\"prev\":\"{}\"", "0".repeat(64))));
    let secret = token.rsplit_once('_').unwrap().1;
    assert!(!lines.concat().contains(&secret[..16]));
    let report = place.sound();
    assert_eq!((report.lines, report.torn, report.unfinished), (2, 0, false));
    assert_eq!(report.last, Some(audit.last()));
}

#[test]
fn what_clients_send_cannot_break_a_line_or_a_terminal() {
    let place = Place::new();
    let audit = place.audit();
    let evil = "a\nb\r\u{1b}[2J\u{7f}\u{9b}\u{85}\u{2028}\",\"hash\":\"x\"}\\";
    let long = "x".repeat(9 << 20);
    for text in [evil, &long, &"\u{e9}".repeat(5_000), &"\u{1}".repeat(4_096)] {
        let question = Question {
            filter: text.to_owned(),
            from: Some(text.to_owned()),
            to: Some(text.to_owned()),
            ..Question::default()
        };
        let entry = Entry {
            reason: Some(text.to_owned()),
            question: Some(question),
            ..Entry::stranger(far(), text, "refused")
        };
        audit.append(&entry, NOW).unwrap();
    }
    let text = fs::read_to_string(place.log()).unwrap();
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()));
    assert!(text.len() < 300_000 && text.lines().count() == 4);
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["reason"].as_str().unwrap(), evil);
    let second: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    let expected = format!(".. (9437184 bytes, SHA-256 {})", hex(&Sha256::digest(&long)));
    assert!(second["reason"].as_str().unwrap().ends_with(&expected));
    place.sound();
    audit.append(&entry(1), NOW).unwrap();
    place.sound();
}

#[test]
fn any_byte_that_is_changed_is_found_in_its_line() {
    let place = Place::logged(4);
    let good = fs::read(place.log()).unwrap();
    let head = fs::read(place.path(HEAD)).unwrap();
    let line_of = |at: usize| 1 + good[..at].iter().filter(|&&byte| byte == b'\n').count() as u64;
    for at in 0..good.len() {
        for change in [1, 0x20] {
            let mut bytes = good.clone();
            bytes[at] ^= change;
            fs::write(place.log(), &bytes).unwrap();
            let (line, why) = place.wrong();
            let is_last_end = at == good.len() - 1;
            assert!(line == Some(line_of(at)) || is_last_end, "byte {at}: {line:?} {why}");
        }
    }
    fs::write(place.log(), &good).unwrap();
    for at in 0..head.len() {
        for change in [1, 0x10] {
            let mut bytes = head.clone();
            bytes[at] ^= change;
            fs::write(place.path(HEAD), &bytes).unwrap();
            assert_eq!(place.wrong().0, None, "byte {at} of the head");
        }
    }
    fs::write(place.path(HEAD), &head).unwrap();
    assert_eq!(place.sound().lines, 4);
}

#[test]
fn lines_that_are_edited_removed_swapped_or_inserted_are_found() {
    let place = Place::logged(6);
    let good = place.lines();
    let number = |index: usize| index as u64 + 1;
    for at in 0..good.len() {
        let seq = number(at);
        // Edited by somebody who does not know of the hash, and by somebody who does.
        let mut lines = good.clone();
        lines[at] = lines[at].replace("\"who\":\"soc\"", "\"who\":\"sod\"");
        assert_ne!(lines[at], good[at]);
        place.set_lines(&lines);
        assert_eq!(place.wrong(), (Some(seq), Why::Edited));
        lines[at] = rehashed(&lines[at]);
        place.set_lines(&lines);
        let last = at + 1 == good.len();
        let expected = match last {
            true => (None, Why::HeadDiffers { seq: 6 }),
            false => (Some(seq + 1), Why::Chain),
        };
        assert_eq!(place.wrong(), expected);
        // Removed.
        let mut lines = good.clone();
        lines.remove(at);
        place.set_lines(&lines);
        let expected = match last {
            true => (None, Why::Cut { seq: 6, found: 5 }),
            false => (Some(seq), Why::Removed { expected: seq, found: seq + 1 }),
        };
        assert_eq!(place.wrong(), expected);
        // Emptied.
        let mut lines = good.clone();
        lines[at] = String::new();
        place.set_lines(&lines);
        assert_eq!(place.wrong().0, Some(seq));
        // Swapped with each of the others.
        for other in at + 1..good.len() {
            let mut lines = good.clone();
            lines.swap(at, other);
            place.set_lines(&lines);
            let expected = Why::Removed { expected: seq, found: number(other) };
            assert_eq!(place.wrong(), (Some(seq), expected));
        }
        // A copy of each line in each place, and something else.
        for copied in 0..good.len() {
            let mut lines = good.clone();
            lines.insert(at, good[copied].clone());
            place.set_lines(&lines);
            assert!(place.report().wrong.is_some(), "{copied} before {at}");
        }
        for inserted in ["", "{}", "garbage", &rehashed("{\"seq\":1,\"hash\":\"\"}")] {
            let mut lines = good.clone();
            lines.insert(at, inserted.to_owned());
            place.set_lines(&lines);
            assert_eq!(place.wrong().0, Some(seq), "{inserted}");
        }
    }
    let mut lines = good.clone();
    lines.push(good[0].clone());
    place.set_lines(&lines);
    assert_eq!(place.wrong(), (Some(7), Why::Inserted { expected: 7, found: 1 }));
    place.set_lines(&good);
    place.sound();
}

#[test]
fn a_cut_is_found_wherever_it_is() {
    let place = Place::logged(4);
    let good = fs::read(place.log()).unwrap();
    for len in 0..good.len() {
        fs::write(place.log(), &good[..len]).unwrap();
        let found = good[..len].iter().filter(|&&byte| byte == b'\n').count() as u64;
        assert_eq!(place.wrong(), (None, Why::Cut { seq: 4, found }), "{len} bytes");
        let error = Audit::open(&place.state, NOW).unwrap_err();
        assert!(matches!(error, AuditError::Changed { .. }), "{len} bytes: {error}");
    }
    fs::remove_file(place.log()).unwrap();
    assert_eq!(place.wrong(), (None, Why::Cut { seq: 4, found: 0 }));
    assert!(matches!(Audit::open(&place.state, NOW), Err(AuditError::Changed { .. })));
    assert!(!place.log().exists());
    fs::write(place.log(), &good).unwrap();
    assert_eq!(place.audit().append(&entry(5), NOW).unwrap(), 5);
}

#[test]
fn a_log_needs_its_own_head() {
    let place = Place::logged(3);
    let head = fs::read(place.path(HEAD)).unwrap();
    let opened = || Audit::open(&place.state, NOW).map(drop);
    let changed = |what: &str| {
        let error = opened().unwrap_err();
        assert!(matches!(error, AuditError::Changed { .. }), "{what}: {error}");
        assert!(error.to_string().contains("tapdex audit verify"), "{error}");
    };
    fs::remove_file(place.path(HEAD)).unwrap();
    assert_eq!(place.wrong(), (None, Why::NoHead));
    changed("no head");
    // Of the log when it was shorter, and when it was empty.
    for lines in 0..3 {
        fs::copy(Place::logged(lines).path(HEAD), place.path(HEAD)).unwrap();
        assert_eq!(place.wrong(), (None, Why::Behind { seq: lines }));
        changed("an older head");
    }
    // Of a log that is longer, and of another of the same length.
    let other = Place::new();
    let audit = other.audit();
    for _ in 0..3 {
        audit.append(&entry(9), NOW).unwrap();
    }
    fs::copy(other.path(HEAD), place.path(HEAD)).unwrap();
    assert_eq!(place.wrong(), (None, Why::HeadDiffers { seq: 3 }));
    changed("another head");
    for text in ["", "{}", "\n", "{\"seq\":3}"] {
        fs::write(place.path(HEAD), text).unwrap();
        assert_eq!(place.wrong(), (None, Why::BadHead), "{text}");
        changed("a bad head");
    }
    fs::write(place.path(HEAD), &head).unwrap();
    opened().unwrap();
}

/// The text of a head, by another implementation: a log of so many lines and bytes, behind which
/// lines with these hashes are written, until it has `most` bytes.
fn head_text(seq: usize, hash: &str, bytes: usize, next: &[&str], most: usize) -> String {
    let next: Vec<&str> = next.iter().map(|hash| &hash[..32]).collect();
    let check = format!("{seq} {hash} {bytes} {} {most}", next.join(","));
    let check = &hex(&Sha256::digest(check))[..16];
    let next = serde_json::to_string(&next).unwrap();
    let end = format!(r#""seq":{seq},"hash":"{hash}","bytes":{bytes}"#);
    let head = format!(r#"{{{end},"next":{next},"most":{most},"check":"{check}"}}"#);
    format!("{head:<511}\n")
}

/// The hash of a line.
fn hash_of(line: &str) -> &str {
    line.rsplit('"').nth(1).unwrap()
}

/// The head of a log while all but the first `complete` of these lines are being written.
fn announcing(lines: &[String], complete: usize) -> String {
    let (before, next) = lines.split_at(complete);
    let hash = before.last().map_or("0".repeat(64), |line| hash_of(line).to_owned());
    let next: Vec<&str> = next.iter().map(|line| hash_of(line)).collect();
    let (bytes, most) = (before.concat_lines().len(), lines.concat_lines().len());
    head_text(complete, &hash, bytes, &next, most)
}

/// A log of so many lines whose server was killed while it wrote more of them.
struct Killed {
    place: Place,
    /// All lines that there would be.
    all: Vec<String>,
    /// What was in the log, and what was to be written.
    before: Vec<u8>,
    next: Vec<u8>,
    head: String,
}

impl Killed {
    fn new(lines: u64, more: u64) -> Self {
        let place = Place::logged(lines + more);
        let all = place.lines();
        let complete = usize::try_from(lines).unwrap();
        let before = all[..complete].concat_lines().into_bytes();
        let next = all[complete..].concat_lines().into_bytes();
        let head = announcing(&all, complete);
        let killed = Self { place, all, before, next, head };
        killed.leave(killed.next.len());
        killed
    }

    /// Leaves so many bytes of what was to be written.
    fn leave(&self, written: usize) {
        self.leave_bytes(&self.next[..written]);
    }

    fn leave_bytes(&self, bytes: &[u8]) {
        fs::write(self.place.log(), [&self.before, bytes].concat()).unwrap();
        fs::write(self.place.path(HEAD), &self.head).unwrap();
    }
}

#[test]
fn heads_are_as_they_are_described() {
    let place = Place::new();
    for lines in 0..4 {
        let found = place.audit();
        if lines > 0 {
            found.append(&entry(lines), NOW).unwrap();
        }
        drop(found);
        let all = place.lines();
        let expected = announcing(&all, all.len());
        assert_eq!(fs::read_to_string(place.path(HEAD)).unwrap(), expected);
    }
}

#[test]
fn a_crash_is_no_tampering() {
    for (lines, more) in [(0, 1), (3, 1), (2, 3)] {
        let killed = Killed::new(lines, more);
        let place = &killed.place;
        for written in 0..=killed.next.len() {
            killed.leave(written);
            let left = &killed.next[..written];
            let report = place.sound();
            let whole = left.iter().filter(|&&byte| byte == b'\n').count() as u64;
            assert_eq!(report.unfinished, written > 0 && !left.ends_with(b"\n"));
            assert_eq!(report.lines, lines + whole);
            let audit = place.audit();
            // All of it but the end of the line is all of it.
            let is_ended = killed.next.get(written).is_none_or(|&byte| byte == b'\n');
            let whole = whole + u64::from(is_ended && !left.ends_with(b"\n"));
            let torn = left.rsplit(|&byte| byte == b'\n').next().unwrap();
            let is_torn = !torn.is_empty() && !is_ended;
            let found = lines + whole + u64::from(is_torn);
            assert_eq!(audit.last().0, found, "{written} bytes");
            assert_eq!(audit.append(&entry(7), NOW).unwrap(), found + 1);
            drop(audit);
            let report = place.sound();
            assert_eq!((report.lines, report.unfinished), (found + 1, false));
            assert_eq!(report.torn, u64::from(is_torn), "{written} bytes");
            if is_torn {
                let marked = &place.lines()[usize::try_from(found).unwrap()];
                let marked: Value = serde_json::from_str(marked).unwrap();
                assert_eq!(
                    (&marked["what"], &marked["torn"]["bytes"]),
                    (&"torn".into(), &torn.len().into())
                );
            }
        }
    }
}

#[test]
fn a_crash_while_a_torn_line_is_marked_is_no_tampering_either() {
    let killed = Killed::new(2, 3);
    let place = &killed.place;
    let first = killed.next.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    // Without a whole line before it, and with one.
    for left in [50, first + 50] {
        killed.leave(left);
        drop(place.audit());
        let lines = place.lines();
        let taken = lines.len() - 2;
        let after = fs::read(place.log()).unwrap();
        let bytes = lines[..taken].concat_lines().len();
        let marker = lines.last().unwrap();
        let hash = hash_of(&lines[taken - 1]);
        let head = head_text(taken, hash, bytes, &[hash_of(marker)], after.len());
        for len in killed.before.len() + left..=after.len() {
            fs::write(place.log(), &after[..len]).unwrap();
            fs::write(place.path(HEAD), &head).unwrap();
            place.sound();
            let audit = place.audit();
            let seq = taken as u64 + 2;
            assert_eq!(audit.append(&entry(9), NOW).unwrap(), seq, "{len} bytes");
            drop(audit);
            let report = place.sound();
            assert_eq!((report.torn, report.lines), (1, seq), "{len} bytes");
        }
    }
}

/// A loss of power may leave any of the bytes that were being written, and zeros for the others.
#[test]
fn a_loss_of_power_is_no_tampering() {
    let killed = Killed::new(2, 3);
    let place = &killed.place;
    let len = killed.next.len();
    for kept in [0..0, 0..100, 100..len, len / 2..len, len - 1..len, 200..300] {
        let mut left = vec![0; len];
        left[kept.clone()].copy_from_slice(&killed.next[kept.clone()]);
        killed.leave_bytes(&left);
        assert!(place.sound().unfinished, "{kept:?}");
        let audit = place.audit();
        audit.append(&entry(9), NOW).unwrap();
        drop(audit);
        assert_eq!(place.sound().torn, 1, "{kept:?}");
    }
}

#[test]
fn a_torn_line_cannot_be_edited_afterwards() {
    let killed = Killed::new(2, 1);
    killed.leave(50);
    let place = killed.place;
    drop(place.audit());
    let good = fs::read(place.log()).unwrap();
    let start = good.len() - place.lines().last().unwrap().len() - 1 - 51;
    for at in start..good.len() - 1 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        fs::write(place.log(), bytes).unwrap();
        let (line, why) = place.wrong();
        assert!(line == Some(3) || line == Some(4), "byte {at}: {line:?} {why}");
    }
    // Nor removed, with or without what tells of it.
    fs::write(place.log(), &good).unwrap();
    let lines = place.lines();
    let without = |removed: &[usize]| {
        let kept = lines.iter().enumerate().filter(|(at, _)| !removed.contains(at));
        place.set_lines(&kept.map(|(_, line)| line.clone()).collect::<Vec<_>>());
        place.wrong()
    };
    assert_eq!(without(&[2]), (Some(3), Why::Torn));
    assert_eq!(without(&[3]).0, Some(3));
    assert_eq!(without(&[2, 3]), (None, Why::Cut { seq: 3, found: 2 }));
}

/// Neither whoever looks nor whoever starts the server takes it for the work of a crash.
#[track_caller]
fn is_refused(place: &Place, what: &str) {
    let kept = fs::read(place.log()).unwrap();
    assert!(place.report().wrong.is_some(), "{what}");
    let error = Audit::open(&place.state, NOW).unwrap_err();
    assert!(matches!(error, AuditError::Changed { .. }), "{what}: {error}");
    assert_eq!(fs::read(place.log()).unwrap(), kept, "evidence stays as it is: {what}");
}

#[test]
fn what_others_append_is_no_crash() {
    let place = Place::logged(3);
    let good = fs::read(place.log()).unwrap();
    let longer = Place::logged(5).lines();
    let next = format!("{}\n", longer[3]).into_bytes();
    let huge = [b"x".repeat(1_000_000), b"\n".to_vec()].concat();
    for (what, appended) in [
        ("a byte", b"x".as_slice()),
        ("the end of a line", b"\n"),
        ("half a line", b"{\"seq\":4,"),
        ("the line that would be next", &next),
        ("two lines", longer[3..].concat_lines().as_bytes()),
        ("a copy", format!("{}\n", longer[0]).as_bytes()),
        ("very much", &huge),
    ] {
        fs::write(place.log(), [good.as_slice(), appended].concat()).unwrap();
        is_refused(&place, what);
    }
    fs::write(place.log(), &good).unwrap();
    place.audit();
}

#[test]
fn a_crash_does_not_excuse_lines_of_others() {
    let killed = Killed::new(3, 3);
    let place = &killed.place;
    let own = &killed.all[3..];
    // A line that follows, as somebody makes it who knows how.
    let forged = |before: &str| {
        let line = own[0].replace("port 4", "port 5");
        let (text, rest) = line.split_once("\"prev\":\"").unwrap();
        rehashed(&format!("{text}\"prev\":\"{}{}", hash_of(before), &rest[64..]))
    };
    let forged = forged(&killed.all[2]);
    assert_eq!(forged.len(), own[0].len());
    let half = &own[0][..50];
    for (what, left) in [
        ("another next line", format!("{forged}\n")),
        ("the same without its end", forged.clone()),
        ("another behind half of ours", format!("{half}\n{forged}\n")),
        ("another before half of ours", format!("{forged}\n{half}")),
        ("an old one", format!("{}\n", killed.all[0])),
        ("ours, and an old one", format!("{}\n{}\n", own[0], killed.all[1])),
        ("ours, and one byte more", format!("{}x", own.concat_lines())),
        ("more than was to be written", "x".repeat(killed.next.len() + 1)),
    ] {
        killed.leave_bytes(left.as_bytes());
        is_refused(place, what);
    }
    // What was complete before is still compared with the head.
    for at in 0..killed.before.len() {
        killed.leave(100);
        let mut bytes = fs::read(place.log()).unwrap();
        bytes[at] ^= 1;
        fs::write(place.log(), &bytes).unwrap();
        assert!(place.report().wrong.is_some(), "byte {at}");
        fs::write(place.log(), &bytes[..at]).unwrap();
        assert!(place.report().wrong.is_some(), "cut at byte {at}");
    }
    // A head of another crash is of no use.
    let other = Killed::new(2, 1);
    killed.leave(killed.next.len());
    fs::write(place.path(HEAD), &other.head).unwrap();
    is_refused(place, "an older head");
}

#[test]
fn a_process_that_is_killed_leaves_all_that_it_has_promised() {
    const NAME: &str = "a_process_that_is_killed_leaves_all_that_it_has_promised";
    const WRITERS: u64 = 6;
    if let Ok(path) = std::env::var("TEST_STATE") {
        let audit = Audit::open(&State::open(Path::new(&path)).unwrap(), NOW).unwrap();
        let promises = Path::new(&path).join("promises");
        let promises = fs::File::options().append(true).create(true).open(promises).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    loop {
                        let line = audit.append(&entry(1), NOW).unwrap();
                        // In one piece, so that promises of several threads do not mix.
                        (&promises).write_all(&line.to_le_bytes()).unwrap();
                    }
                });
            }
        });
        return;
    }
    let place = Place::new();
    let mut lines = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--test-threads=1", "--quiet"])
            .env("TEST_STATE", place.state.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Until it has written something, and then a bit more.
        let promises = || fs::read(place.path("promises")).unwrap_or_default();
        let before = promises().len();
        while promises().len() == before {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_micros(997 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let promised = promises();
        let promised = promised.chunks_exact(8).map(|n| u64::from_le_bytes(n.try_into().unwrap()));
        let report = place.sound();
        assert!(report.lines >= promised.max().unwrap() && report.lines > lines);
        lines = place.audit().append(&entry(1), NOW).unwrap();
        assert_eq!(place.sound().lines, lines);
    }
}

#[test]
fn whoever_is_refused_cannot_fill_the_log() {
    let place = Place::new();
    let audit = place.audit();
    let refused = Entry::stranger(far(), "door", "refused");
    let append = |now| audit.append_refusal(&refused, now).unwrap();
    let written = (0..1_000).filter(|_| append(NOW).is_some()).count();
    assert_eq!((written, audit.last().0), (60, 60));
    assert_eq!(append(NOW + 60 * SECOND - 1), None);
    // What is given out is written down meanwhile.
    assert_eq!(audit.append(&entry(1), NOW).unwrap(), 61);
    // The next minute tells of those before, once; so does a clock that was set back.
    assert_eq!(append(NOW + 60 * SECOND), Some(62));
    assert_eq!(append(NOW + 60 * SECOND), Some(63));
    assert_eq!(append(NOW - 60 * SECOND), Some(64));
    let lines = place.lines();
    let left_out = |line: u64| {
        let line = &lines[usize::try_from(line - 1).unwrap()];
        serde_json::from_str::<Value>(line).unwrap()["left_out"].as_u64()
    };
    assert_eq!((left_out(1), left_out(60)), (None, None));
    assert_eq!((left_out(62), left_out(63)), (Some(941), None));
    place.sound();
}

#[test]
fn one_server_writes_a_log() {
    let place = Place::new();
    let audit = place.audit();
    assert!(matches!(Audit::open(&place.state, NOW), Err(AuditError::Busy { .. })));
    let again = State::open(place.state.path()).unwrap();
    assert!(matches!(Audit::open(&again, NOW), Err(AuditError::Busy { .. })));
    audit.append(&entry(1), NOW).unwrap();
    drop(audit);
    assert_eq!(Audit::open(&again, NOW).unwrap().append(&entry(2), NOW).unwrap(), 2);
}

#[test]
fn threads_append_one_after_the_other_while_others_verify() {
    const LINES: u64 = 60;
    let place = Place::new();
    let audit = place.audit();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let mut checks = 0;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(place.report().wrong, None);
                checks += 1;
            }
            checks
        });
        let append = || {
            for n in 0..LINES {
                let line = audit.append(&entry(n), NOW).unwrap();
                // By then others can see it.
                assert!(place.report().lines >= line && audit.last().0 >= line);
            }
        };
        let writers: Vec<_> = (0..3).map(|_| scope.spawn(append)).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        assert!(checks.join().unwrap() > 0);
    });
    assert_eq!(place.sound().lines, 3 * LINES);
    let [lines, batches] = audit.written();
    assert!(lines == 3 * LINES && (LINES..=lines).contains(&batches), "{batches}");
}

#[test]
fn files_are_private_and_links_are_refused() {
    let place = Place::logged(1);
    for name in [LOG, HEAD] {
        let path = place.path(name);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let kept = place.folder.path().join("kept");
        fs::rename(&path, &kept).unwrap();
        symlink(&kept, &path).unwrap();
        let before = fs::read(&kept).unwrap();
        assert!(Audit::open(&place.state, NOW).is_err(), "{name}");
        assert!(verify(&place.log()).is_err(), "{name}");
        assert_eq!(fs::read(&kept).unwrap(), before);
        fs::remove_file(&path).unwrap();
        // A second name is a way for others to change it.
        fs::hard_link(&kept, &path).unwrap();
        assert!(Audit::open(&place.state, NOW).is_err(), "{name}");
        fs::remove_file(&kept).unwrap();
    }
    place.audit();
}

/// What a file may have at most in the child, in blocks of 512 bytes.
const BLOCKS: u64 = 8;

#[test]
fn a_full_disk_is_an_error_and_leaves_a_sound_log() {
    const NAME: &str = "a_full_disk_is_an_error_and_leaves_a_sound_log";
    if let Ok(path) = std::env::var("TEST_STATE") {
        // Here files cannot grow beyond the limit.
        let audit = Audit::open(&State::open(Path::new(&path)).unwrap(), NOW).unwrap();
        let mut written = 0;
        let error = loop {
            match audit.append(&entry(written), NOW) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AuditError::Write { .. }), "{error}");
        assert!(audit.append(&entry(0), NOW).is_err());
        assert_eq!(audit.last().0, written);
        fs::write(Path::new(&path).join("written"), written.to_string()).unwrap();
        return;
    }
    let place = Place::new();
    // A process that writes too much is sent SIGXFSZ, unless that is ignored.
    let script = format!("trap '' XFSZ; ulimit -f {BLOCKS}; exec \"$0\" \"$@\"");
    let status = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--test-threads=1", "--quiet"])
        .env("TEST_STATE", place.state.path())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let written: u64 = fs::read_to_string(place.path("written")).unwrap().parse().unwrap();
    assert!((3..100).contains(&written), "{written}");
    let report = place.sound();
    assert_eq!((report.lines, report.unfinished), (written, false));
    assert_eq!(place.audit().append(&entry(1), NOW).unwrap(), written + 1);
    place.sound();
}

#[test]
fn an_earlier_line_can_be_asked_for() {
    let place = Place::logged(5);
    let hash = |index: usize| {
        let value: Value = serde_json::from_str(&place.lines()[index]).unwrap();
        value["hash"].as_str().unwrap().to_owned()
    };
    let report = verify_with(&place.log(), &[2, 5, 6]).unwrap();
    assert_eq!(report.hash_of(2), Some(hash(1).as_str()));
    assert_eq!(report.hash_of(5), Some(hash(4).as_str()));
    assert_eq!((report.hash_of(6), report.hash_of(1)), (None, None));
}

#[test]
fn a_whole_log_that_was_made_up_lacks_the_hash_that_was_kept() {
    let place = Place::logged(4);
    let (_, kept) = place.sound().last.unwrap();
    let mut lines = place.lines();
    lines[1] = lines[1].replace("port 2", "port 9");
    for at in 1..lines.len() {
        let before = hash_of(&lines[at - 1]).to_owned();
        let (text, rest) = lines[at].split_once("\"prev\":\"").unwrap();
        lines[at] = rehashed(&format!("{text}\"prev\":\"{before}{}", &rest[64..]));
    }
    place.set_lines(&lines);
    assert_eq!(place.wrong(), (None, Why::HeadDiffers { seq: 4 }));
    // With a head of that log nothing is wrong in itself.
    let hash = hash_of(&lines[3]);
    fs::write(place.path(HEAD), announcing(&lines, 4)).unwrap();
    place.sound();
    let report = verify_with(&place.log(), &[4]).unwrap();
    assert_eq!(report.hash_of(4), Some(hash));
    assert_ne!(report.hash_of(4), Some(kept.as_str()));
}

#[test]
fn an_empty_log_is_sound_and_none_is_an_error() {
    let place = Place::logged(0);
    let report = place.sound();
    assert_eq!((report.lines, report.last), (0, None));
    let nothing = Place::new();
    assert!(matches!(verify(&nothing.log()), Err(AuditError::Read { .. })));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,20}",
        "[\\x00-\\x1f\\x7f-\\u{a0}\"\\\\]{0,10}",
        Just(",\"hash\":\"".to_owned())
    ]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = (text(), text(), text(), proptest::option::of(text()), any::<Option<u64>>());
    let one = one.prop_map(|(who, what, filter, reason, packets)| Entry {
        who,
        question: Some(Question { filter, ..Question::default() }),
        reason,
        packets,
        ..Entry::stranger(far(), &what, "done")
    });
    proptest::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_entries_make_a_sound_log_and_any_change_is_found(
        entries in entries(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let place = Place::new();
        let audit = place.audit();
        for entry in &entries {
            audit.append(entry, NOW).unwrap();
        }
        drop(audit);
        let report = place.report();
        prop_assert_eq!((&report.wrong, report.lines), (&None, entries.len() as u64));
        for (line, entry) in place.lines().iter().zip(&entries) {
            let value: Value = serde_json::from_str(line).unwrap();
            prop_assert_eq!(value["who"].as_str().unwrap(), entry.who.as_str());
            prop_assert!(!line.contains(char::is_control));
        }
        let good = fs::read(place.log()).unwrap();
        let mut bytes = good.clone();
        let at = at.index(bytes.len());
        if bytes[at] != byte {
            bytes[at] = byte;
            fs::write(place.log(), &bytes).unwrap();
            prop_assert!(place.report().wrong.is_some());
        }
        fs::write(place.log(), &good[..cut.index(good.len())]).unwrap();
        prop_assert!(place.report().wrong.is_some());
    }

    #[test]
    fn any_bytes_are_checked(bytes in proptest::collection::vec(any::<u8>(), 1..400)) {
        let place = Place::logged(1);
        fs::write(place.log(), &bytes).unwrap();
        prop_assert!(place.report().wrong.is_some());
        prop_assert!(Audit::open(&place.state, NOW).is_err());
    }
}
