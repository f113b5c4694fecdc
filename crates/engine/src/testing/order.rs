//! The parts of an index that depend on the order of its rows, to be written in another order.

use std::path::Path;

use crate::IndexError;
use crate::beneath::Rights;
use crate::index::{
    Builder, ColumnIndex, CpuBuilder, Digits, Encoded, FlowIndexWriter, Index, NewColumn, Space,
    check_permutation,
};
use crate::parallel::Parallel;
use crate::storage::Disk;

/// The rows of a segment in some order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrderedRows {
    /// How many packets each flow has, two flows for each conversation.
    pub packets: Vec<u32>,
    /// The record of each row.
    pub records: Vec<u32>,
    /// Names of fields that packets have for themselves, and their values, a byte for each row.
    pub columns: Vec<(String, Vec<u8>)>,
}

impl OrderedRows {
    /// The rows of an index of conversations, without columns of more than a byte.
    pub fn read(index: &Index) -> Result<Self, IndexError> {
        let starts = index.flow_starts()?;
        let packets = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let records = match index.row_map()? {
            Some(map) => map.iter().collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let mut columns = Vec::new();
        let schema = index.flow_schema().into_iter().flat_map(|schema| &schema.columns);
        for column in schema.filter(|column| column.space == Space::Packets && column.width == 1) {
            let name = &column.names[0];
            let Some(field) = index.flow_field(name)? else { continue };
            let mut values = vec![0; index.rows() as usize];
            field.for_each_run(&mut |value, first, last| {
                values[first as usize..=last as usize].fill(value.to_le_bytes()[0]);
            })?;
            columns.push((name.clone(), values));
        }
        Ok(Self { packets, records, columns })
    }

    /// Writes an index file that has nothing else, by the code that writes segments.
    pub fn write(&self, path: &Path) -> Result<(), IndexError> {
        let rows = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        let mut starts = vec![0];
        for packets in &self.packets {
            starts.push(starts[starts.len() - 1] + packets);
        }
        let conversations = u32::try_from(self.packets.len() / 2).unwrap_or(u32::MAX);
        let shape = (rows, conversations);
        let mut writer = FlowIndexWriter::create(&Disk, path, Rights::USUAL, shape)?;
        writer.write(Encoded::flows(&self.packets))?;
        let (mut builder, mut index) = (CpuBuilder::new(1), ColumnIndex::default());
        for (name, values) in &self.columns {
            let new = NewColumn { space: Space::Packets, width: 1, names: &[name] };
            let builder = (&mut builder as &mut dyn Builder, &mut index);
            writer.write(Encoded::packets(new, Digits::Bytes(values), None, builder)?)?;
        }
        check_permutation(&self.records)?;
        writer.write(Encoded::row_map(&self.records, &starts, Parallel::default())?)?;
        writer.finish().map(drop)
    }
}
