//! Segments sorted and indexed on the device are those of the CPU, byte for byte.
//!
//! Runs on the kernels compiled for this machine's CPU, or with `TAPDEX_DEVICE=cuda` on a GPU,
//! where the segments are larger unless `TAPDEX_PARITY=small`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "numbers that fit, or bits of random ones")]

use std::sync::Arc;

use tapdex_bitmap::sample::Random;
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::IndexError;
use tapdex_engine::archive::device::{
    KEY_WORDS, SegmentColumn, SegmentDevice, SegmentFailed, SegmentKeys, SegmentOrder,
};
use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits, RunBuilder, Width};
use tapdex_gpu::device::Device;
use tapdex_gpu::flow::{SegmentIndexer, measure_segment};
use tapdex_gpu::host::HostDevice;
use tapdex_gpu::testing::{is_large, on_gpu};

fn device(seed: u64) -> Arc<dyn Device> {
    tapdex_gpu::testing::device(seed).unwrap()
}

fn below(random: &mut Random, end: usize) -> usize {
    (random.number() % end as u64) as usize
}

struct Segment {
    name: String,
    words: [Vec<u64>; KEY_WORDS],
    flow_of: Vec<u32>,
    flags: Vec<u8>,
    windows: Vec<u16>,
    classes: Vec<u8>,
}

impl Segment {
    /// A segment of so many records, with the flows that `key` gives; none is there twice.
    fn new(
        name: &str,
        rows: usize,
        flows: usize,
        mut key: impl FnMut(&mut Random, u64) -> [u64; KEY_WORDS],
    ) -> Self {
        let mut random = Random::new(rows as u64 ^ (flows as u64) << 32);
        let mut keys: Vec<_> = (0..flows as u64).map(|flow| key(&mut random, flow)).collect();
        keys.sort_unstable();
        keys.dedup();
        // Not in order, which would be sorted already.
        for at in (1..keys.len()).rev() {
            keys.swap(at, below(&mut random, at + 1));
        }
        let flows = keys.len();
        // Each flow once, and then some more often than others, all mixed up.
        let mut flow_of: Vec<u32> = (0..flows as u32).collect();
        while flow_of.len() < rows {
            let end = 1 + below(&mut random, flows);
            flow_of.push(below(&mut random, end) as u32);
        }
        for at in (1..flow_of.len()).rev() {
            flow_of.swap(at, below(&mut random, at + 1));
        }
        Self {
            name: format!("{name}, {rows} records, {flows} flows"),
            words: std::array::from_fn(|word| keys.iter().map(|key| key[word]).collect()),
            flags: flow_of.iter().map(|_| random.number() as u8 & 0x1B).collect(),
            classes: flow_of
                .iter()
                .map(|&flow| (flow % 7) as u8 + below(&mut random, 2) as u8)
                .collect(),
            windows: flow_of.iter().map(|_| random.number() as u16 & 0x0F83).collect(),
            flow_of,
        }
    }

