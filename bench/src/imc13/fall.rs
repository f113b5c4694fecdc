//! What the baseline's fall depends on: how many records there are, how many lists, how far apart
//! these are, and how many columns share the caches.

use std::time::Duration;

use tapdex_bench::builders::{self, Contestant, Product};
use tapdex_bench::online_wah::{GROUP_ROWS, OnlineWah};
use tapdex_bench::{Seconds, race};
use tapdex_engine::index::{Digits, Width};
use tapdex_report::{Bar, Bars, Line, Lines, Plot, Report, Sheet};

use super::figure5::CPU_FALL;
use super::{Args, Case, FIRST, LAST, rate};

/// Shares of the records that are built alone.
const SHARES: [usize; 5] = [16, 8, 4, 2, 1];
/// Columns that are built side by side.
const SIDE_BY_SIDE: [usize; 5] = [1, 2, 4, 8, 16];

pub fn measure(args: &Args, report: &mut Report<'_>) -> anyhow::Result<()> {
    eprintln!("online WAH: fewer records");
    records(args, report)?;
    eprintln!("online WAH: neighbours");
    locality(args, report)?;
    eprintln!("online WAH: columns side by side");
    side_by_side(args, report)
}

/// A table of the fall: two columns of what is varied, then speeds with few and with many values.
fn sheet(name: &str, title: &str, varied: [&str; 2]) -> Sheet {
    let [few, many] = [FIRST, LAST].map(Case::name);
    let mut headings = varied.to_vec();
    for values in [&few, &many] {
        headings.extend([values.as_str(), "slowest", "fastest"]);
    }
    headings.extend(["fall", "published"]);
    Sheet::new(name, title, &headings)
}

