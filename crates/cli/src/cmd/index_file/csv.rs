//! CSV tables: the first line names the columns, each following line is a row.
//!
//! The reader is our own because it is faster than that of the csv crate; `ARCHITECTURE.md` has the
//! numbers. It reads a number while it looks for the end of the cell. The crate's reader copies the
//! cell, and the number is read from the copy.
//!
//! The rules differ, too. Blanks may stand before a quote. A line end always ends the row, also
//! within quotes. So an error names the line with the quote that is never closed.

use std::io::{ErrorKind, Read};

use anyhow::{Context, anyhow, bail, ensure};

use super::build::Reading;
use super::store::Planes;
use super::value::{self, Value, ValueKind};
use crate::cmd::shown;

/// How much is read at a time.
const BLOCK_BYTES: usize = 1 << 20;
/// A line is in memory as a whole; a file with longer lines is not a table.
const LINE_BYTES_MAX: usize = 1 << 24;
/// Digits that always fit into 64 bits.
const DIGITS_MAX: usize = 19;

/// The requested columns, with the values read so far.
#[derive(Debug)]
pub(super) struct Columns {
    /// If all columns are wanted: none until the first header names them.
    fields: Vec<Planes>,
    wants_all: bool,
    time: Option<String>,
    times: Vec<u64>,
    rows: u32,
}

/// What a column of a file is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Skip,
    Field(usize),
    Time,
}

impl Columns {
    /// The columns of these fields, or of all fields, and the column of the times.
    pub(super) fn new(fields: Option<Vec<Planes>>, time: Option<&str>) -> Self {
        Self {
            wants_all: fields.is_none(),
            fields: fields.unwrap_or_default(),
            time: time.map(str::to_owned),
            times: Vec::new(),
            rows: 0,
        }
    }

    /// How many rows there are, the fields, and the times.
    pub(super) fn finish(self) -> (u32, Vec<Planes>, Option<Vec<u64>>) {
        (self.rows, self.fields, self.time.map(|_| self.times))
    }

    /// Adds the rows of a file.
    pub(super) fn read(
        &mut self,
        file: &str,
        input: &mut dyn Read,
        reading: &mut Reading<'_>,
    ) -> anyhow::Result<()> {
        let mut blocks = Blocks::new(file, input);
        let Some(block) = blocks.next()? else {
            bail!("cannot read {file}: the line with the column names is missing");
        };
        reading.add(block.len(), self.rows as usize);
        let (header, rest) = split_line(block);
        let names = names(header).with_context(|| format!("cannot read {file}:1"))?;
        let places = self.places(&names).with_context(|| format!("cannot read {file}:1"))?;
        let mut lines = Lines { file, names, places, line: 1, values: Vec::new() };
        lines.add(rest, self)?;
        while let Some(block) = blocks.next()? {
            let bytes = block.len();
            lines.add(block, self)?;
            reading.add(bytes, self.rows as usize);
        }
        Ok(())
    }

    /// What each column of a file is used for.
    fn places(&mut self, names: &[String]) -> anyhow::Result<Vec<Place>> {
        if self.wants_all && self.fields.is_empty() {
            for name in names.iter().filter(|&name| Some(name) != self.time.as_ref()) {
                ensure!(!name.is_empty(), "a column has no name");
                self.fields.push(Planes::new(name, None));
            }
        }
        let mut places = vec![Place::Skip; names.len()];
        let mut take = |wanted: &str, place: Place| {
            let mut found = names.iter().enumerate().filter(|&(_, name)| name == wanted);
            let shown_name = shown(wanted.as_bytes());
            let Some((index, _)) = found.next() else {
                let known: Vec<String> = names.iter().map(|name| shown(name.as_bytes())).collect();
                bail!("no column '{shown_name}'; there are: {}", known.join(", "));
            };
            ensure!(found.next().is_none(), "there are two columns '{shown_name}'");
            places[index] = place;
            Ok(())
        };
        for (index, field) in self.fields.iter().enumerate() {
            take(field.name(), Place::Field(index))?;
        }
        if let Some(time) = &self.time {
            take(time, Place::Time)?;
        }
        ensure!(!self.fields.is_empty(), "there is no column to index");
        let skipped = places.iter().position(|&place| place == Place::Skip);
        if let Some(index) = skipped.filter(|_| self.wants_all) {
            let name = shown(names[index].as_bytes());
            bail!("column '{name}' is not in the first table: select columns with --field");
        }
        Ok(places)
    }
}

