//! Shared code of all commands that search an archive.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tapdex_answers::ask::{Answer, AskError};
use tapdex_answers::lines::Incomplete;
use tapdex_answers::missing::Missing;
use tapdex_engine::archive::Archive;
use tapdex_engine::query::filter::Syntax;
use tapdex_engine::query::{Answers, Query, SearchError};
use tapdex_engine::time::{TimeRange, format_time, parse_time};

use super::missing::{self, AllowArg};
use super::{counted, filter_file, json, note};

/// The archive that commands use by default.
pub(crate) const DEFAULT_ARCHIVE: &str = "tapdex-archive";

/// Where an archive is.
#[derive(Debug, clap::Args)]
pub(crate) struct ArchiveArg {
    /// Archive to search.
    #[arg(
        short = 'r',
        long = "archive",
        value_name = "DIR",
        env = "TAPDEX_ARCHIVE",
        default_value = DEFAULT_ARCHIVE
    )]
    pub(crate) archive: PathBuf,
}

/// The language of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SyntaxArg {
    /// Recognised from the filter.
    Auto,
    /// pcap-filter(7), as in tcpdump.
    Pcap,
    /// Display filters of Wireshark.
    Wireshark,
}

/// A question to an archive.
#[derive(Debug, clap::Args)]
pub(crate) struct QuestionArgs {
    #[command(flatten)]
    pub(crate) archive: ArchiveArg,
    /// Only packets from this time on: 2026-01-02T03:04:05Z, '2026-01-02 03:04:05' (local time),
    /// seconds since 1970, -15m, '3h ago'.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, verbatim_doc_comment)]
    from: Option<String>,
    /// Only packets from before this time.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// Times without a zone are UTC.
    #[arg(long)]
    utc: bool,
    #[command(flatten)]
    pub(crate) allow: AllowArg,
    /// Also look behind one or two VLAN tags: search for 'F or (vlan and F) or (vlan and vlan and
    /// F)', where F is the filter.
    #[arg(long)]
    through_tags: bool,
    /// Language of the filter.
    #[arg(long, value_enum, default_value = "auto")]
    syntax: SyntaxArg,
    /// Read the filter from a file, or from standard input for -: a filter, or a list of addresses,
    /// networks and MAC addresses, one per line. With FILTER, packets must match both.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    filter_file: Option<PathBuf>,
    /// Filter, as in tcpdump: 'host 10.1.2.3 and tcp port 443'. Words are joined by spaces. Without
    /// a filter, all packets match.
    #[arg(value_name = "FILTER", verbatim_doc_comment)]
    filter: Vec<String>,
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

impl QuestionArgs {
    /// The filter, as it was written.
    pub(crate) fn text(&self) -> String {
        self.filter.join(" ")
    }

    /// The question.
    pub(crate) fn query(&self) -> anyhow::Result<Query> {
        let now = now_ns();
        let text = self.text();
        let syntax = match self.syntax {
            SyntaxArg::Auto => None,
            SyntaxArg::Pcap => Some(Syntax::Pcap),
            SyntaxArg::Wireshark => Some(Syntax::Wireshark),
        };
        let filter = match &self.filter_file {
            Some(path) => filter_file::read(path, &text, syntax, now)?,
            None => filter_file::parse(&text, syntax, now)?,
        };
        let filter = match self.through_tags {
            true => filter.through_tags().context("--through-tags cannot be used here")?,
            false => filter,
        };
        let time = |name: &str, text: &Option<String>| {
            let parse = |text: &String| {
                parse_time(text, now, self.utc).with_context(|| format!("{name} '{text}'"))
            };
            text.as_ref().map(parse).transpose()
        };
        let (from, to) = (time("--from", &self.from)?, time("--to", &self.to)?);
        if let (Some(from), Some(to)) = (from, to) {
            let [first, last] = [from, to].map(format_time);
            anyhow::ensure!(from < to, "--from {first} is not before --to {last}");
        }
        let times = TimeRange { from_ns: from.unwrap_or(0), to_ns: to };
        let query = Query::new(filter, times).with_notice(note);
        if let TimeRange { from_ns, to_ns: Some(to_ns) } = query.times() {
            let [after, before] = [from_ns, to_ns].map(format_time);
            let why = "no packet is from";
            anyhow::ensure!(from_ns < to_ns, "{why} {after} on and from before {before}");
        }
        Ok(query)
    }

    /// Opens the archive.
    pub(crate) fn open(&self) -> anyhow::Result<Archive> {
        Ok(Archive::open(&self.archive.archive)?)
    }
}

/// An answer, or an error that says what to do.
pub(crate) fn searched<T, E: Into<AskError>>(answer: Result<T, E>) -> anyhow::Result<T> {
    answer.map_err(|error| match error.into() {
        AskError::Search(error @ SearchError::TooManyConversations { .. }) => {
            let what = "narrow the filter, or the times with --from and --to";
            anyhow::anyhow!("{error}: {what}")
        }
        // As it was before it became a part of something else, to find out the exit code.
        AskError::Search(error) => error.into(),
        error => error.into(),
    })
}

/// Refuses to overwrite the captures that are being searched.
pub(crate) fn check_target(answers: &Answers, target: &Path) -> anyhow::Result<()> {
    let Ok(target) = target.canonicalize() else {
        return Ok(());
    };
    for (segment, _) in &answers.segments {
        anyhow::ensure!(
            segment.packet_path().canonicalize().ok() != Some(target.clone()),
            "{} has packets of the archive; write to another file",
            target.display()
        );
    }
    Ok(())
}

/// Tells what people should know about an answer, what was found, and what is missing; returns an
/// error if it is incomplete and that is not allowed.
pub(crate) fn finish<T>(answer: &Answer<T>, allow: AllowArg) -> anyhow::Result<()> {
    notes(&answer.notes);
    summary(answer, answer.matched, None);
    missing::report(&answer.incomplete, allow)
}

/// Tells what people should know about an answer.
pub(crate) fn notes(notes: &[String]) {
    notes.iter().for_each(|text| note(text));
}

/// What was found, on one line.
pub(crate) fn summary<T>(answer: &Answer<T>, packets: u64, bytes: Option<u64>) {
    let Answer { segments_read: read, segments: all, seconds, .. } = answer;
    let bytes = bytes.map_or(String::new(), |bytes| format!(" {bytes} bytes,"));
    let packets = counted(packets, "packet");
    note(&format!("matched {packets},{bytes} {read}/{all} segments read, {:.3} s", seconds.0));
}

/// Writes what is missing, one JSON object per line.
pub(crate) fn write_missing(missing: &[Missing], out: &mut dyn Write) -> anyhow::Result<()> {
    missing.iter().try_for_each(|one| json::line(out, &Incomplete { incomplete: one.clone() }))
}

/// Writes a line; an error says that writing failed.
pub(crate) fn line(out: &mut dyn Write, text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    writeln!(out, "{}", super::escaped(&text.to_string())).context(super::CANNOT_WRITE)
}
