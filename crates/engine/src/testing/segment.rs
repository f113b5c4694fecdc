//! Segments of made-up traffic, and every question that one can be asked.

use std::collections::BTreeSet;
use std::fs;

use tapdex_bitmap::Chunks;

use super::recording::Folder;
use crate::IndexError;
use crate::archive::{Archive, CodecChoice, Ingest, Input};
use crate::capture::{CaptureWriter, FileFormat, Interface};
use crate::index::{Conversations, FlowField, Found, Index, Within};
use crate::traffic::{Profile, Traffic};

/// The index file of the segment that some traffic makes: a recording, so that it has packet sums.
pub fn segment_of(profile: &Profile, codec: CodecChoice) -> Vec<u8> {
    let folder = Folder::new();
    let archive = Archive::create(&folder.0, Some(codec)).unwrap();
    let interface = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &[interface], "").unwrap();
    let mut traffic = Traffic::new(profile);
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
    }
    let recording = archive.new_recording(profile.start_ns, 0).unwrap();
    fs::write(recording.sealed_path(), writer.finish().unwrap()).unwrap();
    let input = Input::File(recording.sealed_path());
    let report = Ingest::new(&archive).threads(1).run(&[input]).unwrap();
    assert!(report.files[0].error.is_none(), "{report:?}");
    fs::read(&archive.index_files().unwrap()[0]).unwrap()
}

/// Traffic of every kind, in few packets.
pub fn varied(packets: u64, seed: u64) -> Profile {
    Profile {
        seed,
        packets,
        ipv6_share: 0.3,
        vlan_share: 0.3,
        tunnel_share: 0.2,
        other_share: 0.2,
        concurrent_flows: 16,
        ..Profile::default()
    }
}

/// An answer: numbers that depend on all of it.
pub type Answer = Vec<u64>;

/// The rows that a look-up found.
fn rows_of(found: Found<'_>, rows: u32) -> Answer {
    match found {
        Found::None => vec![],
        Found::All => (0..rows.into()).collect(),
        Found::Some(some, _) => some.ids().map(u64::from).collect(),
        Found::Conversations(some, _) => some.into_rows().ids().map(u64::from).collect(),
    }
}

/// The names of all fields, those of both ends.
pub fn field_names(index: &Index) -> Vec<String> {
    let columns = index.flow_schema().into_iter().flat_map(|schema| &schema.columns);
    columns.flat_map(|column| column.names.iter().cloned()).collect()
}

fn either(field: FlowField<'_>) -> FlowField<'_> {
    field.either_end().unwrap_or(field)
}

/// Asks a field of a name for everything that it can be asked for. The answers are always as many.
pub fn ask_field(
    index: &Index,
    name: &str,
    values: &[u128],
    each: &mut dyn FnMut(Result<Answer, IndexError>),
) {
    let all = index.rows();
    let mut ask = |question: &dyn Fn(FlowField<'_>) -> Result<Answer, IndexError>| {
        each(index.flow_field(name).and_then(|field| field.map_or(Ok(vec![]), question)));
    };
    let found = |found: Result<Found<'_>, IndexError>| {
        let found = found?;
        let count = match &found {
            Found::Conversations(some, _) => Some(some.rows_len()),
            _ => None,
        };
        let mut rows = rows_of(found, all);
        rows.extend(count);
        index.check_flows().map(|()| rows)
    };
    for (at, &value) in values.iter().enumerate() {
        let other = values[(at + 1) % values.len()];
        let fit = |field: FlowField<'_>| value & field.value_max();
        ask(&|field| found(field.equals(fit(field), None)));
        ask(&|field| found(either(field).equals(fit(field), None)));
        ask(&|field| found(field.range(value.min(other)..=value.max(other), None)));
        ask(&|field| found(either(field).range(fit(field)..=field.value_max(), None)));
        ask(&|field| found(field.range(0..=fit(field), None)));
        let prefix = |field: FlowField<'_>| {
            let bits = 8 * u32::try_from(field.column().width).unwrap();
            field.value_max() & !(field.value_max() >> (other % u128::from(bits)))
        };
        ask(&|field| found(field.masked(value, prefix(field), None)));
        ask(&|field| found(field.masked(value, other, None)));
        ask(&|field| Ok(vec![u64::from(field.weight(value, prefix(field))? > 0)]));
        ask(&|field| found(field.matching(&mut |v| v & 3 == value & 3, None)));
        ask(&|field| found(either(field).matching(&mut |v| v & 1 == other & 1, None)));
        ask(&|field| {
            let Found::Conversations(some, _) = field.equals(fit(field), None)? else {
                return Ok(vec![]);
            };
            let within = some.within();
            found(either(field).matching(&mut |v| v & 1 == other & 1, within.as_ref()))
        });
    }
    let counted = |counts: Vec<(u128, u64)>| -> Answer {
        let low = u128::from(u64::MAX);
        let numbers = |(value, count): (u128, u64)| {
            [value >> 64, value & low]
                .map(|half| u64::try_from(half).unwrap())
                .into_iter()
                .chain([count])
        };
        counts.into_iter().flat_map(numbers).collect()
    };
    let some: Vec<(u32, u32)> =
        (0..all).step_by(7).map(|row| (row, (row + row % 4).min(all - 1))).collect();
    ask(&|field| field.count(None).map(counted));
    ask(&|field| field.count(Some(&some)).map(counted));
    ask(&|field| {
        let mut runs = Vec::new();
        field.for_each_run(&mut |value, first, last| {
            runs.push((value, u64::from(first) << 32 | u64::from(last)));
        })?;
        Ok(counted(runs))
    });
}

