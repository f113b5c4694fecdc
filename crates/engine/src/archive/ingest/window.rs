//! Reading a window of a capture: from its packets to chunks.

use std::sync::Arc;

use super::stream::{ReadChunk, Window, WindowRead};
use super::{Ingest, Run};
use crate::archive::ArchiveError;
use crate::archive::builder::{CHUNK_RECORDS_MAX, Chunk, Ended};
use crate::capture::{CaptureReader, GUESS_LEN, next_start};
use crate::storage::{ReadFile, Reader};

/// Packets between two checks of whether to stop.
const STEP_RECORDS: usize = 1 << 14;

impl Ingest<'_> {
    /// Reads a window.
    pub(super) fn read_window(&self, run: &Run<'_>, window: Window) -> WindowRead {
        let nothing =
            |ended| WindowRead { start: None, chunks: Vec::new(), end: window.bytes.start, ended };
        let start = match window.start {
            Some(start) => start,
            None => match guess(&window) {
                Some(start) => start,
                None => return nothing(Ok(Ended::Full)),
            },
        };
        let path = &window.shared.path;
        let source = Reader::new(Arc::clone(&window.shared.file));
        let reader = CaptureReader::resume(source, (*window.layout).clone(), start);
        let mut reader = match reader.map_err(ArchiveError::capture(path)) {
            Ok(reader) => reader,
            Err(error) => {
                let start = Some((start, window.layout));
                return WindowRead { start, ..nothing(Err(error)) };
            }
        };
        reader.list_statistics();
        let mut chunks = Vec::new();
        let mut layout = Arc::clone(&window.layout);
        let ended = loop {
            let mut chunk = self.empty_chunk(run);
            chunk.start(&mut reader, window.shared.with_sums);
            let ended = self.fill(&window, &mut chunk, &mut reader);
            chunk.finish(&mut reader);
            let known = reader.layout();
            if (known.sections.len(), known.interfaces.len(), known.known)
                != (layout.sections.len(), layout.interfaces.len(), layout.known)
            {
                layout = Arc::new(known.clone());
            }
            let told = reader.take_listed();
            chunks.push(ReadChunk { chunk, layout: Arc::clone(&layout), told });
            match ended {
                Ok(Ended::Full) if reader.position() < window.bytes.end => {}
                ended => break ended,
            }
        };
        let (start, end) = (Some((start, window.layout)), reader.position());
        WindowRead { start, chunks, end, ended }
    }

    /// Fills a chunk with packets of the window.
    fn fill(
        &self,
        window: &Window,
        chunk: &mut Chunk,
        reader: &mut CaptureReader<Reader<Arc<dyn ReadFile>>>,
    ) -> Result<Ended, ArchiveError> {
        let most = window.records_max.min(CHUNK_RECORDS_MAX);
        loop {
            let step = most.min(chunk.records() + STEP_RECORDS);
            let ended = chunk.read(reader, step, window.bytes.end);
            let ended = ended.map_err(ArchiveError::capture(&window.shared.path))?;
            if self.is_stopped() {
                return Err(ArchiveError::Interrupted);
            }
            let is_full = chunk.records() >= most || reader.position() >= window.bytes.end;
            if is_full || !matches!(ended, Ended::Full) {
                return Ok(ended);
            }
        }
    }
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
