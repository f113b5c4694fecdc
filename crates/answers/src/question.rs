//! A question as text: a filter, its language, and times.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::{Filter, FilterError, Syntax};
use tapdex_engine::time::{TimeRange, format_time, parse_time};

/// A question as people and programs write it. Everything may be left out: an empty filter asks for
/// all packets, and without times, these may be of any time.
///
/// ```
/// use tapdex_answers::question::Question;
///
/// let (q, from) = ("udp port 53".into(), Some("-1h".into()));
/// let question = Question { q, from, ..Question::default() };
/// let query = question.query(7_200_000_000_000)?;
/// assert_eq!((query.text(), query.times().from_ns), ("udp port 53", 3_600_000_000_000));
/// # Ok::<(), tapdex_answers::question::QuestionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The filter.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub q: String,
    /// Its language; without one, it is recognised from the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syntax: Option<Language>,
    /// The first time that packets may be from, in any form that `--from` takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The time that packets have to be from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether times without a zone are UTC, and not local.
    #[serde(default, skip_serializing_if = "is_false")]
    pub utc: bool,
    /// Whether to look behind VLAN tags, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub through_tags: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The language of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// pcap-filter(7), as in tcpdump.
    Pcap,
    /// Display filters of Wireshark.
    Wireshark,
}

impl From<Language> for Syntax {
    fn from(language: Language) -> Self {
        match language {
            Language::Pcap => Self::Pcap,
            Language::Wireshark => Self::Wireshark,
        }
    }
}

/// Why a question cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionError {
    /// The filter is not understood. Correct it at the span.
    #[error("{error}")]
    Filter {
        /// What is wrong, and where in the text.
        error: FilterError,
        /// The filter.
        text: String,
    },
    /// A time is not understood. Write it as `--from` takes it.
    #[error("{name} '{text}': {reason}")]
    Time {
        /// `from` or `to`.
        name: &'static str,
        /// The time.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// No time is from `from` on and before `to`.
    #[error("no packet is from {from} on and from before {to}")]
    NoTime {
        /// The first time.
        from: String,
        /// The end.
        to: String,
    },
}

impl QuestionError {
    /// Where the filter is wrong, in bytes.
    pub fn span(&self) -> Option<Range<usize>> {
        match self {
            Self::Filter { error, .. } => Some(error.span.clone()),
            _ => None,
        }
    }
}

impl Question {
    /// The same question as a query has, with absolute times: every archive understands it alike.
    pub fn of(query: &Query) -> Self {
        let TimeRange { from_ns, to_ns } = query.times();
        Self {
            q: query.text().to_owned(),
            syntax: Some(match query.filter().syntax() {
                Syntax::Pcap => Language::Pcap,
                Syntax::Wireshark => Language::Wireshark,
            }),
            from: (from_ns > 0).then(|| format_time(from_ns)),
            to: to_ns.map(format_time),
            utc: true,
            through_tags: false,
        }
    }

    /// The filter, parsed. Relative times count from `now_ns`.
    pub fn filter(&self, now_ns: u64) -> Result<Filter, QuestionError> {
        let filter = match self.syntax {
            None => Filter::parse(&self.q, now_ns),
            Some(language) => Filter::parse_as(language.into(), &self.q, now_ns),
        };
        let filter = match self.through_tags {
            true => filter.and_then(|filter| filter.through_tags()),
            false => filter,
        };
        filter.map_err(|error| QuestionError::Filter { error, text: self.q.clone() })
    }

    /// The times, parsed.
    pub fn times(&self, now_ns: u64) -> Result<TimeRange, QuestionError> {
        let time = |name, text: &Option<String>| {
            let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty());
            let parse = |text: &str| {
                parse_time(text, now_ns, self.utc).map_err(|error| QuestionError::Time {
                    name,
                    text: text.to_owned(),
                    reason: error.to_string(),
                })
            };
            text.map(parse).transpose()
        };
        let (from, to) = (time("from", &self.from)?, time("to", &self.to)?);
        Ok(TimeRange { from_ns: from.unwrap_or(0), to_ns: to })
    }

    /// The query. Relative times count from `now_ns`.
    pub fn query(&self, now_ns: u64) -> Result<Query, QuestionError> {
        let query = Query::new(self.filter(now_ns)?, self.times(now_ns)?);
        check_times(&query)?;
        Ok(query)
    }
}

/// An error if no packet can be from the times of a query.
pub fn check_times(query: &Query) -> Result<(), QuestionError> {
    match query.times() {
        TimeRange { from_ns, to_ns: Some(to_ns) } if from_ns >= to_ns => {
            Err(QuestionError::NoTime { from: format_time(from_ns), to: format_time(to_ns) })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_767_600_000_000_000_000;

    #[test]
    fn a_query_and_its_question_ask_the_same() {
        for (q, from, to) in [
            ("", None, None),
            ("host 10.1.2.3 and tcp port 443", Some("-15m"), Some("now")),
            ("ip.addr == 10.0.0.0/8 && tcp.port in {80, 443}", None, Some("2026-01-02T03:04:05Z")),
            ("after 3h ago and port 80", Some("1767500000.5"), None),
        ] {
            let text = |text: &str| text.to_owned();
            let question = Question {
                q: q.to_owned(),
                from: from.map(text),
                to: to.map(text),
                ..Question::default()
            };
            let query = question.query(NOW).unwrap();
            let again = Question::of(&query).query(0).unwrap();
            assert_eq!((query.text(), query.times()), (again.text(), again.times()), "{q}");
            assert_eq!(query.filter().syntax(), again.filter().syntax());
        }
    }

    #[test]
    fn errors_say_where() {
        let wrong = |q: &str| Question { q: q.to_owned(), ..Question::default() };
        let error = wrong("tcp port htpp").query(NOW).unwrap_err();
        assert_eq!(error.span(), Some(9..13), "{error}");
        let times = Question {
            from: Some("2026-01-02T00:00:00Z".into()),
            to: Some("2026-01-01T00:00:00Z".into()),
            ..Question::default()
        };
        assert!(matches!(times.query(NOW), Err(QuestionError::NoTime { .. })));
        let time = Question { to: Some("soon".into()), ..Question::default() };
        assert!(matches!(time.query(NOW), Err(QuestionError::Time { name: "to", .. })));
    }
}