/// Asks for records, marks, pieces and the note.
pub fn ask_lists(index: &Index, row: u32, each: &mut dyn FnMut(Result<Answer, IndexError>)) {
    let all = index.rows();
    let Some(row) = row.checked_rem(all) else { return };
    let map = || index.row_map().map(|map| map.unwrap());
    let records = |rows: &[u32]| -> Result<Answer, IndexError> {
        let mut target = Vec::new();
        map()?.records(rows, &mut target)?;
        Ok(target.into_iter().map(u64::from).collect())
    };
    each(map().and_then(|map| Ok(vec![map.get(row)?.into()])));
    each(records(&[row]));
    let some: Vec<u32> = (0..all).filter(|other| other % 50 == row % 50).collect();
    each(records(&some));
    each(records(&(0..all).collect::<Vec<_>>()));
    each(map().and_then(|map| map.iter().map(|record| record.map(u64::from)).collect()));
    let marks = || index.marks().map(|marks| marks.filter(|marks| !marks.is_empty()));
    each(marks().and_then(|marks| {
        let Some(marks) = marks else { return Ok(vec![]) };
        let mark = marks.get(row % marks.len())?;
        Ok(vec![mark.offset, mark.time_min, mark.time_max])
    }));
    each(marks().and_then(|marks| {
        let Some(marks) = marks else { return Ok(vec![]) };
        let all = marks.iter().collect::<Result<Vec<_>, _>>()?;
        Ok(all.iter().flat_map(|mark| [mark.offset, mark.time_min, mark.time_max]).collect())
    }));
    each(index.pieces().and_then(|pieces| {
        let Some(pieces) = pieces.filter(|pieces| !pieces.is_empty()) else { return Ok(vec![]) };
        let both = [pieces.head()?, pieces.get(row % pieces.len())?];
        Ok(both.iter().flat_map(|p| [p.bytes.start, p.bytes.end, p.sum.into()]).collect())
    }));
    each(index.note().map(|note| note.unwrap_or_default().iter().map(|&b| b.into()).collect()));
}

/// The most fields that are asked for everything.
const ASKED_MAX: usize = 8;

/// Asks an index of conversations, if it is one; an error if an answer is one.
pub(super) fn look_up(index: &Index, values: &[u128; 4]) -> Result<(), IndexError> {
    if index.flow_schema().is_none() {
        return Ok(());
    }
    let mut result = Ok(());
    let mut see = |answer: Result<Answer, IndexError>| {
        if let Err(error) = answer {
            result = Err(error);
        }
    };
    let names = field_names(index);
    // Not always the first ones.
    let from = usize::try_from(values[3] % 97).unwrap();
    for name in names.iter().cycle().skip(from).take(names.len().min(ASKED_MAX)) {
        ask_field(index, name, values, &mut see);
    }
    ask_lists(index, u32::try_from(values[0] & 0xFFFF_FFFF).unwrap(), &mut see);
    result
}

