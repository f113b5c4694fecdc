//! Takes fields from a frame, one after the other, and makes a layer of them.

use std::borrow::Cow;

use tapdex_engine::fields;

use super::{Layer, LayerField};

/// A frame, and how far it was read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    frame: &'a [u8],
    at: usize,
    /// Where the packet ends, if a header says so: what is behind it is padding.
    end: usize,
    /// Packets in packets that were entered: fields of those are in no filter.
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Self { frame, at: 0, end: frame.len(), depth: 0 }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.frame.get(self.at..self.end.max(self.at)).unwrap_or(&[])
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub(super) fn offset(&self) -> u32 {
        number(self.at)
    }

    /// Remembers that what follows is inside a tunnel.
    pub(super) fn enter(&mut self) {
        self.depth += 1;
    }

    /// Ends the packet this many bytes from here, if that is not behind its end already.
    pub(super) fn end_in(&mut self, length: usize) {
        self.end = self.end.min(self.at.saturating_add(length));
    }

    /// Starts a layer here.
    pub(super) fn layer(&mut self, name: &'static str, title: &'static str) -> Fields<'_, 'a> {
        let start = self.at;
        Fields { reader: self, name, title, start, fields: Vec::new(), cut: false }
    }
}

/// A layer that is being read.
#[derive(Debug)]
pub(super) struct Fields<'r, 'a> {
    reader: &'r mut Reader<'a>,
    name: &'static str,
    title: &'static str,
    start: usize,
    fields: Vec<LayerField>,
    cut: bool,
}

impl Fields<'_, '_> {
    /// The next `N` bytes, which are one or several fields; `None` if the frame ends before.
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let Some(&bytes) = self.reader.rest().first_chunk::<N>() else {
            self.cut = true;
            return None;
        };
        self.reader.at += N;
        Some(bytes)
    }

    /// The next bytes, however many there are up to a length.
    pub(super) fn take_some(&mut self, length: usize) -> Vec<u8> {
        let rest = self.reader.rest();
        let some = rest.get(..length).unwrap_or(rest).to_vec();
        self.cut |= some.len() < length;
        self.reader.at += some.len();
        some
    }

    /// Leaves out bytes that are no field.
    pub(super) fn skip(&mut self, length: usize) {
        let many = self.reader.rest().len();
        self.cut |= many < length;
        self.reader.at += length.min(many);
    }

    /// A field of the last `length` bytes that were taken.
    pub(super) fn field(
        &mut self,
        name: &'static str,
        label: &'static str,
        length: usize,
        value: impl Into<String>,
    ) {
        self.field_at(name, label, (length, length), value);
    }

    /// A field that starts `back` bytes before here, and has `length` of them.
    pub(super) fn field_at(
        &mut self,
        name: &'static str,
        label: &'static str,
        (back, length): (usize, usize),
        value: impl Into<String>,
    ) {
        let value = value.into();
        let filter = (self.reader.depth == 0).then(|| filter(name, &value)).flatten();
        self.fields.push(LayerField {
            name: Cow::Borrowed(name),
            label: Cow::Borrowed(label),
            value,
            offset: number(self.reader.at.saturating_sub(back)),
            length: number(length),
            filter,
        });
    }

    /// Takes a number of one byte as a field.
    pub(super) fn byte(&mut self, name: &'static str, label: &'static str) -> Option<u8> {
        let [value] = self.take()?;
        self.field(name, label, 1, value.to_string());
        Some(value)
    }

    /// Takes a number of two bytes as a field.
    pub(super) fn short(&mut self, name: &'static str, label: &'static str) -> Option<u16> {
        let value = u16::from_be_bytes(self.take()?);
        self.field(name, label, 2, value.to_string());
        Some(value)
    }

    /// The same in hexadecimal.
    pub(super) fn short_hex(&mut self, name: &'static str, label: &'static str) -> Option<u16> {
        let value = u16::from_be_bytes(self.take()?);
        self.field(name, label, 2, format!("0x{value:04x}"));
        Some(value)
    }

    /// Takes a number of four bytes as a field.
    pub(super) fn word(&mut self, name: &'static str, label: &'static str) -> Option<u32> {
        let value = u32::from_be_bytes(self.take()?);
        self.field(name, label, 4, value.to_string());
        Some(value)
    }

    /// Takes a MAC address as a field.
    pub(super) fn mac(&mut self, name: &'static str, label: &'static str) -> Option<String> {
        let text = mac(self.take()?);
        self.field(name, label, 6, text.clone());
        Some(text)
    }

    /// Ends the packet this many bytes from the start of the layer.
    pub(super) fn end_in(&mut self, length: usize) {
        let end = self.start.saturating_add(length).max(self.reader.at);
        self.reader.end = self.reader.end.min(end);
    }

    pub(super) fn enter(&mut self) {
        self.reader.enter();
    }

    /// Bytes of the layer so far.
    pub(super) fn len(&self) -> usize {
        self.reader.at - self.start
    }

    /// Ends the layer.
    pub(super) fn finish(self, summary: impl Into<String>, found: &mut Vec<Layer>) {
        found.push(Layer {
            name: Cow::Borrowed(self.name),
            title: Cow::Borrowed(self.title),
            summary: summary.into(),
            offset: number(self.start),
            length: number(self.reader.at - self.start),
            cut: self.cut,
            fields: self.fields,
        });
    }
}

/// A filter for a value, if the field is one that filters know.
fn filter(name: &str, value: &str) -> Option<String> {
    fields::wireshark(name)?;
    // What is in parentheses explains the number before it.
    let number = value.split(' ').next().unwrap_or_default();
    Some(format!("{name} == {number}"))
}

pub(super) fn mac(bytes: [u8; 6]) -> String {
    let digits = bytes.map(|byte| format!("{byte:02x}"));
    digits.join(":")
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
