//! Asking a whole archive.
//!
//! [`Archive::search`] opens the segments and finds out what the archive lacks from the times that
//! were asked for. The [`Search`] then gives
//!
//! | what | how | order |
//! |---|---|---|
//! | the number of packets | [`Search::count`] | |
//! | their numbers in each segment | [`Search::records`] | segments by time |
//! | the packets | [`Search::packets`], a stream | time |
//! | the values of a field | [`Answers::top`] | most frequent first |
//! | packets over time | [`Answers::over_time`] | time |
//! | conversations | [`Search::rows`] and [`Answers::flows`] | bytes, packets, duration, start |
//!
//! Segments are asked in parallel if packets have to be read, and skipped if their times or keys
//! rule them out. The stream asks them as it gets to their times: the first packets come at once,
//! and a limit ends the work early. A [`Control`] reports the progress of a search, and cancels it.
//!
//! ```
//! use tapdex_engine::archive::{Archive, Ingest, Input};
//! use tapdex_engine::query::{Query, filter::Filter};
//! use tapdex_engine::time::TimeRange;
//! # use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
//! # use tapdex_engine::traffic::{Profile, Traffic};
//! # let folder = tempfile::tempdir()?;
//! # let capture = folder.path().join("a.pcap");
//! # let (file, ethernet) = (std::fs::File::create(&capture)?, Interface::new(1, 1_000_000_000));
//! # let mut writer = CaptureWriter::new(file, FileFormat::Pcap, &[ethernet], "")?;
//! # let mut traffic = Traffic::new(&Profile { packets: 1_000, ..Profile::default() });
//! # while let Some(packet) = traffic.next() {
//! #     writer.packet(0, packet.time_ns, packet.wire_len, packet.data)?;
//! # }
//! # drop(writer.finish()?);
//!
//! let archive = Archive::create(&folder.path().join("archive"), None)?;
//! Ingest::new(&archive).run(&[Input::File(capture)])?;
//!
//! let query = Query::new(Filter::parse("tcp or udp", 0)?, TimeRange::ALL);
//! let search = archive.search(&query)?.with_limit(5);
//! let (mut packets, mut found) = (search.packets(), 0);
//! while let Some(packet) = packets.next()? {
//!     println!("{} {} bytes", packet.record.time_ns, packet.record.wire_len);
//!     found += 1;
//! }
//! assert!(found == 5 && packets.finish()?.is_complete());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use super::answer::{Answer, Wanted, count as count_rows, records_of_rows};
use super::control::Control;
use super::filter::FilterError;
use super::packets::PacketStream;
use super::question::{Query, Refusal};
use crate::archive::{Archive, ArchiveError, Cause, Gap, Segment, UnreadPackets};
use crate::time::TimeRange;

/// With this many segments or more, several are asked at a time even if no packets have to be read.
/// Starting threads takes longer than asking a few segments.
const SEGMENTS_PARALLEL: usize = 32;
/// Rows that are turned into records by several threads, at least.
const ROWS_PARALLEL: u64 = 1 << 16;

/// Why a search gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The archive could not be read. What is wrong with single segments is a [`Gap`] instead.
    #[error("{0}")]
    Archive(#[source] ArchiveError),
    /// The filter cannot be compiled for any link of the archive. Correct it, or ask for something
    /// else.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The packets belong to more conversations than can be asked for. Narrow the filter or the
    /// times.
    #[error("packets of more than {most} conversations match")]
    TooManyConversations {
        /// How many can be asked for.
        most: usize,
    },
    /// The conversations cannot be asked for.
    #[error("{0}")]
    Conversations(#[source] FilterError),
    /// It was told to stop by [`Control::cancel`].
    #[error("the search was cancelled")]
    Cancelled,
}

impl From<ArchiveError> for SearchError {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Interrupted => Self::Cancelled,
            error => Self::Archive(error),
        }
    }
}

