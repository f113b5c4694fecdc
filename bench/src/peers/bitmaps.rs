//! A croaring bitmap for each value of each header field, beside our index of the same fields.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::ops::RangeInclusive;

use anyhow::{Context, ensure};
use croaring::{Bitmap, Portable};
use tapdex_engine::archive::{Archive, CodecChoice};
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::fields::{Field, Packet};
use tapdex_engine::index::{SectionKind, Width};
use tapdex_engine::packet::{Headers, decode};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use super::digits;
use crate::archive::captures::{Capture, Folder};
use crate::archive::census::Sets;
use crate::archive::indexing::index_into;

/// Bytes that say where the bitmap of a value starts.
const OFFSET_BYTES: usize = 4;

/// The rows that have each value of a field.
type RowsByValue = HashMap<u128, Vec<u32>>;

/// The values of a field but 0, ascending, and the set of each.
struct FieldSets {
    values: Vec<u128>,
    sets: Vec<Bitmap>,
}

impl FieldSets {
    /// The sets of values in a range.
    fn within(&self, range: &RangeInclusive<u128>) -> &[Bitmap] {
        let [from, to] = [
            self.values.partition_point(|value| value < range.start()),
            self.values.partition_point(|value| value <= range.end()),
        ];
        self.sets.get(from..to).unwrap_or_default()
    }

    /// Bytes of the sets, serialized.
    fn bytes(&self) -> usize {
        self.sets.iter().map(Bitmap::get_serialized_size_in_bytes::<Portable>).sum()
    }
}

/// The sets of all fields.
#[derive(Default)]
pub struct Bitmaps(HashMap<Field, FieldSets>);

impl Bitmaps {
    /// Adds a field whose rows are at these places, or are where they are.
    fn add(&mut self, field: Field, rows: &RowsByValue, places: Option<&[u32]>) {
        let mut values: Vec<u128> = rows.keys().copied().collect();
        values.sort_unstable();
        let set = |value| {
            let mut rows = rows[value].clone();
            if let Some(places) = places {
                rows.iter_mut().for_each(|row| *row = places[*row as usize]);
                rows.sort_unstable();
            }
            let mut set = Bitmap::of(&rows);
            set.run_optimize();
            set
        };
        let sets = values.iter().map(set).collect();
        self.0.insert(field, FieldSets { values, sets });
    }

    fn within(&self, field: Field, range: &RangeInclusive<u128>) -> &[Bitmap] {
        self.0.get(&field).map_or(&[], |field| field.within(range))
    }

    /// How many packets there are.
    pub fn count(&self, sets: &Sets) -> u64 {
        if let Sets::All(parts) = sets {
            let mut parts = self.ascending(parts);
            let Some(last) = parts.pop() else { return 0 };
            return match and(parts) {
                Some(others) => others.and_cardinality(&last),
                None => last.cardinality(),
            };
        }
        self.set(sets).cardinality()
    }

    /// The sets of parts, that with the fewest packets first.
    fn ascending(&self, parts: &[Sets]) -> Vec<Cow<'_, Bitmap>> {
        let mut parts: Vec<_> = parts.iter().map(|part| self.set(part)).collect();
        parts.sort_by_cached_key(|set| set.cardinality());
        parts
    }

    fn set(&self, sets: &Sets) -> Cow<'_, Bitmap> {
        match sets {
            Sets::All(parts) => and(self.ascending(parts)).unwrap_or_default(),
            Sets::Values(..) | Sets::Any(_) => {
                let mut parts = Vec::new();
                self.push_parts(sets, &mut parts);
                match parts.len() {
                    0 | 1 => parts.pop().unwrap_or_default(),
                    _ => Cow::Owned(Bitmap::fast_or(
                        &parts.iter().map(|set| &**set).collect::<Vec<_>>(),
                    )),
                }
            }
            Sets::Without(sets, field, range) => {
                let mut set = self.set(sets);
                for other in self.within(*field, range) {
                    if !set.is_empty() {
                        set.to_mut().andnot_inplace(other);
                    }
                }
                set
            }
        }
    }

    /// Appends what has to be united.
    fn push_parts<'a>(&'a self, sets: &Sets, target: &mut Vec<Cow<'a, Bitmap>>) {
        match sets {
            Sets::Values(field, range) => {
                target.extend(self.within(*field, range).iter().map(Cow::Borrowed));
            }
            Sets::Any(parts) => parts.iter().for_each(|part| self.push_parts(part, target)),
            Sets::All(_) | Sets::Without(..) => target.push(self.set(sets)),
        }
    }
}

/// What is in all of some sets; `None` if there are none.
fn and<'a>(sets: Vec<Cow<'a, Bitmap>>) -> Option<Cow<'a, Bitmap>> {
    sets.into_iter().reduce(|all, set| match all {
        all if all.is_empty() => all,
        Cow::Borrowed(all) => Cow::Owned(all.and(&set)),
        Cow::Owned(mut all) => {
            all.and_inplace(&set);
            Cow::Owned(all)
        }
    })
}