/// Compares what can be done with a set of conversations with what it means for rows.
fn check_algebra(some: &Conversations<'_>, all: u32) {
    let rows = |set: Conversations<'_>| set.into_rows().ids().collect::<Vec<u32>>();
    let (inside, outside) = (rows(some.clone()), rows(some.clone().complement()));
    let expected = (0..all).filter(|row| inside.binary_search(row).is_err());
    assert_eq!(outside, expected.collect::<Vec<_>>());
    assert_eq!(some.rows_len(), inside.len() as u64);
    assert_eq!(some.clone().complement().rows_len(), outside.len() as u64);
    // Flows without packets have no rows, but are in the set or not.
    assert!(inside.is_empty() || !some.is_empty());
    assert!(outside.is_empty() || !some.is_all());
    assert_eq!(rows(some.clone().and(some.clone())), inside);
    assert!(some.clone().and(some.clone().complement()).is_empty());
    assert!(some.clone().or(some.clone().complement()).is_all());
}

/// The value of a field in each row.
fn values_of(field: FlowField<'_>, rows: u32) -> Result<Vec<u128>, IndexError> {
    let mut values = vec![0; rows as usize];
    field.for_each_run(&mut |value, first, last| {
        values[first as usize..=last as usize].fill(value);
    })?;
    Ok(values)
}

/// Compares look-ups of either end, by the field of one, with what a scan of both finds.
fn check_either(index: &Index, field: FlowField<'_>, values: &[u128]) -> Result<(), IndexError> {
    let (Some(both), [src, dst]) = (field.either_end(), &field.column().names[..]) else {
        return Ok(());
    };
    let (Some(src), Some(dst)) = (index.flow_field(src)?, index.flow_field(dst)?) else {
        return Ok(());
    };
    let all = index.rows();
    let (src, dst) = (values_of(src, all)?, values_of(dst, all)?);
    let scan = |holds: &dyn Fn(u128) -> bool| -> Answer {
        let rows = (0..all.into()).zip(src.iter().zip(&dst));
        rows.filter(|(_, (a, b))| holds(**a) || holds(**b)).map(|(row, _)| row).collect()
    };
    let own = src.iter().step_by(src.len() / 3 + 1).copied();
    for value in values.iter().map(|value| value & field.value_max()).chain(own) {
        let found = |found| rows_of(found, all);
        assert_eq!(found(both.equals(value, None)?), scan(&|v| v == value), "{value}");
        assert_eq!(found(both.range(0..=value, None)?), scan(&|v| v <= value), "{value}");
        let above = found(both.range(value..=u128::MAX, None)?);
        assert_eq!(above, scan(&|v| v >= value), "{value}");
        let odd = found(both.matching(&mut |v| v & 1 == value & 1, None)?);
        assert_eq!(odd, scan(&|v| v & 1 == value & 1), "{value}");
    }
    Ok(())
}

/// Compares what is in both or in one of two sets of conversations with their rows: small sets,
/// and large ones.
fn check_pairs(index: &Index) -> Result<(), IndexError> {
    let mut sets = Vec::new();
    for name in field_names(index) {
        let Some(field) = index.flow_field(&name)? else { continue };
        let some = field.count(None)?.get(1).map_or(1, |count| count.0);
        for found in [field.equals(some, None)?, either(field).matching(&mut |v| v & 1 == 1, None)?]
        {
            if let Found::Conversations(set, _) = found {
                let rows: BTreeSet<u32> = set.clone().into_rows().ids().collect();
                sets.push((set, rows));
            }
        }
    }
    let pairs = sets.iter().enumerate().flat_map(|(n, a)| sets[n..].iter().map(move |b| (a, b)));
    for ((a, a_rows), (b, b_rows)) in pairs {
        let rows = |set: Conversations<'_>| set.into_rows().ids().collect::<BTreeSet<u32>>();
        assert_eq!(rows(a.clone().and(b.clone())), a_rows & b_rows);
        assert_eq!(rows(a.clone().or(b.clone())), a_rows | b_rows);
    }
    Ok(())
}

