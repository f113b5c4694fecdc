//! Section V.C: what the query table saves.

use tapdex_bench::tuples::{self, Order, Tuple};
use tapdex_bench::windows;
use tapdex_bitmap::codec::masc::{WINDOW_ROWS, Windowed};
use tapdex_bitmap::sample::Random;
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

/// Rows of which it is asked whether they have a value, for each value.
const ROWS_ASKED: u32 = 64;

/// What it takes to find all rows of all values of a byte.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    words: u64,
    /// Words by kind: zeros, zeros that carry ones, ones.
    kinds: [u64; 3],
    words_of_ones: u64,
    /// Flags that are tested and lengths that are added, word by word.
    tests: u64,
    sums: u64,
    /// The same with the table.
    tests_with_table: u64,
    sums_with_table: u64,
    /// Asking for single rows: words that are read without and with the table, and questions.
    row_words: u64,
    row_words_with_table: u64,
    row_questions: u64,
}

/// The bytes of the source address, as in the paper.
const BYTES: usize = 4;

pub fn measure(mut tuples: Vec<Tuple>, seed: u64, report: &mut Report<'_>) -> anyhow::Result<()> {
    tuples::sort(&mut tuples, Order::Hash);
    let mut work = Work::default();
    let mut random = Random::new(seed);
    for byte in 0..BYTES {
        of_column(&tuples::column(&tuples, byte), &mut random, &mut work)?;
    }
    let of_byte = |count: u64| format!("{:.2}", count as f64 / BYTES as f64 / 1e6);
    let a_word = |count: u64| format!("{:.2}", count as f64 / work.words as f64);

    let title = "Section V.C: finding all rows of all values of a byte, millions, calibrated";
    let headings = [
        "what",
        "words read",
        "entries of the table read",
        "flags tested",
        "a word",
        "published",
        "sums",
        "a word",
        "published",
    ];
    let mut sheet = Sheet::new("masc-query-table", title, &headings);
    // The paper's counts over its 1.43 million words.
    for (what, read, entries, tests, published_tests, sums, published_sums) in [
        ("masc, word by word", work.words, 0, work.tests, "1.50", work.sums, "1.00"),
        (
            "masc, query table",
            work.words_of_ones,
            work.words,
            work.tests_with_table,
            "1.00",
            work.sums_with_table,
            "0.49",
        ),
    ] {
        sheet.row(vec![
            what.to_owned(),
            of_byte(read),
            of_byte(entries),
            of_byte(tests),
            a_word(tests),
            published_tests.to_owned(),
            of_byte(sums),
            a_word(sums),
            published_sums.to_owned(),
        ]);
    }
    let [zeros, carried, ones] = work.kinds.map(|words| 100.0 * words as f64 / work.words as f64);
    sheet.remarks.push(format!(
        "of 100 words of MASC {zeros:.1} are zeros, {carried:.1} are zeros that carry ones, \
         {ones:.1} are ones"
    ));
    sheet.remarks.push("an entry of the table has 16 bits, a word has 32".into());
    sheet.remarks.push(
        "mean of the four bytes of the source address, windows of 3,968 rows, also empty ones"
            .into(),
    );
    let bar = |label: &str, words: u64| Bar {
        label: label.to_owned(),
        value: words as f64 / BYTES as f64,
        mark: None,
    };
    let plot = Plot::Bars(Bars {
        title: "Words read to find all rows of all values of a byte".to_owned(),
        unit: "words".to_owned(),
        mark: None,
        bars: vec![
            bar("masc, word by word", work.words),
            bar("masc, query table", work.words_of_ones),
        ],
    });
    report.table(&sheet, Some(&plot))?;

    let title = "Whether a row has a value: words read in a question, in the mean";
    let mut sheet = Sheet::new("masc-query-row", title, &["what", "words"]);
    let mean = |words: u64| format!("{:.2}", words as f64 / work.row_questions as f64);
    sheet.row(vec!["from the start of the window".to_owned(), mean(work.row_words)]);
    sheet.row(vec!["query table".to_owned(), mean(work.row_words_with_table)]);
    Ok(report.table(&sheet, None)?)
}

