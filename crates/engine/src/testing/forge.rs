//! Forged files: damaged, with checksums that are made good again.

use tapdex_bitmap::Chunks;

use super::container::{self, Parts};
use super::segment;
use super::table::{Table, check_lookups};
use crate::IndexError;
use crate::index::format::{
    ALIGN, BLOCK_LEN, ENTRY_LEN, Entry, FOOTER_LEN, Footer, HEADER_LEN, MAGIC, SectionKind, blocks,
    size,
};
use crate::index::{Index, Rows};

/// The range of the directory's bytes, if it is inside the file.
pub(super) fn directory(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let directory_end = (bytes.len() as u64).checked_sub(FOOTER_LEN)?;
    let footer = Footer::parse(bytes);
    let end = footer.directory.checked_add(footer.directory_len)?;
    (end <= directory_end).then(|| size(footer.directory)..size(end))
}

/// Computes all checksums again, as far as the structure of the file can be followed.
pub fn mend(bytes: &mut [u8]) {
    if let Some(header) = bytes.get_mut(..size(HEADER_LEN)) {
        let sum = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&sum.to_le_bytes());
    }
    if let Some(directory) = directory(bytes) {
        let is_table = !container::is_of_flows(bytes);
        if !is_table {
            container::mend_sums(bytes, directory.clone());
        }
        for at in directory.clone().step_by(size(ENTRY_LEN)).filter(|_| is_table) {
            let Some(entry) = bytes.get(at..at + size(ENTRY_LEN)).map(Entry::parse) else {
                continue;
            };
            let Some(end) = entry.end().filter(|&end| end <= bytes.len() as u64) else {
                continue;
            };
            let (start, sums) = (size(entry.offset), size(entry.offset + entry.len));
            for block in 0..size(blocks(entry.len)) {
                let from = start + block * size(BLOCK_LEN);
                let to = sums.min(from + size(BLOCK_LEN));
                let sum = crc32c::crc32c(&bytes[from..to]);
                bytes[sums + 4 * block..][..4].copy_from_slice(&sum.to_le_bytes());
            }
            let sum = crc32c::crc32c(&bytes[sums..size(end)]);
            bytes[at + 24..at + 28].copy_from_slice(&sum.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes[directory]);
        let footer = bytes.len() - size(FOOTER_LEN);
        bytes[footer + 24..footer + 28].copy_from_slice(&sum.to_le_bytes());
    }
    if let Some(footer) = bytes.len().checked_sub(size(FOOTER_LEN)) {
        let footer = &mut bytes[footer..];
        let sum = crc32c::crc32c(&footer[..28]);
        footer[28..32].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Sets magic numbers, the offsets of sections and directory and the file's length to what follows
/// from the lengths of the sections: for files that bytes were inserted into. In an index of
/// conversations the longest section gets the bytes that are too many, or lacks those that are
/// missing.
pub fn relocate(bytes: &mut Vec<u8>) {
    if (bytes.len() as u64) < HEADER_LEN + FOOTER_LEN {
        return;
    }
    if container::is_of_flows(bytes) {
        if let Some(parts) = Parts::fitted(bytes) {
            *bytes = parts.encode();
        }
        return;
    }
    bytes[..8].copy_from_slice(&MAGIC);
    let (file_len, footer) = (bytes.len() as u64, bytes.len() - size(FOOTER_LEN));
    bytes[footer + 32..].copy_from_slice(&MAGIC);
    bytes[footer + 16..footer + 24].copy_from_slice(&file_len.to_le_bytes());
    let len = Footer::parse(bytes).directory_len;
    let Some(start) = (file_len - FOOTER_LEN).checked_sub(len) else {
        return;
    };
    bytes[footer..footer + 8].copy_from_slice(&start.to_le_bytes());
    let mut offset = HEADER_LEN;
    for at in (size(start)..footer).step_by(size(ENTRY_LEN)) {
        let Some(entry) = bytes.get_mut(at..at + size(ENTRY_LEN)) else {
            break;
        };
        entry[8..16].copy_from_slice(&offset.to_le_bytes());
        let end = Entry::parse(entry).end().and_then(|end| end.checked_next_multiple_of(ALIGN));
        offset = end.unwrap_or(0);
    }
}

/// The file with another note and matching checksums; `None` if it has no note.
pub fn forge_note(bytes: &[u8], edit: impl FnOnce(&str) -> String) -> Option<Vec<u8>> {
    if container::is_of_flows(bytes) {
        let mut parts = Parts::decode(bytes)?;
        let note = parts.section_mut(SectionKind::Note)?;
        *note = edit(std::str::from_utf8(note).ok()?).into_bytes();
        return Some(parts.encode());
    }
    let places = directory(bytes)?.step_by(size(ENTRY_LEN));
    let entry = |at: usize| Some(Entry::parse(bytes.get(at..at + size(ENTRY_LEN))?));
    let at = places
        .into_iter()
        .find(|&at| entry(at).is_some_and(|entry| entry.kind == SectionKind::Note as u16))?;
    let entry = entry(at)?;
    let (start, end) = (size(entry.offset), size(entry.offset.checked_add(entry.len)?));
    let note = edit(std::str::from_utf8(bytes.get(start..end)?).ok()?);
    let next = |entry: &Entry| Some(size(entry.end()?.checked_next_multiple_of(ALIGN)?));
    let forged = Entry { len: note.len() as u64, ..Entry::parse(&entry.encode()) };
    let mut file = bytes.get(..start)?.to_vec();
    file.extend(note.as_bytes());
    file.resize(next(&forged)?, 0);
    let shift = (file.len(), next(&entry)?);
    file.extend(bytes.get(shift.1..)?);
    let at = (at + shift.0).checked_sub(shift.1)?;
    file.get_mut(at + 16..at + 24)?.copy_from_slice(&forged.len.to_le_bytes());
    relocate(&mut file);
    mend(&mut file);
    Some(file)
}

/// Most rows for which look-ups are carried out, and for which they are compared with a scan.
const ROWS_MAX: u32 = 1 << 20;
const ROWS_COMPARED_MAX: u32 = 1 << 11;
/// The most columns and fields that are searched.
const ASKED_MAX: usize = 8;

/// Opens, verifies and searches a file made of the bytes after the first. Bit 0 of the first byte
/// asks for [`mend`], bit 1 for [`relocate`] before it.
pub fn fuzz_index_open(data: &[u8]) {
    let Some((&how, bytes)) = data.split_first() else {
        return;
    };
    let mut bytes = bytes.to_vec();
    if how & 2 != 0 {
        relocate(&mut bytes);
    }
    if how & 1 != 0 {
        mend(&mut bytes);
    }
    let number = |at: usize| {
        let from = (how as usize >> 2).wrapping_add(31 * at) % data.len();
        data[from..].iter().take(16).fold(0, |sum: u128, &byte| sum << 8 | u128::from(byte))
    };
    let values: [u128; 4] = std::array::from_fn(number);
    let Ok(index) = Index::from_bytes(bytes) else {
        return;
    };
    let sound = index.verify(&mut |_| {}).is_sound();
    // A second time, over what is known to be good.
    assert_eq!(index.verify(&mut |_| {}).is_sound(), sound);
    if index.rows() > ROWS_MAX {
        return;
    }
    let answered = look_up(&index, &values);
    assert!(answered.is_ok() || !sound, "{:?}", answered);
    let answered = segment::look_up(&index, &values);
    assert!(answered.is_ok() || !sound, "{:?}", answered);
    let columns = index.schema().columns().count();
    if sound && index.rows() <= ROWS_COMPARED_MAX && index.flow_schema().is_some() {
        segment::check_lookups(&index, &values).unwrap();
    } else if sound && index.rows() <= ROWS_COMPARED_MAX && columns <= ASKED_MAX {
        let table = Table::from_index(&index).unwrap().expect("a row has two digits or none");
        check_lookups(&index, &table, u64::try_from(values[0] >> 64).unwrap());
    }
}

/// Does every kind of look-up; an error if one of them fails.
fn look_up(index: &Index, values: &[u128; 4]) -> Result<u64, IndexError> {
    let mut error = None;
    let mut count = 0;
    let mut see = |rows: Result<Rows<'_>, IndexError>| match rows {
        Ok(rows) => count += rows.count(),
        Err(found) => error = Some(found),
    };
    let [a, b, ..] = *values;
    for n in 0..index.schema().columns().count().min(ASKED_MAX) {
        let digits = values.map(|value| u16::try_from(value & 0xFFFF).unwrap());
        match index.column(n) {
            Err(found) => see(Err(found)),
            Ok(column) => {
                see(column.equals(digits[0]).map(|found| match found {
                    Some(bitmap) => Box::new(bitmap.chunks()) as Rows<'_>,
                    None => Box::new(tapdex_bitmap::union::<Rows<'_>>([])),
                }));
                see(column.any_of(&digits));
                see(column.range(digits[0]..=digits[1]));
                see(column.range(digits[1]..=digits[0]));
            }
        }
    }
    for spec in index.schema().fields.iter().take(ASKED_MAX) {
        let field = index.field(&spec.name)?;
        let max = field.value_max();
        see(field.equals(a & max));
        see(field.any_of(&values.map(|value| value & max)));
        see(field.range(a & max..=b & max));
        see(field.range(b..=a));
        see(field.prefix(a & max, u32::try_from(b % 129).unwrap().min(spec.bits())));
    }
    let row = u32::try_from(a & 0xFFFF_FFFF).unwrap();
    let lists = [look_up_times(index, row, b), look_up_records(index, row)];
    lists.into_iter().collect::<Result<(), _>>()?;
    if let Some(marks) = index.marks()?.filter(|marks| !marks.is_empty()) {
        let i = row % marks.len();
        let mark = marks.get(i)?;
        assert!(mark.time_min <= mark.time_max);
        if index.rows() <= ROWS_COMPARED_MAX {
            assert_eq!(marks.iter().collect::<Result<Vec<_>, _>>()?[i as usize], mark);
        }
    }
    if let Some(pieces) = index.pieces()?.filter(|pieces| !pieces.is_empty()) {
        pieces.head()?;
        pieces.get(row % pieces.len())?;
    }
    index.note()?;
    error.map_or(Ok(count), Err)
}

fn look_up_times(index: &Index, row: u32, time: u128) -> Result<(), IndexError> {
    let Some(times) = index.times()? else {
        return Ok(());
    };
    let point = times.partition_point(|value| u128::from(value) < time)?;
    assert!(point <= times.len());
    if let Some(row) = row.checked_rem(times.len()) {
        let value = times.get(row)?;
        if index.rows() <= ROWS_COMPARED_MAX {
            let values = times.iter().collect::<Result<Vec<_>, _>>()?;
            assert_eq!(values[row as usize], value);
        }
    }
    Ok(())
}

fn look_up_records(index: &Index, row: u32) -> Result<(), IndexError> {
    let (Some(map), Some(row)) = (index.row_map()?, row.checked_rem(index.rows())) else {
        return Ok(());
    };
    let record = map.get(row)?;
    assert!(record < index.rows());
    let (mut one, mut all) = (vec![], vec![]);
    map.records(&[row], &mut one)?;
    assert_eq!(one, [record]);
    if index.rows() <= ROWS_COMPARED_MAX {
        let records = map.iter().collect::<Result<Vec<_>, _>>()?;
        assert!(records.iter().all(|&record| record < index.rows()));
        assert_eq!(records[row as usize], record);
        map.records(&(0..index.rows()).collect::<Vec<_>>(), &mut all)?;
        assert_eq!(all, records);
    }
    Ok(())
}
