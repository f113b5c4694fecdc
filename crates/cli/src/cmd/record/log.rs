//! Messages of a recorder on standard error: lines for people, or JSON for journals.

use std::fmt;
use std::io;

use serde::Deserialize;
use tapdex_record::messages::{Level, Message};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::super::{Logged, chain, escaped_note};

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object on each line, with time, level, message and what it is about.
    Json,
}

/// Which messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Packets are lost, or will be.
    Error,
    /// Also: something does not work, or works again.
    Warn,
    /// Also: start and end.
    Info,
    /// Also: every recording that is completed, indexed or removed.
    Debug,
}

/// How and which messages are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub(super) format: LogFormat,
    pub(super) level: LogLevel,
}

impl Log {
    /// Writes the messages of this process from now on.
    pub(super) fn start(self) {
        let level = match self.level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        };
        let log = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(io::stderr)
            .with_ansi(false)
            // If writing fails there is nobody left to tell, and recording goes on.
            .log_internal_errors(false);
        // It fails if there is a subscriber already, which then stays.
        drop(match self.format {
            LogFormat::Text => log.event_format(Plain).try_init(),
            LogFormat::Json => log
                .json()
                .flatten_event(true)
                .with_target(false)
                .with_current_span(false)
                .with_span_list(false)
                .try_init(),
        });
    }

    /// Writes the error that recording ends with, unless the caller does so for people.
    pub(super) fn end(self, error: anyhow::Error) -> anyhow::Error {
        if self.format == LogFormat::Text {
            return error;
        }
        tracing::error!("{}", chain(error.as_ref()));
        error.context(Logged)
    }
}

/// Writes a message of the recorder, with what it is about.
pub(super) fn write(message: &Message) {
    macro_rules! event {
        ($level:ident) => {
            tracing::$level!(
                interface = message.interface.as_deref(),
                file = message.file.as_ref().map(|path| tracing::field::display(path.display())),
                packets = message.packets,
                bytes = message.bytes,
                seconds = message.seconds,
                "{}",
                message.text
            )
        };
    }
    match message.level {
        Level::Error => event!(error),
        Level::Warn => event!(warn),
        Level::Info => event!(info),
        Level::Debug => event!(debug),
    }
}

/// Only the text, as all commands write it. It includes what the fields say.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = Text(String::new());
        event.record(&mut text);
        writer.write_str(&escaped_note(&text.0))
    }
}

/// The text of an event.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