/// The names of the columns.
fn names(header: &[u8]) -> anyhow::Result<Vec<String>> {
    let header = header.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(header);
    let name = |cell| match str::from_utf8(cell) {
        Ok(name) => Ok(name.to_owned()),
        Err(_) => Err(anyhow!("the column name '{}' is not UTF-8", shown(cell))),
    };
    cells(header).map(name).collect()
}

/// The lines of a file, and what its columns are used for.
struct Lines<'f> {
    file: &'f str,
    names: Vec<String>,
    places: Vec<Place>,
    line: u64,
    /// The values of the line at hand, and where they belong.
    values: Vec<(Place, Value)>,
}

impl Lines<'_> {
    /// Adds whole lines.
    fn add(&mut self, block: &[u8], columns: &mut Columns) -> anyhow::Result<()> {
        let mut rest = block;
        while !rest.is_empty() {
            self.line += 1;
            let len = self.scan(rest);
            let (line, after) = match len {
                Some(len) => rest.split_at(len),
                None => split_line(rest),
            };
            rest = after;
            if len.is_none() && !self.split(line)? {
                continue;
            }
            for &(place, value) in &self.values {
                let added = match place {
                    Place::Skip => Ok(()),
                    Place::Field(field) => columns.fields[field].push(value),
                    Place::Time => push_time(&mut columns.times, value),
                };
                added.map_err(|why| self.refusal(line, place, &why))?;
            }
            let Some(rows) = columns.rows.checked_add(1) else {
                bail!("cannot read {}:{}: an index holds {} rows", self.file, self.line, u32::MAX);
            };
            columns.rows = rows;
        }
        Ok(())
    }

    /// Reads the values of the first line and returns how long it is, end included. `None` if it
    /// needs a closer look: if it is blank, has quotes, has no end, or is wrong.
    fn scan(&mut self, block: &[u8]) -> Option<usize> {
        self.values.clear();
        let (mut at, last) = (0, self.places.len() - 1);
        for (index, &place) in self.places.iter().enumerate() {
            let (start, mut sum) = (at, 0_u64);
            let mut byte = *block.get(at)?;
            while byte.is_ascii_digit() {
                sum = sum.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                at += 1;
                byte = *block.get(at)?;
            }
            let is_end = |byte| byte == b',' || byte == b'\n';
            if is_end(byte) && at > start && at - start <= DIGITS_MAX {
                self.values.push((place, Value { number: sum.into(), kind: ValueKind::Number }));
            } else {
                while !is_end(byte) {
                    at += 1;
                    if byte == b'"' {
                        return None;
                    }
                    byte = *block.get(at)?;
                }
                if place != Place::Skip {
                    let value = value::parse(block[start..at].trim_ascii()).ok()?;
                    self.values.push((place, value));
                }
            }
            if (byte == b'\n') != (index == last) {
                return None;
            }
            at += 1;
        }
        Some(at)
    }

    /// The same for any line. Returns whether there is anything in it.
    fn split(&mut self, line: &[u8]) -> anyhow::Result<bool> {
        self.values.clear();
        if line.trim_ascii().is_empty() {
            return Ok(false);
        }
        let found: Vec<&[u8]> = cells(line).collect();
        let (found_len, expected) = (found.len(), self.places.len());
        ensure!(
            found_len == expected,
            "cannot read {}:{}: {found_len} columns, expected {expected} as in the first line",
            self.file,
            self.line,
        );
        for (&place, cell) in self.places.iter().zip(found) {
            if place != Place::Skip {
                match value::parse(cell) {
                    Ok(value) => self.values.push((place, value)),
                    Err(bad) => {
                        let why = format!("{} at character {}", bad.what, bad.at + 1);
                        return Err(self.refusal(line, place, &why));
                    }
                }
            }
        }
        Ok(true)
    }

    /// The error for a value of the line at hand.
    fn refusal(&self, line: &[u8], place: Place, why: &str) -> anyhow::Error {
        let index = self.places.iter().position(|&other| other == place).unwrap_or(0);
        let column = shown(self.names[index].as_bytes());
        let text = shown(cells(line).nth(index).unwrap_or_default());
        anyhow!("cannot read {}:{}:{column}: '{text}': {why}", self.file, self.line)
    }
}

