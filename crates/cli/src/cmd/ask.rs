//! What all commands that ask an archive have in common.

use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tapdex_bitmap::Chunks;
use tapdex_engine::archive::{Archive, ArchiveError, Cause, Column, Gap, Segment, UnreadPackets};
use tapdex_engine::fields::Field;
use tapdex_engine::packet::Encap;
use tapdex_engine::query::filter::{Expr, Filter, Shift, Syntax, Term, Test};
use tapdex_engine::query::time::{format_time, parse_time};
use tapdex_engine::query::{Answer, Query};

use super::missing::{self, AllowArg, Story};
use super::{filter_file, note};

/// The archive that commands use unless they are told otherwise.
pub(crate) const DEFAULT_ARCHIVE: &str = "tapdex-archive";

/// Where an archive is.
#[derive(Debug, clap::Args)]
pub(crate) struct ArchiveArg {
    /// Archive to ask.
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
    /// Told from the filter.
    Auto,
    /// pcap-filter(7), as tcpdump takes it.
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
    /// Look behind VLAN tags, too, one or two of them: ask for 'F or (vlan and F) or (vlan and vlan
    /// and F)', where F is the filter.
    #[arg(long)]
    through_tags: bool,
    /// Language of the filter.
    #[arg(long, value_enum, default_value = "auto")]
    syntax: SyntaxArg,
    /// Read the filter from a file, or from standard input for -: a filter, or a list of
    /// addresses, networks and MAC addresses, one a line. With FILTER, both have to hold.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    filter_file: Option<PathBuf>,
    /// What to look for, as tcpdump takes it: 'host 10.1.2.3 and tcp port 443'. Words are joined
    /// by spaces. Without a filter, all packets.
    #[arg(value_name = "FILTER", verbatim_doc_comment)]
    filter: Vec<String>,
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(i128::MAX))
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
        let text = filter.expr.as_ref().map(Expr::to_string).unwrap_or_default();
        let filter = match self.through_tags && !text.is_empty() {
            true => {
                let why = "--through-tags is for filters as tcpdump takes them";
                anyhow::ensure!(filter.syntax == Syntax::Pcap, "{why}");
                let (from_ns, to_ns) = (filter.from_ns, filter.to_ns);
                let tags = filter_file::parse(&through_tags(&text), Some(Syntax::Pcap), now)?;
                Filter { from_ns, to_ns, ..tags }
            }
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
        let query = Query::new(filter, from, to).with_notice(note);
        if let (first, Some(last)) = query.times() {
            let [after, before] = [first, last].map(|time| format_time(time.into()));
            anyhow::ensure!(first < last, "no packet is from {after} on and from before {before}");
        }
        Ok(query)
    }

    /// Opens the archive.
    pub(crate) fn open(&self) -> anyhow::Result<Archive> {
        Ok(Archive::open(&self.archive.archive)?)
    }

    /// Opens the archive, asks all its segments, and says what is left out.
    pub(crate) fn ask(&self, query: &Query, how: How) -> anyhow::Result<Answers> {
        let answers = Answers::ask(&self.open()?, query, how)?;
        answers.note_left_out(query);
        Ok(answers)
    }
}

/// What is wanted of the segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// How many packets match.
    Count,
    /// Which ones.
    Records,
}

/// The answers of all segments.
pub(crate) struct Answers {
    /// The segments that answered, by their first packet, each with its answer.
    pub(crate) segments: Vec<(Segment, Answer)>,
    /// What may be missing from the times that were asked about.
    pub(crate) gaps: Vec<Gap>,
}

