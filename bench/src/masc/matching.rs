//! Figures 22 to 33: the size of a value's bitmaps over the number of rows that have it.

use tapdex_bench::tuples::{self, NAMES, Order, Tuple};
use tapdex_bench::windows::{self, Zeros, encode, for_each_bitmap};
use tapdex_report::{Line, Lines, Plot, Report, Sheet};

use super::sizes::THREE;

/// Values of about the same number of rows that are one point.
const GROUPS: usize = 16;

/// A value of a byte: the rows that have it, and the bytes of its bitmaps by codec.
#[derive(Debug, Clone, Copy, Default)]
struct Value {
    rows: u64,
    bytes: [u64; 3],
}

pub fn measure(mut tuples: Vec<Tuple>, report: &mut Report<'_>) -> anyhow::Result<()> {
    tuples::sort(&mut tuples, Order::Hash);
    let title = "Figures 22 to 33: values for which a codec is the smallest, made up";
    let headings = [
        "byte",
        "values",
        "plwah smallest",
        "compax2 smallest",
        "masc smallest",
        "plwah below compax2, up to rows",
        "masc, bytes a row",
        "plwah",
        "compax2",
    ];
    let mut summary = Sheet::new("masc-matching", title, &headings);
    for (byte, name) in NAMES.iter().enumerate().take(12) {
        let values = values(&tuples::column(&tuples, byte));
        figure(22 + byte, name, &values, report)?;
        summary.row(line(name, &values));
    }
    Ok(report.table(&summary, None)?)
}

/// Every value that occurs, those with few rows first.
fn values(column: &[u8]) -> Vec<Value> {
    let (mut values, mut target) = (vec![Value::default(); 256], Vec::new());
    for_each_bitmap(column, windows::ROWS, |value, runs, rows| {
        let value = &mut values[usize::from(value)];
        value.rows += runs.iter().map(|run| u64::from(run.1 - run.0) + 1).sum::<u64>();
        for (codec, bytes) in THREE.into_iter().zip(&mut value.bytes) {
            *bytes += encode(codec, runs, rows, Zeros::Apart, &mut target) as u64;
        }
    });
    values.retain(|value| value.rows > 0);
    values.sort_by_key(|value| value.rows);
    values
}

/// How often each is the smallest, where the first two cross, and the slope of each.
fn line(name: &str, values: &[Value]) -> Vec<String> {
    let smallest = |at: usize| {
        values.iter().filter(|value| value.bytes.iter().min() == Some(&value.bytes[at])).count()
    };
    // The number of rows below which PLWAH is mostly smaller: where most values are told right.
    let below = |value: &Value| value.bytes[0] < value.bytes[1];
    let told = |cut: usize| {
        let (first, rest) = values.split_at(cut);
        first.iter().filter(|value| below(value)).count()
            + rest.iter().filter(|value| !below(value)).count()
    };
    let cut = (0..=values.len()).max_by_key(|&cut| (told(cut), cut)).unwrap_or(0);
    let cross = match cut {
        0 => "never".to_owned(),
        cut if cut == values.len() => "always".to_owned(),
        cut => values[cut].rows.to_string(),
    };
    let slope = |at: usize| {
        let rows: f64 = values.iter().map(|value| value.rows as f64).sum();
        values.iter().map(|value| value.bytes[at] as f64).sum::<f64>() / rows
    };
    let mut cells = vec![name.to_owned(), values.len().to_string()];
    cells.extend([0, 1, 2].map(|at| smallest(at).to_string()));
    cells.push(cross);
    cells.extend([2, 0, 1].map(|at| format!("{:.3}", slope(at))));
    cells
}

fn figure(
    number: usize,
    name: &str,
    values: &[Value],
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let title = format!("Figure {number}: bytes of a value's bitmaps, {name}, made up");
    let headings = ["matching rows, mean", "values", "plwah", "compax2", "masc"];
    let mut sheet = Sheet::new(&format!("masc-figure{number}"), &title, &headings);
    let mut points: [Vec<(f64, f64)>; 3] = Default::default();
    for group in values.chunks(values.len().div_ceil(GROUPS).max(1)) {
        let mean = |of: &dyn Fn(&Value) -> u64| {
            group.iter().map(|value| of(value) as f64).sum::<f64>() / group.len() as f64
        };
        let rows = mean(&|value| value.rows);
        let mut cells = vec![format!("{rows:.0}"), group.len().to_string()];
        for (at, points) in points.iter_mut().enumerate() {
            let bytes = mean(&|value| value.bytes[at]);
            cells.push(format!("{bytes:.0}"));
            points.push((rows, bytes));
        }
        sheet.row(cells);
    }
    sheet.remarks.push("the paper has a plot without numbers".to_owned());
    let lines = THREE.iter().zip(points).map(|(codec, points)| Line {
        label: codec.name().to_owned(),
        points_only: false,
        points,
    });
    let plot = Plot::Lines(Lines {
        title,
        x: "rows that have the value".to_owned(),
        y: "bytes".to_owned(),
        log_x: true,
        log_y: true,
        lines: lines.collect(),
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_are_where_most_values_are_told_right() {
        let value = |rows, plwah, compax| Value { rows, bytes: [plwah, compax, 9] };
        let values = [value(1, 10, 20), value(5, 10, 20), value(9, 30, 20), value(12, 40, 20)];
        let cells = line("a", &values);
        assert_eq!(cells[1..6], ["4", "0", "0", "4", "9"]);
        assert_eq!(line("a", &values[..2])[5], "always");
        assert_eq!(line("a", &values[2..])[5], "never");
    }
}
