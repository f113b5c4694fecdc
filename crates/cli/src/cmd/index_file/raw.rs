//! Binary fields: one file per field, with its values, least significant byte first.

use std::io::{ErrorKind, Read};

use anyhow::{Context, ensure};
use tapdex_engine::index::Width;

use super::build::Reading;
use super::store::Column;

/// Rows that are read at a time.
const BLOCK_ROWS: usize = 1 << 16;

/// Calls `each` with whole values of a number of bytes.
fn blocks(
    file: &str,
    input: &mut dyn Read,
    bytes: usize,
    each: &mut dyn FnMut(&[u8]),
) -> anyhow::Result<()> {
    let mut buffer = vec![0; bytes * BLOCK_ROWS];
    let (mut filled, mut total) = (0, 0_u64);
    loop {
        let read = match input.read(&mut buffer[filled..]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.with_context(|| format!("cannot read {file}"))?,
        };
        (filled, total) = (filled + read, total + read as u64);
        if read > 0 && filled < buffer.len() {
            continue;
        }
        let whole = filled - filled % bytes;
        each(&buffer[..whole]);
        if read == 0 {
            ensure!(
                whole == filled,
                "cannot read {file}: {total} bytes, not a multiple of {bytes}"
            );
            return Ok(());
        }
        ensure!(
            total / bytes as u64 <= u32::MAX.into(),
            "cannot read {file}: an index holds at most {} rows",
            u32::MAX
        );
        filled = 0;
    }
}

/// The columns of a field with digits of these widths, most significant first.
pub(super) fn columns(
    file: &str,
    input: &mut dyn Read,
    widths: &[Width],
    reading: &mut Reading<'_>,
) -> anyhow::Result<Vec<Column>> {
    let bytes = widths.iter().map(|width| width.bits() as usize / 8).sum();
    let mut columns: Vec<Column> = widths.iter().map(|&width| Column::new(width)).collect();
    let mut rows = 0;
    blocks(file, input, bytes, &mut |block| {
        match bytes {
            2 => split::<2>(block, &mut columns),
            4 => split::<4>(block, &mut columns),
            6 => split::<6>(block, &mut columns),
            8 => split::<8>(block, &mut columns),
            16 => split::<16>(block, &mut columns),
            _ => split_any(block, bytes, &mut columns),
        }
        rows += block.len() / bytes;
        reading.add(block.len(), rows);
    })?;
    Ok(columns)
}

/// The same as `split_any`, where the compiler knows how long a value is.
fn split<const N: usize>(block: &[u8], columns: &mut [Column]) {
    let values = block.as_chunks::<N>().0;
    let mut end = N;
    for column in columns {
        match column {
            Column::Bytes(digits) => {
                end -= 1;
                digits.extend(values.iter().map(|value| value[end]));
            }
            Column::Shorts(digits) => {
                end -= 2;
                let pair = |value: &[u8; N]| u16::from_le_bytes([value[end], value[end + 1]]);
                digits.extend(values.iter().map(pair));
            }
        }
    }
}

/// Appends the digits of values to the columns.
fn split_any(block: &[u8], bytes: usize, columns: &mut [Column]) {
    let mut end = bytes;
    for column in columns {
        let values = block.chunks_exact(bytes);
        match column {
            Column::Bytes(digits) => {
                end -= 1;
                digits.extend(values.map(|value| value[end]));
            }
            Column::Shorts(digits) => {
                end -= 2;
                digits.extend(values.map(|value| u16::from_le_bytes([value[end], value[end + 1]])));
            }
        }
    }
}

/// The numbers of a file with 64 bits each.
pub(super) fn numbers(
    file: &str,
    input: &mut dyn Read,
    reading: &mut Reading<'_>,
) -> anyhow::Result<Vec<u64>> {
    let mut numbers: Vec<u64> = Vec::new();
    blocks(file, input, 8, &mut |block| {
        numbers.extend(block.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)));
        reading.add(block.len(), numbers.len());
    })?;
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::index_file::field;
    use crate::cmd::progress::Progress;

    #[test]
    fn every_width_is_cut_into_its_digits() {
        for bits in (8..=128_u32).step_by(8) {
            for digits in [Some(Width::Byte), Some(Width::Short)] {
                let bytes = bits as usize / 8;
                let rows = BLOCK_ROWS + 3;
                let file: Vec<u8> =
                    (0..rows * bytes).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect();
                let widths = field::widths(bits, digits);
                let progress = Progress::hidden();
                let mut reading = Reading::new(&progress, std::iter::empty::<&str>());
                let found = columns("", &mut file.as_slice(), &widths, &mut reading).unwrap();
                for row in [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, rows - 1] {
                    let value = file[row * bytes..][..bytes].iter().rev();
                    let value = value.fold(0_u128, |value, &byte| value << 8 | u128::from(byte));
                    let digits = found.iter().zip(&widths).fold(0_u128, |all, (column, width)| {
                        let digit = column.values(row..row + 1).next().unwrap();
                        all << width.bits() | digit as u128
                    });
                    assert_eq!(digits, value, "{bits} bits, row {row}");
                }
            }
        }
    }
}
