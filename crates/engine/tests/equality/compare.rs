//! Archives of a capture, and the comparison of their answers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tapdex_engine::archive::{Archive, ArchiveError, CodecChoice, Ingest, Input, Segment};
use tapdex_engine::fields::{Field, FieldSet};
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::filter::{Filter, Syntax};
use tapdex_engine::query::{Answer, Query};
use tapdex_engine::testing::filters;
use tapdex_engine::time::TimeRange;
use tempfile::TempDir;

use crate::oracle::{Truth, Verdict};

pub(crate) const CODECS: [&str; 5] = ["roaring", "plwah", "masc", "hipes", "auto"];
pub(crate) const NOW_NS: u64 = 1_700_000_000_000_000_000;

/// The segments of a capture, for one codec.
pub(crate) struct Indexed {
    pub(crate) name: String,
    pub(crate) segments: Vec<std::sync::Arc<Segment>>,
    /// They lie in here.
    _folder: TempDir,
}

/// Takes a capture into an archive of its own.
pub(crate) fn index(capture: &Path, codec: &str, records_max: usize) -> Indexed {
    let folder = tempfile::tempdir().unwrap();
    let choice = CodecChoice::parse(codec).unwrap();
    let mut archive = Archive::create(folder.path(), Some(choice)).unwrap();
    if keeps_all_fields(codec) {
        archive.keep_fields(FieldSet::ALL).unwrap();
    }
    let inputs = [Input::File(capture.to_owned())];
    let report = Ingest::new(&archive).records_max(records_max).run(&inputs).unwrap();
    let indexed = Indexed::new(codec.to_owned(), &archive, folder);
    let packets: u64 = indexed.segments.iter().map(|segment| segment.note().records).sum();
    assert_eq!(packets, report.files[0].packets, "{capture:?}");
    indexed
}

