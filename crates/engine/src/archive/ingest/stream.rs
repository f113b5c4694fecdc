//! A capture that is being read: by several threads at a time, and put together in order.
//!
//! The file is cut into windows of bytes. A thread that reads a window makes chunks of the packets
//! that start in it. It knows where the first of these starts if all windows before are read;
//! otherwise it [guesses](crate::capture::next_start), so that threads need not wait for each
//! other. Then the window counts only if the windows before it end just there, with the same
//! interfaces; if they do not, it is read again from the right place. So a guess that is wrong
//! costs time, and nothing else depends on it.
//!
//! Chunks are put together to segments in the order of the capture. A segment ends before the first
//! chunk that does not fit. Where that is depends on the capture alone, neither on threads nor on
//! guesses: so the files are always the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::open::OpenCapture;
use crate::archive::builder::{Chunk, Ended, Room};
use crate::archive::{ArchiveError, SourceFile};
use crate::capture::blocks::Statistics;
use crate::capture::{CaptureError, CaptureReader, Gathered, Layout};
use crate::storage::{ReadFile, Reader};

/// Bytes of a window, at least and at most.
const WINDOW_MIN: u64 = 8 << 20;
const WINDOW_MAX: u64 = 64 << 20;
/// Bytes at the start of a capture that say what it is like.
const LOOK_LEN: u64 = 1 << 20;
/// Packets that a window should have.
const WINDOW_RECORDS: u64 = 1 << 16;

/// How a capture is to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// Packets of a segment, at most.
    pub(super) records_max: usize,
    /// Bytes of a window, if that does not follow from the capture.
    pub(super) window: Option<u64>,
}

/// A capture that is being read.
pub(super) struct Stream {
    pub(super) input: usize,
    pub(super) shared: Arc<Shared>,
    broken: Option<String>,
    records_max: usize,
    window: u64,
    /// The window from which on the file has nothing, when it was opened; the one before goes on to
    /// the end of the file.
    windows: u64,
    /// The first window that no thread has taken.
    next: u64,
    /// Windows behind that at hand that have to be read again, because their guesses did not know
    /// all interfaces.
    redo: BTreeSet<u64>,
    /// The window at hand has to be read again, from the right place.
    again: bool,
    /// Threads that read windows.
    pub(super) reading: usize,
    /// Windows that were read before those in front of them.
    read: BTreeMap<u64, WindowRead>,
    at: Reached,
    /// What guesses know about the capture, as long as no more is known from its packets.
    expected: Arc<Layout>,
    segment: Segment,
    gathered: Gathered,
    pub(super) ended: bool,
}

/// What all who read a capture or write its segments need.
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn ReadFile>,
    pub(super) is_recording: bool,
    pub(super) with_sums: bool,
}

/// How far the capture is put together: before this window, which may start before the place.
struct Reached {
    window: u64,
    position: u64,
    layout: Arc<Layout>,
}

/// A segment that is being put together.
struct Segment {
    source: SourceFile,
    records: usize,
    room: Room,
    chunks: Vec<Chunk>,
}

/// A segment that is complete.
pub(super) struct WholeSegment {
    pub(super) input: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) source: SourceFile,
    pub(super) layout: Arc<Layout>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) statistics: Vec<Statistics>,
    /// The last counters of interfaces, if packets follow.
    pub(super) counting: Vec<(u32, Statistics)>,
}

/// A window to be read.
pub(super) struct Window {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) bytes: std::ops::Range<u64>,
    /// Where its first packet starts, if that is known.
    pub(super) start: Option<u64>,
    pub(super) layout: Arc<Layout>,
    /// Packets of a chunk, at most.
    pub(super) records_max: usize,
}

/// A window that was read.
pub(super) struct WindowRead {
    /// Where reading started; `None` if there was no guess.
    pub(super) start: Option<u64>,
    /// What was known about the capture then.
    pub(super) layout: Arc<Layout>,
    pub(super) chunks: Vec<ReadChunk>,
    /// Where reading ended.
    pub(super) end: u64,
    pub(super) ended: Result<Ended, ArchiveError>,
}

/// A chunk, and what is known about the capture behind it.
pub(super) struct ReadChunk {
    pub(super) chunk: Chunk,
    pub(super) layout: Arc<Layout>,
    /// Statistics among its packets.
    pub(super) told: Vec<(u32, Statistics)>,
}

