//! Figure 6: where the time goes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use tapdex_bench::builders::{self, Product};
use tapdex_bench::{Seconds, race};
use tapdex_bitmap::Codec;
use tapdex_engine::index::Digits;
use tapdex_gpu::device::Device;
use tapdex_gpu::measure::peer;
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use super::{Args, LAST, VALUES_MAX, gpu};

/// The codecs of the figure.
const CODECS: [Codec; 2] = [Codec::Wah, Codec::Plwah];
/// Values of a bucket, as our builder makes them of a column of 16 bits.
const BUCKET: usize = 256;

pub fn measure(
    args: &Args,
    device: Option<&Arc<dyn Device>>,
    theirs: &[peer::Line],
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    eprintln!("figure 6");
    let column = LAST.shorts(args.records, args.seed);
    on_cpu(args, &column, report)?;
    on_gpu(args, &column, device, report)?;
    in_thrust(args, theirs, report)
}

type Job<'a> = Box<dyn FnMut() -> Product + 'a>;

/// Rows sorted by value, and where each value's end.
struct Sorted {
    rows: Vec<u32>,
    ends: Vec<usize>,
}

impl Sorted {
    fn new(digits: &[u16]) -> Self {
        let mut rows = Vec::new();
        let ends = builders::sort_rows(digits, VALUES_MAX, &mut rows);
        Self { rows, ends }
    }

    /// Reads the rows of a bucket after the other, and encodes them if there is a codec: what was
    /// just read is in the cache, as it is when the builder has sorted it.
    fn job(&self, codec: Option<Codec>) -> Job<'_> {
        let mut target = Vec::new();
        Box::new(move || {
            target.clear();
            let mut first = 0;
            for ends in self.ends.chunks(BUCKET) {
                let end = ends.last().copied().unwrap_or(first);
                black_box(self.rows[first..end].iter().fold(0_u32, |sum, row| sum ^ row));
                if let Some(codec) = codec {
                    encode(codec, &self.rows, first, ends, &mut target);
                }
                first = end;
            }
            Box::new(())
        })
    }

    /// Encodes from wherever the rows are.
    fn job_cold(&self, codec: Codec) -> Job<'_> {
        let mut target = Vec::new();
        Box::new(move || {
            target.clear();
            encode(codec, &self.rows, 0, &self.ends, &mut target);
            Box::new(())
        })
    }
}

/// Encodes the rows of some values, the first of which start at `start`.
fn encode(codec: Codec, rows: &[u32], mut start: usize, ends: &[usize], target: &mut Vec<u8>) {
    for &end in ends {
        if start < end {
            codec.encode(&rows[start..end], target);
        }
        start = end;
    }
}

/// The times that the steps of the CPU are worked out from.
struct Times {
    /// The whole, by codec.
    whole: [Seconds; 2],
    /// Encoding rows that were just read, and reading them only.
    encode: [Seconds; 2],
    read: Seconds,
    /// A column of the high bytes in Roaring, and encoding it.
    high: Seconds,
    high_encode: Seconds,
}

/// Milliseconds of the steps of one codec.
struct Steps {
    part: f64,
    sort: f64,
    encode: f64,
}

impl Times {
    fn measure(args: &Args, column: &[u16]) -> anyhow::Result<Self> {
        let high: Vec<u16> = column.iter().map(|digit| digit >> 8).collect();
        let (sorted, sorted_high) = (Sorted::new(column), Sorted::new(&high));
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for codec in CODECS {
            jobs.push(builders::ours(Digits::Shorts(column), codec, 1)?.job);
        }
        jobs.extend(CODECS.map(|codec| sorted.job(Some(codec))));
        jobs.push(sorted.job(None));
        jobs.push(builders::ours(Digits::Shorts(&high), Codec::Roaring, 1)?.job);
        jobs.push(sorted_high.job_cold(Codec::Roaring));
        let times = race(args.rounds, Duration::ZERO, &mut jobs);
        Ok(Self {
            whole: [times[0], times[1]],
            encode: [times[2], times[3]],
            read: times[4],
            high: times[5],
            high_encode: times[6],
        })
    }

    fn steps(&self, codec: usize) -> Steps {
        let part = self.high.median - self.high_encode.median;
        let encode = self.encode[codec].median - self.read.median;
        let sort = self.whole[codec].median - part - encode;
        Steps { part: 1e3 * part, sort: 1e3 * sort, encode: 1e3 * encode }
    }
}

fn on_cpu(args: &Args, column: &[u16], report: &mut Report<'_>) -> anyhow::Result<()> {
    let times = Times::measure(args, column)?;
    let title =
        format!("Figure 6 on one core: milliseconds, {} records, 65536 values", column.len());
    let headings = [
        "codec",
        "part the rows",
        "sort the buckets",
        "encode and write",
        "the whole",
        "fastest",
        "slowest",
        "published",
    ];
    let mut sheet = Sheet::new("figure6-cpu", &title, &headings);
    let mut bars = vec![];
    for (at, codec) in CODECS.into_iter().enumerate() {
        let Steps { part, sort, encode } = times.steps(at);
        let whole = times.whole[at];
        let mut cells = vec![codec.name().to_owned()];
        let all = [part, sort, encode, 1e3 * whole.median, 1e3 * whole.min, 1e3 * whole.max];
        cells.extend(all.map(|ms| format!("{ms:.1}")));
        cells.push("-".to_owned());
        sheet.row(cells);
        for (step, value) in [("part", part), ("sort", sort), ("encode", encode)] {
            bars.push(Bar { label: format!("{codec}: {step}"), value, mark: None });
        }
    }
    sheet.remarks.extend(
        [
            "Part: a build of the column of high bytes in Roaring, less the encoding of the same \
             lists. That is the builder's first pass: into 256 buckets by the high byte.",
            "Encode and write: the codec over rows that are sorted by value and were just read, \
             less reading them. Sort: what is left of the whole.",
            "The paper shows figure 6, of its GPU, as a plot without numbers.",
        ]
        .map(str::to_owned),
    );
    Ok(report.table(&sheet, Some(&plot(&title, "one core", bars)))?)
}

