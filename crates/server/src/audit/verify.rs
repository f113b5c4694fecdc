//! Whether a log is as the server has left it.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use tapdex_engine::beneath::{open_own, read_text};

use super::head::{BATCH_MAX, End, HEAD_LEN, Head};
use super::line::{LINE_LEN_MAX, Parsed};
use super::{AuditError, HEAD_NAME, Why};
use crate::door::tokens::hex;

/// What is wrong with a log, first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// On which line of the file, from 1; `None` if it is the end.
    pub line: Option<u64>,
    /// What.
    pub why: Why,
}

/// What [`verify`] has found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many lines are sound.
    pub lines: u64,
    /// The number of the last sound line, and its hash in hexadecimal.
    pub last: Option<(u64, String)>,
    /// How many lines were torn by a crash, and are marked as such.
    pub torn: u64,
    /// The log ends with a torn line, which the next start of the server marks, or which is just
    /// being written.
    pub unfinished: bool,
    /// What is wrong, if something is.
    pub wrong: Option<Wrong>,
    /// The hashes that were asked for, by number.
    hashes: Vec<(u64, String)>,
}

impl Report {
    /// The hash of a line whose number was asked for, if the log has that line.
    pub fn hash_of(&self, seq: u64) -> Option<&str> {
        self.hashes.iter().find(|(found, _)| *found == seq).map(|(_, hash)| hash.as_str())
    }
}

/// The last lines of a log, the newest first.
pub(super) fn tail(path: &Path, most: usize) -> Result<Vec<serde_json::Value>, AuditError> {
    let read = |source| AuditError::Read { path: path.to_owned(), source };
    let mut log = open_own(path).map_err(read)?;
    let length = log.metadata().map_err(read)?.len();
    // Most lines have less than a kilobyte.
    let wanted = (most as u64).saturating_mul(1 << 10).saturating_add(LINE_LEN_MAX as u64);
    let from = length.saturating_sub(wanted);
    log.seek(SeekFrom::Start(from)).map_err(read)?;
    let mut bytes = Vec::new();
    Read::take(log, wanted).read_to_end(&mut bytes).map_err(read)?;
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    if from > 0 {
        lines.remove(0);
    }
    let entries = lines.into_iter().rev().filter_map(|line| serde_json::from_slice(line).ok());
    Ok(entries.take(most).collect())
}

/// Checks a log from its first line to its last, and that with its head, which lies beside it.
/// Whether a server writes to it meanwhile makes no difference.
pub fn verify(path: &Path) -> Result<Report, AuditError> {
    verify_with(path, &[])
}

/// The same, and notes the hashes of lines with these numbers.
pub fn verify_with(path: &Path, numbers: &[u64]) -> Result<Report, AuditError> {
    let read = |source| AuditError::Read { path: path.to_owned(), source };
    // Before the log: what is complete by then must be in the log.
    let before = read_head(path)?;
    let mut report = Report::default();
    let mut chain = Chain::behind(End::START);
    let mut at_head = End::START;
    // The last lines: more than these are never behind the end that the head knows.
    let mut last: VecDeque<End> = VecDeque::with_capacity(BATCH_MAX + 1);
    let mut log = match open_own(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound && before.is_ok() => {
            let seq = before.map_or(0, |head| head.end.seq);
            report.wrong =
                (seq > 0).then_some(Wrong { line: None, why: Why::Cut { seq, found: 0 } });
            return Ok(report);
        }
        Err(error) => return Err(read(error)),
    };
    let mut line = Vec::new();
    let bytes = loop {
        line.clear();
        let most = LINE_LEN_MAX as u64 + 1;
        Read::take(&mut log, most).read_until(b'\n', &mut line).map_err(read)?;
        let Some(whole) = line.strip_suffix(b"\n") else {
            if line.len() > LINE_LEN_MAX {
                report.wrong = Some(Wrong { line: Some(chain.lines + 1), why: Why::Form });
                return Ok(report);
            }
            report.unfinished = !line.is_empty();
            break chain.at + line.len() as u64;
        };
        if let Err(wrong) = chain.follow(whole) {
            report.wrong = Some(wrong);
            return Ok(report);
        }
        if chain.open.is_some() {
            continue;
        }
        let End { seq, hash, .. } = chain.end;
        if before.as_ref().is_ok_and(|head| head.end.seq == seq) {
            at_head = chain.end;
        }
        if last.len() == BATCH_MAX {
            last.pop_front();
        }
        last.push_back(chain.end);
        if numbers.contains(&seq) {
            report.hashes.push((seq, hex(&hash)));
        }
        report.lines += 1;
        report.last = Some((seq, hex(&hash)));
        report.torn = chain.torn;
    };
    // A line that is whole but for its end.
    let tail = Parsed::of(&line).ok();
    // After the log: what was being written is announced by then, or complete.
    let after = read_head(path)?;
    let found = chain.end.seq;
    let is_left = |head: &Head| {
        // All that is behind the end: announced lines, and what may be the rest of these.
        let mut behind = last.iter().filter(|end| end.seq > head.end.seq);
        found.saturating_sub(head.end.seq) <= BATCH_MAX as u64
            && behind.all(|end| head.announces(&end.hash))
            && bytes <= head.most()
            && tail
                .as_ref()
                .is_none_or(|tail| tail.seq <= head.end.seq || head.announces(&tail.hash))
            && chain.open.as_ref().is_none_or(|open| {
                chain.end.bytes >= head.end.bytes && open.has_only_announced(head)
            })
    };
    let end = |why| Some(Wrong { line: None, why });
    report.unfinished |= chain.open.is_some();
    report.wrong = match (&chain.open, before, after) {
        (Some(open), _, after) if !after.as_ref().is_ok_and(is_left) => {
            Some(Wrong { line: Some(open.line), why: open.why.clone() })
        }
        (_, Err(why), _) | (_, _, Err(why)) => end(why),
        (_, Ok(Head { end: known, .. }), _) if found < known.seq => {
            end(Why::Cut { seq: known.seq, found })
        }
        (_, Ok(Head { end: known, .. }), _) if at_head != known => {
            end(Why::HeadDiffers { seq: known.seq })
        }
        (_, _, Ok(head)) if !is_left(&head) => end(Why::Behind { seq: head.end.seq }),
        _ => None,
    };
    Ok(report)
}

