//! Figure 1: the ratio by the ids of a chunk, and from which density on HiPES is the smallest.

use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes::Width;
use tapdex_bitmap::sample::Random;
use tapdex_gpu::sets::scenarios::SEED;
use tapdex_report::{Bar, Bars, Line, Lines, Plot, Report, Sheet};

use super::ratio;
use crate::imc13::cell;

/// Chunks of a set.
const CHUNKS: u32 = 32;
/// Rows of a chunk, w = 16.
const CHUNK: usize = 1 << 16;
/// Ids of a chunk that are shown.
const SHOWN: [usize; 17] = [
    1, 4, 16, 64, 256, 1_024, 2_048, 2_049, 3_072, 4_096, 8_192, 16_384, 32_768, 49_152, 61_440,
    65_000, 65_536,
];
/// Section 3.4 of the paper: ids of a chunk above which HiPES is smaller than the ids, and their
/// share of the chunk in percent.
const PUBLISHED: (usize, f64) = (2_049, 3.13);
/// What HiPES is compared with, besides the ids themselves.
const CODECS: [Codec; 3] = [Codec::Roaring, Codec::Wah, Codec::Plwah];

/// Chunks whose rows are shuffled: the first k of each are a set, and those of fewer a part of it.
struct Shuffled(Vec<Vec<u16>>);

impl Shuffled {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut chunk = |_| {
            let mut rows: Vec<u16> = (0..=u16::MAX).collect();
            for end in (2..=u32::from(u16::MAX) + 1).rev() {
                rows.swap(end as usize - 1, random.below(end) as usize);
            }
            rows
        };
        Self((0..CHUNKS).map(&mut chunk).collect())
    }

    /// Ascending ids, so many of each chunk.
    fn ids(&self, count: usize) -> Vec<u32> {
        let mut ids = Vec::with_capacity(count * self.0.len());
        for (chunk, rows) in (0_u32..).zip(&self.0) {
            let mut is_in = vec![false; CHUNK];
            rows[..count].iter().for_each(|&row| is_in[usize::from(row)] = true);
            let rows = (0_u32..).zip(is_in).filter(|(_, is_in)| *is_in);
            ids.extend(rows.map(|(row, _)| chunk << 16 | row));
        }
        ids
    }

    /// Bytes of such ids: as they are without a codec.
    fn bytes(&self, codec: Option<Codec>, count: usize) -> usize {
        let ids = self.ids(count);
        let Some(codec) = codec else { return 4 * ids.len() };
        let mut bytes = Vec::new();
        codec.encode(&ids, &mut bytes);
        bytes.len()
    }

    /// From how many ids a chunk on, and up to how many, HiPES is smaller; both found by halving,
    /// from a middle where it has to be.
    fn smaller(&self, codec: Option<Codec>) -> Option<(usize, usize)> {
        let hipes = Codec::Hipes(Width::DEFAULT);
        let is_smaller = |count| self.bytes(Some(hipes), count) < self.bytes(codec, count);
        let middle = CHUNK / 2;
        if !is_smaller(middle) {
            return None;
        }
        let from = first(1, middle, is_smaller);
        let behind = first(middle, CHUNK + 1, |count| count > CHUNK || !is_smaller(count));
        Some((from, behind - 1))
    }
}

