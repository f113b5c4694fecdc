//! What a segment says about itself: whose packets it has, and where they are.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::NoteFault;
use crate::capture::Layout;
use crate::capture::blocks::Statistics;
use crate::fields::{Field, FieldSet};

/// The version of the note that this program writes.
const VERSION: u32 = 1;
/// The version of a note whose layout is lists of words, and the last version that this program
/// reads.
const VERSION_LONG: u32 = 2;

/// What a segment says about itself, kept in its index file as TOML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    version: u32,
    /// How many packets there are.
    pub records: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// The bytes that were captured of them.
    pub captured_bytes: u64,
    /// The flows they belong to, in one direction each.
    pub flows: u64,
    /// Packets whose headers columns cannot fully represent, so that filters have to read the
    /// frame.
    pub odd: u64,
    /// The time of the earliest, in nanoseconds since 1970.
    pub time_min: u64,
    /// The time of the latest.
    pub time_max: u64,
    /// The file that has the packets.
    pub source: SourceFile,
    /// How that file is read.
    pub layout: Layout,
    /// Packets that were lost while these were captured, by time, as far as the file says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// The time that the file covers, whether or not there were packets; `None` if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
    /// Fields that came after the first version, that the writer knew, and that are left out
    /// because they are 0 in all rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    zero: Vec<String>,
    /// The last counters of interfaces that have lost packets: statistics after these packets may
    /// continue from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counting: Vec<Counting>,
}

/// The last counters of the packets that an interface has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Counting {
    interface: u32,
    start_ns: u64,
    end_ns: u64,
    by_interface: u64,
    by_kernel: u64,
}

/// The most interfaces whose counters are kept.
const COUNTING_MAX: usize = 256;

/// Packets that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When the first of them may have come, in nanoseconds since 1970.
    pub from_ns: u64,
    /// When the last of them may have come.
    pub to_ns: u64,
    /// How many.
    pub packets: u64,
}

/// A time in which packets were captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Its first moment, in nanoseconds since 1970.
    pub from_ns: u64,
    /// Its last one.
    pub to_ns: u64,
}

/// The most losses of a segment that are kept apart; beyond that, neighbours are merged.
const LOSSES_MAX: usize = 256;
/// The greatest number that TOML has room for.
const NUMBER_MAX: u64 = i64::MAX.cast_unsigned();

impl Loss {
    /// This many packets, between two times.
    pub fn new(from_ns: u64, to_ns: u64, packets: u64) -> Self {
        let to_ns = to_ns.min(NUMBER_MAX);
        Self { from_ns: from_ns.min(to_ns), to_ns, packets: packets.min(NUMBER_MAX) }
    }

    /// The losses in the statistics of files. Where the statistics do not say when they start, the
    /// loss starts at `first_ns`.
    pub fn of(told: &[Statistics], first_ns: u64) -> Vec<Self> {
        let lossy = told.iter().filter(|one| one.lost() > 0);
        let mut losses: Vec<Self> = lossy
            .map(|one| {
                let from_ns = if one.start_ns == 0 { first_ns } else { one.start_ns };
                Self::new(from_ns, one.end_ns, one.lost())
            })
            .collect();
        losses.sort_unstable_by_key(|loss| (loss.from_ns, loss.to_ns));
        while losses.len() > LOSSES_MAX {
            losses = losses
                .chunks(2)
                .filter_map(|pair| pair.iter().copied().reduce(Self::and))
                .collect();
        }
        losses
    }

    /// The two together.
    pub(super) fn and(self, other: Self) -> Self {
        let packets = self.packets.saturating_add(other.packets);
        Self::new(self.from_ns.min(other.from_ns), self.to_ns.max(other.to_ns), packets)
    }
}

impl Covered {
    /// The time that files cover, by their statistics.
    pub fn by(told: &[Statistics]) -> Option<Self> {
        let said = told.iter().filter(|one| one.start_ns > 0);
        let spans = said.map(|one| Self {
            from_ns: one.start_ns.min(NUMBER_MAX),
            to_ns: one.end_ns.min(NUMBER_MAX),
        });
        spans.reduce(Self::and)
    }

    /// The time that spans both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { from_ns: self.from_ns.min(other.from_ns), to_ns: self.to_ns.max(other.to_ns) }
    }
}

