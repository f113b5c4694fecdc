//! JSON for programs, and the types of lines that only these commands print. `docs/output.md`
//! describes them.

use std::io::Write;

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::CANNOT_WRITE;

pub(crate) use tapdex_answers::json::Time;

/// Writes a value on a line of its own.
pub(crate) fn line(out: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    tapdex_answers::json::line(out, value).context(CANNOT_WRITE)
}

/// A number with the digits that it is shown with elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Rounded(pub(crate) String);

impl Serialize for Rounded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.0.clone()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// A token: a line of `token list --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Token<'a> {
    pub(crate) id: String,
    pub(crate) name: &'a str,
    pub(crate) role: &'a str,
    pub(crate) kind: &'static str,
    pub(crate) standing: &'static str,
    pub(crate) created: Time,
    pub(crate) expires: Option<Time>,
    pub(crate) revoked: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<String>,
}

/// An index file: the first line of `index-file info --json`.
#[derive(Debug, Serialize)]
pub(crate) struct IndexFile {
    pub(crate) rows: u32,
    pub(crate) order: &'static str,
    pub(crate) version: u16,
    pub(crate) bytes: u64,
    pub(crate) times: Option<Times>,
}

/// The first and the last time of an index file, as they were given.
#[derive(Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A field of an index file.
#[derive(Debug, Serialize)]
pub(crate) struct TableField<'a> {
    pub(crate) field: &'a str,
    pub(crate) bits: u32,
    pub(crate) columns: usize,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// A column of an index file.
#[derive(Debug, Serialize)]
pub(crate) struct TableColumn<'a> {
    pub(crate) field: &'a str,
    pub(crate) digit: usize,
    pub(crate) bits: u32,
    pub(crate) codec: &'static str,
    pub(crate) w: Option<u8>,
    pub(crate) keys: u64,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// A section of an index file.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) section: &'static str,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// What a part of an index file takes.
#[derive(Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) bytes_per_row: Option<Rounded>,
    pub(crate) percent: Rounded,
}

/// A set of ids: the first line of `codec stats --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Ids {
    pub(crate) ids: usize,
    pub(crate) rows: u32,
    pub(crate) density: Option<Rounded>,
}

/// The size of the set in a codec.
#[derive(Debug, Serialize)]
pub(crate) struct InCodec {
    pub(crate) codec: &'static str,
    pub(crate) bytes: u64,
    pub(crate) bits_per_id: Option<Rounded>,
    pub(crate) ratio_to_wah: Option<Rounded>,
    pub(crate) smallest: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let size = Size { bytes: 7, bytes_per_row: None, percent: Rounded("50.0".to_owned()) };
        let line = Section { section: "marks", size };
        let expected = r#"{"section":"marks","bytes":7,"bytes_per_row":null,"percent":50.0}"#;
        assert_eq!(tapdex_answers::json::text(&line), expected);
        assert_eq!(tapdex_answers::json::text(&Rounded("NaN".to_owned())), "");
    }
}
