//! Packets as a recorder writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::question::{Query, Refusal};
use crate::archive::{Archive, ArchiveError, PacketsFault, Recording, Segment, recording_number};
use crate::capture::{CaptureError, CaptureReader, Layout, Record};
use crate::packet::{Headers, LinkType};
use crate::storage::Reader;

/// A packet that has just been recorded.
#[derive(Debug, Clone, Copy)]
pub struct Fresh<'a> {
    /// The recording that it is in.
    pub recording: &'a Recording,
    /// Its number there, from 0.
    pub number: u64,
    /// How that file is read; includes the packet's interface.
    pub layout: &'a Layout,
    /// The packet.
    pub record: Record<'a>,
}

/// Continues reading the recordings of an archive where an answer ended.
#[derive(Debug)]
pub struct Follow<'a> {
    archive: &'a Archive,
    query: &'a Query,
    /// How far the answer went in recordings that are not complete: bytes, packets, and how the
    /// file is read from there on.
    answered: BTreeMap<String, (u64, u64, Layout)>,
    /// Recordings that were read to their end.
    finished: BTreeSet<String>,
    open: BTreeMap<String, Open>,
    /// The greatest number of a recording that was seen.
    last_number: Option<u64>,
    headers: Headers,
    /// Link types that the filter cannot be compiled for, with libpcap's message.
    refused: BTreeMap<LinkType, Refusal>,
    missed: Vec<ArchiveError>,
}

/// A recording that is being read.
#[derive(Debug)]
struct Open {
    recording: Recording,
    reader: CaptureReader<Reader>,
    /// The number of the next packet.
    number: u64,
}