impl Archive {
    /// Opens what a question needs: the segments, and what the archive lacks. Nothing is asked yet.
    ///
    /// Segments stay open for the next question, which also closes those that are gone. A program
    /// that asks rarely calls [`Archive::close_segments`] in between.
    pub fn search<'q>(&self, query: &'q Query) -> Result<Search<'q>, SearchError> {
        let survey = self.survey(query.times())?;
        let mut gaps = survey.gaps;
        gaps.retain(|gap| gap.touches(query.times()));
        Ok(Search {
            query,
            segments: survey.segments,
            gaps,
            control: Control::default(),
            limit: None,
        })
    }
}

/// A question to an archive, ready to be asked.
#[derive(Debug)]
pub struct Search<'q> {
    pub(super) query: &'q Query,
    /// By the time of their first packet.
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) gaps: Vec<Gap>,
    pub(super) control: Control,
    pub(super) limit: Option<u64>,
}

impl<'q> Search<'q> {
    /// A search of some segments, in the order of their first packets. What else the archive may
    /// lack is not looked for.
    pub fn of(query: &'q Query, mut segments: Vec<Arc<Segment>>) -> Self {
        segments.sort_by_key(|segment| segment.note().time_min);
        Self { query, segments, gaps: Vec::new(), control: Control::default(), limit: None }
    }

    /// Limits the stream to the earliest `packets` packets.
    #[must_use]
    pub fn with_limit(self, packets: u64) -> Self {
        Self { limit: Some(packets), ..self }
    }

    /// Lets another thread cancel the search and see its progress.
    #[must_use]
    pub fn with_control(self, control: &Control) -> Self {
        Self { control: control.clone(), ..self }
    }

    /// The segments that are asked, by the time of their first packet.
    pub fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// How many packets match.
    pub fn count(&self) -> Result<Answers, SearchError> {
        self.ask(Wanted::Count)
    }

    /// Which packets match.
    pub fn records(&self) -> Result<Answers, SearchError> {
        self.ask(Wanted::Records)
    }

    /// Which packets match, for [`Answers::top`]: those that the index decides stay rows of it.
    pub fn rows(&self) -> Result<Answers, SearchError> {
        self.ask(Wanted::Rows)
    }

    /// Which packets match, for [`Answers::flows`]: where the index can sum up conversations, they
    /// stay rows of the index.
    pub fn rows_of_flows(&self) -> Result<Answers, SearchError> {
        self.ask(Wanted::RowsOfFlows)
    }

    /// The packets that match, in order of time. Segments are asked as the stream gets to them.
    pub fn packets(&self) -> PacketStream<'_> {
        PacketStream::asking(self)
    }

    fn ask(&self, wanted: Wanted) -> Result<Answers, SearchError> {
        self.control.set_segments(self.segments.len());
        let asked = ask_all(self.query, &self.segments, wanted, &self.control);
        let mut answers = Answers::new(self);
        for (segment, answer) in self.segments.iter().zip(asked) {
            answers.add(segment, answer)?;
        }
        answers.check_refused()?;
        Ok(answers)
    }
}

/// Asks segments, several at a time if that is faster.
pub(super) fn ask_all(
    query: &Query,
    segments: &[Arc<Segment>],
    wanted: Wanted,
    control: &Control,
) -> Vec<Result<Answer, ArchiveError>> {
    use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
    let ask = |segment: &Arc<Segment>| {
        if control.is_cancelled() {
            return Err(ArchiveError::Interrupted);
        }
        let answer = query.ask(segment, wanted, control);
        control.add_asked();
        answer
    };
    match segments.len() > 1 && (segments.len() >= SEGMENTS_PARALLEL || query.reads_packets()) {
        true => segments.par_iter().map(ask).collect(),
        false => segments.iter().map(ask).collect(),
    }
}

/// The answers of all segments of an archive.
#[derive(Debug)]
pub struct Answers {
    /// The segments that answered, by the time of their first packet.
    pub segments: Vec<(Arc<Segment>, Answer)>,
    /// What may be missing from the times that were asked for.
    pub gaps: Vec<Gap>,
    times: TimeRange,
    pub(super) control: Control,
    /// Segments of the archive.
    len: usize,
}

impl Answers {
    pub(super) fn new(search: &Search<'_>) -> Self {
        Self {
            segments: Vec::with_capacity(search.segments.len()),
            gaps: search.gaps.clone(),
            times: search.query.times(),
            control: search.control.clone(),
            len: search.segments.len(),
        }
    }

