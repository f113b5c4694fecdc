//! JSON for programs: one type for each kind of line. `docs/output.md` describes them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::ser::{CharEscape, Formatter};
use serde_json::value::RawValue;
use tapdex_engine::time::format_time;
use tapdex_record::status::{Losses, SourceStatus, Status, Totals};

use super::CANNOT_WRITE;

/// Writes a value on a line of its own.
pub(crate) fn line(out: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = to_vec(value)?;
    text.push(b'\n');
    out.write_all(&text).context(CANNOT_WRITE)
}

/// A value as JSON without line ends.
pub(crate) fn to_vec(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    // Most lines are shorter.
    let mut text = Vec::with_capacity(256);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, ForTerminals))?;
    Ok(text)
}

/// The same as text.
pub(crate) fn text(value: &impl Serialize) -> String {
    to_vec(value).ok().and_then(|text| String::from_utf8(text).ok()).unwrap_or_default()
}

/// Text in quotes.
pub(crate) fn string(text: &str) -> String {
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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time(pub(crate) u64);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_time(self.0))
    }
}

/// A number with the digits that it is shown with elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct Rounded(pub(crate) String);

impl Serialize for Rounded {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.0.clone()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// A packet: `search --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Packet<'a> {
    pub(crate) time: Time,
    pub(crate) src: String,
    pub(crate) dst: String,
    pub(crate) protocol: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dst_port: Option<u16>,
    pub(crate) length: u32,
    pub(crate) captured: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) vlan: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) flags: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) tunnel: String,
    pub(crate) file: &'a str,
    pub(crate) number: u64,
    pub(crate) offset: u64,
}

/// A conversation: `flows --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Flow {
    pub(crate) start: Time,
    pub(crate) duration: Rounded,
    pub(crate) protocol: Cow<'static, str>,
    pub(crate) client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_port: Option<u16>,
    pub(crate) server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) vlan: String,
    pub(crate) client_packets: u64,
    pub(crate) server_packets: u64,
    pub(crate) client_bytes: u64,
    pub(crate) server_bytes: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) client_flags: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) server_flags: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) state: &'static str,
    pub(crate) community_id: String,
}

/// What is missing for one reason.
#[derive(Debug, Serialize)]
pub(crate) struct Missing<'a> {
    pub(crate) cause: &'static str,
    pub(crate) packets: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) from: Option<Time>,
    pub(crate) to: Option<Time>,
    pub(crate) intervals: u64,
    pub(crate) what: &'a str,
}

/// An archive: the first line of `info --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Archive<'a> {
    pub(crate) archive: String,
    pub(crate) segments: usize,
    pub(crate) packets: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) captured_bytes: u64,
    pub(crate) flows: u64,
    pub(crate) first: Option<Time>,
    pub(crate) last: Option<Time>,
    pub(crate) index_bytes: u64,
    pub(crate) unindexed: u64,
    pub(crate) gaps: usize,
    pub(crate) damaged: usize,
    pub(crate) incomplete: Vec<Missing<'a>>,
}

/// A field of an archive: `info --json --fields`.
#[derive(Debug, Serialize)]
pub(crate) struct Field<'a> {
    pub(crate) field: &'a str,
    pub(crate) bytes: u64,
    pub(crate) columns: u64,
    pub(crate) codecs: &'a BTreeMap<String, u64>,
}

/// A segment of an archive: `info --json --segments`.
#[derive(Debug, Serialize)]
pub(crate) struct Segment<'a> {
    pub(crate) segment: String,
    pub(crate) file: String,
    pub(crate) packets: u64,
    pub(crate) first: Time,
    pub(crate) last: Time,
    pub(crate) index_bytes: u64,
    pub(crate) order: &'static str,
    pub(crate) damage: &'a str,
}

/// A time from which there are no packets: `info --json`.
#[derive(Debug, Serialize)]
pub(crate) struct GapLine {
    pub(crate) gap: Gap,
}

#[derive(Debug, Serialize)]
pub(crate) struct Gap {
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) ns: u64,
}

/// The recorder of an archive: `info --json`.
#[derive(Debug, Serialize)]
pub(crate) struct RecorderLine<'a> {
    recorder: Recorder<'a>,
}