/// The file that has the packets of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Where it is, from the folder of the index file; bytes that are not UTF-8, and `%`, are
    /// written as `%xx`.
    path: String,
    /// Its absolute path: where to look if it is not at `path`, as after the index alone was moved.
    absolute: String,
    /// The capture that was taken in, if that was compressed or a stream and `path` is our copy of
    /// it; written like `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// Bytes of the capture that was taken in.
    pub len: u64,
    /// When it was changed last, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// Number of the segment among those of the file, from 0.
    pub part: u32,
    /// Where the first packet of the segment starts.
    pub start: u64,
    /// Where the packet after its last one starts.
    pub end: u64,
    /// Checksum of the first and the last bytes between the two.
    pub sum: u32,
    /// Packets of the file before the segment.
    pub records_before: u64,
    /// Whether the segment has the last packet of the file.
    pub last: bool,
    /// What is wrong with the file behind the last packet; empty if nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub damage: String,
    /// Whether the damage is that the file ends in the middle of something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

impl SourceFile {
    pub(super) fn new(path: &Path, absolute: &Path, origin: Option<&Path>) -> Self {
        Self {
            path: path_to_text(path),
            absolute: path_to_text(absolute),
            origin: origin.map(path_to_text),
            len: 0,
            modified_ns: 0,
            part: 0,
            start: 0,
            end: 0,
            sum: 0,
            records_before: 0,
            last: false,
            damage: String::new(),
            cut_short: false,
        }
    }

    /// The file that has the packets, from the folder of the index file.
    pub fn path(&self) -> PathBuf {
        text_to_path(&self.path)
    }

    /// The absolute path of the file that has the packets, from when it was indexed.
    pub fn absolute_path(&self) -> PathBuf {
        text_to_path(&self.absolute)
    }

    /// The capture that was taken in, from the folder of the index file.
    pub fn origin(&self) -> PathBuf {
        text_to_path(self.origin.as_ref().unwrap_or(&self.path))
    }

    /// Goes on behind a segment of the same file.
    pub(super) fn go_on(&mut self, last: &Note) {
        self.part = last.source.part.saturating_add(1);
        self.start = last.source.end;
        self.records_before = last.source.records_before.saturating_add(last.records);
    }

    /// The same packets, in the file that `other` names.
    pub(super) fn find_in(&mut self, other: Self) {
        (self.path, self.absolute, self.origin) = (other.path, other.absolute, other.origin);
    }

    /// Whether the packets are in a copy that is ours.
    pub fn is_copy(&self) -> bool {
        self.origin.is_some()
    }
}

impl Note {
    /// Whether the packets are those behind another segment's, in the same file.
    pub(super) fn follows(&self, before: &Self) -> bool {
        let (a, b) = (&before.source, &self.source);
        let reached =
            (a.part.saturating_add(1), a.end, a.records_before.saturating_add(before.records));
        (b.part, b.start, b.records_before) == reached
            && (a.len, a.modified_ns) == (b.len, b.modified_ns)
    }

    /// Whether the packets are the first ones of their file.
    pub(super) fn is_first(&self) -> bool {
        (self.source.part, self.source.records_before) == (0, 0)
    }

    pub(super) fn new(source: SourceFile, layout: Layout) -> Self {
        Self {
            version: if layout.is_long() { VERSION_LONG } else { VERSION },
            records: 0,
            wire_bytes: 0,
            captured_bytes: 0,
            flows: 0,
            odd: 0,
            time_min: 0,
            time_max: 0,
            source,
            layout,
            losses: Vec::new(),
            covered: None,
            zero: Vec::new(),
            counting: Vec::new(),
        }
    }

    /// Takes down which of the fields that the writer knows are 0 in all rows.
    pub(super) fn set_zero(&mut self, fields: impl Iterator<Item = Field>) {
        let later = fields.filter(|&field| !FieldSet::FIRST.contains(field));
        self.zero = later.map(|field| field.name().to_owned()).collect();
    }

    /// The fields that are 0 in all rows if the index does not have them: those that the writer
    /// knew.
    pub(super) fn known_zero(&self) -> FieldSet {
        let later = self.zero.iter().filter_map(|name| Field::of_name(name));
        later.fold(FieldSet::FIRST, FieldSet::with)
    }

