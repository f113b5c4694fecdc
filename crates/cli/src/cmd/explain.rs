//! `tapdex explain`: how a filter is understood and answered.

use std::io::Write;
use std::time::Instant;

use anyhow::Context;
use tapdex_engine::query::filter::Syntax;
use tapdex_engine::query::{Answers, Explained, Query, TermPlan};
use tapdex_engine::time::{TimeRange, format_time};
use tapdex_report::table::{self, Align};

use super::CANNOT_WRITE;
use super::ask::{QuestionArgs, finish, line, missing, note_left_out, searched, tagged_text};
use super::index_file::json;
use super::missing::json_list;

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
/// of bytes of bitmaps that are read for it.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    question: QuestionArgs,
    /// Print a JSON object.
    #[arg(long)]
    json: bool,
}

/// What answers a condition.
fn how(term: &TermPlan, packets: u64) -> &'static str {
    match term.unknown {
        0 => "columns",
        unknown if unknown == packets => "packets",
        _ if term.rows == 0 => "packets",
        _ => "partly",
    }
}

/// What is reported.
struct Report<'a> {
    query: &'a Query,
    answers: &'a Answers,
    terms: Vec<TermPlan>,
    /// Packets of the segments that were searched.
    packets: u64,
    seconds: f64,
    notes: Vec<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let query = args.question.query()?;
    let started = Instant::now();
    let mut answers = searched(args.question.open()?.search(&query)?.count())?;
    let seconds = started.elapsed().as_secs_f64();
    note_left_out(&answers, &query);
    let Explained { terms, packets } = answers.explain(&query);
    let notes = notes(args, &query, &answers);
    let report = Report { query: &query, answers: &answers, terms, packets, seconds, notes };
    match args.json {
        true => report.write_json(out)?,
        false => report.write_text(out)?,
    }
    out.flush().context(CANNOT_WRITE)?;
    finish(&answers, args.question.allow)
}

fn notes(args: &Args, query: &Query, answers: &Answers) -> Vec<String> {
    let mut notes = Vec::new();
    let text = args.question.text();
    let words = || text.split_whitespace();
    let differs = text.replace("!==", "").contains("!=") || words().any(|w| w == "ne");
    if query.filter().syntax() == Syntax::Wireshark && differs {
        let meaning = "with !=, a packet matches that has the field and in which no value of it \
                       equals the one given, as in Wireshark: of ip.addr neither end";
        notes.push(meaning.to_owned());
    }
    notes.extend(answers.behind_tags(query).map(tagged_text));
    notes
}

impl Report<'_> {
    fn language(&self) -> &'static str {
        match self.query.filter().syntax() {
            Syntax::Pcap => "pcap-filter",
            Syntax::Wireshark => "wireshark",
        }
    }

    fn times(&self) -> [Option<String>; 2] {
        let TimeRange { from_ns, to_ns } = self.query.times();
        [(from_ns > 0).then(|| format_time(from_ns)), to_ns.map(format_time)]
    }

    /// Segments: all, skipped by their times, skipped by their keys, and searched.
    fn segments(&self) -> [usize; 4] {
        let answers = self.answers;
        let count = |by: fn(&tapdex_engine::query::Answer) -> bool| {
            answers.segments.iter().filter(|(_, answer)| by(answer)).count()
        };
        let (asked, all) = answers.segments_read();
        [all, count(|a| a.pruned_by_time), count(|a| a.pruned_by_keys), asked]
    }

    fn sum(&self, of: fn(&tapdex_engine::query::Answer) -> u64) -> u64 {
        self.answers.segments.iter().map(|(_, answer)| of(answer)).sum()
    }

    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        const TEXT_MAX: usize = 4_000;
        let mut text: String = self.query.text().chars().take(TEXT_MAX).collect();
        match self.query.text().len() {
            0 => text.push_str("(all packets)"),
            len if len > text.len() => text.push_str(&format!(" ... ({len} bytes)")),
            _ => {}
        }
        line(out, format_args!("filter    {text}"))?;
        line(out, format_args!("language  {}", self.language()))?;
        let [from, to] = self.times().map(|time| time.unwrap_or("-".into()));
        line(out, format_args!("from      {from}"))?;
        line(out, format_args!("to        {to}"))?;
        line(out, format_args!(""))?;
        if !self.terms.is_empty() {
            let headings = [
                ("condition", Align::Left),
                ("answered by", Align::Left),
                ("rows", Align::Right),
                ("unknown", Align::Right),
                ("weight", Align::Right),
            ];
            let rows = || {
                self.terms.iter().map(|term| {
                    vec![
                        term.text.clone(),
                        how(term, self.packets).to_owned(),
                        term.rows.to_string(),
                        term.unknown.to_string(),
                        term.weight.to_string(),
                    ]
                })
            };
            table::write(out, &headings, rows).context(CANNOT_WRITE)?;
            line(out, format_args!(""))?;
        }
        let [all, by_time, by_keys, asked] = self.segments();
        line(
            out,
            format_args!(
                "segments  {all}: {by_time} passed over by time, {by_keys} by keys, {asked} asked"
            ),
        )?;
        let read = self.sum(|answer| answer.read);
        line(out, format_args!("packets   {} in the times, {read} read", self.packets))?;
        line(out, format_args!("matches   {}", self.answers.count()))?;
        line(out, format_args!("time      {:.6} s", self.seconds))?;
        for note in &self.notes {
            line(out, format_args!("note      {note}"))?;
        }
        Ok(())
    }

    fn write_json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let quoted = |time: Option<String>| time.map_or("null".into(), |time| json::string(&time));
        let [from, to] = self.times().map(quoted);
        let terms: Vec<String> = self
            .terms
            .iter()
            .map(|term| {
                format!(
                    r#"{{"text":{},"by":"{}","rows":{},"unknown":{},"weight":{}}}"#,
                    json::string(&term.text),
                    how(term, self.packets),
                    term.rows,
                    term.unknown,
                    term.weight
                )
            })
            .collect();
        let notes: Vec<String> = self.notes.iter().map(|note| json::string(note)).collect();
        let [all, by_time, by_keys, asked] = self.segments();
        let object = [
            ("filter", json::string(self.query.text())),
            ("language", json::string(self.language())),
            ("from", from),
            ("to", to),
            ("terms", format!("[{}]", terms.join(","))),
            ("segments", all.to_string()),
            ("pruned_by_time", by_time.to_string()),
            ("pruned_by_keys", by_keys.to_string()),
            ("asked", asked.to_string()),
            ("packets", self.packets.to_string()),
            ("read", self.sum(|answer| answer.read).to_string()),
            ("matches", self.answers.count().to_string()),
            ("seconds", format!("{:.6}", self.seconds)),
            ("notes", format!("[{}]", notes.join(","))),
            ("incomplete", json_list(&missing(self.answers))),
        ];
        line(out, format_args!("{}", super::json_object(&object)))
    }
}
