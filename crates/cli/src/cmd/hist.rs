//! `tapdex hist`: matching packets over time.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, ensure};
use tapdex_engine::query::OverTime;
use tapdex_engine::time::format_time;

use super::ask::{QuestionArgs, finish, line, note_unseen, write_missing};
use super::csv;
use super::search::summary;

/// Show how many packets match, over time.
///
/// Draws a bar for each span of time, from the times in the index, so that few packets are read.
/// Times are in UTC, and each is the start of its span:
///
///     tapdex hist 'udp port 53'
///     tapdex hist --bins 100 --csv
///     tapdex hist -r archive --span 10ms 'tcp.flags.syn == 1' --json
///
/// The default of --span is the shortest round span that needs at most --bins bars. The bars cover
/// the segments that were searched, within --from and --to.
///
/// Reports if packets from the requested times may be missing, and then exits with 3; see search.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    /// Length of a span: 100us, 10ms, 60s, 5m, 1h, 1d.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, conflicts_with = "bins")]
    span: Option<u64>,
    /// Largest number of spans.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 40,
        value_parser = clap::value_parser!(u64).range(1..=SPANS_MAX)
    )]
    bins: u64,
    /// Print one JSON object per line.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values.
    #[arg(long)]
    csv: bool,
}

/// More bars than anybody needs.
const SPANS_MAX: u64 = 1_000_000;
/// Columns of the longest bar.
const BAR_LEN: u64 = 50;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
    ("d", DAY),
];

fn parse_span(text: &str) -> Result<u64, String> {
    let expected = || "expected a number and a unit, such as 100us, 10ms, 60s, 5m, 1h, 1d";
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?.1;
    let number: u64 = number.parse().map_err(|_| expected())?;
    number.checked_mul(unit).filter(|&span| span > 0).ok_or_else(|| expected().to_owned())
}

/// Spans that people count in, ascending.
fn round_spans() -> impl Iterator<Item = u64> {
    let decimal = (0..9).flat_map(|power| [1, 2, 5].map(|n| n * 10_u64.pow(power)));
    let seconds = [1, 2, 5, 10, 15, 30].map(|n| n * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|n| n * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|n| n * HOUR);
    let days = (0..20).map(|power| DAY << power).take_while(|&span| span < u64::MAX / 4);
    decimal.chain(seconds).chain(minutes).chain(hours).chain(days)
}

/// How many spans there are between two times, from the first one's start.
fn spans(first: u64, last: u64, span: u64) -> u64 {
    last / span - first / span + 1
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let started = Instant::now();
    let query = args.question.query()?;
    let mut answers = args.question.rows(&query)?;
    if args.csv {
        csv::line(out, &["time", "packets"])?;
    }
    if let Some((first, last)) = answers.asked_times() {
        let round = || round_spans().find(|&span| spans(first, last, span) <= args.bins);
        let span = args.span.or_else(round).unwrap_or(u64::MAX);
        let len = spans(first, last, span);
        ensure!(len <= SPANS_MAX, "{len} spans are too many: take a longer --span");
        let len = usize::try_from(len).context("too many spans")?;
        print(args, &answers.over_time(first / span * span, span, len)?, out)?;
    }
    if args.json {
        write_missing(&answers, out)?;
    }
    out.flush().context(super::CANNOT_WRITE)?;
    note_unseen(&answers, &query);
    summary(&answers, answers.count(), None, started.elapsed().as_secs_f64());
    finish(&answers, args.question.allow)
}

fn print(args: &Args, over_time: &OverTime, out: &mut dyn Write) -> anyhow::Result<()> {
    let OverTime { start_ns: start, span_ns: span, counts, .. } = over_time;
    let (start, span) = (*start, *span);
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let width = most.to_string().len();
    for (n, &count) in (0..).zip(counts) {
        let time = time_text(start.saturating_add(span.saturating_mul(n)), span);
        if args.json {
            line(out, format_args!(r#"{{"time":"{time}","packets":{count}}}"#))?;
        } else if args.csv {
            csv::line(out, &(time, count))?;
        } else {
            // Any packet gets a bar.
            let len = (count * BAR_LEN).div_ceil(most);
            let bar = "#".repeat(usize::try_from(len).unwrap_or(0));
            let text = format!("{time}  {count:>width$}  {bar}");
            line(out, format_args!("{}", text.trim_end()))?;
        }
    }
    Ok(())
}

/// A time with as many digits as the span needs.
fn time_text(time: u64, span: u64) -> String {
    let text = format_time(time);
    let digits = [(SECOND, 10), (1_000_000, 6), (1_000, 3)];
    // The point is removed as well if no digit is left.
    let cut = digits.iter().find(|(unit, _)| span.is_multiple_of(*unit)).map_or(0, |(_, cut)| *cut);
    let plain = text.strip_suffix('Z').unwrap_or(&text);
    format!("{}Z", plain.get(..plain.len().saturating_sub(cut)).unwrap_or(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_round_and_ascend() {
        let spans: Vec<u64> = round_spans().collect();
        assert!(spans.is_sorted_by(|a, b| a < b));
        assert!(spans.contains(&(15 * MINUTE)) && spans.contains(&500_000_000));
    }

    #[test]
    fn spans_are_understood() {
        assert_eq!(parse_span("60s"), Ok(MINUTE));
        assert_eq!(parse_span("100us"), Ok(100_000));
        for text in ["", "s", "60", "0s", "-1s", "1 s", "99999999999d", "1w"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_the_digits_of_the_span() {
        let time = 1_767_600_001_234_567_891;
        assert_eq!(time_text(time, SECOND), "2026-01-05T08:00:01Z");
        assert_eq!(time_text(time, 5_000_000), "2026-01-05T08:00:01.234Z");
        assert_eq!(time_text(time, 1_000), "2026-01-05T08:00:01.234567Z");
        assert_eq!(time_text(time, 1), "2026-01-05T08:00:01.234567891Z");
    }
}
