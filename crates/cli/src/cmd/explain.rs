//! `tapdex explain`: how a filter is understood and answered.

use std::io::Write;

use anyhow::Context;
use tapdex_answers::ask::{Ask, unequal};
use tapdex_answers::json::Time;
use tapdex_answers::lines::Explanation;
use tapdex_client::nodes::Nodes;
use tapdex_engine::query::Query;
use tapdex_engine::time::format_time;
use tapdex_report::table::{self, Align};

use super::ask::{Places, PlacesArg, QuestionArgs, answered, line, notes, searched};
use super::{CANNOT_WRITE, json, missing};

/// Show how a filter is understood and how it is answered.
///
/// Prints the filter with names resolved to numbers and with all parentheses, then what each
/// condition finds in the index, and last the work needed to answer the whole filter:
///
///     tapdex explain 'host 10.1.2.3 and tcp port 443'
///     tapdex explain --json 'tcp[20:4] == 0x47455420'
///     tapdex explain 'ip.addr != 10.0.0.1'
///
/// A condition is answered by columns, by packets (those that the other conditions leave are read),
/// or partly: by columns, except for some packets with uncommon headers. Weight is the least number
/// of bytes of bitmaps that are read for it. Of several archives, each answers for itself.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    places: PlacesArg,
    #[command(flatten)]
    question: QuestionArgs,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let query = args.question.query()?;
    let archive = match args.places.open()? {
        Places::Folder(archive) => archive,
        Places::Nodes(nodes) => return explain_all(args, &nodes, &query, out),
    };
    let mut answer = searched(Ask::new(&archive, &query).explain())?;
    let unequal = unequal(&args.question.text(), &query);
    answer.value.explain.notes.splice(0..0, unequal);
    notes(&answer.notes);
    match args.json {
        true => json::line(out, &answer.value.explain)?,
        false => write_text(&answer.value.explain, out)?,
    }
    out.flush().context(CANNOT_WRITE)?;
    missing::report(&answer.incomplete, args.question.allow)
}

/// Explains it for each place.
fn explain_all(
    args: &Args,
    nodes: &Nodes,
    query: &Query,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let mut answer = answered(nodes.ask(query).explain())?;
    let unequal = unequal(&args.question.text(), query);
    for part in &mut answer.value.explain {
        part.value.notes.splice(0..0, unequal.clone());
    }
    notes(&answer.notes);
    for (number, part) in answer.value.explain.iter().enumerate() {
        match (args.json, nodes.len() == 1) {
            (true, true) => json::line(out, &part.value)?,
            (true, false) => json::line(out, part)?,
            (false, true) => write_text(&part.value, out)?,
            (false, false) => {
                let blank = if number == 0 { "" } else { "\n" };
                write!(out, "{blank}").context(CANNOT_WRITE)?;
                line(out, format_args!("place     {}", part.node))?;
                write_text(&part.value, out)?;
            }
        }
    }
    out.flush().context(CANNOT_WRITE)?;
    missing::report(&answer.incomplete, args.question.allow)
}

fn write_text(explain: &Explanation, out: &mut dyn Write) -> anyhow::Result<()> {
    const TEXT_MAX: usize = 4_000;
    let mut text: String = explain.filter.chars().take(TEXT_MAX).collect();
    match explain.filter.len() {
        0 => text.push_str("(all packets)"),
        len if len > text.len() => text.push_str(&format!(" ... ({len} bytes)")),
        _ => {}
    }
    line(out, format_args!("filter    {text}"))?;
    line(out, format_args!("language  {}", explain.language))?;
    let time = |time: Option<Time>| time.map_or("-".into(), |time| format_time(time.0));
    line(out, format_args!("from      {}", time(explain.from)))?;
    line(out, format_args!("to        {}", time(explain.to)))?;
    line(out, format_args!(""))?;
    if !explain.terms.is_empty() {
        let headings = [
            ("condition", Align::Left),
            ("answered by", Align::Left),
            ("rows", Align::Right),
            ("unknown", Align::Right),
            ("weight", Align::Right),
        ];
        let rows = || {
            explain.terms.iter().map(|term| {
                vec![
                    term.text.clone(),
                    term.by.to_string(),
                    term.rows.to_string(),
                    term.unknown.to_string(),
                    term.weight.to_string(),
                ]
            })
        };
        table::write(out, &headings, rows).context(CANNOT_WRITE)?;
        line(out, format_args!(""))?;
    }
    let Explanation { segments, pruned_by_time, pruned_by_keys, asked, .. } = explain;
    line(
        out,
        format_args!(
            "segments  {segments}: {pruned_by_time} passed over by time, {pruned_by_keys} by keys, \
             {asked} asked"
        ),
    )?;
    let Explanation { packets, read, matches, seconds, .. } = explain;
    line(out, format_args!("packets   {packets} in the times, {read} read"))?;
    line(out, format_args!("matches   {matches}"))?;
    line(out, format_args!("time      {:.6} s", seconds.0))?;
    for note in &explain.notes {
        line(out, format_args!("note      {note}"))?;
    }
    Ok(())
}
