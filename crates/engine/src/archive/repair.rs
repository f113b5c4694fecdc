//! Indexing again what is damaged.
//!
//! An index can be made again from its packets. The index says which file has them. If the index
//! can no longer be read, other segments of the same capture say so, or the name of the index does:
//! it is made from the path of the packets, so a capture is recognised by making the name again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::columns::Column;
use super::file_names::{capture_name, copy_name};
use super::ingest::{FileReport, Ingest, Input, Progress};
use super::recording::{Recovered, is_recording};
use super::segment::Segment;
use super::unread::UnreadPackets;
use super::{Archive, ArchiveError, is_regular};
use crate::chain;
use crate::error::IndexError;
use crate::fields::{Field, FieldSet, Packet};
use crate::index::MARK_RECORDS;
use crate::packet::{Headers, decode};
use crate::storage::Whose;

/// Files that killed processes leave in the folder of an archive; the last one is a recorder's.
const OWN_TEMPORARY: [&[u8]; 3] =
    [b".archive.toml.tmp", b".missing.toml.tmp", b".recording.toml.tmp"];

/// What a repair found and did.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// Index files that were looked at.
    pub segments: usize,
    /// What was found wrong: the index file, and what.
    pub problems: Vec<(PathBuf, String)>,
    /// Captures that were indexed again, or should have been.
    pub captures: Vec<FileReport>,
    /// Index files that are still as they were, and why nothing could be done.
    pub left: Vec<(PathBuf, String)>,
    /// Recordings that a killed recorder had left unfinished, and that are complete now.
    pub recovered: Vec<Recovered>,
    /// Files removed: left behind by processes that were killed, and indexes that others replace.
    pub removed: Vec<PathBuf>,
}

/// Puts an archive right.
pub struct Repair<'a> {
    archive: &'a Archive,
    extra: Vec<PathBuf>,
    quick: bool,
    stop: Option<&'a AtomicBool>,
    checked: Option<&'a dyn Fn(usize, usize)>,
    progress: Option<&'a (dyn Fn(Progress) + Sync)>,
}

impl std::fmt::Debug for Repair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Repair").field("archive", &self.archive).finish_non_exhaustive()
    }
}

/// A damaged index file.
struct Damaged {
    index: PathBuf,
    /// The capture it was made of, if that is known.
    capture: Option<PathBuf>,
}

impl<'a> Repair<'a> {
    /// Repairs this archive.
    pub fn new(archive: &'a Archive) -> Self {
        Self { archive, extra: Vec::new(), quick: false, stop: None, checked: None, progress: None }
    }

    /// Captures, or folders of captures, that damaged indexes may belong to.
    #[must_use]
    pub fn extra(mut self, paths: &[PathBuf]) -> Self {
        self.extra = paths.to_vec();
        self
    }

    /// Counts an index as sound if it can be opened, without reading all of it.
    #[must_use]
    pub fn quick(mut self, quick: bool) -> Self {
        self.quick = quick;
        self
    }

    /// Stops soon after this is set; what was finished before stays valid.
    #[must_use]
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Calls this with the number of indexes checked, and of all indexes.
    #[must_use]
    pub fn checked(mut self, checked: &'a dyn Fn(usize, usize)) -> Self {
        self.checked = Some(checked);
        self
    }

