//! CSV for spreadsheets: one record per line. `docs/output.md` describes the columns.

use std::io::Write;

use ::csv::WriterBuilder;
use anyhow::Context;
use serde::Serialize;

use super::CANNOT_WRITE;

/// Most lines are shorter.
const LINE_BYTES: usize = 256;

/// Writes a record on a line of its own, with quotes where they are needed.
///
/// The caller escapes control characters, with [`escaped`](super::escaped).
pub(crate) fn line(out: &mut dyn Write, record: &impl Serialize) -> anyhow::Result<()> {
    let mut builder = WriterBuilder::new();
    builder.has_headers(false).buffer_capacity(LINE_BYTES);
    let mut line = builder.from_writer(Vec::new());
    line.serialize(record)?;
    out.write_all(&line.into_inner()?).context(CANNOT_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut out = Vec::new();
        line(&mut out, &("plain text", "a,b", "say \"hi\"", 7_u64, None::<u16>, "")).unwrap();
        line(&mut out, &["", "x"]).unwrap();
        let expected = "plain text,\"a,b\",\"say \"\"hi\"\"\",7,,\n,x\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