/// Has another program take a capture into an archive of its own: an older build of `tapdex`, whose
/// archives have version 1.
pub(crate) fn index_by(program: &Path, capture: &Path, order: &str, codec: &str) -> Indexed {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("archive");
    let mut command = Command::new(program);
    command.args(["index", "-q", "-j", "1", "--order", order, "--codec", codec, "-o"]);
    command.arg(&path);
    if keeps_all_fields(codec) {
        let names: Vec<&str> = FieldSet::ALL.extra().iter().map(Field::name).collect();
        command.arg("--fields").arg(names.join(","));
    }
    let output = command.arg(capture).output().unwrap();
    // 3: what is damaged is indexed up to the damage.
    let is_done = matches!(output.status.code(), Some(0 | 3));
    assert!(is_done, "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
    let archive = Archive::open(&path).unwrap();
    Indexed::new(format!("{program:?}, {order}, {codec}"), &archive, folder)
}

/// Whether an archive with this codec knows all fields. The others have to read packets for some.
fn keeps_all_fields(codec: &str) -> bool {
    ["plwah", "hipes", "auto"].contains(&codec)
}

/// With every codec.
pub(crate) fn index_all(capture: &Path, records_max: usize) -> Vec<Indexed> {
    CODECS.par_iter().map(|codec| index(capture, codec, records_max)).collect()
}

impl Indexed {
    /// The segments of an archive of one capture, which lies in a folder.
    pub(crate) fn new(name: String, archive: &Archive, folder: TempDir) -> Self {
        let (mut segments, failed) = archive.segments().unwrap();
        assert!(failed.is_empty(), "{name}: {failed:?}");
        segments.sort_by_key(|segment| segment.note().source.part);
        Self { name, segments, _folder: folder }
    }

    /// The packets of the file that match, and the links for which the filter was refused.
    /// An error if the same question gets other answers when packets are only counted.
    pub(crate) fn ask(&self, query: &Query) -> Result<(Vec<u64>, BTreeSet<LinkType>), String> {
        let answers: Vec<_> = self.segments.par_iter().map(|s| query.records(s)).collect();
        self.check(query, answers)
    }

    /// The same, one segment after the other.
    pub(crate) fn ask_alone(
        &self,
        query: &Query,
    ) -> Result<(Vec<u64>, BTreeSet<LinkType>), String> {
        self.check(query, self.segments.iter().map(|segment| query.records(segment)))
    }

    fn check(
        &self,
        query: &Query,
        answers: impl IntoIterator<Item = Result<Answer, ArchiveError>>,
    ) -> Result<(Vec<u64>, BTreeSet<LinkType>), String> {
        let (mut found, mut refused) = (Vec::new(), BTreeSet::new());
        for (segment, answer) in self.segments.iter().zip(answers) {
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.count != answer.records.len() as u64 {
                return Err(format!("{} records, count {}", answer.records.len(), answer.count));
            }
            let count = query.count(segment).map_err(|error| error.to_string())?.count;
            if count != answer.count {
                return Err(format!("counted {count}, listed {}", answer.count));
            }
            let before = segment.note().source.records_before;
            found.extend(answer.records.iter().map(|&record| before + u64::from(record)));
            refused.extend(answer.refused.iter().map(|refusal| refusal.link));
        }
        if !found.is_sorted_by(|a, b| a < b) {
            return Err("records are not ascending".into());
        }
        Ok((found, refused))
    }
}

/// What was compared.
#[derive(Default)]
pub(crate) struct Tally {
    /// Capture, codec, filter.
    pairs: AtomicU64,
    /// Those in which some packets match and some do not.
    telling: AtomicU64,
    /// Those with packets that libpcap does not deliver: they were compared with a scan.
    scanned: AtomicU64,
    /// Those in which both refuse the filter for the link.
    refused: AtomicU64,
    captures: Mutex<BTreeSet<PathBuf>>,
    differences: Mutex<Vec<String>>,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Tally {
    /// Archives of a capture were asked, and so many of its packets were expected.
    pub(crate) fn compared(&self, truth: &Truth, archives: usize, matched: usize, of: usize) {
        self.captures.lock().unwrap().insert(truth.path.clone());
        add(&self.pairs, archives as u64);
        if matched > 0 && matched < of {
            add(&self.telling, archives as u64);
        }
    }

    pub(crate) fn differs(&self, what: String) {
        eprintln!("DIFFERENCE {what}");
        self.differences.lock().unwrap().push(what);
    }

    /// Prints what was compared, and fails if anything differs or too little was compared.
    pub(crate) fn finish(&self, name: &str, pairs_min: u64, telling_min: u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (pairs, telling) = (get(&self.pairs), get(&self.telling));
        let differences = self.differences.lock().unwrap();
        println!(
            "{name}: {} captures, {pairs} pairs of capture, codec and filter; in {telling} some \
             packets match and some do not, {} refused by both, {} with packets that only a \
             scan decides; {} differences",
            self.captures.lock().unwrap().len(),
            get(&self.refused),
            get(&self.scanned),
            differences.len()
        );
        assert!(differences.is_empty(), "{name}: {} differences", differences.len());
        assert!(pairs >= pairs_min, "{name}: only {pairs} pairs");
        assert!(telling >= telling_min, "{name}: only {telling} pairs that tell");
    }
}

/// A filter of libpcap's, and the query that is to be its equal; none if we do not parse it.
pub(crate) struct Asked {
    pub(crate) text: String,
    pub(crate) query: Option<Query>,
}

impl Asked {
    pub(crate) fn new(text: String) -> Self {
        let query = Filter::parse_as(Syntax::Pcap, &text, NOW_NS).ok();
        Self { query: query.map(|filter| Query::new(filter, TimeRange::ALL)), text }
    }
}

/// The written filters, those for other links, and some made of values of the capture.
pub(crate) fn asked(truth: &Truth, generated: u64) -> Vec<Asked> {
    let values = truth.values();
    let made = (0..generated).map(|seed| values.generate(seed));
    let texts = filters::written().into_iter().chain(filters::of_other_links()).chain(made);
    texts.map(Asked::new).collect()
}

/// Compares the answers to filters with what libpcap says of the same file.
pub(crate) fn compare(truth: &Truth, indexed: &[Indexed], asked: &[Asked], tally: &Tally) {
    asked.par_iter().for_each(|asked| compare_one(truth, indexed, asked, tally));
}

fn compare_one(truth: &Truth, indexed: &[Indexed], asked: &Asked, tally: &Tally) {
    let name = truth.path.file_name().unwrap().to_string_lossy();
    let text = &asked.text;
    let verdict = truth.ask(text);
    let Some(query) = &asked.query else {
        // What we cannot read, libpcap must not take for this link.
        match verdict {
            Verdict::Refused(_) => add(&tally.refused, indexed.len() as u64),
            Verdict::Matches(_) => tally.differs(format!("{name}: `{text}`: not parsed")),
        }
        tally.compared(truth, indexed.len(), 0, 0);
        return;
    };
    let scanned = truth.scan(query, 0);
    let mut expected: Vec<bool> = scanned.iter().map(|found| found.unwrap_or(false)).collect();
    let links: BTreeSet<LinkType> = truth.packets.iter().map(|packet| packet.link).collect();
    let mut refused: BTreeSet<LinkType> = BTreeSet::new();
    for (packet, found) in truth.packets.iter().zip(&scanned) {
        if found.is_none() {
            refused.insert(packet.link);
        }
    }
    match &verdict {
        Verdict::Matches(matches) => {
            if let Some(at) = (0..truth.delivered).find(|&at| scanned[at] != Some(matches[at])) {
                let theirs = matches[at];
                tally.differs(format!("{name}: `{text}`: scan of packet {at}, libpcap: {theirs}"));
            }
            expected[..truth.delivered].copy_from_slice(matches);
        }
        Verdict::Refused(message) if truth.delivered > 0 => {
            if !refused.contains(&truth.packets[0].link) {
                tally.differs(format!("{name}: `{text}`: taken; libpcap: {message}"));
            }
        }
        Verdict::Refused(_) => {}
    }
    let expected: Vec<u64> = (0..).zip(expected).filter(|(_, yes)| *yes).map(|(i, _)| i).collect();
    for indexed in indexed {
        let what = &indexed.name;
        match indexed.ask(query) {
            Err(error) => tally.differs(format!("{name}: {what}: `{text}`: {error}")),
            Ok((found, said)) => {
                if found != expected {
                    let (found, expected): (BTreeSet<_>, BTreeSet<_>) =
                        (found.into_iter().collect(), expected.iter().copied().collect());
                    let first = |a: &BTreeSet<u64>, b: &BTreeSet<u64>| {
                        a.difference(b).take(3).copied().collect::<Vec<_>>()
                    };
                    tally.differs(format!(
                        "{name}: {what}: `{text}`: {} packets, expected {}; too many {:?}, \
                         missing {:?}",
                        found.len(),
                        expected.len(),
                        first(&found, &expected),
                        first(&expected, &found)
                    ));
                }
                let said: BTreeSet<LinkType> = said.intersection(&links).copied().collect();
                if said != refused {
                    tally.differs(format!("{name}: {what}: `{text}`: refused for {said:?}"));
                }
            }
        }
    }
    let pairs = indexed.len() as u64;
    let delivered = if truth.delivered > 0 { truth.delivered } else { truth.packets.len() };
    let matched = expected.iter().filter(|&&number| number < delivered as u64).count();
    tally.compared(truth, indexed.len(), matched, delivered);
    if truth.delivered < truth.packets.len() {
        add(&tally.scanned, pairs);
    }
    if matches!(verdict, Verdict::Refused(_)) && truth.delivered > 0 {
        add(&tally.refused, pairs);
    }
}

/// Unpacks a file, if it is compressed, into a folder.
pub(crate) fn plain(path: &Path, folder: &Path) -> PathBuf {
    if path.extension().is_none_or(|extension| extension != "zst") {
        return path.to_owned();
    }
    let target = folder.join(path.file_stem().unwrap());
    let source = std::fs::File::open(path).unwrap();
    zstd::stream::copy_decode(source, std::fs::File::create(&target).unwrap()).unwrap();
    target
}
