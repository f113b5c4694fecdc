//! Fields by the names that `top` takes.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tapdex_engine::fields::{self, NAMES, Name};

/// Parses a name; shells complete the names.
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