impl<'a> Follow<'a> {
    /// Follows the recordings from the end of these segments on, which are those that were
    /// searched.
    pub fn after<'s>(
        archive: &'a Archive,
        query: &'a Query,
        segments: impl IntoIterator<Item = &'s Arc<Segment>>,
    ) -> Self {
        let (mut answered, mut finished) = (BTreeMap::new(), BTreeSet::new());
        let mut last_number = None;
        for segment in segments {
            let Some(name) = segment.recording_name() else { continue };
            let source = &segment.note().source;
            let packets = source.records_before.saturating_add(segment.note().records);
            let layout = || segment.note().layout.clone();
            let reached: &mut (u64, u64, Layout) =
                answered.entry(name.to_owned()).or_insert_with(|| (0, 0, layout()));
            if source.end >= reached.0 {
                *reached = (source.end, packets, layout());
            }
            last_number = last_number.max(recording_number(name));
            if source.last {
                finished.insert(name.to_owned());
            }
        }
        answered.retain(|name, _| !finished.contains(name));
        Self {
            archive,
            query,
            answered,
            finished,
            open: BTreeMap::new(),
            last_number,
            headers: Headers::default(),
            refused: BTreeMap::new(),
            missed: Vec::new(),
        }
    }

    /// Link types of recorded packets that the filter cannot be compiled for, and why.
    pub fn refused(&self) -> &BTreeMap<LinkType, Refusal> {
        &self.refused
    }

    /// Recordings that could not be read to their end, in the order in which that was noticed: they
    /// were removed early, or are damaged.
    pub fn missed(&self) -> &[ArchiveError] {
        &self.missed
    }

    /// Passes the packets that were recorded since the last call, and match, to `each`, recording
    /// by recording, in order of arrival. `each` returns whether to go on.
    pub fn poll(
        &mut self,
        each: &mut dyn FnMut(Fresh<'_>) -> Result<bool, ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let mut recordings = self.archive.recordings()?;
        if self.is_lacking(&recordings) {
            // A recording that is renamed while the folder is listed may be missed.
            recordings = self.archive.recordings()?;
        }
        self.note_removed(&recordings);
        let there: BTreeSet<&str> = recordings.iter().map(Recording::name).collect();
        self.finished.retain(|name| there.contains(name.as_str()));
        // An open recording can be read to its end even if its name is gone.
        let open = self.open.values().map(|open| &open.recording);
        let gone = open.filter(|recording| !there.contains(recording.name()));
        let mut all: Vec<Recording> = gone.cloned().collect();
        all.extend(recordings);
        for recording in &all {
            if !self.finished.contains(recording.name()) && !self.read(recording, each)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether recordings are missing from the list.
    fn is_lacking(&self, recordings: &[Recording]) -> bool {
        let mut last = self.last_number;
        for number in recordings.iter().filter_map(Recording::number) {
            if unseen(last, number) > 0 {
                return true;
            }
            last = last.max(Some(number));
        }
        let is_there = |name: &String| recordings.iter().any(|found| found.name() == name);
        !self.answered.keys().all(is_there)
    }

    /// Notes which recordings were removed before they were read.
    fn note_removed(&mut self, recordings: &[Recording]) {
        let there: BTreeSet<&str> = recordings.iter().map(Recording::name).collect();
        let packets = self.archive.packets_folder();
        let missed = &mut self.missed;
        self.answered.retain(|name, _| {
            let is_there = there.contains(name.as_str());
            if !is_there {
                missed.push(removed(packets.join(name)));
            }
            is_there
        });
        for recording in recordings {
            let Some(number) = recording.number() else { continue };
            // Recordings that came and went since the last call.
            let recordings = unseen(self.last_number, number);
            if recordings > 0 {
                let fault = PacketsFault::RemovedBefore { recordings };
                missed.push(ArchiveError::BadPackets { path: recording.sealed_path(), fault });
            }
            self.last_number = self.last_number.max(Some(number));
        }
    }

    /// Continues reading a recording; returns whether to go on with the next one.
    fn read(
        &mut self,
        recording: &Recording,
        each: &mut dyn FnMut(Fresh<'_>) -> Result<bool, ArchiveError>,
    ) -> Result<bool, ArchiveError> {
        let (name, path) = (recording.name(), recording.sealed_path());
        // Checked before it is read: a recording that is sealed or gone by then no longer grows.
        let complete = recording.is_sealed() || !recording.is_unfinished();
        if !self.open.contains_key(name) {
            match self.start(recording, complete)? {
                Some(open) => drop(self.open.insert(name.to_owned(), open)),
                None => return Ok(true),
            }
        }
        let Some(Open { reader, number, .. }) = self.open.get_mut(name) else { return Ok(true) };
        let (mut go_on, mut finished) = (true, complete);
        while go_on {
            let position = reader.position();
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(CaptureError::Truncated { .. }) if !complete => {
                    // The rest is still to be written.
                    reader.reread(position).map_err(ArchiveError::capture(&path))?;
                    break;
                }
                // Packets behind it cannot be read.
                Err(error) => {
                    self.missed.push(ArchiveError::capture(&path)(error));
                    finished = true;
                    break;
                }
            };
            *number += 1;
            match self.query.scan(&record, &mut self.headers) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(refusal) => {
                    self.refused.insert(record.link, refusal);
                    continue;
                }
            }
            // The reader cannot be asked for its layout while it lends the packet.
            let data = record.data.to_vec();
            let rest = Record { data: &[], ..record };
            go_on = each(Fresh {
                recording,
                number: *number - 1,
                layout: reader.layout(),
                record: Record { data: &data, ..rest },
            })?;
        }
        if finished && go_on {
            self.finish(name);
        }
        Ok(go_on)
    }

    fn finish(&mut self, name: &str) {
        self.open.remove(name);
        self.finished.insert(name.to_owned());
    }

    /// Opens a recording where the answer ended; `None` if nothing of it is written yet, or it
    /// cannot be read.
    fn start(
        &mut self,
        recording: &Recording,
        complete: bool,
    ) -> Result<Option<Open>, ArchiveError> {
        let path = recording.sealed_path();
        let file = match recording.open() {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.answered.remove(recording.name());
                self.missed.push(removed(path));
                return Ok(None);
            }
            Err(error) => return Err(ArchiveError::io("open", &path, error)),
        };
        let answered = self.answered.get(recording.name()).cloned();
        let (opened, number) = match answered {
            Some((end, number, layout)) => (CaptureReader::resume(file, layout, end), number),
            None => (CaptureReader::open(file), 0),
        };
        let reader = match opened {
            Ok(reader) => reader,
            Err(CaptureError::Truncated { .. }) if !complete => return Ok(None),
            Err(error) => {
                self.answered.remove(recording.name());
                self.missed.push(ArchiveError::capture(&path)(error));
                self.finish(recording.name());
                return Ok(None);
            }
        };
        self.answered.remove(recording.name());
        Ok(Some(Open { recording: recording.clone(), reader, number }))
    }
}

/// How many recordings lie between the last one that was seen and one that is there now.
fn unseen(last: Option<u64>, number: u64) -> u64 {
    last.map_or(0, |last| number.saturating_sub(last).saturating_sub(1))
}

fn removed(path: PathBuf) -> ArchiveError {
    ArchiveError::BadPackets { path, fault: PacketsFault::Removed }
}
