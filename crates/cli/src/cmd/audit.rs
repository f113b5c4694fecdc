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
    /// Only the last N lines.
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

/// Lines of a log that match, the last ones.
fn lines(path: &Path, args: &ShowArgs) -> anyhow::Result<(VecDeque<(String, Value)>, u64)> {
    let failed = || format!("cannot read {}", path.display());
    let mut log = BufReader::new(open_named(path).with_context(failed)?);
    let (mut found, mut others) = (VecDeque::new(), 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if log.read_until(b'\n', &mut bytes).with_context(failed)? == 0 {
            return Ok((found, others));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches('\n');
        let Ok(value) = serde_json::from_str::<Value>(text) else {
            others += 1;
            continue;
        };
        let who = value.get("who").and_then(Value::as_str).unwrap_or_default();
        if args.who.as_ref().is_none_or(|wanted| wanted == who) {
            found.push_back((text.to_owned(), value));
        }
        if args.last.is_some_and(|last| found.len() > last) {
            found.pop_front();
        }
    }
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = log(args.file.as_ref(), &args.state)?;
    let (lines, others) = lines(&path, args)?;
    if args.json {
        for (text, _) in &lines {
            line(out, format_args!("{text}"))?;
        }
    } else {
        let headings = [
            ("line", Align::Right),
            ("time", Align::Left),
            ("who", Align::Left),
            ("role", Align::Left),
            ("from", Align::Left),
            ("what", Align::Left),
            ("outcome", Align::Left),
            ("packets", Align::Right),
            ("bytes", Align::Right),
            ("filter", Align::Left),
            ("reason", Align::Left),
        ];
        let text = |value: Option<&Value>| match value {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        let rows = || {
            lines.iter().map(|(_, value)| {
                let of = |name: &str| text(value.get(name));
                let mut row: Vec<String> =
                    ["seq", "time", "who", "role", "from", "what", "outcome", "packets", "bytes"]
                        .map(of)
                        .to_vec();
                row.push(text(value.get("question").and_then(|question| question.get("filter"))));
                row.push(of("reason"));
                row
            })
        };
        table::write(out, &headings, rows).context(CANNOT_WRITE)?;
    }
    out.flush().context(CANNOT_WRITE)?;
    if others > 0 {
        let lines = counted(others, "line");
        note(&format!("{lines} left out that cannot be read; tapdex audit verify says why"));
    }
    Ok(())
}
