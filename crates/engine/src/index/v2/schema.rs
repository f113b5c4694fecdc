//! The columns of a segment.
//!
//! ```text
//! packets varint, conversations varint, columns varint
//! for each column: of what u8 (0 packets, 1 conversations, 2 ends), bytes of a value u8, form u8
//!                  (0 lists, 1 packed, 128 + number of a codec), parameter of the codec u8,
//!                  name; a column of ends has the name of the source and that of the destination
//! a name: bytes u8, UTF-8
//! ```

use super::bits::{Reader, push_varint};
use super::postings::Form;

/// What a column has an entry for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Space {
    /// Each packet, by its row.
    Packets = 0,
    /// Each conversation.
    Conversations = 1,
    /// Each end of a conversation: first all first ends, then all second ends. Both are the source
    /// of some packets and the destination of others.
    Ends = 2,
}

/// A column of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowColumn {
    /// What it has entries for.
    pub space: Space,
    /// Bytes of a value.
    pub width: usize,
    /// How it says which entries have which value.
    pub form: Form,
    /// The name of its field; if it is of ends, that of the source and that of the destination.
    pub names: Vec<String>,
}

impl FlowColumn {
    /// Whether it has the first byte of each entry's value, too: so have those of addresses.
    pub(super) fn has_first_bytes(&self) -> bool {
        self.space == Space::Ends && matches!(self.width, 4 | 16)
    }
}

/// The columns of a segment, and how many packets and conversations it has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FlowSchema {
    /// Packets.
    pub rows: u32,
    /// Conversations.
    pub conversations: u32,
    /// Columns, in the order of their sections.
    pub columns: Vec<FlowColumn>,
}

impl FlowSchema {
    /// How many entries a column has.
    pub(super) fn entries(&self, space: Space) -> u32 {
        match space {
            Space::Packets => self.rows,
            Space::Conversations => self.conversations,
            Space::Ends => 2 * self.conversations,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut target = Vec::new();
        push_varint(self.rows.into(), &mut target);
        push_varint(self.conversations.into(), &mut target);
        push_varint(self.columns.len() as u128, &mut target);
        for column in &self.columns {
            let width = u8::try_from(column.width).unwrap_or(u8::MAX);
            target.extend([column.space as u8, width]);
            target.extend(column.form.code());
            for name in &column.names {
                target.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
                target.extend(name.as_bytes());
            }
        }
        target
    }

    /// Reads a schema; the error is where it makes no sense, and why.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, (usize, &'static str)> {
        let mut reader = Reader::new(bytes);
        let rows = reader.varint32().ok_or((0, "number of packets"))?;
        let at = reader.at;
        // Each conversation has a packet; ends are numbered with 32 bits.
        let conversations = reader.varint32().filter(|&number| number <= rows.min(1 << 30));
        let conversations = conversations.ok_or((at, "number of conversations"))?;
        let at = reader.at;
        let count = reader.varint32().filter(|&count| count as usize <= bytes.len());
        let count = count.ok_or((at, "number of columns"))?;
        let mut schema = Self { rows, conversations, columns: Vec::new() };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..count {
            let at = reader.at;
            let column = Self::decode_column(&mut reader).ok_or((at, "column"))?;
            if !column.names.iter().all(|name| seen.insert(name.clone())) {
                return Err((at, "second column of a name"));
            }
            schema.columns.push(column);
        }
        match reader.is_at_end() {
            true => Ok(schema),
            false => Err((reader.at, "end")),
        }
    }

    fn decode_column(reader: &mut Reader<'_>) -> Option<FlowColumn> {
        let space = match reader.byte()? {
            0 => Space::Packets,
            1 => Space::Conversations,
            2 => Space::Ends,
            _ => return None,
        };
        let width = usize::from(reader.byte()?);
        if !(1..=16).contains(&width) {
            return None;
        }
        let form = Form::from_code([reader.byte()?, reader.byte()?])?;
        let mut names = Vec::new();
        for _ in 0..if space == Space::Ends { 2 } else { 1 } {
            let len = reader.byte()?;
            let name = std::str::from_utf8(reader.take(len.into())?).ok()?;
            names.push(name.to_owned());
        }
        names.iter().all(|name| !name.is_empty()).then_some(())?;
        Some(FlowColumn { space, width, form, names })
    }
}