    fn keys(&self) -> SegmentKeys<'_> {
        SegmentKeys {
            words: std::array::from_fn(|word| &self.words[word][..]),
            flow_of: &self.flow_of,
            own: vec![
                Digits::Bytes(&self.flags),
                Digits::Shorts(&self.windows),
                Digits::Bytes(&[]),
                Digits::Bytes(&self.classes),
            ],
        }
    }

    /// The order by sorts that everybody knows.
    fn order(&self) -> SegmentOrder {
        let key = |flow: u32| self.words.each_ref().map(|words| words[flow as usize]);
        let mut flows: Vec<u32> = (0..self.words[0].len() as u32).collect();
        flows.sort_by_key(|&flow| key(flow));
        let mut ranks = vec![0; flows.len()];
        (0..).zip(&flows).for_each(|(rank, &flow)| ranks[flow as usize] = rank);
        let rank = |record: u32| -> u32 { ranks[self.flow_of[record as usize] as usize] };
        let mut records: Vec<u32> = (0..self.flow_of.len() as u32).collect();
        records.sort_by_key(|&record| rank(record));
        let start = |rank_of: u32| records.partition_point(|&record| rank(record) < rank_of) as u32;
        let starts = (0..flows.len() as u32).map(start).collect();
        SegmentOrder { flows, starts, records }
    }

    /// The index of a column by the CPU.
    fn column(&self, order: &SegmentOrder, column: SegmentColumn<'_>, codec: Codec) -> ColumnIndex {
        let mut index = ColumnIndex::default();
        let rows = self.flow_of.len() as u32;
        let mut build = |digits: &[u16], starts: &[u32]| {
            RunBuilder::new().build(digits, starts, rows, codec, &mut index).unwrap();
        };
        let records = || order.records.iter().map(|&record| record as usize);
        match column {
            SegmentColumn::Own(list) => match self.keys().own[list] {
                Digits::Bytes(of) => {
                    let digits: Vec<u8> = records().map(|record| of[record]).collect();
                    CpuBuilder::new(1).build(Digits::Bytes(&digits), codec, &mut index).unwrap();
                }
                Digits::Shorts(of) => {
                    let digits: Vec<u16> = records().map(|record| of[record]).collect();
                    CpuBuilder::new(1).build(Digits::Shorts(&digits), codec, &mut index).unwrap();
                }
            },
            SegmentColumn::Runs(digits, starts) => build(digits, starts),
            SegmentColumn::Entries(digits) => {
                CpuBuilder::new(1).build(Digits::Shorts(digits), codec, &mut index).unwrap();
            }
            SegmentColumn::Key { word, shift, width } => {
                let mask = if width == Width::Byte { 0xFF } else { 0xFFFF };
                let words = order.flows.iter().map(|&flow| self.words[word][flow as usize]);
                let digits: Vec<u16> = words.map(|word| (word >> shift & mask) as u16).collect();
                build(&digits, &order.starts);
            }
        }
        index
    }
}

/// Five-tuples of few networks.
fn tuple(random: &mut Random, _: u64) -> [u64; KEY_WORDS] {
    let host = |random: &mut Random| {
        let bits = random.number();
        [0x0A00_0000, 0x0A01_0000, 0xC0A8_0100][(bits >> 60) as usize % 3] | bits & 0x3F
    };
    let (source, target) = (host(random), host(random));
    let bits = random.number();
    let protocol = if bits & 1 == 0 { 6 } else { 17 };
    let ports = (bits >> 48) << 16 | [53, 80, 443][(bits >> 8) as usize % 3];
    [
        0x0800 << 16 | protocol,
        source << 32 | target,
        ports,
        (0x0200_0000_0000 | bits >> 40 & 1) << 16,
        0x0200_0000_0001 << 16,
        4 << 56,
    ]
}

fn segments() -> Vec<Segment> {
    let mut all = vec![
        Segment::new("none", 0, 0, tuple),
        Segment::new("one record", 1, 1, tuple),
        Segment::new("one flow", 700, 1, tuple),
        Segment::new("one record each", 300, 300, tuple),
        Segment::new("two flows", 40, 2, |_, flow| [5, 5, 5, 5, 5, flow << 63 | 5]),
        Segment::new("five-tuples", 2_000, 300, tuple),
        Segment::new("all bits", 600, 400, |random, _| std::array::from_fn(|_| random.number())),
        Segment::new("one bit each", 800, 64 * KEY_WORDS, |_, flow| {
            std::array::from_fn(|word| u64::from(flow / 64 == word as u64) << (flow % 64))
        }),
        Segment::new("all but one word the same", 900, 256, |_, flow| {
            [1, 2, 3, 4, flow * 0x0101_0101_0101_0101, 6]
        }),
        Segment::new("words that disagree", 1_000, 257, |_, flow| {
            [flow >> 6, !flow, flow << 40, flow, flow << 9 ^ 0xFFFF, !0]
        }),
    ];
    // The ends of tiles, of records and of flows.
    for edge in [4_095, 4_096, 4_097, 8_193] {
        all.push(Segment::new("edge", edge, 65, |_, flow| [0, 0, flow << 20, 0, 0, 0]));
    }
    all.push(Segment::new("many flows", 13_000, 4_200, |_, flow| [7, 0, 0, !flow, 0, 0]));
    if is_large() {
        all.push(Segment::new("large", 1 << 22, 1 << 20, tuple));
        all.push(Segment::new("large, random", 3_000_000, 900_000, |random, _| {
            std::array::from_fn(|_| random.number() & random.number())
        }));
        all.push(Segment::new("large, one flow", 1 << 22, 1, tuple));
    }
    all
}