/// Columns of fewer records: the same number of lists, but shorter ones.
fn records(args: &Args, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "Online WAH: the fall by the number of records, M records/s";
    let mut sheet = sheet("fall-records", title, ["records", "memory"]);
    let mut lines = ["fresh", "reused"].map(|memory| Line {
        label: format!("memory {memory}"),
        points_only: false,
        points: vec![],
    });
    for share in SHARES {
        let records = args.records / share;
        let columns = [FIRST, LAST].map(|case| case.shorts(records, args.seed));
        let mut contestants: Vec<Contestant<'_>> = Vec::new();
        for reuse in [false, true] {
            let one = |column| builders::online_wah(Digits::Shorts(column), reuse);
            contestants.extend(columns.each_ref().map(|column| one(column)));
        }
        let mut jobs: Vec<_> = contestants.iter_mut().map(|one| &mut one.job).collect();
        let seconds = race(args.rounds, Duration::ZERO, &mut jobs);
        for ((pair, memory), line) in seconds.chunks(2).zip(["fresh", "reused"]).zip(&mut lines) {
            let fall = pair[1].median / pair[0].median;
            let mut cells = vec![records.to_string(), memory.to_owned()];
            for time in pair {
                let three = [time.median, time.max, time.min];
                cells.extend(three.map(|seconds| format!("{:.1}", rate(records, seconds))));
            }
            cells.extend([format!("{fall:.2}"), format!("{CPU_FALL:.1}")]);
            sheet.row(cells);
            line.points.push((records as f64, fall));
        }
    }
    sheet.remarks.push("The paper does not say how many records figure 5 has.".to_owned());
    let points = lines[0].points.iter().map(|point| (point.0, CPU_FALL)).collect();
    let published = Line { label: "published".to_owned(), points_only: true, points };
    let plot = Plot::Lines(Lines {
        title: "Online WAH: the fall by the number of records".to_owned(),
        x: "records".to_owned(),
        y: format!("speed at {} over that at {}", FIRST.name(), LAST.name()),
        log_x: true,
        log_y: false,
        lines: lines.into_iter().chain([published]).collect(),
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

/// The same number of values, of which only 256 occur in any 256th of the rows: as many lists, as
/// long as before, but few of them in use at a time.
fn local_values(few: &[u16]) -> Vec<u16> {
    let stretch = few.len().div_ceil(256).max(1);
    let high = |row: usize| u16::try_from(row / stretch).unwrap_or(0) << 8;
    few.iter().enumerate().map(|(row, &value)| high(row) | value & 0xFF).collect()
}

fn locality(args: &Args, report: &mut Report<'_>) -> anyhow::Result<()> {
    let few = FIRST.shorts(args.records, args.seed);
    let (local, many) = (local_values(&few), LAST.shorts(args.records, args.seed));
    let columns = [
        (FIRST.name(), &few),
        (format!("{}, {} at a time", LAST.name(), FIRST.values), &local),
        (LAST.name(), &many),
    ];
    let mut contestants: Vec<Contestant<'_>> = Vec::new();
    for (_, digits) in &columns {
        let column = Digits::Shorts(digits);
        contestants.extend([false, true].map(|reuse| builders::online_wah(column, reuse)));
    }
    let mut jobs: Vec<_> = contestants.iter_mut().map(|one| &mut one.job).collect();
    let seconds = race(args.rounds, Duration::ZERO, &mut jobs);

    let title = "Online WAH: short lists, and lists that are far apart, M records/s";
    let headings = [
        "column",
        "memory",
        "M records/s",
        "slowest",
        "fastest",
        "times slower than the first",
        "bytes a record",
    ];
    let mut sheet = Sheet::new("fall-neighbours", title, &headings);
    let mut bars = vec![];
    for (at, (one, time)) in contestants.iter().zip(&seconds).enumerate() {
        let memory = ["fresh", "reused"][at % 2];
        let median = rate(args.records, time.median);
        sheet.row(vec![
            columns[at / 2].0.clone(),
            memory.to_owned(),
            format!("{median:.1}"),
            format!("{:.1}", rate(args.records, time.max)),
            format!("{:.1}", rate(args.records, time.min)),
            format!("{:.2}", time.median / seconds[at % 2].median),
            format!("{:.2}", one.bytes as f64 / args.records as f64),
        ]);
        let place = ["few", "many, near", "many, apart"][at / 2];
        bars.push(Bar { label: format!("{place}, {memory}"), value: median, mark: None });
    }
    let share = |from: usize, to: usize| seconds[to].median / seconds[from].median;
    sheet.remarks.push(format!(
        "{} times as many lists, {} of them in use at a time: {:.2} times slower in fresh memory, \
         {:.2} in memory that is reused. All of them in use, any of them next: {:.2} and {:.2} \
         times slower than that.",
        LAST.values / FIRST.values,
        FIRST.values,
        share(0, 2),
        share(1, 3),
        share(2, 4),
        share(3, 5),
    ));
    let unit = "M records/s; few: 256 values; near: 256 of 65,536 at a time".to_owned();
    let plot = Plot::Bars(Bars { title: title.to_owned(), unit, mark: None, bars });
    Ok(report.table(&sheet, Some(&plot))?)
}

/// Builds columns side by side: a group of rows of each in turn.
fn build_in_turn(columns: &[Vec<u16>], online: &mut [OnlineWah]) {
    online.iter_mut().for_each(|one| one.begin(Width::Short));
    let groups = columns.first().map_or(0, |column| column.len().div_ceil(GROUP_ROWS));
    for group in 0..groups {
        for (column, online) in columns.iter().zip(online.iter_mut()) {
            let first = group * GROUP_ROWS;
            let digits = &column[first..column.len().min(first + GROUP_ROWS)];
            online.append(group as u32, digits);
        }
    }
    online.iter_mut().for_each(OnlineWah::end);
}

fn side_by_side(args: &Args, report: &mut Report<'_>) -> anyhow::Result<()> {
    let mut times: Vec<[Seconds; 2]> = Vec::new();
    for count in SIDE_BY_SIDE {
        let records = args.records / count;
        let mut pair = [FIRST, LAST].map(|case| {
            let column = |number| case.shorts(records, args.seed.wrapping_add(number));
            let columns: Vec<Vec<u16>> = (0..count as u64).map(column).collect();
            let mut online: Vec<OnlineWah> = columns.iter().map(|_| OnlineWah::default()).collect();
            move || -> Product {
                build_in_turn(&columns, &mut online);
                Box::new(())
            }
        });
        let [few, many] = &mut pair;
        let mut jobs: [&mut dyn FnMut() -> Product; 2] = [few, many];
        let seconds = race(args.rounds, Duration::ZERO, &mut jobs);
        times.push([seconds[0], seconds[1]]);
    }
    let title = format!(
        "Online WAH, memory reused, of columns side by side: {} records in all, M records/s",
        args.records
    );
    let mut sheet = sheet("fall-columns", &title, ["columns", "lists, at most"]);
    let of_all = |count: usize, seconds: f64| rate(args.records / count * count, seconds);
    let falls = times.iter().map(|[few, many]| many.median / few.median);
    let falls: Vec<f64> = falls.collect();
    for ((count, pair), fall) in SIDE_BY_SIDE.into_iter().zip(&times).zip(&falls) {
        let mut cells = vec![count.to_string(), (count * LAST.values).to_string()];
        for time in pair {
            let three = [time.median, time.max, time.min];
            cells.extend(three.map(|seconds| format!("{:.1}", of_all(count, seconds))));
        }
        cells.push(format!("{fall:.2}"));
        cells.push(if count == 1 { format!("{CPU_FALL:.1}") } else { "-".to_owned() });
        sheet.row(cells);
    }
    let reached = SIDE_BY_SIDE.iter().zip(&falls).find(|(_, fall)| **fall >= CPU_FALL);
    sheet.remarks.push(match reached {
        Some((count, _)) => format!("A fall of {CPU_FALL} is reached with {count} columns."),
        None => format!("A fall of {CPU_FALL} is not reached with any of these."),
    });
    let line = |label: &str, which: usize| {
        let points = SIDE_BY_SIDE.into_iter().zip(&times);
        let point = |(count, pair): (usize, &[Seconds; 2])| {
            (count as f64, of_all(count, pair[which].median))
        };
        Line { label: label.to_owned(), points_only: false, points: points.map(point).collect() }
    };
    let plot = Plot::Lines(Lines {
        title: "Online WAH, memory reused, of columns side by side".to_owned(),
        x: "columns".to_owned(),
        y: "M records/s of all together".to_owned(),
        log_x: true,
        log_y: false,
        lines: vec![line(&FIRST.name(), 0), line(&LAST.name(), 1)],
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_bench::builders::equals_wah;

    #[test]
    fn near_values_are_as_many_and_as_often() {
        let few: Vec<u16> = (0..256 * 512).map(|row: u32| (row % 256) as u16).collect();
        let local = local_values(&few);
        let mut counts = vec![0; 1 << 16];
        local.iter().for_each(|&value| counts[usize::from(value)] += 1);
        assert!(counts.iter().all(|&count| count == 2));
        assert!(local.chunks(512).all(|rows| rows.iter().all(|row| row >> 8 == rows[0] >> 8)));
    }

    #[test]
    fn columns_side_by_side_are_what_each_is_alone() {
        let case = Case { values: 300, bits: 16 };
        let columns = [1, 2, 3].map(|seed| case.shorts(1_000, seed));
        let mut online = [(); 3].map(|()| OnlineWah::default());
        // Twice: the second time in the memory of the first.
        for _ in 0..2 {
            build_in_turn(&columns, &mut online);
            for (column, online) in columns.iter().zip(&online) {
                assert!(equals_wah(online, Digits::Shorts(column)).unwrap());
            }
        }
    }
}