fn push_time(times: &mut Vec<u64>, value: Value) -> Result<(), String> {
    const BITS: u32 = u64::BITS;
    match (u64::try_from(value.number), value.kind) {
        (Ok(time), ValueKind::Number) => times.push(time),
        (Err(_), _) => return Err(format!("a time has at most {BITS} bits")),
        (_, kind) => return Err(format!("a time is a number, not {}", kind.name())),
    }
    Ok(())
}

/// The first line, without its end, and the lines after it.
fn split_line(block: &[u8]) -> (&[u8], &[u8]) {
    match block.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&block[..end], &block[end + 1..]),
        None => (block, &[]),
    }
}

/// The cells of a line, without blanks and quotes around them. A quote inside of quotes is written
/// twice, and stays so: no value has one.
fn cells(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut end) = (false, text.len());
        for (at, &byte) in text.iter().enumerate() {
            quoted ^= byte == b'"';
            if byte == b',' && !quoted {
                end = at;
                break;
            }
        }
        rest = text.get(end + 1..);
        let cell = text[..end].trim_ascii();
        let inner = cell.strip_prefix(b"\"").and_then(|cell| cell.strip_suffix(b"\""));
        Some(inner.unwrap_or(cell))
    })
}

/// A file, cut into blocks of whole lines.
struct Blocks<'i> {
    file: &'i str,
    input: &'i mut dyn Read,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are filled, and those of them that have been returned.
    filled: usize,
    given: usize,
}

impl<'i> Blocks<'i> {
    fn new(file: &'i str, input: &'i mut dyn Read) -> Self {
        Self { file, input, buffer: vec![0; BLOCK_BYTES], filled: 0, given: 0 }
    }

    /// The next lines; the last line of a file may be without an end.
    fn next(&mut self) -> anyhow::Result<Option<&[u8]>> {
        self.buffer.copy_within(self.given..self.filled, 0);
        self.filled -= self.given;
        self.given = 0;
        loop {
            if self.filled == self.buffer.len() {
                let file = self.file;
                ensure!(self.filled < LINE_BYTES_MAX, "cannot read {file}: a line is too long");
                self.buffer.resize(2 * self.filled, 0);
            }
            let read = match self.input.read(&mut self.buffer[self.filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.with_context(|| format!("cannot read {}", self.file))?,
            };
            let new = &self.buffer[self.filled..self.filled + read];
            let end = new.iter().rposition(|&byte| byte == b'\n');
            let end = end.map(|end| self.filled + end + 1);
            self.filled += read;
            self.given = match end {
                Some(end) => end,
                None if read == 0 => self.filled,
                None => continue,
            };
            return Ok((self.given > 0).then_some(&self.buffer[..self.given]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns few bytes at a time.
    struct Trickle<'t>(&'t [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let len = self.0.len().min(buffer.len()).min(7);
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    #[test]
    fn blocks_are_whole_lines() {
        let text = b"a\n\nlonger than seven bytes\nshort\nx\nno end";
        let (mut input, mut found) = (Trickle(text), vec![]);
        let mut blocks = Blocks::new("", &mut input);
        while let Some(block) = blocks.next().unwrap() {
            assert!(block.ends_with(b"\n") || block == b"no end");
            found.extend_from_slice(block);
        }
        assert_eq!(found, text);
    }

    #[test]
    fn long_lines_are_read_up_to_a_limit() {
        let text = vec![b'1'; 3 * BLOCK_BYTES];
        let mut input = text.as_slice();
        assert_eq!(Blocks::new("", &mut input).next().unwrap(), Some(text.as_slice()));
        assert!(Blocks::new("", &mut std::io::repeat(b'1')).next().is_err());
    }

    #[test]
    fn cells_lose_blanks_and_quotes() {
        let split = |line: &'static str| -> Vec<&str> {
            cells(line.as_bytes()).map(|cell| str::from_utf8(cell).unwrap()).collect()
        };
        assert_eq!(split(""), [""]);
        assert_eq!(split("a, b ,c\r"), ["a", "b", "c"]);
        assert_eq!(split(r#"a,,"b,c", "d""e" ,"#), ["a", "", "b,c", r#"d""e"#, ""]);
        assert_eq!(split(r#""open,a"#), [r#""open,a"#]);
    }
}
