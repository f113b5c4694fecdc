//! What the bytes of an index file are used for.

use super::format::SectionKind;
use super::reader::Index;
use super::v2::Form;

/// Bytes of an index file that have the same use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// A field; or a kind of section that belongs to no column; or `rest`.
    pub name: String,
    /// The form of its columns, if it is a field.
    pub form: Option<Form>,
    /// How many columns these are.
    pub columns: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Index {
    /// What the bytes of the file are used for: first fields, with an entry for each of their
    /// forms; then sections that belong to no column; and last the rest, so that together they are
    /// all bytes.
    pub fn shares(&self) -> Vec<Share> {
        if let Some(schema) = self.flow_schema() {
            return self.flow_shares(schema);
        }
        let mut shares: Vec<Share> = Vec::new();
        let mut of_column = Vec::new();
        for field in &self.schema().fields {
            for column in &field.columns {
                let form = Some(Form::Bitmaps(column.codec));
                let same = |share: &Share| share.name == field.name && share.form == form;
                let place = shares.iter().position(same).unwrap_or(shares.len());
                if place == shares.len() {
                    let name = field.name.clone();
                    shares.push(Share { name, form, columns: 0, bytes: 0 });
                }
                shares[place].columns += 1;
                of_column.push(place);
            }
        }
        let mut rest = self.len_bytes();
        for section in self.sections() {
            let column = section.column.and_then(|column| of_column.get(column).copied());
            let place = match (column, section.kind) {
                (Some(place), _) => place,
                (None, Some(kind)) if kind != SectionKind::Schema => {
                    let name = kind.name().to_owned();
                    shares.push(Share { name, form: None, columns: 0, bytes: 0 });
                    shares.len() - 1
                }
                _ => continue,
            };
            shares[place].bytes += section.len_bytes;
            rest = rest.saturating_sub(section.len_bytes);
        }
        shares.push(Share { name: "rest".to_owned(), form: None, columns: 0, bytes: rest });
        shares
    }
}
