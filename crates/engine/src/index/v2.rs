//! Version 2 of the index file: the index of a segment, by conversations and values.
//!
//! The packets of a conversation lie in neighbouring rows, first those in one direction and then
//! those in the other. What all packets of a conversation have in common, its addresses, ports and
//! protocols, is kept once for the conversation or for each of its ends. A column is a dictionary
//! of the values that occur, and for each value the conversations, ends or packets that have it, in
//! the form that suits the column. So a look-up is one search in a dictionary and one list, for an
//! address of 128 bits as for a port, and a network is a range of the dictionary.

mod bits;
mod container;
mod conversations;
mod dictionary;
mod field;
mod flows;
mod marks;
mod packed;
mod postings;
mod rowmap;
mod schema;
mod section;
mod sort;
mod volumes;
mod write;

use super::format::{SectionKind, size};
use super::reader::{Index, Verified};
use super::rowmap::Codes;
use super::shares::Share;
use crate::error::IndexError;
use flows::Flows;
use section::Part;
use volumes::Volumes;

pub(super) use container::{Sums, decode as decode_container};
pub use conversations::{Conversations, Within};
use field::End;
pub use field::{FlowField, Found};
pub(crate) use field::{FlowValues, RowValues};
pub(crate) use flows::for_each_flow;
pub(super) use marks::{CompactMarks, LastBlock};
pub(crate) use packed::{BLOCK as PACKED_BLOCK, GROUP as PACKED_GROUP};
#[cfg(feature = "testing")]
pub(crate) use postings::pack_digits;
pub use postings::{Form, Sorted};
pub(super) use rowmap::FlowRowMap;
pub use rowmap::StepCode;
pub use schema::{FlowColumn, FlowSchema, Space};
pub(crate) use sort::Sorter;
pub(crate) use write::{Encoded, FlowIndexWriter, NewColumn, check_permutation, packed_suffices};

/// What an open index of version 2 has besides that of version 1.
#[derive(Debug)]
pub(super) struct FlowParts {
    pub(super) schema: FlowSchema,
    /// The entry of the flows' section.
    flows: usize,
    /// The entry of each column's section.
    columns: Vec<usize>,
    /// The entry of the section with the bytes of flows.
    volumes: Option<usize>,
}

impl FlowParts {
    /// Reads the schema of an index, and finds its sections.
    pub(super) fn open(index: &Index) -> Result<Self, IndexError> {
        let only = |kind: SectionKind| {
            let mut found = index.entries_of(kind);
            match (found.next(), found.next()) {
                (Some(at), None) => Ok(at),
                (None, _) => Err(IndexError::MissingSection { section: kind.name().into() }),
                (_, Some(at)) => Err(index.surplus(at)),
            }
        };
        let at = only(SectionKind::Schema)?;
        let part = Part::all(index.section(at));
        let schema = FlowSchema::decode(part.bytes()?).map_err(|(at, what)| part.bad(what, at))?;
        let columns: Vec<usize> = index.entries_of(SectionKind::Column).collect();
        if columns.len() != schema.columns.len() {
            return Err(part.bad("number of columns", 0));
        }
        if (schema.rows == 0) != (schema.conversations == 0) {
            return Err(part.bad("number of conversations", 0));
        }
        let flows = only(SectionKind::Flows)?;
        if index.section(flows).len() < flows::least_len(schema.conversations) {
            return Err(part.bad("number of conversations", 0));
        }
        // A row takes a bit of the row map at least, so that the size of the file bounds the cost
        // of all that is done for each row.
        let map_len = index.section(only(SectionKind::RowMap)?).len();
        if map_len < u64::from(schema.rows) / 8 {
            return Err(part.bad("number of packets", 0));
        }
        let mut volumes = index.entries_of(SectionKind::Volumes);
        let volumes = match (volumes.next(), volumes.next()) {
            (_, Some(at)) => return Err(index.surplus(at)),
            (one, None) => one,
        };
        Ok(Self { schema, flows, columns, volumes })
    }
}

impl Index {
    /// The columns of an index of conversations; `None` if it is a table.
    pub fn flow_schema(&self) -> Option<&FlowSchema> {
        self.flow_part().map(|part| &part.schema)
    }

