//! Packets as a recorder writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use super::search::Query;
use crate::archive::{Archive, ArchiveError, Recording, Segment};
use crate::capture::{CaptureError, CaptureReader, Layout, Record};
use crate::packet::{Headers, LinkType};

/// A packet that has just been recorded.
#[derive(Debug, Clone, Copy)]
pub struct Fresh<'a> {
    /// The recording that it is in.
    pub recording: &'a Recording,
    /// Its number there, from 0.
    pub number: u64,
    /// How that file is read; it knows of the packet's interface.
    pub layout: &'a Layout,
    /// The packet.
    pub record: Record<'a>,
}

/// Goes on with the recordings of an archive where an answer ended.
#[derive(Debug)]
pub struct Follow<'a> {
    archive: &'a Archive,
    query: &'a Query,
    /// How far the answer went in recordings that are not complete: bytes and packets.
    answered: BTreeMap<String, (u64, u64)>,
    /// Recordings that were read to their end.
    finished: BTreeSet<String>,
    open: BTreeMap<String, CaptureReader<File>>,
    numbers: BTreeMap<String, u64>,
    headers: Headers,
    /// Links that the filter cannot be asked of, with libpcap's words.
    refused: BTreeMap<LinkType, String>,
}

impl<'a> Follow<'a> {
    /// Follows the recordings behind what these segments have, which are those that were asked.
    pub fn after<'s>(
        archive: &'a Archive,
        query: &'a Query,
        segments: impl IntoIterator<Item = &'s Segment>,
    ) -> Self {
        let (mut answered, mut finished) = (BTreeMap::new(), BTreeSet::new());
        for segment in segments {
            let Some(name) = segment.recording_name() else { continue };
            let source = &segment.note().source;
            let packets = source.records_before + segment.note().records;
            let reached: &mut (u64, u64) = answered.entry(name.to_owned()).or_default();
            *reached = (*reached).max((source.end, packets));
            if source.last {
                finished.insert(name.to_owned());
            }
        }
        Self {
            archive,
            query,
            answered,
            finished,
            open: BTreeMap::new(),
            numbers: BTreeMap::new(),
            headers: Headers::default(),
            refused: BTreeMap::new(),
        }
    }

    /// Links that packets have come from of which the filter cannot be asked, and why.
    pub fn refused(&self) -> &BTreeMap<LinkType, String> {
        &self.refused
    }

    /// Hands what has been recorded since the last time, and matches, to `each`, recording by
    /// recording, in order of arrival. It says whether to go on.
    pub fn poll(
        &mut self,
        each: &mut dyn FnMut(Fresh<'_>) -> Result<bool, ArchiveError>,
    ) -> Result<(), ArchiveError> {
        let recordings = self.archive.recordings()?;
        let there: BTreeSet<&str> = recordings.iter().map(Recording::name).collect();
        self.finished.retain(|name| there.contains(name.as_str()));
        self.open.retain(|name, _| there.contains(name.as_str()));
        for recording in &recordings {
            if !self.finished.contains(recording.name()) && !self.read(recording, each)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads on in a recording; whether to go on with the next one.
    fn read(
        &mut self,
        recording: &Recording,
        each: &mut dyn FnMut(Fresh<'_>) -> Result<bool, ArchiveError>,
    ) -> Result<bool, ArchiveError> {
        let name = recording.name();
        // Asked before it is read: what is sealed then does not grow any more.
        let sealed = recording.is_sealed();
        if !self.open.contains_key(name) {
            let Some(reader) = self.start(recording)? else { return Ok(true) };
            self.open.insert(name.to_owned(), reader);
        }
        let Some(reader) = self.open.get_mut(name) else { return Ok(true) };
        let number = self.numbers.entry(name.to_owned()).or_default();
        let mut go_on = true;
        while go_on {
            let position = reader.position();
            let record = match reader.next() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(CaptureError::Truncated { .. }) if !sealed => {
                    // The rest is still to be written.
                    let path = recording.sealed_path();
                    reader.seek(position).map_err(ArchiveError::capture(&path))?;
                    break;
                }
                // Damaged: what is behind it cannot be had.
                Err(_) => break,
            };
            *number += 1;
            match self.query.scan(&record, &mut self.headers) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(message) => {
                    self.refused.insert(record.link, message);
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
        if sealed && go_on {
            self.open.remove(name);
            self.numbers.remove(name);
            self.finished.insert(name.to_owned());
        }
        Ok(go_on)
    }

    /// Opens a recording where the answer ended; `None` if nothing of it is written yet.
    fn start(
        &mut self,
        recording: &Recording,
    ) -> Result<Option<CaptureReader<File>>, ArchiveError> {
        let path = recording.sealed_path();
        let file = match recording.open() {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ArchiveError::io("open", &path, error)),
        };
        let mut reader = match CaptureReader::open(file) {
            Ok(reader) => reader,
            Err(CaptureError::Truncated { .. }) => return Ok(None),
            Err(error) => return Err(ArchiveError::capture(&path)(error)),
        };
        let (end, packets) = self.answered.remove(recording.name()).unwrap_or_default();
        self.numbers.insert(recording.name().to_owned(), packets);
        // By the way of its blocks, to get to know its interfaces.
        while reader.position() < end {
            if !matches!(reader.next(), Ok(Some(_))) {
                break;
            }
        }
        Ok(Some(reader))
    }
}