    /// The same without the answers of segments.
    pub(super) fn without_segments(&self) -> Self {
        let (gaps, control) = (self.gaps.clone(), self.control.clone());
        Self { segments: Vec::new(), gaps, control, ..*self }
    }

    /// Adds the answer of a segment.
    pub(super) fn add(
        &mut self,
        segment: &Arc<Segment>,
        answer: Result<Answer, ArchiveError>,
    ) -> Result<(), SearchError> {
        match answer {
            Ok(mut answer) => {
                self.add_unread(std::mem::take(&mut answer.unread));
                self.segments.push((Arc::clone(segment), answer));
            }
            Err(error @ ArchiveError::Interrupted) => return Err(error.into()),
            Err(error) => self.gaps.push(Gap::of_lost(segment, error)),
        }
        Ok(())
    }

    /// Replaces an earlier answer of the same segment.
    pub(super) fn replace(&mut self, segment: &Arc<Segment>, mut answer: Answer) {
        self.add_unread(std::mem::take(&mut answer.unread));
        let known = self.segments.iter_mut().find(|(known, _)| Arc::ptr_eq(known, segment));
        if let Some((_, known)) = known {
            answer.read = answer.read.saturating_add(known.read);
            *known = answer;
        }
    }

    /// An error if the filter cannot be compiled for any link. If it can for some, the packets of
    /// the others are left out: see [`refused`](Self::refused).
    pub(super) fn check_refused(&self) -> Result<(), SearchError> {
        let was_asked = |(_, answer): &(Arc<Segment>, Answer)| {
            answer.count > 0 || (answer.refused.is_empty() && !answer.pruned_by_time)
        };
        match self.refused().into_iter().next() {
            Some(refusal) if !self.segments.iter().any(was_asked) => Err(refusal.into()),
            _ => Ok(()),
        }
    }

    /// The link types that the filter cannot be compiled for. Their packets are left out.
    pub fn refused(&self) -> Vec<Refusal> {
        let mut refused: Vec<Refusal> = Vec::new();
        for refusal in self.segments.iter().flat_map(|(_, answer)| &answer.refused) {
            if !refused.contains(refusal) {
                refused.push(refusal.clone());
            }
        }
        refused
    }

    /// Whether libpcap says that no packet can ever match the filter.
    pub fn rejects_all(&self, query: &Query) -> bool {
        let rejects = |(segment, _): &(Arc<Segment>, Answer)| query.rejects_all(segment);
        self.count() == 0 && !self.segments.is_empty() && self.segments.iter().all(rejects)
    }

    /// How many packets match. If the search had a limit, there may be more.
    pub fn count(&self) -> u64 {
        self.segments.iter().map(|(_, answer)| answer.count).sum()
    }

    /// Whether nothing is missing from the times that were asked for, and the filter could be
    /// compiled for every link.
    pub fn is_complete(&self) -> bool {
        self.gaps.is_empty() && self.refused().is_empty()
    }

    /// The segments that have packets that match, with those packets.
    pub fn found(&self) -> impl Iterator<Item = (&Arc<Segment>, &[u32])> {
        let found = self.segments.iter().map(|(segment, a)| (segment, a.records.as_slice()));
        found.filter(|(_, records)| !records.is_empty())
    }