fn plot(title: &str, what: &str, bars: Vec<Bar>) -> Plot {
    let unit = format!("milliseconds, {what}");
    Plot::Bars(Bars { title: title.to_owned(), unit, mark: None, bars })
}

fn on_gpu(
    args: &Args,
    column: &[u16],
    device: Option<&Arc<dyn Device>>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let title =
        format!("Figure 6 on the GPU: milliseconds, {} records, 65536 values", column.len());
    const NAMES: [&str; 4] = ["copy in", "sort, measure", "write", "copy out"];
    let headings = [&["codec"][..], &NAMES, &["published"]].concat();
    let mut sheet = Sheet::new("figure6-gpu", &title, &headings);
    let mut bars = vec![];
    let on_device =
        device.map(|device| gpu::Column::new(device, Digits::Shorts(column))).transpose()?;
    for codec in CODECS {
        let mut cells = vec![codec.name().to_owned()];
        match &on_device {
            None => cells.extend(NAMES.map(|_| "-".to_owned())),
            Some(column) => {
                let steps = column.contestant(codec)?.steps(args.rounds)?;
                let all = [steps.copy_in, steps.measure, steps.write, steps.copy_out];
                cells.extend(all.map(|seconds| format!("{:.3}", 1e3 * seconds)));
                bars.extend(NAMES.into_iter().zip(all).map(|(name, seconds)| Bar {
                    label: format!("{codec}: {name}"),
                    value: 1e3 * seconds,
                    mark: None,
                }));
            }
        }
        cells.push("-".to_owned());
        sheet.row(cells);
    }
    if device.is_none() {
        sheet.remarks.push(gpu::MISSING.to_owned());
    }
    sheet.remarks.push("One column alone, its steps one after the other; the mean.".to_owned());
    Ok(report.table(&sheet, Some(&plot(&title, "ours on the GPU", bars)))?)
}

fn in_thrust(args: &Args, theirs: &[peer::Line], report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = format!(
        "Figure 6 as the authors built it, in Thrust: milliseconds, {} records, 65536 values",
        args.records
    );
    let headings = [&["codec"][..], &peer::STEPS, &["published"]].concat();
    let mut sheet = Sheet::new("figure6-thrust", &title, &headings);
    let mut bars = vec![];
    for codec in CODECS {
        let line = theirs.iter().find(|line| {
            (line.codec.as_str(), line.bits, line.records, line.values)
                == (codec.name(), LAST.bits, args.records, LAST.values as u64)
        });
        let mut cells = vec![codec.name().to_owned()];
        match line {
            None => cells.extend(peer::STEPS.map(|_| "-".to_owned())),
            Some(line) => {
                cells.extend(line.steps.map(|ms| format!("{ms:.3}")));
                let steps = peer::STEPS.into_iter().zip(line.steps);
                bars.extend(steps.map(|(name, value)| Bar {
                    label: format!("{codec}: {name}"),
                    value,
                    mark: None,
                }));
            }
        }
        cells.push("-".to_owned());
        sheet.row(cells);
    }
    if bars.is_empty() {
        sheet.remarks.push("-: no program was named that was made from imc13.cu.".to_owned());
    }
    Ok(report.table(&sheet, Some(&plot(&title, "Thrust on the GPU", bars)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_to_the_whole() {
        let seconds = |median: f64| Seconds { median, min: median, max: median };
        let times = Times {
            whole: [seconds(0.010), seconds(0.009)],
            encode: [seconds(0.004), seconds(0.003)],
            read: seconds(0.001),
            high: seconds(0.006),
            high_encode: seconds(0.002),
        };
        let Steps { part, sort, encode } = times.steps(0);
        assert!([part - 4.0, sort - 3.0, encode - 3.0].iter().all(|rest| rest.abs() < 1e-9));
        let steps = times.steps(1);
        assert!((steps.part + steps.sort + steps.encode - 9.0).abs() < 1e-9);
    }

    #[test]
    fn buckets_are_encoded_as_a_whole_is() {
        let digits: Vec<u16> = (0..5_000_u32).map(|row| (row * row % 700) as u16).collect();
        let sorted = Sorted::new(&digits);
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        encode(Codec::Wah, &sorted.rows, 0, &sorted.ends, &mut whole);
        let mut first = 0;
        for ends in sorted.ends.chunks(BUCKET) {
            encode(Codec::Wah, &sorted.rows, first, ends, &mut parts);
            first = ends.last().copied().unwrap();
        }
        assert!(!whole.is_empty() && whole == parts && first == digits.len());
    }
}