/// What has become of a capture.
#[derive(Default)]
pub(super) struct Progressed {
    pub(super) whole: Vec<WholeSegment>,
    /// Chunks that are not needed.
    pub(super) unused: Vec<Chunk>,
    /// Bytes of memory that chunks do not need any more.
    pub(super) freed: usize,
    pub(super) error: Option<ArchiveError>,
    /// Bytes and packets that were put together.
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

impl Stream {
    pub(super) fn new(input: usize, capture: OpenCapture, manner: Manner) -> Self {
        let OpenCapture { reader, source, path, broken, is_recording, with_sums, counting } =
            capture;
        let (position, layout) = (reader.position(), Arc::new(reader.layout().clone()));
        let file = reader.into_source().into_file();
        let file: Arc<dyn ReadFile> = Arc::from(file);
        let mut gathered = Gathered::default();
        counting.into_iter().for_each(|(interface, last)| gathered.count_on(interface, last));
        let (usual, expected) = look(&file, &layout);
        let window = manner.window.unwrap_or(usual);
        let len = file.metadata().map_or(0, |data| data.len);
        let records_max = manner.records_max;
        let segment =
            Segment { source, records: 0, room: Room::new(records_max), chunks: Vec::new() };
        Self {
            input,
            shared: Arc::new(Shared { path, file, is_recording, with_sums }),
            broken,
            records_max,
            window,
            windows: len.div_ceil(window).max(position / window + 1),
            next: position / window,
            redo: BTreeSet::new(),
            again: false,
            reading: 0,
            read: BTreeMap::new(),
            at: Reached { window: position / window, position, layout },
            expected: Arc::new(expected),
            segment,
            gathered,
            ended: false,
        }
    }

    /// The window behind the last one reads on to wherever the file ends then.
    fn end_of(&self, window: u64) -> u64 {
        if window + 1 >= self.windows { u64::MAX } else { (window + 1) * self.window }
    }

    /// The next window to be read; `ahead` says how many may be between it and the one at hand.
    pub(super) fn next(&mut self, ahead: u64) -> Option<Window> {
        if self.ended {
            return None;
        }
        self.redo = self.redo.split_off(&self.at.window);
        let number = if self.again {
            self.again = false;
            self.at.window
        } else if let Some(number) = self.redo.pop_first() {
            number
        } else {
            self.next = self.next.max(self.at.window);
            if self.next >= self.windows || self.next > self.at.window + ahead {
                return None;
            }
            self.next += 1;
            self.next - 1
        };
        self.reading += 1;
        let start = (number == self.at.window).then_some(self.at.position);
        let is_more_expected = extent(&self.expected) > extent(&self.at.layout);
        let layout =
            if start.is_none() && is_more_expected { &self.expected } else { &self.at.layout };
        Some(Window {
            shared: Arc::clone(&self.shared),
            number,
            bytes: number * self.window..self.end_of(number),
            start,
            layout: Arc::clone(layout),
            records_max: self.records_max,
        })
    }

    /// Takes in a window that was read, and goes on as far as that leads.
    pub(super) fn put(&mut self, number: u64, window: WindowRead) -> Progressed {
        let mut progressed = Progressed::default();
        self.reading -= 1;
        if self.ended || number < self.at.window || self.read.contains_key(&number) {
            progressed.drop_chunks(window);
            return progressed;
        }
        self.read.insert(number, window);
        while !self.ended {
            let number = self.at.window;
            if self.at.position >= self.end_of(number) {
                // All of it lies in a packet that starts before it.
                self.read.remove(&number).into_iter().for_each(|w| progressed.drop_chunks(w));
                self.at.window += 1;
                continue;
            }
            let Some(window) = self.read.remove(&number) else { break };
            if self.fits(&window) {
                self.at.window += 1;
                self.take(window, &mut progressed);
            } else {
                progressed.drop_chunks(window);
                self.again = true;
                self.drop_outdated(&mut progressed);
                break;
            }
        }
        if self.ended {
            for (_, window) in std::mem::take(&mut self.read) {
                progressed.drop_chunks(window);
            }
        }
        progressed
    }

    /// Whether a window was read from the right place, with the right interfaces.
    fn fits(&self, window: &WindowRead) -> bool {
        window.start == Some(self.at.position) && extent(&window.layout) == extent(&self.at.layout)
    }