    /// Calls this with the progress of indexing.
    #[must_use]
    pub fn progress(mut self, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Runs the repair. A damaged index is replaced only when the new one is complete.
    pub fn run(&self) -> Result<RepairReport, ArchiveError> {
        let archive = self.archive;
        let mut report = RepairReport::default();
        self.remove_temporary(&mut report);
        let never = AtomicBool::new(false);
        let stop = self.stop.unwrap_or(&never);
        let (recovered, failed) = self.archive.seal_unfinished(stop)?;
        if stop.load(Ordering::Relaxed) {
            return Err(ArchiveError::Interrupted);
        }
        report.recovered = recovered;
        self.check_drafts(&mut report);
        for error in failed {
            let ArchiveError::Io { path, source, .. } = &error else { continue };
            report.left.push((path.clone(), format!("{error}: {source}")));
        }
        let files = self.archive.index_files()?;
        report.segments = files.len();
        let (mut damaged, mut known) = (Vec::new(), Vec::new());
        // Packet files that have changed since they were indexed: a new index would treat the
        // damage as sound.
        let mut kept = BTreeSet::new();
        for (n, path) in files.iter().enumerate() {
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(ArchiveError::Interrupted);
            }
            let segment = Segment::open(&archive.storage, path);
            if let Ok(segment) = &segment {
                known.push((path.clone(), capture_of(archive, segment)));
            }
            let (message, unread) = self.check(segment.as_ref());
            if let Ok(segment) = &segment
                && !unread.is_empty()
                && archive.storage.exists(path)
            {
                let packets = archive.real_path(segment.packet_path());
                // The copy of a compressed capture is not kept: the capture is unpacked once more.
                if capture_of(archive, segment) == packets {
                    kept.insert(packets);
                }
                for error in unread.into_errors() {
                    report.problems.push((path.clone(), error.to_string()));
                }
                let capture = Some(capture_of(archive, segment));
                damaged.push(Damaged { index: path.clone(), capture });
            } else if let Err(message) = message
                && archive.storage.exists(path)
            {
                report.problems.push((path.clone(), message));
                let capture = segment.ok().map(|segment| capture_of(archive, &segment));
                damaged.push(Damaged { index: path.clone(), capture });
            }
            if let Some(checked) = self.checked {
                checked(n + 1, files.len());
            }
        }
        let candidates = if damaged.is_empty() { Vec::new() } else { self.candidates(&known) };
        let mut captures: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for damaged in damaged {
            let told =
                damaged.capture.or_else(|| tell(self.archive, &damaged.index, &known, &candidates));
            match told {
                Some(capture) if kept.contains(&capture) => {
                    let message = "packets have another checksum than when they were indexed; put \
                                   a sound copy of the file in its place, or, if it was changed \
                                   on purpose, tapdex index --force takes it in as it is";
                    report.left.push((damaged.index, message.into()));
                }
                Some(capture) if archive.storage.is_file(&capture) => {
                    captures.entry(capture).or_default().push(damaged.index);
                }
                Some(capture) => {
                    let message = format!("its packets, {}, are not there", capture.display());
                    report.left.push((damaged.index, message));
                }
                None => {
                    let message = "the file with its packets is not known; name it".into();
                    report.left.push((damaged.index, message));
                }
            }
        }
        let names: BTreeSet<&str> = files.iter().map(|path| capture_name(path)).collect();
        for copy in self.archive.copies_without_index(&names) {
            let name = copy.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !is_regular(&*archive.storage, &copy) {
                report.left.push((copy, super::PacketsFault::NoFile.to_string()));
                continue;
            }
            let what = if is_recording(name) { "a recording" } else { "our copy of a stream" };
            let message = format!("{}: {what} is not indexed", copy.display());
            report.problems.push((copy.clone(), message));
            captures.entry(archive.real_path(copy)).or_default();
        }
        if !captures.is_empty() {
            self.index_again(captures, &known, &mut report)?;
        }
        Ok(report)
    }

    /// Removes drafts that are not needed, and damaged ones, which are not needed either.
    fn check_drafts(&self, report: &mut RepairReport) {
        let archive = self.archive;
        let found = archive.remove_drafts().and_then(|()| archive.draft_files());
        let drafts = found.unwrap_or_else(|error| {
            report.left.push((archive.drafts_folder(), chain(&error)));
            Vec::new()
        });
        for (_, path) in drafts {
            // Skips those that are being written.
            let is_draft = path.extension().is_some_and(|extension| extension == "tdx");
            let is_sound = |draft: Segment| draft.index().verify(&mut |_| {}).problems.is_empty();
            if is_draft
                && !Segment::open(&archive.storage, &path).is_ok_and(is_sound)
                && archive.storage.remove(&path).is_ok()
            {
                report.removed.push(path);
            }
        }
    }