    /// A field of an index of conversations, if it has one of that name.
    pub fn flow_field(&self, name: &str) -> Result<Option<FlowField<'_>>, IndexError> {
        FlowField::find(self, name)
    }

    fn flow_parts(&self) -> Result<(&FlowSchema, Flows<'_>), IndexError> {
        let Some(part) = self.flow_part() else {
            let section = SectionKind::Flows.name().into();
            return Err(IndexError::MissingSection { section });
        };
        let (rows, conversations) = (part.schema.rows, part.schema.conversations);
        let flows = Flows { part: Part::all(self.section(part.flows)), conversations, rows };
        Ok((&part.schema, flows))
    }

    fn volumes(&self) -> Option<Volumes<'_>> {
        let flow = self.flow_part()?;
        let part = Part::all(self.section(flow.volumes?));
        Some(Volumes { part, conversations: flow.schema.conversations })
    }

    /// Whether it says how many bytes each flow has.
    pub(crate) fn has_volumes(&self) -> bool {
        self.flow_part().is_some_and(|flow| flow.volumes.is_some())
    }

    /// What the bytes of each flow are above the least of their length classes; `None` if it does
    /// not say.
    pub(crate) fn flow_excess(&self) -> Result<Option<Vec<u64>>, IndexError> {
        self.volumes().map(|volumes| volumes.all()).transpose()
    }

    /// The row that each flow starts at, and the number of rows. There are two flows for each
    /// conversation; a flow may have no rows.
    pub(crate) fn flow_starts(&self) -> Result<Vec<u32>, IndexError> {
        self.flow_parts()?.1.starts()
    }

    fn flow_column_section(&self, number: usize) -> super::reader::Section<'_> {
        let at = self.flow_part().and_then(|part| part.columns.get(number)).copied();
        self.section(at.unwrap_or(0))
    }

    pub(super) fn flow_row_map<'a>(
        &'a self,
        entry: usize,
        codes: &'a std::sync::OnceLock<Codes>,
    ) -> Result<FlowRowMap<'a>, IndexError> {
        let (_, flows) = self.flow_parts()?;
        FlowRowMap::open(Part::all(self.section(entry)), flows, codes)
    }

    pub(super) fn compact_marks(&self, entry: usize) -> Result<CompactMarks<'_>, IndexError> {
        let count = super::marks::count(self.rows());
        CompactMarks::open(Part::all(self.section(entry)), count, self.last_marks())
    }

    /// Checks flows and columns.
    pub(super) fn verify_flows(
        &self,
        found: &mut Verified,
        add: &mut dyn FnMut(&mut Verified, IndexError),
    ) {
        let (schema, flows) = match self.flow_parts() {
            Ok(parts) => parts,
            Err(error) => return add(found, error),
        };
        if let Err(error) = verify_flows(&flows) {
            add(found, error);
        }
        if let Some(Err(error)) = self.volumes().map(|volumes| volumes.verify()) {
            add(found, error);
        }
        for number in 0..schema.columns.len() {
            let verified = FlowField::open(self, number, End::Source).and_then(|field| {
                found.bitmaps += field.values_len();
                field.verify()
            });
            if let Err(error) = verified {
                add(found, error);
            }
        }
    }

    /// What the bytes of an index of conversations are used for.
    pub(super) fn flow_shares(&self, schema: &FlowSchema) -> Vec<Share> {
        let mut shares = Vec::new();
        let mut columns = schema.columns.iter();
        let mut rest = self.len_bytes();
        for section in self.sections() {
            let (name, form) = match section.kind {
                Some(SectionKind::Column) => match columns.next() {
                    Some(column) => (column.names.join(", "), Some(column.form)),
                    None => continue,
                },
                Some(SectionKind::Schema) | None => continue,
                Some(kind) => (kind.name().to_owned(), None),
            };
            rest = rest.saturating_sub(section.len_bytes);
            let columns = u64::from(form.is_some());
            shares.push(Share { name, form, columns, bytes: section.len_bytes });
        }
        // First the columns.
        shares.sort_by_key(|share| share.form.is_none());
        shares.push(Share { name: "rest".to_owned(), form: None, columns: 0, bytes: rest });
        shares
    }

    /// Checks a block of the file, by its number.
    pub(super) fn check_file_block(&self, sums: Sums, block: u64) -> Result<(), IndexError> {
        let file = self.file();
        let start = block * super::format::BLOCK_LEN;
        let end = (start + super::format::BLOCK_LEN).min(sums.start);
        let stored = bits::u32_at(file, size(sums.start + 4 * block));
        let bytes = file.get(size(start)..size(end)).unwrap_or_default();
        super::format::check_sum(&|| "file".into(), start, bytes, stored)
    }
}

/// Checks that the bytes are those that the writer writes, and that each conversation has packets.
fn verify_flows(flows: &Flows<'_>) -> Result<(), IndexError> {
    let starts = flows.starts()?;
    let packets: Vec<u32> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    if packets.chunks(2).any(|pair| pair.iter().sum::<u32>() == 0) {
        return Err(flows.part.bad("conversation without packets", 0));
    }
    let mut again = Vec::new();
    flows::encode(&packets, &mut again);
    match again == flows.part.bytes()? {
        true => Ok(()),
        false => Err(flows.part.bad("form of the flows", 0)),
    }
}
