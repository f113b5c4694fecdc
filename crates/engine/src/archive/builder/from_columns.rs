//! The packets of a segment, taken from its columns: what an index of another version is made of.

use super::chunk::{CHUNK_RECORDS_MAX, Chunk};
use super::{Own, Plane, SegmentBuilder, own};
use crate::archive::columns::Columns;
use crate::archive::segment::Segment;
use crate::error::{Expected, IndexError};
use crate::fields::{FIELDS, Field, FieldSet, Home, Narrow, OWN_DIGITS, Spec, Wide, length_excess};
use crate::index::{Index, PieceSums};

// What a packet takes while columns are read, as docs/archive.md has it: its keys, a value, its
// record and its flow, and all digits of its own.
const _: () = assert!(
    size_of::<(Narrow, Wide)>() + size_of::<u128>() + 2 * size_of::<u32>() + 2 * OWN_DIGITS <= 170
);

impl SegmentBuilder {
    /// Takes in all packets of a segment, without reading them. The segment was verified. The
    /// builder keeps the fields that the segment knows.
    pub(in crate::archive) fn from_columns(segment: &Segment) -> Result<Self, IndexError> {
        let (index, columns) = (segment.index(), segment.columns());
        let named = &index.schema().fields;
        if let Some(other) = named.iter().find(|field| Field::of_name(&field.name).is_none()) {
            // Nothing that it has would be left.
            let known: Vec<&str> = FIELDS.iter().map(|spec| spec.name).collect();
            let (name, known) = (other.name.as_str().into(), known.join(", ").into());
            return Err(IndexError::UnknownField { name, known });
        }
        let known: FieldSet = FieldSet::ALL.iter().filter(|&field| columns.knows(field)).collect();
        let mut builder = Self::new(known);
        builder.has_lengths = columns.knows(Field::FrameLen);
        let mut keys = Keys::of_columns(index, &columns, known)?;
        let records = keys.narrow.len();
        for first in (0..records).step_by(CHUNK_RECORDS_MAX) {
            let some = first..records.min(first + CHUNK_RECORDS_MAX);
            let mut chunk = Chunk::new(known);
            for record in some.clone() {
                let excess = if builder.has_lengths { keys.excess_of(record) } else { 0 };
                let wide = keys.wide.get_mut(record);
                chunk.count(&mut keys.narrow[record], wide, excess);
            }
            chunk.extend_own(&keys.own, some);
            builder.chunks.push(chunk);
        }
        let marks = match index.marks()? {
            Some(marks) => marks.iter().collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        builder.places = Some((marks, sums(index)?));
        Ok(builder)
    }
}

/// What the records of a segment have in their headers.
struct Keys {
    narrow: Vec<Narrow>,
    /// Empty if no record has a wide part.
    wide: Vec<Wide>,
    /// What records have for themselves.
    own: Own,
}

impl Keys {
    /// Reads all columns: the keys of flows as they are in the headers of each record, and what
    /// records have for themselves.
    fn of_columns(
        index: &Index,
        columns: &Columns<'_>,
        known: FieldSet,
    ) -> Result<Self, IndexError> {
        let rows = columns.rows() as usize;
        let row_map = index.row_map()?;
        let records = row_map.map(|map| map.iter().collect::<Result<Vec<u32>, _>>()).transpose()?;
        let mut keys =
            Self { narrow: vec![Narrow::default(); rows], wide: Vec::new(), own: own(known) };
        keys.own.iter_mut().for_each(|plane| plane.resize(rows));
        for field in known.iter() {
            let spec = field.spec();
            let Some(column) = columns.read(field)? else { continue };
            let most = u128::MAX >> (128 - spec.home_bits());
            let mut too_great = None;
            column.for_each_run(&mut |value, first, last| {
                if value > most {
                    too_great = Some(value);
                } else if value != 0 {
                    for row in first as usize..=last as usize {
                        let record = records.as_ref().map_or(Some(row), |records| {
                            records.get(row).map(|&record| record as usize)
                        });
                        if let Some(record) = record.filter(|&record| record < rows) {
                            keys.put(spec, value, record);
                        }
                    }
                }
            })?;
            if let Some(value) = too_great {
                let number = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
                let (section, what) = (spec.name.into(), "value");
                let (expected, got) = (Expected::AtMost(number(most)), number(value));
                return Err(IndexError::BadInput { section, what, expected, got });
            }
        }
        Ok(keys)
    }

    /// Gives a record the value of a field, which was 0.
    #[inline(always)]
    fn put(&mut self, spec: &Spec, value: u128, record: usize) {
        match spec.home {
            Home::Narrow(word, shift) => self.narrow[record][word] |= low(value) << shift,
            Home::Wide(word, shift) => {
                if self.wide.is_empty() {
                    self.wide.resize(self.narrow.len(), Wide::default());
                }
                let key = &mut self.wide[record];
                if spec.bits() > 64 {
                    key[word] |= low(value >> 64);
                    key[word + 1] |= low(value);
                } else {
                    key[word] |= low(value) << shift;
                }
            }
            Home::Packet => {
                let digits = spec.own_digits();
                for (at, digit) in digits.rev().enumerate() {
                    let bits = spec.width.bits() * u32::try_from(at).unwrap_or(0);
                    self.own[digit].set(record, low(value >> bits).to_le_bytes());
                }
            }
        }
    }

    /// What the length of a record is above the least of its class.
    fn excess_of(&self, record: usize) -> u32 {
        let digits = Field::FrameLen.spec().own_digits();
        let value = |value: u32, digit: usize| value << 16 | self.own[digit].get(record);
        length_excess(digits.fold(0, value))
    }
}

impl Plane {
    /// A list of zeros.
    fn resize(&mut self, records: usize) {
        match self {
            Self::Unkept => {}
            Self::Bytes(list) => list.resize(records, 0),
            Self::Shorts(list) => list.resize(records, 0),
        }
    }

    /// Sets the digit of a record, the lowest bytes of a number.
    fn set(&mut self, record: usize, [low, high, ..]: [u8; 8]) {
        match self {
            Self::Unkept => {}
            Self::Bytes(list) => list[record] = low,
            Self::Shorts(list) => list[record] = u16::from_le_bytes([low, high]),
        }
    }

    /// The digit of a record.
    fn get(&self, record: usize) -> u32 {
        match self {
            Self::Unkept => 0,
            Self::Bytes(list) => list[record].into(),
            Self::Shorts(list) => list[record].into(),
        }
    }
}

/// The checksums of the packets of a segment, if it has them.
fn sums(index: &Index) -> Result<Option<PieceSums>, IndexError> {
    let Some(pieces) = index.pieces()? else { return Ok(None) };
    let head = pieces.head()?;
    let mut taken =
        PieceSums { start: head.bytes.start, end: head.bytes.end, sums: vec![head.sum] };
    for number in 0..pieces.len() {
        let piece = pieces.get(number)?;
        taken.end = piece.bytes.end;
        taken.sums.push(piece.sum);
    }
    Ok(Some(taken))
}

/// The low half.
#[inline(always)]
fn low(value: u128) -> u64 {
    u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0)
}