    /// What is wrong with a segment, and its packets that are not what was indexed.
    fn check(
        &self,
        segment: Result<&Segment, &ArchiveError>,
    ) -> (Result<(), String>, UnreadPackets) {
        let nothing = UnreadPackets::default;
        let segment = match segment {
            Ok(segment) => segment,
            Err(error) => return (Err(error.to_string()), nothing()),
        };
        if self.quick && !segment.index().has_pieces() {
            let checked = segment.check_ends().map_err(|error| error.to_string());
            return (checked, nothing());
        }
        let mut outcome = Ok(());
        if !self.quick {
            let verified = segment.index().verify(&mut |_| {});
            if let Some(problem) = verified.problems.first() {
                outcome = Err(format!("{}: {problem}", segment.path().display()));
            }
        }
        if self.quick && segment.check_ends().is_ok() {
            return (Ok(()), nothing());
        }
        // Also of a damaged index: its packets may be damaged, too.
        let stop = || self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        let mut unread = nothing();
        let compared = match segment.compare_with(&mut |_| !stop(), &mut unread) {
            Ok(difference) => difference.map_or(Ok(()), Err),
            Err(error) => Err(error.to_string()),
        };
        (outcome.and(compared), unread)
    }

    /// Captures that an index may have been made of.
    fn candidates(&self, known: &[(PathBuf, PathBuf)]) -> Vec<PathBuf> {
        let storage = &self.archive.storage;
        let mut folders = BTreeSet::from([self.archive.packets_folder()]);
        let parent = |path: &Path| storage.real_path(path).ok()?.parent().map(Path::to_owned);
        folders.extend(parent(&self.archive.folder));
        folders.extend(known.iter().filter_map(|(_, capture)| parent(capture)));
        let mut candidates = Vec::new();
        for path in &self.extra {
            match storage.metadata(path, Whose::Named).is_ok_and(|data| data.is_folder()) {
                true => drop(folders.insert(path.clone())),
                false => candidates.push(path.clone()),
            }
        }
        for folder in folders {
            // A folder that cannot be listed offers no candidates.
            let files = storage.list(&folder).unwrap_or_default();
            candidates.extend(files.into_iter().filter(|path| storage.is_file(path)));
        }
        let real = candidates.into_iter().filter_map(|path| storage.real_path(&path).ok());
        let real: BTreeSet<PathBuf> = real.collect();
        real.into_iter().collect()
    }

    fn index_again(
        &self,
        captures: BTreeMap<PathBuf, Vec<PathBuf>>,
        known: &[(PathBuf, PathBuf)],
        report: &mut RepairReport,
    ) -> Result<(), ArchiveError> {
        let inputs: Vec<Input> = captures.keys().cloned().map(Input::File).collect();
        let mut ingest = Ingest::new(self.archive).force(true);
        if let Some(stop) = self.stop {
            ingest = ingest.stop(stop);
        }
        if let Some(progress) = self.progress {
            ingest = ingest.progress(progress);
        }
        let files = ingest.run(&inputs)?.files;
        for (file, (capture, indexes)) in files.into_iter().zip(captures) {
            if let Some(error) = &file.error {
                let message = error.to_string();
                report.left.extend(indexes.into_iter().map(|index| (index, message.clone())));
                report.captures.push(file);
                continue;
            }
            // Under another path the same packets have indexes of other names.
            let stem = packets_stem(&capture, self.archive);
            let same = known.iter().filter(|(_, other)| *other == capture).map(|(index, _)| index);
            let stale: BTreeSet<PathBuf> = same.chain(&indexes).cloned().collect();
            for index in stale {
                if Some(capture_name(&index)) == stem.as_deref() {
                    continue;
                }
                self.archive.remove_if_there(&index)?;
                report.removed.push(index);
            }
            report.captures.push(file);
        }
        Ok(())
    }

    /// Removes what killed processes have left behind; locked files stay.
    fn remove_temporary(&self, report: &mut RepairReport) {
        let archive = self.archive;
        let folders =
            [archive.segments_folder(), archive.packets_folder(), archive.drafts_folder()];
        for folder in folders.into_iter().chain([archive.folder.clone()]) {
            for path in archive.storage.list(&folder).unwrap_or_default() {
                let name = path.file_name().unwrap_or_default().as_encoded_bytes();
                let is_temporary = name.starts_with(b".") && name.ends_with(b".tmp");
                // In the archive's own folder there may be files of others.
                let is_ours = folder != archive.folder || OWN_TEMPORARY.contains(&name);
                if !is_temporary || !is_ours {
                    continue;
                }
                match archive.storage.remove_stale(&path) {
                    Ok(()) => report.removed.push(path),
                    // A process is writing it.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => report.left.push((path, error.to_string())),
                }
            }
        }
    }
}