impl Answers {
    pub(crate) fn ask(archive: &Archive, query: &Query, how: How) -> anyhow::Result<Self> {
        let survey = archive.survey(query.times())?;
        let (segments, mut gaps) = (survey.segments, survey.gaps);
        gaps.retain(|gap| gap.touches(query.times()));
        let asked = match how {
            How::Count => query.count_all(&segments),
            How::Records => query.records_all(&segments),
        };
        let mut answers = Vec::with_capacity(segments.len());
        let mut unread = UnreadPackets::default();
        for (segment, answer) in segments.into_iter().zip(asked) {
            match answer {
                Ok(mut answer) => {
                    unread.extend(std::mem::take(&mut answer.unread));
                    answers.push((segment, answer));
                }
                // Retention has removed it in the meantime.
                Err(_) if segment.is_gone() => {}
                Err(error) => gaps.push(Gap::of_segment(&segment, error)),
            }
        }
        let mut this = Self { segments: answers, gaps };
        this.fail(unread.into_errors());
        let (refused, asked) = this.refused();
        if let Some((link, message)) = refused.first().filter(|_| !asked) {
            anyhow::bail!("the filter cannot be used on {link}: {message}");
        }
        Ok(this)
    }

    /// The links that the filter cannot be asked of, and whether it can be asked of another. One
    /// that can be asked of no link is a bad filter; one that can be asked of some leaves the
    /// others out.
    fn refused(&self) -> (Vec<(String, &str)>, bool) {
        let mut refused: Vec<(String, &str)> = Vec::new();
        let mut asked = false;
        for (_, answer) in &self.segments {
            asked |= answer.count > 0 || (answer.refused.is_empty() && !answer.pruned_by_time);
            for (link, message) in &answer.refused {
                let refusal = (link.to_string(), message.as_str());
                if !refused.contains(&refusal) {
                    refused.push(refusal);
                }
            }
        }
        (refused, asked)
    }

    /// Says which links are left out, and that no packet can match, which is an error with tcpdump.
    pub(crate) fn note_left_out(&self, query: &Query) {
        for (link, message) in self.refused().0 {
            note(&format!("packets of {link} are left out: {message}"));
        }
        let rejects = |(segment, _): &(Segment, Answer)| query.rejects_all(segment);
        if self.count() == 0 && !self.segments.is_empty() && self.segments.iter().all(rejects) {
            note("the filter rejects all packets (libpcap: expression rejects all packets)");
        }
    }

    /// Refuses to write over the packets that are asked for.
    pub(crate) fn check_target(&self, target: &std::path::Path) -> anyhow::Result<()> {
        let Ok(target) = target.canonicalize() else {
            return Ok(());
        };
        for (segment, _) in &self.segments {
            anyhow::ensure!(
                segment.packet_path().canonicalize().ok() != Some(target.clone()),
                "{} has packets of the archive; write to another file",
                target.display()
            );
        }
        Ok(())
    }

    /// How many packets match.
    pub(crate) fn count(&self) -> u64 {
        self.segments.iter().map(|(_, answer)| answer.count).sum()
    }

    /// Segments of which more than their times and keys was looked at, and all of them.
    pub(crate) fn segments_read(&self) -> (usize, usize) {
        let was_read = |answer: &Answer| !answer.pruned_by_time && !answer.pruned_by_keys;
        let read = self.segments.iter().filter(|(_, answer)| was_read(answer)).count();
        let unread = |gap: &&Gap| {
            matches!(gap.error, Some(ArchiveError::Index { .. } | ArchiveError::BadNote { .. }))
        };
        (read, self.segments.len() + self.gaps.iter().filter(unread).count())
    }

    /// The segments of which packets match, with those.
    pub(crate) fn found(&self) -> Vec<(&Segment, &[u32])> {
        let found = self.segments.iter().map(|(s, answer)| (s, answer.records.as_slice()));
        found.filter(|(_, records)| !records.is_empty()).collect()
    }