/// Columns of every kind; the runs are cut where nothing changes, too.
fn columns<'r>(runs: &'r (Vec<u16>, Vec<u32>)) -> Vec<SegmentColumn<'r>> {
    let key = |word, shift, width| SegmentColumn::Key { word, shift, width };
    let mut all = vec![
        key(0, 0, Width::Byte),
        key(1, 32, Width::Byte),
        key(1, 0, Width::Short),
        SegmentColumn::Own(0),
        key(2, 16, Width::Short),
        key(2, 17, Width::Byte),
        SegmentColumn::Own(3),
        SegmentColumn::Own(1),
        key(3, 0, Width::Short),
        key(4, 60, Width::Short),
        key(5, 56, Width::Byte),
        key(5, 63, Width::Byte),
    ];
    all.insert(4, SegmentColumn::Runs(&runs.0, &runs.1));
    // Fewer entries than the segment has rows.
    if !runs.0.is_empty() {
        all.insert(7, SegmentColumn::Entries(&runs.0));
    }
    all
}

fn runs_of(rows: usize) -> (Vec<u16>, Vec<u32>) {
    let starts = (0..rows as u32).step_by(7);
    (starts.clone().map(|start| (start / 21 % 300) as u16).collect(), starts.collect())
}

/// Builds the columns and compares them; returns how many there were.
fn check(indexer: &mut SegmentIndexer, segment: &Segment, codecs: &[Codec]) -> usize {
    let order = indexer.sort(&segment.keys()).unwrap();
    let expected = segment.order();
    assert!(order.flows == expected.flows, "{}: flows", segment.name);
    assert!(order.starts == expected.starts, "{}: starts", segment.name);
    assert!(order.records == expected.records, "{}: records", segment.name);
    let runs = runs_of(segment.flow_of.len());
    let all: Vec<_> = codecs
        .iter()
        .flat_map(|&codec| columns(&runs).into_iter().map(move |column| (column, codec)))
        .collect();
    compare(indexer, segment, &expected, &all).unwrap();
    all.len()
}

