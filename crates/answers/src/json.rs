//! JSON, written so that a terminal can show it.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::ser::{CharEscape, Formatter};
use serde_json::value::RawValue;
use tapdex_engine::time::{format_time, parse_time};

/// Writes a value on a line of its own.
pub fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    let mut text = to_vec(value)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// A value as JSON without line ends.
pub fn to_vec(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    // Most lines are shorter.
    let mut text = Vec::with_capacity(256);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, ForTerminals))?;
    Ok(text)
}

/// The same as text.
pub fn text(value: &impl Serialize) -> String {
    to_vec(value).ok().and_then(|text| String::from_utf8(text).ok()).unwrap_or_default()
}

/// Text in quotes.
pub fn string(text: &str) -> String {
    self::text(&text)
}

/// Escapes all control characters, also those that JSON would allow: a terminal would act on them.
struct ForTerminals;

impl Formatter for ForTerminals {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        target: &mut W,
        text: &str,
    ) -> io::Result<()> {
        // DEL, and the byte that U+0080 to U+009F start with. All others are escaped anyway.
        let is_suspect = |byte: u8| byte == 0x7F || byte == 0xC2;
        if !text.bytes().fold(false, |found, byte| found | is_suspect(byte)) {
            return target.write_all(text.as_bytes());
        }
        for part in text.split_inclusive(char::is_control) {
            let letter = part.chars().next_back().filter(|letter| letter.is_control());
            let plain = &part[..part.len() - letter.map_or(0, char::len_utf8)];
            target.write_all(plain.as_bytes())?;
            if let Some(letter) = letter {
                write!(target, "\\u{:04x}", u32::from(letter))?;
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        target: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let code = match escape {
            CharEscape::Quote => return target.write_all(b"\\\""),
            CharEscape::ReverseSolidus => return target.write_all(b"\\\\"),
            CharEscape::Solidus => return target.write_all(b"\\/"),
            CharEscape::Backspace => 0x08,
            CharEscape::FormFeed => 0x0C,
            CharEscape::LineFeed => 0x0A,
            CharEscape::CarriageReturn => 0x0D,
            CharEscape::Tab => 0x09,
            CharEscape::AsciiControl(code) => code,
        };
        write!(target, "\\u{code:04x}")
    }
}

/// A time in nanoseconds since 1970, as text in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_time(self.0))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text, 0, true).map(Self).map_err(D::Error::custom)
    }
}

/// A number that is written with `N` digits behind the point.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Digits<const N: usize>(pub f64);

impl<const N: usize> Serialize for Digits<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        raw(format!("{:.N$}", self.0), serializer)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Digits<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self)
    }
}

/// Nanoseconds, written as seconds with nine digits behind the point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / NS_PER_S, self.0 % NS_PER_S)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        raw(self.to_string(), serializer)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        let duration = Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)?;
        Ok(Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// Writes a number with just these digits.
fn raw<S: Serializer>(number: String, serializer: S) -> Result<S::Ok, S::Error> {
    RawValue::from_string(number).map_err(serde::ser::Error::custom)?.serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_json_and_for_terminals() {
        let text = |text: &str| String::from_utf8(to_vec(&text).unwrap()).unwrap();
        assert_eq!(text("ip.src"), r#""ip.src""#);
        assert_eq!(text("a\"\\/\n\t\u{1b}z"), r#""a\"\\/\u000a\u0009\u001bz""#);
        assert_eq!(text("\u{7f}\u{a3}\u{9f}x\u{80}"), "\"\\u007f\u{a3}\\u009fx\\u0080\"");
        for c in (0..=0x2FF).filter_map(char::from_u32) {
            let plain = c.to_string();
            let written = text(&plain);
            assert!(!written.contains(char::is_control), "{c:?}");
            assert_eq!(serde_json::from_str::<String>(&written).unwrap(), plain);
        }
    }

    #[test]
    fn numbers_and_times_keep_their_digits() {
        assert_eq!(text(&Digits::<1>(50.0)), "50.0");
        assert_eq!(serde_json::from_str::<Digits<1>>("50.0").unwrap(), Digits(50.0));
        assert!(to_vec(&Digits::<1>(f64::NAN)).is_err());
        assert!(serde_json::from_str::<Digits<1>>("\"50\"").is_err());
        for ns in [0, 1, 26_901_215, 4_000_000_000_000_001] {
            assert_eq!(serde_json::from_str::<Seconds>(&text(&Seconds(ns))).unwrap(), Seconds(ns));
        }
        assert_eq!(text(&Seconds(26_901_215)), "0.026901215");
        assert!(serde_json::from_str::<Seconds>("-1.0").is_err());
        let time = Time(1_767_600_000_000_377_316);
        assert_eq!(text(&time), r#""2026-01-05T08:00:00.000377316Z""#);
        assert_eq!(serde_json::from_str::<Time>(&text(&time)).unwrap(), time);
    }
}
