//! `tapdex hist`: matching packets over time.

use std::io::Write;

use anyhow::Context;
use tapdex_answers::ask::{Ask, SPANS_MAX, SpanLen};
use tapdex_answers::lines::Span;

use super::ask::{
    Places, PlacesArg, QuestionArgs, answered, finish, line, searched, write_missing,
};
use super::{csv, json};

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
/// Reports if packets from the requested times may be missing, and then exits with 3; see search,
/// also for -r with addresses of servers and for several of them.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    places: PlacesArg,
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

/// Columns of the longest bar.
const BAR_LEN: u64 = 50;

fn parse_span(text: &str) -> Result<u64, String> {
    let expected = "expected a number and a unit, such as 100us, 10ms, 60s, 5m, 1h, 1d";
    tapdex_answers::ask::parse_span(text).ok_or_else(|| expected.to_owned())
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let query = args.question.query()?;
    let len = args.span.map_or(SpanLen::AtMost(args.bins), SpanLen::Each);
    let answer = match args.places.open()? {
        Places::Folder(archive) => searched(Ask::new(&archive, &query).histogram(len))?,
        Places::Nodes(nodes) => answered(nodes.ask(&query).histogram(len))?,
    };
    print(args, &answer.value.spans, out)?;
    if args.json {
        write_missing(&answer.incomplete, out)?;
    }
    out.flush().context(super::CANNOT_WRITE)?;
    finish(&answer, args.question.allow)
}

fn print(args: &Args, spans: &[Span], out: &mut dyn Write) -> anyhow::Result<()> {
    let most = spans.iter().map(|span| span.packets).max().unwrap_or(0).max(1);
    let width = most.to_string().len();
    if args.csv {
        csv::line(out, &["time", "packets"])?;
    }
    for span in spans {
        if args.json {
            json::line(out, span)?;
        } else if args.csv {
            csv::line(out, &(&span.time, span.packets))?;
        } else {
            // Any packet gets a bar.
            let len = (span.packets * BAR_LEN).div_ceil(most);
            let bar = "#".repeat(usize::try_from(len).unwrap_or(0));
            let text = format!("{}  {:>width$}  {bar}", span.time, span.packets);
            line(out, format_args!("{}", text.trim_end()))?;
        }
    }
    Ok(())
}
