//! Reports what is missing from an answer.

use tapdex_engine::archive::{Cause, Gap};
use tapdex_engine::time::format_time;

use super::{Incomplete, counted, json, note};

/// Whether an answer may lack something.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct AllowArg {
    /// Exit with 0 even if packets are missing; they are still reported.
    #[arg(long)]
    pub(crate) allow_incomplete: bool,
}

/// What is missing for one reason: lost packets and the like are summed up, while each fault that
/// can be repaired has an entry of its own.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) cause: Cause,
    /// `None` if the times are not known.
    span: Option<(u64, u64)>,
    packets: Option<u64>,
    /// Packets that were counted, if others were not.
    at_least: u64,
    bytes: Option<u64>,
    /// How many intervals there are.
    intervals: u64,
    /// How long these are together, in nanoseconds.
    len_ns: u64,
    what: String,
}

/// What is missing.
pub(crate) fn stories<'a>(gaps: impl IntoIterator<Item = &'a Gap>) -> Vec<Story> {
    let mut stories: Vec<Story> = Vec::new();
    for gap in gaps {
        let len_ns = gap.span().map_or(0, |(from, to)| to - from.min(to));
        let is_sum = matches!(gap.cause, Cause::Lost | Cause::Removed | Cause::NotRecorded);
        let is_same = |story: &&mut Story| (story.cause, &story.what) == (gap.cause, &gap.what);
        let same = stories.iter_mut().find(|story| is_sum && is_same(story));
        let Some(story) = same else {
            stories.push(Story {
                cause: gap.cause,
                span: gap.span(),
                packets: gap.packets,
                at_least: gap.packets.unwrap_or(0),
                bytes: gap.bytes,
                intervals: 1,
                len_ns,
                what: gap.what.clone(),
            });
            continue;
        };
        story.span = story.span.zip(gap.span()).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
        story.packets = story.packets.zip(gap.packets).map(|(a, b)| a.saturating_add(b));
        story.at_least = story.at_least.saturating_add(gap.packets.unwrap_or(0));
        story.intervals += 1;
        story.len_ns = story.len_ns.saturating_add(len_ns);
    }
    stories
}

impl Story {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let packets = self.packets.map(|packets| counted(packets, "packet"));
        let known = match (&packets, self.at_least) {
            (Some(packets), _) => packets.clone(),
            (None, 0) => "an unknown number of packets".to_owned(),
            (None, packets) => format!("at least {}", counted(packets, "packet")),
        };
        let when = match self.span {
            Some((from, to)) => {
                let [from, to] = [from, to].map(format_time);
                match self.intervals {
                    1 => format!(", from {from} to {to}"),
                    n => format!(", in {n} intervals between {from} and {to}"),
                }
            }
            None => String::new(),
        };
        match self.cause {
            Cause::Lost => format!("{known} lost while recording{when}"),
            Cause::Removed => format!("{known} removed by retention{when}"),
            Cause::NotRecorded => {
                let what = if self.what.is_empty() { "nothing was recorded" } else { &self.what };
                format!("{what} for {:.3} s{when}", self.len_ns as f64 / 1e9)
            }
            _ => {
                let packets = packets.map(|packets| format!("; {packets} missing"));
                let bytes =
                    self.bytes.map(|bytes| format!("; {} not indexed", counted(bytes, "byte")));
                [Some(self.what.clone()), packets, bytes].into_iter().flatten().collect()
            }
        }
    }

    /// For programs.
    pub(crate) fn json(&self) -> String {
        json::text(&self.line())
    }

    /// The same, as a part of something else.
    fn line(&self) -> json::Missing<'_> {
        json::Missing {
            cause: self.cause.name(),
            packets: self.packets,
            bytes: self.bytes,
            from: self.span.map(|(from, _)| json::Time(from)),
            to: self.span.map(|(_, to)| json::Time(to)),
            intervals: self.intervals,
            what: &self.what,
        }
    }
}

/// What is missing, for programs.
pub(crate) fn lines(stories: &[Story]) -> Vec<json::Missing<'_>> {
    stories.iter().map(Story::line).collect()
}

/// What is missing, as a list of JSON.
pub(crate) fn json_list(stories: &[Story]) -> String {
    json::text(&lines(stories))
}

/// How much is missing, in a few words.
fn sum(stories: &[Story]) -> String {
    let known = stories.iter().map(|story| story.at_least).fold(0, u64::saturating_add);
    match (known, stories.iter().all(|story| story.packets.is_some())) {
        (0, _) => "packets are missing, see above".to_owned(),
        (1, true) => "1 packet is missing, see above".to_owned(),
        (n, true) => format!("{n} packets are missing, see above"),
        (n, false) => format!("at least {n} packets are missing, see above"),
    }
}

/// Reports what is missing; returns an error if the answer is incomplete and that is not allowed.
pub(crate) fn report(stories: &[Story], allow: AllowArg) -> anyhow::Result<()> {
    for story in stories {
        note(&story.text());
    }
    end(stories, allow)
}

/// An error if packets are missing and that is not allowed.
pub(crate) fn end(stories: &[Story], allow: AllowArg) -> anyhow::Result<()> {
    match stories.is_empty() || allow.allow_incomplete {
        true => Ok(()),
        false => Err(Incomplete(sum(stories)).into()),
    }
}