/// Some sets of conversations that are few, with their rows.
fn few_conversations(index: &Index) -> Result<Vec<(Within, Answer)>, IndexError> {
    let mut sets = Vec::new();
    for name in field_names(index) {
        let Some(field) = index.flow_field(&name)? else { continue };
        let counts = field.count(None)?;
        for (value, _) in counts.iter().step_by(counts.len() / 2 + 1) {
            for found in [field.equals(*value, None)?, either(field).equals(*value, None)?] {
                let Found::Conversations(some, _) = found else { continue };
                if let Some(within) = some.within() {
                    sets.push((within, some.into_rows().ids().map(u64::from).collect()));
                }
            }
        }
    }
    Ok(sets)
}

/// Compares look-ups of a sound index with what a scan of its fields finds. Returns how many were
/// made within a few conversations only.
pub fn check_lookups(index: &Index, values: &[u128]) -> Result<usize, IndexError> {
    let all = index.rows();
    let few = few_conversations(index)?;
    check_pairs(index)?;
    let mut within_few = 0;
    for name in field_names(index) {
        let Some(field) = index.flow_field(&name)? else { continue };
        check_either(index, field, values)?;
        let column = values_of(field, all)?;
        let scan = |holds: &dyn Fn(u128) -> bool| -> Answer {
            (0..all.into()).zip(&column).filter(|(_, v)| holds(**v)).map(|(row, _)| row).collect()
        };
        let counts = field.count(None)?;
        assert_eq!(counts.iter().map(|count| count.1).sum::<u64>(), all.into(), "{name}");
        let own = column.iter().step_by(column.len() / 3 + 1).copied();
        for value in values.iter().map(|value| value & field.value_max()).chain(own) {
            let found = |found| {
                if let Found::Conversations(some, _) = &found {
                    check_algebra(some, all);
                }
                rows_of(found, all)
            };
            assert_eq!(found(field.equals(value, None)?), scan(&|v| v == value), "{name} {value}");
            assert_eq!(
                found(field.range(value..=u128::MAX, None)?),
                scan(&|v| v >= value),
                "{name}"
            );
            assert_eq!(
                found(field.range(0..=value, None)?),
                scan(&|v| v <= value),
                "{name} {value}"
            );
            let mask = field.value_max() & !(field.value_max() >> 9);
            let masked = scan(&|v| v & mask == value & mask);
            assert_eq!(found(field.masked(value, mask, None)?), masked, "{name} {value}");
            let odd = found(field.matching(&mut |v| v & 5 == value & 5, None)?);
            assert_eq!(odd, scan(&|v| v & 5 == value & 5), "{name} {value}");
            let count = counts.iter().find(|count| count.0 == value).map_or(0, |count| count.1);
            assert_eq!(count, scan(&|v| v == value).len() as u64, "{name} {value}");
            for (within, inside) in &few {
                let check = |found: Found<'_>, holds: &dyn Fn(u128) -> bool| {
                    let mut found = rows_of(found, all);
                    found.retain(|row| inside.binary_search(row).is_ok());
                    let value_of = |row: &&u64| column[usize::try_from(**row).unwrap()];
                    let right = inside.iter().filter(|row| holds(value_of(row))).copied();
                    assert_eq!(found, right.collect::<Answer>(), "{name} {value}");
                };
                let within = Some(within);
                check(field.equals(value, within)?, &|v| v == value);
                check(field.range(value..=u128::MAX, within)?, &|v| v >= value);
                check(field.masked(value, mask, within)?, &|v| v & mask == value & mask);
                check(field.matching(&mut |v| v & 5 == value & 5, within)?, &|v| {
                    v & 5 == value & 5
                });
                within_few += 4;
            }
        }
    }
    Ok(within_few)
}