    /// Packets behind VLAN tags that the filter would find if it looked there, and whether that is
    /// their number or only the most that there can be; `None` if there are none.
    pub(crate) fn tagged_unseen(&self, query: &Query) -> Option<(u64, bool)> {
        if !is_moved_by_tags(query.filter()) {
            return None;
        }
        let behind = std::cell::LazyCell::new(|| {
            if query.text().len() > UNSEEN_TEXT_MAX {
                return None;
            }
            let behind = Filter::parse_as(Syntax::Pcap, &through_tags(query.text()), 0).ok()?;
            let (from, to) = query.times();
            Some(Query::new(behind, Some(from.into()), to.map(i128::from)))
        });
        let (mut packets, mut is_exact, mut left) = (0, true, UNSEEN_READ_MAX);
        for (segment, answer) in self.segments.iter().filter(|(_, a)| !a.pruned_by_time) {
            // Damage has been reported where it matters to the answer.
            let tagged = tagged(segment).unwrap_or(0);
            if tagged == 0 {
                continue;
            }
            let most = match query.behind_tags(segment) {
                Ok(Some((found, 0))) => {
                    packets += found;
                    continue;
                }
                Ok(Some((found, open))) => found + open,
                _ => tagged,
            };
            // About what the filter itself had to read is read again, and tagged packets at most.
            let rest = left.checked_sub(answer.read.saturating_add(tagged));
            match rest.zip(behind.as_ref()) {
                Some((rest, behind)) => {
                    left = rest;
                    let count = behind.count(segment).map_or(0, |behind| behind.count);
                    packets += count.saturating_sub(answer.count);
                }
                None => (packets, is_exact) = (packets + most, false),
            }
        }
        (packets > 0).then_some((packets, is_exact))
    }

    /// Says how many packets Wireshark would look into further than a filter in its language does
    /// here.
    fn note_outer_only(&self, query: &Query) {
        let asked = self.segments.iter().filter(|(_, answer)| !answer.pruned_by_time);
        let packets: u64 = asked.map(|(s, _)| query.outer_only(s).unwrap_or(0)).sum();
        if packets > 0 {
            let verb = if packets == 1 { "was" } else { "were" };
            let packets = super::counted(packets, "packet");
            note(&format!(
                "{packets} in tunnels, ICMP errors or PPPoE, or behind MPLS, {verb} judged by \
                 outer headers only; Wireshark would look inside"
            ));
        }
    }

    /// Says what tcpdump's users are often not aware of, and why there may be nothing.
    pub(crate) fn note_unseen(&self, query: &Query) {
        self.note_outer_only(query);
        if let Some(unseen) = self.tagged_unseen(query) {
            note(&tagged_text(unseen));
        }
        if self.count() == 0 {
            self.note_times(query);
        }
    }