    /// Takes over the losses and the covered time from the statistics of the file.
    pub(super) fn tell(&mut self, told: &[Statistics]) {
        // Statistics without a start may be about packets of an earlier part.
        self.losses = Loss::of(told, if self.is_first() { self.time_min } else { 0 });
        self.covered = Covered::by(told);
    }

    /// Keeps the counters that statistics in the rest of the file may continue from.
    pub(super) fn keep_counting(&mut self, last: Vec<(u32, Statistics)>) {
        let all = last.into_iter().map(|(interface, last)| Counting {
            interface,
            start_ns: last.start_ns,
            end_ns: last.end_ns,
            by_interface: last.lost_by_interface,
            by_kernel: last.lost_by_kernel,
        });
        // What TOML has room for.
        let fits = |one: &Counting| {
            let numbers = [one.start_ns, one.end_ns, one.by_interface, one.by_kernel];
            numbers.iter().all(|&number| number <= NUMBER_MAX)
        };
        self.counting = all.filter(fits).take(COUNTING_MAX).collect();
    }

    /// The counters that statistics in the rest of the file may continue from.
    pub(super) fn counting(&self) -> impl Iterator<Item = (u32, Statistics)> {
        self.counting.iter().map(|one| {
            let last = Statistics {
                start_ns: one.start_ns,
                end_ns: one.end_ns,
                lost_by_interface: one.by_interface,
                lost_by_kernel: one.by_kernel,
                ..Statistics::default()
            };
            (one.interface, last)
        })
    }

    pub(super) fn to_text(&self) -> String {
        // Plain numbers and strings: TOML can represent all of it.
        toml::to_string(self).unwrap_or_default()
    }

    /// Reads a note; the error says what is wrong with it.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, NoteFault> {
        let text = std::str::from_utf8(bytes)?;
        let note: Self = toml::from_str(text)
            .map_err(|error| NoteFault::Syntax { error: error.message().to_owned() })?;
        if note.version > VERSION_LONG {
            return Err(NoteFault::Version { found: note.version, known: VERSION_LONG });
        }
        let layout = &note.layout;
        let interfaces = layout.interfaces.len() as u64;
        if layout.sections.is_empty()
            || layout.sections.iter().any(|s| u64::from(s.first_interface) > interfaces)
            || !layout.sections.is_sorted_by_key(|section| section.offset)
        {
            return Err(NoteFault::Sections);
        }
        if note.time_min > note.time_max {
            return Err(NoteFault::Times);
        }
        Ok(note)
    }
}

/// How many of these notes, in the order of their parts, follow each other without a gap from the
/// first packet of a file on. Several threads write parts: one may be written before those that
/// precede it, even the last one.
pub(super) fn chained<'n>(notes: impl IntoIterator<Item = &'n Note>) -> usize {
    let mut before = None::<&Note>;
    let follows = |note: &&'n Note| match before.replace(note) {
        Some(before) => note.follows(before),
        None => note.is_first(),
    };
    notes.into_iter().take_while(follows).count()
}

/// A path as text that can be turned back into the path.
fn path_to_text(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02x}")));
    }
    text
}

fn text_to_path(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = (first == b'%').then(|| tail.get(..2)).flatten();
        let byte = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn times_run_forward() {
        let section = crate::capture::Section { offset: 0, big_endian: false, first_interface: 0 };
        let layout = Layout {
            pcapng: true,
            records: crate::capture::RecordForm::default(),
            sections: vec![section],
            interfaces: Vec::new(),
            known: 0,
        };
        let source = SourceFile::new(Path::new("a"), Path::new("/a"), None);
        for (time_min, time_max) in [(7, 7), (7, 8), (8, 7)] {
            let note = Note { time_min, time_max, ..Note::new(source.clone(), layout.clone()) };
            let read = Note::from_bytes(note.to_text().as_bytes());
            assert_eq!(read.is_ok(), time_min <= time_max, "{read:?}");
        }
    }

    #[test]
    fn any_path_comes_back() {
        for bytes in [&b"a/b.pcap"[..], b"100%", b"%2", b"%zz", b"\xff%25\xfe", "\u{e9}".as_bytes()]
        {
            let path = Path::new(std::ffi::OsStr::from_bytes(bytes));
            assert_eq!(text_to_path(&path_to_text(path)), path);
        }
    }
}