/// A number for a digit of a column, chosen so that different sets of digits have different sums.
fn fingerprint(field: Field, digit: usize, key: u64) -> u64 {
    if key == 0 {
        // Columns that are 0 in all rows are left out of the index.
        return 0;
    }
    let mut mixed = u64::from(field as u8) << 32 | (digit as u64) << 24 | key;
    for factor in [0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 32)
}

/// What [`Segment::compare`] has found: nothing, if it is the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Packets that have another checksum than when they were indexed.
    pub unread: UnreadPackets,
    /// The first difference in the other packets.
    pub difference: Option<String>,
}

impl Segment {
    /// Reads all packets and compares them with the index: their checksums, where they are, when
    /// they came, how long they were, and that every column has the digits that their headers have.
    ///
    /// `each` gets the number of packets read, and returns whether to go on. Takes twelve bytes of
    /// memory for each packet.
    pub fn compare(&self, each: &mut dyn FnMut(u32) -> bool) -> Result<Compared, ArchiveError> {
        let mut compared = Compared::default();
        let difference = self.compare_with(each, &mut compared.unread)?;
        compared.difference = difference;
        Ok(compared)
    }

    /// The first difference, and in any case all packets with another checksum.
    fn compare_with(
        &self,
        each: &mut dyn FnMut(u32) -> bool,
        unread: &mut UnreadPackets,
    ) -> Result<Option<String>, ArchiveError> {
        let damaged = |error| ArchiveError::index(self.path())(error);
        let rows = self.index().rows();
        let mut packets = self.packets()?;
        let (index, file) = (self.path().display(), self.packet_path());
        let Some(marks) = self.index().marks().map_err(damaged)? else {
            return Ok(Some(format!("{index}: it does not say where its packets are")));
        };
        // For each packet, the sum of its digits' fingerprints.
        let mut sums: Vec<u64> = vec![0; rows as usize];
        let (mut wire, mut captured, mut stopped, mut moved) = (0_u64, 0_u64, false, None);
        let mut headers = Headers::default();
        let known = FieldSet::ALL.iter().filter(|&field| self.columns().knows(field)).collect();
        unread.extend(packets.check_head()?);
        // One seek at the start: from there on the reader has to reach every mark by itself, except
        // those behind packets with another checksum.
        let others = packets.for_each(0..rows, &mut |number, record| {
            let mark = marks.get(number / MARK_RECORDS).map_err(damaged)?;
            let right_time = (mark.time_min..=mark.time_max).contains(&record.time_ns);
            let right_place = !number.is_multiple_of(MARK_RECORDS) || mark.offset == record.offset;
            if !(right_time && right_place) {
                moved = Some(number);
                return Ok(false);
            }
            wire += u64::from(record.wire_len);
            captured += record.data.len() as u64;
            decode(record.link, record.swapped, record.data, &mut headers);
            sums[number as usize] = digits_sum(&Packet::new(record, &headers), known);
            stopped = !each(number + 1);
            Ok(!stopped)
        })?;
        let before = self.note().source.records_before;
        let row = |number: u64| usize::try_from(number.saturating_sub(before)).unwrap_or(0);
        let rows_of = |packets: Range<u64>| row(packets.start)..row(packets.end);
        let skipped: Vec<_> = others.iter().map(|range| rows_of(range.packets())).collect();
        unread.extend(others);
        if stopped {
            return Err(ArchiveError::Interrupted);
        }
        if let Some(number) = moved {
            let text = "is not where or when the index says";
            return Ok(Some(format!("{index}: packet {number} of {} {text}", file.display())));
        }
        self.take_digits(&mut sums).map_err(damaged)?;
        for rows in &skipped {
            sums.get_mut(rows.clone()).unwrap_or_default().fill(0);
        }
        if let Some(number) = sums.iter().position(|&sum| sum != 0) {
            let text = "has other headers than the index says";
            return Ok(Some(format!("{index}: packet {number} of {} {text}", file.display())));
        }
        if skipped.is_empty()
            && (wire, captured) != (self.note().wire_bytes, self.note().captured_bytes)
        {
            let text = "have other lengths than the index says";
            return Ok(Some(format!("{index}: the packets of {} {text}", file.display())));
        }
        Ok(None)
    }