    /// Drops the windows behind the one at hand whose guesses did not know all interfaces that are
    /// known now: none of them fits, and together they are read again sooner than one by one.
    fn drop_outdated(&mut self, progressed: &mut Progressed) {
        let known = extent(&self.at.layout);
        let outdated = self.read.extract_if(.., |_, window| extent(&window.layout) < known);
        for (number, window) in outdated {
            self.redo.insert(number);
            progressed.drop_chunks(window);
        }
    }

    /// Takes in a window that fits.
    fn take(&mut self, window: WindowRead, progressed: &mut Progressed) {
        progressed.bytes += window.end.saturating_sub(self.at.position);
        for ReadChunk { mut chunk, layout, told } in window.chunks {
            progressed.packets += chunk.records() as u64;
            if !self.segment.room.take(&chunk) {
                progressed.whole.push(self.close(false, String::new(), false));
                self.segment.room.take(&chunk);
            }
            let held = chunk.bytes();
            chunk.mark(self.segment.records);
            progressed.freed += held.saturating_sub(chunk.bytes());
            self.segment.records += chunk.records();
            self.at.position = chunk.end();
            // Sections that change nothing may have come before a window whose start was guessed.
            if layout.known > self.at.layout.known {
                self.at.layout = layout;
            }
            told.into_iter().for_each(|(interface, told)| self.gathered.add(interface, told));
            self.segment.chunks.push(chunk);
        }
        self.at.position = window.end;
        let (damage, cut_short) = match window.ended {
            Ok(Ended::Full) => return,
            Ok(Ended::Capture) => (self.broken.take(), false),
            Ok(Ended::Damage(error)) => {
                let cut_short = matches!(error, CaptureError::Truncated { .. });
                (Some(error.to_string()), cut_short)
            }
            // As if it had not been read.
            Err(error) => {
                progressed.error = Some(error);
                progressed.unused.append(&mut self.segment.chunks);
                self.ended = true;
                return;
            }
        };
        progressed.whole.push(self.close(true, damage.unwrap_or_default(), cut_short));
        self.ended = true;
    }

    /// Ends the segment at hand, and begins the one after it.
    fn close(&mut self, last: bool, damage: String, cut_short: bool) -> WholeSegment {
        let Segment { source, records, room, chunks } = &mut self.segment;
        let chunks = std::mem::take(chunks);
        let end = self.at.position;
        let mut whole = source.clone();
        (whole.end, whole.last) = (end, last);
        (whole.damage, whole.cut_short) = (damage, cut_short);
        source.part = source.part.saturating_add(1);
        source.start = end;
        let records = std::mem::take(records) as u64;
        source.records_before = source.records_before.saturating_add(records);
        *room = Room::new(self.records_max);
        WholeSegment {
            input: self.input,
            shared: Arc::clone(&self.shared),
            source: whole,
            layout: Arc::clone(&self.at.layout),
            chunks,
            statistics: self.gathered.take(),
            counting: if last { Vec::new() } else { self.gathered.counting().collect() },
        }
    }
}

impl Progressed {
    fn drop_chunks(&mut self, window: WindowRead) {
        self.unused.extend(window.chunks.into_iter().map(|read| read.chunk));
    }
}

/// Sections and interfaces. Layouts of the same file begin alike, so these tell them apart.
fn extent(layout: &Layout) -> (usize, usize) {
    (layout.sections.len(), layout.interfaces.len())
}

/// Looks at the first packets of a capture. Returns the bytes of a window, about as many as some
/// ten thousand packets take, and the interfaces that guesses may count on, besides what is known.
fn look(file: &Arc<dyn ReadFile>, known: &Layout) -> (u64, Layout) {
    let (mut records, mut end, mut layout) = (0, 0, known.clone());
    if let Ok(mut reader) = CaptureReader::open(Reader::new(Arc::clone(file))) {
        reader.stop_at(LOOK_LEN);
        while end < LOOK_LEN && matches!(reader.next(), Ok(Some(_))) {
            (records, end) = (records + 1, reader.position());
        }
        layout = reader.layout().clone();
    }
    let mean: u64 = end.checked_div(records).unwrap_or(0);
    let window = (mean * WINDOW_RECORDS).next_power_of_two().clamp(WINDOW_MIN, WINDOW_MAX);
    (window, layout)
}
