//! Archives whose index files have version 1, which is no longer written, stay readable.
//!
//! `golden/v1` has a capture and archives of it, in both orders that version 1 knows and in several
//! codecs, as the last program wrote them that wrote this version. They are never written again.
//! Index files are compressed with zstd, since they are mostly padding. Of the 500 packets, which
//! are generated traffic, every sixth is cut short.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use tapdex_engine::archive::{Archive, Compared, Ingest, Input, Segment};
use tapdex_engine::fields::{FieldSet, NAMES, Shown};
use tapdex_engine::index::RowOrder;
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Query, count_name, count_values, rows_of};
use tapdex_engine::time::TimeRange;

use crate::compare::{Indexed, NOW_NS, Tally, asked, compare, index, plain};
use crate::made::{pcap, traffic};
use crate::oracle::{Truth, Verdict};

/// The archives, whether their rows are in order of arrival, and whether they have checksums of
/// packets.
const ARCHIVES: [(&str, bool, bool); 6] = [
    ("flow-auto", false, false),
    ("flow-plwah", false, false),
    ("flow-sums", false, true),
    ("arrival-auto", true, false),
    ("arrival-compax2", true, false),
    ("arrival-masc", true, true),
];

/// Copies an archive and its capture into a folder; returns where they are.
fn copy(name: &str, folder: &Path) -> (PathBuf, PathBuf) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let (archive, capture) = (folder.join(name), folder.join("packets.pcap"));
    let segments = archive.join("segments");
    std::fs::create_dir_all(&segments).unwrap();
    std::fs::copy(golden.join("packets.pcap"), &capture).unwrap();
    std::fs::copy(golden.join(name).join("archive.toml"), archive.join("archive.toml")).unwrap();
    for entry in golden.join(name).join("segments").read_dir().unwrap() {
        plain(&entry.unwrap().path(), &segments);
    }
    (archive, capture)
}

/// A copy of an archive.
fn open(name: &str) -> (Indexed, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (archive, capture) = copy(name, folder.path());
    let archive = Archive::open(&archive).unwrap();
    let indexed = Indexed::new(format!("version 1, {name}"), &archive, folder);
    assert_eq!(indexed.segments.len(), 1);
    (indexed, capture)
}

#[test]
fn archives_of_version_1_are_sound() {
    for (name, is_by_arrival, has_sums) in ARCHIVES {
        let (indexed, _) = open(name);
        let segment = &indexed.segments[0];
        assert_eq!(segment.index().version(), 1, "{name}");
        let order = if is_by_arrival { RowOrder::Arrival } else { RowOrder::Sorted };
        assert_eq!(segment.index().row_order(), order, "{name}");
        assert_eq!(segment.index().has_pieces(), has_sums, "{name}");
        assert_eq!(segment.note().records, 500, "{name}");
        let verified = segment.index().verify(&mut |_| {});
        assert!(verified.problems.is_empty(), "{name}: {:?}", verified.problems);
        segment.check_ends().unwrap();
        assert_eq!(segment.compare(&mut |_| true).unwrap(), Compared::default(), "{name}");
    }
}

/// Their answers are libpcap's, and those of an archive that is written now.
#[test]
fn archives_of_version_1_have_the_same_answers() {
    let (mut indexed, captures): (Vec<_>, Vec<_>) =
        ARCHIVES.iter().map(|(name, ..)| open(name)).unzip();
    let capture = &captures[0];
    indexed.extend(["auto", "roaring"].map(|codec| index(capture, codec, 1_000)));
    assert!(indexed[6..].iter().all(|now| now.segments[0].index().version() > 1));
    let tally = Tally::default();
    let truth = Truth::read(capture);
    compare(&truth, &indexed, &asked(&truth, 200), &tally);
    tally.finish("version 1", 4_000, 1_500);
}