    /// Subtracts from each packet's sum the digits that the columns have for it.
    fn take_digits(&self, sums: &mut [u64]) -> Result<(), IndexError> {
        let index = self.index();
        let record_of: Option<Vec<u32>> = match index.row_map()? {
            Some(row_map) => Some(row_map.iter().collect::<Result<_, _>>()?),
            None => None,
        };
        for field in FieldSet::ALL.iter() {
            if self.columns().get(field) != Column::Known {
                continue;
            }
            let Some(column) = self.columns().read(field)? else { continue };
            column.for_each_run(&mut |value, first, last| {
                let print = value_print(field, value);
                for row in first..=last {
                    let record = match &record_of {
                        Some(record_of) => record_of.get(row as usize).copied().unwrap_or(row),
                        None => row,
                    };
                    if let Some(sum) = sums.get_mut(record as usize) {
                        *sum = sum.wrapping_sub(print);
                    }
                }
            })?;
        }
        Ok(())
    }
}

/// The sum of the fingerprints of the digits of a field's value.
fn value_print(field: Field, value: u128) -> u64 {
    let spec = field.spec();
    let mut sum = 0_u64;
    for digit in 0..spec.digits {
        let after = spec.width.bits() * (spec.digits - 1 - digit);
        let key = value >> after & ((1 << spec.width.bits()) - 1);
        let key = u64::try_from(key).unwrap_or(0);
        sum = sum.wrapping_add(fingerprint(field, digit as usize, key));
    }
    sum
}

/// The sum of the fingerprints of all digits of a packet, as far as a segment knows them.
fn digits_sum(packet: &Packet<'_>, known: FieldSet) -> u64 {
    let print = |sum: u64, field: Field| sum.wrapping_add(value_print(field, field.value(packet)));
    known.iter().fold(0, print)
}

/// The capture that a segment was made from: the original, or our copy if that is gone.
fn capture_of(archive: &Archive, segment: &Segment) -> PathBuf {
    let source = &segment.note().source;
    let folder = segment.path().parent().unwrap_or(Path::new(""));
    let origin = folder.join(source.origin());
    match source.is_copy() && archive.storage.is_file(&origin) {
        true => archive.real_path(origin),
        false => archive.real_path(segment.packet_path()),
    }
}

/// The prefix of the names of a capture's indexes, made from the file that has its packets.
fn packets_stem(capture: &Path, archive: &Archive) -> Option<String> {
    let storage = &archive.storage;
    let name = copy_name(&**storage, capture);
    let copy = archive.packets_folder().join(format!("{name}.pcap"));
    // A copy exists only if the capture is not a packet file itself.
    let packets =
        if storage.is_file(&copy) { storage.real_path(&copy).ok()? } else { capture.to_owned() };
    Some(archive.index_stem(&packets))
}

