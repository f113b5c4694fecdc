//! Shared code of all commands that search an archive.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tapdex_answers::ask::{Answer, AskError};
use tapdex_answers::lines::Incomplete;
use tapdex_answers::missing::Missing;
use tapdex_client::ClientError;
use tapdex_client::credentials::Sources;
use tapdex_client::http::Server;
use tapdex_client::nodes::{Nodes, Options};
use tapdex_engine::archive::{Archive, Segment};
use tapdex_engine::query::filter::Syntax;
use tapdex_engine::query::{Query, SearchError, Value};
use tapdex_engine::time::{TimeRange, format_time, parse_time};

use super::missing::{self, AllowArg};
use super::{Interrupted, counted, filter_file, json, note, shown_packets, top};

/// The archive that commands use by default.
pub(crate) const DEFAULT_ARCHIVE: &str = "tapdex-archive";

/// Where an archive is.
#[derive(Debug, clap::Args)]
pub(crate) struct ArchiveArg {
    /// Folder of the archive.
    #[arg(
        short = 'r',
        long = "archive",
        value_name = "DIR",
        env = "TAPDEX_ARCHIVE",
        default_value = DEFAULT_ARCHIVE
    )]
    archive: PathBuf,
}

impl ArchiveArg {
    /// The folder.
    pub(crate) fn folder(&self) -> anyhow::Result<&Path> {
        check_folder(&self.archive)?;
        Ok(&self.archive)
    }
}

/// An error if a folder is the address of a server.
pub(crate) fn check_folder(path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        !is_address(path),
        "{} is a server, and this command needs the folder of an archive: run it over there",
        path.display()
    );
    Ok(())
}

fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(Server::is_address)
}

/// Where archives are that are searched as one.
#[derive(Debug, clap::Args)]
pub(crate) struct PlacesArg {
    /// Archive to search: a folder, or the address of a server, such as https://sensor1:8443. If
    /// given several times, all are searched as one.
    #[arg(
        short = 'r',
        long = "archive",
        value_name = "PLACE",
        env = "TAPDEX_ARCHIVE",
        default_value = DEFAULT_ARCHIVE
    )]
    archives: Vec<PathBuf>,
    /// File with a token for servers. Without it, TAPDEX_TOKEN has one, or
    /// ~/.config/tapdex/credentials.toml.
    #[arg(long, value_name = "FILE", help_heading = "Servers")]
    token_file: Option<PathBuf>,
    /// Certificates of those who vouch for servers, instead of those that this machine trusts.
    #[arg(long, value_name = "FILE", help_heading = "Servers")]
    ca: Option<PathBuf>,
    /// Seconds without data after which a server counts as stalled.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30,
        value_parser = clap::value_parser!(u64).range(1..=86_400),
        help_heading = "Servers"
    )]
    timeout: u64,
    /// Why you ask, for the log of servers.
    #[arg(long, value_name = "TEXT", help_heading = "Servers")]
    reason: Option<String>,
}

/// What is searched.
pub(crate) enum Places {
    /// One folder.
    Folder(Archive),
    /// Servers, or several places.
    Nodes(Nodes),
}

impl PlacesArg {
    /// Opens the archives. Servers are not asked yet.
    pub(crate) fn open(&self) -> anyhow::Result<Places> {
        match self.archives.as_slice() {
            [folder] if !is_address(folder) => Ok(Places::Folder(Archive::open(folder)?)),
            _ => Ok(Places::Nodes(self.nodes()?)),
        }
    }

    /// The folder or the address, if it is a single one.
    pub(crate) fn single(&self) -> Option<&Path> {
        match self.archives.as_slice() {
            [single] => Some(single),
            _ => None,
        }
    }

    /// Whether servers are among them.
    pub(crate) fn has_servers(&self) -> bool {
        self.archives.iter().any(|place| is_address(place))
    }

    /// The same, whatever they are.
    pub(crate) fn nodes(&self) -> anyhow::Result<Nodes> {
        self.nodes_shown(shown_packets, top::shown)
    }

    /// The same, with other texts for captures and for values.
    pub(crate) fn nodes_shown(
        &self,
        file: fn(&Segment) -> String,
        value: fn(&Value) -> String,
    ) -> anyhow::Result<Nodes> {
        let mut credentials = Sources::of_user();
        credentials.token_file.clone_from(&self.token_file);
        credentials.ca.clone_from(&self.ca);
        let options = Options {
            credentials,
            timeout: Duration::from_secs(self.timeout),
            reason: self.reason.clone(),
            file,
            value,
        };
        answered(Nodes::open(&self.archives, &options))
    }
}

/// An answer of several places, or an error that says what to do.
pub(crate) fn answered<T>(answer: Result<T, ClientError>) -> anyhow::Result<T> {
    answer.map_err(|error| match error {
        // As they are if there is one folder, to find out the exit code.
        ClientError::Archive(error) => (*error).into(),
        ClientError::Ask(error) => {
            searched::<T, _>(Err(*error)).err().unwrap_or(Interrupted.into())
        }
        ClientError::Cancelled => Interrupted.into(),
        error => error.into(),
    })
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
pub(crate) fn check_target<'a>(
    segments: impl Iterator<Item = &'a Segment>,
    target: &Path,
) -> anyhow::Result<()> {
    let Ok(target) = target.canonicalize() else {
        return Ok(());
    };
    for segment in segments {
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
    for share in answer.nodes.iter().filter(|share| share.error.is_none()) {
        let packets = counted(share.matched, "packet");
        note(&format!("  {}: {packets}, {:.3} s", share.node, share.seconds.0));
    }
}

/// Writes what is missing, one JSON object per line.
pub(crate) fn write_missing(missing: &[Missing], out: &mut dyn Write) -> anyhow::Result<()> {
    missing.iter().try_for_each(|one| json::line(out, &Incomplete { incomplete: one.clone() }))
}

/// Writes a line; an error says that writing failed.
pub(crate) fn line(out: &mut dyn Write, text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    writeln!(out, "{}", super::escaped(&text.to_string())).context(super::CANNOT_WRITE)
}
