//! Captures of any bytes, read in several ways that have to agree.

use std::io::{self, Cursor, Read};

use crate::capture::{CaptureError, CaptureReader, Layout, Record};

/// A source that returns few bytes at a time, and never as many as the last time.
#[derive(Debug)]
struct Pieces<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.step = self.step * 5 % 37 + 1;
        let len = self.step.min(target.len());
        self.bytes.read(&mut target[..len])
    }
}

/// A record that owns its bytes.
type Owned = (u64, u64, u32, u16, bool, u32, Vec<u8>);

fn owned(record: &Record<'_>) -> Owned {
    let Record { offset, time_ns, interface, link, swapped, wire_len, data } = *record;
    (offset, time_ns, interface, link.0, swapped, wire_len, data.to_vec())
}

/// Reads to the end or to an error.
fn read_all(source: impl Read) -> Result<(Vec<Owned>, Layout, u64, Option<String>), CaptureError> {
    let mut reader = CaptureReader::open(source)?;
    let mut records = Vec::new();
    let error = loop {
        match reader.next() {
            Ok(Some(record)) => records.push(owned(&record)),
            Ok(None) => break None,
            Err(error) => {
                assert!(!error.advice().is_empty());
                break Some(error.to_string());
            }
        }
    };
    assert!(reader.next().is_ok_and(|record| record.is_none()), "a packet after the end");
    Ok((records, reader.layout().clone(), reader.position(), error))
}

/// Any bytes as a capture: read in pieces, at once, and from the middle.
pub fn fuzz_pcap_read(bytes: &[u8]) {
    let whole = read_all(bytes);
    let pieces = read_all(Pieces { bytes, step: bytes.len() });
    let (records, layout, end) = match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(whole, pieces, "read at once, and in pieces");
            (whole.0, whole.1, whole.2)
        }
        (Err(whole), Err(pieces)) => {
            assert_eq!(whole.to_string(), pieces.to_string());
            return;
        }
        (whole, pieces) => panic!("at once {whole:?}, in pieces {pieces:?}"),
    };

    let mut from = 1;
    for (offset, _, interface, _, _, _, data) in &records {
        assert!(*offset >= from, "a record at {offset}, before {from}");
        from = offset + 16 + data.len() as u64;
        assert!((*interface as usize) < layout.interfaces.len());
    }
    assert!(from <= bytes.len() as u64 + 1 && end <= bytes.len() as u64);

    // Backwards, so that no reader has anything from the record before.
    let Some(last) = records.last() else { return };
    let resume = |offset| {
        CaptureReader::resume(Cursor::new(bytes), layout.clone(), offset).expect("a cursor seeks")
    };
    let mut jumping = resume(last.0);
    for record in records.iter().rev() {
        let mut reader = resume(record.0);
        assert_eq!(
            reader.next().ok().flatten().map(|record| owned(&record)).as_ref(),
            Some(record)
        );
        jumping.seek(record.0).expect("a cursor seeks");
        assert_eq!(
            jumping.next().ok().flatten().map(|record| owned(&record)).as_ref(),
            Some(record)
        );
    }
    // Reading on passes sections and interfaces that the layout already has, and finds the same.
    for record in records.iter().skip(1) {
        assert_eq!(
            jumping.next().ok().flatten().map(|record| owned(&record)).as_ref(),
            Some(record)
        );
    }
    assert!(!matches!(jumping.next(), Ok(Some(_))), "a packet behind the last");
    assert_eq!(*jumping.layout(), layout);
    assert_eq!(jumping.position(), end);
}
