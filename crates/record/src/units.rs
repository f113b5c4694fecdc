//! Sizes, times and shares, as people write them.

use std::time::Duration;

/// The error for a text that cannot be parsed, with what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}; expected {expected}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    expected: &'static str,
}

/// Bytes: `500000`, `64KiB`, `1.5GiB`, `200MB`; `K`, `M`, `G` and `T` alone are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let error = || UnitError {
        text: text.to_owned(),
        what: "size",
        expected: "bytes as in 500000, 64MiB, 1.5GiB or 200MB",
    };
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(error()),
    };
    scale(number, factor).ok_or_else(error)
}

/// Bytes with a unit: a bare number would be bytes here, and KiB or MiB to other programs.
pub fn parse_size_with_unit(text: &str) -> Result<u64, UnitError> {
    match text.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        true => Err(UnitError {
            text: text.to_owned(),
            what: "size with a unit",
            expected: "64MiB or the like",
        }),
        false => parse_size(text),
    }
}

/// A time: `90s`, `15min`, `36h`, `30d`, `2w`; `m` is minutes.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let error = || UnitError {
        text: text.to_owned(),
        what: "time",
        expected: "a number and a unit as in 60s, 15min, 36h or 30d",
    };
    let (number, unit) = split(text);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return Err(error()),
    };
    scale(number, millis).map(Duration::from_millis).ok_or_else(error)
}

/// Where a number ends and its unit starts.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// A decimal number times a factor, cut to a whole number.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 9 || number.ends_with('.') {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let mut sum = u128::from(whole) * u128::from(factor);
    if !fraction.is_empty() {
        let part: u64 = fraction.parse().ok()?;
        let unit = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        sum += u128::from(part) * u128::from(factor) / unit;
    }
    u64::try_from(sum).ok()
}

/// When a recording is closed: whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// After this many bytes.
    pub bytes: u64,
    /// After this many packets.
    pub packets: u64,
    /// This long after its first packet.
    pub time: Duration,
}

/// As many packets as one index takes.
const PACKETS_MAX: u64 = 1 << 22;

impl Default for Rotation {
    fn default() -> Self {
        Self { bytes: 1 << 30, packets: PACKETS_MAX, time: Duration::from_secs(900) }
    }
}

impl Rotation {
    /// Sizes, times and numbers of packets, in any order: `1GiB,60s`, `200MB,1000000packets`.
    /// Limits that are not given have their defaults.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let mut rotation = Self::default();
        for part in text.split(',').map(str::trim) {
            let packets = part.strip_suffix("packets").or_else(|| part.strip_suffix("packet"));
            if let Some(number) = packets {
                rotation.packets = parse_size(number.trim())?;
            } else if let Ok(time) = parse_duration(part) {
                rotation.time = time;
            } else {
                rotation.bytes = parse_size_with_unit(part).map_err(|_| UnitError {
                    text: part.to_owned(),
                    what: "limit of a recording",
                    expected: "a size, a time or packets, as in 1GiB,15min or 100000packets",
                })?;
            }
        }
        rotation.packets = rotation.packets.clamp(1, PACKETS_MAX);
        rotation.bytes = rotation.bytes.max(1);
        Ok(rotation)
    }
}

/// The least limit in bytes: a smaller one is most likely a mistake.
const LIMIT_MIN: u64 = 10 << 20;

/// How much may be kept: when a limit is exceeded, the oldest recordings are removed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Retention {
    /// Bytes of the archive's packets and indexes.
    pub bytes: Option<u64>,
    /// Percent of the disk that may be in use, by any program.
    pub percent: Option<f64>,
    /// Recordings whose last packet is older are removed.
    pub age: Option<Duration>,
    /// Recordings.
    pub segments: Option<u64>,
}

impl Retention {
    /// Adds a limit: a size, or percent of the disk. Of two limits, the smaller one holds.
    pub fn limit(&mut self, text: &str) -> Result<(), UnitError> {
        if let Some(number) = text.trim().strip_suffix('%') {
            let percent: Option<f64> = number.trim().parse().ok();
            let percent = percent.filter(|p| *p > 0.0 && *p <= 100.0).ok_or_else(|| UnitError {
                text: text.to_owned(),
                what: "share of a disk",
                expected: "more than 0% and not more than 100%",
            })?;
            self.percent = Some(self.percent.map_or(percent, |known| known.min(percent)));
        } else {
            let bytes = parse_size(text)?;
            if bytes < LIMIT_MIN {
                return Err(UnitError {
                    text: text.to_owned(),
                    what: "limit that leaves room for recordings",
                    expected: "10MiB or more, or percent of the disk as in 80%",
                });
            }
            self.bytes = Some(self.bytes.map_or(bytes, |known| known.min(bytes)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("500000", 500_000),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("1.5GiB", 3 << 29),
            ("200MB", 200_000_000),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "x", "1.GiB", ".5G", "-1", "1 GiBs", "99999999999T", "1e9", "5%"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, seconds) in [("60s", 60), ("15min", 900), ("15m", 900), ("1.5h", 5400)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        for text in ["", "60", "s", "1y", "-5s", "1..5s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rotations_and_limits() {
        let rotation = Rotation::parse("200MB, 60s, 1000packets").unwrap();
        let expected =
            Rotation { bytes: 200_000_000, packets: 1000, time: Duration::from_secs(60) };
        assert_eq!(rotation, expected);
        assert_eq!(Rotation::parse("9999999999packets").unwrap().packets, PACKETS_MAX);
        assert!(Rotation::parse("soon").unwrap_err().to_string().contains("soon"));
        let mut retention = Retention::default();
        for text in ["80%", "10GiB", "90%", "1GiB"] {
            retention.limit(text).unwrap();
        }
        assert_eq!((retention.percent, retention.bytes), (Some(80.0), Some(1 << 30)));
        assert!(Rotation::parse("60").is_err() && parse_size_with_unit("65536").is_err());
        assert_eq!(parse_size_with_unit("64MiB"), Ok(64 << 20));
        assert!(
            ["0%", "101%", "x%", "", "NaN%", "80"]
                .iter()
                .all(|text| retention.limit(text).is_err())
        );
    }
}
