//! Reading a window of a capture: from its packets to chunks.

use std::sync::Arc;
use std::time::Instant;

use super::stream::{ReadChunk, Window, WindowRead};
use super::{Ingest, Run, Step, schedule};
use crate::archive::ArchiveError;
use crate::archive::builder::{CHUNK_RECORDS_MAX, Chunk, Decoder, Ended};
use crate::archive::device::{PacketDevice, PacketKey, SegmentFailed};
use crate::capture::{CaptureReader, GUESS_LEN, Layout, next_start};
use crate::fields::Packet;
use crate::packet::{self, Headers};
use crate::storage::{ReadFile, Reader};

/// Packets between two checks of whether to stop.
const STEP_RECORDS: usize = 1 << 14;

impl Ingest<'_> {
    /// Reads a window. If a device takes the packets and fails, it is read again without.
    pub(super) fn read_window(
        &self,
        run: &Run<'_>,
        decoder: &mut Decoder,
        window: &Window,
    ) -> WindowRead {
        let mut device = run.device.packets();
        loop {
            let mut chunks = Vec::new();
            match self.read_packets(run, decoder, window, device, &mut chunks) {
                Ok(read) => return WindowRead { chunks, ..read },
                Err(trouble) => run.device.frames_failed(&trouble),
            }
            let chunks: Vec<Chunk> = chunks.into_iter().map(|read| read.chunk).collect();
            run.queue.release(schedule::bytes(&chunks));
            run.unused(chunks);
            device = None;
        }
    }

    /// Reads a window, and appends its chunks.
    fn read_packets(
        &self,
        run: &Run<'_>,
        decoder: &mut Decoder,
        window: &Window,
        device: Option<&Arc<dyn PacketDevice>>,
        chunks: &mut Vec<ReadChunk>,
    ) -> Result<WindowRead, SegmentFailed> {
        let nothing = |start, ended| WindowRead {
            start,
            layout: Arc::clone(&window.layout),
            chunks: Vec::new(),
            end: window.bytes.start,
            ended,
        };
        let start = match window.start {
            Some(start) => start,
            None => match guess(window) {
                Some(start) => start,
                None => return Ok(nothing(None, Ok(Ended::Full))),
            },
        };
        let path = &window.shared.path;
        let source = Reader::new(Arc::clone(&window.shared.file));
        let reader = CaptureReader::resume(source, (*window.layout).clone(), start);
        let mut reader = match reader.map_err(ArchiveError::capture(path)) {
            Ok(reader) => reader,
            Err(error) => return Ok(nothing(Some(start), Err(error))),
        };
        reader.list_statistics();
        reader.stop_at(window.bytes.end);
        let mut layout = Arc::clone(&window.layout);
        let ended = loop {
            let mut chunk = self.empty_chunk(run);
            chunk.start(decoder, &mut reader, window.shared.with_sums);
            if let Some(device) = device {
                chunk.begin_on(device, &run.kept)?;
            }
            let ended = self.fill(window, &mut chunk, decoder, &mut reader);
            chunk.finish(decoder, &mut reader);
            if ended.is_ok() {
                let start = Instant::now();
                finish_on_device(run, window, &mut chunk, reader.layout())?;
                if device.is_some() {
                    run.steps.add(Step::Device, start.elapsed());
                    run.steps.take_off(Step::Read, start.elapsed());
                }
            }
            let known = reader.layout();
            if (known.sections.len(), known.interfaces.len(), known.known)
                != (layout.sections.len(), layout.interfaces.len(), layout.known)
            {
                layout = Arc::new(known.clone());
            }
            let told = reader.take_listed();
            run.queue.hold(chunk.bytes());
            chunks.push(ReadChunk { chunk, layout: Arc::clone(&layout), told });
            match ended {
                Ok(Ended::Full) if reader.position() < window.bytes.end => {}
                ended => break ended,
            }
        };
        let (layout, end) = (Arc::clone(&window.layout), reader.position());
        Ok(WindowRead { start: Some(start), layout, chunks: Vec::new(), end, ended })
    }

    /// Fills a chunk with packets of the window.
    fn fill(
        &self,
        window: &Window,
        chunk: &mut Chunk,
        decoder: &mut Decoder,
        reader: &mut CaptureReader<Reader<Arc<dyn ReadFile>>>,
    ) -> Result<Ended, ArchiveError> {
        let most = window.records_max.min(CHUNK_RECORDS_MAX);
        loop {
            let step = most.min(chunk.records() + STEP_RECORDS);
            let ended = chunk.read(decoder, reader, step, window.bytes.end);
            let ended = ended.map_err(ArchiveError::capture(&window.shared.path))?;
            if self.is_stopped() {
                return Err(ArchiveError::Interrupted);
            }
            let is_full = chunk.records() >= most || reader.position() >= window.bytes.end;
            if is_full || chunk.has_failed() || !matches!(ended, Ended::Full) {
                return Ok(ended);
            }
        }
    }
}

/// Has the device find the flows of a chunk, if it has one. Packets that it refuses are read again.
fn finish_on_device(
    run: &Run<'_>,
    window: &Window,
    chunk: &mut Chunk,
    layout: &Layout,
) -> Result<(), SegmentFailed> {
    if chunk.records() == 0 {
        chunk.leave_device();
        return Ok(());
    }
    let offsets = chunk.refused()?;
    let mut keys = Vec::with_capacity(offsets.len());
    if let Some(&first) = offsets.first() {
        let source = Reader::new(Arc::clone(&window.shared.file));
        let reader = CaptureReader::resume(source, layout.clone(), first);
        let mut reader = reader.map_err(|_| SegmentFailed::Disorder)?;
        let mut headers = Headers::default();
        for offset in offsets {
            let found = reader.seek(offset).and_then(|()| reader.next());
            // If the file has changed, the CPU sees that, too.
            let Ok(Some(record)) = found else { return Err(SegmentFailed::Disorder) };
            packet::decode(record.link, record.swapped, record.data, &mut headers);
            keys.push(PacketKey::of(&Packet::new(&record, &headers), &run.kept));
        }
    }
    let is_on_device = chunk.on_device().is_some();
    chunk.finish_on_device(&keys)?;
    if is_on_device {
        run.device.frames_done(keys.len() as u64);
    }
    Ok(())
}

/// Where the first packet of a window may start.
fn guess(window: &Window) -> Option<u64> {
    let mut bytes = vec![0; GUESS_LEN];
    let mut len = 0;
    let is_end = loop {
        let read = window.shared.file.read_at(&mut bytes[len..], window.bytes.start + len as u64);
        match read.ok()? {
            0 => break len < bytes.len(),
            more => len += more,
        }
        if len == bytes.len() {
            break false;
        }
    };
    let place = next_start(&window.layout, &bytes[..len], is_end)?;
    let start = window.bytes.start + place as u64;
    (start < window.bytes.end).then_some(start)
}
