//! Times: what they are, how people write them, and ranges of them.
//!
//! Everywhere in this crate, a time is a [`u64`]: the nanoseconds since 1970-01-01T00:00:00Z. It
//! reaches to the year 2554. An earlier time counts as the first one, a later time as the last one.
//!
//! | written | meaning |
//! |---|---|
//! | `2012-11-03T11:05:00-07:00`, `2012-11-03T18:05:00.25Z` | RFC 3339, with a zone |
//! | `2012-11-03 11:05:00`, `2012-11-03 11:05`, `2012-11-03` | local time, or UTC where asked for |
//! | `1351965900.25` | seconds since 1970 |
//! | `now` | now |
//! | `-15m`, `3h ago` | so long before now; units `ns us ms s m h d w` |
//!
//! ```
//! use tapdex_engine::time::{format_time, parse_time};
//!
//! let time = parse_time("2012-11-03T11:05:00-07:00", 0, true)?;
//! assert_eq!(format_time(time), "2012-11-03T18:05:00.000000000Z");
//! assert_eq!(parse_time("90s ago", time, true)?, time - 90_000_000_000);
//! # Ok::<(), tapdex_engine::time::TimeError>(())
//! ```

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Why a time was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// It has none of the known forms.
    #[error(
        "`{text}` is not a time: write 2012-11-03T11:05:00Z, `2012-11-03 11:05:00`, seconds since \
         1970, `now`, or a span like `15m ago`"
    )]
    Form {
        /// What was written.
        text: String,
    },
    /// It has the form of a time, but is not a valid one.
    #[error("`{text}` is not a time that there is: {reason}")]
    Value {
        /// What was written.
        text: String,
        /// What is wrong.
        reason: String,
    },
}

/// A range of times, half open. The default is all times.
///
/// ```
/// use tapdex_engine::time::TimeRange;
///
/// let range = TimeRange { from_ns: 100, to_ns: Some(200) };
/// assert!(range.contains(100) && !range.contains(200));
/// assert!(range.overlaps(150, 900) && !range.overlaps(200, 900));
/// assert_eq!(range.and(TimeRange { from_ns: 150, to_ns: None }).from_ns, 150);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeRange {
    /// The first time in the range.
    pub from_ns: u64,
    /// The first time after the range; `None` if it has no end.
    pub to_ns: Option<u64>,
}

impl TimeRange {
    /// All times.
    pub const ALL: Self = Self { from_ns: 0, to_ns: None };

    /// No time.
    pub const NONE: Self = Self { from_ns: u64::MAX, to_ns: Some(0) };

    /// Whether a time is in the range.
    pub fn contains(self, ns: u64) -> bool {
        self.from_ns <= ns && self.to_ns.is_none_or(|to| ns < to)
    }

    /// Whether the range has one of the times from `first_ns` to `last_ns`.
    pub fn overlaps(self, first_ns: u64, last_ns: u64) -> bool {
        self.from_ns <= last_ns && self.to_ns.is_none_or(|to| first_ns < to)
    }

    /// The times that are in both ranges.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            from_ns: self.from_ns.max(other.from_ns),
            to_ns: [self.to_ns, other.to_ns].into_iter().flatten().min(),
        }
    }

    /// Whether no time is in the range.
    pub fn is_empty(self) -> bool {
        self.to_ns.is_some_and(|to| to <= self.from_ns)
    }
}

const SECOND: i128 = 1_000_000_000;
/// The first moment that cannot be written as a date.
const YEAR_10000: i128 = 253_402_300_800 * SECOND;

/// Units and their nanoseconds.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
    ("d", 86_400 * SECOND),
    ("w", 7 * 86_400 * SECOND),
];