/// Builds columns, and compares as many as are handed over.
fn compare(
    indexer: &mut SegmentIndexer,
    segment: &Segment,
    order: &SegmentOrder,
    all: &[(SegmentColumn<'_>, Codec)],
) -> Result<(), SegmentFailed> {
    let mut next = all.iter();
    let result = indexer.columns(all, &mut |index| {
        let &(column, codec) = next.next().unwrap();
        let expected = segment.column(order, column, codec);
        let what = match column {
            SegmentColumn::Runs(..) => "runs".to_owned(),
            SegmentColumn::Entries(..) => "entries".to_owned(),
            column => format!("{column:?}"),
        };
        assert!(*index == expected, "{}: {what}, {codec}", segment.name);
        Ok(())
    });
    assert_eq!(result.is_ok(), next.len() == 0, "{}", segment.name);
    result
}

#[test]
fn segments_of_every_kind() {
    for seed in if on_gpu() { 1..2 } else { 1..4 } {
        let mut indexer = SegmentIndexer::new(device(seed));
        let mut compared = 0;
        for segment in segments() {
            compared += check(&mut indexer, &segment, &[Codec::Roaring]);
        }
        println!("seed {seed}: {compared} columns, all equal");
    }
}

#[test]
fn every_codec() {
    let mut indexer = SegmentIndexer::new(device(5));
    let rows = if is_large() { 1 << 17 } else { 2_500 };
    let codecs: Vec<_> = ALL_CODECS.into_iter().collect();
    let compared =
        check(&mut indexer, &Segment::new("five-tuples", rows, rows / 9, tuple), &codecs);
    println!("{compared} columns in {} codecs, all equal", codecs.len());
}

fn io_error() -> IndexError {
    let source = std::io::Error::other("full");
    IndexError::Io { operation: "write", path: "index".into(), source }
}

#[test]
fn who_takes_the_columns_may_fail() {
    let mut indexer = SegmentIndexer::new(device(1));
    let segment = Segment::new("five-tuples", 800, 90, tuple);
    let order = indexer.sort(&segment.keys()).unwrap();
    let runs = runs_of(800);
    let all: Vec<_> = columns(&runs).into_iter().map(|column| (column, Codec::Wah)).collect();
    for stop in [0, 3, all.len() - 1] {
        let mut taken = 0;
        let result = indexer.columns(&all, &mut |_| {
            taken += 1;
            if taken > stop { Err(io_error()) } else { Ok(()) }
        });
        assert!(matches!(result, Err(SegmentFailed::Index(IndexError::Io { .. }))), "{stop}");
        assert_eq!(taken, stop + 1);
    }
    // The segment is still there.
    compare(&mut indexer, &segment, &order, &all).unwrap();
}

fn is_device_failure<T>(result: Result<T, SegmentFailed>) -> bool {
    matches!(result, Err(SegmentFailed::Device(why)) if !why.to_string().is_empty())
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let mut indexer = SegmentIndexer::new(device(1));
    let good = Segment::new("five-tuples", 500, 60, tuple);
    let keys = good.keys();
    let flags: [(SegmentColumn<'_>, Codec); 1] = [(SegmentColumn::Own(0), Codec::Wah)];
    assert!(is_device_failure(indexer.columns(&flags, &mut |_| Ok(()))), "nothing is sorted");
    let (mut unknown, mut missing) = (good.flow_of.clone(), good.flow_of.clone());
    unknown[77] = 60;
    missing.iter_mut().filter(|flow| **flow == 9).for_each(|flow| *flow = 10);
    let mut short = keys.words;
    short[3] = &short[3][1..];
    let none: [&[u64]; KEY_WORDS] = [&[]; KEY_WORDS];
    for bad in [
        SegmentKeys { flow_of: &unknown, ..keys.clone() },
        SegmentKeys { flow_of: &missing, ..keys.clone() },
        SegmentKeys { flow_of: &keys.flow_of[..59], ..keys.clone() },
        SegmentKeys { words: short, ..keys.clone() },
        SegmentKeys { words: none, ..keys.clone() },
        SegmentKeys { flow_of: &[], own: Vec::new(), ..keys.clone() },
        SegmentKeys { own: vec![Digits::Bytes(&good.flags[1..])], ..keys.clone() },
        SegmentKeys { own: vec![Digits::Shorts(&good.windows[1..])], ..keys.clone() },
    ] {
        assert!(is_device_failure(indexer.sort(&bad)));
        assert!(is_device_failure(indexer.columns(&flags, &mut |_| Ok(()))));
    }
    check(&mut indexer, &good, &[Codec::Wah]);
    let key = |word, shift| SegmentColumn::Key { word, shift, width: Width::Byte };
    for bad in [
        key(6, 0),
        key(0, 64),
        SegmentColumn::Own(2),
        SegmentColumn::Own(4),
        SegmentColumn::Runs(&[1, 2], &[0]),
        SegmentColumn::Runs(&[1, 2], &[0, 500]),
        SegmentColumn::Runs(&[1, 2], &[1, 2]),
        SegmentColumn::Runs(&[1, 2, 3], &[0, 5, 5]),
        SegmentColumn::Runs(&[], &[]),
        SegmentColumn::Entries(&[]),
    ] {
        let all = [(SegmentColumn::Own(0), Codec::Wah), (bad, Codec::Wah)];
        assert!(is_device_failure(indexer.columns(&all, &mut |_| Ok(()))), "{bad:?}");
    }
    check(&mut indexer, &good, &[Codec::Wah]);
}

#[test]
fn a_lost_device_is_told() {
    if on_gpu() {
        return;
    }
    let segment = Segment::new("five-tuples", 400, 50, tuple);
    let order = segment.order();
    let runs = runs_of(400);
    let all: Vec<_> = columns(&runs).into_iter().map(|column| (column, Codec::Plwah)).collect();
    let host = HostDevice::new(1).unwrap();
    let mut indexer = SegmentIndexer::new(Arc::clone(&host) as Arc<dyn Device>);
    indexer.sort(&segment.keys()).unwrap();
    let sorting = host.launches();
    indexer.columns(&all, &mut |_| Ok(())).unwrap();
    let launches = host.launches();
    assert!(sorting > 20 && launches > sorting + 50);
    for at in (1..=launches).step_by(3).chain([sorting, launches]) {
        let host = HostDevice::new(1).unwrap();
        host.lose_at(at);
        let mut indexer = SegmentIndexer::new(Arc::clone(&host) as Arc<dyn Device>);
        let sorted = indexer.sort(&segment.keys());
        assert_eq!(is_device_failure(sorted), at <= sorting, "launch {at}");
        // What is handed over before it is lost is right.
        assert!(is_device_failure(indexer.columns(&all, &mut |_| Ok(()))), "launch {at}");
        assert_eq!((host.memory_used(), host.memory_pinned()), (0, 0), "launch {at}");
        assert!(is_device_failure(indexer.sort(&segment.keys())), "launch {at}");
    }
    let host = HostDevice::new(1).unwrap();
    let mut indexer = SegmentIndexer::new(Arc::clone(&host) as Arc<dyn Device>);
    indexer.sort(&segment.keys()).unwrap();
    host.lose_at((launches - sorting) / 2);
    assert!(is_device_failure(compare(&mut indexer, &segment, &order, &all)));
}

#[test]
fn memory_that_runs_out_is_told_or_done_without() {
    if on_gpu() {
        return;
    }
    let segment = Segment::new("five-tuples", 9_000, 700, tuple);
    let order = segment.order();
    let runs = runs_of(9_000);
    // Entries take so much memory for themselves that sorting would never fail.
    let is_of_rows = |column: &SegmentColumn<'_>| !matches!(column, SegmentColumn::Entries(_));
    let of_rows = columns(&runs).into_iter().filter(is_of_rows);
    let all: Vec<_> = of_rows.map(|column| (column, Codec::Wah)).collect();
    let host = HostDevice::new(1).unwrap();
    let mut indexer = SegmentIndexer::new(Arc::clone(&host) as Arc<dyn Device>);
    indexer.sort(&segment.keys()).unwrap();
    let sorted = host.memory_used();
    indexer.columns(&all, &mut |_| Ok(())).unwrap();
    let built = host.memory_used();
    let (mut sorts, mut builds) = (0, 0);
    const LIMITS: usize = 16;
    for limit in (1..LIMITS).map(|part| built * part / LIMITS) {
        // As little as that from the start, or when the columns of another are still there.
        for fresh in [true, false] {
            let host = HostDevice::new(1).unwrap();
            let mut indexer = SegmentIndexer::new(Arc::clone(&host) as Arc<dyn Device>);
            if !fresh {
                check(&mut indexer, &segment, &[]);
                compare(&mut indexer, &segment, &order, &all[..5]).unwrap();
            }
            host.fail_alloc_above(limit);
            let is_sorted = !is_device_failure(indexer.sort(&segment.keys()));
            assert!(is_sorted || limit < sorted || !fresh, "{limit} of {sorted}");
            assert!(!is_sorted || limit >= sorted || !fresh, "{limit} of {sorted}");
            let is_built = compare(&mut indexer, &segment, &order, &all).is_ok();
            sorts += usize::from(is_sorted);
            builds += usize::from(is_built);
            if !is_built {
                assert_eq!((host.memory_used(), host.memory_pinned()), (0, 0), "{limit}");
            }
            host.fail_alloc_above(built);
            check(&mut indexer, &segment, &[Codec::Wah]);
        }
    }
    println!("{sorts} sorts and {builds} builds with too little memory");
    assert!(builds > 4 && sorts > builds && sorts < 2 * (LIMITS - 1), "{sorts}, {builds}");
}

#[test]
fn a_made_up_segment_is_measured() {
    let (rows, runs) = if is_large() { (1 << 22, 10) } else { (3_000, 2) };
    let measured = measure_segment(&device(1), rows, rows / 10, runs, 7).unwrap();
    println!("{measured:?}, {:?} cores", measured.cores());
    assert_eq!((measured.rows, measured.flows, measured.columns), (rows, rows / 10, 15));
    assert!(measured.bytes_out > 0 && measured.sort > 0.0 && measured.build > 0.0);
    assert!(measured.seconds >= runs as f64 / 2.0 * (measured.sort + measured.build));
}
