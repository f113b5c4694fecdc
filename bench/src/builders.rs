//! Who builds the index of a column: each codec of ours, the papers' baseline, and the peers.

use std::any::Any;

use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes;
use tapdex_engine::index::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits};

use crate::online_wah::OnlineWah;

/// The most values at which HiPES is given its default width.
pub const HIPES_VALUES_MAX: usize = 1_024;

/// What a contestant makes anew in each call, to be dropped off the clock.
pub type Product = Box<dyn Any>;

/// A name, the size of the index, and a call that builds it.
pub struct Contestant<'a> {
    /// What the tables call it.
    pub name: String,
    /// Bytes of the bitmaps, serialized.
    pub bytes: usize,
    /// Builds the index.
    pub job: Box<dyn FnMut() -> Product + 'a>,
}

/// The codec, HiPES with its least width where a lone id would take 8 KB too often.
pub fn fitted(codec: Codec, values: usize) -> Codec {
    match (codec, hipes::Width::new(7)) {
        (Codec::Hipes(_), Some(width)) if values > HIPES_VALUES_MAX => Codec::Hipes(width),
        _ => codec,
    }
}

/// What the tables call a codec.
pub fn name(codec: Codec) -> String {
    match codec {
        Codec::Hipes(width) => format!("hipes, w = {}", width.get()),
        _ => codec.name().to_owned(),
    }
}

/// Bytes that no index of such a column exceeds.
pub fn bytes_max(codec: Codec, rows: usize, values: usize) -> usize {
    let chunks = |width: u8| rows.min(values * rows.div_ceil(1 << width));
    match codec {
        Codec::Hipes(width) => chunks(width.get()) * width.chunk_bytes(),
        // A key, a size and an offset a chunk, its ids as an array, and what heads each bitmap.
        Codec::Roaring => chunks(16) * 12 + rows * 2 + values * 8,
        // A fill and a literal for each id.
        _ => rows * 8,
    }
}

/// A codec of ours, built on so many threads into a target that is used again.
pub fn ours(
    column: Digits<'_>,
    codec: Codec,
    threads: usize,
) -> Result<Contestant<'_>, BuildError> {
    let mut builder = CpuBuilder::new(threads);
    let mut target = ColumnIndex::default();
    builder.build(column, codec, &mut target)?;
    let bytes = len_bytes(&target);
    let job = move || -> Product { Box::new(builder.build(column, codec, &mut target)) };
    Ok(Contestant { name: name(codec), bytes, job: Box::new(job) })
}

/// Bytes of all bitmaps of an index.
pub fn len_bytes(index: &ColumnIndex) -> usize {
    index.parts.iter().map(|part| part.len()).sum()
}

/// The papers' baseline: its lists of words grow from nothing, or lie in memory that is used again.
pub fn online_wah(column: Digits<'_>, reuse: bool) -> Contestant<'_> {
    let mut online = OnlineWah::default();
    online.build(column);
    let bytes = online.len_bytes();
    let job = move || -> Product {
        if reuse {
            online.build(column);
            return Box::new(());
        }
        let mut fresh = OnlineWah::default();
        fresh.build(column);
        Box::new(fresh)
    };
    let name = if reuse { "online WAH, memory reused" } else { "online WAH" };
    Contestant { name: name.to_owned(), bytes, job: Box::new(job) }
}

/// Whether the baseline built the very index that our WAH codec gives.
pub fn equals_wah(online: &OnlineWah, column: Digits<'_>) -> Result<bool, BuildError> {
    let mut index = ColumnIndex::default();
    CpuBuilder::new(1).build(column, Codec::Wah, &mut index)?;
    let (mut keys, mut offsets, mut bytes) = (vec![], vec![0], vec![]);
    for (key, words) in (0..=u16::MAX).zip(online.words()) {
        if !words.is_empty() {
            keys.push(key);
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            offsets.push(bytes.len() as u64);
        }
    }
    Ok(keys == index.keys && offsets == index.offsets && bytes == index.bitmaps())
}

/// The `roaring` crate: each row is pushed to its value's bitmap.
pub fn roaring(column: Digits<'_>) -> Contestant<'_> {
    fn push(sets: &mut [roaring::RoaringBitmap], digits: &[impl Copy + Into<usize>]) {
        for (row, &digit) in (0..).zip(digits) {
            let pushed = sets[digit.into()].try_push(row);
            debug_assert!(pushed.is_ok(), "rows ascend");
        }
    }
    let build = move || {
        let mut sets = vec![roaring::RoaringBitmap::new(); 1 << column.width().bits()];
        match column {
            Digits::Bytes(digits) => push(&mut sets, digits),
            Digits::Shorts(digits) => push(&mut sets, digits),
        }
        sets
    };
    let occurring = |set: &&roaring::RoaringBitmap| !set.is_empty();
    let bytes = build().iter().filter(occurring).map(|set| set.serialized_size()).sum();
    let job = move || -> Product { Box::new(build()) };
    Contestant { name: "roaring crate".to_owned(), bytes, job: Box::new(job) }
}

/// The `croaring` crate: the rows are sorted by value, by counting, and each value's are added at
/// once. The sorted rows lie in memory that is used again.
pub fn croaring(column: Digits<'_>) -> Contestant<'_> {
    let mut rows = Vec::new();
    let mut build = move || -> Vec<croaring::Bitmap> {
        let ends = match column {
            Digits::Bytes(digits) => sort_rows(digits, 1 << 8, &mut rows),
            Digits::Shorts(digits) => sort_rows(digits, 1 << 16, &mut rows),
        };
        let mut start = 0;
        let mut set = |&end: &usize| {
            let mut set = croaring::Bitmap::new();
            set.add_many(&rows[start..end]);
            start = end;
            set
        };
        ends.iter().map(&mut set).collect()
    };
    let occurring = |set: &&croaring::Bitmap| !set.is_empty();
    let size = |set: &croaring::Bitmap| set.get_serialized_size_in_bytes::<croaring::Portable>();
    let bytes = build().iter().filter(occurring).map(size).sum();
    let job = move || -> Product { Box::new(build()) };
    Contestant { name: "croaring crate".to_owned(), bytes, job: Box::new(job) }
}

/// Puts the rows in order of their digits, and says where each digit's rows end.
pub fn sort_rows(
    digits: &[impl Copy + Into<usize>],
    values: usize,
    rows: &mut Vec<u32>,
) -> Vec<usize> {
    let mut counts = vec![0; values];
    digits.iter().for_each(|&digit| counts[digit.into()] += 1);
    // From a digit's count to where its rows start; placing them moves that to where they end.
    let mut start = 0;
    for count in &mut counts {
        start += std::mem::replace(count, start);
    }
    rows.resize(digits.len(), 0);
    for (row, &digit) in (0..).zip(digits) {
        let place = &mut counts[digit.into()];
        rows[*place] = row;
        *place += 1;
    }
    counts
}
