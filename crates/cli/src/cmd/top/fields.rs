//! Fields by the names that `top` takes, and how their values are written.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt::{Display, Formatter};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tapdex_engine::archive::{ArchiveError, Segment, UnreadPackets};
use tapdex_engine::fields::{self, Kind, LENGTH_802_3_MAX, NAMES, Name, Shown};
use tapdex_engine::query::count_name;

use crate::cmd::shown_packets;

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    Number(Shown),
    Text(String),
}

/// Finds what a name stands for; shells complete the names.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameParser;

impl TypedValueParser for NameParser {
    type Value = &'static Name;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let text = StringValueParser::new().parse_ref(command, argument, value)?;
        fields::for_top(&text).ok_or_else(|| {
            let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
            let argument = argument.map_or_else(|| "<FIELD>".into(), ToString::to_string);
            error.insert(ContextKind::InvalidArg, ContextValue::String(argument));
            error.insert(ContextKind::InvalidValue, ContextValue::String(text));
            let names = shown_names().map(str::to_owned).collect();
            error.insert(ContextKind::ValidValue, ContextValue::Strings(names));
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(shown_names().map(PossibleValue::new)))
    }
}

/// The names that are shown, one for each thing that can be counted.
fn shown_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().filter_map(|name| name.top.first().copied())
}

/// Counts the values among some packets of a segment; `rows` are theirs, or `None` if these are all
/// of them. How many packets were read for it, and those that are not what was indexed.
pub(super) fn count(
    name: &Name,
    segment: &Segment,
    records: &[u32],
    rows: Option<&[u32]>,
    counts: &mut HashMap<Value, u64>,
) -> Result<(u64, UnreadPackets), ArchiveError> {
    count_name(segment, name, records, rows, &mut |shown, count| {
        *counts.entry(value(segment, shown)).or_default() += count;
    })
}

fn value(segment: &Segment, Shown(kind, value): Shown) -> Value {
    match kind {
        Kind::EtherType if value <= LENGTH_802_3_MAX => Value::Number(Shown(kind, 0)),
        Kind::Interface => {
            let interfaces = &segment.note().layout.interfaces;
            let named = usize::try_from(value).ok().and_then(|number| interfaces.get(number));
            Value::Text(match named.filter(|interface| !interface.name.is_empty()) {
                Some(interface) => interface.name.clone(),
                None => format!("{value} of {}", shown_packets(segment)),
            })
        }
        _ => Value::Number(Shown(kind, value)),
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(shown) => shown.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_names_every_field() {
        let mut command = crate::Cli::command();
        let help = command.find_subcommand_mut("top").unwrap().render_long_help().to_string();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let words: Vec<&str> = help.split(|c| !is_name(c)).collect();
        for name in shown_names() {
            assert!(words.contains(&name), "{name}");
        }
    }
}