/// Finds the capture of an unreadable index.
fn tell(
    archive: &Archive,
    index: &Path,
    known: &[(PathBuf, PathBuf)],
    candidates: &[PathBuf],
) -> Option<PathBuf> {
    let stem = capture_name(index);
    let sibling = known.iter().find(|(other, _)| capture_name(other) == stem);
    if let Some((_, capture)) = sibling {
        return Some(capture.clone());
    }
    if let Some(capture) = candidates.iter().find(|path| archive.index_stem(path) == stem) {
        return Some(capture.clone());
    }
    // If captures and archive were moved together, only the file name is left to go by, and only if
    // one capture has it.
    let name = |stem: &str| stem.rsplit_once('-').map(|(name, _)| name.to_owned());
    let wanted = name(stem)?;
    let is_free = |path: &&PathBuf| known.iter().all(|(_, capture)| capture != *path);
    let mut named = candidates.iter().filter(is_free);
    let stem_of = |path: &Path| name(&archive.index_stem(path));
    let mut named = named.by_ref().filter(|path| stem_of(path).as_ref() == Some(&wanted));
    let only = named.next()?;
    named.next().is_none().then(|| only.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::Rights;
    use crate::capture::{CaptureWriter, FileFormat, Interface};
    use crate::traffic::{Profile, Traffic};

    fn write_capture(path: &Path, packets: u64) {
        let interface = Interface::new(1, 1_000_000_000);
        let mut writer =
            CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[interface], "").unwrap();
        let mut traffic = Traffic::new(&Profile { packets, ..Profile::default() });
        while let Some(packet) = traffic.next() {
            writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
        }
        std::fs::write(path, writer.finish().unwrap()).unwrap();
    }

    fn records(archive: &Archive) -> u64 {
        let (segments, failed) = archive.segments().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        segments.iter().map(|segment| segment.note().records).sum()
    }

    #[test]
    fn parts_of_a_capture_tell_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        // Not where anybody would look for it.
        let elsewhere = tempfile::tempdir().unwrap();
        let capture = elsewhere.path().join("a.pcap");
        write_capture(&capture, 1_000);
        let archive = Archive::create(folder.path(), None).unwrap();
        let report = Ingest::new(&archive).records_max(300).run(&[Input::File(capture)]).unwrap();
        assert_eq!((report.files[0].segments, records(&archive)), (4, 1_000));
        let files = archive.index_files().unwrap();
        for damaged in [&files[..1], &files[1..3], &files[3..]] {
            for path in damaged.iter().filter(|path| path.exists()) {
                std::fs::write(path, "no index").unwrap();
            }
            let report = Repair::new(&archive).run().unwrap();
            assert!(report.left.is_empty(), "{report:?}");
            assert_eq!(records(&archive), 1_000);
        }
    }

    #[test]
    fn every_digit_of_a_column_counts() {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("a.pcap");
        write_capture(&capture, 500);
        let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        Ingest::new(&archive).run(&[Input::File(capture.clone())]).unwrap();
        let (segments, _) = archive.segments().unwrap();
        assert_eq!(segments[0].compare(&mut |_| true).unwrap(), Compared::default());
        assert!(matches!(
            segments[0].compare(&mut |number| number < 100),
            Err(ArchiveError::Interrupted)
        ));
        let good = std::fs::read(&capture).unwrap();
        // Every byte of the headers of a frame far from both ends.
        let mut reader = crate::capture::CaptureReader::open(&good[..]).unwrap();
        let mut offset = 0;
        for _ in 0..250 {
            let record = reader.next().unwrap().unwrap();
            offset = usize::try_from(record.offset).unwrap();
        }
        // Destination and source, EtherType.
        for at in 16..30 {
            let mut bytes = good.clone();
            bytes[offset + at] ^= 0x10;
            std::fs::write(&capture, bytes).unwrap();
            let difference = segments[0].compare(&mut |_| true).unwrap().difference;
            assert!(difference.is_some_and(|text| text.contains("packet 249 of")), "{at}");
        }
    }

    #[test]
    fn what_somebody_holds_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::create(folder.path(), None).unwrap();
        let [held, left] =
            ["held", "left"].map(|name| archive.segments_folder().join(format!(".{name}.tdx.tmp")));
        let file = archive.storage.create(&held, Rights::USUAL).unwrap();
        std::fs::write(&left, "half an index").unwrap();
        let report = Repair::new(&archive).run().unwrap();
        assert_eq!(report.removed, std::slice::from_ref(&left));
        assert!(held.exists() && !left.exists());
        drop(file);
    }

    #[test]
    fn parts_that_do_not_follow_each_other_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("a.pcap");
        let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        let index = |packets| {
            write_capture(&capture, packets);
            let ingest = Ingest::new(&archive).records_max(300).force(true);
            ingest.run(&[Input::File(capture.clone())]).unwrap();
            archive.index_files().unwrap()
        };
        let is_missed = || {
            let failed = archive.segments().unwrap().1;
            failed.iter().any(|error| matches!(**error, ArchiveError::MissingPart { .. }))
        };
        let files = index(900);
        assert!(files.len() == 3 && !is_missed());
        let old: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
        // Without one of them, be it the first, the middle or the last.
        for (path, bytes) in files.iter().zip(&old) {
            std::fs::remove_file(path).unwrap();
            assert!(is_missed(), "{}", path.display());
            std::fs::write(path, bytes).unwrap();
            assert!(!is_missed());
        }
        // With one from before the capture has changed.
        assert_eq!(index(800), files);
        assert!(!is_missed());
        std::fs::write(&files[0], &old[0]).unwrap();
        assert!(is_missed());
    }
}
