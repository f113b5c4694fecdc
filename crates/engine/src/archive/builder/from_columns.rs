//! The packets of a segment, taken from its columns: what an index of another version is made of.

use super::{Plane, SegmentBuilder, excess};
use crate::archive::columns::Columns;
use crate::archive::segment::Segment;
use crate::error::{Expected, IndexError};
use crate::fields::{FIELDS, Field, FieldSet, Home, Narrow, OWN_DIGITS, Spec, Wide, order_ends};
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
        let Keys { mut narrow, mut wide } = builder.take_columns(index, &columns, known)?;
        for (record, key) in narrow.iter_mut().enumerate() {
            let wide = wide.get_mut(record);
            let wide = wide.filter(|wide| **wide != Wide::default());
            let excess = builder.excess_of(record);
            builder.count(key, wide, excess);
        }
        if let Some(marks) = index.marks()? {
            builder.marks = marks.iter().collect::<Result<_, _>>()?;
        }
        builder.sums = sums(index)?;
        Ok(builder)
    }

    /// Reads all columns: the keys of flows as they are in the headers of each record, and what
    /// records have for themselves.
    fn take_columns(
        &mut self,
        index: &Index,
        columns: &Columns<'_>,
        known: FieldSet,
    ) -> Result<Keys, IndexError> {
        let rows = columns.rows() as usize;
        let row_map = index.row_map()?;
        let records = row_map.map(|map| map.iter().collect::<Result<Vec<u32>, _>>()).transpose()?;
        let mut keys = Keys { narrow: vec![Narrow::default(); rows], wide: Vec::new() };
        self.own.iter_mut().for_each(|plane| plane.resize(rows));
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
                            self.put(spec, value, record, &mut keys);
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
    fn put(&mut self, spec: &Spec, value: u128, record: usize, keys: &mut Keys) {
        match spec.home {
            Home::Narrow(word, shift) => keys.narrow[record][word] |= low(value) << shift,
            Home::Wide(word, shift) => {
                if keys.wide.is_empty() {
                    keys.wide.resize(keys.narrow.len(), Wide::default());
                }
                let key = &mut keys.wide[record];
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

    /// What the length of a record is above the least of its class; 0 if lengths are not known.
    fn excess_of(&self, record: usize) -> u32 {
        let digits = Field::FrameLen.spec().own_digits();
        let value = |value: u32, digit: usize| value << 16 | self.own[digit].get(record);
        if self.has_lengths { excess(digits.fold(0, value)) } else { 0 }
    }

    /// Finds the flow of the next record, by what its headers have.
    fn count(&mut self, key: &mut Narrow, mut wide: Option<&mut Wide>, excess: u32) {
        order_ends(key, wide.as_deref_mut());
        if let Some(wide) = wide {
            let hash = self.flows.wide.hash(wide);
            self.flows.join(key, wide, hash);
        }
        let hash = self.flows.narrow.hash(key);
        let flow = self.flows.count(key, hash, excess);
        self.flow_of.push(flow);
    }
}

/// What the records of a segment have in their headers.
struct Keys {
    narrow: Vec<Narrow>,
    /// Empty if no record has a wide part.
    wide: Vec<Wide>,
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