/// Fields that share a column of our index, and what they take.
struct Group {
    name: String,
    fields: Vec<Field>,
    values: usize,
    /// Of our index; of the sets by arrival and by flow; of the dictionary that both need.
    bytes: [u64; 4],
}

/// The sets of a capture in both orders, and what they take.
pub struct ValueBitmaps {
    capture: String,
    packets: u64,
    groups: Vec<Group>,
    /// Bytes of our index that say which packets a conversation has.
    flow_bytes: u64,
    pub arrival: Bitmaps,
    pub flow: Bitmaps,
}

impl ValueBitmaps {
    /// Makes the sets of the fields that the index of a capture has.
    pub fn new(capture: &Capture, folder: &Folder) -> anyhow::Result<Self> {
        let scratch = folder.scratch();
        index_into(scratch.path(), capture, CodecChoice::Auto, 0)?;
        let (mut segments, failed) = Archive::open(scratch.path())?.segments()?;
        ensure!(failed.is_empty(), "{}: {failed:?}", capture.name);
        // In order of arrival, which made-up packets have in order of time.
        segments.sort_by_key(|segment| segment.note().time_min);
        let mut this = Self {
            capture: capture.name.clone(),
            packets: capture.packets,
            groups: Vec::new(),
            flow_bytes: 0,
            arrival: Bitmaps::default(),
            flow: Bitmaps::default(),
        };
        let mut places = vec![u32::MAX; usize::try_from(capture.packets)?];
        let (mut row, mut first) = (0, 0);
        for segment in &segments {
            let index = segment.index();
            for share in index.shares() {
                this.add_share(&share.name, share.bytes);
            }
            let rows = index.row_map()?.context("the index is not in order of flows")?;
            for record in rows.iter() {
                let place = places.get_mut(first + record? as usize);
                *place.context("the index has more records than its capture")? = row;
                row += 1;
            }
            first += rows.len() as usize;
        }
        ensure!(first == places.len(), "{}: {first} rows are indexed", capture.name);
        let fields: Vec<Field> =
            this.groups.iter().flat_map(|group| group.fields.clone()).collect();
        for (field, rows) in fields.iter().zip(rows_by_value(capture, &fields)?) {
            this.arrival.add(*field, &rows, None);
            this.flow.add(*field, &rows, Some(&places));
        }
        for group in &mut this.groups {
            for field in &group.fields {
                let [arrival, flow] = [&this.arrival, &this.flow]
                    .map(|sets| sets.0.get(field).map_or(0, FieldSets::bytes));
                let values = this.arrival.0.get(field).map_or(0, |field| field.values.len());
                let dictionary = values * (value_bytes(*field) + OFFSET_BYTES);
                group.values += values;
                group.bytes[1] += u64::try_from(arrival)?;
                group.bytes[2] += u64::try_from(flow)?;
                group.bytes[3] += u64::try_from(dictionary)?;
            }
        }
        Ok(this)
    }

    fn add_share(&mut self, name: &str, bytes: u64) {
        if name == SectionKind::Flows.name() {
            self.flow_bytes += bytes;
        }
        let fields: Option<Vec<Field>> = name.split(", ").map(Field::of_name).collect();
        let Some(fields) = fields else { return };
        let known = self.groups.iter().position(|group| group.name == name);
        let place = known.unwrap_or_else(|| {
            self.groups.push(Group { name: name.to_owned(), fields, values: 0, bytes: [0; 4] });
            self.groups.len() - 1
        });
        self.groups[place].bytes[0] += bytes;
    }
}

/// Bytes of a value of a field.
fn value_bytes(field: Field) -> usize {
    let spec = field.spec();
    let digit = match spec.width {
        Width::Byte => 1,
        Width::Short => 2,
    };
    spec.digits as usize * digit
}

/// The rows of each value of some fields but 0, in order of arrival.
fn rows_by_value(capture: &Capture, fields: &[Field]) -> anyhow::Result<Vec<RowsByValue>> {
    let mut all = vec![RowsByValue::new(); fields.len()];
    let mut reader = CaptureReader::open(File::open(&capture.path)?)?;
    let (mut headers, mut number) = (Headers::default(), 0);
    while let Some(record) = reader.next()? {
        decode(record.link, record.swapped, record.data, &mut headers);
        let packet = Packet::new(&record, &headers);
        for (field, rows) in fields.iter().zip(&mut all) {
            let value = field.value(&packet);
            if value != 0 {
                rows.entry(value).or_default().push(number);
            }
        }
        number += 1;
    }
    ensure!(u64::from(number) == capture.packets, "{}: {number} packets were read", capture.name);
    Ok(all)
}