fn of_column(column: &[u8], random: &mut Random, work: &mut Work) -> anyhow::Result<()> {
    let mut ids = vec![Vec::new(); 256];
    for (row, &value) in (0_u32..).zip(column) {
        ids[usize::from(value)].push(row);
    }
    let rows = u32::try_from(column.len())?;
    let mut target = Vec::new();
    for ids in ids.iter().filter(|ids| !ids.is_empty()) {
        target.clear();
        Windowed::encode(ids, &mut target);
        let set = Windowed::open(&target, rows)?;
        count_words(&target, work);
        let mut found = 0;
        let touched = set.range(0..rows, |first, last| found += (last - first) as usize + 1);
        anyhow::ensure!(found == ids.len(), "the query table finds {found} of {} rows", ids.len());
        work.words_of_ones += touched.read as u64;
        single_rows(&set, &target, rows, random, work);
    }
    Ok(())
}

/// Counts what reading all words takes, and what it takes when the table says where each begins and
/// which hold a one.
fn count_words(encoded: &[u8], work: &mut Work) {
    for word in windows::words(encoded) {
        work.words += 1;
        // A tag for each word, by which a word without ones is passed over.
        work.tests_with_table += 1;
        // Its first flag says ones; else its second says whether it carries some.
        let (kind, tests, sums, sums_with_table) = match word >> 30 {
            0b11 => (2, 1, 1, 1),
            0b01 => (1, 2, 2, 2),
            _ => (0, 2, 1, 0),
        };
        work.kinds[kind] += 1;
        work.tests += tests;
        work.sums += sums;
        work.sums_with_table += sums_with_table;
    }
}

/// Asks for some rows. Without the table, the words of the row's window are read from its first.
fn single_rows(
    set: &Windowed<'_>,
    encoded: &[u8],
    rows: u32,
    random: &mut Random,
    work: &mut Work,
) {
    let table = set.table();
    let words = encoded.len() / 4;
    // A window's first word begins at its first row, and no other does.
    let starts: Vec<usize> = (0..words).filter(|&at| table[at] & 0xFFF == 0).collect();
    for _ in 0..ROWS_ASKED {
        let row = random.below(rows);
        work.row_questions += 1;
        work.row_words_with_table += set.range(row..row + 1, |_, _| {}).read as u64;
        let window = (row / WINDOW_ROWS) as usize;
        // Behind the last window that has words there is nothing to read.
        let Some(&start) = starts.get(window) else { continue };
        let end = starts.get(window + 1).copied().unwrap_or(words);
        let place = place_of(row % WINDOW_ROWS);
        let before = table[start..end].iter().filter(|entry| **entry & 0xFFF <= place).count();
        work.row_words += before as u64;
    }
}

/// How the table writes a row of a window: groups above, rows below.
fn place_of(row: u32) -> u16 {
    u16::try_from(((row / 31) << 5) | (row % 31)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_word_has_its_work() {
        // Ones from the start; zeros that carry ones; zeros to the end of the window.
        let ids: Vec<u32> = (0..40).chain(100..103).chain([WINDOW_ROWS]).collect();
        let mut encoded = vec![];
        Windowed::encode(&ids, &mut encoded);
        let mut work = Work::default();
        count_words(&encoded, &mut work);
        // The one in the next window is ones again.
        assert_eq!((work.words, work.kinds), (4, [1, 1, 2]));
        assert_eq!((work.tests, work.sums), (6, 5));
        assert_eq!((work.tests_with_table, work.sums_with_table), (4, 4));
    }

    #[test]
    fn the_table_passes_over_words_without_ones() {
        let column: Vec<u8> = (0..50_000_u32).map(|row| (row / 700) as u8 % 5).collect();
        let mut work = Work::default();
        of_column(&column, &mut Random::new(1), &mut work).unwrap();
        assert!(work.words_of_ones < work.words, "{work:?}");
        assert!(work.tests_with_table == work.words && work.tests > work.words, "{work:?}");
        assert!(work.sums_with_table < work.sums, "{work:?}");
        assert!(work.row_words_with_table < work.row_words, "{work:?}");
    }
}