#[derive(Debug, Serialize)]
struct Recorder<'a> {
    state: &'static str,
    pid: u32,
    updated: Time,
    running: bool,
    run: Sums<'a>,
    total: Sums<'a>,
    waiting: u64,
    sources: Vec<Source<'a>>,
}

/// Counts of one run, or of all runs.
#[derive(Debug, Serialize)]
struct Sums<'a> {
    packets: u64,
    wire_bytes: u64,
    #[serde(serialize_with = "by_stage")]
    lost: &'a Losses,
    removed_segments: u64,
    removed_packets: u64,
    pauses: u64,
}

/// An interface or a stream that a recorder takes packets from.
#[derive(Debug, Serialize)]
struct Source<'a> {
    name: &'a str,
    up: bool,
    received: u64,
    stored: u64,
    #[serde(serialize_with = "by_stage")]
    lost: &'a Losses,
}

fn by_stage<S: Serializer>(lost: &&Losses, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(lost.by_stage())
}

impl<'a> RecorderLine<'a> {
    pub(crate) fn new(status: &'a Status, state: &'static str, running: bool) -> Self {
        let sums = |totals: &'a Totals| Sums {
            packets: totals.packets,
            wire_bytes: totals.wire_bytes,
            lost: &totals.lost,
            removed_segments: totals.removed_segments,
            removed_packets: totals.removed_packets,
            pauses: totals.pauses,
        };
        let source = |source: &'a SourceStatus| Source {
            name: &source.name,
            up: source.up,
            received: source.received,
            stored: source.stored,
            lost: &source.lost,
        };
        Self {
            recorder: Recorder {
                state,
                pid: status.pid,
                updated: Time(status.updated_ns),
                running,
                run: sums(&status.run),
                total: sums(&status.total),
                waiting: status.waiting,
                sources: status.sources.iter().map(source).collect(),
            },
        }
    }
}

/// A token: a line of `token list --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Token<'a> {
    pub(crate) id: String,
    pub(crate) name: &'a str,
    pub(crate) role: &'a str,
    pub(crate) kind: &'static str,
    pub(crate) standing: &'static str,
    pub(crate) created: Time,
    pub(crate) expires: Option<Time>,
    pub(crate) revoked: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<String>,
}

/// An index file: the first line of `index-file info --json`.
#[derive(Debug, Serialize)]
pub(crate) struct IndexFile {
    pub(crate) rows: u32,
    pub(crate) order: &'static str,
    pub(crate) version: u16,
    pub(crate) bytes: u64,
    pub(crate) times: Option<Times>,
}

/// The first and the last time of an index file, as they were given.
#[derive(Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A field of an index file.
#[derive(Debug, Serialize)]
pub(crate) struct TableField<'a> {
    pub(crate) field: &'a str,
    pub(crate) bits: u32,
    pub(crate) columns: usize,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// A column of an index file.
#[derive(Debug, Serialize)]
pub(crate) struct TableColumn<'a> {
    pub(crate) field: &'a str,
    pub(crate) digit: usize,
    pub(crate) bits: u32,
    pub(crate) codec: &'static str,
    pub(crate) w: Option<u8>,
    pub(crate) keys: u64,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// A section of an index file.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) section: &'static str,
    #[serde(flatten)]
    pub(crate) size: Size,
}

/// What a part of an index file takes.
#[derive(Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) bytes_per_row: Option<Rounded>,
    pub(crate) percent: Rounded,
}

/// A set of ids: the first line of `codec stats --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Ids {
    pub(crate) ids: usize,
    pub(crate) rows: u32,
    pub(crate) density: Option<Rounded>,
}

/// The size of the set in a codec.
#[derive(Debug, Serialize)]
pub(crate) struct InCodec {
    pub(crate) codec: &'static str,
    pub(crate) bytes: u64,
    pub(crate) bits_per_id: Option<Rounded>,
    pub(crate) ratio_to_wah: Option<Rounded>,
    pub(crate) smallest: bool,
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
    fn numbers_keep_their_digits() {
        let size = Size { bytes: 7, bytes_per_row: None, percent: Rounded("50.0".to_owned()) };
        let line = Section { section: "marks", size };
        let expected = br#"{"section":"marks","bytes":7,"bytes_per_row":null,"percent":50.0}"#;
        assert_eq!(to_vec(&line).unwrap(), expected);
        assert!(to_vec(&Rounded("NaN".to_owned())).is_err());
    }
}