/// Parses a time, with `now_ns` as the present. Without a zone it is local, or UTC if `utc`.
pub fn parse_time(text: &str, now_ns: u64, utc: bool) -> Result<u64, TimeError> {
    let ns = parse(text.trim(), now_ns.into(), utc)?;
    Ok(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
}

fn parse(text: &str, now_ns: i128, utc: bool) -> Result<i128, TimeError> {
    if text == "now" {
        return Ok(now_ns);
    }
    if let Some(span) = text.strip_suffix("ago") {
        return span_ns(span.trim_end(), text).and_then(|span| before(now_ns, span, text));
    }
    if let Some(span) = text.strip_prefix('-') {
        return span_ns(span, text).and_then(|span| before(now_ns, span, text));
    }
    if text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    {
        let time = decimal(text, SECOND).ok_or_else(|| form(text))?;
        if time >= YEAR_10000 {
            let reason = "seconds since 1970 are expected, and that is after the year 9999; \
                          milliseconds are written with a point, as in 1351965900.250";
            return Err(value(text, reason));
        }
        return Ok(time);
    }
    let zoned = text
        .rfind(['T', 't', ' '])
        .and_then(|at| text.get(at..))
        .is_some_and(|clock| clock.contains(['Z', 'z', '+', '-']));
    if zoned {
        let time: Timestamp =
            padded(text).parse().map_err(|error: jiff::Error| value(text, error))?;
        return Ok(time.as_nanosecond());
    }
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(form(text));
    }
    let civil: DateTime = padded(text).parse().map_err(|error: jiff::Error| value(text, error))?;
    let zone = if utc { TimeZone::UTC } else { local_zone(text)? };
    let zoned: Zoned = civil.to_zoned(zone).map_err(|error: jiff::Error| value(text, error))?;
    Ok(zoned.timestamp().as_nanosecond())
}

/// The time zone of this machine, or of the user. If none is set, it is UTC.
fn local_zone(text: &str) -> Result<TimeZone, TimeError> {
    match (TimeZone::try_system(), std::env::var("TZ")) {
        (Ok(zone), _) => Ok(zone),
        (Err(_), Ok(name)) if !name.is_empty() => {
            let reason = format!("the time zone TZ={name} is not known; mend it, or use --utc");
            Err(value(text, reason))
        }
        (Err(_), _) => Ok(TimeZone::UTC),
    }
}

/// A time as RFC 3339, in UTC, with nine digits after the second.
pub fn format_time(ns: u64) -> String {
    match Timestamp::from_nanosecond(ns.into()) {
        Ok(time) => {
            let civil = TimeZone::UTC.to_datetime(time);
            let (year, month, day) = (civil.year(), civil.month(), civil.day());
            let (hour, minute, second) = (civil.hour(), civil.minute(), civil.second());
            let fraction = civil.subsec_nanosecond();
            format!(
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z"
            )
        }
        Err(_) => format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000),
    }
}

/// The same with two digits for the hour: people write `8:40:53`.
fn padded(text: &str) -> String {
    match text.find(['T', 't', ' ']).map(|at| text.split_at(at + 1)) {
        Some((date, clock)) => {
            let clock = clock.trim_start();
            let short = clock.as_bytes().get(1) == Some(&b':');
            format!("{date}{}{clock}", if short { "0" } else { "" })
        }
        None => text.to_owned(),
    }
}

fn span_ns(span: &str, text: &str) -> Result<i128, TimeError> {
    let digits = span.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(span.len());
    let (number, unit) = span.split_at(digits);
    let unit = unit.trim_start();
    let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| form(text))?;
    decimal(number, *unit_ns).ok_or_else(|| form(text))
}

/// A decimal number times a unit; fractions of a nanosecond are dropped.
fn decimal(number: &str, unit_ns: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return None;
    }
    let whole_ns = whole.parse::<i128>().ok()?.checked_mul(unit_ns)?;
    // Digits after the sixteenth are less than a nanosecond, even of a week.
    let fraction = fraction.get(..16).unwrap_or(fraction);
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<i128>().ok()? };
    whole_ns.checked_add(part.checked_mul(unit_ns)?.checked_div(scale)?)
}

fn before(now_ns: i128, span: i128, text: &str) -> Result<i128, TimeError> {
    now_ns.checked_sub(span).ok_or_else(|| form(text))
}

fn form(text: &str) -> TimeError {
    TimeError::Form { text: text.to_owned() }
}

fn value(text: &str, reason: impl ToString) -> TimeError {
    TimeError::Value { text: text.to_owned(), reason: reason.to_string() }
}