/// Fills in the table of sizes.
pub fn sizes(made: &[ValueBitmaps], report: &mut Report<'_>) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "value-bitmaps",
        "Our index, and a croaring bitmap for each value: bytes a packet",
        &[
            "capture",
            "fields",
            "values",
            "tapdex",
            "croaring, by arrival",
            "croaring, by flow",
            "of these dictionary",
            "by arrival over tapdex",
            "by flow over tapdex",
        ],
    );
    let mut bars = Vec::new();
    for ValueBitmaps { capture, packets, groups, flow_bytes, .. } in made {
        let a_packet = |bytes: u64| bytes as f64 / *packets as f64;
        let mut row = |name: &str,
                       values: Option<usize>,
                       [ours, arrival, flow, dictionary]: [u64; 4]| {
            let both = [arrival, flow].map(|bytes| bytes + dictionary);
            let mut row = vec![capture.clone(), name.to_owned()];
            row.push(values.map_or("-".to_owned(), |values| values.to_string()));
            row.extend([ours, both[0], both[1], dictionary].map(|b| format!("{:.3}", a_packet(b))));
            row.extend(both.map(|bytes| match ours {
                ours if ours > 0 && bytes > 0 => digits(bytes as f64 / ours as f64),
                _ => "-".to_owned(),
            }));
            sheet.row(row);
            both
        };
        let (mut values, mut all) = (0, [0; 4]);
        for group in groups {
            row(&group.name, Some(group.values), group.bytes);
            values += group.values;
            all.iter_mut().zip(group.bytes).for_each(|(all, bytes)| *all += bytes);
        }
        row("packets of each flow", None, [*flow_bytes, 0, 0, 0]);
        all[0] += flow_bytes;
        let [arrival, flow] = row("together", Some(values), all);
        for (name, bytes) in
            [("tapdex", all[0]), ("croaring, arrival", arrival), ("croaring, flow", flow)]
        {
            bars.push(Bar {
                label: format!("{capture}, {name}"),
                value: a_packet(bytes),
                mark: None,
            });
        }
    }
    sheet.remarks.push(format!(
        "The same fields. With croaring, each value but 0 of each field has a bitmap of the \
         packets, with run containers where they are smaller, in the portable format. A sorted \
         dictionary has the values, and {OFFSET_BYTES} bytes for each that say where its bitmap \
         starts; it is part of the size in either order. Packets with the value 0 are those that \
         no other bitmap has. *By flow*, rows are in the order of our index. Where two fields \
         share a column of ours, croaring has bitmaps for each of them."
    ));
    sheet.remarks.push(
        "*Packets of each flow* is what turns our conversations into packets. What leads back to \
         the capture is left out of all: our row map and marks; croaring by flow would need a row \
         map, too."
            .to_owned(),
    );
    let plot = Plot::Bars(Bars {
        title: "All header fields, a packet".to_owned(),
        unit: "bytes a packet".to_owned(),
        mark: None,
        bars,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_combined_as_they_say() {
        let of = |values: &[(u128, &[u32])]| -> RowsByValue {
            values.iter().map(|(value, rows)| (*value, rows.to_vec())).collect()
        };
        let src = of(&[(1, &[0, 3, 5]), (2, &[1, 4]), (9, &[2])]);
        let dst = of(&[(1, &[1, 2]), (3, &[0, 3])]);
        let encap = of(&[(1, &[3]), (2, &[1])]);
        let (mut arrival, mut turned) = (Bitmaps::default(), Bitmaps::default());
        let places = [5, 4, 3, 2, 1, 0];
        let fields = [(Field::IpSrc, src), (Field::IpDst, dst), (Field::Encap, encap)];
        for (field, rows) in &fields {
            arrival.add(*field, rows, None);
            turned.add(*field, rows, Some(&places));
        }
        let values = Sets::Values;
        let plain = |sets| Sets::Without(Box::new(sets), Field::Encap, 1..=255);
        let either = Sets::Any(vec![values(Field::IpSrc, 1..=1), values(Field::IpDst, 1..=1)]);
        let both = vec![values(Field::IpSrc, 1..=2), values(Field::IpDst, 1..=9)];
        for (sets, count) in [
            (values(Field::IpSrc, 2..=9), 3),
            (values(Field::IpSrc, 3..=8), 0),
            (values(Field::PortSrc, 1..=1), 0),
            (either.clone(), 5),
            (plain(either.clone()), 3),
            (Sets::All(both.clone()), 3),
            (plain(Sets::All(both)), 1),
            (Sets::All(vec![either, values(Field::Encap, 1..=1)]), 1),
            (Sets::All(vec![]), 0),
        ] {
            assert_eq!([arrival.count(&sets), turned.count(&sets)], [count; 2], "{sets:?}");
        }
    }
}