    /// Says which times there are packets from, if none of them was asked for.
    fn note_times(&self, query: &Query) {
        if self.segments.iter().any(|(_, answer)| !answer.pruned_by_time) {
            return;
        }
        let there = self.segments.iter().filter(|(segment, _)| segment.note().records > 0);
        let spans = there.map(|(segment, _)| (segment.note().time_min, segment.note().time_max));
        let Some((first, last)) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) else {
            return note("0 packets; the archive has none");
        };
        let (from, to) = query.times();
        let asked = [
            (from > 0).then(|| format!("from {}", format_time(from.into()))),
            to.map(|to| format!("to {}", format_time(to.into()))),
        ];
        let asked: Vec<String> = asked.into_iter().flatten().collect();
        let [first, last] = [first, last].map(|time| format_time(time.into()));
        let asked = asked.join(" ");
        note(&format!("0 packets; the archive covers {first} to {last}, you asked {asked}"));
    }

    /// Adds what could not be read of segments that have answered.
    pub(crate) fn fail(&mut self, errors: impl IntoIterator<Item = ArchiveError>) {
        for gap in errors.into_iter().map(Gap::unknown) {
            // Packets that cannot be read may have been wanted more than once.
            if self.gaps.iter().all(|other| other.what != gap.what) {
                self.gaps.push(gap);
            }
        }
    }

    /// Adds what was lost while the answer went on. What was removed in the meantime was seen.
    pub(crate) fn look_again(&mut self, archive: &Archive, query: &Query) {
        let is_told = |gap: &Gap| matches!(gap.cause, Cause::Lost | Cause::NotRecorded);
        // No packet is from these times, so that nothing is indexed in memory.
        match archive.survey((u64::MAX, Some(0))) {
            Ok(survey) => {
                self.gaps.retain(|gap| !is_told(gap));
                let now = survey.gaps.into_iter().filter(is_told);
                self.gaps.extend(now.filter(|gap| gap.touches(query.times())));
            }
            Err(error) => self.gaps.push(Gap::unknown(error)),
        }
    }

    /// Whether something could not be read.
    pub(crate) fn has_failed(&self) -> bool {
        self.gaps.iter().any(|gap| gap.error.is_some())
    }

    /// What is missing.
    pub(crate) fn missing(&self) -> Vec<Story> {
        missing::stories(&self.gaps)
    }

    /// Writes what is missing, a JSON object a line.
    pub(crate) fn write_missing(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for story in self.missing() {
            line(out, format_args!(r#"{{"incomplete":{}}}"#, story.json()))?;
        }
        Ok(())
    }

    /// Says what is missing; then an error that says that the answer is incomplete, if it is.
    pub(crate) fn finish(&self, allow: AllowArg) -> anyhow::Result<()> {
        missing::report(&self.missing(), allow)
    }
}

/// Packets that are read, at most, to tell what a filter does not see.
const UNSEEN_READ_MAX: u64 = 20_000;

/// Bytes of a filter, at most, that is asked once more to tell what it does not see.
const UNSEEN_TEXT_MAX: usize = 4_096;

/// A filter that looks behind one and two tags, too.
fn through_tags(filter: &str) -> String {
    format!("({filter}) or (vlan and ({filter})) or (vlan and vlan and ({filter}))")
}

/// That a filter does not look behind VLAN tags.
pub(crate) fn tagged_text((packets, is_exact): (u64, bool)) -> String {
    let most = if is_exact { "" } else { "up to " };
    format!(
        "{most}{} behind VLAN tags would match, too; this filter does not look there, as tcpdump \
         would not: --through-tags does",
        super::counted(packets, "packet")
    )
}

/// Whether a filter looks for headers that a VLAN tag would move, and has no `vlan`.
fn is_moved_by_tags(filter: &Filter) -> bool {
    let Some(expr) = filter.expr.as_ref().filter(|_| filter.syntax == Syntax::Pcap) else {
        return false;
    };
    let terms = expr.terms();
    let is_fixed = |test: &Test| {
        matches!(test, Test::Mac { .. } | Test::EtherMulticast | Test::Length(..) | Test::Vlan(_))
    };
    let is_moved = |term: &&Term| term.shift == Shift::Tags(0) && !is_fixed(&term.test);
    terms.iter().any(is_moved) && !terms.iter().any(|term| matches!(term.test, Test::Vlan(_)))
}

/// Packets of a segment with VLAN tags.
fn tagged(segment: &Segment) -> Result<u64, tapdex_engine::IndexError> {
    let Column::Known(column) = segment.columns().get(Field::Encap) else { return Ok(0) };
    Ok(column.any_of(&Encap::numbers(Encap::TAGGED).map(u128::from))?.count())
}

/// The rows of some records of a segment, ascending; `None` if these are all there are.
pub(crate) fn rows_of(
    segment: &Segment,
    records: &[u32],
) -> Result<Option<Vec<u32>>, ArchiveError> {
    let rows = segment.index().rows() as usize;
    if records.len() == rows {
        return Ok(None);
    }
    let damaged = |source| ArchiveError::Index { path: segment.path().to_owned(), source };
    let Some(row_map) = segment.index().row_map().map_err(damaged)? else {
        return Ok(Some(records.to_vec()));
    };
    // The map leads from rows to records only.
    let mut wanted = vec![false; rows];
    for &record in records {
        if let Some(wanted) = wanted.get_mut(record as usize) {
            *wanted = true;
        }
    }
    let mut found = Vec::with_capacity(records.len());
    for (row, record) in (0..).zip(row_map.iter()) {
        if wanted.get(record.map_err(damaged)? as usize) == Some(&true) {
            found.push(row);
        }
    }
    Ok(Some(found))
}

/// Writes a line and says so if that fails.
pub(crate) fn line(out: &mut dyn Write, text: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    writeln!(out, "{}", super::escaped(&text.to_string())).context(super::CANNOT_WRITE)
}