/// The first number of a range that is what is asked for, if all above are; the last one is.
fn first(from: usize, to: usize, is: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (from, to);
    while from < to {
        let middle = from.midpoint(to);
        if is(middle) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    from
}

pub fn measure(report: &mut Report<'_>) -> anyhow::Result<()> {
    eprintln!("figure 1");
    let sets = Shuffled::new(SEED);
    figure1(&sets, report)?;
    break_even(&sets, report)
}

/// The paper's formula at w = 16.
fn formula(count: usize) -> f64 {
    4.0 * count as f64 / 8_196.0
}

fn percent(count: usize) -> f64 {
    100.0 * count as f64 / CHUNK as f64
}

fn figure1(sets: &Shuffled, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = format!(
        "Figure 1: bytes of the ids over bytes of the output, {CHUNKS} chunks of {CHUNK} rows"
    );
    let headings =
        ["ids a chunk", "% of its rows", "hipes", "roaring", "wah", "plwah", "published formula"];
    let mut sheet = Sheet::new("figure1", &title, &headings);
    let codecs: Vec<Codec> = std::iter::once(Codec::Hipes(Width::DEFAULT)).chain(CODECS).collect();
    let mut lines: Vec<Line> = codecs
        .iter()
        .map(|codec| Line { label: codec.name().to_owned(), points_only: false, points: vec![] })
        .collect();
    for count in SHOWN {
        let mut cells = vec![count.to_string(), format!("{:.3}", percent(count))];
        for (&codec, line) in codecs.iter().zip(&mut lines) {
            let ids = count * CHUNKS as usize;
            let ratio = ratio(ids, sets.bytes(Some(codec), count));
            cells.push(format!("{ratio:.3}"));
            // A full chunk is next to nothing in some, and would be far above all others.
            if count < CHUNK {
                line.points.push((count as f64, ratio));
            }
        }
        cells.push(format!("{:.3}", formula(count)));
        sheet.row(cells);
    }
    let points = SHOWN.map(|count| (count as f64, formula(count))).into();
    lines.push(Line { label: "published formula".to_owned(), points_only: true, points });
    let plot = Plot::Lines(Lines {
        title: "Figure 1: the ratio by the ids of a chunk".to_owned(),
        x: "ids of a chunk of 65,536 rows, anywhere in it".to_owned(),
        y: "ratio; above 1 it is smaller than the ids".to_owned(),
        log_x: true,
        log_y: true,
        lines,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

fn break_even(sets: &Shuffled, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "Break-even: where HiPES with w = 16 is smaller, ids anywhere in a chunk";
    let headings = [
        "smaller than",
        "from ids a chunk",
        "% of its rows",
        "up to ids a chunk",
        "% of its rows",
        "published: above",
        "published, %",
    ];
    let mut sheet = Sheet::new("break-even", title, &headings);
    let mut bars = vec![];
    let others = std::iter::once(None).chain(CODECS.map(Some));
    for codec in others {
        let name = codec.map_or("the ids, 4 bytes each", Codec::name);
        let found = sets.smaller(codec);
        let (from, to) = (found.map(|found| found.0), found.map(|found| found.1));
        let whole = |count: Option<usize>| count.map_or("-".to_owned(), |count| count.to_string());
        let published = codec.is_none().then_some(PUBLISHED);
        bars.extend(from.map(|from| Bar {
            label: name.split(',').next().unwrap_or(name).to_owned(),
            value: from as f64,
            mark: published.map(|one| one.0 as f64),
        }));
        sheet.row(vec![
            name.to_owned(),
            whole(from),
            cell(from.map(percent), 2),
            whole(to),
            cell(to.map(percent), 2),
            whole(published.map(|one| one.0)),
            cell(published.map(|one| one.1), 2),
        ]);
    }
    let plot = Plot::Bars(Bars {
        title: title.to_owned(),
        unit: "ids of a chunk of 65,536 rows from which on HiPES is smaller".to_owned(),
        mark: Some("published".to_owned()),
        bars,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_first() {
        assert_eq!(first(1, 100, |n| n >= 37), 37);
        assert_eq!(first(1, 100, |_| true), 1);
        assert_eq!(first(1, 100, |n| n >= 100), 100);
    }

    #[test]
    fn break_even_with_the_ids_is_what_the_formula_says() {
        let sets = Shuffled::new(1);
        let ids = sets.ids(2_049);
        assert!(ids.len() == 2_049 * CHUNKS as usize && ids.is_sorted_by(|a, b| a < b));
        // 8,196 bytes a chunk, as many as 2,049 ids: above that it is smaller.
        let (above, share) = PUBLISHED;
        assert_eq!(sets.smaller(None), Some((above + 1, CHUNK)));
        assert!((percent(above) - share).abs() < 0.005);
    }

    #[test]
    fn fewer_ids_are_a_part_of_more() {
        let sets = Shuffled::new(1);
        let more = sets.ids(100);
        assert!(sets.ids(99).iter().all(|id| more.binary_search(id).is_ok()));
    }
}