    /// Turns rows into records. A segment whose index is damaged becomes a [`Gap`].
    pub(super) fn rows_to_records(&mut self) {
        use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};
        let turn = |(segment, answer): &mut (Arc<Segment>, Answer)| {
            if answer.rows.is_empty() {
                return None;
            }
            match records_of_rows(segment, &std::mem::take(&mut answer.rows)) {
                Ok(records) if answer.records.is_empty() => answer.records = records,
                Ok(records) => {
                    answer.records.extend(records);
                    answer.records.sort_unstable();
                }
                Err(error) => return Some(Gap::of_lost(segment, error)),
            }
            None
        };
        let rows: u64 = self.segments.iter().map(|(_, answer)| count_rows(&answer.rows)).sum();
        let gaps: Vec<Gap> = match rows >= ROWS_PARALLEL {
            true => self.segments.par_iter_mut().filter_map(turn).collect(),
            false => self.segments.iter_mut().filter_map(turn).collect(),
        };
        self.add_gaps(gaps);
    }

    /// The packets, in order of time; [`Search::records`] has found them.
    pub fn packets(&self) -> PacketStream<'_> {
        PacketStream::of_answers(self)
    }

    /// (segments searched, segments in total); a segment counts as searched if its bitmaps or
    /// packets were looked at.
    pub fn segments_read(&self) -> (usize, usize) {
        let was_read = |answer: &Answer| !answer.pruned_by_time && !answer.pruned_by_keys;
        let read = self.segments.iter().filter(|(_, answer)| was_read(answer)).count();
        let is_damaged = |gap: &&Gap| {
            matches!(
                gap.error.as_deref(),
                Some(ArchiveError::Index { .. } | ArchiveError::BadNote { .. })
            )
        };
        // Those that could not even be opened are known by their errors alone.
        let was_opened = |gap: &&Gap| gap.span().is_some() || self.has_answered(gap);
        let damaged = self.gaps.iter().filter(is_damaged);
        (read, self.len + damaged.filter(|gap| !was_opened(gap)).count())
    }

    /// Whether the index that a gap is about is that of a segment that has answered.
    fn has_answered(&self, gap: &Gap) -> bool {
        let path = match gap.error.as_deref() {
            Some(ArchiveError::Index { path, .. } | ArchiveError::BadNote { path, .. }) => path,
            _ => return false,
        };
        self.segments.iter().any(|(segment, _)| segment.path() == path)
    }

    /// The times of all segments' packets; `None` if there are none.
    pub fn covered(&self) -> Option<(u64, u64)> {
        let notes = self.segments.iter().map(|(segment, _)| segment.note());
        let spans = notes.filter(|note| note.records > 0).map(|n| (n.time_min, n.time_max));
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The part of the requested times that the searched segments cover; `None` if none was
    /// searched.
    pub fn asked_times(&self) -> Option<(u64, u64)> {
        let asked = self.segments.iter().filter(|(_, answer)| !answer.pruned_by_time);
        let spans = asked.map(|(segment, _)| (segment.note().time_min, segment.note().time_max));
        let (first, last) = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
        let first = first.max(self.times.from_ns);
        let end = self.times.to_ns.map_or(u64::MAX, |to| to.saturating_sub(1));
        Some((first, last.min(end).max(first)))
    }

    /// Adds what is missing for another reason.
    pub fn add_gaps(&mut self, gaps: impl IntoIterator<Item = Gap>) {
        for gap in gaps {
            // What cannot be read may have been wanted more than once.
            let is_same = |other: &Gap| match gap.error {
                Some(_) => other.what == gap.what,
                None => {
                    (other.cause, other.span(), &other.what) == (gap.cause, gap.span(), &gap.what)
                }
            };
            if !self.gaps.iter().any(is_same) {
                self.gaps.push(gap);
            }
        }
    }

    /// Adds what could not be read from segments that have answered.
    pub fn add_failed(&mut self, errors: impl IntoIterator<Item = ArchiveError>) {
        self.add_gaps(errors.into_iter().map(Gap::unknown));
    }

    pub(super) fn add_unread(&mut self, unread: UnreadPackets) {
        self.add_failed(unread.into_errors());
    }

    /// Checks for losses again, since recording went on during the search.
    pub fn look_again(&mut self, archive: &Archive) {
        let is_told = |gap: &Gap| matches!(gap.cause, Cause::Lost | Cause::NotRecorded);
        // No packet is from these times, so nothing is indexed in memory.
        match archive.survey(TimeRange::NONE) {
            Ok(survey) => {
                self.gaps.retain(|gap| !is_told(gap));
                let now = survey.gaps.into_iter().filter(is_told);
                self.gaps.extend(now.filter(|gap| gap.touches(self.times)));
            }
            Err(error) => self.gaps.push(Gap::unknown(error)),
        }
    }
}