/// How often each value of a field occurs among some packets, by the name of the field in `top`.
fn counts(segment: &Segment, records: &[u32]) -> HashMap<&'static str, HashMap<Shown, u64>> {
    let rows = rows_of(segment, records).unwrap();
    let mut all = HashMap::new();
    for name in NAMES.iter().filter(|name| !name.top.is_empty()) {
        let mut counts = HashMap::new();
        let mut add = |shown, count| *counts.entry(shown).or_insert(0) += count;
        let (_, unread) = count_name(segment, name, records, rows.as_deref(), &mut add).unwrap();
        assert!(unread.is_empty());
        all.insert(name.top[0], counts);
    }
    all
}

#[test]
fn archives_of_version_1_have_the_same_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (_, capture) = copy(ARCHIVES[0].0, folder.path());
    let now = index(&capture, "auto", 1_000);
    let now = &now.segments[0];
    let of_text = |text: &str| {
        let query = Query::new(Filter::parse(text, NOW_NS).unwrap(), TimeRange::ALL);
        query.records(now).unwrap().records
    };
    let some = ["", "tcp or ip6", "vlan", "proto gre"].map(of_text);
    let expected = some.each_ref().map(|records| counts(now, records));
    assert!(expected[0]["ip.src"].len() > 50 && expected[0]["inner.src"].len() > 5);
    for (name, ..) in ARCHIVES {
        let (indexed, _) = open(name);
        let then = &indexed.segments[0];
        for (records, expected) in some.iter().zip(&expected) {
            let found = counts(then, records);
            assert_eq!(found.len(), expected.len());
            for (field, counts) in found {
                assert_eq!(counts, expected[field], "{name}: {field} of {}", records.len());
            }
        }
        for field in FieldSet::ALL.iter().filter(|&field| then.columns().knows(field)) {
            let [of_then, of_now] = [then, now].map(|segment| {
                let mut counts = HashMap::new();
                count_values(segment, field, None, &mut counts).unwrap();
                counts
            });
            assert_eq!(of_then, of_now, "{name}: {field:?}");
        }
    }
}

/// An archive with segments of both versions answers for both.
#[test]
fn segments_of_both_versions_share_an_archive() {
    for name in ["flow-plwah", "arrival-auto"] {
        let folder = tempfile::tempdir().unwrap();
        let (path, first) = copy(name, folder.path());
        let second = folder.path().join("second.pcap");
        let second = pcap(second, LinkType::ETHERNET, false, &traffic(700, 12, 90));
        let archive = Archive::create(&path, None).unwrap();
        let report = Ingest::new(&archive).run(&[Input::File(second.clone())]).unwrap();
        assert!(report.files[0].error.is_none(), "{report:?}");
        let (segments, failed) = archive.segments().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        let versions: BTreeSet<u16> =
            segments.iter().map(|segment| segment.index().version()).collect();
        assert_eq!(versions, BTreeSet::from([1, 2]), "{name}");
        let truths = [first, second].map(|capture| Truth::read(&capture));
        let mut telling = 0;
        for asked in asked(&truths[0], 60) {
            let verdicts = truths.each_ref().map(|truth| truth.ask(&asked.text));
            let [Verdict::Matches(in_first), Verdict::Matches(in_second)] = &verdicts else {
                continue;
            };
            let expected = [in_first, in_second].map(|matches| {
                let numbers = (0_u32..).zip(matches).filter(|(_, yes)| **yes);
                numbers.map(|(number, _)| number).collect::<Vec<_>>()
            });
            let search = archive.search(asked.query.as_ref().unwrap()).unwrap();
            let (answers, mut found) = (search.records().unwrap(), [vec![], vec![]]);
            for (segment, records) in answers.found() {
                found[usize::from(segment.index().version() > 1)].extend_from_slice(records);
            }
            assert_eq!(found, expected, "{name}: {}", asked.text);
            assert_eq!(search.count().unwrap().count(), answers.count(), "{name}: {}", asked.text);
            telling += usize::from(expected.iter().all(|numbers| !numbers.is_empty()));
        }
        assert!(telling > 60, "{name}: only {telling} filters match in both");
    }
}
