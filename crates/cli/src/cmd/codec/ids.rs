//! Sets as text: an id or a range a line.

use std::io::{self, BufRead, Write};

use anyhow::{Context, bail};
use tapdex_bitmap::Chunks;

use super::Lines;
use crate::cmd::shown;

/// Reads ascending ids and ranges, all below `rows` or, without it, below 2^32 - 1.
pub(super) fn read(input: &mut dyn BufRead, rows: Option<u32>) -> anyhow::Result<Vec<u32>> {
    let mut ids: Vec<u32> = Vec::new();
    let mut lines = Lines::new(input);
    while let Some((number, line)) = lines.next()? {
        let comment = line.iter().position(|&byte| byte == b'#').unwrap_or(line.len());
        let text = line[..comment].trim_ascii();
        if text.is_empty() {
            continue;
        }
        let (first, last) =
            parse(text, rows).with_context(|| format!("cannot read line {number}"))?;
        if let Some(&previous) = ids.last()
            && first <= previous
        {
            bail!(
                "cannot read line {number}: id {first} follows id {previous}, \
                 but ids must ascend without duplicates"
            );
        }
        // A range of a few bytes can stand for gigabytes of ids.
        let len = (last - first) as usize + 1;
        ids.try_reserve(len)
            .map_err(io::Error::from)
            .with_context(|| format!("no memory for the {len} ids of line {number}"))?;
        ids.extend(first..=last);
    }
    Ok(ids)
}

/// The first and the last id of a line.
fn parse(text: &[u8], rows: Option<u32>) -> anyhow::Result<(u32, u32)> {
    let dash = text.iter().position(|&byte| byte == b'-');
    let (first_text, last_text) = match dash {
        Some(dash) => (text[..dash].trim_ascii_end(), text[dash + 1..].trim_ascii_start()),
        None => (text, text),
    };
    let (Some(first), Some(last)) = (number(first_text), number(last_text)) else {
        bail!("'{}' is neither an id such as 7 nor a range such as 44-80", shown(text));
    };
    if last < first {
        bail!("the range {first}-{last} ends before it starts");
    }
    let last_id = u32::try_from(last).ok();
    match (last_id.filter(|&id| id < rows.unwrap_or(u32::MAX)), u32::try_from(first)) {
        (Some(last), Ok(first)) => Ok((first, last)),
        _ => match rows {
            Some(rows) => bail!("id {} is not below --rows {rows}", shown(last_text)),
            None => bail!("id {} is above the maximum {}", shown(last_text), u32::MAX - 1),
        },
    }
}

/// The number that the digits stand for; the largest there is if it is larger than that.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

/// Writes ascending ids as maximal ranges.
pub(in crate::cmd) fn write(ids: &[u32], out: &mut dyn Write) -> io::Result<()> {
    for run in ids.chunk_by(|a, b| b - a == 1) {
        if let (Some(&first), Some(&last)) = (run.first(), run.last()) {
            write_range(first, last, out)?;
        }
    }
    Ok(())
}

/// Writes the ids of a cursor as maximal ranges, without a list of them.
pub(super) fn write_chunks(mut chunks: impl Chunks, out: &mut dyn Write) -> io::Result<()> {
    let mut from = 0;
    // A run goes on in the next chunk if it reaches the end of its own.
    let mut open: Option<(u32, u32)> = None;
    while let Some(key) = chunks.seek(from) {
        let base = key << 16;
        let mut result = Ok(());
        chunks.load().for_each_run(|first, last| {
            let (first, last) = (base | first, base | last);
            open = match open {
                Some((open_first, open_last)) if open_last + 1 == first => Some((open_first, last)),
                Some((open_first, open_last)) => {
                    if result.is_ok() {
                        result = write_range(open_first, open_last, out);
                    }
                    Some((first, last))
                }
                None => Some((first, last)),
            };
        });
        result?;
        from = key + 1;
    }
    open.map_or(Ok(()), |(first, last)| write_range(first, last, out))
}

fn write_range(first: u32, last: u32, out: &mut dyn Write) -> io::Result<()> {
    if first == last { writeln!(out, "{first}") } else { writeln!(out, "{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_bitmap::{Bitmap, Codec};

    fn read_text(text: &str, rows: Option<u32>) -> Result<Vec<u32>, String> {
        read(&mut text.as_bytes(), rows).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn ids_ranges_blanks_and_comments_are_read() {
        let text = "# two bursts\n\n  3 \n5-7\r\n 10 - 11 # the second\n\t20\n4294967294";
        let ids = read_text(text, None).unwrap();
        assert_eq!(ids, [3, 5, 6, 7, 10, 11, 20, u32::MAX - 1]);
        assert_eq!(read_text("", Some(0)), Ok(vec![]));
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in ["x", "-", "-5", "5-", "1-2-3", "+5", "1_000", "0x10", "5 6", "\u{fc}"] {
            let error = read_text(&format!("1\n{text}\n"), None).unwrap_err();
            assert!(error.starts_with("cannot read line 2: '"), "{text}: {error}");
        }
    }

    #[test]
    fn ids_too_large_for_any_number_are_past_the_rows() {
        let huge = "9".repeat(30);
        let error = read_text(&format!("1-{huge}\n"), Some(5)).unwrap_err();
        assert_eq!(error, format!("cannot read line 1: id {huge} is not below --rows 5"));
    }

    #[test]
    fn runs_are_joined_where_chunks_meet() {
        let ids: Vec<u32> = (65_000..200_000).chain([200_001, 262_143, 262_144]).collect();
        let mut bytes = vec![];
        Codec::Roaring.encode(&ids, &mut bytes);
        let set = Bitmap::open(Codec::Roaring, &bytes, 300_000).unwrap();
        let (mut from_chunks, mut from_ids) = (vec![], vec![]);
        write_chunks(set.chunks(), &mut from_chunks).unwrap();
        write(&ids, &mut from_ids).unwrap();
        assert_eq!(from_chunks, b"65000-199999\n200001\n262143-262144\n");
        assert_eq!(from_chunks, from_ids);
    }
}