/// The head beside a log, or what is wrong with it.
fn read_head(path: &Path) -> Result<Result<Head, Why>, AuditError> {
    let path = path.with_file_name(HEAD_NAME);
    // The server may be writing it just now, but not each time.
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let text = match open_own(&path).and_then(|file| read_text(file, HEAD_LEN as u64)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(Why::NoHead)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Err(source) => return Err(AuditError::Read { path, source }),
        };
        if let Some(head) = Head::parse(&text) {
            return Ok(Ok(head));
        }
    }
    Ok(Err(Why::BadHead))
}

/// Lines that make no sense, as long as it is not known whether a crash has left them.
#[derive(Debug)]
pub(super) struct Open {
    /// The first of them.
    line: u64,
    /// What is wrong with it.
    why: Why,
    /// All of them, without the end of the last one.
    pub(super) bytes: Vec<u8>,
}

impl Open {
    /// Whether the sound lines among them are such that were being written. A loss of power may
    /// leave a line, and not the one before.
    pub(super) fn has_only_announced(&self, head: &Head) -> bool {
        let mut lines = self.bytes.split(|&byte| byte == b'\n');
        lines.all(|line| Parsed::of(line).map_or(true, |line| head.announces(&line.hash)))
    }
}

/// The chain, up to some line.
#[derive(Debug)]
pub(super) struct Chain {
    /// Lines of the file so far.
    lines: u64,
    /// Bytes so far.
    at: u64,
    /// The last line that is sound.
    pub(super) end: End,
    /// What is behind it.
    pub(super) open: Option<Open>,
    /// How many lines were torn by a crash.
    torn: u64,
}

impl Chain {
    /// The chain behind the end of a log.
    pub(super) fn behind(end: End) -> Self {
        Self { lines: end.seq, at: end.bytes, end, open: None, torn: 0 }
    }

    /// Goes on to the next line.
    pub(super) fn follow(&mut self, line: &[u8]) -> Result<(), Wrong> {
        self.lines += 1;
        self.at += line.len() as u64 + 1;
        let number = self.lines;
        let wrong = |why| Err(Wrong { line: Some(number), why });
        let next = match (Parsed::of(line), self.open.take()) {
            (Ok(next), None) if next.torn.is_none() => next,
            (Ok(_), None) => return wrong(Why::Torn),
            (Ok(next), Some(open)) if next.torn.as_ref().is_some_and(|t| t.is_of(&open.bytes)) => {
                self.torn += 1;
                next
            }
            (Err(why), None) => {
                self.open = Some(Open { line: number, why, bytes: line.to_vec() });
                return Ok(());
            }
            (_, Some(open)) => {
                // What a crash leaves, and another crash while that was marked.
                if open.bytes.len() + line.len() >= 2 * LINE_LEN_MAX {
                    return Err(Wrong { line: Some(open.line), why: open.why });
                }
                let bytes = [open.bytes.as_slice(), b"\n", line].concat();
                self.open = Some(Open { bytes, ..open });
                return Ok(());
            }
        };
        let (expected, found) = (self.end.seq + 1, next.seq);
        match found.cmp(&expected) {
            std::cmp::Ordering::Greater => return wrong(Why::Removed { expected, found }),
            std::cmp::Ordering::Less => return wrong(Why::Inserted { expected, found }),
            std::cmp::Ordering::Equal => {}
        }
        if next.prev != self.end.hash {
            return wrong(Why::Chain);
        }
        self.end = End { seq: found, hash: next.hash, bytes: self.at };
        Ok(())
    }
}
