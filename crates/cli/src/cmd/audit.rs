//! `tapdex audit`: what a server was asked, and what it gave out.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;
use tapdex_engine::beneath::open_named;
use tapdex_report::table::{self, Align};
use tapdex_server::audit::{AUDIT_NAME, verify_with};

use super::ask::line;
use super::token::StateArg;
use super::{CANNOT_WRITE, Damaged, counted, note};

/// Check and show the audit log of tapdex serve.
///
/// The log has a line for every question that was asked: who, from where, what, why, how many
/// packets and bytes were given out, and their SHA-256. Each line has the hash of the one before,
/// so that a line that is edited, removed or inserted is found:
///
///     tapdex audit verify
///     tapdex audit show --who soc -n 20
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Verify(VerifyArgs),
    Show(ShowArgs),
}

/// Check that nobody has changed the audit log.
///
/// Goes through all lines, and compares the end with audit.head, which lies beside the log. Says
/// which line is the first that is wrong, and exits with 3. The server may run meanwhile:
///
///     tapdex audit verify
///     tapdex audit verify copy-of-the-log/audit.jsonl
///
/// Whoever can write the state folder could make up a whole log with right hashes. Against that,
/// keep the number and the hash of the last line, which are printed, in another place, and ask
/// later with --has whether the log still has that line.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct VerifyArgs {
    #[command(flatten)]
    state: StateArg,
    /// Check that a line has this hash, as an earlier check has printed it.
    #[arg(long, value_name = "NUMBER:HASH")]
    has: Vec<String>,
    /// Log to check; without it, that of the state folder.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Show the audit log.
///
///     tapdex audit show
///     tapdex audit show --who soc -n 20
///     tapdex audit show --json
///
/// Does not check the log: tapdex audit verify does.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
struct ShowArgs {
    #[command(flatten)]
    state: StateArg,
    /// Print the lines as they are in the log: one JSON object per line.
    #[arg(long)]
    json: bool,
    /// Only what this name has asked.
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Only the last N lines [default: 100, or all with --json].
    #[arg(short = 'n', value_name = "N")]
    last: Option<usize>,
    /// Log to show; without it, that of the state folder.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The log that is meant.
fn log(file: Option<&PathBuf>, state: &StateArg) -> anyhow::Result<PathBuf> {
    match file {
        Some(file) => Ok(file.clone()),
        None => Ok(state.open()?.path_of(AUDIT_NAME)),
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.command {
        Command::Verify(args) => verify(args, out),
        Command::Show(args) => show(args, out),
    }
}

fn verify(args: &VerifyArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut has: Vec<(u64, &str)> = Vec::new();
    for text in &args.has {
        let parts = text.split_once(':').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash)));
        has.push(
            parts.with_context(|| format!("--has {text}: write NUMBER:HASH, as in 12:5f2a.."))?,
        );
    }
    let path = log(args.file.as_ref(), &args.state)?;
    let numbers: Vec<u64> = has.iter().map(|&(seq, _)| seq).collect();
    let report = verify_with(&path, &numbers)?;
    let shown = path.display();
    if let Some(wrong) = report.wrong {
        let place = wrong.line.map_or(String::new(), |line| format!(", line {line}"));
        let sound = counted(report.lines, "line");
        return Err(
            Damaged(format!("{shown}{place}: {}; {sound} before are sound", wrong.why)).into()
        );
    }
    for (seq, hash) in has {
        if report.hash_of(seq) != Some(hash) {
            let what = match report.hash_of(seq) {
                Some(found) => format!("line {seq} has the hash {found}"),
                None => format!("there is no line {seq}"),
            };
            return Err(Damaged(format!("{shown}: {what}: the log was replaced")).into());
        }
    }
    let torn = match report.torn {
        0 => String::new(),
        torn => format!(", {torn} torn by a crash"),
    };
    line(out, format_args!("sound: {}{torn}", counted(report.lines, "line")))?;
    if let Some((seq, hash)) = report.last {
        line(out, format_args!("last: {seq}:{hash}"))?;
    }
    if report.unfinished {
        note("the last line is not complete: it is being written, or the server was killed");
    }
    out.flush().context(CANNOT_WRITE)
}

/// Calls `each` with the lines of a log that match, and what they say; how many there are that
/// cannot be read.
fn scan(
    path: &Path,
    who: Option<&str>,
    each: &mut dyn FnMut(&str, Value) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let failed = || format!("cannot read {}", path.display());
    let mut log = BufReader::new(open_named(path).with_context(failed)?);
    let mut others = 0;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if log.read_until(b'\n', &mut bytes).with_context(failed)? == 0 {
            return Ok(others);
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches('\n');
        match serde_json::from_str::<Value>(text) {
            Ok(value) if who.is_none_or(|who| value.get("who") == Some(&who.into())) => {
                each(text, value)?;
            }
            Ok(_) => {}
            Err(_) => others += 1,
        }
    }
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = log(args.file.as_ref(), &args.state)?;
    let who = args.who.as_deref();
    let last = match (args.last, args.json) {
        (Some(last), _) => last,
        (None, true) => usize::MAX,
        (None, false) => ROWS_SHOWN,
    };
    let others = match args.json {
        true if last == usize::MAX => {
            scan(&path, who, &mut |text, _| line(out, format_args!("{text}")))?
        }
        true => {
            let mut lines = Last::new(last);
            let others = scan(&path, who, &mut |text, _| {
                lines.push(text.to_owned());
                Ok(())
            })?;
            for text in &lines.kept {
                line(out, format_args!("{text}"))?;
            }
            others
        }
        false => {
            let mut rows = Last::new(last);
            let others = scan(&path, who, &mut |_, value| {
                rows.push(row(&value));
                Ok(())
            })?;
            let headings = COLUMNS.map(|name| match name {
                "line" | "packets" | "bytes" => (name, Align::Right),
                _ => (name, Align::Left),
            });
            table::write(out, &headings, || rows.kept.iter().cloned()).context(CANNOT_WRITE)?;
            if args.last.is_none() && rows.more > 0 {
                note(&format!("{} before these; -n shows more", counted(rows.more, "line")));
            }
            others
        }
    };
    out.flush().context(CANNOT_WRITE)?;
    if others > 0 {
        let lines = counted(others, "line");
        note(&format!("{lines} left out that cannot be read; tapdex audit verify says why"));
    }
    Ok(())
}

/// How many rows are shown if nobody says how many.
const ROWS_SHOWN: usize = 100;

const COLUMNS: [&str; 11] = [
    "line", "time", "who", "role", "from", "what", "outcome", "packets", "bytes", "filter",
    "reason",
];

/// A line of the log as a row of the table.
fn row(value: &Value) -> Vec<String> {
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let cell = |name| match name {
        "line" => text(value.get("seq")),
        "filter" => text(value.get("question").and_then(|question| question.get("filter"))),
        name => text(value.get(name)),
    };
    COLUMNS.map(cell).to_vec()
}

/// The last few of many.
struct Last<T> {
    kept: VecDeque<T>,
    most: usize,
    /// How many there were before.
    more: u64,
}

impl<T> Last<T> {
    fn new(most: usize) -> Self {
        Self { kept: VecDeque::new(), most, more: 0 }
    }

    fn push(&mut self, item: T) {
        self.kept.push_back(item);
        if self.kept.len() > self.most {
            self.kept.pop_front();
            self.more += 1;
        }
    }
}
